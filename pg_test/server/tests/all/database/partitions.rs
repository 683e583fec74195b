//! Partitions by time on the ID: by hand, and with pg_partman, in all versions that `scripts/companions` fetches.
//! `documents/examples.rs` plays the examples on the page about partitioning.

use postgres::{Client, NoTls};
use snowflake_server_tests::partman::{self, Partman};
use snowflake_server_tests::sql::{column, fails, next, one, run};
use snowflake_server_tests::{Server, days};
use std::sync::{Arc, Mutex};

const EVENTS: &str = "
    CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), what text) PARTITION BY RANGE (id);
    CREATE TABLE events_2026_11 PARTITION OF events
        FOR VALUES FROM (snowflake_min('2026-11-01 00:00Z')) TO (snowflake_min('2026-12-01 00:00Z'));
    CREATE TABLE events_2026_12 PARTITION OF events
        FOR VALUES FROM (snowflake_min('2026-12-01 00:00Z')) TO (snowflake_min('2027-01-01 00:00Z'))";

/// A table that is about to be attached, with a check that equals its future bounds.
const NEXT_MONTH: &str = "
    CREATE TABLE events_2027_01 (LIKE events INCLUDING DEFAULTS INCLUDING INDEXES, CONSTRAINT its_month
        CHECK (id >= snowflake_min('2027-01-01 00:00Z') AND id < snowflake_min('2027-02-01 00:00Z')));
    INSERT INTO events_2027_01 VALUES (snowflake_encode('2027-01-10 00:00Z', 900, 0), 'loaded before')";

const ATTACH: &str = "
    ALTER TABLE events ATTACH PARTITION events_2027_01
        FOR VALUES FROM (snowflake_min('2027-01-01 00:00Z')) TO (snowflake_min('2027-02-01 00:00Z'))";

fn started() -> Server {
    Server::builder().setting("timezone", "UTC").start_with_extension()
}

#[test]
fn the_first_and_the_last_id_of_a_month_are_in_its_partition() {
    let server = started();
    let mut session = server.connect();
    run(&mut session, EVENTS);
    for (time, which, partition) in [
        ("2026-11-01 00:00:00Z", "min", "events_2026_11"),
        ("2026-11-30 23:59:59.999Z", "max", "events_2026_11"),
        ("2026-12-01 00:00:00Z", "min", "events_2026_12"),
        ("2026-12-31 23:59:59.999Z", "max", "events_2026_12"),
    ] {
        let insert = format!(
            "INSERT INTO events VALUES (snowflake_{which}('{time}')) RETURNING tableoid::regclass::text"
        );
        assert_eq!(one::<String>(&mut session, &insert), partition, "{which} of {time}");
    }
    for outside in ["snowflake_max('2026-10-31 23:59:59.999Z')", "snowflake_min('2027-01-01 00:00Z')"] {
        fails(&mut session, "23514", &format!("INSERT INTO events VALUES ({outside})"));
    }
}

/// A session, and the messages that the server sends it at the level DEBUG1.
fn talkative(server: &Server) -> (Client, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut config = server.config();
    let notices = heard.clone();
    config.notice_callback(move |notice| notices.lock().expect("no panic").push(notice.message().to_owned()));
    let mut session = config.connect(NoTls).expect("a session");
    run(&mut session, "SET client_min_messages = debug1");
    (session, heard)
}

#[test]
fn a_table_with_a_check_is_attached_without_a_look_at_its_rows() {
    let server = started();
    run(&mut server.connect(), EVENTS);
    let (mut session, heard) = talkative(&server);
    let implied = || {
        let heard = heard.lock().expect("no panic");
        heard.iter().filter(|message| message.contains("is implied by existing constraints")).count()
    };
    run(&mut session, NEXT_MONTH);
    run(&mut session, ATTACH);
    assert_eq!(implied(), 1, "{heard:?}");

    // The same without the check, which proves that the message can be missing.
    run(&mut session, "ALTER TABLE events DETACH PARTITION events_2027_01");
    run(&mut session, "ALTER TABLE events_2027_01 DROP CONSTRAINT its_month");
    run(&mut session, ATTACH);
    assert_eq!(implied(), 1, "{heard:?}");
}

/// The cost of a default partition: each new partition searches it for rows of its own, and fails if there is one.
#[test]
fn a_default_partition_is_in_the_way_of_a_new_one() {
    let server = started();
    let mut session = server.connect();
    run(&mut session, EVENTS);
    run(&mut session, "CREATE TABLE events_rest PARTITION OF events DEFAULT");
    run(&mut session, "INSERT INTO events VALUES (snowflake_encode('2027-01-20 00:00Z', 900, 0), 'early')");
    run(&mut session, NEXT_MONTH);
    let failure = fails(&mut session, "23514", ATTACH);
    assert!(failure.message.contains("default partition \"events_rest\""), "{failure}");
    run(
        &mut session,
        "BEGIN;
         WITH moved AS (
             DELETE FROM events_rest
             WHERE snowflake_between(id, '2027-01-01 00:00Z', '2027-02-01 00:00Z') RETURNING *)
         INSERT INTO events_2027_01 SELECT * FROM moved;",
    );
    run(&mut session, &format!("{ATTACH}; COMMIT"));
    assert_eq!(one::<i64>(&mut session, "SELECT count(*) FROM events_2027_01"), 2);
}

// ---- pg_partman ----

