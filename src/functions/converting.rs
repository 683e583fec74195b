//! The error of a conversion. All else is in `sql/convert*.sql` and `sql/revert.sql`.

use crate::messages::conversion;
use pgrx::prelude::*;

/// PL/pgSQL's RAISE would add a line of CONTEXT for each function of the extension that is being executed, and the
/// user would read these instead of the hint. Without a code it raises nothing, so that a query may have found none.
#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_raise(code text, message text, detail text, hint text) RETURNS void
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_raise(
    code: Option<&str>,
    message: Option<String>,
    detail: Option<String>,
    hint: Option<String>,
) {
    let Some(code) = code else { return };
    let [message, detail, hint] = [message, detail, hint].map(Option::unwrap_or_default);
    // SAFETY: only the error that follows reads the stack: whatever catches an error first restores its own.
    unsafe { pg_sys::error_context_stack = std::ptr::null_mut() };
    conversion::refused(code, message, detail, hint).raise()
}
