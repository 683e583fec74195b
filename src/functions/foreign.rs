//! Reading IDs by another system's layout. A session that has not preloaded the library loads it at the first call.

use super::text::GivenText;
use super::{function_info, hot_reader};
use crate::messages::reading;
use crate::postgres::display::LONGEST;
use crate::postgres::time::timestamp;
use pgrx::iter::TableIterator;
use pgrx::prelude::*;
use pgrx::varlena;
use snowflake_core::foreign::{ForeignLayout, PRESETS};
use std::cell::RefCell;
use std::slice;

thread_local! {
    /// The layout of the last call, because a query reads many rows by one layout. Without anything to drop: the access to
    /// a thread's value that has a destructor takes longer.
    static LAST_FOREIGN: RefCell<Option<LastForeign>> = const { RefCell::new(None) };
}

struct LastForeign {
    text: [u8; LONGEST],
    length: usize,
    layout: ForeignLayout,
}

impl LastForeign {
    fn layout_of(&self, text: &[u8]) -> Option<&ForeignLayout> {
        (self.text[..self.length] == *text).then_some(&self.layout)
    }
}

fn foreign_layout(given: GivenText<'_>) -> ForeignLayout {
    let refuse = |problem| -> ! { reading::not_a_layout(&given.quote(), problem).raise() };
    let text = given.read().unwrap_or_else(|problem| refuse(problem));
    let last = LAST_FOREIGN
        .with_borrow(|last| last.as_ref().and_then(|last| last.layout_of(text.as_bytes())).copied());
    last.unwrap_or_else(|| {
        let layout = ForeignLayout::find(&text).unwrap_or_else(|problem| refuse(problem));
        let mut last = LastForeign { text: [0; LONGEST], length: text.len(), layout };
        last.text[..text.len()].copy_from_slice(text.as_bytes());
        LAST_FOREIGN.set(Some(last));
        layout
    })
}

/// Reads an ID, or raises the error why it cannot be read.
fn read<T>(id: i64, layout: GivenText<'_>, field: impl Fn(&ForeignLayout, i64) -> Option<T>) -> T {
    field(&foreign_layout(layout), id).unwrap_or_else(|| reading::not_foreign_id(id, &layout.quote()).raise())
}

/// As `try_read`, if the layout is that of the last call.
///
/// # Safety
/// The function is STRICT, and its first two arguments are a bigint and a text.
#[inline(always)]
unsafe fn try_read_foreign<T>(
    call: pg_sys::FunctionCallInfo,
    field: impl Fn(&ForeignLayout, i64) -> Option<T>,
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
    LAST_FOREIGN.with_borrow(|last| field(last.as_ref()?.layout_of(text)?, id))
}

fn created_at(layout: &ForeignLayout, id: i64) -> Option<TimestampWithTimeZone> {
    layout.created_at_us(id).map(timestamp)
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_timestamp(id bigint, layout text) RETURNS timestamptz
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'foreign_timestamp_hot';
COMMENT ON FUNCTION snowflake_timestamp(bigint, text) IS
    'returns the creation time of another system''s ID: the start of its tick';
"#)]
fn foreign_timestamp(id: i64, layout: GivenText<'_>) -> TimestampWithTimeZone {
    read(id, layout, created_at)
}
hot_reader! {
    foreign_timestamp_hot, pg_finfo_foreign_timestamp_hot, foreign_timestamp_wrapper, try_read_foreign, created_at
}

/// A field by its place among the integers of `snowflake_parts`, as `ForeignLayout::field`.
fn field(layout: &ForeignLayout, id: i64, place: i32) -> Option<Option<i32>> {
    layout.field(id, place).map(|value| value.map(|value| value as i32))
}

/// As `try_read_foreign`.
///
/// # Safety
/// As `try_read_foreign`; the third argument is an integer.
#[inline(always)]
unsafe fn try_read_field(
    call: pg_sys::FunctionCallInfo,
    field: impl Fn(&ForeignLayout, i64, i32) -> Option<Option<i32>>,
) -> Option<Option<i32>> {
    // SAFETY: by this function's contract.
    unsafe {
        let place = (*call).args.as_slice(3)[2].value.value() as i32;
        try_read_foreign(call, |layout, id| field(layout, id, place))
    }
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_foreign_field(id bigint, layout text, place integer) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', 'foreign_field_hot';
"#)]
fn foreign_field(id: i64, layout: GivenText<'_>, place: i32) -> Option<i32> {
    read(id, layout, |layout, id| field(layout, id, place))
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
