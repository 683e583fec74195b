//! Readers of this server's layout in plain SQL, for servers without the extension.

use super::reading::layout;
use crate::time::timestamp;
use pgrx::prelude::*;
use snowflake_core::Layout;

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
    let (last_id, mask) = (layout.highest_id(layout.max_tick()), |width: u32| (1_i64 << width) - 1);
    let datacenter = match bits.datacenter {
        0 => "NULL::integer".to_owned(),
        width => format!("(id >> {} & {})::integer", bits.worker + bits.sequence, mask(width)),
    };
    // PostgreSQL returns the seconds since 1970 as an exact number of six decimals.
    let (seconds, micros) =
        (layout.epoch_us().div_euclid(1_000_000), layout.epoch_us().rem_euclid(1_000_000));
    let fraction = if micros == 0 { String::new() } else { format!(" - 0.{micros:06}") };
    let ticks_of_ts = format!(
        "(extract(epoch FROM ts AT TIME ZONE 'UTC') - {seconds}{fraction}) * {}",
        1_000_000 / tick.micros(),
    );
    [
        ("{layout}", bits.to_string()),
        ("{tick}", tick.to_string()),
        ("{epoch}", utc(layout.epoch_us())),
        ("{end}", utc(layout.ends_at_us())),
        ("{last_tick}", utc(layout.starts_at(layout.max_tick()))),
        ("{last_id}", last_id.to_string()),
        ("{beyond}", last_id.saturating_add(1).to_string()),
        ("{time}", time(layout, shift)),
        ("{datacenter}", datacenter),
        ("{sequence_bits}", bits.sequence.to_string()),
        ("{worker_mask}", mask(bits.worker).to_string()),
        ("{sequence_mask}", mask(bits.sequence).to_string()),
        ("{below_time}", mask(shift).to_string()),
        ("{ticks_of_ts}", ticks_of_ts),
        ("{shift}", shift.to_string()),
    ]
    .iter()
    .fold(TEMPLATE.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// The time of an ID since the epoch. PostgreSQL multiplies an interval by a floating-point number of 53 bits, in
/// microseconds; a product with more than these, without the zeros at its end, comes in two parts.
fn time(layout: &Layout, shift: u32) -> String {
    const LOW_BITS: u32 = 20;
    let micros = layout.tick().micros();
    let needed = layout.bits().time + i64::BITS - (micros >> micros.trailing_zeros()).leading_zeros();
    if needed <= f64::MANTISSA_DIGITS {
        return format!("(id >> {shift}) * interval '{micros} microseconds'");
    }
    format!(
        "(id >> {}) * interval '{} microseconds' + (id >> {shift} & {}) * interval '{micros} microseconds'",
        shift + LOW_BITS,
        micros << LOW_BITS,
        (1 << LOW_BITS) - 1,
    )
}

/// A Unix time (µs) in UTC.
fn utc(unix_us: i64) -> String {
    timestamp(unix_us).to_utc().to_iso_string().replace('T', " ")
}
