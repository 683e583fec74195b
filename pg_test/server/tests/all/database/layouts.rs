//! A database records the layout of its IDs. A server with another layout neither generates nor reads any of them, and
//! after a change of the layout, the statements that the server prints bring a database up to date.

use postgres::{Client, NoTls};
use snowflake_server_tests::sql::{column, fails, next, one, run, status, wait_for_lock};
use snowflake_server_tests::{Database, Server, Stop, has_contrib, pg_version};
use std::thread;

const EPOCH: &str = "snowflake_id.epoch";
const EARLIER: &str = "2020-01-01T00:00:00Z";
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
    assert!(failure.hint.contains("snowflake_layout_steps"), "{failure}");
}

const READ: &str = "SELECT snowflake_timestamp(id) FROM orders";
const MAKE: &str = "SELECT snowflake_nextval()";

/// Everything that generates IDs, or reads them by this server's layout.
const CALLS: [&str; 19] = [
    READ,
    MAKE,
    "SELECT snowflake_datacenter(id) FROM orders",
    "SELECT snowflake_worker(id) FROM orders",
    "SELECT snowflake_sequence(id) FROM orders",
    "SELECT snowflake_owner(id) FROM orders",
    "SELECT (snowflake_decode(id)).* FROM orders",
    "SELECT snowflake_encode(now(), 1, 1)",
    "SELECT snowflake_min(now())",
    "SELECT snowflake_max('2025-01-01Z')",
    "SELECT count(*) FROM orders WHERE snowflake_between(id, '2025-01-01Z', 'infinity')",
    "SELECT snowflake_time_encoder(now())",
    "SELECT snowflake_time_decoder(snowflake_to_base62(id)) FROM orders",
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
    run(&mut server.connect(), "CREATE DATABASE unaware TEMPLATE postgres");
    run(&mut session_in(&server, "unaware"), "DELETE FROM snowflake_internal.snowflake_config");
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
         SELECT snowflake_rotate(); SELECT FROM snowflake_workers; SELECT FROM snowflake_layout_steps();
         SELECT snowflake_adopt()",
    );
    run(&mut server.connect(), "VACUUM ANALYZE orders");
    // Without the row there is no layout to compare with.
    let mut unaware = session_in(&server, "unaware");
    for call in CALLS {
        run(&mut unaware, call);
    }

    // Correcting the epoch is enough. The refused session works again once the row is corrected.
    let mut session = server.connect();
    assert_refused(&mut session, READ);
    assert_refused(&mut session, MAKE);
    run(&mut session, "BEGIN; UPDATE snowflake_internal.snowflake_config SET epoch = '2020-01-01Z'");
    run(&mut session, &format!("{READ}; {MAKE}; ROLLBACK"));
    for taken_back in [
        "UPDATE snowflake_internal.snowflake_config SET epoch = '2020-01-01Z'",
        "DELETE FROM snowflake_internal.snowflake_config",
        "SAVEPOINT s; UPDATE snowflake_internal.snowflake_config SET epoch = '2020-01-01Z'",
    ] {
        run(&mut session, &format!("BEGIN; {taken_back}"));
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

#[test]
fn a_comparison_waits_for_a_lock_no_longer_than_a_statement_may() {
    let database = database();
    run(&mut database.connect(), ORDERS);
    let mut session = database.connect();
    run(&mut session, "BEGIN; LOCK TABLE snowflake_internal.snowflake_config IN ACCESS EXCLUSIVE MODE");
    for call in [READ, MAKE] {
        let mut waiting = database.connect();
        run(&mut waiting, "SET statement_timeout = '200ms'");
        fails(&mut waiting, "57014", call);
        run(&mut waiting, "RESET statement_timeout");
        run(&mut session, "ROLLBACK");
        run(&mut waiting, call);
        run(&mut session, "BEGIN; LOCK TABLE snowflake_internal.snowflake_config IN ACCESS EXCLUSIVE MODE");
        // A session compares once, and does not need the lock again.
        run(&mut waiting, call);
    }
    // The extension is gone when they get the lock.
    run(&mut session, "DROP EXTENSION snowflake_id CASCADE");
    let mut waiting = database.connect();
    let thread = thread::spawn(move || run(&mut waiting, MAKE));
    wait_for_lock(&mut database.connect());
    run(&mut session, "COMMIT");
    thread.join().expect("an ID, because its function was found before");
}

// ---- a row that changes while sessions live ----

/// A dump with the default layout.
fn dump_of_another() -> String {
    let source = database();
    run(&mut source.connect(), "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval())");
    run(&mut source.connect(), "INSERT INTO orders DEFAULT VALUES");
    source.server().dump(source.name(), &[])
}

#[track_caller]
fn restore_another(server: &Server, database: &str, dump: &str) {
    let said = server.try_restore(database, dump).expect_err("an error");
    assert!(said.contains("ERROR:  the dump's snowflake layout"), "{said}");
}

const READ_ONE: &str = "SELECT snowflake_worker(1)";
const IS_USED: &str = "SELECT is_used FROM snowflake_internal.snowflake_config";

/// As the sessions of a pool, which have compared the layouts with a row that said nothing yet.
#[test]
fn sessions_that_looked_before_a_restore_refuse_after_it() {
    let dump = dump_of_another();
    let server = Server::builder().setting(EPOCH, EARLIER).start_with_extension();
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
        let mut session = server.connect();
        run(&mut session, &look);
        session
    });
    assert!(!one::<bool>(&mut server.connect(), IS_USED));
    restore_another(&server, "postgres", &dump);
    assert_refused(&mut sessions[4], bounds);
    for session in &mut sessions {
        for call in [READ, MAKE, "INSERT INTO orders DEFAULT VALUES"] {
            assert_refused(session, call);
        }
    }
}

