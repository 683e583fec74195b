//! What a generator keeps of its record in memory: the promises, of which the next record will tell.

use super::record::{Facts, Floor, NOT_OURS, Record, RecordedLayout};
use super::slots::encode;
use crate::host::{Claim, FileIdentity, Sight, WorkerMarks};
use crate::layout::Layout;
use crate::lease::{Lease, Membership};
use crate::refusal::FloorCause;
use crate::workers::{Half, MAX_LANES, Origins};
use uuid::Uuid;

/// How many workers of earlier settings keep a mark each; the others share `elsewhere`.
const MAX_FORMER: usize = 48;
/// The active worker of a server that has none.
pub(super) const NOBODY: i64 = -1;

/// The part of its record that the generator keeps in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promises {
    pub(crate) facts: Facts,
    /// The slot of the newest durable record.
    pub(crate) newest: usize,
    /// Per lane, on disk: no ID of the lane above it has ever been returned.
    pub(crate) marks: [i64; MAX_LANES],
    /// Workers of earlier settings and their marks, because one of them may be configured again.
    pub(super) former: [Option<(i64, i64)>; MAX_FORMER],
}

impl Promises {
    /// No promises, for a generator without a disk.
    pub(crate) const fn none() -> Self {
        Self { facts: Facts::NONE, newest: 0, marks: [-1; MAX_LANES], former: [None; MAX_FORMER] }
    }

    /// The lease, if the node has one.
    pub(crate) fn lease(&self) -> Option<Lease> {
        self.facts.membership.and_then(|membership| membership.lease)
    }

    /// The same promises, of a node that knows this.
    pub(crate) fn of_member(self, membership: Membership) -> Self {
        Self { facts: Facts { membership: Some(membership), ..self.facts }, ..self }
    }

    /// The same promises of the node that wrote this record.
    pub(super) fn of_members(self, record: &Record) -> Self {
        let Facts { membership, earlier_life, other_numbers, .. } = record.facts;
        Self { facts: Facts { membership, earlier_life, other_numbers, ..self.facts }, ..self }
    }

    /// The same promises of a copy: it is another node than its original.
    pub(crate) fn of_nobody(self) -> Self {
        let Facts { membership, earlier_life, other_numbers, .. } = Facts::NONE;
        Self { facts: Facts { membership, earlier_life, other_numbers, ..self.facts }, ..self }
    }

    /// The same promises of a node whose record the witness sees so. Unless that is the last record, a copy of the volume
    /// may have the lease, too: it is that of an earlier life.
    pub(super) fn seen(mut self, sight: Sight) -> Self {
        if sight != Sight::Last {
            let lives = [self.facts.earlier_life, self.facts.membership.take()];
            self.facts.earlier_life = lives.into_iter().flatten().max_by_key(|life| life.lease.is_some());
        }
        self
    }

    /// The same promises of a server with this configured number: the node that it was under the number before, or
    /// `born`. Who it was until now is remembered, if the registry confirmed another number.
    pub(crate) fn of_number(mut self, home: i64, born: Membership) -> Self {
        let is_of = |node: &Membership| node.counts_as(&born);
        let has = |node: &Membership| node.lease.is_some_and(|lease| lease.home == home);
        // There is no other number to go to, so an earlier life goes on.
        let present = self.facts.membership.or_else(|| self.facts.earlier_life.take()).filter(is_of);
        if present.is_some_and(|node| node.lease.is_none() || has(&node)) {
            self.facts.membership = present;
            return self;
        }
        let known = self.facts.other_numbers.into_iter().flatten().filter(is_of);
        let (again, others): (Vec<_>, Vec<_>) = known.partition(has);
        self.facts.membership = Some(again.first().copied().unwrap_or(born));
        let mut others = present.into_iter().chain(others);
        self.facts.other_numbers = std::array::from_fn(|_| others.next());
        self
    }

