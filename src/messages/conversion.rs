//! The error of a conversion or of the way back, whose texts are in `sql/`.

use super::{Error, error};

/// An error with an SQLSTATE of five characters.
pub fn refused(code: &str, message: String, detail: String, hint: String) -> Error {
    let state =
        code.bytes().rev().fold(0, |state, byte| state << 6 | i32::from(byte.wrapping_sub(b'0') & 0x3f));
    error(state.into(), message, detail, hint)
}
