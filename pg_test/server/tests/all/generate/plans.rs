//! What the planner makes of calls that generate IDs: two calls of a row are two IDs, and the IDs of a sorted result ascend,
//! in each statement that can have a parallel plan.

use postgres::Client;
use snowflake_server_tests::ids::Ids;
use snowflake_server_tests::sql::{column, fails, one, run, wait_for_lock};
use snowflake_server_tests::{Server, pg_version};
use std::io::Read;

/// Rows in another order than their dates', which a parallel scan reads, and a parallel sort sorts.
const LEGACY: &str = "
    CREATE TABLE legacy AS
        SELECT i AS old_id, md5(i::text) AS t FROM generate_series(1, 20000) AS i ORDER BY md5('x' || i);
    ANALYZE legacy";

const IN_PARALLEL: &str = "
    SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
    SET max_parallel_workers_per_gather = 2; SET client_min_messages = warning";

/// A server, and a session that prefers parallel plans.
fn start() -> (Server, Client) {
    let server = Server::builder().setting("max_parallel_workers", "8").start_with_extension();
    let mut session = server.connect();
    run(&mut session, &format!("{LEGACY}; {IN_PARALLEL}"));
    (server, session)
}

/// Two IDs a row.
const CALLS: [(&str, &str); 5] = [
    ("plain calls", "snowflake_nextval() AS a, snowflake_nextval() AS b"),
    (
        "a call within another function",
        "snowflake_from_base62(snowflake_to_base62(snowflake_nextval())) AS a, snowflake_nextval() AS b",
    ),
    (
        "equal calls within another function",
        "snowflake_from_base62(snowflake_to_base62(snowflake_nextval())) AS a,
         snowflake_from_base62(snowflake_to_base62(snowflake_nextval())) AS b",
    ),
    ("ranges", "(snowflake_nextval_range(1)).first AS a, (snowflake_nextval_range(1)).first AS b"),
    ("batches", "snowflake_nextval_batch(1) AS a, snowflake_nextval_batch(1) AS b"),
];

/// The rest of a query, and whether it sorts by `t`.
const SHAPES: [(&str, bool); 4] = [
    ("SELECT t, {calls} FROM legacy WHERE t LIKE '%a%'", false),
    ("SELECT t, {calls} FROM legacy WHERE t LIKE '%a%' ORDER BY t", true),
    ("SELECT t, a, b FROM (SELECT t, {calls} FROM legacy WHERE t LIKE '%a%') AS s", false),
    ("SELECT t, a, b FROM (SELECT t, {calls} FROM legacy WHERE t LIKE '%a%' ORDER BY t OFFSET 0) AS s", true),
];

