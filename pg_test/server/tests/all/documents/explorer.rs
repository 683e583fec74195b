//! `docs/explorer.html` in Chromium shows what the server says, on random IDs and layouts: the fields of an ID, what is
//! wrong with a layout, and what a planned layout has room for. It can be read and used by everybody, and sends nothing.

use postgres::Client;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use snowflake_server_tests::sql::{Failure, column, one, run};
use snowflake_server_tests::{Server, companions, printed_by, read, root};
use std::process::Command;

/// What the page shows after each entry, and what else `explorer.js` has seen.
fn in_chromium(entries: &[Value]) -> Value {
    let mut node = Command::new("node");
    node.arg(companions("browser").join("explorer.js")).arg(root().join("docs/explorer.html"));
    node.args(std::env::var_os("EXPLORER_SCREENSHOTS"));
    serde_json::from_str(&printed_by(&mut node, &Value::from(entries).to_string())).expect("JSON")
}

#[test]
fn the_page_fits_every_screen_can_be_read_and_used_by_everybody_and_sends_nothing() {
    let shown = in_chromium(&[]);
    assert_eq!(shown["problems"], json!([]));
    assert_eq!(shown["moved"], "45/10/8 1ms 2024-01-01T00:00:00Z", "four bits moved by keyboard");
    let restored = json!(["45/10/8 1ms 2024-01-01T00:00:00Z", "63 of 63 bits: 45/10/8"]);
    assert_eq!(shown["restored"], restored, "the address leads to the same page");
    assert_eq!(shown["safe"], "Every ID is an exact number.");
    // As the page on clients does.
    let clients = read("docs/clients.md");
    for proposal in shown["proposed"].as_array().expect("a list") {
        let [layout, tick, years, rate] = [0, 1, 2, 3].map(|at| proposal[at].as_str().expect("a text"));
        let start = format!("| `{layout}` | `{tick}` | {years} years | ");
        let row = clients.lines().find(|line| line.starts_with(&start));
        assert!(
            row.is_some_and(|row| row.contains(&format!(" {rate} | 53 bits"))),
            "{start}… {rate}: {row:?}"
        );
    }
}

#[test]
fn of_several_ids_the_page_reads_none_and_one_with_separators() {
    let texts = [
        ("382501919504994304 382501919504994305", "Enter one ID: these are 2."),
        ("382501919504994304,382501919504994305; 382501919504994306", "Enter one ID: these are 3."),
        (
            "382501919504994304\n382501919504994305",
            "Enter one ID: it has at most 19 digits, and this has 36.",
        ),
        ("001eu38nrlv 001eu38nrlv", "Enter one ID: these are 2."),
        ("382,501,919,504,994,304", ""),
        ("382 501 919 504 994 304", ""),
        (" '382501919504994304', ", ""),
    ];
    let entries: Vec<Value> =
        texts.iter().map(|(text, _)| json!({"values": [["id", text]], "shown": ["problem"]})).collect();
    let shown = in_chromium(&entries);
    for ((text, problem), shown) in texts.iter().zip(shown["entries"].as_array().expect("a list")) {
        assert_eq!(shown["problem"], *problem, "{text}");
    }
}

