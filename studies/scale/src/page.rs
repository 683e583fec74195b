//! The tables and sentences with numbers in `docs/scale.md`, and its plots.

use crate::calibration::Calibration;
use crate::capacity::{burst, choices, ends, per_worker, servers, years};
use crate::contention::{Claim, Load, MACHINES, Machine, Outcome, simulate};
use crate::order::{self, CLOCKS};
use crate::plot::{Axis, Series, Style, draw};
use crate::{ahead, collisions};
use plotters::prelude::{IntoLogRange, SeriesLabelPosition};
use snowflake_core::{Layout, Limits};
use std::fmt::Write;

/// A file of the page: its path in the repository, and its text.
pub type File = (String, String);

/// The page's path.
pub const PAGE: &str = "docs/scale.md";

/// The page with new blocks, and its plots.
pub fn make(page: &str) -> Vec<File> {
    let mut text = page.to_owned();
    for (name, block) in blocks() {
        text = replaced(&text, name, &block);
    }
    let mut files = vec![(PAGE.to_owned(), text)];
    files.extend(plots().into_iter().map(|(name, svg)| (format!("docs/scale/{name}.svg"), svg + "\n")));
    files
}

/// The text with a new block between the comments `<!-- made: name -->` and `<!-- end -->`.
fn replaced(text: &str, name: &str, block: &str) -> String {
    let begin = format!("<!-- made: {name} -->\n");
    let start = text.find(&begin).unwrap_or_else(|| panic!("{PAGE} has no place for {name}")) + begin.len();
    let end = start + text[start..].find("<!-- end -->").unwrap_or_else(|| panic!("{name} has no end"));
    format!("{}{}\n{}", &text[..start], block.trim_end(), &text[end..])
}

fn blocks() -> Vec<(&'static str, String)> {
    vec![
        ("capacity", capacity_block()),
        ("fleets", fleets_block()),
        ("layouts", layouts_block()),
        ("calibration", calibration_block()),
        ("contention", contention_block()),
        ("ranges", ranges_block()),
        ("ahead", ahead_block()),
        ("order", order_block()),
        ("loaded order", loaded_order_block()),
        ("collisions", collisions_block()),
        ("duplicates", duplicates_block()),
    ]
}

// ---------------------------------------------------------------- numbers as text

/// 4,096,000
fn whole(number: f64) -> String {
    let digits = format!("{:.0}", number.round());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three digits, and a word for the size: 4.10 million.
fn short(number: f64) -> String {
    let (value, word) = match number {
        n if n >= 999.5e9 => (n / 1e12, " trillion"),
        n if n >= 999.5e6 => (n / 1e9, " billion"),
        n if n >= 999.5e3 => (n / 1e6, " million"),
        n if n >= 1e3 => return whole((n / 10.0).round() * 10.0),
        n => (n, ""),
    };
    format!("{}{word}", digits(value))
}

/// Three digits.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 || v == 0.0 => 2,
        v => (2.0 - v.log10().floor()) as usize,
    };
    format!("{value:.decimals$}")
}

/// A duration given in milliseconds.
fn duration(ms: f64) -> String {
    match ms {
        ms if ms >= 999.5 => format!("{} s", digits(ms / 1e3)),
        ms if ms >= 0.9995 => format!("{} ms", digits(ms)),
        ms if ms >= 0.0009995 || ms == 0.0 => format!("{} µs", digits(ms * 1e3)),
        ms => format!("{} ns", digits(ms * 1e6)),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 99.9 && p < 101.0 => "over 99.9 %".to_owned(),
        p if p >= 99.95 => format!("{} %", whole(p)),
        p if p < 1e-4 => "below 0.0001 %".to_owned(),
        p if p < 0.1 => format!("{p:.4} %"),
        p => format!("{p:.1} %"),
    }
}

// ---------------------------------------------------------------- capacity

fn max_ahead_ms() -> f64 {
    Limits::default().max_ahead_us as f64 / 1e3
}

