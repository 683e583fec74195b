//! A model of everything that may happen to servers that generate IDs. The code is the real one; clocks, disks and the
//! order of events are simulated. No state that it reaches repeats an ID or breaks guarantees 2 to 5.
//!
//! A run is a tape of choices: which action comes next, where a fault strikes, and what it leaves behind. Small scopes
//! are explored completely, every tape of them; large ones at random. A failure prints its tape and what happened on
//! it; `MODEL_REPLAY="scope: 1,2,3"` runs that tape again. `MODEL_SECONDS` is how long each random scope takes,
//! `MODEL_SEED` where it starts, `MODEL_DEPTH` how many more actions the runs of the small scopes have, and
//! `MODEL_SHRINK` how many seconds are spent on shortening a failing tape.

#[path = "model/mod.rs"]
mod model;

use model::disk::{Breaches, Down, EIO, ENOSPC, Fault, Point, Power, Said, SimDisk};
use model::tape::Tape;
use model::world::{LockedOut, Machine, SYSTEM, config, draw_anew, is_locked};
use snowflake_core::{Answer, Answered, ClosedReason, Config, Contact, Event, Lease, Limits, Policy};
use snowflake_core::{Refusal, Start, Tick, Unopened, WorkerSource};
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
/// How far above the clock a first start begins.
const FIRST_MARGIN: i64 = SECOND;
/// The values of the worker field.
const WORKERS: i64 = 16;

const PASSES: [i64; 6] = [5 * MS, 1_100 * MS, MS, 20 * MS, 10 * SECOND, 2 * HOUR];
/// Back beyond the ring, back within it, and forward.
const FEW_STEPS: [i64; 3] = [-5 * SECOND, -30 * MS, HOUR];
const STEPS: [i64; 8] = [-3 * MS, -30 * MS, -700 * MS, -5 * SECOND, -HOUR, 5 * MS, 700 * MS, HOUR];

fn limits(policy: Policy) -> Limits {
    Limits { policy, max_ahead_us: 8 * MS, max_wait_us: 3 * MS, reserve_us: 6 * MS }
}

fn settings(home: i64, backups: usize, policy: Policy, source: WorkerSource) -> Config {
    Config { source, ..config(BITS, Tick::Millisecond, home, backups, RING, limits(policy)) }
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
    /// Generates IDs until the reservation is used up.
    Burst,
    Keep,
    Rotate,
    Pass,
    Step,
    /// The server crashes and starts again, at once or later.
    CrashServer,
    CrashMachine,
    Stop,
    /// A stop, other settings, a start.
    Reconfigure,
    ChangePolicy,
    /// From now on, actions apply to the next server.
    Turn,
    BaseCopy,
    /// The standby that has followed longest is promoted, and actions apply to it from now on.
    Promote,
    /// Takes a base backup of that standby.
    CopyStandby,
    /// Restarts that standby after a checkpoint of its primary, so the last commit is not replayed again.
    RestartStandby,
    /// That standby, or a copy of its files, is started without recovery beside its primary.
    StartAlone,
    /// An old primary follows the newest one.
    Follow,
    Clone,
    Delete,
    Adopt,
    /// As `Adopt`, but also lowers marks, to what was generated or is to be.
    Lower,
    /// A contact with the registry; its answer may get lost, or come late.
    Meet,
    /// The answer that got lost arrives after all.
    Late,
    /// The registry gives every group to another node.
    End,
    /// The host boots: the machine goes down, and the witness forgets.
    Reboot,
    /// A copy of the files starts as another server, beside this one.
    CopyNode,
    /// The volume is put back to what it was at the last `Snapshot`, with the same identity.
    RollBack,
    Snapshot,
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
}

const HOLD: &[Policy] = &[Policy::Hold];
const BOTH: &[Policy] = &[Policy::Hold, Policy::Replay];
/// Omits an fsync that is not needed, because the next record goes to this slot first, and a start rewrites it.
const SLOPPY: Breaches = Breaches { page_cache_trusted: false, second_slot_not_synced: true };
/// Omits an fsync that a start does need.
const TRUSTING: Breaches = Breaches { page_cache_trusted: true, second_slot_not_synced: false };
const HONEST: Breaches = Breaches { page_cache_trusted: false, second_slot_not_synced: false };

