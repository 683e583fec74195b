//! Conversion between PostgreSQL's times and Unix times.

use pgrx::prelude::*;

/// PostgreSQL counts time from 2000-01-01, Unix from 1970-01-01: the difference in microseconds.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

/// Converts a Unix time in microseconds to PostgreSQL's time.
pub fn to_postgres(unix_us: i64) -> pg_sys::TimestampTz {
    unix_us.saturating_sub(POSTGRES_EPOCH_US)
}

/// Converts PostgreSQL's time to a Unix time in microseconds.
pub fn from_postgres(time: pg_sys::TimestampTz) -> i64 {
    time.saturating_add(POSTGRES_EPOCH_US)
}

/// Converts a Unix time in microseconds to an SQL value.
pub fn timestamp(unix_us: i64) -> TimestampWithTimeZone {
    // A layout reaches at most 146,000 years past its epoch, a timestamp 292,000.
    TimestampWithTimeZone::try_from(to_postgres(unix_us)).expect("a layout ends before timestamps do")
}

/// A clock of the system in microseconds, read through libc so that a test can replace it.
#[inline]
pub fn clock_us(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid, and these clocks exist on every Linux that PostgreSQL 15 runs on.
    unsafe { libc::clock_gettime(clock, &mut time) };
    // Nanoseconds fit 32 bits, and a 32-bit division takes half as long.
    time.tv_sec * 1_000_000 + i64::from(time.tv_nsec as u32 / 1_000)
}
