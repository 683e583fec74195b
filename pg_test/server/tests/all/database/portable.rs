//! The generator in PL/pgSQL, on servers without the library: no ID twice under the faults that a server meets, the same
//! functions as the extension's, and rights that keep its state from everybody.

use crate::documents::readers::HOSTILE;
use postgres::Client;
use rand::Rng;
use snowflake_server_tests::ids::{Ids, at_ms, worker};
use snowflake_server_tests::refusals::assert_tells;
use snowflake_server_tests::sql::{Failure, assert_shows, column, fails, next, one, run, take, unpack};
use snowflake_server_tests::traffic::{assert_ordered, ids_of};
use snowflake_server_tests::{
    Builder, Database, Kind, Server, Signal, Stop, Traffic, has_extension, hours, ms, pg_version, read, root,
    secs, skip,
};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The generator of the default layout and worker 0 in the schema snowflake, as it is shipped.
fn shipped() -> String {
    read("portable/snowflake_id.sql")
}

fn plain() -> Builder {
    Server::builder().without_library().setting("search_path", "snowflake, public")
}

fn with_generator(builder: Builder) -> Server {
    let server = builder.start();
    let mut session = server.connect();
    run(&mut session, &format!("BEGIN; {} COMMIT", shipped()));
    server
}

/// A database of the server with the extension that the tests share.
#[track_caller]
fn database() -> Database {
    Database::shared(Server::builder(), "")
}

/// So many IDs, and as many rows with them.
#[track_caller]
fn insert(session: &mut Client, n: i32) -> Vec<i64> {
    let rows = format!(
        "WITH made AS (INSERT INTO rows SELECT snowflake_nextval_batch({n}) RETURNING id)
         SELECT string_agg(int8send(id), ''::bytea) FROM made"
    );
    unpack(&one::<Vec<u8>>(session, &rows))
}

fn generator_sql(of: &Database, arguments: &str) -> String {
    one(&mut of.connect(), &format!("SELECT snowflake_generator_sql({arguments})"))
}

const CLIENTS: [Kind; 4] = [Kind::One, Kind::Batch(700), Kind::One, Kind::Batch(4_096)];

#[test]
fn the_file_is_what_the_function_returns() {
    let database = database();
    let text = generator_sql(&database, "0, 'snowflake', '41/10/12', '1 ms', '2024-01-01 00:00:00Z'");
    if std::env::var_os("PORTABLE_ACCEPT").is_some() {
        return fs::write(root().join("portable/snowflake_id.sql"), text).expect("the file can be written");
    }
    assert_eq!(shipped(), text, "PORTABLE_ACCEPT=1 writes the file anew");
    assert_eq!(shipped(), generator_sql(&database, "0, 'snowflake'"));
    // An extension's schema exists, and a dump has its state only if the text asks for it.
    let text = generator_sql(&database, "0, '@extschema@'");
    let dumped = "SELECT pg_catalog.pg_extension_config_dump('@extschema@.snowflake_state', '');";
    let own = shipped().replace("CREATE SCHEMA IF NOT EXISTS \"snowflake\";\n", "");
    assert_eq!(text.replace(dumped, ""), own.replace("\"snowflake\"", "@extschema@"));
    assert!(text.contains(dumped));
}

#[test]
fn clients_with_cancels_stops_and_savepoints_get_no_id_twice_and_all_ascend() {
    let server = with_generator(plain());
    let mut session = server.connect();
    run(&mut session, "CREATE TABLE rows (id bigint PRIMARY KEY DEFAULT snowflake_nextval())");
    let traffic = Traffic::start(&server, &[CLIENTS, CLIENTS].concat(), Duration::ZERO);
    let mut own = Ids::new();
    let rounds = std::env::var("PORTABLE_ROUNDS").map_or(40, |rounds| rounds.parse().expect("a number"));
    for round in 0..rounds {
        traffic.go_on(1);
        let pids: Vec<i32> = column(
            &mut session,
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        );
        let Some(pid) = pids.get(round % pids.len().max(1)).copied() else { continue };
        match round % 3 {
            0 => run(&mut session, &format!("SELECT pg_cancel_backend({pid})")),
            // Not for long: whoever is stopped in a move keeps its lock.
            1 => {
                server.signal_backend(pid, Signal::SIGSTOP);
                std::thread::sleep(ms(20));
                server.signal_backend(pid, Signal::SIGCONT);
            }
            _ => {
                run(&mut session, "BEGIN; INSERT INTO rows DEFAULT VALUES; SAVEPOINT a");
                own.add("rolled back", vec![next(&mut session)]);
                run(&mut session, "ROLLBACK TO a; INSERT INTO rows DEFAULT VALUES");
                own.add("after it", vec![next(&mut session)]);
                run(&mut session, "COMMIT");
            }
        }
    }
    let calls = traffic.finish();
    assert_ordered(&calls);
    let mut ids = ids_of(&calls);
    ids.add("rows", column(&mut session, "SELECT id FROM rows"));
    for id in own.assert_unique() {
        ids.add("session", vec![id]);
    }
    println!("{} IDs", ids.len());
    assert!(ids.len() > 10_000, "{}", ids.len());
    assert!(ids.assert_unique().iter().all(|id| worker(*id) == 0));
}

#[test]
fn a_crash_repeats_no_id_of_a_committed_transaction() {
    let mut server = with_generator(plain());
    let mut ids = Ids::new();
    for round in 0..4 {
        let mut session = server.connect();
        run(&mut session, "CREATE TABLE IF NOT EXISTS rows (id bigint)");
        // Ahead of the clock, so that the clock alone would not keep the IDs apart.
        ids.add(format!("run {round}"), insert(&mut session, 200_000));
        server.crash();
        server.start();
        ids.add(format!("after crash {round}"), take(&mut server.connect(), 1_000));
    }
    ids.assert_unique();
    ids.assert_each_ascending();
}

