//! Runs of tapes: all of a small scope, random ones of a large one, and a failing one made shorter.

use super::actions::act;
use super::runs::{Counts, World};
use super::scopes::{AHEADS, HOUR, LARGE, MS, OFFSETS, SECOND, SMALL, Scope, limits, settings};
use crate::simulation::basics::start_on;
use crate::simulation::disk::{SimDisk, SimHost};
use crate::simulation::registry::Registry;
use crate::simulation::tape::Tape;
use crate::simulation::world::{Machine, SYSTEM, draw_anew};
use snowflake_core::Start;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Runs the tape once and returns its counts; panics if a guarantee is broken.
fn run(
    scope: &Scope,
    tape: &Rc<Tape>,
    states: HashSet<u64>,
    with_log: bool,
    log: &RefCell<Vec<String>>,
) -> (Counts, HashSet<u64>) {
    let boot = Rc::new(Cell::new(77_000_000));
    let world = Rc::new(World {
        tape: tape.clone(),
        servers: RefCell::default(),
        current: Cell::new(0),
        timeline: Cell::new(1),
        history: RefCell::default(),
        clocks: RefCell::default(),
        runs: Cell::new(0),
        highest: RefCell::default(),
        counts: RefCell::default(),
        log: RefCell::new(with_log.then(Vec::new)),
        states: RefCell::new(states),
        faulty_disk: scope.faulty_disk,
        interrupted: scope.interrupted,
        forgets_lock: scope.forgets_lock,
        is_large: scope.length > 10,
        steps: scope.steps,
        source: scope.source,
        // Its leases and its groups run out soon.
        registry: Registry::of(2, 2 * SECOND),
        grants: RefCell::default(),
    });
    let length = scope.length + number("MODEL_DEPTH", 0) as usize;
    let backups = scope.backups[tape.choose(scope.backups.len() as u32) as usize];
    let policy = scope.policies[tape.choose(scope.policies.len() as u32) as usize];
    let limits = limits(policy, AHEADS[0]);
    draw_anew();
    let hosts: [Rc<SimHost>; 2] = Default::default();
    for host in &hosts {
        let weak = Rc::downgrade(&world);
        let before = move |directory: u64| {
            let servers = weak.upgrade().map_or_else(Vec::new, |world| world.servers.borrow().clone());
            servers[directory as usize / 1_000].before_lock();
        };
        *host.before.borrow_mut() = Some(Rc::new(before));
    }
    let has_two_hosts = scope.hosts.contains(&1);
    let offset = if has_two_hosts { OFFSETS[tape.choose(OFFSETS.len() as u32) as usize] } else { 0 };
    for (name, host) in scope.hosts.iter().enumerate() {
        let mut disk = SimDisk::numbered(tape, 1 + 1_000 * name as u64);
        disk.host_lock.host = hosts[*host].clone();
        if scope.trusts_page_cache {
            disk.trust_page_cache();
        }
        let machine = Machine::new(settings(0, backups, limits, scope.source), &boot, disk);
        machine.step(if *host == 1 { offset } else { 0 });
        machine.start.set(Start { system_identifier: SYSTEM, ..start_on(1) });
        world.join(machine, *host, backups, limits);
    }

    let result = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..length {
            let action = scope.actions[tape.choose(scope.actions.len() as u32) as usize];
            world.log(|| format!("- {action:?}"));
            act(&world, action);
            remember(&world);
        }
        recover(&world);
    }));
    if let Some(lines) = world.log.borrow_mut().take() {
        *log.borrow_mut() = lines;
    }
    for server in world.servers.borrow().iter() {
        server.machine.go_down();
    }
    if let Err(payload) = result {
        resume_unwind(payload);
    }
    (world.counts.take(), world.states.take())
}

