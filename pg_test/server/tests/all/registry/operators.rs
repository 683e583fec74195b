//! What operators do to a registry: they reserve workers and retire nodes.

use super::nodes::{AFTER_GRANT, MINUTE, Node, now, single_registry, small_registry, time};
use postgres::Client;
use snowflake_server_tests::sql::{column, fails, one, run};
use snowflake_server_tests::{days, ms};

/// The manual's page on registries.
const PAGE: &str = include_str!("../../../../../docs/registry.md");

/// With leases of one name that end at different times.
#[test]
fn what_is_said_of_several_leases_is_true_of_all() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let (mut first, mut second) = (Node::small("a"), Node::small("a"));
    server.clock().forward(31 * MINUTE);
    first.granted(&mut session);
    second.clock = "clock_timestamp() - interval '30 min'".into();
    second.granted(&mut session);
    for worker in [2, 3] {
        run(&mut operator, &format!("SELECT snowflake_registry_reserve({worker}, 'mine')"));
    }
    // The first to come free, and of a retired node the last.
    let refusal = Node::small("b").refused(&mut session, "full");
    assert!(refusal.free_in.is_some_and(|free_in| (1_000.0..=1_801.0).contains(&free_in)), "{refusal:?}");
    let retired = "SELECT extract(epoch FROM snowflake_registry_retire('a') - clock_timestamp())::float8";
    let free: f64 = one(&mut operator, retired);
    assert!((3_000.0..=3_601.0).contains(&free), "{free}");
    assert_eq!(one::<i64>(&mut operator, "SELECT count(*) FROM snowflake_fleet"), 0);
    first.over(&mut session);
    second.over(&mut session);
    let refusal = Node::small("b").refused(&mut session, "full");
    assert!(refusal.free_in.is_some_and(|free_in| (1_000.0..=1_801.0).contains(&free_in)), "{refusal:?}");
}

/// In how many seconds the time comes that a call returns; null: none is returned.
fn seconds_until(operator: &mut Client, call: &str) -> Option<f64> {
    one(operator, &format!("SELECT extract(epoch FROM {call} - clock_timestamp())::float8"))
}

#[test]
fn a_reserved_worker_is_not_leased_until_a_grant_after_it_is_unreserved() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut node = Node::small("a");
    node.granted(&mut session);
    let above = fails(&mut operator, "22023", "SELECT snowflake_registry_reserve(4, 'too many')");
    let home_workers = "The registry leases home workers 0 to 3.";
    assert_eq!((&above.message[..], &above.detail[..]), ("worker_id 4 is out of range", home_workers));
    fails(&mut operator, "22023", "SELECT snowflake_registry_reserve(-1, 'too few')");
    for arguments in ["1, NULL", "NULL, 'a server'"] {
        let null = fails(&mut operator, "22004", &format!("SELECT snowflake_registry_reserve({arguments})"));
        assert_eq!(null.message, "worker_id and note must not be null");
    }
    let free = fails(&mut operator, "42704", "SELECT snowflake_registry_unreserve(1)");
    assert_eq!(free.message, "worker 1 is not reserved");
    let long = &"2".repeat(65);
    for (worker, note) in [(1, "server 1"), (2, long), (3, "")] {
        let call = format!("snowflake_registry_reserve({worker}, '{note}')");
        assert_eq!(seconds_until(&mut operator, &call), None, "no server had it, and nothing was lost");
    }
    let reserved = fails(&mut operator, "55000", "SELECT snowflake_registry_reserve(2, 'another server')");
    assert_eq!(reserved.message, "worker 2 is reserved already");
    assert_eq!(reserved.detail, format!("Its note is \"{}\".", &long[1..]));
    run(&mut operator, &format!("SELECT snowflake_registry_reserve(2, '{long}')"));
    Node::small("b").refused(&mut session, "full");
    let before = now(&mut operator);
    let free: String = one(&mut operator, "SELECT snowflake_registry_unreserve(1)::text");
    let until = "SELECT until + 1 FROM snowflake_internal.snowflake_registry_groups WHERE worker_id = 1";
    let after: i64 = one(&mut operator, until);
    assert_eq!(free, time(&mut operator, after));
    Node::small("b").refused(&mut session, "full");
    node.granted(&mut session);
    server.clock().forward(AFTER_GRANT);
    // That of node "a" is free, too, and was free before.
    server.clock().forward(ms(100));
    let leases = [Node::small("b").granted(&mut session), Node::small("c").granted(&mut session)];
    let lease = leases.iter().find(|lease| lease.worker == 1).expect("one of both");
    assert!(lease.floor >= before + 3_600_000, "{lease:?} after {before}");
}