#[test]
fn a_clock_that_moves_backwards_repeats_no_id_and_is_told() {
    let server = with_generator(plain().faketime(true));
    let mut session = server.connect();
    let mut ids = Ids::new();
    ids.add("before", take(&mut session, 10_000));
    server.step_back(secs(1));
    // Within max_ahead they go on.
    ids.add("1 s back", take(&mut session, 1_000));
    // The session's last ID is known whatever becomes of its transaction, until it forgets.
    let last = "SELECT snowflake_lastval()";
    run(&mut session, "BEGIN; SAVEPOINT s");
    let newest = next(&mut session);
    for undo in ["ROLLBACK TO s", "ROLLBACK"] {
        run(&mut session, undo);
        assert_eq!(one::<i64>(&mut session, last), newest, "{undo}");
    }
    run(&mut session, "DISCARD ALL");
    fails(&mut session, "55000", last);
    ids.add("rolled back", vec![newest, next(&mut session)]);
    server.step_back(secs(600));
    let ahead = "SELECT ahead_ms FROM snowflake_status";
    let most: i64 = one(&mut session, ahead);
    let failure = fails(&mut session, "55000", "SELECT snowflake_nextval()");
    let behind: i64 = failure.detail.split(' ').find_map(|word| word.parse().ok()).expect("a number");
    assert!((one(&mut session, ahead)..=most + 1).contains(&behind), "{failure}");
    // What a call has left behind that generated no ID is none.
    for call in ["nextval()", "nextval_batch(2)"] {
        fails(&mut session, "55000", &format!("SELECT snowflake_{call}"));
        fails(&mut session, "55000", last);
    }
    assert!(failure.message.contains("system clock moved backwards"), "{failure}");
    assert!(failure.text().contains("Wait until the clock reaches"), "{failure}");
    assert_eq!(one::<String>(&mut session, "SELECT state FROM snowflake_status"), "closed");
    // Refused calls use up counts; the generator outlives more of them than a tick has.
    run(
        &mut session,
        "DO $$ BEGIN FOR i IN 1..3000 LOOP
             BEGIN PERFORM snowflake_nextval(); EXCEPTION WHEN SQLSTATE '55000' THEN NULL; END;
         END LOOP; END $$;
         SELECT setval('snowflake.snowflake_state', ((1::bigint << 22) - 5) << 41 | last_value & ((1::bigint << 41) - 1))
         FROM snowflake.snowflake_state",
    );
    for _ in 0..20 {
        fails(&mut session, "55000", "SELECT snowflake_nextval()");
    }
    server.step_forward(secs(601));
    let after = take(&mut session, 10_000);
    assert_eq!(Some(&one::<i64>(&mut session, last)), after.last());
    ids.add("after", after);
    // It refuses what would take longer than max_wait, unless the clock has come nearer meanwhile.
    let is_refused = (0..10).any(|_| {
        ids.add("once more", vec![next(&mut session)]);
        server.step_back(secs(4));
        session.batch_execute("SELECT snowflake_nextval()").is_err()
    });
    assert!(is_refused, "calls wait for seconds");
    ids.assert_unique();
    ids.assert_each_ascending();
}

#[test]
fn a_promoted_standby_goes_on_above_what_it_has_replayed() {
    let primary = with_generator(plain());
    let standby = primary.standby(|builder| builder);
    let mut session = primary.connect();
    run(&mut session, "CREATE TABLE rows (id bigint)");
    let mut ids = Ids::new();
    ids.add("primary", insert(&mut session, 200_000));
    standby.catch_up_with(&primary);
    let mut reader = standby.connect();
    fails(&mut reader, "25006", "SELECT snowflake_nextval()");
    assert_eq!(one::<String>(&mut reader, "SELECT state FROM snowflake_status"), "recovery");
    assert_eq!(one::<i64>(&mut reader, "SELECT count(snowflake_timestamp(id)) FROM rows"), 200_000);
    drop(session);
    let mut primary = primary;
    primary.stop(Stop::Immediate);
    standby.promote();
    ids.add("successor", take(&mut reader, 10_000));
    ids.assert_unique();
    ids.assert_each_ascending();
}

#[test]
fn a_role_without_rights_inserts_and_cannot_change_the_sequence() {
    let server = plain().start();
    let mut owner = server.connect();
    run(
        &mut owner,
        "CREATE ROLE app LOGIN; CREATE ROLE mallory LOGIN; CREATE SCHEMA snowflake;
         GRANT USAGE ON SCHEMA snowflake, public TO app, mallory, pg_monitor;
         ALTER DEFAULT PRIVILEGES IN SCHEMA snowflake GRANT ALL ON TABLES TO mallory;
         ALTER DEFAULT PRIVILEGES IN SCHEMA snowflake GRANT ALL ON SEQUENCES TO mallory;
         ALTER DEFAULT PRIVILEGES IN SCHEMA snowflake GRANT ALL ON FUNCTIONS TO mallory;
         ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC",
    );
    run(&mut owner, &format!("BEGIN; {} COMMIT", shipped()));
    run(
        &mut owner,
        "CREATE TABLE public.orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), note text);
         GRANT INSERT, SELECT ON public.orders TO app",
    );
    let mut app = server.connect_as("app");
    run(&mut app, "INSERT INTO orders (note) SELECT 'x' FROM generate_series(1, 100)");
    assert!(one::<bool>(&mut app, "SELECT bool_and(snowflake_worker(id) = 0) FROM orders"));
    run(&mut app, "SELECT snowflake_lastval(), snowflake_nextval_batch(5), snowflake_decode(1, 'twitter')");
    run(&mut owner, "SET ROLE pg_monitor; SELECT * FROM snowflake_status; RESET ROLE");
    for role in ["app", "mallory"] {
        let mut session = server.connect_as(role);
        for statement in [
            "SELECT nextval('snowflake.snowflake_state')",
            "SELECT setval('snowflake.snowflake_state', 1)",
            "SELECT snowflake.snowflake_move()",
            "DO $$ BEGIN LOCK TABLE snowflake.snowflake_config IN EXCLUSIVE MODE; END $$",
            "DELETE FROM snowflake.snowflake_config",
        ] {
            fails(&mut session, "42501", statement);
        }
    }
    // What runs with the owner's rights calls nothing by a name that others can take, beside it or on their search_path.
    run(&mut owner, "GRANT CREATE ON SCHEMA public, snowflake TO mallory");
    let mut mallory = server.connect_as("mallory");
    run(&mut mallory, HOSTILE);
    run(
        &mut mallory,
        "CREATE FUNCTION snowflake.snowflake_move(integer) RETURNS bigint LANGUAGE sql AS 'SELECT hostile(1, 1)';
         CREATE FUNCTION snowflake.snowflake_error(varchar, text, text, varchar) RETURNS boolean LANGUAGE sql
             AS 'SELECT hostile(1, 1) IS NULL';
         CREATE DOMAIN pg_temp.text AS varchar CHECK (hostile(1, 1) IS NULL);
         SET search_path = public, pg_catalog, snowflake;
         SELECT snowflake_nextval(), snowflake_lastval(); SELECT pg_catalog.pg_sleep(0.01);
         SELECT snowflake_nextval(), snowflake_nextval_batch(7)",
    );
    let failure = fails(&mut mallory, "22023", "SELECT snowflake_timestamp(-1)");
    assert!(failure.message.contains("-1 is not a snowflake ID"), "{failure}");
}