fn generator() -> StdRng {
    let seed = std::env::var("EXPLORER_SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse().expect("a number"));
    println!("EXPLORER_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

fn date(random: &mut StdRng) -> String {
    let year =
        if random.random_bool(0.1) { random.random_range(0..=9999) } else { random.random_range(1970..2027) };
    format!("{year:04}-{:02}-{:02}", random.random_range(1..=12), random.random_range(1..=29))
}

fn epoch(random: &mut StdRng) -> String {
    let date = date(random);
    let (hour, minute, second) =
        (random.random_range(0..24), random.random_range(0..60), random.random_range(0..60));
    let time = format!("{date}T{hour:02}:{minute:02}:{second:02}");
    let offset = random.random_range(0..12);
    match random.random_range(0..20) {
        0..15 => date,
        15 => format!("{time}Z"),
        16 => format!("{time}.{:03}Z", random.random_range(0..1000)),
        17 => format!("{time}.{:06}-{offset:02}:30", random.random_range(0..1_000_000)),
        18 => format!("{date} {hour:02}:{minute:02}+{offset:02}:00"),
        // It lacks an offset.
        _ => time,
    }
}

/// A layout, most of which are valid.
fn layout(random: &mut StdRng) -> String {
    let tick = *["1ms", "1ms", "10ms", "1s"].choose(random).expect("one");
    let time: u32 = random.random_range(20..=if tick == "1s" { 43 } else { 49 });
    let left = 65_u32.saturating_sub(time);
    let datacenter: u32 = if random.random_bool(0.3) { random.random_range(0..=left / 3) } else { 0 };
    let worker: u32 = random.random_range(0..=(left - datacenter).min(32));
    let sequence: u32 = match random.random_range(0..10) {
        // As many as are left of 64 bits, or one more.
        0 => left - datacenter - worker,
        1..4 => (left - datacenter - worker).saturating_sub(1),
        _ => random.random_range(0..=(left - datacenter - worker).min(32)),
    };
    let node = if datacenter > 0 { format!("{datacenter}+{worker}") } else { worker.to_string() };
    let bits = match random.random_range(0..6) {
        0 => format!("{time}/s{sequence}/w{node}"),
        _ => format!("{time}/{node}/{sequence}"),
    };
    let text = format!("{bits} {tick} {}", epoch(random));
    match random.random_range(0..40) {
        0 => text.replacen('/', "", 1),
        1 => text.replace(tick, "5ms"),
        2 => text.replacen(' ', "  ", 1),
        3 => bits,
        4 => text.replacen('/', "/x", 1),
        5 => text.replacen(&time.to_string(), "70", 1),
        6 => text.replacen(&time.to_string(), "0", 1),
        7 => format!("{text}!"),
        _ => text,
    }
}

/// The fields as texts, or the problem; and the ID in base62.
const ASK: &str = "
    SET timezone = 'UTC';
    CREATE FUNCTION ask(id bigint, layout text) RETURNS text[] LANGUAGE plpgsql AS $$
    DECLARE message text; detail text; fields record;
    BEGIN
        SELECT * INTO STRICT fields FROM snowflake_decode(id, layout);
        RETURN ARRAY[fields.created_at::text, coalesce(fields.datacenter_id::text, 'none'),
                     coalesce(fields.worker_id::text, 'none'), coalesce(fields.sequence::text, 'none'),
                     snowflake_to_base62(id)];
    EXCEPTION WHEN invalid_parameter_value THEN
        GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
        RETURN CASE WHEN message LIKE '%is not an ID of layout%' THEN ARRAY['not an ID'] ELSE ARRAY[detail] END;
    END $$";

#[test]
fn the_page_reads_ids_as_the_server_does() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(&mut session, ASK);
    let mut random = generator();
    let mut layouts: Vec<String> = column(&mut session, "SELECT name FROM snowflake_layouts");
    assert!(layouts.len() >= 9);
    layouts.extend((0..1000).map(|_| layout(&mut random)));
    layouts.push("41/10/12 1ms 2024-01-01T00:00:00Z".to_owned());

    let mut pairs: Vec<(i64, String)> = Vec::new();
    for layout in &layouts {
        for at in 0..20 {
            let id = match at {
                0 => 0,
                1 => i64::MAX,
                _ => random.random::<i64>() >> random.random_range(1..30) & i64::MAX,
            };
            pairs.push((id, layout.clone()));
        }
    }
    let (ids, names): (Vec<i64>, Vec<&str>) = pairs.iter().map(|(id, layout)| (*id, layout.as_str())).unzip();
    let rows = session
        .query(
            "SELECT ask(id, layout) FROM unnest($1::bigint[], $2::text[]) AS pair (id, layout)",
            &[&ids, &names],
        )
        .unwrap_or_else(|e| panic!("{}", Failure::from(&e)));
    let said: Vec<Vec<String>> = rows.iter().map(|row| row.get(0)).collect();

    let entries: Vec<Value> = pairs
        .iter()
        .zip(&said)
        .map(|((id, layout), said)| {
            // Now and then as text of base62, if it cannot be taken for a number.
            let as_text =
                said.get(4).filter(|text| id % 4 == 0 && text.contains(|c: char| c.is_alphabetic()));
            let id = as_text.cloned().unwrap_or_else(|| id.to_string());
            json!({
                "values": [["layout", layout], ["id", id]],
                "shown": ["problem", "created", "datacenter", "worker", "sequence", "base62"],
            })
        })
        .collect();
    let shown = in_chromium(&entries);
    let shown = shown["entries"].as_array().expect("a list");
    let mut counts = [0; 3];
    for ((pair, said), shown) in pairs.iter().zip(&said).zip(shown) {
        let text = |id: &str| shown[id].as_str().expect("a text").to_owned();
        let problem = text("problem");
        let shown = if problem.starts_with("The number has more bits") {
            counts[1] += 1;
            vec!["not an ID".to_owned()]
        } else if !problem.is_empty() {
            counts[2] += 1;
            vec![problem]
        } else {
            counts[0] += 1;
            ["created", "datacenter", "worker", "sequence", "base62"].map(text).to_vec()
        };
        assert_eq!(shown, *said, "{pair:?}");
    }
    println!(
        "{counts:?} IDs read, not of their layout, with a layout that is none; {} layouts",
        layouts.len()
    );
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

/// A server of its own reads the default layout.
#[test]
fn the_page_names_servers_as_the_server_does() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let pairs: Vec<String> = column(
        &mut session,
        "SELECT concat_ws(':', id, snowflake_server(id))
         FROM generate_series(0, 1023, 13) AS worker, snowflake_encode('2026-01-01Z', worker, 0) AS id",
    );
    let entries: Vec<Value> = pairs
        .iter()
        .map(|pair| json!({"values": [["id", pair.split(':').next()]], "shown": ["server"]}))
        .collect();
    let shown = in_chromium(&entries);
    for (pair, shown) in pairs.iter().zip(shown["entries"].as_array().expect("a list")) {
        assert_eq!(shown["server"].as_str(), pair.split(':').nth(1), "{pair}");
    }
}

/// DETAIL of a statement's error; empty if there is none.
fn refusal(session: &mut Client, statement: &str) -> String {
    session.batch_execute(statement).map_or_else(|error| Failure::from(&error).detail, |()| String::new())
}

/// A number of the page, as `1,024 (...)`.
fn number(text: &str) -> i64 {
    let digits = text.split(' ').next().expect("a number").replace(',', "");
    digits.parse().unwrap_or_else(|_| panic!("{text} begins with no number"))
}

/// The page's values, and its bits as a setting.
fn random_plan(random: &mut StdRng) -> ([(&'static str, String); 7], String) {
    let (tick, most) = *[("1ms", 52), ("10ms", 48), ("1s", 42)].choose(random).expect("one");
    let time: u32 = random.random_range(most - 12..=most);
    let datacenter: u32 = if random.random_bool(0.3) { random.random_range(0..=5) } else { 0 };
    let worker: u32 = random.random_range(0..=(64 - time - datacenter).min(31));
    let sequence: u32 = random.random_range(0..=(64 - time - datacenter - worker).min(31));
    let node = if datacenter > 0 { format!("{datacenter}+{worker}") } else { worker.to_string() };
    let values = [
        ("tick", tick.to_owned()),
        ("time", time.to_string()),
        ("datacenters", datacenter.to_string()),
        ("workers", worker.to_string()),
        ("sequences", sequence.to_string()),
        ("backups", random.random_range(0..=15).to_string()),
        ("epoch", format!("{}T00:00:00Z", date(random))),
    ];
    (values, format!("{time}/{node}/{sequence}"))
}

#[test]
fn a_server_accepts_what_the_page_plans_and_no_worker_more() {
    let mut server = Server::builder().setting("timezone", "UTC").start_with_extension();
    let mut session = server.connect();
    let mut random = generator();
    let plans: Vec<_> = (0..300).map(|_| random_plan(&mut random)).collect();
    let mut entries = Vec::new();
    for (values, _) in &plans {
        // The page is told of the tick, which limits the time, and of the epoch: bits that are moved one by one would
        // move others.
        entries.push(json!({"values": values[..1], "shown": []}));
        entries.push(json!({"values": values, "shown": ["flaw", "until", "servers", "settings"]}));
    }
    let shown = in_chromium(&entries);
    let shown = shown["entries"].as_array().expect("a list").iter().skip(1).step_by(2);
    let mut accepted = Vec::new();
    let mut refused = 0;
    let mut closed = Vec::new();
    for ((values, bits), shown) in plans.iter().zip(shown) {
        let text = |id: &str| shown[id].as_str().expect("a text").to_owned();
        let [(_, tick), .., (_, backups), (_, epoch)] = values;
        let settings = [
            format!("ALTER SYSTEM SET snowflake_id.layout = '{bits}'"),
            format!("ALTER SYSTEM SET snowflake_id.tick = '{tick}'"),
            format!("ALTER SYSTEM SET snowflake_id.backup_workers = {backups}"),
            format!("ALTER SYSTEM SET snowflake_id.epoch = '{epoch}'"),
            "ALTER SYSTEM SET snowflake_id.worker_id = 0".to_owned(),
        ];
        run(&mut session, "ALTER SYSTEM RESET ALL");
        let said =
            settings.iter().map(|setting| refusal(&mut session, setting)).find(|said| !said.is_empty());
        let flaw = text("flaw");
        // The clock decides.
        if flaw == "The epoch is in the future." || flaw.starts_with("The time field ended at ") {
            continue;
        }
        if let Some(said) = said {
            // The page names the epoch, as the server does where it is part of a written-out layout.
            assert!(flaw.ends_with(&said), "{values:?}: {flaw} {said}");
            refused += 1;
            continue;
        }
        if !flaw.is_empty() {
            closed.push((flaw, settings));
            continue;
        }
        let servers = number(&text("servers"));
        let last = format!("ALTER SYSTEM SET snowflake_id.worker_id = {}", servers - 1);
        assert_eq!(refusal(&mut session, &last), "", "{values:?}");
        let beyond = refusal(&mut session, &format!("ALTER SYSTEM SET snowflake_id.worker_id = {servers}"));
        // PostgreSQL itself rejects what is not an integer, without a DETAIL.
        assert!(
            servers > i64::from(i32::MAX)
                || beyond.ends_with(&format!(" worker_id must be 0 to {}.", servers - 1)),
            "{values:?}: {beyond}"
        );
        // The last ID is one tick before the end.
        let width: u32 = bits.split(['/', '+']).map(|bits| bits.parse::<u32>().expect("bits")).sum();
        let until = format!(
            "SELECT (created_at + interval '{tick}')::text
             FROM snowflake_decode({}, '{bits} {tick} {epoch}')",
            i64::MAX >> (63 - width)
        );
        assert_eq!(text("until"), one::<String>(&mut session, &until), "{values:?}");
        accepted.push((text("settings"), bits, text("until")));
    }
    println!("{} plans accepted, {refused} refused, {} close a server", accepted.len(), closed.len());
    assert!(accepted.len() > 100 && refused > 5 && closed.len() > 5);

    // A server looks at some values only when it starts.
    for (flaw, settings) in closed.iter().take(4) {
        let mut session = server.connect();
        run(&mut session, "ALTER SYSTEM RESET ALL");
        settings.iter().for_each(|setting| run(&mut session, setting));
        drop(session);
        server.restart();
        assert_eq!(refusal(&mut server.connect(), "SELECT snowflake_nextval()"), *flaw);
    }

    // It starts with the settings as they are copied.
    for (settings, bits, until) in accepted.iter().take(3) {
        let mut builder = Server::builder().setting("timezone", "UTC");
        for line in settings.lines().filter(|line| line.starts_with("snowflake_id.")) {
            let (name, value) = line.split_once(" = ").expect("a setting");
            builder = builder.setting(name, value.trim_matches('\''));
        }
        let server = builder.start_with_extension();
        let status: String =
            one(&mut server.connect(), "SELECT concat_ws(' ', layout, expires_at) FROM snowflake_status");
        assert_eq!(status, format!("{bits} {until}"));
    }
}
