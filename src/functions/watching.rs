//! The functions behind the views, and this server's layout.

use super::row::record;
use crate::postgres::display::os_error;
use crate::postgres::time::{clock_us, timestamp};
use crate::postgres::wakeup::{self, BackgroundProcess};
use crate::session::generator;
use crate::settings;
use crate::shmem;
use crate::shmem::contact_status::{self, ContactStatus, Outcome};

use pgrx::iter::TableIterator;
use pgrx::prelude::*;

// The row types have names, because psql would show their columns in one line of 700 characters.
extension_sql!(
    r#"
CREATE TYPE snowflake_internal.snowflake_status_fields AS (
    state               text,
    reason              text,
    worker_id           integer,
    home_worker_id      integer,
    lane                integer,
    last_id_at          timestamptz,
    ahead_ms            bigint,
    reserved_until      timestamptz,
    issued              bigint,
    waits               bigint,
    wait_ms             bigint,
    rollbacks           bigint,
    largest_rollback_ms bigint,
    forward_jumps       bigint,
    rotations           bigint,
    refusals            bigint,
    layout              text,
    epoch               timestamptz,
    expires_at          timestamptz,
    keeper_pid          integer,
    write_error         text,
    stats_reset         timestamptz,
    node_name           text,
    registry_state      text,
    granted_until       timestamptz,
    last_contact_at     timestamptz,
    registry_error      text
);

CREATE TYPE snowflake_internal.snowflake_workers_fields AS (
    lane      integer,
    worker_id integer,
    active    boolean,
    usable_at timestamptz,
    mark      timestamptz,
    issued    bigint
);
"#,
    name = "row_types",
    // See the chain in `functions/mod.rs`.
    requires = ["snowflake_base62"]
);

#[pg_extern(
    requires = ["row_types"],
    sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_status_row() RETURNS snowflake_internal.snowflake_status_fields
    VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#
)]
fn snowflake_status_row(call: pg_sys::FunctionCallInfo) -> pgrx::composite_type!('static, "record") {
    let generator = shmem::generator();
    let (state, reason) = generator::state();
    let status = generator.map(|generator| generator.status());

    let layout = settings::layout();
    let member = Member::now();
    let count = |counter: u64| counter as i64;
    let millis = |micros: i64| micros / 1_000;
    let row = [
        state.to_owned().into_datum(),
        reason.into_datum(),
        status.filter(|s| s.home.is_some()).map(|s| s.worker as i32).into_datum(),
        status.and_then(|s| s.home).or_else(settings::configured_home).map(|home| home as i32).into_datum(),
        status.map(|s| s.lane as i32).into_datum(),
        status.and_then(|s| s.last_id_at_us).map(timestamp).into_datum(),
        status.map(|s| millis(s.ahead_us)).into_datum(),
        status.and_then(|s| s.reserved_until_us).map(timestamp).into_datum(),
        status.map(|s| count(s.issued)).into_datum(),
        status.map(|s| count(s.counts.waits)).into_datum(),
        status.map(|s| millis(count(s.counts.wait_us))).into_datum(),
        status.map(|s| count(s.steps.rollbacks)).into_datum(),
        status.map(|s| millis(s.steps.largest_rollback_us)).into_datum(),
        status.map(|s| count(s.steps.forward_jumps)).into_datum(),
        status.map(|s| count(s.counts.rotations)).into_datum(),
        status.map(|s| count(s.counts.refusals)).into_datum(),
        layout.map(|layout| layout.bits().to_string()).into_datum(),
        layout.map(|layout| timestamp(layout.epoch_us())).into_datum(),
        layout.map(|layout| timestamp(layout.ends_at_us())).into_datum(),
        wakeup::pid_of(BackgroundProcess::Keeper).into_datum(),
        status.and_then(|s| s.write_error).map(os_error).into_datum(),
        status.map(|s| timestamp(s.counts.since_us)).into_datum(),
        member.as_ref().map(|_| settings::node_name()).into_datum(),
        member.as_ref().map(|m| m.state).into_datum(),
        member.as_ref().and_then(|m| m.granted_until_us).map(timestamp).into_datum(),
        member.as_ref().and_then(|m| m.status.answered_at_us()).map(timestamp).into_datum(),
        member.as_ref().and_then(|m| m.status.failure()).map(|why| why.error).into_datum(),
    ];
    // SAFETY: PostgreSQL's own pointer to this call; the type above has these columns.
    unsafe { record(call, row) }
}

/// This server as a node of a fleet with a registry.
struct Member {
    state: &'static str,
    granted_until_us: Option<i64>,
    status: ContactStatus,
}

impl Member {
    fn now() -> Option<Self> {
        settings::has_registry().then_some(())?;
        let granted_until_us =
            shmem::generator().and_then(|generator| generator.lease_end()).map(|(_, end)| end);
        let status = contact_status::get();
        let state = match (granted_until_us, status.last) {
            (Some(end_us), _) if end_us <= clock_us(libc::CLOCK_REALTIME) => "ended",
            (_, Outcome::None | Outcome::Failed) => "away",
            (None, _) => "lost",
            (Some(_), Outcome::Refused) => "away",
            (Some(_), Outcome::Granted) => "granted",
        };
        Some(Self { state, granted_until_us, status })
    }
}

#[pg_extern(
    requires = ["row_types"],
    sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_workers_rows() RETURNS SETOF snowflake_internal.snowflake_workers_fields
    VOLATILE STRICT PARALLEL SAFE ROWS 8 LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#
)]
#[allow(clippy::type_complexity, reason = "a view's columns")]
fn snowflake_workers_rows() -> TableIterator<
    'static,
    (
        name!(lane, i32),
        name!(worker_id, i32),
        name!(active, bool),
        name!(usable_at, Option<TimestampWithTimeZone>),
        name!(mark, Option<TimestampWithTimeZone>),
        name!(issued, i64),
    ),
> {
    generator::state();
    let lanes = shmem::generator().map(|generator| generator.lane_statuses()).unwrap_or_default();
    TableIterator::new(lanes.into_iter().map(|lane| {
        (
            lane.lane as i32,
            lane.worker as i32,
            lane.active,
            lane.usable_at_us.map(timestamp),
            lane.mark_us.map(timestamp),
            lane.issued as i64,
        )
    }))
}

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_server_layout(OUT layout text, OUT tick_ms integer, OUT epoch timestamptz)
    STABLE PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_server_layout(call: pg_sys::FunctionCallInfo) -> pgrx::composite_type!('static, "record") {
    let layout = settings::layout();
    let bits = layout.map(|layout| layout.bits().to_string());
    let tick_ms = layout.map(|layout| layout.tick().millis() as i32);
    let epoch = layout.map(|layout| timestamp(layout.epoch_us()));
    // SAFETY: PostgreSQL's own pointer to this call; the SQL above declares text, an integer and a timestamptz.
    unsafe { record(call, [bits.into_datum(), tick_ms.into_datum(), epoch.into_datum()]) }
}
