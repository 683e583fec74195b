//! Readers of a layout in plain SQL, for servers without the extension.

use super::reading::layout;
use crate::postgres::time::timestamp;
use crate::session::layout_guard;
use pgrx::prelude::*;
use snowflake_core::{Layout, Workers};
use std::fmt::Display;

/// The readers, with placeholders for the layout's numbers, the schema, and what follows a value that is none.
const TEMPLATE: &str = include_str!("readers.sql");

const HEAD: &str = "\
-- Readers of snowflake IDs in the layout {layout}, tick {tick}, epoch {epoch} UTC.
-- Plain SQL for PostgreSQL 14 or later: the planner inlines it, and the server needs no extension.
-- For a number that is no ID of this layout, and for a time outside it, the result is null.
-- Operators are named with their schema, so that no other operator on the search_path can take their place.

";

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_reader_sql() RETURNS text
    STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_reader_sql() IS
    'returns statements that create readers of this server''s IDs in plain SQL, for a server without the extension';
"#)]
fn snowflake_reader_sql() -> String {
    // Without a usable `backup_workers`, no server owns a worker.
    let workers = layout_guard::for_owners().ok().map(|settings| settings.workers);
    let numbers = numbers(layout(), workers);
    // Bodies are bound when they are created, so their calls need no schema.
    let edition = [("{create}", "CREATE FUNCTION"), ("{s}", "")];
    let text = ["timestamp", "integer", "time"]
        .iter()
        .fold(TEMPLATE.to_owned(), |text, result| text.replace(&format!("\n        {{no_{result}}}"), ""));
    format!("{}{}", fill(HEAD, &numbers), fill(&fill(&text, &edition), &numbers))
}

/// The readers of the portable generator, with the errors of the extension's.
pub(super) fn portable_readers(schema: &str) -> String {
    let no_id = |result: &str| {
        format!(
            "WHEN id IS NOT NULL AND {schema}snowflake_error('22023',
            pg_catalog.format('%s is not a snowflake ID of layout {{layout}}', id),
            CASE WHEN id OPERATOR(pg_catalog.<) 0 THEN 'A snowflake ID is never negative.'
                ELSE 'It has bits above the layout''s time field.' END,
            'Check the source of the value. To read an ID of another system, call snowflake_decode(id, layout).')
            THEN NULL::{result}"
        )
    };
    let no_time = format!(
        "WHEN ts IS NOT NULL AND {schema}snowflake_error('22008', 'timestamp is out of range for layout {{layout}}',
            pg_catalog.format('The timestamp is %s. The layout starts at {{epoch}}+00 and ends before {{end}}+00.', ts),
            'To compare IDs with any timestamp, use snowflake_between.') THEN NULL::bigint"
    );
    let edition = [
        ("{create}", "CREATE OR REPLACE FUNCTION"),
        ("{s}", schema),
        ("{no_timestamp}", &no_id("timestamp with time zone")),
        ("{no_integer}", &no_id("integer")),
        ("{no_time}", &no_time),
    ];
    fill(TEMPLATE, &edition)
}

/// A template with these names replaced.
pub(super) fn fill<V: AsRef<str>>(template: &str, values: &[(&str, V)]) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| text.replace(name, value.as_ref()))
}

/// Layout and workers in a template.
pub(super) fn numbers(layout: &Layout, workers: Option<Workers>) -> Vec<(&'static str, String)> {
    let (bits, tick) = (layout.bits(), layout.tick());
    let shift = bits.datacenter + bits.worker + bits.sequence;
    let last_id = layout.highest_id(layout.max_tick());
    let is_id = format!("{} AND {}", apply("id", ">=", 0), apply("id", "<=", last_id));
    let (homes, lanes) = workers.map_or((1, 0), |workers| (workers.highest_home() + 1, workers.lanes()));
    let field = |shift: u32, width: u32| format!("({})::integer", masked(shift, width));
    let datacenter = match bits.datacenter {
        0 => "NULL::integer".to_owned(),
        width => field(bits.worker + bits.sequence, width),
    };
    vec![
        ("{layout}", bits.to_string()),
        ("{tick}", tick.to_string()),
        ("{tick_us}", tick.micros().to_string()),
        ("{last_us}", (tick.micros() - 1).to_string()),
        ("{epoch}", utc(layout.epoch_us())),
        ("{end}", utc(layout.ends_at_us())),
        ("{last_tick}", utc(layout.starts_at(layout.max_tick()))),
        ("{is_id}", is_id),
        ("{last_id}", last_id.to_string()),
        ("{beyond}", last_id.saturating_add(1).to_string()),
        ("{time}", time(layout, shift)),
        ("{datacenter}", datacenter),
        ("{worker}", field(bits.sequence, bits.worker)),
        ("{sequence}", field(0, bits.sequence)),
        ("{homes}", homes.to_string()),
        ("{owned}", (homes * lanes as i64).to_string()),
        ("{below_time}", mask(shift).to_string()),
        ("{us_of_ts}", us_of_ts(layout)),
        ("{shift}", shift.to_string()),
    ]
}

/// A call of PostgreSQL's operator, even if the `search_path` has another one of its name.
pub(super) fn apply(left: impl Display, operator: &str, right: impl Display) -> String {
    format!("{left} OPERATOR(pg_catalog.{operator}) {right}")
}

const fn mask(width: u32) -> i64 {
    (1 << width) - 1
}

/// A field of an ID, by its width and the number of bits below it.
fn masked(shift: u32, width: u32) -> String {
    let shifted = if shift == 0 { "id".to_owned() } else { format!("({})", apply("id", ">>", shift)) };
    apply(shifted, "&", mask(width))
}

/// The microseconds from the epoch to a time. PostgreSQL returns the seconds as an exact number with six decimals.
fn us_of_ts(layout: &Layout) -> String {
    let unix = format!("({})::bigint", apply("extract(epoch FROM ts AT TIME ZONE 'UTC')", "*", 1_000_000));
    format!("({})", apply(unix, "-", format!("({})", layout.epoch_us())))
}

/// The time of an ID since the epoch. PostgreSQL multiplies an interval by a floating-point number of 53 bits, in
/// microseconds; a product with more than these, without the zeros at its end, comes in two parts.
fn time(layout: &Layout, shift: u32) -> String {
    const LOW_BITS: u32 = 20;
    let micros = layout.tick().micros();
    let times =
        |ticks: String, micros: i64| apply(format!("({ticks})"), "*", format!("interval '{micros} us'"));
    let needed = layout.bits().time + i64::BITS - (micros >> micros.trailing_zeros()).leading_zeros();
    if needed <= f64::MANTISSA_DIGITS {
        return format!("({})", times(apply("id", ">>", shift), micros));
    }
    let high = times(apply("id", ">>", shift + LOW_BITS), micros << LOW_BITS);
    let low = times(masked(shift, LOW_BITS), micros);
    format!("({})", apply(format!("({high})"), "+", format!("({low})")))
}

/// A Unix time (µs) in UTC.
pub(super) fn utc(unix_us: i64) -> String {
    timestamp(unix_us).to_utc().to_iso_string().replace('T', " ")
}
