//! The bytes of the state file: its slots, their records, and what a generator keeps of its record in memory.
//!
//! A *record* holds for each lane its mark: the tick up to which IDs may exist. The file has two *slots* of 4 KiB, each
//! a JSON document with a version, a CRC-32C and a generation. A record goes first to the slot that does not hold the
//! newest durable one, so that a torn write leaves that one whole, and then to the other. The file names its own inode
//! and time of birth. In a copy they are wrong, and the copy's original may still run.

use crate::host::{FileIdentity, Loaded, RecordName, SLOT_BYTES, WorkerMarks};
use crate::layout::{Layout, Tick};
use crate::lease::{Lease, Membership};
use crate::refusal::{ClosedReason, FloorCause};
use crate::workers::{MAX_LANES, Nodes};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The version that this code writes, and the newest that it reads.
const VERSION: u32 = 1;
/// How many workers of earlier settings keep a mark each; the others share `elsewhere`.
const MAX_FORMER: usize = 48;
/// Under how many other numbers a server is known to itself.
const MAX_NUMBERS: usize = 2;
/// The mark of a worker that belongs to the original of a copy. No clock reaches it.
pub(crate) const NOT_OURS: i64 = i64::MAX;
/// The active worker of a server that has none.
pub(super) const NOBODY: i64 = -1;

// ---- the record ----

/// The layout as the record holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordedLayout {
    bits: String,
    tick_ms: i64,
    epoch_us: i64,
}

impl RecordedLayout {
    pub(super) fn of(layout: &Layout) -> Self {
        let tick_ms = layout.tick().millis();
        Self { bits: layout.bits().to_string(), tick_ms, epoch_us: layout.epoch_us() }
    }

    pub(super) fn read(&self) -> Option<Layout> {
        Layout::new(self.bits.parse().ok()?, Tick::from_millis(self.tick_ms)?, self.epoch_us).ok()
    }
}

/// What a record says besides its heading and its marks. The generator keeps the same in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Its generation, among others.
    #[serde(flatten)]
    pub(crate) name: RecordName,
    pub(crate) system_identifier: u64,
    pub(crate) file: FileIdentity,
    /// The mark of every other worker: the floor of the first start, or the greatest mark of the earlier workers for
    /// which there is no room.
    pub(super) elsewhere: i64,
    /// `max_ahead` when this was written, in microseconds. IDs that the server generated before are below the marks.
    /// Those that it generates after this file was copied need not be, and this bounds them.
    pub(crate) max_ahead_us: i64,
    /// How far ahead of use the active lane's mark was reserved, in microseconds; more than `reserve` if the disk was
    /// slow.
    pub(crate) reserved_us: i64,
    /// The marks do not yet lie above the IDs in transactions that earlier timelines prepared and did not commit.
    pub(crate) owes_prepared: bool,
    /// A worker that this record does not name may be another server's: this directory was that of a standby, or there
    /// was no room for all workers of its originals.
    pub(super) unknown_are_theirs: bool,
    /// The last floor to which all marks were raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) floor: Option<Floor>,
    /// An operator vouched for a state that was lost, or for another layout: IDs may exist of which no mark tells.
    pub(super) is_vouched: bool,
    /// In a fleet with a registry: who this node is, and its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) membership: Option<Membership>,
    /// What the membership was before the node's present life, until that has a lease. An operator may vouch for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) earlier_life: Option<Membership>,
    /// Who this server is under other configured numbers that the registry confirmed, the latest first.
    pub(super) other_numbers: [Option<Membership>; MAX_NUMBERS],
    /// A standby wrote this, because it holds a number: the file is its own, and so are the memberships. All else is as
    /// its primary left it.
    pub(super) of_standby: bool,
    /// Whoever wrote this did not own the directory: a standby without a state, or a server that was started without a
    /// promotion. Only a promotion or an operator makes it a primary's.
    pub(super) is_disowned: bool,
}

impl Facts {
    /// Of a generator without a disk.
    pub(super) const NONE: Self = Self {
        name: RecordName { life: Uuid::nil(), run: Uuid::nil(), generation: 0 },
        system_identifier: 0,
        file: FileIdentity::NOBODY,
        elsewhere: -1,
        max_ahead_us: 0,
        reserved_us: 0,
        owes_prepared: false,
        unknown_are_theirs: false,
        floor: None,
        is_vouched: false,
        membership: None,
        earlier_life: None,
        other_numbers: [None; MAX_NUMBERS],
        of_standby: false,
        is_disowned: false,
    };
}

