//! The keeper, which writes so that calls need not.

use crate::simulation::disk::{EIO, ENOSPC, Fault, Point};
use crate::simulation::fixtures::{MAX_AHEAD, break_disk, copied, crashed, plain};
use crate::simulation::server::{DAY, HOUR, MS, SECOND, Server};
use crate::simulation::world::{Machine, config};
use snowflake_core::{ClosedReason, Event, Limits, Policy};
use snowflake_core::{NotOpen, Refusal, Tick};
use std::cell::Cell;
use std::rc::Rc;

// ---- The keeper writes

/// A keeper that answers at its `nth` call; returns how often it was waited for.
fn with_keeper(machine: &Rc<Machine>, nth: u32) -> Rc<Cell<u32>> {
    let waits = Rc::new(Cell::new(0));
    let (counted, keeper) = (waits.clone(), Rc::downgrade(machine));
    *machine.keeper.borrow_mut() = Some(Rc::new(move || {
        counted.set(counted.get() + 1);
        if counted.get() >= nth {
            let _ = keeper.upgrade().unwrap().with(|generator| generator.run_keeper());
        }
    }));
    waits
}

#[test]
fn calls_leave_the_reservation_to_the_keeper() {
    let machine = Rc::new(Machine::alone(plain()));
    machine.start_up();
    let waits = with_keeper(&machine, 3);
    machine.pass(10 * SECOND);
    let written = machine.disk.changes();
    // The call itself never touches the disk.
    machine.disk.set_faults(move |_| {
        assert!(waits.get() >= 3, "a call wrote");
        Fault::None
    });
    machine.id();
    assert!(machine.disk.changes() > written);
}

#[test]
fn calls_leave_a_rotation_to_the_keeper() {
    let machine = Rc::new(Machine::alone(plain()));
    machine.start_up();
    machine.id();
    let waits = with_keeper(&machine, 2);
    let asked = waits.clone();
    machine.disk.set_faults(move |_| {
        assert!(asked.get() >= 2, "a call wrote");
        Fault::None
    });
    machine.pass(HOUR);
    machine.id();
    machine.step(-10 * SECOND);
    let rotations = machine.with(|generator| generator.status().counts.rotations);
    waits.set(0);
    machine.id();
    assert_eq!(machine.with(|generator| generator.status().counts.rotations), rotations + 1);
    assert_eq!((machine.told(|event| matches!(event, Event::Rotated { .. })), waits.get()), (1, 2));
    // Also where the call has waited in vain.
    machine.stalled.set(true);
    machine.step(-MAX_AHEAD - 3 * MS);
    let before = machine.boot.get();
    machine.id();
    assert!(machine.boot.get() - before < 10 * MS);
}

/// After a replay, the ticks between the lane's last one and its reservation can be full.
#[test]
fn the_keeper_reserves_for_the_call_that_asks() {
    let machine = Rc::new(Machine::alone(config(
        "41/10/1",
        Tick::Millisecond,
        0,
        7,
        16_384,
        Limits { policy: Policy::Replay, ..Limits::default() },
    )));
    machine.start_up();
    machine.pass(10 * SECOND);
    for _ in 0..1_000 {
        machine.id();
    }
    machine.step(-3 * SECOND);
    let waits = with_keeper(&machine, 1);
    for _ in 0..10_000 {
        machine.id();
    }
    assert!(waits.get() < 20, "a call waited for a keeper that was done: {}", waits.get());
}

#[test]
fn a_keeper_that_does_nothing_is_done_without_after_a_second() {
    let machine = Rc::new(Machine::alone(plain()));
    machine.start_up();
    let waits = with_keeper(&machine, u32::MAX);
    machine.pass(10 * SECOND);
    let before = machine.boot.get();
    machine.id();
    let waited = machine.boot.get() - before;
    assert!((SECOND..2 * SECOND).contains(&waited), "{waited}");
    assert!(waits.get() < 200, "it looks less often, the longer it waits: {}", waits.get());
}

