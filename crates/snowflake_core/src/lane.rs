//! One lane: a worker's memory and its ring. Each change of the memory has a name here, and no other file touches it.
//!
//! # The fields and who may write them
//!
//! * The *current tick*, the tick from which the next call starts. Calls raise it without a lock. Replay lowers it
//!   under the cold lock, by compare-and-swap from the value that it read: a plain store could undo another call's
//!   raise, and without the lock a replay could lead below the floor of a concurrent `adopt`. Starts, `adopt` and a
//!   change of lease move it under the cold lock.
//! * The *permit*, the lane's origin and the last tick that may be issued with it: the lane's reservation, which is its
//!   mark on disk (guarantee 2), or nothing while the gate is closed. Written under the cold lock. Raise: fsync, then
//!   store. Revoke: clear, then write.
//! * The *restored* mark: no tick up to it is ever issued (guarantee 3). Written under the cold lock, before the
//!   permit, as is the current tick that respects it. It is never lowered: a call may have read a permit long ago.
//! * The counts: IDs whose entries left the ring, and the total when the statistics were last reset.

use crate::permit::Permit;
use crate::ring::{Claim, Ring, Shape};
use crate::sync::{AtomicI64, AtomicU64, Ordering};

/// The memory of one lane. Hot: every call reads the current tick, and raises it once per tick.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct LaneMemory {
    current_tick: AtomicI64,
    permit: AtomicI64,
    restored: AtomicI64,
    /// How many IDs the entries stood for that were evicted from the ring.
    evicted: AtomicU64,
    /// How many IDs were issued before the last reset of the statistics.
    issued_before: AtomicU64,
}

impl Default for LaneMemory {
    /// A lane that has never issued an ID, behind a closed gate.
    fn default() -> Self {
        Self {
            current_tick: AtomicI64::new(0),
            permit: AtomicI64::new(Permit::CLOSED.0),
            restored: AtomicI64::new(-1),
            evicted: AtomicU64::new(0),
            issued_before: AtomicU64::new(0),
        }
    }
}

/// One lane of a generator.
pub(crate) struct Lane<'m> {
    origin_bits: u32,
    memory: &'m LaneMemory,
    /// Claimed through the lane; the generator reads it.
    pub(crate) ring: Ring<'m>,
}

impl<'m> Lane<'m> {
    /// `origin_bits`: the width of an origin. `slots`: the lane's ring.
    pub(crate) fn new(
        origin_bits: u32,
        memory: &'m LaneMemory,
        slots: &'m [AtomicU64],
        shape: Shape,
    ) -> Self {
        Self { origin_bits, memory, ring: Ring::new(slots, &memory.evicted, shape) }
    }

    // ---- calls: no lock ----

    /// The tick from which the next call starts; never negative.
    #[inline]
    pub(crate) fn current_tick(&self) -> i64 {
        self.memory.current_tick.load(Ordering::Acquire)
    }

    /// The ticks and the worker that calls may use.
    #[inline]
    pub(crate) fn permit(&self) -> Permit {
        Permit(self.memory.permit.load(Ordering::Acquire))
    }

    /// Claims `n` consecutive positions of `tick`, which a permit must allow. A call that wins them calls
    /// [`raise_to`](Self::raise_to) next.
    #[inline(always)]
    pub(crate) fn claim(&self, tick: i64, n: i64) -> Claim {
        self.ring.claim(tick, n)
    }

    /// Raises the current tick to `tick`, unless it is there or beyond already.
    #[inline]
    pub(crate) fn raise_to(&self, tick: i64) {
        self.memory.current_tick.fetch_max(tick, Ordering::AcqRel);
    }

    /// The lowest position that a call can claim from now on, while the current tick is not lowered.
    #[inline]
    pub(crate) fn next_position(&self) -> i64 {
        self.ring.next_position(self.current_tick())
    }

    // ---- the cold lock's holder ----

    /// Lowers the current tick from `seen` to `tick`, for a replay. Does nothing if a call has raised it since it was
    /// seen; the caller looks again and finds that out.
    pub(crate) fn replay_to(&self, seen: i64, tick: i64) {
        let _ = self.memory.current_tick.compare_exchange(seen, tick, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The end of the reservation, whether a tick of it may be issued or not; `None` while the gate is closed.
    pub(crate) fn permitted(&self) -> Option<i64> {
        let permit = self.permit();
        (permit != Permit::CLOSED).then(|| permit.tick(self.origin_bits))
    }

    /// Lets calls generate IDs of `origin` from the current tick on, up to a mark, which must be durable.
    pub(crate) fn publish_permit(&self, mark: i64, origin: i64) {
        let permit = Permit::new(mark, origin, self.origin_bits);
        self.memory.permit.store(permit.0, Ordering::Release);
    }

    /// Closes the gate of this lane.
    pub(crate) fn close(&self) {
        self.memory.permit.store(Permit::CLOSED.0, Ordering::Release);
    }

    /// The tick above which the lane began in this run, or a floor that has been set since. The lock orders it: a call
    /// that decides by it decides again under the lock.
    pub(crate) fn restored(&self) -> i64 {
        self.memory.restored.load(Ordering::Relaxed)
    }

    /// Begins or continues above `floor` or higher, even while calls are under way. It never gets lower, not even under
    /// another lease: a call that still has the permit of the earlier one must not meet a current tick that a replay
    /// has lowered below the floor of that.
    pub(crate) fn raise_floor(&self, floor: i64) {
        self.memory.restored.fetch_max(floor, Ordering::Relaxed);
        self.raise_to(floor + 1);
    }

    /// The highest tick in which IDs may exist: the restored mark, or an issued tick above it.
    pub(crate) fn exact_mark(&self) -> i64 {
        self.restored().max(self.highest_tick())
    }

    /// The highest tick in which an ID was issued since the start; -1: none.
    pub(crate) fn highest_tick(&self) -> i64 {
        self.ring.last_tick().unwrap_or(-1)
    }

    /// The tick of the last ID since the start: the current tick, or the highest issued tick if a replay has just
    /// lowered it.
    pub(crate) fn last_tick(&self) -> Option<i64> {
        let current_tick = self.current_tick();
        if self.ring.holds(current_tick) { Some(current_tick) } else { self.ring.last_tick() }
    }

    // ---- statistics ----

    /// IDs issued since the last reset.
    pub(crate) fn issued(&self) -> u64 {
        self.ring.issued().saturating_sub(self.memory.issued_before.load(Ordering::Relaxed))
    }

    /// Restarts the count at zero.
    pub(crate) fn reset_issued(&self) {
        self.memory.issued_before.store(self.ring.issued(), Ordering::Relaxed);
    }
}