/// Its server begins when its own clock has passed the time that is returned: the registry's may be wrong.
#[test]
fn reservation_returns_the_end_of_the_last_lease() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut node = Node::small("a");
    node.granted(&mut session);
    let reserve = "snowflake_registry_reserve(0, 'mine')";
    let running = fails(&mut operator, "55000", &format!("SELECT {reserve}"));
    let until: String = one(&mut operator, "SELECT granted_until::text FROM snowflake_fleet");
    assert_eq!(running.message, "cannot reserve worker 0: it is leased");
    assert_eq!(running.detail, format!("Node \"a\" has it until {until}."));
    run(&mut operator, "SELECT snowflake_registry_retire('a')");
    let returned = seconds_until(&mut operator, reserve).expect("a time");
    assert!((3_000.0..=3_600.0).contains(&returned), "{returned}");
    node.over(&mut session);
    // It is not leased when that time has passed.
    server.clock().forward(2 * AFTER_GRANT);
    assert_eq!([1, 2, 3].map(|_| Node::small("b").granted(&mut session).worker), [1, 2, 3]);
    Node::small("b").refused(&mut session, "full");

    // By the registry's clock this lease has passed; its node may have it still.
    server.clock().forward(AFTER_GRANT);
    let passed = seconds_until(&mut operator, "snowflake_registry_reserve(3, 'mine')");
    assert!(passed.is_some_and(|passed| passed < 0.0), "{passed:?}");
}

#[test]
fn a_retired_node_is_over_and_its_group_is_free_after_its_until() {
    let server = single_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut node = Node::single("a");
    let lease = node.granted(&mut session);
    let none = fails(&mut operator, "42704", "SELECT snowflake_registry_retire(repeat('b', 65))");
    assert_eq!(none.message, format!("node \"{}\" has no lease", "b".repeat(64)));
    let free: String = one(&mut operator, "SELECT snowflake_registry_retire('a')::text");
    assert_eq!(free, time(&mut operator, lease.until + 1));
    fails(&mut operator, "42704", "SELECT snowflake_registry_retire('a')");
    assert_eq!(one::<i64>(&mut operator, "SELECT count(*) FROM snowflake_fleet"), 0);
    let mut other = Node::single("b");
    other.refused(&mut session, "full");
    assert_eq!(node.over(&mut session).detail, "The registry has no lease of this node.");
    server.clock().forward(AFTER_GRANT);
    let next = other.granted(&mut session);
    assert!(next.floor >= lease.until, "{next:?} after {lease:?}");
}

/// By the statement of the manual. A server that a crash has moved to another worker has a lease that nobody renews, beside
/// its own.
#[test]
fn servers_that_are_gone_are_retired_and_none_of_a_server_that_runs() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut nodes = ["gone", "gone", "runs", "runs"].map(Node::small);
    for node in &mut nodes {
        node.granted(&mut session);
    }
    server.clock().forward(days(2));
    nodes[3].granted(&mut session);
    let statement = PAGE.split("```").find(|block| block.contains("SELECT snowflake_registry_retire("));
    run(&mut operator, statement.and_then(|block| block.strip_prefix("sql")).expect("the manual has it"));
    let left: Vec<String> = column(&mut operator, "SELECT node_name FROM snowflake_fleet");
    assert_eq!(left, ["runs", "runs"]);
    nodes[3].granted(&mut session);
    nodes[0].over(&mut session);
}
