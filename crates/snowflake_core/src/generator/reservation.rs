//! Reservations: ticks promised on disk ahead of use, so that calls need not write (guarantee 2). The keeper moves the
//! reservation while IDs are generated; a call does so itself only if the keeper does not.

use super::Generator;
use crate::host::Host;
use crate::ladder::Step;
use crate::memory::{ColdState, Gate};
use crate::refusal::{Errno, Refusal};
use parking_lot::lock_api::RawMutex;

impl<H: Host, R: RawMutex> Generator<'_, H, R> {
    /// Does what calls have asked for, and moves the reservation ahead once less than half of it is left. The keeper
    /// calls this from time to time, and when [`Host::ask_keeper`] wakes it.
    pub fn keep_up(&self) -> Result<(), Refusal> {
        let event = self.locked(|cold| {
            cold.is_keeper_stuck = false;
            match cold.errand.take() {
                Some((blocked, mut patience)) => match self.look(&blocked, &mut patience) {
                    Step::Rotate => self.rotate(cold, blocked.lane, blocked.n).map(Some),
                    Step::Reserve => self.reserve_for(cold, blocked.lane, blocked.wanted).map(|()| None),
                    _ => self.keep_ahead(cold).map(|()| None),
                },
                None => self.keep_ahead(cold).map(|()| None),
            }
        })?;
        event.into_iter().for_each(|event| self.host.report(event));
        Ok(())
    }

    fn keep_ahead(&self, cold: &mut ColdState) -> Result<(), Refusal> {
        let index = self.active();
        let lane = &self.lanes[index];
        let reserve_ticks = cold.journal.reserve_us(&self.limits()) / self.layout.tick().micros();
        let now_us = self.now_us();
        let tick = lane.frontier().max(self.layout.tick().holding(now_us));
        let Some(permitted) = lane.permitted() else { return Ok(()) };
        let is_short = permitted - tick < reserve_ticks / 2 + 1;
        // A longer `max_ahead` goes on disk at once, so that a later start knows how far IDs may have run ahead.
        let is_longer = cold.journal.promises.facts.max_ahead_us < self.limits().max_ahead_us;
        let has_more = permitted < self.last_tick();
        if (is_short && has_more || is_longer) && tick <= self.latest_tick(now_us).min(self.last_tick()) {
            self.reserve_for(cold, index, tick)
        } else {
            Ok(())
        }
    }

    /// Tells the host's witness again what it knew: somebody has deleted it.
    pub fn remind_witness(&self) {
        self.locked(|cold| cold.journal.remind(&self.host, &self.heading(cold, self.active())));
    }

    /// The tick from which the next call starts: it moves while IDs are generated.
    pub fn frontier(&self) -> i64 {
        self.lanes[self.active()].frontier()
    }

    /// Moves a lane's reservation ahead, at least to `wanted`.
    pub(super) fn reserve_for(&self, cold: &mut ColdState, lane: usize, wanted: i64) -> Result<(), Refusal> {
        self.reserve(cold, lane, wanted, self.active())
    }

    /// Extends the reservation of `lane` to `wanted` or beyond, with `active` as the active lane: first on disk, then
    /// in memory (guarantee 2).
    pub(super) fn reserve(
        &self,
        cold: &mut ColdState,
        lane: usize,
        wanted: i64,
        active: usize,
    ) -> Result<(), Refusal> {
        if self.host.disk().is_none() {
            return Ok(());
        }
        if wanted > self.control.switch.until() {
            return Err(Refusal::LeaseEnded);
        }
        let reserve_us = cold.journal.reserve_us(&self.limits());
        let mark = cold.journal.promise(lane, self.reservation_end(reserve_us, wanted));
        cold.journal.promises.facts.reserved_us = reserve_us;
        let heading = self.heading(cold, active);
        cold.journal.write(&self.host, &heading).map_err(Refusal::NotDurable)?;
        self.publish(cold, lane, mark);
        Ok(())
    }

    /// The end of a reservation that is written now for `wanted` or a later tick. It is at least one tick ahead.
    /// Because `wanted` is at most `max_ahead` past the clock (guarantee 4), it is at most `max_ahead + reserve_us`
    /// past it.
    fn reservation_end(&self, reserve_us: i64, wanted: i64) -> i64 {
        let ahead = (reserve_us / self.layout.tick().micros()).max(1);
        let now = self.layout.tick_at(self.host.wall_us());
        (wanted.max(now) + ahead).min(self.last_tick())
    }

    /// The last tick of the layout, or of the lease.
    fn last_tick(&self) -> i64 {
        self.layout.max_tick().min(self.control.switch.until())
    }

    /// Writes exact marks, so that a restart skips no ticks. Must be the last step of a clean stop, when no process can
    /// generate an ID any more. Does nothing if the gate was never open.
    pub fn write_exact_marks(&self) -> Result<(), Errno> {
        let Some(mut cold) = self.control.cold.try_lock() else { return Ok(()) };
        if cold.gate != Gate::Open || self.host.disk().is_none() {
            return Ok(());
        }
        let heading = self.heading(&cold, self.active());
        let journal = &mut cold.journal;
        for (lane, mark) in self.lanes.iter().zip(&mut journal.promises.marks) {
            lane.close();
            *mark = lane.exact_mark();
        }
        journal.promises.facts.reserved_us = 0;
        journal.renew_file(&self.host, &heading)
    }
}
