//! The bell by which calls wake the keeper.

use pgrx::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// It lies in shared memory.
pub struct Bell {
    /// Process ID of the keeper; 0 while there is none.
    keeper: AtomicI32,
    /// What wakes it. Written before the process ID.
    latch: AtomicPtr<pg_sys::Latch>,
    /// A call waits for the keeper.
    is_rung: AtomicBool,
}

impl Bell {
    /// There is no keeper yet.
    pub const fn new() -> Self {
        Self {
            keeper: AtomicI32::new(0),
            latch: AtomicPtr::new(std::ptr::null_mut()),
            is_rung: AtomicBool::new(false),
        }
    }
}

static BELL: AtomicPtr<Bell> = AtomicPtr::new(std::ptr::null_mut());

/// From now on this is the bell, for this process and all that it forks.
///
/// # Safety
/// It lies in shared memory, which these processes map as long as they live.
pub unsafe fn hang(bell: *const Bell) {
    BELL.store(bell.cast_mut(), Ordering::Relaxed);
}

fn bell() -> Option<&'static Bell> {
    // SAFETY: null, or a bell in the segment, which this process maps as long as it lives.
    unsafe { BELL.load(Ordering::Relaxed).as_ref() }
}

/// The keeper's process ID.
pub fn keeper() -> Option<i32> {
    bell().map(|bell| bell.keeper.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
}

/// Names this process as the keeper, as long as it lives.
pub fn become_keeper() {
    let Some(bell) = bell() else { return };
    // SAFETY: this process's own latch lies in shared memory, mapped at one address in all processes, as long as
    // the server runs; another process may have it later, and a call in vain does that no harm.
    bell.latch.store(unsafe { pg_sys::MyLatch }, Ordering::Relaxed);
    bell.keeper.store(std::process::id() as i32, Ordering::Release);
    // SAFETY: called once per process, which runs it however it ends except by a crash; then all memory is new.
    unsafe { pg_sys::before_shmem_exit(Some(keeper_gone), pg_sys::Datum::null()) };
}

#[pg_guard]
extern "C-unwind" fn keeper_gone(_code: std::ffi::c_int, _argument: pg_sys::Datum) {
    if let Some(bell) = bell() {
        bell.keeper.store(0, Ordering::Release);
    }
}

/// Wakes the keeper, which then does what calls have asked for; `false`: there is no keeper.
pub fn ring() -> bool {
    let Some(bell) = bell().filter(|bell| bell.keeper.load(Ordering::Acquire) != 0) else {
        return false;
    };
    bell.is_rung.store(true, Ordering::Release);
    // SAFETY: a latch in shared memory, which was stored before the process ID.
    unsafe { pg_sys::SetLatch(bell.latch.load(Ordering::Relaxed)) };
    true
}

/// Whether a call has rung since this was last asked.
pub fn was_rung() -> bool {
    bell().is_some_and(|bell| bell.is_rung.swap(false, Ordering::Acquire))
}
