//! `snowflake_lastval()`: the last ID of a session, until the session discards it.

use snowflake_server_tests::sql::{fails, next, one, run};
use snowflake_server_tests::{Server, has_contrib};

/// A pool of sessions sends DISCARD ALL between two clients, so that neither sees what the other did.
#[test]
fn the_last_id_is_forgotten_with_what_a_session_discards() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(&mut session, "CREATE SEQUENCE s");
    let both = ["SELECT lastval()", "SELECT snowflake_lastval()"];
    let none = fails(&mut session, "55000", both[1]);
    assert!(none.detail.ends_with(" since it began, or since DISCARD ALL or DISCARD SEQUENCES."), "{none}");
    for discard in ["DISCARD ALL", "DISCARD SEQUENCES", "DO $$ BEGIN EXECUTE 'DISCARD SEQUENCES'; END $$"] {
        run(&mut session, "SELECT nextval('s'), snowflake_nextval()");
        run(&mut session, discard);
        for last in both {
            fails(&mut session, "55000", last);
        }
    }
    // Statements that keep a sequence's last value keep ours.
    let id = next(&mut session);
    run(&mut session, "SELECT nextval('s')");
    for kept in ["DISCARD PLANS", "DISCARD TEMP", "RESET ALL", "DEALLOCATE ALL", "BEGIN; ROLLBACK"] {
        run(&mut session, kept);
        assert_eq!(one::<i64>(&mut session, "SELECT snowflake_lastval()"), id, "{kept}");
    }
    // A DISCARD that fails discards nothing.
    run(&mut session, "BEGIN");
    fails(&mut session, "25001", "DISCARD ALL");
    run(&mut session, "ROLLBACK");
    for last in both {
        run(&mut session, last);
    }
    assert_eq!(one::<i64>(&mut session, "SELECT snowflake_lastval()"), id);
    // Prepared, as drivers send it.
    let discard = session.prepare("DISCARD ALL").expect("prepare");
    session.execute(&discard, &[]).expect("it runs");
    fails(&mut session, "55000", "SELECT snowflake_lastval()");
    let id = next(&mut session);
    assert_eq!(one::<i64>(&mut session, "SELECT snowflake_lastval()"), id);
}

/// Utility statements pass through one extension after another, in either order.
#[test]
fn other_extensions_see_what_is_discarded_too() {
    if !has_contrib() {
        return;
    }
    for libraries in ["pg_stat_statements, snowflake_id", "snowflake_id, pg_stat_statements"] {
        let server = Server::builder().setting("shared_preload_libraries", libraries).start_with_extension();
        let mut session = server.connect();
        run(&mut session, "CREATE EXTENSION pg_stat_statements");
        next(&mut session);
        run(&mut session, "DISCARD SEQUENCES");
        fails(&mut session, "55000", "SELECT snowflake_lastval()");
        let seen = "SELECT calls FROM pg_stat_statements WHERE query = 'DISCARD SEQUENCES'";
        assert_eq!(one::<i64>(&mut session, seen), 1, "{libraries}");
    }
}