fn capacity_block() -> String {
    let layout = Layout::default();
    let rate = per_worker(&layout);
    let burst = burst(&layout, max_ahead_ms());
    let measured = Calibration::committed();
    let rows = measured.insert_rows_per_s;
    let statements = measured.insert_statements_per_s / 2.0;
    let mut text = format!(
        "**A server generates {} IDs per second without end, and {} at once after a pause of {}.** This cap of the default \
         layout and `max_ahead` holds for any number of cores. On 64 cores it is {} per second and core.\n\n\
         | workload | per second and core, measured on {} | extrapolated to 64 cores | share of {} per second |\n\
         | --- | --- | --- | --- |\n",
        whole(rate),
        whole(burst),
        duration(max_ahead_ms()),
        whole(rate / 64.0),
        measured.date,
        short(rate),
    );
    for (what, each) in [
        ("`INSERT` of one row per statement, prepared, `synchronous_commit = off`", statements),
        ("`INSERT ... SELECT` into a table of two columns with its primary key", rows),
    ] {
        let all = 64.0 * each;
        writeln!(text, "| {what} | {} rows | {} rows | {} |", short(each), short(all), percent(all / rate))
            .unwrap();
    }
    text
}

fn fleets_block() -> String {
    let layout = Layout::default();
    let rate = per_worker(&layout);
    let mut text = "| servers | `backup_workers` | IDs per second | at once, after a pause | IDs per day |\n\
                    | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (count, backups) in [(1, 7), (128, 7), (256, 3), (1_024, 0)] {
        assert!(servers(&layout, backups).expect("a fleet") >= count);
        let n = count as f64;
        writeln!(
            text,
            "| {} | {backups} | {} | {} | {} |",
            whole(n),
            short(n * rate),
            short(n * burst(&layout, max_ahead_ms())),
            short(n * rate * 86_400.0),
        )
        .unwrap();
    }
    text
}

fn layouts_block() -> String {
    let mut text = "| `layout`, `tick` | epoch | difference | IDs per second and worker | at once | workers | servers with 7, 3, 0 backups | lasts for | ends on |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for choice in choices() {
        let layout = &choice.layout;
        let fleets: Vec<String> = [7, 3, 0]
            .map(|backups| servers(layout, backups).map_or("none".to_owned(), |n| whole(n as f64)))
            .into();
        let epoch = jiff::Timestamp::from_microsecond(layout.epoch_us()).expect("a time");
        writeln!(
            text,
            "| `{}`, `{}` | {} | {} | {} | {} | {} | {} | {:.1} years | {} |",
            layout.bits(),
            layout.tick(),
            epoch.strftime("%Y-%m-%d"),
            choice.about,
            short(per_worker(layout)),
            short(burst(layout, max_ahead_ms())),
            whole(layout.workers() as f64),
            fleets.join("; "),
            years(layout),
            ends(layout),
        )
        .unwrap();
    }
    text
}

// ---------------------------------------------------------------- contention

/// Of the calibration; the other tables have the first and the last.
const CLAIMS: [Claim; 3] = [Claim::Adds, Claim::SwapStays, Claim::SwapTaken];

fn run(machine: &Machine, claim: Claim, cores: usize, think_ns: f64) -> Outcome {
    simulate(machine, claim, &Load { cores, think_ns, ids: 1.0 })
}

fn calibration_block() -> String {
    let measured = Calibration::committed();
    let machine = Machine::uniform(measured.move_ns);
    let mut text = format!(
        "Two threads on {} ({}), million IDs per second. A compare-and-swap message between the cores took {} ns.\n\n\
         | one call and its work, alone | without contention | measured | best case | middle case | worst case |\n\
         | --- | --- | --- | --- | --- | --- |\n",
        measured.machine,
        measured.date,
        digits(measured.move_ns),
    );
    let million = |rate: f64| digits(rate / 1e6);
    for pair in &measured.pairs {
        // The time of a lone call includes the swap of a line that is at hand.
        let think_ns = pair.alone_ns - crate::contention::ALONE_NS;
        let models = CLAIMS.map(|claim| million(run(&machine, claim, 2, think_ns).ids_per_s));
        writeln!(
            text,
            "| {} ns | {} | {} | {} |",
            digits(pair.alone_ns),
            million(2e9 / pair.alone_ns),
            million(pair.two_per_s),
            models.join(" | "),
        )
        .unwrap();
    }
    text
}

/// Work between two calls of a core, in nanoseconds, and an example of it.
const WORK: [(f64, &str); 3] = [
    (250.0, "IDs only: 250 ns"),
    (5_000.0, "bulk rows with indexes: 5 µs"),
    (20_000.0, "single rows: 20 µs"),
];

