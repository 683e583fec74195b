//! Reading IDs by this server's layout, and writing them as text. `sql/reading.sql` has the functions that the planner can
//! inline. Reading needs the settings, and so preloading; base62 does not.

use super::text::GivenText;
use super::{function_info, hot_reader};
use crate::messages::reading;
use crate::postgres::time::{from_postgres, timestamp};
use crate::session::layout_guard;
use crate::settings;
use pgrx::prelude::*;
use snowflake_core::base62;
use snowflake_core::{Config, Layout, Parts};

extension_sql!(
    r#"
-- A text, but sorted by bytes, because that is how the IDs sort. AzL8n0Y58m7 is the highest bigint.
CREATE DOMAIN snowflake_base62 AS text COLLATE pg_catalog."C"
    CHECK (
        -- Known without a look at the text, which may be of any length.
        pg_catalog.octet_length(VALUE COLLATE pg_catalog."C") OPERATOR(pg_catalog.=) 11
        -- A check has the database's collation, not the domain's.
        AND VALUE COLLATE pg_catalog."C" OPERATOR(pg_catalog.~) '^[0-9A-Za-z]{11}$'
        AND VALUE COLLATE pg_catalog."C" OPERATOR(pg_catalog.<=) 'AzL8n0Y58m7'
    );
COMMENT ON DOMAIN snowflake_base62 IS 'an ID as 11 base62 characters that sort as the IDs do';
"#,
    name = "snowflake_base62"
);
extension_sql!(
    r#"
CREATE TYPE snowflake_parts AS (
    created_at    timestamptz,
    datacenter_id integer,
    worker_id     integer,
    sequence      integer
);
COMMENT ON TYPE snowflake_parts IS 'the fields of an ID';
COMMENT ON COLUMN snowflake_parts.created_at IS 'start of the ID''s tick; up to max_ahead (2 s) late, as after each start';
"#,
    name = "snowflake_parts",
    // See the chain in `functions/mod.rs`.
    requires = ["row_types"]
);
// Only what the bodies call.
extension_sql_file! {
    "../../sql/reading.sql",
    name = "reading",
    requires = [
        "snowflake_parts", snowflake_timestamp, snowflake_datacenter, snowflake_worker, snowflake_sequence,
        snowflake_between_from, snowflake_between_until, foreign_timestamp, foreign_field, snowflake_layouts_rows
    ]
}

/// The settings, or the error why no ID can be read.
fn layout_settings() -> &'static Config {
    layout_guard::for_reading().unwrap_or_else(|error| error.raise())
}

/// This server's layout, or the error why no ID can be read.
pub(super) fn layout() -> &'static Layout {
    &layout_settings().layout
}

fn unpack(id: i64) -> Parts {
    layout().unpack(id).unwrap_or_else(|| reading::not_an_id(id).raise())
}

fn created_at(settings: &Config, parts: Parts) -> TimestampWithTimeZone {
    timestamp(settings.layout.starts_at(parts.tick))
}

/// `None` in a layout without datacenters.
fn datacenter(settings: &Config, parts: Parts) -> Option<i32> {
    (settings.layout.bits().datacenter > 0).then_some(parts.datacenter as i32)
}

fn worker(_: &Config, parts: Parts) -> i32 {
    parts.worker as i32
}

fn sequence(_: &Config, parts: Parts) -> i32 {
    parts.sequence as i32
}

/// Reads a field of an ID, or raises the error why it cannot be read.
fn read<T>(id: i64, field: impl Fn(&Config, Parts) -> T) -> T {
    field(layout_settings(), unpack(id))
}

