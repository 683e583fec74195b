//! Rule 5 of a start: one host, one run.

use crate::simulation::disk::{EIO, Fault, Point};
use crate::simulation::fixtures::{RESERVE, clone_of, crashed, promote, with_worker};
use crate::simulation::server::{HOUR, MS, SECOND, Server};
use crate::simulation::world::{Machine, SYSTEM, config};
use snowflake_core::{AdoptError, ClosedReason, Config, Limits, NotOpen, Tick};
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn clone_beside_its_original_opens_after_that_stopped_and_a_restart() {
    // A snapshot of the volume looks as if its file were in place.
    for is_in_place in [false, true] {
        let original = crashed();
        original.start_up();
        let clone = clone_of(&original, is_in_place);
        assert_eq!(clone.why_closed(), ClosedReason::Taken);
        let last = original.id();
        original.go_down();
        clone.pass(HOUR);
        assert_eq!(clone.open(), Err(NotOpen::Closed(ClosedReason::Taken)), "it has to be restarted");
        clone.go_down();
        if is_in_place {
            clone.start_up();
            assert!(clone.id().tick > last.tick);
        } else {
            assert_eq!(clone.why_closed(), ClosedReason::Copied);
        }
    }
}

#[test]
fn start_locks_each_of_its_workers_before_it_writes() {
    let split = config("41/2+8/12", Tick::Millisecond, 5, 3, 16_384, Limits::default());
    for (config, origins) in [(with_worker(5), (0..8).map(|lane| 5 + lane * 128).collect::<Vec<_>>()), {
        (Config { datacenter: 3, ..split }, (0..4).map(|lane| 3 << 8 | (5 + lane * 64)).collect())
    }] {
        let machine = Machine::alone(config);
        machine.boot_up();
        let (twin, seen) = (Rc::downgrade(&machine), Rc::new(Cell::new(false)));
        let (expected, told) = (origins.clone(), seen.clone());
        machine.disk.set_faults(move |point| {
            if point == Point::Make {
                assert_eq!(twin.upgrade().unwrap().disk.host_lock.held(), expected);
                told.set(true);
            }
            Fault::None
        });
        machine.settle();
        assert!(seen.get());
        assert_eq!(machine.disk.host_lock.held(), origins);
    }
}

#[test]
fn token_is_durable_in_record_and_lock_before_the_gate_opens() {
    let machine = crashed();
    let mut seen = vec![];
    for _ in 0..3 {
        machine.boot_up();
        let _ = machine.open();
        let token = machine.disk.lowest(0).unwrap().token;
        assert!(token.is_some() && !seen.contains(&token), "each start draws one");
        assert_eq!(machine.disk.host_lock.signed(SYSTEM, 0), token);
        seen.push(token);
        machine.go_down();
    }
}

/// Worker 1 with 7 backups and worker 129 with 3 share the workers 129, 385, 641 and 897.
#[test]
fn overlapping_backup_workers_on_one_host_are_seen() {
    let machine = Machine::alone(with_worker(1));
    machine.start_up();
    for (home, backups, is_taken) in [(129, 3, true), (897, 0, true), (130, 3, false), (2, 7, false)] {
        let clone = clone_of(&machine, true);
        *clone.config.borrow_mut() =
            config("41/10/12", Tick::Millisecond, home, backups, 16_384, Limits::default());
        clone.boot_up();
        let opened = clone.open();
        assert_eq!(
            opened == Err(NotOpen::Closed(ClosedReason::Taken)),
            is_taken,
            "{home} {backups}: {opened:?}"
        );
    }
    // Another cluster's workers are others.
    let foreign = clone_of(&machine, true);
    foreign.set_start(|start| start.system_identifier += 1);
    assert_eq!(foreign.why_closed(), ClosedReason::Copied);
}

/// The last process of the run before has yet to end, as the log's collector.
#[test]
fn lock_of_the_own_directory_is_tried_again() {
    let machine = crashed();
    machine.disk.host_lock.is_own_held.set(true);
    assert_eq!(machine.why_closed(), ClosedReason::Taken);
    assert_eq!(machine.open(), Err(NotOpen::Closed(ClosedReason::Taken)));
    machine.disk.host_lock.is_own_held.set(false);
    assert!(machine.settle() <= RESERVE + MS);
    machine.id();
}

