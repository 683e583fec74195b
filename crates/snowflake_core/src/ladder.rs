//! What to do when a tick cannot be had: a pure function from what was read to the next step.
//!
//! The rungs, from bottom to top: **hold** (nothing is missing, IDs run ahead of the clock), **replay**,
//! **wait**, **rotate**, **refuse**. A rung is taken only where those below it cannot help.

use crate::lanes::NoLane;
use crate::layout::Layout;
use crate::memory::CLOSED;
use crate::state::Errno;

/// What happens when the clock has gone back further than `max_ahead`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// IDs keep ascending while the wall clock catches up.
    #[default]
    Hold,
    /// IDs follow the wall clock back and go on from each tick's last sequence.
    Replay,
}

/// The settings that may change while the generator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What a step back leads to.
    pub policy: Policy,
    /// How far IDs may run ahead of the wall clock, in microseconds.
    pub max_ahead_us: i64,
    /// How long a call may wait for the clock before it rotates, in microseconds.
    pub max_wait_us: i64,
    /// How far ahead of use the durable reservation is written, in microseconds.
    pub reserve_us: i64,
}

impl Rules {
    /// As they can be kept: `max_ahead` up to a quarter of the ring, and times that sums cannot overflow.
    pub(crate) fn held_to(self, ring_ticks: usize, layout: &Layout) -> Self {
        let most_us = ring_ticks as i64 / 4 * layout.tick().micros();
        let bounded = |us: i64| us.clamp(0, 1 << 60);
        let max_ahead_us = self.max_ahead_us.clamp(0, most_us);
        let (max_wait_us, reserve_us) = (bounded(self.max_wait_us), bounded(self.reserve_us));
        Self { max_ahead_us, max_wait_us, reserve_us, ..self }
    }

    /// How far IDs run ahead for whoever asks, in microseconds: `max_ahead` less the spare tick, the last that it
    /// allows.
    ///
    /// Of the spare tick a session gets one ID, or a few, without a wait, and more whenever it has waited. So
    /// one that asks for little does not wait behind those that take all there is, and who wakes late finds
    /// something left. The tick of the clock is never spare.
    pub fn freely_ahead_us(&self, layout: &Layout) -> i64 {
        let tick_us = layout.tick().micros();
        if self.max_ahead_us >= tick_us { self.max_ahead_us - tick_us } else { self.max_ahead_us }
    }
}

impl Default for Rules {
    /// `hold`, 2 s, 5 ms, 500 ms.
    fn default() -> Self {
        Self { policy: Policy::Hold, max_ahead_us: 2_000_000, max_wait_us: 5_000, reserve_us: 500_000 }
    }
}

/// Why no ID was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The gate is closed.
    Closed,
    /// The wall clock stands before the epoch by this many microseconds.
    BeforeEpoch(i64),
    /// The time field has no tick left.
    Exhausted,
    /// The clock is back and no lane can be used until it has caught up.
    NoLane(NoLane),
    /// The reservation is used up and the next one cannot be written: the operating system's error.
    NotDurable(Errno),
}

/// What the cold path read, in this order: lane, last, clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// The tick from which the call tried: that of its clock, or `last`.
    pub tried: i64,
    /// The tick that could not be had; not below `tried`, for ticks between them were full.
    pub wanted: i64,
    /// The lane's last.
    pub last: i64,
    /// The lane's ceiling; below every tick while the gate is closed.
    pub ceiling: i64,
    /// The lane's mark as it was restored at start: no tick up to it may ever be issued (rule 3).
    pub restored: i64,
    /// Ticks in the lane's ring.
    pub ring: i64,
    /// The wall clock, in microseconds since the epoch, read after `last`.
    pub now_us: i64,
    /// How long this call has waited, on the monotonic clock, since `last` last moved.
    pub waited_us: i64,
    /// Whether the call may go on in the spare tick: see [`Rules::freely_ahead_us`].
    pub may_use_spare: bool,
}

/// The next step of a call that could not have its tick.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is missing any more: start over.
    Again,
    /// Sleep this many microseconds, then start over.
    Wait(i64),
    /// Lower `last` to this tick, then start over.
    Replay(i64),
    /// Make the reservation reach the wanted tick, then start over.
    Reserve,
    /// Go to another lane, or refuse where there is none.
    Rotate,
    /// Give up.
    Refuse(Refusal),
}

