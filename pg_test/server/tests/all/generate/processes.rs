//! Backends that the operating system stops at bad moments.

use nix::sys::signal::Signal;
use postgres::Client;
use rand::Rng;
use snowflake_server_tests::ids::{Dense, assert_ascending, assert_disjoint};
use snowflake_server_tests::process::is_stopped;
use snowflake_server_tests::sql::{one, run, status, take, unpack};
use snowflake_server_tests::{Server, alone, ms, secs, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// A client that takes ranges as fast as it can until it is told to stop.
fn saturate<'scope>(
    scope: &'scope Scope<'scope, '_>,
    mut session: Client,
    name: String,
    stop: &'scope AtomicBool,
) -> ScopedJoinHandle<'scope, (String, Dense)> {
    scope.spawn(move || {
        // A new range for each row, because its argument differs.
        let statement = session
            .prepare(
                "SELECT string_agg(int8send(r.first) || int8send(r.last), ''::bytea)
                 FROM generate_series(1, 100) AS i,
                      snowflake_nextval_range(1 + (i * $1::integer) % 900) AS r",
            )
            .unwrap();
        let mut made = Dense::default();
        while !stop.load(Ordering::Relaxed) {
            let factor: i32 = rand::rng().random_range(1..1_000);
            let row = session.query_one(&statement, &[&factor]).unwrap();
            for range in unpack(row.get(0)).as_chunks::<2>().0 {
                made.add(range[0], range[1]).unwrap_or_else(|id| panic!("{name} got {id} twice"));
            }
        }
        (name, made)
    })
}

fn dense(origin: &str, ids: &[i64]) -> (String, Dense) {
    let mut set = Dense::default();
    set.add_all(ids).unwrap_or_else(|id| panic!("{origin} got {id} twice"));
    (origin.to_owned(), set)
}

/// Waits until the clients have run ahead as far as they may, so that the next call has to wait.
fn wait_until_saturated(server: &Server) {
    let mut session = server.connect();
    wait_until("the clients to saturate", secs(30), || {
        status(&mut session).ahead_ms.is_some_and(|ahead| ahead > 1_900.0).then_some(())
    });
}

fn assert_nothing_rotated(server: &Server) {
    let status = status(&mut server.connect());
    assert_eq!(
        (status.rotations, status.rollbacks, status.refusals, status.lane),
        (0, 0, 0, Some(0)),
        "{status:?}"
    );
}

#[test]
fn a_backend_that_was_stopped_between_two_calls_goes_on_where_the_others_are() {
    let _alone = alone();
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
    let before = take(&mut session, 1_000);
    let stop = AtomicBool::new(false);
    let mut made = std::thread::scope(|scope| {
        server.signal_backend(pid, Signal::SIGSTOP);
        let clients: Vec<_> =
            (0..3).map(|i| saturate(scope, server.connect(), format!("client {i}"), &stop)).collect();
        std::thread::sleep(secs(4));
        wait_until_saturated(&server);
        server.signal_backend(pid, Signal::SIGCONT);
        let after = take(&mut session, 1_000);
        stop.store(true, Ordering::Relaxed);
        assert_ascending("the stopped session", &[&before[..], &after[..]].concat());
        let mut made: Vec<(String, Dense)> =
            clients.into_iter().map(|client| client.join().unwrap()).collect();
        made.push(dense("the stopped session", &[before, after].concat()));
        made
    });
    assert_nothing_rotated(&server);
    let others: u64 = made[..3].iter().map(|(_, ids)| ids.len()).sum();
    assert!(others > 4_000_000, "the others made only {others}");
    assert_disjoint(&made);
    // Exact while nobody generates any: every generated ID was returned.
    let issued = status(&mut server.connect()).issued;
    let total: u64 = made.drain(..).map(|(_, ids)| ids.len()).sum();
    assert_eq!(issued, total as i64);
}

