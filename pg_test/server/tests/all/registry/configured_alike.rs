//! Four ways in which servers that are configured alike generate the same IDs without a registry, each with one. What
//! else becomes of a fleet, as old primaries beside the successors of their successors, is in `registry/servers.rs`.

use snowflake_server_tests::fleet::{check, home, member, registry};
use snowflake_server_tests::sql::{column, one, run};
use snowflake_server_tests::{Kind, Server, Traffic, has_contrib, ms, secs, wait_until};
use std::thread;

/// Servers of the fleet with one and the same configuration, started at once.
fn alike(registry: &Server, count: usize, settings: &[(&str, &str)]) -> Vec<Server> {
    thread::scope(|scope| {
        let start = |_| {
            let plain = member(registry, "alike");
            let builder = settings.iter().fold(plain, |builder, (name, value)| builder.setting(name, value));
            scope.spawn(move || builder.start_with_extension())
        };
        let started: Vec<_> = (0..count).map(start).collect();
        started.into_iter().map(|server| server.join().expect("it starts")).collect()
    })
}

/// A standby that is configured as its primary is, and has a lease.
fn standby_of(primary: &Server, registry: &Server) -> Server {
    let leases = || one::<i64>(&mut registry.connect(), "SELECT count(*) FROM snowflake_fleet");
    let before = leases();
    let standby = primary.standby(|builder| builder);
    wait_until("the lease of a standby", secs(60), || (leases() > before).then_some(()));
    standby
}

/// Clients that leave hardly a millisecond without IDs.
fn busy(server: &Server) -> Traffic {
    Traffic::start(server, &[Kind::Batch(50); 2], ms(1))
}

fn ids_of(traffic: Traffic) -> Vec<i64> {
    let ids: Vec<i64> = traffic.finish().iter().flat_map(|call| call.ids().to_vec()).collect();
    assert!(ids.len() >= 1_000, "only {} IDs", ids.len());
    ids
}

/// All servers generate IDs in the same milliseconds. Panics if two of them use one worker.
#[track_caller]
fn generate_at_once(servers: &[&Server]) {
    for server in servers {
        home(server);
    }
    let traffic: Vec<Traffic> = servers.iter().map(|server| busy(server)).collect();
    traffic.iter().for_each(|clients| clients.go_on(100));
    check(&traffic.into_iter().map(ids_of).collect::<Vec<_>>());
}

/// As the nodes of a Citus cluster do, where the coordinator's metadata is on every node.
#[test]
fn shards_that_are_configured_alike_write_into_one_table() {
    if !has_contrib() {
        eprintln!("this PostgreSQL has no postgres_fdw, so nothing is tested");
        return;
    }
    let registry = registry("1 hour");
    let servers = alike(&registry, 4, &[]);
    let coordinator = &servers[0];
    run(
        &mut coordinator.connect(),
        "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), shard integer)",
    );
    for server in &servers[1..] {
        // A foreign table's default is evaluated where the statement runs.
        let connection = format!(
            "CREATE EXTENSION postgres_fdw;
             CREATE SERVER coordinator FOREIGN DATA WRAPPER postgres_fdw
                 OPTIONS (host '{}', port '5432', dbname 'postgres');
             CREATE USER MAPPING FOR postgres SERVER coordinator OPTIONS (user 'postgres');
             CREATE FOREIGN TABLE orders (id bigint DEFAULT snowflake_nextval(), shard integer) SERVER coordinator",
            coordinator.folder().display()
        );
        run(&mut server.connect(), &connection);
    }
    for server in &servers {
        home(server);
    }
    thread::scope(|scope| {
        for (shard, server) in servers.iter().enumerate() {
            let insert = format!("INSERT INTO orders (shard) SELECT {shard} FROM generate_series(1, 5000)");
            // The primary key refuses an ID that is there already.
            scope.spawn(move || run(&mut server.connect(), &insert));
        }
    });
    let of_shard =
        |shard| column(&mut coordinator.connect(), &format!("SELECT id FROM orders WHERE shard = {shard}"));
    let of_shards: Vec<Vec<i64>> = (0..4).map(of_shard).collect();
    assert!(of_shards.iter().all(|ids| ids.len() == 5_000));
    check(&of_shards);
}

#[test]
fn two_servers_that_replicate_to_each_other_are_configured_alike() {
    let registry = registry("1 hour");
    let servers = alike(&registry, 2, &[("wal_level", "logical")]);
    for server in &servers {
        home(server);
    }
    for (site, server) in servers.iter().enumerate() {
        // Each publishes its own rows, so that none comes back; PostgreSQL 15 has no `origin = none`.
        let schema = format!(
            "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), site integer);
             CREATE PUBLICATION own FOR TABLE orders WHERE (site = {site}) WITH (publish = 'insert')"
        );
        run(&mut server.connect(), &schema);
    }
    for (server, other) in [(0, 1), (1, 0)] {
        let subscription = format!(
            "CREATE SUBSCRIPTION other CONNECTION 'host={} port=5432 user=postgres dbname=postgres' PUBLICATION own
             WITH (copy_data = false)",
            servers[other].folder().display()
        );
        run(&mut servers[server].connect(), &subscription);
    }
    thread::scope(|scope| {
        for (site, server) in servers.iter().enumerate() {
            let insert = format!("INSERT INTO orders (site) SELECT {site} FROM generate_series(1, 5000)");
            scope.spawn(move || run(&mut server.connect(), &insert));
        }
    });
    for server in &servers {
        let mut session = server.connect();
        wait_until("the other's rows", secs(120), || {
            let log = server.log();
            assert!(!log.contains("duplicate key"), "{log}");
            (one::<i64>(&mut session, "SELECT count(*) FROM orders") == 10_000).then_some(())
        });
        let of_site =
            |site| column(&mut server.connect(), &format!("SELECT id FROM orders WHERE site = {site}"));
        check(&[of_site(0), of_site(1)]);
    }
}

/// A standby cluster, as Patroni calls it, is promoted for a drill. Meanwhile the main cluster has a failover of its
/// own, so that both are on timeline 2.
#[test]
fn a_standby_of_a_standby_is_promoted_for_a_drill_while_its_primary_goes_on() {
    let registry = registry("1 hour");
    let mut primary = alike(&registry, 1, &[]).remove(0);
    let successor = standby_of(&primary, &registry);
    let leader = standby_of(&primary, &registry);
    let drill = standby_of(&leader, &registry);
    let before = busy(&primary);
    before.go_on(20);
    drill.promote();
    let of_drill = busy(&drill);
    of_drill.go_on(100);
    primary.crash();
    successor.promote();
    let of_successor = busy(&successor);
    [&of_drill, &of_successor].iter().for_each(|clients| clients.go_on(100));
    // The clients of the primary end when they can connect again.
    primary.start();
    check(&[ids_of(before), ids_of(of_drill), ids_of(of_successor)]);
    // The old primary is not fenced either.
    generate_at_once(&[&primary, &drill, &successor]);
}

#[test]
fn two_standbys_of_one_primary_are_promoted_at_once() {
    let registry = registry("1 hour");
    let primary = alike(&registry, 1, &[]).remove(0);
    let (left, right) = (standby_of(&primary, &registry), standby_of(&primary, &registry));
    thread::scope(|scope| {
        for standby in [&left, &right] {
            scope.spawn(|| standby.promote());
        }
    });
    let timeline = "SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)";
    let timelines = [&left, &right].map(|server| one::<String>(&mut server.connect(), timeline));
    assert_eq!(timelines, ["00000002", "00000002"]);
    generate_at_once(&[&primary, &left, &right]);
}
