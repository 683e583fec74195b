//! Waiting inside a server process: it ends at once on cancel and terminate, and the monotonic clock bounds it.

use pgrx::bgworkers::BackgroundWorker;
use pgrx::prelude::*;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// The object of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The wall clock.
    Clock,
    /// The state file: a write of this process or of another one.
    State,
    /// The fleet's registry.
    Registry,
}

/// Sleeps for about this long. Unwinds with the error of a cancel, a termination or a statement timeout, and ends a
/// background worker after SIGTERM.
pub fn nap(length: Duration, awaited: Awaited) {
    let end = Instant::now() + length;
    loop {
        pg_sys::check_for_interrupts!();
        exit_if_terminated();
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        sleep(left, awaited);
    }
}

/// Ends a background worker after SIGTERM, which its signal handler only records. In sessions, `check_for_interrupts!` does
/// this.
fn exit_if_terminated() {
    // SAFETY: a plain read; the process ends as PostgreSQL's own workers do. After status 0 the postmaster would not start
    // the worker again.
    unsafe {
        if pg_sys::MyBackendType == pg_sys::BackendType::B_BG_WORKER && BackgroundWorker::sigterm_received() {
            pg_sys::proc_exit(1);
        }
    }
}

/// Sleeps once; anything that sets the latch ends it.
fn sleep(length: Duration, awaited: Awaited) {
    let millis = length.as_millis();
    if millis == 0 {
        // A latch counts whole milliseconds, which is as long as a tick. A signal ends this sleep too, but one that
        // arrives just before it is noticed a millisecond late.
        let _event = WaitEvent::begin(awaited);
        let time = libc::timespec { tv_sec: 0, tv_nsec: length.subsec_nanos().into() };
        // SAFETY: a valid timespec of less than a second, and no place for the remaining time, which is allowed.
        unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
        return;
    }
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    let millis = millis.min(i32::MAX as u128) as std::ffi::c_long;
    // SAFETY: MyLatch is this process's own latch, set up before any SQL runs.
    unsafe {
        pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, millis, wait_event(awaited));
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
}

/// Waits until the file can be read; anything that sets the latch ends it, too. For background workers.
pub fn until_readable(file: RawFd, length: Duration, awaited: Awaited) {
    let events =
        pg_sys::WL_LATCH_SET | pg_sys::WL_SOCKET_READABLE | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    let millis = length.as_micros().div_ceil(1_000).min(i32::MAX as u128) as std::ffi::c_long;
    // SAFETY: MyLatch is this process's own latch, and the file is open.
    unsafe {
        pg_sys::WaitLatchOrSocket(pg_sys::MyLatch, events as i32, file, millis, wait_event(awaited));
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
}

/// The wait event that `pg_stat_activity` shows.
fn wait_event(awaited: Awaited) -> u32 {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    {
        let _ = awaited;
        pg_sys::PG_WAIT_EXTENSION
    }
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    {
        thread_local! {
            static EVENTS: [std::cell::Cell<u32>; 3] = const { [const { std::cell::Cell::new(0) }; 3] };
        }
        let name = match awaited {
            Awaited::Clock => c"SnowflakeClock",
            Awaited::State => c"SnowflakeState",
            Awaited::Registry => c"SnowflakeRegistry",
        };
        EVENTS.with(|events| {
            let event = &events[awaited as usize];
            if event.get() == 0 {
                // SAFETY: the name is a static C string; the first call on a server creates the event, later ones find
                // it.
                event.set(unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) });
            }
            event.get()
        })
    }
}

/// Shows a wait event until it is dropped.
pub struct WaitEvent;

impl WaitEvent {
    /// Begins the event. Not in the postmaster, which may not take the lock of the look-up, and which no view shows.
    pub fn begin(awaited: Awaited) -> Self {
        // SAFETY: a plain flag.
        if unsafe { pg_sys::IsUnderPostmaster } {
            report_wait_event(wait_event(awaited));
        }
        Self
    }
}

impl Drop for WaitEvent {
    fn drop(&mut self) {
        report_wait_event(0);
    }
}

fn report_wait_event(event: u32) {
    // SAFETY: always points into this process's PGPROC or to a local stand-in. PostgreSQL's own inline function writes it
    // in the same way.
    unsafe { std::ptr::write_volatile(pg_sys::my_wait_event_info, event) };
}
