//! The decision of a start: where each lane begins, and on which lane the server goes on.
//!
//! A *run* is one start and all processes that generate IDs by it. The rules below keep this promise:
//!
//! > If two runs of one worker never overlap, no ID repeats, unless the newest state was lost or replaced **and** a
//! > clock was behind. Either the state or the clock is right: that suffices.
//!
//! A clock was *behind* if the run's start read a clock that was behind one under which an earlier run of the worker
//! generated IDs, or if, where the state was lost (a damaged newest slot counts) or replaced, the clock was set back to
//! before the run's start later on.
//!
//! # The rules of a start
//!
//! 1. **Marks.** Before an ID is returned, its tick is at or below its worker's mark on disk, fsynced
//!    (`generator/reservation.rs`).
//! 2. **Above the clock.** A start takes the lock of its workers, reads the record, reads the clock once, writes, and
//!    opens the gate. A lane that the run enters begins above its mark and above *that* clock + `max_ahead`: every ID
//!    of an earlier run is at or below that run's own clock + `max_ahead`. This holds after every start, so no case
//!    depends on whether the state is the newest. `max_ahead` is the longest of the record's and the settings'.
//! 3. **A clock that moved back** to before the run's start: a lane that is entered then begins above its mark alone.
//!    This is what backup workers are for.
//! 4. **A state that cannot be the newest**: there is none, no slot of it can be read, another timeline wrote it, the server
//!    did not use one of these workers last, or an operator adopts it. All lanes begin above the latest of the clock,
//!    the last replayed commit and the replayed checkpoint, plus `max_ahead`, plus a second for clocks of hosts that
//!    differ a little. These are durable marks, so that only the clock of *this* start has to be right. A lane that is
//!    missing in the record falls under this rule alone. The floor of a lease replaces this rule.
//! 5. **One host, one run.** The start locks each of its workers on the host ([`HostLock`](crate::platform::HostLock)).
//!    While another server has one of them, the gate stays closed. A gate that stays closed holds no lock.
//! 6. **A copy.** The record was written into another file or by another cluster, this start made no timeline, and the
//!    record has a worker of this server: the gate stays closed until an operator adopts the state.
//! 7. **A lease** goes on over a restart only if the host's lock has the token of the record, and rule 6 finds no copy.
//!    Otherwise the server is a new node, which claims a group.
//! 8. **Adopt** makes a file the server's own, and applies rule 4 with the operator's floor as one more time.
//!
//! [`Evidence::decide`] has rules 4 and 6, and the floors of rule 2. The generator has the rest: `generator/startup.rs`
//! the order of a start and rules 5 and 7, `generator/rotation.rs` rule 3, `generator/adoption.rs` rule 8.

use super::pending::PendingRecord;
use super::record::{Header, Record};
use crate::layout::Layout;
use crate::lease::Membership;
use crate::platform::FileIdentity;
use crate::refusal::ClosedReason;
use crate::workers::Origins;
use std::iter::zip;

/// By how much the clocks of two hosts may differ.
const CLOCK_TOLERANCE_US: i64 = 1_000_000;

/// The facts of a start besides the state and the clock.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The timeline on which the server writes: 1, 2, ...
    pub timeline: u32,
    /// Whether this start began the timeline, as a promotion and a restore to a point in time do.
    pub made_timeline: bool,
    /// The cluster's system identifier.
    pub system_identifier: u64,
    /// The latest time that is known from the replayed WAL, as a Unix time in microseconds: that of the last commit, or
    /// of the checkpoint at which the replay began. `None` if this start replayed no other server's WAL.
    pub replayed_us: Option<i64>,
}

/// A record as a start found it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) record: Record,
    pub(crate) slot: usize,
    /// The file in which it was found.
    pub(crate) file: FileIdentity,
}

