//! Rule 8 of a start: an operator's `adopt`.

use crate::simulation::disk::{EIO, ENOSPC, Fault, Point};
use crate::simulation::fixtures::{
    MAX_AHEAD, break_disk, copied, crashed, plain, promote, run_ahead, tick, with_backups, with_max_ahead,
    with_worker,
};
use crate::simulation::server::{DAY, HOUR, MINUTE, MS, SECOND, Server};
use crate::simulation::world::{Machine, NOON, config};
use snowflake_core::{AdoptError, ClosedReason, Event, Limits, NoLane, NotOpen, Policy, Refusal, Tick};
use std::cell::Cell;
use std::rc::Rc;

// ---- A closed gate

#[test]
fn adopt_opens_a_copy_above_its_floor_its_marks_and_the_clock() {
    for (floor, replayed) in [(-DAY, None), (10 * SECOND, None), (0, Some(20 * SECOND))] {
        let machine = copied();
        let (mark, wall) = (machine.mark(0), machine.wall());
        machine.set_start(|start| start.replayed_us = replayed.map(|ahead| wall + ahead));
        machine.why_closed();
        machine.adopt(wall + floor).unwrap();
        assert_eq!(machine.told(|event| *event == Event::Adopted(wall + floor)), 1);
        let latest = wall + floor.max(replayed.unwrap_or(0)).max(0);
        for lane in 0..8 {
            let least = tick(latest + MAX_AHEAD + SECOND);
            assert!((least..=least + 1).contains(&machine.mark(lane * 128)), "{floor} {replayed:?}");
        }
        machine.pass(20 * SECOND);
        machine.settle();
        assert!(machine.id().tick > mark);
        machine.go_down();
        machine.start_up();
        machine.id();
    }
}

#[test]
fn adopt_of_a_promoted_copy_is_not_needed_and_sets_a_floor() {
    let machine = copied();
    promote(&machine, 2);
    machine.boot_up();
    machine.adopt(NOON + 30 * SECOND).unwrap();
    for lane in 0..8 {
        assert_eq!(machine.mark(lane * 128), tick(NOON + 30 * SECOND + MAX_AHEAD));
    }
    assert_eq!(machine.mark(9), tick(NOON + 30 * SECOND + MAX_AHEAD), "also of workers without a mark");
}

/// The original's IDs ran as far ahead of its clock as its `max_ahead` let them.
#[test]
fn adopt_respects_the_max_ahead_of_the_record() {
    let machine = Machine::alone(with_max_ahead(600 * SECOND));
    machine.start_up();
    machine.id();
    machine.go_down();
    machine.disk.put(machine.disk.slots().unwrap());
    machine.set_config(with_backups(3));
    machine.pass(HOUR);
    assert_eq!(machine.why_closed(), ClosedReason::Copied);
    machine.adopt(machine.wall()).unwrap();
    for worker in (0..1_024).step_by(256) {
        assert!(machine.mark(worker) >= tick(machine.wall() + 600 * SECOND), "{worker}");
    }
}

#[test]
fn floor_more_than_a_day_ahead_is_refused() {
    let machine = copied();
    machine.why_closed();
    assert_eq!(machine.adopt(machine.wall() + DAY + 1), Err(AdoptError::FloorInFuture));
    assert_eq!(machine.open(), Err(NotOpen::Closed(ClosedReason::Copied)));
    machine.adopt(machine.wall() + DAY).unwrap();

    let machine = Machine::alone(plain());
    machine.start_up();
    assert_eq!(machine.adopt(machine.wall() + DAY + 1), Err(AdoptError::FloorInFuture));
    machine.id();
}

/// The operator said it of all workers, also of those that a copy leaves to its original.
#[test]
fn worker_taken_from_the_original_begins_above_an_earlier_floor() {
    let machine = copied();
    machine.set_config(with_worker(1));
    machine.start_up();
    machine.adopt(machine.wall() + HOUR).unwrap();
    machine.go_down();
    for home in [0, 2] {
        machine.set_config(with_worker(home));
        machine.boot_up();
        machine.open().unwrap();
        assert!(machine.mark(home) >= tick(machine.wall() + HOUR), "{home}");
        let refused = machine.try_id();
        assert!(matches!(refused, Err(Refusal::NoLane(NoLane { is_floor: true, .. }))), "{refused:?}");
        machine.go_down();
    }
}

/// A floor of the wrong time that did not get to disk: the right one counts.
#[test]
fn adopt_that_cannot_be_written_opens_nothing_and_leaves_no_floor() {
    let machine = copied();
    machine.why_closed();
    machine.disk.set_faults(|point| if point == Point::Make { Fault::Fail(ENOSPC) } else { Fault::None });
    let full = NotOpen::Closed(ClosedReason::Os(ENOSPC));
    assert_eq!(machine.adopt(machine.wall() + 20 * HOUR), Err(AdoptError::NotOpen(full)));
    assert_eq!(machine.told(|event| matches!(event, Event::Adopted(_))), 0);
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    machine.disk.heal();
    machine.pass(SECOND);
    assert_eq!(machine.open(), Err(NotOpen::Closed(ClosedReason::Copied)));
    machine.adopt(machine.wall()).unwrap();
    machine.settle();
    assert!(machine.id().tick <= tick(machine.wall() + MAX_AHEAD));
}

