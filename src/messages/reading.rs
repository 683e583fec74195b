//! Errors about the arguments of a function, and about the layout of a database.

use super::{Error, NO_HINT, error, not_ready};
use crate::postgres::display::{postgres_timestamp, timestamp};
use crate::settings;
use pgrx::PgSqlErrorCode::{
    ERRCODE_DATETIME_FIELD_OVERFLOW as OVERFLOW, ERRCODE_FEATURE_NOT_SUPPORTED as UNSUPPORTED,
    ERRCODE_INVALID_PARAMETER_VALUE as INVALID,
};
use pgrx::pg_sys;
use snowflake_core::Layout;

// ---- of functions that generate IDs ----

pub fn no_last_id() -> Error {
    not_ready(
        "snowflake_lastval is not yet defined in this session",
        "This session has generated no ID since it began, or since DISCARD ALL or DISCARD SEQUENCES.",
        "Call snowflake_nextval first, or insert a row whose default calls it.",
    )
}

pub fn batch_size(n: i32) -> Error {
    error(INVALID, "n must not be negative", format!("n is {n}."), NO_HINT)
}

pub fn range_size(n: i32, most: i64) -> Error {
    let hint = match n {
        ..1 => NO_HINT,
        _ => {
            "Ask for fewer IDs. If they need not be consecutive, call snowflake_nextval_batch, which has no limit."
        }
    };
    error(
        INVALID,
        format!("n must be between 1 and {most}"),
        format!(
            "n is {n}. A range lies within one tick, which has room for {most} IDs under this server's settings."
        ),
        hint,
    )
}

// ---- of functions that read IDs ----

pub fn not_an_id(id: i64) -> Error {
    error(
        INVALID,
        format!("{id} is not a snowflake ID of this server's layout"),
        why_no_id(id),
        "Check the source of the value. To read an ID of another system, call snowflake_decode(id, layout).",
    )
}

pub fn negative_id(id: i64) -> Error {
    error(INVALID, format!("{id} is not a snowflake ID"), why_no_id(id), NO_HINT)
}

pub fn not_foreign_id(id: i64, layout: &str) -> Error {
    error(
        INVALID,
        format!("{id} is not an ID of layout \"{layout}\""),
        // A layout of 64 bits has negative IDs.
        if id < 0 { "A negative ID cannot be read." } else { why_no_id(id) },
        "Check the source of the value, and its layout.",
    )
}

/// Why a number cannot be an ID.
fn why_no_id(id: i64) -> &'static str {
    if id < 0 { "A snowflake ID is never negative." } else { "It has bits above the layout's time field." }
}

pub fn not_a_layout(given: &str, problem: String) -> Error {
    error(
        INVALID,
        format!("invalid layout: \"{given}\""),
        problem,
        "Use a name from the view snowflake_layouts; or write the bits of time/worker/sequence, the tick and the \
         epoch, for example 41/10/12 1ms 2015-01-01.",
    )
}

pub fn not_a_fleets_layout(given: &str, problem: String, hint: &'static str) -> Error {
    error(INVALID, format!("invalid layout: \"{given}\""), problem, hint)
}

pub fn not_base62(given: &str, problem: String) -> Error {
    error(
        INVALID,
        format!("invalid base62 snowflake ID: \"{given}\""),
        problem,
        "Pass the 11 characters that snowflake_to_base62 returned, including leading zeros.",
    )
}

pub fn time_outside(time: pg_sys::TimestampTz) -> Error {
    error(
        OVERFLOW,
        "timestamp is out of range for this server's layout",
        format!("The timestamp is {}. {}", postgres_timestamp(time), layout_span()),
        "To compare IDs with any timestamp, use snowflake_between; to import an older row, pass the start.",
    )
}

pub fn field_outside(name: &str, value: i32, highest: i64, layout: &Layout) -> Error {
    let bits = layout.bits();
    error(
        INVALID,
        format!("{name} must be between 0 and {highest}"),
        format!("{name} is {value}. The layout is {bits}."),
        NO_HINT,
    )
}

// ---- of a database ----

/// `recorded`: the database's layouts, or the beginning of them.
pub fn other_database(recorded: &str) -> Error {
    let hint = if recorded.contains(", ") {
        "A dump of another layout was restored here. Restore it into a new database of a server with its layout; or, if \
         all values here are of this server's layout, call snowflake_change_layout() as a superuser, on the primary."
    } else {
        "Set snowflake_id.layout, tick and epoch to those of the database and restart the server. If the layout of the \
         fleet was changed on purpose, call snowflake_change_layout() as a superuser in this database, on the primary."
    };
    not_ready(
        "the snowflake layout of this database differs from this server's",
        format!("The database has {recorded}; this server is configured with {}.", configured_layout()),
        hint,
    )
}

pub fn no_recorded_layout() -> Error {
    not_ready(
        "this database has recorded no snowflake layout",
        "The extension was created here while the server had no usable layout, or was dropped.",
        "Call snowflake_change_layout() as a superuser in this database, on the primary.",
    )
}

pub fn not_a_recorded_layout(given: &str) -> Error {
    error(
        INVALID,
        format!("invalid snowflake layout: \"{given}\""),
        "A database records a layout as in 41/10/12 1ms 2024-01-01 00:00:00+00.",
        "If a later version of snowflake_id wrote it, use that version.",
    )
}

// ---- of functions that import rows ----

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

// ---- the configured layout ----

fn configured_layout() -> String {
    settings::layout().map(|layout| layout.to_string()).unwrap_or_default()
}

/// A sentence: the time span of the configured layout.
fn layout_span() -> String {
    settings::get().map_or_else(String::new, |settings| {
        let layout = &settings.layout;
        let (start, end) = (timestamp(layout.epoch_us()), timestamp(layout.ends_at_us()));
        format!("The layout starts at {start} and ends before {end}.")
    })
}
