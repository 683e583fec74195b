//! Crashes while the disk takes seconds for an fsync: the reservation is long by then, and the next start has to
//! wait for all of it, on the lane that it was made for.

use super::{Act, Member};
use crate::disk::Trouble;
use crate::faults::{Down, Fault};
use snowflake_server_tests::{Signal, ms};

impl Act<'_> {
    pub(super) fn crash_on_a_slow_disk(&mut self, fault: &Fault) {
        let before = worker(&self.primary);
        let fsync_ms = 500 + fault.variant % 2_000;
        self.primary.trouble.make(Trouble::Slow(fsync_ms as i32));
        // By now a write has taken long, and the next one is on the way.
        std::thread::sleep(ms(2 * fsync_ms + 500 + fault.hold_ms));
        let kind = ["client backend", "snowflake_id keeper"][fault.variant as usize % 2];
        match fault.variant / 2 % 3 {
            0 => match self.primary.processes(kind).first().copied() {
                Some(pid) => self.crash_by(|primary| primary.server.try_signal(pid, Signal::SIGKILL)),
                None => self.skip(),
            },
            1 => self.stop(Down::Killed),
            _ => self.stop(Down::Immediate),
        }
        if fault.crashes {
            // The start has the slow disk, too.
            self.start_again();
        }
        self.primary.trouble.make(Trouble::None);
        self.start_again();
        self.flow("a crash on a slow disk");
        let after = worker(&self.primary);
        if self.world.future == 0 && before != after {
            let name = &self.primary.target.name;
            self.shared()
                .complain(format!("{name}: a crash on a slow disk cost worker {before}, now {after}"));
        }
    }

    fn start_again(&mut self) {
        if !self.primary.server.is_started() {
            self.start();
        }
    }
}

/// The worker that makes the IDs.
fn worker(member: &Member) -> i64 {
    let query = "SELECT worker_id::bigint FROM snowflake_status";
    member.ask("the worker", |session| session.query_one(query, &[])).get(0)
}
