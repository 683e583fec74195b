//! Servers that follow each other, and what operators do with them.

use crate::install::install;
use crate::server::{Server, Stop};
use crate::{secs, sql};
use std::fs;

impl Server {
    /// Waits until this standby has replayed everything that `primary` has written.
    #[track_caller]
    pub fn catch_up_with(&self, primary: &Server) {
        let position: String = sql::one(&mut primary.connect(), "SELECT pg_current_wal_lsn()::text");
        self.wait_for_replay_to(&position);
    }

    /// Waits until this standby has replayed the WAL up to this position.
    #[track_caller]
    pub fn wait_for_replay_to(&self, position: &str) {
        let caught_up = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn");
        let mut session = self.connect();
        crate::wait_until("the standby to catch up", secs(30), || {
            sql::one::<bool>(&mut session, &caught_up).then_some(())
        });
    }

    /// Makes a restart of this standby begin after everything that `primary` has written so far.
    #[track_caller]
    pub fn restartpoint_with(&self, primary: &Server) {
        // First of all, because the primary's checkpoint removes WAL.
        self.catch_up_with(primary);
        sql::run(&mut primary.connect(), "CHECKPOINT");
        self.catch_up_with(primary);
        sql::run(&mut self.connect(), "CHECKPOINT");
    }

    /// From its next start on, this stopped server follows no primary and recovers only from its own WAL, as if an
    /// operator had removed the signal files.
    pub fn stand_alone(&self) {
        for signal in ["standby.signal", "recovery.signal"] {
            let _ = fs::remove_file(self.data().join(signal));
        }
    }

    /// At its next start, this stopped server recovers from an archive.
    pub fn signal_recovery(&self) {
        let signal = self.data().join("recovery.signal");
        fs::write(&signal, "").expect("a file can be made");
        install().own(&signal);
    }

    /// Starts this base backup and recovers it to the end of its WAL, on a new timeline, as if the archive had no more.
    #[track_caller]
    pub fn recover(&mut self) {
        self.signal_recovery();
        self.set("restore_command", "false");
        self.start();
        let mut session = self.connect();
        crate::wait_until("the end of recovery", secs(60), || {
            sql::one::<bool>(&mut session, "SELECT NOT pg_is_in_recovery()").then_some(())
        });
    }

    /// Has a running standby follow another primary.
    #[track_caller]
    pub fn follow_now(&mut self, primary: &Server) {
        self.stop(Stop::Fast);
        self.follow(primary);
        self.start();
    }

    /// A planned switchover: this primary stops cleanly, `successor` is promoted, and this server and the other
    /// standbys follow it.
    #[track_caller]
    pub fn hand_over(&mut self, successor: &Server, others: &mut [&mut Server]) {
        // A stopping primary sends its last WAL only to those standbys that are streaming by then.
        successor.catch_up_with(self);
        others.iter().for_each(|other| other.catch_up_with(self));
        self.stop(Stop::Fast);
        successor.promote();
        self.follow(successor);
        self.start();
        for other in others {
            other.follow_now(successor);
        }
    }
}
