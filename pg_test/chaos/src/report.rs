//! The report of a run.

use crate::Options;
use crate::shared::Shared;
use crate::tally::{Note, lock};
use snowflake_server_tests::ids::Layout;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Times of one fault.
pub struct Outcome {
    /// The longest time without an ID, from the fault on.
    pub longest: Duration,
    /// From the healing to the first ID of each server, for calls that began after it.
    pub recovery: Duration,
    /// Calls that were under way when the fault began.
    pub in_flight: usize,
}

#[derive(Default)]
pub struct Journal {
    pub acts: u32,
    pub faults: u32,
    by_kind: BTreeMap<&'static str, Vec<Outcome>>,
    last: Vec<String>,
}

impl Journal {
    pub fn begin(&mut self, line: String) {
        self.faults += 1;
        self.last.push(line);
        let surplus = self.last.len().saturating_sub(30);
        self.last.drain(..surplus);
    }

    pub fn end(&mut self, kind: &'static str, outcome: Outcome) {
        self.by_kind.entry(kind).or_default().push(outcome);
    }
}

pub fn report(
    options: &Options,
    shared: &Shared,
    journal: &Journal,
    took: Duration,
    has_failed: bool,
) -> ExitCode {
    let twice = shared.tally.compare();
    print_ids(shared);
    print_faults(shared, journal, &options.names());
    println!("\n== Refusals");
    for (reason, count) in lock(&shared.counts.refusals).iter() {
        println!("{:>12}  {reason}", grouped(*count));
    }
    let is_bad = has_failed || twice > 0 || shared.is_wrong();
    if is_bad {
        print_wrong(shared, journal, has_failed);
    }
    println!(
        "\n{}: {} IDs, {} faults, {} duplicates in {:.0} s; seed {}; {}",
        if is_bad { "FAILED" } else { "passed" },
        grouped(shared.tally.count()),
        grouped(journal.faults.into()),
        grouped(twice),
        took.as_secs_f64(),
        options.seed,
        options.command_line()
    );
    if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn print_ids(shared: &Shared) {
    let counts = &shared.counts;
    let read = |counter: &AtomicU64| grouped(counter.load(Ordering::Relaxed));
    println!("\n== IDs");
    println!("attempted      {:>16}  in {} calls", read(&counts.attempted), read(&counts.calls));
    println!("acknowledged   {:>16}", grouped(shared.tally.count()));
    println!("refused        {:>16}", read(&counts.refused));
    println!(
        "in flight      {:>16}  in {} calls whose connection broke; the rows of {} inserts were found later",
        read(&counts.lost),
        read(&counts.lost_calls),
        read(&counts.found),
    );
    println!("duplicated     {:>16}", grouped(shared.tally.twice()));
    if let Some((lowest, highest)) = shared.tally.range() {
        println!("range          {lowest} {:?}", Layout::DEFAULT.parts(lowest));
        println!("               {highest} {:?}", Layout::DEFAULT.parts(highest));
    }
}

fn print_faults(shared: &Shared, journal: &Journal, names: &[&'static str]) {
    println!("\n== Faults: {} in {} acts", grouped(journal.faults.into()), journal.acts);
    let print = |name: &str, count: &str, [a, b, c, d]: [&str; 4]| {
        println!("{name:<22} {count:>6} {a:>12} {b:>12} {c:>12} {d:>12}");
    };
    print("", "", ["without an ID (ms)", "", "after healing", ""]);
    print("kind", "count", ["median", "longest", "median", "longest"]);
    for name in names {
        let Some(outcomes) = journal.by_kind.get(name) else { continue };
        let figures = |time: fn(&Outcome) -> Duration| {
            let mut sorted: Vec<u128> = outcomes.iter().map(|outcome| time(outcome).as_millis()).collect();
            sorted.sort_unstable();
            [sorted[sorted.len() / 2], sorted[sorted.len() - 1]].map(|millis| millis.to_string())
        };
        let ([a, b], [c, d]) = (figures(|outcome| outcome.longest), figures(|outcome| outcome.recovery));
        print(name, &outcomes.len().to_string(), [&a, &b, &c, &d]);
    }
    println!(
        "{} calls were on the way when a fault began; {} faults had nothing to hit",
        journal.by_kind.values().flatten().map(|outcome| outcome.in_flight).sum::<usize>(),
        shared.skipped.load(Ordering::Relaxed)
    );
    println!(
        "{} times all lanes had made IDs of a time to come, and the worker was changed; {} times a server asked for \
         snowflake_adopt by its message, and got it",
        shared.interventions.load(Ordering::Relaxed),
        shared.adopted.load(Ordering::Relaxed)
    );
}

fn print_wrong(shared: &Shared, journal: &Journal, has_failed: bool) {
    println!("\n== What is wrong");
    if has_failed {
        println!("the run ended early: see above");
    }
    lock(&shared.counts.wrong).iter().for_each(|line| println!("{line}"));
    for (id, notes) in &shared.tally.duplicates(10) {
        println!("{id} {:?} was acknowledged {} times:", Layout::DEFAULT.parts(*id), notes.len());
        for Note { first, last, client, server, fault, call, began_us, ended_us } in notes {
            let [began, ended] = [began_us, ended_us].map(|us| *us as f64 / 1e6);
            print!("    server {server}, client {client}, its call {call}, {began:.6} s to {ended:.6} s, ");
            println!("after fault {fault}: {first} to {last}");
        }
    }
    println!("the last faults:");
    journal.last.iter().for_each(|line| println!("{line}"));
}

/// 1234567 as 1,234,567.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}