fn contention_block() -> String {
    let cap = per_worker(&Layout::default());
    let mut text = "| machine, cores | work between two calls | demand | best case | worst case | wait for the line, median; p99, best case | worst case |\n\
                    | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (machine, cores) in [(&MACHINES[1], 64), (&MACHINES[2], 64), (&MACHINES[4], 128)] {
        for (think_ns, work) in WORK {
            let outcomes = [Claim::Adds, Claim::SwapTaken].map(|claim| run(machine, claim, cores, think_ns));
            let cells = outcomes.map(|outcome| {
                let rate = digits(outcome.ids_per_s / 1e6);
                if outcome.ids_per_s < cap { rate } else { format!("{rate} (cap)") }
            });
            let [best, worst] = &outcomes;
            let waits =
                |of: &Outcome| format!("{}; {}", duration(of.p50_ns / 1e6), duration(of.p99_ns / 1e6));
            writeln!(
                text,
                "| {}, {cores} | {work} | {} | {} | {} | {} |",
                machine.name,
                digits(cores as f64 * 1e3 / think_ns),
                cells.join(" | "),
                waits(best),
                waits(worst),
            )
            .unwrap();
        }
    }
    text
}

fn ranges_block() -> String {
    let machine = &MACHINES[2];
    let mut text = String::new();
    writeln!(text, "| `snowflake_nextval_range(n)` | best case | worst case |\n| --- | --- | --- |").unwrap();
    for ids in [1, 10, 100, 1_000] {
        let rate = |claim| {
            let load = Load { cores: 64, think_ns: 250.0 * f64::from(ids).max(4.0), ids: f64::from(ids) };
            digits(simulate(machine, claim, &load).ids_per_s / 1e6)
        };
        writeln!(text, "| {} | {} | {} |", whole(f64::from(ids)), rate(Claim::Adds), rate(Claim::SwapTaken))
            .unwrap();
    }
    text
}

// ---------------------------------------------------------------- order

const QUERIES: [i64; 4] = [1, 1_024, 10_240, 102_400];

fn lead(load: f64, ids: i64) -> ahead::Lead {
    ahead::simulate(load, ids, if ids == 1 { 60_000 } else { 10_000 })
}

fn ahead_block() -> String {
    let mut text =
        "| IDs per query | at 10 % of the cap | 50 % | 80 % | 95 % |\n| --- | --- | --- | --- | --- |\n"
            .to_owned();
    for ids in QUERIES {
        let cells = [0.1, 0.5, 0.8, 0.95].map(|load| {
            let lead = lead(load, ids);
            format!("{}; {}", duration(lead.mean_ms), duration(lead.p99_ms))
        });
        writeln!(text, "| {} | {} |", whole(ids as f64), cells.join(" | ")).unwrap();
    }
    text
}

fn order_block() -> String {
    let mut text = "| clocks | error of a clock (σ) | source | wrong at a gap of 0 | 1 ms | 10 ms | at most 1 % wrong from | at most 1 in 1,000,000 from |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for clocks in CLOCKS {
        let sigma = clocks.sigma_ms;
        let at = |gap| percent(order::chance(sigma, 1.0, gap, 0.0));
        let from = |most| duration(order::gap_for(sigma, 1.0, 0.0, most));
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            clocks.name,
            duration(sigma),
            clocks.source,
            at(0.0),
            at(1.0),
            at(10.0),
            from(0.01),
            from(1e-6),
        )
        .unwrap();
    }
    text
}

fn loaded_order_block() -> String {
    let mut text = "| tick | lead of one server | wrong at a gap of 1 ms | 10 ms | 100 ms | 1 s | at most 1 in 1,000,000 from |\n\
                    | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (tick_ms, ahead_ms) in [(1.0, 0.0), (1.0, 100.0), (1.0, 2_000.0), (10.0, 0.0), (1_000.0, 0.0)] {
        let sigma = CLOCKS[2].sigma_ms;
        let at = |gap| percent(order::chance(sigma, tick_ms, gap, ahead_ms));
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            duration(tick_ms),
            duration(ahead_ms).replace("0.00 µs", "none"),
            at(1.0),
            at(10.0),
            at(100.0),
            at(1_000.0),
            duration(order::gap_for(sigma, tick_ms, ahead_ms, 1e-6)),
        )
        .unwrap();
    }
    text
}

// ---------------------------------------------------------------- workers at random

