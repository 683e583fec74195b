//! The generator: `hot_path` generates nearly all IDs, `slow_path` those that need the clock, the disk or another lane.
//!
//! A call attempts to claim a position in the tick of the clock, or of the current tick if that is later. If it cannot,
//! it climbs the ladder and attempts again, until it has an ID or is refused. It holds no lock while it waits
//! (guarantee 6).
//!
//! * `rotation`: to another lane, because the clock moved backwards or an operator wants it.
//! * `reservation`: ticks reserved on disk ahead of use, by the keeper or by a call.
//! * `startup`: from a closed gate to an open one.
//! * `leasing`: a registry grants this server its workers, up to a tick.
//! * `adoption`: an operator vouches for the state.
//! * `horizon`: below which ID no further row appears.
//! * `status`: what monitoring shows.

mod adoption;
mod horizon;
mod hot_path;
mod leasing;
mod reservation;
mod rotation;
mod slow_path;
mod startup;
mod status;

pub use horizon::Horizon;
pub use status::{LaneStatus, Status};

use crate::config::{Config, Limits, WorkerSource};
use crate::lane::{Lane, LaneMemory};
use crate::layout::Layout;
use crate::memory::{ColdState, Control, View};
use crate::platform::{Event, Platform};
use crate::refusal::Refusal;
use crate::ring::Shape;
use crate::sync::AtomicU64;
use crate::workers::{Origins, Workers};
use hot_path::{Attempt, ClockCheck};
use parking_lot::lock_api::RawMutex;
use std::iter::zip;

/// After a gap of this length since the last ID, the generator checks the clock: either no call came in between, or the
/// clock was stepped forward, and then a later step back is measured from the new time.
const UNEXPECTED_US: i64 = 1_000_000;

/// Consecutive IDs from one tick of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The lowest.
    pub first: i64,
    /// The highest.
    pub last: i64,
}

/// Generates IDs. Any number of generators, in as many threads or processes, may share one memory; all of
/// them must have the same [`Config`].
pub struct Generator<'m, P, R: RawMutex> {
    layout: Layout,
    /// The length of the layout's tick, cached because computing it is slow.
    tick_us: i64,
    /// The width of an origin, which the hot path takes from a permit.
    origin_bits: u32,
    /// Mask: the low `origin_bits` bits.
    origin_mask: i64,
    sequence_bits: u32,
    max_tick: i64,
    datacenter: i64,
    /// The lanes of the configured home worker. The one in use is `ColdState::home`.
    configured: Workers,
    source: WorkerSource,
    shape: Shape,
    unexpected_ticks: i64,
    control: &'m Control<R>,
    lanes: Box<[Lane<'m>]>,
    platform: P,
}

impl<'m, P: Platform, R: RawMutex> Generator<'m, P, R> {
    /// A generator on this memory, which must have been created for this configuration.
    pub fn new(config: &Config, view: View<'m, R>, platform: P) -> Self {
        let Config { layout, datacenter, workers, source, ring_ticks, .. } = *config;
        let View { control, lanes, slots } = view;
        assert_eq!(lanes.len(), workers.lanes(), "the memory has another number of lanes");
        assert_eq!(slots.len(), workers.lanes() * ring_ticks, "the memory has another ring");
        assert!((0..layout.datacenters()).contains(&datacenter), "the datacenter is outside its field");
        let shape = Shape::new(&layout, config.sequence_start);
        let origin_bits = layout.origin_bits();
        let lane =
            |(memory, slots): (&'m LaneMemory, &'m [AtomicU64])| Lane::new(origin_bits, memory, slots, shape);
        Self {
            layout,
            tick_us: layout.tick().micros(),
            origin_bits,
            origin_mask: (1 << origin_bits) - 1,
            sequence_bits: layout.bits().sequence,
            max_tick: layout.max_tick(),
            datacenter,
            configured: workers,
            source,
            shape,
            unexpected_ticks: UNEXPECTED_US / layout.tick().micros(),
            control,
            lanes: zip(lanes, slots.chunks_exact(ring_ticks)).map(lane).collect(),
            platform,
        }
    }

    /// The generator's platform.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    // ---- IDs ----

    /// Generates an ID.
    #[inline]
    pub fn next_id(&self) -> Result<i64, Refusal> {
        match self.attempt(1, ClockCheck::Pending) {
            Attempt::Won(range) => Ok(range.first),
            otherwise => self.climb(1, otherwise).map(|range| range.first),
        }
    }

