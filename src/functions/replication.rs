//! Whether an ID is of this server's own worker: the condition of the trigger in `sql/replication.sql`.

use super::reading;
use crate::generator;
use pgrx::prelude::*;

// VOLATILE, because a lease can end within a statement.
#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_is_own(id bigint) RETURNS boolean
    VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_is_own(id: i64) -> bool {
    reading::layout().unpack(id).is_some_and(|parts| generator::is_own(&parts))
}
