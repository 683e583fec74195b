//! Functions for operators.

use crate::generator;
use crate::time::from_postgres;
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
