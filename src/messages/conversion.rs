//! The error of a conversion or of the way back, whose texts are in `sql/`.

use super::{Error, error};
use pgrx::PgSqlErrorCode::{self, ERRCODE_INTERNAL_ERROR, ERRCODE_RAISE_EXCEPTION};

/// An error with an SQLSTATE of five characters. PostgreSQL's own are kept; any other, which a function of the user may
/// have raised, becomes that of RAISE.
pub fn refused(code: &str, message: String, detail: String, hint: String) -> Error {
    let state =
        code.bytes().rev().fold(0, |state, byte| state << 6 | i32::from(byte.wrapping_sub(b'0') & 0x3f));
    let state = match PgSqlErrorCode::from(state) {
        ERRCODE_INTERNAL_ERROR => ERRCODE_RAISE_EXCEPTION,
        state => state,
    };
    error(state, message, detail, hint)
}
