//! What a run of the model consists of: servers in their directories, hosts and their clocks, a registry, and every ID
//! that was generated; and by what promise a run is judged.

use super::scopes::{MS, TOLERANCE};
use crate::simulation::basics::Memory;
use crate::simulation::disk::{Fault, Said};
use crate::simulation::registry::Registry;
use crate::simulation::tape::Tape;
use crate::simulation::world::{Lock, Machine};
use snowflake_core::platform::FileIdentity;
use snowflake_core::{Answer, Config, Contact, Event, Lease, Limits, Parts, WorkerSource};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::{Rc, Weak};

#[derive(Clone, Copy, Default)]
pub struct Last {
    pub id: i64,
    pub rotations: usize,
    pub steps_back: u32,
    pub leases: u32,
}

/// An ID that a call returned.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    pub run: u64,
    pub host: usize,
    /// When it was generated, in calls of the world.
    pub moment: u64,
    /// The lowest clock under which a call generated it.
    pub clock: i64,
}

/// A run: from the clock that its start reads to its last process.
#[derive(Clone, Default)]
pub struct Run {
    pub number: u64,
    pub host: usize,
    /// When it began, in calls of the world.
    pub moment: u64,
    /// The clock when its workers were locked, and the lowest since.
    pub start: i64,
    pub lowest: i64,
    /// The record that it found.
    pub found: Option<Said>,
    /// The workers of its settings, and what its start was told.
    pub workers: Vec<i64>,
    pub timeline: u32,
    pub is_leased: bool,
    /// An operator has adopted the state.
    pub is_adopted: bool,
    /// The longest `max_ahead` of the record and the settings.
    pub max_ahead: i64,
    /// Its decision is on disk: it locks nothing any more.
    pub is_decided: bool,
    pub is_open: bool,
    /// The worker with which it began.
    pub first_worker: i64,
    pub last: Option<Last>,
    pub rotations: usize,
    pub steps_back: u32,
    /// How many answers of the registry may have changed where it goes on.
    pub leases: u32,
    /// How many rotations may have another cause than a step back in this run.
    pub excuses: u32,
    /// Nothing has happened that would allow another lane than the recorded one.
    pub must_keep_lane: bool,
    /// The end of its highest ID's tick, and the highest clock that its calls have read.
    pub highest: i64,
    pub highest_clock: i64,
}

impl Run {
    /// Whether rule 4 raises this worker's mark at the start: the record cannot be the newest. The floor of a lease
    /// replaces that rule.
    pub fn is_floored(&self, worker: i64) -> bool {
        let is_floored = self.found.as_ref().is_none_or(|found| {
            self.is_adopted
                || found.timeline != self.timeline as u64
                || !found.active.is_some_and(|active| self.workers.contains(&active))
                || !found.marks.contains_key(&worker)
        });
        is_floored && !self.is_leased
    }

    /// Whether the promise lets this run repeat an ID that another generated: the newest state was lost or replaced,
    /// and a clock was behind. A state that has the ID below its mark counts as the newest. This run's clock was behind
    /// the one under which the ID was generated at the start, or behind its own start later on; where the start could
    /// see that the state cannot be the newest, only the former counts, and by more than hosts may differ.
    pub fn may_repeat(&self, parts: &Parts, made: &Made) -> bool {
        let is_covered = self.found.as_ref().is_some_and(|found| parts.tick <= found.mark(parts.worker));
        let is_behind = match self.is_floored(parts.worker) {
            true => self.start < made.clock - TOLERANCE,
            false => self.start < made.clock || self.lowest < self.start,
        };
        // Neither the record nor the settings name the `max_ahead` under which it was generated.
        let is_too_far = parts.tick * MS > made.clock + self.max_ahead;
        let is_overlapped = made.moment > self.moment;
        !is_covered && !is_overlapped && (is_behind || is_too_far)
    }
}

pub type Snapshot = ([Vec<u8>; 2], FileIdentity);

/// What is left of a run when its server has crashed but for one process.
pub struct Lingering {
    pub memory: Option<Rc<Memory<Lock>>>,
    pub config: Config,
    pub run: Run,
    pub events: Vec<Event>,
}

