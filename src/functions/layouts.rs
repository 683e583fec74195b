//! Layouts as texts, for `sql/layout.sql`.

use super::text::GivenText;
use crate::layout_guard;
use crate::messages::reading;
use crate::time::clock_us;
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
