//! The generator for servers without the library: statements that create it in PL/pgSQL. The head of `portable.sql`
//! explains why its IDs are unique.

use super::readers::{apply, fill, numbers, portable_readers, utc};
use super::text::GivenText;
use crate::messages::{gate, reading};
use crate::postgres::time::from_postgres;
use crate::settings::{self, EPOCH_HINT, LAYOUT_HINT, TICK_HINT, TICKS};
use pgrx::prelude::*;
use snowflake_core::foreign::{ForeignLayout, PRESETS};
use snowflake_core::layout::is_epoch;
use snowflake_core::{Bits, Layout, Limits, Tick, Workers};
use std::ffi::CStr;

/// The statements, with placeholders for the layout's numbers, worker and schema.
const TEMPLATE: &str = include_str!("portable.sql");
/// Placeholder in the script of an extension, which `CREATE EXTENSION` replaces by the schema's name.
const EXTENSION_SCHEMA: &str = "@extschema@";
/// Counts above a full tick: for concurrent calls that all found room in it, and for crashes, each of which skips up to 32.
const SPARE_COUNTS: i64 = 1 << 16;

#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_generator_sql(worker integer, schema name DEFAULT NULL, layout text DEFAULT NULL,
        tick interval DEFAULT NULL, epoch timestamptz DEFAULT NULL) RETURNS text
    STABLE CALLED ON NULL INPUT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
COMMENT ON FUNCTION snowflake_generator_sql(integer, name, text, interval, timestamptz) IS
    'returns statements that create a generator of snowflake IDs in PL/pgSQL, for a server without the extension';
"#)]
fn snowflake_generator_sql(
    worker: Option<i32>,
    schema: Option<&CStr>,
    layout: Option<GivenText<'_>>,
    tick: Option<Interval>,
    epoch: Option<TimestampWithTimeZone>,
    call: pg_sys::FunctionCallInfo,
) -> Option<Vec<u8>> {
    let worker = worker?;
    let schema = schema.map_or_else(|| own_schema(call), bytes_as_chars);
    let layout = chosen_layout(layout, tick, epoch);
    let highest = layout.workers() - 1;
    if !(0..=highest).contains(&worker.into()) {
        reading::field_outside("worker", worker, highest, &layout).raise();
    }
    Some(chars_as_bytes(&statements(&layout, worker.into(), &schema)))
}

/// A name in the database's encoding, as a text with a character per byte. No server encoding uses ASCII bytes otherwise.
fn bytes_as_chars(name: &CStr) -> String {
    name.to_bytes().iter().copied().map(char::from).collect()
}

/// The bytes of such a text: all of it but the name is ASCII.
fn chars_as_bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(c).expect("a character for each byte")).collect()
}

fn invalid(layout: &str, problem: String, hint: &'static str) -> ! {
    reading::not_a_fleets_layout(layout, problem, hint).raise()
}

/// The given layout, or this server's where nothing is given.
fn chosen_layout(
    layout: Option<GivenText<'_>>,
    tick: Option<Interval>,
    epoch: Option<TimestampWithTimeZone>,
) -> Layout {
    let own = settings::layout().unwrap_or_default();
    if let Some(bad) = settings::bad_value_of(&settings::LAYOUT_NAMES) {
        gate::bad_value(bad).raise();
    }
    let bits = layout.map_or(own.bits(), |given| {
        let bits = given.read().and_then(|text| text.parse::<Bits>().map_err(|problem| problem.to_string()));
        bits.unwrap_or_else(|problem| invalid(&given.quote(), problem, LAYOUT_HINT))
    });
    let tick = tick.map_or(own.tick(), |tick| {
        let is_time = tick.months() == 0 && tick.days() == 0 && tick.micros() % 1_000 == 0;
        let tick = is_time.then(|| Tick::from_millis(tick.micros() / 1_000)).flatten();
        tick.unwrap_or_else(|| invalid(&bits.to_string(), TICKS.to_owned(), TICK_HINT))
    });
    let epoch_us = epoch.map_or(own.epoch_us(), |epoch| {
        let epoch_us = from_postgres(epoch.into());
        if !is_epoch(epoch_us) {
            invalid(&bits.to_string(), "The epoch is not in the years 1 to 9999.".to_owned(), EPOCH_HINT);
        }
        epoch_us
    });
    let layout = Layout::new(bits, tick, epoch_us)
        .unwrap_or_else(|problem| invalid(&bits.to_string(), problem.to_string(), LAYOUT_HINT));
    let counts = 1_i64 << (63 - bits.time);
    if counts - layout.sequences() < SPARE_COUNTS {
        invalid(
            &bits.to_string(),
            format!(
                "The generator keeps the time and a count in a sequence of 63 bits. The count has {} bits, and must \
                 exceed the {} IDs of a tick by {SPARE_COUNTS}.",
                63 - bits.time,
                layout.sequences()
            ),
            "Use a layout with fewer bits for time or sequence.",
        );
    }
    layout
}

