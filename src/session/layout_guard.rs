//! Decides whether IDs may be generated and read by this server's layout: it must be the only one that the database has
//! recorded. `sql/layout.sql` has the rules, and the functions that change the record.
//!
//! A process compares before its first ID or reading, and caches only success: later calls pay nothing, and a refusal ends
//! as soon as its cause does. An invalidation of the function whose body is the record, or of its schema, clears the cache.
//! This session processes it at its next command and at a rollback. Other sessions, on standbys, too, receive it with the
//! commit, and process it at their next lock, at the latest in their next transaction. The settings change only while the
//! server is stopped.

use crate::messages::{Error, gate, reading};
use crate::postgres::display::quote;
use crate::settings::{self, BACKUP_WORKERS_NAME, LAYOUT_NAMES};
use crate::shmem::SharedGenerator;
use pgrx::pg_sys::SysCacheIdentifier::{NAMESPACENAME, PROCNAMEARGSNSP};
use pgrx::prelude::*;
use pgrx::varlena::{vardata_any, varsize_any_exhdr};
use snowflake_core::Config;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

// ---- the cache ----

/// This process has compared the layouts, and IDs may be read.
static MAY_READ: AtomicBool = AtomicBool::new(false);

/// The generator, once this process has compared the layouts and may generate IDs.
static COMPARED: AtomicPtr<SharedGenerator> = AtomicPtr::new(std::ptr::null_mut());

/// As `COMPARED`, if this transaction has compared layouts and announced itself. A hot call reads nothing else here.
static GENERATOR: AtomicPtr<SharedGenerator> = AtomicPtr::new(std::ptr::null_mut());

/// Hashes of the keys of the function and of its schema, by which invalidations name them.
static FUNCTION_HASH: AtomicU32 = AtomicU32::new(0);
static SCHEMA_HASH: AtomicU32 = AtomicU32::new(0);

/// The body that the function has if the only recorded layout is this server's.
static OWN_BODY: OnceLock<String> = OnceLock::new();

/// Registers `forget` for invalidations of functions and schemas. Called once by the postmaster, while it loads libraries;
/// the other processes inherit it.
pub fn install_callback() {
    if let Some(layout) = settings::layout() {
        OWN_BODY.get_or_init(|| format!("SELECT '{layout}'::text"));
    }
    for cache in [PROCNAMEARGSNSP, NAMESPACENAME] {
        // SAFETY: the function is of the type that PostgreSQL calls, and ignores the first argument.
        unsafe { pg_sys::CacheRegisterSyscacheCallback(cache as _, Some(forget), pg_sys::Datum::null()) }
    }
}

#[cfg(feature = "pg19")]
type CacheId = pg_sys::SysCacheIdentifier::Type;
#[cfg(not(feature = "pg19"))]
type CacheId = std::ffi::c_int;

/// Clears the cache, if the invalidation is for the function that was compared or its schema, or for all of them.
#[pg_guard]
unsafe extern "C-unwind" fn forget(_argument: pg_sys::Datum, cache: CacheId, hash: u32) {
    let compared = if cache == NAMESPACENAME as CacheId { &SCHEMA_HASH } else { &FUNCTION_HASH };
    if hash == 0 || hash == compared.load(Ordering::Relaxed) {
        MAY_READ.store(false, Ordering::Relaxed);
        COMPARED.store(std::ptr::null_mut(), Ordering::Relaxed);
        GENERATOR.store(std::ptr::null_mut(), Ordering::Relaxed);
        // Cached plans contain the results of immutable calls, such as the bounds of snowflake_between().
        // SAFETY: it marks plans, as PostgreSQL's own callbacks do.
        unsafe { pg_sys::ResetPlanCache() };
    }
}

// ---- the comparison ----

/// Maximum number of bytes of the body that are read: more than any body with one layout has.
const LONGEST_BODY: usize = 200;

