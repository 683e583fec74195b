//! What a call costs inside the server, without a table and without a client.

use crate::bench::{Bench, say};
use crate::candidates::{CANDIDATES, CLOCK, CONSTANT, Candidate};
use snowflake_server_tests::sql::{run, status};

/// Calls in a row of the query: more of them, and its own cost matters less.
const CALLS: u32 = 4;
const ROWS: u32 = 250_000;
const SLOW_ROWS: u32 = 20_000;

/// The time of a query with many calls, less that of the same query with constants, for each call.
pub fn call(bench: &mut Bench, seconds: f64) {
    bench.warm_up(|bench| call_round(bench, 0));
    bench.rounds("call", seconds, call_round);
}

fn call_round(bench: &mut Bench, nth: usize) {
    let mut times = Vec::new();
    for candidate in bench.turns(&[CONSTANT, CLOCK], nth) {
        times.push((candidate, ns_a_call(bench, candidate)));
    }
    let base = times.iter().find(|(it, _)| *it == CONSTANT).expect("it had its turn").1;
    for (candidate, ns) in times.into_iter().filter(|(it, _)| *it != CONSTANT) {
        bench.note("call_ns", candidate.key, ns - base);
    }
}

/// From a query in which no call had to wait for the clock, because that would measure the layout.
fn ns_a_call(bench: &mut Bench, candidate: Candidate) -> f64 {
    let rows = if candidate.is_slow { SLOW_ROWS } else { ROWS };
    let names = ["a", "b", "c", "d"];
    let calls = names.map(|name| format!("{} AS {name}", candidate.call)).join(", ");
    let counts = names.map(|name| format!("count({name})")).join(", ");
    let query = format!("SELECT {counts} FROM (SELECT {calls} FROM generate_series(1, {rows}) OFFSET 0) s");
    for _ in 0..5 {
        bench.begin_turn(candidate);
        let waits = status(&mut bench.session).waits;
        let took = bench.seconds_of(&query);
        if status(&mut bench.session).waits == waits {
            return took * 1e9 / f64::from(rows * CALLS);
        }
        say("   a call had to wait for the clock: measured again");
    }
    panic!("snowflake_nextval() was throttled in each of five measurements");
}

/// Bytes of WAL for each call. PostgreSQL itself may write a record in between, such as a snapshot for standbys.
pub fn wal(bench: &mut Bench, seconds: f64) {
    bench.rounds("wal", seconds, |bench, _| {
        for candidate in [CANDIDATES[0], CANDIDATES[1]] {
            bench.begin_turn(candidate);
            let calls = 500_000;
            let before = bench.wal();
            let query = format!("SELECT count({}) FROM generate_series(1, {calls})", candidate.call);
            run(&mut bench.session, &query);
            let written = bench.wal() - before;
            bench.note("call_wal", candidate.key, written / f64::from(calls));
        }
    });
}
