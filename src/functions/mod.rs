//! SQL arguments in, core calls, SQL values out. A file per purpose; comments and grants are in `sql/`.

mod administering;
mod foreign;
mod making;
mod reading;
mod row;
mod watching;

use crate::time::to_postgres;
use pgrx::prelude::*;

/// Tells PostgreSQL how a function without pgrx's wrapper is called, as PG_FUNCTION_INFO_V1 does in C.
macro_rules! function_info {
    ($name:ident) => {
        #[doc(hidden)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> &'static ::pgrx::pg_sys::Pg_finfo_record {
            &::pgrx::pg_sys::Pg_finfo_record { api_version: 1 }
        }
    };
}
use function_info;

/// What a field of an ID is in SQL; `None` for null.
type Field = Option<pg_sys::Datum>;

fn timestamp_datum(unix_us: i64) -> pg_sys::Datum {
    pg_sys::Datum::from(to_postgres(unix_us))
}

fn integer_datum(value: i64) -> pg_sys::Datum {
    pg_sys::Datum::from(value as i32)
}

/// A function of SQL that reads a field, without pgrx's wrapper, which costs more than the arithmetic: a report
/// calls it once a row and field. The wrapper is needed only where an error is raised or PostgreSQL called.
macro_rules! hot_reader {
    ($hot:ident, $finfo:ident, $wrapper:ident, $try_read:ident, $field:expr) => {
        /// What the function of SQL of this name calls.
        ///
        /// # Safety
        /// To be called by PostgreSQL, with the arguments that its SQL declares.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $hot(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
            // SAFETY: the SQL declares the arguments that are read, and STRICT.
            match unsafe { $try_read(call, $field) } {
                Some(Some(value)) => value,
                Some(None) => {
                    // SAFETY: the call is PostgreSQL's, and this is where it looks for a null result.
                    unsafe { (*call).isnull = true };
                    pg_sys::Datum::null()
                }
                None => {
                    // SAFETY: the call is PostgreSQL's, handed on.
                    unsafe { $wrapper(call) }
                }
            }
        }

        function_info!($finfo);
    };
}
use hot_reader;

extension_sql_file!("../../sql/config.sql", requires = [snowflake_server_layout]);
extension_sql_file!("../../sql/layout.sql");
extension_sql_file!("../../sql/convert.sql", requires = [snowflake_nextval]);
extension_sql_file!("../../sql/watching.sql", finalize);
