//! Contacts with a registry: which node gets which worker, with which floor, and what a node is told that must not go on.

use super::nodes::{
    AFTER_GRANT, Answer, Lease, MINUTE, Node, draw, free_in, move_elsewhere, now, registry, registry_on,
    rows, single_registry, small_registry, time,
};
use postgres::Client;
use snowflake_server_tests::registry::loopback_address;
use snowflake_server_tests::sql::{Failure, assert_shows, column, one, run, wait_for_lock};
use snowflake_server_tests::{Server, alone, pg_version, secs};
use std::sync::Barrier;
use std::thread;

// ---- one voice ----

#[test]
fn a_contact_renews_and_its_repetition_gets_the_same_lease() {
    let address = loopback_address();
    let server = registry_on(Server::builder().without_library().listening(&address), "");
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
    // The view has the registry's time, and how far the node's clock was off; and where its last contact came from.
    let by_network = format!("host={address} user=node dbname=postgres");
    let mut session = Client::connect(&by_network, postgres::NoTls).expect("a session");
    let until = node.granted(&mut session).until;
    let seen = "SELECT format('%s %s %s %s %s %s %s %s', node_name, worker_id,
                    abs(extract(epoch FROM last_contact_at - clock_timestamp())) < 120,
                    clock_offset_ms BETWEEN -720000 AND -600000 + 1, in_recovery, address, version,
                    (extract(epoch FROM granted_until - '2024-01-01Z') * 1000)::bigint) FROM snowflake_fleet";
    let row: String = one(&mut server.connect(), seen);
    assert_eq!(row, format!("a 0 t t f 127.0.0.1 1.0.0 {until}"));
}

/// The clock of such a server is the registry's, and both fail over together.
#[test]
fn a_server_of_the_registrys_own_cluster_is_refused() {
    let server = registry("");
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut node = Node::new("a");
    node.granted(&mut session);
    let before = rows(&mut operator);
    let system_identifier = one(&mut operator, "SELECT system_identifier FROM pg_control_system()");
    move_elsewhere(&mut operator);
    for mut own in [Node { system_identifier, ..node.clone() }, Node { system_identifier, ..Node::new("b") }]
    {
        let refusal = own.refused(&mut session, "own");
        let both = "The server is in the cluster of the registry, or was copied from it: both have the system \
                    identifier";
        assert_eq!(refusal.detail, format!("{both} {system_identifier}."));
        let by_hand = "Use a registry in a cluster of its own; or number the servers of this cluster by hand: reserve \
                       a number for each with snowflake_registry_reserve, set snowflake_id.worker_id, and remove \
                       snowflake_id.registry.";
        assert_eq!(refusal.hint, by_hand);
    }
    // Nor does its clock find out what was lost.
    assert_eq!((rows(&mut operator), free_in(&mut operator)), (before, Some(f64::INFINITY)));
    node.granted(&mut session);
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
    copy.clone().over(&mut session);
    copy.number = 1;
    let detail = "Contact 3 has renewed the lease of worker 0: a copy of this node may be running.";
    assert_eq!(copy.clone().over(&mut session).detail, detail);
    assert_eq!(copy.send(&mut session).answer, "over");
    // A claim of this life with the last number and another nonce, and with a stale one.
    for number in [1, 2] {
        Node { lease: None, number, ..node.clone() }.over(&mut session);
    }
    // Another lease of the same group.
    let lease = node.lease.clone().map(|lease| Lease { floor: lease.floor + 1, ..lease });
    Node { lease, number: 100, ..node.clone() }.over(&mut session);
    // An `until` that nobody granted.
    for until in [0, 1 << 62] {
        let lease = node.lease.clone().map(|lease| Lease { until, ..lease });
        Node { lease, number: 100, ..node.clone() }.over(&mut session);
    }
    assert_eq!(rows(&mut server.connect()), before);
    node.granted(&mut session);
}

// ---- above the fence ----

