//! One cluster's life within a run: its servers, the faults that are done to them, and what has to hold
//! after each.

mod replication;
mod slow_disk;

use crate::clients::{Shared, Target, true_ms};
use crate::disk::{self, SLOT, Slot, SmallDisk, Trouble, Troublemaker};
use crate::faults::{ActPlan, Down, Fault, Kind, World};
use crate::random::Random;
use nix::sys::signal::Signal;
use postgres::{Client, NoTls};
use snowflake_server_tests::{Failure, Preload, Server, Stop, days, ms, secs, wait_until};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long after a fault was healed every client must have been served again.
const RECOVERY: Duration = Duration::from_secs(40);
/// A step of the clock by more than this, forward and back again, uses up a lane.
const FORWARD_US: i64 = 2_000_000;
const HOMES: i64 = 128;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EDQUOT: i32 = 122;

/// What all acts of a run have in common.
pub struct Stage {
    pub shared: Arc<Shared>,
    pub trouble: Preload,
    next_server: Cell<u16>,
    next_worker: Cell<i64>,
    /// Home workers of acts that ended, and the time of the latest ID of each.
    retired: RefCell<Vec<(i64, i64)>>,
    /// What an operator had to do that was not part of the fault.
    pub interventions: Cell<u32>,
    /// How often a promoted server had to be vouched for.
    pub adopted: Cell<u32>,
    pub skipped: Cell<u32>,
}

impl Stage {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            trouble: Troublemaker::compile(),
            next_server: Cell::new(1),
            next_worker: Cell::new(0),
            retired: RefCell::default(),
            interventions: Cell::new(0),
            adopted: Cell::new(0),
            skipped: Cell::new(0),
        }
    }

    /// A worker that was never used in this run.
    fn unused_worker(&self) -> Option<i64> {
        let worker = self.next_worker.get();
        (worker < HOMES).then(|| self.next_worker.replace(worker + 1))
    }

    /// A worker for a new cluster. One that another cluster used serves again if its IDs lie in the past:
    /// a new cluster starts above the clock.
    fn worker_for_new(&self) -> i64 {
        self.unused_worker().unwrap_or_else(|| {
            let mut retired = self.retired.borrow_mut();
            let past = retired.iter().position(|(_, frontier_ms)| *frontier_ms < true_ms() - 10_000);
            retired.swap_remove(past.expect("a worker whose IDs lie in the past")).0
        })
    }

    fn target(&self, server: &Server, name: &str) -> Arc<Target> {
        let number = self.next_server.replace(self.next_server.get() + 1);
        Arc::new(Target {
            number,
            name: format!("server {number} ({name})"),
            config: server.config(),
            served_us: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            frontier_ms: AtomicI64::new(i64::MIN),
            lead_ms: AtomicI64::new(0),
        })
    }
}

/// A server and what belongs to it.
struct Member {
    // Dropped first: what lies under a mount cannot be removed.
    disk: Option<SmallDisk>,
    server: Server,
    trouble: Troublemaker,
    target: Arc<Target>,
}

impl Member {
    fn new(stage: &Stage, mut server: Server, name: &str) -> Self {
        let trouble = Troublemaker::new(&stage.trouble, &mut server);
        let target = stage.target(&server, name);
        Self { disk: None, server, trouble, target }
    }

    fn stop(&mut self, down: Down) {
        match down {
            Down::Killed => self.server.crash(),
            Down::Immediate => self.server.stop(Stop::Immediate),
            Down::Fast => self.server.stop(Stop::Fast),
            Down::Smart => self.server.stop(Stop::Smart),
        }
    }

    fn start(&mut self) {
        if let Err(log) = self.server.try_start(secs(60)) {
            let lines: Vec<&str> = log.lines().collect();
            panic!(
                "{} did not start:\n{}",
                self.target.name,
                lines[lines.len().saturating_sub(30)..].join("\n")
            );
        }
    }

    /// Asks the server, however often it takes to get through.
    fn ask<T>(&self, what: &str, mut question: impl FnMut(&mut Client) -> Result<T, postgres::Error>) -> T {
        let began = Instant::now();
        loop {
            let failure = match self.server.config().connect(NoTls) {
                Ok(mut session) => match question(&mut session) {
                    Ok(answer) => return answer,
                    Err(e) => Failure::from(&e),
                },
                Err(e) => Failure::from(&e),
            };
            assert!(began.elapsed() < secs(30), "{}: {what}: {failure}", self.target.name);
            std::thread::sleep(ms(20));
        }
    }

