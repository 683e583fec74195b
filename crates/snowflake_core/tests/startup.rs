//! The decisions of a start, by the steps in `state/start.rs`, and the writes on which the next start relies.

#[path = "model/mod.rs"]
mod model;

use model::disk::{EIO, ENOSPC, Fault, Point};
use model::fixtures::{
    MAX_AHEAD, RESERVE, Rewrite, break_disk, copied, crashed, other_layouts, plain, tick, with_backups,
};
use model::server::{DAY, HOUR, MS, SECOND, Server};
use model::world::{Machine, NOON, SYSTEM, config};
use serde_json::Value;
use snowflake_core::host::{SLOT_BYTES, SLOTS};
use snowflake_core::{
    AdoptError, ClosedReason, Config, Disk, Event, FloorCause, Layout, Limits, Parts, Policy,
};
use snowflake_core::{Refusal, Tick, Unopened, Workers, recorded_layout};
use std::cell::Cell;
use std::rc::Rc;

// ---- 1. What can be read

#[test]
fn a_whole_file_of_this_timeline_opens_above_its_mark_on_its_lane() {
    let machine = crashed();
    let mark = machine.mark(0);
    machine.start_up();
    let parts = machine.id();
    assert!(parts.tick > mark, "guarantee 3");
    assert_eq!(parts.worker, 0);
    assert_eq!(machine.told(|event| matches!(event, Event::Opened { is_first: false, .. })), 1);
}

#[test]
fn one_torn_slot_is_made_good_by_the_other() {
    for slot in 0..SLOTS {
        let machine = crashed();
        let mark = machine.mark(0);
        machine.disk.scribble(slot, |bytes| bytes[60..].fill(b'?'));
        machine.start_up();
        assert!(machine.id().tick > mark);
        let slots = machine.disk.slots().unwrap();
        assert!(
            slots.iter().all(|bytes| serde_json::from_slice::<Value>(bytes).is_ok()),
            "both are whole again"
        );
    }
}

#[test]
fn the_newer_of_two_slots_counts_whichever_it_is() {
    for newer in 0..SLOTS {
        let machine = crashed();
        let mark = machine.mark(0);
        machine.rewrite(1 - newer, |document| {
            let generation = document["record"]["generation"].as_u64().unwrap();
            document["record"]["generation"] = (generation - 1).into();
            document["record"]["marks"]["0"] = (mark - 1_500).into();
        });
        machine.start_up();
        let parts = machine.id();
        assert!(parts.worker == 0 && parts.tick > mark);
    }
}

/// Makes a slot unreadable.
type Ruin = fn(&mut Vec<u8>);

const RUIN: [(&str, Ruin); 6] = [
    ("torn", |bytes| bytes[60..].fill(b'?')),
    ("truncated", |bytes| bytes.truncate(100)),
    ("empty", Vec::clear),
    ("zero-filled", |bytes| bytes.fill(0)),
    ("one bit of a mark", |bytes| {
        let at = String::from_utf8_lossy(bytes).find("\"marks\":{\"0\":").unwrap() + 15;
        bytes[at] ^= 1;
    }),
    ("one digit of the checksum", |bytes| {
        let at = String::from_utf8_lossy(bytes).find("\"crc32c\":\"").unwrap() + 10;
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    }),
];

#[test]
fn a_file_without_a_readable_slot_never_means_start_from_nothing() {
    for (name, ruin) in RUIN {
        for (other_name, other_ruin) in RUIN {
            let machine = crashed();
            machine.disk.scribble(0, ruin);
            machine.disk.scribble(1, other_ruin);
            let before = machine.disk.slots();
            assert_eq!(machine.why_closed(), ClosedReason::Unreadable, "{name}, {other_name}");
            assert_eq!(machine.disk.slots(), before, "a closed gate writes nothing");
        }
    }
}

#[test]
fn each_kind_of_ruin_of_one_slot_leaves_the_other_to_open() {
    for (name, ruin) in RUIN {
        for slot in 0..SLOTS {
            let machine = crashed();
            let mark = machine.mark(0);
            machine.disk.scribble(slot, ruin);
            machine.start_up();
            assert!(machine.id().tick > mark, "{name} in slot {slot}");
        }
    }
}

#[test]
fn a_slot_of_a_later_version_closes_even_beside_a_whole_one() {
    for slot in 0..SLOTS {
        let machine = crashed();
        machine.rewrite(slot, |document| document["version"] = 2.into());
        assert_eq!(machine.why_closed(), ClosedReason::NewerVersion(2));
        assert_eq!(machine.adopt(machine.wall()), Err(AdoptError::Closed(ClosedReason::NewerVersion(2))));
    }
}

