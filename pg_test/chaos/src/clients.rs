//! Clients that ask for IDs without end, and note the answers outside the database.

use crate::random::Random;
use crate::shared::{Shared, Target, true_ms};
use crate::tally::{Note, lock};
use postgres::{Client, NoTls};
use snowflake_server_tests::ids::{Layout, at_ms};
use snowflake_server_tests::ms;
use snowflake_server_tests::sql::{Failure, unpack};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// Whether a call may be refused with this SQLSTATE.
pub fn is_expected(code: &str, _message: &str) -> bool {
    EXPECTED.contains(&code)
}

/// SQLSTATEs with which a call may be refused while faults are inflicted. Any other is a fault of the
/// extension, a violated primary key above all.
const EXPECTED: [&str; 9] =
    ["55000", "25006", "57014", "57P01", "57P02", "57P03", "53300", "closed", "unreachable"];

/// The call that a client repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    One,
    Batch,
    /// As many as a tick has.
    WholeTick,
    /// As many as some hundred ticks have, so that IDs run ahead of the clock.
    Burst,
    SmallRange,
    Insert,
}

/// Each wish belongs to two neighbours, because neighbours may be sent to different servers.
const WISHES: [Wish; 8] = [
    Wish::One,
    Wish::Burst,
    Wish::Insert,
    Wish::WholeTick,
    Wish::Batch,
    Wish::SmallRange,
    Wish::WholeTick,
    Wish::One,
];

/// The ticks of a burst.
const BURST: u64 = 200;

impl Wish {
    /// Its query, where a tick has `whole` IDs.
    fn query(self, whole: i64) -> String {
        match self {
            Wish::One => "SELECT int8send(snowflake_nextval())".to_owned(),
            Wish::Batch => {
                "SELECT string_agg(int8send(id), ''::bytea) FROM snowflake_nextval_batch(1000) AS id"
                    .to_owned()
            }
            Wish::WholeTick => {
                format!("SELECT int8send(first) || int8send(last) FROM snowflake_nextval_range({whole})")
            }
            // The argument differs by row, so that PostgreSQL calls the function for each.
            Wish::Burst => format!(
                "SELECT string_agg(int8send(r.first) || int8send(r.last), ''::bytea)
                 FROM generate_series(1, {BURST}) i, LATERAL snowflake_nextval_range({whole} + 0 * i) r"
            ),
            Wish::SmallRange => {
                "SELECT int8send(first) || int8send(last) FROM snowflake_nextval_range($1)".to_owned()
            }
            Wish::Insert => "INSERT INTO made (call) VALUES ($1) RETURNING int8send(id)".to_owned(),
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

    pub fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
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
    /// The insert whose answer never came: its call, and when it began.
    doubtful: Option<(i64, u64)>,
}

impl Asker {
    fn new(number: usize, shared: Arc<Shared>, random: Random) -> Self {
        let wish = WISHES[number / 2 % WISHES.len()];
        Self { number, wish, shared, random, calls: 0, doubtful: None }
    }

    fn run(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            let Some(target) = self.shared.target_of(self.number) else {
                std::thread::sleep(ms(5));
                continue;
            };
            match target.config.connect(NoTls) {
                Ok(session) => self.talk(session, &target),
                Err(e) => {
                    let failure = Failure::from(&e);
                    let code = if failure.code == "closed" { "unreachable" } else { &failure.code };
                    self.refused(code, &failure.message, 0);
                }
            }
            std::thread::sleep(ms(20));
        }
    }

    /// Asks until the session breaks or the clients are sent elsewhere.
    fn talk(&mut self, mut session: Client, target: &Arc<Target>) {
        if self.find_doubtful(&mut session, target).is_err() {
            return;
        }
        let whole = self.shared.capacity.load(Ordering::Relaxed);
        let Ok(statement) = session.prepare(&self.wish.query(whole)) else { return };
        let mut version = u64::MAX;
        while self.is_sent_to(target, &mut version)
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
                Wish::Burst => BURST * whole as u64,
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
            match &answer {
                Ok(row) => self.keep(target, &self.intervals(&unpack(row.get(0)), n), began_us),
                Err(e) => self.fail(target, &Failure::from(e), call, n, began_us),
            }
            // Not before the answer is counted, because a count is settled once no call is under way.
            self.shared.busy[self.number].store(0, Ordering::Release);
            match answer {
                Ok(_) => self.pause(),
                Err(_) if self.doubtful.is_some() => return,
                Err(_) => std::thread::sleep(ms(5)),
            }
        }
    }

