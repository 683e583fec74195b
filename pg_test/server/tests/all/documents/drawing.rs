//! The picture of an ID in README and manual, drawn from the defaults of a server.

use super::pages::root;
use snowflake_core::{Bits, Layout, Tick, Workers};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::one;
use std::fs;

const TEMPLATE: &str = include_str!("drawing.svg");

/// The ID that the picture takes apart.
const EXAMPLE: i64 = 362_388_381_519_879;

/// A number with commas between its thousands.
fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).expect("digits")).collect();
    groups.join(",")
}

fn superscript(number: u32) -> String {
    let digits: Vec<char> = "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().collect();
    number.to_string().bytes().map(|digit| digits[usize::from(digit - b'0')]).collect()
}

#[test]
fn the_picture_of_an_id_is_drawn_from_the_defaults() {
    let server = Server::builder().setting("timezone", "UTC").start_with_extension();
    let mut session = server.connect();
    let mut text = |query: &str| one::<String>(&mut session, query);
    let mut default =
        |name: &str| text(&format!("SELECT boot_val FROM pg_settings WHERE name = 'snowflake_id.{name}'"));
    let (bits, backups) = (default("layout"), default("backup_workers"));
    let bits: Bits = bits.parse().expect("bits");
    let tick_ms = text("SELECT tick_ms::text FROM snowflake_server_layout()").parse().expect("a number");
    let tick = Tick::from_millis(tick_ms).expect("a tick");
    assert_eq!(bits.datacenter, 0, "the picture has no place for a datacenter");
    let epoch_us: i64 =
        text("SELECT (extract(epoch FROM epoch) * 1000000)::bigint::text FROM snowflake_status")
            .parse()
            .expect("a number");
    let layout = Layout::new(bits, tick, epoch_us).expect("a layout");
    let workers = Workers::new(&layout, 0, backups.parse().expect("a number")).expect("workers");
    let parts = layout.unpack(EXAMPLE).expect("an ID");
    let server = workers.owner(parts.worker).expect("a server").0;
    let values = [
        ("bits", bits.to_string()),
        ("time_bits", bits.time.to_string()),
        ("worker_bits", bits.worker.to_string()),
        ("sequence_bits", bits.sequence.to_string()),
        ("time_low", (bits.worker + bits.sequence).to_string()),
        ("worker_high", (bits.worker + bits.sequence - 1).to_string()),
        ("worker_low", bits.sequence.to_string()),
        ("sequence_high", (bits.sequence - 1).to_string()),
        ("time_shift", superscript(bits.worker + bits.sequence)),
        ("worker_shift", superscript(bits.sequence)),
        ("tick_ms", tick.millis().to_string()),
        ("epoch", text("SELECT to_char(epoch, 'YYYY-MM-DD HH24:MI') FROM snowflake_status")),
        ("end", text("SELECT to_char(expires_at, 'YYYY-MM-DD') FROM snowflake_status")),
        ("workers", grouped(layout.workers())),
        ("servers", grouped(workers.highest_home() + 1)),
        ("lanes", workers.lanes().to_string()),
        ("sequences", grouped(layout.sequences())),
        ("id", EXAMPLE.to_string()),
        ("tick", parts.tick.to_string()),
        (
            "created_at",
            text(&format!("SELECT to_char(snowflake_timestamp({EXAMPLE}), 'YYYY-MM-DD HH24:MI:SS.MS')")),
        ),
        ("worker", parts.worker.to_string()),
        ("server", server.to_string()),
        ("sequence", parts.sequence.to_string()),
    ];
    let drawn = values
        .iter()
        .fold(TEMPLATE.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value));
    let path = root().join("docs/layout.svg");
    if std::env::var_os("LAYOUT_ACCEPT").is_some() {
        fs::write(&path, &drawn).expect("the file can be written");
    }
    assert_eq!(
        fs::read_to_string(path).expect("the picture"),
        drawn,
        "LAYOUT_ACCEPT=1 writes docs/layout.svg"
    );
}
