//! The decision of a start: the marks from which the lanes begin, or the reason why the gate stays closed.
//!
//! # The seven steps of a start
//!
//! 1. Rewrite and fsync both slots, and take the newest valid one. A file without a valid slot, or of a later version,
//!    keeps the gate closed.
//! 2. If the recorded layout, tick or epoch differs from the configured one, the gate stays closed, unless no ID was
//!    ever generated with it.
//! 3. If the system identifier, inode or time of birth differs from the recorded one, or another server began the
//!    timeline, the directory is a copy or a standby. Its original may still run, so the gate stays closed for the
//!    workers in the record. The same holds if the host's witness knows a later record, or another server that goes on
//!    from this one.
//! 4. On a new timeline, take that timeline's lane, and begin above every ID that an earlier timeline may have
//!    generated with it.
//! 5. On the same timeline, stay on the recorded lane. If the witness knows nothing, as after a reboot, begin above the
//!    clock: if an older state was put back, what was generated since lies below.
//! 6. Without a file, begin above the clock and the control file's time.
//! 7. Begin no worker below what the host has seen of it. Make the decision durable; then open the gate.
//!
//! Steps 1 to 6 are pure functions in this file. The generator does the seventh.

use super::record::{Facts, Floor, NOBODY, NOT_OURS, Promises, Record, newest};
use crate::host::{Loaded, RecordName, Sight, WorkerMarks};
use crate::layout::Layout;
use crate::lease::Membership;
use crate::refusal::{AdoptError, ClosedReason, FloorCause};
use crate::workers::{MAX_LANES, Nodes};

/// If nothing was recorded, marks start this far above the latest known time.
const FIRST_MARGIN_US: i64 = 1_000_000;
/// A floor further ahead of the clock than this counts as a mistake.
const FARTHEST_FLOOR_US: i64 = 24 * 3_600_000_000;

/// The facts that a start knows besides the file.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The timeline on which the server writes: 1, 2, ...
    pub timeline: u32,
    /// How many timelines led to it, itself included: 1 for the first, and one more with each promotion or recovery,
    /// whatever its number. `None` if its history cannot be read.
    pub depth: Option<u32>,
    /// The latest timeline that the data directory had reached before this start, by its control file. If `timeline` is
    /// later, this start began it; if not, another server may still write on it.
    pub timeline_before: u32,
    /// The control file said before this start that the server was a standby, or was being restored.
    pub was_in_recovery: bool,
    /// The cluster's system identifier.
    pub system_identifier: u64,
    /// When the control file was last written before this start, as a Unix time in microseconds.
    pub control_us: i64,
    /// The latest time that is known from the replayed WAL, as a Unix time in microseconds: that of the last commit, or
    /// of the primary's checkpoint at which the replay began.
    pub replayed_us: Option<i64>,
    /// Transactions that were prepared before this start and are still open.
    pub prepared: Prepared,
}

/// A start's knowledge of prepared transactions, whose IDs can be later than the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Nothing: only a session can read them.
    Unread,
    /// When the last of them was prepared, as a Unix time in microseconds; `None` if there is none.
    Read(Option<i64>),
}

impl Start {
    /// A start on a timeline (1, 2, ...) about which nothing else is known. It began the timeline, unless that is the
    /// first.
    pub fn of_timeline(timeline: u32) -> Self {
        Self {
            timeline,
            depth: None,
            timeline_before: timeline.saturating_sub(1).max(1),
            was_in_recovery: false,
            system_identifier: 0,
            control_us: i64::MIN,
            replayed_us: None,
            prepared: Prepared::Read(None),
        }
    }

    /// The same start with its depth. Where the history cannot be read, it is what the timeline's own record says, or
    /// the timeline's number, which the depth is as long as no number was left out.
    pub(crate) fn placed(&self, loaded: Option<&Loaded>) -> Self {
        let recorded = loaded.and_then(|loaded| newest(loaded).ok()).map(|(_, record)| record);
        let own = recorded.filter(|record| record.timeline == self.timeline && record.depth > 0);
        let depth = self.depth.or(own.map(|record| record.depth)).unwrap_or(self.timeline);
        Self { depth: Some(depth), ..*self }
    }

    /// The depth of the timeline.
    pub(crate) fn depth(&self) -> u32 {
        self.depth.unwrap_or(self.timeline)
    }

    /// Whether this start began its timeline, as a promotion and a restore to a point in time do.
    fn made_timeline(&self) -> bool {
        self.timeline > self.timeline_before
    }

