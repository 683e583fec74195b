//! The checks after a fault, and an operator's part where a message asks for it.

use super::{Act, Down, Member};
use crate::disk;
use crate::shared::true_ms;
use snowflake_server_tests::{Failure, ms, secs, wait_until};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long after a fault was healed every client must have been served again.
const RECOVERY: Duration = Duration::from_secs(40);

/// The reason of a state that was written into another file or by another cluster.
pub const A_COPY: &[&str] = &["this data directory is a copy"];
/// The reasons of a server whose original runs on this host: the original has the lock of the worker.
pub const A_SECOND: &[&str] = &["another server on this host generates IDs with this worker"];

impl Act<'_> {
    /// Waits until every server has served a call that began after now, and every client has had an answer.
    /// Where the clock prevents it, does an operator's part. Returns the time until the servers had served;
    /// zero if something is wrong, which ends the run.
    pub fn must_serve_after(&mut self, fault: &str) -> Duration {
        let shared = self.shared();
        let healed_us = shared.now_us();
        let began = Instant::now();
        let mut looked = Instant::now() + ms(300);
        let mut first_ids: Option<Duration> = None;
        loop {
            let waits = |member: &Member| member.target.served_us.load(Ordering::Acquire) <= healed_us;
            let waiting: Vec<bool> = self.serving().map(waits).collect();
            if !waiting.contains(&true) {
                let first_ids = *first_ids.get_or_insert(began.elapsed());
                if shared.waiting_since_before(healed_us).is_none() {
                    return first_ids;
                }
            }
            if shared.is_wrong() {
                return Duration::ZERO;
            }
            if looked.elapsed() > ms(250) {
                looked = Instant::now();
                if waiting[0] {
                    self.help_primary(began.elapsed());
                }
                if waiting.get(1) == Some(&true) {
                    self.help_second(began.elapsed());
                }
            }
            if began.elapsed() > RECOVERY {
                let client = shared.waiting_since_before(healed_us);
                let reason = self.primary.closed_for();
                panic!(
                    "stuck: no ID within {RECOVERY:?} after {fault}: servers {waiting:?}, client {client:?}, \
                     {reason:?}"
                );
            }
            std::thread::sleep(ms(5));
        }
    }

    /// Adopts a copy, sets a wrong clock right, or changes the worker if IDs in the future block all lanes.
    fn help_primary(&mut self, waited: Duration) {
        let Some((reason, usable_in)) = self.primary.closed_for() else { return };
        if names_one_of(A_COPY, &reason) {
            // A promoted server went down before it recorded its promotion. The operator knows that no other server
            // generates these IDs.
            self.stage.shared.adopted.fetch_add(1, Ordering::Relaxed);
            return self.adopt();
        }
        if self.set_right(&self.primary, &reason, waited) || !reason.contains("clock") {
            return;
        }
        if usable_in > 15.0 && waited > secs(1) {
            let name = &self.primary.target.name;
            assert!(
                self.world.future > 0,
                "{name}: {reason} (usable in {usable_in} s), and the clock was never ahead"
            );
            // Later draws must not depend on this.
            let world = self.world.clone();
            self.take_unused_worker();
            self.world = world;
        }
    }

    fn help_second(&self, waited: Duration) {
        let Some(second) = &self.second else { return };
        if let Some((reason, _)) = second.closed_for() {
            self.set_right(second, &reason, waited);
        }
    }

    /// Sets a clock right that has kept a server from generating IDs for a while; whether it was wrong.
    fn set_right(&self, member: &Member, reason: &str, waited: Duration) -> bool {
        let is_wrong = reason.contains("clock") && waited >= ms(300) && member.offset_us() != 0;
        if is_wrong {
            member.set_clock(0, self.longest_ahead_ms);
        }
        is_wrong
    }

    /// IDs in the future block every lane: as the message says, an operator takes an unused worker.
    pub fn take_unused_worker(&mut self) {
        let Some(worker) = self.stage.unused_worker() else {
            panic!("no worker is left that was never used: a shorter run, or fewer steps of the clock");
        };
        self.stage.shared.interventions.fetch_add(1, Ordering::Relaxed);
        self.stop(Down::Fast);
        self.change_worker(worker, i64::MIN);
        self.set_clock(0);
        self.world.shifted = false;
        self.start();
        self.world.future = 0;
    }

    /// Opens the gate, and raises all marks above the clock.
    pub fn adopt(&mut self) {
        self.adopt_with("now()");
    }

    pub fn adopt_with(&mut self, floor: &str) {
        let adopt = format!("SELECT snowflake_adopt({floor})");
        // The server tries a disk that was healed just now again a second after it failed.
        wait_until("the disk to be tried again", secs(30), || match self.primary.try_run(&adopt) {
            Err(failure) if failure.message.contains("could not access file") => None,
            outcome => Some(outcome),
        })
        .unwrap_or_else(|failure| panic!("{adopt}: {failure}"));
        self.world.is_replaced = false;
    }

    // ---- closed generators

    /// Starts the primary on a state that must keep it closed, and checks that no client gets an ID.
    pub fn start_closed(&mut self, reasons: &[&str]) {
        let before = self.settled_count(&self.primary);
        self.start();
        self.must_be_closed(reasons);
        std::thread::sleep(ms(200));
        let after = self.primary.target.acknowledged.load(Ordering::Acquire);
        let name = &self.primary.target.name;
        assert_eq!(before, after, "{name}: IDs were generated while it was closed: {reasons:?}");
    }

    pub fn must_be_closed(&self, reasons: &[&str]) {
        for _ in 0..3 {
            let answer = self.primary.try_run("SELECT snowflake_nextval()");
            let name = &self.primary.target.name;
            assert!(is_closed(&answer, reasons), "{name}: closed for {reasons:?}? {answer:?}");
        }
    }

    /// How many IDs a server that is down, or that refuses, has acknowledged, once clients have counted them.
    pub fn settled_count(&self, member: &Member) -> u64 {
        let (asked_us, asked) = (self.shared().now_us(), Instant::now());
        wait_until("answers to be counted", secs(30), || {
            // A client counts what it has got before it calls again; some may wait for another server.
            let is_over = self.shared().waiting_since_before(asked_us).is_none() || asked.elapsed() > secs(2);
            let read = || member.target.acknowledged.load(Ordering::Acquire);
            let before = read();
            std::thread::sleep(ms(100));
            (is_over && read() == before).then_some(before)
        })
    }

    // ---- the state file

    /// Before a start without the newest state, waits for right clocks: the true time passes the one under which the
    /// IDs were generated. Of a `max_ahead` that was lowered, such a start knows nothing.
    pub fn wait_for_clock(&self) {
        wait_until("the clock to pass the last ID", secs(20), || {
            (self.newest_ms() <= true_ms() + self.max_ahead_ms).then_some(())
        });
    }

    pub fn file_comes_back(&self) {
        let file = disk::state_file(&self.primary.server);
        wait_until("the state file to be made anew", secs(30), || file.exists().then_some(()));
    }
}

fn names_one_of(reasons: &[&str], text: &str) -> bool {
    reasons.iter().any(|reason| text.contains(reason))
}

/// Whether a call was refused for one of these reasons.
pub fn is_closed(answer: &Result<(), Failure>, reasons: &[&str]) -> bool {
    answer.as_ref().is_err_and(|failure| failure.code == "55000" && names_one_of(reasons, &failure.text()))
}
