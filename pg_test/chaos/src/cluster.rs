//! The loop of a run without `--fleet`: draws faults, inflicts them on one cluster after another, and checks after each.

use crate::act::{Act, Stage};
use crate::faults::{Clock, Fault, Kind};
use crate::random::Random;
use crate::report::Outcome;
use crate::run::Run;
use crate::volume;
use crate::world::{ActPlan, World};
use std::sync::atomic::Ordering;

pub fn draw_and_check(run: &mut Run, kinds: &[&'static Kind], can_mount: bool) {
    let has_volumes = volume::can_be_used(can_mount);
    let stage = Stage::new(run.shared.clone());
    let mut random = Random::new(run.options.seed);
    while !run.is_over() {
        let plan = ActPlan::draw(&mut random, can_mount, has_volumes);
        let faults = plan.faults;
        run.journal.acts += 1;
        run.say(&format!("act {}: {plan:?}", run.journal.acts));
        let mut act = Act::begin(&stage, plan);
        for _ in 0..faults {
            let number = run.journal.faults + 1;
            let Some(fault) = Fault::draw(&mut random, &act.world, number, kinds) else {
                break;
            };
            let line = run.say(&format!("fault {fault}"));
            run.journal.begin(line);
            let outcome = inflict(&mut act, &fault);
            if run.options.is_verbose {
                println!("           longest {:?}, recovery {:?}", outcome.longest, outcome.recovery);
            }
            run.journal.end(fault.kind.name, outcome);
            run.check();
            if run.is_over() {
                break;
            }
        }
        act.end();
        run.shared.tally.compare();
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
