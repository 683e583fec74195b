//! A server on a simulated machine, as tests describe it: it starts, generates IDs, crashes.

use super::world::Machine;
use snowflake_core::{AdoptError, ClosedReason, Config, Event, NotOpen, Parts, Refusal, Start};

pub const MS: i64 = 1_000;
pub const SECOND: i64 = 1_000_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;

/// The operations of a server in a test.
pub trait Server {
    fn machine(&self) -> &Machine;

    fn open(&self) -> Result<(), NotOpen> {
        self.machine().with(|generator| generator.open(&self.machine().start.get()))
    }

    fn try_id(&self) -> Result<Parts, Refusal> {
        let layout = self.machine().config.borrow().layout;
        self.machine().with(|generator| generator.next_id()).map(|id| layout.unpack(id).unwrap())
    }

    fn id(&self) -> Parts {
        self.try_id().expect("an ID")
    }

    fn keep(&self) {
        self.machine().with(|generator| generator.run_keeper()).expect("the reservation is kept");
    }

    /// Waits for the gate to open; returns how long that took, in microseconds.
    fn settle(&self) -> i64 {
        let before = self.machine().boot.get();
        for _ in 0..100 {
            match self.open() {
                Ok(()) => return self.machine().boot.get() - before,
                Err(NotOpen::Settling(micros)) => self.machine().pass(micros),
                Err(closed) => panic!("{closed:?}"),
            }
        }
        panic!("it never settles");
    }

    /// Starts, and waits for the gate to open; returns how long that took, in microseconds.
    fn start_up(&self) -> i64 {
        self.machine().boot_up();
        self.settle()
    }

    /// Stops cleanly.
    fn stop(&self) {
        self.machine().with(|generator| generator.write_exact_marks()).unwrap();
        self.machine().go_down();
    }

    fn adopt(&self, floor_us: i64) -> Result<(), AdoptError> {
        self.machine().with(|generator| generator.adopt(&self.machine().start.get(), floor_us))
    }

    fn set_start(&self, change: impl FnOnce(&mut Start)) {
        let mut start = self.machine().start.get();
        change(&mut start);
        self.machine().start.set(start);
    }

    fn set_config(&self, config: Config) {
        *self.machine().config.borrow_mut() = config;
    }

    /// Starts, and returns why the gate stays closed.
    fn why_closed(&self) -> ClosedReason {
        self.machine().boot_up();
        let Err(NotOpen::Closed(why)) = self.open() else { panic!("the gate is not closed") };
        assert_eq!(self.try_id(), Err(Refusal::GateClosed));
        why
    }

    fn lane(&self) -> usize {
        self.machine().with(|generator| generator.status().lane)
    }

    /// How many events like this were reported.
    fn told(&self, event: impl Fn(&Event) -> bool) -> usize {
        self.machine().events.borrow().iter().filter(|told| event(told)).count()
    }

    /// The worker's mark in the file.
    fn mark(&self, worker: i64) -> i64 {
        self.machine().disk.said().expect("a record").mark(worker)
    }
}

impl Server for Machine {
    fn machine(&self) -> &Machine {
        self
    }
}
