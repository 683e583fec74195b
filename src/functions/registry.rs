//! The library's part of the registry: the rules of a layout. It must work without preloading, so it reads no setting.

use super::row::record;
use super::text::GivenText;
use crate::messages::reading;
use crate::settings::{LAYOUT_HINT, TICK_HINT, TICKS, too_few_workers};
use pgrx::prelude::*;
use snowflake_core::workers::WorkersError;
use snowflake_core::{Bits, Layout, Tick, Workers};

extension_sql_file!(
    "../../sql/registry.sql",
    name = "registry",
    requires = ["convert", snowflake_fleet_layout]
);
extension_sql_file!("../../sql/registry_nodes.sql", name = "registry_nodes", requires = ["registry"]);

/// The layout of a fleet; or the problem, with a hint.
fn fleet_layout(given: GivenText<'_>, tick_ms: i32, backups: i32) -> Result<Layout, (String, &'static str)> {
    let text = given.read().map_err(|problem| (problem, LAYOUT_HINT))?;
    let bits = text.parse::<Bits>().map_err(|problem| (problem.to_string(), LAYOUT_HINT))?;
    let tick = Tick::from_millis(tick_ms.into()).ok_or((TICKS.to_owned(), TICK_HINT))?;
    let layout = Layout::new(bits, tick, 0).map_err(|problem| (problem.to_string(), LAYOUT_HINT))?;
    match Workers::new(&layout, 0, backups.max(0) as usize) {
        Err(WorkersError::TooManyLanes(workers)) => Err((
            too_few_workers(bits, workers, backups),
            "Use a layout with more worker bits, or fewer backup_workers.",
        )),
        _ => Ok(layout),
    }
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_fleet_layout(layout text, tick_ms integer, backup_workers integer,
        OUT bits text, OUT time_bits integer, OUT datacenter_bits integer, OUT worker_bits integer,
        OUT sequence_bits integer)
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_fleet_layout(
    layout: GivenText<'_>,
    tick_ms: i32,
    backup_workers: i32,
    call: pg_sys::FunctionCallInfo,
) -> pgrx::composite_type!('static, "record") {
    let bits = fleet_layout(layout, tick_ms, backup_workers)
        .unwrap_or_else(|(problem, hint)| {
            reading::not_a_fleets_layout(&layout.quote(), problem, hint).raise()
        })
        .bits();
    let width = |bits: u32| (bits as i32).into_datum();
    let row = [
        bits.to_string().into_datum(),
        width(bits.time),
        width(bits.datacenter),
        width(bits.worker),
        width(bits.sequence),
    ];
    // SAFETY: PostgreSQL's own pointer to this call; the SQL above declares a text and four integers.
    unsafe { record(call, row) }
}
