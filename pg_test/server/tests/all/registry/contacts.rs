//! The registry of a fleet: who gets which worker, with which floor, and what a node is told that must not go on. The
//! nodes here are calls; nothing is preloaded where they call.

use postgres::Client;
use snowflake_server_tests::sql::{Failure, column, fails, one, run};
use snowflake_server_tests::{Server, Stop, alone, ms, secs, without_warnings};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A server that preloads nothing.
fn bare() -> Server {
    Server::builder().without_library().start()
}

/// A registry with these arguments after the role's name.
fn registry(arguments: &str) -> Server {
    registry_on(bare(), arguments)
}

/// One with four groups, which are leased for an hour. Tests move its clock: then a slow machine ends no lease.
fn small_registry() -> Server {
    let server = Server::builder().without_library().faketime(true).start();
    registry_on(server, ", '1 h', '41/4/18'")
}

/// One with a single group.
fn single_registry() -> Server {
    let server = Server::builder().without_library().faketime(true).start();
    registry_on(server, ", '1 h', '41/2/20'")
}

fn registry_on(server: Server, arguments: &str) -> Server {
    run(&mut server.connect(), "CREATE ROLE node LOGIN; CREATE EXTENSION snowflake_id");
    run(&mut server.connect(), &format!("SELECT snowflake_registry_create('node'{arguments})"));
    // Both clocks have to pass the tick in which it was created.
    thread::sleep(ms(5));
    server
}

const MINUTE: Duration = secs(60);
const GRANT: Duration = secs(3_600);
/// The hour, and what both clocks need to pass it.
const AFTER_GRANT: Duration = secs(3_601);

// ---- nodes ----

#[derive(Clone, Debug, PartialEq)]
struct Lease {
    worker: i32,
    floor: i64,
    until: i64,
}

#[derive(Clone, Debug, PartialEq)]
struct Answer {
    answer: String,
    lease: Option<Lease>,
    reason: String,
    detail: String,
    hint: String,
    /// In how many seconds something comes free, as the detail says.
    free_in: Option<f64>,
    registry: String,
}

/// What a node keeps, and sends.
#[derive(Clone, Debug)]
struct Node {
    registry: Option<String>,
    id: String,
    name: String,
    number: i64,
    nonce: String,
    lease: Option<Lease>,
    clock: String,
    layout: String,
    tick_ms: i32,
    backups: i32,
    datacenter: i32,
    releases: bool,
}

fn draw() -> String {
    static DRAWN: AtomicU64 = AtomicU64::new(1);
    format!("00000000-0000-4000-8000-{:012x}", DRAWN.fetch_add(1, Ordering::Relaxed))
}

fn literal<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map_or("NULL".to_owned(), |value| format!("'{}'", value.to_string()))
}

impl Node {
    fn new(name: &str) -> Self {
        Self {
            registry: None,
            id: draw(),
            name: name.to_owned(),
            number: 0,
            nonce: draw(),
            lease: None,
            clock: "clock_timestamp()".to_owned(),
            layout: "41/10/12".to_owned(),
            tick_ms: 1,
            backups: 3,
            datacenter: 0,
            releases: false,
        }
    }

    /// Of a fleet with four groups.
    fn small(name: &str) -> Self {
        Self { layout: "41/4/18".to_owned(), ..Self::new(name) }
    }

    /// Of a fleet with one group.
    fn single(name: &str) -> Self {
        Self { layout: "41/2/20".to_owned(), ..Self::new(name) }
    }

    fn query(&self) -> String {
        let lease = |part: fn(&Lease) -> i64| literal(&self.lease.as_ref().map(part));
        format!(
            "SELECT answer, registry::text, worker_id, floor, until, coalesce(reason, '') AS reason,
                 coalesce(detail, '') AS detail, coalesce(hint, '') AS hint,
                 extract(epoch FROM substring(detail FROM ' before (.*)[.]$')::timestamptz
                     - clock_timestamp())::double precision AS free_in
             FROM snowflake_registry_contact({}, '{}', '{}', {}, '{}', {}, {}, {}, {}, {}, '{}', {},
                 '2024-01-01 00:00:00+00', {}, {}, false, '1.0.0')",
            literal(&self.registry),
            self.id,
            self.name,
            self.number,
            self.nonce,
            lease(|lease| lease.worker.into()),
            lease(|lease| lease.floor),
            lease(|lease| lease.until),
            self.releases,
            self.clock,
            self.layout,
            self.tick_ms,
            self.backups,
            self.datacenter,
        )
    }

    /// Sends what it has sent before, or what a test has made of it.
    fn send(&self, session: &mut Client) -> Answer {
        let row = session.query_one(&self.query(), &[]).unwrap_or_else(|e| panic!("{}", Failure::from(&e)));
        let lease = row.get::<_, Option<i32>>("worker_id").map(|worker| Lease {
            worker,
            floor: row.get("floor"),
            until: row.get("until"),
        });
        Answer {
            answer: row.get("answer"),
            lease,
            reason: row.get("reason"),
            detail: row.get("detail"),
            hint: row.get("hint"),
            free_in: row.get("free_in"),
            registry: row.get("registry"),
        }
    }

    /// The next contact. It keeps what it is granted.
    fn contact(&mut self, session: &mut Client) -> Answer {
        self.number += 1;
        self.nonce = draw();
        let answer = self.send(session);
        self.take(&answer);
        answer
    }

    fn take(&mut self, answer: &Answer) {
        match answer.answer.as_str() {
            "granted" => {
                self.registry = Some(answer.registry.clone());
                self.lease = answer.lease.clone();
            }
            "over" => {
                self.id = draw();
                self.lease = None;
            }
            _ => (),
        }
    }

    #[track_caller]
    fn granted(&mut self, session: &mut Client) -> Lease {
        let answer = self.contact(session);
        assert_eq!(answer.answer, "granted", "{answer:?}");
        answer.lease.expect("a lease")
    }

    #[track_caller]
    fn refused(&mut self, session: &mut Client, reason: &str) -> Answer {
        let answer = self.contact(session);
        assert_eq!((answer.answer.as_str(), answer.reason.as_str()), ("refused", reason), "{answer:?}");
        assert!(answer.lease.is_none() && answer.detail.ends_with('.'), "{answer:?}");
        assert!(answer.hint.ends_with('.'), "{answer:?}");
        answer
    }

    #[track_caller]
    fn over(&mut self, session: &mut Client) -> Answer {
        let answer = self.contact(session);
        assert_eq!(answer.answer, "over", "{answer:?}");
        assert!(answer.lease.is_none(), "{answer:?}");
        answer
    }
}

/// The tick of this moment, by the registry's clock.
fn now(session: &mut Client) -> i64 {
    one(
        session,
        "SELECT floor(extract(epoch FROM clock_timestamp() - '2024-01-01 00:00:00+00') * 1000)::bigint",
    )
}

fn rows(session: &mut Client) -> Vec<String> {
    column(
        session,
        "SELECT g::text FROM snowflake_internal.snowflake_registry_groups g ORDER BY datacenter_id, worker_id",
    )
}

// ---- a registry ----

#[test]
fn a_registry_needs_nothing_preloaded_and_is_created_once() {
    let server = bare();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE node LOGIN; CREATE EXTENSION snowflake_id");
    let none = fails(&mut session, "55000", "SELECT snowflake_registry_retire('a')");
    assert!(none.hint.contains("snowflake_registry_create"), "{none}");
    for (arguments, code) in [
        ("'node', NULL", "22004"),
        ("'node', '1.9 s'", "22023"),
        ("'node', '31 days'", "22023"),
        ("'node', clock_tolerance => NULL", "22004"),
        ("'node', replaces_lost => NULL", "22004"),
        ("'node', clock_tolerance => '0.9 s'", "22023"),
        ("'node', clock_tolerance => '31 min'", "22023"),
        ("'node', layout => '41-10-12'", "22023"),
        ("'node', layout => 'twitter'", "22023"),
        ("'node', layout => '42/10/12'", "22023"),
        ("'node', layout => '41/2/12', backup_workers => 7", "22023"),
        ("'node', tick => '5 ms'", "22023"),
        ("'node', tick => '1.5 ms'", "22023"),
        ("'node', tick => '1 mon'", "22023"),
        ("'node', epoch => '2199-01-01 00:00Z'", "22023"),
        ("'node', epoch => '-infinity'", "22023"),
        ("'node', backup_workers => 16", "22023"),
        ("'node', backup_workers => -1", "22023"),
        ("'nobody'", "42704"),
    ] {
        let failure = fails(&mut session, code, &format!("SELECT snowflake_registry_create({arguments})"));
        assert!(code == "42704" || !failure.detail.is_empty() && !failure.hint.is_empty(), "{failure}");
    }
    run(&mut session, "SELECT snowflake_registry_create('node')");
    let twice = fails(&mut session, "55000", "SELECT snowflake_registry_create('node')");
    assert!(twice.message.contains("already") && !twice.hint.is_empty(), "{twice}");
    thread::sleep(ms(5));
    let lease = Node::new("a").granted(&mut server.connect_as("node"));
    assert_eq!(lease.worker, 0);
    let ahead = lease.until - now(&mut session);
    assert!((3_590_000..=3_600_000).contains(&ahead), "one hour, not {ahead} ms");
}

