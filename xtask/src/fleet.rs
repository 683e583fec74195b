//! What `scripts/demo --fleet` shows: a registry, and servers without a worker of their own, while one of them is
//! killed, one is copied, and the registry is stopped for a moment.

use crate::run;
use anyhow::Result;
use snowflake_server_tests::fleet::{home, ids, member, registry};
use snowflake_server_tests::{Kind, Server, Stop, Traffic, ms, secs};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Runs the fleet, and prints what became of it.
///
/// # Errors
/// A program cannot be run, or an ID was generated twice.
pub fn show() -> Result<()> {
    println!("\n== A registry, and three servers with the same settings and no worker_id");
    let mut registry = registry("1 hour");
    let start = |name| (name, member(&registry, name).start_with_extension());
    let mut servers = vec![start("db-1"), start("db-2"), start("db-3")];
    let mut traffic: Vec<_> = servers.iter().map(|(name, server)| (*name, work(server))).collect();
    for (name, server) in &servers {
        println!("{name} has worker {}, and 4 clients", home(server));
    }

    println!("db-2 is killed and started again: it keeps its worker");
    servers[1].1.crash();
    servers[1].1.start();
    println!("db-3 is copied, and both run: the copy gets another worker");
    let mut copy = servers[2].1.copy();
    servers[2].1.start();
    copy.start();
    home(&copy);
    traffic.push(("the copy of db-3", work(&copy)));
    println!("the registry is stopped for 5 s: all servers go on");
    registry.stop(Stop::Fast);
    traffic.iter().for_each(|(_, clients)| clients.go_on_for(100, secs(5)));
    servers.iter().for_each(|(_, server)| drop(ids(server, 1)));
    registry.start();
    traffic.iter().for_each(|(_, clients)| clients.go_on(100));

    let mut session = registry.connect();
    session.batch_execute("CREATE TABLE generated (server text NOT NULL, id bigint NOT NULL)")?;
    let mut rows = session.copy_in("COPY generated FROM STDIN")?;
    for (name, clients) in traffic {
        for id in clients.finish().iter().flat_map(|call| call.ids()) {
            writeln!(rows, "{name}\t{id}")?;
        }
    }
    rows.finish()?;
    let tables = File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../pg_test/demo/fleet.sql"))?;
    let mut psql = registry.client_program("psql", "postgres");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-P", "footer=off", "-P", "pager=off"]);
    run(psql.stdin(tables))
}

fn work(server: &Server) -> Traffic {
    Traffic::start(server, &[Kind::One, Kind::One, Kind::One, Kind::Batch(10)], ms(5))
}
