//! A database records the layout of its IDs. A server with another layout neither generates nor reads any of them, until
//! a superuser gives the database the server's layout. Restores are in `dumps.rs`.

use super::dumps::{DEFAULT, EARLIER, EPOCH, OTHER};
use postgres::SimpleQueryMessage::{self, Row};
use postgres::{Client, NoTls};
use snowflake_server_tests::sql::{Failure, column, fails, next, one, run, status, wait_for_lock};
use snowflake_server_tests::{Database, Server, Signal, Stop, has_contrib, pg_version};
const DIFFERS: &str = "the snowflake layout of this database differs from this server's";

/// A database of the server that tests with the default layout share.
#[track_caller]
fn database() -> Database {
    Database::shared(Server::builder(), "")
}

fn session_in(server: &Server, database: &str) -> Client {
    server.config().dbname(database).connect(NoTls).expect("the database")
}

/// Sets or removes the epoch of a server, which then starts with it.
fn restart_with(server: &mut Server, epoch: Option<&str>) {
    match epoch {
        Some(epoch) => server.set(EPOCH, epoch),
        None => server.unset(EPOCH),
    }
    server.restart();
}

/// Asserts that a statement is refused because the database has another layout, the default one.
#[track_caller]
fn assert_refused(session: &mut Client, statement: &str) {
    let failure = fails(session, "55000", statement);
    assert_eq!(failure.message, DIFFERS, "{statement}");
    assert_eq!(
        failure.detail,
        "The database has 41/10/12 1ms 2024-01-01 00:00:00+00; this server is configured with 41/10/12 1ms 2020-01-01 \
         00:00:00+00.",
        "{statement}"
    );
    assert!(failure.hint.starts_with("Set snowflake_id.layout, tick and epoch to those"), "{failure}");
}

const READ: &str = "SELECT snowflake_timestamp(id) FROM orders";
const MAKE: &str = "SELECT snowflake_nextval()";

/// Ways to generate IDs, and to read them by this server's layout; `calls.rs` has each function.
const CALLS: &[&str] = &[
    READ,
    MAKE,
    "SELECT snowflake_datacenter(id) FROM orders",
    "SELECT snowflake_worker(id) FROM orders",
    "SELECT snowflake_sequence(id) FROM orders",
    "SELECT snowflake_server(id) FROM orders",
    "SELECT (snowflake_decode(id)).* FROM orders",
    "SELECT snowflake_encode(now(), 1, 1)",
    "SELECT snowflake_min(now())",
    "SELECT snowflake_max('2025-01-01Z')",
    "SELECT count(*) FROM orders WHERE snowflake_between(id, '2025-01-01Z', 'infinity')",
    "SELECT snowflake_nextval_batch(3)",
    "SELECT snowflake_nextval_range(3)",
    "INSERT INTO orders DEFAULT VALUES",
    "COPY orders (customer) FROM PROGRAM 'echo Ada'",
    "CREATE INDEX ON orders (snowflake_worker(id))",
    "ALTER TABLE orders ADD at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED",
];

const ORDERS: &str = "
    CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), customer text);
    INSERT INTO orders (customer) SELECT 'customer ' || i FROM generate_series(1, 20000) AS i";

// ---- a server that has another layout ----

