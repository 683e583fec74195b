//! Real servers, many clients, and faults drawn by a seed: no ID may be acknowledged twice.
//!
//! A run is a row of acts. In each, a cluster of its own, with workers of its own, lives through some
//! twenty faults, while clients ask it for IDs and note every one that is acknowledged, outside the
//! database. All notes of the run are compared with each other. The report is that of Jepsen's checker of
//! unique IDs, with the faults, the refusals and the times without an ID.

mod act;
mod clients;
mod disk;
mod faults;
mod random;
mod tally;

use act::{Act, Outcome, Stage};
use clients::{Clients, Shared, lock};
use faults::{ActPlan, Fault, Kind, World};
use random::Random;
use snowflake_server_tests::ids::Layout;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: scripts/chaos [option...]
  --seed N         draw the faults from this seed; the same seed draws the same faults (default: random)
  --duration TIME  run at least so long: 90s, 2m, 1h (default 2m, unless --faults or --ids is given)
  --faults N       run until so many faults were drawn
  --ids N          run until so many IDs were acknowledged
  --clients N      how many clients ask for IDs (default 16)
  --only KIND,...  draw only faults of these kinds
  --verbose        print each fault as it is drawn
  --list           print the kinds of faults";

struct Options {
    seed: u64,
    duration: Duration,
    faults: u32,
    ids: u64,
    clients: usize,
    only: Vec<Kind>,
    is_verbose: bool,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // Before there is any thread.
    let can_mount = disk::prepare_mounts();
    if !can_mount {
        println!("No file systems can be mounted here (it takes root): no full disks, and a folder is made");
        println!("read-only by its mode. Writes that fail are made by a library instead.");
    }
    run(&options, can_mount)
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        seed: std::process::id().into(),
        duration: Duration::ZERO,
        faults: 0,
        ids: 0,
        clients: 16,
        only: Kind::ALL.to_vec(),
        is_verbose: false,
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    options.seed ^= Random::new(now.as_nanos() as u64).next() % 1_000_000_000;
    let mut has_end = false;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--seed" => options.seed = number(&value()?)?,
            "--duration" => (options.duration, has_end) = (duration(&value()?)?, true),
            "--faults" => (options.faults, has_end) = (number(&value()?)? as u32, true),
            "--ids" => (options.ids, has_end) = (number(&value()?)?, true),
            "--clients" => options.clients = number(&value()?)?.clamp(2, 60) as usize,
            "--only" => {
                let names = value()?;
                let kinds = names
                    .split(',')
                    .map(|name| Kind::named(name).ok_or(format!("no fault is called {name}")));
                options.only = kinds.collect::<Result<_, _>>()?;
            }
            "--verbose" => options.is_verbose = true,
            "--list" => {
                Kind::ALL.iter().for_each(|kind| println!("{:<22} {}", kind.name(), kind.text()));
                return Ok(None);
            }
            "--help" => {
                println!("{USAGE}");
                return Ok(None);
            }
            _ => return Err(format!("what is {word}?")),
        }
    }
    if !has_end {
        options.duration = Duration::from_secs(120);
    }
    Ok(Some(options))
}

fn number(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("{text} is not a number"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("{text} is not a time, as 90s, 2m or 1h")),
    };
    Ok(Duration::from_secs(number(digits)? * unit))
}

/// What is known about the faults of one kind.
#[derive(Default)]
struct Record {
    longest: Vec<Duration>,
    recovery: Vec<Duration>,
    in_flight: usize,
}

#[derive(Default)]
struct Journal {
    acts: u32,
    faults: u32,
    by_kind: BTreeMap<Kind, Record>,
    last: Vec<String>,
}

impl Journal {
    fn note(&mut self, fault: &Fault, outcome: &Outcome) {
        let record = self.by_kind.entry(fault.kind).or_default();
        record.longest.push(outcome.longest);
        record.recovery.push(outcome.recovery);
        record.in_flight += outcome.in_flight;
    }
}

fn run(options: &Options, can_mount: bool) -> ExitCode {
    let command = command_line(options);
    println!("seed {}: {command}", options.seed);
    let began = Instant::now();
    let folder = snowflake_server_tests::faults::new_folder();
    let shared = Arc::new(Shared::new(&folder, options.clients));
    let stage = Stage::new(shared.clone());
    let progress = Progress::start(shared.clone());
    let clients = Clients::start(&shared, options.clients, options.seed);
    let mut journal = Journal::default();

    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let mut random = Random::new(options.seed);
        let is_done = |journal: &Journal| {
            began.elapsed() >= options.duration
                && journal.faults >= options.faults
                && shared.tally.count() >= options.ids
        };
        while !is_done(&journal) && !shared.is_wrong() {
            let plan = ActPlan::draw(&mut random, can_mount);
            journal.acts += 1;
            if options.is_verbose {
                println!("{:7.1} s: act {}: {plan:?}", began.elapsed().as_secs_f64(), journal.acts);
            }
            let mut act = Act::begin(&stage, &plan);
            for _ in 0..plan.faults {
                let world: &World = &act.world;
                let Some(fault) = world.draw(&mut random, journal.faults + 1, &options.only) else { break };
                journal.faults += 1;
                progress.faults.store(journal.faults.into(), Ordering::Relaxed);
                let line = format!("{:7.1} s: fault {fault}", began.elapsed().as_secs_f64());
                if options.is_verbose {
                    println!("{line}");
                }
                journal.last.push(line);
                let surplus = journal.last.len().saturating_sub(30);
                journal.last.drain(..surplus);
                let outcome = act.suffer(&fault);
                if options.is_verbose {
                    println!("           longest {:?}, recovery {:?}", outcome.longest, outcome.recovery);
                }
                journal.note(&fault, &outcome);
                assert!(!clients.have_died(), "a client has panicked");
                if shared.tally.fresh() > 200_000 {
                    progress.twice.store(shared.tally.compare(), Ordering::Relaxed);
                }
                if is_done(&journal) || shared.is_wrong() || progress.twice.load(Ordering::Relaxed) > 0 {
                    break;
                }
            }
            act.end();
            progress.twice.store(shared.tally.compare(), Ordering::Relaxed);
            if progress.twice.load(Ordering::Relaxed) > 0 {
                break;
            }
        }
    }));
    shared.send_to(Vec::new());
    drop(clients);
    drop(progress);
    report(options, &command, &shared, &stage, &journal, began.elapsed(), outcome.is_err())
}

