//! The bound for readers that poll.

use super::row::record;
use crate::generator;
use pgrx::prelude::*;

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_horizon(OUT horizon bigint, OUT breaks bigint, OUT since bigint)
    VOLATILE STRICT PARALLEL RESTRICTED LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_horizon(call: pg_sys::FunctionCallInfo) -> pgrx::composite_type!('static, "record") {
    let found = generator::horizon();
    let values = [found.id, found.breaks, found.since].map(IntoDatum::into_datum);
    // SAFETY: PostgreSQL's own pointer to this call; the SQL above declares three bigints.
    unsafe { record(call, values) }
}
