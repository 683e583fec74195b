//! A generator's status, for monitoring. Nothing here changes what calls do, nor holds the cold lock for longer than it
//! takes to copy what that protects: the rings are long, and a process can be stopped anywhere.

use super::Generator;
use crate::clock_watch::Steps;
use crate::config::WorkerSource;
use crate::ladder::{Blocked, Step};
use crate::memory::{ColdState, Counts, Gate};
use crate::platform::Platform;
use crate::refusal::{Errno, Refusal};
use parking_lot::lock_api::RawMutex;

/// The generator's status. Counters count since `counts.since_us`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Status {
    pub open: bool,
    pub lane: usize,
    pub worker: i64,
    /// The home worker; `None` while the registry has leased none.
    pub home: Option<i64>,
    /// When the tick of the active lane's last ID began, as a Unix time in microseconds.
    pub last_id_at_us: Option<i64>,
    /// How far IDs run ahead of the wall clock.
    pub ahead_us: i64,
    /// How far the wall clock is before the epoch; 0 once it is past it.
    pub before_epoch_us: i64,
    pub issued: u64,
    pub counts: Counts,
    pub steps: Steps,
    /// The end of the active lane's reservation, as a Unix time; `None` without one.
    pub reserved_until_us: Option<i64>,
    /// Why the last write of the state failed, if it did.
    pub write_error: Option<Errno>,
}

/// One lane's status.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct LaneStatus {
    pub lane: usize,
    pub worker: i64,
    pub active: bool,
    /// The wall-clock time from which the lane can issue, as a Unix time in microseconds; `None` while the gate is
    /// closed.
    pub usable_at_us: Option<i64>,
    /// The lane's mark: when the last tick that it may have used began, as a Unix time; `None` if it was never used.
    pub mark_us: Option<i64>,
    pub issued: u64,
}

impl<P: Platform, R: RawMutex> Generator<'_, P, R> {
    /// The status now. Checks the clock first, so that a step is counted by the time it is shown.
    pub fn status(&self) -> Status {
        self.observe_clock();
        let index = self.active();
        let lane = &self.lanes[index];
        let cold = self.cold_copy();
        let now_us = self.now_us();
        let last_tick = lane.last_tick();
        let ahead = |tick: i64| (tick * self.layout.tick().micros() - now_us).max(0);
        Status {
            open: self.is_open(),
            lane: index,
            worker: self.workers(&cold).worker(index),
            home: cold
                .home
                .filter(|_| self.source == WorkerSource::Configured || cold.writer.pending.lease().is_some()),
            last_id_at_us: last_tick.map(|tick| self.layout.starts_at(tick)),
            ahead_us: last_tick.map_or(0, ahead),
            before_epoch_us: (-now_us).max(0),
            issued: self.lanes.iter().map(|lane| lane.issued()).sum(),
            counts: self.control.counters.counts(),
            steps: self.control.counters.clock.steps(),
            reserved_until_us: lane.permitted().map(|tick| self.layout.starts_at(tick + 1)),
            write_error: cold.writer.failure(),
        }
    }

    fn cold_copy(&self) -> ColdState {
        self.control.cold.lock().clone()
    }

    /// The refusal that a call would meet now; `None` if it would get an ID, perhaps after a wait.
    pub fn obstacle(&self) -> Option<Refusal> {
        let cold = self.cold_copy();
        if cold.gate != Gate::Open {
            return Some(Refusal::GateClosed);
        }
        let active = self.active();
        let lane = &self.lanes[active];
        let current_tick = lane.current_tick();
        let now_us = self.now_us();
        let tried = current_tick.max(self.layout.tick().containing(now_us));
        let room = lane.ring.room_from(tried, 1, self.latest_tick(now_us));
        let blocked = Blocked { n: 1, lane: active, current_tick, tried, wanted: room.max(tried) };
        match self.step_after(&blocked, 0) {
            Step::Refuse(refusal) => Some(refusal),
            Step::Rotate => self
                .next_lane(&cold, active, 1)
                .err()
                .filter(|refusal| self.worth_a_wait(refusal, 0).is_none()),
            Step::Reserve => cold.writer.failure().map(Refusal::NotDurable),
            Step::Again | Step::Wait(_) | Step::Replay(_) => None,
        }
    }

    /// The status of each lane now.
    pub fn lane_statuses(&self) -> Vec<LaneStatus> {
        let cold = self.cold_copy();
        let active = self.active();
        let is_open = cold.gate == Gate::Open;
        let workers = self.workers(&cold);
        let now_us = self.now_us();
        let status = |lane| {
            let mark = cold.writer.pending.marks[lane];
            let first = self.first_free(&cold, lane, active, now_us, 1);
            LaneStatus {
                lane,
                worker: workers.worker(lane),
                active: lane == active && is_open,
                usable_at_us: is_open.then(|| self.usable_at(first)),
                mark_us: (mark >= 0).then(|| self.layout.starts_at(mark)),
                issued: self.lanes[lane].issued(),
            }
        };
        (0..workers.lanes()).map(status).collect()
    }

    /// Resets the counters to zero.
    pub fn reset_stats(&self) {
        self.lanes.iter().for_each(|lane| lane.reset_issued());
        self.control.counters.reset(self.platform.wall_us());
    }
}
