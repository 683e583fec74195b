//! Functions that pass a call on to the generator: those for operators, the bound for readers that poll, and the condition
//! of the trigger in `sql/replication.sql`.

use super::reading;
use super::row::record;
use crate::postgres::time::from_postgres;
use crate::session::generator;
use pgrx::prelude::*;

#[pg_extern(volatile, parallel_unsafe)]
fn snowflake_rotate() -> i32 {
    generator::rotate() as i32
}

#[pg_extern(volatile, parallel_unsafe)]
fn snowflake_adopt(floor: default!(TimestampWithTimeZone, "now()")) {
    generator::adopt(from_postgres(floor.into()));
}

#[pg_extern(volatile, parallel_unsafe)]
fn snowflake_reset_stats() {
    generator::reset_stats();
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_horizon(OUT horizon bigint, OUT breaks bigint, OUT since bigint)
    VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_horizon(call: pg_sys::FunctionCallInfo) -> pgrx::composite_type!('static, "record") {
    let found = generator::horizon();
    let values = [found.id, found.breaks, found.since].map(IntoDatum::into_datum);
    // SAFETY: PostgreSQL's own pointer to this call; the SQL above declares three bigints.
    unsafe { record(call, values) }
}

// VOLATILE, because a lease can end within a statement.
#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_is_own(id bigint) RETURNS boolean
    VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_is_own(id: i64) -> bool {
    reading::layout().unpack(id).is_some_and(|parts| generator::is_own(&parts))
}