/// A client that sends its query and then reads nothing: the server blocks as soon as it has sent more than the socket
/// takes.
fn client_that_does_not_read(server: &Server, query: &str) -> UnixStream {
    let mut socket = UnixStream::connect(server.folder().join(".s.PGSQL.5432")).expect("a socket");
    let send = |socket: &mut UnixStream, kind: &[u8], body: &[u8]| {
        let length = (body.len() as i32 + 4).to_be_bytes();
        socket.write_all(&[kind, &length, body].concat()).expect("a message is sent");
    };
    let startup = "user\0postgres\0database\0postgres\0\0";
    send(&mut socket, b"", &[&196_608_i32.to_be_bytes(), startup.as_bytes()].concat());
    loop {
        let mut head = [0; 5];
        socket.read_exact(&mut head).expect("a message");
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        socket.read_exact(&mut vec![0; length as usize - 4]).expect("its body");
        if head[0] == b'Z' {
            break;
        }
    }
    send(&mut socket, b"Q", format!("{query}\0").as_bytes());
    socket
}

/// What a caller's settings have the server send while it holds the lock, it does not send.
#[test]
fn a_client_that_does_not_read_keeps_no_other_from_generating_ids() {
    const MOVES: &str = "SELECT count(snowflake.snowflake_move()) FROM generate_series(1, 20000)";
    let server = with_generator(plain());
    let mut session = server.connect();
    // As its owner, who may call snowflake_move() itself: each call takes the lock.
    run(&mut session, "SET statement_timeout = '5s'");
    let mut faults = Vec::new();
    let mut others_wait = |what: &str| {
        let waits = session.batch_execute("SELECT snowflake_move()").is_err();
        if waits {
            faults.push(what.to_owned());
        }
        waits
    };
    for settings in [
        "SET client_min_messages = debug5",
        "SET client_min_messages = log; SET debug_print_plan = on; SET debug_print_parse = on",
    ] {
        // The socket is full at one of several messages.
        let mut clients = Vec::new();
        for before in 0..6 {
            let before = "DO $$ BEGIN RAISE LOG 'x'; END $$;".repeat(before);
            let query = format!("{settings}; {before} {MOVES}");
            clients.push(client_that_does_not_read(&server, &query));
            std::thread::sleep(ms(300));
            if others_wait(settings) {
                break;
            }
        }
    }
    // An error that ends the session is sent at once. The row before it fills the socket, if it has the right length.
    let mut clients = Vec::new();
    for length in (8..160).map(|step| step * 2_000) {
        let query = format!(
            "SET exit_on_error = on; SELECT repeat('x', {length}); SELECT snowflake.snowflake_move()"
        );
        clients.push(client_that_does_not_read(&server, &query));
        if clients.len() == 20 {
            if others_wait("exit_on_error") {
                break;
            }
            clients.clear();
        }
    }
    drop(clients);
    assert!(faults.is_empty(), "{faults:?}");
}

/// Calls whose moves fail, at a full stack or a full table of locks.
#[test]
fn calls_that_cannot_move_the_tick_do_not_exhaust_the_sequence() {
    // 131,072 counts, which is the fewest that a layout may leave.
    let text = generator_sql(&database(), "1, 'snowflake', '46/5/12'");
    let server = plain()
        .setting("max_stack_depth", "100kB")
        .setting("max_locks_per_transaction", "10")
        .setting("max_connections", "10")
        .start();
    let mut owner = server.connect();
    run(&mut owner, &format!("BEGIN; {text} COMMIT"));
    run(
        &mut owner,
        "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA snowflake TO app; GRANT CREATE ON SCHEMA public TO app",
    );
    let mut app = server.connect_as("app");
    run(
        &mut app,
        "CREATE FUNCTION public.dive(depth integer, calls integer) RETURNS integer LANGUAGE plpgsql AS $$
         DECLARE
             failed integer := 0;
         BEGIN
             IF depth > 0 THEN
                 RETURN public.dive(depth - 1, calls);
             END IF;
             FOR i IN 1..calls LOOP
                 BEGIN
                     PERFORM snowflake.snowflake_nextval();
                 EXCEPTION WHEN statement_too_complex OR out_of_memory THEN
                     failed := failed + 1;
                 END;
             END LOOP;
             RETURN failed;
         END $$",
    );
    let counts = "SELECT last_value >> 46 FROM snowflake.snowflake_state";
    // The depth at which calls count and cannot move.
    let depth = (1..).find(|depth| {
        let before: i64 = one(&mut app, counts);
        let failed: i32 = one(&mut app, &format!("SELECT dive({depth}, 20)"));
        failed == 20 && one::<i64>(&mut app, counts) >= before + 20
    });
    let depth = depth.expect("such a depth");
    // As after a hundred thousand of them: it takes seconds.
    let many = |count: i64| {
        format!("SELECT setval('snowflake.snowflake_state', {count}::bigint << 46 | last_value & (1::bigint << 46) - 1)
                 FROM snowflake.snowflake_state")
    };
    let mut spend = |calls: i32| one::<i32>(&mut app, &format!("SELECT dive({depth}, {calls})"));
    assert_eq!(spend(5_000), 5_000);
    let spent: i64 = one(&mut owner, counts);
    assert!((4_096..4_200).contains(&spent), "{spent} counts");
    run(&mut owner, &many(131_000));
    assert_eq!(spend(200), 200);
    assert!(next(&mut owner) > 0);
    // The same where no lock is free.
    run(
        &mut app,
        "DO $$ BEGIN FOR i IN 1..100000 LOOP PERFORM pg_advisory_lock(i); END LOOP;
         EXCEPTION WHEN out_of_memory THEN NULL; END $$",
    );
    run(&mut owner, "SELECT pg_sleep(0.01)");
    assert_eq!(one::<i32>(&mut app, "SELECT dive(1, 5000)"), 5_000);
    let spent: i64 = one(&mut owner, counts);
    assert!((4_096..4_200).contains(&spent), "{spent} counts");
    run(&mut app, "SELECT pg_advisory_unlock_all()");
    assert!(next(&mut app) > 0);
}

/// Those who may create objects in a schema on the search_path of whoever installs the generator.
#[test]
fn its_installation_calls_nothing_of_others() {
    let server = plain().setting("search_path", "public").start();
    let mut owner = server.connect();
    run(&mut owner, "CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory");
    run(
        &mut server.connect_as("mallory"),
        "CREATE FUNCTION trap(oid, regnamespace) RETURNS boolean LANGUAGE plpgsql AS
             $$ BEGIN RAISE LOG 'trapped %', current_user; RETURN true; END $$;
         CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = regnamespace, FUNCTION = trap)",
    );
    run(&mut owner, &format!("BEGIN; {}", shipped()));
    assert_shows(&mut owner, "search_path", "public");
    run(&mut owner, "COMMIT; SELECT snowflake.snowflake_nextval()");
    assert!(!server.log().contains("trapped"), "{}", server.log());
    run(&mut owner, "SELECT 1::oid = 'public'::regnamespace");
    assert!(server.log().contains("trapped postgres"), "it would have been noticed");
}