/// The scopes that are explored completely.
const SMALL: [Scope; 10] = [
    // Every point of the disk's protocol, with two faults.
    Scope {
        name: "disk",
        actions: &[Burst, Rotate, CrashServer, Stop],
        length: 2,
        faults: 2,
        faulty_disk: true,
        interrupted: false,
        backups: &[1],
        policies: HOLD,
        steps: &STEPS,
        breaches: HONEST,
        source: WorkerSource::Configured,
    },
    // Every order of the clock, calls and crashes.
    Scope {
        name: "clock",
        actions: &[Issue, Burst, Pass, Step, CrashServer],
        length: 4,
        faults: 0,
        faulty_disk: false,
        interrupted: false,
        backups: &[1],
        policies: BOTH,
        steps: &FEW_STEPS,
        breaches: HONEST,
        source: WorkerSource::Configured,
    },
    // One call in the middle of another, at every look at the clock and every point of the disk.
    Scope {
        name: "interleaving",
        actions: &[Issue, Burst, Step],
        length: 3,
        faults: 1,
        faulty_disk: false,
        interrupted: true,
        backups: &[1],
        policies: BOTH,
        steps: &FEW_STEPS,
        breaches: HONEST,
        source: WorkerSource::Configured,
    },
    // Failover with outdated copies, while old primaries run on.
    Scope {
        name: "failover",
        actions: &[Burst, BaseCopy, Promote, Turn, Rotate, Step],
        length: 5,
        faults: 0,
        faulty_disk: false,
        interrupted: false,
        backups: &[0, 3],
        policies: HOLD,
        steps: &[-5 * SECOND],
        breaches: HONEST,
        source: WorkerSource::Configured,
    },
    // Standbys that are started without a promotion, on any timeline.
    Scope {
        name: "standbys",
        actions: &[Burst, BaseCopy, Promote, CopyStandby, RestartStandby, StartAlone, Follow],
        length: 4,
        faults: 0,
        faulty_disk: false,
        interrupted: false,
        backups: &[0, 3],
        policies: HOLD,
        steps: &[-5 * SECOND],
        breaches: HONEST,
        source: WorkerSource::Configured,
    },
    // Changes of workers, combined with steps of the clock.
    Scope {
        name: "workers",
        actions: &[Burst, Step, Reconfigure],
        length: 4,
        faults: 0,
        faulty_disk: false,
        interrupted: false,
        backups: &[0],
        policies: HOLD,
        steps: &FEW_STEPS,
        breaches: HONEST,
        source: WorkerSource::Configured,
    },
    // Operators' interventions.
    Scope {
        name: "operator",
        actions: &[Burst, Adopt, Lower, Delete, Clone, CrashServer, Stop, Step],
        length: 4,
        faults: 0,
        faulty_disk: false,
        interrupted: false,
        backups: &[1],
        policies: BOTH,
        steps: &FEW_STEPS,
        breaches: HONEST,
        source: WorkerSource::Configured,
    },
    // Leases that are renewed, lost and granted anew, to a server that crashes, reboots, and has an operator.
    Scope {
        name: "leases",
        actions: &[Burst, Meet, End, Adopt, Reboot, Step, Pass],
        length: 4,
        faults: 0,
        faulty_disk: false,
        interrupted: false,
        backups: &[1],
        policies: HOLD,
        steps: &FEW_STEPS,
        breaches: HONEST,
        source: WorkerSource::Registry,
    },
    // Every point of the disk's protocol, while leases change.
    Scope {
        name: "leases on a bad disk",
        actions: &[Burst, Meet, End, Stop],
        length: 3,
        faults: 1,
        faulty_disk: true,
        interrupted: false,
        backups: &[0],
        policies: HOLD,
        steps: &FEW_STEPS,
        breaches: HONEST,
        source: WorkerSource::Registry,
    },
    // A lease that changes in the middle of a call, also of one that replays.
    Scope {
        name: "interleaved leases",
        actions: &[Issue, Step, Meet],
        length: 3,
        faults: 1,
        faulty_disk: false,
        interrupted: true,
        backups: &[0],
        policies: BOTH,
        steps: &FEW_STEPS,
        breaches: HONEST,
        source: WorkerSource::Registry,
    },
];

const BAD_DISK: Scope = Scope {
    name: "bad disk",
    actions: &[Burst, Burst, Pass, Step, Rotate, CrashServer, CrashMachine, Stop, Delete],
    length: 25,
    faults: 15,
    faulty_disk: true,
    interrupted: false,
    backups: &[0, 1, 3],
    policies: HOLD,
    steps: &STEPS,
    breaches: HONEST,
    source: WorkerSource::Configured,
};

/// The scopes that are explored at random.
const LARGE: [Scope; 6] = [
    Scope { name: "sloppy disk", breaches: SLOPPY, ..BAD_DISK },
    Scope { name: "trusting start", breaches: TRUSTING, ..BAD_DISK },
    BAD_DISK,
    Scope {
        name: "everything",
        actions: &[
            Issue,
            Issue,
            Burst,
            Keep,
            Rotate,
            Pass,
            Pass,
            Step,
            CrashServer,
            CrashMachine,
            Stop,
            Reconfigure,
            ChangePolicy,
            Turn,
            BaseCopy,
            Promote,
            CopyStandby,
            RestartStandby,
            StartAlone,
            Follow,
            Clone,
            Delete,
            Adopt,
            Lower,
        ],
        length: 40,
        faults: 12,
        faulty_disk: true,
        interrupted: true,
        backups: &[0, 1, 3, 5],
        policies: BOTH,
        steps: &STEPS,
        breaches: HONEST,
        source: WorkerSource::Configured,
    },
    Scope {
        name: "fleet",
        actions: &[
            Issue,
            Burst,
            Pass,
            Step,
            Rotate,
            Turn,
            Turn,
            BaseCopy,
            Promote,
            Promote,
            CopyStandby,
            RestartStandby,
            StartAlone,
            Follow,
            Follow,
            CrashServer,
            Reconfigure,
            Adopt,
        ],
        length: 40,
        faults: 4,
        faulty_disk: true,
        interrupted: true,
        backups: &[0, 1, 3, 4],
        policies: BOTH,
        steps: &STEPS,
        breaches: HONEST,
        source: WorkerSource::Configured,
    },
    Scope {
        name: "any leases",
        actions: &[
            Issue,
            Burst,
            Keep,
            Rotate,
            Pass,
            Step,
            CrashServer,
            Stop,
            ChangePolicy,
            Turn,
            Adopt,
            Lower,
            Meet,
            Meet,
            Late,
            End,
            Reboot,
            CopyNode,
            Snapshot,
            RollBack,
        ],
        length: 40,
        faults: 10,
        faulty_disk: true,
        interrupted: true,
        backups: &[0, 1, 3],
        policies: BOTH,
        steps: &STEPS,
        breaches: HONEST,
        source: WorkerSource::Registry,
    },
];

#[derive(Clone, Copy, Default)]
struct Last {
    id: i64,
    rotations: usize,
    steps_back: u32,
    leases: u32,
}