/// What executes a query, and writes its rows into the table `made` or returns them.
const STATEMENTS: [(&str, Fetch); 9] = [
    ("{query}", Fetch::Result),
    ("CREATE TABLE made AS {query}", Fetch::Table),
    ("SELECT t, a, b INTO made FROM ({query}) AS q", Fetch::Table),
    ("CREATE MATERIALIZED VIEW made AS {query}", Fetch::Table),
    ("CREATE MATERIALIZED VIEW made AS {query} WITH NO DATA; REFRESH MATERIALIZED VIEW made", Fetch::Table),
    ("PREPARE p AS {query}; CREATE TABLE made AS EXECUTE p; DEALLOCATE p", Fetch::Table),
    ("CREATE TABLE made (t text, a bigint, b bigint); INSERT INTO made {query}", Fetch::Table),
    (
        "CREATE OR REPLACE FUNCTION f() RETURNS TABLE (t text, a bigint, b bigint) LANGUAGE plpgsql AS
             $$ #variable_conflict use_column
             BEGIN RETURN QUERY {query}; END $$;
         CREATE TABLE made AS SELECT * FROM f()",
        Fetch::Table,
    ),
    ("COPY ({query}) TO STDOUT", Fetch::Copy),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fetch {
    Result,
    Table,
    Copy,
}

/// The rows of a statement, in the order in which it returned or wrote them.
fn rows(session: &mut Client, statement: &str, fetch: Fetch) -> Vec<(String, i64, i64)> {
    let query = match fetch {
        Fetch::Copy => {
            let mut text = String::new();
            session.copy_out(statement).unwrap().read_to_string(&mut text).unwrap();
            let number = |field: Option<&str>| field.unwrap().parse().unwrap();
            return text
                .lines()
                .map(|line| {
                    let mut fields = line.split('\t');
                    (fields.next().unwrap().to_owned(), number(fields.next()), number(fields.next()))
                })
                .collect();
        }
        Fetch::Result => statement,
        Fetch::Table => {
            run(session, statement);
            "SELECT t, a, b FROM made ORDER BY ctid"
        }
    };
    let rows = session.query(query, &[]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

fn plan(session: &mut Client, query: &str) -> String {
    column::<String>(session, &format!("EXPLAIN (VERBOSE, COSTS OFF) {query}")).join("\n")
}

#[test]
fn two_calls_of_a_row_are_two_ids_and_ids_are_in_the_order_of_the_rows() {
    let (_server, mut session) = start();
    let (mut ids, mut faults) = (Ids::new(), Vec::new());
    for (what, calls) in CALLS {
        for (shape, is_sorted) in SHAPES {
            let query = shape.replace("{calls}", calls);
            let plan = plan(&mut session, &query);
            assert!(plan.contains("Gather") && plan.contains("Parallel Seq Scan"), "{query}: {plan}");
            for (statement, fetch) in STATEMENTS {
                let statement = statement.replace("{query}", &query);
                run(&mut session, "BEGIN");
                let rows = rows(&mut session, &statement, fetch);
                run(&mut session, "ROLLBACK");
                assert!(rows.len() > 15_000, "{statement}: {} rows", rows.len());
                let equal = rows.iter().filter(|(_, a, b)| a == b).count();
                if equal > 0 {
                    faults.push(format!("{what}, {equal} rows have one ID twice: {statement}"));
                }
                let is_in_order = |of: fn(&(String, i64, i64)) -> i64| rows.is_sorted_by_key(of);
                if is_sorted && !(is_in_order(|row| row.1) && is_in_order(|row| row.2)) {
                    faults.push(format!("{what}, not in order: {statement}"));
                }
                assert!(!is_sorted || rows.is_sorted_by(|(t, ..), (next, ..)| t < next), "{statement}");
                ids.add(statement, rows.iter().flat_map(|(_, a, b)| [*a, *b]).collect());
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    ids.assert_unique();
}

/// A function that is labelled wrongly, in a plan whose workers call it, or a trigger that is fired there.
#[test]
fn a_parallel_worker_generates_no_id_and_says_why() {
    let (server, mut session) = start();
    let forced = if pg_version() < 16 { "force_parallel_mode" } else { "debug_parallel_query" };
    for call in [
        "snowflake_nextval()",
        "(snowflake_nextval_range(2)).first",
        "(SELECT max(id) FROM snowflake_nextval_batch(3) AS id)",
    ] {
        run(
            &mut session,
            &format!(
                "CREATE OR REPLACE FUNCTION wrong() RETURNS bigint VOLATILE PARALLEL SAFE LANGUAGE plpgsql
                     AS $$ BEGIN RETURN {call}; END $$"
            ),
        );
        // The leader alone may, and has done so before its workers are started.
        assert!(one::<i64>(&mut session, "SELECT wrong()") > 0);
        let query = "SELECT count(wrong()) FROM legacy";
        run(&mut session, "SET parallel_leader_participation = off");
        let plan = plan(&mut session, query);
        assert!(plan.contains("Gather"), "{plan}");
        let failure = fails(&mut session, "25000", query);
        assert!(failure.message.ends_with("a snowflake ID during a parallel operation"), "{failure}");
        run(&mut session, "RESET parallel_leader_participation");
        // Where no worker is started, the leader computes everything.
        run(&mut session, "SET max_parallel_workers = 0");
        assert_eq!(one::<i64>(&mut session, query), 20_000);
        run(&mut session, &format!("RESET max_parallel_workers; SET {forced} = on"));
        fails(&mut session, "25000", "SELECT wrong()");
        assert!(one::<i64>(&mut session, &format!("SELECT {call}")) > 0);
        run(&mut session, &format!("RESET {forced}"));
    }
    let mut another = server.connect();
    assert!(one::<i64>(&mut another, "SELECT snowflake_nextval()") > 0);
}

/// What a query counts, of `nextval()` and of `snowflake_nextval()` alike: `{f}` stands for the call, the table `o` has the
/// numbers 1 to 100 in its column `k`.
const PLACES: [(&str, &str, i64); 26] = [
    // A call for each place and row.
    (
        "grouping sets",
        "SELECT count(*) FROM (SELECT k, {f} AS a, {f} AS b FROM o GROUP BY GROUPING SETS ((k), ()) OFFSET
         0) AS q WHERE a = b",
        0,
    ),
    ("aggregates", "SELECT count(DISTINCT {f}) + (max({f}) = max({f}))::integer FROM o", 100),
    (
        "windows",
        "SELECT count(*) FROM (SELECT first_value({f}) OVER w AS a, first_value({f}) OVER w AS b FROM o
         WINDOW w AS (ORDER BY k ROWS CURRENT ROW) OFFSET 0) AS q WHERE a = b",
        0,
    ),
    (
        "a set-returning function beside it",
        "SELECT count(DISTINCT a) + count(DISTINCT b) - count(*) FILTER (WHERE a = b) FROM (SELECT {f} AS
         a, {f} AS b, generate_series(1, 3) FROM o OFFSET 0) AS q",
        600,
    ),
    (
        "a set-returning function around it",
        "SELECT count(*) FROM (SELECT generate_series({f}, 0) AS a, {f} AS b FROM o OFFSET 0) AS q WHERE a
         = b",
        0,
    ),
    (
        "a correlated subquery",
        "SELECT count(DISTINCT a) FROM (SELECT (SELECT {f} WHERE k > 0) AS a FROM o OFFSET 0) AS q",
        100,
    ),
    (
        "LATERAL with a reference",
        "SELECT count(DISTINCT id) FROM o, LATERAL (SELECT {f} AS id WHERE k > 0) AS l",
        100,
    ),
    // One call, used twice.
    (
        "a CTE used twice",
        "WITH made AS NOT MATERIALIZED (SELECT {f} AS id FROM o) SELECT count(DISTINCT id) FROM (SELECT *
         FROM made UNION ALL SELECT * FROM made) AS q",
        100,
    ),
    (
        "a materialized CTE that a loop reads again",
        "WITH made AS MATERIALIZED (SELECT {f} AS id FROM ten)
         SELECT count(DISTINCT id) FROM o LEFT JOIN made ON true",
        10,
    ),
    (
        "an inlined function's argument",
        "SELECT count(*) FROM (SELECT same({f}) AS a FROM o OFFSET 0) AS q WHERE a",
        100,
    ),
    (
        "a column of a record",
        "SELECT count(*) FROM (SELECT (p).* FROM (SELECT pair({f}) AS p FROM o) AS s) AS q WHERE a = b",
        100,
    ),
    // Equal calls of a row become one.
    (
        "sorted by it",
        "SELECT count(*) FROM (SELECT {f} AS a, {f} AS b FROM o ORDER BY a OFFSET 0) AS q WHERE a = b",
        100,
    ),
    (
        "sorted by both",
        "SELECT count(*) FROM (SELECT {f} AS a, {f} AS b FROM o ORDER BY a, b OFFSET 0) AS q WHERE a = b",
        0,
    ),
    (
        "grouped by it",
        "SELECT count(*) FROM (SELECT {f} AS a, {f} AS b FROM o GROUP BY a OFFSET 0) AS q WHERE a = b",
        100,
    ),
    (
        "a window sorted by it",
        "SELECT count(*) FROM (SELECT {f} AS a, first_value({f}) OVER (ORDER BY {f} ROWS CURRENT ROW) AS b
         FROM o OFFSET 0) AS q WHERE a = b",
        100,
    ),
    // Once for many rows.
    ("in FROM", "SELECT count(DISTINCT id) FROM o, {f} AS id", 1),
    ("LATERAL without a reference", "SELECT count(DISTINCT id) FROM o, LATERAL (SELECT {f} AS id) AS l", 1),
    ("a subquery", "SELECT count(DISTINCT a) FROM (SELECT (SELECT {f}) AS a FROM o OFFSET 0) AS q", 1),
    (
        "Memoize",
        "SELECT count(DISTINCT id) FROM o, LATERAL (SELECT {f} AS id FROM ten WHERE ten.k = o.g)
         AS l",
        10,
    ),
    (
        "a set above the sort",
        "SELECT count(DISTINCT id) FROM (SELECT {f} AS id, unnest(ARRAY[1, 2]) FROM o ORDER BY id OFFSET 0) AS q",
        100,
    ),
    (
        "a set above a group",
        "SELECT count(DISTINCT id) FROM (SELECT {f} AS id, unnest(ARRAY[1, 2]) FROM o GROUP BY id OFFSET 0) AS q",
        100,
    ),
    ("a function that is declared IMMUTABLE", "SELECT count(DISTINCT immutable()) FROM o", 1),
    ("a function that is declared VOLATILE", "SELECT count(DISTINCT volatile()) FROM o", 100),
    // Again for the same row.
    ("a column of a call", "SELECT count(*) FROM (SELECT (pair({f})).* FROM o OFFSET 0) AS q WHERE a = b", 0),
    (
        "a subquery that a loop reads again",
        "SELECT count(DISTINCT id) FROM o LEFT JOIN (SELECT {f} AS id FROM ten) AS s ON true",
        1_000,
    ),
    ("a rule", "SELECT count(*) FROM ruled JOIN logged USING (id)", 0),
];

#[test]
fn a_call_is_computed_as_often_as_nextval() {
    let (_server, mut session) = start();
    run(
        &mut session,
        "CREATE SEQUENCE s;
         CREATE TABLE o AS SELECT k, k % 10 AS g FROM generate_series(1, 100) AS k;
         CREATE TABLE ten AS SELECT k FROM generate_series(0, 9) AS k;
         CREATE TYPE pairs AS (a bigint, b bigint);
         CREATE FUNCTION pair(bigint) RETURNS pairs IMMUTABLE LANGUAGE sql RETURN ROW($1, $1)::pairs;
         CREATE FUNCTION same(bigint) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN $1 = $1;
         ANALYZE; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off",
    );
    for call in ["nextval('s')", "snowflake_nextval()"] {
        run(
            &mut session,
            &format!(
                "DROP TABLE IF EXISTS ruled, logged; CREATE TABLE logged (id bigint);
                 CREATE TABLE ruled (id bigint DEFAULT {call});
                 CREATE RULE r AS ON INSERT TO ruled DO ALSO INSERT INTO logged VALUES (new.id);
                 INSERT INTO ruled DEFAULT VALUES;
                 CREATE OR REPLACE FUNCTION immutable() RETURNS bigint IMMUTABLE LANGUAGE plpgsql
                     AS $$ BEGIN RETURN {call}; END $$;
                 CREATE OR REPLACE FUNCTION volatile() RETURNS bigint LANGUAGE plpgsql
                     AS $$ BEGIN RETURN {call}; END $$"
            ),
        );
        for (place, query, expected) in PLACES {
            let query = query.replace("{f}", call);
            assert_eq!(one::<i64>(&mut session, &query), expected, "{place}, {query}");
        }
        // A cursor goes back to a row by computing it again.
        run(&mut session, &format!("BEGIN; DECLARE c SCROLL CURSOR FOR SELECT {call} FROM o"));
        let fetch = ["FETCH 1 FROM c", "FETCH RELATIVE 0 FROM c"];
        let [first, again] = fetch.map(|fetch| one::<i64>(&mut session, fetch));
        assert!(first < again, "{call}");
        run(&mut session, "ROLLBACK");
        fails(
            &mut session,
            "42P17",
            &format!("CREATE TABLE bad (k bigint, id bigint GENERATED ALWAYS AS ({call}) STORED)"),
        );
    }
}

/// Queries over the lines `l`, each with as many rows as its `qty` says.
const BATCHES: &[&str] = &[
    "SELECT id FROM l, LATERAL {batch}(l.qty) AS id",
    "SELECT id FROM l LEFT JOIN LATERAL {batch}(l.qty) AS b (id) ON true",
    "SELECT id FROM l, LATERAL {batch}(l.qty) WITH ORDINALITY AS b (id, n)",
    "SELECT id FROM (SELECT qty FROM l ORDER BY qty OFFSET 0) AS l, LATERAL {batch}(l.qty) AS id",
    "SELECT id FROM l, LATERAL {batch}(l.qty) AS id WHERE l.qty > 0",
    "SELECT {batch}(qty) AS id FROM l",
];

/// PostgreSQL would put Memoize over the function if that cost less: then lines of one quantity would have one set of IDs.
#[test]
fn batches_in_from_give_each_row_an_id_of_its_own() {
    let (_server, mut session) = start();
    let portable: String = one(&mut session, "SELECT snowflake_generator_sql(7, 'portable')");
    run(&mut session, &format!("CREATE SCHEMA portable; {portable}"));
    run(
        &mut session,
        "CREATE TABLE l AS SELECT k % 5 + 1 AS qty FROM generate_series(1, 1000) AS k;
         ANALYZE",
    );
    for costs in [
        "",
        "SET cpu_operator_cost = 0",
        "SET cpu_operator_cost = 1e6",
        "SET cpu_operator_cost = 0.0025; SET cpu_tuple_cost = 0",
        "SET cpu_operator_cost = 0",
        "RESET cpu_operator_cost; SET cpu_tuple_cost = 1e6",
    ] {
        run(&mut session, costs);
        for batch in ["snowflake_nextval_batch", "portable.snowflake_nextval_batch"] {
            for query in BATCHES {
                let query = query.replace("{batch}", batch);
                let counts = format!("SELECT (count(*), count(DISTINCT id))::text FROM ({query}) AS q");
                assert_eq!(one::<String>(&mut session, &counts), "(3000,3000)", "{costs}: {query}");
            }
        }
    }
}

/// Statements that write two columns of a row.
const WRITES: &[&str] = &[
    "INSERT INTO w (k) SELECT k FROM o",
    "INSERT INTO w (k) SELECT k FROM o ON CONFLICT (k) DO UPDATE SET a = {f}, b = {f}",
    "UPDATE w SET a = {f}, b = {f}",
    "UPDATE w SET (a, b) = ROW ({f}, {f})",
    "UPDATE w SET a = DEFAULT, b = DEFAULT",
    "UPDATE w SET a = {f}, b = {f} FROM o WHERE o.k = w.k",
    "MERGE INTO w USING o ON o.k = w.k WHEN MATCHED THEN UPDATE SET a = {f}, b = {f}",
    "DELETE FROM w; MERGE INTO w USING o ON o.k = w.k WHEN NOT MATCHED THEN INSERT VALUES (o.k, {f}, {f})",
    "ALTER TABLE w DROP COLUMN a, DROP COLUMN b, ADD COLUMN a bigint DEFAULT {f}, ADD COLUMN b bigint DEFAULT {f}",
];

/// The last one waits for another session, and computes the row again.
#[test]
fn what_writes_rows_computes_a_call_for_each_column_and_row() {
    let (server, mut session) = start();
    run(&mut session, "CREATE SEQUENCE s; CREATE TABLE o AS SELECT k FROM generate_series(1, 100) AS k");
    for call in ["nextval('s')", "snowflake_nextval()"] {
        run(
            &mut session,
            &format!(
                "DROP TABLE IF EXISTS w;
                 CREATE TABLE w (k bigint PRIMARY KEY, a bigint DEFAULT {call}, b bigint DEFAULT {call})"
            ),
        );
        let distinct = "SELECT count(DISTINCT id) FROM w, LATERAL (VALUES (a), (b)) AS v (id)";
        for write in WRITES {
            run(&mut session, &write.replace("{f}", call));
            assert_eq!(one::<i64>(&mut session, distinct), 200, "{call}: {write}");
        }
        let returning = format!("INSERT INTO w (k) VALUES (0) RETURNING ARRAY[a, b, {call}, {call}]");
        let ids: Vec<i64> = one(&mut session, &returning);
        assert!(ids.is_sorted_by(|a, b| a < b), "{call}: {ids:?}");

        let mut other = server.connect();
        run(&mut other, "BEGIN; UPDATE w SET k = k WHERE k = 1");
        let update = format!("UPDATE w SET a = {call}, b = {call} WHERE k = 1 RETURNING ARRAY[a, b]");
        let waits = std::thread::spawn({
            let mut session = server.connect();
            move || one::<Vec<i64>>(&mut session, &update)
        });
        wait_for_lock(&mut session);
        let before: i64 = one(&mut session, &format!("SELECT {call}"));
        run(&mut other, "COMMIT");
        let ids = waits.join().unwrap();
        assert!(before < ids[0] && ids[0] < ids[1], "{call}: {before}, {ids:?}");
    }
}