/// A data directory, and the server in it.
pub struct Server {
    pub name: usize,
    pub host: usize,
    pub world: Weak<World>,
    pub machine: Rc<Machine>,
    pub run: RefCell<Run>,
    /// A process of the run before that lives on.
    pub lingering: RefCell<Option<Lingering>>,
    /// Settings of the next start.
    pub backups: Cell<usize>,
    pub home: Cell<i64>,
    pub limits: Cell<Limits>,
    /// The floor of the last `adopt`: no later call goes below it.
    pub adopted: Cell<i64>,
    /// Steps back since the beginning of the last run that opened the gate, including those while the server was
    /// stopped.
    pub steps_back: Cell<u32>,
    pub is_disturbed: Cell<bool>,
    /// The state has been replaced since the lingering process wrote it.
    pub is_replaced: Cell<bool>,
    /// A slot of its file was damaged.
    pub is_damaged: Cell<bool>,
    pub depth: Cell<u32>,
    /// No faults, and nobody else acts.
    pub is_quiet: Cell<bool>,
    /// An answer of the registry that has not arrived.
    pub late: Cell<Option<(Contact, Answer)>>,
    /// The state after its first two starts, and after the last.
    pub snapshots: RefCell<Vec<Snapshot>>,
    /// How long its starts have waited in all.
    pub waited: Cell<i64>,
    /// The wall clock at the last ID.
    pub committed: Cell<Option<i64>>,
}

#[derive(Default)]
pub struct Counts {
    pub calls: u64,
    pub ids: u64,
    pub excused: u64,
    pub actions: u64,
    pub starts: u64,
    pub points: u64,
    pub faults: u64,
    pub promotions: u64,
}

pub struct World {
    pub tape: Rc<Tape>,
    pub servers: RefCell<Vec<Rc<Server>>>,
    pub current: Cell<usize>,
    pub timeline: Cell<u32>,
    pub history: RefCell<HashMap<i64, Made>>,
    /// The clocks under which trains and rotations began, in their order.
    pub clocks: RefCell<Vec<i64>>,
    pub runs: Cell<u64>,
    /// The highest tick of each worker in each directory, since its state was last replaced.
    pub highest: RefCell<BTreeMap<(i64, usize), i64>>,
    pub counts: RefCell<Counts>,
    pub log: RefCell<Option<Vec<String>>>,
    pub states: RefCell<HashSet<u64>>,
    pub faulty_disk: bool,
    pub interrupted: bool,
    pub forgets_lock: bool,
    pub is_large: bool,
    pub steps: &'static [i64],
    pub source: WorkerSource,
    pub registry: Registry,
    /// The leases that were granted.
    pub grants: RefCell<Vec<Lease>>,
}

impl World {
    pub fn log(&self, text: impl FnOnce() -> String) {
        if let Some(log) = &mut *self.log.borrow_mut() {
            log.push(text());
        }
    }

    pub fn server(&self) -> Rc<Server> {
        self.servers.borrow()[self.current.get()].clone()
    }

    /// Whether a registry says which workers servers have.
    pub fn is_leased(&self) -> bool {
        self.source != WorkerSource::Configured
    }

    pub fn join(self: &Rc<Self>, machine: Machine, host: usize, backups: usize, limits: Limits) {
        let server = Rc::new(Server {
            name: self.servers.borrow().len(),
            host,
            world: Rc::downgrade(self),
            machine: Rc::new(machine),
            run: RefCell::default(),
            lingering: RefCell::default(),
            backups: Cell::new(backups),
            home: Cell::new(0),
            limits: Cell::new(limits),
            adopted: Cell::new(-1),
            steps_back: Cell::new(0),
            is_disturbed: Cell::new(true),
            is_replaced: Cell::new(false),
            is_damaged: Cell::new(false),
            depth: Cell::new(0),
            is_quiet: Cell::new(false),
            late: Cell::new(None),
            snapshots: RefCell::default(),
            waited: Cell::new(0),
            committed: Cell::new(None),
        });
        let disk = &server.machine.disk;
        let weak = Rc::downgrade(&server);
        disk.set_faults(move |point| weak.upgrade().map_or(Fault::None, |it| it.at(point)));
        let weak = Rc::downgrade(&server);
        let meanwhile = move |look: &dyn Fn()| match weak.upgrade() {
            Some(server) => server.meanwhile(look),
            None => look(),
        };
        *server.machine.meanwhile.borrow_mut() = Some(Rc::new(meanwhile));
        self.servers.borrow_mut().push(server);
    }

    /// The clock of a host is set.
    pub fn step(&self, host: usize, micros: i64) {
        self.log(|| format!("the clock of host {host} by {} us", micros));
        let servers = self.servers.borrow();
        for server in servers.iter().filter(|it| it.host == host) {
            server.machine.step(micros);
            let wall = server.machine.wall();
            let mut run = server.run.borrow_mut();
            run.lowest = wall.min(run.lowest);
            if micros < 0 {
                run.steps_back += 1;
                server.steps_back.set(server.steps_back.get() + 1);
            }
            if let Some(Lingering { run, .. }) = &mut *server.lingering.borrow_mut() {
                run.lowest = wall.min(run.lowest);
                run.steps_back += (micros < 0) as u32;
            }
        }
    }
}
