//! IDs for rows that have times of their own: `snowflake_at` over a window, and `snowflake_next_at` by a table.

use postgres::Client;
use snowflake_server_tests::sql::{Failure, column, fails, next, one, run};
use snowflake_server_tests::{Database, Server, secs, wait_until};
use std::thread;

/// A database of the server that the tests share.
#[track_caller]
fn database() -> Database {
    Database::shared(Server::builder().setting("timezone", "UTC"), "")
}

/// 30,000 rows in no order: some alone in their millisecond, 10,000 of one time, and 5,000 of the next milliseconds.
const ROWS: &str = "
    CREATE TABLE source AS SELECT * FROM (
        SELECT timestamptz '2025-03-01 12:00:00.0004Z' + n * interval '137 us' AS at FROM generate_series(1, 15000) AS n
        UNION ALL SELECT '2025-03-02 00:00Z' FROM generate_series(1, 10000)
        UNION ALL SELECT timestamptz '2025-03-02 00:00Z' + n * interval '1 us' FROM generate_series(1, 5000) AS n
    ) AS rows ORDER BY random()";

/// The same IDs in plain SQL, for servers without the library: the page on imports has it.
const PLAIN: &str = "
    SELECT n, ((position / 4096) << 22) | (900 << 12) | (position % 4096) AS id
    FROM (
        SELECT n, n + max((snowflake_min(at) >> 10) - n) OVER (ORDER BY n) AS position
        FROM (SELECT at, row_number() OVER (ORDER BY at) AS n FROM source) AS numbered
    ) AS positions";

#[test]
fn a_set_of_rows_gets_ids_of_its_times_in_its_order() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, ROWS);
    run(
        &mut session,
        "CREATE TABLE target AS
         SELECT row_number() OVER (ORDER BY at) AS n, at, snowflake_at(at, 900) OVER (ORDER BY at) AS id FROM source",
    );
    let [rows, different, unordered, of_the_worker] = [
        "count(*)",
        "count(DISTINCT id)",
        "count(*) FILTER (WHERE id <= previous)",
        "count(*) FILTER (WHERE snowflake_worker(id) = 900)",
    ]
    .map(|value| {
        let ordered = "(SELECT id, lag(id) OVER (ORDER BY n) AS previous FROM target) AS ordered";
        one::<i64>(&mut session, &format!("SELECT {value} FROM {ordered}"))
    });
    assert_eq!((rows, different, unordered, of_the_worker), (30_000, 30_000, 0, 30_000));
    // Where there is room, the time is the row's. 10,000 rows fill two ticks and a part of the third.
    let late = "SELECT count(*) FROM target
                WHERE snowflake_timestamp(id) <> date_trunc('milliseconds', at) AND at < '2025-03-02Z'";
    assert_eq!(one::<i64>(&mut session, late), 0);
    let latest = "SELECT (max(extract(epoch FROM snowflake_timestamp(id) - at)) * 1000)::integer FROM target
                  WHERE at = '2025-03-02Z'";
    assert_eq!(one::<i32>(&mut session, latest), 2);
    let unlike =
        format!("SELECT count(*) FROM target FULL JOIN ({PLAIN}) AS plain USING (n, id) WHERE at IS NULL");
    assert_eq!(one::<i64>(&mut session, &unlike), 0);
    // A null time or worker has no ID, and changes none of the others.
    let with_nulls = "SELECT array_agg(snowflake_worker(id) || '.' || snowflake_sequence(id) ORDER BY n) FROM (
        SELECT n, snowflake_at(at, worker) OVER (ORDER BY n) AS id
        FROM (VALUES (1, NULL, 900), (2, timestamptz '2025-01-01Z', 900), (3, NULL, 900), (4, '2025-01-01Z', NULL),
                     (5, '2025-01-01Z', 900), (6, '2025-01-01Z', 901)) AS v (n, at, worker)) AS rows";
    let ids: Vec<Option<String>> = one(&mut session, with_nulls);
    let ids: Vec<&str> = ids.iter().map(|id| id.as_deref().unwrap_or("null")).collect();
    assert_eq!(ids, ["null", "900.0", "null", "null", "900.1", "901.2"]);
    // Another query begins anew, also of a prepared statement.
    run(&mut session, "PREPARE again AS SELECT snowflake_at('2025-01-01Z', 900) OVER ()");
    let ids: Vec<i64> = (0..7).flat_map(|_| column(&mut session, "EXECUTE again")).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn a_set_of_rows_gets_ids_in_every_layout() {
    for (bits, tick, worker) in
        [("41/5+5/12", "1ms", 30), ("31/16/6", "1s", 60_000), ("39/16/8", "10ms", 60_000)]
    {
        let server = Server::builder()
            .setting("timezone", "UTC")
            .setting("snowflake_id.layout", bits)
            .setting("snowflake_id.tick", tick)
            .setting("snowflake_id.worker_id", "3")
            .setting("snowflake_id.datacenter_id", if bits.contains('+') { "19" } else { "0" })
            .start_with_extension();
        let mut session = server.connect();
        run(&mut session, ROWS);
        let own = next(&mut session);
        let wrong = format!(
            "SELECT count(*) FROM (
                 SELECT at, id, lag(id) OVER (ORDER BY id) AS previous, row_number() OVER (ORDER BY at) AS by_time,
                     row_number() OVER (ORDER BY id) AS by_id
                 FROM (SELECT at, snowflake_at(at, {worker}) OVER (ORDER BY at) AS id FROM source) AS target
             ) AS target
             WHERE id = previous OR snowflake_worker(id) <> {worker} OR snowflake_timestamp(id) + interval '{tick}' <= at
                 OR snowflake_datacenter(id) IS DISTINCT FROM snowflake_datacenter({own})
                 OR snowflake_sequence(id) > 0 AND snowflake_sequence(previous) <> snowflake_sequence(id) - 1"
        );
        assert_eq!(one::<i64>(&mut session, &wrong), 0, "{bits}");
    }
}

