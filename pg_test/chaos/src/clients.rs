//! Clients that ask for IDs without end, and note what they got outside the database.

use crate::random::Random;
use crate::tally::{Note, Tally};
use postgres::{Client, Config, NoTls};
use snowflake_server_tests::ids::{Layout, at_ms};
use snowflake_server_tests::sql::{Failure, unpack};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// SQLSTATEs with which a call may be refused while faults are about. Anything else is a fault of the
/// extension, a violated primary key above all.
const EXPECTED: [&str; 9] =
    ["55000", "25006", "57014", "57P01", "57P02", "57P03", "53300", "closed", "unreachable"];

/// What a client asks for, again and again.
#[derive(Clone, Copy, Debug)]
enum Wish {
    One,
    Batch,
    /// As many as a tick has.
    WholeTick,
    SmallRange,
    Insert,
}

/// Neighbours may be sent to different servers: so each wish comes twice running.
const WISHES: [Wish; 8] = [
    Wish::One,
    Wish::WholeTick,
    Wish::Insert,
    Wish::WholeTick,
    Wish::Batch,
    Wish::SmallRange,
    Wish::WholeTick,
    Wish::One,
];

/// A server that IDs are asked from, and what is known about it.
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
    pub frontier_ms: AtomicI64,
    /// How far ahead of true time an ID may lie now (rule 4): the clock's offset and `max_ahead`, each at
    /// its highest since the fault before the last (ms).
    pub lead_ms: AtomicI64,
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
    /// What must never happen, the first few.
    pub wrong: Mutex<Vec<String>>,
}