#[test]
fn a_version_without_its_checksum_is_a_torn_slot_and_no_version() {
    let machine = crashed();
    machine.disk.scribble(0, |bytes| {
        let at = String::from_utf8_lossy(bytes).find("\"version\":1").unwrap() + 10;
        bytes[at] = b'9';
    });
    machine.start_up();
    machine.id();
}

#[test]
fn a_file_that_cannot_be_read_closes_and_is_tried_again_once_a_second() {
    let machine = crashed();
    let loads = Rc::new(Cell::new(0));
    let count = loads.clone();
    machine.disk.set_faults(move |point| match point {
        Point::Load => {
            count.set(count.get() + 1);
            Fault::Fail(EIO)
        }
        _ => Fault::None,
    });
    assert_eq!(machine.why_closed(), ClosedReason::Os(EIO));
    machine.pass(SECOND - 1);
    assert_eq!(machine.open(), Err(Unopened::Closed(ClosedReason::Os(EIO))));
    assert_eq!(loads.get(), 1);
    machine.pass(1);
    assert_eq!(machine.open(), Err(Unopened::Closed(ClosedReason::Os(EIO))));
    assert_eq!(loads.get(), 2);
    machine.disk.heal();
    machine.pass(SECOND);
    machine.settle();
    machine.id();
}

// ---- 2. Layout, tick and epoch

#[test]
fn another_layout_tick_or_epoch_closes_and_names_the_recorded_one() {
    for (name, other) in other_layouts() {
        let machine = crashed();
        machine.set_config(other);
        assert_eq!(machine.why_closed(), ClosedReason::OtherLayout(plain().layout), "{name}");
        machine.set_config(plain());
        machine.start_up();
        machine.id();
    }
}

/// A first start with a mistaken epoch, corrected before the first ID.
#[test]
fn a_layout_with_which_no_id_was_generated_binds_nobody() {
    let unused = || {
        let machine = Machine::alone(plain());
        machine.start_up();
        machine.with(|generator| generator.keep_up()).unwrap();
        machine.stop();
        machine
    };
    for (name, other) in other_layouts() {
        let machine = unused();
        assert_eq!(machine.disk.load().unwrap().and_then(|loaded| recorded_layout(&loaded)), None);
        machine.set_config(other);
        machine.start_up();
        let parts = machine.id();
        assert!(parts.tick <= other.layout.tick_at(machine.wall() + MAX_AHEAD), "{name}");
        // After an ID, the layout is binding.
        machine.stop();
        machine.set_config(plain());
        assert_eq!(machine.why_closed(), ClosedReason::OtherLayout(other.layout), "{name}");
    }

    // After a crash there are no exact marks, so an ID may exist.
    let crashed = Machine::alone(plain());
    crashed.start_up();
    crashed.with(|generator| generator.keep_up()).unwrap();
    crashed.go_down();
    // The original of a copy or of a standby may have generated IDs by now.
    let copied = unused();
    copied.disk.put(copied.disk.slots().unwrap());
    let foreign = unused();
    foreign.set_start(|start| start.system_identifier += 1);
    let followed = unused();
    followed.set_start(|start| start.was_in_recovery = true);
    let promoted = unused();
    promoted.set_start(|start| start.timeline = 2);
    for machine in [crashed, copied, foreign, followed, promoted] {
        machine.set_config(other_layouts()[0].1);
        assert_eq!(machine.why_closed(), ClosedReason::OtherLayout(plain().layout));
    }
}

/// An epoch that is changed and changed back: the marks of the first layout are not lost on the way.
#[test]
fn a_layout_that_was_adopted_binds_also_without_an_id() {
    let later = Layout::new(plain().layout.bits(), Tick::Millisecond, 100 * DAY).unwrap();
    let (first, second) = (Config { layout: later, ..plain() }, plain());
    let machine = Machine::alone(first);
    machine.start_up();
    machine.step(HOUR);
    let last = machine.id().tick;
    machine.stop();
    machine.step(-HOUR);
    machine.set_config(second);
    machine.why_closed();
    machine.adopt(machine.wall()).unwrap();
    machine.stop();
    machine.set_config(first);
    assert_eq!(machine.why_closed(), ClosedReason::OtherLayout(second.layout));
    // The way back is to be vouched for as well, and leads above what was generated.
    match machine.adopt(machine.wall()) {
        Ok(()) => assert!(machine.try_id().is_err() || machine.id().tick > last),
        Err(refused) => assert_eq!(refused, AdoptError::LayoutBelow(second.layout)),
    }
}

