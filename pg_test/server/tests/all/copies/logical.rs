//! Logical replication of all tables: those of the extension are empty, so each node keeps its record.

use snowflake_server_tests::sql::{one, run};
use snowflake_server_tests::{Builder, Server, secs, wait_until};

/// A node that publishes all its tables. Each order reaches a node once, whichever way it took.
fn node(worker: &str, change: impl FnOnce(Builder) -> Builder) -> Server {
    let builder = Server::builder().setting("wal_level", "logical").setting("snowflake_id.worker_id", worker);
    let node = change(builder).start_with_extension();
    run(
        &mut node.connect(),
        "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
         CREATE FUNCTION once() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN IF EXISTS (SELECT FROM public.orders WHERE id = new.id) THEN RETURN NULL; END IF; RETURN new; END';
         CREATE TRIGGER once BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION once();
         ALTER TABLE orders ENABLE ALWAYS TRIGGER once;
         CREATE PUBLICATION everything FOR ALL TABLES",
    );
    node
}

/// Makes one node follow another.
fn follow(follower: &Server, name: &str, publisher: &Server) {
    let from = publisher.data();
    let from = from.parent().expect("the server's folder").display();
    run(
        &mut follower.connect(),
        &format!(
            "CREATE SUBSCRIPTION {name} CONNECTION 'host={from} port=5432 user=postgres dbname=postgres'
             PUBLICATION everything"
        ),
    );
}

/// Inserts an order on one node, and waits until the others have it as well.
#[track_caller]
fn arrives(from: &Server, to: &[&Server]) {
    let id: i64 = one(&mut from.connect(), "INSERT INTO orders DEFAULT VALUES RETURNING id");
    for server in to {
        let mut session = server.connect();
        wait_until("an order to arrive", secs(30), || {
            one::<bool>(&mut session, &format!("SELECT EXISTS (SELECT FROM orders WHERE id = {id})"))
                .then_some(())
        });
    }
}

const RECORD: &str = "SELECT snowflake_internal.snowflake_own_layouts()";
const OURS: &str = "41/10/12 1ms 2024-01-01 00:00:00+00";

/// Waits until all tables of a node's subscriptions have been copied.
#[track_caller]
fn is_synchronised(node: &Server) {
    let mut session = node.connect();
    wait_until("the tables to be copied", secs(30), || {
        one::<bool>(
            &mut session,
            "SELECT count(*) > 0 AND bool_and(srsubstate IN ('r', 's')) FROM pg_subscription_rel",
        )
        .then_some(())
    });
}

#[test]
fn nodes_that_publish_all_tables_keep_their_records() {
    let (one_node, other) = (node("1", |builder| builder), node("2", |builder| builder));
    follow(&other, "from_one", &one_node);
    follow(&one_node, "from_other", &other);
    for node in [&one_node, &other] {
        is_synchronised(node);
    }
    arrives(&one_node, &[&other]);
    arrives(&other, &[&one_node]);
    // A change of one node's record stays there.
    run(
        &mut one_node.connect(),
        "INSERT INTO snowflake_internal.snowflake_config VALUES ('41/10/12 1ms 2023-01-01 00:00:00+00')",
    );
    arrives(&other, &[&one_node]);
    assert_eq!(one::<String>(&mut other.connect(), RECORD), OURS);
    run(&mut one_node.connect(), "SELECT snowflake_change_layout(has_ids => false)");
    arrives(&one_node, &[&other]);
    for node in [&one_node, &other] {
        assert_eq!(one::<String>(&mut node.connect(), RECORD), OURS);
        // On a slow machine an order may come back before its commit is visible; then it is applied again.
        let log = node.log();
        let is_echo = |line: &str| line.contains(" 23505 ERROR: ") && line.contains("orders");
        assert!(!log.lines().any(|line| line.contains("ERROR: ") && !is_echo(line)), "{log}");
    }

    // Both can still be dumped and restored.
    for node in [&one_node, &other] {
        let dump = node.dump("postgres", &["--no-subscriptions", "--no-publications"]);
        let restored = Server::builder().setting("snowflake_id.worker_id", "3").start();
        restored.restore("postgres", &dump);
        assert_eq!(one::<String>(&mut restored.connect(), RECORD), OURS);
        assert_eq!(
            one::<i64>(&mut restored.connect(), "SELECT count(*) FROM orders"),
            one::<i64>(&mut node.connect(), "SELECT count(*) FROM orders")
        );
    }
}

const REFUSED: &str = "has an ID of this server's own worker";

/// The subscriber has the publisher's worker, as a server that lost its data and gets it back.
#[test]
fn the_copy_of_a_guarded_table_waits_until_the_guard_is_disabled() {
    let table = "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval())";
    let [publisher, subscriber] =
        ["1", "1"].map(|worker| Server::builder().setting("snowflake_id.worker_id", worker));
    let publisher = publisher.setting("wal_level", "logical").start_with_extension();
    let subscriber = subscriber.setting("wal_retrieve_retry_interval", "200ms").start_with_extension();
    run(
        &mut publisher.connect(),
        &format!(
            "{table}; INSERT INTO orders DEFAULT VALUES;
             CREATE PUBLICATION everything FOR TABLE orders WITH (publish_via_partition_root)"
        ),
    );
    // The rows come to the partitioned table, and its partitions have the trigger. The schema is renamed afterwards.
    run(
        &mut subscriber.connect(),
        &format!(
            "CREATE SCHEMA id; DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id SCHEMA id;
             SET search_path = public, id;
             {table} PARTITION BY RANGE (id);
             CREATE TRIGGER guard BEFORE INSERT ON orders FOR EACH ROW WHEN (snowflake_is_own(NEW.id))
                 EXECUTE FUNCTION snowflake_refuse_own_worker();
             ALTER TABLE orders ENABLE REPLICA TRIGGER guard;
             CREATE TABLE orders_all PARTITION OF orders DEFAULT;
             ALTER SCHEMA id RENAME TO ids"
        ),
    );
    follow(&subscriber, "from_publisher", &publisher);
    let refused = || subscriber.log().matches(REFUSED).count();
    wait_until("the refusal of the copy", secs(60), || (refused() > 0).then_some(()));
    assert!(subscriber.log().contains("replicated row of table \"orders_all\""));
    let mut session = subscriber.connect();
    let count = "SELECT count(*) FROM orders";
    assert_eq!(one::<i64>(&mut session, count), 0);
    run(&mut session, "ALTER TABLE orders DISABLE TRIGGER guard");
    is_synchronised(&subscriber);
    assert_eq!(one::<i64>(&mut session, count), 1);

    run(&mut session, "ALTER TABLE orders ENABLE REPLICA TRIGGER guard");
    let before = refused();
    run(&mut publisher.connect(), "INSERT INTO orders VALUES (snowflake_encode(now(), 2, 0))");
    wait_until("another worker's row", secs(60), || (one::<i64>(&mut session, count) == 2).then_some(()));
    run(&mut publisher.connect(), "INSERT INTO orders DEFAULT VALUES");
    wait_until("the next refusal", secs(60), || (refused() > before).then_some(()));
    assert_eq!(one::<i64>(&mut session, count), 2);
}
