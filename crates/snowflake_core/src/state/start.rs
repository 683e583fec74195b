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
//!    clock: if an older state was put back, what was generated since lies below. The same holds if the workers are not
//!    those that the server used last: another server may have had them.
//! 6. Without a file, begin above the clock and the control file's time.
//! 7. Begin no worker below what the host has seen of it. If another server on this host has claimed one that the
//!    timeline may use, the gate stays closed. Make the decision durable; then open the gate.
//!
//! What steps 1 to 6 decide is here, and in `enlist` for nodes of a registry. The generator reads and writes.

use super::promises::Promises;
use super::record::{Facts, Floor, NOT_OURS, Record};
use super::slots::{encode, newest};
use crate::host::{Loaded, RecordName, Sight, WorkerMarks};
use crate::layout::Layout;
use crate::refusal::{ClosedReason, FloorCause};
use crate::workers::{MAX_LANES, Origins};

/// If nothing was recorded, marks start this far above the latest known time.
const FIRST_MARGIN_US: i64 = 1_000_000;

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
    pub(super) fn made_timeline(&self) -> bool {
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

/// Everything on which a start's decision depends.
#[derive(Clone)]
pub(crate) struct Evidence<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) origins: Origins,
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
    pub(super) fn mark_at(&self, unix_us: i64) -> i64 {
        let latest = unix_us.saturating_add(self.max_ahead_us);
        self.layout.tick_at(latest).clamp(-1, self.layout.max_tick())
    }

    /// The mark of all lanes if nothing is recorded.
    pub(super) fn first_mark(&self) -> i64 {
        self.floor_above(self.start.control_us.max(self.start.known_us().unwrap_or(i64::MIN)))
    }

    /// A mark above all IDs that were generated by this Unix time and by the wall clock's, even if the clocks that gave
    /// them their times are slightly ahead.
    fn floor_above(&self, known_us: i64) -> i64 {
        self.mark_at(known_us.max(self.now_us).saturating_add(FIRST_MARGIN_US))
    }

    pub(super) fn fresh(&self, mark: i64) -> Opening {
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

    /// The record that a standby keeps if it runs with other settings than the record names, and its slot: its primary may
    /// have them, too. So its number of lanes is not known any more, and its `max_ahead` is the longest of all. `None` if
    /// the record says so already.
    pub(crate) fn noted(&self, loaded: &Loaded) -> Option<(usize, Vec<u8>)> {
        let (slot, mut record) = newest(loaded).ok()?;
        let (lanes, max_ahead_us) = (record.lanes, record.facts.max_ahead_us);
        record.lanes = if lanes == self.origins.len() { lanes } else { 0 };
        record.facts.max_ahead_us = max_ahead_us.max(self.max_ahead_us);
        let is_news = (record.lanes, record.facts.max_ahead_us) != (lanes, max_ahead_us);
        is_news.then(|| (slot, encode(&record)))
    }

    /// Steps 1 to 6 of a start. The caller does the seventh: it makes the decision durable, then opens the gate.
    /// `sight` is what the witness knows of a record.
    pub(crate) fn decide(
        &self,
        loaded: Option<&Loaded>,
        sight: impl Fn(RecordName, &[i64]) -> Sight,
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
                opening.promises = opening.promises.of_members(record).seen(sight(record.facts.name, &[]));
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
        let has_own = record.has_worker(&self.origins, |_| true);
        // One that has gone on from this state with workers of its own is no obstacle to the workers that it left here.
        let workers: &[i64] = if has_own { &self.origins } else { &[] };
        let seen = if is_copy { Sight::Unknown } else { sight(record.facts.name, workers) };
        // Of another timeline, and of a copy, the witness may know a server that has nothing to do with this one.
        let sight = if is_new_timeline || is_copy { Sight::Last } else { seen };
        let others = match sight {
            _ if is_copy && !is_new_timeline => Some(ClosedReason::Copied),
            Sight::Beside => Some(ClosedReason::Beside),
            Sight::PutBack => Some(ClosedReason::PutBack),
            Sight::Unknown | Sight::Last => None,
        };
        // A copy with another worker never shares one with its original, as long as it keeps that worker.
        let is_theirs = is_foreign || others.is_some();
        if is_foreign && has_own {
            return Err(ClosedReason::Foreign(record.facts.system_identifier));
        }
        // Whatever its worker: a standby's record cannot know which workers its primary uses by now.
        if is_followed {
            return Err(ClosedReason::NotPromoted(self.start.timeline));
        }
        if record.has_worker(&self.origins, |mark| is_theirs || mark == NOT_OURS) {
            return Err(others.unwrap_or(ClosedReason::Copied));
        }
        if self.origins.iter().any(|origin| record.mark_of(*origin) == NOT_OURS) {
            return Err(ClosedReason::UnknownWorker);
        }
        if is_theirs {
            record.leave_to_original(&self.origins);
        }
        let mut promises = self.promises(&record, *slot, loaded).seen(seen);
        if is_theirs || is_new_timeline {
            promises.begin_life();
        }
        let mut active = self.half[0];
        if is_new_timeline {
            self.respect_earlier_timelines(&mut promises, &record);
        } else if let Some(lane) = self.origins.iter().position(|origin| *origin == record.active)
            && self.half.contains(&lane)
        {
            active = lane;
        }
        // Workers that this server did not use last may have been another's, as its original's or its clone's.
        let is_resumed = sight != Sight::Unknown && self.origins.contains(&record.active);
        if !is_new_timeline && !is_theirs && !is_resumed {
            self.respect_unknown_runs(&mut promises, &record, active);
        }
        // A copy's file names its original, so it is replaced by one with its own identity.
        Ok(Opening { promises, active, needs_new_file: is_copy })
    }

    /// Step 2: no start continues another layout, unless nothing was generated with it.
    pub(super) fn under_other_layout(
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
    pub(super) fn unused(&self, record: &Record, recorded: &Layout) -> Opening {
        let same_instant = self.same_instant(recorded, record.highest_mark());
        self.fresh(self.first_mark().max(same_instant).min(self.layout.max_tick()))
    }

    /// Whether a record is this server's own, of this timeline, and no ID was generated under it: a mistaken epoch or
    /// layout at a first start must not bind the server to it. Nor does the layout that a standby had while it knew of
    /// no ID.
    pub(super) fn is_unused(&self, record: &Record, loaded: &Loaded) -> bool {
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
    pub(super) fn promises(&self, record: &Record, slot: usize, loaded: &Loaded) -> Promises {
        let mut promises = Promises::of(record, slot, loaded.identity, &self.origins);
        promises.facts.system_identifier = self.start.system_identifier;
        match record.is_in_place(loaded.identity, self.start.system_identifier) {
            true => promises,
            false => promises.of_nobody(),
        }
    }

    /// Raises the active lane's mark above what may have been generated with it without this record: by later runs, if
    /// it was put back, or by another server with this worker. Their clock was behind this one. Not the other lanes'
    /// marks, because this clock may be wrong: once it is corrected, they are needed.
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
    /// timeline always counted the same number of lanes and had no lease, which would have allowed it all of them, and
    /// for the server that began the second. Nor does it hold if a number was left out: then another timeline may have
    /// begun from the first, with the same half. What a standby has recorded says nothing of its primary.
    pub(super) fn respect_earlier_timelines(&self, promises: &mut Promises, record: &Record) {
        let evidence = self.under(record);
        let floor = evidence.floor_above(self.start.known_us().unwrap_or(self.start.control_us));
        let has_halves = self.half.len() < self.origins.len();
        let membership = record.facts.membership.or(record.facts.earlier_life);
        let had_lease = membership.is_some() && !record.facts.of_standby;
        let same_halves = record.lanes == self.origins.len() && !had_lease && !record.facts.is_disowned;
        let is_second = self.start.timeline <= 2 && self.start.made_timeline();
        let own: &[usize] = if has_halves && same_halves && is_second { &self.half } else { &[] };
        let kept = own.iter().map(|lane| (*lane, promises.marks[*lane])).collect::<Vec<_>>();
        promises.raise_all(floor, FloorCause::NewTimeline);
        kept.into_iter().for_each(|(lane, mark)| promises.marks[lane] = mark);
        promises.facts.owes_prepared = self.start.prepared == Prepared::Unread && own.is_empty();
        // For as long as they are owed.
        promises.facts.max_ahead_us = evidence.max_ahead_us;
    }

    /// The same evidence, for IDs that were generated by the server that wrote this record: under its `max_ahead`.
    pub(super) fn under(&self, record: &Record) -> Self {
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

    /// Raises the marks of a new life to those that the host has seen of the same workers: the state of another server
    /// took the place of the one that knew them. A state that goes on knows its own, and what an operator has lowered.
    /// The worker of this start may be the other server's, too, so those without a lane are remembered.
    pub(crate) fn respect_seen(&self, promises: &mut Promises, seen: &WorkerMarks) {
        if !promises.facts.name.life.is_nil() {
            return;
        }
        for (worker, unix_us) in seen.latest_first() {
            let mark = self.layout.tick_at(unix_us).min(self.layout.max_tick());
            match self.origins.iter().position(|origin| *origin == worker) {
                Some(lane) => promises.marks[lane] = mark.max(promises.marks[lane]),
                None => promises.remember(worker, mark),
            }
        }
    }

    /// A mark of another layout, as the same instant in the configured layout's ticks, which may lie past its end.
    pub(super) fn same_instant(&self, old: &Layout, mark: i64) -> i64 {
        self.layout.tick_at(old.starts_at(mark)).max(-1)
    }
}
