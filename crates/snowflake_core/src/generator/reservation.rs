//! Reservations: marks raised on disk ahead of use, so that calls need not write (guarantee 2). The mark is kept at the
//! clock + `max_ahead` + 500 ms, or further on a slow disk, and renewed when half of what lies before it is used. The
//! keeper does so while IDs are generated; a call does so itself only if the keeper does not.

use super::Generator;
use crate::ladder::Step;
use crate::memory::{ColdState, Gate};
use crate::platform::Platform;
use crate::refusal::{Errno, Refusal};
use parking_lot::lock_api::RawMutex;

impl<P: Platform, R: RawMutex> Generator<'_, P, R> {
    /// Does what calls have asked for, brings a changed `max_ahead` into force, and moves the reservation ahead once
    /// less than half of it is left. The keeper calls this from time to time, and when [`Platform::ask_keeper`] wakes it.
    pub fn run_keeper(&self) -> Result<(), Refusal> {
        let event = self.locked(|cold| {
            cold.is_keeper_stuck = false;
            match cold.keeper_request.take() {
                Some((blocked, mut patience)) => match self.next_step(&blocked, &mut patience) {
                    Step::Rotate => self.rotate(cold, blocked.lane, blocked.n).map(Some),
                    Step::Reserve => self.reserve(cold, blocked.lane, blocked.wanted).map(|()| None),
                    _ => self.extend_reservation(cold).map(|()| None),
                },
                None => self.extend_reservation(cold).map(|()| None),
            }
        })?;
        event.into_iter().for_each(|event| self.platform.report(event));
        Ok(())
    }

    fn extend_reservation(&self, cold: &mut ColdState) -> Result<(), Refusal> {
        let is_longer = self.apply_max_ahead(cold);
        let index = self.active();
        let lane = &self.lanes[index];
        let now_us = self.now_us();
        let now = self.layout.tick().containing(now_us);
        let tick = lane.current_tick().max(now);
        // The mark would outlive the correction of a clock past the layout's end.
        let Some(permitted) = lane.permitted().filter(|_| now <= self.max_tick) else { return Ok(()) };
        let is_half_used = permitted - tick < cold.reserved_ticks / 2 + 1;
        let has_more = permitted < self.last_tick();
        let can_be_issued = tick <= self.latest_tick(now_us);
        // A longer `max_ahead` is what an operator sets while the clock is behind, so it does not wait for the clock.
        if is_longer || is_half_used && has_more && can_be_issued {
            self.reserve(cold, index, tick.min(self.last_tick()))
        } else {
            Ok(())
        }
    }

    /// Brings a shorter `max_ahead` of the settings into force, once the clock has passed the tick above which a lane
    /// begins that this run enters, and no ID is further ahead than the shorter one.
    /// Returns whether the settings have a longer one than the record: it comes into force when it is durable.
    fn apply_max_ahead(&self, cold: &mut ColdState) -> bool {
        let (asked_us, live) = (self.asked_limits().max_ahead_us, &self.control.live);
        let (in_force_us, now_us) = (live.max_ahead_us(), self.platform.wall_us());
        let latest = self.layout.tick_at(now_us.saturating_add(asked_us));
        let is_passed = self.layout.tick_at(now_us) > cold.run.above && self.current_tick() <= latest;
        if asked_us < in_force_us && is_passed {
            live.set_max_ahead(asked_us);
            let until_us = now_us.saturating_add(in_force_us);
            cold.run.longer_ahead_until_us = until_us.max(cold.run.longer_ahead_until_us);
        }
        let pending_us = &mut cold.writer.pending.header.max_ahead_us;
        if now_us >= cold.run.longer_ahead_until_us {
            *pending_us = live.max_ahead_us();
        }
        asked_us > live.max_ahead_us()
    }

    /// The tick from which the next call starts: it moves while IDs are generated.
    pub fn current_tick(&self) -> i64 {
        self.lanes[self.active()].current_tick()
    }

    /// Extends the reservation of `lane` to `wanted` or beyond: first on disk, then in memory (guarantee 2).
    pub(super) fn reserve(&self, cold: &mut ColdState, lane: usize, wanted: i64) -> Result<(), Refusal> {
        if wanted > self.control.live.until() {
            return Err(Refusal::LeaseEnded);
        }
        let asked_us = self.asked_limits().max_ahead_us;
        let pending_us = &mut cold.writer.pending.header.max_ahead_us;
        *pending_us = (*pending_us).max(asked_us);
        let mark = cold.writer.raise_mark(lane, self.reservation_end(cold, wanted));
        cold.writer.write(&self.platform).map_err(Refusal::NotDurable)?;
        cold.reserved_ticks = mark - wanted;
        if asked_us > self.control.live.max_ahead_us() {
            self.control.live.set_max_ahead(asked_us);
        }
        self.publish(cold, lane, mark);
        Ok(())
    }

    /// The end of a reservation that is written now for `wanted` or a later tick: past every tick that calls may use
    /// now, and past `wanted`.
    fn reservation_end(&self, cold: &ColdState, wanted: i64) -> i64 {
        let ahead_us = self.control.live.max_ahead_us() + cold.writer.reserve_us();
        let end = self.layout.tick_at(self.platform.wall_us().saturating_add(ahead_us));
        end.max(wanted + 1).min(self.last_tick())
    }

    /// The last tick of the layout, or of the lease.
    fn last_tick(&self) -> i64 {
        self.layout.max_tick().min(self.control.live.until())
    }

    /// Writes exact marks, so that the next start need not wait for one. Must be the last step of a clean stop, when no
    /// process can generate an ID any more. Does nothing if the gate was never open.
    pub fn write_exact_marks(&self) -> Result<(), Errno> {
        let Some(mut cold) = self.control.cold.try_lock() else { return Ok(()) };
        if cold.gate != Gate::Open {
            return Ok(());
        }
        for (lane, mark) in self.lanes.iter().zip(&mut cold.writer.pending.marks) {
            lane.close();
            *mark = lane.exact_mark();
        }
        cold.writer.write_at_once(&self.platform)
    }
}
