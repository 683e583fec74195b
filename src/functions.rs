//! SQL arguments in, core calls, SQL values out: making, watching, administering. What reads IDs is in
//! `reading`; comments and grants are in `sql/`.

use crate::errors::Error;
use crate::{generator, settings, shmem, state_file};
use pgrx::heap_tuple::PgHeapTuple;
use pgrx::iter::{SetOfIterator, TableIterator};
use pgrx::prelude::*;
use pgrx::{AllocatedByRust, PgTupleDesc};

extension_sql_file!("../sql/config.sql", requires = [snowflake_server_layout]);
extension_sql_file!("../sql/layout.sql");
extension_sql_file!("../sql/convert.sql", requires = [snowflake_nextval]);
extension_sql_file!("../sql/watching.sql", finalize);

/// Tells PostgreSQL how a function without pgrx's wrapper is called, as PG_FUNCTION_INFO_V1 does in C.
macro_rules! function_info {
    ($name:ident) => {
        #[doc(hidden)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> &'static ::pgrx::pg_sys::Pg_finfo_record {
            &::pgrx::pg_sys::Pg_finfo_record { api_version: 1 }
        }
    };
}
pub(crate) use function_info;

/// PostgreSQL counts time from 2000-01-01, Unix from 1970-01-01: the difference in microseconds.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

/// A Unix time in microseconds as PostgreSQL counts it.
pub fn to_postgres(unix_us: i64) -> pg_sys::TimestampTz {
    unix_us.saturating_sub(POSTGRES_EPOCH_US)
}

/// A time as PostgreSQL counts it as a Unix time in microseconds.
pub fn from_postgres(time: pg_sys::TimestampTz) -> i64 {
    time.saturating_add(POSTGRES_EPOCH_US)
}

/// A Unix time in microseconds as a value of SQL.
pub fn timestamp(unix_us: i64) -> TimestampWithTimeZone {
    // A layout reaches at most 146,000 years past its epoch, a timestamp 292,000.
    TimestampWithTimeZone::try_from(to_postgres(unix_us)).expect("a layout ends before timestamps do")
}

/// The row of a function with OUT parameters, which pgrx has no return type for.
///
/// # Safety
/// `call` is the running call from SQL, nothing else keeps a pointer in its `fn_extra`, and the SQL of the
/// function declares columns of the types that the values have.
pub unsafe fn record<const N: usize>(
    call: pg_sys::FunctionCallInfo,
    values: [Option<pg_sys::Datum>; N],
) -> PgHeapTuple<'static, AllocatedByRust> {
    // SAFETY: by the contract of this function.
    unsafe {
        let row = PgTupleDesc::from_pg_unchecked(row_type(call));
        PgHeapTuple::from_datums(row, values).expect("as many values as columns")
    }
}

/// The row type that the SQL of the called function declares; looked up once for each place in a query that calls
/// it, for the catalogs cost more than all the rest of a call.
///
/// # Safety
/// `call` is a call from SQL, and nothing else keeps a pointer in its `fn_extra`.
unsafe fn row_type(call: pg_sys::FunctionCallInfo) -> pg_sys::TupleDesc {
    // SAFETY: by the contract of this function; what is kept lives as long as what keeps it, in `fn_mcxt`.
    unsafe {
        let function = (*call).flinfo;
        if (*function).fn_extra.is_null() {
            let context = pg_sys::MemoryContextSwitchTo((*function).fn_mcxt);
            let mut row = std::ptr::null_mut();
            let kind = pg_sys::get_call_result_type(call, std::ptr::null_mut(), &mut row);
            assert_eq!(kind, pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE, "the SQL declares OUT parameters");
            (*function).fn_extra = pg_sys::BlessTupleDesc(row).cast();
            pg_sys::MemoryContextSwitchTo(context);
        }
        (*function).fn_extra.cast()
    }
}

// ---- making IDs ----

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_nextval() RETURNS bigint
    VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'snowflake_nextval_hot';
"#)]
fn snowflake_nextval() -> i64 {
    generator::next_id()
}

/// What `snowflake_nextval()` calls: pgrx's wrapper costs a fifth of a call, and is needed only where an
/// error can be raised or PostgreSQL be called.
///
/// # Safety
/// To be called by PostgreSQL, as any function of SQL.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_nextval_hot(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    match generator::try_next_id() {
        Some(id) => pg_sys::Datum::from(id),
        // SAFETY: the call is PostgreSQL's, handed on.
        None => unsafe { nextval_cold(call) },
    }
}
function_info!(pg_finfo_snowflake_nextval_hot);

/// # Safety
/// As `snowflake_nextval_hot`.
#[cold]
unsafe fn nextval_cold(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: by the contract of this function.
    unsafe { snowflake_nextval_wrapper(call) }
}

#[pg_extern(volatile, parallel_safe)]
fn snowflake_nextval_batch(n: i32) -> SetOfIterator<'static, i64> {
    if n < 0 {
        Error::BatchSize(n).raise();
    }
    SetOfIterator::new((0..n).map(|_| generator::next_id()))
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_nextval_range(n integer, OUT "first" bigint, OUT "last" bigint)
    VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_nextval_range(
    n: i32,
    call: pg_sys::FunctionCallInfo,
) -> pgrx::composite_type!('static, "record") {
    let range = generator::next_range(n);
    // SAFETY: PostgreSQL's own pointer to this call; the SQL above declares two bigints.
    unsafe { record(call, [range.first.into_datum(), range.last.into_datum()]) }
}