/// One object of each kind that a schema has, under a name that the text uses.
#[test]
fn nothing_of_another_role_becomes_a_part_of_the_generator() {
    const PLANTED: &[&str] = &[
        "FUNCTION snowflake.snowflake_error(text, text, text, text, anyelement) RETURNS anyelement LANGUAGE sql AS 'SELECT $5'",
        "PROCEDURE snowflake.snowflake_move() LANGUAGE sql AS 'SELECT 1'",
        "AGGREGATE snowflake.snowflake_min(bigint) (SFUNC = int8larger, STYPE = bigint)",
        "DOMAIN snowflake.snowflake_parts AS text",
        "TYPE snowflake.snowflake_parts AS (created_at timestamptz, datacenter_id integer, worker_id integer, sequence integer)",
        "TYPE snowflake.snowflake_parts AS ENUM ('a')",
        "TYPE snowflake.snowflake_parts AS RANGE (SUBTYPE = bigint)",
        "TABLE snowflake.snowflake_config (layout text, tick_ms integer, epoch timestamptz)",
        "SEQUENCE snowflake.snowflake_state",
        "VIEW snowflake.snowflake_status AS SELECT 1 AS one",
        "VIEW snowflake.snowflake_layouts AS SELECT 1 AS one",
        "MATERIALIZED VIEW snowflake.snowflake_status AS SELECT 1 AS one",
    ];
    let server = plain().start();
    let mut owner = server.connect();
    run(&mut owner, "CREATE ROLE mallory LOGIN; CREATE ROLE app LOGIN; CREATE SCHEMA snowflake");
    run(
        &mut owner,
        "GRANT USAGE ON SCHEMA snowflake TO mallory, app; GRANT CREATE ON SCHEMA snowflake TO app",
    );
    let text = shipped().replace("CREATE SCHEMA IF NOT EXISTS \"snowflake\";", "");
    let mut app = server.connect_as("app");
    for planted in PLANTED {
        run(
            &mut owner,
            &format!(
                "GRANT CREATE ON SCHEMA snowflake TO mallory; SET ROLE mallory; CREATE {planted}; RESET ROLE;
                 REVOKE CREATE ON SCHEMA snowflake FROM mallory"
            ),
        );
        // Not of a superuser's generator either.
        for session in [&mut app, &mut owner] {
            let failure = fails(session, "42501", &text);
            // The functions of a range belong to the superuser that initialized the cluster.
            assert!(failure.message.contains("among objects of another role"), "{planted}: {failure}");
            assert!(failure.detail.contains(" belongs to role "), "{planted}: {failure}");
        }
        run(&mut owner, "DROP OWNED BY mallory");
    }
    run(&mut app, &format!("BEGIN; {text} COMMIT"));
}

/// Who owns the schema can put another one in its place, and the generator calls its functions with its owner's rights.
#[test]
fn its_schema_belongs_to_nobody_who_could_not_act_as_its_owner_anyway() {
    let server = plain().start();
    let mut owner = server.connect();
    run(
        &mut owner,
        "CREATE ROLE mallory LOGIN; CREATE ROLE app LOGIN; CREATE SCHEMA snowflake AUTHORIZATION mallory;
         ALTER DATABASE postgres OWNER TO mallory",
    );
    let existing = shipped().replace("CREATE SCHEMA IF NOT EXISTS \"snowflake\";", "");
    let mut app = server.connect_as("app");
    // The schema has a list of rights only after the first grant.
    for session in [&mut server.connect(), &mut app] {
        let failure = fails(session, "42501", &existing);
        assert!(failure.text().contains("Schema snowflake belongs to role mallory"), "{failure}");
        run(&mut owner, "GRANT CREATE, USAGE ON SCHEMA snowflake TO app");
    }
    // The owner of the database owns it.
    let failure = fails(&mut owner, "42501", &shipped().replace("\"snowflake\"", "\"public\""));
    assert!(failure.text().contains("Schema public belongs to role mallory"), "{failure}");
    run(&mut owner, "REVOKE CREATE ON SCHEMA snowflake FROM app");
    run(&mut server.connect_as("mallory"), &format!("BEGIN; {} ROLLBACK", shipped()));
    run(&mut owner, "ALTER SCHEMA snowflake OWNER TO postgres; GRANT CREATE ON SCHEMA snowflake TO app");
    // Another role could create them after the text has looked for objects of others.
    for (role, whose) in [("mallory", "Role mallory"), ("PUBLIC", "PUBLIC")] {
        run(&mut owner, &format!("GRANT CREATE ON SCHEMA snowflake TO {role}"));
        let failure = fails(&mut app, "42501", &existing);
        let detail = format!("{whose} may create objects in schema snowflake");
        assert!(failure.text().contains(&detail), "{failure}");
        run(&mut owner, &format!("REVOKE CREATE ON SCHEMA snowflake FROM {role}"));
    }
    run(&mut app, &format!("BEGIN; {existing} COMMIT"));
}

/// PostgreSQL may keep the rows of a set-returning function for equal arguments.
#[test]
fn a_batch_for_each_row_of_a_table_returns_other_ids() {
    let server = with_generator(plain());
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE TABLE lines (qty integer); INSERT INTO lines SELECT n % 5 + 1 FROM generate_series(1, 20000) AS n;
         ANALYZE lines",
    );
    let row = session
        .query_one(
            "SELECT count(*), count(DISTINCT id) FROM lines AS l, LATERAL snowflake_nextval_batch(l.qty) AS id",
            &[],
        )
        .expect("the counts");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (60_000, 60_000));
    assert!(column::<i64>(&mut session, "SELECT snowflake_nextval_batch(0)").is_empty());
    assert!(column::<i64>(&mut session, "SELECT snowflake_nextval_batch(NULL)").is_empty());
    let failure = fails(&mut session, "22023", "SELECT snowflake_nextval_batch(-2)");
    assert!(failure.detail.contains("n is -2"), "{failure}");
}

