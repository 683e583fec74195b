//! Writes that fail, are slow, or are torn by a loss of power.

use crate::simulation::disk::{EIO, ENOSPC, Fault, Point, Power};
use crate::simulation::fixtures::{break_disk, crashed, plain, promote, run_ahead, with_backups};
use crate::simulation::server::{DAY, HOUR, MS, SECOND, Server};
use crate::simulation::tape::Tape;
use crate::simulation::world::Machine;
use snowflake_core::platform::{SLOT_BYTES, SLOTS};
use snowflake_core::{ClosedReason, Event, NotOpen, Refusal};
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
fn records_take_turns_and_a_failed_one_keeps_its_slot() {
    let machine = Machine::alone(plain());
    machine.start_up();
    let slots = Rc::new(RefCell::new(Vec::new()));
    let written = slots.clone();
    machine.disk.set_faults(move |point| match point {
        Point::Sync(slot) => {
            written.borrow_mut().push(slot);
            if written.borrow().len() == 3 { Fault::Fail(EIO) } else { Fault::None }
        }
        Point::Make => Fault::Fail(ENOSPC),
        _ => Fault::None,
    });
    for round in 0..5 {
        machine.pass(HOUR);
        assert_eq!(machine.try_id().is_err(), round == 2);
    }
    let first = slots.borrow()[0];
    assert_eq!(*slots.borrow(), [first, 1 - first, first, first, 1 - first]);
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

/// The newest record may not be durable, and overwriting the other slot could destroy the only durable one.
#[test]
fn a_start_that_cannot_make_sure_of_its_file_leaves_it_alone_and_makes_another() {
    let newest = crashed().disk.newest_slot().unwrap();
    for point in [Point::Write(newest), Point::Sync(newest), Point::SyncFolder] {
        let machine = crashed();
        let identity = machine.disk.identity();
        let before = machine.disk.slots();
        machine.disk.set_faults(move |at| {
            if at == point || at == Point::Make { Fault::Fail(EIO) } else { Fault::None }
        });
        machine.boot_up();
        assert_eq!(machine.open(), Err(NotOpen::Closed(ClosedReason::Os(EIO))));
        assert_eq!((machine.disk.identity(), machine.disk.slots()), (identity, before), "{point:?}");
        let has_failed = Cell::new(false);
        machine.disk.set_faults(move |at| {
            if at == point && !has_failed.replace(true) { Fault::Fail(EIO) } else { Fault::None }
        });
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
                machine.pass(write_us);
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
            machine.pass(write_us);
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

/// The newest record is in a slot whose fsync failed and whose page looks clean. Then an fsync before reading proves
/// nothing, and the first write after the start must not touch the other slot, which has the only durable record.
#[test]
fn a_start_never_overwrites_the_only_durable_record() {
    // The tape decides the slot's fate: 1 is lost, 2 is torn. It looks clean.
    for fates in [[1, 0, 1], [1, 0, 2], [2, 0, 1], [2, 0, 2]] {
        for writes in 1..3 {
            for power_fails_at in 1..=3 {
                let tape = Rc::new(Tape::given(fates.to_vec(), 0));
                let boot = Rc::new(Cell::new(77_000_000));
                let machine = Machine::new(plain(), &boot, crate::simulation::disk::SimDisk::new(&tape));
                machine.start_up();
                for _ in 1..writes {
                    machine.pass(HOUR);
                    machine.id();
                }
                machine.pass(HOUR);
                let last = machine.id();
                machine.disk.set_faults(|point| match point {
                    Point::Sync(_) | Point::Make => Fault::Fail(EIO),
                    _ => Fault::None,
                });
                machine.pass(HOUR);
                assert_eq!(machine.try_id(), Err(Refusal::NotDurable(EIO)));
                machine.go_down();
                let fsyncs = Cell::new(0);
                machine.disk.set_faults(move |point| {
                    let is_fsync = matches!(point, Point::Sync(_) | Point::SyncFolder);
                    fsyncs.set(fsyncs.get() + is_fsync as u32);
                    let fails = is_fsync && fsyncs.get() == power_fails_at;
                    if fails { Fault::Down(Power::Machine) } else { Fault::None }
                });
                machine.boot_up();
                catch_unwind(AssertUnwindSafe(|| machine.open())).expect_err("the power fails");
                machine.go_down();
                machine.disk.heal();
                machine.disk.lose_power();
                machine.step(-2 * HOUR);
                machine.boot_up();
                let _ = machine.open();
                assert!(
                    machine.mark(0) >= last.tick && machine.told(|event| *event == Event::Unreadable) == 0,
                    "write {writes}, fsync {power_fails_at}, fates {fates:?}: tick {} is forgotten",
                    last.tick
                );
            }
        }
    }
}

/// A machine whose disk loses its power during a write: a copy for each way in which the write may have been torn.
fn torn_writes() -> (Rc<Machine>, Vec<[Vec<u8>; SLOTS]>) {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.pass(HOUR);
    machine.id();
    let old = machine.disk.slots().unwrap();
    let newest = machine.disk.newest_slot().unwrap();
    let written = machine.clone();
    let new: Rc<RefCell<Option<[Vec<u8>; SLOTS]>>> = Rc::default();
    let seen = new.clone();
    machine.disk.set_faults(move |point| {
        if matches!(point, Point::Sync(_)) {
            *seen.borrow_mut() = written.disk.slots();
        }
        Fault::None
    });
    machine.pass(HOUR);
    machine.id();
    machine.disk.heal();
    machine.go_down();
    let new = new.take().expect("a write");
    assert_eq!(
        (&new[newest], new[1 - newest] == old[1 - newest]),
        (&old[newest], false),
        "one slot is written"
    );
    let mixed = |is_new: &dyn Fn(usize) -> bool| {
        let byte = |at| if is_new(at) { new[1 - newest][at] } else { old[1 - newest][at] };
        let mut slots = old.clone();
        slots[1 - newest] = (0..SLOT_BYTES).map(byte).collect();
        slots
    };
    // Cut at each byte; and each subset of the sectors.
    let cuts = (0..=SLOT_BYTES).map(|cut| mixed(&|at| at < cut));
    let sectors = (0..256).map(|subset| mixed(&|at| subset >> (at / 512) & 1 == 1));
    (machine, cuts.chain(sectors).collect())
}

/// Whatever the clock is.
#[test]
fn write_torn_at_any_byte_or_sector_leaves_the_record_before() {
    let (machine, torn) = torn_writes();
    let identity = machine.disk.identity().unwrap();
    for (n, slots) in torn.into_iter().enumerate() {
        machine.disk.put_as(slots, identity);
        let durable = machine.mark(0);
        let step = [0, -3 * HOUR, HOUR][n % 3];
        machine.step(step);
        machine.boot_up();
        let _ = machine.open();
        assert_eq!(machine.told(|event| *event == Event::Unreadable), 0, "torn in way {n}");
        assert!(machine.mark(0) >= durable, "torn in way {n}");
        machine.with(|generator| assert!(generator.current_tick() > durable, "torn in way {n}"));
        machine.go_down();
        machine.step(-step);
    }
}

/// A server that has generated an ID an hour after its start and another right before it crashed, and both ticks.
fn with_a_record_of_an_hour_ago() -> (Rc<Machine>, i64) {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.pass(HOUR);
    run_ahead(&machine);
    let last = machine.id().tick;
    machine.go_down();
    (machine, last)
}

/// Garbage, or bytes that the device cannot read.
const DAMAGES: [fn(&mut Vec<u8>); 2] = [|bytes| bytes.fill(7), Vec::clear];

#[test]
fn damaged_newest_slot_repeats_nothing_under_a_right_clock() {
    for (damage, is_new_file) in DAMAGES.into_iter().zip([false, true]) {
        let (machine, last) = with_a_record_of_an_hour_ago();
        let (newest, identity) = (machine.disk.newest_slot().unwrap(), machine.disk.identity());
        machine.disk.scribble(newest, damage);
        assert!(machine.mark(0) < last, "the other slot has an earlier record");
        // Rule 4 does not apply: the run goes on at once, on its lane.
        assert!(machine.start_up() <= MS);
        let parts = machine.id();
        assert!((parts.worker, parts.tick > last) == (0, true), "{parts:?} after {last}");
        assert_eq!(machine.told(|event| *event == Event::Unreadable), 0);
        assert_eq!(machine.disk.identity() != identity, is_new_file);
    }
}

#[test]
fn damaged_older_slot_repeats_nothing_under_any_clock() {
    for damage in DAMAGES {
        for step in [0, -2 * HOUR, -1, HOUR] {
            let (machine, last) = with_a_record_of_an_hour_ago();
            machine.disk.scribble(1 - machine.disk.newest_slot().unwrap(), damage);
            machine.step(step);
            machine.start_up();
            let issued = machine.try_id();
            assert!(issued.is_err() || issued.is_ok_and(|it| it.worker != 0 || it.tick > last), "{issued:?}");
        }
    }
}

/// A disk that returns EIO for one slot must not close the gate, nor for both.
#[test]
fn slots_that_cannot_be_read_make_a_new_file() {
    for (unreadable, is_writable) in
        [&[0][..], &[1], &[0, 1]].into_iter().flat_map(|slots| [(slots, true), (slots, false)])
    {
        let machine = crashed();
        let identity = machine.disk.identity();
        unreadable.iter().for_each(|slot| machine.disk.scribble(*slot, Vec::clear));
        if !is_writable {
            break_disk(&machine, 0, EIO, |point| matches!(point, Point::Write(_)));
        }
        machine.start_up();
        machine.id();
        assert_ne!(machine.disk.identity(), identity, "{unreadable:?} {is_writable}");
        assert_eq!(machine.told(|event| *event == Event::Unreadable), usize::from(unreadable.len() == 2));
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
