//! The tables and sentences with numbers in `docs/scale.md`.

use crate::calibration::Calibration;
use crate::capacity::{burst, choices, ends, per_worker, servers, years};
use crate::contention::{ALONE_NS, Claim, Load, MACHINES, Machine, Outcome, simulate};
use crate::order::{self, CLOCKS};
use crate::{ahead, collisions, pictures};
use snowflake_core::{Layout, Limits};
use snowflake_figures::page::{File, read, table, with_blocks};
use snowflake_figures::text::{digits, duration, percent, short, whole};

const PAGE: &str = "docs/scale.md";

/// The page with new blocks, and its pictures.
pub fn make() -> Vec<File> {
    let mut files = vec![with_blocks(PAGE, &read(PAGE), &blocks())];
    files.extend(pictures::all());
    files
}

fn blocks() -> Vec<(&'static str, String)> {
    vec![
        ("capacity", capacity()),
        ("fleets", fleets()),
        ("layouts", layouts()),
        ("calibration", calibration()),
        ("contention", contention()),
        ("ranges", ranges()),
        ("ahead", lead()),
        ("order", order()),
        ("loaded order", loaded_order()),
        ("collisions", collision()),
        ("duplicates", duplicates()),
    ]
}

// ---------------------------------------------------------------- capacity

fn max_ahead_ms() -> f64 {
    Limits::default().max_ahead_us as f64 / 1e3
}

fn capacity() -> String {
    let layout = Layout::default();
    let rate = per_worker(&layout);
    let measured = Calibration::committed();
    let workloads = [
        (
            "`INSERT` of one row per statement, prepared, `synchronous_commit = off`",
            measured.insert_statements_per_s / 2.0,
        ),
        ("`INSERT ... SELECT` into a table of two columns with its primary key", measured.insert_rows_per_s),
    ];
    let rows = workloads.map(|(what, each)| {
        let all = 64.0 * each;
        vec![
            what.to_owned(),
            format!("{} rows", short(each)),
            format!("{} rows", short(all)),
            percent(all / rate),
        ]
    });
    let heads = [
        "workload",
        &format!("per second and core, measured on {}", measured.date),
        "extrapolated to 64 cores",
        &format!("share of {} per second", short(rate)),
    ];
    format!(
        "**A server generates {} IDs per second without end, and {} at once after a pause of {}.** This cap of the \
         default layout and `max_ahead` holds for any number of cores. On 64 cores it is {} per second and core.\n\n{}",
        whole(rate),
        whole(burst(&layout, max_ahead_ms())),
        duration(max_ahead_ms()),
        whole(rate / 64.0),
        table(&heads, &rows)
    )
}

fn fleets() -> String {
    let layout = Layout::default();
    let rate = per_worker(&layout);
    let rows = [(1, 7), (128, 7), (256, 3), (1_024, 0)].map(|(count, backups)| {
        assert!(servers(&layout, backups).expect("a fleet") >= count);
        let n = count as f64;
        vec![
            whole(n),
            backups.to_string(),
            short(n * rate),
            short(n * burst(&layout, max_ahead_ms())),
            short(n * rate * 86_400.0),
        ]
    });
    let heads = ["servers", "`backup_workers`", "IDs per second", "at once, after a pause", "IDs per day"];
    table(&heads, &rows)
}

fn layouts() -> String {
    let rows: Vec<Vec<String>> = choices()
        .into_iter()
        .map(|choice| {
            let layout = &choice.layout;
            let fleets = [7, 3, 0]
                .map(|backups| servers(layout, backups).map_or("none".to_owned(), |n| whole(n as f64)));
            let epoch = jiff::Timestamp::from_microsecond(layout.epoch_us()).expect("a time");
            vec![
                format!("`{}`, `{}`", layout.bits(), layout.tick()),
                epoch.strftime("%Y-%m-%d").to_string(),
                choice.about.to_owned(),
                short(per_worker(layout)),
                short(burst(layout, max_ahead_ms())),
                whole(layout.workers() as f64),
                fleets.join("; "),
                format!("{:.1} years", years(layout)),
                ends(layout),
            ]
        })
        .collect();
    let heads = [
        "`layout`, `tick`",
        "epoch",
        "difference",
        "IDs per second and worker",
        "at once",
        "workers",
        "servers with 7, 3, 0 backups",
        "lasts for",
        "ends on",
    ];
    table(&heads, &rows)
}