/// One life of a server's memory.
#[derive(Default)]
struct Run {
    /// The record on disk when it began.
    found: Option<Said>,
    is_open: bool,
    last: Option<Last>,
    rotations: usize,
    steps_back: u32,
    /// How many answers of the registry, and marks that were lowered, may have changed where it goes on.
    leases: u32,
    /// How many rotations may have another cause than a step back in this run.
    excuses: u32,
    /// Nothing has happened that would allow another lane than the recorded one.
    must_keep_lane: bool,
}

struct Server {
    name: usize,
    world: Weak<World>,
    machine: Rc<Machine>,
    run: RefCell<Run>,
    /// Settings of the next start.
    backups: Cell<usize>,
    home: Cell<i64>,
    policy: Cell<Policy>,
    /// The server that it follows as a standby; `None` if it follows none any more.
    follows: Cell<Option<usize>>,
    /// The latest timeline that the data directory has reached, by its control file.
    reached: Cell<u32>,
    /// The control file said that it was a standby.
    was_standby: Cell<bool>,
    /// It was promoted, but its state does not say so yet.
    is_unrecorded: Cell<bool>,
    /// An operator has vouched for it nonetheless. From then on it treats all other workers as another server's.
    has_disowned: Cell<bool>,
    /// It must never run again.
    is_dead: Cell<bool>,
    /// Its promotion makes every lane of this server start above this tick.
    floor: Cell<i64>,
    /// The floor of the last `adopt`: no later call goes below it.
    adopted: Cell<i64>,
    /// Steps back since the beginning of the last run that opened the gate, including those while the server was
    /// stopped.
    steps_back: Cell<u32>,
    is_disturbed: Cell<bool>,
    depth: Cell<u32>,
    /// The highest tick that was issued before this run.
    issued_before: Cell<i64>,
    /// An answer of the registry that has not arrived.
    late: Cell<Option<(Contact, Answer)>>,
    /// Its files are a copy under the registry, and it has not opened yet: what they say is the original's.
    is_copy: Cell<bool>,
    /// Nobody may vouch for what it was before.
    is_rolled_back: Cell<bool>,
    /// What the file was at the last snapshot.
    snapshot: RefCell<Option<([Vec<u8>; 2], snowflake_core::host::FileIdentity)>>,
}

#[derive(Default)]
struct Counts {
    calls: u64,
    ids: u64,
    actions: u64,
    starts: u64,
    points: u64,
    faults: u64,
    promotions: u64,
}

struct World {
    tape: Rc<Tape>,
    boot: Rc<Cell<i64>>,
    servers: RefCell<Vec<Rc<Server>>>,
    current: Cell<usize>,
    timeline: Cell<u32>,
    /// The server that returned each ID.
    history: RefCell<HashMap<i64, usize>>,
    /// The highest tick of each worker and server.
    highest: RefCell<BTreeMap<(i64, usize), i64>>,
    counts: RefCell<Counts>,
    log: RefCell<Option<Vec<String>>>,
    states: RefCell<HashSet<u64>>,
    faulty_disk: bool,
    interrupted: bool,
    breaches: Breaches,
    steps: &'static [i64],
    source: WorkerSource,
    registry: Registry,
    /// The leases that each server was granted.
    grants: RefCell<Vec<(usize, Lease)>>,
    /// The run has reached a situation that the design does not protect.
    is_over: Cell<bool>,
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

    fn join(self: &Rc<Self>, machine: Machine, home: i64, backups: usize, policy: Policy) -> Rc<Server> {
        let name = self.servers.borrow().len();
        let server = Rc::new(Server {
            name,
            world: Rc::downgrade(self),
            machine: Rc::new(machine),
            run: RefCell::default(),
            backups: Cell::new(backups),
            home: Cell::new(home),
            policy: Cell::new(policy),
            follows: Cell::new(None),
            reached: Cell::new(1),
            was_standby: Cell::new(false),
            is_unrecorded: Cell::new(false),
            has_disowned: Cell::new(false),
            is_dead: Cell::new(false),
            floor: Cell::new(-1),
            adopted: Cell::new(-1),
            steps_back: Cell::new(0),
            is_disturbed: Cell::new(true),
            depth: Cell::new(0),
            issued_before: Cell::new(-1),
            late: Cell::new(None),
            is_copy: Cell::new(false),
            is_rolled_back: Cell::new(false),
            snapshot: RefCell::default(),
        });
        server.machine.disk.set_breaches(self.breaches);
        let weak = Rc::downgrade(&server);
        server.machine.disk.set_faults(move |point| weak.upgrade().map_or(Fault::None, |it| it.at(point)));
        let weak = Rc::downgrade(&server);
        let meanwhile = move |look: &dyn Fn()| match weak.upgrade() {
            Some(server) => server.meanwhile(look),
            None => look(),
        };
        *server.machine.meanwhile.borrow_mut() = Some(Rc::new(meanwhile));
        self.servers.borrow_mut().push(server.clone());
        server
    }

    /// Whether a server has disowned workers, which copies of it inherit.
    fn has_disowned(&self) -> bool {
        self.servers.borrow().iter().any(|server| server.has_disowned.get())
    }

    /// The highest tick that any other server has issued on one of these workers.
    fn issued_by_others(&self, server: &Server, workers: &[i64]) -> i64 {
        let highest = self.highest.borrow();
        let others =
            highest.iter().filter(|((worker, name), _)| *name != server.name && workers.contains(worker));
        others.map(|(_, tick)| *tick).max().unwrap_or(-1)
    }
}

impl Server {
    fn world(&self) -> Rc<World> {
        self.world.upgrade().expect("the world stands")
    }