#[test]
fn its_status_agrees_with_the_clock_and_the_last_id() {
    let server = with_generator(plain().faketime(true));
    let mut session = server.connect();
    // The extension's columns of the same names have the same types.
    let library = database();
    let columns = |session: &mut Client, schema: &str| -> Vec<String> {
        column(
            session,
            &format!(
                "SELECT attname || ' ' || atttypid::regtype FROM pg_attribute
                 WHERE attrelid = '{schema}.snowflake_status'::regclass AND attnum > 0"
            ),
        )
    };
    let all = columns(&mut library.connect(), "public");
    assert!(columns(&mut session, "snowflake").iter().all(|column| all.contains(column)), "{all:?}");

    let status = |session: &mut Client| -> (String, Option<i64>, i64) {
        let row = session
            .query_one("SELECT state, (extract(epoch FROM last_id_at) * 1000)::bigint, ahead_ms FROM snowflake_status", &[])
            .expect("the status");
        (row.get(0), row.get(1), row.get(2))
    };
    assert_eq!(status(&mut session), ("open".to_owned(), None, 0), "before the first ID");
    let id = next(&mut session);
    assert_eq!(status(&mut session).1, Some(at_ms(id)));
    server.step_forward(hours(1));
    assert_eq!(status(&mut session), ("open".to_owned(), Some(at_ms(id)), 0), "idle for an hour");
    server.step_back(hours(1));
    server.step_back(secs(1));
    let (state, _, ahead) = status(&mut session);
    assert!(state == "open" && (0..=1_000).contains(&ahead), "{state} {ahead}");
    server.step_back(hours(1));
    let (state, _, ahead) = status(&mut session);
    assert!(state == "closed" && ahead > 3_500_000, "{state} {ahead}");
}

#[test]
fn outside_the_time_of_its_layout_it_generates_no_id() {
    let server = plain().start();
    let mut session = server.connect();
    for (layout, words) in [
        ("'41/10/12', '1 ms', '2100-01-01Z'", "system clock is before the epoch"),
        ("'30/10/12', '1 ms', '2020-01-01Z'", "Layout 30/10/12 ends before 2020-01-13"),
    ] {
        let text = generator_sql(&database(), &format!("0, 'snowflake', {layout}"));
        run(&mut session, &format!("DROP SCHEMA IF EXISTS snowflake CASCADE; BEGIN; {text} COMMIT"));
        assert_tells(&fails(&mut session, "55000", "SELECT snowflake_nextval()"), &[words]);
    }
}

#[test]
fn made_anew_it_keeps_its_state_and_refuses_another_layout() {
    let source = database();
    let server = with_generator(plain());
    let mut session = server.connect();
    let mut ids = Ids::new();
    ids.add("worker 0", take(&mut session, 300_000));
    run(&mut session, &format!("BEGIN; {} COMMIT", generator_sql(&source, "1023, 'snowflake'")));
    let of_other = take(&mut session, 10);
    assert!(of_other.iter().all(|id| worker(*id) == 1_023));
    assert!(at_ms(of_other[0]) >= at_ms(*ids.assert_unique().last().expect("some")), "the state was kept");
    run(&mut session, &format!("BEGIN; {} COMMIT", generator_sql(&source, "0, 'snowflake'")));
    ids.add("worker 0 again", take(&mut session, 1_000));
    ids.assert_unique();
    for other in ["'42/9/12'", "'41/10/12', '10 ms'", "'41/10/12', '1 ms', '2025-01-01 00:00Z'"] {
        let text = generator_sql(&source, &format!("0, 'snowflake', {other}"));
        let failure = fails(&mut session, "55000", &text);
        assert!(failure.message.contains("has another layout"), "{failure}");
        assert!(failure.detail.starts_with("It generates 41/10/12 1ms 2024-01-01"), "{failure}");
    }
    assert_eq!(one::<i64>(&mut session, "SELECT count(*) FROM snowflake_config"), 1);
}

#[test]
fn what_cannot_be_a_generator_is_refused_with_the_reason() {
    let database = database();
    let mut session = database.connect();
    for (arguments, reason) in [
        ("-1", "worker must be between 0 and 1023"),
        ("1024", "worker must be between 0 and 1023"),
        ("0, 'x', 'nonsense'", "invalid layout"),
        ("0, 'x', '41/10/12', '2 ms'", "1ms, 10ms or 1s"),
        ("0, 'x', '41/10/12', '1500 us'", "1ms, 10ms or 1s"),
        ("0, 'x', '41/10/12', '1 day 1 ms'", "1ms, 10ms or 1s"),
        ("0, 'x', '41/10/12', '1 month 1 ms'", "1ms, 10ms or 1s"),
        ("0, 'x', '41/0/22'", "invalid layout"),
        ("0, 'x', '47/4/12'", "The count has 16 bits, and must exceed the 4096 IDs"),
    ] {
        let failure = fails(&mut session, "22023", &format!("SELECT snowflake_generator_sql({arguments})"));
        assert!(failure.text().contains(reason), "{arguments}: {failure}");
    }
    assert!(generator_sql(&database, "1, 'x', '41/1/12'").contains("OPERATOR(pg_catalog.%) 2 "));
    assert_eq!(one::<Option<String>>(&mut session, "SELECT snowflake_generator_sql(NULL)"), None);
    assert!(generator_sql(&database, "0").contains("\"public\".snowflake_nextval()"));
}

/// Layouts of other systems: known ones, and written ones at and beyond the ends of what can be read.
fn foreign() -> Vec<String> {
    let texts = "twitter,mastodon,sonyflake,Instagram ,39/s8/w16 10ms 2014-09-01,nothing,41/10/12 1ms,\
        41/5+5/12 1ms 2020-01-01T01:00:00+01:00,41/s12/w5+5 1ms 2023-01-01,41/10/12 1ms 2020-01-01 01:00:00.25-0330,\
        0/10/12 1ms 2020-01-01,41/11/12 1ms 2020-01-01,41/11/13 1ms 2020-01-01,20/12/31 1ms 2020-01-01,\
        20/10/32 1ms 2020-01-01,20/32/8 1ms 2020-01-01,20/32+1/8 1ms 2020-01-01,52/1/1 1ms 2020-01-01,\
        53/1/1 1ms 2020-01-01,53/5/6 1ms 2020-01-01,48/1/1 10ms 2020-01-01,49/1/1 10ms 2020-01-01,\
        42/1/1 1s 2020-01-01,43/1/1 1s 2020-01-01";
    let long = [100, 101].map(|length| format!("{:length$}", "41/10/12 1ms 2020-01-01"));
    texts.split(',').map(str::to_owned).chain(long).collect()
}

