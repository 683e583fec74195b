//! The state that clients, acts and the report share.

use crate::tally::{Tally, lock};
use postgres::Config;
use snowflake_server_tests::Server;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A server that clients ask for IDs, and its answers so far.
#[derive(Debug)]
pub struct Target {
    pub number: u16,
    pub name: String,
    pub config: Config,
    /// When the latest call began that was answered with IDs (µs since the start of the run).
    pub served_us: AtomicU64,
    /// IDs that this server acknowledged.
    pub acknowledged: AtomicU64,
    /// The time of the latest acknowledged ID, in milliseconds since 1970.
    pub newest_ms: AtomicI64,
    /// How far ahead of true time an ID may be now (rule 4): the clock's offset and `max_ahead`, each at
    /// its highest since the fault before the last (ms).
    pub lead_ms: AtomicI64,
    silence: Silence,
}

/// When an ID was acknowledged last, and the longest time without one since it was reset (µs).
#[derive(Debug, Default)]
struct Silence {
    last_us: AtomicU64,
    longest_us: AtomicU64,
}

impl Silence {
    fn end(&self, at_us: u64) {
        let before_us = self.last_us.swap(at_us, Ordering::AcqRel);
        self.longest_us.fetch_max(at_us.saturating_sub(before_us), Ordering::AcqRel);
    }

    fn reset(&self) {
        self.longest_us.store(0, Ordering::Release);
    }

    fn longest(&self, now_us: u64) -> Duration {
        let open = now_us.saturating_sub(self.last_us.load(Ordering::Acquire));
        Duration::from_micros(self.longest_us.load(Ordering::Acquire).max(open))
    }
}

/// Counts of a run, for its report.
#[derive(Debug, Default)]
pub struct Counts {
    pub calls: AtomicU64,
    pub attempted: AtomicU64,
    pub refused: AtomicU64,
    /// IDs, and calls, whose answer never came.
    pub lost: AtomicU64,
    pub lost_calls: AtomicU64,
    /// Inserts whose answer never came, and whose row was found later.
    pub found: AtomicU64,
    /// By SQLSTATE and message.
    pub refusals: Mutex<BTreeMap<String, u64>>,
    /// Violations of what the extension promises, the first few.
    pub wrong: Mutex<Vec<String>>,
}

pub struct Shared {
    start: Instant,
    pub tally: Tally,
    pub counts: Counts,
    pub stop: AtomicBool,
    targets: RwLock<Vec<Arc<Target>>>,
    /// Counts the changes of `targets`.
    pub version: AtomicU64,
    /// The number of the fault that was drawn last.
    pub fault: AtomicU32,
    /// The pause of the clients that take whole ticks (µs).
    pub pause_us: AtomicU64,
    /// The most IDs of a tick.
    pub capacity: AtomicI64,
    silence: Silence,
    next_server: AtomicU16,
    /// How many faults had nothing to hit.
    pub skipped: AtomicU32,
    /// How often a worker was changed because all its lanes had IDs in the future.
    pub interventions: AtomicU32,
    /// How often the state of a server had to be adopted, because its message asked for it.
    pub adopted: AtomicU32,
    /// Whether a call may be refused with this SQLSTATE and message while faults are inflicted.
    pub is_expected: fn(&str, &str) -> bool,
    /// Per client: when the call that is under way began (µs), or 0.
    pub busy: Vec<AtomicU64>,
    pub lost: Mutex<File>,
}

/// True time in milliseconds since 1970.
pub fn true_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

impl Shared {
    pub fn new(folder: &Path, clients: usize, is_expected: fn(&str, &str) -> bool) -> Self {
        Self {
            start: Instant::now(),
            tally: Tally::new(folder, clients),
            counts: Counts::default(),
            stop: AtomicBool::new(false),
            targets: RwLock::default(),
            version: AtomicU64::new(0),
            fault: AtomicU32::new(0),
            pause_us: AtomicU64::new(0),
            capacity: AtomicI64::new(4096),
            silence: Silence::default(),
            next_server: AtomicU16::new(1),
            skipped: AtomicU32::new(0),
            interventions: AtomicU32::new(0),
            adopted: AtomicU32::new(0),
            is_expected,
            busy: (0..clients).map(|_| AtomicU64::new(0)).collect(),
            lost: Mutex::new(File::create(folder.join("in_flight")).expect("a file can be made")),
        }
    }

    /// Microseconds since the start of the run, by a clock that nobody moves; never 0.
    pub fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64 + 1
    }

    /// Sends the clients to these servers, in turn; to none: they leave.
    pub fn send_to(&self, targets: Vec<Arc<Target>>) {
        *self.targets.write().unwrap_or_else(PoisonError::into_inner) = targets;
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// The server that a client asks, if there is one now.
    pub fn target_of(&self, client: usize) -> Option<Arc<Target>> {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner);
        (!targets.is_empty()).then(|| targets[client % targets.len()].clone())
    }

    /// A server that clients can be sent to.
    pub fn target(&self, server: &Server, name: &str) -> Arc<Target> {
        let number = self.next_server.fetch_add(1, Ordering::Relaxed);
        let silence = Silence { last_us: AtomicU64::new(self.now_us()), ..Silence::default() };
        Arc::new(Target {
            number,
            name: format!("server {number} ({name})"),
            config: server.config(),
            served_us: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            newest_ms: AtomicI64::new(i64::MIN),
            lead_ms: AtomicI64::new(0),
            silence,
        })
    }

    /// Notes that a fault had nothing to hit.
    pub fn skip(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// How many calls are under way.
    pub fn under_way(&self) -> usize {
        self.busy.iter().filter(|busy| busy.load(Ordering::Acquire) != 0).count()
    }

    /// A client whose call has been under way since before then.
    pub fn waiting_since_before(&self, us: u64) -> Option<usize> {
        self.busy.iter().position(|busy| (1..us).contains(&busy.load(Ordering::Acquire)))
    }

    /// Notes that a server's ID was acknowledged.
    pub fn acknowledge(&self, target: &Target, at_us: u64) {
        self.silence.end(at_us);
        target.silence.end(at_us);
    }

    /// Starts to look for the longest time without an ID.
    pub fn reset_longest(&self) {
        self.silence.reset();
    }

    /// The longest time without an ID since the reset, or since the last ID if that is longer.
    pub fn longest(&self) -> Duration {
        self.silence.longest(self.now_us())
    }

    /// The same for one server.
    pub fn reset_longest_of(&self, target: &Target) {
        target.silence.reset();
    }

    pub fn longest_of(&self, target: &Target) -> Duration {
        target.silence.longest(self.now_us())
    }

    pub fn is_wrong(&self) -> bool {
        !lock(&self.counts.wrong).is_empty()
    }

    pub fn complain(&self, what: String) {
        let mut wrong = lock(&self.counts.wrong);
        if wrong.len() < 20 {
            wrong.push(what);
        }
    }
}
