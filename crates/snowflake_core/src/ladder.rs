//! The ladder: what to do if a tick cannot be had, as a pure function from what was read to the next step.
//!
//! The rungs, from bottom to top: **hold** (continue, because IDs may run ahead of the clock), **replay**, **wait**,
//! **rotate**, **refuse**. A rung is taken only if those below it do not help.

use crate::config::{Limits, Policy};
use crate::layout::Layout;
use crate::refusal::Refusal;

/// A call that found no tick to claim, and the values that it had read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    /// How many IDs it wants, in one tick.
    pub n: i64,
    /// The lane that was active.
    pub lane: usize,
    /// The lane's current tick.
    pub current_tick: i64,
    /// The tick from which it tried: that of its clock or, if later, the current tick.
    pub tried: i64,
    /// The tick that it could not have. It can be later than `tried`, if the ticks between them were full.
    pub wanted: i64,
}

/// How long a call has waited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    /// The current tick at which the wait began.
    current_tick: Option<i64>,
    /// Time spent waiting for the clock, on the monotonic clock, since the current tick last moved.
    spent_us: i64,
    /// Time spent waiting for the keeper, in naps whose current length is `nap_us`.
    pub keeper_us: i64,
    nap_us: i64,
    /// Whether the call has been counted as one that waits.
    pub is_counted: bool,
}

/// A call that waits for the keeper looks again after this long at first, and doubles the time with each nap...
const FIRST_NAP_US: i64 = 200;
/// ...up to this.
const LAST_NAP_US: i64 = 20_000;

impl Patience {
    /// The time spent since the current tick moved. While it moves, other calls get the ticks that this one waited for,
    /// and its patience starts over.
    pub fn spent_since(&mut self, current_tick: i64) -> i64 {
        if self.current_tick != Some(current_tick) {
            (self.current_tick, self.spent_us) = (Some(current_tick), 0);
        }
        self.spent_us
    }

    /// Adds a wait for the clock.
    pub fn spend(&mut self, micros: i64) {
        self.spent_us += micros;
    }

    /// The length of the next nap while the keeper writes.
    pub fn next_nap_us(&mut self) -> i64 {
        self.nap_us = (2 * self.nap_us).clamp(FIRST_NAP_US, LAST_NAP_US);
        self.keeper_us += self.nap_us;
        self.nap_us
    }
}

/// The values that the slow path read, in this order: lane, current tick, clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blockage {
    /// As in [`Blocked`].
    pub tried: i64,
    /// As in [`Blocked`].
    pub wanted: i64,
    /// The lane's current tick.
    pub current_tick: i64,
    /// The last tick that the lane's permit allows; `None` while the gate is closed.
    pub permitted: Option<i64>,
    /// The lane's restored mark: no tick up to it may ever be issued (guarantee 3).
    pub restored: i64,
    /// The last tick of the lease; past the layout's end without a registry.
    pub until: i64,
    /// Ticks in the lane's ring.
    pub ring: i64,
    /// The wall clock, in microseconds since the epoch, read after the current tick.
    pub now_us: i64,
    /// How long this call has waited, on the monotonic clock, since the current tick last moved.
    pub waited_us: i64,
}

/// The next step of a call that could not have its tick.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is in the way any more: start over.
    Again,
    /// Sleep this many microseconds, then start over.
    Wait(i64),
    /// Lower the current tick to this tick, then start over.
    Replay(i64),
    /// Make the reservation reach the wanted tick, then start over.
    Reserve,
    /// Go to another lane, or refuse if there is none.
    Rotate,
    /// Give up.
    Refuse(Refusal),
}