/// The floor of a first start respects IDs of an earlier life, also under the layout that corrects it.
#[test]
fn the_floor_of_an_unused_state_holds_under_the_next_layout() {
    let machine = Machine::alone(plain());
    let floor_us = machine.wall() + HOUR;
    machine.set_start(|start| start.control_us = floor_us);
    machine.boot_up();
    machine.open().unwrap();
    machine.stop();
    machine.set_start(|start| start.control_us = i64::MIN);
    for (name, other) in other_layouts() {
        machine.set_config(other);
        machine.boot_up();
        machine.open().unwrap();
        assert!(machine.try_id().is_err(), "{name}");
        machine.stop();
    }
    machine.set_config(plain());
    machine.boot_up();
    machine.open().unwrap();
    assert!(machine.try_id().is_err());
    machine.pass(HOUR + 10 * SECOND);
    assert!(machine.id().tick > tick(floor_us));
}

/// A crash before the first ID: nothing but the operator's word says that there is none.
#[test]
fn a_superuser_adopts_a_lower_layout_with_which_no_id_was_generated() {
    let earlier =
        Layout::new(plain().layout.bits(), Tick::Millisecond, plain().layout.epoch_us() - 100 * DAY).unwrap();
    let machine = Machine::alone(Config { layout: earlier, ..plain() });
    machine.start_up();
    machine.with(|generator| generator.keep_up()).unwrap();
    machine.go_down();
    machine.set_config(plain());
    assert_eq!(machine.why_closed(), ClosedReason::OtherLayout(earlier));
    assert_eq!(machine.adopt(machine.wall()), Err(AdoptError::LayoutBelow(earlier)));
    assert_eq!(machine.lower(machine.wall()), Err(AdoptError::LayoutBelow(earlier)));
    machine.lower(earlier.epoch_us()).unwrap();
    machine.settle();
    machine.id();
}

#[test]
fn another_layout_is_noticed_before_a_copy_or_a_foreign_state() {
    let machine = crashed();
    machine.disk.put(machine.disk.slots().unwrap());
    machine.set_start(|start| start.system_identifier += 1);
    machine.set_config(other_layouts()[0].1);
    assert!(matches!(machine.why_closed(), ClosedReason::OtherLayout(_)));
}

#[test]
fn a_layout_is_adopted_only_where_its_ids_lie_above_all_earlier_ones() {
    let of_bits = |bits| config(bits, Tick::Millisecond, 0, 7, 16_384, Limits::default());
    let (narrow, wide) = (of_bits("41/9/12"), of_bits("41/10/12"));

    let machine = Machine::alone(wide);
    machine.start_up();
    machine.id();
    machine.go_down();
    machine.set_config(narrow);
    machine.why_closed();
    let before = machine.disk.slots();
    assert_eq!(machine.adopt(machine.wall()), Err(AdoptError::LayoutBelow(wide.layout)));
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    assert_eq!(machine.disk.slots(), before, "a refused adopt writes nothing");

    let machine = Machine::alone(narrow);
    machine.start_up();
    let old = machine.with(|generator| generator.next_id()).unwrap();
    machine.go_down();
    machine.set_config(wide);
    machine.why_closed();
    assert_eq!(machine.adopt(machine.wall()), Ok(()));
    machine.settle();
    let new = machine.with(|generator| generator.next_id()).unwrap();
    assert!(new > old);
    machine.go_down();
    machine.start_up();
    assert!(machine.with(|generator| generator.next_id()).unwrap() > new);
}

/// The boundary: the new layout may begin right above the highest ID that the old one could have issued.
#[test]
fn a_layout_of_the_same_widths_is_adopted_from_the_tick_after_the_old_mark() {
    let machine = crashed();
    let highest = plain().layout.highest_id(machine.mark(0));
    let same_widths = config("41/11/11", Tick::Millisecond, 0, 7, 16_384, Limits::default());
    machine.set_config(same_widths);
    machine.why_closed();
    machine.adopt(machine.wall()).unwrap();
    machine.settle();
    assert!(machine.with(|generator| generator.next_id()).unwrap() > highest);
}

// ---- 5. The same timeline

#[test]
fn a_crash_never_uses_up_a_lane() {
    let machine = Machine::alone(plain());
    machine.start_up();
    for round in 0..20 {
        assert_eq!(machine.id().worker, 0, "round {round}");
        // At full speed, with the reservation as far ahead as it gets.
        while machine.with(|generator| generator.frontier()) < tick(machine.wall() + MAX_AHEAD) - 1 {
            machine.with(|generator| generator.next_range(4_096)).unwrap();
        }
        machine.with(|generator| generator.keep_up()).unwrap();
        machine.go_down();
        machine.boot_up();
        let Err(Unopened::Settling(micros)) = machine.open() else { panic!("the mark is ahead") };
        assert!(micros <= RESERVE + 2 * MS, "{micros} us");
        assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
        machine.pass(micros - 1);
        assert_eq!(machine.open(), Err(Unopened::Settling(1)));
        machine.pass(1);
        machine.open().unwrap();
        assert_eq!(machine.told(|event| matches!(event, Event::Rotated { .. })), 0);
    }
}

