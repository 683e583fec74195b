//! Text arguments. A valid one is at most a line, so no function reads more than the beginning: the rest of a stored text
//! stays on disk, and no text is copied or converted.

use crate::postgres::display::{LONGEST, quote, shown, too_long};
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::pgrx_sql_entity_graph::metadata::impl_sql_translatable;
use pgrx::prelude::*;
use pgrx::varlena;
use std::borrow::Cow;
use std::slice;

/// The greatest length of a character in any encoding, in bytes.
const LONGEST_CHARACTER: usize = 4;

/// A text argument.
#[derive(Clone, Copy, Debug)]
pub struct GivenText<'a> {
    /// The text up to `LONGEST` bytes, and one character more, so that a quotation can end between two characters.
    start: &'a [u8],
    /// Length of the whole text, in bytes.
    length: usize,
}

impl<'a> GivenText<'a> {
    /// The text; an error if it is longer than `LONGEST`.
    pub fn read(&self) -> Result<Cow<'a, str>, String> {
        if self.length > LONGEST { Err(too_long(self.length)) } else { Ok(shown(self.start)) }
    }

    /// The text as a message quotes it.
    pub fn quote(&self) -> String {
        quote(self.start)
    }
}

// SAFETY: a text argument is a varlena that is valid for the call. The slice points there, or into the memory context of
// the call.
unsafe impl<'fcx> ArgAbi<'fcx> for GivenText<'fcx> {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: by the contract of this function, a datum of a text that is not null. A slice of a text is a text.
        unsafe {
            let datum: pg_sys::Datum =
                arg.unbox_arg_using_from_datum::<RawDatum>().expect("a STRICT function").0;
            let whole = datum.cast_mut_ptr::<pg_sys::varlena>();
            // As it is in memory, without a call of PostgreSQL.
            if !varlena::varatt_is_1b_e(whole) && !varlena::varatt_is_4b_c(whole) {
                let (start, length) = (varlena::vardata_any(whole).cast(), varlena::varsize_any_exhdr(whole));
                let start = slice::from_raw_parts(start, length.min(LONGEST + LONGEST_CHARACTER));
                return Self { start, length };
            }
            let length = pg_sys::toast_raw_datum_size(datum) - pg_sys::VARHDRSZ;
            let text = pg_sys::pg_detoast_datum_slice(whole, 0, (LONGEST + LONGEST_CHARACTER) as i32);
            let start = varlena::vardata_any(text).cast::<u8>();
            Self { start: slice::from_raw_parts(start, varlena::varsize_any_exhdr(text)), length }
        }
    }
}

impl_sql_translatable!(GivenText<'_>, "text");

/// A datum as it is.
struct RawDatum(pg_sys::Datum);

impl FromDatum for RawDatum {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _: pg_sys::Oid) -> Option<Self> {
        (!is_null).then_some(Self(datum))
    }
}