    fn log(&self, text: impl FnOnce() -> String) {
        let (name, wall) = (self.name, self.machine.wall() / MS % 1_000_000_000);
        self.world().log(|| format!("server {name} at {wall}: {}", text()));
    }

    /// The fault that strikes at a point of the disk's protocol.
    fn at(&self, point: Point) -> Fault {
        let world = self.world();
        world.counts.borrow_mut().points += 1;
        let kinds = match (world.faulty_disk, world.interrupted) {
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
        const KINDS: [&str; 7] =
            ["a call", "two calls", "a step back", "a rotation", "an adopt", "a lowering", "another lease"];
        let world = self.world();
        let kinds = if world.is_leased() { KINDS.len() } else { KINDS.len() - 1 };
        let is_free = world.interrupted && self.depth.get() < 2 && self.run.borrow().is_open;
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
                self.step(FEW_STEPS[world.tape.choose(2) as usize]);
                self.nested(|| self.call());
            }
            3 => self.nested(|| self.rotate()),
            4 => self.nested(|| self.adopt()),
            5 => self.nested(|| self.lower()),
            _ => self.nested(|| {
                world.registry.end_all();
                self.meet(true);
                self.meet(true);
                let start = self.machine.start.get();
                let is_open = self.machine.with(|generator| generator.open(&start)).is_ok();
                self.run.borrow_mut().is_open = is_open;
                self.step(FEW_STEPS[1]);
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

    fn step(&self, micros: i64) {
        self.log(|| format!("clock by {} ms", micros / MS));
        self.machine.step(micros);
        if micros < 0 {
            self.run.borrow_mut().steps_back += 1;
            self.steps_back.set(self.steps_back.get() + 1);
        }
    }

    /// Asks for one ID and checks the result.
    fn call(&self) {
        let world = self.world();
        world.counts.borrow_mut().calls += 1;
        let adopted = self.adopted.get();
        let before = self.run.borrow().last;
        // A rotation during this call may explain a lower ID.
        let mut last = {
            let run = self.run.borrow();
            Last { id: 0, rotations: run.rotations, steps_back: run.steps_back, leases: run.leases }
        };
        let result = self.machine.with(|generator| generator.next_id());
        let read = self.machine.highest_read();
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
                return;
            }
        };
        world.counts.borrow_mut().ids += 1;
        let layout = self.machine.config.borrow().layout;
        let parts = layout.unpack(id).expect("an ID of this layout");
        self.log(|| format!("ID in tick {} of worker {}", parts.tick % 1_000_000_000, parts.worker));

        let known = world.history.borrow_mut().insert(id, self.name);
        assert_eq!(known, None, "guarantee 1: server {} repeats an ID: {parts:?}", self.name);
        if world.is_leased() {
            let home = parts.worker % (WORKERS / (self.backups.get() as i64 + 1));
            let allows = |(name, lease): &(usize, Lease)| {
                *name == self.name
                    && lease.home == home
                    && lease.floor < parts.tick
                    && parts.tick <= lease.until
            };
            assert!(world.grants.borrow().iter().any(allows), "no lease of server {}: {parts:?}", self.name);
        }
        let mut highest = world.highest.borrow_mut();
        let highest = highest.entry((parts.worker, self.name)).or_insert(-1);
        *highest = parts.tick.max(*highest);

        if self.machine.disk.identity().is_some()
            && let Some(mark) = self.machine.disk.lowest_mark(parts.worker)
        {
            assert!(parts.tick <= mark, "guarantee 2: tick {} is above the durable mark {mark}", parts.tick);
        }
        let mut run = self.run.borrow_mut();
        if let Some(found) = &run.found {
            // A node knows nothing of workers that it never had, and its lease's floor is above what a copy's original did.
            let mark = match found.marks.get(&parts.worker) {
                Some(&i64::MAX) | None if world.is_leased() => -1,
                _ => found.mark(parts.worker),
            };
            assert!(parts.tick > mark, "guarantee 3: {parts:?} after {found:?}");
            if run.last.is_none() && run.must_keep_lane && run.steps_back == 0 {
                assert_eq!(parts.worker, found.active, "a crash used up a lane");
            }
        }
        let max_ahead_us = self.machine.config.borrow().limits.max_ahead_us;
        assert!(parts.tick * MS <= read + max_ahead_us, "guarantee 4: {} us ahead", parts.tick * MS - read);
        // Another operator may have taken it back meanwhile.
        let adopted = adopted.min(self.adopted.get());
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
        drop(run);

        let now = self.machine.wall();
        for standby in world.servers.borrow().iter().filter(|it| it.follows.get() == Some(self.name)) {
            let mut start = standby.machine.start.get();
            start.replayed_us = Some(now);
            standby.machine.start.set(start);
        }
    }

    fn adopt(&self) {
        let world = self.world();
        if self.is_rolled_back.get() {
            return;
        }
        let floor_us = self.machine.wall() + [-5 * MS, 0, 20 * MS][world.tape.choose(3) as usize];
        let start = self.machine.start.get();
        let result = self.machine.with(|generator| generator.adopt(&start, floor_us, false));
        self.log(|| format!("adopt: {result:?}"));
        self.is_disturbed.set(true);
        self.run.borrow_mut().excuses += 1;
        if result.is_ok() {
            let config = *self.machine.config.borrow();
            let floor = config.layout.tick_at(floor_us + config.limits.max_ahead_us);
            self.adopted.set(self.adopted.get().max(floor));
        }
    }

    /// An operator takes floors back. Nobody has generated an ID above the new one with these workers before this run;
    /// what this run generates is not the operator's to know.
    fn lower(&self) {
        let world = self.world();
        if world.servers.borrow().len() > 1 || self.is_rolled_back.get() {
            return;
        }
        let config = *self.machine.config.borrow();
        let vouched_us = config.layout.starts_at(self.issued_before.get().max(0));
        let floor_us = [vouched_us, vouched_us.max(self.machine.wall())][world.tape.choose(2) as usize];
        let start = self.machine.start.get();
        // It may have lowered them even if it fails, or never returns.
        let floor = config.layout.tick_at(floor_us + config.limits.max_ahead_us);
        self.adopted.set(floor.min(self.adopted.get()));
        let result = self.machine.with(|generator| generator.adopt(&start, floor_us, true));
        self.log(|| format!("lower: {result:?}"));
        self.is_disturbed.set(true);
        let mut run = self.run.borrow_mut();
        run.excuses += 2;
        run.must_keep_lane = false;
        run.leases += 1;
        if result.is_ok() {
            self.adopted.set(floor);
            if let Some(found) = &mut run.found
                && let Some(now) = self.machine.disk.said()
            {
                found.marks.iter_mut().for_each(|(worker, mark)| *mark = now.mark(*worker).min(*mark));
                found.elsewhere = now.elsewhere.min(found.elsewhere);
            }
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
                return self.log(|| format!("enlists: {enlisted:?}"));
            }
            Err(errno) => return self.log(|| format!("no contact: errno {errno}")),
        };
        let answer = world.registry.answer(&contact);
        if let Answer::Granted { lease, .. } = answer {
            world.grants.borrow_mut().push((self.name, lease));
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
        *self.run.borrow_mut() = Run::default();
        self.late.set(None);
        if power == Power::Machine {
            self.machine.disk.lose_power();
            self.machine.disk.witness.forget();
        }
    }

    /// The workers of this server's half under its settings.
    fn workers(&self) -> Vec<i64> {
        let stride = WORKERS / (self.backups.get() as i64 + 1);
        let depth = depth(self);
        let lanes = 0..=self.backups.get();
        let half = lanes.filter(|lane| self.backups.get() < 3 || lane % 2 == (depth + 1) % 2);
        half.map(|lane| self.home.get() + lane as i64 * stride).collect()
    }

    /// A start, up to the open gate or the reason why it stays closed. Copies inherit the disowned workers.
    fn start(&self) {
        let world = self.world();
        for attempt in 0..200 {
            if world.is_over.get() || self.run.borrow().is_open {
                return;
            }
            if !self.machine.is_up() {
                self.boot_up();
            }
            if world.is_over.get() {
                return;
            }
            let start = self.machine.start.get();
            self.live(|| match self.machine.with(|generator| generator.open(&start)) {
                Ok(()) => {
                    self.log(|| "open".to_owned());
                    self.is_unrecorded.set(false);
                    self.is_copy.set(false);
                    self.run.borrow_mut().is_open = true;
                }
                Err(Unopened::Settling(micros)) => {
                    // A floor can be above the clock, because it is above the latest of several clocks.
                    let longest = 2 * SECOND + limits(Policy::Hold).max_ahead_us + MS;
                    assert!(micros <= longest, "it settles for {micros} us");
                    self.log(|| format!("settles for {micros} us"));
                    self.machine.pass(micros);
                }
                Err(Unopened::NoLease) => self.meet(true),
                Err(Unopened::Closed(ClosedReason::Os(errno))) => {
                    self.log(|| format!("closed by errno {errno}"));
                    self.machine.pass(SECOND);
                }
                // Promoted, but it crashed before that was on disk. An operator vouches for it, who knows which IDs
                // exist and has corrected the clock.
                Err(Unopened::Closed(
                    ClosedReason::NotPromoted(_) | ClosedReason::Copied | ClosedReason::UnknownWorker,
                )) if self.is_unrecorded.get() || world.has_disowned() => {
                    let issued = world.issued_by_others(self, &self.workers());
                    let floor_us = self.machine.config.borrow().layout.starts_at(issued.max(0));
                    self.step((floor_us - self.machine.wall()).max(0));
                    // A crash may come after the record is durable.
                    self.has_disowned.set(true);
                    let vouched = self.machine.with(|generator| generator.adopt(&start, floor_us, false));
                    self.log(|| format!("vouched for: {vouched:?}"));
                    self.is_unrecorded.set(vouched.is_err());
                    let mut run = self.run.borrow_mut();
                    (run.found, run.must_keep_lane) = (self.machine.disk.said(), false);
                    drop(run);
                    self.is_disturbed.set(true);
                }
                // Unreadable would be a failure too: however many writes fail, one slot stays whole.
                Err(why) => panic!("not open: {why:?}"),
            });
            assert!(attempt < 150, "the gate never opens");
        }
    }

    fn boot_up(&self) {
        let world = self.world();
        world.counts.borrow_mut().starts += 1;
        let old = *self.machine.config.borrow();
        let new = settings(self.home.get(), self.backups.get(), self.policy.get(), world.source);
        *self.machine.config.borrow_mut() = new;
        let mut start = self.machine.start.get();
        start.timeline_before = self.reached.replace(start.timeline);
        start.was_in_recovery = self.was_standby.replace(false);
        self.machine.start.set(start);
        self.machine.boot_up();
        self.issued_before.set(world.highest.borrow().values().copied().max().unwrap_or(-1));
        let found = self.machine.disk.said();
        if found.is_none() && !world.is_leased() {
            // The file was deleted unnoticed, so only the clock and the control file are left.
            let start = self.machine.start.get();
            let known = self.machine.wall().max(start.control_us).max(start.replayed_us.unwrap_or(i64::MIN));
            let first = new.layout.tick_at(known + FIRST_MARGIN + new.limits.max_ahead_us);
            let issued = world.highest.borrow().values().copied().max().unwrap_or(-1);
            if issued > first || self.adopted.get() > first {
                self.log(|| "the file is gone, and the clock too: unprotected".to_owned());
                world.is_over.set(true);
                return;
            }
        }
        let found = found.filter(|_| !self.is_copy.get());
        let same_settings = old.workers == new.workers;
        let same_timeline =
            found.as_ref().is_some_and(|found| found.timeline == self.machine.start.get().timeline as u64);
        let must_keep_lane = !world.is_leased()
            && same_settings
            && same_timeline
            && self.steps_back.get() == 0
            && !self.is_disturbed.get();
        // The restored mark may be far ahead of the clock.
        let excuses = 1;
        *self.run.borrow_mut() = Run { found, must_keep_lane, excuses, ..Run::default() };
        let text = || {
            format!(
                "start on timeline {}, home {}, backups {}",
                self.machine.start.get().timeline,
                self.home.get(),
                self.backups.get()
            )
        };
        self.log(text);
    }

    fn restart(&self, is_clean: bool) {
        if is_clean {
            let mut start = self.machine.start.get();
            start.control_us = self.machine.wall();
            self.machine.start.set(start);
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
}

fn act(world: &Rc<World>, action: Action) {
    let server = world.server();
    let tape = &world.tape;
    world.counts.borrow_mut().actions += 1;
    let machine = &server.machine;
    let is_primary = server.follows.get().is_none() && !server.is_dead.get();
    match action {
        Turn => {
            let next = (world.current.get() + 1) % world.servers.borrow().len();
            world.current.set(next);
            return;
        }
        Pass => {
            let passes = if world.steps.len() == STEPS.len() { &PASSES[..] } else { &PASSES[..2] };
            let micros = passes[tape.choose(passes.len() as u32) as usize];
            world.log(|| format!("{} ms pass", micros / MS));
            machine.pass(micros);
            return;
        }
        Step => return server.step(world.steps[tape.choose(world.steps.len() as u32) as usize]),
        Promote => return promote(world),
        CopyStandby => return copy_standby(world),
        RestartStandby => return restart_standby(world),
        StartAlone => return start_alone(world),
        Follow => return follow(world),
        _ if !is_primary => return,
        _ => server.start(),
    }
    if world.is_over.get() {
        return;
    }
    match action {
        Issue => server.live(|| server.call()),
        Burst => server.live(|| {
            for _ in 0..14 {
                server.call();
            }
        }),
        Keep => server.live(|| {
            let result = machine.with(|generator| generator.keep_up());
            server.log(|| format!("keep: {result:?}"));
        }),
        Rotate => server.live(|| {
            server.rotate();
            server.call();
        }),
        CrashServer => server.down(Power::Server),
        CrashMachine => server.down(Power::Machine),
        Stop => server.restart(true),
        Reconfigure => {
            let home = tape.choose(2) as i64;
            // Only the fleet as a whole may change the number of backup workers.
            let is_alone = world.servers.borrow().len() == 1;
            let backups = if is_alone {
                [server.backups.get(), 3, 1][tape.choose(3) as usize]
            } else {
                server.backups.get()
            };
            let old = (server.home.get(), server.backups.get());
            server.home.set(home);
            server.backups.set(backups);
            if world.issued_by_others(&server, &server.workers()) > server.floor.get() {
                // Two servers would have one worker without knowing of each other.
                server.home.set(old.0);
                server.backups.set(old.1);
                return;
            }
            server.is_disturbed.set(true);
            server.restart(tape.choose(2) == 0);
        }
        ChangePolicy => {
            let policy = if server.policy.get() == Policy::Hold { Policy::Replay } else { Policy::Hold };
            server.policy.set(policy);
            server.run.borrow_mut().steps_back += 1;
            machine.config.borrow_mut().limits = limits(policy);
            if machine.is_up() {
                machine.with(|generator| generator.set_limits(limits(policy)));
            }
        }
        BaseCopy => {
            if world.servers.borrow().len() >= 4 {
                return;
            }
            let disk = machine.disk.copy(tape, 1_000 * (1 + world.servers.borrow().len() as u64));
            let copy = Machine::new(*machine.config.borrow(), &world.boot, disk);
            copy.offset.set(machine.offset.get() + [0, -SECOND, -24 * HOUR][tape.choose(3) as usize]);
            copy.start.set(Start {
                replayed_us: Some(machine.wall()),
                control_us: copy.wall(),
                ..machine.start.get()
            });
            let standby = world.join(copy, server.home.get(), server.backups.get(), server.policy.get());
            standby.follow(&server);
            server.log(|| format!("base copy for server {}", standby.name));
        }
        Clone => {
            if machine.disk.identity().is_none() || machine.disk.said().is_none() {
                return;
            }
            let disk = machine.disk.copy(tape, 900_000);
            let clone = Machine::new(*machine.config.borrow(), &world.boot, disk);
            clone.start.set(machine.start.get());
            clone.boot_up();
            let result = clone.with(|generator| generator.open(&clone.start.get()));
            assert_eq!(result, Err(Unopened::Closed(ClosedReason::Copied)), "a clone opens");
        }
        Delete => {
            server.log(|| "the file is deleted".to_owned());
            server.is_disturbed.set(true);
            machine.disk.delete();
        }
        Adopt => server.live(|| server.adopt()),
        Lower => server.live(|| server.lower()),
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
        Reboot => server.down(Power::Machine),
        CopyNode => {
            if world.servers.borrow().len() >= 3 || machine.disk.identity().is_none() {
                return;
            }
            let disk = machine.disk.copy(tape, 1_000 * (1 + world.servers.borrow().len() as u64));
            let copy = Machine::new(*machine.config.borrow(), &world.boot, disk);
            copy.offset.set(machine.offset.get() + [0, -SECOND][tape.choose(2) as usize]);
            copy.start.set(machine.start.get());
            let copy = world.join(copy, server.home.get(), server.backups.get(), server.policy.get());
            copy.is_copy.set(true);
            server.log(|| format!("copied for server {}", copy.name));
        }
        Snapshot => {
            let identity = machine.disk.identity();
            *server.snapshot.borrow_mut() = machine.disk.slots().zip(identity);
        }
        RollBack => {
            if let Some((slots, identity)) = server.snapshot.take() {
                server.log(|| "rolled back".to_owned());
                server.down(Power::Server);
                machine.disk.put_as(slots, identity);
                // The floors of operators are gone with it.
                server.adopted.set(-1);
                server.is_rolled_back.set(true);
            }
        }
        Turn | Pass | Step | Promote | CopyStandby | RestartStandby | StartAlone | Follow => {
            unreachable!("done above")
        }
    }
}

impl Server {
    /// Replays what `primary` does, from now on. Its control file names the timeline that it follows.
    fn follow(&self, primary: &Server) {
        self.follows.set(Some(primary.name));
        self.reached.set(primary.machine.start.get().timeline);
        self.was_standby.set(true);
    }
}

/// How many timelines led to a server's, itself included.
fn depth(server: &Server) -> usize {
    server.machine.start.get().depth.unwrap_or(1) as usize
}

/// The standby that has followed longest, and its primary.
fn oldest_standby(world: &World) -> Option<(Rc<Server>, Rc<Server>)> {
    let servers = world.servers.borrow();
    servers.iter().find_map(|it| Some((it.clone(), servers[it.follows.get()?].clone())))
}

fn copy_standby(world: &Rc<World>) {
    let Some((standby, primary)) = oldest_standby(world) else { return };
    if world.servers.borrow().len() >= 4 {
        return;
    }
    let disk = standby.machine.disk.copy(&world.tape, 1_000 * (1 + world.servers.borrow().len() as u64));
    let machine = Machine::new(*standby.machine.config.borrow(), &world.boot, disk);
    machine.offset.set(standby.machine.offset.get());
    machine.start.set(standby.machine.start.get());
    let copy = world.join(machine, standby.home.get(), standby.backups.get(), standby.policy.get());
    copy.follow(&primary);
    standby.log(|| format!("copied for server {}", copy.name));
}

fn restart_standby(world: &World) {
    let Some((standby, primary)) = oldest_standby(world) else { return };
    let mut start = standby.machine.start.get();
    start.control_us = standby.machine.wall();
    // Rounded up to whole seconds.
    start.replayed_us = Some((primary.machine.wall() / SECOND + 1) * SECOND);
    standby.machine.start.set(start);
    standby.log(|| "restarted as a standby".to_owned());
}

/// Its primary may run, so on any timeline it must stay closed, however often it is started.
fn start_alone(world: &World) {
    let Some((standby, primary)) = oldest_standby(world) else { return };
    if standby.machine.disk.said().is_none() {
        return;
    }
    let is_copy = world.tape.choose(2) == 1;
    standby.log(|| format!("{} started without recovery", if is_copy { "a copy" } else { "it is" }));
    let config = settings(standby.home.get(), standby.backups.get(), standby.policy.get(), world.source);
    let copy = Machine::new(config, &world.boot, standby.machine.disk.copy(&world.tape, 800_000));
    copy.offset.set(standby.machine.offset.get());
    let machine = if is_copy { &copy } else { &*standby.machine };
    // Nothing interrupts it, and its disk works.
    *machine.meanwhile.borrow_mut() = None;
    machine.disk.heal();
    *machine.config.borrow_mut() = config;
    let timeline = primary.machine.start.get().timeline;
    for was_in_recovery in [true, false] {
        let start =
            Start { timeline, timeline_before: timeline, was_in_recovery, ..standby.machine.start.get() };
        machine.boot_up();
        let result = machine.with(|generator| generator.open(&start));
        let is_closed =
            matches!(result, Err(Unopened::Closed(ClosedReason::Copied | ClosedReason::NotPromoted(_))));
        assert!(is_closed, "a standby that nobody promoted: {result:?}");
        machine.go_down();
    }
    if !is_copy {
        standby.follows.set(None);
        standby.is_dead.set(true);
    }
}

fn follow(world: &Rc<World>) {
    let newest = world.timeline.get();
    let servers = world.servers.borrow().clone();
    let is_primary = |server: &&Rc<Server>| server.follows.get().is_none() && !server.is_dead.get();
    let timeline = |server: &Server| server.machine.start.get().timeline;
    let Some(primary) = servers.iter().filter(is_primary).find(|it| timeline(it) == newest) else { return };
    let Some(old) = servers.iter().filter(is_primary).find(|it| timeline(it) < newest) else { return };
    if old.machine.is_up() {
        old.restart(true);
    }
    let mut start = old.machine.start.get();
    start.replayed_us = Some(primary.machine.wall());
    old.machine.start.set(start);
    old.is_disturbed.set(true);
    old.follow(primary);
    old.log(|| format!("follows server {}", primary.name));
}

fn promote(world: &Rc<World>) {
    let standbys = world.servers.borrow().iter().find(|it| it.follows.get().is_some()).cloned();
    let Some(standby) = &standbys else { return };
    let Some(old) = standby.follows.get() else { return };
    // A restore drill may have taken a number.
    let timeline = world.timeline.get() + 1 + world.tape.choose(2);
    let mut start = standby.machine.start.get();
    let before = start;
    start.timeline = timeline;
    start.depth = Some(1 + depth(&world.servers.borrow()[old]) as u32);
    standby.machine.start.set(start);
    let old = world.servers.borrow()[old].clone();
    standby.home.set(old.home.get());
    standby.backups.set(old.backups.get());

    let config = settings(standby.home.get(), standby.backups.get(), standby.policy.get(), world.source);
    let floor_us = start.replayed_us.unwrap_or(start.control_us);
    let floor = config.layout.tick_at(floor_us + config.limits.max_ahead_us);
    let has_halves = standby.backups.get() >= 3;
    let is_floored = !has_halves || timeline >= 3;
    let reaches = if is_floored { floor } else { -1 };
    if world.issued_by_others(standby, &standby.workers()) > reaches {
        // IDs of a clock that was ahead, while the third timeline's clock lags: the manual excludes this case.
        standby.machine.start.set(before);
        return;
    }
    world.timeline.set(timeline);
    world.current.set(standby.name);
    world.counts.borrow_mut().promotions += 1;
    standby.floor.set(reaches);
    standby.follows.set(None);
    standby.is_unrecorded.set(true);
    standby.log(|| format!("promoted to timeline {timeline}, replayed {}", floor_us / MS % 1_000_000_000));
    // An old primary may run on beside its successor, but not beside the successor of that one.
    for other in world.servers.borrow().iter() {
        let is_apart = has_halves && depth(other) % 2 != depth(standby) % 2;
        if other.name != standby.name && other.follows.get().is_none() && !is_apart && !other.is_dead.get() {
            other.is_dead.set(true);
            other.restart(false);
        }
        // The other standbys follow the new primary, and have replayed no more than it has.
        if other.follows.get() == Some(old.name) {
            other.follow(standby);
        }
    }
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
        boot: boot.clone(),
        servers: RefCell::default(),
        current: Cell::new(0),
        timeline: Cell::new(1),
        history: RefCell::default(),
        highest: RefCell::default(),
        counts: RefCell::default(),
        log: RefCell::new(with_log.then(Vec::new)),
        states: RefCell::new(states),
        faulty_disk: scope.faulty_disk,
        interrupted: scope.interrupted,
        breaches: scope.breaches,
        steps: scope.steps,
        source: scope.source,
        registry: Registry::default(),
        grants: RefCell::default(),
        is_over: Cell::new(false),
    });
    let length = scope.length + number("MODEL_DEPTH", 0) as usize;
    let backups = scope.backups[tape.choose(scope.backups.len() as u32) as usize];
    let policy = scope.policies[tape.choose(scope.policies.len() as u32) as usize];
    draw_anew();
    let machine = Machine::new(settings(0, backups, policy, scope.source), &boot, SimDisk::new(tape));
    machine.start.set(Start { system_identifier: SYSTEM, ..Start::of_timeline(1) });
    world.join(machine, 0, backups, policy);

    let result = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..length {
            let action = scope.actions[tape.choose(scope.actions.len() as u32) as usize];
            world.log(|| format!("- {action:?}"));
            act(&world, action);
            remember(&world);
            if world.is_over.get() {
                return;
            }
        }
        recover(&world);
    }));
    if let Some(lines) = world.log.borrow_mut().take() {
        *log.borrow_mut() = lines;
    }
    if let Err(payload) = result {
        for server in world.servers.borrow().iter() {
            server.machine.go_down();
        }
        resume_unwind(payload);
    }
    (world.counts.take(), world.states.take())
}