#[test]
fn a_mark_at_the_limit_is_waited_for_and_one_beyond_it_rotates() {
    let limit = SECOND + MS;
    for (beyond, worker) in [(0, 0), (1, 256)] {
        let machine = crashed();
        let starts_at = (machine.mark(0) + 1) * MS;
        machine.step(starts_at - MAX_AHEAD - limit - beyond - machine.wall());
        machine.start_up();
        assert_eq!(machine.id().worker, worker, "{beyond} us beyond");
    }
}

#[test]
fn a_clock_that_went_far_back_while_stopped_rotates_within_the_half() {
    for (timeline, worker) in [(1, 256), (2, 384)] {
        let machine = Machine::alone(plain());
        machine.set_start(|start| start.timeline = timeline);
        machine.start_up();
        machine.id();
        // The other lanes of the half still have the mark of the first start; a day later they are past it.
        machine.pass(DAY);
        machine.id();
        machine.go_down();
        machine.step(-HOUR);
        assert_eq!(machine.start_up(), 0);
        assert_eq!(machine.id().worker, worker);
        assert_eq!(machine.told(|event| matches!(event, Event::Rotated { .. })), 1);
        machine.go_down();
        machine.start_up();
        assert_eq!(machine.id().worker, worker, "the next start stays there");
    }
}

#[test]
fn neither_policy_goes_below_a_restored_mark() {
    for policy in [Policy::Hold, Policy::Replay] {
        let limits = Limits { policy, ..Limits::default() };
        let machine = Machine::alone(config("41/10/12", Tick::Millisecond, 0, 0, 16_384, limits));
        machine.start_up();
        machine.id();
        machine.pass(HOUR);
        machine.id();
        machine.go_down();
        let mark = machine.mark(0);
        machine.step(-5 * SECOND);
        machine.start_up();
        assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))), "{policy:?}");
        machine.pass(6 * SECOND);
        assert!(machine.id().tick > mark, "{policy:?}");
    }
}

#[test]
fn a_clock_that_goes_on_back_while_settling_does_not_keep_the_gate_shut() {
    let machine = crashed();
    machine.step(-2_400 * MS);
    machine.boot_up();
    assert!(matches!(machine.open(), Err(Unopened::Settling(_))));
    machine.step(-HOUR);
    machine.open().unwrap();
    assert_eq!(machine.id().worker, 256);
}

#[test]
fn a_start_whose_choice_cannot_be_written_stays_closed_and_opens_once_it_can() {
    for point in [Point::Open, Point::Write(0), Point::Write(1), Point::Sync(0), Point::Sync(1)] {
        let machine = crashed();
        let mark = machine.mark(0);
        let is_broken = move |at| if at == point { Fault::Fail(ENOSPC) } else { Fault::None };
        machine.disk.set_faults(is_broken);
        machine.boot_up();
        match machine.open() {
            Err(Unopened::Closed(ClosedReason::Os(ENOSPC))) => {
                assert_eq!(machine.try_id(), Err(Refusal::GateClosed))
            }
            Ok(()) | Err(Unopened::Settling(_)) => {}
            other => panic!("{other:?}"),
        }
        machine.disk.heal();
        machine.pass(SECOND);
        machine.settle();
        assert!(machine.id().tick > mark);
    }
}

// ---- Worker and backups changed

#[test]
fn a_worker_that_comes_back_goes_on_above_its_mark() {
    let home = |home| config("41/10/12", Tick::Millisecond, home, 7, 16_384, Limits::default());
    let machine = Machine::alone(home(3));
    machine.start_up();
    machine.pass(HOUR);
    let first = machine.id();
    machine.go_down();
    // The clock steps back meanwhile, so only the marks keep the workers above their earlier IDs.
    machine.step(-MS);
    let mut seen = vec![(first.worker, first.tick)];
    for worker in [5, 3, 7, 5, 3] {
        machine.set_config(home(worker));
        machine.start_up();
        let parts = machine.id();
        assert_eq!(parts.worker, worker);
        let before = seen.iter().filter(|(known, _)| *known == worker).map(|(_, tick)| *tick).max();
        assert!(before.is_none_or(|before| parts.tick > before));
        seen.push((parts.worker, parts.tick));
        machine.go_down();
    }
}

#[test]
fn a_worker_that_comes_back_after_the_clock_went_far_back_is_not_trusted_below_its_mark() {
    let home = |home| config("41/10/12", Tick::Millisecond, home, 0, 16_384, Limits::default());
    let machine = Machine::alone(home(3));
    machine.start_up();
    machine.pass(HOUR);
    let first = machine.id();
    machine.go_down();
    machine.step(-HOUR / 2);
    for worker in [5, 7] {
        machine.set_config(home(worker));
        machine.start_up();
        let _ = machine.try_id();
        machine.go_down();
    }
    machine.set_config(home(3));
    machine.start_up();
    assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))));
    assert!(machine.mark(3) >= first.tick);
}

