//! One cluster's life within a run: its servers, which of them the clients ask, and how servers are stopped,
//! started and replaced. The faults are made of these; `recovery` has the checks after them.

mod member;
mod recovery;
mod stage;

pub use member::{Down, Member};
pub use recovery::{A_COPY, A_SECOND, is_closed};
pub use stage::Stage;

use crate::shared::Shared;
use crate::world::{ActPlan, World};
use snowflake_server_tests::disk::SmallDisk;
use snowflake_server_tests::{Server, days, ms, secs, wait_until};
use std::sync::atomic::Ordering;
use std::time::Instant;

pub const SETTINGS: [(&str, &str); 11] = [
    ("checkpoint_timeout", "1d"),
    ("hot_standby", "on"),
    ("log_min_messages", "log"),
    ("max_connections", "80"),
    ("max_wal_size", "8GB"),
    ("shared_buffers", "16MB"),
    ("wal_keep_size", "2GB"),
    ("wal_log_hints", "on"),
    ("wal_receiver_timeout", "0"),
    ("wal_retrieve_retry_interval", "100ms"),
    ("wal_sender_timeout", "0"),
];

pub struct Act<'a> {
    pub stage: &'a Stage,
    plan: ActPlan,
    pub world: World,
    pub primary: Member,
    pub standby: Option<Member>,
    /// A copy with a worker of its own that clients are sent to as well.
    pub second: Option<Member>,
    pub worker: i64,
    /// All home workers that the cluster has used.
    workers: Vec<i64>,
    pub max_ahead_ms: i64,
    /// The longest `max_ahead` of this act: one that was lowered stays in force for a while, over restarts too.
    pub longest_ahead_ms: i64,
    /// The time of the latest ID of this worker on servers that are gone (ms since 1970).
    pub gone_newest_ms: i64,
    /// The time of the latest ID of workers that are no longer used.
    left_newest_ms: i64,
}

impl<'a> Act<'a> {
    pub fn begin(stage: &'a Stage, mut plan: ActPlan) -> Self {
        let unused = stage.unused_worker();
        // A worker may serve again if its cluster starts above the clock, which an old one does not.
        plan.is_old &= unused.is_some();
        let worker = unused.unwrap_or_else(|| stage.retired_worker());
        let mut act = Self {
            stage,
            world: World::new(&plan),
            primary: first_server(stage, &plan, worker),
            plan,
            standby: None,
            second: None,
            worker,
            workers: vec![worker],
            max_ahead_ms: 2_000,
            longest_ahead_ms: 2_000,
            gone_newest_ms: i64::MIN,
            left_newest_ms: i64::MIN,
        };
        act.set_clock(0);
        if act.plan.has_standby {
            act.standby = Some(act.new_standby());
        }
        let shared = act.shared();
        shared.pause_us.store(act.plan.pause_us, Ordering::Relaxed);
        // With `spread`, the first sequence of a tick is anywhere in the lowest 1/64 of the field.
        shared.capacity.store(if act.plan.spread { 4096 - 63 } else { 4096 }, Ordering::Relaxed);
        act.send_clients();
        act.must_serve_after("the start of a cluster");
        act
    }

    /// Ends the cluster: the clients leave, and its workers are free for a later one.
    pub fn end(mut self) {
        self.shared().send_to(Vec::new());
        wait_until("the clients to leave", secs(60), || (self.shared().under_way() == 0).then_some(()));
        self.stage.retire(&self.workers, self.newest_ms().max(self.left_newest_ms));
        if let Some(standby) = self.standby.take() {
            standby.discard();
        }
        self.primary.discard();
    }