#[test]
fn a_server_with_another_layout_than_the_databases_refuses_to_generate_and_to_read() {
    let mut server = Server::builder().start_with_extension();
    run(&mut server.connect(), ORDERS);
    let last: i64 = one(&mut server.connect(), "SELECT max(id) FROM orders");
    run(&mut server.connect(), "CREATE DATABASE copied TEMPLATE postgres");
    restart_with(&mut server, Some(EARLIER));

    for call in CALLS {
        let mut session = server.connect();
        // Neither a refusal nor an acceptance is final.
        for _ in 0..2 {
            assert_refused(&mut session, call);
        }
    }
    let refused = status(&mut server.connect());
    assert_eq!(refused.state, "closed");
    assert!(refused.reason.expect("a reason").starts_with(DIFFERS));
    // IDs of other systems can be read, and everything that does not depend on the layout works.
    run(
        &mut server.connect(),
        "SELECT snowflake_decode(id, 'twitter'), snowflake_to_base62(id) FROM orders;
         SELECT snowflake_rotate(); SELECT FROM snowflake_workers; SELECT snowflake_adopt()",
    );
    run(&mut server.connect(), "VACUUM ANALYZE orders");
    for call in [READ, MAKE] {
        assert_refused(&mut session_in(&server, "copied"), call);
    }

    // Correcting the epoch is enough. The refused session works again while the database has the server's layout.
    let mut session = server.connect();
    assert_refused(&mut session, READ);
    assert_refused(&mut session, MAKE);
    for begin in ["BEGIN", "BEGIN; SAVEPOINT s"] {
        run(&mut session, &format!("{begin}; SELECT snowflake_change_layout()"));
        run(&mut session, &format!("{READ}; {MAKE}; ROLLBACK"));
        assert_refused(&mut session, READ);
        assert_refused(&mut session, MAKE);
    }
    restart_with(&mut server, None);
    let mut session = server.connect();
    assert!(next(&mut session) > last);
    for call in CALLS {
        run(&mut session, call);
    }
    assert_eq!(status(&mut session).state, "open");
}

#[test]
fn a_standby_cloned_before_preloading_refuses_another_layout() {
    let preload = "shared_preload_libraries";
    let mut primary = Server::builder().without(preload).setting("wal_keep_size", "256MB").start();
    let mut standby = primary.standby(|builder| builder.setting(EPOCH, EARLIER));
    for server in [&mut primary, &mut standby] {
        server.set(preload, "snowflake_id");
        server.restart();
    }
    run(&mut primary.connect(), "CREATE EXTENSION snowflake_id");
    run(&mut primary.connect(), ORDERS);
    let last: i64 = one(&mut primary.connect(), "SELECT max(id) FROM orders");
    standby.catch_up_with(&primary);

    assert_refused(&mut standby.connect(), READ);
    assert_refused(
        &mut standby.connect(),
        "SELECT FROM orders WHERE snowflake_between(id, '2025-01-01Z', 'infinity')",
    );
    fails(&mut standby.connect(), "25006", MAKE);
    drop(primary);
    standby.promote();
    for call in [READ, MAKE, "INSERT INTO orders DEFAULT VALUES"] {
        assert_refused(&mut standby.connect(), call);
    }
    // Nothing was generated with the mistaken epoch, so the state that was written since binds nobody.
    standby.stop(Stop::Fast);
    assert!(standby.data().join("snowflake_id").exists());
    standby.unset(EPOCH);
    standby.start();
    run(&mut standby.connect(), READ);
    assert!(next(&mut standby.connect()) > last);
}

#[test]
fn parallel_workers_compare_the_layouts_for_themselves() {
    let mut server = Server::builder().start_with_extension();
    run(&mut server.connect(), ORDERS);
    let force = if pg_version() < 16 { "force_parallel_mode" } else { "debug_parallel_query" };
    let in_parallel = format!(
        "SET {force} = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
         SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off;
         ALTER TABLE orders SET (parallel_workers = 2)"
    );
    let queries = [
        "SELECT count(snowflake_worker(id)) FROM orders",
        "SELECT count(*) FROM orders WHERE snowflake_between(id, '2025-01-01Z', 'infinity')",
        "SELECT count(snowflake_nextval()) FROM orders",
    ];
    for query in queries {
        // In a new session, so that not even the leader has compared the layouts.
        let mut session = server.connect();
        run(&mut session, &in_parallel);
        assert_eq!(one::<i64>(&mut session, query), 20_000, "{query}");
        let plan: Vec<String> =
            column(&mut session, &format!("EXPLAIN (ANALYZE, TIMING off, COSTS off) {query}"));
        assert!(
            plan.iter().any(|line| line.contains("Workers Launched: ") && !line.ends_with(" 0")),
            "{plan:?}"
        );
    }
    restart_with(&mut server, Some(EARLIER));
    for query in queries {
        let mut session = server.connect();
        run(&mut session, &in_parallel);
        assert_refused(&mut session, query);
    }
}

// ---- a record that changes while sessions live ----

/// Has the database record another layout beside the server's, as a restore does.
const RESTORE: &str =
    "INSERT INTO snowflake_internal.snowflake_config VALUES ('41/10/12 1ms 2020-01-01 00:00:00+00')";

