//! What a start means: from what it finds, the marks from which the lanes begin, or why the gate stays closed.
//!
//! # The seven steps of a start
//!
//! 1. Read both slots, written again and fsynced first, and take the newest valid one. A file without a valid slot,
//!    or of a later version, keeps the gate closed.
//! 2. A recorded layout, tick or epoch that is not the configured one keeps it closed, unless no ID was ever
//!    generated with it.
//! 3. A system identifier, an inode or a time of birth that is not the recorded one, or a timeline that somebody
//!    else began, means that the directory is a copy or a standby: its original may run, so the gate stays closed
//!    for the workers in the record.
//! 4. On a new timeline the start takes the lane of that timeline, and begins above all that is known of earlier
//!    ones, wherever those may have used the lane.
//! 5. On the same timeline it stays on the recorded lane.
//! 6. Without a file the marks begin above the clock and the control file's time.
//! 7. The choice is made durable; then the gate opens.
//!
//! Steps 1 to 6 are pure functions and stand here. The seventh is the generator's.

use super::record::{Floor, NOT_OURS, Nodes, Promises, Record, newest};
use crate::host::Loaded;
use crate::layout::Layout;
use crate::refusal::{AdoptError, ClosedReason, FloorCause};
use crate::workers::MAX_LANES;

/// Where nothing was recorded, marks start this much above the greatest time that is known.
const FIRST_MARGIN_US: i64 = 1_000_000;
/// A floor further ahead of the clock than this is taken for a mistake.
const FARTHEST_FLOOR_US: i64 = 24 * 3_600_000_000;

/// What a start knows besides the file.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The timeline that the server writes: 1, 2, ...
    pub timeline: u32,
    /// The latest timeline that the data directory had reached before this start, by its control file. A later
    /// one is of this start's own making; on this one another server may be at work.
    pub timeline_before: u32,
    /// The control file said before this start that the server was a standby, or in the middle of a restore.
    pub was_in_recovery: bool,
    /// The cluster's system identifier.
    pub system_identifier: u64,
    /// When the control file was last written before this start, as a Unix time in microseconds.
    pub control_us: i64,
    /// The latest time that is known of what was replayed, as a Unix time in microseconds: that of the last
    /// commit, or of the checkpoint from which the replay began, which is the primary's.
    pub replayed_us: Option<i64>,
    /// Transactions that were prepared before this start and are not committed.
    pub prepared: Prepared,
}

/// What a start knows of prepared transactions: an ID in one of them can be later than the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Nothing: they can be read in a session only.
    Unread,
    /// When the last of them was prepared, as a Unix time in microseconds; `None`: there is none.
    Read(Option<i64>),
}

impl Start {
    /// A start on a timeline (1, 2, ...) about which nothing else is known. Any timeline but the first is of
    /// its own making.
    pub fn of_timeline(timeline: u32) -> Self {
        Self {
            timeline,
            timeline_before: timeline.saturating_sub(1).max(1),
            was_in_recovery: false,
            system_identifier: 0,
            control_us: i64::MIN,
            replayed_us: None,
            prepared: Prepared::Read(None),
        }
    }

    /// Whether this start began its timeline, as a promotion does and a restore to a point in time.
    fn made_timeline(&self) -> bool {
        self.timeline > self.timeline_before
    }

    /// The latest time that is known of what other servers have done on earlier timelines.
    fn known_us(&self) -> Option<i64> {
        match self.prepared {
            Prepared::Read(prepared_us) => self.replayed_us.max(prepared_us),
            Prepared::Unread => self.replayed_us,
        }
    }
}

/// What a start came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) promises: Promises,
    pub(crate) active: usize,
    /// The file has to be created anew, because there is none of this server.
    pub(crate) needs_new_file: bool,
}

/// What a start goes by, in one value.
#[derive(Clone, Copy)]
pub(crate) struct Evidence<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) nodes: Nodes<'a>,
    /// Lanes of the timeline's half, in the order of rotation.
    pub(crate) half: &'a [usize],
    pub(crate) start: &'a Start,
    /// The wall clock, as a Unix time in microseconds.
    pub(crate) now_us: i64,
    /// The greatest `max_ahead` under which IDs may have been made, in microseconds: this server's, as far as no
    /// record says more.
    pub(crate) max_ahead_us: i64,
}