    /// The same promises for the lanes of a new lease: the workers of the present one become former workers. The lanes
    /// begin above the lease's floor, above what this server generated with them before, and above what an operator has
    /// said; nothing else that the record says of unknown workers concerns them.
    pub(crate) fn for_lease(&self, heading: &Heading<'_>, origins: &[i64], floor: i64) -> Self {
        let record = self.record(heading, self.facts.file);
        let mut promises = Self::of(&record, self.newest, self.facts.file, origins);
        promises.facts.earlier_life = None;
        let vouched = self.facts.floor.filter(|floor| floor.cause == FloorCause::Operator);
        let least = floor.max(vouched.map_or(-1, |floor| floor.mark));
        for (mark, origin) in promises.marks.iter_mut().zip(origins) {
            // What the original of a copy can have generated lies below the floor.
            let known = record.marks.get(origin).filter(|mark| **mark != NOT_OURS);
            *mark = known.map_or(least, |known| least.max(*known));
        }
        // A record counts as unused while no mark has passed the floor of a first start. Of a lane that begins below it,
        // IDs can be there although no mark says so.
        let begins_below = |floor: &Floor| promises.marks.iter().any(|mark| *mark < floor.mark);
        promises.facts.floor =
            self.facts.floor.filter(|floor| floor.cause != FloorCause::NoState || !begins_below(floor));
        promises
    }

    /// The floor above which an earlier lease of this server goes on. If there was no room for the marks of its workers,
    /// they share a higher one.
    pub(crate) fn floor_to_resume(&self, lease: &Lease) -> i64 {
        lease.floor.max(self.facts.elsewhere)
    }

    /// Every lane as if it had never been used, for a server that has no workers yet.
    pub(super) fn without_lanes(self) -> Self {
        Self { marks: [-1; MAX_LANES], ..self }
    }

    /// Raises the mark of each lane to `floor`.
    pub(crate) fn raise_lanes(&mut self, floor: i64) {
        self.marks.iter_mut().for_each(|mark| *mark = floor.max(*mark));
    }

    /// Raises every mark to `floor`, including those of other workers.
    pub(crate) fn raise_all(&mut self, floor: i64, cause: FloorCause) {
        self.every_mark().for_each(|mark| *mark = floor.max(*mark));
        if self.facts.floor.is_none_or(|known| known.mark < floor) {
            self.facts.floor = Some(Floor { mark: floor, cause });
        }
    }

    /// Sets every mark to `floor`, except those of a copy's original.
    pub(crate) fn set_all(&mut self, floor: i64) {
        self.every_mark().filter(|mark| **mark != NOT_OURS).for_each(|mark| *mark = floor);
        self.facts.floor = Some(Floor { mark: floor, cause: FloorCause::Operator });
    }

    /// Takes back what [`set_all`](Self::set_all) did to workers that have no lane: `before` knows more of them.
    pub(crate) fn keep_former(&mut self, before: &Self) {
        (self.former, self.facts.elsewhere) = (before.former, before.facts.elsewhere);
    }

    /// Raises the mark of a worker without a lane, if there is room for it. One that was unknown had the mark that all
    /// unknown ones share.
    pub(super) fn remember(&mut self, worker: i64, mark: i64) {
        let place = self.former.iter().position(|known| known.is_some_and(|(origin, _)| origin == worker));
        let Some(place) = place.or_else(|| self.former.iter().position(Option::is_none)) else { return };
        let unknown = if self.facts.unknown_are_theirs { NOT_OURS } else { self.facts.elsewhere };
        let known = self.former[place].map_or(unknown, |(_, known)| known);
        self.former[place] = Some((worker, mark.max(known)));
    }

    /// Leaves the state's life to the original of this copy, or to another timeline.
    pub(super) fn begin_life(&mut self) {
        self.facts.name.life = Uuid::nil();
    }

    fn every_mark(&mut self) -> impl Iterator<Item = &mut i64> {
        let former = self.former.iter_mut().flatten().map(|(_, mark)| mark);
        self.marks.iter_mut().chain(former).chain([&mut self.facts.elsewhere])
    }

