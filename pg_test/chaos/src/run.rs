//! A run: its clients, its journal, and when it is over.

use crate::Options;
use crate::clients::Clients;
use crate::report::{Journal, grouped, report};
use crate::shared::Shared;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Starts clients and `draw_and_check`, which sends them to servers, and reports.
pub fn run(
    options: &Options,
    is_expected: fn(&str, &str) -> bool,
    draw_and_check: impl FnOnce(&mut Run),
) -> ExitCode {
    println!("seed {}: {}", options.seed, options.command_line());
    let began = Instant::now();
    let folder = snowflake_server_tests::faults::new_folder();
    let shared = Arc::new(Shared::new(&folder, options.clients, is_expected));
    let clients = Clients::start(&shared, options.clients, options.seed);
    let mut run = Run { options, began, shared: &shared, clients, journal: Journal::default() };
    let outcome = std::thread::scope(|threads| {
        threads.spawn(|| print_progress(&shared));
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| draw_and_check(&mut run)));
        shared.send_to(Vec::new());
        run.clients.stop();
        outcome
    });
    report(options, &shared, &run.journal, began.elapsed(), outcome.is_err())
}

pub struct Run<'a> {
    pub options: &'a Options,
    began: Instant,
    pub shared: &'a Arc<Shared>,
    pub clients: Clients,
    pub journal: Journal,
}

impl Run<'_> {
    /// Whether the run has done what the options ask for, or something is wrong.
    pub fn is_over(&self) -> bool {
        let shared = self.shared;
        let is_done = self.began.elapsed() >= self.options.duration
            && self.journal.faults >= self.options.faults
            && shared.tally.count() >= self.options.ids;
        is_done || shared.is_wrong() || shared.tally.twice() > 0
    }

    /// After each fault: no client has panicked, and there is no ID twice among those that are not compared yet.
    pub fn check(&self) {
        assert!(!self.clients.have_died(), "a client has panicked");
        if self.shared.tally.fresh() > 200_000 {
            self.shared.tally.compare();
        }
    }

    /// Puts the time before a line, and prints it with `--verbose`.
    pub fn say(&self, text: &str) -> String {
        let line = format!("{:7.1} s: {text}", self.began.elapsed().as_secs_f64());
        if self.options.is_verbose {
            println!("{line}");
        }
        line
    }
}

/// Prints a line every 10 s, until the clients are stopped.
fn print_progress(shared: &Shared) {
    let began = Instant::now();
    let mut next = Duration::from_secs(10);
    while !shared.stop.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(50));
        if began.elapsed() >= next {
            println!(
                "{:5} s: {:4} faults, {:>13} IDs acknowledged, {} duplicated",
                next.as_secs(),
                shared.fault.load(Ordering::Relaxed),
                grouped(shared.tally.count()),
                shared.tally.twice(),
            );
            next += Duration::from_secs(10);
        }
    }
}
