//! Reading IDs by another system's layout. A session that has not preloaded the library loads it at the first call.

use super::text::GivenText;
use super::{function_info, hot_reader};
use crate::messages::reading;
use crate::time::timestamp;
use pgrx::iter::TableIterator;
use pgrx::prelude::*;
use pgrx::varlena;
use snowflake_core::foreign::{ForeignLayout, ForeignParts, PRESETS};
use std::cell::RefCell;
use std::slice;

thread_local! {
    /// The layout of the last call, and its text, because a query reads many rows by one layout.
    static LAST_FOREIGN: RefCell<Option<(String, ForeignLayout)>> = const { RefCell::new(None) };
}

fn foreign_layout(given: GivenText<'_>) -> ForeignLayout {
    let refuse = |problem| -> ! { reading::not_a_layout(&given.quote(), problem).raise() };
    let text = given.read().unwrap_or_else(|problem| refuse(problem));
    let last = LAST_FOREIGN.with_borrow(|last| {
        last.as_ref().and_then(|(last_text, layout)| (*last_text == text).then_some(*layout))
    });
    last.unwrap_or_else(|| {
        let layout = ForeignLayout::find(&text).unwrap_or_else(|problem| refuse(problem));
        LAST_FOREIGN.set(Some((text.into_owned(), layout)));
        layout
    })
}

fn created_at(parts: ForeignParts) -> TimestampWithTimeZone {
    timestamp(parts.created_at_us)
}

fn datacenter(parts: ForeignParts) -> Option<i32> {
    parts.datacenter.map(|value| value as i32)
}

fn worker(parts: ForeignParts) -> Option<i32> {
    parts.worker.map(|value| value as i32)
}

fn sequence(parts: ForeignParts) -> Option<i32> {
    parts.sequence.map(|value| value as i32)
}

/// Reads a field of an ID, or raises the error why it cannot be read.
fn read_foreign<T>(id: i64, layout: GivenText<'_>, field: impl Fn(ForeignParts) -> T) -> T {
    let parts = foreign_layout(layout).unpack(id);
    field(parts.unwrap_or_else(|| reading::not_foreign_id(id, &layout.quote()).raise()))
}

/// As `try_read`, if the layout is that of the last call.
///
/// # Safety
/// The function is STRICT, and its first two arguments are a bigint and a text.
#[inline(always)]
unsafe fn try_read_foreign<T>(
    call: pg_sys::FunctionCallInfo,
    field: impl Fn(ForeignParts) -> T,
) -> Option<T> {
    // SAFETY: by this function's contract, both arguments are present and not null. The text's bytes are read only if
    // they are in memory as they are, neither compressed nor stored out of line.
    let (id, text) = unsafe {
        let args = (*call).args.as_slice(2);
        let text = args[1].value.cast_mut_ptr::<pg_sys::varlena>();
        if varlena::varatt_is_1b_e(text) || varlena::varatt_is_4b_c(text) {
            return None;
        }
        let start = varlena::vardata_any(text).cast::<u8>();
        (args[0].value.value() as i64, slice::from_raw_parts(start, varlena::varsize_any_exhdr(text)))
    };
    LAST_FOREIGN.with_borrow(|last| {
        let (last_text, layout) = last.as_ref()?;
        if last_text.as_bytes() == text { layout.unpack(id).map(field) } else { None }
    })
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_timestamp(id bigint, layout text) RETURNS timestamptz
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'foreign_timestamp_hot';
"#)]
fn foreign_timestamp(id: i64, layout: GivenText<'_>) -> TimestampWithTimeZone {
    read_foreign(id, layout, created_at)
}
hot_reader! {
    foreign_timestamp_hot, pg_finfo_foreign_timestamp_hot, foreign_timestamp_wrapper, try_read_foreign, created_at
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_datacenter(id bigint, layout text) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'foreign_datacenter_hot';
"#)]
fn foreign_datacenter(id: i64, layout: GivenText<'_>) -> Option<i32> {
    read_foreign(id, layout, datacenter)
}
hot_reader! {
    foreign_datacenter_hot, pg_finfo_foreign_datacenter_hot, foreign_datacenter_wrapper, try_read_foreign, datacenter
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_worker(id bigint, layout text) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'foreign_worker_hot';
"#)]
fn foreign_worker(id: i64, layout: GivenText<'_>) -> Option<i32> {
    read_foreign(id, layout, worker)
}
hot_reader! {
    foreign_worker_hot, pg_finfo_foreign_worker_hot, foreign_worker_wrapper, try_read_foreign, worker
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_sequence(id bigint, layout text) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'foreign_sequence_hot';
"#)]
fn foreign_sequence(id: i64, layout: GivenText<'_>) -> Option<i32> {
    read_foreign(id, layout, sequence)
}
hot_reader! {
    foreign_sequence_hot, pg_finfo_foreign_sequence_hot, foreign_sequence_wrapper, try_read_foreign, sequence
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_layouts_rows()
    RETURNS TABLE (name text, layout text, expires_at timestamptz, note text)
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_layouts_rows() -> TableIterator<
    'static,
    (
        name!(name, &'static str),
        name!(layout, &'static str),
        name!(expires_at, TimestampWithTimeZone),
        name!(note, &'static str),
    ),
> {
    TableIterator::new(PRESETS.iter().map(|preset| {
        let layout = ForeignLayout::find(preset.name).expect("a test reads every preset");
        (preset.name, preset.layout, timestamp(layout.ends_at_us()), preset.note)
    }))
}
