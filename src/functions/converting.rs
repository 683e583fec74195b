//! Support for the errors that SQL raises: those of conversions and registries. `sql/internal.sql` declares the function.

use pgrx::prelude::*;

/// Removes CONTEXT from the error that PL/pgSQL raises next: it would have a line for each function of the extension that
/// is being executed, which hide the hint. Call it in an assignment: PL/pgSQL restores the stack after any other statement.
#[pg_extern(sql = false)]
fn snowflake_drop_context() -> bool {
    // SAFETY: only an error reads the stack. Code that catches one first restores its own stack, and a function that pushed
    // an entry does at its end.
    unsafe { pg_sys::error_context_stack = std::ptr::null_mut() };
    true
}
