//! A registry that may have lost commits: after a failover, in a copy, or restored. It renews what its rows have, leases
//! nothing below its fence, and an operator can vouch that nothing was lost.

use super::nodes::{
    AFTER_GRANT, MINUTE, Node, bare, draw, free_in, move_elsewhere, now, registry, rows, small_registry, time,
};
use postgres::Client;
use snowflake_server_tests::sql::{Failure, column, fails, one, run, wait_for_lock};
use snowflake_server_tests::{Server, Stop, secs, without_warnings};
use std::sync::Barrier;
use std::thread;
use std::time::SystemTime;

/// How often the registry has found out that commits may be lost.
fn doubts(server: &Server) -> usize {
    server.log().matches("snowflake_id: the registry may have lost commits").count()
}

fn fence(session: &mut Client) -> i64 {
    one(session, "SELECT fence FROM snowflake_internal.snowflake_registry")
}

#[test]
fn a_promoted_registry_renews_leases_in_its_rows_and_grants_only_above_its_fence() {
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
    assert_eq!(free_in(&mut standby.connect()), None);
    let error = standby.connect_as("node").query(&expired.query(), &[]).expect_err("a standby");
    let error = Failure::from(&error);
    let recovery = "cannot contact the registry during recovery";
    assert_eq!((&error.code[..], &error.message[..]), ("25006", recovery));
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
    let free = time(&mut operator, fence + 1);
    assert_eq!(one::<String>(&mut operator, "SELECT free_from::text FROM snowflake_fleet_capacity"), free);
    let unknown = "The registry may have lost commits, and does not have the lease of this server, which generates IDs \
                   until it ends. It leases";
    assert_eq!(refusal.detail, format!("{unknown} no worker before {free}."));
    assert_eq!((rows(&mut operator), lost.lease.as_ref()), (before, Some(&kept.1)));
    // One voice, here too.
    assert_eq!(Node { nonce: draw(), ..renewed.clone() }.send(&mut session).answer, "over");

    for _ in 0..2 {
        let lost = format!("The registry may have lost commits, and leases no worker before {free}.");
        assert_eq!(new.refused(&mut session, "doubt").detail, lost);
        standby.clock().forward(30 * MINUTE);
        renewed.granted(&mut session);
    }
    standby.clock().forward(secs(62));
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
    let again = standby.try_restore("postgres", "SELECT snowflake_registry_vouch()").expect_err("a notice");
    assert!(again.contains("NOTICE:  the registry is not in doubt, skipping"), "{again}");
    assert_eq!(fence(&mut operator), before);

    // Before a contact has found out.
    let mut next = standby.standby(|builder| builder);
    next.catch_up_with(&standby);
    next.promote();
    let refused = fails(&mut next.connect(), "55000", "SELECT snowflake_registry_retire('a')");
    let place = "SELECT format('cluster %s, database %s, table %s', system_identifier, (SELECT oid FROM pg_database
                     WHERE datname = current_database()), 'snowflake_internal.snowflake_registry'::regclass::oid)
                 FROM pg_control_system()";
    let place: String = one(&mut next.connect(), place);
    let moved =
        format!("Its row was written in timeline 2 of {place}; this is timeline 3 of {place}. No server");
    assert!(refused.detail.starts_with(&moved), "{refused}");
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
    // Of a failover that no contact has found out, and of a doubt before it.
    for is_on in [true, false] {
        let before = fence(&mut operator);
        move_elsewhere(&mut operator);
        Node::small("c").refused(&mut session, "doubt");
        let doubted = fence(&mut operator);
        // The clock counts, and not when the operator's transaction began.
        run(&mut operator, "BEGIN");
        server.clock().forward(if is_on { MINUTE } else { AFTER_GRANT + 3 * MINUTE });
        move_elsewhere(&mut operator);
        assert_eq!(free_in(&mut operator), Some(f64::INFINITY));
        run(&mut operator, "SELECT snowflake_registry_vouch(); COMMIT");
        assert_eq!(fence(&mut operator), if is_on { before } else { doubted });
        assert_eq!(free_in(&mut operator), None);
    }
    // A vouch waits for the contact that finds out.
    let before = fence(&mut operator);
    move_elsewhere(&mut operator);
    run(&mut session, "BEGIN");
    Node::small("d").refused(&mut session, "doubt");
    run(&mut session, "SET LOCAL idle_in_transaction_session_timeout = 0");
    thread::scope(|scope| {
        scope.spawn(|| run(&mut operator, "SELECT snowflake_registry_vouch()"));
        wait_for_lock(&mut server.connect());
        run(&mut session, "COMMIT");
    });
    assert_eq!(fence(&mut operator), before);
}

