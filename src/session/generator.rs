//! The one place that generates an ID: a session's access to the generator in shared memory, and its gate.

use super::layout_guard;
use super::start;
use crate::messages::{Error, gate, reading};
use crate::platform::host_lock;
use crate::platform::waiting;
use crate::postgres::transactions;
use crate::postgres::wakeup::{self, BackgroundProcess};
use crate::settings;
use crate::shmem::contact_status::{self, Outcome};
use crate::shmem::{self, SharedGenerator};
use pgrx::pg_sys;
use snowflake_core::{AdoptError, ClosedReason, Horizon, NotOpen, Parts, Range, Refusal};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// The last ID that this session generated; -1 if none.
static LAST_ID: AtomicI64 = AtomicI64::new(-1);

/// The last ID that this session generated.
pub fn last_id() -> Option<i64> {
    Some(LAST_ID.load(Ordering::Relaxed)).filter(|id| *id >= 0)
}

/// Makes the session forget its last ID.
pub fn forget_last_id() {
    LAST_ID.store(-1, Ordering::Relaxed);
}

/// Generates an ID, if that needs neither a call of PostgreSQL nor an error.
// Always: it is small, and each of its two callers is a hot one.
#[inline(always)]
pub fn try_next_id() -> Option<i64> {
    let generator = match layout_guard::cached_for_generating() {
        Some(generator) => generator,
        None => announce_transaction()?,
    };
    let id = generator.try_next_id()?;
    LAST_ID.store(id, Ordering::Relaxed);
    Some(id)
}

/// Generates an ID.
#[inline]
pub fn next_id() -> i64 {
    let id = with_open_gate(usable(), SharedGenerator::next_id);
    LAST_ID.store(id, Ordering::Relaxed);
    id
}

/// Generates `n` consecutive IDs from one tick.
pub fn next_range(n: i32) -> Range {
    let generator = usable();
    let most = generator.capacity();
    if !(1..=most).contains(&n.into()) {
        reading::range_size(n, most).raise();
    }
    let range = with_open_gate(generator, |generator| generator.next_range(n.into()));
    LAST_ID.store(range.last, Ordering::Relaxed);
    range
}

/// The ID below which no transaction of this server adds a row any more.
pub fn horizon() -> Horizon {
    try_horizon().unwrap_or_else(|error| error.raise_in("snowflake_horizon"))
}

fn try_horizon() -> Result<Horizon, Error> {
    let generator = require_generator()?;
    if in_recovery() {
        return Err(gate::no_horizon_in_recovery());
    }
    layout_guard::for_reading()?;
    if transactions::has_earlier_prepared() {
        return Err(gate::no_horizon_earlier_prepared());
    }
    let read = |generator: &SharedGenerator| {
        generator.horizon(transactions::slots(), transactions::is_running, transactions::is_in_progress)
    };
    read(generator).or_else(|refusal| open_and_call(refusal, generator, read, refused))
}

/// Moves to the next usable lane and returns its worker.
pub fn rotate() -> i64 {
    let rotated = require_generator().and_then(|generator| {
        let rotate = SharedGenerator::rotate_now;
        rotate(generator).or_else(|refusal| open_and_call(refusal, generator, rotate, not_rotated))
    });
    rotated.unwrap_or_else(|error| error.raise_in("snowflake_rotate"))
}

/// Sets the counters back to zero.
pub fn reset_stats() {
    match require_generator() {
        Ok(generator) => generator.reset_stats(),
        Err(error) => error.raise_in("snowflake_reset_stats"),
    }
}

/// Calls the generator. If its gate is closed, opens it and calls again.
#[inline]
fn with_open_gate<T>(
    generator: &SharedGenerator,
    call: impl Fn(&SharedGenerator) -> Result<T, Refusal>,
) -> T {
    match call(generator) {
        Ok(value) => value,
        Err(refusal) => {
            open_and_call(refusal, generator, call, refused).unwrap_or_else(|error| error.raise())
        }
    }
}

/// After a refusal: if the gate was closed, opens it and calls again. `refused` is the error of any other refusal.
#[cold]
fn open_and_call<T>(
    refusal: Refusal,
    generator: &SharedGenerator,
    call: impl Fn(&SharedGenerator) -> Result<T, Refusal>,
    refused: fn(Refusal) -> Error,
) -> Result<T, Error> {
    if refusal != Refusal::GateClosed {
        return Err(refused(refusal));
    }
    open(generator)?;
    call(generator).map_err(refused)
}

/// The generator, checked for this database's IDs.
#[inline]
fn usable() -> &'static SharedGenerator {
    layout_guard::cached_for_generating().or_else(announce_transaction).unwrap_or_else(compare_and_announce)
}

/// The generator, if this process has compared the layouts before. Announces the transaction to readers of the horizon, at
/// its first call. Does not call PostgreSQL.
#[inline(never)]
fn announce_transaction() -> Option<&'static SharedGenerator> {
    layout_guard::announce_for_generating(announce)
}

fn announce(generator: &SharedGenerator) {
    let (slot, transaction) = transactions::own();
    generator.announce(slot, transaction);
}

/// The generator, after a comparison of its layout with that of the database's IDs.
#[cold]
fn compare_and_announce() -> &'static SharedGenerator {
    // A parallel worker has compared no layouts, so each of its calls comes here.
    // SAFETY: a plain read of a variable of this process.
    if unsafe { pg_sys::ParallelWorkerNumber } >= 0 {
        gate::in_parallel_worker().raise();
    }
    let generator = require_generator().unwrap_or_else(|error| error.raise());
    if in_recovery() {
        gate::in_recovery().raise();
    }
    layout_guard::for_generating(generator).unwrap_or_else(|error| error.raise());
    announce_transaction().expect("the layouts were compared")
}

