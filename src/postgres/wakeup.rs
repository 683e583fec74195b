//! Wakes a background process of the extension: a flag and a latch for each.

use pgrx::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// A process that can be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundProcess {
    Keeper,
    Registrar,
}

/// The flags and latches in shared memory, one pair per background process.
pub struct Wakeups([Wakeup; 2]);

struct Wakeup {
    /// The process ID; 0 while there is no process.
    pid: AtomicI32,
    /// The latch of the process. Written before the process ID.
    latch: AtomicPtr<pg_sys::Latch>,
    /// A call waits for the process.
    is_requested: AtomicBool,
}

impl Wakeups {
    /// The initial state: no background process runs.
    pub const fn new() -> Self {
        Self([Wakeup::new(), Wakeup::new()])
    }
}

impl Wakeup {
    const fn new() -> Self {
        Self {
            pid: AtomicI32::new(0),
            latch: AtomicPtr::new(std::ptr::null_mut()),
            is_requested: AtomicBool::new(false),
        }
    }
}

static WAKEUPS: AtomicPtr<Wakeups> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the address of the wake-ups for this process and those that it forks later.
///
/// # Safety
/// These processes map that memory until they exit.
pub unsafe fn share(wakeups: *const Wakeups) {
    WAKEUPS.store(wakeups.cast_mut(), Ordering::Relaxed);
}

fn wakeup(process: BackgroundProcess) -> Option<&'static Wakeup> {
    // SAFETY: null, or in the segment, which this process maps until it exits.
    unsafe { WAKEUPS.load(Ordering::Relaxed).as_ref() }.map(|wakeups| &wakeups.0[process as usize])
}

/// The process ID; `None` while there is no such process.
pub fn pid_of(process: BackgroundProcess) -> Option<i32> {
    wakeup(process).map(|wakeup| wakeup.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
}

/// Registers this process until it exits.
pub fn register(process: BackgroundProcess) {
    let Some(wakeup) = wakeup(process) else { return };
    // SAFETY: the latch is in shared memory that all processes map at one address while the server runs. If another process
    // gets it later, setting it only wakes that one in vain.
    wakeup.latch.store(unsafe { pg_sys::MyLatch }, Ordering::Relaxed);
    wakeup.pid.store(std::process::id() as i32, Ordering::Release);
    // SAFETY: called once per process. It runs at every exit but a crash, and after a crash all memory is new.
    unsafe { pg_sys::before_shmem_exit(Some(unregister), pg_sys::Datum::from(process as usize)) };
}

#[pg_guard]
extern "C-unwind" fn unregister(_code: std::ffi::c_int, process: pg_sys::Datum) {
    let is_keeper = process.value() == BackgroundProcess::Keeper as usize;
    let process = if is_keeper { BackgroundProcess::Keeper } else { BackgroundProcess::Registrar };
    if let Some(wakeup) = wakeup(process) {
        wakeup.pid.store(0, Ordering::Release);
    }
}

/// Wakes the process, which then does what calls have requested; `false` if there is none.
pub fn wake(process: BackgroundProcess) -> bool {
    let Some(wakeup) = wakeup(process).filter(|wakeup| wakeup.pid.load(Ordering::Acquire) != 0) else {
        return false;
    };
    wakeup.is_requested.store(true, Ordering::Release);
    // SAFETY: a latch in shared memory, stored before the process ID.
    unsafe { pg_sys::SetLatch(wakeup.latch.load(Ordering::Relaxed)) };
    true
}

/// Whether a call has requested work since the last check.
pub fn take_request(process: BackgroundProcess) -> bool {
    wakeup(process).is_some_and(|wakeup| wakeup.is_requested.swap(false, Ordering::Acquire))
}
