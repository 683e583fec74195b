//! A server of the cluster, and how to reach it in spite of faults.

use crate::disk;
use crate::shared::{Shared, Target};
use crate::volume::Volume;
use postgres::{Client, NoTls};
use snowflake_server_tests::disk::{SmallDisk, Troublemaker};
use snowflake_server_tests::{Failure, Server, Stop, ms, process, secs, wait_until};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How a server goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    Killed,
    Immediate,
    Fast,
    Smart,
}

pub struct Member {
    // Dropped first: a folder under a mount cannot be removed.
    pub disk: Option<SmallDisk>,
    pub volume: Option<Volume>,
    pub server: Server,
    pub trouble: Troublemaker,
    pub target: Arc<Target>,
}

impl Member {
    pub fn new(shared: &Shared, mut server: Server, name: &str) -> Self {
        let trouble = Troublemaker::new(&mut server);
        let target = shared.target(&server, name);
        Self { disk: None, volume: None, server, trouble, target }
    }

    pub fn start(&mut self) {
        // A panic prints the end of each server's log.
        assert!(self.server.try_start(secs(60)).is_ok(), "{} did not start", self.target.name);
    }

    pub fn stop(&mut self, down: Down) {
        match down {
            Down::Killed => self.server.crash(),
            Down::Immediate => self.server.stop(Stop::Immediate),
            Down::Fast => self.server.stop(Stop::Fast),
            Down::Smart => self.server.stop(Stop::Smart),
        }
    }

    /// Moves the data directory to a volume of its own, if it is on none.
    pub fn put_on_volume(&mut self, down: Down) -> &Volume {
        if self.volume.is_none() {
            self.stop(if down == Down::Smart { Down::Fast } else { down });
            self.volume = Some(Volume::take_over(&self.server));
            self.start();
        }
        self.volume.as_ref().expect("it is on one now")
    }

    /// An image of the volume as it is now.
    pub fn snapshot(&self) -> PathBuf {
        self.volume.as_ref().expect("it is on a volume").snapshot(&self.server)
    }

    /// Sets the volume back to an earlier image.
    pub fn set_back(&mut self, image: PathBuf) {
        let volume = self.volume.take().expect("it is on a volume");
        self.volume = Some(volume.set_back(image));
    }

    /// Takes away what the host remembers of the stopped server's cluster, as a reboot does.
    pub fn forget(&self) {
        let _ = std::fs::remove_file(self.server.lock_file());
    }

    /// Stops the server and removes its folder.
    pub fn discard(mut self) {
        if self.server.is_started() {
            self.server.stop(Stop::Immediate);
        }
        self.server.remove_lock_file();
    }

    /// Asks the server, again and again while faults break the connection.
    pub fn ask<T>(
        &self,
        what: &str,
        mut question: impl FnMut(&mut Client) -> Result<T, postgres::Error>,
    ) -> T {
        let began = Instant::now();
        loop {
            match self.server.config().connect(NoTls).and_then(|mut session| question(&mut session)) {
                Ok(answer) => return answer,
                Err(e) => {
                    let failure = Failure::from(&e);
                    assert!(began.elapsed() < secs(30), "{}: {what}: {failure}", self.target.name);
                }
            }
            std::thread::sleep(ms(20));
        }
    }

    pub fn session(&self) -> Client {
        wait_until(&format!("a session of {}", self.target.name), secs(30), || {
            self.server.config().connect(NoTls).ok()
        })
    }

    /// Runs a statement. An error comes from the statement: one that ended the session (57P..) does not
    /// count, and the statement is tried again.
    pub fn try_run(&self, statement: &str) -> Result<(), Failure> {
        self.ask(statement, |session| match session.batch_execute(statement) {
            Err(e) if e.as_db_error().is_some_and(|e| !e.code().code().starts_with("57P")) => {
                Ok(Err(Failure::from(&e)))
            }
            other => other.map(Ok),
        })
    }

    pub fn run(&self, statement: &str) {
        if let Err(failure) = self.try_run(statement) {
            panic!("{}: {statement}: {failure}", self.target.name);
        }
    }

    /// Rotates by hand, if there is a lane to rotate to.
    pub fn rotate(&self) {
        match self.try_run("SELECT snowflake_rotate()") {
            Err(failure) if failure.code != "55000" => {
                panic!("{}: snowflake_rotate: {failure}", self.target.name)
            }
            _ => {}
        }
    }

    /// Process IDs of client backends.
    pub fn backends(&self) -> Vec<i32> {
        let query = "SELECT pid FROM pg_stat_activity
                     WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid";
        self.ask("backends", |session| session.query(query, &[])).iter().map(|row| row.get(0)).collect()
    }

    /// A background worker of the extension. No view shows it, because it has no database. One that has just
    /// ended restarts within a second, unless the clock moved backwards.
    fn worker(&self, title: &str) -> Option<i32> {
        let postmaster = self.server.pid();
        let began = Instant::now();
        loop {
            let is_it = |pid: &i32| process::title(*pid).starts_with(&format!("postgres: {title}"));
            let worker = process::children(postmaster as i32).into_iter().find(is_it);
            if worker.is_some() || began.elapsed() > ms(1_300) {
                return worker;
            }
            std::thread::sleep(ms(20));
        }
    }

    pub fn keeper(&self) -> Option<i32> {
        self.worker("snowflake_id keeper")
    }

    pub fn registrar(&self) -> Option<i32> {
        self.worker("snowflake_id registrar")
    }

    pub fn offset_us(&self) -> i64 {
        self.server.clock().offset()
    }

    /// Sets the clock to true time and this offset, from now on, or from the next start.
    pub fn set_clock(&self, offset_us: i64, max_ahead_ms: i64) {
        let old_us = self.offset_us();
        // Before the step, because an ID may come at once.
        let lead_ms = old_us.max(offset_us).div_euclid(1_000) + 1 + max_ahead_ms;
        self.target.lead_ms.store(lead_ms, Ordering::Release);
        let by = Duration::from_micros(old_us.abs_diff(offset_us));
        if offset_us > old_us {
            self.server.clock().forward(by);
        } else {
            self.server.clock().back(by);
        }
    }

    pub fn state_bytes(&self) -> Vec<u8> {
        std::fs::read(disk::state_file(&self.server)).expect("the state file can be read")
    }

    /// The reason why the generator is closed, and in how many seconds its first lane can be used.
    pub fn closed_for(&self) -> Option<(String, f64)> {
        let mut session = self.server.config().connect(NoTls).ok()?;
        let query = "SELECT coalesce(reason, ''), coalesce((
                SELECT extract(epoch FROM min(usable_at) - clock_timestamp())::float8
                FROM snowflake_workers), 0)
            FROM snowflake_status";
        let row = session.query_one(query, &[]).ok()?;
        Some((row.get(0), row.get(1)))
    }
}