#[track_caller]
fn assert_closed(session: &mut Client, statement: &str) {
    let failure = fails(session, "55000", statement);
    assert_eq!(failure.message, DIFFERS, "{statement}");
    assert!(failure.detail.starts_with(&format!("The database has {OTHER}, {DEFAULT}; ")), "{failure}");
}

const READ_ONE: &str = "SELECT snowflake_worker(1)";

/// As the sessions of a pool, which have compared the layouts before.
#[test]
fn sessions_that_looked_before_a_restore_refuse_after_it() {
    let database = database();
    let bounds = "EXECUTE since_2025";
    let looks = [
        READ_ONE.to_owned(),
        format!("BEGIN READ ONLY; {MAKE}; {READ_ONE}; COMMIT"),
        format!("BEGIN; {MAKE}; ROLLBACK"),
        format!("BEGIN; SAVEPOINT s; {MAKE}; ROLLBACK TO s; COMMIT"),
        // The plan has the bounds, and calls nothing.
        format!(
            "PREPARE since_2025 AS SELECT count(*) FROM generate_series(1::bigint, 3) AS id
                 WHERE snowflake_between(id, '2025-01-01Z', 'infinity'); {bounds}"
        ),
    ];
    let mut sessions = looks.map(|look| {
        let mut session = database.connect();
        run(&mut session, &look);
        session
    });
    run(&mut database.connect(), RESTORE);
    assert_closed(&mut sessions[4], bounds);
    for session in &mut sessions {
        for call in [READ_ONE, MAKE] {
            assert_closed(session, call);
        }
    }
}

/// The record is found by the names of its function and its schema.
#[test]
fn a_session_refuses_once_a_name_of_the_record_changes() {
    let database = database();
    let (mut session, mut other) = (database.connect(), database.connect());
    let schema = "ALTER SCHEMA snowflake_internal RENAME TO hidden";
    let function = "ALTER FUNCTION snowflake_internal.snowflake_own_layouts() RENAME TO hidden";
    let back = [
        "ALTER SCHEMA hidden RENAME TO snowflake_internal",
        "ALTER FUNCTION snowflake_internal.hidden() RENAME TO snowflake_own_layouts",
    ];
    for (change, back) in [schema, function].into_iter().zip(back) {
        run(&mut session, &format!("{READ_ONE}; {MAKE}"));
        run(&mut other, change);
        for call in [READ_ONE, MAKE] {
            let failure = fails(&mut session, "55000", call);
            assert_eq!(failure.message, "this database has recorded no snowflake layout", "{change}");
        }
        run(&mut other, back);
    }
    // A look while there is no record does not detach the session from it.
    run(&mut session, &format!("{READ_ONE}; {MAKE}"));
    run(&mut other, schema);
    run(&mut session, "SELECT state FROM snowflake_status");
    run(&mut other, &format!("{}; {RESTORE}", back[0]));
    for call in [READ_ONE, MAKE] {
        assert_closed(&mut session, call);
    }
}

/// PostgreSQL's queue has room for 4,096 invalidations. A session that is further behind gets one of everything instead.
#[test]
fn a_session_that_missed_an_invalidation_refuses_after_a_restore() {
    let server = Server::builder().start_with_extension();
    let mut late = server.connect();
    run(&mut late, &format!("{READ_ONE}; {MAKE}"));
    let pid: i32 = one(&mut late, "SELECT pg_backend_pid()");
    server.signal_backend(pid, Signal::SIGSTOP);
    let many =
        "DO $$ BEGIN FOR i IN 1..5000 LOOP EXECUTE format('ALTER FUNCTION f() COST %s', i); END LOOP; END $$";
    let f = "CREATE FUNCTION f() RETURNS integer LANGUAGE sql RETURN 1";
    run(&mut server.connect(), &format!("{RESTORE}; {f}; {many}"));
    server.signal_backend(pid, Signal::SIGCONT);
    for call in [READ_ONE, MAKE] {
        assert_closed(&mut late, call);
    }
}

#[test]
fn a_standbys_session_refuses_after_the_primarys_restore() {
    let primary = Server::builder().start_with_extension();
    let standby = primary.standby(|builder| builder);
    let mut session = standby.connect();
    run(&mut session, READ_ONE);
    run(&mut primary.connect(), RESTORE);
    standby.catch_up_with(&primary);
    assert_closed(&mut session, READ_ONE);
}