    /// Generates an ID if the hot path can, which calls no function of the platform but its wall clock. `None` means that
    /// [`next_id`](Self::next_id) has to generate it.
    #[inline(always)]
    pub fn try_next_id(&self) -> Option<i64> {
        match self.attempt_once()? {
            Attempt::Won(range) => Some(range.first),
            _ => None,
        }
    }

    /// Generates `n` consecutive IDs from one tick. Panics unless 1 <= n <= [`capacity`](Self::capacity).
    pub fn next_range(&self, n: i64) -> Result<Range, Refusal> {
        assert!((1..=self.capacity()).contains(&n), "a range has 1 to {} IDs", self.capacity());
        match self.attempt(n, ClockCheck::Pending) {
            Attempt::Won(range) => Ok(range),
            otherwise => self.climb(n, otherwise),
        }
    }

    /// The greatest `n` that [`next_range`](Self::next_range) accepts.
    pub fn capacity(&self) -> i64 {
        self.shape.capacity()
    }

    // ---- limits ----

    /// Changes the limits for every generator on this memory. `max_ahead` is clamped to a quarter of the ring.
    pub fn set_limits(&self, limits: Limits) {
        let ring_ticks = self.lanes[0].ring.ticks() as usize;
        self.control.live.set_limits(limits.clamped_to(ring_ticks, &self.layout));
    }

    /// The limits of the settings.
    pub fn asked_limits(&self) -> Limits {
        self.control.live.limits()
    }

    /// The limits in force: a `max_ahead` that was changed comes into force a little later.
    pub fn limits(&self) -> Limits {
        Limits { max_ahead_us: self.control.live.max_ahead_us(), ..self.asked_limits() }
    }

    // ---- shared by the generator's files ----

    /// Runs `work` under the cold lock, then reports to the platform if writing began to fail or works again.
    fn locked<T>(&self, work: impl FnOnce(&mut ColdState) -> T) -> T {
        let mut cold = self.control.cold.lock();
        let failed_before = cold.writer.failure().is_some();
        let result = work(&mut cold);
        let failure = cold.writer.failure();
        drop(cold);
        match (failed_before, failure) {
            (false, Some(errno)) => self.platform.report(Event::WriteFailed(errno)),
            (true, None) => self.platform.report(Event::WriteRecovered),
            _ => {}
        }
        result
    }

    fn active(&self) -> usize {
        self.control.live.active()
    }

    /// The workers of the home worker that is in use, or of the configured one.
    fn workers(&self, cold: &ColdState) -> Workers {
        cold.home.map_or(self.configured, |home| self.configured.of_home(home))
    }

    /// The origin of each lane.
    fn origins(&self, cold: &ColdState) -> Origins {
        cold.home.map_or(Origins::NONE, |home| self.origins_of(home))
    }

    fn origins_of(&self, home: i64) -> Origins {
        Origins::new(&self.layout, self.datacenter, self.configured.of_home(home))
    }

    /// Lets calls use a lane up to its mark, which must be durable, but not past the end of the lease.
    fn publish(&self, cold: &ColdState, lane: usize, mark: i64) {
        let origin = self.origins(cold)[lane];
        self.lanes[lane].publish_permit(mark.min(self.control.live.until()), origin);
    }

    /// The wall clock, in microseconds since the epoch.
    fn now_us(&self) -> i64 {
        self.layout.relative(self.platform.wall_us())
    }

    /// The last tick that guarantee 4 allows at this wall-clock time, in microseconds since the epoch.
    fn latest_tick(&self, now_us: i64) -> i64 {
        self.layout.tick().containing(now_us + self.control.live.max_ahead_us())
    }

    /// How far the wall clock is behind the lane's current tick, in microseconds; negative if it is ahead of it.
    fn behind_us(&self, lane: usize) -> i64 {
        self.lanes[lane].current_tick() * self.layout.tick().micros() - self.now_us()
    }

    /// Counts a step of the wall clock. Reports a large step forward: if it was wrong, correcting it will be
    /// a step back.
    fn observe_clock(&self) {
        if let Some(micros) = self.control.counters.clock.observe(&self.platform) {
            self.platform.report(Event::ForwardJump(micros));
        }
    }
}
