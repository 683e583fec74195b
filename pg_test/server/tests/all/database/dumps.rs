//! A dump records what its IDs mean: on a server with another layout, the restored database is closed.

use postgres::Client;
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::{column, fails, one, run};

fn server() -> Server {
    Server::builder().start_with_extension()
}

/// The dump of a database with IDs, and one of its IDs with its time.
fn dump(server: &Server) -> (String, i64, String) {
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), customer text)",
    );
    run(&mut session, "INSERT INTO orders (customer) VALUES ('Ada'), ('Grace')");
    let id: i64 = one(&mut session, "SELECT min(id) FROM orders");
    let at: String = one(&mut session, &format!("SELECT snowflake_timestamp({id})::text"));
    (server.dump("postgres", &[]), id, at)
}

const CONFIG: &str = "SELECT layout || ' ' || tick_ms || ' ' || (epoch AT TIME ZONE 'UTC') FROM snowflake_internal.snowflake_config";

#[test]
fn a_dump_is_restored_by_a_server_with_its_layout_and_goes_on() {
    let (dump, id, at) = dump(&server());
    let other = Server::builder().setting("snowflake_id.worker_id", "2").start();
    other.restore("postgres", &dump);
    let mut session = other.connect();
    assert_eq!(column::<String>(&mut session, CONFIG), ["41/10/12 1 2024-01-01 00:00:00"]);
    assert_eq!(one::<String>(&mut session, &format!("SELECT snowflake_timestamp({id})::text")), at);
    run(&mut session, "INSERT INTO orders (customer) VALUES ('Edsger')");
    assert_eq!(one::<i64>(&mut session, "SELECT count(*) FROM orders"), 3);
    // Also of the restored database.
    assert_eq!(other.dump("postgres", &[]).matches("41/10/12\t1\t2024-01-01").count(), 2);
    assert_eq!(
        other.dump("postgres", &["--inserts"]).matches("VALUES ('41/10/12', 1, '2024-01-01").count(),
        2
    );
    assert_eq!(
        one::<i64>(&mut session, "SELECT count(*) FROM snowflake_internal.snowflake_config_dumped"),
        0
    );
}

