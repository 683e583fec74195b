//! More servers than one: standbys, their promotion, their copies, and old primaries that come back.

use super::{Act, Member, rotate};
use crate::disk::SmallDisk;
use crate::faults::{Down, Fault};
use snowflake_server_tests::{Server, ms, secs, wait_until};
use std::sync::atomic::Ordering;

const DAY_US: i64 = 86_400_000_000;

impl Act<'_> {
    pub(super) fn new_standby(&self) -> Member {
        let mut standby = Member::new(self.stage, self.primary.server.backup(), "standby");
        standby.server.follow(&self.primary.server);
        if self.plan.has_small_disk {
            standby.disk = Some(SmallDisk::cover(&standby.server));
        }
        standby.start();
        standby
    }

    /// A standby whose clock may be behind is promoted while its primary runs on; then it is alone.
    ///
    /// Left out, as unprotected: a clock that lags on the third timeline and later, where the server two
    /// timelines before was ahead of what was replayed since; a primary that still runs beside its
    /// successor's successor.
    pub(super) fn promote(&mut self, fault: &Fault) {
        let mut standby = self.standby.take().expect("drawn only where there is one");
        match standby.try_run("SELECT snowflake_nextval()") {
            Err(failure) if failure.code == "25006" => {}
            other => panic!("{}: a standby must refuse: {other:?}", standby.target.name),
        }
        if self.world.timeline > 1 {
            self.wait_for_replay(&standby);
        }
        standby.set_clock(-behind_us(fault), self.max_ahead_ms);
        if (fault.variant / 4).is_multiple_of(3) {
            // The primary is gone before its successor comes.
            self.stop(fault.down);
            self.gone_frontier_ms = self.frontier_ms();
            return self.succeed(standby, fault);
        }
        promote(&standby);
        standby = std::mem::replace(&mut self.primary, standby);
        self.second = Some(standby);
        self.send();
        std::thread::sleep(ms(fault.hold_ms));
        if (fault.variant / 12).is_multiple_of(2) {
            for member in [Some(&self.primary), self.second.as_ref()].into_iter().flatten() {
                rotate(member);
            }
        }
        if fault.crashes {
            self.restart(Down::Killed);
        }
        self.flow("two primaries");
        let mut old = self.second.take().expect("it was put there");
        self.send();
        if old.server.is_started() {
            old.stop(if fault.down == Down::Smart { Down::Fast } else { fault.down });
        }
        self.quiet_count(&old);
        self.gone_frontier_ms = self.gone_frontier_ms.max(old.target.frontier_ms.load(Ordering::Acquire));
        self.set_right();
        self.follow_up(old, fault, true);
    }

    /// The standby takes the place of its primary, which is down.
    fn succeed(&mut self, standby: Member, fault: &Fault) {
        promote(&standby);
        let old = std::mem::replace(&mut self.primary, standby);
        self.send();
        self.flow("a promotion");
        self.set_right();
        self.follow_up(old, fault, true);
    }

    /// A standby's last restart begins after the last commit, so that it has replayed none when it is promoted.
    pub(super) fn promote_a_restarted_standby(&mut self, fault: &Fault) {
        let mut standby = self.standby.take().expect("drawn only where there is one");
        if self.world.timeline > 1 {
            self.wait_for_replay(&standby);
        }
        standby.server.restartpoint_with(&self.primary.server);
        self.stop(fault.down);
        self.quiet_count(&self.primary);
        self.gone_frontier_ms = self.frontier_ms();
        standby.set_clock(-behind_us(fault), self.max_ahead_ms);
        // After a clean stop, the primary's last checkpoint is the last of all.
        standby.run("CHECKPOINT");
        standby.stop(fault.down);
        standby.start();
        self.succeed(standby, fault);
    }

    /// The servers hand over to each other, by turns all three or two of them. The third follows them and is at
    /// last started without recovery.
    pub(super) fn switch_over_often(&mut self, fault: &Fault) {
        let mut standby = self.standby.take().expect("drawn only where there is one");
        let mut third = self.new_standby();
        let third_takes_part = fault.variant.is_multiple_of(2);
        for _ in 0..5 {
            self.primary.run("CREATE TABLE IF NOT EXISTS mark (x int); INSERT INTO mark VALUES (1)");
            self.wait_for_streams(2);
            self.stop(if fault.down == Down::Smart { Down::Smart } else { Down::Fast });
            self.quiet_count(&self.primary);
            self.gone_frontier_ms = self.frontier_ms();
            standby.set_clock(0, self.max_ahead_ms);
            promote(&standby);
            let mut old = std::mem::replace(&mut self.primary, standby);
            self.world.timeline += 1;
            old.server.follow(&self.primary.server);
            old.start();
            third.stop(fault.down);
            third.server.follow(&self.primary.server);
            third.start();
            self.send();
            self.flow("a switchover");
            std::thread::sleep(ms(fault.hold_ms));
            (standby, third) = if third_takes_part { (third, old) } else { (old, third) };
        }
        self.world.has_small_disk = self.primary.disk.is_some();
        self.standby = Some(standby);
        if (fault.variant / 2).is_multiple_of(2) {
            self.restartpoint(&third);
        }
        third.stop(Down::Fast);
        third.server.stand_alone();
        self.live_beside(third, fault);
    }

    /// As many standbys have come to the end of what the primary has written.
    fn wait_for_streams(&self, standbys: i64) {
        let query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        wait_until("the standbys to stream", secs(30), || {
            let row = self.primary.ask(query, |session| session.query_one(query, &[]));
            (row.get::<_, i64>(0) >= standbys).then_some(())
        });
    }

    /// The control file of the standby gets to know the timeline that it follows.
    fn restartpoint(&self, standby: &Member) {
        standby.server.restartpoint_with(&self.primary.server);
    }

    /// A standby, which may have been a primary before, is started without recovery.
    pub(super) fn start_the_standby_alone(&mut self, fault: &Fault) {
        let mut standby = self.standby.take().expect("drawn only where there is one");
        self.restartpoint(&standby);
        standby.stop(fault.down);
        standby.server.stand_alone();
        self.live_beside(standby, fault);
        if self.standby.is_none() {
            self.standby = Some(self.new_standby());
        }
    }

    fn set_right(&mut self) {
        self.primary.set_clock(0, self.max_ahead_ms);
        self.flow("the true clock");
    }

    /// After a promotion: the old primary is rewound and follows, or a new standby is made.
    fn follow_up(&mut self, mut old: Member, fault: &Fault, wants_standby: bool) {
        self.world.timeline += 1;
        self.world.shifted = false;
        // The new one has a small disk if it was given one.
        self.world.has_small_disk = self.primary.disk.is_some();
        old.set_clock(0, self.max_ahead_ms);
        if !wants_standby {
            return old.discard();
        }
        // pg_rewind goes by the control file: the new timeline has to be in it.
        if (fault.variant / 24).is_multiple_of(2) {
            self.primary.run("CHECKPOINT");
            match old.server.rewind(&self.primary.server) {
                Ok(()) => {
                    old.server.follow(&self.primary.server);
                    old.start();
                    self.standby = Some(old);
                    return;
                }
                Err(why) => {
                    eprintln!("pg_rewind: {}", why.trim_end());
                    self.skip();
                }
            }
        }
        old.discard();
        self.standby = Some(self.new_standby());
    }

    /// Waits until the standby has replayed a commit that lies above all IDs of earlier timelines, by the
    /// primary's clock, which is right.
    fn wait_for_replay(&self, standby: &Member) {
        wait_until("a commit above all earlier IDs to be replayed", secs(30), || {
            self.primary.run("CREATE TABLE IF NOT EXISTS mark (x int); INSERT INTO mark VALUES (1)");
            let query = "SELECT (extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000)::bigint";
            let replayed = standby.ask("what was replayed", |session| session.query_one(query, &[]));
            let replayed_ms: Option<i64> = replayed.get(0);
            replayed_ms.filter(|ms| ms + self.max_ahead_ms > self.gone_frontier_ms).map(drop)
        });
    }

    /// A backup, or a copy of the files, of the primary or of its standby, without what would make it a standby.
    pub(super) fn copy(&mut self, fault: &Fault) {
        let is_hot = fault.variant.is_multiple_of(2);
        let is_of_standby = !(fault.variant / 6).is_multiple_of(3);
        let server = match self.standby.as_mut().filter(|_| is_of_standby) {
            Some(standby) => {
                standby.server.restartpoint_with(&self.primary.server);
                if is_hot { standby.server.backup() } else { copied(standby) }
            }
            None if is_hot => self.primary.server.backup(),
            None => {
                let copy = self.primary.server.copy();
                self.start();
                copy
            }
        };
        server.stand_alone();
        let copy = Member::new(self.stage, server, "copy");
        self.live_beside(copy, fault);
    }

    /// A server that may be a twin of the primary is started beside it: closed, until it has a worker of its own;
    /// in the place of the primary, until it is adopted.
    fn live_beside(&mut self, mut copy: Member, fault: &Fault) {
        copy.set_clock(0, self.max_ahead_ms);
        copy.start();
        copy = self.must_stay_closed(copy, fault);
        // The second start finds a control file that the first one wrote.
        copy.stop(fault.down);
        if fault.crashes {
            copy.set_clock(-(fault.step_us.min(DAY_US)), self.max_ahead_ms);
        }
        copy.start();
        copy = self.must_stay_closed(copy, fault);
        copy.set_clock(0, self.max_ahead_ms);
        match fault.variant / 2 % 3 {
            0 => copy.discard(),
            1 => {
                let Some(worker) = self.stage.unused_worker() else {
                    self.skip();
                    return copy.discard();
                };
                copy.server.set("snowflake_id.worker_id", &worker.to_string());
                copy.stop(Down::Fast);
                copy.start();
                self.workers.push(worker);
                self.second = Some(copy);
                self.send();
                self.flow("a copy with its own worker");
                std::thread::sleep(ms(fault.hold_ms));
                let mut copy = self.second.take().expect("it was put there");
                self.send();
                copy.stop(Down::Fast);
                self.quiet_count(&copy);
                copy.discard();
            }
            _ => {
                self.stop(fault.down);
                self.quiet_count(&self.primary);
                self.gone_frontier_ms = self.frontier_ms();
                std::mem::replace(&mut self.primary, copy).discard();
                self.adopt();
                self.world.has_small_disk = self.primary.disk.is_some();
                self.send();
                // What followed the original does not follow the copy: they are of one timeline.
                if let Some(standby) = self.standby.take() {
                    standby.discard();
                    self.standby = Some(self.new_standby());
                }
            }
        }
    }

    /// Clients ask a server that may be a twin of the primary, beside it, and get nothing.
    fn must_stay_closed(&mut self, copy: Member, fault: &Fault) -> Member {
        let (copy, made) = self.ask_beside(copy, fault.hold_ms);
        let answer = copy.try_run("SELECT snowflake_nextval()");
        match &answer {
            Err(failure) if made == 0 && failure.code == "55000" && is_a_copy(&failure.text()) => {
                return copy;
            }
            other => {
                let name = &copy.target.name;
                self.shared().complain(format!("{name}: closed as a copy? {made} IDs, then {other:?}"));
            }
        }
        // One ID is too many. What both make now is compared.
        self.ask_beside(copy, 5_000).0
    }

    /// Sends clients to another server beside the primary for a while; how many IDs it made.
    fn ask_beside(&mut self, copy: Member, hold_ms: u64) -> (Member, u64) {
        let before = self.quiet_count(&copy);
        self.second = Some(copy);
        self.send();
        std::thread::sleep(ms(hold_ms));
        let copy = self.second.take().expect("it was put there");
        self.send();
        let made = self.quiet_count(&copy) - before;
        (copy, made)
    }

    /// A base backup is recovered to its end onto a new timeline; the original runs on for a while.
    pub(super) fn restore(&mut self, fault: &Fault) {
        let mut server = self.primary.server.backup();
        std::fs::write(server.data().join("recovery.signal"), "").expect("a file can be made");
        snowflake_server_tests::faults::own(&server.data().join("recovery.signal"));
        server.set("restore_command", "false");
        server.set("recovery_target", "immediate");
        server.set("recovery_target_action", "promote");
        let mut restored = Member::new(self.stage, server, "restored");
        restored.set_clock(-(fault.step_us.min(DAY_US)), self.max_ahead_ms);
        restored.start();
        wait_until_promoted(&restored);
        let old = std::mem::replace(&mut self.primary, restored);
        for setting in ["restore_command", "recovery_target", "recovery_target_action"] {
            self.primary.server.unset(setting);
        }
        self.second = Some(old);
        self.send();
        self.flow("a restored backup beside its original");
        let mut old = self.second.take().expect("it was put there");
        self.send();
        old.stop(fault.down);
        self.quiet_count(&old);
        self.gone_frontier_ms = self.gone_frontier_ms.max(old.target.frontier_ms.load(Ordering::Acquire));
        self.set_right();
        self.follow_up(old, fault, false);
    }
}

/// How far the clock of a standby is behind when it is promoted (µs).
fn behind_us(fault: &Fault) -> i64 {
    match fault.variant % 4 {
        0 => 0,
        1 => fault.step_us % 1_000_000,
        _ => fault.step_us.min(DAY_US),
    }
}

/// A copy of a standby's files, made while it is stopped.
fn copied(standby: &mut Member) -> Server {
    let copy = standby.server.copy();
    standby.start();
    copy
}

/// Whether this is said of a server whose original may run.
pub(super) fn is_a_copy(text: &str) -> bool {
    text.contains("is a copy") || text.contains("another server may be generating IDs")
}

fn promote(standby: &Member) {
    standby.run("SELECT pg_promote(false)");
    wait_until_promoted(standby);
}

fn wait_until_promoted(member: &Member) {
    wait_until("the promotion", secs(30), || {
        let row = member.ask("recovery", |session| session.query_one("SELECT NOT pg_is_in_recovery()", &[]));
        row.get::<_, bool>(0).then_some(())
    });
}
