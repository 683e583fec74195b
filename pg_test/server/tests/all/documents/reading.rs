//! Reading IDs on real servers: spans of time on large and on partitioned tables, their cost, what works without
//! preloading.

use postgres::Client;
use snowflake_server_tests::process::processor_time;
use snowflake_server_tests::sql::{column, fails, next, one, run};
use snowflake_server_tests::{Database, Server, alone, has_contrib, pg_version};
use std::time::Duration;

/// Half a million IDs of one worker, one every 4 seconds from the beginning of 2026: 23 days.
const HALF_A_MILLION: &str = "
    CREATE TABLE orders (id bigint NOT NULL, amount integer NOT NULL);
    INSERT INTO orders SELECT snowflake_encode('2026-01-01 00:00Z'::timestamptz + n * interval '4 s', 1, 0), n
                       FROM generate_series(0, 499999) AS n;
    ALTER TABLE orders ADD PRIMARY KEY (id);
    ANALYZE orders";

/// A database of the server that the tests share.
#[track_caller]
fn database() -> Database {
    Database::shared(Server::builder().setting("timezone", "UTC"), "")
}

#[track_caller]
fn plan(session: &mut Client, query: &str) -> String {
    column::<String>(session, &format!("EXPLAIN (COSTS OFF) {query}")).join("\n")
}

/// Asserts that the plan has an index condition with both ends, on this index, and does not recheck rows.
#[track_caller]
fn assert_spans(plan: &str, index: &str, key: &str) {
    assert!(plan.contains(index), "{index} is not used:\n{plan}");
    let condition = plan.lines().find(|line| line.contains("Index Cond: ")).unwrap_or_default();
    assert!(condition.contains(&format!("{key} >= ")) && condition.contains(&format!("{key} <= ")), "{plan}");
    assert!(!plan.contains("Filter: "), "rows are checked one by one:\n{plan}");
}

#[test]
fn half_a_million_rows_are_searched_by_time_and_read_as_cheaply_as_by_hand() {
    let _alone = alone();
    let server = Server::builder()
        .setting("timezone", "UTC")
        .setting("max_parallel_workers_per_gather", "0")
        .setting("jit", "off")
        .start_with_extension();
    let mut session = server.connect();
    run(&mut session, HALF_A_MILLION);
    spans_of_time_use_the_primary_key(&mut session);
    reading_costs_what_arithmetic_by_hand_costs(&mut session);
    an_index_on_the_time_of_an_id_is_used(&mut session);
}

fn spans_of_time_use_the_primary_key(session: &mut Client) {
    for ends in [
        "'2026-01-10', '2026-01-11'",
        "'-infinity', '2026-01-02'",
        "'2026-01-23', 'infinity'",
        "now() - interval '1 day', now()",
        "(SELECT timestamptz '2026-01-10'), (SELECT timestamptz '2026-01-11')",
    ] {
        let query = format!("SELECT * FROM orders WHERE snowflake_between(id, {ends})");
        assert_spans(&plan(session, &query), "orders_pkey", "id");
    }
    // A prepared statement with one plan for all parameters.
    run(
        session,
        "SET plan_cache_mode = force_generic_plan;
         PREPARE span(timestamptz, timestamptz) AS SELECT count(*) FROM orders WHERE snowflake_between(id, $1, $2)",
    );
    let generic = plan(session, "EXECUTE span('2026-01-10', '2026-01-11')");
    assert!(generic.contains("$1"), "{generic}");
    assert_spans(&generic, "orders_pkey", "id");

    for (ends, rows) in [
        ("'2026-01-10', '2026-01-11'", 21_600),
        ("'2026-01-10 00:00:00', '2026-01-10 00:00:01'", 1),
        ("'2026-01-10 00:00:03.001', '2026-01-10 00:00:04.001'", 1),
        ("'2026-01-10 00:00:00.0001', '2026-01-10 00:00:00.0009'", 0),
        ("'2026-01-11', '2026-01-10'", 0),
        ("'-infinity', '2026-01-01'", 0),
        ("'-infinity', '2026-01-01 00:00:00.000001'", 1),
        ("'-infinity', 'infinity'", 500_000),
        ("'0044-03-15 BC', '9999-12-31'", 500_000),
    ] {
        let query = format!("SELECT count(*) FROM orders WHERE snowflake_between(id, {ends})");
        assert_eq!(one::<i64>(session, &query), rows, "{ends}");
    }
    // The planner knows how few rows a span has.
    let estimate = "EXPLAIN SELECT FROM orders WHERE snowflake_between(id, '2026-01-10', '2026-01-11')";
    let estimate = column::<String>(session, estimate).remove(0);
    let rows = estimate.split("rows=").nth(1).and_then(|rest| rest.split(' ').next()).expect("an estimate");
    let rows: i64 = rows.parse().expect("a number");
    assert!((15_000..30_000).contains(&rows), "{estimate}");
}