#[test]
fn a_failover_is_detected_only_by_a_node_whose_clock_agrees() {
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
    let free: String = one(&mut operator, "SELECT free_from::text FROM snowflake_fleet_capacity");
    let line = format!("DETAIL:  It leases no worker before {free}, and renews leases meanwhile.\n");
    assert!(server.log().contains(&line), "{}", server.log());
    node.clock = "clock_timestamp() - interval '3 h'".into();
    assert_eq!(node.granted(&mut session), lease);
}

/// The view has the time after which commits may be lost: what the registry had at the first doubt that is still on.
#[test]
fn an_operator_sees_the_time_after_which_commits_may_be_lost() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    for name in ["a", "c"] {
        Node::small(name).granted(&mut session);
    }
    let lost_after = "SELECT lost_after FROM snowflake_fleet_capacity";
    let last: SystemTime = one(&mut operator, "SELECT max(last_contact_at) FROM snowflake_fleet");
    assert_eq!(one::<Option<SystemTime>>(&mut operator, lost_after), None);
    server.clock().forward(MINUTE);
    move_elsewhere(&mut operator);
    assert_eq!(one::<Option<SystemTime>>(&mut operator, lost_after), Some(last));
    let mut node = Node::small("b");
    node.refused(&mut session, "doubt");
    run(
        &mut operator,
        "UPDATE snowflake_internal.snowflake_registry_groups SET last_contact_at = clock_timestamp()",
    );
    move_elsewhere(&mut operator);
    assert_eq!(one::<Option<SystemTime>>(&mut operator, lost_after), Some(last), "of the first of two");
    node.refused(&mut session, "doubt");
    assert_eq!(one::<Option<SystemTime>>(&mut operator, lost_after), Some(last), "of the first of two");
    run(&mut operator, "SELECT snowflake_registry_vouch()");
    assert_eq!(one::<Option<SystemTime>>(&mut operator, lost_after), None);
    // Of the next one, after the vouch.
    move_elsewhere(&mut operator);
    node.refused(&mut session, "doubt");
    assert!(one::<Option<SystemTime>>(&mut operator, lost_after) > Some(last));
}

#[test]
fn a_worker_that_an_operator_frees_in_doubt_is_free_after_the_fence() {
    let server = small_registry();
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let (mut first, mut second) = (Node::small("a"), Node::small("b"));
    first.granted(&mut session);
    second.granted(&mut session);
    run(&mut operator, "SELECT snowflake_registry_reserve(3, 'mine')");
    move_elsewhere(&mut operator);
    second.granted(&mut session);
    for call in ["retire('a')", "unreserve(3)"] {
        let free: String = one(&mut operator, &format!("SELECT snowflake_registry_{call}::text"));
        let fence = "SELECT free_from::text FROM snowflake_fleet_capacity";
        assert_eq!(free, one::<String>(&mut operator, fence), "{call}");
    }
    first.over(&mut session);
    first.refused(&mut session, "doubt");
    second.granted(&mut session);
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
    run(&mut operator, "SELECT snowflake_registry_retire('a')");
    for table in ["snowflake_registry", "snowflake_registry_groups"] {
        run(&mut operator, &format!("DELETE FROM snowflake_internal.{table}"));
        let partial = fails(&mut operator, "55000", "SELECT snowflake_registry_create('node')");
        assert_eq!(partial.message, "tables of the registry have rows already");
    }
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
