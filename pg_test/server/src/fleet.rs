//! A fleet: a registry, and servers that get their workers from it.

use crate::ids::{Ids, worker};
use crate::sql::{column, run};
use crate::{Builder, Server, secs};
use std::collections::BTreeSet;

/// A registry whose leases last this long.
#[track_caller]
pub fn registry(grant: &str) -> Server {
    let server = Server::builder().without_library().start();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE node LOGIN; CREATE EXTENSION snowflake_id");
    let tolerance = format!("clock_tolerance => least(interval '1 min', interval '{grant}' / 4)");
    run(&mut session, &format!("SELECT snowflake_registry_create('node', '{grant}', {tolerance})"));
    server
}

/// A server of the fleet, as an operator configures all of them alike.
pub fn member(registry: &Server, name: &str) -> Builder {
    Server::builder()
        .member_of(&registry.registry_string())
        .setting("snowflake_id.backup_workers", "3")
        .setting("snowflake_id.node_name", name)
}

/// The home worker that the server has, once it has one.
#[track_caller]
pub fn home(server: &Server) -> i32 {
    server.wait_for_worker("a lease of the registry, and an open gate", secs(30), |session| {
        let state =
            "SELECT home_worker_id FROM snowflake_status WHERE registry_state = 'granted' AND state = 'open'";
        session.query_opt(state, &[]).expect("the view").map(|row| row.get(0))
    })
}

/// New IDs of a server.
pub fn ids(server: &Server, count: usize) -> Vec<i64> {
    column(&mut server.connect(), &format!("SELECT snowflake_nextval() FROM generate_series(1, {count})"))
}

/// The servers' IDs have no duplicate, and those of each server carry workers of its own.
#[track_caller]
pub fn check(of_servers: &[Vec<i64>]) {
    let mut all = Ids::new();
    let mut homes = BTreeSet::new();
    for (i, ids) in of_servers.iter().enumerate() {
        all.add(format!("server {i}"), ids.clone());
        let own: BTreeSet<i64> = ids.iter().map(|id| worker(*id) % 256).collect();
        assert!(
            own.iter().all(|home| homes.insert(*home)),
            "server {i} used a worker of another one: {own:?}"
        );
    }
    all.assert_unique();
}