fn an_index_on_the_time_of_an_id_is_used(session: &mut Client) {
    run(session, "CREATE INDEX orders_created ON orders (snowflake_timestamp(id)); ANALYZE orders");
    let of_an_hour = "FROM orders WHERE snowflake_timestamp(id) >= '2026-01-10 10:00Z'
                      AND snowflake_timestamp(id) <= '2026-01-10 11:00Z'";
    assert_spans(
        &plan(session, &format!("SELECT amount {of_an_hour}")),
        "orders_created",
        "snowflake_timestamp(id)",
    );
    assert_eq!(one::<i64>(session, &format!("SELECT count(*) {of_an_hour}")), 901);
    let latest = plan(session, "SELECT * FROM orders ORDER BY snowflake_timestamp(id) DESC LIMIT 1");
    assert!(latest.contains("Index Scan Backward using orders_created"), "{latest}");
}

/// The fields of all rows, by this extension and by hand with floating point, which is the cheapest way.
const REPORTS: [(&str, &str); 3] = [
    (
        "SELECT count(snowflake_timestamp(id)) FROM orders",
        "SELECT count(to_timestamp(((id >> 22) + 1704067200000)::float8 / 1000)) FROM orders",
    ),
    (
        "SELECT count(created_at), count(worker_id), count(sequence)
         FROM (SELECT (snowflake_decode(id)).* FROM orders OFFSET 0) parts",
        "SELECT count(c), count(w), count(s)
         FROM (SELECT to_timestamp(((id >> 22) + 1704067200000)::float8 / 1000) AS c, (id >> 12) & 1023 AS w,
                      id & 4095 AS s FROM orders OFFSET 0) parts",
    ),
    (
        "SELECT count(created_at), count(datacenter_id), count(worker_id), count(sequence)
         FROM (SELECT (snowflake_decode(id, 'discord')).* FROM orders OFFSET 0) parts",
        "SELECT count(c), count(d), count(w), count(s)
         FROM (SELECT to_timestamp(((id >> 22) + 1420070400000)::float8 / 1000) AS c, (id >> 17) & 31 AS d,
                      (id >> 12) & 31 AS w, id & 4095 AS s FROM orders OFFSET 0) parts",
    ),
];

/// At most 1.3 times; 0.8 to 1.1 is usual. Measured in processor time, because the machine may be busy with something
/// else.
fn reading_costs_what_arithmetic_by_hand_costs(session: &mut Client) {
    let pid: i32 = one(session, "SELECT pg_backend_pid()");
    let mut time = |query: &str| {
        let before = processor_time(pid);
        run(session, query);
        processor_time(pid) - before
    };
    for (ours, by_hand) in REPORTS {
        time(ours);
        let mut ratios = Vec::new();
        let is_cheap = (0..3).any(|_| {
            let rounds: Vec<(Duration, Duration)> = (0..5).map(|_| (time(ours), time(by_hand))).collect();
            // The fastest round of each, which shared the processor's cache the least.
            let [ours, by_hand] =
                [|round: &(_, _)| round.0, |round: &(_, _)| round.1].map(|of| rounds.iter().map(of).min());
            ratios.push(ours.expect("five").div_duration_f64(by_hand.expect("five")));
            ratios[ratios.len() - 1] <= 1.3
        });
        println!("{ratios:.2?} times as long: {ours}");
        assert!(is_cheap, "{ratios:.2?} times as long: {ours}");
    }
}