/// Runs a test with each version of pg_partman, in a database of its own, on a server whose cluster is 400 days old.
fn on_every_version(test: impl Fn(&Server, &mut Client, &Partman)) {
    let server = Server::builder().setting("timezone", "UTC").born(days(400)).start_with_extension();
    next(&mut server.connect());
    server.step_forward(days(400));
    for partman in partman::versions() {
        let database = format!("partman_{}", partman.version.iter().map(u32::to_string).collect::<String>());
        run(&mut server.connect(), &format!("CREATE DATABASE {database}"));
        let mut session = server.config().dbname(&database).connect(NoTls).expect("a session");
        run(&mut session, "CREATE EXTENSION snowflake_id; CREATE SCHEMA partman");
        partman.create(&mut session);
        test(&server, &mut session, partman);
    }
}

/// Names of the partitions, from the oldest.
fn partitions(session: &mut Client, table: &str) -> Vec<String> {
    let query = format!("SELECT partition_tablename::text FROM partman.show_partitions('{table}')");
    column(session, &query)
}

/// Once an upstream version supports bigint IDs, this fails, and the manual can recommend that.
#[test]
fn pg_partman_takes_no_time_encoder_for_a_bigint() {
    on_every_version(|_, session, partman| {
        run(session, "CREATE TABLE events (id bigint PRIMARY KEY) PARTITION BY RANGE (id)");
        let failure = fails(
            session,
            "P0001",
            "SELECT partman.create_parent('public.events', 'id', '1 month',
                 p_time_encoder := 'public.snowflake_min', p_time_decoder := 'public.snowflake_timestamp')",
        );
        assert!(
            failure.message.contains("can only be used with text/uuid type control column"),
            "{partman:?}: {failure}"
        );
    });
}

/// It takes an ID for a time since 1970, a million years from now.
#[test]
fn pg_partman_with_an_epoch_finds_no_partition_for_an_id() {
    on_every_version(|_, session, partman| {
        run(
            session,
            "CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval()) PARTITION BY RANGE (id);
             SELECT partman.create_parent('public.events', 'id', '1 month', p_epoch := 'milliseconds')",
        );
        let place = "INSERT INTO events DEFAULT VALUES RETURNING tableoid::regclass::text";
        assert_eq!(one::<String>(session, place), "events_default", "{partman:?}");
    });
}

/// The start of a day, `days` after today, as an ID.
fn day(session: &mut Client, days: i32) -> i64 {
    one(
        session,
        &format!("SELECT snowflake_min(date_trunc('day', now(), 'UTC') + {days} * interval '1 day')"),
    )
}

/// The manual's way to have daily partitions of bigint IDs: a call that creates the partitions of today and the next
/// days by the clock, and then maintenance.
const MAINTAIN: &str = "
    SELECT partman.create_partition_id('public.events', ARRAY(
        SELECT (snowflake_min(now()) / partition_interval::bigint + n) * partition_interval::bigint
        FROM partman.part_config, generate_series(0, premake) AS n WHERE parent_table = 'public.events'));
    SELECT partman.run_maintenance('public.events')";

#[test]
fn pg_partman_makes_and_drops_days_of_bigint_ids() {
    on_every_version(|server, session, partman| {
        run(
            session,
            "CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval()) PARTITION BY RANGE (id);
             SELECT partman.create_parent('public.events', 'id',
                 p_interval := (snowflake_min('2026-01-02 00:00Z') - snowflake_min('2026-01-01 00:00Z'))::text,
                 p_start_partition := snowflake_min(date_trunc('day', now(), 'UTC'))::text)",
        );
        let days_of = |session: &mut Client, days: &[i32]| -> Vec<String> {
            days.iter().map(|&days| format!("events_p{}", day(session, days))).collect()
        };
        assert_eq!(partitions(session, "public.events"), days_of(session, &[0, 1, 2, 3, 4]), "{partman:?}");
        let where_to = "INSERT INTO events DEFAULT VALUES RETURNING tableoid::regclass::text";
        assert_eq!(one::<String>(session, where_to), days_of(session, &[0])[0], "{partman:?}");

        // Ten days in which nobody writes: pg_partman counts from the highest ID, so it creates nothing.
        server.step_forward(days(10));
        run(session, "SELECT partman.run_maintenance('public.events')");
        assert_eq!(partitions(session, "public.events").len(), 5, "{partman:?}");
        // Not even when somebody writes again: that row is in the default partition.
        run(session, "BEGIN");
        assert_eq!(one::<String>(session, where_to), "events_default", "{partman:?}");
        run(session, "SELECT partman.run_maintenance('public.events')");
        assert_eq!(partitions(session, "public.events").len(), 5, "{partman:?}");
        run(session, "ROLLBACK");
        // The call that goes by the clock creates today's.
        run(session, MAINTAIN);
        let expected = days_of(session, &[-10, -9, -8, -7, -6, 0, 1, 2, 3, 4]);
        assert_eq!(partitions(session, "public.events"), expected, "{partman:?}");
        assert_eq!(one::<String>(session, where_to), days_of(session, &[0])[0], "{partman:?}");
        assert_eq!(one::<i64>(session, "SELECT count(*) FROM events_default"), 0);

        // Partitions older than a week are dropped; repeating the call changes nothing else.
        run(
            session,
            "UPDATE partman.part_config SET retention_keep_table = false,
                 retention = (snowflake_min('2026-01-08 00:00Z') - snowflake_min('2026-01-01 00:00Z'))::text",
        );
        run(session, MAINTAIN);
        let kept = days_of(session, &[-7, -6, 0, 1, 2, 3, 4]);
        assert_eq!(partitions(session, "public.events"), kept, "{partman:?}");
        server.clock().back(days(10));
    });
}