// ---------------------------------------------------------------- contention

/// Of the calibration; the other tables have the first and the last.
const CLAIMS: [Claim; 3] = [Claim::Adds, Claim::SwapStays, Claim::SwapTaken];

fn run(machine: &Machine, claim: Claim, cores: usize, think_ns: f64) -> Outcome {
    simulate(machine, claim, &Load { cores, think_ns, ids: 1.0 })
}

fn million(rate: f64) -> String {
    digits(rate / 1e6)
}

fn calibration() -> String {
    let measured = Calibration::committed();
    let machine = Machine::uniform(measured.move_ns);
    let rows: Vec<Vec<String>> = measured
        .pairs
        .iter()
        .map(|pair| {
            // The time of a lone call includes the swap of a line that is at hand.
            let think_ns = pair.alone_ns - ALONE_NS;
            let mut row = vec![
                format!("{} ns", digits(pair.alone_ns)),
                million(2e9 / pair.alone_ns),
                million(pair.two_per_s),
            ];
            row.extend(CLAIMS.map(|claim| million(run(&machine, claim, 2, think_ns).ids_per_s)));
            row
        })
        .collect();
    let heads = [
        "one call and its work, alone",
        "without contention",
        "measured",
        "best case",
        "middle case",
        "worst case",
    ];
    format!(
        "Two threads on {} ({}), million IDs per second. A compare-and-swap message between the cores took {} ns.\n\n\
         {}",
        measured.machine,
        measured.date,
        digits(measured.move_ns),
        table(&heads, &rows)
    )
}

/// Work between two calls of a core, in nanoseconds, and an example of it.
const WORK: [(f64, &str); 3] = [
    (250.0, "IDs only: 250 ns"),
    (5_000.0, "bulk rows with indexes: 5 µs"),
    (20_000.0, "single rows: 20 µs"),
];

fn contention() -> String {
    let cap = per_worker(&Layout::default());
    let mut rows = Vec::new();
    for machine in &MACHINES {
        for (think_ns, work) in WORK {
            let outcomes =
                [Claim::Adds, Claim::SwapTaken].map(|claim| run(machine, claim, machine.cores, think_ns));
            let rate = |outcome: &Outcome| {
                format!(
                    "{}{}",
                    million(outcome.ids_per_s),
                    if outcome.ids_per_s < cap { "" } else { " (cap)" }
                )
            };
            let waits =
                |of: &Outcome| format!("{}; {}", duration(of.p50_ns / 1e6), duration(of.p99_ns / 1e6));
            let [best, worst] = &outcomes;
            rows.push(vec![
                format!("{}, {}", machine.name, machine.cores),
                work.to_owned(),
                digits(machine.cores as f64 * 1e3 / think_ns),
                rate(best),
                rate(worst),
                waits(best),
                waits(worst),
            ]);
        }
    }
    let heads = [
        "machine, cores",
        "work between two calls",
        "demand",
        "best case",
        "worst case",
        "wait for the line, median; p99, best case",
        "worst case",
    ];
    table(&heads, &rows)
}

fn ranges() -> String {
    let machine = &MACHINES[0];
    let rows = [1, 10, 100, 1_000].map(|ids| {
        let rate = |claim| {
            let think_ns = 250.0 * f64::from(ids).max(4.0);
            million(
                simulate(machine, claim, &Load { cores: machine.cores, think_ns, ids: f64::from(ids) })
                    .ids_per_s,
            )
        };
        vec![whole(f64::from(ids)), rate(Claim::Adds), rate(Claim::SwapTaken)]
    });
    table(&["`snowflake_nextval_range(n)`", "best case", "worst case"], &rows)
}

