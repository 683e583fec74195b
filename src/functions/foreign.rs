//! Reading IDs by another system's layout. A session that has not preloaded the library loads it at the first call.

use super::text::GivenText;
use super::{function_info, hot_reader};
use crate::messages::reading;
use crate::postgres::time::timestamp;
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

/// Reads an ID, or raises the error why it cannot be read.
fn unpack(id: i64, layout: GivenText<'_>) -> ForeignParts {
    let parts = foreign_layout(layout).unpack(id);
    parts.unwrap_or_else(|| reading::not_foreign_id(id, &layout.quote()).raise())
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
COMMENT ON FUNCTION snowflake_timestamp(bigint, text) IS
    'returns the creation time of another system''s ID: the start of its tick';
"#)]
fn foreign_timestamp(id: i64, layout: GivenText<'_>) -> TimestampWithTimeZone {
    created_at(unpack(id, layout))
}
hot_reader! {
    foreign_timestamp_hot, pg_finfo_foreign_timestamp_hot, foreign_timestamp_wrapper, try_read_foreign, created_at
}

/// A field by its place among the integers of `snowflake_parts`; `None` if the layout has none.
fn field(parts: ForeignParts, place: i32) -> Option<i32> {
    let value = match place {
        0 => parts.datacenter,
        1 => parts.worker,
        _ => parts.sequence,
    };
    value.map(|value| value as i32)
}

/// As `try_read_foreign`.
///
/// # Safety
/// As `try_read_foreign`; the third argument is an integer.
#[inline(always)]
unsafe fn try_read_field(
    call: pg_sys::FunctionCallInfo,
    field: impl Fn(ForeignParts, i32) -> Option<i32>,
) -> Option<Option<i32>> {
    // SAFETY: by this function's contract.
    unsafe {
        let place = (*call).args.as_slice(3)[2].value.value() as i32;
        try_read_foreign(call, |parts| field(parts, place))
    }
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_foreign_field(id bigint, layout text, place integer) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'foreign_field_hot';
"#)]
fn foreign_field(id: i64, layout: GivenText<'_>, place: i32) -> Option<i32> {
    field(unpack(id, layout), place)
}
hot_reader! { foreign_field_hot, pg_finfo_foreign_field_hot, foreign_field_wrapper, try_read_field, field }

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
