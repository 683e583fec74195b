//! An operator's `adopt`.

#[path = "model/mod.rs"]
mod model;

use model::disk::{ENOSPC, Fault, Point};
use model::fixtures::{MAX_AHEAD, copied, crashed, plain, tick, with_backups};
use model::server::{DAY, HOUR, MS, SECOND, Server};
use model::world::{Machine, NOON, config};
use snowflake_core::{AdoptError, ClosedReason, Limits, Policy};
use snowflake_core::{Refusal, Tick, Unopened};
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn adopt_opens_a_copy_above_its_floor_and_its_marks() {
    for floor in [NOON - DAY, NOON + 10 * SECOND] {
        let machine = copied();
        let mark = machine.mark(0);
        machine.why_closed();
        machine.adopt(floor).unwrap();
        machine.settle();
        let least = mark.max(tick(floor + MAX_AHEAD));
        for lane in 0..8 {
            assert!(machine.mark(lane * 128) >= tick(floor + MAX_AHEAD));
        }
        assert!(machine.mark(0) >= mark, "a mark that can be read is never lowered");
        machine.pass(20 * SECOND);
        assert!(machine.id().tick > least);
        machine.go_down();
        machine.start_up();
        machine.id();
    }
}

#[test]
fn adopt_opens_an_unreadable_state_above_its_floor_and_above_the_clock() {
    for floor in [NOON - DAY, NOON + 10 * SECOND] {
        let machine = crashed();
        machine.disk.scribble(0, Vec::clear);
        machine.disk.scribble(1, Vec::clear);
        machine.why_closed();
        machine.adopt(floor).unwrap();
        let clock = machine.wall();
        machine.settle();
        machine.pass(20 * SECOND);
        assert!(machine.id().tick > tick(floor.max(clock) + MAX_AHEAD));
    }
}

#[test]
fn adopt_opens_a_foreign_state_under_the_clusters_own_name() {
    let machine = crashed();
    let mark = machine.mark(0);
    machine.set_start(|start| start.system_identifier += 1);
    machine.why_closed();
    machine.adopt(machine.wall()).unwrap();
    machine.settle();
    assert!(machine.id().tick > mark);
    machine.go_down();
    machine.start_up();
    machine.id();
}

#[test]
fn adopt_on_a_new_timeline_respects_what_was_replayed() {
    let machine = Machine::alone(with_backups(0));
    machine.start_up();
    machine.id();
    machine.go_down();
    machine.disk.scribble(0, Vec::clear);
    machine.disk.scribble(1, Vec::clear);
    machine.set_start(|start| {
        start.timeline = 2;
        start.replayed_us = Some(NOON + 30 * SECOND);
    });
    machine.why_closed();
    machine.adopt(NOON).unwrap();
    assert!(machine.mark(0) >= tick(NOON + 30 * SECOND + MAX_AHEAD));
}

#[test]
fn a_floor_more_than_a_day_ahead_is_refused() {
    let machine = copied();
    machine.why_closed();
    assert_eq!(machine.adopt(machine.wall() + DAY + 1), Err(AdoptError::FloorInFuture));
    assert_eq!(machine.open(), Err(Unopened::Closed(ClosedReason::Copied)));
    machine.adopt(machine.wall() + DAY).unwrap();

    let machine = Machine::alone(plain());
    machine.start_up();
    assert_eq!(machine.adopt(machine.wall() + DAY + 1), Err(AdoptError::FloorInFuture));
    machine.id();
}

#[test]
fn adopt_raises_the_marks_of_an_open_gate_durably() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.pass(HOUR);
    machine.id();
    let floor = machine.wall() + 500 * MS;
    machine.adopt(floor).unwrap();
    machine.pass(501 * MS);
    assert!(machine.id().tick > tick(floor + MAX_AHEAD));
    machine.with(|generator| generator.rotate_now()).unwrap();
    machine.pass(SECOND);
    assert!(machine.id().tick > tick(floor + MAX_AHEAD));
    machine.stop();
    for lane in 0..8 {
        assert!(machine.mark(lane * 128) >= tick(floor + MAX_AHEAD), "also after a clean stop");
    }
    assert!(machine.mark(9) >= tick(floor + MAX_AHEAD), "and for workers to come");
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