    fn session(&self) -> Client {
        let began = Instant::now();
        loop {
            match self.server.config().connect(NoTls) {
                Ok(session) => return session,
                Err(e) => assert!(began.elapsed() < secs(30), "{}: {}", self.target.name, Failure::from(&e)),
            }
            std::thread::sleep(ms(20));
        }
    }

    /// Runs a statement once; an error only if the server itself reports one.
    fn try_run(&self, statement: &str) -> Result<(), Failure> {
        let mut outcome = None;
        self.ask(statement, |session| match session.batch_execute(statement) {
            Err(e) if e.as_db_error().is_some() => {
                let failure = Failure::from(&e);
                if failure.code.starts_with("57P") {
                    return Err(e);
                }
                outcome = Some(failure);
                Ok(())
            }
            other => other,
        });
        outcome.map_or(Ok(()), Err)
    }

    fn run(&self, statement: &str) {
        if let Err(failure) = self.try_run(statement) {
            panic!("{}: {statement}: {failure}", self.target.name);
        }
    }

    /// Process ids of backends, or of the keeper.
    fn processes(&self, kind: &str) -> Vec<i32> {
        let query = "SELECT pid FROM pg_stat_activity
                     WHERE backend_type = $1 AND pid <> pg_backend_pid() ORDER BY pid";
        self.ask("processes", |session| session.query(query, &[&kind])).iter().map(|row| row.get(0)).collect()
    }

    /// The keeper; one that has just ended is back after a second, if the clock stays.
    fn keeper(&self) -> Option<i32> {
        let began = Instant::now();
        loop {
            let keeper = self.processes("snowflake_id keeper").first().copied();
            if keeper.is_some() || began.elapsed() > ms(1_300) {
                return keeper;
            }
            std::thread::sleep(ms(20));
        }
    }

    fn offset_us(&self) -> i64 {
        self.server.clock().offset()
    }

    /// Sets the clock to true time and this offset, from now on, or from the next start.
    fn set_clock(&self, offset_us: i64, max_ahead_ms: i64) {
        let old_us = self.offset_us();
        // Before the step: an ID may come at once.
        self.target
            .lead_ms
            .store(old_us.max(offset_us).div_euclid(1_000) + 1 + max_ahead_ms, Ordering::Release);
        let by = Duration::from_micros(old_us.abs_diff(offset_us));
        if offset_us > old_us {
            self.server.clock().forward(by);
        } else {
            self.server.clock().back(by);
        }
    }

    fn state_bytes(&self) -> Vec<u8> {
        std::fs::read(disk::state_file(&self.server)).expect("the state file can be read")
    }

    /// `state`, `reason`, and in how many seconds the first lane can be used.
    fn look(&self) -> Option<(String, String, f64)> {
        let mut session = self.server.config().connect(NoTls).ok()?;
        let query = "SELECT state, coalesce(reason, ''), coalesce((
                SELECT extract(epoch FROM min(usable_at) - clock_timestamp())::float8
                FROM snowflake_workers WHERE in_half), 0)
            FROM snowflake_status";
        let row = session.query_one(query, &[]).ok()?;
        Some((row.get(0), row.get(1), row.get(2)))
    }

    /// Stops what runs, and lets go of the folder.
    fn discard(mut self) {
        if self.server.is_started() {
            self.server.stop(Stop::Immediate);
        }
        self.disk = None;
    }
}

/// What happened to one fault.
pub struct Outcome {
    pub longest: Duration,
    /// From the healing to the first ID of each server, for calls that began after it.
    pub recovery: Duration,
    pub in_flight: usize,
}

pub struct Act<'a> {
    stage: &'a Stage,
    plan: ActPlan,
    pub world: World,
    primary: Member,
    standby: Option<Member>,
    /// An old primary, or a copy, that clients are sent to as well.
    second: Option<Member>,
    worker: i64,
    workers: Vec<i64>,
    max_ahead_ms: i64,
    /// The time of the latest ID that this worker made on servers that are gone (ms since 1970).
    gone_frontier_ms: i64,
    /// The time of the latest ID of workers that were left for good.
    left_frontier_ms: i64,
    recovery: Duration,
}

