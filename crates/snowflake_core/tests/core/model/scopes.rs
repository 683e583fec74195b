//! The scopes of the model: which actions a run takes from, how many, and under which faults and settings.

use crate::common;
use crate::simulation::world::config;
use snowflake_core::{Config, Limits, Policy, Tick, WorkerSource};

use Action::*;

pub use crate::simulation::server::{HOUR, MS, SECOND};

/// Two IDs per tick, 16 workers, a ring of 64 ticks, so that ticks, lanes and rings run out soon.
pub const BITS: &str = "41/4/1";

const RING: usize = 64;

/// The values of the worker field.
pub const WORKERS: i64 = 16;

/// By how much the clocks of hosts may differ where a state cannot be the newest (rule 4).
pub const TOLERANCE: i64 = SECOND;

/// The longest that a start may ask to wait.
pub const LONGEST_WAIT: i64 = 2 * SECOND + MS;

pub const PASSES: [i64; 6] = [5 * MS, 1_100 * MS, MS, 20 * MS, 10 * SECOND, 2 * HOUR];

/// Back beyond the ring, back within it, and forward.
pub const FEW_STEPS: [i64; 3] = [-5 * SECOND, -30 * MS, HOUR];

const STEPS: [i64; 8] = [-3 * MS, -30 * MS, -700 * MS, -5 * SECOND, -HOUR, 5 * MS, 700 * MS, HOUR];

/// What a time service does to a clock that was an hour wrong.
const CORRECTIONS: [i64; 2] = [-HOUR, HOUR];

/// By how much the clock of the second host differs from that of the first.
pub const OFFSETS: [i64; 3] = [-900 * MS, 0, 900 * MS];

pub const AHEADS: [i64; 3] = [8 * MS, 16 * MS, 0];

pub fn limits(policy: Policy, max_ahead_us: i64) -> Limits {
    common::limits(policy, max_ahead_us, 3 * MS)
}

pub fn settings(home: i64, backups: usize, limits: Limits, source: WorkerSource) -> Config {
    Config { source, ..config(BITS, Tick::Millisecond, home, backups, RING, limits) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
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
    /// A directory becomes the primary of a new timeline: with its own files, or with a new or old copy of the
    /// primary's. Actions apply to it from now on.
    Promote,
    /// The server goes down, and its state is put back to an earlier one, replaced by that of another directory, or
    /// lost.
    PutBack,
    /// The server goes down, and the slot of its newest record is damaged.
    Damage,
    Delete,
    Adopt,
    /// A contact with the registry; its answer may get lost, or come late.
    Meet,
    /// The answer that got lost arrives after all.
    Late,
    /// An operator of the registry retires every node.
    End,
}

pub struct Scope {
    pub name: &'static str,
    pub actions: &'static [Action],
    /// How many actions a run has.
    pub length: usize,
    /// How many faults and interruptions a run has.
    pub faults: u32,
    pub faulty_disk: bool,
    /// Whether calls run in the middle of calls.
    pub interrupted: bool,
    pub backups: &'static [usize],
    pub policies: &'static [Policy],
    pub steps: &'static [i64],
    /// Starts omit the writes that they need.
    pub trusts_page_cache: bool,
    pub source: WorkerSource,
    /// The host of each data directory.
    pub hosts: &'static [usize],
    /// The lock on a host ends with the postmaster, although a process of it lives on.
    pub forgets_lock: bool,
}

const HOLD: &[Policy] = &[Policy::Hold];

const BOTH: &[Policy] = &[Policy::Hold, Policy::Replay];

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
    trusts_page_cache: false,
    source: WorkerSource::Configured,
    hosts: &[0],
    forgets_lock: false,
};

/// The scopes that are explored completely.
pub const SMALL: [Scope; 14] = [
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
    // A slot that is damaged, and clocks that are right and wrong.
    Scope {
        name: "damaged slots",
        actions: &[Train, Rotate, Damage, Aim, Stop],
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
    // Leases that are renewed, lost and granted anew, to a server that crashes, reboots, is cloned, and has an
    // operator.
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
    actions: &[Burst, Burst, Pass, Step, Rotate, CrashServer, CrashMachine, Stop, Delete, Damage],
    length: 25,
    faults: 15,
    faulty_disk: true,
    backups: &[0, 1, 3],
    steps: &STEPS,
    ..PLAIN
};

/// The scopes that are explored at random.
pub const LARGE: [Scope; 6] = [
    Scope { name: "trusting start", trusts_page_cache: true, ..BAD_DISK },
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