// ---- partitions ----

const MONTHS: &str = "
    CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval()) PARTITION BY RANGE (id);
    CREATE TABLE of_early PARTITION OF events FOR VALUES FROM (MINVALUE) TO (snowflake_min('2026-01-01'));
    CREATE TABLE of_01 PARTITION OF events
        FOR VALUES FROM (snowflake_min('2026-01-01')) TO (snowflake_min('2026-02-01'));
    CREATE TABLE of_02 PARTITION OF events
        FOR VALUES FROM (snowflake_min('2026-02-01')) TO (snowflake_min('2026-03-01'));
    CREATE TABLE of_03 PARTITION OF events
        FOR VALUES FROM (snowflake_min('2026-03-01')) TO (snowflake_min('2026-04-01'));
    CREATE TABLE of_late PARTITION OF events FOR VALUES FROM (snowflake_min('2026-04-01')) TO (MAXVALUE);
    INSERT INTO events SELECT snowflake_encode(t, 1, s)
        FROM generate_series('2025-12-01'::timestamptz, '2026-04-30', '6 h') AS t, unnest('{0,4095}'::int[]) AS s";

/// The partitions that a plan reads, by name.
fn partitions(plan: &str) -> Vec<String> {
    let words = plan.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    let mut found: Vec<String> =
        words.filter(|word| word.starts_with("of_") && !word.ends_with("_pkey")).map(str::to_owned).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn a_span_of_time_is_pruned_to_its_partitions_when_it_is_planned() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, MONTHS);
    for (ends, expected) in [
        ("'2026-02-01', '2026-03-01'", vec!["of_02"]),
        ("'2026-01-31 23:59:59.999', '2026-03-01 00:00:00.001'", vec!["of_01", "of_02", "of_03"]),
        ("'2026-01-31 23:59:59.9991', '2026-03-01'", vec!["of_02"]),
        ("'2026-04-01', 'infinity'", vec!["of_late"]),
        ("'-infinity', '2026-01-01'", vec!["of_early"]),
        ("'-infinity', 'infinity'", vec!["of_01", "of_02", "of_03", "of_early", "of_late"]),
    ] {
        let plan = plan(&mut session, &format!("SELECT * FROM events WHERE snowflake_between(id, {ends})"));
        assert_eq!(partitions(&plan), expected, "{ends}\n{plan}");
        assert!(!plan.contains("Subplans Removed"), "pruned only when it runs:\n{plan}");
    }
    // An end that is known only when the query runs prunes then.
    let later = plan(
        &mut session,
        "SELECT * FROM events WHERE snowflake_between(id, now() + interval '1 h', 'infinity')",
    );
    assert!(later.contains("Subplans Removed: 4"), "{later}");
    assert_eq!(partitions(&later), ["of_late"]);
}

// ---- other layouts ----