#[test]
fn lock_is_tried_again_where_the_start_made_its_timeline() {
    let old = crashed();
    old.start_up();
    let new = clone_of(&old, false);
    promote(&new, 2);
    assert_eq!(new.why_closed(), ClosedReason::Taken);
    old.go_down();
    assert_eq!(new.settle(), SECOND + MS);
    assert_eq!(new.id().worker, 128);
}

/// Both start with their host. The copy stays closed, and must not keep the original from opening.
#[test]
fn closed_gate_holds_no_lock() {
    let original = crashed();
    let copy = clone_of(&original, false);
    assert_eq!(copy.why_closed(), ClosedReason::Copied);
    assert_eq!(copy.disk.host_lock.held(), [0; 0]);
    original.start_up();
    original.id();

    let machine = crashed();
    machine.disk.set_faults(|point| if point == Point::Load { Fault::None } else { Fault::Fail(EIO) });
    assert_eq!(machine.why_closed(), ClosedReason::Os(EIO));
    assert_eq!(machine.disk.host_lock.held(), [0; 0]);
}

#[test]
fn restart_after_a_crashed_backend_goes_on_with_the_lock() {
    let machine = crashed();
    machine.start_up();
    machine.boot_up();
    machine.settle();
    machine.id();
    assert_eq!(machine.disk.host_lock.held().len(), 8);
}

#[test]
fn deleted_lock_is_made_again() {
    let machine = crashed();
    machine.start_up();
    let token = machine.disk.said().unwrap().token;
    machine.disk.host_lock.forget();
    machine.with(|generator| generator.lock_again());
    assert_eq!(machine.disk.host_lock.held().len(), 8);
    assert_eq!(machine.disk.host_lock.signed(SYSTEM, 0), token);
    // One that another server has taken meanwhile stays with that.
    machine.disk.host_lock.forget();
    machine.disk.host_lock.hold_as(99, SYSTEM, 128);
    machine.with(|generator| generator.lock_again());
    assert_eq!(machine.disk.host_lock.held(), [0; 0]);
}

/// Another server of the host could take the workers in those two seconds.
#[test]
fn lock_deleted_while_the_start_settles_is_made_again() {
    let machine = crashed();
    machine.step(-SECOND);
    machine.boot_up();
    assert!(matches!(machine.open(), Err(NotOpen::Settling(_))));
    machine.disk.host_lock.forget();
    assert!(machine.with(|generator| generator.lock_again()));
    assert_eq!(machine.disk.host_lock.held().len(), 8);
    machine.settle();
    assert_eq!(machine.disk.host_lock.signed(SYSTEM, 0), machine.disk.said().unwrap().token);

    let copy = clone_of(&crashed(), false);
    copy.why_closed();
    assert!(!copy.with(|generator| generator.lock_again()), "a closed gate holds no lock");
    assert_eq!(copy.disk.host_lock.held(), [0; 0]);
}

#[test]
fn host_without_a_lock_opens_without_a_token() {
    let machine = crashed();
    machine.disk.host_lock.is_broken.set(true);
    machine.start_up();
    machine.id();
    assert_eq!(machine.disk.said().unwrap().token, None);
    machine.with(|generator| generator.lock_again());
}

#[test]
fn adopt_never_opens_past_the_lock_of_another() {
    for is_in_place in [false, true] {
        let original = crashed();
        original.start_up();
        let clone = clone_of(&original, is_in_place);
        assert_eq!(clone.why_closed(), ClosedReason::Taken);
        let slots = clone.disk.slots();
        for _ in 0..2 {
            let taken = NotOpen::Closed(ClosedReason::Taken);
            assert_eq!(clone.adopt(clone.wall()), Err(AdoptError::NotOpen(taken)));
            clone.pass(SECOND);
        }
        assert_eq!(clone.disk.slots(), slots);
        original.id();
        original.go_down();
        clone.adopt(clone.wall()).unwrap();
        clone.settle();
        clone.id();
    }
}

/// It made its timeline at a start at which its primary still ran.
#[test]
fn promoted_server_restarted_beside_its_primary_is_no_copy() {
    let original = crashed();
    original.start_up();
    let standby = clone_of(&original, false);
    standby.set_start(|start| (start.timeline, start.made_timeline) = (2, true));
    assert_eq!(standby.why_closed(), ClosedReason::Taken);
    standby.go_down();
    standby.set_start(|start| start.made_timeline = false);
    assert_eq!(standby.why_closed(), ClosedReason::Taken);
    standby.go_down();
    let last = original.id();
    original.go_down();
    assert!(standby.start_up() > 0, "rule 4");
    assert!(standby.id().tick > last.tick);
}