    pub fn shared(&self) -> &'a Shared {
        &self.stage.shared
    }

    /// Notes that a fault had nothing to hit.
    pub fn skip(&self) {
        self.shared().skip();
    }

    pub fn set_clock(&self, offset_us: i64) {
        self.primary.set_clock(offset_us, self.longest_ahead_ms);
    }

    pub fn set_clock_right(&mut self) {
        self.set_clock(0);
        self.must_serve_after("the true clock");
    }

    // ---- the clients

    /// The primary, and the second server if clients are sent to it.
    pub fn serving(&self) -> impl Iterator<Item = &Member> {
        [Some(&self.primary), self.second.as_ref()].into_iter().flatten()
    }

    pub fn send_clients(&self) {
        self.shared().send_to(self.serving().map(|member| member.target.clone()).collect());
    }

    /// Sends clients to another server beside the primary while `during` runs.
    pub fn serve_beside(&mut self, other: Member, during: impl FnOnce(&mut Self)) -> Member {
        self.second = Some(other);
        self.send_clients();
        during(self);
        let other = self.second.take().expect("it was put there");
        self.send_clients();
        other
    }

    /// The time of the latest ID that this cluster generated with its present worker.
    pub fn newest_ms(&self) -> i64 {
        let running = self.serving().map(|member| member.target.newest_ms.load(Ordering::Acquire));
        running.max().unwrap_or(i64::MIN).max(self.gone_newest_ms)
    }

    // ---- stopping and starting

    pub fn stop(&mut self, down: Down) {
        if down == Down::Smart {
            // A smart stop waits for the clients to leave.
            self.shared().send_to(self.second.iter().map(|member| member.target.clone()).collect());
        }
        self.primary.stop(down);
    }

    pub fn start(&mut self) {
        self.primary.start();
        self.send_clients();
    }

    pub fn restart(&mut self, down: Down) {
        self.stop(down);
        self.start();
    }

    /// Has one of the server's processes killed, and waits until the postmaster has restarted all of them. A
    /// stop in the meantime would be a fault of another kind: PostgreSQL 15 may not answer it.
    pub fn crash_by(&mut self, kill: impl FnOnce(&Member) -> bool) {
        let mut session = self.primary.session();
        if !kill(&self.primary) {
            return self.skip();
        }
        let began = Instant::now();
        while session.batch_execute("").is_ok() {
            if began.elapsed() > secs(3) {
                return self.skip();
            }
            std::thread::sleep(ms(5));
        }
        self.primary.ask("the server after a crash", |session| session.batch_execute(""));
    }

    // ---- replacing servers and workers

    pub fn new_standby(&self) -> Member {
        let mut standby = Member::new(self.shared(), self.primary.server.backup(), "standby");
        standby.server.follow(&self.primary.server);
        if self.plan.has_small_disk {
            standby.disk = Some(SmallDisk::cover(&standby.server));
        }
        standby.start();
        standby
    }

    /// Stops the primary before its successor takes over, and remembers the time of its newest ID. An older state may
    /// take the place of the newest one from now on: the clock has passed the one under which the IDs were generated.
    pub fn stop_for_good(&mut self, down: Down) {
        self.stop(down);
        self.settled_count(&self.primary);
        self.gone_newest_ms = self.newest_ms();
        self.wait_for_clock();
    }

    /// Puts another server in the primary's place, and returns the old one.
    pub fn replace_primary(&mut self, successor: Member) -> Member {
        self.world.has_small_disk = successor.disk.is_some();
        std::mem::replace(&mut self.primary, successor)
    }

    /// Makes a new standby in the place of one that cannot follow the primary any more.
    pub fn renew_standby(&mut self) {
        if let Some(standby) = self.standby.take() {
            standby.discard();
            self.standby = Some(self.new_standby());
        }
    }

    /// Gives the stopped cluster another home worker, whose IDs so far end here (ms since 1970).
    pub fn change_worker(&mut self, worker: i64, newest_ms: i64) {
        self.settled_count(&self.primary);
        self.left_newest_ms = self.left_newest_ms.max(self.newest_ms());
        self.gone_newest_ms = newest_ms;
        self.primary.target.newest_ms.store(i64::MIN, Ordering::Release);
        self.set_worker(worker);
        // All lanes begin above the clock.
        self.world.is_replaced = false;
    }

    /// Gives the cluster another home worker from the primary's next start on.
    fn set_worker(&mut self, worker: i64) {
        self.worker = worker;
        self.note_worker(worker);
        self.primary.server.set("snowflake_id.worker_id", &worker.to_string());
        if let Some(standby) = &mut self.standby {
            standby.server.set("snowflake_id.worker_id", &worker.to_string());
            standby.stop(Down::Fast);
            standby.start();
        }
    }

    /// No other cluster may have this worker before this one has ended.
    pub fn note_worker(&mut self, worker: i64) {
        if !self.workers.contains(&worker) {
            self.workers.push(worker);
        }
    }
}

/// A new cluster that generates IDs.
fn first_server(stage: &Stage, plan: &ActPlan, worker: i64) -> Member {
    let mut builder = SETTINGS
        .iter()
        .fold(Server::builder().faketime(true), |builder, (name, value)| builder.setting(name, value))
        .setting("snowflake_id.sequence_start", if plan.spread { "spread" } else { "zero" })
        .setting("snowflake_id.worker_id", &worker.to_string());
    if plan.is_old {
        builder = builder.born(days(400));
    }
    let mut primary = Member::new(&stage.shared, builder.create(), "primary");
    if plan.has_small_disk {
        primary.disk = Some(SmallDisk::cover(&primary.server));
    }
    primary.start();
    primary.run(
        "CREATE EXTENSION snowflake_id;
         CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), call bigint);
         CREATE INDEX ON made (call)",
    );
    wait_until("the first ID", secs(30), || primary.try_run("SELECT snowflake_nextval()").ok());
    primary
}
