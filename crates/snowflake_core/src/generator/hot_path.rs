//! The hot path: one attempt at an ID. It takes no lock, allocates nothing and consults no policy; it reads the clock
//! once and does one compare-and-swap per tick.
//!
//! ```text
//! lane = the active lane, permit = that lane's, now = the wall clock, current tick = that lane's: read in this order
//! tick = max(tick of now, current tick)        more than a second after the current tick: check the clock first
//! again:
//!   tick <= now + max_ahead and tick <= the permit's tick       else blocked: the slow path
//!   claim in the ring:  won        raise the current tick to tick, return an ID of the permit's origin
//!                       full       tick + 1, again
//!                       overtaken  start over; a second time: raise the current tick to the later tick
//! ```
//!
//! The order of the reads matters. If the clock were read before the lane, a call that straddles a rotation could push
//! the new lane ahead to the time before a step back, and so cost a second lane. If the permit were read after the
//! current tick, a call that straddles a change of the lane's origin could give the new origin a tick that lies below
//! its restored mark.

use super::{Generator, Range};
use crate::ladder::Blocked;
use crate::lane::Lane;
use crate::permit::Permit;
use crate::platform::Platform;
use crate::ring::Claim;
use parking_lot::lock_api::RawMutex;

/// The outcome of an attempt.
pub(super) enum Attempt {
    Won(Range),
    /// The last ID is long ago: the clock must be checked for a step before the next one.
    CheckClock,
    Blocked(Blocked),
    /// The ring's slot holds this later tick of the lane.
    Overtaken {
        lane: usize,
        by: i64,
    },
}

/// Whether this call has already checked the clock for a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockCheck {
    Pending,
    Done,
}

/// The values that an attempt has read, and the first tick that it tries.
struct Snapshot<'m, 'g> {
    index: usize,
    lane: &'g Lane<'m>,
    permit: Permit,
    current_tick: i64,
    tick: i64,
    /// The latest time, in microseconds since the epoch, that an ID may carry (guarantee 4).
    latest_us: i64,
}

impl<'m, P: Platform, R: RawMutex> Generator<'m, P, R> {
    /// One attempt at `n` IDs in the first tick that has room for them, from the snapshot's tick on.
    #[inline]
    pub(super) fn attempt(&self, n: i64, check: ClockCheck) -> Attempt {
        let Some(snapshot) = self.snapshot(check) else { return Attempt::CheckClock };
        let mut tick = snapshot.tick;
        loop {
            if let Some(attempt) = self.claim(tick, n, &snapshot) {
                return attempt;
            }
            tick += 1;
        }
    }

    /// One attempt at one ID in the snapshot's own tick; `None` if the tick is full or the clock must be checked first.
    #[inline(always)]
    pub(super) fn attempt_once(&self) -> Option<Attempt> {
        let snapshot = self.snapshot(ClockCheck::Pending)?;
        self.claim(snapshot.tick, 1, &snapshot)
    }

    /// Reads lane, permit, clock and current tick, in this order; `None` if the clock must be checked first.
    #[inline(always)]
    fn snapshot(&self, check: ClockCheck) -> Option<Snapshot<'m, '_>> {
        let live = &self.control.live;
        let index = live.active();
        let lane = &self.lanes[index];
        let permit = lane.permit();
        let now_us = self.now_us();
        let current_tick = lane.current_tick();

        // The current tick is never negative: a clock before the epoch fails the first check of `claim`.
        let mut tick = current_tick;
        // Most calls come in the same tick as the call before them, and a comparison costs less than a division.
        if now_us >= (current_tick + 1) * self.tick_us {
            tick = self.layout.tick().containing(now_us);
            if tick - current_tick > self.unexpected_ticks && check == ClockCheck::Pending {
                return None;
            }
        }
        Some(Snapshot { index, lane, permit, current_tick, tick, latest_us: now_us + live.max_ahead_us() })
    }

    /// Claims `n` IDs of this tick; `None` if it has fewer left.
    #[inline(always)]
    fn claim(&self, tick: i64, n: i64, snapshot: &Snapshot<'m, '_>) -> Option<Attempt> {
        let Snapshot { index, lane, permit, current_tick, .. } = *snapshot;
        // Guarantee 4, then the end of the time field, past which a stamp means nothing, then the gate and guarantee 2.
        let stamp = permit.stamp(tick, self.origin_bits, self.origin_mask);
        if tick * self.tick_us > snapshot.latest_us || tick > self.max_tick || !permit.allows(stamp) {
            let tried = snapshot.tick;
            return Some(Attempt::Blocked(Blocked { n, lane: index, current_tick, tried, wanted: tick }));
        }
        match lane.claim(tick, n) {
            Claim::Won { first } => {
                if current_tick < tick {
                    lane.raise_to(tick);
                }
                let first = stamp << self.sequence_bits | first;
                Some(Attempt::Won(Range { first, last: first + (n - 1) }))
            }
            Claim::Full => None,
            Claim::Overtaken(by) => Some(Attempt::Overtaken { lane: index, by }),
        }
    }
}
