//! Writes that fail, are slow, or are torn by a loss of power.

use crate::simulation::disk::{EIO, ENOSPC, Fault, Point, Power};
use crate::simulation::fixtures::{break_disk, crashed, plain, promote, with_backups};
use crate::simulation::server::{DAY, HOUR, MS, SECOND, Server};
use crate::simulation::tape::Tape;
use crate::simulation::world::Machine;
use snowflake_core::{ClosedReason, Event, Refusal, Unopened};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

// ---- Failed writes

/// Generates IDs at this rate until a call is refused.
fn issue_until_refused(machine: &Machine, each_us: i64) -> (Vec<i64>, Refusal) {
    let mut ticks = Vec::new();
    loop {
        match machine.try_id() {
            Ok(parts) => ticks.push(parts.tick),
            Err(refusal) => return (ticks, refusal),
        }
        machine.pass(each_us);
        assert!(ticks.len() < 100_000, "the reservation never ends");
    }
}

#[test]
fn failing_writes_let_ids_go_on_to_the_reservations_end_and_no_further() {
    let opens: fn(Point) -> bool = |point| matches!(point, Point::Open | Point::Make);
    let writes: fn(Point) -> bool = |point| matches!(point, Point::Write(_) | Point::Make);
    let syncs: fn(Point) -> bool = |point| matches!(point, Point::Sync(_) | Point::SyncNew);
    for (errno, points) in [(ENOSPC, opens), (ENOSPC, writes), (EIO, syncs)] {
        for free in 0..4 {
            let machine = Machine::alone(plain());
            machine.start_up();
            machine.id();
            let calls = break_disk(&machine, free, errno, points);
            let (ticks, refusal) = issue_until_refused(&machine, 10 * MS);
            assert_eq!(refusal, Refusal::NotDurable(errno));
            let durable = machine.disk.lowest(0).unwrap().mark(0);
            assert!(*ticks.last().unwrap() <= durable, "guarantee 2");
            let end = machine.with(|generator| generator.status()).reserved_until_us.unwrap();
            assert!(end - 10 * MS <= (ticks.last().unwrap() + 1) * MS, "it stopped before the end");
            assert_eq!(machine.told(|event| *event == Event::WriteFailed(errno)), 1);

            // At most one attempt per second, by the boot clock, whatever the wall clock does.
            let before = calls.get();
            for _ in 0..50 {
                machine.step(DAY);
                machine.pass(100 * MS);
                assert_eq!(machine.try_id(), Err(Refusal::NotDurable(errno)));
            }
            // Each attempt tries the existing file, and then a new one.
            let tries = (calls.get() - before) / 2;
            assert!((4..=6).contains(&tries), "{tries} attempts in 5 s");
            assert_eq!(machine.told(|event| *event == Event::WriteFailed(errno)), 1, "told once");
            assert_eq!(machine.told(|event| *event == Event::WriteRecovered), 0);

            machine.disk.heal();
            machine.pass(SECOND);
            machine.id();
            assert_eq!(machine.told(|event| *event == Event::WriteRecovered), 1);
            assert_eq!(machine.with(|generator| generator.status()).write_error, None);
        }
    }
}

#[test]
fn a_second_slot_that_fails_is_written_first_the_next_time() {
    let machine = Machine::alone(plain());
    machine.start_up();
    let order = Rc::new(RefCell::new(Vec::new()));
    let written = order.clone();
    let count = Rc::new(Cell::new(0));
    machine.disk.set_faults(move |point| {
        let Point::Sync(slot) = point else { return Fault::None };
        written.borrow_mut().push(slot);
        count.set(count.get() + 1);
        if count.get() == 2 { Fault::Fail(EIO) } else { Fault::None }
    });
    for _ in 0..2 {
        machine.pass(HOUR);
        machine.id();
    }
    let order = order.borrow();
    assert_eq!(order[..2], [1 - order[1], order[1]]);
    assert_eq!(order[2..4], [order[1], 1 - order[1]]);
}

/// For example, a bad block.
#[test]
fn a_slot_that_cannot_be_written_makes_a_new_file() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.id();
    let identity = machine.disk.identity();
    break_disk(&machine, 0, EIO, |point| matches!(point, Point::Sync(0) | Point::Write(0)));
    for _ in 0..3 {
        machine.pass(HOUR);
        let parts = machine.id();
        assert!(parts.tick <= machine.disk.lowest(0).unwrap().mark(0), "guarantee 2");
    }
    assert_ne!(machine.disk.identity(), identity);
    assert_eq!(machine.told(|event| matches!(event, Event::WriteFailed(_))), 0, "nothing failed in the end");
}