#[test]
fn layouts_with_datacenters_and_with_millions_of_workers_have_registries() {
    let server = registry(", layout => '41/5+5/12'");
    let mut session = server.connect_as("node");
    let mut operator = server.connect();
    let capacity = |operator: &mut Client| -> Vec<String> {
        column(
            operator,
            "SELECT concat_ws(' ', datacenter_id, workers, free) FROM snowflake_fleet_capacity ORDER BY 1",
        )
    };
    assert_eq!(capacity(&mut operator), ["8 8"]);
    let mut here = Node { layout: "41/5+5/12".into(), ..Node::new("a") };
    let mut there = Node { datacenter: 31, ..here.clone() };
    there.id = draw();
    assert_eq!((here.granted(&mut session).worker, there.granted(&mut session).worker), (0, 0));
    let nowhere =
        Node { datacenter: 32, ..Node { id: draw(), ..there.clone() } }.refused(&mut session, "settings");
    assert!(nowhere.detail.contains("0 to 31"), "{nowhere:?}");
    let seen: Vec<Option<i32>> =
        column(&mut operator, "SELECT datacenter_id FROM snowflake_fleet ORDER BY 1");
    assert_eq!(seen, [Some(0), Some(31)]);
    // A reservation takes one as well.
    run(&mut operator, "SELECT snowflake_registry_reserve(3, 'mine')");
    assert_eq!(capacity(&mut operator), ["0 8 6", "31 8 7"]);
    // Retired, and not free before its `until`.
    run(&mut operator, "SELECT snowflake_registry_retire('a')");
    assert_eq!(capacity(&mut operator), ["0 8 6", "31 8 7"]);
    // Worker 9 of datacenter 31 is lane 1 of home worker 1; of datacenter 0, nobody has it.
    let id = |center: i64, worker: i64| (now(&mut server.connect()) << 22) + (center << 17) + (worker << 12);
    let origin = |id: i64| {
        format!("SELECT node_name || ' ' || home_worker_id || ' ' || lane FROM snowflake_origin({id})")
    };
    assert_eq!(column::<String>(&mut operator, &origin(id(31, 8))), ["a 0 1"]);
    assert_eq!(column::<String>(&mut operator, &origin(id(30, 8))), [""; 0]);
    assert_eq!(column::<String>(&mut operator, &origin(id(31, 9))), [""; 0]);
    // The number of worker 5 in datacenter 31.
    run(&mut operator, "SELECT snowflake_registry_reserve(31 * 32 + 5, 'legacy')");
    let reserved = "SELECT worker_id FROM snowflake_internal.snowflake_registry_groups
                    WHERE datacenter_id = 31 AND note = 'legacy'";
    assert_eq!(one::<i32>(&mut operator, reserved), 5);
    fails(&mut operator, "22023", "SELECT snowflake_registry_reserve(8, 'no lane 0 has it')");

    let server = registry(", '1 h', '28/22/13', '1 s', '2024-01-01 00:00Z', 3");
    let mut session = server.connect_as("node");
    // Both clocks have to pass the second of the creation.
    thread::sleep(ms(1_100));
    let huge = Node { layout: "28/22/13".into(), tick_ms: 1_000, ..Node::new("b") };
    assert_eq!(huge.clone().granted(&mut session).worker, 0);
    let last = (1 << 20) - 1;
    run(&mut server.connect(), &format!("SELECT snowflake_registry_reserve({last}, 'the last')"));
    fails(&mut server.connect(), "22023", &format!("SELECT snowflake_registry_reserve({last} + 1, '')"));
}

// ---- one voice ----

#[test]
fn a_contact_renews_and_its_repetition_gets_the_same_lease() {
    let server = registry("");
    let mut session = server.connect_as("node");
    let mut node = Node::new("a");
    let first = node.granted(&mut session);
    // The answer was lost.
    let again = Node { lease: None, registry: None, ..node.clone() };
    let same = again.send(&mut session).lease.expect("a lease");
    assert_eq!((same.worker, same.floor, same.until >= first.until), (first.worker, first.floor, true));
    let frozen = Node { clock: "'2026-01-01 00:00Z'".into(), ..again };
    assert_eq!(frozen.send(&mut session), frozen.send(&mut session));

    let renewed = node.granted(&mut session);
    assert_eq!(
        (renewed.worker, renewed.floor, renewed.until > first.until),
        (first.worker, first.floor, true)
    );
    assert_eq!(node.send(&mut session).lease.expect("a lease").floor, first.floor);
    // A clock that went back takes nothing away.
    node.clock = "clock_timestamp() - interval '10 min'".into();
    assert_eq!(node.granted(&mut session).until, renewed.until.max(node.lease.clone().unwrap().until));
    assert_eq!(one::<i64>(&mut server.connect(), "SELECT count(*) FROM snowflake_fleet"), 1);
}

#[test]
fn another_copy_of_a_node_is_told_that_its_lease_is_over_and_changes_nothing() {
    let server = registry("");
    let mut session = server.connect_as("node");
    let mut node = Node::new("a");
    node.granted(&mut session);
    node.granted(&mut session);
    let mut copy = node.clone();
    node.granted(&mut session);
    let before = rows(&mut server.connect());
    // The same number with another nonce, and a lower one.
    assert_eq!(copy.clone().over(&mut session).lease, None);
    copy.number = 1;
    copy.clone().over(&mut session);
    assert_eq!(copy.send(&mut session).answer, "over");
    // A claim of this life with the last number and another nonce, and with a stale one.
    for number in [1, 2] {
        Node { lease: None, number, ..node.clone() }.over(&mut session);
    }
    // Another lease of the same group.
    let lease = node.lease.clone().map(|lease| Lease { floor: lease.floor + 1, ..lease });
    Node { lease, number: 100, ..node.clone() }.over(&mut session);
    // An `until` that nobody granted.
    let lease = node.lease.clone().map(|lease| Lease { until: 1 << 62, ..lease });
    Node { lease, number: 100, ..node.clone() }.over(&mut session);
    assert_eq!(rows(&mut server.connect()), before);
    node.granted(&mut session);
}

#[test]
fn a_node_has_one_lease_in_its_life() {
    let server = small_registry();
    let mut session = server.connect_as("node");
    let mut node = Node::small("a");
    node.granted(&mut session);
    let claim = Node { lease: None, ..node.clone() };
    server.clock().forward(AFTER_GRANT);
    // Its group goes to another, of that name.
    let mut other = Node::small("a");
    assert_eq!(other.granted(&mut session).worker, 0);
    assert_eq!(claim.send(&mut session).answer, "over");
    node.over(&mut session);
    // With a new id.
    assert_eq!(node.granted(&mut session).worker, 1);
}

// ---- above the fence ----

