//! What the processes share, as plain data: it may lie on one process's heap or in a segment that many
//! map at any address. Which field may be touched when is said at each.

use parking_lot::lock_api::{Mutex, RawMutex};

use crate::generator::Config;
use crate::ladder::{Policy, Rules};
use crate::lanes::Lanes;
use crate::layout::Layout;
use crate::sync::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// A ceiling below every tick and every mark: the gate is closed.
pub(crate) const CLOSED: i64 = i64::MIN;

/// One lane. Hot: `last` is read by every call and raised once a tick.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct LaneMemory {
    /// The tick from which the next call starts. Raised by calls; lowered only by replay, and only by
    /// compare-and-swap from the value that was read: a plain store could undo another call's raise.
    pub(crate) last: AtomicI64,
    /// The last tick that may be issued: the lane's reservation, which is its mark on disk (rule 2), or
    /// nothing while the gate is closed. Written under the cold lock, after the disk.
    pub(crate) ceiling: AtomicI64,
    /// The mark that was restored at start: no tick up to it is ever issued (rule 3). Written under the
    /// cold lock, before the ceiling.
    pub(crate) restored: AtomicI64,
    /// IDs of the words that were evicted from the ring.
    pub(crate) evicted: AtomicU64,
    /// IDs made before the last reset of the statistics. Written under the cold lock.
    pub(crate) issued_before: AtomicU64,
}

impl LaneMemory {
    /// A lane that has never made an ID.
    pub fn new() -> Self {
        Self {
            last: AtomicI64::new(0),
            ceiling: AtomicI64::new(CLOSED),
            restored: AtomicI64::new(-1),
            evicted: AtomicU64::new(0),
            issued_before: AtomicU64::new(0),
        }
    }
}

impl Default for LaneMemory {
    fn default() -> Self {
        Self::new()
    }
}

/// What every call reads and almost none writes.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Switch {
    /// The active lane. Written under the cold lock, after everything that a caller of the lane needs.
    pub(crate) active: AtomicUsize,
    /// [`Rules`], one atomic each: no two of them need to change together.
    max_ahead_us: AtomicI64,
    /// [`Rules::freely_ahead_us`].
    freely_ahead_us: AtomicI64,
    max_wait_us: AtomicI64,
    reserve_us: AtomicI64,
    replay: AtomicUsize,
}

impl Switch {
    #[inline]
    pub(crate) fn max_ahead_us(&self) -> i64 {
        self.max_ahead_us.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn freely_ahead_us(&self) -> i64 {
        self.freely_ahead_us.load(Ordering::Relaxed)
    }

    pub(crate) fn rules(&self) -> Rules {
        let policy = match self.replay.load(Ordering::Relaxed) {
            0 => Policy::Hold,
            _ => Policy::Replay,
        };
        let max_wait_us = self.max_wait_us.load(Ordering::Relaxed);
        let reserve_us = self.reserve_us.load(Ordering::Relaxed);
        Rules { policy, max_ahead_us: self.max_ahead_us(), max_wait_us, reserve_us }
    }

    pub(crate) fn set_rules(&self, rules: &Rules, layout: &Layout) {
        self.replay.store((rules.policy == Policy::Replay) as usize, Ordering::Relaxed);
        self.max_ahead_us.store(rules.max_ahead_us, Ordering::Relaxed);
        self.freely_ahead_us.store(rules.freely_ahead_us(layout), Ordering::Relaxed);
        self.max_wait_us.store(rules.max_wait_us, Ordering::Relaxed);
        self.reserve_us.store(rules.reserve_us, Ordering::Relaxed);
    }
}

/// Counters of the cold path, and what it last knew of the clock.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Counters {
    pub(crate) waits: AtomicU64,
    pub(crate) wait_us: AtomicU64,
    pub(crate) rollbacks: AtomicU64,
    pub(crate) largest_rollback_us: AtomicI64,
    pub(crate) forward_jumps: AtomicU64,
    pub(crate) rotations: AtomicU64,
    pub(crate) refusals: AtomicU64,
    /// Unix time (µs) since when these count.
    pub(crate) since_us: AtomicI64,
    /// Wall clock less boot clock (µs), as last seen: it changes only when the wall clock is stepped.
    pub(crate) clock_offset_us: AtomicI64,
}

/// The part of the memory that has one size, whatever the settings.
#[repr(C)]
pub struct Control<R: RawMutex> {
    pub(crate) switch: Switch,
    pub(crate) counters: Counters,
    pub(crate) cold: Mutex<R, Lanes>,
}

impl<R: RawMutex> Control<R> {
    /// A closed gate. `lock` is the cold lock, `now_us` a Unix time for the statistics' start.
    pub fn new(lock: R, config: &Config, now_us: i64) -> Self {
        let switch = Switch {
            active: AtomicUsize::new(0),
            max_ahead_us: AtomicI64::new(0),
            freely_ahead_us: AtomicI64::new(0),
            max_wait_us: AtomicI64::new(0),
            reserve_us: AtomicI64::new(0),
            replay: AtomicUsize::new(0),
        };
        switch.set_rules(&config.rules.held_to(config.ring_ticks, &config.layout), &config.layout);
        let counters = Counters {
            waits: AtomicU64::new(0),
            wait_us: AtomicU64::new(0),
            rollbacks: AtomicU64::new(0),
            largest_rollback_us: AtomicI64::new(0),
            forward_jumps: AtomicU64::new(0),
            rotations: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            since_us: AtomicI64::new(now_us),
            clock_offset_us: AtomicI64::new(crate::generator::OFFSET_UNKNOWN),
        };
        Self { switch, counters, cold: Mutex::from_raw(lock, Lanes::new()) }
    }
}

/// The memory of one generator, wherever it lies.
pub struct View<'m, R: RawMutex> {
    /// The part of fixed size.
    pub control: &'m Control<R>,
    /// One for each lane.
    pub lanes: &'m [LaneMemory],
    /// The rings of all lanes, one behind the other: [`Config::ring_ticks`] words a lane, zero at first.
    pub slots: &'m [AtomicU64],
}

impl<R: RawMutex> Clone for View<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: RawMutex> Copy for View<'_, R> {}

/// The memory of a generator on this process's heap.
pub struct Memory<R: RawMutex> {
    control: Control<R>,
    lanes: Box<[LaneMemory]>,
    slots: Box<[AtomicU64]>,
}

impl<R: RawMutex> Memory<R> {
    /// Memory for a generator of this configuration.
    pub fn new(config: &Config) -> Self {
        let lanes = config.workers.lanes();
        Self {
            control: Control::new(R::INIT, config, 0),
            lanes: (0..lanes).map(|_| LaneMemory::new()).collect(),
            slots: (0..lanes * config.ring_ticks).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// What a [`Generator`](crate::Generator) works on.
    pub fn view(&self) -> View<'_, R> {
        View { control: &self.control, lanes: &self.lanes, slots: &self.slots }
    }
}
