//! A model of everything that may happen to servers that generate IDs. The code is the real one; clocks, disks, hosts and
//! the order of events are simulated. No state that it reaches breaks guarantees 1 to 5, or this promise (`Run::may_repeat`):
//!
//! > If two runs of one worker never overlap, no ID repeats, unless the newest state was lost or replaced and a clock was
//! > behind.
//!
//! One of the two goes wrong in most runs of the model: states are put back, lost, and started elsewhere, and clocks step.
//! Runs of one worker do not overlap on two hosts, because the model ends the one before it starts the other, as an
//! operator has to. On one host it leaves that to the host's lock.
//!
//! A run of the model is a tape of choices: which action comes next, where a fault strikes, and what it leaves behind. Small
//! scopes are explored completely, every tape of them; large ones at random. A failure prints its tape and what happened on
//! it; `MODEL_REPLAY="scope: 1,2,3"` runs that tape again. `MODEL_SECONDS` is how long each random scope takes,
//! `MODEL_SEED` where it starts, `MODEL_DEPTH` how many more actions the runs of the small scopes have, and
//! `MODEL_SHRINK` how many seconds are spent on shortening a failing tape.

use crate::simulation::disk::{Breaches, Down, EIO, ENOSPC, Fault, Point, Power, Said, SimDisk, SimHost};
use crate::simulation::tape::Tape;
use crate::simulation::world::{Lock, LockedOut, Machine, SYSTEM, config, draw_anew, is_locked};
use snowflake_core::host::FileIdentity;
use snowflake_core::{AdoptError, Answer, Answered, ClosedReason, Config, Contact, Event, Lease, Limits};
use snowflake_core::{Memory, Parts, Policy, Refusal, Start, Tick, Unopened, WorkerSource};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};
use uuid::Uuid;

const MS: i64 = 1_000;
const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;

/// Two IDs per tick, 16 workers, a ring of 64 ticks, so that ticks, lanes and rings run out soon.
const BITS: &str = "41/4/1";
const RING: usize = 64;
/// The values of the worker field.
const WORKERS: i64 = 16;

/// By how much the clocks of hosts may differ where a state cannot be the newest (rule 4).
const TOLERANCE: i64 = SECOND;
/// The longest that a start may ask to wait.
const LONGEST_WAIT: i64 = 2 * SECOND + MS;

const PASSES: [i64; 6] = [5 * MS, 1_100 * MS, MS, 20 * MS, 10 * SECOND, 2 * HOUR];
/// Back beyond the ring, back within it, and forward.
const FEW_STEPS: [i64; 3] = [-5 * SECOND, -30 * MS, HOUR];
const STEPS: [i64; 8] = [-3 * MS, -30 * MS, -700 * MS, -5 * SECOND, -HOUR, 5 * MS, 700 * MS, HOUR];
/// What a time service does to a clock that was an hour wrong.
const CORRECTIONS: [i64; 2] = [-HOUR, HOUR];
/// By how much the clock of the second host differs from that of the first.
const OFFSETS: [i64; 3] = [-900 * MS, 0, 900 * MS];
const AHEADS: [i64; 3] = [8 * MS, 16 * MS, 0];

fn limits(policy: Policy, max_ahead_us: i64) -> Limits {
    Limits { policy, max_ahead_us, max_wait_us: 3 * MS }
}

fn settings(home: i64, backups: usize, limits: Limits, source: WorkerSource) -> Config {
    Config { source, ..config(BITS, Tick::Millisecond, home, backups, RING, limits) }
}

/// How far ahead of the clock a lease is granted, and how many groups the registry has: both run out soon.
const GRANT: i64 = 2_000;
const GROUPS: i64 = 2;

/// A registry that leases groups by the rules. Nothing but its floors keeps nodes apart: it takes a group away from a
/// node without asking anybody.
#[derive(Default)]
struct Registry {
    /// Each group's last contact and lease; the contact is `None` once another node has the group.
    groups: RefCell<BTreeMap<i64, (Option<Contact>, Lease)>>,
}

impl Registry {
    fn answer(&self, contact: &Contact) -> Answer {
        let registry = Uuid::from_u128(77);
        let now = contact.clock_us / MS;
        let mut groups = self.groups.borrow_mut();
        let mut of_node =
            groups.values_mut().filter(|(last, _)| last.is_some_and(|it| it.node == contact.node));
        if let Some((last, lease)) = of_node.next() {
            let known = last.expect("a contact");
            if contact.number <= known.number
                && (contact.number, contact.nonce) != (known.number, known.nonce)
            {
                return Answer::Over;
            }
            lease.until = lease.until.max(now + GRANT);
            *last = Some(*contact);
            return Answer::Granted { registry, lease: *lease };
        }
        if contact.lease.is_some() {
            return Answer::Over;
        }
        // Rather one that has ended; if there is none, its new node has to wait until its clock passes the floor.
        let ends = |home: &i64| groups.get(home).map_or(-1, |(_, lease)| lease.until);
        let home = (0..GROUPS).find(|home| ends(home) < now).or_else(|| (0..GROUPS).min_by_key(ends));
        let home = home.expect("there are groups");
        let floor = ends(&home);
        let lease = Lease { home, floor, until: now.max(floor) + GRANT };
        groups.insert(home, (Some(*contact), lease));
        Answer::Granted { registry, lease }
    }

