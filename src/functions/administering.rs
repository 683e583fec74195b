//! Functions for operators.

use crate::time::from_postgres;
use crate::{generator, shmem};
use pgrx::prelude::*;

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