// ---------------------------------------------------------------- order

fn lead() -> String {
    let rows = [1, 1_024, 10_240, 102_400].map(|ids| {
        let mut row = vec![whole(ids as f64)];
        row.extend([0.1, 0.5, 0.8, 0.95].map(|load| {
            let lead = ahead::simulate(load, ids, if ids == 1 { 60_000 } else { 10_000 });
            format!("{}; {}", duration(lead.mean_ms), duration(lead.p99_ms))
        }));
        row
    });
    table(&["IDs per query", "at 10 % of the cap", "50 %", "80 %", "95 %"], &rows)
}

fn order() -> String {
    let rows = CLOCKS.map(|clocks| {
        let sigma = clocks.sigma_ms;
        let at = |gap| percent(order::chance(sigma, 1.0, gap, 0.0));
        let from = |most| duration(order::gap_for(sigma, 1.0, 0.0, most));
        vec![
            clocks.name.to_owned(),
            duration(sigma),
            clocks.source.to_owned(),
            at(0.0),
            at(1.0),
            at(10.0),
            from(0.01),
            from(1e-6),
        ]
    });
    let heads = [
        "clocks",
        "error of a clock (σ)",
        "source",
        "wrong at a gap of 0",
        "1 ms",
        "10 ms",
        "at most 1 % wrong from",
        "at most 1 in 1,000,000 from",
    ];
    table(&heads, &rows)
}

fn loaded_order() -> String {
    let loads = [(1.0, 0.0), (1.0, 100.0), (1.0, 2_000.0), (10.0, 0.0), (1_000.0, 0.0)];
    let rows = loads.map(|(tick_ms, ahead_ms)| {
        let sigma = CLOCKS[2].sigma_ms;
        let at = |gap| percent(order::chance(sigma, tick_ms, gap, ahead_ms));
        vec![
            duration(tick_ms),
            if ahead_ms == 0.0 { "none".to_owned() } else { duration(ahead_ms) },
            at(1.0),
            at(10.0),
            at(100.0),
            at(1_000.0),
            duration(order::gap_for(sigma, tick_ms, ahead_ms, 1e-6)),
        ]
    });
    let heads = [
        "tick",
        "lead of one server",
        "wrong at a gap of 1 ms",
        "10 ms",
        "100 ms",
        "1 s",
        "at most 1 in 1,000,000 from",
    ];
    table(&heads, &rows)
}

// ---------------------------------------------------------------- workers at random

fn collision() -> String {
    let rows = [2, 10, 38, 256].map(|n| {
        vec![
            whole(f64::from(n)),
            percent(collisions::chance(n, 1_024)),
            digits(collisions::sharing(n, 1_024)),
            percent(collisions::chance(n, 128)),
        ]
    });
    let heads = [
        "servers",
        "two share one of 1,024 workers",
        "servers that share theirs, on average",
        "two share one of 128 home workers",
    ];
    format!(
        "{}\nFor 1,024 servers and a chance of 1 in 1,000,000, the worker field would need {} bits. The whole ID \
         has 63.",
        table(&heads, &rows),
        collisions::bits_for(1_024, 1e-6)
    )
}

fn duplicates() -> String {
    let rows =
        [1.0, 100.0, 10_000.0].map(|rate| vec![whole(rate), short(collisions::duplicates_per_s(rate))]);
    table(&["each generates, per second", "duplicate IDs per second"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowflake_figures::page::stale;

    #[test]
    fn the_committed_page_and_its_pictures_are_what_the_program_makes() {
        let command = "cargo run --release -p snowflake_scale -- --write";
        assert_eq!(stale(&make()), Vec::<String>::new(), "{command}");
    }

    #[test]
    fn every_choice_of_layout_is_shown() {
        assert_eq!(layouts().lines().count(), 2 + choices().len());
    }
}