impl<'a> Act<'a> {
    pub fn begin(stage: &'a Stage, plan: &ActPlan) -> Self {
        let mut plan = plan.clone();
        // A worker that served before may serve a new cluster only, which starts above the clock.
        plan.is_old &= stage.next_worker.get() < HOMES;
        let worker = stage.worker_for_new();
        let settings = [
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
            ("snowflake_id.sequence_start", if plan.spread { "spread" } else { "zero" }),
        ];
        let mut builder = Server::builder().faketime(true);
        for (name, value) in settings {
            builder = builder.setting(name, value);
        }
        builder = builder.setting("snowflake_id.worker_id", &worker.to_string());
        if plan.is_old {
            builder = builder.born(days(400));
        }
        let mut primary = Member::new(stage, builder.create(), "primary");
        if plan.has_small_disk {
            primary.disk = Some(SmallDisk::cover(&primary.server));
        }
        primary.start();
        primary.run(
            "CREATE EXTENSION snowflake_id;
             CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), call bigint);
             CREATE INDEX ON made (call)",
        );
        wait_until("the first ID", secs(15), || primary.try_run("SELECT snowflake_nextval()").ok());
        let world = World::new(&plan);
        let mut act = Self {
            stage,
            plan,
            world,
            primary,
            standby: None,
            second: None,
            worker,
            workers: vec![worker],
            max_ahead_ms: 2_000,
            gone_frontier_ms: i64::MIN,
            left_frontier_ms: i64::MIN,
            recovery: Duration::ZERO,
        };
        act.primary.set_clock(0, act.max_ahead_ms);
        if act.plan.has_standby {
            act.standby = Some(act.new_standby());
        }
        let shared = &stage.shared;
        shared.pause_us.store(act.plan.pause_us, Ordering::Relaxed);
        // With `spread`, the first sequence of a tick is anywhere in the lowest 1/64 of the field.
        shared.capacity.store(if act.plan.spread { 4096 - 63 } else { 4096 }, Ordering::Relaxed);
        act.send();
        act.flow("the start of a cluster");
        act
    }

    /// Ends the cluster: the clients leave, its workers are free for a later one.
    pub fn end(mut self) {
        self.stage.shared.send_to(Vec::new());
        wait_until("the clients to leave", secs(60), || (self.stage.shared.under_way() == 0).then_some(()));
        let frontier_ms = self.frontier_ms().max(self.left_frontier_ms);
        self.stage.retired.borrow_mut().extend(self.workers.iter().map(|worker| (*worker, frontier_ms)));
        if let Some(standby) = self.standby.take() {
            standby.discard();
        }
        self.primary.discard();
    }

    fn shared(&self) -> &'a Shared {
        &self.stage.shared
    }

    fn targets(&self) -> Vec<Arc<Target>> {
        let members = [Some(&self.primary), self.second.as_ref()];
        members.into_iter().flatten().map(|member| member.target.clone()).collect()
    }

    fn send(&self) {
        self.shared().send_to(self.targets());
    }

    /// The time of the latest ID that this cluster made with the worker that it has now.
    fn frontier_ms(&self) -> i64 {
        let running = self.targets().iter().map(|target| target.frontier_ms.load(Ordering::Acquire)).max();
        running.unwrap_or(i64::MIN).max(self.gone_frontier_ms)
    }

    /// Does a fault, heals it, and waits until IDs are made again.
    pub fn suffer(&mut self, fault: &Fault) -> Outcome {
        let shared = self.shared();
        shared.fault.store(fault.number, Ordering::Relaxed);
        self.primary.set_clock(self.primary.offset_us(), self.max_ahead_ms);
        if self.world.shifted && (!bears_a_wrong_clock(fault.kind) || fault.variant.is_multiple_of(3)) {
            self.primary.set_clock(0, self.max_ahead_ms);
            self.world.shifted = false;
            self.flow("the true clock");
        }
        shared.reset_longest();
        self.recovery = Duration::ZERO;
        let in_flight = shared.under_way();
        self.inflict(fault);
        self.flow(fault.kind.name());
        let longest = shared.longest();
        if self.world.future >= self.world.lanes() {
            self.set_free();
            self.flow("a worker that was never used");
        }
        Outcome { longest, recovery: self.recovery, in_flight }
    }

    fn inflict(&mut self, fault: &Fault) {
        let hold = ms(fault.hold_ms);
        let pause = |times: u32| std::thread::sleep(hold * times);
        let pick = |from: &[i32]| {
            let at = fault.variant as usize % from.len().max(1);
            from.get(at).copied()
        };
        match fault.kind {
            Kind::KillBackend => match pick(&self.primary.processes("client backend")) {
                Some(pid) => self.crash_by(|primary| primary.server.try_signal(pid, Signal::SIGKILL)),
                None => self.skip(),
            },
            Kind::KillKeeper => match self.primary.keeper() {
                Some(pid) => self.crash_by(|primary| primary.server.try_signal(pid, Signal::SIGKILL)),
                None => self.skip(),
            },
            Kind::EndKeeper => {
                match self.primary.keeper() {
                    Some(pid) => drop(self.primary.server.try_signal(pid, Signal::SIGTERM)),
                    None => self.skip(),
                }
                pause(1);
            }
            Kind::KillPostmaster => self.restart(Down::Killed),
            Kind::Immediate => self.restart(Down::Immediate),
            Kind::Fast => self.restart(Down::Fast),
            Kind::Smart => self.restart(Down::Smart),
            Kind::FreezeKeeper | Kind::FreezeBackend => {
                let pid = if fault.kind == Kind::FreezeKeeper {
                    self.primary.keeper()
                } else {
                    pick(&self.primary.processes("client backend"))
                };
                let Some(pid) = pid else { return self.skip() };
                if self.primary.server.try_signal(pid, Signal::SIGSTOP) {
                    pause(3);
                    self.primary.server.try_signal(pid, Signal::SIGCONT);
                }
            }
            Kind::Cancel => self.cancel(fault),
            Kind::ClockBack | Kind::ClockForward => self.step_clock(fault),
            Kind::ClockBackStopped | Kind::ClockForwardStopped => self.step_clock_stopped(fault),
            Kind::DayForward => {
                self.primary.set_clock(86_400_000_000, self.max_ahead_ms);
                pause(1);
                self.stop(fault.down);
                self.primary.set_clock(0, self.max_ahead_ms);
                self.start();
                self.world.future += 1;
            }
            Kind::DiskFull => {
                self.small_disk().fill();
                pause(3);
                if fault.crashes {
                    self.restart(fault.down);
                }
                // The file has its room: IDs go on.
                self.flow("a full disk");
                self.small_disk().free();
            }
            Kind::DiskFullLost => {
                // Held open: its bytes stay used.
                let state = disk::state_file(&self.primary.server);
                let held = File::open(&state).expect("the state file is there");
                self.small_disk().fill();
                std::fs::remove_file(&state).expect("the state file can be removed");
                pause(5);
                self.small_disk().free();
                drop(held);
                self.flow("room for the state file");
                self.file_comes_back();
            }
            Kind::ReadOnly => {
                self.write_protect(true);
                pause(5);
                if fault.crashes {
                    self.restart(fault.down);
                    pause(1);
                }
                self.write_protect(false);
            }
            Kind::WriteError | Kind::FsyncError => {
                let errno = [EIO, ENOSPC, EROFS, EDQUOT][fault.variant as usize % 4];
                self.primary.trouble.make(match fault.kind {
                    Kind::WriteError => Trouble::Write(errno),
                    _ => Trouble::Fsync(EIO),
                });
                pause(5);
                if fault.crashes {
                    self.restart(fault.down);
                    pause(1);
                }
                self.primary.trouble.make(Trouble::None);
            }
            Kind::SlowDisk => {
                self.primary.trouble.make(Trouble::Slow(50 + (fault.variant % 700) as i32));
                pause(5);
                self.flow("a slow disk");
                if fault.crashes {
                    self.restart(fault.down);
                }
                self.primary.trouble.make(Trouble::None);
            }
            Kind::TornWrite => {
                // Up to the whole slot: then the writer is killed before its fsync.
                let bytes = (fault.variant % 1_400) as i32 * 3;
                self.crash_by(|primary| {
                    primary.trouble.make(Trouble::Torn(bytes));
                    true
                });
                if fault.crashes {
                    self.restart(fault.down);
                }
                self.primary.trouble.make(Trouble::None);
            }
            Kind::TornSlot | Kind::BadChecksum => {
                self.stop(fault.down);
                self.damage_older_slot(fault);
                self.start();
            }
            Kind::LostState => self.lose_state(fault),
            Kind::Foreign => self.take_foreign_state(fault),
            Kind::Newer => self.take_newer_state(fault),
            Kind::DeletedRunning => self.delete_running(fault),
            Kind::DeletedStopped => {
                self.stop(fault.down);
                self.delete_state(fault.variant.is_multiple_of(2));
                self.wait_for_frontier();
                self.start();
            }
            Kind::OtherLayout => {
                self.stop(fault.down);
                self.primary.server.set("snowflake_id.layout", "40/10/13");
                self.start_closed("configured snowflake layout differs from that of existing IDs");
                self.stop(Down::Fast);
                self.primary.server.unset("snowflake_id.layout");
                self.start();
            }
            Kind::Worker => {
                let Some(other) = self.stage.unused_worker() else { return self.skip() };
                let home = self.worker;
                self.stop(fault.down);
                self.set_worker(other);
                self.start();
                self.flow("another worker");
                if fault.variant.is_multiple_of(2) {
                    pause(1);
                    self.stop(fault.down);
                    self.set_worker(home);
                    self.start();
                }
            }
            Kind::Backups => {
                for backups in ["3", "7"] {
                    self.stop(fault.down);
                    self.primary.server.set("snowflake_id.backup_workers", backups);
                    self.start();
                    self.flow("another number of backups");
                    pause(1);
                }
            }
            Kind::Reload => self.reload(fault),
            Kind::Rotate => {
                for _ in 0..=fault.variant % 4 {
                    rotate(&self.primary);
                }
            }
            Kind::Adopt => {
                let ahead_ms = fault.variant % 400;
                let adopt = format!("SELECT snowflake_adopt(now() + interval '{ahead_ms} ms')");
                // A disk that was healed just now is tried again a second after it failed.
                wait_until("the disk to be tried again", secs(5), || match self.primary.try_run(&adopt) {
                    Err(failure) if failure.message.contains("could not access file") => None,
                    outcome => Some(outcome),
                })
                .unwrap_or_else(|failure| panic!("{adopt}: {failure}"));
            }
            Kind::SlowCrash => self.crash_on_a_slow_disk(fault),
            Kind::Promotion => self.promote(fault),
            Kind::Restarted => self.promote_a_restarted_standby(fault),
            Kind::Switchovers => self.switch_over_often(fault),
            Kind::Alone => self.start_the_standby_alone(fault),
            Kind::Copy => self.copy(fault),
            Kind::Restore => self.restore(fault),
        }
    }

    fn skip(&self) {
        self.stage.skipped.set(self.stage.skipped.get() + 1);
    }

    fn small_disk(&self) -> &SmallDisk {
        self.primary.disk.as_ref().expect("drawn only where there is one")
    }

    // ---- stopping and starting ----

    fn stop(&mut self, down: Down) {
        if down == Down::Smart {
            self.shared().send_to(self.second.iter().map(|member| member.target.clone()).collect());
        }
        self.primary.stop(down);
    }

    fn start(&mut self) {
        self.primary.start();
        self.send();
    }

    fn restart(&mut self, down: Down) {
        self.stop(down);
        self.start();
    }

    /// Has one of the server's processes killed, and waits until the postmaster has started all of them
    /// anew. (A stop that comes meanwhile is a fault of another kind: PostgreSQL 15 may not answer it.)
    fn crash_by(&mut self, kill: impl FnOnce(&Member) -> bool) {
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

    /// Starts the server on a state that must keep its gate closed, and sees that it does.
    fn start_closed(&mut self, reason: &str) {
        let before = self.quiet_count(&self.primary);
        self.start();
        self.must_be_closed(&self.primary, reason);
        std::thread::sleep(ms(200));
        let after = self.primary.target.acknowledged.load(Ordering::Acquire);
        assert_eq!(
            before, after,
            "{}: IDs were made while it was closed: {reason}",
            self.primary.target.name
        );
    }

    /// The IDs of a server that is down, once all of its answers are counted.
    fn quiet_count(&self, member: &Member) -> u64 {
        wait_until("answers to be counted", secs(10), || {
            let read = || member.target.acknowledged.load(Ordering::Acquire);
            let before = read();
            std::thread::sleep(ms(100));
            (read() == before).then_some(before)
        })
    }

    fn must_be_closed(&self, member: &Member, reason: &str) {
        for _ in 0..3 {
            match member.try_run("SELECT snowflake_nextval()") {
                Err(failure) if failure.code == "55000" && failure.text().contains(reason) => {}
                other => panic!("{}: closed for '{reason}'? {other:?}", member.target.name),
            }
        }
    }

    // ---- waiting ----

    /// Waits until every server has served a call that began after now, and every client has had an
    /// answer. Does what an operator would, where the clock is the reason why there is none.
    fn flow(&mut self, after: &str) {
        let shared = self.shared();
        let healed_us = shared.now_us();
        let began = Instant::now();
        let mut looked = Instant::now() + ms(300);
        let mut first_ids: Option<Duration> = None;
        loop {
            let waiting: Vec<bool> = [Some(&self.primary), self.second.as_ref()]
                .into_iter()
                .flatten()
                .map(|member| member.target.served_us.load(Ordering::Acquire) <= healed_us)
                .collect();
            if !waiting.contains(&true) {
                first_ids.get_or_insert(began.elapsed());
                if shared.waiting_since_before(healed_us).is_none() {
                    break;
                }
            }
            if shared.is_wrong() {
                return;
            }
            if looked.elapsed() > ms(250) {
                looked = Instant::now();
                if waiting[0] {
                    self.help(true, began.elapsed());
                }
                if waiting.get(1) == Some(&true) {
                    self.help(false, began.elapsed());
                }
            }
            if began.elapsed() > RECOVERY {
                let client = shared.waiting_since_before(healed_us);
                panic!(
                    "stuck: no ID within {RECOVERY:?} after {after}: servers {waiting:?}, client {client:?}, {:?}",
                    self.primary.look()
                );
            }
            std::thread::sleep(ms(5));
        }
        self.recovery = first_ids.unwrap_or_default();
    }

    /// Sets a clock right that keeps a server from making IDs; if it is right, gives the server a worker
    /// that was never used, as the message says, where IDs of a time to come are the reason.
    fn help(&mut self, is_primary: bool, waited: Duration) {
        let Some(member) = (if is_primary { Some(&self.primary) } else { self.second.as_ref() }) else {
            return;
        };
        let Some((_, reason, usable_in)) = member.look() else { return };
        if is_primary && replication::is_a_copy(&reason) {
            // It was promoted, and went down before it had told its state: the operator knows, and nobody else
            // makes IDs on this timeline.
            self.stage.adopted.set(self.stage.adopted.get() + 1);
            return self.adopt();
        }
        if !reason.contains("clock") || waited < ms(300) {
            return;
        }
        if member.offset_us() != 0 {
            member.set_clock(0, self.max_ahead_ms);
        } else if usable_in > 15.0 && is_primary && waited > secs(1) {
            if self.world.future == 0 {
                panic!(
                    "{}: {reason} (usable in {usable_in} s), and the clock was never ahead",
                    member.target.name
                );
            }
            // What is drawn later must not depend on this.
            let world = self.world.clone();
            self.set_free();
            self.world = world;
        }
    }

    /// IDs of a time to come keep every lane from being used: an operator takes a worker that was never
    /// used, as the message says.
    fn set_free(&mut self) {
        let Some(worker) = self.stage.unused_worker() else {
            panic!("no worker is left that was never used: a shorter run, or fewer steps of the clock");
        };
        self.stage.interventions.set(self.stage.interventions.get() + 1);
        self.stop(Down::Fast);
        self.quiet_count(&self.primary);
        self.left_frontier_ms = self.left_frontier_ms.max(self.frontier_ms());
        self.gone_frontier_ms = i64::MIN;
        self.primary.target.frontier_ms.store(i64::MIN, Ordering::Release);
        self.primary.set_clock(0, self.max_ahead_ms);
        self.world.shifted = false;
        self.set_worker(worker);
        self.start();
        self.world.future = 0;
    }

    fn set_worker(&mut self, worker: i64) {
        self.worker = worker;
        if !self.workers.contains(&worker) {
            self.workers.push(worker);
        }
        self.primary.server.set("snowflake_id.worker_id", &worker.to_string());
        if let Some(standby) = &mut self.standby {
            standby.server.set("snowflake_id.worker_id", &worker.to_string());
            standby.stop(Down::Fast);
            standby.start();
        }
    }

    /// Without its file, a server starts from the clock: the IDs that ran ahead of it have to be past.
    fn wait_for_frontier(&self) {
        wait_until("the clock to pass the last ID", secs(20), || {
            (self.frontier_ms() <= true_ms() + self.max_ahead_ms).then_some(())
        });
    }

    fn file_comes_back(&self) {
        let file = disk::state_file(&self.primary.server);
        wait_until("the state file to be made anew", secs(10), || file.exists().then_some(()));
    }

    // ---- faults ----

    fn cancel(&mut self, fault: &Fault) {
        let backends = self.primary.processes("client backend");
        let mut random = Random::new(fault.variant);
        for _ in 0..=fault.variant % 6 {
            if backends.is_empty() {
                break;
            }
            let pid = random.pick(&backends);
            let how = random.pick(&["pg_cancel_backend", "pg_terminate_backend"]);
            self.primary.run(&format!("SELECT {how}({pid})"));
        }
    }

    fn step_clock(&mut self, fault: &Fault) {
        let is_forward = fault.kind == Kind::ClockForward;
        let offset_us = if is_forward { fault.step_us } else { -fault.step_us };
        self.primary.set_clock(offset_us, self.max_ahead_ms);
        std::thread::sleep(ms(fault.hold_ms));
        if fault.crashes {
            self.restart(fault.down);
            std::thread::sleep(ms(fault.hold_ms));
        }
        if fault.stays {
            self.world.shifted = true;
        } else {
            self.primary.set_clock(0, self.max_ahead_ms);
        }
        if is_forward && fault.step_us > FORWARD_US {
            self.world.future += 1;
        }
    }

    fn step_clock_stopped(&mut self, fault: &Fault) {
        let is_forward = fault.kind == Kind::ClockForwardStopped;
        let offset_us = if is_forward { fault.step_us } else { -fault.step_us };
        self.stop(fault.down);
        self.primary.set_clock(offset_us, self.max_ahead_ms);
        self.start();
        std::thread::sleep(ms(fault.hold_ms));
        if fault.crashes {
            self.stop(fault.down);
            self.primary.set_clock(0, self.max_ahead_ms);
            self.start();
        } else {
            self.primary.set_clock(0, self.max_ahead_ms);
        }
        if is_forward && fault.step_us > FORWARD_US {
            self.world.future += 1;
        }
    }

    fn write_protect(&self, yes: bool) {
        match &self.primary.disk {
            Some(disk) => disk.read_only(yes),
            None => disk::protect(&self.primary.server, yes),
        }
    }

    fn damage_older_slot(&mut self, fault: &Fault) {
        let bytes = self.primary.state_bytes();
        let slot = disk::older_slot(&bytes, fault.variant as usize);
        let mut random = Random::new(fault.variant);
        if fault.kind == Kind::BadChecksum {
            let at = slot * SLOT + random.below(400) as usize;
            let bit = 1 << random.below(8);
            return disk::overwrite(&self.primary.server, at, &[bytes[at] ^ bit]);
        }
        let from = random.below(SLOT as u64) as usize;
        let size = random.between(1, (SLOT - from) as u64) as usize;
        let (from, size) = if random.percent(50) { (0, SLOT) } else { (from, size) };
        let noise: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
        disk::overwrite(&self.primary.server, slot * SLOT + from, &noise);
    }

    fn lose_state(&mut self, fault: &Fault) {
        self.stop(fault.down);
        let mut random = Random::new(fault.variant);
        let server = &self.primary.server;
        match fault.variant % 4 {
            0 => {
                let noise: Vec<u8> = (0..2 * SLOT).map(|_| random.next() as u8).collect();
                disk::overwrite(server, 0, &noise);
            }
            1 => disk::overwrite(server, 0, &[0; 2 * SLOT]),
            2 => disk::truncate(server, 0),
            _ => disk::truncate(server, random.between(1, 60)),
        }
        self.start_closed("contains no valid record");
        if (fault.variant / 4).is_multiple_of(4)
            && let Some(worker) = self.stage.unused_worker()
        {
            // The other way out that the message names.
            self.stop(Down::Fast);
            self.delete_state(true);
            self.set_worker(worker);
            return self.start();
        }
        if fault.crashes {
            self.restart(fault.down);
            self.must_be_closed(&self.primary, "contains no valid record");
        }
        self.adopt();
    }

    /// Opens the gate with a floor above all that was acknowledged.
    fn adopt(&self) {
        let floor_ms = self.frontier_ms() + 1;
        self.primary.run(&format!("SELECT snowflake_adopt(to_timestamp({floor_ms} / 1000.0))"));
    }

    fn take_foreign_state(&mut self, fault: &Fault) {
        self.stop(fault.down);
        let bytes = self.primary.state_bytes();
        let foreign: Vec<u8> = Slot::all(&bytes).iter().flatten().next().expect("a whole slot").foreign();
        disk::overwrite(&self.primary.server, 0, &foreign);
        disk::overwrite(&self.primary.server, SLOT, &foreign);
        self.start_closed("another database cluster");
        if fault.variant.is_multiple_of(2) {
            return self.adopt();
        }
        self.stop(fault.down);
        disk::overwrite(&self.primary.server, 0, &bytes);
        self.start();
    }

    fn take_newer_state(&mut self, fault: &Fault) {
        self.stop(fault.down);
        let bytes = self.primary.state_bytes();
        let newer = Slot::all(&bytes).iter().flatten().next().expect("a whole slot").newer();
        let slot = fault.variant as usize % 3;
        for at in 0..2 {
            if slot == at || slot == 2 {
                disk::overwrite(&self.primary.server, at * SLOT, &newer);
            }
        }
        self.start_closed("later version");
        if (fault.variant / 3).is_multiple_of(2) {
            return disk::overwrite(&self.primary.server, 0, &bytes);
        }
        self.stop(fault.down);
        disk::overwrite(&self.primary.server, 0, &bytes);
        self.start();
    }

    fn delete_state(&self, file_only: bool) {
        let server = &self.primary.server;
        if file_only || self.primary.disk.is_some() {
            let _ = std::fs::remove_file(disk::state_file(server));
        } else {
            let _ = std::fs::remove_dir_all(disk::state_folder(server));
        }
    }

    fn delete_running(&mut self, fault: &Fault) {
        self.delete_state(fault.variant.is_multiple_of(2));
        if fault.crashes {
            std::thread::sleep(ms(fault.variant % 200));
            self.stop(Down::Killed);
            self.wait_for_frontier();
            self.start();
        }
        self.flow("a deleted state file");
        self.file_comes_back();
    }

    fn reload(&mut self, fault: &Fault) {
        let mut random = Random::new(fault.variant);
        let max_ahead_ms = random.pick(&[100_i64, 500, 2_000, 4_000]);
        let settings = [
            ("rollback_policy", random.pick(&["hold", "replay"]).to_owned()),
            ("max_ahead", max_ahead_ms.to_string()),
            ("max_wait", random.pick(&["0", "5", "50", "300"]).to_owned()),
            ("reserve", random.pick(&["20", "100", "500", "2000"]).to_owned()),
        ];
        // The greater of both, until the next fault.
        let offset_us = self.primary.offset_us();
        self.primary.set_clock(offset_us, self.max_ahead_ms.max(max_ahead_ms));
        self.max_ahead_ms = max_ahead_ms;
        for (name, value) in &settings {
            self.primary.server.set(&format!("snowflake_id.{name}"), value);
            if let Some(standby) = &mut self.standby {
                standby.server.set(&format!("snowflake_id.{name}"), value);
            }
        }
        self.primary.server.reread_settings();
        if let Some(standby) = &self.standby {
            standby.server.reread_settings();
        }
        let show = "SELECT current_setting('snowflake_id.max_ahead')::interval";
        wait_until("the reload", secs(10), || {
            let query = format!("{show} = interval '{max_ahead_ms} ms'");
            self.primary
                .ask("the reload", |session| session.query_one(&query, &[]))
                .get::<_, bool>(0)
                .then_some(())
        });
        std::thread::sleep(ms(100));
    }
}

/// Whether a fault may be drawn on top of a clock that was left wrong.
fn bears_a_wrong_clock(kind: Kind) -> bool {
    use Kind::*;
    matches!(
        kind,
        KillBackend
            | KillKeeper
            | KillPostmaster
            | EndKeeper
            | FreezeKeeper
            | FreezeBackend
            | Cancel
            | Immediate
            | Fast
            | Smart
            | DiskFull
            | ReadOnly
            | WriteError
            | FsyncError
            | SlowDisk
            | TornWrite
            | TornSlot
            | BadChecksum
            | Newer
            | OtherLayout
            | Reload
            | Rotate
    )
}

/// Rotates by hand, if there is a lane to go to.
fn rotate(member: &Member) {
    if let Err(failure) = member.try_run("SELECT snowflake_rotate()")
        && failure.code != "55000"
    {
        panic!("{}: snowflake_rotate: {failure}", member.target.name);
    }
}
