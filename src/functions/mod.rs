//! SQL arguments in, core calls, SQL values out: a file per purpose.

mod calling;
mod copying;
mod foreign;
mod importing;
mod making;
mod portable;
mod readers;
mod reading;
mod registry;
mod row;
mod supporting;
mod text;
mod watching;

use pgrx::prelude::*;

/// Declares how PostgreSQL calls a function without pgrx's wrapper, as PG_FUNCTION_INFO_V1 does in C.
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

/// Defines an SQL function that reads a field. A report calls it for every row and field, and pgrx's wrapper costs more
/// than the arithmetic, so it is used only to raise an error or to call PostgreSQL.
macro_rules! hot_reader {
    ($hot:ident, $finfo:ident, $wrapper:ident, $try_read:ident, $field:ident) => {
        /// The C function behind the SQL function of this name.
        ///
        /// # Safety
        /// Only PostgreSQL may call it, with the arguments that the SQL declares.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $hot(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
            // SAFETY: the SQL declares STRICT and the arguments that are read.
            match unsafe { $try_read(call, $field) }.map(IntoDatum::into_datum) {
                Some(Some(value)) => value,
                Some(None) => {
                    // SAFETY: the call is PostgreSQL's, which looks here for a null result.
                    unsafe { (*call).isnull = true };
                    pg_sys::Datum::null()
                }
                None => {
                    // Not inlined: the path above would have to set up its stack, too.
                    #[cold]
                    #[inline(never)]
                    unsafe fn slow_path(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
                        // SAFETY: the call is PostgreSQL's, passed on.
                        unsafe { $wrapper(call) }
                    }
                    // SAFETY: as above.
                    unsafe { slow_path(call) }
                }
            }
        }

        function_info!($finfo);
    };
}
use hot_reader;

// If there is a schema of this name, it may be another role's, and this fails.
extension_sql!("CREATE SCHEMA snowflake_internal;", name = "internal", bootstrap);
// In a chain: pgrx orders independent parts at random, and each build of a package must be the same.
extension_sql_file!(
    "../../sql/layout.sql",
    name = "layout",
    requires = ["reading", server_layout, snowflake_lowest_id]
);
extension_sql_file!(
    "../../sql/replication.sql",
    name = "replication",
    requires = ["layout", snowflake_is_own]
);
extension_sql_file!(
    "../../sql/convert_keys.sql",
    name = "convert_keys",
    requires = ["importing", snowflake_nextval, snowflake_min]
);
extension_sql_file!(
    "../../sql/convert_dependents.sql",
    name = "convert_dependents",
    requires = ["convert_keys"]
);
extension_sql_file!(
    "../../sql/convert_report.sql",
    name = "convert_report",
    requires = ["convert_dependents"]
);
extension_sql_file!("../../sql/convert.sql", name = "convert", requires = ["convert_report"]);
extension_sql_file! {
    "../../sql/internal.sql",
    name = "internal_functions",
    requires = ["registry_nodes"]
}
extension_sql_file!("../../sql/watching.sql", finalize);
