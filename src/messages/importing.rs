//! Errors of functions that give rows IDs of their own times.

use super::{Error, error};
use crate::display::{postgres_timestamp, timestamp};
use pgrx::PgSqlErrorCode::{
    ERRCODE_FEATURE_NOT_SUPPORTED as UNSUPPORTED, ERRCODE_INVALID_PARAMETER_VALUE as INVALID,
};
use pgrx::pg_sys;

pub fn own_worker(worker: i32, home: i64) -> Error {
    error(
        INVALID,
        format!("worker {worker} belongs to this server"),
        format!(
            "This server, with home worker {home}, may have generated the same ID with it, or may do so later."
        ),
        "Pass a worker that no server has. In a fleet with a registry, reserve one there with snowflake_registry_reserve.",
    )
}

pub fn descending(ts: pg_sys::TimestampTz, before_us: i64) -> Error {
    error(
        INVALID,
        "snowflake_at needs rows in the order of their times",
        format!(
            "A row with time {} follows one with time {} or later.",
            postgres_timestamp(ts),
            timestamp(before_us)
        ),
        "Write OVER (ORDER BY ...) with the time that you pass to snowflake_at.",
    )
}

pub fn another_partition() -> Error {
    error(
        UNSUPPORTED,
        "snowflake_at needs all rows in one partition of one window",
        "A second partition, or another execution of the same subquery, would repeat IDs of the first.",
        "Remove PARTITION BY, and call snowflake_at outside of correlated and LATERAL subqueries.",
    )
}