#[test]
fn a_start_overwrites_its_file_and_needs_no_room_for_another() {
    let machine = crashed();
    let identity = machine.disk.identity();
    break_disk(&machine, 0, ENOSPC, |point| point == Point::Make);
    machine.start_up();
    machine.id();
    assert_eq!(machine.disk.identity(), identity);
}

/// Overwriting one slot could destroy the only durable copy.
#[test]
fn a_start_that_cannot_make_sure_of_its_file_leaves_it_alone_and_makes_another() {
    for point in [Point::WriteAgain, Point::SyncAgain] {
        let machine = crashed();
        let identity = machine.disk.identity();
        let before = machine.disk.slots();
        machine.disk.set_faults(move |at| {
            if at == point || at == Point::Make { Fault::Fail(EIO) } else { Fault::None }
        });
        machine.boot_up();
        assert_eq!(machine.open(), Err(Unopened::Closed(ClosedReason::Os(EIO))));
        assert_eq!((machine.disk.identity(), machine.disk.slots()), (identity, before), "{point:?}");
        machine.disk.set_faults(move |at| if at == point { Fault::Fail(EIO) } else { Fault::None });
        machine.pass(SECOND);
        machine.start_up();
        machine.id();
        assert_ne!(machine.disk.identity(), identity, "{point:?}");
    }
}

/// Found by the chaos program: with writes of 600 ms and a reservation of 500 ms, every reservation was past when it
/// was published, and no ID was generated.
#[test]
fn a_disk_whose_writes_take_longer_than_the_reservation_still_lets_ids_through() {
    for write_us in [300 * MS, 600 * MS, 3 * SECOND] {
        let machine = Rc::new(Machine::alone(plain()));
        machine.start_up();
        let slow = Rc::downgrade(&machine);
        machine.disk.set_faults(move |point| {
            if matches!(point, Point::Sync(_))
                && let Some(machine) = slow.upgrade()
            {
                machine.pass(write_us / 2);
            }
            Fault::None
        });
        let began = machine.wall();
        let mut ids = 0;
        while machine.wall() < began + 60 * SECOND {
            machine.id();
            ids += 1;
            machine.pass(10 * MS);
        }
        // There is no keeper here, so half of the time is spent on writes.
        assert!(ids > 2_000, "{ids} IDs in a minute, writes of {write_us} us");
    }
}

/// A slow write lengthens the next reservation, and a crash leaves that mark on disk.
fn crashed_on_a_slow_disk(backups: usize, write_us: i64) -> Rc<Machine> {
    let machine = Machine::alone(with_backups(backups));
    machine.start_up();
    let slow = Rc::downgrade(&machine);
    machine.disk.set_faults(move |point| {
        if matches!(point, Point::Sync(_))
            && let Some(machine) = slow.upgrade()
        {
            machine.pass(write_us / 2);
        }
        Fault::None
    });
    // Right after a reservation that was lengthened because the one before it took long to write.
    for _ in 0..2 {
        let written = machine.disk.changes();
        while machine.disk.changes() == written {
            machine.pass(200 * MS);
            machine.id();
        }
    }
    machine.go_down();
    machine.disk.heal();
    machine
}

/// Each slot takes half of the write, so the mark lies twice the write past `max_ahead` of the clock before it.
#[test]
fn crash_on_a_slow_disk_waits_or_leaves_the_rest_to_the_ladder() {
    for (write_us, is_long) in [(SECOND, false), (2_500 * MS, true), (4 * SECOND, true), (20 * SECOND, true)]
    {
        for backups in [0, 7] {
            let machine = crashed_on_a_slow_disk(backups, write_us);
            let waited = machine.start_up();
            assert_eq!(waited > MS, !is_long, "{waited} us for writes of {write_us} us");
            assert!(waited <= write_us + 2 * MS, "{waited}");
            match (is_long, backups) {
                (false, _) => assert_eq!(machine.id().worker, 0),
                (true, 7) => assert_eq!(machine.id().worker, 256),
                (true, _) => {
                    assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))));
                    machine.pass(write_us);
                    assert_eq!(machine.id().worker, 0);
                }
            }
        }
    }
}

// ---- Power

