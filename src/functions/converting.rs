//! What the errors of conversions and registries need from Rust. All else is in `sql/`.

use pgrx::prelude::*;

/// Without this, the error that PL/pgSQL raises next would have a line of CONTEXT for each function of the extension that is
/// being executed, and the user would read these instead of the hint. To be called by an assignment: PL/pgSQL restores the
/// stack after any other statement.
#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_drop_context() RETURNS boolean
    VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_drop_context() -> bool {
    // SAFETY: only an error reads the stack, and whatever catches one first restores its own, as each function that added
    // to the stack does at its end.
    unsafe { pg_sys::error_context_stack = std::ptr::null_mut() };
    true
}
