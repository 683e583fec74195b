//! The table of layouts in docs/settings.md, computed again.

use snowflake_core::{Layout, Limits, Tick, Workers, layout::parse_epoch};

#[test]
fn the_manuals_table_of_layouts_is_right() {
    let page = include_str!("../../../../docs/settings.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| `") && line.contains("years"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() >= 6, "{rows:?}");
    for row in rows {
        let [_, fields, rate, burst, workers, servers, years, end, _] = row[..] else { panic!("{row:?}") };
        let layout = layout(fields);
        let per_tick = layout.sequences() as f64;
        let ticks = 1 + Limits::default().max_ahead_us / layout.tick().micros();
        assert_rounded(rate, per_tick * 1e6 / layout.tick().micros() as f64, fields);
        assert_rounded(burst, ticks as f64 * per_tick, fields);
        assert_rounded(workers, layout.workers() as f64, fields);
        for (backups, count) in [3, 7, 0].into_iter().zip(servers.split("; ")) {
            let homes = Workers::new(&layout, 0, backups).expect("workers").highest_home() + 1;
            assert_rounded(count, homes as f64, fields);
        }
        let length = (layout.max_tick() + 1) as f64 * layout.tick().micros() as f64;
        assert_rounded(years.trim_end_matches(" years"), length / 1e6 / 86_400.0 / 365.2425, fields);
        let last = jiff::Timestamp::from_microsecond(layout.ends_at_us()).expect("a time");
        assert_eq!(end, last.strftime("%Y-%m-%d").to_string(), "{fields}");
    }
}

/// From "`41/10/12`, `1ms`".
fn layout(fields: &str) -> Layout {
    let (bits, tick) = fields.split_once(", ").expect("bits and a tick");
    Layout::new(
        bits.trim_matches('`').parse().expect("bits"),
        match tick.trim_matches('`') {
            "1ms" => Tick::Millisecond,
            "10ms" => Tick::Centisecond,
            "1s" => Tick::Second,
            other => panic!("{other}"),
        },
        parse_epoch("2024-01-01T00:00:00Z").expect("an epoch"),
    )
    .expect("a layout")
}

/// Three digits, as the page rounds: "4.10 million", "8,190", "69.7".
#[track_caller]
fn assert_rounded(text: &str, expected: f64, of: &str) {
    let (number, unit) = match text.strip_suffix(" million") {
        Some(number) => (number, 1e6),
        None => (text, 1.0),
    };
    let found = number.replace(',', "").parse::<f64>().expect(text) * unit;
    assert!((found / expected - 1.0).abs() < 0.005, "{of}: {text} is {expected}");
}
