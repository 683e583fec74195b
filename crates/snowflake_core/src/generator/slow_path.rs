//! The slow path: climbs the ladder until an attempt succeeds or no rung is left. A call that comes here waits for
//! the clock, for the disk or for the keeper, and holds no lock while it waits.

use super::hot_path::{Attempt, ClockCheck};
use super::{Generator, Range};
use crate::ladder::{self, Blockage, Blocked, Patience, Step};
use crate::memory::ColdState;
use crate::platform::{Event, Platform};
use crate::refusal::Refusal;
use parking_lot::lock_api::RawMutex;

/// A waiting call looks at the clock at least this often, because an operator or a time service may have corrected it.
const LONGEST_NAP_US: i64 = 50_000;
/// A keeper that leaves a request undone for this long, although the lock is free, counts as stuck.
const KEEPER_PATIENCE_US: i64 = 1_000_000;

/// The result of a call's work under the cold lock, and what remains to be done after the lock is released.
enum Outcome {
    /// Nothing: another process has done it, or the clock has caught up.
    Unneeded,
    /// The write was left to the keeper, which the call waits for.
    LeftToKeeper,
    /// The call has rotated; the event is to be reported.
    Rotated(Event),
    /// The call has moved the reservation.
    Reserved,
    /// No lane can be used yet, but one can after this many microseconds.
    Soon(i64),
}

