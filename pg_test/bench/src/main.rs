//! The cost of `snowflake_id` beside the keys that people would choose instead, on real servers, and the page about it.
//!
//! * [`candidates`]: the keys that are compared;
//! * [`bench`], [`probe`]: a server of its own, rounds in which all take turns, and whether something disturbed them;
//! * [`measure`]: the measurements;
//! * [`run`]: their results, a data file for each major version;
//! * [`targets`]: the project's performance targets;
//! * [`page`], [`blocks`], [`picture`]: the figures of `docs/benchmarks.md` and of the README, from the data files;
//! * [`stats`], [`text`]: statistics and numbers;
//! * [`machine`]: what was measured, and on what.
//!
//! `scripts/bench` starts it, after it has built and installed the extension.

mod bench;
mod blocks;
mod candidates;
mod machine;
mod measure;
mod page;
mod picture;
mod probe;
mod run;
mod stats;
mod targets;
mod text;

use bench::{Bench, say};
use clap::Parser;
use measure::MEASUREMENTS;
use run::Run;
use std::time::Instant;

/// Measures the extension that is installed, and prints ratios.
#[derive(Parser)]
struct Options {
    /// Rounds for the full time, less than 5 minutes, rather than for a fifth of it
    #[arg(long)]
    full: bool,
    /// Only these measurements, by name
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write the data file of this version into docs/benchmarks
    #[arg(long, conflicts_with = "only")]
    save: bool,
    /// Make docs/benchmarks.md and the README's figures from the data files, and measure nothing
    #[arg(long, conflicts_with_all = ["full", "only", "save"])]
    page: bool,
}

fn main() {
    snowflake_server_tests::messages::leave_uncompared();
    let options = Options::parse();
    if options.page {
        blocks::write(&page::make(&Run::load_all()));
        return;
    }
    for name in &options.only {
        assert!(MEASUREMENTS.iter().any(|known| known.name == name), "no measurement is called {name}");
    }
    let run = measured(&options);
    print!("{}", page::summary(&run));
    if options.save {
        let path = run.path();
        std::fs::write(&path, run.text()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

fn measured(options: &Options) -> Run {
    let began = Instant::now();
    let mut bench = Bench::new(if options.full { 1.0 } else { 0.2 });
    for one in &MEASUREMENTS {
        if options.only.is_empty() || options.only.iter().any(|only| only == one.name) {
            let began = Instant::now();
            say(&format!("-- PostgreSQL {}: {}", bench.run.postgres, one.name));
            (one.measure)(&mut bench, one.seconds);
            say(&format!("   {:.0} s", began.elapsed().as_secs_f64()));
        }
    }
    let mut run = bench.run;
    run.minutes = (began.elapsed().as_secs_f64() / 6.0).round() / 10.0;
    run
}