fn collisions_block() -> String {
    let mut text = "| servers | two share one of 1,024 workers | servers that share theirs, on average | two share one of 128 home workers |\n\
                    | --- | --- | --- | --- |\n"
        .to_owned();
    for n in [2, 10, 38, 256] {
        writeln!(
            text,
            "| {} | {} | {} | {} |",
            whole(f64::from(n)),
            percent(collisions::chance(n, 1_024)),
            digits(collisions::sharing(n, 1_024)),
            percent(collisions::chance(n, 128)),
        )
        .unwrap();
    }
    writeln!(
        text,
        "\nFor 1,024 servers and a chance of 1 in 1,000,000, the worker field would need {} bits. The whole ID has 63.",
        collisions::bits_for(1_024, 1e-6)
    )
    .unwrap();
    text
}

fn duplicates_block() -> String {
    let mut text = "| each generates, per second | duplicate IDs per second |\n| --- | --- |\n".to_owned();
    for rate in [1.0, 100.0, 10_000.0] {
        writeln!(text, "| {} | {} |", whole(rate), short(collisions::duplicates_per_s(rate))).unwrap();
    }
    text
}

// ---------------------------------------------------------------- plots

fn plots() -> Vec<(&'static str, String)> {
    vec![
        (
            "contention",
            contention_plot(250.0, "IDs per second of one server, IDs only (250 ns of work per call)"),
        ),
        (
            "contention-insert",
            contention_plot(5_000.0, "IDs per second of one server, 5 µs of work per call"),
        ),
        ("contention-waits", waits_plot()),
        ("ahead", ahead_plot()),
        ("order", order_plot()),
        ("collisions", collisions_plot()),
    ]
}

fn contention_plot(think_ns: f64, title: &str) -> String {
    let cores = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
    let cap = per_worker(&Layout::default());
    let last = cores[cores.len() - 1] as f64;
    let line = |name: &str, colour, style, points| Series { name: name.to_owned(), colour, style, points };
    let mut series = vec![line("the layout's cap", 0, Style::Line, vec![(1.0, cap), (last, cap)])];
    for (colour, machine) in [(1, &MACHINES[1]), (2, &MACHINES[2]), (3, &MACHINES[4])] {
        for (claim, style, how) in
            [(Claim::Adds, Style::Line, "best case"), (Claim::SwapTaken, Style::Dashes, "worst case")]
        {
            let points = cores.map(|n| (n as f64, run(machine, claim, n, think_ns).ids_per_s)).into();
            series.push(line(&format!("{}: {how}", machine.name), colour, style, points));
        }
    }
    let x = Axis {
        name: "cores that generate IDs",
        range: (1.0..last).log_scale().base(2.0),
        text: |n| whole(n),
    };
    let y = Axis { name: "IDs per second", range: (3e4..3e9).log_scale(), text: short };
    draw(title, x, y, SeriesLabelPosition::UpperLeft, &series).expect("a plot in memory")
}