/// A session that has generated IDs marks the next row, too, and refuses that of another layout.
#[test]
fn a_session_does_not_go_by_a_row_that_is_gone() {
    let dump = dump_of_another();
    let server = Server::builder().setting(EPOCH, EARLIER).start_with_extension();
    let ways = [
        ("dropped", "DROP EXTENSION snowflake_id CASCADE; CREATE EXTENSION snowflake_id"),
        ("deleted", "DELETE FROM snowflake_internal.snowflake_config"),
    ];
    for (database, way) in ways {
        run(&mut server.connect(), &format!("CREATE DATABASE {database} TEMPLATE postgres"));
        let mut session = session_in(&server, database);
        run(&mut session, &format!("{MAKE}; {READ_ONE}"));
        run(&mut session_in(&server, database), way);
        run(&mut session, MAKE);
        assert!(one::<bool>(&mut session_in(&server, database), IS_USED), "{way}");
        run(&mut session_in(&server, database), way);
        restore_another(&server, database, &dump);
        for call in [READ, MAKE] {
            assert_refused(&mut session, call);
        }
    }
}

#[test]
fn a_session_on_a_standby_refuses_after_the_restore_on_the_primary() {
    let dump = dump_of_another();
    let primary = Server::builder().setting(EPOCH, EARLIER).start_with_extension();
    let standby = primary.standby(|builder| builder);
    let mut session = standby.connect();
    run(&mut session, READ_ONE);
    restore_another(&primary, "postgres", &dump);
    standby.catch_up_with(&primary);
    assert_refused(&mut session, READ_ONE);
}

#[test]
fn a_restore_counts_at_once_and_is_taken_back_with_its_savepoint() {
    let server = Server::builder().setting(EPOCH, EARLIER).start_with_extension();
    let mut session = server.connect();
    let restore =
        "INSERT INTO snowflake_internal.snowflake_config VALUES ('41/10/12', 1, '2024-01-01Z', true, true)";
    for call in [READ_ONE, MAKE] {
        run(&mut session, READ_ONE);
        assert_refused(
            &mut session,
            &format!("DO $$ BEGIN PERFORM snowflake_worker(1); {restore}; PERFORM ({call}); END $$"),
        );
        run(&mut session, &format!("{READ_ONE}; BEGIN; SAVEPOINT s; {restore}"));
        assert_refused(&mut session, call);
        run(&mut session, &format!("ROLLBACK TO s; {READ_ONE}; COMMIT"));
        assert!(!one::<bool>(&mut session, IS_USED));
    }
    run(
        &mut session,
        &format!(
            "DO $$ BEGIN
                 BEGIN {restore}; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN END;
                 PERFORM snowflake_worker(1), snowflake_nextval();
             END $$"
        ),
    );
    assert!(one::<bool>(&mut session, IS_USED));
}