#[test]
fn backends_that_are_stopped_within_a_call_neither_repeat_nor_rotate() {
    let _alone = alone();
    let server = Server::builder().start_with_extension();
    // Stopped again and again, for moments and for longer than the ring remembers (16.4 s).
    let briefly: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    let for_long: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    let stop = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let mut clients: Vec<_> =
            (0..2).map(|i| saturate(scope, server.connect(), format!("client {i}"), &stop)).collect();
        wait_until_saturated(&server);
        let mut random = rand::rng();
        let mut begin = |session: Vec<Client>, kind: &str| -> Vec<i32> {
            let mut pids = Vec::new();
            for (i, mut session) in session.into_iter().enumerate() {
                pids.push(one(&mut session, "SELECT pg_backend_pid()"));
                let stop = &stop;
                let name = format!("session {i}, stopped {kind}");
                clients.push(scope.spawn(move || {
                    let mut made = Dense::default();
                    let mut newest = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let ids = take(&mut session, 20_000);
                        assert_ascending(&name, &ids);
                        assert!(newest < ids[0], "{name}");
                        newest = ids[ids.len() - 1];
                        made.add_all(&ids).unwrap_or_else(|id| panic!("{name} got {id} twice"));
                    }
                    (name, made)
                }));
            }
            pids
        };
        let briefly = begin(briefly, "briefly");
        let for_long = begin(for_long, "for long");
        let pids = for_long.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        let are_active =
            format!("SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'active' AND pid IN ({pids})");
        server.stop_between_writes(&for_long, |watcher| one(watcher, &are_active));
        let began = Instant::now();
        let mut stops = 0;
        while began.elapsed() < ms(17_500) {
            let pid = briefly[random.random_range(0..briefly.len())];
            server.signal_backend(pid, Signal::SIGSTOP);
            std::thread::sleep(Duration::from_micros(random.random_range(100..80_000)));
            server.signal_backend(pid, Signal::SIGCONT);
            std::thread::sleep(Duration::from_micros(random.random_range(100..5_000)));
            stops += 1;
        }
        assert!(stops > 100, "only {stops}");
        // At least as many IDs as the field has values, so the ring has gone round.
        wait_until_saturated(&server);
        for pid in &for_long {
            server.signal_backend(*pid, Signal::SIGCONT);
        }
        std::thread::sleep(ms(500));
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    assert_nothing_rotated(&server);
    let all: u64 = made.iter().map(|(_, ids)| ids.len()).sum();
    assert!(all > 40_000_000, "only {all} IDs in all");
    assert_disjoint(&made);
    assert_eq!(status(&mut server.connect()).issued, all as i64);
}

/// The views look through rings of many thousand words. Whoever is stopped there must hold no lock that calls need.
#[test]
fn a_session_that_is_stopped_while_it_reads_the_views_stops_nobody() {
    let server = Server::builder().start_with_extension();
    let (mut reader, mut other) = (server.connect(), server.connect());
    let pid: i32 = one(&mut reader, "SELECT pg_backend_pid()");
    run(&mut other, "SET statement_timeout = '3s'");
    let reading = std::thread::spawn(move || {
        let _ = reader.batch_execute(
            "DO $$ BEGIN LOOP
                 PERFORM count(*) FROM snowflake_workers;
                 PERFORM count(*) FROM snowflake_status;
             END LOOP; END $$",
        );
    });
    let is_reading =
        format!("SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'active' AND pid = {pid}");
    wait_until("the session to read", secs(30), || one::<bool>(&mut other, &is_reading).then_some(()));
    let mut blocked = 0;
    for _ in 0..40 {
        std::thread::sleep(Duration::from_micros(rand::rng().random_range(100..5_000)));
        server.signal_backend(pid, Signal::SIGSTOP);
        wait_until("the session to be stopped", secs(30), || is_stopped(pid).then_some(()));
        // It takes the lock that a reservation and a rotation take.
        let asked = other.query_one("SELECT snowflake_nextval() FROM snowflake_status", &[]);
        blocked += asked.is_err() as u32;
        server.signal_backend(pid, Signal::SIGCONT);
    }
    // One stop in a hundred meets the copy of what the lock protects. With the rings under the lock, one in three would.
    assert!(blocked <= 6, "{blocked} of 40");
    run(&mut other, &format!("SELECT pg_terminate_backend({pid})"));
    reading.join().unwrap();
}