    /// The promises of a record that was read from `slot`, for the lanes of this configuration.
    pub(super) fn of(record: &Record, slot: usize, file: FileIdentity, origins: &[i64]) -> Self {
        let mut marks = [record.facts.elsewhere; MAX_LANES];
        for (mark, origin) in marks.iter_mut().zip(origins) {
            *mark = record.mark_of(*origin);
        }
        let not_owned = record.marks.iter().filter(|(origin, _)| !origins.contains(origin));
        let mut not_owned: Vec<(i64, i64)> = not_owned.map(|(origin, mark)| (*origin, *mark)).collect();
        // If there are too many, the lowest marks share `elsewhere`, because they matter least. Those of an original
        // are no marks to share, so from then on no unknown worker is this server's.
        not_owned.sort_by_key(|(_, mark)| std::cmp::Reverse(*mark));
        let mut former = [None; MAX_FORMER];
        former.iter_mut().zip(&not_owned).for_each(|(place, worker)| *place = Some(*worker));
        let folded = not_owned.iter().skip(MAX_FORMER).map(|(_, mark)| *mark);
        let is_theirs_folded = folded.clone().any(|mark| mark == NOT_OURS);
        let folded = folded.filter(|mark| *mark != NOT_OURS).max().unwrap_or(-1);
        let facts = Facts {
            file,
            elsewhere: record.facts.elsewhere.max(folded),
            unknown_are_theirs: record.facts.unknown_are_theirs || is_theirs_folded,
            of_standby: false,
            is_disowned: false,
            ..record.facts
        };
        Self { facts, newest: slot, marks, former }
    }

    /// These promises after a write of others failed: what is known of the file is known from that.
    pub(crate) fn after_failed_write(self, attempted: &Self) -> Self {
        let Facts { file, name, .. } = attempted.facts;
        Self { facts: Facts { file, name, ..self.facts }, newest: attempted.newest, ..self }
    }

    /// The marks of this server's own workers, for the host's witness. What a standby keeps are its primary's.
    pub(crate) fn marks_by_worker(&self, heading: &Heading<'_>) -> WorkerMarks {
        let own = heading.origins.iter().copied().zip(self.marks);
        let own = own.filter(|(_, mark)| !self.facts.of_standby && (0..NOT_OURS).contains(mark));
        WorkerMarks::new(
            self.facts.system_identifier,
            own.map(|(origin, mark)| (origin, heading.layout.starts_at(mark))),
        )
    }

    /// What the server claims on its host: what its timeline may use. What a standby keeps are its primary's workers, and
    /// without its lease a node has none.
    pub(crate) fn claim(&self, heading: &Heading<'_>) -> Claim {
        let lease = self.lease().filter(|_| heading.is_leased).map(|lease| lease.floor);
        let has_workers = heading.of_primary.is_none() && heading.is_leased == lease.is_some();
        let origin = |lane| heading.origins.get(lane).copied();
        let workers = heading.half.filter(|_| has_workers).filter_map(origin);
        Claim::new(self.facts.system_identifier, lease, workers.collect())
    }

    /// The bytes of a slot of the file `file`.
    pub(crate) fn encode(&self, heading: &Heading<'_>, file: FileIdentity) -> Vec<u8> {
        encode(&self.record(heading, file))
    }

    fn record(&self, heading: &Heading<'_>, file: FileIdentity) -> Record {
        let origins: &[i64] = &heading.origins;
        let own = || (origins.len(), origins.get(heading.active).copied().unwrap_or(NOBODY));
        let (lanes, active) = heading.of_primary.unwrap_or_else(own);
        Record {
            facts: Facts { file, ..self.facts },
            timeline: heading.timeline,
            depth: heading.depth,
            layout: RecordedLayout::of(heading.layout),
            lanes,
            active,
            marks: origins.iter().copied().zip(self.marks).chain(self.former.into_iter().flatten()).collect(),
        }
    }
}

/// The part of a record that the promises do not hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heading<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) origins: Origins,
    pub(crate) timeline: u32,
    pub(crate) depth: u32,
    /// The lanes that the timeline may use.
    pub(crate) half: Half,
    pub(crate) active: usize,
    /// `max_ahead` as it is in force, in microseconds.
    pub(crate) max_ahead_us: i64,
    /// The registry says which workers the server has.
    pub(crate) is_leased: bool,
    /// Of a standby that holds its number: number of lanes and active worker, as its primary's record had them.
    pub(crate) of_primary: Option<(usize, i64)>,
}
