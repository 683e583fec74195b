//! The memory that processes share, as plain data: it can lie on the heap of one process, or in a segment that many
//! processes map at different addresses.
//!
//! # Who may write which part, and when
//!
//! * `LaneMemory`, one per lane: see `lane.rs`.
//! * The ring of each lane: only `ring.rs` writes it, by compare-and-swap and without a lock.
//! * `LiveState`: the active lane is written under the cold lock, after its current tick and restored mark, and so is the
//!   last tick of the lease. A reload writes the limits; no two of them need to change together.
//! * `Order`: a break changes it, under the cold lock (`horizon.rs`).
//! * `Counters`: calls that leave the hot path add to them at any time; no decision depends on them.
//! * `ColdState`: only the holder of the cold lock sees it.

use crate::clock_watch::ClockWatch;
use crate::config::{Config, Limits, Policy};
use crate::horizon::Order;
use crate::ladder::{Blocked, Patience};
use crate::lane::LaneMemory;
use crate::refusal::ClosedReason;
use crate::state_writer::StateWriter;
use crate::sync::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use parking_lot::lock_api::{Mutex, RawMutex};
use std::iter::zip;

/// Read by every call and written by almost none.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct LiveState {
    active: AtomicUsize,
    until: AtomicI64,
    /// The `max_ahead` in force.
    max_ahead_us: AtomicI64,
    /// The limits of the settings that are times.
    asked_us: [AtomicI64; Limits::TIMES],
    replay: AtomicUsize,
}

impl LiveState {
    fn new(limits: Limits) -> Self {
        let live = Self {
            active: AtomicUsize::new(0),
            until: AtomicI64::new(i64::MAX),
            max_ahead_us: AtomicI64::new(limits.max_ahead_us),
            asked_us: std::array::from_fn(|_| AtomicI64::new(0)),
            replay: AtomicUsize::new(0),
        };
        live.set_limits(limits);
        live
    }

    /// The active lane.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Acquire)
    }

    /// Makes a lane the active one. Called under the cold lock, once the lane's current tick and restored mark are
    /// published.
    pub(crate) fn activate(&self, lane: usize) {
        self.active.store(lane, Ordering::Release);
    }

    /// The last tick of the lease; past every layout's end without a registry. Outside the cold lock only for the error
    /// of a blocked call: permits enforce the limit.
    pub(crate) fn until(&self) -> i64 {
        self.until.load(Ordering::Relaxed)
    }

    /// Changes the end of the lease, under the cold lock.
    pub(crate) fn set_until(&self, tick: i64) {
        self.until.store(tick, Ordering::Relaxed);
    }

    /// The `max_ahead` in force.
    #[inline]
    pub(crate) fn max_ahead_us(&self) -> i64 {
        self.max_ahead_us.load(Ordering::Relaxed)
    }

    /// Brings a `max_ahead` into force, under the cold lock. A longer one is durable in the record by then.
    pub(crate) fn set_max_ahead(&self, micros: i64) {
        self.max_ahead_us.store(micros, Ordering::Relaxed);
    }

    /// The limits of the settings. Their `max_ahead` need not be in force yet.
    pub(crate) fn limits(&self) -> Limits {
        let policy = match self.replay.load(Ordering::Relaxed) {
            0 => Policy::Hold,
            _ => Policy::Replay,
        };
        let mut limits = Limits { policy, ..Limits::default() };
        zip(limits.times_mut(), &self.asked_us).for_each(|(us, asked)| *us = asked.load(Ordering::Relaxed));
        limits
    }

    pub(crate) fn set_limits(&self, mut limits: Limits) {
        self.replay.store((limits.policy == Policy::Replay) as usize, Ordering::Relaxed);
        zip(limits.times_mut(), &self.asked_us).for_each(|(us, asked)| asked.store(*us, Ordering::Relaxed));
    }
}

/// Counters of the slow path.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Counters {
    waits: AtomicU64,
    wait_us: AtomicU64,
    rotations: AtomicU64,
    refusals: AtomicU64,
    /// Unix time in microseconds.
    since_us: AtomicI64,
    pub(crate) clock: ClockWatch,
}

/// A copy of the counters.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Counts {
    pub waits: u64,
    pub wait_us: u64,
    pub rotations: u64,
    pub refusals: u64,
    pub since_us: i64,
}

impl Counters {
    fn new(now_us: i64) -> Self {
        Self {
            waits: AtomicU64::new(0),
            wait_us: AtomicU64::new(0),
            rotations: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            since_us: AtomicI64::new(now_us),
            clock: ClockWatch::new(),
        }
    }

