//! The bells: calls ring one to wake a background worker of the extension.

use pgrx::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// A worker that can be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Keeper,
    Registrar,
}

/// In shared memory: a bell per worker.
pub struct Bells([Bell; 2]);

struct Bell {
    /// The worker's process ID; 0 while there is none.
    worker: AtomicI32,
    /// The worker's latch. Written before the process ID.
    latch: AtomicPtr<pg_sys::Latch>,
    /// A call waits for the worker.
    is_rung: AtomicBool,
}

impl Bells {
    /// Before a worker exists.
    pub const fn new() -> Self {
        Self([Bell::new(), Bell::new()])
    }
}

impl Bell {
    const fn new() -> Self {
        Self {
            worker: AtomicI32::new(0),
            latch: AtomicPtr::new(std::ptr::null_mut()),
            is_rung: AtomicBool::new(false),
        }
    }
}

static BELLS: AtomicPtr<Bells> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the bells for this process and every process that it forks from now on.
///
/// # Safety
/// The bells are in shared memory that these processes map for as long as they live.
pub unsafe fn share(bells: *const Bells) {
    BELLS.store(bells.cast_mut(), Ordering::Relaxed);
}

fn bell(who: Who) -> Option<&'static Bell> {
    // SAFETY: null, or bells in the segment, which this process maps for as long as it lives.
    unsafe { BELLS.load(Ordering::Relaxed).as_ref() }.map(|bells| &bells.0[who as usize])
}

/// The worker's process ID.
pub fn pid_of(who: Who) -> Option<i32> {
    bell(who).map(|bell| bell.worker.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
}

/// Registers this process as the worker until it exits.
pub fn answer_as(who: Who) {
    let Some(bell) = bell(who) else { return };
    // SAFETY: the latch is in shared memory that all processes map at one address for as long as the server runs. If
    // another process gets it later, setting it in vain does no harm.
    bell.latch.store(unsafe { pg_sys::MyLatch }, Ordering::Relaxed);
    bell.worker.store(std::process::id() as i32, Ordering::Release);
    // SAFETY: called once per process. It runs at every exit but a crash, and after a crash all memory is new.
    unsafe { pg_sys::before_shmem_exit(Some(worker_gone), pg_sys::Datum::from(who as usize)) };
}

#[pg_guard]
extern "C-unwind" fn worker_gone(_code: std::ffi::c_int, who: pg_sys::Datum) {
    let who = if who.value() == Who::Keeper as usize { Who::Keeper } else { Who::Registrar };
    if let Some(bell) = bell(who) {
        bell.worker.store(0, Ordering::Release);
    }
}

/// Wakes the worker, which then does what calls have asked for; `false` if there is none.
pub fn ring(who: Who) -> bool {
    let Some(bell) = bell(who).filter(|bell| bell.worker.load(Ordering::Acquire) != 0) else {
        return false;
    };
    bell.is_rung.store(true, Ordering::Release);
    // SAFETY: a latch in shared memory, stored before the process ID.
    unsafe { pg_sys::SetLatch(bell.latch.load(Ordering::Relaxed)) };
    true
}

/// Whether a call has rung since the last check.
pub fn was_rung(who: Who) -> bool {
    bell(who).is_some_and(|bell| bell.is_rung.swap(false, Ordering::Acquire))
}
