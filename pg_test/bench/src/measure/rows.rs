//! Inserting and copying rows: time, WAL, and the size of the index.

use crate::bench::Bench;
use crate::candidates::Candidate;
use postgres::error::SqlState;
use snowflake_server_tests::sql::{one, run};
use std::time::Instant;

/// Rows of one INSERT, and of one COPY.
const ROWS: u32 = 500_000;
/// Statements of 1,000 rows each that each of four clients executes afterwards.
const FILLS: u32 = 100;

/// Rows from a file on the server.
pub fn copy(bench: &mut Bench, seconds: f64) {
    let file = bench.server.data().join("copied").display().to_string();
    run(&mut bench.session, &format!("COPY (SELECT generate_series(1, {ROWS})) TO '{file}'"));
    bench.rounds("copy", seconds, |bench, nth| {
        for candidate in bench.turns(&[], nth) {
            let table = fresh_table(bench, "copied", candidate);
            let before = bench.wal();
            let took = bench.seconds_of(&format!("COPY {table} (v) FROM '{file}'"));
            let wal = bench.wal() - before;
            bench.note("copy_s", candidate.key, took);
            bench.note("copy_wal", candidate.key, wal / f64::from(ROWS));
            run(&mut bench.session, &format!("DROP TABLE {table}"));
        }
    });
}

/// One INSERT of many rows; then, after a checkpoint, more rows from four clients at once. The tables of the last round
/// are kept.
pub fn rows(bench: &mut Bench, seconds: f64) {
    bench.rounds("rows", seconds, |bench, nth| {
        for candidate in bench.turns(&[], nth) {
            let table = fresh_table(bench, "rows", candidate);
            let before = bench.wal();
            let took =
                bench.seconds_of(&format!("INSERT INTO {table} (v) SELECT generate_series(1, {ROWS})"));
            let inserted = bench.wal() - before;
            bench.note("insert_s", candidate.key, took);

            bench.begin_turn(candidate);
            run(&mut bench.session, "CHECKPOINT");
            let before = bench.wal();
            let (took, repeated) = fill(bench, &table);
            let filled = bench.wal() - before;
            bench.note("fill_s", candidate.key, took);
            bench.note("fill_repeated", candidate.key, f64::from(repeated));
            bench.note(
                "insert_wal",
                candidate.key,
                (inserted + filled) / f64::from(ROWS + 4 * FILLS * 1_000),
            );
            let size = format!("SELECT pg_relation_size('{table}_pkey'::regclass)::float8 / 1048576");
            let index: f64 = one(&mut bench.session, &size);
            bench.note("index_mib", candidate.key, index);
        }
    });
}

/// Seconds that four clients took, and how many of their statements met a key that existed already, because not every
/// candidate is unique. Such a statement is repeated.
fn fill(bench: &Bench, table: &str) -> (f64, u32) {
    let insert = format!("INSERT INTO {table} (v) SELECT generate_series(1, 1000)");
    let client = || {
        let mut session = bench.server.connect();
        let insert = session.prepare(&insert).expect("the statement is right");
        move || {
            let mut repeated = 0;
            for _ in 0..FILLS {
                while let Err(error) = session.execute(&insert, &[]) {
                    assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION), "{error:?}");
                    repeated += 1;
                }
            }
            repeated
        }
    };
    let clients = [client(), client(), client(), client()];
    let began = Instant::now();
    let repeated: [u32; 4] = std::thread::scope(|scope| {
        let running = clients.map(|client| scope.spawn(client));
        running.map(|client| client.join().expect("a client fails by a repeated key only"))
    });
    (began.elapsed().as_secs_f64(), repeated.iter().sum())
}

/// An empty table, with everything before it on disk, and IDs not ahead of the clock.
fn fresh_table(bench: &mut Bench, prefix: &str, candidate: Candidate) -> String {
    let table = format!("{prefix}_{}", candidate.key);
    let statements = format!(
        "SET client_min_messages = warning;
         DROP TABLE IF EXISTS {table};
         CREATE TABLE {table} (id {}, v integer)",
        candidate.column
    );
    run(&mut bench.session, &statements);
    bench.begin_turn(candidate);
    run(&mut bench.session, "CHECKPOINT");
    table
}