fn command_line(options: &Options) -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seed = if words.iter().any(|word| word == "--seed") {
        String::new()
    } else {
        format!(" --seed {}", options.seed)
    };
    format!("scripts/chaos{seed} {}", words.join(" ")).trim_end().to_owned()
}

/// A line every 10 s.
struct Progress {
    faults: Arc<AtomicU64>,
    twice: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Progress {
    fn start(shared: Arc<Shared>) -> Self {
        let (faults, twice, stop) =
            (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::default());
        let seen = (faults.clone(), twice.clone(), Arc::<AtomicBool>::clone(&stop));
        let thread = std::thread::spawn(move || {
            let began = Instant::now();
            let mut next = Duration::from_secs(10);
            while !seen.2.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(50));
                if began.elapsed() >= next {
                    println!(
                        "{:5} s: {:4} faults, {:>13} IDs acknowledged, {} duplicated",
                        next.as_secs(),
                        seen.0.load(Ordering::Relaxed),
                        grouped(shared.tally.count()),
                        seen.1.load(Ordering::Relaxed),
                    );
                    next += Duration::from_secs(10);
                }
            }
        });
        Self { faults, twice, stop, thread: Some(thread) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn report(
    options: &Options,
    command: &str,
    shared: &Shared,
    stage: &Stage,
    journal: &Journal,
    took: Duration,
    has_failed: bool,
) -> ExitCode {
    let twice = shared.tally.compare();
    let duplicates = shared.tally.duplicates(10);
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
    println!("duplicated     {:>16}", grouped(twice));
    if let Some((lowest, highest)) = shared.tally.range() {
        println!("range          {lowest} {:?}", Layout::DEFAULT.parts(lowest));
        println!("               {highest} {:?}", Layout::DEFAULT.parts(highest));
    }

    println!("\n== Faults: {} in {} acts", grouped(journal.faults.into()), journal.acts);
    println!(
        "{:<22} {:>6} {:>12} {:>12} {:>12} {:>12}",
        "", "", "without an ID (ms)", "", "after healing", ""
    );
    println!(
        "{:<22} {:>6} {:>12} {:>12} {:>12} {:>12}",
        "kind", "count", "median", "longest", "median", "longest"
    );
    for (kind, record) in &journal.by_kind {
        let figures = |times: &[Duration]| {
            let mut sorted = times.to_vec();
            sorted.sort_unstable();
            let millis = |time: Option<&Duration>| time.map_or(0, |time| time.as_millis());
            (millis(sorted.get(sorted.len() / 2)), millis(sorted.last()))
        };
        let ((median, longest), (after, longest_after)) =
            (figures(&record.longest), figures(&record.recovery));
        println!(
            "{:<22} {:>6} {median:>12} {longest:>12} {after:>12} {longest_after:>12}",
            kind.name(),
            record.longest.len()
        );
    }
    let in_flight: usize = journal.by_kind.values().map(|record| record.in_flight).sum();
    println!(
        "{} calls were on the way when a fault began; {} faults had nothing to hit",
        in_flight,
        stage.skipped.get()
    );
    println!(
        "{} times all lanes had made IDs of a time to come, and the worker was changed",
        stage.interventions.get()
    );
    println!(
        "{} times a server went down between its promotion and its first record, and was adopted",
        stage.adopted.get()
    );

    println!("\n== Refusals");
    for (reason, count) in lock(&counts.refusals).iter() {
        println!("{:>12}  {reason}", grouped(*count));
    }

    let wrong = lock(&counts.wrong);
    let is_bad = has_failed || twice > 0 || !wrong.is_empty();
    if is_bad {
        println!("\n== What is wrong");
        if has_failed {
            println!("the run ended early: see above");
        }
        wrong.iter().for_each(|line| println!("{line}"));
        for (id, notes) in &duplicates {
            println!("{id} {:?} was acknowledged {} times:", Layout::DEFAULT.parts(*id), notes.len());
            for note in notes {
                println!(
                    "    server {}, client {}, its call {}, {:.6} s to {:.6} s, after fault {}: {} to {}",
                    note.server,
                    note.client,
                    note.call,
                    note.began_us as f64 / 1e6,
                    note.ended_us as f64 / 1e6,
                    note.fault,
                    note.first,
                    note.last
                );
            }
        }
        println!("the last faults:");
        journal.last.iter().for_each(|line| println!("{line}"));
    }
    println!(
        "\n{}: {} IDs, {} faults, {} duplicates in {:.0} s; seed {}; {command}",
        if is_bad { "FAILED" } else { "passed" },
        grouped(shared.tally.count()),
        grouped(journal.faults.into()),
        grouped(twice),
        took.as_secs_f64(),
        options.seed
    );
    if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