#[test]
fn lanes_that_are_given_up_and_taken_back_keep_their_marks() {
    let machine = Machine::alone(with_backups(7));
    machine.start_up();
    machine.pass(HOUR);
    machine.id();
    // Lane 4 of 8 is worker 512, which is lane 1 of 2.
    for _ in 0..2 {
        machine.with(|generator| generator.rotate_now()).unwrap();
    }
    let parts = machine.id();
    assert_eq!(parts.worker, 512);
    machine.go_down();
    for backups in [1, 0, 3, 0, 7] {
        machine.set_config(with_backups(backups));
        machine.boot_up();
        let _ = machine.open();
        assert!(machine.mark(512) >= parts.tick, "{backups} backups");
        machine.go_down();
    }
}

#[test]
fn an_active_worker_that_is_no_longer_owned_gives_way_to_the_first_of_the_half() {
    let machine = Machine::alone(with_backups(7));
    machine.start_up();
    machine.with(|generator| generator.rotate_now()).unwrap();
    assert_eq!(machine.id().worker, 256);
    machine.go_down();
    machine.set_config(with_backups(1));
    machine.start_up();
    assert_eq!(machine.id().worker, 0);
}

// ---- 6. No file

#[test]
fn a_first_start_waits_until_its_ids_are_not_ahead_of_the_clock() {
    for restarted in [false, true] {
        let machine = Machine::alone(plain());
        let waited = if restarted {
            machine.boot_up();
            let _ = machine.open();
            machine.pass(SECOND);
            machine.go_down();
            machine.start_up() + SECOND
        } else {
            machine.start_up()
        };
        let expected = MAX_AHEAD + SECOND;
        assert!((expected..=expected + 2 * MS).contains(&waited), "{waited} us");
        let parts = machine.id();
        assert!(parts.tick > tick(NOON + MAX_AHEAD + SECOND));
        assert_eq!(parts.tick, tick(machine.wall()), "no ID is ahead because of the first start");
        let firsts = machine.told(|event| matches!(event, Event::Opened { is_first: true, worker: 0, .. }));
        assert_eq!(firsts, if restarted { 0 } else { 1 });
        // So a small step back is held.
        machine.step(-500 * MS);
        assert_eq!(machine.id().tick, parts.tick);
        machine.go_down();
        machine.start_up();
        assert_eq!(machine.told(|event| matches!(event, Event::Opened { is_first: true, .. })), 0);
    }
}

/// initdb and the first start saw a clock that was two hours ahead.
#[test]
fn a_floor_of_a_wrong_clock_is_told_from_a_clock_that_moved_and_can_be_lowered() {
    let machine = Machine::alone(plain());
    machine.step(2 * HOUR);
    machine.boot_up();
    let _ = machine.open();
    machine.go_down();
    machine.step(-2 * HOUR);
    machine.boot_up();
    machine.open().unwrap();
    let refused = |machine: &Machine| {
        let Err(Refusal::NoLane(no_lane)) = machine.try_id() else { panic!("no lane can be used") };
        no_lane
    };
    assert_eq!(refused(&machine).floor, Some(FloorCause::NoState));
    // Plain adopt does not lower.
    machine.adopt(machine.wall()).unwrap();
    assert_eq!(refused(&machine).floor, Some(FloorCause::NoState));
    machine.lower(machine.wall()).unwrap();
    let parts = machine.id();
    assert!(parts.tick <= tick(machine.wall() + MAX_AHEAD) + 1);
    for worker in (0..1_024).step_by(128) {
        assert!(machine.mark(worker) <= tick(machine.wall() + MAX_AHEAD + RESERVE) + 1, "{worker}");
    }
    machine.go_down();
    machine.start_up();
    assert!(machine.id().tick > parts.tick);

    // IDs were generated ahead of the clock, so the clock moved, whatever floor is above the other workers.
    machine.step(HOUR);
    machine.id();
    machine.go_down();
    machine.start_up();
    machine.id();
    machine.step(-HOUR);
    assert_eq!(machine.try_id().unwrap().worker, 256, "another worker, which was never ahead");
}

#[test]
fn marks_are_lowered_only_for_lanes_that_made_nothing_in_this_run() {
    let machine = crashed();
    machine.start_up();
    machine.step(2 * HOUR);
    let ahead = machine.id();
    let mark = machine.mark(0);
    machine.step(-2 * HOUR);
    machine.adopt(machine.wall() + HOUR).unwrap();
    machine.lower(machine.wall() - DAY).unwrap();
    assert_eq!(machine.mark(0), mark, "its ID of a time to come is respected");
    assert!(machine.mark(256) <= tick(machine.wall() - DAY + MAX_AHEAD));
    let parts = machine.id();
    assert_eq!((parts.worker, parts.tick), (256, tick(machine.wall())));
    machine.go_down();
    machine.start_up();
    machine.pass(2 * HOUR);
    machine.with(|generator| generator.rotate_now()).unwrap();
    machine.with(|generator| generator.rotate_now()).unwrap();
    machine.with(|generator| generator.rotate_now()).unwrap();
    let parts = machine.id();
    assert!(parts.worker == 0 && parts.tick > ahead.tick, "{parts:?} after {ahead:?}");
}