/// Both functions refuse it, with the same error.
fn refused_worker(session: &mut Client, worker: i32) -> Failure {
    let failure = fails(session, "22023", &format!("SELECT snowflake_at('2025-01-01Z', {worker}) OVER ()"));
    let by_table =
        fails(session, "22023", &format!("SELECT snowflake_next_at('2025-01-01Z', {worker}, 'target')"));
    assert_eq!((&failure.message, &failure.detail), (&by_table.message, &by_table.detail));
    failure
}

#[test]
fn an_import_uses_no_worker_of_its_server() {
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(&mut session, "CREATE TABLE target (id bigint PRIMARY KEY)");
    let own: Vec<i32> = column(&mut session, "SELECT worker_id FROM snowflake_workers ORDER BY lane");
    assert!(own.len() > 1, "{own:?}");
    for worker in &own {
        let failure = refused_worker(&mut session, *worker);
        assert_eq!(failure.message, format!("worker {worker} belongs to this server"));
        assert!(failure.detail.contains("home worker 1, may have generated the same ID"), "{failure}");
    }
    for worker in [-1, 1_024] {
        assert_eq!(refused_worker(&mut session, worker).message, "worker must be between 0 and 1023");
    }
    // Also where only a later row has it.
    let later = "SELECT snowflake_at('2025-01-01Z', CASE n WHEN 3 THEN 1 ELSE 900 END) OVER (ORDER BY n)
                 FROM generate_series(1, 3) AS n";
    fails(&mut session, "22023", later);
    run(
        &mut session,
        "SELECT snowflake_at('2025-01-01Z', 900) OVER (), snowflake_next_at('2025-01-01Z', 900, 'target')",
    );
    server.unset("snowflake_id.worker_id");
    server.restart();
    let imports =
        "SELECT snowflake_at('2025-01-01Z', 0) OVER (), snowflake_next_at('2025-01-01Z', 0, 'target')";
    run(&mut server.connect(), imports);
}

