//! Generating IDs. The functions are PARALLEL RESTRICTED: below Gather, the planner merges equal calls in a row, even
//! volatile ones, and parallel workers return IDs in any order.

use super::function_info;
use super::row::record;
use crate::messages::reading;
use crate::session::generator;
use pgrx::iter::SetOfIterator;
use pgrx::prelude::*;

#[pg_extern(requires = [snowflake_nextval_support], sql = r#"
CREATE FUNCTION snowflake_nextval() RETURNS bigint
    VOLATILE STRICT PARALLEL RESTRICTED SUPPORT snowflake_internal.snowflake_nextval_support
    LANGUAGE c AS '@MODULE_PATHNAME@', 'snowflake_nextval_hot';
CREATE FUNCTION snowflake_internal.snowflake_nextval_in_copy(internal) RETURNS bigint
    STABLE STRICT PARALLEL RESTRICTED SUPPORT snowflake_internal.snowflake_nextval_support
    LANGUAGE c AS '@MODULE_PATHNAME@', 'snowflake_nextval_hot';
"#)]
fn snowflake_nextval() -> i64 {
    generator::next_id()
}

/// The C function behind `snowflake_nextval()`. pgrx's wrapper costs a fifth of a call, and is needed only if an error
/// can be raised or PostgreSQL is called.
///
/// # Safety
/// Only PostgreSQL may call it, as any SQL function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_nextval_hot(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    match generator::try_next_id() {
        Some(id) => pg_sys::Datum::from(id),
        // SAFETY: the call is PostgreSQL's, passed on.
        None => unsafe { nextval_cold(call) },
    }
}
function_info!(pg_finfo_snowflake_nextval_hot);

/// # Safety
/// As `snowflake_nextval_hot`.
#[cold]
unsafe fn nextval_cold(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: by this function's contract.
    unsafe { snowflake_nextval_wrapper(call) }
}

// ROWS 1 keeps Memoize from a function in FROM with a reference to another table: it would generate the IDs of each n once.
// A read of one row costs less without Memoize (cpu_tuple_cost) than with it (that, and twice cpu_operator_cost).
#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_nextval_batch(n integer) RETURNS SETOF bigint
    VOLATILE STRICT PARALLEL RESTRICTED ROWS 1 LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_nextval_batch(n: i32) -> SetOfIterator<'static, i64> {
    if n < 0 {
        reading::batch_size(n).raise();
    }
    SetOfIterator::new((0..n).map(|_| generator::try_next_id().unwrap_or_else(generator::next_id)))
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_nextval_range(n integer, OUT "first" bigint, OUT "last" bigint)
    VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
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
    generator::last_id().unwrap_or_else(|| reading::no_last_id().raise())
}