/// Reads a field of the ID of a call, if that needs neither an error nor a call of PostgreSQL.
///
/// # Safety
/// The function is STRICT, and its first argument is a bigint.
#[inline(always)]
unsafe fn try_read<T>(call: pg_sys::FunctionCallInfo, field: impl Fn(&Config, Parts) -> T) -> Option<T> {
    // SAFETY: by this function's contract, the argument is present and not null.
    let id = unsafe { (*call).args.as_slice(1)[0].value.value() as i64 };
    let settings = layout_guard::known_for_reading()?;
    settings.layout.unpack(id).map(|parts| field(settings, parts))
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_timestamp(id bigint) RETURNS timestamptz
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'snowflake_timestamp_hot';
COMMENT ON FUNCTION snowflake_timestamp(bigint) IS 'returns the creation time of an ID: the start of its tick';
"#)]
fn snowflake_timestamp(id: i64) -> TimestampWithTimeZone {
    read(id, created_at)
}
hot_reader! {
    snowflake_timestamp_hot, pg_finfo_snowflake_timestamp_hot, snowflake_timestamp_wrapper, try_read, created_at
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_datacenter(id bigint) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'snowflake_datacenter_hot';
COMMENT ON FUNCTION snowflake_datacenter(bigint) IS
    'returns the datacenter number of an ID, or null if the layout has none';
"#)]
fn snowflake_datacenter(id: i64) -> Option<i32> {
    read(id, datacenter)
}
hot_reader! {
    snowflake_datacenter_hot, pg_finfo_snowflake_datacenter_hot, snowflake_datacenter_wrapper, try_read, datacenter
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_worker(id bigint) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'snowflake_worker_hot';
COMMENT ON FUNCTION snowflake_worker(bigint) IS 'returns the number of the worker that generated an ID';
"#)]
fn snowflake_worker(id: i64) -> i32 {
    read(id, worker)
}
hot_reader! {
    snowflake_worker_hot, pg_finfo_snowflake_worker_hot, snowflake_worker_wrapper, try_read, worker
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_sequence(id bigint) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'snowflake_sequence_hot';
COMMENT ON FUNCTION snowflake_sequence(bigint) IS 'returns the sequence of an ID within its tick';
"#)]
fn snowflake_sequence(id: i64) -> i32 {
    read(id, sequence)
}
hot_reader! {
    snowflake_sequence_hot, pg_finfo_snowflake_sequence_hot, snowflake_sequence_wrapper, try_read, sequence
}

/// As `try_read`, if `backup_workers` can be used, too.
///
/// # Safety
/// As `try_read`.
#[inline(always)]
unsafe fn try_read_server(
    call: pg_sys::FunctionCallInfo,
    field: impl Fn(&Config, Parts) -> Option<i32>,
) -> Option<Option<i32>> {
    if !settings::bad_values().is_empty() {
        return None;
    }
    // SAFETY: by this function's contract.
    unsafe { try_read(call, field) }
}

fn server(settings: &Config, parts: Parts) -> Option<i32> {
    settings.workers.owner(parts.worker).map(|(home, _)| home as i32)
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_server(id bigint) RETURNS integer
    STABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'snowflake_server_hot';
COMMENT ON FUNCTION snowflake_server(bigint) IS
    'returns the home worker of the server that owns an ID''s worker, or null if no server can own it';
"#)]
fn snowflake_server(id: i64) -> Option<i32> {
    let settings = layout_guard::for_owners().unwrap_or_else(|error| error.raise());
    server(settings, unpack(id))
}
hot_reader! {
    snowflake_server_hot, pg_finfo_snowflake_server_hot, snowflake_server_wrapper, try_read_server, server
}

// ---- from a time to IDs ----

/// The tick that contains a time, or an error if the layout has none.
pub(super) fn tick_of(ts: TimestampWithTimeZone) -> i64 {
    let time = ts.into();
    let tick = layout().tick_at(from_postgres(time));
    if (0..=layout().max_tick()).contains(&tick) { tick } else { reading::time_outside(time).raise() }
}

/// In a layout with datacenters, the ID is one of this server's datacenter.
#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_encode(ts timestamptz, worker integer, sequence integer) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_encode(timestamptz, integer, integer) IS
    'returns the ID of a time, a worker and a sequence, in this server''s datacenter if the layout has one';
"#)]
fn snowflake_encode(ts: TimestampWithTimeZone, worker: i32, sequence: i32) -> i64 {
    let Config { layout, datacenter, .. } = layout_settings();
    let tick = tick_of(ts);
    for (name, value, values) in
        [("worker", worker, layout.workers()), ("sequence", sequence, layout.sequences())]
    {
        if !(0..values).contains(&i64::from(value)) {
            reading::field_outside(name, value, values - 1, layout).raise();
        }
    }
    let parts = Parts { tick, datacenter: *datacenter, worker: worker.into(), sequence: sequence.into() };
    layout.pack(parts).expect("every field was checked")
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_min(ts timestamptz) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_min(timestamptz) IS 'returns the lowest ID of the tick that contains a time';
"#)]
fn snowflake_min(ts: TimestampWithTimeZone) -> i64 {
    layout().lowest_id(tick_of(ts))
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_max(ts timestamptz) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_max(timestamptz) IS 'returns the highest ID of the tick that contains a time';
"#)]
fn snowflake_max(ts: TimestampWithTimeZone) -> i64 {
    layout().highest_id(tick_of(ts))
}

/// The lower bound of `snowflake_between`. Any time has one, infinities included.
#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_between_from(since timestamptz) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_between_from(since: TimestampWithTimeZone) -> i64 {
    layout().lowest_id_from(from_postgres(since.into()))
}

/// The upper bound of `snowflake_between`; -1 if no ID is before that time.
#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_between_until(until timestamptz) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_between_until(until: TimestampWithTimeZone) -> i64 {
    layout().highest_id_before(from_postgres(until.into()))
}

// ---- as text ----

#[pg_extern(
    requires = ["snowflake_base62"],
    sql = r#"
CREATE FUNCTION snowflake_to_base62(id bigint) RETURNS snowflake_base62
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_to_base62(bigint) IS 'converts an ID to 11 base62 characters that sort as the IDs do';
"#
)]
fn snowflake_to_base62(id: i64) -> String {
    base62::to_base62(id).unwrap_or_else(|| reading::negative_id(id).raise())
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_from_base62(base62 text) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_from_base62(text) IS 'converts the result of snowflake_to_base62 back to the ID';
"#)]
fn snowflake_from_base62(base62: GivenText<'_>) -> i64 {
    let id = base62.read().and_then(|text| base62::from_base62(&text).map_err(|problem| problem.to_string()));
    id.unwrap_or_else(|problem| reading::not_base62(&base62.quote(), problem).raise())
}