/// The lowest rung that helps.
pub(crate) fn climb(blockage: &Blockage, limits: &Limits, layout: &Layout) -> Step {
    let tick_us = layout.tick().micros();
    let now_tick = layout.tick().containing(blockage.now_us);
    // Guarantee 4, in microseconds rather than ticks, because a tick of a second may be used as soon as its start is
    // near enough.
    let missing_us = blockage.wanted * tick_us - (blockage.now_us + limits.max_ahead_us);

    if blockage.wanted > layout.max_tick() {
        // The clock may have been past the end of the field when the call read it, and have come back since. If it
        // never was, then every tick up to the end is full, and those that a replay revisits are too.
        let came_back =
            blockage.tried > layout.max_tick() && now_tick.max(blockage.current_tick) < layout.max_tick();
        return if came_back { Step::Again } else { Step::Refuse(Refusal::Exhausted) };
    }
    let Some(permitted) = blockage.permitted else { return Step::Refuse(Refusal::GateClosed) };
    if missing_us <= 0 {
        if blockage.wanted > blockage.until {
            return Step::Refuse(Refusal::LeaseEnded);
        }
        return if blockage.wanted > permitted { Step::Reserve } else { Step::Again };
    }
    // The current tick was read before the clock. If nothing stepped, every tick up to `wanted` was issued under
    // guarantee 4 at an earlier clock, so at most one tick is missing: this is a burst, and sleeping ends it. A clock
    // that stands still or keeps stepping back does not end it; then the patience runs out, and the climb goes on.
    if missing_us <= tick_us && blockage.waited_us <= tick_us + limits.max_wait_us {
        return Step::Wait(missing_us);
    }
    // Further back than the ring reaches, the entries belong to later ticks, so no sequence can be continued there.
    let in_ring = now_tick > blockage.current_tick - blockage.ring && now_tick < blockage.current_tick;
    if limits.policy == Policy::Replay && in_ring && now_tick > blockage.restored {
        return Step::Replay(now_tick);
    }
    if missing_us <= limits.max_wait_us - blockage.waited_us {
        return Step::Wait(missing_us);
    }
    if blockage.now_us + limits.max_ahead_us < 0 {
        return Step::Refuse(Refusal::BeforeEpoch(-blockage.now_us));
    }
    Step::Rotate
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 100_000_000_000;

    /// A lane whose current tick lies `ahead` ticks past the clock, asked for its next tick.
    fn blocked(ahead: i64) -> Blockage {
        let last = NOW / 1_000 + ahead;
        let layout = Layout::default();
        Blockage {
            tried: last,
            wanted: last,
            current_tick: last,
            permitted: Some(layout.max_tick()),
            restored: -1,
            until: layout.max_tick(),
            ring: 16_384,
            now_us: NOW,
            waited_us: 0,
        }
    }

    fn step(blockage: Blockage, policy: Policy) -> Step {
        climb(&blockage, &Limits { policy, ..Limits::default() }, &Layout::default())
    }

    #[test]
    fn patience_starts_over_when_the_tick_moves_and_naps_grow() {
        let mut patience = Patience::default();
        let naps = [(); 8].map(|()| patience.next_nap_us());
        assert_eq!(naps, [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 20_000]);
        assert_eq!(patience.spent_since(7), 0);
        patience.spend(3);
        assert_eq!([7, 8].map(|tick| patience.spent_since(tick)), [3, 0]);
    }

    #[test]
    fn nothing_is_missing_up_to_max_ahead() {
        assert_eq!(step(blocked(2_000), Policy::Hold), Step::Again);
    }

    #[test]
    fn a_clock_is_before_the_epoch_only_where_max_ahead_does_not_reach_it() {
        let at = |now_us| step(Blockage { now_us, ..blocked(0) }, Policy::Hold);
        assert_eq!(at(-2_000_001), Step::Refuse(Refusal::BeforeEpoch(2_000_001)));
        assert_eq!(at(-2_000_000), Step::Rotate);
        assert_eq!(at(1_000_000), Step::Rotate);
    }

    #[test]
    fn one_missing_tick_is_a_burst_under_either_policy() {
        assert_eq!(step(blocked(2_001), Policy::Hold), Step::Wait(1_000));
        let in_a_part = Blockage { now_us: NOW + 300, ..blocked(2_001) };
        assert_eq!(step(in_a_part, Policy::Replay), Step::Wait(700));
    }

    #[test]
    fn a_burst_that_sleeping_does_not_end_climbs_on() {
        let after = |waited_us| step(Blockage { waited_us, ..blocked(2_001) }, Policy::Hold);
        assert_eq!([6_000, 6_001].map(after), [Step::Wait(1_000), Step::Rotate]);
    }

    #[test]
    fn a_step_within_max_wait_is_waited_for_by_hold_and_replayed_by_replay() {
        assert_eq!(step(blocked(2_005), Policy::Hold), Step::Wait(5_000));
        assert_eq!(step(blocked(2_005), Policy::Replay), Step::Replay(NOW / 1_000));
    }

    #[test]
    fn what_was_waited_already_counts_against_max_wait() {
        let blockage = Blockage { waited_us: 3_000, ..blocked(2_003) };
        assert_eq!(step(blockage, Policy::Hold), Step::Rotate);
    }

    #[test]
    fn a_longer_step_rotates() {
        assert_eq!(step(blocked(2_006), Policy::Hold), Step::Rotate);
    }

    #[test]
    fn replay_stays_inside_the_ring_and_above_the_restored_mark() {
        let now = NOW / 1_000;
        assert_eq!(step(blocked(16_383), Policy::Replay), Step::Replay(now));
        assert_eq!(step(blocked(16_384), Policy::Replay), Step::Rotate);
        let restored = |restored| Blockage { restored, ..blocked(9_000) };
        assert_eq!(step(restored(now - 1), Policy::Replay), Step::Replay(now));
        assert_eq!(step(restored(now), Policy::Replay), Step::Rotate);
    }

    #[test]
    fn a_reservation_is_made_only_for_a_tick_that_the_clock_allows() {
        let used_up = |ahead| Blockage { permitted: Some(NOW / 1_000), ..blocked(ahead) };
        assert_eq!(step(used_up(0), Policy::Hold), Step::Again);
        assert_eq!(step(used_up(1), Policy::Hold), Step::Reserve);
        assert_eq!(step(used_up(2_001), Policy::Hold), Step::Wait(1_000));
    }

    #[test]
    fn past_the_end_of_the_lease_a_tick_is_refused_once_the_clock_allows_it() {
        let leased = |ahead| Blockage { until: NOW / 1_000, ..blocked(ahead) };
        assert_eq!(step(leased(0), Policy::Hold), Step::Again);
        assert_eq!(step(leased(1), Policy::Hold), Step::Refuse(Refusal::LeaseEnded));
        assert_eq!(step(leased(2_001), Policy::Hold), Step::Wait(1_000));
    }

    #[test]
    fn a_closed_gate_an_ended_field_and_an_early_clock_refuse() {
        let closed = Blockage { permitted: None, ..blocked(0) };
        assert_eq!(step(closed, Policy::Hold), Step::Refuse(Refusal::GateClosed));

        let end = Layout::default().max_tick();
        let ended = Blockage { wanted: end + 1, current_tick: end, ..blocked(0) };
        assert_eq!(step(ended, Policy::Hold), Step::Refuse(Refusal::Exhausted));
        let clock_came_back = Blockage { tried: end + 1, wanted: end + 1, ..blocked(0) };
        assert_eq!(step(clock_came_back, Policy::Hold), Step::Again);
        let at_the_end = Blockage { tried: end + 1, wanted: end + 1, current_tick: end, ..blocked(0) };
        assert_eq!(step(at_the_end, Policy::Hold), Step::Refuse(Refusal::Exhausted));
        // Found by the property tests: "again" here is a call that never ends.
        let full_to_the_end = Blockage { tried: end, wanted: end + 1, ..blocked(0) };
        assert_eq!(step(full_to_the_end, Policy::Replay), Step::Refuse(Refusal::Exhausted));

        let early = Blockage { now_us: -9_000_000, wanted: 0, current_tick: 0, ..blocked(0) };
        assert_eq!(step(early, Policy::Hold), Step::Refuse(Refusal::BeforeEpoch(9_000_000)));
    }
}