#[test]
fn a_group_goes_to_another_node_above_all_that_was_granted_and_its_ids_can_be_traced() {
    let server = single_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut first = Node::single("a");
    let lease = first.granted(&mut session);
    // Its group is not free before both clocks have passed `until`.
    let mut second = Node::single("b");
    let refusal = second.refused(&mut session, "full");
    assert!(refusal.free_in.is_some_and(|free_in| (0.0..=3_600.0).contains(&free_in)), "{refusal:?}");
    // It renewed meanwhile, with a clock that is ahead: a lease lasts from the earlier of the two clocks.
    server.clock().forward(30 * MINUTE);
    first.clock = "clock_timestamp() + interval '30 min'".into();
    let ahead = first.granted(&mut session);
    let length = ahead.until - now(&mut operator);
    assert!(ahead.until >= lease.until + 1_800_000 && length <= 3_600_000, "{ahead:?} after {lease:?}");
    server.clock().forward(30 * MINUTE);
    second.refused(&mut session, "full");
    server.clock().forward(30 * MINUTE + secs(1));
    // A clock that has not passed it is no reason to hand it out.
    let mut slow = Node { clock: "clock_timestamp() - interval '50 min'".into(), ..Node::single("c") };
    let refusal = slow.refused(&mut session, "clock");
    assert!(refusal.detail.contains("a worker is free from"), "{refusal:?}");
    let next = second.granted(&mut session);
    assert!(next.floor >= ahead.until && next.until > next.floor, "{next:?} after {ahead:?}");
    first.over(&mut session);

    let origin = |tick: i64, worker: i64| {
        format!(
            "SELECT node_name || ' ' || home_worker_id || ' ' || lane FROM snowflake_origin({})",
            (tick << 22) + (worker << 20)
        )
    };
    // Lane 3 of the only home worker is worker 3.
    for (tick, traced) in [
        (lease.floor, None),
        (lease.floor + 1, Some("a 0 3")),
        (ahead.until, Some("a 0 3")),
        (next.floor + 1, Some("b 0 3")),
        (next.until, Some("b 0 3")),
        (next.until + 1, None),
    ] {
        let found: Vec<String> = column(&mut operator, &origin(tick, 3));
        assert_eq!(found.first().map(String::as_str), traced, "{tick} {ahead:?} {next:?}");
    }
    assert_eq!(column::<String>(&mut operator, "SELECT node_name FROM snowflake_origin(-1)"), [""; 0]);
}

#[test]
fn a_node_gets_its_names_last_group_or_one_never_used_or_the_one_free_longest() {
    let server = small_registry();
    let mut session = server.connect_as("node");
    assert_eq!(Node::small("a").granted(&mut session).worker, 0);
    server.clock().forward(MINUTE);
    assert_eq!(Node::small("b").granted(&mut session).worker, 1);
    server.clock().forward(MINUTE);
    // The same name at the same time: another group.
    assert_eq!(Node::small("a").granted(&mut session).worker, 2);
    server.clock().forward(AFTER_GRANT);
    assert_eq!(Node::small("b").granted(&mut session).worker, 1, "its name's");
    assert_eq!(Node::small("a").granted(&mut session).worker, 2, "its name's last");
    assert_eq!(Node::small("c").granted(&mut session).worker, 3, "never used");
    assert_eq!(Node::small("d").granted(&mut session).worker, 0, "the only one free");
    let refusal = Node::small("e").refused(&mut session, "full");
    assert!(refusal.free_in.is_some_and(|free_in| (0.0..=3_601.0).contains(&free_in)), "{refusal:?}");
    server.clock().forward(AFTER_GRANT);
    assert_eq!(Node::small("e").granted(&mut session).worker, 1, "free longest");
}

/// One hint a cause that a person can act on.
#[test]
fn each_refusal_has_the_hint_of_its_cause() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let small = || Node::small("b");
    let told = |node: &mut Node, session: &mut Client, reason, words: &str| {
        let hint = node.refused(session, reason).hint;
        assert!(hint.contains(words), "{words:?} in {hint}");
    };
    let settings = "Correct snowflake_id.registry, or layout, tick, epoch, backup_workers and datacenter_id";
    told(&mut Node { datacenter: 1, ..small() }, &mut session, "settings", settings);
    told(&mut Node::new("b"), &mut session, "settings", settings);
    told(&mut Node { registry: Some(draw()), ..small() }, &mut session, "settings", settings);
    let clocks = "Compare the clocks of this server and of the registry with the true time";
    for wrong in ["+ interval '2 h'", "- interval '1 day'"] {
        let clock = format!("clock_timestamp() {wrong}");
        told(&mut Node { clock, ..small() }, &mut session, "clock", clocks);
    }
    run(&mut operator, "SELECT snowflake_registry_reserve(n, 'legacy') FROM generate_series(1, 3) AS n");
    Node::small("a").granted(&mut session);
    told(&mut small(), &mut session, "full", "snowflake_registry_unreserve");
    server.clock().forward(AFTER_GRANT + MINUTE);
    run(&mut operator, "SELECT snowflake_registry_reserve(0, 'legacy')");
    told(&mut small(), &mut session, "full", "snowflake_registry_unreserve");
    move_elsewhere(&mut operator);
    told(&mut Node { clock: "'2026-01-01Z'".into(), ..small() }, &mut session, "clock", clocks);
    run(&mut operator, "SELECT snowflake_registry_vouch(), snowflake_registry_unreserve(3)");
    move_elsewhere(&mut operator);
    told(&mut small(), &mut session, "doubt", "call snowflake_registry_vouch");
}

// ---- a lease that is given back ----

#[test]
fn a_lease_that_is_given_back_is_free_above_its_mark_for_its_name_first() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut node = Node::small("a");
    let lease = node.granted(&mut session);
    Node::small("b").granted(&mut session);
    let mark = now(&mut operator) + 1_500;
    let release = Node {
        releases: true,
        number: node.number + 1,
        nonce: draw(),
        lease: Some(Lease { until: mark, ..lease.clone() }),
        ..node.clone()
    };
    let answer = release.send(&mut session);
    assert_eq!((answer.answer.as_str(), answer.reason.as_str(), answer.lease), ("over", "", None));
    assert!(answer.detail.contains("given worker 0 back"), "{}", answer.detail);
    let before = rows(&mut operator);
    // The answer was lost; a contact of before arrives late; and a copy of the node goes on.
    for late in [&release, &node, &Node { number: 99, ..node.clone() }] {
        assert_eq!(late.send(&mut session).answer, "over");
    }
    assert_eq!(rows(&mut operator), before);
    assert_eq!(column::<String>(&mut operator, "SELECT node_name FROM snowflake_fleet"), ["b"]);
    server.clock().forward(secs(2));
    // Of any name only after those that were never used.
    assert_eq!(Node::small("c").granted(&mut session).worker, 2);
    let mut next = Node::small("a");
    let again = next.granted(&mut session);
    assert_eq!((again.worker, again.floor), (0, mark));
    // Each of the two has its IDs.
    for (tick, from) in [(mark, lease.floor), (mark + 1, mark)] {
        let origin = format!(
            "SELECT floor(extract(epoch FROM leased_from - '2024-01-01Z') * 1000)::bigint
             FROM snowflake_origin({}) WHERE node_name = 'a'",
            tick << 22
        );
        assert_eq!(column::<i64>(&mut operator, &origin), [from + 1]);
    }
}

#[test]
fn a_release_without_the_nodes_voice_or_a_believable_mark_changes_nothing() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut node = Node::small("a");
    node.granted(&mut session);
    let lease = node.granted(&mut session);
    let before = rows(&mut operator);
    let release = |number, until| Node {
        releases: true,
        number,
        nonce: draw(),
        lease: Some(Lease { until, ..lease.clone() }),
        ..node.clone()
    };
    // A number that was used, with another nonce; below the floor; above all that could have been granted.
    for wrong in [
        release(2, lease.until),
        release(1, lease.until),
        release(9, lease.floor - 1),
        release(9, lease.until + 3_700_000),
        Node { id: draw(), ..release(9, lease.until) },
    ] {
        assert_eq!(wrong.send(&mut session).answer, "over");
        assert_eq!(rows(&mut operator), before);
    }
    let nothing = Node { lease: None, ..release(9, 0) };
    let error = session.query(&nothing.query(), &[]).expect_err("no lease");
    assert_eq!(Failure::from(&error).code, "22004");
    assert_eq!(release(9, lease.floor).send(&mut session).answer, "over");
    assert_ne!(rows(&mut operator), before);
}

