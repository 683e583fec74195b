//! The registry and its standby, and what operators do with them.

use super::network::Hosts;
use super::node::freeze;
use crate::act::SETTINGS;
use postgres::{Client, NoTls};
use snowflake_server_tests::sql::run;
use snowflake_server_tests::{Failure, Server, Stop, faults, ms, secs, wait_until};
use std::sync::Arc;
use std::time::Duration;

pub struct Registry {
    pub primary: Server,
    pub standby: Server,
    /// The place of the primary among the hosts; the standby has the other one.
    host: usize,
    hosts: Arc<Hosts>,
    tolerance: Duration,
}

impl Registry {
    /// A registry that hands out so many workers.
    pub fn new(grant: Duration, workers: u32, hosts: &Arc<Hosts>) -> Self {
        let primary = new_server();
        let mut session = primary.connect();
        run(&mut session, "CREATE EXTENSION snowflake_id");
        let tolerance = grant / 4;
        let create = format!(
            "SELECT snowflake_registry_create('node', '{} ms', clock_tolerance => '{} ms')",
            grant.as_millis(),
            tolerance.as_millis()
        );
        run(&mut session, &create);
        let beyond = format!(
            "SELECT count(snowflake_registry_reserve(worker, 'nobody')) FROM generate_series({workers}, 255) worker"
        );
        run(&mut session, &beyond);
        let standby = follow(&primary);
        hosts.put(0, primary.folder());
        hosts.put(1, standby.folder());
        Self { primary, standby, host: 0, hosts: hosts.clone(), tolerance }
    }

    pub fn session(&self) -> Client {
        wait_until("a session of the registry", secs(30), || self.primary.config().connect(NoTls).ok())
    }

    /// Calls a function as the operator; an error only for one of these reasons.
    pub fn operate(&self, call: &str, reasons: &[&str]) -> bool {
        match self.session().batch_execute(&format!("SELECT {call}")) {
            Ok(()) => true,
            Err(e) => {
                let failure = Failure::from(&e);
                assert!(reasons.contains(&failure.code.as_str()), "registry: {call}: {}", failure.text());
                false
            }
        }
    }

    pub fn down(&mut self, is_killed: bool) {
        match is_killed {
            true => self.primary.crash(),
            false => self.primary.stop(Stop::Fast),
        }
    }

    pub fn up(&mut self) {
        assert!(
            self.primary.try_start(secs(60)).is_ok(),
            "the registry did not start: {}",
            self.primary.log()
        );
    }

    /// Cuts the standby off: what is committed from now on does not reach it.
    pub fn cut_standby(&self) {
        let file = self.standby.data().join("postgresql.auto.conf");
        std::fs::write(&file, "primary_conninfo = ''\n").expect("the settings can be written");
        faults::own(&file);
        self.standby.reread_settings();
        let mut session = self.standby.connect();
        wait_until("the WAL receiver to end", secs(30), || {
            let receivers = session.query("SELECT FROM pg_stat_wal_receiver", &[]);
            receivers.expect("the view").is_empty().then_some(())
        });
    }

    /// Waits until the standby has everything, which nobody adds to.
    pub fn catch_up(&self) {
        self.standby.catch_up_with(&self.primary);
    }

    /// Sets the clock of a server that takes over apart from the nodes': by thousandths of the clock tolerance.
    pub fn set_apart(&self, server: &Server, apart: i64) {
        let wanted_us = self.tolerance.as_micros() as i64 / 1_000 * apart;
        let step_us = wanted_us - server.clock().offset();
        let step = Duration::from_micros(step_us.unsigned_abs());
        match step_us < 0 {
            true => server.clock().back(step),
            false => server.clock().forward(step),
        }
    }

    /// Promotes the standby, with its clock this far apart; the primary is down, and never comes back.
    pub fn fail_over(&mut self, apart: i64) {
        self.set_apart(&self.standby, apart);
        self.standby.promote();
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.host = 1 - self.host;
        self.replace_standby();
    }

    /// Has another server take the place of both, which are down or are stopped now.
    pub fn replace(&mut self, primary: Server, apart: i64) {
        self.set_apart(&primary, apart);
        if self.primary.is_started() {
            self.primary.stop(Stop::Immediate);
        }
        self.primary = primary;
        self.hosts.put(self.host, self.primary.folder());
        self.replace_standby();
    }

    fn replace_standby(&mut self) {
        self.standby = follow(&self.primary);
        self.hosts.put(1 - self.host, self.standby.folder());
    }

    /// Stops all processes for a while.
    pub fn freeze(&self, hold: Duration) {
        let thaw = freeze(&self.primary);
        std::thread::sleep(hold);
        drop(thaw);
    }
}

/// A server with the role of the nodes.
pub fn new_server() -> Server {
    let builder = Server::builder().without_library();
    let builder = SETTINGS.iter().fold(builder, |builder, (name, value)| builder.setting(name, value));
    let server = builder.faketime(true).start();
    run(&mut server.connect(), "CREATE ROLE node LOGIN");
    server
}

fn follow(primary: &Server) -> Server {
    let mut standby = primary.backup();
    standby.follow(primary);
    assert!(standby.try_start(secs(60)).is_ok(), "the standby did not start: {}", standby.log());
    let mut session = standby.connect();
    wait_until("the standby to stream", secs(60), || {
        std::thread::sleep(ms(20));
        let streams = "SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming'";
        (!session.query(streams, &[]).expect("the view").is_empty()).then_some(())
    });
    standby
}