#[test]
fn a_restore_counts_at_once_and_ends_with_its_savepoint() {
    let database = database();
    let mut session = database.connect();
    for call in [READ_ONE, MAKE] {
        run(&mut session, READ_ONE);
        assert_closed(
            &mut session,
            &format!("DO $$ BEGIN PERFORM snowflake_worker(1); {RESTORE}; PERFORM ({call}); END $$"),
        );
        run(&mut session, &format!("{READ_ONE}; BEGIN; SAVEPOINT s; {RESTORE}"));
        assert_closed(&mut session, call);
        run(&mut session, &format!("ROLLBACK TO s; {READ_ONE}; COMMIT"));
    }
    run(
        &mut session,
        &format!(
            "DO $$ BEGIN
                 BEGIN {RESTORE}; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN END;
                 PERFORM snowflake_worker(1), snowflake_nextval();
             END $$"
        ),
    );
}

/// A first ID writes nothing, and waits for nothing.
#[test]
fn a_databases_first_id_needs_only_the_record() {
    let server = Server::builder().setting("max_prepared_transactions", "2").start_with_extension();
    run(&mut server.connect(), "CREATE ROLE clerk LOGIN");
    let snapshot = "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM pg_class";
    let (before, meanwhile) = (|_: &mut Client| (), |session: &mut Client| run(session, "SELECT 1"));
    type Prepare = fn(&mut Client);
    let cases: &[(&str, &str, Prepare, &str)] = &[
        ("read-only transaction", "BEGIN READ ONLY", before, "COMMIT"),
        ("role without rights", "SET ROLE clerk", before, "RESET ROLE"),
        (
            "replicated changes",
            "SET session_replication_role = replica",
            before,
            "RESET session_replication_role",
        ),
        ("old snapshot", snapshot, meanwhile, "COMMIT"),
        (
            "snapshot older than the extension",
            snapshot,
            |other| run(other, "DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id"),
            "COMMIT",
        ),
        (
            "snapshot older than the first extension",
            "DROP EXTENSION snowflake_id; COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class",
            |other| run(other, "CREATE EXTENSION snowflake_id"),
            "COMMIT",
        ),
        (
            "snapshot older than the record",
            snapshot,
            |other| run(other, "SELECT snowflake_change_layout()"),
            "COMMIT",
        ),
        (
            "restore that is prepared",
            "BEGIN",
            |other| run(other, &format!("BEGIN; {RESTORE}; PREPARE TRANSACTION 'p'")),
            "COMMIT; ROLLBACK PREPARED 'p'",
        ),
        (
            "exclusive locks",
            "BEGIN",
            |other| run(other, "BEGIN; LOCK TABLE snowflake_internal.snowflake_config, pg_description"),
            "COMMIT",
        ),
    ];
    for &(case, begin, prepare, end) in cases {
        let (mut session, mut other) = (server.connect(), server.connect());
        run(&mut session, &format!("SET statement_timeout = '20s'; {begin}"));
        prepare(&mut other);
        let made = session.batch_execute(&format!("{MAKE}; {READ_ONE}")).map_err(|e| Failure::from(&e));
        assert!(made.is_ok(), "{case}: {made:?}");
        end.split("; ").for_each(|end| run(&mut session, end));
    }
}

// ---- a query that is open while the extension is dropped ----

/// What another role may create once the extension is gone.
const PLANTED: &str = "
    CREATE SCHEMA snowflake_internal;
    CREATE TABLE snowflake_internal.snowflake_config (layouts integer, x bytea);
    CREATE FUNCTION snowflake_internal.snowflake_own_layouts() RETURNS integer LANGUAGE plpgsql AS
        $$ BEGIN RAISE LOG 'trapped: %', current_user; RETURN 1; END $$";