#[test]
fn a_group_is_leased_again_above_the_last_grant_and_its_ids_are_traced() {
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
    let clock: String = one(&mut operator, "SELECT (clock_timestamp() - interval '50 min')::text");
    let refusal = Node { clock: format!("'{clock}'"), ..Node::single("c") }.refused(&mut session, "clock");
    let free = time(&mut operator, ahead.until + 1);
    let begins = format!("The clock of the node reads {clock}, and that of the registry 2");
    let ends = format!("+00: a worker is free from {free} on.");
    assert!(refusal.detail.starts_with(&begins) && refusal.detail.ends_with(&ends), "{refusal:?}");
    let next = second.granted(&mut session);
    assert!(next.floor >= ahead.until && next.until > next.floor, "{next:?} after {ahead:?}");
    first.over(&mut session);

    let origin = |tick: i64, worker: i64| {
        format!(
            "SELECT format('%s %s %s %s %s', node_name, home_worker_id, lane, leased_from, leased_until)
             FROM snowflake_origin({})",
            (tick << 22) + (worker << 20)
        )
    };
    // Lane 3 of the only home worker is worker 3.
    for (tick, traced) in [
        (lease.floor, None),
        (lease.floor + 1, Some(("a", &ahead))),
        (ahead.until, Some(("a", &ahead))),
        (next.floor + 1, Some(("b", &next))),
        (next.until, Some(("b", &next))),
        (next.until + 1, None),
    ] {
        let found: Vec<String> = column(&mut operator, &origin(tick, 3));
        let mut at = |tick| time(&mut operator, tick);
        let traced = traced.map(|(name, of)| format!("{name} 0 3 {} {}", at(of.floor + 1), at(of.until)));
        assert_eq!(found, Vec::from_iter(traced), "{tick} {ahead:?} {next:?}");
    }
    assert_eq!(column::<String>(&mut operator, "SELECT node_name FROM snowflake_origin(-1)"), [""; 0]);
}

#[test]
fn a_node_gets_its_names_last_group_or_one_never_used_or_the_one_free_longest() {
    let server = small_registry();
    let mut session = server.connect_as("node");
    // The lowest of those never used, wherever its row is.
    let moves = "UPDATE snowflake_internal.snowflake_registry_groups SET note = NULL WHERE worker_id = 0";
    run(&mut server.connect(), moves);
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
    let told = |node: &mut Node, session: &mut Client, reason, detail: &str, hint: &str| {
        let refusal = node.refused(session, reason);
        assert!(refusal.detail.starts_with(detail) && refusal.hint == hint, "{refusal:?}");
    };
    let settings = "Correct snowflake_id.registry, or layout, tick, epoch, backup_workers and datacenter_id of this server.";
    let registry = one(&mut operator, "SELECT id::text FROM snowflake_internal.snowflake_registry");
    let mut ours = Node { datacenter: 1, registry, ..small() };
    told(&mut ours, &mut session, "settings", "The registry is ", settings);
    let other = "Correct snowflake_id.registry; or if this registry was created with replaces_lost => true in place of the \
                 server's, stop the server, delete its folder snowflake_id, and start it.";
    told(&mut Node { registry: Some(draw()), ..small() }, &mut session, "settings", "The registry", other);
    let clocks = "Compare the clocks of this server and of the registry with the true time, and correct the one that is wrong.";
    // While there is a lease, and there are workers that nobody had.
    let until = Node::small("a").granted(&mut session).until;
    for wrong in ["'294276-01-01 00:00:00+00'", "'2025-12-31 01:02:03+00'"] {
        let wrong = Node { clock: wrong.into(), ..small() };
        let detail = format!("The clock of the node reads {}, and", wrong.clock.trim_matches('\''));
        told(&mut wrong.clone(), &mut session, "clock", &detail, clocks);
    }
    run(&mut operator, "SELECT snowflake_registry_reserve(n, 'legacy') FROM generate_series(1, 3) AS n");
    let full = "Wait; or stop servers that need no IDs, or end a reservation with snowflake_registry_unreserve. \
                snowflake_registry_retire helps only against a server that you cannot stop: no worker is free before its lease \
                ends.";
    let free = time(&mut operator, until + 1);
    let free = format!("Every worker is leased or reserved, and none comes free before {free}.");
    told(&mut small(), &mut session, "full", &free, full);
    server.clock().forward(AFTER_GRANT + MINUTE);
    run(&mut operator, "SELECT snowflake_registry_reserve(0, 'legacy')");
    told(&mut small(), &mut session, "full", "Every worker is leased or reserved.", full);
    move_elsewhere(&mut operator);
    let mut behind = Node { clock: "'2026-01-01Z'".into(), ..small() };
    let waits = "The registry may have lost commits, and waits for a server whose clock differs from its own by at \
                 most 00:01:00: the clock of the node reads 2026-01-01 00:00:00+00, and the registry's 2";
    told(&mut behind, &mut session, "clock", waits, clocks);
    run(&mut operator, "SELECT snowflake_registry_vouch(), snowflake_registry_unreserve(3)");
    move_elsewhere(&mut operator);
    let doubt = "Wait until then; or if the registry lost no commit since lost_after in snowflake_fleet_capacity, call \
                 snowflake_registry_vouch there.";
    let lost = "The registry may have lost commits, and leases no worker before 2";
    told(&mut small(), &mut session, "doubt", lost, doubt);
}