#[test]
fn an_import_uses_no_leased_worker() {
    let registry = Server::builder().without_library().start();
    run(
        &mut registry.connect(),
        "CREATE EXTENSION snowflake_id;
         CREATE ROLE node LOGIN;
         SELECT snowflake_registry_create('node');
         SELECT snowflake_registry_reserve(0, 'imports')",
    );
    let mut server = Server::builder().start_with_extension();
    run(&mut server.connect(), "CREATE TABLE target (id bigint PRIMARY KEY)");
    server.unset("snowflake_id.worker_id");
    server.set("snowflake_id.backup_workers", "3");
    server.set("snowflake_id.registry", &registry.registry_string());
    server.restart();
    server.wait_for_worker("an ID", secs(60), |session| {
        session.query_one("SELECT snowflake_nextval()", &[]).ok()
    });
    let mut session = server.connect();
    let leased: Vec<i32> = column(&mut session, "SELECT worker_id FROM snowflake_workers");
    assert!(!leased.contains(&0) && leased.len() == 4, "{leased:?}");
    for worker in leased {
        assert_eq!(
            refused_worker(&mut session, worker).message,
            format!("worker {worker} belongs to this server")
        );
    }
    run(
        &mut session,
        "SELECT snowflake_at('2025-01-01Z', 0) OVER (), snowflake_next_at('2025-01-01Z', 0, 'target')",
    );
}

#[test]
fn rows_that_would_repeat_ids_or_lose_their_time_are_refused() {
    let database = database();
    let mut session = database.connect();
    let values = "(VALUES (1, timestamptz '2025-01-02Z'), (2, '2025-01-01Z')) AS v (n, at)";
    let failure = fails(
        &mut session,
        "22023",
        &format!("SELECT snowflake_at(at, 900) OVER (ORDER BY n) FROM {values}"),
    );
    assert_eq!(failure.message, "snowflake_at needs rows in the order of their times");
    let times =
        "A row with time 2025-01-01 00:00:00+00 follows one with time 2025-01-02 00:00:00+00 or later.";
    assert_eq!(failure.detail, times);
    for repeating in [
        format!("SELECT snowflake_at(at, 900) OVER (PARTITION BY n ORDER BY at) FROM {values}"),
        format!(
            "SELECT * FROM {values}, LATERAL (
                 SELECT snowflake_at(at + m, 900) OVER (ORDER BY m)
                 FROM (VALUES (interval '1 s'), ('2 s')) AS w (m) OFFSET 0) AS ids"
        ),
    ] {
        let failure = fails(&mut session, "0A000", &repeating);
        assert_eq!(failure.message, "snowflake_at needs all rows in one partition of one window");
    }
    fails(&mut session, "42809", "SELECT snowflake_at(now(), 900)");
    for time in ["2023-12-31 23:59:59.999Z", "infinity", "2093-09-06 15:47:35.552Z"] {
        fails(&mut session, "22008", &format!("SELECT snowflake_at('{time}', 900) OVER ()"));
    }
    // The internal function takes any number of ticks later.
    let function = "snowflake_internal.snowflake_import_span";
    let span = |later: i64| format!("SELECT s::text FROM {function}('2025-01-01Z', 900, '{later}') AS s");
    assert_eq!(one::<String>(&mut session, &span(i64::MIN)), one::<String>(&mut session, &span(0)));
    run(&mut session, &span(2_167_400_855_551));
    fails(&mut session, "22008", &span(2_167_400_855_552));
    fails(&mut session, "22008", &span(i64::MAX));
    // The last tick has room for 4,096 rows.
    let last = "SELECT count(id) FROM (SELECT snowflake_at('2093-09-06 15:47:35.551Z', 900) OVER () AS id
                                       FROM generate_series(1, $)) AS rows";
    assert_eq!(one::<i64>(&mut session, &last.replace('$', "4096")), 4_096);
    fails(&mut session, "22008", &last.replace('$', "4097"));
}