/// Nodes that all claim at once, in as many sessions.
fn claim_at_once(server: &Server, layout: &str, (sessions, each): (usize, usize)) -> Vec<Answer> {
    let barrier = Barrier::new(sessions);
    let claims = || {
        let mut session = server.connect_as("node");
        barrier.wait();
        let node = || Node { layout: layout.into(), ..Node::new(&draw()) };
        (0..each).map(|_| node().contact(&mut session)).collect::<Vec<Answer>>()
    };
    let began = std::time::Instant::now();
    let answers: Vec<Answer> = thread::scope(|scope| {
        let all: Vec<_> = (0..sessions).map(|_| scope.spawn(claims)).collect();
        all.into_iter().flat_map(|claims| claims.join().expect("claims")).collect()
    });
    println!("{} claims of {sessions} sessions in {:?}", answers.len(), began.elapsed());
    answers
}

/// The workers that were granted, in order.
fn granted(answers: &[Answer]) -> Vec<i32> {
    let mut workers: Vec<i32> = answers.iter().filter_map(|a| Some(a.lease.as_ref()?.worker)).collect();
    workers.sort_unstable();
    workers
}

#[test]
fn a_thousand_claims_at_once_get_a_thousand_groups() {
    let _alone = alone();
    let server = registry(", layout => '41/12/10'");
    let answers = claim_at_once(&server, "41/12/10", (50, 20));
    assert_eq!(granted(&answers), Vec::from_iter(0..1_000));
}

#[test]
fn of_more_nodes_than_groups_that_claim_at_once_each_gets_its_own_or_is_told_when_one_is_free() {
    let _alone = alone();
    let server = registry("");
    let answers = claim_at_once(&server, "41/10/12", (32, 8));
    assert_eq!(granted(&answers), Vec::from_iter(0..256), "{answers:?}");
    for late in claim_at_once(&server, "41/10/12", (16, 4)) {
        assert_eq!((late.answer.as_str(), late.reason.as_str()), ("refused", "full"), "{late:?}");
        assert!(late.free_in.is_some_and(|free_in| (3_000.0..=3_601.0).contains(&free_in)), "{late:?}");
    }

    // Some of them get the last groups.
    let server = registry("");
    let answers = claim_at_once(&server, "41/10/12", (32, 12));
    assert_eq!(granted(&answers), Vec::from_iter(0..256), "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer.reason == "full").count(), 128, "{answers:?}");
}

#[test]
fn the_same_claim_at_once_in_many_sessions_gets_one_group() {
    let server = registry("");
    let node = Node { number: 1, nonce: draw(), ..Node::new("a") };
    let barrier = Barrier::new(8);
    let leases: Vec<Lease> = thread::scope(|scope| {
        let send = || {
            let mut session = server.connect_as("node");
            barrier.wait();
            node.send(&mut session).lease.expect("a lease")
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(send)).collect();
        all.into_iter().map(|lease| lease.join().expect("an answer")).collect()
    });
    assert!(leases.iter().all(|lease| (lease.worker, lease.floor) == (0, leases[0].floor)), "{leases:?}");
    assert_eq!(one::<i64>(&mut server.connect(), "SELECT count(*) FROM snowflake_fleet"), 1);
}

// ---- refusals ----

#[test]
fn a_node_that_does_not_fit_is_refused_with_both_sides_named() {
    let server = registry("");
    let mut session = server.connect_as("node");
    let node = Node::new("a");
    for (other, named) in [
        (Node { layout: "41/11/11".into(), ..node.clone() }, "layout 41/11/11"),
        (Node { tick_ms: 10, ..node.clone() }, "tick 10 ms"),
        (Node { backups: 7, ..node.clone() }, "backup_workers 7"),
        (Node { layout: "x".repeat(1_000), ..node.clone() }, "xxxx"),
    ] {
        let refusal = other.clone().refused(&mut session, "settings");
        assert!(refusal.detail.contains("41/10/12") && refusal.detail.contains(named), "{refusal:?}");
        assert!(refusal.detail.len() < 400, "{}", refusal.detail.len());
    }
    let refusal = Node { registry: Some(draw()), ..node.clone() }.refused(&mut session, "settings");
    assert!(refusal.detail.contains(&refusal.registry), "{refusal:?}");
    Node { datacenter: 1, ..node.clone() }.refused(&mut session, "settings");
    for clock in [
        "clock_timestamp() + interval '1 h 1 min'",
        "'294276-01-01 00:00Z'",
        "'4713-01-01 00:00Z BC'",
        "'2023-12-31 23:59:59Z'",
        "'infinity'",
        "'-infinity'",
    ] {
        Node { clock: clock.into(), ..node.clone() }.refused(&mut session, "clock");
    }
    // A lease that is held is not renewed, and not taken away, by such a clock.
    let mut held = Node::new("b");
    held.granted(&mut session);
    let before = rows(&mut server.connect());
    Node { clock: "clock_timestamp() + interval '2 h'".into(), ..held.clone() }
        .refused(&mut session, "clock");
    assert_eq!(rows(&mut server.connect()), before);
    held.granted(&mut session);
    assert_eq!(one::<i64>(&mut server.connect(), "SELECT count(*) FROM snowflake_fleet"), 1);
}

#[test]
fn whatever_a_node_sends_hurts_no_other() {
    let server = registry("");
    let mut session = server.connect_as("node");
    let mut victim = Node::new("victim");
    let lease = victim.granted(&mut session);
    let good = victim.clone();
    let as_sent = Node { id: draw(), lease: None, number: 1, nonce: draw(), ..good.clone() }.query();
    for (from, to) in [
        ("'victim'".to_owned(), "NULL".to_owned()),
        ("'victim'".to_owned(), "''".to_owned()),
        ("'victim'".to_owned(), "repeat('x', 10000000)".to_owned()),
        ("'victim'".to_owned(), "E'a\\nLOG: forged'".to_owned()),
        ("NULL, NULL, NULL,".to_owned(), "0, NULL, NULL,".to_owned()),
        ("NULL, NULL, NULL, false".to_owned(), "NULL, NULL, NULL, true".to_owned()),
        ("NULL, NULL, NULL, false".to_owned(), "NULL, NULL, NULL, NULL".to_owned()),
        ("'1.0.0'".to_owned(), "repeat('1', 1021)".to_owned()),
    ] {
        assert!(as_sent.contains(&from), "{from} is not in {as_sent}");
        let error = session.query(&as_sent.replacen(&from, &to, 1), &[]).expect_err(&to);
        let failure = Failure::from(&error);
        assert!(["22004", "22023"].contains(&failure.code.as_str()), "{to}: {failure}");
        assert!(
            failure.text().len() < 500 && !failure.detail.is_empty() && !failure.hint.is_empty(),
            "{failure}"
        );
    }
    let nulls = ["NULL"; 17].join(", ");
    fails(&mut session, "22004", &format!("SELECT snowflake_registry_contact({nulls})"));
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {isolation}"));
        let error = session.query(&as_sent, &[]).expect_err("an old snapshot");
        assert_eq!(Failure::from(&error).code, "25001");
        run(&mut session, "ROLLBACK");
    }
    // Numbers and ticks at the ends of their types, by a node that knows the victim's group but not its id.
    for end in [i64::MIN, -1, 0, 1 << 62, i64::MAX] {
        for number in [0, i64::MAX] {
            let lease = Some(Lease { worker: lease.worker, floor: lease.floor.min(end), until: end });
            let answer = Node { id: draw(), number, nonce: draw(), lease, ..good.clone() }.send(&mut session);
            assert_eq!(answer.answer, "over", "{answer:?}");
        }
        for worker in [i32::MIN, -1, 255, 256, i32::MAX] {
            let lease = Some(Lease { worker, floor: 0, until: end });
            let answer =
                Node { id: draw(), number: 1, nonce: draw(), lease, ..good.clone() }.send(&mut session);
            assert_eq!(answer.answer, "over", "{answer:?}");
        }
    }
    assert!(victim.granted(&mut session).until - lease.until < 60_000);
    // It reaches nothing else.
    for statement in [
        "SELECT FROM snowflake_internal.snowflake_registry",
        "SELECT FROM snowflake_internal.snowflake_registry_groups",
        "SELECT FROM snowflake_internal.snowflake_registry_leases",
        "SELECT FROM snowflake_fleet",
        "SELECT FROM snowflake_fleet_capacity",
        "SELECT snowflake_origin(1)",
        "SELECT snowflake_registry_create('node')",
        "SELECT snowflake_registry_reserve(1, '')",
        "SELECT snowflake_registry_unreserve(1)",
        "SELECT snowflake_registry_retire('victim')",
        "SELECT snowflake_registry_vouch()",
        "SELECT snowflake_internal.snowflake_fleet_current()",
        "SELECT snowflake_internal.snowflake_fleet_operate('retire', 1, 'victim')",
    ] {
        fails(&mut session, "42501", statement);
    }
    let more: Vec<String> = column(
        &mut server.connect(),
        "SELECT d.objid::regprocedure::text FROM pg_depend d
         WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
             AND has_function_privilege('node', d.objid, 'EXECUTE')
             AND (NOT has_function_privilege('public', d.objid, 'EXECUTE')
                 OR d.objid::regproc::text ~ '^snowflake_(registry|fleet)')
         UNION ALL
         SELECT c.relname FROM pg_class c WHERE c.relname ~ '^snowflake_(registry|fleet)' AND c.relkind IN ('r', 'v')
             AND has_table_privilege('node', c.oid, 'SELECT')",
    );
    assert!(more.len() == 1 && more[0].starts_with("snowflake_registry_contact("), "{more:?}");
}

