//! Times, layouts, operating system errors and database texts, formatted for messages.

use super::time::to_postgres;
use pgrx::prelude::*;
use snowflake_core::Errno;
use std::borrow::Cow;
use std::ffi::CStr;
use std::io;

/// A Unix time in microseconds, as PostgreSQL prints it in its log.
pub fn timestamp(unix_us: i64) -> String {
    postgres_timestamp(to_postgres(unix_us))
}

/// A timestamp as PostgreSQL prints it in its log, infinities included.
pub fn postgres_timestamp(time: pg_sys::TimestampTz) -> String {
    // SAFETY: returns, for any value, a NUL-terminated text in a static buffer, which is copied before its next use.
    unsafe { CStr::from_ptr(pg_sys::timestamptz_to_str(time)).to_string_lossy().into_owned() }
}

/// A length of time in its two greatest units.
pub fn duration(micros: i64) -> String {
    let millis = micros / 1_000;
    let (seconds, minutes, hours) = (millis / 1_000, millis / 60_000, millis / 3_600_000);
    match seconds {
        ..10 => format!("{millis} ms"),
        10..120 => format!("{seconds}.{} s", millis % 1_000 / 100),
        120..7_200 => format!("{minutes} min {} s", seconds % 60),
        7_200..172_800 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} days {} h", hours / 24, hours % 24),
    }
}

/// The operating system's text for one of its errors, as PostgreSQL shows it, without the number that Rust adds.
pub fn os_error(errno: Errno) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// As `os_error`, for an error of Rust's library, which may have no errno.
pub fn io_error(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), os_error)
}

/// Maximum length, in bytes, of a user's text that is read, or that a message quotes; a user can pass a gigabyte.
/// PostgreSQL cannot format an oversized message: it raises an error inside pgrx's report, which aborts the process and
/// restarts the server.
pub const LONGEST: usize = 100;

/// A user's text for a message, which gets the beginning of a long one.
pub fn quote(text: &[u8]) -> String {
    if text.len() <= LONGEST {
        return shown(text).into_owned();
    }
    // Do not cut a character of UTF-8 in two. In other encodings each byte is escaped by itself.
    let is_within = |at: &usize| text[*at] & 0b1100_0000 == 0b1000_0000;
    let end = (LONGEST - 3..=LONGEST).rev().find(|at| !is_utf8() || !is_within(at)).unwrap_or(LONGEST);
    format!("{}...", shown(&text[..end]))
}

/// A user's text for parsing; an error if it is longer than `LONGEST`.
pub fn readable(text: &[u8]) -> Result<Cow<'_, str>, String> {
    if text.len() > LONGEST { Err(too_long(text.len())) } else { Ok(shown(text)) }
}

/// The error for a text of this many bytes.
pub fn too_long(length: usize) -> String {
    format!("The text has {length} bytes, and can have at most {LONGEST}.")
}

fn is_utf8() -> bool {
    // SAFETY: a plain read of a variable of this process, which the postmaster has too.
    unsafe { pg_sys::GetDatabaseEncoding() == pg_sys::pg_enc::PG_UTF8 as i32 }
}

/// A text of limited length, for a message; [`quote`] limits others. PostgreSQL takes messages in the database's encoding,
/// and Rust writes them in UTF-8, so if the two differ, everything but ASCII is escaped.
pub fn shown(text: &[u8]) -> Cow<'_, str> {
    let is_utf8 = is_utf8();
    match std::str::from_utf8(text) {
        Ok(text) if is_utf8 || text.is_ascii() => text.into(),
        _ => text.escape_ascii().to_string().into(),
    }
}
