//! Rotation: from the active lane to the next usable one of the half. The old lane keeps its reservation as its mark,
//! the new lane gets a reservation, and both are durable before the new lane is published.

use super::Generator;
use crate::host::{Event, Host};
use crate::memory::{ColdState, Gate};
use crate::refusal::{NoLane, Refusal};
use crate::state::record::Floor;
use crate::workers::next_usable;
use parking_lot::lock_api::RawMutex;

impl<H: Host, R: RawMutex> Generator<'_, H, R> {
    /// Moves to the next usable lane of the half on an operator's request, and returns its worker.
    pub fn rotate_now(&self) -> Result<i64, Refusal> {
        let (event, to) = self.locked(|cold| {
            if cold.gate != Gate::Open {
                return Err(Refusal::GateClosed);
            }
            if self.layout.tick().holding(self.now_us()) > self.control.switch.until() {
                return Err(Refusal::LeaseEnded);
            }
            let event = self.rotate(cold, self.active(), 1)?;
            Ok((event, self.workers(cold).worker(self.active())))
        })?;
        self.host.report(event);
        Ok(to)
    }

    /// Moves from the active lane `from`, which has no room for `n` IDs.
    pub(super) fn rotate(&self, cold: &mut ColdState, from: usize, n: i64) -> Result<Event, Refusal> {
        // After a crash the frontier lies above the reservation, and so further ahead than any ID.
        let unused_us =
            if self.lanes[from].has_issued() { 0 } else { cold.journal.promises.facts.reserved_us };
        let allowed_us = self.control.switch.max_ahead_us() + self.layout.tick().micros() + unused_us;
        let behind_us = Some(self.behind_us(from)).filter(|us| *us > allowed_us).unwrap_or(0);
        let to = self.next_lane(cold, from, n)?;
        // A call that is still under way on the old lane claims in that lane's own ledger, at or below that lane's own
        // reservation, so its IDs are unique and durable.
        cold.journal.promise(from, self.mark(cold, from));
        let first = self.first_free_elsewhere(cold, to);
        self.reserve(cold, to, first, to)?;
        self.control.switch.activate(to);
        self.control.counters.add_rotation();
        let workers = self.workers(cold);
        let (from, to) = (workers.worker(from), workers.worker(to));
        Ok(Event::Rotated { from, to, behind_us })
    }

    /// The lane to rotate to from the active lane `from`, which has no room for `n` IDs.
    pub(super) fn next_lane(&self, cold: &ColdState, from: usize, n: i64) -> Result<usize, Refusal> {
        let now_us = self.now_us();
        let half = self.half(cold.timeline, cold.depth);
        let now = self.layout.tick().holding(now_us);
        let first_free = |lane| self.first_free(cold, lane, from, now, n);
        next_usable(half, from, self.latest_tick(now_us), first_free).map_err(|(lane, tick)| {
            if tick > self.layout.max_tick() {
                return Refusal::Exhausted;
            }
            let floor = self.floor(cold, lane).filter(|floor| floor.mark + 1 == tick);
            Refusal::NoLane(NoLane {
                behind_us: self.behind_us(from),
                worker: self.workers(cold).worker(lane),
                usable_at_us: self.usable_at(tick),
                floor: floor.map(|floor| floor.cause),
            })
        })
    }

    /// The tick at which a lane would continue with `n` IDs. For the active lane it is the first with room from its
    /// frontier and the clock's tick on, because after a replay those may be full; for another lane it lies above its
    /// mark.
    pub(super) fn first_free(&self, cold: &ColdState, lane: usize, active: usize, now: i64, n: i64) -> i64 {
        if lane == active {
            let lane = &self.lanes[lane];
            lane.room_from(lane.frontier().max(now), n, self.layout.max_tick())
        } else {
            self.first_free_elsewhere(cold, lane)
        }
    }

    fn first_free_elsewhere(&self, cold: &ColdState, lane: usize) -> i64 {
        self.lanes[lane].frontier().max(cold.journal.promises.marks[lane] + 1)
    }

    /// The floor above which a lane begins, if the lane has generated no ID since the floor was set.
    pub(super) fn floor(&self, cold: &ColdState, lane: usize) -> Option<Floor> {
        let lane = &self.lanes[lane];
        cold.journal.promises.facts.floor.filter(|floor| !lane.has_issued() && floor.mark == lane.restored())
    }

    /// The wall-clock time from which `tick` can be issued, as a Unix time in microseconds.
    pub(super) fn usable_at(&self, tick: i64) -> i64 {
        self.layout.starts_at(tick).saturating_sub(self.control.switch.max_ahead_us())
    }
}
