//! A PostgreSQL lightweight lock that a process can stop waiting for: the core's cold lock, and the one of the contacts' status.

use crate::messages::Awaited;
use crate::waiting;
use pgrx::prelude::*;
use snowflake_core::lock_api::{GuardNoSend, RawMutex};
use std::time::Duration;

/// A process that waits for the lock tries again after this long at first...
const FIRST_NAP: Duration = Duration::from_millis(1);
/// ...and doubles the time with each try, up to this.
const LONGEST_NAP: Duration = Duration::from_millis(32);

/// The lock. It is only ever tried, because `LWLockAcquire` would not answer a
/// cancel (guarantee 6).
pub struct LightweightLock(*mut pg_sys::LWLock);

impl LightweightLock {
    /// # Safety
    /// The lock is in shared memory, and lives for as long as this process maps that.
    pub unsafe fn new(lock: *mut pg_sys::LWLock) -> Self {
        Self(lock)
    }
}

// SAFETY: the pointer leads into shared memory that all processes map at one address, and the lock behind it is made
// for use by all of them.
unsafe impl Send for LightweightLock {}
// SAFETY: as above.
unsafe impl Sync for LightweightLock {}

// SAFETY: an LWLock in exclusive mode has one holder at a time in all processes.
unsafe impl RawMutex for LightweightLock {
    /// Not a lock: the only one is in shared memory.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(std::ptr::null_mut());
    type GuardMarker = GuardNoSend;

    /// The holder may be within an fsync. So that hundreds of sessions that wait for a slow disk leave the processors
    /// alone, each nap is longer than the one before.
    fn lock(&self) {
        let mut nap = FIRST_NAP;
        while !self.try_lock() {
            waiting::nap(nap, Awaited::State);
            nap = (2 * nap).min(LONGEST_NAP);
        }
    }

    fn try_lock(&self) -> bool {
        // SAFETY: the lock is in shared memory, and this process may wait on lightweight locks.
        unsafe { pg_sys::LWLockConditionalAcquire(self.0, pg_sys::LWLockMode::LW_EXCLUSIVE) }
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock. While an error unwinds, PostgreSQL has already reset the count and
        // releases every lock itself; another release would count below zero.
        unsafe {
            if pg_sys::InterruptHoldoffCount > 0 {
                pg_sys::LWLockRelease(self.0);
            }
        }
    }
}