/// Layout, tick and epoch in settings and as arguments.
const LAYOUTS: &[(&str, &str, &str)] = &[
    ("41/10/12", "1ms", "2024-01-01T00:00:00Z"),
    ("41/5+5/12", "1ms", "2024-01-01T00:00:00Z"),
    ("39/16/8", "10ms", "2014-09-01T00:00:00.123456Z"),
    ("28/22/13", "1s", "2024-05-20T00:00:00Z"),
    ("31/16/10", "1s", "1969-07-20T20:17:40.5Z"),
];

/// The outcome of an expression: its value, or its error, without the words that the two have for a layout.
fn outcome(session: &mut Client, expression: &str) -> String {
    match session.query_one(&format!("SELECT ROW({expression})::text"), &[]) {
        Ok(row) => row.get(0),
        Err(error) => match Failure::from(&error) {
            it if it.code == "22008" || it.message.starts_with("invalid layout") => it.code,
            it => format!("{} {} {}", it.code, it.detail, it.hint),
        },
    }
}

/// A value of an argument: of a number that may be an ID, times around it and beyond all IDs.
fn argument(name: &str, type_: &str, id: i64, random: &mut impl Rng) -> String {
    match (name, type_) {
        ("layout", _) => format!("'{}'", foreign()[random.random_range(0..8)]),
        (_, "bigint") => format!("'{id}'::bigint"),
        (_, "integer") => (id >> random.random_range(0..60)).clamp(-5, 5_000).to_string(),
        (_, "timestamp with time zone") => match random.random_range(0..10) {
            0 => "NULL".to_owned(),
            1 => "'infinity'".to_owned(),
            2 => "'-infinity'".to_owned(),
            _ => format!("(timestamptz 'epoch' + {} * interval '1 s')", id >> 30),
        },
        _ => panic!("no value for {name} {type_}"),
    }
}

/// A name can end the quotation of a literal or a body.
#[test]
fn its_schema_may_have_any_name() {
    let database = database();
    let portable = plain().start();
    for name in ["it's \"mine\" {presets}", "a$$b", "$do$; {presets}", "{s}; {s_literal} {schema_name}"] {
        let mut session = portable.connect();
        if pg_version() < 19 {
            run(&mut session, "SET standard_conforming_strings = off");
        }
        let literal = name.replace('\'', "''");
        run(&mut session, &format!("BEGIN; {} COMMIT", generator_sql(&database, &format!("3, '{literal}'"))));
        run(&mut session, &format!("SET search_path = \"{}\"", name.replace('"', "\"\"")));
        let id = next(&mut session);
        let same = "snowflake_timestamp(id) = snowflake_timestamp(snowflake_min(snowflake_timestamp(id)))
                    AND (snowflake_decode(id, 'twitter')).worker_id = 3 AND (snowflake_decode(id)).worker_id = 3";
        assert!(
            one::<bool>(&mut session, &format!("SELECT {same} FROM (VALUES ({id}::bigint)) AS v (id)")),
            "{name}"
        );
    }
}

/// The text has the bytes that the database has for the name, not how messages show it.
#[test]
fn its_schema_may_have_any_name_of_any_encoding() {
    let server = Server::builder().start_with_extension();
    let mut control = server.connect();
    for (encoding, name) in [("LATIN1", "gén"), ("EUC_JP", "g表"), ("SQL_ASCII", "gén表"), ("UTF8", "g表")]
    {
        let database = encoding.to_lowercase();
        run(
            &mut control,
            &format!(
                "CREATE DATABASE {database} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
            ),
        );
        let mut session = server.config().dbname(&database).connect(postgres::NoTls).expect("a session");
        run(
            &mut session,
            &format!("CREATE SCHEMA \"{name}\"; CREATE EXTENSION snowflake_id SCHEMA \"{name}\""),
        );
        // By name, and as the schema in which the function stands.
        let given: String =
            one(&mut session, &format!("SELECT \"{name}\".snowflake_generator_sql(1, '{name}')"));
        let own: String = one(&mut session, &format!("SELECT \"{name}\".snowflake_generator_sql(1)"));
        assert_eq!(given, own, "{encoding}");
        run(&mut session, &format!("DROP SCHEMA \"{name}\" CASCADE; BEGIN; {given} COMMIT"));
        let schemas: Vec<String> = column(
            &mut session,
            "SELECT nspname::text FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
             WHERE c.relname = 'snowflake_state'",
        );
        assert_eq!(schemas, [name], "{encoding}");
        assert!(one::<i64>(&mut session, &format!("SELECT \"{name}\".snowflake_nextval()")) > 0);
    }
}