// ---- at once ----

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
fn more_nodes_than_groups_at_once_get_one_each_or_the_time_when_one_is_free() {
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

/// The claim has the key for which a claim of the same node would wait, and waits for the row that the operator has locked.
#[test]
fn a_claim_sent_again_while_its_node_is_retired_stops_no_operator() {
    let server = registry("");
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let mut node = Node::new("a");
    node.granted(&mut session);
    let claim = Node { lease: None, ..node };
    run(&mut operator, "BEGIN");
    run(
        &mut operator,
        "SELECT FROM snowflake_internal.snowflake_registry_groups WHERE node_id IS NOT NULL FOR UPDATE",
    );
    thread::scope(|scope| {
        let again = scope.spawn(|| claim.send(&mut session));
        wait_for_lock(&mut server.connect());
        run(&mut operator, "SELECT snowflake_registry_retire('a')");
        run(&mut operator, "COMMIT");
        assert_eq!(again.join().expect("an answer").answer, "over");
    });
}

// ---- refusals ----

#[test]
fn a_node_that_does_not_fit_is_refused_with_both_sides_named() {
    let server = registry("");
    let mut session = server.connect_as("node");
    let node = Node::new("a");
    let layout = "x".repeat(1_000);
    for mut other in [
        Node { layout: layout.clone(), ..node.clone() },
        Node { tick_ms: 10, ..node.clone() },
        Node { backups: 7, ..node.clone() },
    ] {
        other.refused(&mut session, "settings");
    }
    // The epoch alone, and all at once.
    let at_2020 = |node: &Node| node.query().replace("'2024-01-01 00:00:00+00'", "'2020-01-01 00:00:00+00'");
    assert_eq!(session.query_one(&at_2020(&node), &[]).expect("a row").get::<_, &str>("reason"), "settings");
    let all = Node { registry: Some(draw()), tick_ms: 10, backups: 7, datacenter: 1, layout, ..node.clone() };
    let row = session.query_one(&at_2020(&all), &[]).expect("a refusal");
    let detail = format!(
        "The registry is {}, with layout 41/10/12, tick 1 ms, epoch 2024-01-01 00:00:00+00, backup_workers 3 and datacenter_id 0; \
         the node is of registry {}, with layout {}, tick 10 ms, epoch 2020-01-01 00:00:00+00, backup_workers 7 and \
         datacenter_id 1.",
        row.get::<_, String>("registry"),
        all.registry.expect("another"),
        &all.layout[..64]
    );
    assert_eq!(row.get::<_, String>("detail"), detail);
    for clock in [
        "'294276-01-01 00:00Z'",
        "'4713-01-01 00:00Z BC'",
        "'2023-12-31 23:59:59Z'",
        "'infinity'",
        "'-infinity'",
    ] {
        Node { clock: clock.into(), ..node.clone() }.refused(&mut session, "clock");
    }
    let ahead = "clock_timestamp() + interval '1 h 1 min'";
    let detail = Node { clock: ahead.into(), ..node.clone() }.refused(&mut session, "clock").detail;
    let is_whole = "SELECT m[2]::timestamptz = m[1]::timestamptz + interval '1 h'
                    FROM regexp_match($1, '^The clock of the node reads 2[^ ]* [^ ]*, and the registry''s (2.*): leases are for '
                        'clocks of 2024-01-01 00:00:00[+]00 to (2.*), which is one grant ahead or the end of the layout[.]$') AS m";
    assert!(session.query_one(is_whole, &[&detail]).expect("a row").get::<_, bool>(0), "{detail}");
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
    if pg_version() < 19 {
        run(&mut session, "SET standard_conforming_strings = off; SET escape_string_warning = off");
    }
    let mut victim = Node::new("~ \u{a0}");
    let lease = victim.granted(&mut session);
    let good = victim.clone();
    let as_sent = Node { id: draw(), lease: None, number: 1, nonce: draw(), ..good.clone() }.query();
    let (before, arguments) = as_sent.split_once("contact(").expect("a call");
    let arguments: Vec<&str> = arguments.trim_end_matches(')').split(',').collect();
    // Each argument but those that may be null; the fourth is the name, the eleventh the layout, the last the version.
    let nulls = [1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14, 15, 16];
    let null = "Only registry_id and those of a lease can be; of a lease all or none.".to_owned();
    let nulls = nulls.map(|n| (n, "NULL", "22004", null.clone()));
    let characters = |count| format!("It has {count} characters.");
    let lengths = |name, layout, version| {
        format!("The arguments have these lengths: node_name {name}, layout {layout}, version {version}.")
    };
    for (n, to, code, detail) in nulls.into_iter().chain([
        (6, "0", "22004", null.clone()),
        (3, "''", "22023", characters(0)),
        (3, "repeat(E'\\U0001f600', 254) || 'ab'", "22023", characters(256)),
        (3, "repeat('x', 10000000)", "22023", lengths(10_000_000, 8, 5)),
        // The first and the last, also of C1, some of which terminals take for ESC [.
        (3, "E'a\\x01'", "22023", characters(2)),
        (3, "E'a\\x1f'", "22023", characters(2)),
        (3, "E'a\\x7f'", "22023", characters(2)),
        (3, "E'a\\u0080'", "22023", characters(2)),
        (3, "E'a\\u009f'", "22023", characters(2)),
        (10, "repeat('4', 1021)", "22023", lengths(4, 1_021, 5)),
        (16, "repeat('1', 1021)", "22023", lengths(4, 8, 1_021)),
    ]) {
        let mut changed = arguments.clone();
        changed[n] = to;
        let call = format!("{before}contact({})", changed.join(","));
        let failure = Failure::from(&session.query(&call, &[]).expect_err(to));
        assert_eq!((failure.code.as_str(), failure.detail), (code, detail), "{n} {to}");
    }
    // As long as one may be.
    Node { name: "\u{1f600}".repeat(255), ..Node::new("") }.granted(&mut session);
    run(&mut session, "BEGIN READ ONLY");
    let error = Failure::from(&session.query(&as_sent, &[]).expect_err("a read-only transaction"));
    let read_only = "cannot contact the registry in a read-only transaction";
    assert_eq!((error.code.as_str(), error.message.as_str()), ("25006", read_only));
    assert!(error.detail.contains(" is on for role node, its database or the server."), "{error}");
    run(&mut session, "ROLLBACK");
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {isolation}"));
        let error = Failure::from(&session.query(&as_sent, &[]).expect_err("an old snapshot"));
        let isolated = "snowflake_registry_contact must run in a READ COMMITTED transaction";
        assert_eq!((error.code.as_str(), error.message.as_str()), ("25001", isolated));
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
    let more: Vec<String> = column(
        &mut server.connect(),
        "SELECT p.proname::text FROM pg_proc p WHERE p.proname ~ '^snowflake_(registry|fleet)'
             AND has_function_privilege('node', p.oid, 'EXECUTE')
         UNION ALL
         SELECT c.relname FROM pg_class c WHERE c.relname ~ '^snowflake_(registry|fleet)' AND c.relkind IN ('r', 'v')
             AND has_table_privilege('node', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')",
    );
    assert_eq!(more, ["snowflake_registry_contact"]);
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
        assert_shows(&mut session, "synchronous_commit", used);
        // The node's host may be gone by now, and nobody here knows.
        assert_shows(&mut session, "idle_in_transaction_session_timeout", "10s");
        run(&mut session, "COMMIT");
        assert_shows(&mut session, "synchronous_commit", configured);
    }
    // What operators do, too; and they keep no row locked for long.
    let mut operator = server.connect();
    for call in ["reserve(9, 'mine')", "unreserve(9)", "retire('a')", "vouch()"] {
        for (configured, used) in [("off", "local"), ("remote_apply", "remote_apply")] {
            run(&mut operator, &format!("SET synchronous_commit = {configured}; BEGIN"));
            run(&mut operator, &format!("SELECT snowflake_registry_{call}"));
            assert_shows(&mut operator, "synchronous_commit", used);
            assert_shows(&mut operator, "idle_in_transaction_session_timeout", "1min");
            run(&mut operator, if configured == "off" { "ROLLBACK" } else { "COMMIT" });
        }
    }
    for (configured, used) in [("5s", "5s"), ("1min", "1min"), ("2min", "1min")] {
        run(&mut operator, &format!("SET idle_in_transaction_session_timeout = '{configured}'; BEGIN"));
        run(&mut operator, "SELECT snowflake_registry_vouch()");
        assert_shows(&mut operator, "idle_in_transaction_session_timeout", used);
        run(&mut operator, "COMMIT");
        assert_shows(&mut operator, "idle_in_transaction_session_timeout", configured);
    }
}

#[test]
fn a_role_without_rights_can_take_no_lock_for_which_a_contact_waits() {
    let server = registry("");
    run(&mut server.connect(), "CREATE ROLE stranger LOGIN");
    let (mut session, mut stranger) = (server.connect_as("node"), server.connect_as("stranger"));
    let mut node = Node::new("a");
    for _ in 0..2 {
        run(&mut session, "BEGIN");
        node.granted(&mut session);
        // Each role sees the advisory locks of all others, and can take them.
        let seen = "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks WHERE locktype = 'advisory'";
        let seen: Vec<i64> = column(&mut stranger, seen);
        run(&mut session, "COMMIT");
        seen.iter().for_each(|key| run(&mut stranger, &format!("SELECT pg_advisory_lock({key})")));
    }
    node.granted(&mut session);
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
        "SET idle_in_transaction_session_timeout = '1 min';
         BEGIN; SELECT FROM snowflake_internal.snowflake_registry_groups WHERE node_id IS NOT NULL FOR UPDATE",
    );
    let error = session.query(&node.query(), &[]).expect_err("a lock");
    assert_eq!(Failure::from(&error).code, "55P03");
    run(&mut other, "COMMIT");
    node.granted(&mut session);
}

/// The last tick of all is granted, and the clock may not reach it.
#[test]
fn a_lease_ends_with_the_layout() {
    let server = registry_on(Server::builder().without_library().faketime(true), ", '1 h', '31/4/28', '1 s'");
    let last = (1 << 31) - 1;
    let seconds = "SELECT extract(epoch FROM clock_timestamp() - '2024-01-01Z')::bigint";
    let seconds: i64 = one(&mut server.connect(), seconds);
    server.clock().forward(secs((last - 1_800 - seconds) as u64));
    let mut session = server.connect_as("node");
    let node = |clock: &str| Node {
        layout: "31/4/28".into(),
        tick_ms: 1_000,
        clock: format!("timestamptz '2024-01-01Z' + {last} * interval '1 s' - interval '{clock}'"),
        ..Node::new("a")
    };
    let refusal = node("0.999 s").refused(&mut session, "clock");
    assert!(refusal.detail.contains("or the end of the layout"), "{refusal:?}");
    assert_eq!(node("1 s").granted(&mut session).until, last);
}