pub(crate) fn climb(sight: &Sight, rules: &Rules, layout: &Layout) -> Step {
    let tick_us = layout.tick().micros();
    let now_tick = layout.tick().holding(sight.now_us);
    // Rule 4 in microseconds, so that a coarse tick behaves: a tick fits once its start does.
    let missing_us = sight.wanted * tick_us - (sight.now_us + rules.max_ahead_us);

    if sight.wanted > layout.max_tick() {
        // Where it was the clock that stood behind the end, it may have come back since. Where it was not,
        // all ticks up to the end are full, also those that a replay revisits.
        let came_back = sight.tried > layout.max_tick() && now_tick.max(sight.last) < layout.max_tick();
        return if came_back { Step::Again } else { Step::Refuse(Refusal::Exhausted) };
    }
    if sight.ceiling == CLOSED {
        return Step::Refuse(Refusal::Closed);
    }
    if missing_us <= 0 {
        let spare_us = rules.max_ahead_us - rules.freely_ahead_us(layout);
        if !sight.may_use_spare && missing_us + spare_us > 0 {
            return Step::Wait(missing_us + spare_us);
        }
        return if sight.wanted > sight.ceiling { Step::Reserve } else { Step::Again };
    }
    // `last` was read before the clock. If nothing stepped, whoever issued up to `wanted` did so by rule 4
    // at an earlier clock, so at most one tick is missing: a burst, and sleeping brings it. A clock that
    // stands still or keeps stepping back does not; then the patience ends, and the climb goes on.
    if missing_us <= tick_us && sight.waited_us <= tick_us + rules.max_wait_us {
        return Step::Wait(missing_us);
    }
    // Behind the ring the words have gone to later ticks, so nothing can go on from there.
    let in_ring = now_tick > sight.last - sight.ring && now_tick < sight.last;
    if rules.policy == Policy::Replay && in_ring && now_tick > sight.restored {
        return Step::Replay(now_tick);
    }
    if missing_us <= rules.max_wait_us - sight.waited_us {
        return Step::Wait(missing_us);
    }
    if sight.now_us + rules.max_ahead_us < 0 {
        return Step::Refuse(Refusal::BeforeEpoch(-sight.now_us));
    }
    Step::Rotate
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOW: i64 = 100_000_000_000;

    /// A lane whose frontier lies `ahead` ticks past the clock, asked for its next tick.
    fn frontier(ahead: i64) -> Sight {
        let last = NOW / 1_000 + ahead;
        let layout = Layout::default();
        Sight {
            tried: last,
            wanted: last,
            last,
            ceiling: layout.max_tick(),
            restored: -1,
            ring: 16_384,
            now_us: NOW,
            waited_us: 0,
            may_use_spare: true,
        }
    }

    fn step(sight: Sight, policy: Policy) -> Step {
        climb(&sight, &Rules { policy, ..Rules::default() }, &Layout::default())
    }

    #[test]
    fn nothing_is_missing_up_to_max_ahead() {
        assert_eq!(step(frontier(2_000), Policy::Hold), Step::Again);
    }

    #[test]
    fn the_spare_tick_is_waited_for_by_whoever_has_had_of_it() {
        let had = |ahead| Sight { may_use_spare: false, ..frontier(ahead) };
        assert_eq!(step(had(1_999), Policy::Hold), Step::Again);
        assert_eq!(step(had(2_000), Policy::Hold), Step::Wait(1_000));
        assert_eq!(step(had(2_000), Policy::Replay), Step::Wait(1_000), "nothing went back");
        let halfway = Sight { now_us: NOW + 300, ..had(2_000) };
        assert_eq!(step(halfway, Policy::Hold), Step::Wait(700));
    }

    #[test]
    fn the_tick_of_the_clock_is_never_spare() {
        let freely =
            |max_ahead_us| Rules { max_ahead_us, ..Rules::default() }.freely_ahead_us(&Layout::default());
        assert_eq!([0, 999, 1_000, 1_001, 2_000].map(freely), [0, 999, 0, 1, 1_000]);
    }

    #[test]
    fn rules_are_held_to_a_quarter_of_the_ring_and_to_what_sums_can_bear() {
        let asked = Rules {
            policy: Policy::Replay,
            max_ahead_us: i64::MAX,
            max_wait_us: i64::MAX,
            reserve_us: i64::MAX,
        };
        let held = asked.held_to(16_384, &Layout::default());
        assert_eq!(held.policy, Policy::Replay);
        assert_eq!(held.max_ahead_us, 4_096_000);
        assert_eq!((held.max_wait_us, held.reserve_us), (1 << 60, 1 << 60));
        let kept = Rules { max_ahead_us: 3_000, max_wait_us: 4_000, reserve_us: 5_000, ..Rules::default() };
        assert_eq!(kept.held_to(16_384, &Layout::default()), kept);
    }

    #[test]
    fn a_clock_is_before_the_epoch_only_where_max_ahead_does_not_reach_it() {
        let at = |now_us| step(Sight { now_us, ..frontier(0) }, Policy::Hold);
        assert_eq!(at(-2_000_001), Step::Refuse(Refusal::BeforeEpoch(2_000_001)));
        assert_eq!(at(-2_000_000), Step::Rotate);
        assert_eq!(at(1_000_000), Step::Rotate);
    }

    #[test]
    fn one_missing_tick_is_a_burst_under_either_policy() {
        assert_eq!(step(frontier(2_001), Policy::Hold), Step::Wait(1_000));
        assert_eq!(step(frontier(2_001), Policy::Replay), Step::Wait(1_000));
    }

    #[test]
    fn a_burst_that_sleeping_does_not_end_climbs_on() {
        let sight = Sight { waited_us: 6_001, ..frontier(2_001) };
        assert_eq!(step(sight, Policy::Hold), Step::Rotate);
    }

    #[test]
    fn a_step_within_max_wait_is_waited_for_by_hold_and_replayed_by_replay() {
        assert_eq!(step(frontier(2_005), Policy::Hold), Step::Wait(5_000));
        assert_eq!(step(frontier(2_005), Policy::Replay), Step::Replay(NOW / 1_000));
    }

    #[test]
    fn what_was_waited_already_counts_against_max_wait() {
        let sight = Sight { waited_us: 3_000, ..frontier(2_003) };
        assert_eq!(step(sight, Policy::Hold), Step::Rotate);
    }

    #[test]
    fn a_longer_step_rotates() {
        assert_eq!(step(frontier(2_006), Policy::Hold), Step::Rotate);
    }

    #[test]
    fn replay_stays_inside_the_ring_and_above_the_restored_mark() {
        let now = NOW / 1_000;
        assert_eq!(step(frontier(16_383), Policy::Replay), Step::Replay(now));
        assert_eq!(step(frontier(16_384), Policy::Replay), Step::Rotate);
        let restored = |restored| Sight { restored, ..frontier(9_000) };
        assert_eq!(step(restored(now - 1), Policy::Replay), Step::Replay(now));
        assert_eq!(step(restored(now), Policy::Replay), Step::Rotate);
    }

    #[test]
    fn a_reservation_is_made_only_for_a_tick_that_the_clock_allows() {
        let used_up = |ahead| Sight { ceiling: NOW / 1_000, ..frontier(ahead) };
        assert_eq!(step(used_up(0), Policy::Hold), Step::Again);
        assert_eq!(step(used_up(1), Policy::Hold), Step::Reserve);
        assert_eq!(step(used_up(2_001), Policy::Hold), Step::Wait(1_000));
    }

    #[test]
    fn a_closed_gate_an_ended_field_and_an_early_clock_refuse() {
        let closed = Sight { ceiling: CLOSED, ..frontier(0) };
        assert_eq!(step(closed, Policy::Hold), Step::Refuse(Refusal::Closed));

        let end = Layout::default().max_tick();
        let ended = Sight { wanted: end + 1, last: end, ..frontier(0) };
        assert_eq!(step(ended, Policy::Hold), Step::Refuse(Refusal::Exhausted));
        let clock_came_back = Sight { tried: end + 1, wanted: end + 1, ..frontier(0) };
        assert_eq!(step(clock_came_back, Policy::Hold), Step::Again);
        // Found by the property tests: "again" here is a call that never ends.
        let full_to_the_end = Sight { wanted: end + 1, ..frontier(0) };
        assert_eq!(step(full_to_the_end, Policy::Replay), Step::Refuse(Refusal::Exhausted));

        let early = Sight { now_us: -9_000_000, wanted: 0, last: 0, ..frontier(0) };
        assert_eq!(step(early, Policy::Hold), Step::Refuse(Refusal::BeforeEpoch(9_000_000)));
    }
}