/// The workers of this server, which are those of a fleet with its layout. For another layout, by default.
fn workers_of(layout: &Layout) -> Workers {
    let own = settings::get().filter(|settings| settings.layout == *layout).map(|settings| settings.workers);
    let by_default = [3, 0].into_iter().find_map(|backups| Workers::new(layout, 0, backups).ok());
    own.or(by_default).expect("a layout has at least one worker")
}

/// The schema of this function, and so of the extension.
fn own_schema(call: pg_sys::FunctionCallInfo) -> String {
    // SAFETY: PostgreSQL's own pointer to this call, and names that it has allocated.
    unsafe {
        let function = (*(*call).flinfo).fn_oid;
        let name = pg_sys::get_namespace_name(pg_sys::get_func_namespace(function));
        bytes_as_chars(CStr::from_ptr(name))
    }
}

/// Placeholder for a brace in the schema's name, which has no such byte.
const BRACE: &str = "\0";

fn statements(layout: &Layout, worker: i64, schema: &str) -> String {
    let bits = layout.bits();
    let (time_bits, sequences) = (bits.time, layout.sequences());
    let is_extension = schema == EXTENSION_SCHEMA;
    let quoted = if is_extension {
        schema.to_owned()
    } else {
        format!("\"{}\"", schema.replace('"', "\"\"").replace('{', BRACE))
    };
    let dotted = "{s}";
    let in_literal = |text: &str| text.replace('\'', "''");
    let time_mask = (1_i64 << time_bits) - 1;
    let clock = "(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) \
                 '1e6'::double precision)::bigint";
    let clock = format!("({})", apply(clock, "-", format!("({})", layout.epoch_us())));
    let datacenter = settings::get().map_or(0, |settings| settings.datacenter) & (layout.datacenters() - 1);
    let node = apply(datacenter << bits.worker, "|", format!("{dotted}snowflake_generator_worker()"));
    let node_of_id = apply(format!("({node})"), "<<", bits.sequence);
    let tick_of_state = format!("({})", apply("state", "&", time_mask));
    let shift = bits.datacenter + bits.worker + bits.sequence;
    let time_of_id = format!("({})", apply(&tick_of_state, "<<", shift));
    let sequence_of_id = format!("({})", apply("state", ">>", time_bits));
    let id_of_state = apply(apply(time_of_id, "|", format!("({node_of_id})")), "|", sequence_of_id);
    let limits = Limits::default();
    let own = [
        ("{keep_state}", if is_extension { keep_state() } else { String::new() }),
        ("{readers}", portable_readers(dotted)),
        ("{id_of_state}", id_of_state),
        ("{tick_of_state}", tick_of_state),
        ("{own_worker}", worker.to_string()),
        ("{tick_ms}", layout.tick().millis().to_string()),
        ("{clock}", clock),
        ("{time_bits}", time_bits.to_string()),
        ("{time_mask}", time_mask.to_string()),
        ("{step}", (1_i64 << time_bits).to_string()),
        ("{full}", (sequences << time_bits).to_string()),
        ("{max_tick}", layout.max_tick().to_string()),
        ("{max_ahead_us}", limits.max_ahead_us.to_string()),
        ("{patience_us}", limits.max_wait_us.max(layout.tick().micros()).to_string()),
        ("{time_of_tick}", format!("{dotted}snowflake_timestamp({})", apply("s.tick", "<<", shift))),
        ("{last_worker}", (layout.workers() - 1).to_string()),
        ("{last_sequence}", (sequences - 1).to_string()),
        ("{datacenter_id}", datacenter.to_string()),
        ("{worker_bits}", bits.worker.to_string()),
        ("{sequence_bits}", bits.sequence.to_string()),
        ("{presets}", presets()),
    ];
    let mut text = fill(&fill(TEMPLATE, &own), &numbers(layout, Some(workers_of(layout))));
    // The schema's name is inserted last. It must not end the quotation of a body, nor contain a placeholder.
    if schema.contains('$') {
        let quotation = format!("${}$", "_".repeat(schema.len()));
        text = text.replace("$$", &quotation).replace("$do$", &quotation);
    }
    let create_schema =
        if is_extension { String::new() } else { format!("CREATE SCHEMA IF NOT EXISTS {quoted};\n") };
    let names = [
        ("{create_schema}", create_schema),
        ("{s_literal}", in_literal(&format!("{quoted}."))),
        ("{schema_name}", format!("'{}'", in_literal(&quoted))),
        ("{s}", format!("{quoted}.")),
    ];
    fill(&text, &names).replace(BRACE, "{")
}

/// pg_dump dumps the rows of an extension's tables and sequences only if its script names them.
fn keep_state() -> String {
    format!("SELECT pg_catalog.pg_extension_config_dump('{EXTENSION_SCHEMA}.snowflake_state', '');")
}

fn presets() -> String {
    let row = |preset: &snowflake_core::foreign::Preset| {
        let layout = ForeignLayout::find(preset.name).expect("a test reads every preset");
        let end = utc(layout.ends_at_us());
        let note = preset.note.replace('\'', "''");
        format!("    ('{}', '{}', timestamp with time zone '{end}+00', '{note}')", preset.name, preset.layout)
    };
    PRESETS.iter().map(row).collect::<Vec<_>>().join(",\n")
}
