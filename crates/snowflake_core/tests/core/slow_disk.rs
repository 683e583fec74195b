//! A disk that is slow, or becomes slow: how long calls wait for the keeper's writes.

use crate::simulation::disk::{Fault, Point};
use crate::simulation::fixtures::plain;
use crate::simulation::server::{MS, SECOND, Server};
use crate::simulation::world::Machine;
use std::cell::Cell;
use std::rc::Rc;

/// A server on a disk whose fsyncs take some time. Meanwhile, a session asks for an ID each millisecond.
struct Slow {
    machine: Rc<Machine>,
    fsync_us: Cell<i64>,
    /// When the session got its last ID, by the boot clock.
    last_id_us: Cell<i64>,
    longest_us: Cell<i64>,
    fsyncs: Cell<u32>,
}

impl Slow {
    fn new(fsync_us: i64) -> Rc<Self> {
        let slow = Rc::new(Self {
            machine: Machine::alone(plain()),
            fsync_us: Cell::new(fsync_us),
            last_id_us: Cell::default(),
            longest_us: Cell::default(),
            fsyncs: Cell::default(),
        });
        let weak = Rc::downgrade(&slow);
        slow.machine.disk.set_faults(move |point| {
            if matches!(point, Point::Sync(_) | Point::SyncNew)
                && let Some(slow) = weak.upgrade()
            {
                slow.fsyncs.set(slow.fsyncs.get() + 1);
                slow.for_us(slow.fsync_us.get());
            }
            Fault::None
        });
        slow.machine.start_up();
        slow.machine.id();
        slow.last_id_us.set(slow.machine.boot.get());
        slow.longest_us.set(0);
        slow
    }

    fn for_us(&self, micros: i64) {
        let end = self.machine.boot.get() + micros;
        while self.machine.boot.get() < end {
            self.machine.pass(MS);
            if self.machine.with(|generator| generator.try_next_id()).is_some() {
                self.has_an_id();
            }
        }
    }

    fn has_an_id(&self) {
        let now = self.machine.boot.get();
        self.longest_us.set(self.longest_us.get().max(now - self.last_id_us.get() - MS));
        self.last_id_us.set(now);
    }

    /// Lets time pass with a keeper that looks each millisecond. Returns how long the longest call waited.
    fn run(&self, micros: i64) -> i64 {
        let end = self.machine.boot.get() + micros;
        self.longest_us.set(0);
        while self.machine.boot.get() < end {
            self.for_us(MS);
            self.machine.keep();
            // A call that has waited for the keeper goes on here.
            if self.last_id_us.get() < self.machine.boot.get() {
                self.machine.id();
                self.has_an_id();
            }
        }
        self.longest_us.get()
    }
}

#[test]
fn disk_that_was_slow_at_the_start_delays_no_call() {
    for fsync_us in [100 * MS, 500 * MS, SECOND, 2 * SECOND, 3 * SECOND, 10 * SECOND] {
        assert_eq!(Slow::new(fsync_us).run(120 * SECOND), 0, "{fsync_us} us");
    }
}

/// The manual has these figures.
#[test]
fn disk_that_becomes_slow_delays_a_call_once_by_two_writes_at_most() {
    let mut row = Vec::new();
    for fsync_us in [100 * MS, 500 * MS, SECOND, 1_200 * MS, 2 * SECOND, 3 * SECOND, 10 * SECOND] {
        let slow = Slow::new(MS);
        assert_eq!(slow.run(20 * SECOND), 0);
        slow.fsync_us.set(fsync_us);
        let longest_us = slow.run(120 * SECOND);
        assert!(longest_us <= 2 * fsync_us + MS, "{longest_us} us for writes of {fsync_us} us");
        assert_eq!(slow.run(120 * SECOND), 0, "once, with writes of {fsync_us} us");
        match longest_us {
            0 => assert!(fsync_us <= 1_200 * MS),
            _ => row.push(format!("{} s: {:.1} s", fsync_us as f64 / 1e6, longest_us as f64 / 1e6)),
        }
    }
    println!("{row:?}");
    assert_eq!(row.len(), 3);
    let page = include_str!("../../../../docs/reliability.md");
    row.iter().for_each(|figure| assert!(page.contains(figure), "{figure} is not in the manual"));
}

#[test]
fn disk_that_becomes_slower_delays_a_call_by_two_writes_at_most() {
    for before_us in [100 * MS, SECOND, 3 * SECOND] {
        for after_us in [2 * SECOND, 5 * SECOND, 25 * SECOND] {
            let slow = Slow::new(before_us);
            slow.run(60 * SECOND);
            slow.fsync_us.set(after_us);
            let longest_us = slow.run(200 * SECOND);
            assert!(longest_us <= 2 * after_us + MS, "{longest_us} us, from {before_us} to {after_us} us");
        }
    }
}

#[test]
fn each_record_costs_one_fsync() {
    let slow = Slow::new(MS);
    slow.fsyncs.set(0);
    let before = slow.machine.disk.writes.get();
    slow.run(60 * SECOND);
    let writes = slow.machine.disk.writes.get() - before;
    // The mark is kept at the clock + 2.5 s, and renewed when half of that is used.
    assert_eq!(u64::from(slow.fsyncs.get()), writes);
    assert!((46..=49).contains(&writes), "{writes} records in a minute");
}