impl Evidence<'_> {
    /// The last tick that may have been issued by this Unix time: none after it is below `max_ahead`.
    fn mark_at(&self, unix_us: i64) -> i64 {
        let latest = unix_us.saturating_add(self.max_ahead_us);
        self.layout.tick_at(latest).clamp(-1, self.layout.max_tick())
    }

    /// Where nothing is recorded.
    fn first_mark(&self) -> i64 {
        self.floor_above(self.start.control_us.max(self.start.known_us().unwrap_or(i64::MIN)))
    }

    /// A mark that IDs of this Unix time, and of this clock's, do not reach, also where the clocks that made
    /// them are a little ahead of it.
    fn floor_above(&self, known_us: i64) -> i64 {
        self.mark_at(known_us.max(self.now_us).saturating_add(FIRST_MARGIN_US))
    }

    fn fresh(&self, mark: i64) -> Opening {
        let promises = Promises {
            system_identifier: self.start.system_identifier,
            marks: [mark; MAX_LANES],
            elsewhere: mark,
            owes_prepared: self.start.prepared == Prepared::Unread,
            floor: Some(Floor { mark, cause: FloorCause::NoState }),
            ..Promises::none()
        };
        Opening { promises, active: self.half[0], needs_new_file: true }
    }

    /// After [`ClosedReason::NotPromoted`]: what is to be written so that the next start, before which the server was not
    /// in recovery any more, does not take the directory for its own. `None`: the file says so already.
    pub(crate) fn disowned(&self, loaded: Option<&Loaded>) -> Option<(u32, Promises)> {
        let Some(loaded) = loaded else {
            return Some((self.start.timeline, self.fresh(self.first_mark()).promises));
        };
        let (slot, record) = newest(loaded).ok()?;
        let says_so =
            !record.file.is(loaded.identity) && self.nodes.iter().all(|node| record.marks.contains_key(node));
        (!says_so).then(|| (record.timeline, self.promises(&record, slot, loaded)))
    }

    /// The steps 1 to 6 of a start; the seventh is the caller's: make it durable, then open the gate.
    pub(crate) fn decide(&self, loaded: Option<&Loaded>) -> Result<Opening, ClosedReason> {
        let Some(loaded) = loaded else {
            // A standby of before the first ID, started beside its primary.
            if self.start.was_in_recovery && !self.start.made_timeline() {
                return Err(ClosedReason::NotPromoted(self.start.timeline));
            }
            return Ok(self.fresh(self.first_mark()));
        };
        let (slot, record) = newest(loaded)?;
        let recorded = record.layout.read().ok_or(ClosedReason::Unreadable)?;
        if recorded != *self.layout {
            return if self.is_unused(&record, loaded) {
                Ok(self.fresh(self.first_mark()))
            } else {
                Err(ClosedReason::OtherLayout(recorded))
            };
        }
        let is_foreign = record.system_identifier != self.start.system_identifier;
        let is_new_timeline = record.timeline != self.start.timeline;
        let is_copy = !record.file.is(loaded.identity);
        // A standby does not touch the file: once it has followed a failover, the record names a timeline before
        // the one that it is on, and only who began this one tells whether it was promoted. A standby that was killed
        // soon after a failover does not even know of it.
        let is_followed = (is_new_timeline || self.start.was_in_recovery) && !self.start.made_timeline();
        // With a worker of its own a copy never meets its original, as long as it keeps to it.
        let is_theirs = is_foreign || is_followed || (is_copy && !is_new_timeline);
        if is_foreign && record.has_worker(self.nodes, |_| true) {
            return Err(ClosedReason::Foreign(record.system_identifier));
        }
        // A standby's record cannot say which workers its primary has by now.
        if is_followed && (self.start.was_in_recovery || record.has_worker(self.nodes, |_| true)) {
            return Err(ClosedReason::NotPromoted(self.start.timeline));
        }
        if record.has_worker(self.nodes, |mark| is_theirs || mark == NOT_OURS) {
            return Err(ClosedReason::Copied);
        }
        let mut promises = self.promises(&record, slot, loaded);
        if is_theirs {
            promises.leave_former_to_original();
        }
        let mut active = self.half[0];
        if is_new_timeline {
            self.respect_earlier_timelines(&mut promises, &record);
        } else if let Some(lane) = self.nodes.iter().position(|node| *node == record.active)
            && self.half.contains(&lane)
        {
            active = lane;
        }
        // A copy's file names its original: it is made anew, with its own identity.
        Ok(Opening { promises, active, needs_new_file: is_copy })
    }

    /// Whether a record is this server's own, of this timeline, and no ID was generated under it: a first start with
    /// a mistaken epoch or layout must not bind the server to that.
    fn is_unused(&self, record: &Record, loaded: &Loaded) -> bool {
        let is_own = record.system_identifier == self.start.system_identifier
            && record.timeline == self.start.timeline
            && record.file.is(loaded.identity)
            && !self.start.was_in_recovery;
        is_own && record.is_unused()
    }

    /// The promises of a record of this server.
    fn promises(&self, record: &Record, slot: usize, loaded: &Loaded) -> Promises {
        let mut promises = Promises::of(record, slot, loaded.identity, self.nodes);
        promises.system_identifier = self.start.system_identifier;
        promises
    }

    /// Any worker but those that are this timeline's alone may have been used by an earlier timeline, of
    /// which this server knows only what was replayed and, where the clocks agree, that it made nothing
    /// above this clock. The second timeline's alone are the lanes of its half, where there are halves and
    /// the first one counted them alike; but only for the server that began it.
    fn respect_earlier_timelines(&self, promises: &mut Promises, record: &Record) {
        let evidence = self.under(record);
        let floor = evidence.floor_above(self.start.known_us().unwrap_or(self.start.control_us));
        let has_halves = self.half.len() < self.nodes.len();
        let same_halves = record.lanes == self.nodes.len();
        let is_second = self.start.timeline <= 2 && self.start.made_timeline();
        let own: &[usize] = if has_halves && same_halves && is_second { self.half } else { &[] };
        let kept = own.iter().map(|lane| (*lane, promises.marks[*lane])).collect::<Vec<_>>();
        promises.raise_all(floor, FloorCause::NewTimeline);
        kept.into_iter().for_each(|(lane, mark)| promises.marks[lane] = mark);
        promises.owes_prepared = self.start.prepared == Prepared::Unread && own.is_empty();
    }

    /// The same, where the IDs in question were made by the server that wrote this record: under its `max_ahead`.
    fn under(&self, record: &Record) -> Self {
        Self { max_ahead_us: self.max_ahead_us.max(record.max_ahead_us), ..*self }
    }

    /// The mark that respects the transactions that were prepared on earlier timelines; `None` where they cannot
    /// be read.
    pub(crate) fn prepared_mark(&self) -> Option<i64> {
        match self.start.prepared {
            Prepared::Unread => None,
            Prepared::Read(None) => Some(-1),
            Prepared::Read(Some(prepared_us)) => {
                Some(self.mark_at(prepared_us.saturating_add(FIRST_MARGIN_US)))
            }
        }
    }

    /// What an operator's `adopt` comes to: the state at hand is this server's, and no ID above `floor`
    /// (a Unix time in microseconds) was made elsewhere. A mark that can be read is lowered only where `lower`
    /// says that no ID above `floor` was made here either.
    pub(crate) fn adopt(
        &self,
        loaded: Option<&Loaded>,
        floor_us: i64,
        lower: bool,
    ) -> Result<Opening, AdoptError> {
        let floor = self.floor_mark(floor_us)?;
        let mut opening = self.vouched(loaded, floor_us)?;
        if lower {
            opening.promises.set_all(floor);
        }
        Ok(opening)
    }

    fn vouched(&self, loaded: Option<&Loaded>, floor_us: i64) -> Result<Opening, AdoptError> {
        let raised = |evidence: &Self, mut opening: Opening| {
            opening.promises.raise_all(evidence.floor_mark(floor_us)?, FloorCause::Operator);
            Ok(opening)
        };
        let lost = || raised(self, self.fresh(self.first_mark()));
        let Some(loaded) = loaded else { return lost() };
        let (slot, record) = match newest(loaded) {
            Ok(found) => found,
            Err(ClosedReason::Unreadable) => return lost(),
            Err(newer) => return Err(AdoptError::Closed(newer)),
        };
        let Some(recorded) = record.layout.read() else { return lost() };
        if recorded != *self.layout && self.is_unused(&record, loaded) {
            return lost();
        }
        if recorded != *self.layout {
            let known = record.marks.values().copied().filter(|mark| *mark != NOT_OURS);
            let highest = known.max().unwrap_or(-1).max(record.elsewhere);
            return raised(self, self.fresh(self.adopt_layout(&recorded, highest)?));
        }
        let mut promises = self.promises(&record, slot, loaded);
        let evidence = self.under(&record);
        // Vouched for: what was the original's is this server's now, from where nothing is known.
        let ours = promises.marks.iter_mut().filter(|mark| **mark == NOT_OURS);
        ours.for_each(|mark| *mark = evidence.first_mark());
        if record.timeline != self.start.timeline {
            self.respect_earlier_timelines(&mut promises, &record);
        }
        raised(&evidence, Opening { promises, active: self.half[0], needs_new_file: true })
    }

    /// The mark that a floor asks for.
    pub(crate) fn floor_mark(&self, floor_us: i64) -> Result<i64, AdoptError> {
        if floor_us > self.now_us.saturating_add(FARTHEST_FLOOR_US) {
            return Err(AdoptError::FloorInFuture);
        }
        Ok(self.mark_at(floor_us))
    }

    /// The mark from which the configured layout may go on after `old`, whose highest mark is `mark`.
    fn adopt_layout(&self, old: &Layout, mark: i64) -> Result<i64, AdoptError> {
        let new = self.layout;
        let highest_old = old.highest_id(mark);
        // In the new layout's time, the old marks are those of the same instant.
        let same_instant = new.tick_at(old.starts_at(mark)).max(-1);
        let first = (same_instant + 1).max(new.tick_at(self.now_us));
        if new.lowest_id(first) <= highest_old {
            return Err(AdoptError::LayoutBelow(*old));
        }
        Ok(first)
    }
}
