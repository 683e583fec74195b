//! Rotation: from the active lane to the next usable one. The old lane keeps its reservation as its mark,
//! the new lane gets a reservation, and both are durable before the new lane is published.

use super::Generator;
use crate::memory::{ColdState, Gate};
use crate::platform::{Event, Platform};
use crate::refusal::{NoLane, Refusal};
use parking_lot::lock_api::RawMutex;

impl<P: Platform, R: RawMutex> Generator<'_, P, R> {
    /// Moves to the next usable lane on an operator's request, and returns its worker.
    pub fn rotate_now(&self) -> Result<i64, Refusal> {
        let (event, to) = self.locked(|cold| {
            if cold.gate != Gate::Open {
                return Err(Refusal::GateClosed);
            }
            if self.layout.tick().containing(self.now_us()) > self.control.live.until() {
                return Err(Refusal::LeaseEnded);
            }
            let event = self.rotate(cold, self.active(), 1)?;
            Ok((event, self.workers(cold).worker(self.active())))
        })?;
        self.platform.report(event);
        Ok(to)
    }

    /// Moves from the active lane `from`, which has no room for `n` IDs.
    pub(super) fn rotate(&self, cold: &mut ColdState, from: usize, n: i64) -> Result<Event, Refusal> {
        let now_us = self.now_us();
        let now = self.layout.tick().containing(now_us);
        // The marks would outlive the correction of a clock past the layout's end.
        if now > self.max_tick {
            return Err(Refusal::Exhausted);
        }
        let allowed_us = self.control.live.max_ahead_us() + self.layout.tick().micros();
        let behind_us = Some(self.behind_us(from)).filter(|us| *us > allowed_us).unwrap_or(0);
        let to = self.next_lane(cold, from, n)?;
        // A call that is still under way on the old lane claims in that lane's own ring, at or below that lane's own
        // reservation, so its IDs are unique and durable.
        let first = self.first_free(cold, to, from, now_us, n);
        self.lanes[to].raise_floor(self.floor_on_entering(cold, now_us));
        cold.writer.pending.active = to;
        self.reserve(cold, to, first).inspect_err(|_| cold.writer.pending.active = from)?;
        // Calls begin no lower than this, even if the clock goes back once more before the first of them.
        self.lanes[to].raise_to(now);
        self.break_order(cold, self.lanes[to].current_tick(), || self.control.live.activate(to));
        self.control.counters.add_rotation();
        let workers = self.workers(cold);
        let (from, to) = (workers.worker(from), workers.worker(to));
        Ok(Event::Rotated { from, to, behind_us })
    }

    /// The lane to rotate to from the active lane `from`, which has no room for `n` IDs; as an error, when the first lane
    /// becomes usable.
    pub(super) fn next_lane(&self, cold: &ColdState, from: usize, n: i64) -> Result<usize, Refusal> {
        let now_us = self.now_us();
        let latest = self.latest_tick(now_us).min(self.layout.max_tick());
        let first_free = |lane| self.first_free(cold, lane, from, now_us, n);
        let rotation = || self.configured.rotation(cold.writer.pending.header.timeline, from);
        if let Some(lane) = rotation().find(|lane| first_free(*lane) <= latest) {
            return Ok(lane);
        }
        // A rotation by hand may leave a lane that is usable.
        let own = (first_free(from) > latest || self.configured.lanes() == 1).then_some(from);
        let lanes = rotation().chain(own).map(|lane| (first_free(lane), lane));
        let (tick, lane) = lanes.min_by_key(|(tick, _)| *tick).expect("a server has a lane");
        if tick > self.layout.max_tick() {
            return Err(Refusal::Exhausted);
        }
        Err(Refusal::NoLane(NoLane {
            behind_us: self.behind_us(from),
            worker: self.workers(cold).worker(lane),
            usable_at_us: self.usable_at(tick),
            is_floor: cold.writer.pending.floor() > latest,
        }))
    }

    /// The tick at which a lane would continue with `n` IDs at this wall-clock time, in microseconds since the epoch.
    /// For the active lane it is the first with room from its current tick and the clock's tick on, because after a
    /// replay those may be full; for another lane it is above the floor for its entry.
    pub(super) fn first_free(
        &self,
        cold: &ColdState,
        lane: usize,
        active: usize,
        now_us: i64,
        n: i64,
    ) -> i64 {
        if lane == active {
            let lane = &self.lanes[lane];
            let now = self.layout.tick().containing(now_us);
            lane.ring.room_from(lane.current_tick().max(now), n, self.layout.max_tick())
        } else {
            cold.writer.pending.marks[lane].max(self.floor_on_entering(cold, now_us)) + 1
        }
    }

    /// Rules 2 and 3: above which tick a lane begins that is entered at this wall-clock time, in microseconds since the
    /// epoch. `begin_run` has raised it above its mark.
    fn floor_on_entering(&self, cold: &ColdState, now_us: i64) -> i64 {
        let is_before_start = now_us < self.layout.relative(cold.run.start_us);
        if is_before_start { -1 } else { cold.run.above }
    }

    /// The wall-clock time from which `tick` can be issued, as a Unix time in microseconds.
    pub(super) fn usable_at(&self, tick: i64) -> i64 {
        self.layout.starts_at(tick).saturating_sub(self.control.live.max_ahead_us())
    }
}