/// The promises as a slot holds them. Workers are stored as they stand in an ID, datacenter included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(super) facts: Facts,
    pub(super) timeline: u32,
    /// The timeline's depth, on which the half depends; 0 if whoever wrote this did not know it.
    pub(super) depth: u32,
    pub(super) layout: RecordedLayout,
    /// The number of lanes when this was written, because the halves depend on it.
    pub(super) lanes: usize,
    pub(super) active: i64,
    /// For each worker that this server owns or once owned: no ID above this tick exists.
    pub(super) marks: BTreeMap<i64, i64>,
}

/// A mark that was set for all workers, although no ID of this server reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// The tick.
    pub mark: i64,
    /// Why it was set.
    pub cause: FloorCause,
}

impl Record {
    /// Whether no ID was generated under this record: it began with a start that found no state, and no mark has passed
    /// that start's floor. Only true after a clean stop, because only that writes exact marks.
    pub(super) fn is_unused(&self) -> bool {
        let is_below =
            |floor: Floor| self.marks.values().chain([&self.facts.elsewhere]).all(|mark| *mark <= floor.mark);
        let is_first = |floor: Floor| floor.cause == FloorCause::NoState && !self.facts.is_vouched;
        self.facts.floor.is_some_and(|floor| is_first(floor) && is_below(floor))
    }

    /// The highest mark of this server's workers and of those that it had or may have.
    pub(super) fn highest_mark(&self) -> i64 {
        let known = self.marks.values().copied().filter(|mark| *mark != NOT_OURS);
        known.max().unwrap_or(-1).max(self.facts.elsewhere)
    }

    /// Whether it lies in the file into which it was written, in the same cluster: whoever reads it there is the node
    /// that wrote it.
    pub(super) fn is_in_place(&self, file: FileIdentity, system_identifier: u64) -> bool {
        self.facts.file.is(file) && self.facts.system_identifier == system_identifier
    }

    /// Whether it is a copy of another server's, as far as the marks go.
    pub(super) fn is_copied(&self, file: FileIdentity) -> bool {
        self.facts.of_standby || !self.facts.file.is(file)
    }

    /// Whether a standby wrote it that had no record of its primary: it says nothing of any worker.
    pub(super) fn is_blank(&self) -> bool {
        self.facts.of_standby && self.marks.is_empty()
    }

    /// Gives all workers, except those of `nodes`, to the original of the copy in which this record was found.
    pub(super) fn leave_to_original(&mut self, nodes: &[i64]) {
        let theirs = self.marks.iter_mut().filter(|(node, _)| !nodes.contains(node));
        theirs.for_each(|(_, mark)| *mark = NOT_OURS);
    }

    /// The mark of a worker that need not be in the record.
    pub(super) fn mark_of(&self, node: i64) -> i64 {
        let unknown = if self.facts.unknown_are_theirs { NOT_OURS } else { self.facts.elsewhere };
        self.marks.get(&node).copied().unwrap_or(unknown)
    }

    /// Whether the record has a worker of `nodes` whose mark satisfies `with`.
    pub(super) fn has_worker(&self, nodes: &[i64], with: impl Fn(i64) -> bool) -> bool {
        nodes.iter().any(|node| self.marks.get(node).is_some_and(|mark| with(*mark)))
    }
}

// ---- the slots ----

#[derive(Serialize)]
struct Envelope<'a> {
    version: u32,
    crc32c: String,
    record: &'a RawValue,
}

#[derive(Deserialize)]
struct ReadEnvelope<'a> {
    version: u32,
    crc32c: String,
    #[serde(borrow)]
    record: &'a RawValue,
}

fn checksum(version: u32, record: &str) -> String {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&version.to_le_bytes()), record.as_bytes());
    format!("{crc:08x}")
}

/// The bytes of a slot that holds this record.
fn encode(record: &Record) -> Vec<u8> {
    let record = serde_json::value::to_raw_value(record).expect("a record is plain data");
    let crc32c = checksum(VERSION, record.get());
    let envelope = Envelope { version: VERSION, crc32c, record: &record };
    let mut bytes = serde_json::to_vec(&envelope).expect("an envelope is plain data");
    bytes.push(b'\n');
    assert!(bytes.len() <= SLOT_BYTES, "64 workers take about half a slot");
    bytes.resize(SLOT_BYTES, b' ');
    bytes
}

/// The record that a slot holds; `None` if it cannot be read.
fn decode(bytes: &[u8]) -> Option<Result<Record, ClosedReason>> {
    let envelope: ReadEnvelope<'_> = serde_json::from_slice(bytes).ok()?;
    if checksum(envelope.version, envelope.record.get()) != envelope.crc32c {
        return None;
    }
    if envelope.version > VERSION {
        return Some(Err(ClosedReason::NewerVersion(envelope.version)));
    }
    serde_json::from_str(envelope.record.get()).ok().map(Ok)
}