// ---- durable ----

#[test]
fn what_is_granted_is_committed_durably_even_where_commits_are_not() {
    let server = registry("");
    let mut session = server.connect_as("node");
    for (configured, used) in
        [("off", "local"), ("local", "local"), ("on", "on"), ("remote_apply", "remote_apply")]
    {
        run(&mut session, &format!("SET synchronous_commit = {configured}; BEGIN"));
        Node::new("a").granted(&mut session);
        assert_eq!(one::<String>(&mut session, "SHOW synchronous_commit"), used, "when it commits");
        // The node's host may be gone by now, and nobody here knows.
        assert_eq!(one::<String>(&mut session, "SHOW idle_in_transaction_session_timeout"), "10s");
        run(&mut session, "COMMIT");
        assert_eq!(one::<String>(&mut session, "SHOW synchronous_commit"), configured);
    }
    // What operators do, too; and they keep no row locked for long.
    let mut operator = server.connect();
    for call in ["reserve(9, 'mine')", "unreserve(9)", "retire('a')", "vouch()"] {
        for (configured, used) in [("off", "local"), ("remote_apply", "remote_apply")] {
            run(&mut operator, &format!("SET synchronous_commit = {configured}; BEGIN"));
            run(&mut operator, &format!("SELECT snowflake_registry_{call}"));
            assert_eq!(one::<String>(&mut operator, "SHOW synchronous_commit"), used, "{call}");
            assert_eq!(one::<String>(&mut operator, "SHOW idle_in_transaction_session_timeout"), "1min");
            run(&mut operator, if configured == "off" { "ROLLBACK" } else { "COMMIT" });
        }
    }
    run(&mut operator, "SET idle_in_transaction_session_timeout = 5000; BEGIN");
    run(&mut operator, "SELECT snowflake_registry_vouch()");
    assert_eq!(one::<String>(&mut operator, "SHOW idle_in_transaction_session_timeout"), "5s");
    run(&mut operator, "COMMIT");
}

/// The registry before it was lost, and nobody knows what it had leased.
#[test]
fn a_registry_that_replaces_a_lost_one_leases_nothing_before_old_leases_have_ended() {
    let server = registry(", replaces_lost => true");
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    assert_eq!(free_in(&mut operator), Some(f64::INFINITY));
    let refusal = Node::new("a").refused(&mut session, "doubt");
    assert!(refusal.free_in.is_some_and(|free_in| (3_500.0..=3_661.0).contains(&free_in)), "{refusal:?}");
    // An operator may know better.
    run(&mut operator, "SELECT snowflake_registry_vouch()");
    Node::new("a").granted(&mut session);

    // A part of another registry is there.
    run(&mut operator, "DELETE FROM snowflake_internal.snowflake_registry");
    let partial = fails(&mut operator, "55000", "SELECT snowflake_registry_create('node')");
    assert!(partial.message.contains("rows already") && partial.hint.contains("Restore all"), "{partial}");
}

#[test]
fn a_contact_waits_for_no_lock_without_an_end() {
    let server = registry("");
    let mut session = server.connect_as("node");
    let mut node = Node::new("a");
    node.granted(&mut session);
    let mut other = server.connect();
    run(
        &mut other,
        "BEGIN; SELECT FROM snowflake_internal.snowflake_registry_groups WHERE node_id IS NOT NULL FOR UPDATE",
    );
    let error = session.query(&node.query(), &[]).expect_err("a lock");
    assert_eq!(Failure::from(&error).code, "55P03");
    run(&mut other, "COMMIT");
    node.granted(&mut session);
}

// ---- operators ----

/// With leases of one name that end at different times.
#[test]
fn what_is_said_of_several_leases_is_true_of_all() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let (mut first, mut second) = (Node::small("a"), Node::small("a"));
    first.granted(&mut session);
    server.clock().forward(30 * MINUTE);
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

#[test]
fn a_reserved_worker_is_leased_to_nobody_and_is_free_a_grant_after_it_was_given_back() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut node = Node::small("a");
    node.granted(&mut session);
    let leased = fails(&mut operator, "55000", "SELECT snowflake_registry_reserve(0, 'mine')");
    assert!(leased.detail.contains("\"a\""), "{leased}");
    fails(&mut operator, "22023", "SELECT snowflake_registry_reserve(4, 'too many')");
    fails(&mut operator, "22023", "SELECT snowflake_registry_reserve(-1, 'too few')");
    fails(&mut operator, "22004", "SELECT snowflake_registry_reserve(1, NULL)");
    fails(&mut operator, "42704", "SELECT snowflake_registry_unreserve(1)");
    run(
        &mut operator,
        "SELECT snowflake_registry_reserve(n, 'server ' || n) FROM generate_series(1, 3) AS n",
    );
    Node::small("b").refused(&mut session, "full");
    let before = now(&mut operator);
    run(&mut operator, "SELECT snowflake_registry_unreserve(1)");
    Node::small("b").refused(&mut session, "full");
    // No name is known of who had it.
    let refusal = fails(&mut operator, "55000", "SELECT snowflake_registry_reserve(1, 'mine')");
    assert!(refusal.detail.contains("The server that had it last may have it until"), "{refusal}");
    node.granted(&mut session);
    server.clock().forward(AFTER_GRANT);
    // That of node "a" is free, too, and was free before.
    server.clock().forward(ms(100));
    let leases = [Node::small("b").granted(&mut session), Node::small("c").granted(&mut session)];
    let lease = leases.iter().find(|lease| lease.worker == 1).expect("one of both");
    assert!(lease.floor >= before + 3_600_000, "{lease:?} after {before}");
    server.clock().forward(AFTER_GRANT);
    // But the clock of the server that it is reserved for may be behind.
    fails(&mut operator, "55000", "SELECT snowflake_registry_reserve(0, 'mine')");
    server.clock().forward(MINUTE);
    run(&mut operator, "SELECT snowflake_registry_reserve(0, 'mine')");
    node.over(&mut session);

    // The registry's clock is ahead of that of a server whose lease runs.
    let mut node = Node { clock: "clock_timestamp() - interval '2 h'".to_owned(), ..Node::small("c") };
    server.clock().forward(3 * AFTER_GRANT);
    let worker = node.granted(&mut session).worker;
    let reserve = format!("SELECT snowflake_registry_reserve({worker}, 'mine')");
    let refusal = fails(&mut operator, "55000", &reserve);
    assert!(refusal.detail.contains("Node \"c\" may have it until"), "{refusal}");
    server.clock().forward(AFTER_GRANT + 2 * MINUTE + 2 * GRANT);
    run(&mut operator, &reserve);
}

#[test]
fn a_retired_node_is_over_and_its_group_is_free_after_its_until() {
    let server = single_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut node = Node::single("a");
    let lease = node.granted(&mut session);
    fails(&mut operator, "42704", "SELECT snowflake_registry_retire('b')");
    let free: f64 = one(
        &mut operator,
        "SELECT extract(epoch FROM snowflake_registry_retire('a') - clock_timestamp())::double precision",
    );
    assert!((0.0..=3_601.0).contains(&free), "{free}");
    assert_eq!(one::<i64>(&mut operator, "SELECT count(*) FROM snowflake_fleet"), 0);
    let mut other = Node::single("b");
    other.refused(&mut session, "full");
    node.over(&mut session);
    server.clock().forward(AFTER_GRANT);
    let next = other.granted(&mut session);
    assert!(next.floor >= lease.until, "{next:?} after {lease:?}");
}