/// A call can generate its first ID while the lower marks are being written.
#[test]
fn the_mark_of_a_lane_that_can_make_ids_is_not_lowered() {
    let machine = crashed();
    machine.start_up();
    machine.with(|generator| generator.keep_up()).unwrap();
    let mark = machine.mark(0);
    assert!(mark > tick(machine.wall()), "it is reserved");
    machine.lower(machine.wall() - DAY).unwrap();
    assert_eq!(machine.mark(0), mark);
    assert!(machine.mark(256) < tick(machine.wall()));
    machine.id();
}

/// A call reads its permit, then the clock, then the frontier. If marks are lowered between any two of them, it must
/// not take the permit of the time before into the lowered ticks: its ID would lie above the mark, and a crash would
/// repeat it.
#[test]
fn a_call_that_straddles_a_lowering_of_the_marks_stays_below_its_mark() {
    for (policy, used, look) in [Policy::Hold, Policy::Replay]
        .into_iter()
        .flat_map(|policy| [false, true].map(|used| (policy, used)))
        .flat_map(|(policy, used)| (1..=6).map(move |look| (policy, used, look)))
    {
        let machine = crashed();
        machine.config.borrow_mut().limits.policy = policy;
        machine.start_up();
        if used {
            machine.id();
        }
        machine.adopt(machine.wall() + HOUR).unwrap();
        let (looks, twin) = (Cell::new(0), Rc::downgrade(&machine));
        *machine.meanwhile.borrow_mut() = Some(Rc::new(move |read: &dyn Fn()| {
            looks.set(looks.get() + 1);
            if looks.get() == look {
                // The operator's call looks at the clock, too.
                looks.set(100);
                let machine = twin.upgrade().expect("it runs");
                machine.lower(machine.wall() - MAX_AHEAD - 2 * MS).unwrap();
            }
            read();
        }));
        let straddled = machine.try_id();
        *machine.meanwhile.borrow_mut() = None;
        if let Ok(id) = straddled {
            let mark = machine.disk.lowest_mark(id.worker).unwrap();
            assert!(id.tick <= mark, "{policy:?}, used {used}, look {look}: {id:?} above {mark}");
        }
        machine.go_down();
        machine.start_up();
        if let Ok(id) = machine.try_id() {
            assert_ne!(Ok(id), straddled, "{policy:?}, used {used}, look {look}");
        }
    }
}

/// The lane's marks may go down to what a permit of this run has allowed, and no further.
#[test]
fn a_floor_that_was_a_mistake_gives_a_used_worker_back() {
    let machine = crashed();
    machine.start_up();
    let before = machine.id();
    let reserved = machine.mark(0);
    machine.adopt(machine.wall() + HOUR).unwrap();
    assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))));
    machine.lower(machine.wall() - DAY).unwrap();
    assert_eq!(machine.mark(0), reserved);
    machine.pass(SECOND);
    let after = machine.id();
    assert!(after.worker == before.worker && after.tick > reserved, "{before:?} {after:?}");
    machine.go_down();
    machine.start_up();
    assert!(machine.id().tick > after.tick);
}

#[test]
fn a_floor_of_the_future_holds_for_a_used_worker_too_if_marks_are_lowered() {
    for used in [false, true] {
        let machine = crashed();
        machine.start_up();
        if used {
            machine.id();
        }
        machine.lower(machine.wall() + HOUR).unwrap();
        let Err(Refusal::NoLane(no_lane)) = machine.try_id() else { panic!("below the floor") };
        assert_eq!(no_lane.usable_at_us, machine.wall() + HOUR + MS);
        machine.pass(HOUR + MS);
        assert_eq!(machine.id().tick, tick(machine.wall() + MAX_AHEAD));
    }
}

#[test]
fn a_first_start_that_is_asked_again_meanwhile_opens_no_sooner() {
    let machine = Machine::alone(plain());
    machine.boot_up();
    // After two of its three seconds, other lanes could be used within `max_ahead`.
    for _ in 0..29 {
        assert!(matches!(machine.open(), Err(Unopened::Settling(_))));
        machine.pass(100 * MS);
    }
    machine.settle();
    assert_eq!(machine.id().tick, tick(machine.wall()));
}