#[test]
fn its_functions_return_what_the_extensions_functions_return() {
    let portable = plain().setting("search_path", "\"my schema\", public").start();
    let by_default = database();
    let mut random = rand::rng();
    for &(bits, tick, epoch) in LAYOUTS {
        let server = Database::from(
            Server::builder()
                .setting("snowflake_id.layout", bits)
                .setting("snowflake_id.tick", tick)
                .setting("snowflake_id.epoch", epoch)
                .setting("snowflake_id.worker_id", "3")
                .setting("snowflake_id.datacenter_id", if bits.contains('+') { "19" } else { "0" })
                .start_with_extension(),
        );
        let mut own = server.connect();
        let mut other = portable.connect();
        run(&mut other, "DROP SCHEMA IF EXISTS \"my schema\" CASCADE");
        let text = generator_sql(&server, "3, 'my schema'");
        if !bits.contains('+') {
            let arguments = format!("3, 'my schema', '{bits}', '{tick}', '{epoch}'");
            assert_eq!(generator_sql(&by_default, &arguments), text, "{bits}");
        }
        run(&mut other, &format!("SET statement_timeout = '60s'; BEGIN; {text} COMMIT"));
        // The tick of the clock, at whatever moment within it.
        let times = format!(
            "SELECT bool_and(snowflake_timestamp(id) BETWEEN before - interval '{tick}' AND clock_timestamp())
             FROM (SELECT pg_sleep(0.02 * random()), clock_timestamp() AS before, snowflake_nextval() AS id
                   FROM generate_series(1, 40) OFFSET 0) AS calls"
        );
        assert!(one::<bool>(&mut other, &times), "{bits}");
        let of_portable = next(&mut other);
        let of_library = next(&mut own);
        assert_eq!(
            outcome(
                &mut own,
                &format!("snowflake_worker({of_portable}), snowflake_datacenter({of_portable})")
            ),
            outcome(&mut own, &format!("snowflake_worker({of_library}), snowflake_datacenter({of_library})")),
        );
        let mut ids: Vec<i64> = vec![-1, 0, 1, of_portable, of_library, i64::MAX, i64::MIN];
        ids.extend((0..40).map(|_| random.random::<i64>() >> random.random_range(1..60)));
        // Each function that reads or composes IDs, so each that could return something else.
        let readers = other
            .query(
                "SELECT proname::text, proargnames, proargtypes::regtype[]::text[] FROM pg_proc
                 WHERE pronamespace = '\"my schema\"'::regnamespace AND provolatile <> 'v'
                     AND obj_description(oid) NOT LIKE 'internal%'",
                &[],
            )
            .expect("the functions");
        assert!(readers.len() >= 12, "{}", readers.len());
        let mut expressions = Vec::new();
        for reader in &readers {
            let name: String = reader.get(0);
            let arguments: Vec<(String, String)> =
                reader.get::<_, Vec<String>>(1).into_iter().zip(reader.get::<_, Vec<String>>(2)).collect();
            let nulls: Vec<String> = arguments.iter().map(|(_, type_)| format!("NULL::{type_}")).collect();
            // A row of nulls, as an inlined function returns it, is null.
            expressions.push(format!("{name}({}) IS NULL", nulls.join(", ")));
            for id in &ids {
                let given: Vec<String> =
                    arguments.iter().map(|(name, type_)| argument(name, type_, *id, &mut random)).collect();
                expressions.push(format!("{name}({})", given.join(", ")));
            }
        }
        for bits in 0..24 {
            for n in [(1_i64 << bits) - 1, 1 << bits] {
                expressions.extend([(n, 0), (0, n), (-n, 0), (0, -n)].map(|(worker, sequence)| {
                    format!("snowflake_encode('2025-01-01 00:00:00.5Z', {worker}, {sequence})")
                }));
            }
        }
        for layout in foreign() {
            expressions.extend(ids.iter().take(20).map(|id| format!("snowflake_decode({id}, '{layout}')")));
        }
        for expression in &expressions {
            let (real, here) = (outcome(&mut own, expression), outcome(&mut other, expression));
            assert_eq!(here, real, "{bits} {tick}: {expression}");
        }
        let presets = "SELECT ROW(l.*)::text FROM snowflake_layouts l";
        assert_eq!(column::<String>(&mut other, presets), column::<String>(&mut own, presets));
        let status = "SELECT ROW(worker_id, epoch, expires_at)::text FROM snowflake_status";
        assert_eq!(one::<String>(&mut other, status), one::<String>(&mut own, status), "{bits}");
        // Of ticks of a second, the last ones lie further ahead than IDs may.
        let count = "SELECT count(DISTINCT id) FROM snowflake_nextval_batch(4000) AS id";
        assert_eq!(one::<i64>(&mut other, count), 4_000);
        // Each function that users call has the extension's arguments, results and a comment.
        let signatures = |session: &mut Client, schema: &str| -> Vec<String> {
            column(
                session,
                &format!(
                    "SELECT provolatile::text || translate(proparallel::text, 'u', 'r') || proname || '(' || pg_get_function_arguments(oid) || ') '
                         || replace(pg_get_function_result(oid), '\"my schema\".', '')
                     FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace
                         AND obj_description(oid) NOT LIKE 'internal%'"
                ),
            )
        };
        let (all, here) = (signatures(&mut own, "public"), signatures(&mut other, "\"my schema\""));
        let missing: Vec<&String> = here.iter().filter(|function| !all.contains(function)).collect();
        assert!(missing.is_empty() && here.len() >= 15, "{missing:?} are none of the extension's");
    }
}

#[test]
fn a_table_moves_to_the_library_and_back() {
    let source = with_generator(plain());
    let mut session = source.connect();
    run(
        &mut session,
        "CREATE TABLE public.orders (id bigint PRIMARY KEY DEFAULT snowflake.snowflake_nextval(), note text);
         INSERT INTO public.orders (note) SELECT 'x' FROM generate_series(1, 1000)",
    );
    let newest: i64 = one(&mut session, "SELECT max(id) FROM orders");

    // To a server with the library, and another worker: no floor is needed.
    let target = Server::builder().setting("snowflake_id.worker_id", "1").start();
    let dump = source.dump("postgres", &["--exclude-schema=snowflake"]);
    target.restore(
        "postgres",
        &format!("CREATE SCHEMA snowflake; CREATE EXTENSION snowflake_id SCHEMA snowflake; {dump}"),
    );
    let mut session = target.connect();
    run(&mut session, "INSERT INTO orders (note) SELECT 'y' FROM generate_series(1, 1000)");
    let rows = "SELECT count(*) FROM orders WHERE snowflake.snowflake_worker(id) = 1 AND note = 'y'";
    assert_eq!(one::<i64>(&mut session, rows), 1_000);
    assert!(one::<i64>(&mut session, "SELECT max(id) FROM orders") > newest);

    // And back, as the manual has it: the generator first, then the whole dump without what is the extension's.
    let back = plain().setting("search_path", "public").start();
    run(&mut back.connect(), &format!("BEGIN; {} COMMIT", shipped()));
    restore_without_extension(&target, &back, "postgres");
    let mut session = back.connect();
    run(&mut session, "INSERT INTO orders (note) VALUES ('z')");
    assert_eq!(one::<i64>(&mut session, "SELECT count(*) FROM orders"), 2_001);
}

/// A line of the manual's page that begins so.
fn recipe(start: &str) -> &'static str {
    let page = include_str!("../../../../../docs/portable.md");
    page.lines().find(|line| line.starts_with(start)).expect("a recipe")
}

/// Restores what a server's database `postgres` has into a database with a generator, as the manual has it.
fn restore_without_extension(from: &Server, to: &Server, database: &str) {
    let dump = from.folder().join("dump").to_string_lossy().into_owned();
    from.tool("pg_dump", &["-Fc", "-f", &dump]);
    let filter = recipe("pg_restore -l prod.dump | grep -v ");
    let left_out: Vec<&str> = filter.split('\'').skip(1).step_by(2).collect();
    let entries = from.tool("pg_restore", &["-l", &dump]);
    let kept = entries.lines().filter(|entry| !left_out.iter().any(|words| entry.contains(words)));
    let list = from.folder().join("list");
    fs::write(&list, kept.map(|entry| format!("{entry}\n")).collect::<String>()).expect("a list");
    to.tool("pg_restore", &["--exit-on-error", "-L", &list.to_string_lossy(), "-d", database, &dump]);
}

