//! Looking up new rows by their keys.

use crate::bench::{Bench, LARGE_BUFFERS};
use crate::candidates::Candidate;
use snowflake_server_tests::sql::{one, run};

/// Less than any of the indexes.
const SMALL_BUFFERS: &str = "12MB";

/// Looks up the newest hundredth of the rows of `rows` one by one, in random order: with all tables in memory, and with
/// buffers that the indexes do not fit into.
pub fn lookups(bench: &mut Bench, seconds: f64) {
    for candidate in bench.candidates.clone() {
        prepare(bench, candidate);
    }
    for (name, buffers) in [("warm", LARGE_BUFFERS), ("small", SMALL_BUFFERS)] {
        bench.let_keeper_go_on();
        bench.server.set("shared_buffers", buffers);
        bench.server.restart();
        bench.session = bench.server.connect();
        let round = |bench: &mut Bench, nth| {
            for candidate in bench.turns(&[], nth) {
                let (micros, read) = look_up(bench, candidate);
                bench.note(&format!("lookup_{name}_us"), candidate.key, micros);
                bench.note(&format!("lookup_{name}_read"), candidate.key, read);
            }
        };
        bench.warm_up(|bench| round(bench, 0));
        bench.rounds(&format!("lookups, {name}"), seconds / 2.0, round);
    }
}

fn prepare(bench: &mut Bench, candidate: Candidate) {
    let statements = format!(
        "VACUUM (FREEZE, ANALYZE) rows_{key};
         CREATE TABLE newest_{key} AS
             SELECT id FROM rows_{key}
             WHERE ctid >= (SELECT format('(%s,0)', pg_relation_size('rows_{key}') / 8192 * 99 / 100)::tid)
             ORDER BY random();
         VACUUM ANALYZE newest_{key}",
        key = candidate.key
    );
    for statement in statements.split(';') {
        run(&mut bench.session, statement);
    }
}

/// Microseconds and pages outside the buffer, per lookup.
fn look_up(bench: &mut Bench, candidate: Candidate) -> (f64, f64) {
    let key = candidate.key;
    // One row of the index after another, as single queries would do.
    run(
        &mut bench.session,
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off; SET enable_bitmapscan = off",
    );
    let query = format!(
        "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)
         SELECT count(r.v) FROM newest_{key} n JOIN rows_{key} r ON r.id = n.id"
    );
    let explained: serde_json::Value = one(&mut bench.session, &query);
    let plan = &explained[0]["Plan"];
    let join = &plan["Plans"][0];
    let inner = &join["Plans"][1];
    assert_eq!(
        (&join["Node Type"], &inner["Node Type"]),
        (&"Nested Loop".into(), &"Index Scan".into()),
        "another plan: {explained:#}"
    );
    let lookups = inner["Actual Loops"].as_f64().expect("a number of lookups");
    let ms = explained[0]["Execution Time"].as_f64().expect("a time in ms");
    let read = inner["Shared Read Blocks"].as_f64().expect("a number of pages");
    (ms * 1000.0 / lookups, read / lookups)
}