// ---- in doubt ----

/// How often the registry has found out that commits may be lost.
fn doubts(server: &Server) -> usize {
    server.log().matches("snowflake_id: the registry may have lost commits").count()
}

fn fence(session: &mut Client) -> i64 {
    one(session, "SELECT fence FROM snowflake_internal.snowflake_registry")
}

#[test]
fn a_promoted_registry_renews_what_its_rows_have_and_hands_out_nothing_below_its_fence() {
    let mut primary = small_registry();
    let mut session = primary.connect_as("node");
    let (mut renewed, mut expired) = (Node::small("renewed"), Node::small("expired"));
    renewed.granted(&mut session);
    expired.granted(&mut session);
    let mut standby = primary.standby(|builder| builder);
    standby.catch_up_with(&primary);
    let on_standby: Vec<String> =
        column(&mut standby.connect(), "SELECT node_name FROM snowflake_fleet ORDER BY 1");
    assert_eq!(on_standby, ["expired", "renewed"]);
    let error = standby.connect_as("node").query(&expired.query(), &[]).expect_err("a standby");
    assert_eq!(Failure::from(&error).code, "25006");
    standby.stop(Stop::Fast);
    [&primary, &standby].into_iter().for_each(|server| server.clock().forward(30 * MINUTE));

    // The primary is lost with what follows.
    let mut lost = Node::small("lost");
    let kept = (renewed.granted(&mut session), lost.granted(&mut session));
    primary.crash();
    standby.start();
    standby.promote();
    let mut session = standby.connect_as("node");
    let mut operator = standby.connect();
    // By the clock of the standby, the leases that it knows have half an hour to go.
    run(
        &mut operator,
        "UPDATE snowflake_internal.snowflake_registry_groups SET until = until - 1800000 WHERE node_name = 'expired'",
    );

    let mut new = Node::small("new");
    let refusal = new.refused(&mut session, "doubt");
    assert!(refusal.free_in.is_some_and(|free_in| (3_500.0..=3_661.0).contains(&free_in)), "{refusal:?}");
    assert_eq!(doubts(&standby), 1);
    let fence = fence(&mut operator);
    assert!(
        fence >= kept.0.until.max(kept.1.until) && fence - now(&mut operator) > 3_500_000,
        "{fence} {kept:?}"
    );
    fails(&mut operator, "55000", "SELECT snowflake_registry_reserve(3, 'mine')");
    let running: Vec<String> = column(&mut operator, "SELECT node_name FROM snowflake_fleet");
    assert_eq!(running, ["renewed"], "the other one had passed");
    // Its renewal is what was lost, if there was one: the group may have gone to another node.
    expired.over(&mut session);
    let again = renewed.granted(&mut session);
    assert_eq!((again.worker, again.floor), (kept.0.worker, kept.0.floor));
    assert!(again.until >= kept.0.until, "{again:?} after {kept:?}");
    // A claim that was lost: the node keeps its lease until that ends, and nothing of it is written.
    let before = rows(&mut operator);
    let refusal = lost.refused(&mut session, "doubt");
    assert!(refusal.detail.contains("does not have the lease of this server"), "{refusal:?}");
    assert_eq!((rows(&mut operator), lost.lease.as_ref()), (before, Some(&kept.1)));
    // One voice, here too.
    assert_eq!(Node { nonce: draw(), ..renewed.clone() }.send(&mut session).answer, "over");

    for _ in 0..2 {
        new.refused(&mut session, "doubt");
        standby.clock().forward(30 * MINUTE);
        renewed.granted(&mut session);
    }
    standby.clock().forward(secs(62));
    // The clock of the server that it would be reserved for may be behind.
    fails(&mut operator, "55000", "SELECT snowflake_registry_reserve(3, 'mine')");
    let answer = new.granted(&mut session);
    assert!(answer.floor >= fence && answer.until > fence, "{answer:?} {fence}");
    assert_ne!(answer.worker, kept.0.worker);
    // No longer in doubt: the lease that no row has is over, and its node gets one above the fence.
    lost.over(&mut session);
    assert!(lost.granted(&mut session).floor >= fence);
}

#[test]
fn an_operator_can_vouch_that_a_failover_lost_nothing() {
    let mut primary = registry("");
    let mut node = Node::new("a");
    node.granted(&mut primary.connect_as("node"));
    let before = fence(&mut primary.connect());
    let standby = primary.standby(|builder| builder);
    standby.catch_up_with(&primary);
    primary.stop(Stop::Fast);
    standby.promote();
    let (mut session, mut operator) = (standby.connect_as("node"), standby.connect());
    // Many find it out at once, and it is one doubt.
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut session = standby.connect_as("node");
                barrier.wait();
                Node::new("b").refused(&mut session, "doubt");
            });
        }
    });
    assert_eq!(doubts(&standby), 1);
    assert!(fence(&mut operator) > now(&mut operator) + 3_500_000);
    node.granted(&mut session);
    run(&mut operator, "SELECT snowflake_registry_vouch()");
    let lease = Node::new("b").granted(&mut session);
    assert_eq!((lease.worker, lease.floor, fence(&mut operator)), (1, before, before));
    // Again changes nothing.
    run(&mut operator, "SELECT snowflake_registry_vouch()");
    assert_eq!(fence(&mut operator), before);

    // Before a contact has found out.
    let mut next = standby.standby(|builder| builder);
    next.catch_up_with(&standby);
    next.promote();
    let refused = fails(&mut next.connect(), "55000", "SELECT snowflake_registry_retire('a')");
    assert!(refused.detail.contains("timeline 2") && refused.detail.contains("timeline 3"), "{refused}");
    run(&mut next.connect(), "SELECT snowflake_registry_vouch()");
    assert_eq!(Node::new("c").granted(&mut next.connect_as("node")).worker, 2);
    // A restart and a crash are no failover.
    next.restart();
    next.crash();
    next.start();
    assert_eq!(Node::new("d").granted(&mut next.connect_as("node")).worker, 3);
    assert_eq!(doubts(&next), 0, "the operator knew first");
}

/// While the first doubt is on, an operator vouches for both; once it is over, for the second alone.
#[test]
fn a_vouch_restores_the_fence_before_the_first_doubt_that_is_still_on() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let created = fence(&mut operator);
    let mut first = 0;
    for _ in 0..2 {
        move_elsewhere(&mut operator);
        Node::small("a").refused(&mut session, "doubt");
        assert!(fence(&mut operator) >= first);
        first = fence(&mut operator);
        server.clock().forward(30 * MINUTE);
    }
    run(&mut operator, "SELECT snowflake_registry_vouch()");
    assert_eq!(fence(&mut operator), created);
    Node::small("a").granted(&mut session);

    move_elsewhere(&mut operator);
    Node::small("b").refused(&mut session, "doubt");
    first = fence(&mut operator);
    server.clock().forward(AFTER_GRANT + 3 * MINUTE);
    move_elsewhere(&mut operator);
    Node::small("b").refused(&mut session, "doubt");
    run(&mut operator, "SELECT snowflake_registry_vouch()");
    assert_eq!(fence(&mut operator), first);
    assert!(Node::small("b").granted(&mut session).floor >= first);

    // Of a failover that no contact has found out, and of a doubt before it.
    for is_on in [true, false] {
        let before = fence(&mut operator);
        move_elsewhere(&mut operator);
        Node::small("c").refused(&mut session, "doubt");
        let doubted = fence(&mut operator);
        server.clock().forward(if is_on { MINUTE } else { AFTER_GRANT + 3 * MINUTE });
        move_elsewhere(&mut operator);
        run(&mut operator, "SELECT snowflake_registry_vouch()");
        assert_eq!(fence(&mut operator), if is_on { before } else { doubted });
        assert_eq!(free_in(&mut operator), None);
    }
}

