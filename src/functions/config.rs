//! The trigger of `snowflake_config`, whose SQL is in `sql/config.sql`.

use super::function_info;
use pgrx::is_a;
use pgrx::prelude::*;

/// The C function behind the SQL function of this name: sends a relcache invalidation of the trigger's table, as ALTER
/// TABLE does, so that all sessions compare their layout with its row again.
///
/// # Safety
/// Only PostgreSQL may call it.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_config_changed(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the call is PostgreSQL's, which keeps its trigger and the table open until it returns.
    unsafe {
        let context = (*call).context;
        if !context.is_null() && is_a(context, pg_sys::NodeTag::T_TriggerData) {
            pg_sys::CacheInvalidateRelcache((*context.cast::<pg_sys::TriggerData>()).tg_relation);
        }
    }
    // The result of an AFTER trigger is ignored.
    pg_sys::Datum::null()
}
function_info!(pg_finfo_snowflake_config_changed);