#[test]
fn a_first_start_with_a_long_max_ahead_waits_no_longer() {
    let limits = Limits { max_ahead_us: 600 * SECOND, ..Limits::default() };
    let machine = Machine::alone(config("41/10/12", Tick::Millisecond, 0, 7, 1 << 22, limits));
    assert!(machine.start_up() <= MAX_AHEAD + SECOND + 2 * MS);
    machine.id();
}

#[test]
fn marks_that_could_not_be_lowered_on_disk_stay() {
    let machine = crashed();
    machine.start_up();
    machine.adopt(machine.wall() + HOUR).unwrap();
    break_disk(&machine, 0, EIO, |_| true);
    assert_eq!(machine.lower(machine.wall()), Err(AdoptError::Closed(ClosedReason::Os(EIO))));
    assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_) | Refusal::NotDurable(_))));
    machine.disk.heal();
    machine.pass(SECOND);
    assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))));
    machine.lower(machine.wall()).unwrap();
    machine.id();
}

#[test]
fn a_floor_of_an_operator_and_of_a_new_timeline_are_told_apart() {
    let machine = crashed();
    machine.start_up();
    machine.adopt(machine.wall() + HOUR).unwrap();
    let Err(Refusal::NoLane(no_lane)) = machine.try_id() else { panic!("no lane can be used") };
    assert_eq!(no_lane.floor, Some(FloorCause::Operator));

    let machine = copied();
    machine.set_start(|start| {
        start.timeline = 3;
        start.replayed_us = Some(NOON + HOUR);
    });
    machine.start_up();
    let Err(Refusal::NoLane(no_lane)) = machine.try_id() else { panic!("no lane can be used") };
    assert_eq!(no_lane.floor, Some(FloorCause::NewTimeline));
}

#[test]
fn a_deleted_file_starts_above_the_clock_and_the_control_file() {
    for control_ahead in [-HOUR, 0, 500 * MS] {
        let machine = crashed();
        machine.disk.delete();
        let latest = machine.wall() + control_ahead.max(0);
        machine.set_start(|start| start.control_us = machine.wall() + control_ahead);
        machine.start_up();
        machine.pass(control_ahead.max(0) + SECOND);
        assert!(machine.id().tick > tick(latest + MAX_AHEAD + SECOND), "{control_ahead}");
    }
}

#[test]
fn a_deleted_file_and_a_clock_that_went_back_wait_for_the_control_files_time() {
    let machine = crashed();
    machine.disk.delete();
    machine.set_start(|start| start.control_us = NOON + 10 * SECOND);
    machine.step(-HOUR);
    machine.boot_up();
    machine.open().unwrap();
    let Err(Refusal::NoLane(no_lane)) = machine.try_id() else { panic!("no lane can be used") };
    machine.pass(no_lane.usable_at_us - machine.wall());
    assert!(machine.id().tick > tick(NOON + 10 * SECOND + MAX_AHEAD + SECOND));
}

#[test]
fn a_first_start_whose_file_cannot_be_made_stays_closed_and_opens_once_it_can() {
    for point in [Point::Make, Point::SyncNew, Point::Rename, Point::SyncFolder] {
        let machine = Machine::alone(plain());
        machine.disk.set_faults(move |at| if at == point { Fault::Fail(ENOSPC) } else { Fault::None });
        assert_eq!(machine.why_closed(), ClosedReason::Os(ENOSPC), "{point:?}");
        machine.disk.heal();
        machine.pass(SECOND);
        machine.settle();
        machine.id();
    }
}

// ---- 7. The choice is durable before the gate opens

#[test]
fn the_choice_of_a_start_is_durable_before_the_gate_opens() {
    let machine = crashed();
    machine.set_start(|start| start.timeline = 2);
    machine.boot_up();
    let _ = machine.open();
    let found = machine.disk.lowest(128).unwrap();
    assert_eq!((found.timeline, found.active), (2, 128));
}

// ---- Clean stop

#[test]
fn a_clean_stop_costs_the_next_start_nothing() {
    for policy in [Policy::Hold, Policy::Replay] {
        for (tick, bits, sequences) in
            [(Tick::Millisecond, "41/10/12", 4_096), (Tick::Second, "32/10/20", 1 << 20)]
        {
            let limits = Limits { policy, ..Limits::default() };
            let machine = Machine::alone(config(bits, tick, 0, 7, 16_384, limits));
            machine.start_up();
            machine.pass(10 * SECOND);
            machine.id();
            // IDs run ahead of the clock as far as they may.
            let latest = |machine: &Machine| (machine.wall() + MAX_AHEAD) / tick.micros();
            while machine.id().tick < latest(&machine) {
                let _ = machine.with(|generator| generator.next_range(sequences)).unwrap();
            }
            let last = machine.id();
            machine.stop();
            assert_eq!(machine.mark(0), last.tick, "exact marks");
            machine.boot_up();
            let waited = machine.settle();
            assert!(waited <= tick.micros(), "{policy:?} {tick}: {waited} us");
            let next = machine.id();
            assert!(next.tick > last.tick);
            assert_eq!(next.worker, last.worker, "{policy:?} {tick}");
        }
    }
}