impl<P: Platform, R: RawMutex> Generator<'_, P, R> {
    /// Climbs until an attempt succeeds.
    #[cold]
    pub(super) fn climb(&self, n: i64, mut attempt: Attempt) -> Result<Range, Refusal> {
        let mut patience = Patience::default();
        let (mut check, mut is_overtaken) = (ClockCheck::Pending, false);
        loop {
            match attempt {
                Attempt::Won(range) => return Ok(range),
                Attempt::CheckClock => {
                    self.observe_clock();
                    check = ClockCheck::Done;
                }
                Attempt::Overtaken { lane, by } => {
                    // Once is normal: the call slept while the ring went round. Twice means that a replay went further
                    // back than the ring reaches. With the current tick where the entries are, the ladder finds another
                    // way.
                    if is_overtaken {
                        self.lanes[lane].raise_to(by);
                    }
                    is_overtaken = true;
                }
                Attempt::Blocked(blocked) => {
                    self.observe_clock();
                    self.take_step(&blocked, &mut patience)?;
                }
            }
            attempt = self.attempt(n, check);
        }
    }

    fn take_step(&self, blocked: &Blocked, patience: &mut Patience) -> Result<(), Refusal> {
        let taken = match self.next_step(blocked, patience) {
            Step::Again => Ok(()),
            Step::Wait(micros) => {
                self.wait(micros, patience);
                Ok(())
            }
            Step::Replay(_) => {
                self.replay(blocked, patience);
                Ok(())
            }
            Step::Reserve => self.reserve_or_ask(blocked, patience),
            Step::Rotate => self.rotate_or_ask(blocked, patience),
            // Not counted as a refusal: the caller opens the gate and tries again, or raises the error.
            Step::Refuse(Refusal::GateClosed) => return Err(Refusal::GateClosed),
            Step::Refuse(refusal) => Err(refusal),
        };
        if taken.is_err() {
            self.control.counters.add_refusal();
        }
        taken
    }

    /// The next step, unless another lane is active by now or the current tick has moved.
    pub(super) fn next_step(&self, blocked: &Blocked, patience: &mut Patience) -> Step {
        if self.active() != blocked.lane || self.lanes[blocked.lane].current_tick() != blocked.current_tick {
            return Step::Again;
        }
        self.step_after(blocked, patience.spent_since(blocked.current_tick))
    }

    /// Reads the lane and then the clock, and has the ladder decide.
    pub(super) fn step_after(&self, blocked: &Blocked, waited_us: i64) -> Step {
        let Blocked { lane, current_tick, tried, wanted, .. } = *blocked;
        let lane = &self.lanes[lane];
        let blockage = Blockage {
            tried,
            wanted,
            current_tick,
            permitted: lane.permitted(),
            restored: lane.restored(),
            until: self.control.live.until(),
            ring: lane.ring.ticks(),
            now_us: self.now_us(),
            waited_us,
        };
        ladder::climb(&blockage, &self.limits(), &self.layout)
    }

    fn wait(&self, micros: i64, patience: &mut Patience) {
        let counters = &self.control.counters;
        if !std::mem::replace(&mut patience.is_counted, true) {
            counters.add_wait();
        }
        let before_us = self.platform.boot_us();
        self.platform.wait(micros.min(LONGEST_NAP_US));
        let spent_us = self.platform.boot_us() - before_us;
        patience.spend(spent_us);
        counters.add_wait_us(spent_us);
    }

    /// Lowers the current tick to the wall clock's tick. Looks again under the lock, because `adopt` may have raised
    /// the marks since the decision, and another replay may have lowered the current tick to the value that this call
    /// had read: then a compare-and-swap alone would succeed and lead below the floor of [`adopt`](Self::adopt).
    fn replay(&self, blocked: &Blocked, patience: &mut Patience) {
        self.locked(|cold| {
            if let Step::Replay(tick) = self.next_step(blocked, patience) {
                let lane = &self.lanes[blocked.lane];
                self.break_order(cold, tick, || lane.replay_to(blocked.current_tick, tick));
            }
        });
    }

    /// Makes the reservation reach the tick on which the call is blocked.
    fn reserve_or_ask(&self, blocked: &Blocked, patience: &mut Patience) -> Result<(), Refusal> {
        let outcome = self.locked(|cold| {
            if self.next_step(blocked, patience) != Step::Reserve {
                return Ok(Outcome::Unneeded);
            }
            if self.ask_keeper(cold, blocked, patience) {
                return Ok(Outcome::LeftToKeeper);
            }
            self.reserve(cold, blocked.lane, blocked.wanted).map(|()| Outcome::Reserved)
        })?;
        self.finish(outcome, patience);
        Ok(())
    }

    /// Leaves the lane on which the call is blocked, unless another call already has: a hundred calls that see one step
    /// cause one rotation.
    fn rotate_or_ask(&self, blocked: &Blocked, patience: &mut Patience) -> Result<(), Refusal> {
        let mut new_refusal = None;
        let outcome = self.locked(|cold| {
            // Waiting for the lock takes time, so whether to rotate is decided again under it.
            if self.next_step(blocked, patience) != Step::Rotate {
                return Ok(Outcome::Unneeded);
            }
            let result = match self.next_lane(cold, blocked.lane, blocked.n) {
                Err(refusal) => {
                    let wait = self.worth_a_wait(&refusal, patience.spent_since(blocked.current_tick));
                    wait.map(Outcome::Soon).ok_or(refusal)
                }
                Ok(_) if self.ask_keeper(cold, blocked, patience) => Ok(Outcome::LeftToKeeper),
                Ok(_) => self.rotate(cold, blocked.lane, blocked.n).map(Outcome::Rotated),
            };
            if let Err(refusal) = result {
                new_refusal = self.note_refusal(cold, blocked, refusal);
            }
            result
        });
        if let Some(event) = new_refusal {
            self.platform.report(event);
        }
        self.finish(outcome?, patience);
        Ok(())
    }

    /// How long a call that has waited for `spent_us` is to wait for the lane that will be usable first; `None` if that
    /// is longer than `max_wait`.
    pub(super) fn worth_a_wait(&self, refusal: &Refusal, spent_us: i64) -> Option<i64> {
        let Refusal::NoLane(no_lane) = refusal else { return None };
        let micros = no_lane.usable_at_us.saturating_sub(self.platform.wall_us());
        // Even if the clock has come there by now, patience must run out where it comes and goes.
        (micros <= self.limits().max_wait_us - spent_us).then_some(micros.max(1))
    }

    /// Remembers that no lane can be used; returns the event to report, once per episode.
    fn note_refusal(&self, cold: &mut ColdState, blocked: &Blocked, refusal: Refusal) -> Option<Event> {
        let Refusal::NoLane(no_lane) = refusal else { return None };
        let entry = self.lanes[blocked.lane].ring.entry(blocked.current_tick);
        let episode = Some((blocked.lane, blocked.current_tick, entry));
        let is_new = std::mem::replace(&mut cold.reported, episode) != episode;
        is_new.then_some(Event::Refused(no_lane))
    }

    /// Leaves the write to the keeper if there is one, because a process within an fsync cannot answer a cancel. After
    /// a write that has just failed, the keeper is not asked: the call fails with that error.
    fn ask_keeper(&self, cold: &mut ColdState, blocked: &Blocked, patience: &Patience) -> bool {
        // A stuck keeper is not asked again until it has done something.
        cold.is_keeper_stuck |= patience.keeper_us >= KEEPER_PATIENCE_US;
        if cold.writer.just_failed(&self.platform).is_some() || cold.is_keeper_stuck {
            return false;
        }
        let is_asked = self.platform.ask_keeper();
        if is_asked {
            cold.keeper_request = Some((*blocked, *patience));
        }
        is_asked
    }

    /// Does what remains to be done after the lock is released.
    fn finish(&self, outcome: Outcome, patience: &mut Patience) {
        match outcome {
            Outcome::Unneeded | Outcome::Reserved => {}
            Outcome::Soon(micros) => self.wait(micros, patience),
            Outcome::Rotated(event) => self.platform.report(event),
            // The lock is free during this wait, or the keeper holds it.
            Outcome::LeftToKeeper => self.platform.wait_for_keeper(patience.next_nap_us()),
        }
    }
}