/// A node's clock may be almost a grant ahead: that is no reason to end the leases of others.
#[test]
fn a_doubt_ends_no_lease_that_runs_because_of_a_clock_that_is_ahead() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut healthy = Node::small("healthy");
    healthy.granted(&mut session);
    server.clock().forward(5 * MINUTE);
    // Its clock has passed the end of the other's lease.
    let ahead = Node { clock: "clock_timestamp() + interval '59 min'".into(), ..Node::small("ahead") };
    ahead.clone().granted(&mut session);
    move_elsewhere(&mut operator);
    healthy.granted(&mut session);
    assert_eq!(doubts(&server), 1);
    // A vouch that comes too late lowers no fence.
    server.clock().forward(3 * GRANT);
    let before = fence(&mut operator);
    run(&mut operator, "SELECT snowflake_registry_vouch()");
    assert_eq!(fence(&mut operator), before);
}

/// As if the registry had failed over, and nobody knew yet.
fn move_elsewhere(operator: &mut Client) {
    run(operator, "UPDATE snowflake_internal.snowflake_registry SET written_in = 'timeline 0'");
}

/// In how many seconds workers are leased again; none: the registry is in no doubt.
fn free_in(operator: &mut Client) -> Option<f64> {
    let free_in = "SELECT CASE WHEN free_from = 'infinity' THEN 'infinity'::float8
                   ELSE extract(epoch FROM free_from - clock_timestamp())::float8 END FROM snowflake_fleet_capacity";
    one(operator, free_in)
}

#[test]
fn a_failover_is_found_out_by_a_server_with_the_same_time_and_until_then_nothing_ends() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let (mut node, mut other) = (Node::small("a"), Node::small("b"));
    let lease = node.granted(&mut session);
    other.granted(&mut session);
    assert_eq!(free_in(&mut operator), None);
    // The clock is wrong for a moment after the failover, in either direction.
    move_elsewhere(&mut operator);
    let before = rows(&mut operator);
    for wrong in ["+ interval '62 s'", "- interval '62 s'", "+ interval '3 h'", "- interval '3 h'"] {
        node.clock = format!("clock_timestamp() {wrong}");
        let refusal = node.refused(&mut session, "clock");
        let is_ahead = wrong == "+ interval '3 h'";
        let named = if is_ahead { "one grant ahead" } else { "at most 00:01:00" };
        assert!(refusal.detail.contains(named), "{refusal:?}");
        Node { clock: node.clock.clone(), ..Node::small("c") }.refused(&mut session, "clock");
    }
    // Nor by a server of another fleet.
    Node { backups: 7, ..Node::small("c") }.refused(&mut session, "settings");
    for call in ["reserve(3, 'mine')", "unreserve(3)", "retire('a')"] {
        fails(&mut operator, "55000", &format!("SELECT snowflake_registry_{call}"));
    }
    assert_eq!((rows(&mut operator), doubts(&server)), (before, 0));
    assert_eq!(free_in(&mut operator), Some(f64::INFINITY));
    // One that is a little ahead.
    let since = now(&mut operator);
    other.clock = "clock_timestamp() + interval '30 s'".into();
    other.granted(&mut session);
    let ahead = fence(&mut operator) - since - (30 + 60 + 3_600) * 1_000;
    assert!((0..60_000).contains(&ahead), "{ahead}");
    assert!(free_in(&mut operator).is_some_and(|free_in| (3_600.0..3_700.0).contains(&free_in)));
    node.clock = "clock_timestamp() - interval '3 h'".into();
    assert_eq!(node.granted(&mut session), lease);
}

/// The registry's new server is behind the old one, by far less than a grant: the group may have gone to another.
#[test]
fn a_lease_that_may_have_passed_by_the_lost_registrys_clock_is_over() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let (mut node, mut running) = (Node::small("a"), Node::small("b"));
    node.granted(&mut session);
    let before = "UPDATE snowflake_internal.snowflake_registry_groups SET until = until - 3550000, floor = floor - 3550000
                  WHERE node_id IS NOT NULL RETURNING until";
    let until: i64 = one(&mut operator, before);
    let lease = node.lease.as_mut().expect("a lease");
    (lease.floor, lease.until) = (lease.floor - 3_550_000, until);
    running.granted(&mut session);
    move_elsewhere(&mut operator);
    running.granted(&mut session);
    // Its `until` lies ahead of both clocks, but not by a minute.
    assert!(fence(&mut operator) >= until + 3_600_000);
    node.over(&mut session);
    assert_eq!(column::<String>(&mut operator, "SELECT node_name FROM snowflake_fleet"), ["b"]);
}

#[test]
fn a_node_that_is_retired_in_doubt_has_a_free_worker_after_the_fence() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let (mut first, mut second) = (Node::small("a"), Node::small("b"));
    first.granted(&mut session);
    second.granted(&mut session);
    move_elsewhere(&mut operator);
    second.granted(&mut session);
    let free = "SELECT extract(epoch FROM snowflake_registry_retire('a') - clock_timestamp())::float8";
    let free: f64 = one(&mut operator, free);
    assert!((3_600.0..3_700.0).contains(&free), "not before the fence: {free}");
    first.over(&mut session);
    first.refused(&mut session, "doubt");
    second.granted(&mut session);
}

#[test]
fn a_registry_in_a_copy_of_its_database_is_in_doubt() {
    let server = registry("");
    let mut session = server.connect();
    run(&mut session, "CREATE DATABASE fleet TEMPLATE postgres");
    let connect = |dbname: &str, role: &str| {
        server.config().user(role).dbname(dbname).connect(postgres::NoTls).expect("a session")
    };
    let lease = Node::new("a").granted(&mut server.connect_as("node"));
    Node::new("b").refused(&mut connect("fleet", "node"), "doubt");
    // Renamed, it is no other.
    run(&mut connect("fleet", "postgres"), "SELECT snowflake_registry_vouch()");
    run(&mut session, "ALTER DATABASE fleet RENAME TO renamed");
    assert_eq!(Node::new("b").granted(&mut connect("renamed", "node")).worker, lease.worker);
    assert_eq!(doubts(&server), 1);
}

#[test]
fn a_registry_that_was_recovered_from_a_base_backup_is_in_doubt() {
    let primary = registry("");
    let mut node = Node::new("a");
    node.granted(&mut primary.connect_as("node"));
    let mut backup = primary.backup();
    let mut later = Node::new("b");
    let lost = later.granted(&mut primary.connect_as("node"));
    backup.recover();
    let mut session = backup.connect_as("node");
    Node::new("c").refused(&mut session, "doubt");
    let refusal = later.refused(&mut session, "doubt");
    assert_eq!(later.lease, Some(lost), "{refusal:?}");
    node.granted(&mut session);
}

#[test]
fn a_registry_that_was_restored_from_a_dump_is_in_doubt_wherever_it_is() {
    let server = registry("");
    let mut node = Node::new("a");
    let lease = node.granted(&mut server.connect_as("node"));
    Node::new("b").granted(&mut server.connect_as("node"));
    run(
        &mut server.connect(),
        "SELECT snowflake_registry_retire('b'), snowflake_registry_reserve(9, 'a server')",
    );
    let dump = without_warnings(&server.dump("postgres", &[]));
    let other = bare();
    run(&mut other.connect(), "CREATE ROLE node LOGIN");
    other.restore("postgres", &dump);
    // The same cluster, and the same database again.
    run(&mut server.connect(), "CREATE DATABASE again");
    server.restore("again", &dump);
    run(&mut server.connect(), "DROP EXTENSION snowflake_id");
    server.restore("postgres", &dump);
    for (server, database) in [(&other, "postgres"), (&server, "again"), (&server, "postgres")] {
        let connect =
            |role| server.config().user(role).dbname(database).connect(postgres::NoTls).expect("connect");
        let mut session = connect("node");
        Node::new("c").refused(&mut session, "doubt");
        let note = "SELECT note FROM snowflake_internal.snowflake_registry_groups WHERE worker_id = 9";
        assert_eq!(one::<String>(&mut connect("postgres"), note), "a server");
        let renewed = node.clone().granted(&mut session);
        assert_eq!((renewed.worker, renewed.floor), (lease.worker, lease.floor));
        let ended = "SELECT count(*) FROM snowflake_internal.snowflake_registry_leases WHERE node_name = 'b'";
        assert_eq!(one::<i64>(&mut connect("postgres"), ended), 1);
        fails(&mut session, "42501", "SELECT FROM snowflake_internal.snowflake_registry");
    }
}

