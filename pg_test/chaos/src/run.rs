//! The loop: draws faults, inflicts them on one cluster after another, and checks after each.

use crate::act::{Act, Stage};
use crate::clients::Clients;
use crate::faults::{Clock, Fault, Kind};
use crate::random::Random;
use crate::report::{Journal, Outcome, grouped, report};
use crate::shared::Shared;
use crate::world::{ActPlan, World};
use crate::{Mode, Options, clients, fleet, volume};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub fn run(options: &Options, can_mount: bool) -> ExitCode {
    println!("seed {}: {}", options.seed, options.command_line());
    let began = Instant::now();
    let folder = snowflake_server_tests::faults::new_folder();
    let is_expected = match options.mode {
        Mode::Cluster(_) => clients::is_expected,
        Mode::Fleet(_) => fleet::is_expected,
    };
    let shared = Arc::new(Shared::new(&folder, options.clients, is_expected));
    let stage = Stage::new(shared.clone());
    let clients = Clients::start(&shared, options.clients, options.seed);
    let mut run = Run { options, began, shared: &shared, clients, journal: Journal::default() };
    let outcome = std::thread::scope(|threads| {
        threads.spawn(|| print_progress(&shared));
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| match &options.mode {
            Mode::Cluster(kinds) => run.draw_and_check(&stage, kinds, can_mount),
            Mode::Fleet(kinds) => fleet::draw_and_check(&mut run, kinds, can_mount),
        }));
        shared.send_to(Vec::new());
        run.clients.stop();
        outcome
    });
    let remarks = match options.mode {
        Mode::Cluster(_) => stage.remarks(),
        Mode::Fleet(_) => Vec::new(),
    };
    report(options, &shared, &run.journal, &remarks, began.elapsed(), outcome.is_err())
}

pub struct Run<'a> {
    pub options: &'a Options,
    began: Instant,
    pub shared: &'a Arc<Shared>,
    pub clients: Clients,
    pub journal: Journal,
}

impl Run<'_> {
    fn draw_and_check(&mut self, stage: &Stage, kinds: &[&'static Kind], can_mount: bool) {
        let has_volumes = can_mount && volume::can_be_mounted();
        if !has_volumes {
            println!("No loop devices can be mounted here: no volume is cloned or set back.");
        }
        let tally = &self.shared.tally;
        let mut random = Random::new(self.options.seed);
        while !self.is_over() {
            let plan = ActPlan::draw(&mut random, can_mount, has_volumes);
            let faults = plan.faults;
            self.journal.acts += 1;
            self.say(&format!("act {}: {plan:?}", self.journal.acts));
            let mut act = Act::begin(stage, plan);
            for _ in 0..faults {
                let number = self.journal.faults + 1;
                let Some(fault) = Fault::draw(&mut random, &act.world, number, kinds) else {
                    break;
                };
                let line = self.say(&format!("fault {fault}"));
                self.journal.begin(line);
                let outcome = inflict(&mut act, &fault);
                if self.options.is_verbose {
                    println!("           longest {:?}, recovery {:?}", outcome.longest, outcome.recovery);
                }
                self.journal.end(fault.kind.name, outcome);
                assert!(!self.clients.have_died(), "a client has panicked");
                if tally.fresh() > 200_000 {
                    tally.compare();
                }
                if self.is_over() {
                    break;
                }
            }
            act.end();
            tally.compare();
        }
    }

    /// Whether the run has done what the options ask for, or something is wrong.
    pub fn is_over(&self) -> bool {
        let shared = self.shared;
        let is_done = self.began.elapsed() >= self.options.duration
            && self.journal.faults >= self.options.faults
            && shared.tally.count() >= self.options.ids;
        is_done || shared.is_wrong() || shared.tally.twice() > 0
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

/// Inflicts a fault, which its function heals, and waits until every server generates IDs again.
fn inflict(act: &mut Act, fault: &Fault) -> Outcome {
    let shared = act.shared();
    shared.fault.store(fault.number, Ordering::Relaxed);
    // IDs may no longer be as far ahead as the clock was before the last fault.
    act.set_clock(act.primary.offset_us());
    if act.world.shifted && (fault.kind.clock == Clock::True || fault.variant.is_multiple_of(3)) {
        act.set_clock_right();
        act.world.shifted = false;
    }
    if act.world.is_replaced && fault.variant.is_multiple_of(2) {
        act.adopt();
    }
    shared.reset_longest();
    let in_flight = shared.under_way();
    (fault.kind.inflict)(act, fault);
    let mut recovery = act.must_serve_after(fault.kind.name);
    let longest = shared.longest();
    if act.world.future >= World::LANES {
        act.take_unused_worker();
        recovery = act.must_serve_after("a worker that was never used");
    }
    Outcome { longest, recovery, in_flight }
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