/// Right IDs, or an error, by whatever the catalogs have when a row is fetched.
#[test]
fn an_open_query_outlives_drop_extension_without_a_crash() {
    let server = Server::builder().start_with_extension();
    run(
        &mut server.connect(),
        "CREATE ROLE guest LOGIN; GRANT CREATE ON DATABASE postgres TO guest; CREATE SCHEMA ids",
    );
    let numbers = "FROM generate_series(1, 10000) AS n";
    let queries = [
        format!("SELECT snowflake_nextval() >> 12 & 1023 = 1 {numbers}"),
        format!("SELECT snowflake_worker(n * 4096) = n & 1023 {numbers}"),
        format!("SELECT (snowflake_decode(n * 4096)).worker_id = n & 1023 {numbers}"),
        format!("SELECT (snowflake_nextval_range(2)).first >> 12 & 1023 = 1 {numbers}"),
        format!("SELECT snowflake_server(n * 4096) = n & 255 {numbers}"),
        format!("SELECT snowflake_to_base62(n) {numbers}"),
        format!("SELECT n {numbers} WHERE snowflake_between(n * 2, now() - interval '3 years', now())"),
        "SELECT snowflake_nextval_batch(10000)".to_owned(),
        // The view would be locked.
        format!("SELECT (snowflake_internal.snowflake_status_row()).state {numbers}"),
    ];
    let gone = "this database has recorded no snowflake layout";
    let planted = "the snowflake layout of this database differs from this server's";
    // What happens between two fetches, and how a fetch may fail; in a schema, and back.
    type Change<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let changes: [Change<'_>; 4] = [
        (&[("postgres", "DROP EXTENSION snowflake_id")], &[gone, "cache lookup failed", "type with OID"]),
        (
            &[("postgres", "DROP EXTENSION snowflake_id"), ("guest", PLANTED)],
            &[planted, "cache lookup failed", "type with OID"],
        ),
        (
            &[("postgres", "DROP EXTENSION snowflake_id"), ("postgres", "CREATE EXTENSION snowflake_id")],
            &["cache lookup failed", "type with OID"],
        ),
        (
            &[
                ("postgres", "DROP EXTENSION snowflake_id"),
                ("postgres", "CREATE EXTENSION snowflake_id SCHEMA ids"),
            ],
            &["cache lookup failed", "type with OID"],
        ),
    ];
    for (steps, allowed) in changes {
        let mut sessions: Vec<Client> = queries.iter().map(|_| server.connect()).collect();
        for (session, query) in sessions.iter_mut().zip(&queries) {
            run(session, &format!("BEGIN; DECLARE c CURSOR FOR {query}; FETCH 3 FROM c"));
        }
        for (role, step) in steps {
            run(&mut server.connect_as(role), step);
        }
        for (session, query) in sessions.iter_mut().zip(&queries) {
            // A new command, as each message of a client is, sees what was committed.
            for fetch in [
                "SAVEPOINT s; LOCK TABLE pg_description IN ACCESS SHARE MODE; FETCH 3 FROM c",
                "FETCH 3 FROM c",
            ] {
                let rows = session.simple_query(fetch).unwrap_or_else(|e| {
                    let failure = Failure::from(&e);
                    let is_allowed = allowed.iter().any(|message| failure.message.starts_with(message));
                    assert!(is_allowed || failure.code == "25P02", "{query}\n{steps:?}: {failure}");
                    Vec::new()
                });
                let is_false = |row: &SimpleQueryMessage| matches!(row, Row(row) if row.get(0) == Some("f"));
                assert!(!rows.iter().any(is_false), "{query}\n{steps:?}: {rows:?}");
            }
        }
        // With the record gone or planted, a query that generates or reads IDs has failed.
        if steps.len() == 1 || steps[1].0 == "guest" {
            for session in &mut sessions[..2] {
                fails(session, "25P02", "SELECT 1");
            }
        }
        drop(sessions);
        run(
            &mut server.connect(),
            "DROP EXTENSION IF EXISTS snowflake_id; DROP SCHEMA IF EXISTS snowflake_internal CASCADE;
             CREATE EXTENSION snowflake_id",
        );
    }
    assert!(
        !server.log().contains("LOG:  trapped") && !server.log().contains("terminated by signal"),
        "{}",
        server.log()
    );
}

// ---- a change of the layout ----