/// The manual's, on servers that have the library, only its files, or neither.
#[test]
fn the_migration_for_both_takes_the_library_where_it_is_loaded() {
    let page = include_str!("../../../../../docs/portable.md");
    let (_, migration) = page.split_once("DO $migration$").expect("the migration");
    let (migration, _) = migration.split_once("```").expect("its end");
    let (before, rest) = migration.split_once("$file$").expect("the text's place");
    let (_, after) = rest.split_once("$file$").expect("its end");
    let text = shipped().replace("\"snowflake\"", "\"public\"");
    let migration = format!("DO $migration$ {before} $file${text}$file$ {after}");
    for (server, has_extension) in [
        (Server::builder().start(), true),
        (Server::builder().without("shared_preload_libraries").start(), false),
        (Server::builder().without_library().start(), false),
    ] {
        let mut session = server.connect();
        for _ in 1..=2 {
            run(&mut session, &migration);
            let found = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'snowflake_id')";
            assert_eq!(one::<bool>(&mut session, found), has_extension);
            assert!(next(&mut session) > 0);
        }
    }
}

/// As on a laptop that reaches no production server, whose extension is in the schema public. Django creates its test
/// databases from template1.
#[test]
fn a_template_with_the_file_in_public_takes_a_dump_with_the_extension() {
    let production = Server::builder().start_with_extension();
    run(
        &mut production.connect(),
        "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(),
             created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED);
         CREATE INDEX ON orders (snowflake_timestamp(id));
         INSERT INTO orders SELECT FROM generate_series(1, 1000)",
    );

    let laptop = Server::builder().without_library().start();
    let parts: Vec<&str> = recipe("sed -e 's/\"snowflake\"/").split(['\'', '/']).collect();
    let (before, after) = (parts[2], parts[3]);
    let text = shipped().replace(before, after);
    run(
        &mut laptop.config().dbname("template1").connect(postgres::NoTls).expect("the template"),
        &format!("CREATE ROLE django LOGIN CREATEDB; BEGIN; {text} COMMIT"),
    );
    run(&mut laptop.connect_as("django"), "CREATE DATABASE test_app");
    run(&mut laptop.connect(), "CREATE DATABASE copy");
    restore_without_extension(&production, &laptop, "copy");
    let mut session = laptop.config().dbname("copy").connect(postgres::NoTls).expect("the copy");
    run(&mut session, "INSERT INTO orders DEFAULT VALUES");
    let rows = "SELECT count(*) FROM orders WHERE created_at = snowflake_timestamp(id)";
    assert_eq!(one::<i64>(&mut session, rows), 1_001);
    let mut test = laptop.config().dbname("test_app").user("django").connect(postgres::NoTls).expect("it");
    run(&mut test, "CREATE SCHEMA app; CREATE TABLE app.t (id bigint DEFAULT snowflake_nextval())");
    run(&mut test, "INSERT INTO app.t VALUES (DEFAULT)");
}

#[test]
fn a_dump_carries_its_state() {
    let source = with_generator(plain());
    let mut ids = Ids::new();
    let mut reader = source.connect();
    ids.add("source", take(&mut reader, 400_000));
    let dump = source.dump("postgres", &[]);
    let other = plain().start();
    other.restore("postgres", &dump);
    ids.add("restored", take(&mut other.connect(), 10_000));
    ids.assert_unique();
    // It generates while pg_dump reads.
    run(&mut reader, "BEGIN; SELECT FROM snowflake_config");
    run(&mut source.connect(), "SET statement_timeout = '60s'; SELECT snowflake_move()");
    // Of its data alone, by a role without rights; then it is made anew.
    run(&mut source.connect(), "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA snowflake TO app");
    let data = source.dump("postgres", &["--username=app", "--data-only"]);
    other.restore("postgres", &data);
    run(&mut other.connect(), &format!("BEGIN; {} COMMIT", shipped()));
}

/// Under a name of its own, because a server that has the files of `snowflake_id` installs no other extension as that.
#[test]
fn as_a_trusted_language_extension_it_is_installed_upgraded_and_dumped() {
    if !has_extension("pg_tle") {
        return skip("pg_tle");
    }
    let text = |worker: u32| -> String { generator_sql(&database(), &format!("{worker}, '@extschema@'")) };
    let with_pg_tle = || plain().setting("shared_preload_libraries", "pg_tle");
    let install = |server: &Server, text: &str| {
        run(
            &mut server.connect(),
            "CREATE ROLE app LOGIN; CREATE EXTENSION pg_tle; GRANT pgtle_admin TO app",
        );
        run(&mut server.connect(), "GRANT CREATE ON DATABASE postgres TO app");
        let mut app = server.connect_as("app");
        app.execute("SELECT pgtle.install_extension('portable', '1.0', 'snowflake IDs', $1)", &[&text])
            .expect("pg_tle takes it");
    };
    let server = with_pg_tle().start();
    install(&server, &text(7));
    // Whoever restores the dump creates it, so it is in no schema of the role.
    run(&mut server.connect(), "CREATE SCHEMA snowflake; GRANT CREATE, USAGE ON SCHEMA snowflake TO app");
    let mut app = server.connect_as("app");
    run(&mut app, "CREATE EXTENSION portable SCHEMA snowflake");
    let mut ids = Ids::new();
    ids.add("worker 7", take(&mut app, 300_000));
    // A later version of the text, here with another worker.
    app.execute("SELECT pgtle.install_update_path('portable', '1.0', '1.1', $1)", &[&text(8)])
        .expect("a path");
    run(&mut app, "ALTER EXTENSION portable UPDATE TO '1.1'");
    assert_eq!(worker(next(&mut app)), 8);
    app.execute("SELECT pgtle.install_update_path('portable', '1.1', '1.2', $1)", &[&text(7)])
        .expect("a path");
    run(&mut app, "ALTER EXTENSION portable UPDATE TO '1.2'");
    ids.add("worker 7 again", take(&mut app, 100_000));
    // The text is part of the dump, and so are worker and state.
    let dump = server.dump("postgres", &[]);
    let other = with_pg_tle().start();
    run(&mut other.connect(), "CREATE ROLE app LOGIN");
    other.restore("postgres", &dump);
    ids.add("restored", take(&mut other.connect(), 1_000));
    assert!(ids.assert_unique().iter().all(|id| worker(*id) == 7));
}