#[test]
fn a_crash_with_ticks_of_a_second_settles_within_two_of_them() {
    let machine = Machine::alone(config("32/10/20", Tick::Second, 0, 7, 16_384, Limits::default()));
    machine.start_up();
    machine.pass(10 * SECOND);
    let last = machine.id();
    machine.with(|generator| generator.keep_up()).unwrap();
    machine.go_down();
    let waited = machine.start_up();
    assert!(waited <= 2 * SECOND, "{waited} us");
    let next = machine.id();
    assert!(next.tick > last.tick && next.worker == last.worker);
}

#[test]
fn the_first_ids_of_a_start_ahead_of_the_clock_wait_for_nothing_more() {
    let machine = Machine::alone(config("32/10/20", Tick::Second, 0, 7, 16_384, Limits::default()));
    machine.start_up();
    machine.go_down();
    // A third timeline starts above the clock.
    machine.set_start(|start| start.timeline = 3);
    machine.start_up();
    let begun = machine.boot.get();
    let ids: Vec<i64> = machine.with(|session| (0..100).map(|_| session.next_id().unwrap()).collect());
    let last = ids[99];
    assert_eq!(machine.boot.get(), begun);
    let layout = machine.config.borrow().layout;
    let Parts { tick, .. } = layout.unpack(last).unwrap();
    assert_eq!(tick, (machine.wall() + MAX_AHEAD) / SECOND, "the last tick that max_ahead allows");
}

#[test]
fn a_stop_before_the_gate_was_open_writes_nothing() {
    let machine = crashed();
    let before = machine.disk.slots();
    machine.boot_up();
    machine.with(|generator| generator.write_exact_marks()).unwrap();
    assert_eq!(machine.disk.slots(), before);

    let machine = copied();
    machine.why_closed();
    let before = machine.disk.slots();
    machine.with(|generator| generator.write_exact_marks()).unwrap();
    assert_eq!(machine.disk.slots(), before);
}

#[test]
fn an_idle_run_keeps_the_marks_it_found() {
    let machine = crashed();
    let mark = machine.mark(0);
    machine.start_up();
    machine.stop();
    assert_eq!(machine.mark(0), mark);
}

#[test]
fn a_day_ahead_stopped_and_started_with_the_true_time_goes_on_another_lane() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.step(DAY);
    machine.id();
    machine.stop();
    machine.step(-DAY);
    machine.pass(MS);
    machine.start_up();
    machine.pass(2 * SECOND);
    assert_eq!(machine.id().worker, 256);
    machine.pass(DAY);
    assert_eq!(machine.id().worker, 256);
}

// ---- The document

#[test]
fn each_slot_is_a_json_document_with_version_checksum_and_record() {
    let machine = crashed();
    for slot in machine.disk.slots().unwrap() {
        assert_eq!(slot.len(), SLOT_BYTES);
        let document: Value = serde_json::from_slice(&slot).unwrap();
        let keys: Vec<_> = document.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys.len(), 3);
        assert_eq!(document["version"], 1);
        assert_eq!(document["crc32c"].as_str().unwrap().len(), 8);
        let record = &document["record"];
        assert_eq!(record["system_identifier"], SYSTEM);
        assert_eq!(record["timeline"], 1);
        assert_eq!(record["active"], 0);
        assert_eq!(record["marks"].as_object().unwrap().len(), 8);
        assert_eq!(record["layout"]["bits"], "41/10/12");
        assert_eq!(record["layout"]["tick_ms"], 1);
        assert_eq!(record["layout"]["epoch_us"], 0);
        assert!(record["elsewhere"].is_i64() && record["generation"].is_u64());
        assert!(record["file"]["inode"].is_u64() && record["file"]["born_ns"].is_i64());
    }
}

#[test]
fn sixteen_lanes_with_the_longest_numbers_fit_a_slot() {
    let layout =
        Layout::new("41/5+5/12".parse().unwrap(), Tick::Millisecond, -62_135_596_800_000_000).unwrap();
    let workers = Workers::new(&layout, 1, 15).unwrap();
    let machine = Machine::alone(Config { layout, datacenter: 31, workers, ..plain() });
    machine.step(-NOON - 62_135_596_800_000_000 + (1 << 41) * MS - HOUR);
    machine.set_start(|start| {
        start.system_identifier = u64::MAX;
        start.timeline = u32::MAX;
        start.control_us = i64::MIN;
    });
    machine.start_up();
    machine.id();
    machine.go_down();
    machine.start_up();
    machine.id();
}