    /// Whether the client is to ask this server, as it was last told.
    fn is_sent_to(&self, target: &Arc<Target>, version: &mut u64) -> bool {
        let now = self.shared.version.load(Ordering::Acquire);
        std::mem::replace(version, now) == now
            || self.shared.target_of(self.number).is_some_and(|other| Arc::ptr_eq(&other, target))
    }

    /// Looks for the row of an insert whose answer never came: its ID may have been generated and kept.
    fn find_doubtful(&mut self, session: &mut Client, target: &Target) -> Result<(), postgres::Error> {
        if let Some((call, began_us)) = self.doubtful {
            if let Some(row) = session.query_opt("SELECT id FROM made WHERE call = $1", &[&call])? {
                let id: i64 = row.get(0);
                self.shared.counts.found.fetch_add(1, Ordering::Relaxed);
                self.note(target, &[(id, id)], began_us);
            }
            self.doubtful = None;
        }
        Ok(())
    }

    /// Counts a call that failed. Whether IDs were generated for it is not known if its connection broke.
    fn fail(&mut self, target: &Target, failure: &Failure, call: i64, n: u64, began_us: u64) {
        if !matches!(failure.code.as_str(), "closed" | "57P01" | "57P02") {
            return self.refused(&failure.code, &failure.message, n);
        }
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
        if self.wish == Wish::Insert {
            self.doubtful = Some((call, began_us));
        } else {
            self.refused(&failure.code, &failure.message, 0);
        }
    }

    /// The IDs of an answer, as intervals.
    fn intervals(&self, ids: &[i64], n: u64) -> Vec<(i64, i64)> {
        match self.wish {
            Wish::Burst => {
                let ranges: Vec<(i64, i64)> = ids.chunks_exact(2).map(|ends| (ends[0], ends[1])).collect();
                let made: i64 = ranges.iter().map(|(first, last)| last - first + 1).sum();
                if made != n as i64 || ids.len() as u64 != 2 * BURST {
                    self.shared.complain(format!("a burst of {n} was answered with {made}"));
                }
                ranges
            }
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
        let ended_us = self.note(target, intervals, began_us);
        let latest_ms = intervals.iter().map(|(_, last)| at_ms(*last)).max().unwrap_or(i64::MIN);
        let lead_ms = latest_ms - true_ms();
        let allowed_ms = target.lead_ms.load(Ordering::Acquire);
        if lead_ms > allowed_ms + 1 {
            let parts = intervals.last().map(|(_, last)| Layout::DEFAULT.parts(*last));
            self.shared.complain(format!(
                "{}: an ID lies {lead_ms} ms ahead, where {allowed_ms} are allowed: {parts:?}",
                target.name
            ));
        }
        let made: i64 = intervals.iter().map(|(first, last)| last - first + 1).sum();
        target.acknowledged.fetch_add(made as u64, Ordering::AcqRel);
        target.newest_ms.fetch_max(latest_ms, Ordering::AcqRel);
        target.served_us.fetch_max(began_us, Ordering::AcqRel);
        self.shared.acknowledge(target, ended_us);
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
        if !(self.shared.is_expected)(code, message) {
            self.shared.complain(format!("client {}: {code} {message}", self.number));
        }
    }

    fn pause(&self) {
        let us = match self.wish {
            Wish::WholeTick => self.shared.pause_us.load(Ordering::Relaxed),
            Wish::Burst => 20 * self.shared.pause_us.load(Ordering::Relaxed),
            Wish::Batch => 40_000,
            Wish::One | Wish::SmallRange => 2_000,
            Wish::Insert => 4_000,
        };
        if us > 0 {
            std::thread::sleep(Duration::from_micros(us));
        }
    }
}