/// The generator, or the error why there is none.
fn require_generator() -> Result<&'static SharedGenerator, Error> {
    shmem::generator().ok_or_else(missing)
}

/// Why there is no generator.
#[cold]
pub fn missing() -> Error {
    match settings::get() {
        None => gate::not_preloaded(),
        Some(_) if let Some(bad) = settings::bad_values().first() => gate::bad_value(bad),
        Some(settings) => gate::worker_unset(settings.workers.highest_home()),
    }
}

/// Opens the gate on first use after a start or a promotion, because a session can call before the keeper has seen that
/// recovery is over. Waits for the clock to pass the ticks that may have been used before.
fn open(generator: &SharedGenerator) -> Result<(), Error> {
    // The clock may be corrected meanwhile.
    const LONGEST_NAP: Duration = Duration::from_millis(50);
    if in_recovery() {
        return Err(gate::in_recovery());
    }
    let since = Instant::now();
    loop {
        match generator.open(&start::this()) {
            Ok(()) => return Ok(()),
            Err(NotOpen::Settling(micros)) => {
                waiting::nap(Duration::from_micros(micros as u64).min(LONGEST_NAP), waiting::Awaited::Clock);
            }
            Err(NotOpen::NoLease) => wait_for_lease(since)?,
            Err(why) => return Err(not_open(why)),
        }
    }
}

/// The error of a gate that does not open by itself soon.
pub fn not_open(why: NotOpen) -> Error {
    match why {
        NotOpen::Closed(ClosedReason::Taken) => {
            let workers = shmem::generator().map(|generator| generator.worker_numbers()).unwrap_or_default();
            gate::taken(host_lock::directory_of_other_server(&workers))
        }
        NotOpen::Closed(why) => gate::closed(why),
        NotOpen::Clock(refusal) => gate::refused(refusal),
        NotOpen::NoLease => gate::no_lease(contact_status::get().failure()),
        NotOpen::Settling(micros) => gate::settling(micros),
    }
}

/// Waits while the first contact with the registry is under way; an error if a contact has brought no lease.
fn wait_for_lease(since: Instant) -> Result<(), Error> {
    const LOOK_AGAIN: Duration = Duration::from_millis(20);
    // Most first contacts end sooner. One with unresponsive hosts may not, and the registrar may have no process, because
    // max_worker_processes is reached.
    const LONGEST: Duration = Duration::from_secs(15);
    let status = contact_status::get();
    if status.last == Outcome::None && since.elapsed() < LONGEST {
        waiting::nap(LOOK_AGAIN, waiting::Awaited::Registry);
        Ok(())
    } else {
        Err(gate::no_lease(status.failure()))
    }
}

/// The error of a refusal.
fn refused(refusal: Refusal) -> Error {
    match (refusal, shmem::generator().and_then(|generator| generator.lease_end())) {
        (Refusal::LeaseEnded, Some((home, ended_at_us))) => {
            wakeup::wake(BackgroundProcess::Registrar);
            gate::lease_ended(home, ended_at_us, contact_status::get().failure())
        }
        (Refusal::LeaseEnded, None) => gate::no_lease(contact_status::get().failure()),
        _ => gate::refused(refusal),
    }
}

/// The same for a rotation.
fn not_rotated(refusal: Refusal) -> Error {
    match refusal {
        Refusal::LeaseEnded => refused(refusal),
        _ => gate::not_rotated(refusal),
    }
}

/// Accepts the state that keeps the gate closed, or raises the marks; see `snowflake_adopt`.
pub fn adopt(floor_us: i64) {
    try_adopt(floor_us).unwrap_or_else(|error| error.raise_in("snowflake_adopt"));
}

fn try_adopt(floor_us: i64) -> Result<(), Error> {
    let generator = require_generator()?;
    if in_recovery() {
        return Err(gate::in_recovery());
    }
    generator.adopt(&start::this(), floor_us).map_err(|why| match why {
        AdoptError::FloorInFuture => gate::floor_in_future(floor_us),
        AdoptError::NotOpen(NotOpen::Closed(ClosedReason::Os(errno))) => gate::not_adopted(errno),
        AdoptError::NotOpen(why) => not_open(why),
    })?;
    open(generator)
}

/// The state that `snowflake_status` shows, and the reason if IDs are unavailable. Opens the gate if it can.
pub fn state() -> (&'static str, Option<String>) {
    let Some(generator) = shmem::generator() else {
        return ("closed", Some(missing().summary()));
    };
    if in_recovery() {
        return ("recovery", Some(gate::in_recovery().summary()));
    }
    let reason = match generator.open(&start::this()) {
        Err(why @ NotOpen::Closed(_)) => Some(not_open(why).summary()),
        _ if let Some(differs) = layout_guard::compare().err() => Some(differs.summary()),
        Ok(()) => generator.obstacle().map(|refusal| refused(refusal).summary()),
        Err(why) => Some(not_open(why).summary()),
    };
    (if reason.is_none() { "open" } else { "closed" }, reason)
}

/// Whether this server may generate an ID with these fields.
pub fn is_own(parts: &Parts) -> bool {
    shmem::generator().is_some_and(|generator| generator.is_own(parts))
}

/// Whether this server is a standby, or is still recovering.
pub fn in_recovery() -> bool {
    // SAFETY: callable in any backend.
    unsafe { pg_sys::RecoveryInProgress() }
}