/// A call that decided to replay before `adopt` must not lower the frontier below the floor after it.
#[test]
fn a_replay_under_way_does_not_undo_an_adopt() {
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
                generator.adopt(&twin.start.get(), floor, false).unwrap();
            }
            look();
        }));
        let _ = machine.try_id();
        *machine.meanwhile.borrow_mut() = None;
        machine.adopt(floor - SECOND).unwrap();
        if let Ok(parts) = machine.try_id() {
            assert!(
                parts.tick > tick(floor + MAX_AHEAD) || nth > 4,
                "read {nth}: {} is not above",
                parts.tick
            );
        }
    }
}

/// The original's IDs ran as far ahead of its clock as its `max_ahead` let them.
#[test]
fn adopt_respects_the_max_ahead_of_the_record() {
    let long = Limits { max_ahead_us: 600 * SECOND, ..Limits::default() };
    let machine = Machine::alone(config("41/10/12", Tick::Millisecond, 0, 7, 1 << 22, long));
    machine.start_up();
    machine.id();
    machine.go_down();
    machine.disk.put(machine.disk.slots().unwrap());
    machine.set_config(plain());
    machine.pass(HOUR);
    assert_eq!(machine.why_closed(), ClosedReason::Copied);
    machine.adopt(machine.wall()).unwrap();
    for worker in (0..1_024).step_by(128) {
        assert!(machine.mark(worker) >= tick(machine.wall() + 600 * SECOND), "{worker}");
    }
}

/// The operator said it of all workers, also of those that a copy leaves to its original.
#[test]
fn a_worker_that_is_taken_over_from_the_original_begins_above_an_earlier_floor() {
    let machine = crashed();
    machine.disk.put(machine.disk.slots().unwrap());
    machine.set_config(config("41/10/12", Tick::Millisecond, 1, 7, 16_384, Limits::default()));
    machine.start_up();
    machine.adopt(machine.wall() + HOUR).unwrap();
    machine.go_down();
    machine.set_config(plain());
    assert_eq!(machine.why_closed(), ClosedReason::Copied);
    machine.adopt(machine.wall()).unwrap();
    assert!(machine.mark(0) >= tick(machine.wall() + HOUR));
}

/// A floor of the wrong time that did not get to disk: the right one counts.
#[test]
fn adopt_that_cannot_be_written_leaves_no_floor() {
    let machine = copied();
    machine.why_closed();
    machine.disk.set_faults(|point| if point == Point::Make { Fault::Fail(ENOSPC) } else { Fault::None });
    machine.adopt(machine.wall() + 20 * HOUR).unwrap_err();
    machine.disk.heal();
    machine.pass(SECOND);
    machine.adopt(machine.wall()).unwrap();
    machine.settle();
    assert!(
        machine.id().tick <= tick(machine.wall() + MAX_AHEAD),
        "an ID of the floor that was never durable"
    );
}

#[test]
fn adopt_that_cannot_be_written_opens_nothing() {
    let machine = copied();
    machine.why_closed();
    machine.disk.set_faults(|point| if point == Point::Make { Fault::Fail(ENOSPC) } else { Fault::None });
    assert_eq!(machine.adopt(machine.wall()), Err(AdoptError::Closed(ClosedReason::Os(ENOSPC))));
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    machine.disk.heal();
    machine.pass(SECOND);
    assert_eq!(machine.open(), Err(Unopened::Closed(ClosedReason::Copied)));
    machine.adopt(machine.wall()).unwrap();
    machine.settle();
    machine.id();
}
