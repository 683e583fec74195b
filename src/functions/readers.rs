//! Readers of this server's layout in plain SQL, for servers without the extension.

use super::reading::layout;
use crate::time::timestamp;
use pgrx::prelude::*;
use snowflake_core::Layout;
use std::fmt::Display;

/// The statements, with the layout's numbers left open.
const TEMPLATE: &str = include_str!("readers.sql");

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_reader_sql() RETURNS text
    STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_reader_sql() IS
    'returns statements that create readers of this server''s IDs in plain SQL, for a server without the extension';
"#)]
fn snowflake_reader_sql() -> String {
    statements(layout())
}

fn statements(layout: &Layout) -> String {
    let (bits, tick) = (layout.bits(), layout.tick());
    let shift = bits.datacenter + bits.worker + bits.sequence;
    let last_id = layout.highest_id(layout.max_tick());
    let is_id = format!("{} AND {}", apply("id", ">=", 0), apply("id", "<=", last_id));
    let field = |shift: u32, width: u32| format!("({})::integer", masked(shift, width));
    let datacenter = match bits.datacenter {
        0 => "NULL::integer".to_owned(),
        width => field(bits.worker + bits.sequence, width),
    };
    [
        ("{layout}", bits.to_string()),
        ("{tick}", tick.to_string()),
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
        ("{below_time}", mask(shift).to_string()),
        ("{ticks_of_ts}", ticks_of_ts(layout)),
        ("{shift}", shift.to_string()),
    ]
    .iter()
    .fold(TEMPLATE.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// An operator of PostgreSQL's own, whatever else the `search_path` has under its name.
fn apply(left: impl Display, operator: &str, right: impl Display) -> String {
    format!("{left} OPERATOR(pg_catalog.{operator}) {right}")
}

const fn mask(width: u32) -> i64 {
    (1 << width) - 1
}

/// A field of an ID, which has so many bits below it.
fn masked(shift: u32, width: u32) -> String {
    let shifted = if shift == 0 { "id".to_owned() } else { format!("({})", apply("id", ">>", shift)) };
    apply(shifted, "&", mask(width))
}

/// The ticks from the epoch to a time, with a fraction.
fn ticks_of_ts(layout: &Layout) -> String {
    // PostgreSQL returns the seconds since 1970 as an exact number of six decimals.
    let (seconds, micros) =
        (layout.epoch_us().div_euclid(1_000_000), layout.epoch_us().rem_euclid(1_000_000));
    let mut since = apply("extract(epoch FROM ts AT TIME ZONE 'UTC')", "-", format!("({seconds})"));
    if micros != 0 {
        since = apply(since, "-", format!("0.{micros:06}"));
    }
    apply(format!("({since})"), "*", 1_000_000 / layout.tick().micros())
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
fn utc(unix_us: i64) -> String {
    timestamp(unix_us).to_utc().to_iso_string().replace('T', " ")
}