/// Everything on which a start's decision depends.
#[derive(Clone, Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) layout: &'a Layout,
    /// This server's workers, a lane each; with a registry, those of the lease that goes on.
    pub(crate) origins: Origins,
    /// The lane on which the timeline starts.
    pub(crate) first_lane: usize,
    pub(crate) start: &'a Start,
    /// The newest record; `None` if there is no file, or none of its slots can be read.
    pub(crate) found: Option<Found>,
    /// The wall clock that this start reads, as a Unix time in microseconds.
    pub(crate) now_us: i64,
    /// The `max_ahead` of the settings, in microseconds.
    pub(crate) max_ahead_us: i64,
    /// With a registry: the node that this server is from now on.
    pub(crate) membership: Option<Membership>,
    /// An operator adopts the state: no ID of another server is later than this Unix time in microseconds.
    pub(crate) adopted_us: Option<i64>,
}

/// The outcome of a start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision {
    /// With the mark of each lane, above which it begins at least.
    pub(crate) pending: PendingRecord,
    /// A lane that the run enters begins above this tick, while the clock is not before the start's (rule 2).
    pub(crate) above: i64,
    /// Whether the record goes into a new file: another server wrote the old one, or one of its slots cannot be made
    /// durable.
    pub(crate) needs_new_file: bool,
}

impl Evidence<'_> {
    /// Rules 2, 4 and 6.
    pub(crate) fn decide(&self) -> Result<Decision, ClosedReason> {
        let Self { layout, start, now_us, adopted_us, .. } = *self;
        let record = self.found.as_ref().map(|found| &found.record);
        let is_in_place = self.is_in_place();
        let has_own = record.is_some_and(|record| record.has_any(&self.origins));
        if has_own && !is_in_place && !start.made_timeline && adopted_us.is_none() {
            return Err(ClosedReason::Copied);
        }
        let max_ahead_us = self.max_ahead_us.max(record.map_or(0, |record| record.header.max_ahead_us));
        let mark_at = |unix_us: i64| mark_at(layout, unix_us.saturating_add(max_ahead_us));
        let latest_us = Some(now_us).max(start.replayed_us).max(adopted_us).unwrap_or(now_us);
        // Rule 4. Under a lease, the lanes are those of a record that goes on, and begin above its floor.
        let floor = match self.membership {
            Some(_) => -1,
            None => mark_at(latest_us.saturating_add(CLOCK_TOLERANCE_US)),
        };
        let active = record.and_then(|record| self.origins.iter().position(|it| Some(*it) == record.active));
        let is_own_timeline = record.is_some_and(|record| record.header.timeline == start.timeline);
        let may_be_newest = self.membership.is_some() || is_in_place && is_own_timeline && active.is_some();
        let mut pending = match &self.found {
            Some(found) => PendingRecord::of(&found.record, found.slot, *layout, self.origins),
            None => PendingRecord::new(*layout, self.origins),
        };
        for (mark, worker) in zip(&mut pending.marks, self.origins.iter()) {
            let is_missing = !record.is_some_and(|record| record.has_any(&[*worker]));
            if is_missing || !may_be_newest {
                *mark = floor.max(*mark);
            }
        }
        // The operator's floor is one for the workers that are no lane, too.
        if adopted_us.is_some() {
            pending.raise_all(floor);
        }
        let Start { system_identifier, timeline, .. } = *start;
        let membership = self.membership;
        pending.header = Header { system_identifier, timeline, max_ahead_us, membership, ..pending.header };
        pending.active = active.filter(|_| may_be_newest).unwrap_or(self.first_lane);
        Ok(Decision { pending, above: mark_at(now_us), needs_new_file: !is_in_place })
    }

    /// Whether the record was read from the file into which this cluster's server wrote it.
    pub(crate) fn is_in_place(&self) -> bool {
        let is_own = |found: &Found| found.record.is_in_place(found.file, self.start.system_identifier);
        self.found.as_ref().is_some_and(is_own)
    }
}

/// The tick of a Unix time in microseconds as a mark: -1 before the epoch, at most the layout's last tick.
pub(crate) fn mark_at(layout: &Layout, unix_us: i64) -> i64 {
    layout.tick_at(unix_us).clamp(-1, layout.max_tick())
}