#[test]
fn a_keeper_that_is_stuck_is_waited_for_once() {
    let machine = Rc::new(Machine::alone(plain()));
    machine.start_up();
    let waits = with_keeper(&machine, u32::MAX);
    machine.pass(10 * SECOND);
    machine.id();
    let before = machine.boot.get();
    for _ in 0..10 {
        machine.pass(10 * SECOND);
        machine.id();
    }
    assert_eq!(machine.boot.get() - before, 100 * SECOND, "nobody waits for it again");
    waits.set(0);
    machine.with(|generator| generator.run_keeper()).unwrap();
    machine.pass(10 * SECOND);
    machine.id();
    assert!(waits.get() > 0, "once it has done something, it is asked again");
}

#[test]
fn a_call_is_refused_when_the_keeper_cannot_write() {
    let machine = Rc::new(Machine::alone(plain()));
    machine.start_up();
    let waits = with_keeper(&machine, 1);
    machine.pass(10 * SECOND);
    let slow = machine.clone();
    machine.disk.set_faults(move |_| {
        slow.pass(2 * SECOND);
        Fault::Fail(EIO)
    });
    for _ in 0..3 {
        waits.set(0);
        assert_eq!(machine.try_id(), Err(Refusal::NotDurable(EIO)));
        assert_eq!(waits.get(), 1, "a call that is refused waits for the keeper once");
        assert_eq!(machine.try_id(), Err(Refusal::NotDurable(EIO)));
        assert_eq!(waits.get(), 1, "and not at all within a second after the failure");
        assert_eq!(machine.with(|generator| generator.obstacle()), Some(Refusal::NotDurable(EIO)));
        machine.pass(SECOND);
    }
    machine.disk.heal();
    machine.id();
}

#[test]
fn a_rotation_that_cannot_be_written_does_not_happen() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.pass(DAY);
    machine.id();
    break_disk(&machine, 0, ENOSPC, |point| matches!(point, Point::Open | Point::Make));
    machine.step(-HOUR);
    assert_eq!(machine.try_id(), Err(Refusal::NotDurable(ENOSPC)));
    assert_eq!(machine.lane(), 0);
    assert_eq!(machine.told(|event| matches!(event, Event::Rotated { .. })), 0);
    machine.disk.heal();
    machine.pass(SECOND);
    assert_eq!(machine.id().worker, 256);
}

#[test]
fn a_file_that_is_deleted_or_replaced_while_running_is_made_anew() {
    for is_replaced in [false, true] {
        let machine = Machine::alone(plain());
        machine.start_up();
        machine.id();
        let old = machine.disk.slots().unwrap();
        if is_replaced {
            machine.disk.put(old);
        } else {
            machine.disk.delete();
        }
        machine.pass(HOUR);
        let parts = machine.id();
        assert_eq!(parts.worker, 0);
        assert!(machine.disk.lowest(0).unwrap().mark(0) >= parts.tick, "guarantee 2");
        machine.go_down();
        machine.start_up();
        assert!(machine.id().tick > parts.tick);
    }
}

#[test]
fn a_start_that_fails_in_two_ways_does_not_tell_of_a_recovery() {
    let machine = crashed();
    machine.disk.set_faults(|point| match point {
        Point::Open | Point::Make => Fault::Fail(EIO),
        _ => Fault::None,
    });
    machine.boot_up();
    let _ = machine.open();
    machine.disk.delete();
    machine.disk.set_faults(|point| if point == Point::Make { Fault::Fail(EIO) } else { Fault::None });
    machine.pass(SECOND);
    assert_eq!(machine.open(), Err(NotOpen::Closed(ClosedReason::Os(EIO))));
    assert_eq!(machine.told(|event| *event == Event::WriteRecovered), 0);
}

// ---- run_keeper

#[test]
fn keep_up_does_nothing_before_the_gate_is_open_and_after_a_clean_stop() {
    let machine = copied();
    machine.why_closed();
    let before = machine.disk.changes();
    machine.with(|generator| generator.run_keeper()).unwrap();
    assert_eq!(machine.disk.changes(), before);

    let machine = Machine::alone(plain());
    machine.start_up();
    machine.id();
    machine.with(|generator| generator.write_exact_marks()).unwrap();
    machine.pass(HOUR);
    let before = machine.disk.slots();
    machine.with(|generator| generator.run_keeper()).unwrap();
    assert_eq!(machine.disk.slots(), before);
}
