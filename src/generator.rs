//! Clock, core, waits and gate: the one place that makes an ID.

use crate::display::duration;
use crate::layout_guard;
use crate::messages::{Error, log};
use crate::settings;
use crate::shmem::{self, SharedGenerator};
use crate::time::from_postgres;
use crate::waiting::{self, Reason};
use pgrx::prelude::*;
use snowflake_core::{Prepared, Range, Refusal, Start, Unopened};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

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
    let id = layout_guard::known_for_generating()?.try_next_id()?;
    LAST_ID.store(id, Ordering::Relaxed);
    Some(id)
}

/// Makes an ID.
#[inline]
pub fn next_id() -> i64 {
    let id = made(usable(), SharedGenerator::next_id);
    LAST_ID.store(id, Ordering::Relaxed);
    id
}

/// Makes `n` IDs in a row from one tick.
pub fn next_range(n: i32) -> Range {
    let generator = usable();
    let most = generator.capacity();
    if !(1..=most).contains(&n.into()) {
        Error::RangeSize { n, most }.raise();
    }
    let range = made(generator, |generator| generator.next_range(n.into()));
    LAST_ID.store(range.last, Ordering::Relaxed);
    range
}

/// Moves to the next usable lane and tells its worker.
pub fn rotate() -> i64 {
    made(existing(), SharedGenerator::rotate_now)
}

/// What `make` makes; where the gate is closed, opens it first if it may be open.
#[inline]
fn made<T>(generator: &SharedGenerator, make: impl Fn(&SharedGenerator) -> Result<T, Refusal>) -> T {
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
    if refusal != Refusal::GateClosed {
        Error::Refused(refusal).raise();
    }
    open(generator);
    make(generator).unwrap_or_else(|refusal| Error::Refused(refusal).raise())
}

/// The generator, for making IDs for this database.
#[inline]
fn usable() -> &'static SharedGenerator {
    layout_guard::known_for_generating().unwrap_or_else(verified)
}

/// The generator, where the IDs of this database have its layout.
#[cold]
fn verified() -> &'static SharedGenerator {
    let generator = existing();
    if in_recovery() {
        Error::InRecovery.raise();
    }
    layout_guard::for_generating(generator).unwrap_or_else(|error| error.raise());
    generator
}

/// The generator, or the error that says what is missing.
fn existing() -> &'static SharedGenerator {
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
        match try_open(generator) {
            Ok(()) => return,
            Err(Unopened::Settling(micros)) => {
                waiting::nap(Duration::from_micros(micros as u64), Reason::Clock);
            }
            Err(Unopened::Closed(why)) => Error::Closed(why).raise(),
            Err(Unopened::PreparedUnread) => unreachable!("a session has read them"),
        }
    }
}

/// Opens the gate if it may be open now. For a session: it reads prepared transactions where they matter.
fn try_open(generator: &SharedGenerator) -> Result<(), Unopened> {
    match generator.open(&start()) {
        Err(Unopened::PreparedUnread) => generator.open(&Start { prepared: read_prepared(), ..start() }),
        otherwise => otherwise,
    }
}

/// Vouches for the state that keeps the gate closed, or raises the marks; see `snowflake_adopt`.
pub fn adopt(floor_us: i64, lower: bool) {
    let generator = existing();
    // SAFETY: callable in any backend.
    if lower && !unsafe { pg_sys::superuser() } {
        Error::LowerNotSuperuser.raise();
    }
    if in_recovery() {
        Error::InRecovery.raise();
    }
    let is_layout_new = layout_guard::unadopted_layout().is_some();
    if let Err(refused) = generator.adopt(&Start { prepared: read_prepared(), ..start() }, floor_us, lower) {
        Error::NotAdopted(refused).raise();
    }
    open(generator);
    if is_layout_new {
        log::databases_left();
    }
}

unsafe extern "C" {
    /// PostgreSQL's `max_prepared_transactions`, which pgrx does not declare. Fixed while the server runs.
    safe static max_prepared_xacts: std::ffi::c_int;
}

/// What this start of the server knows, once recovery is over; of prepared transactions only that there are none,
/// where there can be none.
pub fn start() -> Start {
    // SAFETY: recovery is over, which is all that these ask for.
    let (timeline, system_identifier, replayed, most_prepared) = unsafe {
        (
            pg_sys::GetWALInsertionTimeLine(),
            pg_sys::GetSystemIdentifier(),
            pg_sys::GetLatestXTime(),
            max_prepared_xacts,
        )
    };
    let before = shmem::control_file_before().expect("there is a generator");
    let commit_us = (replayed != 0).then(|| from_postgres(replayed));
    // The replay of a standby that was restarted began at a checkpoint, and commits before it are not replayed again.
    let has_replayed = before.is_in_recovery || timeline > before.timeline;
    let checkpoint_us = has_replayed.then_some(before.checkpoint_us);
    Start {
        timeline,
        timeline_before: before.timeline,
        was_in_recovery: before.is_in_recovery,
        system_identifier,
        control_us: before.written_us,
        replayed_us: commit_us.max(checkpoint_us),
        prepared: if most_prepared == 0 { Prepared::Read(None) } else { Prepared::Unread },
    }
}

/// When the last of the prepared transactions was prepared. For a session: PostgreSQL tells it through SQL alone. With
/// the rights of a superuser, because whoever calls first may have none for this function.
fn read_prepared() -> Prepared {
    let latest = "SELECT pg_catalog.max(prepared) FROM pg_catalog.pg_prepared_xact()";
    let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
    // SAFETY: plain settings of the session, which PostgreSQL itself takes back where an error ends the statement.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        let restricted =
            context | (pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION) as i32;
        pg_sys::SetUserIdAndSecContext(pg_sys::BOOTSTRAP_SUPERUSERID.into(), restricted);
    }
    // Read-only: parallel queries allow nothing else.
    let latest = Spi::connect(|client| {
        client.select(latest, Some(1), &[]).and_then(|table| table.first().get_one::<TimestampWithTimeZone>())
    });
    // SAFETY: as above.
    unsafe { pg_sys::SetUserIdAndSecContext(user, context) };
    let latest = latest.expect("a function of PostgreSQL's own");
    Prepared::Read(latest.map(|time| from_postgres(time.into())))
}

/// Before a prepared transaction is committed or rolled back: what a start has to know of it is read while it is there.
pub fn heed_prepared() {
    if let Some(generator) = shmem::generator()
        && !in_recovery()
        && !generator.is_open()
    {
        // What keeps the gate closed is told to those who ask for IDs.
        let _ = try_open(generator);
    }
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
    let reason = match try_open(generator) {
        Err(Unopened::Closed(why)) => Some(Error::Closed(why).summary()),
        _ if let Some(differs) = layout_guard::database_differs() => Some(differs.summary()),
        Ok(()) => generator.obstacle().map(|refusal| Error::Refused(refusal).summary()),
        Err(Unopened::Settling(micros)) => {
            let length = duration(micros);
            Some(format!("the system clock has yet to pass what may have been used before: {length} to go"))
        }
        Err(Unopened::PreparedUnread) => unreachable!("a session has read them"),
    };
    (if reason.is_none() { "open" } else { "closed" }, reason)
}

/// Whether this server is a standby, or still recovering.
pub fn in_recovery() -> bool {
    // SAFETY: callable in any backend.
    unsafe { pg_sys::RecoveryInProgress() }
}