#[pg_extern(volatile, parallel_restricted)]
fn snowflake_lastval() -> i64 {
    generator::last_id().unwrap_or_else(|| Error::NoLastId.raise())
}

// ---- watching ----

#[pg_extern(volatile, parallel_safe)]
#[allow(clippy::type_complexity, reason = "a view's columns")]
fn snowflake_status_row() -> TableIterator<
    'static,
    (
        name!(state, String),
        name!(reason, Option<String>),
        name!(worker_id, Option<i32>),
        name!(home_worker_id, Option<i32>),
        name!(lane, Option<i32>),
        name!(last_id_at, Option<TimestampWithTimeZone>),
        name!(ahead_ms, Option<i64>),
        name!(reserved_until, Option<TimestampWithTimeZone>),
        name!(issued, Option<i64>),
        name!(waits, Option<i64>),
        name!(wait_ms, Option<i64>),
        name!(rollbacks, Option<i64>),
        name!(largest_rollback_ms, Option<i64>),
        name!(forward_jumps, Option<i64>),
        name!(rotations, Option<i64>),
        name!(refusals, Option<i64>),
        name!(layout, Option<String>),
        name!(epoch, Option<TimestampWithTimeZone>),
        name!(expires_at, Option<TimestampWithTimeZone>),
        name!(keeper_pid, Option<i32>),
        name!(write_error, Option<String>),
        name!(stats_reset, Option<TimestampWithTimeZone>),
    ),
> {
    let settings = settings::get();
    let generator = shmem::generator();
    let (state, reason) = generator::state();
    let status = generator.map(|generator| generator.status());

    let layout = settings::layout();
    let count = |counter: u64| counter as i64;
    let millis = |micros: i64| micros / 1_000;
    TableIterator::once((
        state.to_owned(),
        reason,
        status.map(|s| s.worker as i32),
        settings.filter(|s| s.has_worker).map(|s| s.workers.worker(0) as i32),
        status.map(|s| s.lane as i32),
        status.and_then(|s| s.last_id_at_us).map(timestamp),
        status.map(|s| millis(s.ahead_us)),
        status.and_then(|s| s.reserved_until_us).map(timestamp),
        status.map(|s| count(s.issued)),
        status.map(|s| count(s.waits)),
        status.map(|s| millis(count(s.wait_us))),
        status.map(|s| count(s.rollbacks)),
        status.map(|s| millis(s.largest_rollback_us)),
        status.map(|s| count(s.forward_jumps)),
        status.map(|s| count(s.rotations)),
        status.map(|s| count(s.refusals)),
        layout.map(|layout| layout.bits().to_string()),
        layout.map(|layout| timestamp(layout.epoch_us())),
        layout.map(|layout| timestamp(layout.starts_at(layout.max_tick() + 1))),
        shmem::keeper(),
        status.and_then(|s| s.write_error).map(state_file::describe),
        status.map(|s| timestamp(s.since_us)),
    ))
}

#[pg_extern(volatile, parallel_safe)]
#[allow(clippy::type_complexity, reason = "a view's columns")]
fn snowflake_workers_rows() -> TableIterator<
    'static,
    (
        name!(lane, i32),
        name!(worker_id, i32),
        name!(active, bool),
        name!(in_half, bool),
        name!(usable_at, Option<TimestampWithTimeZone>),
        name!(mark, Option<TimestampWithTimeZone>),
        name!(issued, i64),
    ),
> {
    generator::state();
    let lanes = shmem::generator().map(|generator| generator.lane_statuses()).unwrap_or_default();
    TableIterator::new(lanes.into_iter().map(|lane| {
        (
            lane.lane as i32,
            lane.worker as i32,
            lane.active,
            lane.in_half,
            lane.usable_at_us.map(timestamp),
            lane.mark_us.map(timestamp),
            lane.issued as i64,
        )
    }))
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_server_layout(OUT layout text, OUT tick_ms integer, OUT epoch timestamptz)
    STABLE PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_server_layout(call: pg_sys::FunctionCallInfo) -> pgrx::composite_type!('static, "record") {
    let layout = settings::layout();
    let bits = layout.map(|layout| layout.bits().to_string());
    let tick_ms = layout.map(|layout| (layout.tick().micros() / 1_000) as i32);
    let epoch = layout.map(|layout| timestamp(layout.epoch_us()));
    // SAFETY: PostgreSQL's own pointer to this call; the SQL above declares text, an integer and a timestamptz.
    unsafe { record(call, [bits.into_datum(), tick_ms.into_datum(), epoch.into_datum()]) }
}

// ---- administering ----

#[pg_extern(volatile, parallel_unsafe)]
fn snowflake_rotate() -> i32 {
    generator::rotate() as i32
}

#[pg_extern(volatile, parallel_unsafe)]
fn snowflake_adopt(floor: default!(TimestampWithTimeZone, "now()"), lower: default!(bool, "false")) {
    generator::adopt(from_postgres(floor.into()), lower);
}

#[pg_extern(volatile, parallel_unsafe)]
fn snowflake_reset_stats() {
    let generator = shmem::generator().unwrap_or_else(|| generator::missing().raise());
    generator.reset_stats();
}
