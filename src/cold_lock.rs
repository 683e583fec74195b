//! The cold lock: a PostgreSQL lightweight lock that a waiter can leave.

use crate::waiting::{self, Reason};
use pgrx::prelude::*;
use snowflake_core::lock_api::{GuardNoSend, RawMutex};
use std::time::Duration;

/// Whoever waits for the cold lock looks again after this long at first.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// And at last.
const LAST_LOOK: Duration = Duration::from_millis(32);

/// A PostgreSQL lightweight lock as the cold lock. Only ever tried: `LWLockAcquire` would not answer a
/// cancel (guarantee 6).
pub struct ColdLock(*mut pg_sys::LWLock);

impl ColdLock {
    /// # Safety
    /// The lock lies in shared memory, and lives as long as this process maps that.
    pub unsafe fn new(lock: *mut pg_sys::LWLock) -> Self {
        Self(lock)
    }
}

// SAFETY: the pointer leads into shared memory that is mapped at one address in all processes, and the
// lock behind it is made for use by all of them.
unsafe impl Send for ColdLock {}
// SAFETY: as above.
unsafe impl Sync for ColdLock {}

// SAFETY: an LWLock in exclusive mode has one holder at a time in all processes.
unsafe impl RawMutex for ColdLock {
    /// No lock at all: shared memory has the only one.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(std::ptr::null_mut());
    type GuardMarker = GuardNoSend;

    /// The holder may be within an fsync: each look comes later than the one before, so that hundreds of sessions
    /// that wait for a slow disk leave the processors alone.
    fn lock(&self) {
        let mut nap = FIRST_LOOK;
        while !self.try_lock() {
            waiting::nap(nap, Reason::State);
            nap = (2 * nap).min(LAST_LOOK);
        }
    }

    fn try_lock(&self) -> bool {
        // SAFETY: the lock lies in shared memory, and this process has a slot for waiting on locks.
        unsafe { pg_sys::LWLockConditionalAcquire(self.0, pg_sys::LWLockMode::LW_EXCLUSIVE) }
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock. While an error unwinds, PostgreSQL has already reset the
        // count and releases every lock itself; releasing it here would count below zero.
        unsafe {
            if pg_sys::InterruptHoldoffCount > 0 {
                pg_sys::LWLockRelease(self.0);
            }
        }
    }
}