fn waits_plot() -> String {
    let cores = [2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
    let mut series = Vec::new();
    for (colour, machine) in [(1, &MACHINES[1]), (2, &MACHINES[2]), (3, &MACHINES[4])] {
        let outcomes = cores.map(|n| (n as f64, run(machine, Claim::Adds, n, 5_000.0)));
        let mut add = |what: &str, style, of: fn(&Outcome) -> f64| {
            let points = outcomes.iter().map(|(n, outcome)| (*n, of(outcome) / 1e6)).collect();
            series.push(Series { name: format!("{}: {what}", machine.name), colour, style, points });
        };
        add("median", Style::Line, |outcome| outcome.p50_ns);
        add("99th percentile", Style::Dashes, |outcome| outcome.p99_ns);
    }
    let x = Axis {
        name: "cores that generate IDs",
        range: (2.0..128.0).log_scale().base(2.0),
        text: |n| whole(n),
    };
    let y = Axis { name: "wait for the line", range: (1e-5..1.0).log_scale(), text: duration };
    let title = "How long a call waits for the cache line, best case, 5 µs of work per call";
    draw(title, x, y, SeriesLabelPosition::UpperLeft, &series).expect("a plot in memory")
}

fn ahead_plot() -> String {
    let mut series = Vec::new();
    let names = ["1 ID per query", "1,024 IDs", "10,240 IDs", "102,400 IDs"];
    for ((ids, name), colour) in QUERIES.into_iter().zip(names).zip(1..).skip(1) {
        let loads: Vec<f64> = (1..=48).map(|i| f64::from(i) * 0.02).collect();
        let points = loads.iter().map(|load| (load * 100.0, ahead::expected_ms(*load, ids))).collect();
        series.push(Series { name: name.to_owned(), colour, style: Style::Line, points });
        let dots = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
        // Below the axis: the IDs of a query that fits into the current millisecond are not ahead.
        let found = dots.map(|load| (load * 100.0, lead(load, ids).mean_ms));
        let points = found.into_iter().filter(|(_, ms)| *ms >= 0.1).collect();
        series.push(Series { name: String::new(), colour, style: Style::Dots, points });
    }
    let x = Axis { name: "load, % of 4,096 IDs per millisecond", range: 0.0..100.0, text: |p| whole(p) };
    let y = Axis { name: "ahead of the clock", range: (0.1..2_000.0).log_scale(), text: duration };
    let title = "How far a query's last ID is ahead of the clock, on average";
    draw(title, x, y, SeriesLabelPosition::UpperLeft, &series).expect("a plot in memory")
}

fn order_plot() -> String {
    let mut series = Vec::new();
    for (clocks, colour) in CLOCKS.into_iter().zip(1..) {
        let sigma = clocks.sigma_ms;
        let gaps: Vec<f64> = (0..=160).map(|i| 10_f64.powf(-2.0 + f64::from(i) / 32.0)).collect();
        let points = gaps.iter().map(|gap| (*gap, 100.0 * order::chance(sigma, 1.0, *gap, 0.0))).collect();
        series.push(Series { name: clocks.name.to_owned(), colour, style: Style::Line, points });
        let simulated =
            |gap: &f64| (*gap, 100.0 * order::simulated(&Layout::default(), sigma, *gap, 0.0, 20_000));
        let points = gaps.iter().step_by(16).map(simulated).collect();
        series.push(Series { name: String::new(), colour, style: Style::Dots, points });
    }
    let x =
        Axis { name: "true time between the two events", range: (0.01..1_000.0).log_scale(), text: duration };
    let y = Axis { name: "IDs in the wrong order, %", range: 0.0..55.0, text: |p| whole(p) };
    let title = "IDs of two servers in the wrong order, tick of 1 ms (lines: closed form; dots: simulated)";
    draw(title, x, y, SeriesLabelPosition::UpperRight, &series).expect("a plot in memory")
}

fn collisions_plot() -> String {
    let mut series = Vec::new();
    for (workers, name, colour) in [(1_024, "1,024 workers", 1), (128, "128 home workers", 2)] {
        let points = (1..=128).map(|n| (f64::from(n), 100.0 * collisions::chance(n, workers))).collect();
        series.push(Series { name: name.to_owned(), colour, style: Style::Line, points });
        let dots = (1..=12).map(|n| n * 10);
        let points = dots.map(|n| (f64::from(n), 100.0 * collisions::simulated(n, workers, 5_000))).collect();
        series.push(Series { name: String::new(), colour, style: Style::Dots, points });
    }
    let x = Axis { name: "servers with random workers", range: 0.0..128.0, text: |n| whole(n) };
    let y = Axis { name: "two share a worker, %", range: 0.0..100.0, text: |p| whole(p) };
    let title = "Random workers (lines: closed form; dots: simulated)";
    draw(title, x, y, SeriesLabelPosition::LowerRight, &series).expect("a plot in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(whole(4_096_000.0), "4,096,000");
        assert_eq!(short(4_096_000.0), "4.10 million");
        assert_eq!(short(999_999.0), "1.00 million");
        assert_eq!(short(16_384.0), "16,380");
        assert_eq!([0.01234, 1.0, 12.345, 123.4].map(digits), ["0.0123", "1.00", "12.3", "123"]);
        assert_eq!([0.0005, 0.02, 3.0, 2_000.0].map(duration), ["500 ns", "20.0 µs", "3.00 ms", "2.00 s"]);
        assert_eq!(
            [1e-9, 0.0005, 0.5, 1.0, 7.8].map(percent),
            ["below 0.0001 %", "0.0500 %", "50.0 %", "over 99.9 %", "780 %"]
        );
    }

    #[test]
    fn a_block_is_replaced_and_nothing_else() {
        let page = "a\n<!-- made: x -->\nold\n<!-- end -->\nb\n<!-- made: y -->\n<!-- end -->\n";
        let expected = "a\n<!-- made: x -->\nnew\n<!-- end -->\nb\n<!-- made: y -->\n<!-- end -->\n";
        assert_eq!(replaced(page, "x", "new\n"), expected);
    }

    #[test]
    fn every_choice_of_layout_is_shown() {
        assert_eq!(layouts_block().lines().count(), 2 + choices().len());
    }
}