pub struct Shared {
    start: Instant,
    pub tally: Tally,
    pub counts: Counts,
    stop: AtomicBool,
    targets: RwLock<Vec<Arc<Target>>>,
    version: AtomicU64,
    /// The number of the fault that was drawn last.
    pub fault: AtomicU32,
    /// The pause of the clients that take whole ticks (µs).
    pub pause_us: AtomicU64,
    /// The most IDs of a tick.
    pub capacity: AtomicI64,
    /// When an ID was acknowledged last, and the longest time without one since it was reset (µs).
    last_us: AtomicU64,
    longest_us: AtomicU64,
    /// Per client: when the call that is under way began (µs), or 0.
    busy: Vec<AtomicU64>,
    lost: Mutex<File>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True time in milliseconds since 1970.
pub fn true_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

impl Shared {
    pub fn new(folder: &Path, clients: usize) -> Self {
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
            last_us: AtomicU64::new(0),
            longest_us: AtomicU64::new(0),
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

    /// How many calls are under way.
    pub fn under_way(&self) -> usize {
        self.busy.iter().filter(|busy| busy.load(Ordering::Acquire) != 0).count()
    }

    /// The client whose call has been under way since before then.
    pub fn waiting_since_before(&self, us: u64) -> Option<usize> {
        self.busy.iter().position(|busy| (1..us).contains(&busy.load(Ordering::Acquire)))
    }

    /// Starts to look for the longest time without an ID.
    pub fn reset_longest(&self) {
        self.longest_us.store(0, Ordering::Release);
    }

    /// The longest time without an ID since the reset, or since the last ID if that is longer.
    pub fn longest(&self) -> Duration {
        let open = self.now_us().saturating_sub(self.last_us.load(Ordering::Acquire));
        Duration::from_micros(self.longest_us.load(Ordering::Acquire).max(open))
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

pub struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    pub fn start(shared: &Arc<Shared>, count: usize, seed: u64) -> Self {
        let threads = (0..count)
            .map(|number| {
                let shared = shared.clone();
                let random = Random::new(seed ^ (number as u64 + 1).wrapping_mul(0x1234_5678_9abc_def1));
                std::thread::spawn(move || Asker::new(number, shared, random).run())
            })
            .collect();
        Self { shared: shared.clone(), threads }
    }

    pub fn have_died(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for thread in std::mem::take(&mut self.threads) {
            let _ = thread.join();
        }
    }
}

struct Asker {
    number: usize,
    wish: Wish,
    shared: Arc<Shared>,
    random: Random,
    calls: u32,
    /// The insert whose answer never came: its call, when it began, and the server it was sent to.
    doubtful: Option<(i64, u64)>,
}

impl Asker {
    fn new(number: usize, shared: Arc<Shared>, random: Random) -> Self {
        let wish = WISHES[number / 2 % WISHES.len()];
        Self { number, wish, shared, random, calls: 0, doubtful: None }
    }

    fn run(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            let version = self.shared.version.load(Ordering::Acquire);
            let target = {
                let targets = self.shared.targets.read().unwrap_or_else(PoisonError::into_inner);
                (!targets.is_empty()).then(|| targets[self.number % targets.len()].clone())
            };
            let Some(target) = target else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            match target.config.connect(NoTls) {
                Ok(session) => self.talk(session, &target, version),
                Err(e) => {
                    let failure = Failure::from(&e);
                    let code = if failure.code == "closed" { "unreachable" } else { &failure.code };
                    self.refused(code, &failure.message, 0);
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks until the session breaks or the clients are sent elsewhere.
    fn talk(&mut self, mut session: Client, target: &Target, version: u64) {
        if let Some((call, began_us)) = self.doubtful {
            // The answer never came, but an ID may have been made and kept.
            match session.query_opt("SELECT id FROM made WHERE call = $1", &[&call]) {
                Ok(row) => {
                    if let Some(row) = row {
                        let id: i64 = row.get(0);
                        self.shared.counts.found.fetch_add(1, Ordering::Relaxed);
                        self.note(target, &[(id, id)], began_us);
                    }
                    self.doubtful = None;
                }
                Err(_) => return,
            }
        }
        let whole = self.shared.capacity.load(Ordering::Relaxed);
        let query = match self.wish {
            Wish::One => "SELECT int8send(snowflake_nextval())".to_owned(),
            Wish::Batch => {
                "SELECT string_agg(int8send(id), ''::bytea) FROM snowflake_nextval_batch(1000) AS id"
                    .to_owned()
            }
            Wish::WholeTick => {
                format!("SELECT int8send(first) || int8send(last) FROM snowflake_nextval_range({whole})")
            }
            Wish::SmallRange => {
                "SELECT int8send(first) || int8send(last) FROM snowflake_nextval_range($1)".to_owned()
            }
            Wish::Insert => "INSERT INTO made (call) VALUES ($1) RETURNING int8send(id)".to_owned(),
        };
        let Ok(statement) = session.prepare(&query) else { return };
        while self.shared.version.load(Ordering::Acquire) == version
            && !self.shared.stop.load(Ordering::Acquire)
            && !session.is_closed()
        {
            self.calls += 1;
            let call = ((self.number as i64) << 40) + i64::from(self.calls);
            let small = self.random.between(1, 300) as i32;
            let n = match self.wish {
                Wish::One | Wish::Insert => 1,
                Wish::Batch => 1000,
                Wish::WholeTick => whole as u64,
                Wish::SmallRange => small as u64,
            };
            let counts = &self.shared.counts;
            counts.calls.fetch_add(1, Ordering::Relaxed);
            counts.attempted.fetch_add(n, Ordering::Relaxed);
            let began_us = self.shared.now_us();
            self.shared.busy[self.number].store(began_us, Ordering::Release);
            let answer = match self.wish {
                Wish::Insert => session.query_one(&statement, &[&call]),
                Wish::SmallRange => session.query_one(&statement, &[&small]),
                _ => session.query_one(&statement, &[]),
            };
            // Not before the answer is noted: who waits for quiet counts what is.
            let idle = || self.shared.busy[self.number].store(0, Ordering::Release);
            match answer {
                Ok(row) => {
                    let intervals = self.intervals(&unpack(row.get(0)), n);
                    self.keep(target, &intervals, began_us);
                    idle();
                    self.pause();
                }
                Err(e) => {
                    let failure = Failure::from(&e);
                    let is_lost = matches!(failure.code.as_str(), "closed" | "57P01" | "57P02");
                    if is_lost {
                        self.lost(target, &failure, n, began_us);
                        if matches!(self.wish, Wish::Insert) {
                            self.doubtful = Some((call, began_us));
                            idle();
                            return;
                        }
                    }
                    self.refused(&failure.code, &failure.message, if is_lost { 0 } else { n });
                    idle();
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    /// The IDs of an answer, as intervals.
    fn intervals(&self, ids: &[i64], n: u64) -> Vec<(i64, i64)> {
        match self.wish {
            Wish::WholeTick | Wish::SmallRange => {
                if ids.len() != 2 || ids[1] - ids[0] + 1 != n as i64 {
                    self.shared.complain(format!("a range of {n} was answered with {ids:?}"));
                }
                vec![(ids[0], ids[1])]
            }
            Wish::One | Wish::Insert | Wish::Batch => {
                if ids.len() as u64 != n {
                    self.shared.complain(format!("{} IDs instead of {n}", ids.len()));
                }
                let mut intervals: Vec<(i64, i64)> = Vec::new();
                for id in ids {
                    match intervals.last_mut() {
                        Some((_, last)) if *last + 1 == *id => *last = *id,
                        _ => intervals.push((*id, *id)),
                    }
                }
                intervals
            }
        }
    }

    /// Notes the IDs of an answer, for the check of duplicates, and when the answer came.
    fn keep(&self, target: &Target, intervals: &[(i64, i64)], began_us: u64) {
        let (shared, ended_us) = (&self.shared, self.note(target, intervals, began_us));
        let latest_ms = intervals.iter().map(|(_, last)| at_ms(*last)).max().unwrap_or(i64::MIN);
        let lead_ms = latest_ms - true_ms();
        let allowed_ms = target.lead_ms.load(Ordering::Acquire);
        if lead_ms > allowed_ms + 1 {
            let parts = intervals.last().map(|(_, last)| Layout::DEFAULT.parts(*last));
            shared.complain(format!(
                "{}: an ID lies {lead_ms} ms ahead, where {allowed_ms} are allowed: {parts:?}",
                target.name
            ));
        }
        let made: i64 = intervals.iter().map(|(first, last)| last - first + 1).sum();
        target.acknowledged.fetch_add(made as u64, Ordering::AcqRel);
        target.frontier_ms.fetch_max(latest_ms, Ordering::AcqRel);
        target.served_us.fetch_max(began_us, Ordering::AcqRel);
        let before_us = shared.last_us.swap(ended_us, Ordering::AcqRel);
        shared.longest_us.fetch_max(ended_us.saturating_sub(before_us), Ordering::AcqRel);
    }

    fn note(&self, target: &Target, intervals: &[(i64, i64)], began_us: u64) -> u64 {
        let shared = &self.shared;
        let ended_us = shared.now_us();
        let notes: Vec<Note> = intervals
            .iter()
            .map(|&(first, last)| Note {
                first,
                last,
                client: self.number as u16,
                server: target.number,
                fault: shared.fault.load(Ordering::Relaxed),
                call: self.calls,
                began_us,
                ended_us,
            })
            .collect();
        shared.tally.add(&notes);
        ended_us
    }

    fn refused(&self, code: &str, message: &str, n: u64) {
        let counts = &self.shared.counts;
        counts.refused.fetch_add(n, Ordering::Relaxed);
        *lock(&counts.refusals).entry(format!("{code} {message}")).or_default() += 1;
        if !EXPECTED.contains(&code) {
            self.shared.complain(format!("client {}: {code} {message}", self.number));
        }
    }

    /// A call that was on the way when its connection broke: whether IDs were made for it is not known.
    fn lost(&self, target: &Target, failure: &Failure, n: u64, began_us: u64) {
        let shared = &self.shared;
        shared.counts.lost.fetch_add(n, Ordering::Relaxed);
        shared.counts.lost_calls.fetch_add(1, Ordering::Relaxed);
        let line = format!(
            "{:.6} s, fault {}, client {} call {}, {}: {:?} of {n}, {}\n",
            began_us as f64 / 1e6,
            shared.fault.load(Ordering::Relaxed),
            self.number,
            self.calls,
            target.name,
            self.wish,
            failure.code,
        );
        lock(&shared.lost).write_all(line.as_bytes()).expect("the log can be written");
    }

    fn pause(&self) {
        let us = match self.wish {
            Wish::WholeTick => self.shared.pause_us.load(Ordering::Relaxed),
            Wish::Batch => 40_000,
            Wish::One | Wish::SmallRange => 2_000,
            Wish::Insert => 4_000,
        };
        if us > 0 {
            std::thread::sleep(Duration::from_micros(us));
        }
    }
}