#[test]
fn the_first_id_that_can_mark_the_database_does_so() {
    let database = database();
    let (mut session, mut other) = (database.connect(), database.connect());
    let mut watcher = database.connect();
    let mut is_used = || one::<bool>(&mut watcher, IS_USED);
    run(&mut session, &format!("BEGIN READ ONLY; {MAKE}; COMMIT"));
    // While another transaction marks it, in vain.
    run(&mut other, &format!("BEGIN; {MAKE}"));
    run(&mut session, MAKE);
    run(&mut other, "ROLLBACK");
    run(&mut session, &format!("BEGIN; {MAKE}; ROLLBACK"));
    // As where changes are applied.
    run(
        &mut session,
        &format!("SET session_replication_role = replica; {MAKE}; RESET session_replication_role"),
    );
    assert!(!is_used());
    let taken_back = "BEGIN PERFORM snowflake_nextval(); RAISE division_by_zero;
                      EXCEPTION WHEN division_by_zero THEN END;";
    run(&mut session, &format!("DO $$ BEGIN {taken_back} END $$"));
    assert!(!is_used());
    run(&mut session, &format!("DO $$ BEGIN {taken_back} PERFORM snowflake_nextval(); END $$"));
    assert!(is_used());
}

/// Its snapshot does not show the row that says whether the database is used.
#[test]
fn a_transaction_that_began_before_the_extension_generates_ids() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let server = Server::builder().start();
        let (mut session, mut operator) = (server.connect(), server.connect());
        let old = format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM pg_class");
        for change in [
            "CREATE EXTENSION snowflake_id",
            "DELETE FROM snowflake_internal.snowflake_config",
            "DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id",
        ] {
            run(&mut session, &old);
            run(&mut operator, change);
            run(&mut session, &format!("{MAKE}; COMMIT"));
            let used = column::<bool>(&mut operator, IS_USED);
            assert!(!used.contains(&true), "{level} {change}");
        }
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}; {MAKE}; COMMIT"));
        assert!(one::<bool>(&mut operator, IS_USED), "{level}");
        run(&mut session, "BEGIN ISOLATION LEVEL REPEATABLE READ; DROP EXTENSION snowflake_id");
        run(&mut session, &format!("CREATE EXTENSION snowflake_id; {MAKE}; COMMIT"));
        assert!(one::<bool>(&mut operator, IS_USED), "in the transaction that created it");
    }
}

