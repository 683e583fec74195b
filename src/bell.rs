//! The bell: calls ring it to wake the keeper.

use pgrx::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// In shared memory.
pub struct Bell {
    /// The keeper's process ID; 0 while there is no keeper.
    keeper: AtomicI32,
    /// The keeper's latch. Written before the process ID.
    latch: AtomicPtr<pg_sys::Latch>,
    /// A call waits for the keeper.
    is_rung: AtomicBool,
}

impl Bell {
    /// Before a keeper exists.
    pub const fn new() -> Self {
        Self {
            keeper: AtomicI32::new(0),
            latch: AtomicPtr::new(std::ptr::null_mut()),
            is_rung: AtomicBool::new(false),
        }
    }
}

static BELL: AtomicPtr<Bell> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the bell for this process and every process that it forks from now on.
///
/// # Safety
/// The bell is in shared memory that these processes map for as long as they live.
pub unsafe fn hang(bell: *const Bell) {
    BELL.store(bell.cast_mut(), Ordering::Relaxed);
}

fn bell() -> Option<&'static Bell> {
    // SAFETY: null, or a bell in the segment, which this process maps for as long as it lives.
    unsafe { BELL.load(Ordering::Relaxed).as_ref() }
}

/// The keeper's process ID.
pub fn keeper() -> Option<i32> {
    bell().map(|bell| bell.keeper.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
}

/// Registers this process as the keeper until it exits.
pub fn become_keeper() {
    let Some(bell) = bell() else { return };
    // SAFETY: the latch is in shared memory that all processes map at one address for as long as the server runs. If
    // another process gets it later, setting it in vain does no harm.
    bell.latch.store(unsafe { pg_sys::MyLatch }, Ordering::Relaxed);
    bell.keeper.store(std::process::id() as i32, Ordering::Release);
    // SAFETY: called once per process. It runs at every exit but a crash, and after a crash all memory is new.
    unsafe { pg_sys::before_shmem_exit(Some(keeper_gone), pg_sys::Datum::null()) };
}

#[pg_guard]
extern "C-unwind" fn keeper_gone(_code: std::ffi::c_int, _argument: pg_sys::Datum) {
    if let Some(bell) = bell() {
        bell.keeper.store(0, Ordering::Release);
    }
}

/// Wakes the keeper, which then does what calls have asked for; `false` if there is no keeper.
pub fn ring() -> bool {
    let Some(bell) = bell().filter(|bell| bell.keeper.load(Ordering::Acquire) != 0) else {
        return false;
    };
    bell.is_rung.store(true, Ordering::Release);
    // SAFETY: a latch in shared memory, stored before the process ID.
    unsafe { pg_sys::SetLatch(bell.latch.load(Ordering::Relaxed)) };
    true
}

/// Whether a call has rung since the last check.
pub fn was_rung() -> bool {
    bell().is_some_and(|bell| bell.is_rung.swap(false, Ordering::Acquire))
}