/// As the manual promises in 'Policies, foreign tables, publications'.
#[test]
fn policies_foreign_tables_and_publications_read_spans_of_time() {
    let server = Server::builder().setting("timezone", "UTC").start_with_extension();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE TABLE orders (id bigint PRIMARY KEY, tenant text NOT NULL DEFAULT 'a');
         INSERT INTO orders SELECT snowflake_encode('2026-01-01 00:00Z'::timestamptz + n * interval '1 min', 900, 0)
             FROM generate_series(0, 99999) AS n;
         CREATE INDEX orders_created ON orders USING brin (snowflake_timestamp(id));
         ALTER TABLE orders ADD created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED;
         CREATE INDEX orders_created_at ON orders USING brin (created_at);
         ANALYZE orders;
         ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
         CREATE ROLE reader; GRANT SELECT ON orders TO reader",
    );

    run(
        &mut session,
        "CREATE POLICY recent ON orders USING (snowflake_between(id, now() - interval '1 day', 'infinity'));
         SET ROLE reader",
    );
    assert_spans(&plan(&mut session, "SELECT * FROM orders"), "orders_pkey", "id");
    run(
        &mut session,
        "RESET ROLE; DROP POLICY recent ON orders;
         CREATE POLICY own ON orders USING (tenant = current_setting('app.tenant', true)); SET ROLE reader",
    );
    let span = "SELECT * FROM orders WHERE snowflake_between(id, '2026-01-10', '2026-01-10 01:00')";
    let below = plan(&mut session, span);
    assert!(below.contains("Index Cond: ((id >= '268167020544000000'::bigint) AND (id <= "), "{below}");
    let by_function = "SELECT * FROM orders WHERE snowflake_timestamp(id) >= '2026-03-10 10:00Z'";
    let unindexed = plan(&mut session, by_function);
    assert!(!unindexed.contains("Index"), "{unindexed}");
    let by_column = plan(&mut session, "SELECT * FROM orders WHERE created_at >= '2026-03-10 10:00Z'");
    assert!(by_column.contains("Bitmap Index Scan on orders_created_at"), "{by_column}");
    run(&mut session, "RESET ROLE; ALTER TABLE orders DISABLE ROW LEVEL SECURITY");
    let indexed = plan(&mut session, by_function);
    assert!(indexed.contains("Bitmap Index Scan on orders_created"), "{indexed}");

    let publish = |filter: &str| format!("CREATE PUBLICATION of_january FOR TABLE orders WHERE ({filter})");
    fails(&mut session, "0A000", &publish("id >= snowflake_min('2026-01-01')"));
    run(&mut session, &publish("id >= 264905526067200000"));

    let generated =
        "CREATE TABLE stored (id bigint, at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id))";
    run(&mut session, &format!("{generated} STORED)"));
    if pg_version() >= 18 {
        fails(&mut session, "0A000", &format!("{} VIRTUAL)", generated.replace("stored", "computed")));
    }

    if !has_contrib() {
        return;
    }
    run(
        &mut session,
        &format!(
            "CREATE EXTENSION postgres_fdw;
             CREATE SERVER away FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{}', port '5432', dbname 'postgres');
             CREATE USER MAPPING FOR CURRENT_USER SERVER away OPTIONS (user 'postgres');
             CREATE FOREIGN TABLE away_orders (id bigint) SERVER away OPTIONS (table_name 'orders')",
            server.folder().display()
        ),
    );
    for (condition, sent) in [
        (
            "snowflake_between(id, '2026-01-10', '2026-01-11')",
            "((id >= 268167020544000000::bigint)) AND ((id <= ",
        ),
        ("id >= (SELECT snowflake_min('2026-01-10'))", "((id >= $1::bigint))"),
    ] {
        let query = format!("SELECT id FROM away_orders WHERE {condition}");
        let plan =
            column::<String>(&mut session, &format!("EXPLAIN (VERBOSE, COSTS OFF) {query}")).join("\n");
        assert!(plan.contains(&format!("WHERE {sent}")), "{plan}");
        assert!(!plan.contains("Filter"), "{plan}");
        let here = one::<i64>(&mut session, &format!("SELECT count(*) FROM orders WHERE {condition}"));
        assert_eq!(one::<i64>(&mut session, &format!("SELECT count(*) FROM ({query}) AS q")), here);
    }
}