#[test]
fn rows_that_come_one_by_one_get_the_next_ids_of_their_times() {
    let database = database();
    let mut session = database.connect();
    for table in [
        "plain (id bigint PRIMARY KEY, at timestamptz)",
        "parts (id bigint PRIMARY KEY, at timestamptz) PARTITION BY RANGE (id)",
    ] {
        run(&mut session, &format!("CREATE TABLE {table}"));
        let table = &table[..5];
        if table == "parts" {
            run(
                &mut session,
                "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (snowflake_min('2025-01-01 00:00:00.002Z'));
                 CREATE TABLE parts_2 PARTITION OF parts DEFAULT",
            );
        }
        // One statement sees its own rows. 10,000 of one time take three ticks, also across partitions.
        run(
            &mut session,
            &format!(
                "INSERT INTO {table}
                      SELECT snowflake_next_at('2025-01-01 00:00Z', 900, '{table}'), '2025-01-01 00:00Z'
                      FROM generate_series(1, 10000)"
            ),
        );
        let span = format!("SELECT (count(*), min(id) = snowflake_encode('2025-01-01Z', 900, 0),
                                    max(id) = snowflake_encode('2025-01-01 00:00:00.002Z', 900, 10000 - 2 * 4096 - 1))::text
                            FROM {table}");
        assert_eq!(one::<String>(&mut session, &span), "(10000,t,t)", "{table}");
        // Rows of other workers and other times do not count, nor do ticks of others that are full.
        let next = |session: &mut Client, at: &str, worker: i32| -> (i32, i32) {
            let id = format!("SELECT snowflake_next_at('2025-01-01 {at}Z', {worker}, '{table}')");
            let id: i64 = one(session, &id);
            (
                one(session, &format!("SELECT snowflake_sequence({id})")),
                one(session, &format!("SELECT snowflake_worker({id})")),
            )
        };
        assert_eq!(next(&mut session, "00:00:00.0005", 901), (0, 901));
        let full = format!("INSERT INTO {table} SELECT snowflake_encode(at, 900, 4095), at
                            FROM generate_series(timestamptz '2025-01-01 00:00:01Z', '2025-01-01 00:00:01.099Z', '1 ms') AS at");
        run(&mut session, &full);
        assert_eq!(next(&mut session, "00:00:01", 900), (0, 900));
        assert_eq!(next(&mut session, "00:00:00.003", 900), (0, 900));
        assert_eq!(next(&mut session, "00:00:00.0029", 900), (10_000 - 2 * 4_096, 900));
    }
    let nothing: Option<i64> = one(&mut session, "SELECT snowflake_next_at(NULL, 900, 'plain')");
    assert_eq!(nothing, None);
}

#[test]
fn a_column_without_a_unique_index_of_its_own_gets_no_ids() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE target (id bigint, at bigint, n bigint, UNIQUE (n) INCLUDE (at), small integer UNIQUE, part bigint, plain bigint, invalid bigint CONSTRAINT invalid UNIQUE,
                              PRIMARY KEY (id, at));
         CREATE UNIQUE INDEX ON target (part) WHERE n > 0;
         CREATE INDEX ON target (plain);
         CREATE TABLE \"its own\" (\"the ID\" bigint UNIQUE);
         UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'invalid'::regclass",
    );
    for column_name in ["id", "at", "small", "part", "plain", "invalid", "No one", "ctid"] {
        let call = format!("SELECT snowflake_next_at('2025-01-01Z', 900, 'target', '{column_name}')");
        let failure = fails(&mut session, "55000", &call);
        let named = if column_name == "No one" { "\"No one\"" } else { column_name };
        assert_eq!(failure.detail, format!("Column {named} of public.target is none."));
    }
    run(
        &mut session,
        "INSERT INTO target VALUES (1, 1, snowflake_next_at('2025-01-01Z', 900, 'target', 'n'))",
    );
    for _ in 0..2 {
        run(
            &mut session,
            "INSERT INTO \"its own\" VALUES (snowflake_next_at('2025-01-01Z', 900, '\"its own\"', 'the ID'))",
        );
    }
    // It reads the table with the rights of its caller.
    run(&mut session, "CREATE ROLE stranger");
    run(&mut session, "SET ROLE stranger");
    fails(&mut session, "42501", "SELECT snowflake_next_at('2025-01-01Z', 900, 'target', 'n')");
}

