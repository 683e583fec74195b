//! What the extension's SQL calls: layouts as texts for `sql/layout.sql`, and support for the errors of conversions and
//! registries, which `sql/internal.sql` declares.

use super::text::GivenText;
use crate::messages::reading;
use crate::postgres::time::clock_us;
use crate::session::layout_guard;
use pgrx::prelude::*;
use snowflake_core::Layout;

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.server_layout() RETURNS text
    STABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn server_layout() -> String {
    layout_guard::usable_settings().unwrap_or_else(|error| error.raise()).layout.to_string()
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_lowest_id(layout text) RETURNS bigint
    STABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_lowest_id(layout: GivenText<'_>) -> i64 {
    let parsed = layout.read().ok().and_then(|text| text.parse::<Layout>().ok());
    let parsed = parsed.unwrap_or_else(|| reading::not_a_recorded_layout(&layout.quote()).raise());
    parsed.lowest_id_at(clock_us(libc::CLOCK_REALTIME))
}

/// Removes CONTEXT from the error that PL/pgSQL raises next: it would have a line for each function of the extension that
/// is being executed, which hide the hint. Call it in an assignment: PL/pgSQL restores the stack after any other statement.
#[pg_extern(sql = false)]
fn snowflake_drop_context() -> bool {
    // SAFETY: only an error reads the stack. Code that catches one first restores its own stack, and a function that pushed
    // an entry does at its end.
    unsafe { pg_sys::error_context_stack = std::ptr::null_mut() };
    true
}