/// Checks what must hold after every action, and counts the state if it is new.
fn remember(world: &World) {
    let known = world.highest.borrow();
    for ((worker, name), tick) in known.iter() {
        let disk = &world.servers.borrow()[*name].machine.disk;
        let mark = disk.lowest_mark(*worker);
        assert!(
            mark.is_none_or(|mark| *tick <= mark),
            "guarantee 2: worker {worker} went to {tick}, marked {mark:?}"
        );
    }
    drop(known);
    for server in world.servers.borrow().iter() {
        let run = server.run.borrow();
        // What a start without this state relies on (rule 2): no ID is further ahead of the clock than the record says.
        if run.is_open
            && run.steps_back == 0
            && let Some(said) = server.machine.disk.said()
        {
            let ahead = run.highest - server.machine.wall();
            assert!(
                ahead <= said.max_ahead_us,
                "{ahead} us ahead, and the record says {}",
                said.max_ahead_us
            );
        }
    }
    let mut states = world.states.borrow_mut();
    if states.len() >= 4_000_000 {
        return;
    }
    let mut hasher = DefaultHasher::new();
    for server in world.servers.borrow().iter() {
        (server.machine.disk.digest(), server.machine.wall()).hash(&mut hasher);
        if server.machine.is_up() {
            server.machine.with(|generator| generator.current_tick()).hash(&mut hasher);
        }
    }
    states.insert(hasher.finish());
}

/// At the end the disks work and the clocks go on: every server generates IDs again, one after the other.
fn recover(world: &Rc<World>) {
    let servers = world.servers.borrow().clone();
    for server in &servers {
        server.start();
        remember(world);
        server.machine.disk.heal();
        *server.machine.meanwhile.borrow_mut() = None;
        // More than all steps of a run together.
        server.machine.pass(1_000 * HOUR);
        if world.is_leased() {
            server.meet(true);
            server.start();
        }
        let before = world.counts.borrow().ids;
        for _ in 0..3 {
            server.call();
        }
        assert_eq!(world.counts.borrow().ids, before + 3, "a server is stuck");
        server.restart(true);
        server.waited.set(0);
        server.start();
        let waited = server.waited.get();
        assert!(world.is_leased() || waited <= MS, "a start after a clean stop waits for {waited} us");
        server.call();
        assert_eq!(world.counts.borrow().ids, before + 4, "a server is stuck after a clean stop");
    }
}

/// The counts of an exploration.
#[derive(Default)]
pub struct Explored {
    runs: u64,
    counts: Counts,
    states: HashSet<u64>,
}

impl Explored {
    fn add(&mut self, counts: Counts) {
        self.runs += 1;
        self.counts.calls += counts.calls;
        self.counts.ids += counts.ids;
        self.counts.actions += counts.actions;
        self.counts.starts += counts.starts;
        self.counts.points += counts.points;
        self.counts.faults += counts.faults;
        self.counts.promotions += counts.promotions;
        self.counts.excused += counts.excused;
    }

    fn tell(&self, name: &str, took: Duration) {
        let Counts { calls, ids, excused, actions, starts, points, faults, promotions } = self.counts;
        let (runs, states) = (self.runs, self.states.len());
        println!(
            "{name}: {runs} runs, {states} states, {actions} actions, {starts} starts, {promotions} promotions, \
             {calls} calls, {ids} IDs, {excused} repeated and excused, {points} disk points, {faults} faults in \
             {took:.1?}"
        );
    }
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    match (payload.downcast_ref::<String>(), payload.downcast_ref::<&str>()) {
        (Some(text), _) => text.clone(),
        (_, Some(text)) => (*text).to_owned(),
        _ => "it unwound".to_owned(),
    }
}

/// Runs a tape; if it fails, returns the message, the log and the choices.
pub fn outcome(scope: &Scope, given: &[u32]) -> Result<(), (String, Vec<String>, Vec<u32>)> {
    let tape = Rc::new(Tape::given(given.to_vec(), scope.faults));
    let log = RefCell::default();
    let result = catch_unwind(AssertUnwindSafe(|| run(scope, &tape, HashSet::new(), true, &log)));
    result.map(drop).map_err(|payload| (message(&*payload), log.take(), tape.taken()))
}