/// Checks what must hold after every action, and counts the state if it is new.
fn remember(world: &World) {
    // Under leases a new life need not know what an earlier one did: its leases have floors.
    let known = world.highest.borrow();
    for ((worker, name), tick) in known.iter().filter(|_| !world.is_leased()) {
        let disk = &world.servers.borrow()[*name].machine.disk;
        let mark = disk.lowest_mark(*worker);
        assert!(
            mark.is_none_or(|mark| *tick <= mark),
            "guarantee 2: worker {worker} went to {tick}, marked {mark:?}"
        );
    }
    drop(known);
    let mut states = world.states.borrow_mut();
    if states.len() >= 4_000_000 {
        return;
    }
    let mut hasher = DefaultHasher::new();
    for server in world.servers.borrow().iter() {
        (server.machine.disk.digest(), server.machine.wall(), server.is_dead.get()).hash(&mut hasher);
        if server.machine.is_up() {
            server.machine.with(|generator| generator.frontier()).hash(&mut hasher);
        }
    }
    states.insert(hasher.finish());
}

/// At the end the disks work and the clocks go on: every server that may run generates IDs again.
fn recover(world: &Rc<World>) {
    let live = world.servers.borrow().clone();
    for server in live.iter().filter(|it| it.follows.get().is_none() && !it.is_dead.get()) {
        server.start();
        remember(world);
        server.machine.disk.heal();
        *server.machine.meanwhile.borrow_mut() = None;
        if world.is_over.get() {
            return;
        }
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
        server.start();
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
    }

    fn tell(&self, name: &str, took: Duration) {
        let Counts { calls, ids, actions, starts, points, faults, promotions } = self.counts;
        let (runs, states) = (self.runs, self.states.len());
        println!(
            "{name}: {runs} runs, {states} states, {actions} actions, {starts} starts, {promotions} promotions, \
             {calls} calls, {ids} IDs, {points} disk points, {faults} faults in {took:.1?}"
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
fn every_failover() {
    every_tape("failover");
}

#[test]
fn every_standby_that_nobody_promotes() {
    every_tape("standbys");
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