/// The beginning of the function's body; `None` without the function. Needs a transaction.
fn recorded_body() -> Option<Vec<u8>> {
    // SAFETY: static names, within a transaction. The column is a text that is never null, in a tuple that is released
    // after its last use, or by PostgreSQL if an error ends the statement.
    unsafe {
        let (none, schema_name) = (pg_sys::Datum::null(), c"snowflake_internal");
        let key = pg_sys::Datum::from(schema_name.as_ptr());
        let hash = pg_sys::GetSysCacheHashValue(NAMESPACENAME as _, key, none, none, none);
        SCHEMA_HASH.store(hash, Ordering::Relaxed);
        let schema = pg_sys::Datum::from(pg_sys::get_namespace_oid(schema_name.as_ptr(), true));
        let name = pg_sys::Datum::from(c"snowflake_own_layouts".as_ptr());
        let no_arguments = pg_sys::Datum::from(pg_sys::buildoidvector(std::ptr::null(), 0));
        let hash = pg_sys::GetSysCacheHashValue(PROCNAMEARGSNSP as _, name, no_arguments, schema, none);
        FUNCTION_HASH.store(hash, Ordering::Relaxed);
        let function = pg_sys::SearchSysCache3(PROCNAMEARGSNSP as _, name, no_arguments, schema);
        if function.is_null() {
            return None;
        }
        let (column, mut is_null) = (pg_sys::Anum_pg_proc_prosrc as i16, false);
        let body = pg_sys::SysCacheGetAttr(PROCNAMEARGSNSP as _, function, column, &mut is_null);
        let body = pg_sys::pg_detoast_datum_slice(body.cast_mut_ptr(), 0, LONGEST_BODY as i32);
        let bytes =
            std::slice::from_raw_parts(vardata_any(body).cast::<u8>(), varsize_any_exhdr(body)).to_vec();
        pg_sys::ReleaseSysCache(function);
        Some(bytes)
    }
}

/// The settings, if the layout in them can be used.
pub fn usable_settings() -> Result<&'static Config, Error> {
    let settings = settings::get().ok_or_else(gate::not_preloaded)?;
    settings::bad_value_of(&LAYOUT_NAMES).map_or(Ok(settings), |bad| Err(gate::bad_value(bad)))
}

/// An error unless this database has recorded this server's layout and no other. Needs a transaction.
pub fn compare() -> Result<&'static Config, Error> {
    let settings = usable_settings()?;
    // SAFETY: a plain flag. pg_upgrade evaluates the expressions of indexes, but on no row of the database.
    if unsafe { pg_sys::IsBinaryUpgrade } {
        return Ok(settings);
    }
    let body = recorded_body();
    match body.as_deref() {
        Some(body) if OWN_BODY.get().is_some_and(|own| own.as_bytes() == body) => {
            MAY_READ.store(true, Ordering::Relaxed);
            Ok(settings)
        }
        None | Some(b"SELECT NULL::text") => Err(reading::no_recorded_layout()),
        Some(body) => {
            let recorded = quote(body.strip_prefix(b"SELECT '").unwrap_or(body));
            Err(reading::other_database(recorded.trim_end_matches("'::text")))
        }
    }
}

// ---- reading ----

/// The settings, for reading an ID: an error unless this database's IDs have their layout.
#[inline]
pub fn for_reading() -> Result<&'static Config, Error> {
    known_for_reading().map_or_else(compare, Ok)
}

/// The settings, for reading an ID, if this process has compared the layouts before. Does not call PostgreSQL.
#[inline]
pub fn known_for_reading() -> Option<&'static Config> {
    if MAY_READ.load(Ordering::Relaxed) { settings::get() } else { None }
}

/// As `for_reading`, for an answer that also depends on the number of backup workers.
pub fn for_owners() -> Result<&'static Config, Error> {
    let settings = for_reading()?;
    settings::bad_value_of(&[BACKUP_WORKERS_NAME]).map_or(Ok(settings), |bad| Err(gate::bad_value(bad)))
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

/// Compares the database's layout with the generator's, which this process may use then.
#[cold]
pub fn for_generating(generator: &'static SharedGenerator) -> Result<(), Error> {
    compare()?;
    COMPARED.store(std::ptr::from_ref(generator).cast_mut(), Ordering::Relaxed);
    Ok(())
}