/// A report on a database that generates no IDs itself, and IDs that cannot mark it.
#[test]
fn a_statement_reads_the_row_a_few_times_however_many_ids_it_has() {
    let database = database();
    let (mut session, mut other) = (database.connect(), database.connect());
    run(&mut other, &format!("BEGIN; {MAKE}"));
    let scans = "SELECT pg_stat_get_xact_numscans('snowflake_internal.snowflake_config'::regclass)";
    for (mode, call) in [
        ("READ WRITE", "snowflake_worker(id)"),
        ("READ ONLY", "snowflake_nextval()"),
        ("READ WRITE", "snowflake_nextval()"),
    ] {
        run(
            &mut session,
            &format!("BEGIN {mode}; SELECT count({call}) FROM generate_series(1::bigint, 1000) AS id"),
        );
        let scans: i64 = one(&mut session, scans);
        // PostgreSQL may count those of the transactions before, too.
        assert!(scans < 20, "{mode} {call}: {scans}");
        run(&mut session, "ROLLBACK");
    }
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
    CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'an order never changes'; END $$;
    CREATE TRIGGER never BEFORE UPDATE ON "Orders" FOR EACH ROW EXECUTE FUNCTION never();
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

const STEPS: &str = "SELECT statement FROM ids.snowflake_layout_steps() \\gexec\n";

/// Queries that count values with the meaning of another layout; all should return 0.
const STALE: [&str; 6] = [
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
    STALE.into_iter().filter(|query| one::<i64>(session, query) > 0).collect()
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
fn every_database_is_brought_to_a_new_layout_by_the_statements_it_tells() {
    let mut server = Server::builder().start_with_extension();
    run(&mut server.connect(), "DROP EXTENSION snowflake_id");
    run(&mut server.connect(), KEPT);
    run(&mut server.connect(), "CREATE DATABASE second TEMPLATE postgres");
    let old = Server::builder().start();
    old.restore("postgres", &server.dump("postgres", &[]));
    let shop = |server: &Server, database: &str| {
        let mut session = session_in(server, database);
        run(&mut session, r#"SET search_path = "My shop", ids"#);
        session
    };
    let last: i64 = one(&mut shop(&server, "postgres"), r#"SELECT max("Id") FROM "Orders""#);
    assert_eq!(stale(&mut shop(&server, "postgres"))[..], STALE[4..5], "only what ANALYZE has seen");

    server.set(EPOCH, EARLIER);
    server.restart();
    let mut session = shop(&server, "postgres");
    for call in [MAKE, r#"SELECT snowflake_worker("Id") FROM "Orders""#] {
        assert_refused(&mut session, call);
    }
    run(&mut session, "UPDATE snowflake_internal.snowflake_config SET epoch = '2020-01-01Z'");
    assert!(next(&mut session) > last, "it was refused before, and is not any more");

    // With only the row changed, all stored values have the old meaning.
    assert_eq!(stale(&mut session), STALE);
    if has_contrib() {
        let wrong = wrong_indexes(&mut session).join(" ");
        for index in ["Orders_snowflake_timestamp_idx", "Orders_month_of_idx", "events_1_snowflake_timestamp"]
        {
            assert!(wrong.contains(index), "{index} is not among {wrong}");
        }
    }

    // Each database gets the same statements, and needs its own run.
    let call = r#"SELECT snowflake_worker("Id") FROM "Orders""#;
    for database in ["postgres", "second"] {
        if database == "second" {
            assert_refused(&mut shop(&server, database), MAKE);
            assert_refused(&mut shop(&server, database), call);
        }
        let told = "SELECT statement FROM snowflake_layout_steps() ORDER BY 1";
        let told = column::<Option<String>>(&mut shop(&server, database), told);
        server.restore(database, STEPS);
        let mut session = shop(&server, database);
        assert_eq!(stale(&mut session), [""; 0]);
        assert_eq!(wrong_indexes(&mut session), [""; 0]);
        assert!(next(&mut session) > last);
        run(&mut session, call);
        // Repeating it does no harm, and leaves nothing behind.
        server.restore(database, STEPS);
        let again = "SELECT statement FROM snowflake_layout_steps() ORDER BY 1";
        assert_eq!(column::<Option<String>>(&mut session, again), told);
        // Values that do not depend on this server's layout are not touched.
        let text: String = told.into_iter().map(|told| told.expect("a statement") + ";\n").collect();
        for other in ["plain", "empty"] {
            assert!(!text.contains(other), "{text}");
        }
        assert!(one::<bool>(&mut session, "SELECT NOT relispopulated FROM pg_class WHERE relname = 'empty'"));
    }

    // This server restores a dump, and one with the old epoch refuses it.
    let dump = server.dump("postgres", &[]);
    run(&mut server.connect(), "CREATE DATABASE third");
    server.restore("third", &dump);
    assert_eq!(stale(&mut shop(&server, "third")), [""; 0]);
    run(&mut old.connect(), "CREATE DATABASE third");
    let said = old.try_restore("third", &dump).expect_err("it has the old epoch");
    assert!(said.contains("the dump's snowflake layout differs from this server's"), "{said}");
}

#[test]
fn a_database_with_ids_takes_no_layout_whose_ids_are_lower() {
    let mut server = Server::builder().setting(EPOCH, EARLIER).start_with_extension();
    run(&mut server.connect(), ORDERS);
    restart_with(&mut server, None);
    let steps = "SELECT statement FROM snowflake_layout_steps() \\gexec\n";
    let said = server.try_restore("postgres", steps).expect_err("its IDs would be lower");
    assert!(said.contains("new snowflake IDs would be lower than existing ones in this database"), "{said}");
    fails(&mut server.connect(), "55000", MAKE);
    // As the hint says, for a database without IDs.
    run(&mut server.connect(), "DELETE FROM snowflake_internal.snowflake_config");
    server.restore("postgres", steps);
    run(&mut server.connect(), MAKE);
    assert_eq!(
        one::<i64>(&mut server.connect(), "SELECT count(*) FROM snowflake_internal.snowflake_config"),
        1
    );
}

#[test]
fn a_step_that_cannot_be_done_says_why() {
    let mut server = Server::builder().start_with_extension();
    run(
        &mut server.connect(),
        "CREATE TABLE t (id bigint CONSTRAINT since_2024 CHECK (snowflake_timestamp(id) > '2024-01-01Z'));
         COMMENT ON CONSTRAINT since_2024 ON t IS 'kept';
         INSERT INTO t VALUES (snowflake_nextval());
         CREATE DOMAIN d AS bigint CONSTRAINT of_worker_1 CHECK (snowflake_worker(VALUE) = 1);
         CREATE TABLE fixed (
             id bigint GENERATED ALWAYS AS IDENTITY,
             a bigint GENERATED ALWAYS AS (snowflake_min('2025-01-01Z')) STORED,
             b integer GENERATED ALWAYS AS (snowflake_worker(id)) STORED);
         CREATE TABLE guarded (id bigint, w integer GENERATED ALWAYS AS (snowflake_worker(id)) STORED);
         CREATE FUNCTION take_over() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER take_over BEFORE UPDATE ON guarded FOR EACH ROW EXECUTE FUNCTION take_over();
         ALTER TABLE guarded ENABLE ALWAYS TRIGGER take_over;
         CREATE TABLE replicated (id bigint, w integer GENERATED ALWAYS AS (snowflake_worker(id)) STORED);
         CREATE TRIGGER take_over BEFORE UPDATE ON replicated FOR EACH ROW EXECUTE FUNCTION take_over();
         ALTER TABLE replicated ENABLE REPLICA TRIGGER take_over;
         CREATE TRIGGER also BEFORE UPDATE ON replicated FOR EACH ROW EXECUTE FUNCTION take_over();
         CREATE TRIGGER never BEFORE UPDATE ON replicated FOR EACH ROW EXECUTE FUNCTION take_over();
         ALTER TABLE replicated DISABLE TRIGGER never;
         INSERT INTO guarded VALUES (1); INSERT INTO replicated VALUES (1);
         CREATE TABLE ruled (id bigint, w integer GENERATED ALWAYS AS (snowflake_worker(id)) STORED);
         CREATE RULE take_over AS ON UPDATE TO ruled DO INSTEAD NOTHING;
         CREATE TABLE referenced (id bigint, w integer UNIQUE GENERATED ALWAYS AS (snowflake_worker(id)) STORED);
         CREATE TABLE referencing (
             id bigint, w integer GENERATED ALWAYS AS (snowflake_worker(id)) STORED REFERENCES referenced (w));
         CREATE TABLE deferred (
             id bigint, w integer UNIQUE DEFERRABLE GENERATED ALWAYS AS (snowflake_worker(id)) STORED);
         CREATE TABLE parts (id bigint, n integer) PARTITION BY RANGE (snowflake_timestamp(id), n);
         CREATE TABLE part PARTITION OF parts DEFAULT;
         CREATE TEMPORARY TABLE gone (a bigint GENERATED ALWAYS AS (snowflake_min('2025-01-01Z')) STORED)",
    );
    let mut other = server.connect();
    run(
        &mut other,
        "CREATE TEMPORARY TABLE theirs (id bigint); CREATE INDEX ON theirs (snowflake_worker(id))",
    );
    let notes = "SELECT note FROM snowflake_layout_steps() WHERE statement IS NULL ORDER BY 1";
    assert_eq!(
        column::<String>(&mut server.connect(), notes),
        [
            "Drop and add a, b of public.fixed by hand: no other column can be set to recompute it.",
            "Move the rows of public.parts by hand, because its partition key reads IDs.",
            "Recompute w of public.deferred by hand, because of its rules or constraints.",
            "Recompute w of public.referenced by hand, because of its rules or constraints.",
            "Recompute w of public.referencing by hand, because of its rules or constraints.",
            "Recompute w of public.ruled by hand, because of its rules or constraints."
        ]
    );
    let theirs = "SELECT count(*) FROM snowflake_layout_steps() WHERE statement LIKE '%theirs%'";
    assert_eq!(one::<i64>(&mut server.connect(), theirs), 0);
    // Nor in the session that has it: by its name alone, a statement could mean another role's table.
    assert_eq!(one::<i64>(&mut other, theirs), 0);

    restart_with(&mut server, Some(EARLIER));
    let steps = "SELECT statement FROM snowflake_layout_steps() \\gexec\n";
    let said = server.try_restore("postgres", steps).expect_err("a row violates a check");
    assert!(said.contains("snowflake_layout_") && said.contains("is violated by some row"), "{said}");
    // The check has changed nothing, and without that row everything works.
    let mut session = server.connect();
    let checks = "SELECT string_agg(conname || coalesce(' ' || obj_description(oid), ''), ', ' ORDER BY conname)
                  FROM pg_constraint WHERE contype = 'c' AND conrelid = 't'::regclass OR contypid = 'd'::regtype";
    assert_eq!(one::<String>(&mut session, checks), "of_worker_1, since_2024 kept");
    run(&mut session, "DELETE FROM t");
    server.restore("postgres", steps);
    // Triggers took no row over, and are as they were.
    for table in ["guarded", "replicated"] {
        assert!(one::<bool>(&mut session, &format!("SELECT ctid <> '(0,1)' FROM {table}")), "{table}");
    }
    let triggers = "SELECT string_agg(format('%s %s', tgname, tgenabled), ', ' ORDER BY tgrelid, tgname)
                    FROM pg_trigger WHERE tgfoid = 'take_over'::regproc";
    assert_eq!(one::<String>(&mut session, triggers), "take_over A, also O, never D, take_over R");
    assert_eq!(one::<String>(&mut session, checks), "of_worker_1, since_2024 kept");
}

#[test]
fn only_administrators_are_told_the_steps() {
    let database = database();
    run(&mut database.connect(), "CREATE ROLE clerk LOGIN");
    fails(&mut database.connect_as("clerk"), "42501", "SELECT FROM snowflake_layout_steps()");
}

/// Expressions and names of others keep their meaning, whatever search_path the executing session has.
#[test]
fn the_statements_mean_nothing_of_what_others_have_created() {
    let server = Server::builder().start_with_extension();
    run(&mut server.connect(), "CREATE ROLE merchant LOGIN; GRANT ALL ON SCHEMA public TO merchant");
    run(
        &mut server.connect(),
        "CREATE TABLE t (id bigint, customer varchar(10), CHECK (customer = 'Ada' OR snowflake_worker(id) > 0));
         INSERT INTO t VALUES (1 << 12, 'Ada')",
    );
    run(
        &mut server.connect_as("merchant"),
        "CREATE FUNCTION trap(text, text) RETURNS boolean LANGUAGE plpgsql AS
             $$ BEGIN RAISE LOG 'trapped: %', current_user; RETURN true; END $$;
         CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = trap)",
    );
    server.restore(
        "postgres",
        &format!("SET search_path = public, pg_catalog;\n{}", STEPS.replace("ids.", "public.")),
    );
    assert!(!server.log().contains("trapped"), "{}", server.log());
    run(
        &mut server.connect(),
        "SET search_path = public, pg_catalog; SELECT FROM t WHERE customer = 'Ada'::text",
    );
    assert!(server.log().contains("trapped: postgres"), "{}", server.log());
}
