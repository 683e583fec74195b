//! Clients that generate IDs in the background.

use crate::ids::Ids;
use crate::sql::{Failure, unpack};
use crate::{Server, secs, wait_until};
use postgres::{Client, Config, NoTls};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The call that a client repeats.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `snowflake_nextval()`
    One,
    /// `snowflake_nextval_batch(n)`
    Batch(i32),
    /// `snowflake_nextval_range(n)`
    Range(i32),
}

impl Kind {
    fn query(self) -> String {
        match self {
            Kind::One => "SELECT int8send(snowflake_nextval())".to_owned(),
            Kind::Batch(n) => {
                format!("SELECT string_agg(int8send(id), ''::bytea) FROM snowflake_nextval_batch({n}) AS id")
            }
            Kind::Range(n) => {
                format!("SELECT int8send(first) || int8send(last) FROM snowflake_nextval_range({n})")
            }
        }
    }

    fn ids(self, answer: &[u8]) -> Vec<i64> {
        let ids = unpack(answer);
        match self {
            Kind::One | Kind::Batch(_) => ids,
            Kind::Range(n) => {
                assert_eq!(ids[1] - ids[0], i64::from(n) - 1, "a range of {n}: {ids:?}");
                (ids[0]..=ids[1]).collect()
            }
        }
    }
}

/// One query of a client.
#[derive(Clone, Debug)]
pub struct Call {
    /// The client's number.
    pub client: usize,
    /// When it was sent, by a clock that no test moves.
    pub began: Instant,
    /// When its response arrived.
    pub ended: Instant,
    /// The IDs, in the order in which they were generated, or the error.
    pub outcome: Result<Vec<i64>, Failure>,
}

impl Call {
    /// The IDs of the call; none if it failed.
    pub fn ids(&self) -> &[i64] {
        self.outcome.as_deref().unwrap_or_default()
    }
}

/// Running clients. A client whose connection breaks reconnects until it succeeds.
#[derive(Debug)]
pub struct Traffic {
    stop: Arc<AtomicBool>,
    done: Arc<Vec<AtomicUsize>>,
    threads: Vec<JoinHandle<Vec<Call>>>,
}

impl Traffic {
    /// Starts a client for each of `kinds`; each pauses between its calls.
    #[track_caller]
    pub fn start(server: &Server, kinds: &[Kind], pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done: Arc<Vec<AtomicUsize>> = Arc::new(kinds.iter().map(|_| AtomicUsize::new(0)).collect());
        let threads = kinds
            .iter()
            .enumerate()
            .map(|(number, kind)| {
                let (stop, done, config, kind) = (stop.clone(), done.clone(), server.config(), *kind);
                std::thread::spawn(move || client(number, kind, pause, &config, &stop, &done[number]))
            })
            .collect();
        let traffic = Self { stop, done, threads };
        traffic.go_on(3);
        traffic
    }

    /// Waits until every client has had `n` more calls answered, with IDs or with errors.
    #[track_caller]
    pub fn go_on(&self, n: usize) {
        let count = || self.done.iter().map(|done| done.load(Ordering::Relaxed));
        // One more, because the call that is under way began earlier.
        let goal: Vec<usize> = count().map(|done| done + n + 1).collect();
        wait_until(&format!("{n} calls of every client"), secs(120), || {
            // A client that ended early has panicked; finish() reports it.
            let dead = self.threads.iter().any(JoinHandle::is_finished);
            (dead || count().zip(&goal).all(|(done, goal)| done >= *goal)).then_some(())
        });
        assert!(!self.threads.iter().any(JoinHandle::is_finished), "a client has panicked");
    }

    /// Waits until every client has had `n` more calls answered, and at least for `time`.
    #[track_caller]
    pub fn go_on_for(&self, n: usize, time: Duration) {
        let began = Instant::now();
        self.go_on(n);
        std::thread::sleep(time.saturating_sub(began.elapsed()));
    }

    /// Stops the clients; returns all their calls, in the order in which they began.
    #[track_caller]
    pub fn finish(mut self) -> Vec<Call> {
        self.stop.store(true, Ordering::Relaxed);
        let mut calls: Vec<Call> = Vec::new();
        for thread in std::mem::take(&mut self.threads) {
            calls.extend(thread.join().expect("a client does not panic"));
        }
        calls.sort_by_key(|call| call.began);
        calls
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            let _ = thread.join();
        }
    }
}

fn client(
    number: usize,
    kind: Kind,
    pause: Duration,
    config: &Config,
    stop: &AtomicBool,
    done: &AtomicUsize,
) -> Vec<Call> {
    let query = kind.query();
    let mut calls = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let Some(mut session) = connect(config, stop) else { break };
        let Ok(statement) = session.prepare(&query) else { continue };
        while !stop.load(Ordering::Relaxed) && !session.is_closed() {
            let began = Instant::now();
            let answer = session.query_one(&statement, &[]);
            let ended = Instant::now();
            let outcome = match answer {
                Ok(row) => Ok(kind.ids(row.get(0))),
                Err(e) => Err(Failure::from(&e)),
            };
            calls.push(Call { client: number, began, ended, outcome });
            done.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(pause);
        }
    }
    calls
}

fn connect(config: &Config, stop: &AtomicBool) -> Option<Client> {
    let began = Instant::now();
    loop {
        match config.connect(NoTls) {
            Ok(session) => return Some(session),
            Err(_) if stop.load(Ordering::Relaxed) => return None,
            Err(e) => assert!(began.elapsed() < secs(60), "no connection within 60 s: {e:?}"),
        }
        std::thread::sleep(crate::ms(20));
    }
}

/// The IDs of calls, by client, to be checked for duplicates.
pub fn ids_of(calls: &[Call]) -> Ids {
    let mut by_client: Vec<Vec<i64>> = Vec::new();
    for call in calls {
        if by_client.len() <= call.client {
            by_client.resize_with(call.client + 1, Vec::new);
        }
        by_client[call.client].extend_from_slice(call.ids());
    }
    let mut ids = Ids::new();
    for (number, made) in by_client.into_iter().enumerate() {
        ids.add(format!("client {number}"), made);
    }
    ids
}

/// Panics unless the IDs of each call are ascending, and greater than those of every call that had returned before it
/// began (guarantee 5).
#[track_caller]
pub fn assert_ordered<'a>(calls: impl IntoIterator<Item = &'a Call>) {
    let mut by_beginning: Vec<&Call> = calls.into_iter().filter(|call| !call.ids().is_empty()).collect();
    by_beginning.sort_by_key(|call| call.began);
    let mut by_end = by_beginning.clone();
    by_end.sort_by_key(|call| call.ended);
    let mut ended = by_end.into_iter().peekable();
    let mut greatest: Option<(i64, &Call)> = None;
    for call in by_beginning {
        crate::ids::assert_ascending(&format!("a call of client {}", call.client), call.ids());
        while let Some(earlier) = ended.next_if(|earlier| earlier.ended < call.began) {
            let last = *earlier.ids().last().expect("calls without IDs were left out");
            if greatest.is_none_or(|(id, _)| id < last) {
                greatest = Some((last, earlier));
            }
        }
        let first = call.ids()[0];
        if let Some((last, earlier)) = greatest {
            assert!(
                last < first,
                "client {} made {first} in a call that began {:?} after client {} had got {last}",
                call.client,
                call.began - earlier.ended,
                earlier.client,
            );
        }
    }
}