    /// The latest known time at which other servers worked on earlier timelines.
    fn known_us(&self) -> Option<i64> {
        match self.prepared {
            Prepared::Read(prepared_us) => self.replayed_us.max(prepared_us),
            Prepared::Unread => self.replayed_us,
        }
    }
}

/// The outcome of a start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) promises: Promises,
    pub(crate) active: usize,
    /// The file must be created, because none of this server exists.
    pub(crate) needs_new_file: bool,
}

/// The record of its primary as a standby keeps it while it holds its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// The workers whose marks the promises have as those of lanes.
    pub(crate) nodes: Nodes,
    /// The number of lanes, and the active worker.
    pub(crate) said: (usize, i64),
}

/// Everything on which a start's decision depends.
#[derive(Clone)]
pub(crate) struct Evidence<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) nodes: Nodes,
    /// The lanes of the timeline's half, in the order of rotation.
    pub(crate) half: Vec<usize>,
    pub(crate) start: &'a Start,
    /// The wall clock, as a Unix time in microseconds.
    pub(crate) now_us: i64,
    /// The greatest `max_ahead` under which IDs may have been generated, in microseconds: this server's, unless a
    /// record says more.
    pub(crate) max_ahead_us: i64,
}

impl Evidence<'_> {
    /// The last tick that may have been issued by this Unix time, because IDs run at most `max_ahead` ahead.
    fn mark_at(&self, unix_us: i64) -> i64 {
        let latest = unix_us.saturating_add(self.max_ahead_us);
        self.layout.tick_at(latest).clamp(-1, self.layout.max_tick())
    }

    /// The mark of all lanes if nothing is recorded.
    fn first_mark(&self) -> i64 {
        self.floor_above(self.start.control_us.max(self.start.known_us().unwrap_or(i64::MIN)))
    }

    /// A mark above all IDs that were generated by this Unix time and by the wall clock's, even if the clocks that gave
    /// them their times are slightly ahead.
    fn floor_above(&self, known_us: i64) -> i64 {
        self.mark_at(known_us.max(self.now_us).saturating_add(FIRST_MARGIN_US))
    }

    fn fresh(&self, mark: i64) -> Opening {
        let facts = Facts {
            system_identifier: self.start.system_identifier,
            elsewhere: mark,
            owes_prepared: self.start.prepared == Prepared::Unread,
            floor: Some(Floor { mark, cause: FloorCause::NoState }),
            ..Facts::NONE
        };
        let promises = Promises { facts, marks: [mark; MAX_LANES], ..Promises::none() };
        Opening { promises, active: self.half[0], needs_new_file: true }
    }

    /// The record to write after [`ClosedReason::NotPromoted`], so that the next start does not take the directory for
    /// its own: it will not see that the server was in recovery. With it, the timeline for which the record speaks, and
    /// that one's depth, 0 if it is not known. `None` if the file says so already.
    pub(crate) fn disowned(&self, loaded: Option<&Loaded>) -> Option<(Promises, u32, u32)> {
        let disowned = |promises: Promises| {
            let facts = Facts { of_standby: true, is_disowned: true, ..promises.facts };
            Promises { facts, ..promises }
        };
        let Some(loaded) = loaded else {
            let promises = disowned(self.fresh(self.first_mark()).promises);
            return Some((promises, self.start.timeline, self.start.depth.unwrap_or(0)));
        };
        let (slot, record) = newest(loaded).ok()?;
        let promises = || match record.is_blank() {
            true => self.fresh(self.first_mark()).promises.of_members(&record),
            false => self.promises(&record, slot, loaded),
        };
        (!record.facts.is_disowned).then(|| (disowned(promises()), record.timeline, record.depth))
    }

    /// What a standby writes to hold its number, and whether the file is its own already. What its primary left there is
    /// kept word by word, because the start after its promotion has to decide by it.
    pub(crate) fn hold(
        &self,
        loaded: Option<&Loaded>,
    ) -> Result<(Promises, (u32, u32), Held, bool), ClosedReason> {
        let Some(loaded) = loaded else {
            let system_identifier = self.start.system_identifier;
            let facts = Facts { system_identifier, of_standby: true, ..Facts::NONE };
            let promises = Promises { facts, ..Promises::none() };
            let held = Held { nodes: Nodes::NONE, said: (0, NOBODY) };
            return Ok((promises, (self.start.timeline, self.start.depth.unwrap_or(0)), held, false));
        };
        let (slot, record) = newest(loaded)?;
        let recorded = record.layout.read().ok_or(ClosedReason::Unreadable)?;
        if recorded != *self.layout && !record.is_blank() {
            return Err(ClosedReason::OtherLayout(recorded));
        }
        let is_own = record.is_in_place(loaded.identity, self.start.system_identifier);
        // As many as there is room for, so that none is forgotten.
        let nodes = Nodes::of(record.marks.keys().copied().take(MAX_LANES));
        let promises = Promises::of(&record, slot, loaded.identity, &nodes);
        let mut promises = if is_own { promises } else { promises.of_nobody() };
        promises.facts.of_standby = record.is_copied(loaded.identity);
        promises.facts.is_disowned = record.facts.is_disowned;
        if !is_own {
            promises.begin_life();
        }
        // With a lease, the primary may have used all lanes on its timeline: it had no halves.
        let lanes = if is_own || record.facts.membership.is_none() { record.lanes } else { 0 };
        let held = Held { nodes, said: (lanes, record.active) };
        Ok((promises, (record.timeline, record.depth), held, is_own))
    }

    /// Steps 1 to 6 of a start. The caller does the seventh: it makes the decision durable, then opens the gate.
    /// `sight` is what the witness knows of a record.
    pub(crate) fn decide(
        &self,
        loaded: Option<&Loaded>,
        sight: impl Fn(RecordName) -> Sight,
    ) -> Result<Opening, ClosedReason> {
        let found =
            loaded.map(|loaded| newest(loaded).map(|(slot, record)| (loaded, slot, record))).transpose()?;
        let Some((loaded, slot, record)) = found.as_ref().filter(|(_, _, record)| !record.is_blank()) else {
            // A standby that was created before the first ID, and was started beside its primary.
            if self.start.was_in_recovery && !self.start.made_timeline() {
                return Err(ClosedReason::NotPromoted(self.start.timeline));
            }
            let mut opening = self.fresh(self.first_mark());
            if let Some((loaded, _, record)) = &found
                && record.is_in_place(loaded.identity, self.start.system_identifier)
            {
                opening.promises = opening.promises.of_members(record);
            }
            return Ok(opening);
        };
        let mut record = record.clone();
        let recorded = record.layout.read().ok_or(ClosedReason::Unreadable)?;
        if record.facts.is_disowned && !self.start.made_timeline() {
            return Err(ClosedReason::NotPromoted(self.start.timeline));
        }
        if record.facts.is_disowned && self.is_unused(&record, loaded) {
            // A standby that noted no more than that it is one was promoted. What it wrote binds nobody to its layout.
            return Ok(self.unused(&record, &recorded));
        }
        if recorded != *self.layout {
            return self.under_other_layout(&record, &recorded, loaded);
        }
        let is_foreign = record.facts.system_identifier != self.start.system_identifier;
        let is_new_timeline = record.timeline != self.start.timeline;
        let is_copy = record.is_copied(loaded.identity);
        // A standby does not write the file. Once it has followed a failover, the record names an earlier timeline than
        // its own, so only the server that began this timeline knows that it was promoted. A standby that was killed
        // soon after the failover does not even know of the timeline.
        let is_followed = (is_new_timeline || self.start.was_in_recovery) && !self.start.made_timeline();
        // Of another timeline, and of a copy, the witness may know a server that has nothing to do with this one.
        let sight = if is_new_timeline || is_copy { Sight::Last } else { sight(record.facts.name) };
        let others = match sight {
            _ if is_copy && !is_new_timeline => Some(ClosedReason::Copied),
            Sight::Beside => Some(ClosedReason::Beside),
            Sight::PutBack => Some(ClosedReason::PutBack),
            Sight::Unknown | Sight::Last => None,
        };
        // A copy with another worker never shares one with its original, as long as it keeps that worker.
        let is_theirs = is_foreign || others.is_some();
        if is_foreign && record.has_worker(&self.nodes, |_| true) {
            return Err(ClosedReason::Foreign(record.facts.system_identifier));
        }
        // Whatever its worker: a standby's record cannot know which workers its primary uses by now.
        if is_followed {
            return Err(ClosedReason::NotPromoted(self.start.timeline));
        }
        if record.has_worker(&self.nodes, |mark| is_theirs || mark == NOT_OURS) {
            return Err(others.unwrap_or(ClosedReason::Copied));
        }
        if self.nodes.iter().any(|node| record.mark_of(*node) == NOT_OURS) {
            return Err(ClosedReason::UnknownWorker);
        }
        if is_theirs {
            record.leave_to_original(&self.nodes);
        }
        let mut promises = self.promises(&record, *slot, loaded);
        if is_theirs || is_new_timeline {
            promises.begin_life();
        }
        let mut active = self.half[0];
        if is_new_timeline {
            self.respect_earlier_timelines(&mut promises, &record);
        } else if let Some(lane) = self.nodes.iter().position(|node| *node == record.active)
            && self.half.contains(&lane)
        {
            active = lane;
        }
        if !is_new_timeline && !is_theirs && sight == Sight::Unknown {
            self.respect_unknown_runs(&mut promises, &record, active);
        }
        // A copy's file names its original, so it is replaced by one with its own identity.
        Ok(Opening { promises, active, needs_new_file: is_copy })
    }

    /// The start of a server to which the registry says which workers it has. Its lease goes on only where nobody else can
    /// have it: the file is the one that was written, and the witness outside the data directory knows its last record.
    /// Everything else is a new life, that of `born`, without a lease: a reboot, every kind of copy, and a server that
    /// counts its workers in another way.
    pub(crate) fn enlist(
        &self,
        loaded: Option<&Loaded>,
        sight: impl Fn(RecordName) -> Sight,
        born: Membership,
        nodes_of: impl Fn(i64) -> Nodes,
    ) -> Result<Opening, ClosedReason> {
        let new_life = |mut opening: Opening, earlier_life: Option<Membership>| {
            opening.promises = opening.promises.without_lanes().of_member(born);
            opening.promises.facts.earlier_life = earlier_life;
            opening.promises.begin_life();
            opening
        };
        let Some(loaded) = loaded else { return Ok(new_life(self.fresh(self.first_mark()), None)) };
        let (slot, mut record) = match newest(loaded) {
            Ok(found) => found,
            Err(ClosedReason::Unreadable) => return Ok(new_life(self.fresh(self.first_mark()), None)),
            Err(newer) => return Err(newer),
        };
        let recorded = record.layout.read().ok_or(ClosedReason::Unreadable)?;
        if recorded != *self.layout {
            return self
                .under_other_layout(&record, &recorded, loaded)
                .map(|opening| new_life(opening, None));
        }
        let is_copied = record.is_copied(loaded.identity);
        let is_own = record.is_in_place(loaded.identity, self.start.system_identifier);
        if let Some(membership) = record.facts.membership
            && is_own
            && !is_copied
            && membership.counts_as(&born)
            && sight(record.facts.name) == Sight::Last
        {
            let nodes = membership.lease.map_or(Nodes::NONE, |lease| nodes_of(lease.home));
            let promises = Promises::of(&record, slot, loaded.identity, &nodes);
            let active = nodes.iter().position(|node| *node == record.active).unwrap_or(self.half[0]);
            return Ok(Opening { promises, active, needs_new_file: false });
        }
        if record.facts.is_disowned && !self.start.made_timeline() {
            // The workers of its primary are unknown, also for a start without a registry after this one.
            record.facts.unknown_are_theirs = true;
        }
        if !is_own || is_copied {
            record.leave_to_original(&[]);
        }
        let lives = [record.facts.membership, record.facts.earlier_life].into_iter().flatten();
        let earlier_life = { lives }.find(|life| is_own && life.lease.is_some() && life.counts_as(&born));
        let mut promises = Promises::of(&record, slot, loaded.identity, &[]).of_nobody();
        promises.facts.system_identifier = self.start.system_identifier;
        let opening = Opening { promises, active: self.half[0], needs_new_file: is_copied };
        Ok(new_life(opening, earlier_life))
    }

    /// Step 2: no start continues another layout, unless nothing was generated with it.
    fn under_other_layout(
        &self,
        record: &Record,
        recorded: &Layout,
        loaded: &Loaded,
    ) -> Result<Opening, ClosedReason> {
        if self.is_unused(record, loaded) {
            Ok(self.unused(record, recorded))
        } else {
            Err(ClosedReason::OtherLayout(*recorded))
        }
    }

    /// Where the record of another layout is unused: its marks stay what they are in time, because they may respect IDs
    /// of an earlier life of the data.
    fn unused(&self, record: &Record, recorded: &Layout) -> Opening {
        let same_instant = self.same_instant(recorded, record.highest_mark());
        self.fresh(self.first_mark().max(same_instant).min(self.layout.max_tick()))
    }

    /// Whether a record is this server's own, of this timeline, and no ID was generated under it: a mistaken epoch or
    /// layout at a first start must not bind the server to it. Nor does the layout that a standby had while it knew of
    /// no ID.
    fn is_unused(&self, record: &Record, loaded: &Loaded) -> bool {
        let is_own = match record.facts.is_disowned {
            true => self.start.made_timeline(),
            false => {
                record.timeline == self.start.timeline
                    && !record.is_copied(loaded.identity)
                    && !self.start.was_in_recovery
            }
        };
        is_own && record.facts.system_identifier == self.start.system_identifier && record.is_unused()
    }

    /// The promises of a record of this server, or of its original, whose leases are not this server's.
    fn promises(&self, record: &Record, slot: usize, loaded: &Loaded) -> Promises {
        let mut promises = Promises::of(record, slot, loaded.identity, &self.nodes);
        promises.facts.system_identifier = self.start.system_identifier;
        match record.is_in_place(loaded.identity, self.start.system_identifier) {
            true => promises,
            false => promises.of_nobody(),
        }
    }

    /// Raises the active lane's mark above what later runs may have generated, of which this record would not know if it
    /// was put back: their clock was behind this one. Not the other lanes' marks, because this clock may be wrong: once
    /// it is corrected, they are needed.
    fn respect_unknown_runs(&self, promises: &mut Promises, record: &Record, active: usize) {
        let floor = self.under(record).floor_above(i64::MIN);
        if record.is_unused() {
            // It stays unused: nothing else binds the server to its layout.
            promises.raise_all(floor, FloorCause::NoState);
        } else {
            promises.marks[active] = floor.max(promises.marks[active]);
        }
    }

    /// Raises the marks of all workers that an earlier timeline may have used. What it generated with them is known
    /// only from the replayed WAL and, if the clocks agree, from the wall clock. Exempt are the lanes of the second
    /// timeline's half, because the first timeline never used them. That holds only if there are halves, if the first
    /// timeline counted the same number of lanes and had no lease, which would have allowed it all of them, and for the
    /// server that began the second. Nor does it hold if a number was left out: then another timeline may have begun
    /// from the first, with the same half. What a standby has recorded says nothing of its primary.
    fn respect_earlier_timelines(&self, promises: &mut Promises, record: &Record) {
        let evidence = self.under(record);
        let floor = evidence.floor_above(self.start.known_us().unwrap_or(self.start.control_us));
        let has_halves = self.half.len() < self.nodes.len();
        let had_lease = record.facts.membership.is_some() && !record.facts.of_standby;
        let same_halves = record.lanes == self.nodes.len() && !had_lease && !record.facts.is_disowned;
        let is_second = self.start.timeline <= 2 && self.start.made_timeline();
        let own: &[usize] = if has_halves && same_halves && is_second { &self.half } else { &[] };
        let kept = own.iter().map(|lane| (*lane, promises.marks[*lane])).collect::<Vec<_>>();
        promises.raise_all(floor, FloorCause::NewTimeline);
        kept.into_iter().for_each(|(lane, mark)| promises.marks[lane] = mark);
        promises.facts.owes_prepared = self.start.prepared == Prepared::Unread && own.is_empty();
    }

    /// The same evidence, for IDs that were generated by the server that wrote this record: under its `max_ahead`.
    fn under(&self, record: &Record) -> Self {
        Self { max_ahead_us: self.max_ahead_us.max(record.facts.max_ahead_us), ..self.clone() }
    }

    /// The mark above the IDs in transactions that earlier timelines prepared; `None` if they have not been read.
    pub(crate) fn prepared_mark(&self) -> Option<i64> {
        match self.start.prepared {
            Prepared::Unread => None,
            Prepared::Read(None) => Some(-1),
            Prepared::Read(Some(prepared_us)) => {
                Some(self.mark_at(prepared_us.saturating_add(FIRST_MARGIN_US)))
            }
        }
    }

    /// The outcome of an operator's `adopt`, which asserts that the state is this server's, and that no other server
    /// generated an ID above `floor` (a Unix time in microseconds). Readable marks are lowered only if `lower` asserts
    /// the same of this server.
    pub(crate) fn adopt(
        &self,
        loaded: Option<&Loaded>,
        floor_us: i64,
        lower: bool,
    ) -> Result<Opening, AdoptError> {
        let floor = self.floor_mark(floor_us)?;
        let mut opening = self.vouched(loaded, floor_us, lower)?;
        if lower {
            opening.promises.set_all(floor);
        }
        Ok(opening)
    }

    fn vouched(&self, loaded: Option<&Loaded>, floor_us: i64, lower: bool) -> Result<Opening, AdoptError> {
        let raised = |evidence: &Self, mut opening: Opening| {
            opening.promises.raise_all(evidence.floor_mark(floor_us)?, FloorCause::Operator);
            Ok(opening)
        };
        // IDs may exist of which no mark of this record tells.
        let anew = |mut opening: Opening| {
            opening.promises.facts.is_vouched = true;
            raised(self, opening)
        };
        let lost = || anew(self.fresh(self.first_mark()));
        let Some(loaded) = loaded else { return lost() };
        let (slot, mut record) = match newest(loaded) {
            Ok(found) => found,
            Err(ClosedReason::Unreadable) => return lost(),
            Err(newer) => return Err(AdoptError::Closed(newer)),
        };
        let Some(recorded) = record.layout.read().filter(|_| !record.is_blank()) else { return lost() };
        if recorded != *self.layout {
            if self.is_unused(&record, loaded) {
                return raised(self, self.unused(&record, &recorded));
            }
            // With `lower` the operator vouches that no ID above the floor exists, whatever was reserved.
            let vouched = if lower { recorded.tick_at(floor_us) } else { i64::MAX };
            let mark = self.adopt_layout(&recorded, record.highest_mark().min(vouched).max(-1))?;
            return anew(self.fresh(mark));
        }
        if record.facts.is_disowned {
            // Which workers its primary has is unknown, so the operator vouches for the configured ones only.
            record.facts.unknown_are_theirs = true;
            record.leave_to_original(&self.nodes);
        }
        let mut promises = self.promises(&record, slot, loaded);
        promises.begin_life();
        let evidence = self.under(&record);
        // The operator vouches that the original's workers are this server's now. Nothing is known of their marks but what
        // an operator has said of all workers.
        let known = promises.facts.floor.filter(|floor| floor.cause == FloorCause::Operator);
        let first =
            evidence.first_mark().max(promises.facts.elsewhere).max(known.map_or(-1, |floor| floor.mark));
        let ours = promises.marks.iter_mut().filter(|mark| **mark == NOT_OURS);
        ours.for_each(|mark| *mark = first);
        if record.timeline != self.start.timeline {
            self.respect_earlier_timelines(&mut promises, &record);
        }
        raised(&evidence, Opening { promises, active: self.half[0], needs_new_file: true })
    }

    /// Raises the marks of a new life to those that the host has seen of the same workers: the state of another server
    /// took the place of the one that knew them. A state that goes on knows its own, and what an operator has lowered.
    /// The worker of this start may be the other server's, too, so those without a lane are remembered.
    pub(crate) fn respect_seen(&self, promises: &mut Promises, seen: &WorkerMarks) {
        if !promises.facts.name.life.is_nil() {
            return;
        }
        for (worker, unix_us) in seen.latest_first() {
            let mark = self.layout.tick_at(unix_us).min(self.layout.max_tick());
            match self.nodes.iter().position(|node| *node == worker) {
                Some(lane) => promises.marks[lane] = mark.max(promises.marks[lane]),
                None => promises.remember(worker, mark),
            }
        }
    }

    /// The mark of a floor.
    pub(crate) fn floor_mark(&self, floor_us: i64) -> Result<i64, AdoptError> {
        if floor_us > self.now_us.saturating_add(FARTHEST_FLOOR_US) {
            return Err(AdoptError::FloorInFuture);
        }
        Ok(self.mark_at(floor_us))
    }

    /// The mark from which the configured layout can continue after layout `old`, whose highest mark is `mark`.
    fn adopt_layout(&self, old: &Layout, mark: i64) -> Result<i64, AdoptError> {
        let new = self.layout;
        let highest_old = old.highest_id(mark);
        let first = (self.same_instant(old, mark) + 1).max(new.tick_at(self.now_us));
        if new.lowest_id(first) <= highest_old {
            return Err(AdoptError::LayoutBelow(*old));
        }
        Ok(first)
    }

    /// A mark of another layout, as the same instant in the configured layout's ticks, which may lie past its end.
    fn same_instant(&self, old: &Layout, mark: i64) -> i64 {
        self.layout.tick_at(old.starts_at(mark)).max(-1)
    }
}