/// Makes a failing tape shorter and simpler for as long as it still fails.
fn shrunk(scope: &Scope, mut tape: Vec<u32>) -> Vec<u32> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let end = Instant::now() + Duration::from_secs(number("MODEL_SHRINK", 10));
    let mut improved = true;
    while improved && Instant::now() < end {
        improved = false;
        for size in [8, 4, 2, 1] {
            let mut at = 0;
            while at < tape.len() && Instant::now() < end {
                let mut shorter = tape.clone();
                shorter.drain(at..(at + size).min(tape.len()));
                let mut plainer = tape.clone();
                plainer[at..(at + size).min(tape.len())].fill(0);
                let is_plainer = plainer != tape;
                if outcome(scope, &shorter).is_err() {
                    tape = shorter;
                    improved = true;
                } else if is_plainer && outcome(scope, &plainer).is_err() {
                    tape = plainer;
                    improved = true;
                } else {
                    at += size;
                }
            }
        }
    }
    while tape.last() == Some(&0) {
        tape.pop();
    }
    std::panic::set_hook(hook);
    tape
}

/// Prints a failing tape in its shortest form, and fails.
fn fail(scope: &Scope, tape: Vec<u32>) -> ! {
    let tape = shrunk(scope, tape);
    let text: Vec<String> = tape.iter().map(u32::to_string).collect();
    let (what, log) = match outcome(scope, &tape) {
        Err((what, log, _)) => (what, log),
        Ok(()) => ("it does not fail any more".to_owned(), Vec::new()),
    };
    panic!("{what}\n\n{}\n\nMODEL_REPLAY=\"{}: {}\"", log.join("\n"), scope.name, text.join(","));
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Runs a tape without output; returns its choices if it fails.
fn quietly(scope: &Scope, tape: Tape, explored: &mut Explored) -> Result<Rc<Tape>, Vec<u32>> {
    let tape = Rc::new(tape);
    let states = std::mem::take(&mut explored.states);
    match catch_unwind(AssertUnwindSafe(|| run(scope, &tape, states, false, &RefCell::default()))) {
        Ok((counts, states)) => {
            explored.states = states;
            explored.add(counts);
            Ok(tape)
        }
        Err(_) => Err(tape.taken()),
    }
}

/// Runs every tape of a scope.
fn exhaust(scope: &Scope) -> Result<Explored, Vec<u32>> {
    let mut explored = Explored::default();
    let mut next = Some(Vec::new());
    while let Some(given) = next {
        let tape = quietly(scope, Tape::given(given, scope.faults), &mut explored)?;
        next = tape.next();
    }
    Ok(explored)
}

fn replayed(scope: &Scope) -> bool {
    let Ok(replay) = env::var("MODEL_REPLAY") else { return false };
    let (name, tape) = replay.split_once(':').expect("scope: choices");
    if name == scope.name {
        let choices = tape.split(',').map(|choice| choice.trim().parse().expect("a choice"));
        if let Err((what, log, _)) = outcome(scope, &choices.collect::<Vec<_>>()) {
            panic!("{what}\n\n{}", log.join("\n"));
        }
    }
    true
}

pub fn every_tape(name: &str) {
    let scope = SMALL.iter().find(|scope| scope.name == name).expect("a scope");
    if replayed(scope) {
        return;
    }
    let began = Instant::now();
    match exhaust(scope) {
        Ok(explored) => explored.tell(name, began.elapsed()),
        Err(tape) => fail(scope, tape),
    }
}

/// Runs random tapes for so many seconds; returns the first that fails, with its seed.
pub fn explore(scope: &Scope, seconds: u64) -> Result<Explored, (u64, Vec<u32>)> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut explored = Explored::default();
    for seed in number("MODEL_SEED", 1).. {
        if Instant::now() >= end {
            break;
        }
        let tape = Tape::random(seed, scope.faults, 24);
        quietly(scope, tape, &mut explored).map_err(|tape| (seed, tape))?;
    }
    Ok(explored)
}

pub fn large(name: &str) -> &'static Scope {
    LARGE.iter().find(|scope| scope.name == name).expect("a scope")
}

pub fn random_tapes(name: &str) {
    let scope = large(name);
    if replayed(scope) {
        return;
    }
    let began = Instant::now();
    match explore(scope, number("MODEL_SECONDS", 2)) {
        Ok(explored) => explored.tell(name, began.elapsed()),
        Err((seed, tape)) => {
            eprintln!("seed {seed}");
            fail(scope, tape)
        }
    }
}
