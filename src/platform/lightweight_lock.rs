//! A PostgreSQL lightweight lock whose waits can be interrupted: the core's cold lock, and the lock of the contact status.

use super::waiting::{self, Awaited};
use pgrx::prelude::*;
use snowflake_core::lock_api::{GuardNoSend, RawMutex};
use std::time::Duration;

/// The first pause between two tries of the lock.
const FIRST_NAP: Duration = Duration::from_millis(1);
/// The longest pause; each is twice the one before.
const LONGEST_NAP: Duration = Duration::from_millis(32);

/// The lock. It is only tried, because `LWLockAcquire` ignores a cancel (guarantee 6).
pub struct LightweightLock(*mut pg_sys::LWLock);

impl LightweightLock {
    /// # Safety
    /// The lock is in shared memory, and valid while this process maps that.
    pub unsafe fn new(lock: *mut pg_sys::LWLock) -> Self {
        Self(lock)
    }
}

// SAFETY: the pointer is into shared memory that all processes map at one address, and all of them may use the lock there.
unsafe impl Send for LightweightLock {}
// SAFETY: as above.
unsafe impl Sync for LightweightLock {}

// SAFETY: an LWLock in exclusive mode has one holder at a time in all processes.
unsafe impl RawMutex for LightweightLock {
    /// A constant that the trait requires, and not a lock.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(std::ptr::null_mut());
    type GuardMarker = GuardNoSend;

    /// The holder may be in an fsync. The naps grow, so that hundreds of sessions that wait for a slow disk do not load the
    /// processors.
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