// ---- An open gate

#[test]
fn adopt_raises_the_marks_of_an_open_gate_durably() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.pass(HOUR);
    break_disk(&machine, 0, EIO, |_| true);
    let current_tick = || machine.with(|generator| generator.current_tick());
    let before = current_tick();
    machine.adopt(machine.wall() + MS).unwrap_err();
    assert_eq!((current_tick(), machine.with(|it| it.status().write_error)), (before, Some(EIO)));
    machine.disk.heal();
    let floor = machine.wall() + 500 * MS;
    machine.adopt(floor).expect("also right after a write that failed");
    assert!(machine.with(|generator| generator.is_open()), "without a wait");
    let least = tick(floor + MAX_AHEAD);
    for worker in [0, 128, 896, 9] {
        assert_eq!(machine.disk.lowest_mark(worker), Some(least), "{worker}");
    }
    machine.pass(501 * MS);
    assert!(machine.id().tick > least);
    machine.with(|generator| generator.rotate_now()).unwrap();
    machine.pass(SECOND);
    assert!(machine.id().tick > least);
    machine.stop();
    for lane in 0..8 {
        assert!(machine.mark(lane * 128) >= least, "also after a clean stop");
    }
    assert!(machine.mark(9) >= least, "and for workers to come");
}

/// Workers of earlier settings, too.
#[test]
fn adopt_raises_the_marks_of_former_workers() {
    let machine = crashed();
    machine.set_config(with_worker(5));
    machine.start_up();
    machine.adopt(machine.wall() + HOUR).unwrap();
    let least = tick(machine.wall() + HOUR + MAX_AHEAD);
    assert_eq!([0, 128, 5].map(|worker| machine.mark(worker)), [least; 3]);
}

#[test]
fn adopt_of_an_earlier_time_changes_nothing_of_an_open_gate() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.pass(HOUR);
    let before = machine.id();
    machine.adopt(NOON - DAY).unwrap();
    let after = machine.id();
    assert_eq!((before.tick, before.sequence + 1), (after.tick, after.sequence));
}

/// A call that decided to replay before `adopt` must not lower the current tick below the floor after it.
#[test]
fn replay_under_way_does_not_undo_an_adopt() {
    let limits = Limits { policy: Policy::Replay, ..Limits::default() };
    for nth in 1..6 {
        let machine = Machine::alone(config("41/10/12", Tick::Millisecond, 0, 0, 16_384, limits));
        machine.start_up();
        machine.pass(HOUR);
        machine.id();
        machine.step(-5 * SECOND);
        let (twin, reads) = (machine.clone(), Cell::new(0));
        let floor = machine.wall();
        *machine.meanwhile.borrow_mut() = Some(Rc::new(move |look: &dyn Fn()| {
            reads.set(reads.get() + 1);
            if reads.get() == nth {
                let memory = twin.memory.borrow().clone().unwrap();
                let generator = snowflake_core::Generator::new(&twin.config.borrow(), memory.view(), &*twin);
                generator.adopt(&twin.start.get(), floor).unwrap();
            }
            look();
        }));
        let _ = machine.try_id();
        *machine.meanwhile.borrow_mut() = None;
        machine.adopt(floor - SECOND).unwrap();
        if let Ok(parts) = machine.try_id() {
            let is_above = parts.tick > tick(floor + MAX_AHEAD);
            assert!(is_above || nth > 4, "read {nth}: {} is not above", parts.tick);
        }
    }
}

/// The marks that could not be written are in memory only, so the gate does not open on them (guarantee 2).
#[test]
fn marks_that_adopt_cannot_write_during_the_wait_keep_the_gate_closed() {
    for errno in [EIO, ENOSPC] {
        let machine = Machine::alone(plain());
        machine.start_up();
        machine.pass(MINUTE);
        run_ahead(&machine);
        machine.keep();
        machine.go_down();
        machine.boot_up();
        let Err(NotOpen::Settling(micros)) = machine.open() else { panic!("it opens at once") };
        let before = machine.disk.slots();
        machine.disk.set_faults(move |point| match point {
            Point::Open | Point::Make => Fault::Fail(errno),
            _ => Fault::None,
        });
        let floor = machine.wall();
        let failed = NotOpen::Closed(ClosedReason::Os(errno));
        assert_eq!(machine.adopt(floor), Err(AdoptError::NotOpen(failed)));
        // Within a second after a failure nothing is written again, but the disk stays the reason.
        for wait in [micros, MS, SECOND, MINUTE] {
            machine.pass(wait);
            assert_eq!(machine.open(), Err(failed), "after {wait} us");
            assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
        }
        assert_eq!(machine.disk.slots(), before, "nothing was written");

        machine.disk.heal();
        machine.pass(SECOND);
        machine.settle();
        let floor = tick(floor + MAX_AHEAD);
        for worker in [0, 9, 256, 896] {
            let durable = machine.disk.lowest_mark(worker).unwrap();
            assert!(durable >= floor, "the mark of {worker} lies {} ms below the floor", floor - durable);
        }
        assert!(machine.id().tick > floor);
    }
}