/// The newest record of a file, and its slot.
pub(super) fn newest(loaded: &Loaded) -> Result<(usize, Record), ClosedReason> {
    let generation = |record: &Record| record.facts.name.generation;
    let mut found: Option<(usize, Record)> = None;
    for (slot, bytes) in loaded.slots.iter().enumerate() {
        if let Some(record) = decode(bytes).transpose()?
            && found.as_ref().is_none_or(|(_, other)| generation(other) < generation(&record))
        {
            found = Some((slot, record));
        }
    }
    found.ok_or(ClosedReason::Unreadable)
}

/// The layout with which the IDs of a state file were generated; `None` if it cannot be read or there are no IDs.
pub fn recorded_layout(loaded: &Loaded) -> Option<Layout> {
    let (_, record) = newest(loaded).ok()?;
    if record.is_unused() || record.is_blank() { None } else { record.layout.read() }
}

/// The name of the newest record of a state file; `None` if it cannot be read.
pub fn recorded_name(loaded: &Loaded) -> Option<RecordName> {
    newest(loaded).ok().map(|(_, record)| record.facts.name)
}

// ---- in memory ----

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

    /// What the node was before its host was rebooted, if an operator can resume its lease.
    pub(crate) fn resumable(&self) -> Option<Membership> {
        self.facts.earlier_life.filter(|_| self.lease().is_none())
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

    /// The same promises of a server with this configured number: the node that it was under the number before, or
    /// `born`. Who it was until now is remembered, if the registry confirmed another number.
    pub(crate) fn of_number(mut self, home: i64, born: Membership) -> Self {
        let is_of = |node: &Membership| node.counts_as(&born);
        let has = |node: &Membership| node.lease.is_some_and(|lease| lease.home == home);
        let present = self.facts.membership.filter(is_of);
        if present.is_some_and(|node| node.lease.is_none() || has(&node)) {
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
    pub(crate) fn for_lease(&self, heading: &Heading<'_>, nodes: &[i64], floor: i64) -> Self {
        let record = self.record(heading, self.facts.file);
        let mut promises = Self::of(&record, self.newest, self.facts.file, nodes);
        promises.facts.earlier_life = None;
        let vouched = self.facts.floor.filter(|floor| floor.cause == FloorCause::Operator);
        let least = floor.max(vouched.map_or(-1, |floor| floor.mark));
        for (mark, node) in promises.marks.iter_mut().zip(nodes) {
            // What the original of a copy can have generated lies below the floor.
            let known = record.marks.get(node).filter(|mark| **mark != NOT_OURS);
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
        let place = self.former.iter().position(|known| known.is_some_and(|(node, _)| node == worker));
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
    pub(super) fn of(record: &Record, slot: usize, file: FileIdentity, nodes: &[i64]) -> Self {
        let mut marks = [record.facts.elsewhere; MAX_LANES];
        for (mark, node) in marks.iter_mut().zip(nodes) {
            *mark = record.mark_of(*node);
        }
        let not_owned = record.marks.iter().filter(|(node, _)| !nodes.contains(node));
        let mut not_owned: Vec<(i64, i64)> = not_owned.map(|(node, mark)| (*node, *mark)).collect();
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
        let own = heading.nodes.iter().copied().zip(self.marks);
        let own = own.filter(|(_, mark)| !self.facts.of_standby && (0..NOT_OURS).contains(mark));
        WorkerMarks::new(
            self.facts.system_identifier,
            own.map(|(node, mark)| (node, heading.layout.starts_at(mark))),
        )
    }

    /// The bytes of a slot of the file `file`.
    pub(crate) fn encode(&self, heading: &Heading<'_>, file: FileIdentity) -> Vec<u8> {
        encode(&self.record(heading, file))
    }

    fn record(&self, heading: &Heading<'_>, file: FileIdentity) -> Record {
        let nodes: &[i64] = &heading.nodes;
        let own = || (nodes.len(), nodes.get(heading.active).copied().unwrap_or(NOBODY));
        let (lanes, active) = heading.of_primary.unwrap_or_else(own);
        Record {
            facts: Facts { file, ..self.facts },
            timeline: heading.timeline,
            depth: heading.depth,
            layout: RecordedLayout::of(heading.layout),
            lanes,
            active,
            marks: nodes.iter().copied().zip(self.marks).chain(self.former.into_iter().flatten()).collect(),
        }
    }
}

/// The part of a record that the promises do not hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heading<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) nodes: Nodes,
    pub(crate) timeline: u32,
    pub(crate) depth: u32,
    pub(crate) active: usize,
    /// `max_ahead` as it is in force, in microseconds.
    pub(crate) max_ahead_us: i64,
    /// Of a standby that holds its number: number of lanes and active worker, as its primary's record had them.
    pub(crate) of_primary: Option<(usize, i64)>,
}