    pub(crate) fn add_wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_wait_us(&self, micros: i64) {
        self.wait_us.fetch_add(micros as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_rotation(&self) {
        self.rotations.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            waits: self.waits.load(Ordering::Relaxed),
            wait_us: self.wait_us.load(Ordering::Relaxed),
            rotations: self.rotations.load(Ordering::Relaxed),
            refusals: self.refusals.load(Ordering::Relaxed),
            since_us: self.since_us.load(Ordering::Relaxed),
        }
    }

    /// Resets the counters; `now_us`, a Unix time in microseconds, is when they start.
    pub(crate) fn reset(&self, now_us: i64) {
        for counter in [&self.waits, &self.wait_us, &self.rotations, &self.refusals] {
            counter.store(0, Ordering::Relaxed);
        }
        self.clock.reset();
        self.since_us.store(now_us, Ordering::Relaxed);
    }
}

/// The state of the gate, under the cold lock. Calls see a closed gate by their lane's permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// No start has been tried yet.
    Untried,
    /// The last start could not open it; the next attempt comes no sooner than at this boot time (µs).
    Closed { reason: ClosedReason, retry_at_us: i64 },
    /// The start's decision is durable; the clock has yet to come within `max_ahead` of the lane's first tick, or there
    /// is no lease.
    Settling,
    /// Calls get IDs.
    Open,
}

/// The values of this run that rules 2 and 3 of a start (`state/start.rs`) need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The clock that its start read, as a Unix time in microseconds.
    pub(crate) start_us: i64,
    /// A lane that it enters begins above this tick, while the clock is not before `start_us`.
    pub(crate) above: i64,
    /// Until the clock has reached this Unix time in microseconds, IDs may lie ahead of it that were generated under a
    /// longer `max_ahead` than the one in force.
    pub(crate) longer_ahead_until_us: i64,
}

/// The data that the cold lock protects.
#[derive(Clone, Debug)]
pub(crate) struct ColdState {
    pub(crate) gate: Gate,
    /// The home worker in use; `None` while the registry has leased none.
    pub(crate) home: Option<i64>,
    pub(crate) run: Run,
    /// The lowest ID that the last break allows, or one within a day before it.
    pub(crate) since: i64,
    /// When the last break was, by the boot clock, in microseconds.
    pub(crate) broke_at_us: i64,
    pub(crate) writer: StateWriter,
    /// Length of the last reservation beyond the tick that asked for it.
    pub(crate) reserved_ticks: i64,
    /// The last refusal that was reported, as the ring's entry in the current tick. An episode is reported once; the next
    /// ID ends it.
    pub(crate) reported: Option<u64>,
    /// The last write that a call left to the keeper.
    pub(crate) keeper_request: Option<(Blocked, Patience)>,
    /// A call has waited in vain for the keeper, which has done nothing since.
    pub(crate) is_keeper_stuck: bool,
}

/// The part of the memory whose size does not depend on the settings.
#[repr(C)]
pub struct Control<R: RawMutex> {
    pub(crate) live: LiveState,
    pub(crate) order: Order,
    pub(crate) counters: Counters,
    pub(crate) cold: Mutex<R, ColdState>,
}

impl<R: RawMutex> Control<R> {
    /// With a closed gate. `lock` is the cold lock; `now_us`, a Unix time, is when the statistics start.
    pub fn new(lock: R, config: &Config, now_us: i64) -> Self {
        let cold = ColdState {
            gate: Gate::Untried,
            home: config.configured_home(),
            run: Run { start_us: i64::MIN, above: -1, longer_ahead_until_us: i64::MIN },
            since: i64::MAX,
            broke_at_us: 0,
            writer: StateWriter::new(config.layout),
            reserved_ticks: 0,
            reported: None,
            keeper_request: None,
            is_keeper_stuck: false,
        };
        Self {
            live: LiveState::new(config.limits.clamped_to(config.ring_ticks, &config.layout)),
            order: Order::new(),
            counters: Counters::new(now_us),
            cold: Mutex::from_raw(lock, cold),
        }
    }
}

/// References to a generator's memory, shared or not.
pub struct View<'m, R: RawMutex> {
    /// The part of fixed size.
    pub control: &'m Control<R>,
    /// One for each lane.
    pub lanes: &'m [LaneMemory],
    /// The rings of all lanes, one after another: [`Config::ring_ticks`] entries per lane, zero at first.
    pub slots: &'m [AtomicU64],
}