/// A write that failed is made again into the same slot: only the other one has a durable record.
#[test]
fn a_failed_write_and_a_torn_one_leave_the_durable_record() {
    // The tape decides the slots' fates: 0 is kept, 1 is lost, 2 is torn.
    for fates in (0..27).map(|n| vec![n % 3, n / 3 % 3, n / 9]) {
        let tape = Rc::new(Tape::given(fates.clone(), 0));
        let machine = Machine::new(
            plain(),
            &Rc::new(Cell::new(77_000_000)),
            crate::simulation::disk::SimDisk::new(&tape),
        );
        machine.start_up();
        let last = machine.id();
        // No new file can be made either.
        machine.disk.set_faults(|point| match point {
            Point::Sync(_) | Point::Make => Fault::Fail(EIO),
            _ => Fault::None,
        });
        machine.pass(HOUR);
        assert!(machine.try_id().is_err());
        machine.disk.set_faults(|point| match point {
            Point::Sync(_) => Fault::Down(Power::Machine),
            Point::Make => Fault::Fail(EIO),
            _ => Fault::None,
        });
        machine.pass(HOUR);
        assert!(catch_unwind(AssertUnwindSafe(|| machine.try_id())).is_err());
        machine.go_down();
        machine.disk.heal();
        machine.disk.lose_power();
        machine.start_up();
        machine.pass(MS);
        assert!(machine.mark(0) >= last.tick, "fates {fates:?}");
        assert_eq!(machine.told(|event| *event == Event::Unreadable), 0, "fates {fates:?}");
    }
}

/// The newest record may be in a slot whose fsync failed and whose page looks clean. Then an fsync before reading
/// proves nothing, and the first write after the start must not touch the other slot, which has the only copy.
#[test]
fn a_start_never_overwrites_the_only_durable_copy_of_the_newest_record() {
    // The tape decides the slots' fates: 1 is lost, 2 is torn.
    for fates in [[1, 0, 1], [1, 0, 2], [2, 0, 1], [2, 0, 2]] {
        for writes in 1..3 {
            let tape = Rc::new(Tape::given(fates.to_vec(), 0));
            let boot = Rc::new(Cell::new(77_000_000));
            let machine = Machine::new(plain(), &boot, crate::simulation::disk::SimDisk::new(&tape));
            machine.start_up();
            for _ in 1..writes {
                machine.pass(HOUR);
                machine.id();
            }
            // The fsync of the second slot fails: the record is durable, but only in the first.
            let syncs = Cell::new(0);
            machine.disk.set_faults(move |point| {
                let is_sync = matches!(point, Point::Sync(_));
                syncs.set(syncs.get() + is_sync as u32);
                if is_sync && syncs.get() == 2 { Fault::Fail(EIO) } else { Fault::None }
            });
            machine.pass(HOUR);
            let last = machine.id();
            machine.go_down();
            // The power fails during the next start's first write.
            machine.disk.set_faults(|point| match point {
                Point::Sync(_) | Point::Rename | Point::SyncFolder => Fault::Down(Power::Machine),
                _ => Fault::None,
            });
            machine.boot_up();
            let _ = catch_unwind(AssertUnwindSafe(|| machine.open()));
            machine.go_down();
            machine.disk.heal();
            machine.disk.lose_power();
            // An unreadable file falls under rule 4.
            machine.start_up();
            machine.pass(MS);
            assert!(
                machine.mark(0) >= last.tick,
                "write {writes}, fates {fates:?}: tick {} is forgotten",
                last.tick
            );
        }
    }
}

/// After a crash of the server alone, a new file whose name is not durable yet looks like any other.
#[test]
fn a_start_never_relies_on_a_name_that_is_not_durable() {
    let boot = Rc::new(Cell::new(77_000_000));
    let tape = Rc::new(Tape::given(vec![0], 0));
    let original = crashed();
    let machine = Machine::new(plain(), &boot, original.disk.copy(&tape, 500));
    promote(&machine, 2);
    machine.disk.set_faults(|point| match point {
        Point::SyncFolder => Fault::Down(Power::Server),
        _ => Fault::None,
    });
    machine.boot_up();
    let _ = catch_unwind(AssertUnwindSafe(|| machine.open()));
    machine.go_down();
    machine.disk.heal();
    machine.start_up();
    machine.pass(HOUR);
    let last = machine.id();
    machine.go_down();
    machine.disk.lose_power();
    machine.boot_up();
    let _ = machine.open();
    assert!(machine.mark(128) >= last.tick, "tick {} is forgotten with the file's name", last.tick);
}
