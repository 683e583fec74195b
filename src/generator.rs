//! Clock, core, waits and gate: the one place that makes an ID.

use crate::errors::{self, Error};
use crate::functions;
use crate::settings;
use crate::shmem::{self, SharedGenerator};
use crate::state_file::{self, StateFile};
use crate::waiting;
use pgrx::prelude::*;
use snowflake_core::{Disk, Event, Host, NotOpen, Range, Refusal, Start};
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

    fn disk(&self) -> Option<&dyn Disk> {
        Some(&StateFile)
    }

    fn report(&self, event: Event) {
        let (message, detail, hint) = describe(event);
        errors::log(message, detail, hint);
    }
}

/// A clock of the system in microseconds, read through libc so that a test can move it.
#[inline]
fn clock_us(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid, and these clocks exist on every Linux that PostgreSQL 15 runs on.
    unsafe { libc::clock_gettime(clock, &mut time) };
    // Nanoseconds fit 32 bits, and those are divided in half the time.
    time.tv_sec * 1_000_000 + i64::from(time.tv_nsec as u32 / 1_000)
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
        Event::WriteFailed(errno) => (
            format!(
                "snowflake_id: could not write \"{}\": {}",
                state_file::PATH,
                state_file::describe(errno)
            ),
            "IDs are made up to the end of the reservation that is on disk, and no further.".to_owned(),
            errors::UNWRITABLE_HINT,
        ),
        Event::WriteRecovered => (
            format!("snowflake_id: \"{}\" can be written again", state_file::PATH),
            "The reservation moves on.".to_owned(),
            "Nothing is to be done.",
        ),
        Event::Opened { timeline, worker, is_first: false } => (
            format!("snowflake_id: worker {worker} makes the IDs of timeline {timeline}"),
            "It goes on above all that was reserved before.".to_owned(),
            "Nothing is to be done.",
        ),
        Event::Opened { timeline, worker, is_first: true } => (
            format!("snowflake_id: worker {worker} makes the IDs of timeline {timeline}, from a new state"),
            format!(
                "There was no \"{}\" for this cluster; IDs start above the clock and the control file's time.",
                state_file::PATH
            ),
            "If this data once lived elsewhere and IDs may lie ahead of this clock, call snowflake_adopt with \
             a later time.",
        ),
        Event::Adopted(floor_us) => (
            format!("snowflake_id: the state was adopted, with IDs above {}", errors::timestamp(floor_us)),
            "Somebody with the right to call snowflake_adopt vouched for it.".to_owned(),
            "Nothing is to be done.",
        ),
        Event::Refused(no_lane) => (
            "snowflake_id: the clock is back and no worker of this server can make an ID yet".to_owned(),
            errors::no_lane_detail(&no_lane),
            errors::NO_LANE_HINT,
        ),
    }
}

/// The last ID that this session made; -1: none.
static LAST_ID: AtomicI64 = AtomicI64::new(-1);

/// The last ID that this session made.
pub fn last_id() -> Option<i64> {
    Some(LAST_ID.load(Ordering::Relaxed)).filter(|id| *id >= 0)
}

/// As if this session had made none.
pub fn forget_last_id() {
    LAST_ID.store(-1, Ordering::Relaxed);
}

/// Makes an ID if that takes neither PostgreSQL nor an error.
#[inline]
pub fn try_next_id() -> Option<i64> {
    let id = shmem::generator()?.try_next_id()?;
    LAST_ID.store(id, Ordering::Relaxed);
    Some(id)
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
        Some(_) if let Some(bad) = settings::bad_values().first() => Error::Setting(bad),
        Some(settings) => Error::WorkerUnset { highest: settings.workers.highest_home() },
    }
}

/// Opens the gate on first use after a start, a promotion included: a backend can run before the keeper
/// has seen that recovery is over. Waits while the clock has yet to pass what may have been used before.
fn open(generator: &SharedGenerator) {
    if in_recovery() {
        Error::InRecovery.raise();
    }
    loop {
        match generator.open(&start()) {
            Ok(()) => return,
            Err(NotOpen::Settling(micros)) => waiting::nap(Duration::from_micros(micros as u64)),
            Err(NotOpen::Closed(why)) => Error::Closed(why).raise(),
        }
    }
}

/// Vouches for the state that keeps the gate closed, or raises the marks; see `snowflake_adopt`.
pub fn adopt(floor_us: i64) {
    let generator = usable();
    if in_recovery() {
        Error::InRecovery.raise();
    }
    if let Err(refused) = generator.adopt(&start(), floor_us) {
        Error::NotAdopted(refused).raise();
    }
    open(generator);
}

/// What this start of the server knows, once recovery is over.
pub fn start() -> Start {
    // SAFETY: recovery is over, which is all that these ask for.
    let (timeline, system_identifier, replayed) = unsafe {
        (pg_sys::GetWALInsertionTimeLine(), pg_sys::GetSystemIdentifier(), pg_sys::GetLatestXTime())
    };
    let replayed_us = (replayed != 0).then(|| functions::from_postgres(replayed));
    Start { timeline, system_identifier, control_us: shmem::control_us(), replayed_us }
}

/// When the control file was last written (seconds since 1970), and the state that it names.
fn control_file() -> (pg_sys::pg_time_t, pg_sys::DBState::Type) {
    let mut is_intact = false;
    // SAFETY: DataDir is set before anything of ours runs. The result is palloc'ed, and copied.
    unsafe {
        let file = pg_sys::get_controlfile(pg_sys::DataDir, &mut is_intact);
        let found = ((*file).time, (*file).state);
        pg_sys::pfree(file.cast());
        found
    }
}

/// When the control file was last written, as a Unix time in microseconds.
pub fn control_time_us() -> i64 {
    control_file().0 * 1_000_000
}

/// Whether the control file says that the database was shut down cleanly, as a primary.
pub fn was_shut_down() -> bool {
    control_file().1 == pg_sys::DBState::DB_SHUTDOWNED
}

/// The state of the generator, as `snowflake_status` shows it, and what keeps it from being open. Opens
/// the gate if that is all that is missing.
pub fn state() -> (&'static str, Option<String>) {
    let Some(generator) = shmem::generator() else {
        return ("closed", Some(missing().summary()));
    };
    if in_recovery() {
        return ("recovery", Some(Error::InRecovery.summary()));
    }
    let reason = match generator.open(&start()) {
        Ok(()) => generator.obstacle().map(|refusal| Error::Refused(refusal).summary()),
        Err(NotOpen::Closed(why)) => Some(Error::Closed(why).summary()),
        Err(NotOpen::Settling(micros)) => {
            let length = errors::duration(micros);
            Some(format!("the clock has yet to pass what may have been used before, in {length}"))
        }
    };
    (if reason.is_none() { "open" } else { "closed" }, reason)
}

/// Whether this server is a standby, or still recovering.
pub fn in_recovery() -> bool {
    // SAFETY: callable in any backend.
    unsafe { pg_sys::RecoveryInProgress() }
}