    /// Another node gets each group.
    fn end_all(&self) {
        for (last, lease) in self.groups.borrow_mut().values_mut() {
            (*last, lease.until) = (None, lease.until + GRANT);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Generates one ID.
    Issue,
    /// Generates IDs in the course of 15 ms, the last ahead of the clock.
    Train,
    /// A train, and IDs in the first tick that needs the next reservation.
    Burst,
    Keep,
    Rotate,
    Pass,
    Step,
    /// The clock is set to that of the first train or rotation, a late one, or the present run's start.
    Aim,
    /// The server crashes and starts again, at once or later.
    CrashServer,
    /// All that runs on the host goes down, and its locks are forgotten.
    CrashMachine,
    /// The server crashes, but one of its processes lives on.
    Linger,
    /// The process that lives on generates an ID.
    Ghost,
    /// A start that crashes once its decision is on disk.
    HalfStart,
    Stop,
    /// A stop, other settings, a start.
    Reconfigure,
    ChangePolicy,
    /// A reload of another `max_ahead`.
    ChangeAhead,
    /// From now on, actions apply to the next server.
    Turn,
    /// A directory becomes the primary of a new timeline: with its own files, or with a new or old copy of the primary's.
    /// Actions apply to it from now on.
    Promote,
    /// The server goes down, and its state is put back to an earlier one, replaced by that of another directory, or lost.
    PutBack,
    Delete,
    Adopt,
    /// A contact with the registry; its answer may get lost, or come late.
    Meet,
    /// The answer that got lost arrives after all.
    Late,
    /// The registry gives every group to another node.
    End,
}

use Action::*;

struct Scope {
    name: &'static str,
    actions: &'static [Action],
    /// How many actions a run has.
    length: usize,
    /// How many faults and interruptions a run has.
    faults: u32,
    faulty_disk: bool,
    /// Whether calls run in the middle of calls.
    interrupted: bool,
    backups: &'static [usize],
    policies: &'static [Policy],
    steps: &'static [i64],
    breaches: Breaches,
    source: WorkerSource,
    /// The host of each data directory.
    hosts: &'static [usize],
    /// The lock on a host ends with the postmaster, although a process of it lives on.
    forgets_lock: bool,
}

const HOLD: &[Policy] = &[Policy::Hold];
const BOTH: &[Policy] = &[Policy::Hold, Policy::Replay];
/// Omits an fsync that is not needed, because the next record goes to this slot first, and a start rewrites it.
const SLOPPY: Breaches = Breaches { page_cache_trusted: false, second_slot_not_synced: true };
/// Omits an fsync that a start does need.
const TRUSTING: Breaches = Breaches { page_cache_trusted: true, second_slot_not_synced: false };
const HONEST: Breaches = Breaches { page_cache_trusted: false, second_slot_not_synced: false };

const PLAIN: Scope = Scope {
    name: "",
    actions: &[],
    length: 4,
    faults: 0,
    faulty_disk: false,
    interrupted: false,
    backups: &[1],
    policies: HOLD,
    steps: &FEW_STEPS,
    breaches: HONEST,
    source: WorkerSource::Configured,
    hosts: &[0],
    forgets_lock: false,
};

/// The scopes that are explored completely.
const SMALL: [Scope; 13] = [
    // Every point of the disk's protocol, with two faults.
    Scope {
        name: "disk",
        actions: &[Burst, Rotate, CrashServer, Stop],
        length: 2,
        faults: 2,
        faulty_disk: true,
        ..PLAIN
    },
    // Every order of the clock, calls and crashes.
    Scope { name: "clock", actions: &[Issue, Burst, Pass, Step, CrashServer], policies: BOTH, ..PLAIN },
    // A clock that is corrected by an hour.
    Scope {
        name: "corrections",
        actions: &[Issue, Train, Step, CrashServer, Stop],
        length: 5,
        steps: &CORRECTIONS,
        ..PLAIN
    },
    // One call in the middle of another, at every look at the clock and every point of the disk.
    Scope {
        name: "interleaving",
        actions: &[Issue, Burst, Step],
        length: 3,
        faults: 1,
        interrupted: true,
        policies: BOTH,
        ..PLAIN
    },
    // States that are put back and lost.
    Scope {
        name: "states",
        actions: &[Train, Rotate, PutBack, Aim, CrashServer],
        policies: BOTH,
        length: 5,
        ..PLAIN
    },
    // Promotions to and fro, also with old copies, on hosts whose clocks differ.
    Scope {
        name: "hosts",
        actions: &[Train, Promote, Aim],
        length: 5,
        backups: &[0, 1],
        hosts: &[0, 1],
        ..PLAIN
    },
    // Two directories on one host, and processes that outlive their postmaster.
    Scope {
        name: "one host",
        actions: &[Train, Linger, Ghost, Turn, PutBack],
        backups: &[0],
        hosts: &[0, 0],
        ..PLAIN
    },
    // Changes of workers, with states of earlier settings.
    Scope {
        name: "workers",
        actions: &[Rotate, Aim, Reconfigure, PutBack],
        length: 5,
        backups: &[0],
        ..PLAIN
    },
    // A max_ahead that a reload or a restart changes.
    Scope { name: "max_ahead", actions: &[Train, ChangeAhead, Keep, Stop, PutBack], length: 5, ..PLAIN },
    // Operators' interventions.
    Scope {
        name: "operator",
        actions: &[Burst, Adopt, Delete, PutBack, HalfStart, Stop, Step],
        policies: BOTH,
        ..PLAIN
    },
    // Leases that are renewed, lost and granted anew, to a server that crashes, reboots, is cloned, and has an operator.
    Scope {
        name: "leases",
        actions: &[Burst, Meet, End, Adopt, CrashMachine, PutBack, Turn, Step],
        steps: &[-5 * SECOND],
        source: WorkerSource::Registry,
        hosts: &[0, 1],
        ..PLAIN
    },
    // Every point of the disk's protocol, while leases change.
    Scope {
        name: "leases on a bad disk",
        actions: &[Burst, Meet, End, Stop],
        length: 3,
        faults: 1,
        faulty_disk: true,
        backups: &[0],
        source: WorkerSource::Registry,
        ..PLAIN
    },
    // A lease that changes in the middle of a call, also of one that replays.
    Scope {
        name: "interleaved leases",
        actions: &[Issue, Step, Meet],
        length: 3,
        faults: 1,
        interrupted: true,
        backups: &[0],
        policies: BOTH,
        source: WorkerSource::Registry,
        ..PLAIN
    },
];

const BAD_DISK: Scope = Scope {
    name: "bad disk",
    actions: &[Burst, Burst, Pass, Step, Rotate, CrashServer, CrashMachine, Stop, Delete],
    length: 25,
    faults: 15,
    faulty_disk: true,
    backups: &[0, 1, 3],
    steps: &STEPS,
    ..PLAIN
};

/// The scopes that are explored at random.
const LARGE: [Scope; 7] = [
    Scope { name: "sloppy disk", breaches: SLOPPY, ..BAD_DISK },
    Scope { name: "trusting start", breaches: TRUSTING, ..BAD_DISK },
    BAD_DISK,
    Scope {
        name: "everything",
        actions: &[
            Issue,
            Issue,
            Train,
            Burst,
            Keep,
            Rotate,
            Pass,
            Pass,
            Step,
            Aim,
            CrashServer,
            CrashMachine,
            Linger,
            Ghost,
            HalfStart,
            Stop,
            Reconfigure,
            ChangePolicy,
            ChangeAhead,
            Turn,
            Promote,
            PutBack,
            Delete,
            Adopt,
        ],
        length: 40,
        faults: 12,
        faulty_disk: true,
        interrupted: true,
        backups: &[0, 1, 3, 5],
        policies: BOTH,
        steps: &STEPS,
        hosts: &[0, 1, 0],
        ..PLAIN
    },
    // The clocks of two hosts, which nobody sets, and states that come and go.
    Scope {
        name: "fleet",
        actions: &[
            Train,
            Train,
            Burst,
            Pass,
            Rotate,
            Aim,
            CrashServer,
            Linger,
            Ghost,
            HalfStart,
            Stop,
            Reconfigure,
            ChangeAhead,
            Turn,
            Promote,
            Promote,
            PutBack,
            PutBack,
        ],
        length: 25,
        backups: &[0, 1, 3],
        policies: BOTH,
        hosts: &[0, 1, 0],
        ..PLAIN
    },
    Scope {
        name: "lock of the postmaster",
        actions: &[Train, Linger, Ghost, CrashServer, Turn, Pass],
        length: 12,
        backups: &[0],
        hosts: &[0, 0],
        forgets_lock: true,
        ..PLAIN
    },
    Scope {
        name: "any leases",
        actions: &[
            Issue,
            Train,
            Burst,
            Keep,
            Rotate,
            Pass,
            Step,
            CrashServer,
            CrashMachine,
            Stop,
            ChangePolicy,
            ChangeAhead,
            Turn,
            Adopt,
            Meet,
            Meet,
            Late,
            End,
            PutBack,
        ],
        length: 40,
        faults: 10,
        faulty_disk: true,
        interrupted: true,
        backups: &[0, 1, 3],
        policies: BOTH,
        steps: &STEPS,
        source: WorkerSource::Registry,
        hosts: &[0, 1, 0],
        ..PLAIN
    },
];

#[derive(Clone, Copy, Default)]
struct Last {
    id: i64,
    rotations: usize,
    steps_back: u32,
    leases: u32,
}

/// An ID that a call returned.
#[derive(Clone, Copy, Debug)]
struct Made {
    run: u64,
    host: usize,
    /// When it was generated, in calls of the world.
    moment: u64,
    /// The lowest clock under which a call generated it.
    clock: i64,
}

/// A run: from the clock that its start reads to its last process.
#[derive(Clone, Default)]
struct Run {
    number: u64,
    host: usize,
    /// When it began, in calls of the world.
    moment: u64,
    /// The clock when its workers were locked, and the lowest since.
    start: i64,
    lowest: i64,
    /// The record that it found.
    found: Option<Said>,
    /// The workers of its settings, and what its start was told.
    workers: Vec<i64>,
    timeline: u32,
    is_leased: bool,
    /// An operator has adopted the state.
    is_adopted: bool,
    /// The longest `max_ahead` of the record and the settings.
    max_ahead: i64,
    /// Its decision is on disk: it locks nothing any more.
    is_decided: bool,
    is_open: bool,
    /// The worker with which it began.
    first_worker: i64,
    last: Option<Last>,
    rotations: usize,
    steps_back: u32,
    /// How many answers of the registry may have changed where it goes on.
    leases: u32,
    /// How many rotations may have another cause than a step back in this run.
    excuses: u32,
    /// Nothing has happened that would allow another lane than the recorded one.
    must_keep_lane: bool,
    /// The end of its highest ID's tick, and the highest clock that its calls have read.
    highest: i64,
    highest_clock: i64,
}

impl Run {
    /// Whether rule 4 raises this worker's mark at the start: the record cannot be the newest. The floor of a lease replaces
    /// that rule.
    fn is_floored(&self, worker: i64) -> bool {
        let is_floored = self.found.as_ref().is_none_or(|found| {
            self.is_adopted
                || found.timeline != self.timeline as u64
                || !found.active.is_some_and(|active| self.workers.contains(&active))
                || !found.marks.contains_key(&worker)
        });
        is_floored && !self.is_leased
    }

    /// Whether the promise lets this run repeat an ID that another generated: the newest state was lost or replaced, and
    /// a clock was behind. A state that has the ID below its mark counts as the newest. This run's clock was behind the one
    /// under which the ID was generated at the start, or behind its own start later on; where the start could see that the
    /// state cannot be the newest, only the former counts, and by more than hosts may differ.
    fn may_repeat(&self, parts: &Parts, made: &Made) -> bool {
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

type Snapshot = ([Vec<u8>; 2], FileIdentity);

/// What is left of a run when its server has crashed but for one process.
struct Lingering {
    memory: Option<Rc<Memory<Lock>>>,
    config: Config,
    run: Run,
    events: Vec<Event>,
}

/// A data directory, and the server in it.
struct Server {
    name: usize,
    host: usize,
    world: Weak<World>,
    machine: Rc<Machine>,
    run: RefCell<Run>,
    /// A process of the run before that lives on.
    lingering: RefCell<Option<Lingering>>,
    /// Settings of the next start.
    backups: Cell<usize>,
    home: Cell<i64>,
    limits: Cell<Limits>,
    /// The floor of the last `adopt`: no later call goes below it.
    adopted: Cell<i64>,
    /// Steps back since the beginning of the last run that opened the gate, including those while the server was
    /// stopped.
    steps_back: Cell<u32>,
    is_disturbed: Cell<bool>,
    /// The state has been replaced since the lingering process wrote it.
    is_replaced: Cell<bool>,
    depth: Cell<u32>,
    /// No faults, and nobody else acts.
    is_quiet: Cell<bool>,
    /// An answer of the registry that has not arrived.
    late: Cell<Option<(Contact, Answer)>>,
    /// The state after its first two starts, and after the last.
    snapshots: RefCell<Vec<Snapshot>>,
    /// How long its starts have waited in all.
    waited: Cell<i64>,
    /// The wall clock at the last ID.
    committed: Cell<Option<i64>>,
}

#[derive(Default)]
struct Counts {
    calls: u64,
    ids: u64,
    excused: u64,
    actions: u64,
    starts: u64,
    points: u64,
    faults: u64,
    promotions: u64,
}

struct World {
    tape: Rc<Tape>,
    servers: RefCell<Vec<Rc<Server>>>,
    current: Cell<usize>,
    timeline: Cell<u32>,
    history: RefCell<HashMap<i64, Made>>,
    /// The clocks under which trains and rotations began, in their order.
    clocks: RefCell<Vec<i64>>,
    runs: Cell<u64>,
    /// The highest tick of each worker in each directory, since its state was last replaced.
    highest: RefCell<BTreeMap<(i64, usize), i64>>,
    counts: RefCell<Counts>,
    log: RefCell<Option<Vec<String>>>,
    states: RefCell<HashSet<u64>>,
    faulty_disk: bool,
    interrupted: bool,
    forgets_lock: bool,
    is_large: bool,
    steps: &'static [i64],
    source: WorkerSource,
    registry: Registry,
    /// The leases that were granted.
    grants: RefCell<Vec<Lease>>,
}

impl World {
    fn log(&self, text: impl FnOnce() -> String) {
        if let Some(log) = &mut *self.log.borrow_mut() {
            log.push(text());
        }
    }

    fn server(&self) -> Rc<Server> {
        self.servers.borrow()[self.current.get()].clone()
    }

    /// Whether a registry says which workers servers have.
    fn is_leased(&self) -> bool {
        self.source != WorkerSource::Configured
    }

    fn join(self: &Rc<Self>, machine: Machine, host: usize, backups: usize, limits: Limits) {
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
    fn step(&self, host: usize, micros: i64) {
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

impl Server {
    fn world(&self) -> Rc<World> {
        self.world.upgrade().expect("the world stands")
    }

    fn log(&self, text: impl FnOnce() -> String) {
        let (name, wall) = (self.name, self.machine.wall());
        self.world()
            .log(|| format!("server {name} at {}.{:03}: {}", wall / MS % 1_000_000_000, wall % MS, text()));
    }

    /// The other directories on the same host, or those on other hosts.
    fn others(&self, is_same_host: bool) -> Vec<Rc<Server>> {
        let servers = self.world().servers.borrow().clone();
        let is_other = |it: &Rc<Server>| it.name != self.name && (it.host == self.host) == is_same_host;
        servers.into_iter().filter(is_other).collect()
    }

    /// Whether a process of it generates IDs, and with which workers.
    fn is_alive(&self) -> bool {
        self.machine.is_up() || self.lingering.borrow().is_some()
    }

    fn workers_in_use(&self) -> Vec<i64> {
        let mut workers = Vec::new();
        if self.machine.is_up() {
            workers.extend(workers_of(&self.machine.config.borrow()));
        }
        workers.extend(self.lingering.borrow().iter().flat_map(|it| workers_of(&it.config)));
        workers
    }

    /// The fault that strikes at a point of the disk's protocol.
    fn at(&self, point: Point) -> Fault {
        let world = self.world();
        world.counts.borrow_mut().points += 1;
        let kinds = match (world.faulty_disk, world.interrupted) {
            _ if self.is_quiet.get() => 1,
            (true, true) => 5,
            (true, false) => 4,
            (false, true) => 5,
            (false, false) => 1,
        };
        let choice = world.tape.fault(kinds);
        if choice == 0 || (!world.faulty_disk && choice != 4) {
            return Fault::None;
        }
        world.counts.borrow_mut().faults += 1;
        self.log(|| {
            format!(
                "  {} at {point:?}",
                ["", "failure", "server down", "machine down", "a call"][choice as usize]
            )
        });
        match choice {
            1 => Fault::Fail(if matches!(point, Point::Open | Point::Make) { ENOSPC } else { EIO }),
            2 => Fault::Down(Power::Server),
            3 => Fault::Down(Power::Machine),
            _ => {
                // No IDs are generated before the gate is open, or during a clean stop.
                if self.run.borrow().is_open {
                    let before = self.machine.is_locked_by_another.replace(true);
                    self.nested(|| self.call());
                    self.machine.is_locked_by_another.set(before);
                }
                Fault::None
            }
        }
    }

    /// Lets others act before or after a call of this server looks at the clock.
    fn meanwhile(&self, look: &dyn Fn()) {
        const KINDS: [&str; 6] =
            ["a call", "two calls", "a step back", "a rotation", "an adopt", "another lease"];
        let world = self.world();
        let kinds = if world.is_leased() { KINDS.len() } else { KINDS.len() - 1 };
        let is_free =
            world.interrupted && self.depth.get() < 2 && self.run.borrow().is_open && !self.is_quiet.get();
        let choice = if is_free { world.tape.fault(1 + 2 * kinds as u32) as usize } else { 0 };
        if choice == 0 {
            return look();
        }
        world.counts.borrow_mut().faults += 1;
        let (kind, is_after) = ((choice - 1) % kinds, choice > kinds);
        if is_after {
            look();
        }
        self.log(|| {
            format!("  {} {} a look at the clock", KINDS[kind], if is_after { "after" } else { "before" })
        });
        match kind {
            0 => self.nested(|| self.call()),
            1 => {
                self.nested(|| self.call());
                self.nested(|| self.call());
            }
            2 => {
                // With another call, which may do the rotation for the step.
                world.step(self.host, FEW_STEPS[world.tape.choose(2) as usize]);
                self.nested(|| self.call());
            }
            3 => self.nested(|| self.rotate()),
            4 => self.nested(|| self.adopt()),
            _ => self.nested(|| {
                world.registry.end_all();
                self.meet(true);
                self.meet(true);
                let start = self.machine.start.get();
                let is_open = self.machine.with(|generator| generator.open(&start)).is_ok();
                self.run.borrow_mut().is_open = is_open;
                world.step(self.host, FEW_STEPS[1]);
                self.call();
            }),
        }
        if !is_after {
            look();
        }
    }

    /// Runs `work` in the middle of a call; gives up if it would wait for that call's lock.
    fn nested(&self, work: impl FnOnce()) {
        self.depth.set(self.depth.get() + 1);
        let reads = self.machine.last_reads.get();
        let result = catch_unwind(AssertUnwindSafe(work));
        self.machine.last_reads.set(reads);
        self.depth.set(self.depth.get() - 1);
        if let Err(payload) = result
            && !payload.is::<LockedOut>()
        {
            resume_unwind(payload);
        }
    }

    /// Just before a start locks its workers: one who has them may generate an ID and end. The run begins now.
    fn before_lock(&self) {
        if self.run.borrow().is_decided {
            return;
        }
        let world = self.world();
        if !world.is_leased() && !self.is_quiet.get() {
            if self.lingering.borrow().is_some() && world.tape.choose(2) == 1 {
                self.machine.pass(20 * MS);
                self.end_lingering(true);
            }
            for other in self.others(true).iter().filter(|it| it.is_alive()) {
                if world.tape.choose(2) == 1 {
                    self.machine.pass(20 * MS);
                    other.end_at_once();
                }
            }
        }
        self.begin_run();
    }

    fn begin_run(&self) {
        let world = self.world();
        let (wall, config) = (self.machine.wall(), *self.machine.config.borrow());
        world.runs.set(world.runs.get() + 1);
        let mut run = self.run.borrow_mut();
        (run.number, run.host, run.moment) = (world.runs.get(), self.host, world.counts.borrow().calls);
        (run.start, run.lowest, run.highest_clock) = (wall, wall, wall);
        (run.workers, run.timeline) = (workers_of(&config), self.machine.start.get().timeline);
        (run.steps_back, run.is_leased) = (0, world.is_leased());
    }

    /// The start's decision is on disk, or it has failed.
    fn decided(&self, is_decided: bool) {
        let found = self.machine.disk.loaded.borrow().clone().map(|(_, said)| said);
        let asked = self.machine.with(|generator| generator.asked_limits().max_ahead_us);
        let mut run = self.run.borrow_mut();
        if run.is_decided || !is_decided {
            return;
        }
        run.is_decided = true;
        run.max_ahead = found.as_ref().map_or(0, |found| found.max_ahead_us).max(asked);
        run.found = found;
        let same = run.found.as_ref().is_some_and(|found| {
            found.timeline == run.timeline as u64
                && found.active.is_some_and(|active| run.workers.contains(&active))
                && run.workers.iter().all(|worker| found.marks.contains_key(worker))
        });
        run.must_keep_lane =
            same && !self.world().is_leased() && self.steps_back.get() == 0 && !self.is_disturbed.get();
    }

    /// The last process of the run before ends.
    fn end_lingering(&self, with_an_id: bool) {
        if with_an_id {
            self.linger_on(|| self.call());
        }
        if self.lingering.take().is_some() {
            self.log(|| "its last process ends".to_owned());
            let lock = &self.machine.disk.host_lock;
            lock.is_own_held.set(false);
            // A server that was started without regard to it has its lock by now.
            if !self.world().forgets_lock {
                lock.release();
            }
        }
    }

    /// The process that lingers acts.
    fn linger_on(&self, work: impl FnOnce()) {
        let Some(mut lingering) = self.lingering.take() else { return };
        let swap = |with: &mut Lingering| {
            std::mem::swap(&mut with.memory, &mut *self.machine.memory.borrow_mut());
            std::mem::swap(&mut with.config, &mut *self.machine.config.borrow_mut());
            std::mem::swap(&mut with.run, &mut *self.run.borrow_mut());
            std::mem::swap(&mut with.events, &mut *self.machine.events.borrow_mut());
        };
        swap(&mut lingering);
        let adopted = self.adopted.replace(-1);
        self.quietly(work);
        self.adopted.set(adopted);
        swap(&mut lingering);
        *self.lingering.borrow_mut() = Some(lingering);
    }

    /// Acts while another holds the cold lock of this thread.
    fn quietly(&self, work: impl FnOnce()) {
        let (is_quiet, before) =
            (self.is_quiet.replace(true), self.machine.is_locked_by_another.replace(true));
        self.nested(work);
        self.is_quiet.set(is_quiet);
        self.machine.is_locked_by_another.set(before);
    }

    /// All processes of this server end, after one more ID.
    fn end_at_once(&self) {
        if self.run.borrow().is_open {
            self.quietly(|| self.call());
        }
        self.end_lingering(true);
        self.log(|| "ends".to_owned());
        *self.machine.memory.borrow_mut() = None;
        self.machine.disk.host_lock.release();
        self.end_run();
    }

    /// Rotates on an operator's request.
    fn rotate(&self) {
        self.run.borrow_mut().must_keep_lane = false;
        self.run.borrow_mut().excuses += 2;
        let result = self.machine.with(|generator| generator.rotate_now());
        self.count_rotations();
        self.log(|| format!("rotate: {result:?}"));
    }

    fn count_rotations(&self) {
        let rotated = |event: &&Event| matches!(event, Event::Rotated { .. });
        let rotations = self.machine.events.borrow().iter().filter(rotated).count();
        self.run.borrow_mut().rotations = rotations;
    }

    fn max_ahead(&self) -> i64 {
        self.machine.with(|generator| generator.limits().max_ahead_us)
    }

    /// Asks for one ID and checks the result.
    fn call(&self) {
        let world = self.world();
        world.counts.borrow_mut().calls += 1;
        let moment = world.counts.borrow().calls;
        let adopted = self.adopted.get();
        let before = self.run.borrow().last;
        // A rotation during this call may explain a lower ID.
        let mut last = {
            let run = self.run.borrow();
            Last { id: 0, rotations: run.rotations, steps_back: run.steps_back, leases: run.leases }
        };
        let ahead_before = self.max_ahead();
        self.machine.last_reads.set([i64::MIN; 2]);
        let result = self.machine.with(|generator| generator.next_id());
        let (read, max_ahead) = (self.machine.highest_read(), self.max_ahead().max(ahead_before));
        self.count_rotations();
        {
            let run = self.run.borrow();
            assert!(run.rotations as u32 <= run.steps_back + run.excuses, "one step back cost two lanes");
        }
        let id = match result {
            Ok(id) => id,
            Err(refusal) => {
                self.log(|| format!("refused: {refusal:?}"));
                assert!(
                    refusal != Refusal::GateClosed || !self.run.borrow().is_open || world.is_leased(),
                    "an open gate is closed again"
                );
                if let Refusal::NoLane(_) = refusal {
                    let run = self.run.borrow();
                    let is_first = run.last.is_none() && run.must_keep_lane && run.steps_back == 0;
                    assert!(!is_first, "no lane for the first ID after a start");
                    drop(run);
                    self.check_lanes();
                }
                return;
            }
        };
        world.counts.borrow_mut().ids += 1;
        let layout = self.machine.config.borrow().layout;
        let parts = layout.unpack(id).expect("an ID of this layout");
        self.log(|| format!("ID in tick {} of worker {}", parts.tick % 1_000_000_000, parts.worker));
        self.check_unique(id, &parts, moment, read);
        if world.is_leased() {
            let home = parts.worker % (WORKERS / (self.backups.get() as i64 + 1));
            let allows =
                |lease: &Lease| lease.home == home && lease.floor < parts.tick && parts.tick <= lease.until;
            assert!(world.grants.borrow().iter().any(allows), "no lease: {parts:?}");
        }
        let has_file = self.machine.disk.identity().is_some();
        if has_file && !(self.is_quiet.get() && self.is_replaced.get()) {
            let mut highest = world.highest.borrow_mut();
            let highest = highest.entry((parts.worker, self.name)).or_insert(-1);
            *highest = parts.tick.max(*highest);
            if let Some(mark) = self.machine.disk.lowest_mark(parts.worker) {
                assert!(
                    parts.tick <= mark,
                    "guarantee 2: tick {} is above the durable mark {mark}",
                    parts.tick
                );
            }
        }
        let mut run = self.run.borrow_mut();
        if let Some(found) = &run.found {
            let mark = match found.marks.contains_key(&parts.worker) {
                true => found.mark(parts.worker),
                // The floor of a lease replaces that of the record.
                false if world.is_leased() => -1,
                false => found.mark(parts.worker),
            };
            assert!(parts.tick > mark, "guarantee 3: {parts:?} after {found:?}");
            if run.last.is_none() && run.must_keep_lane && run.steps_back == 0 {
                assert_eq!(Some(parts.worker), found.active, "a crash used up a lane");
            }
        }
        assert!(parts.tick * MS <= read + max_ahead, "guarantee 4: {} us ahead", parts.tick * MS - read);
        assert!(parts.tick > adopted, "{parts:?} is below the floor of an adopt that had returned");
        if let Some(last) = before
            && (last.rotations, last.leases) == (run.rotations, run.leases)
            && (self.machine.config.borrow().limits.policy == Policy::Hold
                || last.steps_back == run.steps_back)
        {
            assert!(id > last.id, "guarantee 5: {parts:?} after {:?}", layout.unpack(last.id));
        }
        if run.last.is_none() {
            self.steps_back.set(run.steps_back);
            self.is_disturbed.set(false);
        }
        last.id = id;
        if run.last.is_none_or(|known| {
            let is_other = (known.rotations, known.leases) != (last.rotations, last.leases);
            is_other || known.steps_back != last.steps_back || known.id < id
        }) {
            run.last = Some(last);
        }
        run.highest = run.highest.max(parts.tick * MS);
        run.highest_clock = run.highest_clock.max(read);
        self.committed.set(Some(self.machine.wall()));
    }

    /// The oracle: an ID that was generated before.
    fn check_unique(&self, id: i64, parts: &Parts, moment: u64, clock: i64) {
        let world = self.world();
        let run = self.run.borrow();
        let mut history = world.history.borrow_mut();
        let mut made = Made { run: run.number, host: self.host, moment, clock };
        if let Some(earlier) = history.get(&id) {
            assert_ne!(earlier.run, run.number, "guarantee 1: {parts:?} twice in one run");
            assert!(
                run.may_repeat(parts, earlier) && (!world.is_leased() || earlier.host == self.host),
                "server {} repeats {parts:?} of clock {}: {earlier:?}; started at {}, lowest {}, floored {}, found {:?}",
                self.name,
                earlier.clock % 1_000_000_000_000,
                run.start % 1_000_000_000_000,
                run.lowest % 1_000_000_000_000,
                run.is_floored(parts.worker),
                run.found
            );
            self.log(|| "which is excused".to_owned());
            world.counts.borrow_mut().excused += 1;
            made.clock = made.clock.min(earlier.clock);
        }
        history.insert(id, made);
    }

    /// A call was refused because no lane can be used: so it is for those that the run has not entered, by the marks on disk
    /// and rules 2 and 3.
    fn check_lanes(&self) {
        let world = self.world();
        if world.faulty_disk || world.interrupted || world.is_leased() || self.is_quiet.get() {
            return;
        }
        let run = self.run.borrow();
        let mut entered = vec![run.first_worker];
        entered.extend(self.machine.events.borrow().iter().filter_map(|event| match event {
            Event::Rotated { to, .. } => Some(*to),
            _ => None,
        }));
        let now = self.machine.wall();
        let Some(said) = self.machine.disk.said() else { return };
        let latest = (now + self.max_ahead()) / MS;
        for worker in run.workers.iter().filter(|worker| !entered.contains(worker)) {
            let above = if now >= run.start { (run.start + run.max_ahead) / MS } else { -1 };
            let first = 1 + above.max(said.mark(*worker));
            assert!(first > latest, "worker {worker} can be used from {first} on, and it is {latest}");
        }
    }

    fn adopt(&self) {
        let world = self.world();
        let floor_us = self.machine.wall() + [-5 * MS, 0, 20 * MS][world.tape.choose(3) as usize];
        let start = self.machine.start.get();
        let result = self.machine.with(|generator| generator.adopt(&start, floor_us));
        self.log(|| format!("adopt: {result:?}"));
        self.is_disturbed.set(true);
        self.run.borrow_mut().excuses += 1;
        self.run.borrow_mut().must_keep_lane = false;
        if result.is_ok() {
            let config = *self.machine.config.borrow();
            let floor = config.layout.tick_at(floor_us + self.max_ahead());
            self.adopted.set(self.adopted.get().max(floor));
        }
    }

    /// Speaks to the registry. The answer arrives, or is kept for later.
    fn meet(&self, arrives: bool) {
        let world = self.world();
        let contact = match self.machine.with(|generator| generator.contact()) {
            Ok(Some(contact)) => contact,
            Ok(None) => {
                let start = self.machine.start.get();
                let enlisted = self.machine.with(|generator| generator.enlist(&start));
                self.decided(enlisted.is_ok());
                return self.log(|| format!("enlists: {enlisted:?}"));
            }
            Err(errno) => return self.log(|| format!("no contact: errno {errno}")),
        };
        let answer = world.registry.answer(&contact);
        if let Answer::Granted { lease, .. } = answer {
            world.grants.borrow_mut().push(lease);
        }
        if arrives {
            self.hear(&contact, answer);
        } else {
            self.log(|| "the answer is late".to_owned());
            self.late.set(Some((contact, answer)));
        }
    }

    fn hear(&self, contact: &Contact, answer: Answer) {
        let before = self.machine.with(|generator| generator.lease());
        let result = self.machine.with(|generator| generator.answered(contact, answer));
        self.log(|| format!("{answer:?}: {result:?}"));
        let after = self.machine.with(|generator| generator.lease());
        match (result, answer) {
            (Ok(Answered::Renewed | Answered::Leased), Answer::Granted { lease, .. }) => {
                assert_eq!(after.map(|it| (it.home, it.floor)), Some((lease.home, lease.floor)));
            }
            (Ok(Answered::Lost), _) => assert_eq!(after, None),
            _ => assert_eq!(after, before, "an answer that changes nothing"),
        }
        if !matches!(result, Ok(Answered::Ignored | Answered::Unchanged | Answered::Renewed)) {
            let mut run = self.run.borrow_mut();
            run.is_open &= self.machine.with(|generator| generator.is_open());
            run.leases += 1;
            run.excuses += 2;
        }
    }

    /// Runs `work` until it ends; if the server goes down during it, starts the server again.
    fn live(&self, work: impl FnOnce()) {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(()) => {}
            Err(payload) => match payload.downcast::<Down>() {
                Ok(down) => {
                    self.depth.set(0);
                    self.machine.is_locked_by_another.set(false);
                    self.down(down.0);
                }
                Err(other) => resume_unwind(other),
            },
        }
        assert!(!is_locked(), "the lock was left locked");
    }

    fn down(&self, power: Power) {
        self.log(|| format!("{power:?} down"));
        self.machine.go_down();
        self.end_run();
        if power == Power::Machine {
            for other in self.others(true) {
                other.machine.go_down();
                other.end_run();
                other.end_lingering(false);
                other.machine.disk.lose_power();
            }
            self.end_lingering(false);
            self.machine.disk.lose_power();
        }
    }

    fn end_run(&self) {
        self.run.take();
        self.late.set(None);
        // A start after a crash makes no timeline.
        let start = self.machine.start.get();
        self.machine.start.set(Start { made_timeline: false, replayed_us: None, ..start });
    }

    /// The server crashes, but for one process.
    fn linger(&self) {
        self.end_lingering(false);
        self.log(|| "down but for one process".to_owned());
        self.is_replaced.set(false);
        *self.lingering.borrow_mut() = Some(Lingering {
            memory: self.machine.memory.take(),
            config: *self.machine.config.borrow(),
            run: self.run.take(),
            events: self.machine.events.take(),
        });
        match self.world().forgets_lock {
            true => self.machine.disk.host_lock.release(),
            false => self.machine.disk.host_lock.is_own_held.set(true),
        }
        self.end_run();
    }

    /// An operator ends what uses this server's workers on another host.
    fn make_way(&self) {
        let workers = workers_of(&self.next_config());
        for other in self.others(false) {
            if !self.world().is_leased() && other.workers_in_use().iter().any(|it| workers.contains(it)) {
                if other.machine.is_up() {
                    other.down(Power::Server);
                }
                other.end_lingering(false);
            }
        }
    }

    fn next_config(&self) -> Config {
        settings(self.home.get(), self.backups.get(), self.limits.get(), self.world().source)
    }

    /// A start, up to the open gate or the reason why it stays closed.
    fn start(&self) {
        if self.run.borrow().is_open {
            return;
        }
        self.make_way();
        for attempt in 0..200 {
            if self.run.borrow().is_open {
                return;
            }
            if !self.machine.is_up() {
                self.boot_up();
            }
            self.live(|| self.try_to_open());
            assert!(attempt < 150, "the gate never opens");
        }
    }

    /// Whether rule 6 must close the gate: somebody put the file here, and it has a worker of this server.
    fn is_copy(&self, start: &Start) -> bool {
        let workers = workers_of(&self.machine.config.borrow());
        let loaded = self.machine.disk.loaded.borrow();
        let is_copied = loaded.as_ref().is_some_and(|(file, said)| {
            said.file != *file && workers.iter().any(|worker| said.marks.contains_key(worker))
        });
        is_copied && !start.made_timeline && !self.world().is_leased()
    }

    fn try_to_open(&self) {
        let start = self.machine.start.get();
        let was_decided = self.run.borrow().is_decided;
        let signed = [0, 1].map(|home| self.machine.disk.host_lock.signed(SYSTEM, home));
        let result = self.machine.with(|generator| generator.open(&start));
        let is_decided =
            matches!(result, Ok(()) | Err(Unopened::Settling(_) | Unopened::NoLease)) || was_decided;
        assert!(was_decided || !is_decided || !self.is_copy(&start), "a copy opens");
        // However many writes fail, one slot stays whole.
        assert!(!self.machine.events.borrow().contains(&Event::Unreadable), "no slot can be read");
        if let Some(lease) = self.machine.with(|generator| generator.lease()).filter(|_| !was_decided) {
            let loaded = self.machine.disk.loaded.borrow();
            let (file, said) = loaded.as_ref().expect("a lease is in a record");
            let is_only =
                said.file == *file && said.token.is_some() && said.token == signed[lease.home as usize];
            assert!(is_only, "a lease goes on without the host's token");
        }
        self.decided(is_decided);
        match result {
            Ok(()) => {
                self.log(|| "open".to_owned());
                let worker = self.machine.with(|generator| generator.status().worker);
                self.run.borrow_mut().first_worker = worker;
                self.run.borrow_mut().is_open = true;
                let snapshot = self.machine.disk.slots().zip(self.machine.disk.identity());
                let mut snapshots = self.snapshots.borrow_mut();
                snapshots.truncate(2);
                snapshots.extend(snapshot);
            }
            Err(Unopened::Settling(micros)) => {
                assert!((1..=LONGEST_WAIT).contains(&micros), "it settles for {micros} us");
                self.log(|| format!("settles for {micros} us"));
                self.waited.set(self.waited.get() + micros);
                self.machine.pass(micros);
            }
            Err(Unopened::NoLease) => self.meet(true),
            Err(Unopened::Closed(ClosedReason::Os(errno))) => {
                self.log(|| format!("closed by errno {errno}"));
                self.machine.pass(SECOND);
            }
            Err(Unopened::Closed(ClosedReason::Copied)) => {
                assert!(self.is_copy(&start), "what is no copy is closed as one");
                self.log(|| "a copy".to_owned());
                self.adopt_copy();
            }
            Err(Unopened::Closed(ClosedReason::Taken)) => self.wait_for_others(),
            Err(why) => panic!("not open: {why:?}"),
        }
    }

    fn adopt_copy(&self) {
        let floor_us = self.machine.wall() + [-5 * MS, 20 * MS][self.world().tape.choose(2) as usize];
        let start = self.machine.start.get();
        let result = self.machine.with(|generator| generator.adopt(&start, floor_us));
        self.log(|| format!("adopt: {result:?}"));
        self.is_disturbed.set(true);
        if result.is_ok() {
            self.run.borrow_mut().is_adopted = true;
            self.decided(true);
            let floor = self.machine.config.borrow().layout.tick_at(floor_us + self.max_ahead());
            self.adopted.set(self.adopted.get().max(floor));
        }
    }

    /// Another process on this host has one of the workers.
    fn wait_for_others(&self) {
        self.log(|| "taken".to_owned());
        let workers = workers_of(&self.machine.config.borrow());
        let has_any = |it: &Server| {
            self.world().is_leased() || it.workers_in_use().iter().any(|worker| workers.contains(worker))
        };
        let holders: Vec<_> = self.others(true).into_iter().filter(|it| has_any(it)).collect();
        let is_own = self.lingering.borrow().is_some();
        assert!(self.world().is_leased() || is_own || !holders.is_empty(), "nobody has the workers");
        let start = self.machine.start.get();
        let taken = Unopened::Closed(ClosedReason::Taken);
        if !self.world().is_leased() {
            let is_quiet = self.is_quiet.replace(true);
            let adopted = self.machine.with(|generator| generator.adopt(&start, self.machine.wall()));
            self.is_quiet.set(is_quiet);
            assert_eq!(adopted, Err(AdoptError::Unopened(taken)), "adopt went past a lock");
        }
        let with_an_id = self.world().tape.choose(2) == 1;
        self.end_lingering(with_an_id);
        for holder in &holders {
            holder.end_lingering(with_an_id);
            if holder.machine.is_up() {
                holder.down(Power::Server);
            }
        }
        if self.world().is_leased() {
            return self.down(Power::Server);
        }
        if !holders.is_empty() && !start.made_timeline {
            let again = self.machine.with(|generator| generator.open(&start));
            assert_eq!(again, Err(taken), "a clone takes its original's place");
            self.down(Power::Server);
        }
    }

    fn boot_up(&self) {
        let world = self.world();
        world.counts.borrow_mut().starts += 1;
        let config = self.next_config();
        let is_other = |it: &Lingering| workers_of(&it.config) != workers_of(&config);
        if self.lingering.borrow().as_ref().is_some_and(is_other) {
            // PostgreSQL starts no second server in one directory, whatever its workers.
            self.end_lingering(false);
        }
        *self.machine.config.borrow_mut() = config;
        self.machine.boot_up();
        // The restored mark may be far ahead of the clock.
        *self.run.borrow_mut() = Run { excuses: 1, ..Run::default() };
        self.begin_run();
        self.log(|| {
            format!(
                "start on timeline {}, home {}, backups {}, max_ahead {} us",
                self.machine.start.get().timeline,
                self.home.get(),
                self.backups.get(),
                self.limits.get().max_ahead_us
            )
        });
    }

    fn restart(&self, is_clean: bool) {
        if is_clean {
            self.run.borrow_mut().is_open = false;
            self.live(|| {
                let result = self.machine.with(|generator| generator.write_exact_marks());
                self.log(|| format!("exact marks: {result:?}"));
            });
        }
        if self.machine.is_up() {
            self.down(Power::Server);
        }
    }

    fn train(&self) {
        self.world().clocks.borrow_mut().push(self.machine.wall());
        for calls in [4, 4, 6] {
            self.machine.pass(5 * MS);
            (0..calls).for_each(|_| self.call());
        }
    }

    /// Puts a state into this directory, whose server is down.
    fn replace(&self, state: Option<Snapshot>, in_place: bool) {
        let disk = &self.machine.disk;
        match state {
            Some((slots, identity)) if in_place => disk.put_as(slots, identity),
            Some((slots, _)) => drop(disk.put(slots)),
            None => disk.delete(),
        }
        self.is_replaced.set(true);
        self.is_disturbed.set(true);
        self.adopted.set(-1);
        self.world().highest.borrow_mut().retain(|(_, name), _| *name != self.name);
    }

    fn state(&self) -> Option<Snapshot> {
        self.machine.disk.slots().zip(self.machine.disk.identity())
    }
}

/// The workers of a server with this configuration.
fn workers_of(config: &Config) -> Vec<i64> {
    (0..config.workers.lanes()).map(|lane| config.workers.worker(lane)).collect()
}

fn act(world: &Rc<World>, action: Action) {
    let server = world.server();
    let tape = &world.tape;
    world.counts.borrow_mut().actions += 1;
    let machine = &server.machine;
    match action {
        Turn => {
            let next = (world.current.get() + 1) % world.servers.borrow().len();
            world.current.set(next);
            return;
        }
        Pass => {
            let passes = if world.is_large { &PASSES[..] } else { &PASSES[..2] };
            let micros = passes[tape.choose(passes.len() as u32) as usize];
            world.log(|| format!("{} ms pass", micros / MS));
            machine.pass(micros);
            return;
        }
        Step => return world.step(server.host, world.steps[tape.choose(world.steps.len() as u32) as usize]),
        Aim => {
            let (run, known) = (server.run.borrow(), world.clocks.borrow());
            let last = known.iter().rev().take(if world.is_large { 3 } else { 0 });
            let mut clocks: Vec<i64> = known.iter().take(1).chain(last).copied().collect();
            clocks.extend(run.is_decided.then_some(run.start));
            drop((run, known));
            clocks.dedup();
            if !clocks.is_empty() {
                let clock = clocks[tape.choose(clocks.len() as u32) as usize];
                world.step(server.host, clock - machine.wall());
            }
            return;
        }
        Ghost => return server.linger_on(|| server.call()),
        Promote => return promote(world),
        PutBack => return put_back(world, &server),
        HalfStart => {
            if !machine.is_up() {
                server.make_way();
                server.boot_up();
                server.live(|| server.try_to_open());
                if machine.is_up() {
                    server.down(Power::Server);
                }
            }
            return;
        }
        _ => server.start(),
    }
    match action {
        Issue => server.live(|| server.call()),
        Train => server.live(|| server.train()),
        Burst => server.live(|| {
            server.train();
            let worker = machine.with(|generator| generator.status().worker);
            let mark = machine.disk.said().map_or(-1, |said| said.mark(worker));
            machine.pass(((mark + 1) * MS - machine.wall()).clamp(0, SECOND));
            (0..3).for_each(|_| server.call());
        }),
        Keep => server.live(|| {
            let result = machine.with(|generator| generator.keep_up());
            server.log(|| format!("keep: {result:?}"));
        }),
        Rotate => server.live(|| {
            world.clocks.borrow_mut().push(machine.wall());
            server.rotate();
            server.call();
        }),
        CrashServer => server.down(Power::Server),
        CrashMachine => server.down(Power::Machine),
        Linger => server.linger(),
        Stop => server.restart(true),
        Reconfigure => {
            let others = [(0, 0), (0, 1), (1, 1), (0, 3), (1, 3)];
            let others = others.into_iter().filter(|it| *it != (server.home.get(), server.backups.get()));
            let (home, backups) = others.collect::<Vec<_>>()[tape.choose(4) as usize];
            server.home.set(home);
            server.backups.set(backups);
            server.is_disturbed.set(true);
            server.restart(!world.is_large || tape.choose(2) == 0);
        }
        ChangePolicy => {
            let Limits { policy, max_ahead_us, .. } = server.limits.get();
            let policy = if policy == Policy::Hold { Policy::Replay } else { Policy::Hold };
            server.run.borrow_mut().steps_back += 1;
            server.reload(limits(policy, max_ahead_us));
        }
        ChangeAhead => {
            let others = AHEADS.into_iter().filter(|it| *it != server.limits.get().max_ahead_us);
            let ahead = others.collect::<Vec<_>>()[tape.choose(AHEADS.len() as u32 - 1) as usize];
            server.log(|| format!("max_ahead {ahead} us"));
            // IDs may lie further ahead than a shorter one allows.
            server.run.borrow_mut().excuses += 1;
            server.reload(limits(server.limits.get().policy, ahead));
        }
        Delete => {
            server.log(|| "the file is deleted".to_owned());
            server.replace(None, true);
        }
        Adopt => server.live(|| server.adopt()),
        Meet => {
            let arrives = tape.choose(2) == 0;
            server.live(|| server.meet(arrives));
        }
        Late => {
            if let Some((contact, answer)) = server.late.take() {
                server.live(|| server.hear(&contact, answer));
            }
        }
        End => world.registry.end_all(),
        Turn | Pass | Step | Aim | Ghost | Promote | PutBack | HalfStart => unreachable!("done above"),
    }
}

impl Server {
    fn reload(&self, limits: Limits) {
        self.limits.set(limits);
        self.machine.config.borrow_mut().limits = limits;
        if self.machine.is_up() {
            self.machine.with(|generator| generator.set_limits(limits));
        }
    }
}

fn put_back(world: &Rc<World>, server: &Rc<Server>) {
    let tape = &world.tape;
    if server.machine.is_up() {
        server.down(Power::Server);
    }
    let mut states: Vec<(&str, Option<Snapshot>, bool)> = Vec::new();
    let snapshots = server.snapshots.borrow().clone();
    if let Some(last) = snapshots.last() {
        states.push(("its last start", Some(last.clone()), true));
        states.push(("its last start, as a new file", Some(last.clone()), false));
    }
    if let [first, _, ..] = &snapshots[..] {
        states.push(("its first start", Some(first.clone()), true));
    }
    states.push(("nothing", None, true));
    for other in world.servers.borrow().iter().filter(|it| it.name != server.name) {
        if let Some(state) = other.state() {
            states.push(("another directory", Some(state.clone()), true));
            states.push(("another directory, as a new file", Some(state), false));
        }
    }
    let (name, state, in_place) = states.swap_remove(tape.choose(states.len() as u32) as usize);
    server.log(|| format!("its state is that of {name}"));
    server.replace(state, in_place);
}

fn promote(world: &Rc<World>) {
    let tape = &world.tape;
    let primary = world.server();
    let servers = world.servers.borrow().clone();
    let server = &servers[(primary.name + tape.choose(servers.len() as u32) as usize) % servers.len()];
    world.timeline.set(world.timeline.get() + 1);
    world.counts.borrow_mut().promotions += 1;
    let old = primary.snapshots.borrow().first().cloned();
    if server.machine.is_up() {
        server.down(Power::Server);
    }
    match tape.choose(if world.is_large { 3 } else { 2 }) {
        0 => {}
        1 => server.replace(old, false),
        _ => server.replace(primary.state(), false),
    }
    let replayed_us = primary.committed.get().filter(|_| world.is_large && tape.choose(2) == 1);
    server.home.set(primary.home.get());
    server.backups.set(primary.backups.get());
    server.is_disturbed.set(true);
    let start = server.machine.start.get();
    // It may crash before its state says that it was promoted; then it starts on a timeline that it has not made.
    let made_timeline = !world.is_large || tape.choose(2) == 0;
    server.machine.start.set(Start { timeline: world.timeline.get(), made_timeline, replayed_us, ..start });
    server.log(|| format!("promoted to timeline {}, replayed {replayed_us:?}", world.timeline.get()));
    world.current.set(server.name);
}

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
        registry: Registry::default(),
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
        disk.set_breaches(scope.breaches);
        let machine = Machine::new(settings(0, backups, limits, scope.source), &boot, disk);
        machine.step(if *host == 1 { offset } else { 0 });
        machine.start.set(Start { system_identifier: SYSTEM, ..Start::of_timeline(1) });
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
            server.machine.with(|generator| generator.frontier()).hash(&mut hasher);
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
struct Explored {
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
fn outcome(scope: &Scope, given: &[u32]) -> Result<(), (String, Vec<String>, Vec<u32>)> {
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

fn every_tape(name: &str) {
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
fn explore(scope: &Scope, seconds: u64) -> Result<Explored, (u64, Vec<u32>)> {
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

fn large(name: &str) -> &'static Scope {
    LARGE.iter().find(|scope| scope.name == name).expect("a scope")
}

fn random_tapes(name: &str) {
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

#[test]
fn every_fault_at_every_point_of_the_disk() {
    every_tape("disk");
}

#[test]
fn every_order_of_clock_and_calls() {
    every_tape("clock");
}

#[test]
fn every_interleaving_of_two_calls() {
    every_tape("interleaving");
}

#[test]
fn every_correction_of_the_clock_by_an_hour() {
    every_tape("corrections");
}

#[test]
fn every_state_that_is_put_back_or_lost() {
    every_tape("states");
}

#[test]
fn every_promotion_on_two_hosts() {
    every_tape("hosts");
}

#[test]
fn every_order_of_two_directories_on_one_host() {
    every_tape("one host");
}

#[test]
fn every_change_of_max_ahead() {
    every_tape("max_ahead");
}

#[test]
fn every_change_of_workers() {
    every_tape("workers");
}

#[test]
fn everything_that_operators_do() {
    every_tape("operator");
}

#[test]
fn every_change_of_leases() {
    every_tape("leases");
}

#[test]
fn every_fault_of_the_disk_under_a_lease() {
    every_tape("leases on a bad disk");
}

#[test]
fn every_change_of_leases_in_the_middle_of_a_call() {
    every_tape("interleaved leases");
}

#[test]
fn leases_at_random() {
    random_tapes("any leases");
}

#[test]
fn anything_at_random() {
    random_tapes("everything");
}

#[test]
fn a_bad_disk_at_random() {
    random_tapes("bad disk");
}

#[test]
fn the_second_slot_needs_no_fsync_of_its_own() {
    random_tapes("sloppy disk");
}

/// The simulated disk promises little enough that a start without the fsync is caught.
#[test]
fn a_start_that_believes_what_it_reads_is_found_out() {
    assert!(explore(large("trusting start"), 600).is_err());
}

#[test]
fn a_fleet_at_random() {
    random_tapes("fleet");
}

/// The lock must be held by all processes of a server, not by its postmaster alone.
#[test]
fn a_lock_that_ends_with_the_postmaster_is_found_out() {
    let scope = large("lock of the postmaster");
    let (_, tape) = explore(scope, 600).err().expect("it is found out");
    let (what, ..) = outcome(scope, &tape).expect_err("it fails again");
    assert!(what.contains("repeats"), "{what}");
}