/// Everything that stores values computed from an ID, in schemas that are in no search_path.
const KEPT: &str = r#"
    CREATE SCHEMA ids;
    CREATE EXTENSION snowflake_id SCHEMA ids;
    CREATE SCHEMA "My shop";
    SET search_path = "My shop", ids;
    CREATE FUNCTION month_of(id bigint) RETURNS timestamptz IMMUTABLE
        RETURN date_trunc('month', snowflake_timestamp(id), 'UTC');
    CREATE DOMAIN order_id AS bigint CHECK (snowflake_timestamp(VALUE) > '2020-02-01Z');
    CREATE TABLE "Orders" (
        "Id" bigint PRIMARY KEY DEFAULT snowflake_nextval(),
        "At" timestamptz GENERATED ALWAYS AS (snowflake_timestamp("Id")) STORED,
        month timestamptz GENERATED ALWAYS AS (month_of("Id")) STORED,
        customer text,
        CONSTRAINT since_2020 CHECK (snowflake_timestamp("Id") > '2020-02-01Z'));
    CREATE INDEX ON "Orders" (snowflake_timestamp("Id"));
    CREATE INDEX ON "Orders" (month_of("Id"));
    CREATE INDEX "Orders of 2024" ON "Orders" (customer) WHERE snowflake_between("Id", '2024-01-01Z', 'infinity');
    CREATE INDEX ON "Orders" ("At");
    CREATE STATISTICS months ON (snowflake_timestamp("Id")), customer FROM "Orders";
    CREATE TABLE lines (order_id order_id, n integer);
    CREATE TABLE old_orders () INHERITS ("Orders");
    CREATE TABLE events (
        id bigint DEFAULT snowflake_nextval(), at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED
    ) PARTITION BY RANGE (id);
    CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (MINVALUE) TO (snowflake_min('2025-01-01Z'));
    CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (snowflake_min('2025-01-01Z')) TO (MAXVALUE);
    CREATE INDEX events_at ON events (snowflake_timestamp(id));
    CREATE TABLE plain (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), text snowflake_base62);
    CREATE INDEX ON plain (snowflake_timestamp(id, 'twitter'));
    INSERT INTO "Orders" (customer) SELECT 'customer ' || i FROM generate_series(1, 1000) AS i;
    INSERT INTO old_orders (customer) SELECT 'customer ' || i FROM generate_series(1, 10) AS i;
    INSERT INTO lines SELECT "Id", 1 FROM "Orders";
    INSERT INTO events SELECT snowflake_encode('2024-06-01Z', 1, n) FROM generate_series(1, 100) AS n;
    INSERT INTO events SELECT FROM generate_series(1, 100);
    INSERT INTO plain SELECT FROM generate_series(1, 100);
    CREATE VIEW readable AS SELECT (snowflake_decode("Id")).* FROM "Orders";
    CREATE MATERIALIZED VIEW of_view AS SELECT min(created_at) FROM readable;
    CREATE MATERIALIZED VIEW of_column AS SELECT min("At") FROM "Orders";
    CREATE MATERIALIZED VIEW empty AS SELECT snowflake_worker(id) FROM plain WITH NO DATA;
    ANALYZE"#;

/// The query that lists the caller's dependents.
const DEPENDENTS: &str = include_str!("../../../../../examples/layout/dependents.sql");

fn dependents(session: &mut Client) -> Vec<String> {
    column(session, DEPENDENTS)
}

/// Queries that count values with the meaning of another layout; all should return 0.
const STALE: &[&str] = &[
    r#"SELECT count(*) FROM "Orders" WHERE "At" <> snowflake_timestamp("Id") OR month <> month_of("Id")"#,
    "SELECT count(*) FROM events WHERE at <> snowflake_timestamp(id)",
    r#"SELECT count(*) FROM of_view WHERE min <> (SELECT min(created_at) FROM readable)"#,
    r#"SELECT count(*) FROM of_column WHERE min <> (SELECT min(snowflake_timestamp("Id")) FROM "Orders")"#,
    // The time of the most frequent month differs from the one that ANALYZE has seen.
    "SELECT count(*) FROM pg_stats WHERE attname = 'at' AND tablename = 'events_1'
         AND array_to_string(most_common_vals, ',') LIKE '%2024%'",
    r#"SELECT abs((SELECT count(*) FROM "Orders" WHERE snowflake_timestamp("Id") < '2023-01-01Z')
             - (SELECT count(*) FROM "Orders" WHERE NOT snowflake_between("Id", '2023-01-01Z', 'infinity')))"#,
];

