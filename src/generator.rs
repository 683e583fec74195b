//! Clock, core, waits and gate: the one place that makes an ID.

use crate::errors::{self, Error};
use crate::settings;
use crate::shmem::{self, SharedGenerator};
use crate::waiting;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use snowflake_core::{Event, Host, Range, Refusal};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The world around a generator in PostgreSQL.
pub struct PgHost;

impl Host for PgHost {
    #[inline]
    fn wall_us(&self) -> i64 {
        clock_us(libc::CLOCK_REALTIME)
    }

    fn boot_us(&self) -> i64 {
        clock_us(libc::CLOCK_BOOTTIME)
    }

    fn wait(&self, micros: i64) {
        waiting::nap(Duration::from_micros(micros.max(0) as u64));
    }

    fn report(&self, event: Event) {
        let (message, detail, hint) = describe(event);
        let success = PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;
        ErrorReport::new(success, message, "snowflake_id")
            .set_detail(detail)
            .set_hint(hint)
            .report(PgLogLevel::LOG);
    }
}

/// A clock of the system in microseconds, read through libc so that a test can move it.
#[inline]
fn clock_us(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid, and these clocks exist on every Linux that PostgreSQL 15 runs on.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

fn describe(event: Event) -> (String, String, &'static str) {
    match event {
        Event::ForwardJump(micros) => (
            format!("snowflake_id: the wall clock was set forward by {}", errors::duration(micros)),
            "IDs follow it.".to_owned(),
            "If the clock was right before, correct it soon: until then IDs carry a time to come, and the \
             correction will be a step back.",
        ),
        Event::Rotated { from, to, behind_us: ..=0 } => (
            format!("snowflake_id: rotated from worker {from} to worker {to}"),
            "The wall clock is no further behind the last ID than IDs may run ahead.".to_owned(),
            "Nothing is to be done.",
        ),
        Event::Rotated { from, to, behind_us } => (
            format!("snowflake_id: rotated from worker {from} to worker {to}, because the clock is back"),
            format!("The wall clock is {} behind the last ID.", errors::duration(behind_us)),
            "Find out what set the clock back; backup workers are used up by steps that come faster than \
             the clock catches up.",
        ),
        Event::Refused(no_lane) => (
            "snowflake_id: the clock is back and no worker of this server can make an ID yet".to_owned(),
            errors::no_lane_detail(&no_lane),
            "Wait, or correct the clock if it is wrong. To go on at once, set snowflake_id.worker_id to a \
             worker that was never used and restart the server.",
        ),
    }
}

/// The last ID that this session made; -1: none.
static LAST_ID: AtomicI64 = AtomicI64::new(-1);

/// The last ID that this session made.
pub fn last_id() -> Option<i64> {
    Some(LAST_ID.load(Ordering::Relaxed)).filter(|id| *id >= 0)
}

/// Makes an ID.
#[inline]
pub fn next_id() -> i64 {
    let id = made(SharedGenerator::next_id);
    LAST_ID.store(id, Ordering::Relaxed);
    id
}

/// Makes `n` IDs in a row from one tick.
pub fn next_range(n: i32) -> Range {
    let most = usable().capacity();
    if !(1..=most).contains(&n.into()) {
        Error::RangeSize { n, most }.raise();
    }
    let range = made(|generator| generator.next_range(n.into()));
    LAST_ID.store(range.last, Ordering::Relaxed);
    range
}

/// Moves to the next usable lane and tells its worker.
pub fn rotate() -> i64 {
    made(SharedGenerator::rotate_now)
}

/// What `make` makes; where the gate is closed, opens it first if it may be open.
#[inline]
fn made<T>(make: impl Fn(&SharedGenerator) -> Result<T, Refusal>) -> T {
    let generator = usable();
    match make(generator) {
        Ok(value) => value,
        Err(refusal) => made_after(refusal, generator, make),
    }
}

#[cold]
fn made_after<T>(
    refusal: Refusal,
    generator: &SharedGenerator,
    make: impl Fn(&SharedGenerator) -> Result<T, Refusal>,
) -> T {
    if refusal != Refusal::Closed {
        Error::Refused(refusal).raise();
    }
    open(generator);
    make(generator).unwrap_or_else(|refusal| Error::Refused(refusal).raise())
}

/// The generator, or the error that says what is missing.
#[inline]
fn usable() -> &'static SharedGenerator {
    shmem::generator().unwrap_or_else(|| missing().raise())
}

/// Why there is no generator.
#[cold]
pub fn missing() -> Error {
    match settings::get() {
        None => Error::NotPreloaded,
        Some(settings) => Error::WorkerUnset { highest: settings.workers.highest_home() },
    }
}

/// Opens the gate on first use after a start, a promotion included: a backend can run before any worker
/// of ours could have seen that recovery is over.
fn open(generator: &SharedGenerator) {
    if in_recovery() {
        Error::InRecovery.raise();
    }
    generator.open(timeline());
}

/// Opens the gate if that is all that is missing; for a look at the generator.
pub fn try_open(generator: &SharedGenerator) {
    if !generator.is_open() && !in_recovery() {
        generator.open(timeline());
    }
}

/// The state of the generator, as `snowflake_status` shows it, and what keeps it from being open.
pub fn state() -> (&'static str, Option<String>) {
    let Some(generator) = shmem::generator() else {
        return ("closed", Some(missing().summary()));
    };
    if in_recovery() {
        return ("recovery", Some(Error::InRecovery.summary()));
    }
    match generator.obstacle() {
        Some(refusal) => ("closed", Some(Error::Refused(refusal).summary())),
        None => ("open", None),
    }
}

/// Whether this server is a standby, or still recovering.
pub fn in_recovery() -> bool {
    // SAFETY: callable in any backend.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// The timeline that this server writes.
fn timeline() -> u32 {
    // SAFETY: recovery is over, which is all that it asks for.
    unsafe { pg_sys::GetWALInsertionTimeLine() }
}