/// The role may read nothing but what everybody may.
#[test]
fn a_database_without_a_registry_is_dumped_by_ordinary_roles() {
    let server = bare();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE guest LOGIN; CREATE ROLE node; CREATE EXTENSION snowflake_id");
    let dump =
        || server.client_program("pg_dump", "postgres").arg("--username=guest").output().expect("pg_dump");
    assert!(dump().status.success(), "{}", String::from_utf8_lossy(&dump().stderr));
    run(&mut session, "SELECT snowflake_registry_create('node')");
    assert!(!dump().status.success());
    fails(
        &mut server.connect_as("guest"),
        "42501",
        "SELECT FROM snowflake_internal.snowflake_registry_groups",
    );
}

// ---- whose schema it is ----

#[test]
fn a_registry_trusts_no_schema_of_an_ordinary_role() {
    let server = bare();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE node LOGIN; CREATE ROLE merchant LOGIN; CREATE EXTENSION snowflake_id");
    run(&mut session, "SELECT snowflake_registry_create('node')");
    run(&mut session, "ALTER DATABASE postgres OWNER TO merchant");
    // Who owns the database owns the schema public, could rename it, and could create tables of these names.
    let mut node = server.connect_as("node");
    let error = node.query(&Node::new("a").query(), &[]).expect_err("a schema of merchant's");
    let failure = Failure::from(&error);
    assert!(failure.code == "55000" && failure.detail.contains("merchant"), "{failure}");
    assert!(failure.hint.contains("Keep the extension"), "{failure}");
    for call in
        ["snowflake_registry_vouch()", "snowflake_registry_retire('a')", "snowflake_registry_create('node')"]
    {
        fails(&mut session, "55000", &format!("SELECT {call}"));
    }
    run(&mut session, "ALTER DATABASE postgres OWNER TO postgres");
    assert_eq!(Node::new("a").granted(&mut node).worker, 0);
    run(
        &mut session,
        "ALTER DATABASE postgres OWNER TO merchant; DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id",
    );
    let early = fails(&mut session, "55000", "SELECT snowflake_registry_create('node')");
    assert!(early.hint.contains("Drop the extension"), "{early}");
    run(
        &mut session,
        "DROP EXTENSION snowflake_id; CREATE SCHEMA fleet; CREATE EXTENSION snowflake_id SCHEMA fleet",
    );
    run(&mut session, "SELECT fleet.snowflake_registry_create('node')");
    thread::sleep(ms(5));
    run(&mut node, "SET search_path = fleet");
    assert_eq!(Node::new("a").granted(&mut node).worker, 0);
}

/// Whoever may create functions in the schema has put one there for each way to call one of the extension's with other
/// types, before the extension was created.
#[test]
fn nothing_of_the_extension_calls_a_function_that_was_there_before() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let own = "SELECT p.proname::text, p.proargtypes::regtype[]::text[]
               FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid JOIN pg_extension e ON e.oid = d.refobjid
               WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass
                   AND e.extname = 'snowflake_id' AND p.pronargs BETWEEN 1 AND 6";
    let own: Vec<(String, Vec<String>)> =
        session.query(own, &[]).expect("rows").iter().map(|row| (row.get(0), row.get(1))).collect();
    run(&mut session, "CREATE ROLE merchant LOGIN");
    run(&mut session, "CREATE DATABASE planted");
    let connect = |role: &str| {
        server.config().user(role).dbname("planted").connect(postgres::NoTls).expect("a session")
    };
    run(&mut connect("postgres"), "GRANT CREATE ON SCHEMA public TO merchant");
    let mut merchant = connect("merchant");
    let mut planted = 0;
    for (name, types) in &own {
        for changed in 1..1 << types.len() {
            for other in ["text", "bigint", "numeric"] {
                let kind = |(n, own): (usize, &String)| match changed >> n & 1 {
                    1 => other.to_owned(),
                    _ => own.clone(),
                };
                let types = types.iter().enumerate().map(kind).collect::<Vec<String>>().join(", ");
                // CREATE EXTENSION would fail at one of these.
                if own.iter().any(|(own, own_types)| own == name && own_types.join(", ") == types) {
                    continue;
                }
                let body = "RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$planted$$; END'";
                // An error where it has a type of the extension's, which is not there yet, or is planted already.
                let create = format!("CREATE FUNCTION public.{name}({types}) {body}");
                planted += usize::from(merchant.batch_execute(&create).is_ok());
            }
        }
    }
    assert!(planted > 100, "{planted}");
    let mut session = connect("postgres");
    run(&mut session, "CREATE ROLE node; CREATE EXTENSION snowflake_id");
    let called: Vec<String> = column(
        &mut session,
        "SELECT DISTINCT p.oid::regprocedure::text FROM pg_depend d JOIN pg_proc p ON p.oid = d.refobjid
         WHERE d.refclassid = 'pg_proc'::regclass AND p.proowner = 'merchant'::regrole",
    );
    assert_eq!(called, [""; 0]);
    let open = fails(&mut session, "55000", "SELECT snowflake_registry_create('node')");
    assert!(open.detail.contains("merchant"), "{open}");
    run(&mut session, "REVOKE CREATE ON SCHEMA public FROM merchant");
    run(&mut session, "SELECT snowflake_registry_create('node'), snowflake_registry_vouch()");
    fails(&mut session, "42704", "SELECT snowflake_registry_retire('a'::text)");
    // Bodies in PL/pgSQL are bound when they run.
    run(
        &mut session,
        "CREATE TABLE orders (id bigserial PRIMARY KEY); CREATE TABLE lines (id bigint REFERENCES orders)",
    );
    for statement in [
        "SELECT snowflake_registry_reserve(3, 'mine'::text), snowflake_registry_unreserve(3)",
        "SELECT * FROM snowflake_convert('orders'::regclass, 'id'::name)",
        "SELECT * FROM snowflake_layout_steps()",
        "SELECT snowflake_decode(1::bigint), snowflake_min(now()), snowflake_max(now())",
        "SELECT FROM orders WHERE snowflake_between(id, now(), now())",
        "SELECT FROM snowflake_status, snowflake_workers, snowflake_fleet, snowflake_fleet_capacity",
    ] {
        run(&mut session, statement);
    }
}

/// Its owner is no superuser, and has put types with constraints in the place of the registry's tables.
#[test]
fn a_renamed_schema_has_none_of_the_code_in_its_place_run() {
    let server = bare();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE ROLE node LOGIN; CREATE ROLE merchant LOGIN; CREATE SCHEMA fleet;
         CREATE EXTENSION snowflake_id SCHEMA fleet",
    );
    run(&mut session, "SELECT fleet.snowflake_registry_create('node')");
    run(&mut session, "GRANT CREATE ON DATABASE postgres TO merchant; ALTER SCHEMA fleet RENAME TO old");
    run(
        &mut server.connect_as("merchant"),
        "CREATE SCHEMA fleet; GRANT USAGE ON SCHEMA fleet TO PUBLIC;
         CREATE SEQUENCE fleet.calls;
         CREATE TYPE fleet.a_row AS (id uuid);
         -- A rollback does not take back what a sequence has given.
         CREATE FUNCTION fleet.evil(fleet.a_row) RETURNS boolean LANGUAGE sql
             AS 'SELECT nextval(''fleet.calls'') > 0';
         CREATE DOMAIN fleet.snowflake_registry AS fleet.a_row CHECK (fleet.evil(VALUE));
         CREATE DOMAIN fleet.snowflake_registry_groups AS fleet.a_row CHECK (fleet.evil(VALUE))",
    );
    let mut node = server.connect_as("node");
    run(&mut node, "SET search_path = old");
    thread::sleep(ms(5));
    assert_eq!(Node::new("a").granted(&mut node).worker, 0);
    for call in ["vouch()", "retire('a')", "reserve(1, 'mine')", "unreserve(1)"] {
        run(&mut session, &format!("SELECT old.snowflake_registry_{call}"));
    }
    assert!(!one::<bool>(&mut session, "SELECT is_called FROM fleet.calls"), "the merchant's function ran");
}