/// It would return IDs that hidden rows have, for ever.
#[test]
fn next_at_refuses_a_role_under_row_security() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE target (id bigint PRIMARY KEY, owner name); CREATE ROLE tenant; CREATE ROLE owner BYPASSRLS;
         ALTER TABLE target ENABLE ROW LEVEL SECURITY; GRANT ALL ON target TO tenant, owner;
         CREATE POLICY own ON target USING (owner = current_user);
         INSERT INTO target VALUES (snowflake_next_at('2025-01-01Z', 900, 'target'), 'another');
         SET ROLE tenant",
    );
    let id = "snowflake_next_at('2025-01-01Z', 900, 'target')";
    let failure = fails(&mut session, "42501", &format!("INSERT INTO target VALUES ({id}, 'tenant')"));
    assert_eq!(failure.detail, "Row-level security of public.target applies to role tenant.");
    // What the hint says.
    run(
        &mut session,
        &format!(
            "RESET ROLE; CREATE FUNCTION next_id() RETURNS bigint LANGUAGE sql SECURITY DEFINER RETURN {id};
             ALTER FUNCTION next_id() OWNER TO owner; SET ROLE tenant;
             INSERT INTO target VALUES (next_id(), 'tenant')"
        ),
    );
}

const INSERT: &str =
    "INSERT INTO target VALUES (snowflake_next_at('2025-01-01Z', 900, 'target')) RETURNING id";

#[test]
fn transactions_at_one_time_get_different_ids() {
    let database = database();
    let (mut first, mut watching) = (database.connect(), database.connect());
    run(
        &mut first,
        "CREATE TABLE target (id bigint PRIMARY KEY); CREATE TABLE another (LIKE target INCLUDING ALL)",
    );
    run(&mut first, "BEGIN");
    let of_first: i64 = one(&mut first, INSERT);
    let mut second = database.connect();
    let pid: i32 = one(&mut second, "SELECT pg_backend_pid()");
    let waiting = thread::spawn(move || one::<i64>(&mut second, INSERT));
    wait_until("the second waits for the first", secs(30), || {
        let waits = format!("SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = {pid}");
        (one::<Option<bool>>(&mut watching, &waits) == Some(true)).then_some(())
    });
    // Another worker and another table do not wait.
    let mut other = database.connect();
    run(&mut other, "SET lock_timeout = '1s'");
    one::<i64>(&mut other, &INSERT.replace("900", "901"));
    one::<i64>(&mut other, &INSERT.replace("target", "another"));
    run(&mut first, "COMMIT");
    assert_eq!(waiting.join().expect("no error"), of_first + 1);

    let sessions: Vec<_> = (0..4)
        .map(|_| {
            let mut session = database.connect();
            thread::spawn(move || (0..50).map(|_| one::<i64>(&mut session, INSERT)).max())
        })
        .collect();
    let joined = sessions.into_iter().map(|session| session.join().expect("no error"));
    assert_eq!(joined.max().flatten().map(|highest| highest % 4_096), Some(201));
    let dense = "SELECT count(*) = 203 AND max(snowflake_sequence(id)) FILTER (WHERE snowflake_worker(id) = 900) = 201
                 FROM target";
    assert!(one::<bool>(&mut watching, dense));

    // A snapshot that is older than the other's commit: an error, but no ID twice.
    run(&mut first, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    run(&mut first, "SELECT count(*) FROM target");
    one::<i64>(&mut watching, INSERT);
    fails(&mut first, "23505", INSERT);
    run(&mut first, "ROLLBACK");
}