/// The queries that count something, with indexes used wherever possible.
fn stale(session: &mut Client) -> Vec<&'static str> {
    // What it cannot avoid seems so costly to the planner then that it would be compiled.
    run(session, "SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off");
    STALE.iter().copied().filter(|query| one::<i64>(session, query) > 0).collect()
}

/// The indexes whose content differs from their tables.
fn wrong_indexes(session: &mut Client) -> Vec<String> {
    if !has_contrib() {
        return Vec::new();
    }
    run(session, "CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA ids");
    let indexes: Vec<String> = column(
        session,
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_am a ON a.oid = c.relam
         WHERE c.relkind = 'i' AND a.amname = 'btree' AND c.relnamespace = '\"My shop\"'::regnamespace ORDER BY 1",
    );
    assert!(indexes.len() > 8, "{indexes:?}");
    let check = |index: &String| {
        let check = format!("SELECT bt_index_check('{index}', true)");
        session.batch_execute(&check).is_err()
    };
    indexes.into_iter().filter(check).collect()
}

#[test]
fn the_listed_statements_compute_all_values_anew() {
    let mut server = Server::builder().start_with_extension();
    run(&mut server.connect(), "DROP EXTENSION snowflake_id");
    run(&mut server.connect(), KEPT);
    run(&mut server.connect(), "CREATE DATABASE second TEMPLATE postgres");
    let shop = |server: &Server, database: &str| {
        let mut session = session_in(server, database);
        run(&mut session, r#"SET search_path = "My shop", ids"#);
        session
    };
    let last: i64 = one(&mut shop(&server, "postgres"), r#"SELECT max("Id") FROM "Orders""#);
    assert_eq!(stale(&mut shop(&server, "postgres"))[..], STALE[4..5], "only what ANALYZE has seen");

    server.set(EPOCH, EARLIER);
    server.restart();
    for database in ["postgres", "second"] {
        let mut session = shop(&server, database);
        for call in [MAKE, r#"SELECT snowflake_worker("Id") FROM "Orders""#] {
            assert_refused(&mut session, call);
        }
        run(&mut session, "SELECT snowflake_change_layout()");
        assert!(next(&mut session) > last, "it was refused before, and is not any more");
        // With only the record changed, all stored values have the old meaning.
        assert_eq!(stale(&mut session), STALE);
        if has_contrib() {
            let wrong = wrong_indexes(&mut session).join(" ");
            for index in
                ["Orders_snowflake_timestamp_idx", "Orders_month_of_idx", "events_1_snowflake_timestamp"]
            {
                assert!(wrong.contains(index), "{index} is not among {wrong}");
            }
        }
        let mut session = shop(&server, database);
        let statements = dependents(&mut session);
        run(&mut session, &statements.join("\n"));
        run(&mut session, "ANALYZE");
        assert_eq!(stale(&mut session), [""; 0]);
        assert_eq!(wrong_indexes(&mut session), [""; 0]);
        // Repeating it does no harm, and leaves nothing behind.
        let mut session = shop(&server, database);
        assert_eq!(dependents(&mut session), statements);
        // Values that do not depend on this server's layout are not touched.
        let text = statements.join("\n");
        for other in ["plain", "empty"] {
            assert!(!text.contains(other), "{text}");
        }
    }
}

#[test]
fn what_needs_a_hand_is_listed_for_its_owner_alone() {
    let server = Server::builder().start_with_extension();
    run(&mut server.connect(), "CREATE ROLE merchant LOGIN; GRANT CREATE ON SCHEMA public TO merchant");
    run(
        &mut server.connect_as("merchant"),
        "CREATE TABLE t (id bigint CONSTRAINT since_2024 CHECK (snowflake_timestamp(id) > '2024-01-01Z'));
         CREATE DOMAIN d AS bigint CONSTRAINT of_worker_1 CHECK (snowflake_worker(VALUE) = 1);
         CREATE TABLE fixed (
             id bigint GENERATED ALWAYS AS IDENTITY,
             b integer GENERATED ALWAYS AS (snowflake_worker(id)) STORED);
         CREATE TABLE parts (id bigint, n integer) PARTITION BY RANGE (snowflake_timestamp(id), n);
         CREATE TABLE part PARTITION OF parts DEFAULT;
         CREATE VIEW of_part AS SELECT n FROM parts;
         CREATE TEMPORARY TABLE gone (a bigint GENERATED ALWAYS AS (snowflake_min('2025-01-01Z')) STORED)",
    );
    assert_eq!(dependents(&mut server.connect()), [""; 0]);
    let listed = dependents(&mut server.connect_as("merchant")).join("\n");
    assert_eq!(
        // Later versions name the domain.
        listed.replace(" on type d", "").split('\n').collect::<Vec<_>>(),
        [
            "-- by hand: table parts",
            "-- by hand: constraint since_2024 on table t",
            "-- by hand: constraint of_worker_1",
            "-- by hand: column b of table fixed",
        ]
    );
}

/// Who calls it, with which IDs, under which layouts; and how it ends.
#[test]
fn a_layout_changes_only_to_higher_ids_or_on_request() {
    let mut server = Server::builder().setting(EPOCH, EARLIER).start_with_extension();
    run(&mut server.connect(), &format!("CREATE ROLE clerk LOGIN; {ORDERS}"));
    restart_with(&mut server, None);
    // The time and the datacenter of its IDs are those of the default layout's.
    const SPLIT: &str = "41/12/10 1ms 2024-01-01 00:00:00+00";
    const LOWER: &str = "new snowflake IDs would be lower than existing ones in this database";
    let both = format!("SELECT snowflake_internal.snowflake_set_layouts('{{{DEFAULT},{SPLIT}}}')");
    // A record that a later version has written: its IDs cannot be compared.
    let unknown = "CREATE OR REPLACE FUNCTION snowflake_internal.snowflake_own_layouts() RETURNS text LANGUAGE sql STABLE AS
                   $$ SELECT '50/13 1us' $$";
    let forced = "SELECT snowflake_change_layout(has_ids => false)";
    let cases = [
        (
            "clerk",
            "",
            "SELECT snowflake_change_layout()",
            "42501",
            "permission denied for function snowflake_change_layout",
        ),
        ("postgres", "", "SELECT snowflake_change_layout()", "55000", LOWER),
        ("postgres", "", "SELECT snowflake_change_layout(NULL)", "55000", LOWER),
        ("postgres", both.as_str(), "SELECT snowflake_change_layout()", "55000", LOWER),
        (
            "postgres",
            unknown,
            "SELECT snowflake_change_layout()",
            "22023",
            "invalid snowflake layout: \"50/13 1us\"",
        ),
        (
            "postgres",
            "BEGIN READ ONLY",
            forced,
            "25006",
            "cannot execute CREATE FUNCTION in a read-only transaction",
        ),
    ];
    for (role, before, call, code, message) in cases {
        let mut session = server.connect_as(role);
        run(&mut session, before);
        let failure = fails(&mut session, code, call);
        assert_eq!(failure.message, message, "{role} {before}");
        let higher = if before.is_empty() { OTHER } else { SPLIT };
        let detail = format!("The database has {higher}; this server is configured with {DEFAULT}.");
        assert!(code != "55000" || failure.detail == detail, "{failure}");
        fails(&mut server.connect(), "55000", MAKE);
    }
    let mut session = server.connect();
    assert!(fails(&mut session, "55000", MAKE).detail.contains("50/13 1us"));
    run(&mut session, &format!("{forced}; {MAKE}"));
    // Back, to higher IDs.
    restart_with(&mut server, Some(EARLIER));
    run(&mut server.connect(), &format!("SELECT snowflake_change_layout(); {MAKE}"));
}

#[test]
fn a_change_of_the_layout_waits_for_a_restore() {
    let database = database();
    let (mut session, mut other) = (database.connect(), database.connect());
    run(&mut session, &format!("BEGIN; {RESTORE}"));
    let waiting =
        std::thread::spawn(move || fails(&mut other, "55000", "SELECT snowflake_change_layout()").detail);
    wait_for_lock(&mut database.connect());
    run(&mut session, "COMMIT");
    let detail = waiting.join().expect("a refusal");
    assert!(detail.starts_with(&format!("The database has {OTHER}; ")), "{detail}");
    assert_closed(&mut session, MAKE);
}