#[test]
fn encode_makes_ids_of_this_servers_datacenter() {
    let server = Server::builder()
        .setting("snowflake_id.layout", "41/5+5/12")
        .setting("snowflake_id.datacenter_id", "9")
        .setting("snowflake_id.backup_workers", "3")
        .start_with_extension();
    let mut session = server.connect();
    let id = next(&mut session);
    let encoded = format!(
        "SELECT snowflake_encode(created_at, worker_id, sequence) FROM snowflake_decode({id}) WHERE datacenter_id = 9"
    );
    assert_eq!(one::<i64>(&mut session, &encoded), id);
    // All datacenters lie between the lowest and the highest ID of a tick.
    let (lowest, highest): (i64, i64) = {
        let query = format!("SELECT snowflake_min(t), snowflake_max(t) FROM snowflake_timestamp({id}) AS t");
        let row = session.query_one(&query, &[]).expect("one row");
        (row.get(0), row.get(1))
    };
    assert_eq!((lowest, highest), (id >> 22 << 22, id | ((1 << 22) - 1)));
    fails(&mut session, "22023", "SELECT snowflake_encode(now(), 32, 0)");
}

/// Layouts with fewer than 63 bits have positive numbers that are not IDs. No span contains them, not even an endless
/// one.
#[test]
fn a_short_layout_has_no_ids_above_its_end() {
    let server = Server::builder()
        .setting("timezone", "UTC")
        .setting("snowflake_id.layout", "41/5/7")
        .setting("snowflake_id.backup_workers", "3")
        .start_with_extension();
    let mut session = server.connect();
    let mut between = |id: i64, ends: &str| -> bool {
        one(&mut session, &format!("SELECT snowflake_between({id}, {ends})"))
    };
    let last = (1_i64 << 53) - 1;
    assert!(between(last, "'-infinity', 'infinity'"));
    assert!(!between(last + 1, "'-infinity', 'infinity'"));
    assert!(!between(last, "'infinity', 'infinity'"));
    assert!(between(last, "'2093-09-06 15:47:35.551', '2093-09-06 15:47:35.552'"));
    assert!(!between(last, "'2093-09-06 15:47:35.551001', 'infinity'"));
}

#[test]
fn a_coarse_tick_is_read_as_a_whole() {
    let server = Server::builder()
        .setting("timezone", "UTC")
        .setting("snowflake_id.layout", "32/10/21")
        .setting("snowflake_id.tick", "1s")
        .start_with_extension();
    let mut session = server.connect();
    run(&mut session, "CREATE TABLE t AS SELECT snowflake_encode('2026-01-01 00:00:05.7', 1, 2) AS id");
    let of = |ends: &str| format!("SELECT count(*) FROM t WHERE snowflake_between(id, {ends})");
    // The ID says 5 s, so that is its time, whatever the fraction was.
    for (ends, rows) in [
        ("'2026-01-01 00:00:05', '2026-01-01 00:00:06'", 1),
        ("'2026-01-01 00:00:05', '2026-01-01 00:00:05.1'", 1),
        ("'2026-01-01 00:00:05.1', '2026-01-01 00:00:06'", 0),
        ("'2026-01-01 00:00:04.1', '2026-01-01 00:00:05'", 0),
    ] {
        assert_eq!(one::<i64>(&mut session, &of(ends)), rows, "{ends}");
    }
}

// ---- without preloading ----

#[test]
fn other_systems_are_read_without_preloading() {
    let server = Server::builder().without("shared_preload_libraries").start_with_extension();
    for truth in [
        "snowflake_decode(175928847299117063, 'discord') = ROW('2016-04-30 11:18:25.796+00', 1, 0, 7)::snowflake_parts",
        "snowflake_timestamp(136169504773242881, 'pgedge') = '2024-01-11 18:08:59.845+00'",
        "(snowflake_decode(7, '41/10/0 1ms 2015-01-01')).worker_id = 7",
        "snowflake_from_base62(snowflake_to_base62(362388381519879)) = 362388381519879",
        "(SELECT count(*) FROM snowflake_layouts) = 9",
    ] {
        // A session of its own, because each must be able to load the library.
        assert!(one::<bool>(&mut server.connect(), &format!("SELECT {truth}")), "{truth}");
    }
}
