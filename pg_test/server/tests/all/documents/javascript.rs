//! IDs that JavaScript can represent: layouts of 53 bits, and how node reads their IDs.

use snowflake_server_tests::sql::{column, take};
use snowflake_server_tests::{Builder, Server, printed_by, read};
use std::process::Command;

/// Reads a JSON array of IDs as numbers, and a second one with the same IDs as texts; prints how many numbers are not
/// safe integers or differ from their texts.
const SCRIPT: &str = "
    const [numbers, texts] = JSON.parse(require('fs').readFileSync(0, 'utf8'));
    const wrong = numbers.filter((n, i) => !Number.isSafeInteger(n) || String(n) !== texts[i]
        || BigInt(n) !== BigInt(texts[i]));
    const unsorted = numbers.filter((n, i) => i > 0 && !(numbers[i - 1] < n));
    console.log(JSON.stringify([numbers.length, texts.length, wrong.length, unsorted.length]));
";

/// How many numbers and texts there are, how many numbers are wrong, and how many are not above the number before.
fn in_node(ids: &[i64]) -> [usize; 4] {
    let numbers: Vec<String> = ids.iter().map(i64::to_string).collect();
    let json = format!("[[{}],[\"{}\"]]", numbers.join(","), numbers.join("\",\""));
    let printed = printed_by(Command::new("node").args(["-e", SCRIPT]), &json);
    serde_json::from_str(&printed).expect("four counts")
}

fn with_layout(layout: &str, tick: &str) -> Builder {
    Server::builder()
        .setting("timezone", "UTC")
        .setting("snowflake_id.layout", layout)
        .setting("snowflake_id.tick", tick)
        .setting("snowflake_id.backup_workers", "3")
}

/// The layouts of docs/clients.md.
const SAFE: [(&str, &str); 3] = [("41/5/7", "1ms"), ("38/7/8", "10ms"), ("32/8/13", "1s")];

#[test]
fn a_number_holds_every_id_of_the_documented_layouts() {
    let page = read("docs/clients.md");
    for (layout, tick) in SAFE {
        assert!(page.contains(&format!("| `{layout}` | `{tick}` |")), "{layout} is not on the page");
        let server = with_layout(layout, tick).start_with_extension();
        let mut session = server.connect();
        let made = take(&mut session, 20_000);
        assert_eq!(in_node(&made), [20_000, 20_000, 0, 0], "{layout} {tick}");

        // From the first ID of the layout to its last, which is the last safe integer.
        let mut whole: Vec<i64> = column(
            &mut session,
            "SELECT unnest(ARRAY[snowflake_min(t), snowflake_max(t)])
             FROM snowflake_status, generate_series(0, 20000) AS n,
                  LATERAL (SELECT epoch + n * ((expires_at - epoch) / 20001)) AS s (t)",
        );
        whole.push((1 << 53) - 1);
        let last: Vec<i64> =
            column(&mut session, "SELECT snowflake_max(expires_at - interval '1 us') FROM snowflake_status");
        assert_eq!(last, [(1 << 53) - 1], "{layout} {tick}");
        assert_eq!(in_node(&whole), [40_003, 40_003, 0, 0], "{layout} {tick}");
    }
}

/// The problem of which the page warns; it also proves that the test above can fail.
#[test]
fn a_number_does_not_hold_the_ids_of_the_default_layout() {
    let server = Server::builder().start_with_extension();
    let ids = take(&mut server.connect(), 20_000);
    let [numbers, _, wrong, _] = in_node(&ids);
    assert!(wrong > numbers / 2, "{wrong} of {numbers}");
}
