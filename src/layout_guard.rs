//! Decides whether IDs may be generated and read by this server's layout: it must be that of the database's IDs.
//!
//! A process compares before its first ID or reading, and caches only success: later calls pay nothing, and a refusal ends
//! as soon as its cause does. A relcache invalidation of the table clears the cache. DDL and TRUNCATE send one, and a
//! trigger does for a changed row. This session processes it at its next command and at a rollback. Other sessions, on
//! standbys, too, receive it with the commit, and process it at their next lock, at the latest in their next transaction.
//! The settings change only while the server is stopped.

use crate::database::{self, Compared};
use crate::messages::{Error, gate};
use crate::settings::{self, BACKUP_WORKERS_NAME, LAYOUT_NAMES, Settings};
use crate::shmem::SharedGenerator;
use pgrx::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

// ---- the cache ----

/// This process has compared the layouts, and IDs may be read.
static MAY_READ: AtomicBool = AtomicBool::new(false);

/// The generator, once this process has compared the layouts and may generate IDs in a database that is marked as used.
static COMPARED: AtomicPtr<SharedGenerator> = AtomicPtr::new(std::ptr::null_mut());

/// As `COMPARED`, once this transaction is announced to readers of the horizon, too. A hot call reads nothing else here.
static GENERATOR: AtomicPtr<SharedGenerator> = AtomicPtr::new(std::ptr::null_mut());

/// OID of the table whose row was compared; 0: none.
static TABLE: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The statement that generates IDs although `is_used` could not be stored, as in a read-only transaction. The next
    /// one tries again.
    static UNMARKED: Cell<Option<Statement>> = const { Cell::new(None) };
}

/// Start times of the transaction and the statement: a procedure can run many transactions in one statement.
type Statement = (pg_sys::TimestampTz, pg_sys::TimestampTz);

fn statement() -> Statement {
    // SAFETY: plain reads of process-local variables of PostgreSQL.
    unsafe { (pg_sys::GetCurrentTransactionStartTimestamp(), pg_sys::GetCurrentStatementStartTimestamp()) }
}

/// Registers `forget` for relcache invalidations. Called once by the postmaster, while it loads libraries; the other
/// processes inherit it.
pub fn install_callback() {
    // SAFETY: the function is of the type that PostgreSQL calls, and ignores the argument.
    unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(forget), pg_sys::Datum::null()) }
}

/// Clears the cache, if the invalidation is for the table that was compared, or for all tables.
#[pg_guard]
unsafe extern "C-unwind" fn forget(_argument: pg_sys::Datum, table: pg_sys::Oid) {
    let compared = pg_sys::Oid::from(TABLE.load(Ordering::Relaxed));
    if table == compared || table == pg_sys::InvalidOid {
        MAY_READ.store(false, Ordering::Relaxed);
        COMPARED.store(std::ptr::null_mut(), Ordering::Relaxed);
        GENERATOR.store(std::ptr::null_mut(), Ordering::Relaxed);
        UNMARKED.set(None);
    }
    if table == compared && table != pg_sys::InvalidOid {
        // Cached plans contain the results of immutable calls, such as the bounds of snowflake_between().
        // SAFETY: it marks plans, as PostgreSQL's own callbacks do.
        unsafe { pg_sys::ResetPlanCache() };
    }
}

fn compare(settings: &Settings) -> Result<Compared, Error> {
    let compared = database::compare(&settings.layout)?;
    TABLE.store(compared.table.map_or(0, pg_sys::Oid::to_u32), Ordering::Relaxed);
    Ok(compared)
}

// ---- reading ----

/// The settings, for reading an ID: an error unless this database's IDs have their layout.
#[inline]
pub fn for_reading() -> Result<&'static Settings, Error> {
    let settings = settings::get().ok_or_else(gate::not_preloaded)?;
    if !MAY_READ.load(Ordering::Relaxed) {
        check(settings)?;
    }
    Ok(settings)
}

/// The settings, for reading an ID, if this process has compared the layouts before. Does not call PostgreSQL.
#[inline]
pub fn known_for_reading() -> Option<&'static Settings> {
    if MAY_READ.load(Ordering::Relaxed) { settings::get() } else { None }
}

/// As `for_reading`, for an answer that also depends on the number of backup workers.
pub fn for_owners() -> Result<&'static Settings, Error> {
    let settings = for_reading()?;
    settings::bad_value_of(&[BACKUP_WORKERS_NAME]).map_or(Ok(settings), |bad| Err(gate::bad_value(bad)))
}

#[cold]
fn check(settings: &Settings) -> Result<(), Error> {
    if let Some(bad) = settings::bad_value_of(&LAYOUT_NAMES) {
        return Err(gate::bad_value(bad));
    }
    if compare(settings)?.table.is_some() {
        MAY_READ.store(true, Ordering::Relaxed);
    }
    Ok(())
}

// ---- generating ----

/// The generator, if this transaction may generate IDs with it. Does not call PostgreSQL.
#[inline]
pub fn cached_for_generating() -> Option<&'static SharedGenerator> {
    // SAFETY: null, or the argument of `for_generating`, which is static.
    unsafe { GENERATOR.load(Ordering::Relaxed).as_ref() }
}

/// The generator, if this process may generate IDs with it. Calls `announce` first. Does not call PostgreSQL.
#[inline]
pub fn announce_for_generating(announce: impl FnOnce(&SharedGenerator)) -> Option<&'static SharedGenerator> {
    let generator = COMPARED.load(Ordering::Relaxed);
    // SAFETY: as above.
    let known = unsafe { generator.as_ref()? };
    announce(known);
    GENERATOR.store(generator, Ordering::Relaxed);
    Some(known)
}

/// Requires the next transaction to announce itself.
#[inline]
pub fn end_transaction() {
    GENERATOR.store(std::ptr::null_mut(), Ordering::Relaxed);
}

/// Compares the database's layout with the generator's, and marks the database as used.
#[cold]
pub fn for_generating(generator: &'static SharedGenerator) -> Result<(), Error> {
    if UNMARKED.get() == Some(statement()) {
        return Ok(());
    }
    let Some(settings) = settings::get() else { return Err(gate::not_preloaded()) };
    let mut compared = compare(settings)?;
    if !compared.is_used {
        // The first ID of the database.
        database::store_use(&settings.layout);
        compared = compare(settings)?;
    }
    if compared.is_used {
        COMPARED.store(std::ptr::from_ref(generator).cast_mut(), Ordering::Relaxed);
    } else {
        UNMARKED.set(Some(statement()));
    }
    Ok(())
}

/// The error if the database's IDs have another layout than the generator's.
pub fn database_differs() -> Option<Error> {
    database::compare(&settings::get()?.layout).err()
}
