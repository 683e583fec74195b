//! A dump records what its IDs mean: a server with another layout refuses to restore it.

use snowflake_server_tests::sql::{column, fails, one, run};
use snowflake_server_tests::{Builder, Server};

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
    assert_eq!(other.dump("postgres", &[]).matches("41/10/12\t1\t2024-01-01").count(), 1);
}

#[test]
fn a_server_with_another_layout_tick_or_epoch_refuses_the_dump() {
    let (dump, ..) = dump(&server());
    let others: [fn(Builder) -> Builder; 3] = [
        |builder| builder.setting("snowflake_id.layout", "40/10/13"),
        |builder| builder.setting("snowflake_id.tick", "10ms"),
        |builder| builder.setting("snowflake_id.epoch", "2025-01-01T00:00:00Z"),
    ];
    for other in others {
        let other = other(Server::builder()).start();
        let errors = other.try_restore("postgres", &dump).expect_err("another layout");
        assert!(errors.contains("the dump's snowflake layout differs from this server's"), "{errors}");
        assert!(
            errors.contains("The row of snowflake_config has 41/10/12 1ms 2024-01-01 00:00:00+00;"),
            "{errors}"
        );
        assert!(
            errors.contains("HINT:  Set snowflake_id.layout, tick and epoch to the dump's layout"),
            "{errors}"
        );
    }
}

/// pg_dump orders tables by name, and the refusal comes with the table that says what IDs mean.
#[test]
fn a_restore_in_one_transaction_leaves_nothing_behind_where_the_layout_differs() {
    let (dump, ..) = dump(&server());
    let other = Server::builder().setting("snowflake_id.epoch", "2025-01-01T00:00:00Z").start();
    let tables = "SELECT count(*) FROM pg_class WHERE relname IN ('orders', 'snowflake_config')";
    let in_one = format!("BEGIN;\n{dump}COMMIT;\n");
    other.try_restore("postgres", &in_one).expect_err("another epoch");
    assert_eq!(one::<i64>(&mut other.connect(), tables), 0);
    other.try_restore("postgres", &dump).expect_err("another epoch");
    assert!(one::<i64>(&mut other.connect(), tables) > 0, "the manual asks for one transaction");
}

#[test]
fn a_server_that_does_not_preload_the_extension_refuses_the_dump() {
    let (dump, ..) = dump(&server());
    let other = Server::builder().without("shared_preload_libraries").start();
    let errors = other.try_restore("postgres", &dump).expect_err("nothing says what the IDs mean");
    assert!(errors.contains("snowflake_id must be loaded via \"shared_preload_libraries\""), "{errors}");
}

#[test]
fn a_database_that_had_the_extension_before_it_was_preloaded_can_be_told_later() {
    let mut server = Server::builder().without("shared_preload_libraries").start();
    run(&mut server.connect(), "CREATE EXTENSION snowflake_id");
    assert_eq!(column::<String>(&mut server.connect(), CONFIG), [""; 0]);
    server.set("shared_preload_libraries", "snowflake_id");
    server.restart();
    let mut session = server.connect();
    // The manual's check counts the missing row.
    let agrees = "SELECT (c.layout, c.tick_ms, c.epoch) = (s.layout, s.tick_ms, s.epoch)
                  FROM snowflake_server_layout() AS s LEFT JOIN snowflake_internal.snowflake_config AS c ON true";
    assert_eq!(column::<Option<bool>>(&mut session, agrees), [None]);
    for _ in 0..2 {
        run(
            &mut session,
            "INSERT INTO snowflake_internal.snowflake_config SELECT * FROM snowflake_server_layout()",
        );
        assert_eq!(column::<String>(&mut session, CONFIG), ["41/10/12 1 2024-01-01 00:00:00"], "one row");
        assert_eq!(column::<Option<bool>>(&mut session, agrees), [Some(true)]);
    }
}

#[test]
fn nobody_makes_the_table_say_anything_else() {
    let server = server();
    let mut session = server.connect();
    for statement in [
        "UPDATE snowflake_internal.snowflake_config SET layout = '40/10/13'",
        "UPDATE snowflake_internal.snowflake_config SET tick_ms = 10",
        "INSERT INTO snowflake_internal.snowflake_config VALUES ('41/10/12', 1, now())",
        "INSERT INTO snowflake_internal.snowflake_config VALUES (NULL, NULL, NULL)",
    ] {
        fails(&mut session, "55000", statement);
    }
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