/// The dump's row closes the database, whether or not the restore goes on after the error.
#[test]
fn where_a_server_has_another_layout_tick_or_epoch_the_restored_database_is_closed() {
    let (dump, id, at) = dump(&server());
    let others = [
        ("snowflake_id.layout", "40/10/13", "41/10/12"),
        ("snowflake_id.tick", "10ms", "1ms"),
        ("snowflake_id.epoch", "2025-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
    ];
    for (setting, other, dumps) in others {
        let mut server = Server::builder().setting(setting, other).start();
        let said = server.try_restore("postgres", &dump).expect_err("an error");
        assert!(said.contains("ERROR:  the dump's snowflake layout differs from this server's"), "{said}");
        assert!(said.contains("The dump has 41/10/12 1ms 2024-01-01 00:00:00+00;"), "{said}");
        assert!(
            said.contains("HINT:  Set snowflake_id.layout, tick and epoch to the dump's layout"),
            "{said}"
        );
        assert_eq!(said.matches("ERROR").count(), 1, "{said}");
        for _ in 0..2 {
            let mut session = server.connect();
            let read = format!("SELECT snowflake_timestamp({id})");
            for statement in ["INSERT INTO orders (customer) VALUES ('Edsger')", &read] {
                let failure = fails(&mut session, "55000", statement);
                assert!(failure.text().contains("41/10/12 1ms 2024-01-01"), "{failure}");
            }
            assert!(!one::<bool>(&mut session, "SELECT layout_checked FROM snowflake_status"));
            drop(session);
            server.restart();
        }
        // Nothing was generated yet, so the server takes the layout of the dump.
        run(&mut server.connect(), "SELECT 1");
        server.set(setting, dumps);
        server.restart();
        let mut session = server.connect();
        run(&mut session, "SELECT snowflake_adopt()");
        assert_eq!(one::<String>(&mut session, &format!("SELECT snowflake_timestamp({id})::text")), at);
        run(&mut session, "INSERT INTO orders (customer) VALUES ('Edsger')");
        assert_eq!(one::<i64>(&mut session, &format!("SELECT count(*) FROM orders WHERE id >= {id}")), 3);
    }
}

#[test]
fn a_database_with_ids_refuses_a_dump_with_another_layout() {
    let (dump, ..) = dump(&server());
    let other =
        Server::builder().setting("snowflake_id.epoch", "2025-01-01T00:00:00Z").start_with_extension();
    let mut session = other.connect();
    run(&mut session, "SELECT snowflake_nextval()");
    let errors = other.try_restore("postgres", &dump).expect_err("another epoch");
    assert!(errors.contains("ERROR:  the dump's snowflake layout differs from this server's"), "{errors}");
    assert!(errors.contains("HINT:  Drop what was restored, and restore it into a server with"), "{errors}");
    run(&mut session, "SELECT snowflake_nextval()");
}

/// The IDs of a subscriber, or of a table that COPY has filled: the database has generated none, and its dump has some.
#[test]
fn a_dump_without_any_id_closes_a_database_of_another_layout_too() {
    let source = server();
    let fill = "CREATE TABLE orders AS SELECT snowflake_encode('2025-06-01Z', 1, n) AS id FROM generate_series(1, 3) AS n";
    run(&mut source.connect(), fill);
    let dump = source.dump("postgres", &[]);
    let other =
        Server::builder().setting("snowflake_id.epoch", "2025-01-01T00:00:00Z").start_with_extension();
    let said = other.try_restore("postgres", &dump).expect_err("an error");
    assert!(said.contains("ERROR:  the dump's snowflake layout differs"), "{said}");
    assert!(said.contains("If the dump has no snowflake IDs, delete the row of snowflake_config."), "{said}");
    let mut session = other.connect();
    let read = "SELECT snowflake_timestamp(id) FROM orders";
    fails(&mut session, "55000", read);
    fails(&mut session, "55000", "SELECT snowflake_nextval()");
    run(&mut session, "DELETE FROM snowflake_internal.snowflake_config");
    run(&mut session, &format!("{read}; SELECT snowflake_nextval()"));
}

/// Nothing else says what the IDs mean, and a restore goes on after an error.
#[test]
fn a_dump_that_is_restored_before_the_library_is_preloaded_keeps_its_layout() {
    let (dump, id, at) = dump(&server());
    let mut other = Server::builder().without("shared_preload_libraries").start();
    let said = other.try_restore("postgres", &dump).expect_err("a warning");
    assert!(said.contains("WARNING:  snowflake_id must be loaded via"), "{said}");
    assert!(!said.contains("ERROR"), "{said}");
    // Not what a server without a layout would store.
    let steps = "DO $$ BEGIN EXECUTE (SELECT statement FROM snowflake_layout_steps() LIMIT 1); END $$";
    fails(&mut other.connect(), "55000", steps);
    other.set("shared_preload_libraries", "snowflake_id");
    let read = format!("SELECT snowflake_timestamp({id})::text");
    for (epoch, is_the_dumps) in [("2020-01-01T00:00:00Z", false), ("2024-01-01T00:00:00Z", true)] {
        other.set("snowflake_id.epoch", epoch);
        other.restart();
        let mut session = other.connect();
        if is_the_dumps {
            assert_eq!(one::<String>(&mut session, &read), at);
            run(&mut session, "INSERT INTO orders (customer) VALUES ('Edsger')");
        } else {
            fails(&mut session, "55000", &read);
            fails(&mut session, "55000", "INSERT INTO orders (customer) VALUES ('Edsger')");
        }
    }
}

#[test]
fn an_extension_older_than_preloading_stores_its_layout_with_the_first_id() {
    let mut server = Server::builder().without("shared_preload_libraries").start();
    let said = server.try_restore("postgres", "CREATE EXTENSION snowflake_id").expect_err("a warning");
    assert!(said.contains("WARNING:  snowflake_id must be loaded via"), "{said}");
    let hint =
        "HINT:  A database for a registry alone needs nothing. Add snowflake_id to the libraries there";
    assert!(said.contains(hint), "{said}");
    run(&mut server.connect(), "CREATE ROLE clerk LOGIN");
    server.set("shared_preload_libraries", "snowflake_id");
    server.restart();
    let mut session = server.connect();
    let stored = |session: &mut Client| {
        let rows = column::<String>(session, CONFIG);
        assert_eq!(one::<bool>(session, "SELECT layout_checked FROM snowflake_status"), rows.len() == 1);
        rows
    };
    // Not with an ID that is rolled back, nor in a transaction that may not write.
    run(&mut session, "BEGIN; SELECT snowflake_nextval(); ROLLBACK");
    run(&mut session, "BEGIN READ ONLY; SELECT snowflake_nextval(); COMMIT");
    assert_eq!(stored(&mut session), [""; 0]);
    // A role without rights, while others wait for nothing.
    let mut clerk = server.connect_as("clerk");
    run(&mut clerk, "BEGIN; SELECT snowflake_nextval(), snowflake_nextval()");
    run(&mut server.connect(), "SET statement_timeout = '10s'; SELECT snowflake_nextval()");
    assert_eq!(stored(&mut session), [""; 0]);
    run(&mut clerk, "COMMIT; SELECT snowflake_nextval()");
    assert_eq!(stored(&mut session), ["41/10/12 1 2024-01-01 00:00:00"]);
    // Who began before it was stored does not see it, and stores nothing again.
    run(&mut session, "DELETE FROM snowflake_internal.snowflake_config");
    let mut earlier = server.connect();
    run(&mut earlier, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM pg_class");
    run(&mut server.connect(), "SELECT snowflake_nextval()");
    run(&mut earlier, "SELECT snowflake_nextval(); COMMIT");
    assert_eq!(stored(&mut session).len(), 1);
}

/// Preloaded or not, what keeps the layout from being known is what is told.
#[test]
fn an_extension_created_under_an_unusable_layout_stores_none_and_says_why() {
    let server = Server::builder().setting("snowflake_id.epoch", "2024-01-01").start();
    let said = server.try_restore("postgres", "CREATE EXTENSION snowflake_id").expect_err("a warning");
    for part in [
        "WARNING:  invalid value for parameter \"snowflake_id.epoch\"",
        "DETAIL:  ",
        "with an explicit offset",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(column::<String>(&mut server.connect(), CONFIG), [""; 0]);
}

#[test]
fn nobody_makes_the_table_say_anything_else() {
    let server = server();
    let mut session = server.connect();
    run(&mut session, "SELECT snowflake_nextval()");
    for statement in [
        "UPDATE snowflake_internal.snowflake_config SET layout = '40/10/13'",
        "UPDATE snowflake_internal.snowflake_config SET tick_ms = 10",
        "INSERT INTO snowflake_internal.snowflake_config VALUES ('41/10/12', 1, now())",
    ] {
        fails(&mut session, "55000", statement);
    }
    let nulls = "INSERT INTO snowflake_internal.snowflake_config VALUES (NULL, NULL, NULL)";
    fails(&mut session, "23502", nulls);
    run(&mut session, "CREATE ROLE clerk LOGIN");
    let mut clerk = server.connect_as("clerk");
    assert_eq!(column::<String>(&mut clerk, CONFIG).len(), 1, "or the clerk could not dump the database");
    fails(&mut clerk, "42501", "DELETE FROM snowflake_internal.snowflake_config");
    fails(
        &mut clerk,
        "42501",
        "INSERT INTO snowflake_internal.snowflake_config SELECT * FROM snowflake_server_layout()",
    );
}

/// A hostile schema and operators of the same name have no effect.
#[test]
fn the_check_is_deaf_to_a_search_path() {
    let server = server();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE SCHEMA evil;
         CREATE FUNCTION evil.snowflake_server_layout(OUT layout text, OUT tick_ms int, OUT epoch timestamptz)
             LANGUAGE sql AS $$SELECT '40/10/13', 1, timestamptz '2024-01-01 00:00Z'$$;
         CREATE FUNCTION evil.same(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.same);
         SET search_path = evil, pg_catalog, public",
    );
    fails(&mut session, "55000", "UPDATE snowflake_internal.snowflake_config SET layout = '40/10/13'");
}
