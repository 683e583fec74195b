//! A start: what a user sees of it, and the rules in `state/start.rs`. Rule 1 is in `reservation.rs`, 5 in
//! `locks.rs`, 7 in `leasing.rs`, 8 in `adopt.rs`.

use crate::simulation::basics::start_on;
use crate::simulation::disk::{EIO, ENOSPC, Fault, Point};
use crate::simulation::fixtures::{
    MAX_AHEAD, RESERVE, Rewrite, clone_of, copied, crashed, is_opened_first, other_layouts, plain, promote,
    run_ahead, tick, with_backups, with_max_ahead, with_worker,
};
use crate::simulation::server::{DAY, HOUR, MINUTE, MS, SECOND, Server};
use crate::simulation::world::{Machine, NOON, SYSTEM, config};
use serde_json::Value;
use snowflake_core::platform::{FileIdentity, SLOT_BYTES, SLOTS};
use snowflake_core::{AdoptError, ClosedReason, Config, Event, Layout, Limits, NoLane, Policy};
use snowflake_core::{NotOpen, Parts, Refusal, Start, Tick, Workers};
use std::cell::Cell;
use std::rc::Rc;

/// The wait of rule 4, where the clock stands at the beginning of a tick.
const RULE_4_WAIT: i64 = SECOND + MS;

// ---- What a user sees, row by row

#[test]
fn clean_stop_and_start_wait_for_a_tick_at_most() {
    for (policy, reboots) in [(Policy::Hold, false), (Policy::Hold, true), (Policy::Replay, false)] {
        for (tick, bits) in [(Tick::Millisecond, "41/10/12"), (Tick::Second, "32/10/20")] {
            let limits = Limits { policy, ..Limits::default() };
            let machine = Machine::alone(config(bits, tick, 0, 7, 16_384, limits));
            machine.start_up();
            machine.pass(10 * SECOND);
            run_ahead(&machine);
            let last = machine.id();
            let before = machine.disk.said().unwrap();
            machine.stop();
            let case = format!("{policy:?} {tick} {reboots}");
            let said = machine.disk.said().unwrap();
            assert_eq!(said.marks[&0], (last.tick + 1) * tick.micros(), "{case}: exact marks");
            assert_eq!(said.marks[&128], before.marks[&128], "{case}: without an ID");
            if reboots {
                machine.disk.host_lock.forget();
            }
            let latest = (machine.wall() + MAX_AHEAD) / tick.micros();
            let waited = machine.start_up();
            assert!(waited <= tick.micros(), "{case}: {waited} us");
            let next = machine.id();
            assert_eq!(
                (next.worker, next.tick),
                (last.worker, latest + 1),
                "{case}: max_ahead ahead of the clock"
            );
        }
    }
}

#[test]
fn crash_in_a_burst_waits_half_a_second_less_the_downtime() {
    for max_ahead_us in [0, MAX_AHEAD, 60 * SECOND] {
        for downtime in [0, 200 * MS, SECOND] {
            let machine = Machine::alone(with_max_ahead(max_ahead_us));
            machine.start_up();
            machine.pass(2 * MINUTE);
            run_ahead(&machine);
            machine.keep();
            let last = machine.id();
            machine.go_down();
            machine.pass(downtime);
            let waited = machine.start_up();
            let longest = (RESERVE - downtime).max(0) + 2 * MS;
            assert!(waited <= longest, "{max_ahead_us} {downtime}: {waited} us");
            let next = machine.id();
            assert!(next.worker == 0 && next.tick > last.tick, "{next:?} after {last:?}");
        }
    }
}

/// A container that crashes each half second.
#[test]
fn crashes_in_a_row_use_up_no_lane() {
    let machine = Machine::alone(plain());
    machine.start_up();
    for round in 0..20 {
        assert_eq!(machine.id().worker, 0, "round {round}");
        run_ahead(&machine);
        machine.keep();
        machine.go_down();
        machine.boot_up();
        let Err(NotOpen::Settling(micros)) = machine.open() else { panic!("the mark is ahead") };
        assert!(micros <= RESERVE + 2 * MS, "{micros} us");
        assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
        machine.pass(micros - 1);
        assert_eq!(machine.open(), Err(NotOpen::Settling(1)));
        machine.pass(1);
        machine.open().unwrap();
        assert_eq!(machine.told(|event| matches!(event, Event::Rotated { .. })), 0);
    }
}

#[test]
fn first_start_waits_for_a_second_and_a_tick() {
    for max_ahead_us in [0, MAX_AHEAD, 600 * SECOND] {
        let machine = Machine::alone(with_max_ahead(max_ahead_us));
        assert_eq!(machine.start_up(), RULE_4_WAIT);
        assert_eq!(machine.id().tick, tick(NOON + max_ahead_us + SECOND) + 1);
        assert_eq!(machine.told(is_opened_first), 1);
        assert_eq!(machine.told(|event| *event == Event::Unreadable), 0);
    }
    // Ticks of a second begin with the second.
    let machine = Machine::alone(config("32/10/20", Tick::Second, 0, 7, 16_384, Limits::default()));
    machine.step(300 * MS);
    assert_eq!(machine.start_up(), 1_700 * MS);
    machine.id();
}

#[test]
fn promotion_waits_for_a_second_and_a_tick() {
    // A restore to a point in time has the files of a copy, a promoted standby its own or a copy's.
    for machine in [crashed(), copied(), Machine::alone(plain())] {
        promote(&machine, 2);
        assert_eq!(machine.start_up(), RULE_4_WAIT);
        assert!(machine.with(|generator| generator.status()).open);
        assert_eq!(machine.id().worker, 128);
    }
}

#[test]
fn another_worker_waits_for_a_second_and_a_tick() {
    let machine = crashed();
    for home in [5, 0, 5] {
        machine.set_config(with_worker(home));
        assert_eq!(machine.start_up(), RULE_4_WAIT, "{home}");
        assert_eq!(machine.id().worker, home);
        machine.pass(HOUR);
        machine.stop();
        assert!(machine.start_up() <= MS, "{home} is its own now");
        machine.stop();
    }
}

/// A file that was written over with other bytes stays the same file.
#[test]
fn state_put_back_in_place_waits_for_nothing_and_repeats_nothing() {
    for (reboots, is_in_burst) in [(false, false), (true, true), (false, true)] {
        let machine = crashed();
        machine.start_up();
        let (snapshot, identity) = (machine.disk.slots().unwrap(), machine.disk.identity().unwrap());
        machine.pass(HOUR);
        machine.id();
        if is_in_burst {
            run_ahead(&machine);
        }
        let last = machine.id();
        machine.go_down();
        machine.disk.put_as(snapshot, identity);
        if reboots {
            machine.disk.host_lock.forget();
        }
        assert!(machine.start_up() <= MS);
        let next = machine.id();
        assert!(next.worker == 0 && next.tick > last.tick, "{next:?} after {last:?}");
    }
}

#[test]
fn copy_stays_closed_until_it_is_adopted() {
    let machine = copied();
    let before = machine.disk.slots();
    assert_eq!(machine.why_closed(), ClosedReason::Copied);
    machine.pass(HOUR);
    assert_eq!(machine.open(), Err(NotOpen::Closed(ClosedReason::Copied)), "time does not heal it");
    assert_eq!(machine.why_closed(), ClosedReason::Copied, "nor does another start");
    assert_eq!(machine.disk.slots(), before);
    assert!(machine.with(|generator| generator.lane_statuses()).iter().all(|lane| !lane.active));
    machine.adopt(machine.wall()).unwrap();
    assert!(machine.mark(9) > tick(machine.wall()), "of a worker without a lane");
    assert_eq!(machine.settle(), RULE_4_WAIT);
    machine.id();
    machine.go_down();
    machine.start_up();
    machine.id();
}

#[test]
fn copy_opens_under_another_worker() {
    let machine = copied();
    let identity = machine.disk.identity();
    machine.set_config(with_worker(5));
    assert_eq!(machine.start_up(), RULE_4_WAIT);
    assert_eq!(machine.id().worker, 5);
    assert_ne!(machine.disk.identity(), identity, "with a file of its own");
    machine.go_down();
    machine.start_up();
    assert_eq!(machine.id().worker, 5);
}

#[test]
fn promotion_under_a_clock_ahead_is_refused_until_that_time() {
    let promoted = || {
        let machine = copied();
        machine.step(HOUR);
        promote(&machine, 2);
        machine.start_up();
        let last = machine.id();
        machine.step(-HOUR);
        assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))), "rule 4 holds for all lanes");
        machine.go_down();
        machine.set_start(|start| start.made_timeline = false);
        machine.start_up();
        (machine, last)
    };
    let (machine, last) = promoted();
    let Err(Refusal::NoLane(NoLane { usable_at_us, .. })) = machine.try_id() else { panic!("a later start") };
    machine.pass(usable_at_us - machine.wall());
    let next = machine.id();
    assert!(next.tick >= last.tick && next != last, "{next:?} after {last:?}");

    let (machine, _) = promoted();
    machine.set_config(with_worker(5));
    machine.go_down();
    assert_eq!(machine.start_up(), RULE_4_WAIT);
    assert!(machine.id().tick <= tick(machine.wall() + MAX_AHEAD));
}

// ---- Rule 2: above the clock

#[test]
fn run_begins_above_its_mark_and_above_the_clock_and_max_ahead() {
    for mark_ahead in [-HOUR, MAX_AHEAD + 400 * MS] {
        let machine = crashed();
        let wall = machine.wall();
        machine.rewrite_both(|document| document["record"]["marks"]["0"] = (wall + mark_ahead).into());
        machine.start_up();
        let least = tick(wall + mark_ahead.max(MAX_AHEAD));
        assert!((least..=least + 1).contains(&machine.id().tick), "{mark_ahead}");
    }
}

/// The lane that the run begins with is not the only one of which a put back state has too low a mark.
#[test]
fn lane_entered_later_begins_above_the_starts_clock_too() {
    let machine = crashed();
    machine.start_up();
    let (snapshot, identity) = (machine.disk.slots().unwrap(), machine.disk.identity().unwrap());
    machine.pass(10 * SECOND);
    machine.with(|generator| generator.rotate_now()).unwrap();
    run_ahead(&machine);
    let last = machine.id();
    machine.go_down();
    machine.disk.put_as(snapshot, identity);
    let waited = machine.start_up();
    assert_eq!(machine.id().worker, 0);
    machine.step(-waited);
    assert!(machine.with(|generator| generator.rotate_now()).is_err(), "at the very clock of the start");
    machine.step(waited);
    machine.with(|generator| generator.rotate_now()).unwrap();
    let next = machine.id();
    assert!(next.worker == last.worker && next.tick > last.tick, "{next:?} after {last:?}");
}

/// Another server may have used the state while this one waited for the lock or for the disk.
#[test]
fn clock_is_read_after_the_record() {
    let machine = crashed();
    let (twin, is_first) = (Rc::downgrade(&machine), Cell::new(true));
    machine.disk.set_faults(move |point| {
        if point == Point::Load && is_first.replace(false) {
            twin.upgrade().expect("it runs").pass(HOUR);
        }
        Fault::None
    });
    let begun = machine.wall();
    machine.start_up();
    assert!(machine.id().tick > tick(begun + HOUR + MAX_AHEAD));
}

#[test]
fn recorded_max_ahead_counts_if_it_is_longer() {
    for (recorded, configured) in [(60 * SECOND, MAX_AHEAD), (MAX_AHEAD, 60 * SECOND)] {
        let machine = Machine::alone(with_max_ahead(recorded));
        machine.start_up();
        machine.pass(HOUR);
        run_ahead(&machine);
        let last = machine.id();
        // As in a state that was put back: the marks are from before the last IDs.
        machine.rewrite_both(|document| document["record"]["marks"]["0"] = NOON.into());
        machine.go_down();
        machine.set_config(with_max_ahead(configured));
        let wall = machine.wall();
        assert!(machine.start_up() <= MS, "the longer one is in force for calls");
        let next = machine.id();
        assert!(next.tick > last.tick, "{next:?} after {last:?}");
        assert_eq!(next.tick, tick(wall + 60 * SECOND) + 1);
    }
}

#[test]
fn neither_policy_goes_below_the_begin_of_a_lane() {
    for policy in [Policy::Hold, Policy::Replay] {
        let limits = Limits { policy, ..Limits::default() };
        let machine = Machine::alone(config("41/10/12", Tick::Millisecond, 0, 0, 16_384, limits));
        machine.start_up();
        machine.pass(HOUR);
        machine.id();
        machine.go_down();
        let begin = tick(machine.wall() + MAX_AHEAD) + 1;
        machine.start_up();
        machine.pass(4 * SECOND);
        machine.id();
        machine.step(-5 * SECOND);
        assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))), "{policy:?}");
        machine.pass(4 * SECOND);
        assert!(machine.id().tick >= begin, "{policy:?}");
    }
}

#[test]
fn mark_within_the_longest_wait_is_waited_for_and_a_later_one_rotates() {
    let limit = 2 * SECOND + MS;
    for (beyond, worker) in [(0, 0), (1, 256)] {
        let machine = crashed();
        let starts_at = (machine.mark(0) + 1) * MS;
        machine.step(starts_at - MAX_AHEAD - limit - beyond - machine.wall());
        assert_eq!(machine.start_up(), if beyond == 0 { limit } else { 0 });
        machine.pass(MS);
        assert_eq!(machine.id().worker, worker, "{beyond} us beyond");
    }
}

// ---- Rule 3: a clock that went back

/// A time service corrects the clock right after the boot.
#[test]
fn clock_corrected_after_a_start_goes_on_with_a_backup_worker() {
    for generates in [false, true] {
        let machine = crashed();
        machine.step(HOUR);
        machine.start_up();
        if generates {
            machine.id();
        }
        machine.step(-HOUR);
        let parts = machine.id();
        assert_eq!((parts.worker, parts.tick), (256, tick(machine.wall())));
        assert_eq!(machine.told(|event| matches!(event, Event::Rotated { .. })), 1);
    }
}

#[test]
fn clock_that_went_far_back_while_stopped_rotates() {
    let machine = crashed();
    machine.step(-HOUR);
    assert!(machine.start_up() <= MS);
    assert_eq!(machine.told(|event| matches!(event, Event::Opened { is_first: false, .. })), 1);
    machine.pass(MS);
    assert_eq!(machine.id().worker, 256);
    machine.go_down();
    machine.start_up();
    assert_eq!(machine.id().worker, 256, "the next start stays there");
}

#[test]
fn clock_that_goes_on_back_during_the_wait_does_not_keep_the_gate_shut() {
    let machine = crashed();
    machine.step(-400 * MS);
    machine.boot_up();
    assert!(matches!(machine.open(), Err(NotOpen::Settling(_))));
    machine.step(-HOUR);
    machine.open().unwrap();
    assert_eq!(machine.id().worker, 256);
}

// ---- Rule 4: a state that cannot be the newest

/// Layouts with different ticks and epochs, so that mixing up units is noticed.
fn layouts() -> impl Iterator<Item = Config> {
    [("41/10/12", Tick::Millisecond), ("38/10/15", Tick::Centisecond), ("32/10/21", Tick::Second)]
        .into_iter()
        .flat_map(|(bits, tick)| [(bits, tick, 0), (bits, tick, 1_704_067_200_000_000)])
        .map(|(bits, tick, epoch_us)| {
            let layout = Layout::new(bits.parse().unwrap(), tick, epoch_us).unwrap();
            Config { layout, ..config(bits, tick, 0, 7, 16_384, Limits::default()) }
        })
}

/// Makes the state one that cannot be the newest.
type Outdate = fn(&Machine);

const OUTDATED: [(&str, Outdate); 9] = [
    ("no file", |machine| machine.disk.delete()),
    ("unreadable", |machine| {
        machine.disk.scribble(0, Vec::clear);
        machine.disk.scribble(1, Vec::clear);
    }),
    ("no marks", |machine| machine.rewrite_both(|document| document["record"]["marks"] = 0.into())),
    ("an earlier timeline", |machine| {
        machine.rewrite_both(|document| document["record"]["timeline"] = 3.into());
    }),
    ("promoted", |machine| promote(machine, 2)),
    ("a promoted copy", |machine| {
        machine.disk.put(machine.disk.slots().unwrap());
        promote(machine, 2);
    }),
    // Two copies that are restored make the same timeline, if they do not see each other's history.
    ("a copy that makes the recorded timeline", |machine| {
        machine.disk.put(machine.disk.slots().unwrap());
        promote(machine, 1);
    }),
    ("another server's timeline", |machine| machine.set_start(|start| start.timeline = 2)),
    ("another worker", |machine| {
        let layout = machine.config.borrow().layout;
        machine.config.borrow_mut().workers = Workers::new(&layout, 5, 7).unwrap();
    }),
];

#[test]
fn outdated_state_begins_above_clock_and_replay_on_all_lanes() {
    for config in layouts() {
        for (name, outdate) in OUTDATED {
            for replayed in [None, Some(-HOUR), Some(0), Some(SECOND), Some(HOUR)] {
                let machine = Machine::alone(config);
                machine.step(-HOUR);
                machine.start_up();
                machine.step(HOUR);
                machine.id();
                machine.go_down();
                machine.step(-10 * SECOND);
                outdate(&machine);
                let wall = machine.wall();
                machine.set_start(|start| start.replayed_us = replayed.map(|ahead| wall + ahead));
                machine.boot_up();
                let opened = machine.open();
                let tick = config.layout.tick();
                let case = format!("{name}, {tick} from {}, {replayed:?}", config.layout.epoch_us());
                let latest = wall + replayed.unwrap_or(0).max(0);
                let said = machine.disk.lowest(0).unwrap();
                let workers = machine.config.borrow().workers;
                for worker in (0..8).map(|lane| workers.worker(lane)) {
                    let begins = said.marks[&worker];
                    let least = latest + MAX_AHEAD + SECOND;
                    // Ten seconds ago the clock was ten seconds ahead, and lane 0 has a mark of that time.
                    let most = least + tick.micros() + if worker == 0 { 15 * SECOND } else { 0 };
                    assert!((least..=most).contains(&begins), "{case}: worker {worker} {}", begins - least);
                }
                let is_soon = replayed.is_none_or(|ahead| ahead <= SECOND) && workers.worker(0) != 0;
                assert!(!is_soon || matches!(opened, Err(NotOpen::Settling(_))), "{case}: {opened:?}");
            }
        }
    }
}

/// The newest state of the worker was lost, and then the clock was set back: the marks are durable.
#[test]
fn marks_of_rule_4_outlive_the_start() {
    for (name, outdate) in OUTDATED {
        let machine = crashed();
        outdate(&machine);
        machine.step(HOUR);
        machine.boot_up();
        let _ = machine.open();
        machine.go_down();
        machine.set_start(|start| start.made_timeline = false);
        machine.step(-HOUR);
        machine.start_up();
        assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))), "{name}");
    }
}

#[test]
fn crash_within_the_second_of_rule_4_is_a_plain_start() {
    for (name, outdate) in OUTDATED {
        let machine = crashed();
        outdate(&machine);
        machine.boot_up();
        let _ = machine.open();
        machine.pass(400 * MS);
        machine.go_down();
        machine.set_start(|start| start.made_timeline = false);
        assert_eq!(machine.start_up(), RULE_4_WAIT - 400 * MS, "{name}");
        assert_eq!(machine.told(is_opened_first), 0, "{name}");
        assert_eq!(machine.told(|event| *event == Event::Unreadable), 0, "{name}");
        machine.id();
    }
}

#[test]
fn start_that_is_asked_again_meanwhile_opens_no_sooner() {
    let machine = Machine::alone(plain());
    machine.boot_up();
    for _ in 0..10 {
        assert!(matches!(machine.open(), Err(NotOpen::Settling(_))));
        assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
        machine.pass(100 * MS);
    }
    assert_eq!(machine.settle(), MS);
    machine.id();
    assert_eq!(machine.with(|generator| generator.status()).counts.refusals, 0);
}

/// The control file's times are whole seconds, rounded up, so right after `initdb` its checkpoint is ahead of the
/// clock.
#[test]
fn first_start_after_initdb_waits_and_refuses_no_call() {
    for ahead in [0, SECOND / 2, SECOND] {
        let machine = Machine::alone(plain());
        machine.set_start(|start| start.replayed_us = Some(NOON + ahead));
        assert_eq!(machine.start_up(), ahead + RULE_4_WAIT);
        assert_eq!(machine.id().worker, 0);
    }
}

/// More backup workers than before.
#[test]
fn lane_missing_in_the_record_begins_by_rule_4_alone() {
    let machine = Machine::alone(with_backups(3));
    machine.start_up();
    machine.pass(HOUR);
    machine.id();
    machine.stop();
    let before = machine.disk.said().unwrap();
    machine.set_config(with_backups(7));
    let wall = machine.wall();
    assert!(machine.start_up() <= MS, "nothing waits for it");
    let said = machine.disk.said().unwrap();
    for worker in [256, 512, 768] {
        assert_eq!(said.mark(worker), before.mark(worker), "{worker}");
    }
    for worker in [128, 384, 640, 896] {
        assert_eq!(said.mark(worker), tick(wall + MAX_AHEAD + SECOND), "{worker}");
    }
    // A clock that went back does not lead below.
    machine.id();
    for worker in [256, 512, 768] {
        machine.step(-MINUTE);
        assert_eq!(machine.id().worker, worker);
    }
    machine.step(-MINUTE);
    assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))));
}

#[test]
fn active_worker_that_is_no_longer_owned_falls_under_rule_4() {
    let machine = Machine::alone(with_backups(7));
    machine.start_up();
    machine.with(|generator| generator.rotate_now()).unwrap();
    assert_eq!(machine.id().worker, 256);
    machine.pass(HOUR);
    machine.go_down();
    machine.set_config(with_backups(1));
    assert_eq!(machine.start_up(), RULE_4_WAIT);
    assert_eq!(machine.id().worker, 0);
}

/// IDs that the old primary did not replicate lie after the last replayed commit, and not after this clock.
#[test]
fn promoted_server_begins_above_what_was_not_replicated() {
    for is_behind in [false, true] {
        let old = Machine::alone(with_backups(0));
        old.start_up();
        old.pass(HOUR);
        let new = clone_of(&old, false);
        new.disk.host_lock.forget();
        new.set_start(|start| start.replayed_us = Some(new.wall()));
        // Replication stops. The old primary goes on at full speed, so that its IDs run ahead of its clock.
        old.pass(3 * SECOND);
        run_ahead(&old);
        let last = old.id();
        old.go_down();
        // Clocks of two hosts differ by less than a second.
        new.step(if is_behind { 1 - SECOND } else { 0 });
        promote(&new, 2);
        new.start_up();
        let next = new.id();
        assert!(next.tick > last.tick, "{next:?} after {last:?}");
    }
}

#[test]
fn timeline_begins_on_its_lane_and_goes_on_there() {
    for (timeline, lane) in [(2, 1), (3, 2), (8, 7), (9, 0), (12, 3)] {
        let machine = copied();
        promote(&machine, timeline);
        machine.start_up();
        assert_eq!(machine.id().worker, lane * 128, "timeline {timeline}");
        let said = machine.disk.said().unwrap();
        assert_eq!((said.timeline, said.active), (timeline.into(), Some(lane * 128)));
        machine.go_down();
        machine.set_start(|start| start.made_timeline = false);
        machine.start_up();
        assert_eq!(machine.id().worker, lane * 128, "timeline {timeline}, restarted");
        machine.step(-HOUR);
        machine.pass(2 * HOUR);
        assert_eq!(machine.with(|generator| generator.rotate_now()), Ok((lane + 2) % 8 * 128));
    }
}

// ---- Rule 6: a copy

#[test]
fn inode_or_time_of_birth_alone_tells_a_copy() {
    for field in ["inode", "born_ns"] {
        let machine = crashed();
        machine.rewrite_both(|document| {
            let known = document["record"]["file"][field].as_i64().unwrap();
            document["record"]["file"][field] = (known + 1).into();
        });
        assert_eq!(machine.why_closed(), ClosedReason::Copied, "{field}");
    }
}

/// pg_resetwal and pg_createsubscriber change the system identifier in place.
#[test]
fn state_of_another_cluster_is_a_copy() {
    let machine = crashed();
    machine.set_start(|start| start.system_identifier += 1);
    assert_eq!(machine.why_closed(), ClosedReason::Copied);
    machine.adopt(machine.wall()).unwrap();
    machine.settle();
    machine.id();
    machine.go_down();
    machine.start_up();
    machine.id();
}

/// It is a server's own from then on, with the marks of its original.
#[test]
fn copy_that_ran_under_another_worker_takes_the_originals_by_rule_4() {
    let machine = copied();
    machine.set_config(with_worker(5));
    machine.start_up();
    machine.id();
    let mark = machine.mark(0);
    machine.go_down();
    machine.set_config(with_worker(0));
    assert_eq!(machine.start_up(), RULE_4_WAIT);
    assert!(machine.id().tick > mark);
}

/// Linux 4.11, or a newer file system, begins to report times of birth.
#[test]
fn file_system_that_begins_to_report_times_of_birth_makes_no_copy() {
    let machine = crashed();
    machine.rewrite_both(|document| document["record"]["file"]["born_ns"] = 0.into());
    machine.start_up();
    machine.id();
    let born_ns = machine.disk.identity().unwrap().born_ns;
    for slot in machine.disk.slots().unwrap() {
        let document: Value = serde_json::from_slice(&slot).unwrap();
        assert_eq!(document["record"]["file"]["born_ns"], born_ns, "from now on it is known");
    }
    machine.go_down();
    machine.rewrite_both(|document| document["record"]["file"]["born_ns"] = (born_ns + 1).into());
    assert_eq!(machine.why_closed(), ClosedReason::Copied, "another time of birth is another file");
}

#[test]
fn file_system_that_reports_no_time_of_birth_any_more_makes_a_copy() {
    let machine = crashed();
    let slots = machine.disk.slots().unwrap();
    let inode = machine.disk.identity().unwrap().inode;
    machine.disk.put_as(slots, FileIdentity { inode, born_ns: 0 });
    assert_eq!(machine.why_closed(), ClosedReason::Copied);
}

// ---- A clock outside the layout

/// Marks of such a clock would outlive its correction.
#[test]
fn clock_outside_the_layout_writes_nothing() {
    let end = config("41/10/12", Tick::Millisecond, 0, 7, 16_384, Limits::default()).layout.ends_at_us();
    for (wall, refusal) in [
        (-HOUR, Refusal::BeforeEpoch(HOUR)),
        (-1, Refusal::BeforeEpoch(1)),
        (end, Refusal::Exhausted),
        (end + DAY, Refusal::Exhausted),
    ] {
        for machine in [Machine::alone(plain()), crashed(), copied()] {
            let slots = machine.disk.slots();
            let step = wall - machine.wall();
            machine.step(step);
            machine.boot_up();
            assert_eq!(machine.open(), Err(NotOpen::Clock(refusal)));
            assert_eq!(machine.adopt(0), Err(AdoptError::NotOpen(NotOpen::Clock(refusal))));
            assert!(machine.try_id().is_err());
            assert_eq!(machine.disk.slots(), slots);
            assert_eq!(machine.disk.host_lock.held(), [0; 0]);
            machine.step(-step);
            let _ = machine.adopt(machine.wall());
            machine.settle();
            machine.id();
        }
    }
}

// ---- Marks are times

#[test]
fn another_layout_begins_above_the_times_of_the_marks() {
    for (name, other) in other_layouts() {
        let machine = crashed();
        machine.start_up();
        run_ahead(&machine);
        let last = machine.id();
        machine.go_down();
        let ends_at = machine.disk.said().unwrap().marks[&0];
        machine.set_config(other);
        machine.start_up();
        let layout = other.layout;
        let next = machine.id();
        assert!(layout.starts_at(next.tick) >= ends_at, "{name}: {next:?} after {last:?}");
        machine.stop();
        // And back again.
        let used_until = layout.starts_at(next.tick + 1);
        machine.set_config(plain());
        machine.pass(20 * MS);
        machine.start_up();
        assert!(machine.id().tick * MS >= used_until, "{name}");
    }
}

// ---- What can be read

#[test]
fn whole_file_opens_above_its_mark_on_its_lane() {
    let machine = crashed();
    let mark = machine.mark(0);
    machine.start_up();
    let parts = machine.id();
    assert!(parts.tick > mark, "guarantee 3");
    assert_eq!(parts.worker, 0);
    let first_us = parts.tick * MS;
    let opened = Event::Opened { timeline: 1, worker: 0, lane: 0, home: 0, first_us, is_first: false };
    assert_eq!(machine.told(|event| *event == opened), 1);
}

#[test]
fn newer_of_two_slots_counts_in_either_place() {
    for newer in 0..SLOTS {
        let machine = crashed();
        machine.step(-SECOND);
        let mark = machine.mark(0);
        let bytes = machine.disk.slots().unwrap()[machine.disk.newest_slot().unwrap()].clone();
        (0..SLOTS).for_each(|slot| machine.disk.scribble(slot, |it| it.clone_from(&bytes)));
        machine.rewrite(1 - newer, |document| {
            let generation = document["record"]["generation"].as_u64().unwrap();
            document["record"]["generation"] = (generation - 1).into();
            document["record"]["marks"]["0"] = (mark * MS - DAY).into();
        });
        machine.start_up();
        let parts = machine.id();
        assert!(parts.worker == 0 && parts.tick > mark);
    }
}

/// Makes a slot unreadable.
type Ruin = fn(&mut Vec<u8>);

const RUIN: [(&str, Ruin); 7] = [
    ("torn", |bytes| bytes[60..].fill(b'?')),
    ("truncated", |bytes| bytes.truncate(100)),
    ("empty", Vec::clear),
    ("zero-filled", |bytes| bytes.fill(0)),
    ("one bit of a mark", |bytes| {
        let at = String::from_utf8_lossy(bytes).find("\"marks\":{\"0\":").unwrap() + 15;
        bytes[at] ^= 1;
    }),
    ("a version without its checksum", |bytes| {
        let at = String::from_utf8_lossy(bytes).find("\"version\":1").unwrap() + 10;
        bytes[at] = b'9';
    }),
    ("one digit of the checksum", |bytes| {
        let at = String::from_utf8_lossy(bytes).find("\"crc32c\":\"").unwrap() + 10;
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    }),
];

#[test]
fn file_without_a_readable_slot_is_reported_and_falls_under_rule_4() {
    for (name, ruin) in RUIN {
        for (other_name, other_ruin) in RUIN {
            let machine = crashed();
            machine.disk.scribble(0, ruin);
            machine.disk.scribble(1, other_ruin);
            let wall = machine.wall();
            assert_eq!(machine.start_up(), RULE_4_WAIT, "{name}, {other_name}");
            assert_eq!(machine.told(|event| *event == Event::Unreadable), 1);
            assert_eq!(machine.id().tick, tick(wall + MAX_AHEAD + SECOND) + 1);
        }
    }
}

#[test]
fn ruined_slot_is_made_good_by_the_other() {
    for (name, ruin) in RUIN {
        for slot in 0..SLOTS {
            let machine = crashed();
            let is_newest = machine.disk.newest_slot() == Some(slot);
            let above = if is_newest { tick(machine.wall() + MAX_AHEAD) } else { machine.mark(0) };
            machine.disk.scribble(slot, ruin);
            assert!(machine.start_up() <= RESERVE + MS);
            assert!(machine.id().tick > above, "{name} in slot {slot}");
            assert_eq!(machine.told(|event| *event == Event::Unreadable), 0);
            let slots = machine.disk.slots().unwrap();
            assert!(
                slots.iter().all(|bytes| serde_json::from_slice::<Value>(bytes).is_ok()),
                "both are whole"
            );
        }
    }
}

#[test]
fn slot_of_a_later_version_closes_even_beside_a_whole_one() {
    for slot in 0..SLOTS {
        let machine = crashed();
        machine.rewrite(slot, |document| document["version"] = 2.into());
        let before = machine.disk.slots();
        let why = ClosedReason::NewerVersion(2);
        assert_eq!(machine.why_closed(), why);
        assert_eq!(machine.adopt(machine.wall()), Err(AdoptError::NotOpen(NotOpen::Closed(why))));
        assert_eq!(machine.disk.slots(), before);
    }
}

#[test]
fn file_that_cannot_be_read_closes_and_is_tried_again_once_a_second() {
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
    assert_eq!(machine.open(), Err(NotOpen::Closed(ClosedReason::Os(EIO))));
    assert_eq!(loads.get(), 1);
    machine.pass(1);
    assert_eq!(machine.open(), Err(NotOpen::Closed(ClosedReason::Os(EIO))));
    assert_eq!(loads.get(), 2);
    machine.disk.heal();
    machine.pass(SECOND);
    machine.settle();
    machine.id();
}

// ---- What is written

#[test]
fn start_whose_choice_cannot_be_written_opens_once_it_can() {
    for point in [Point::Open, Point::Write(0), Point::Write(1), Point::Sync(0), Point::Sync(1)] {
        let machine = crashed();
        let mark = machine.mark(0);
        let is_broken = move |at| if at == point { Fault::Fail(ENOSPC) } else { Fault::None };
        machine.disk.set_faults(is_broken);
        machine.boot_up();
        match machine.open() {
            Err(NotOpen::Closed(ClosedReason::Os(ENOSPC))) => {
                assert_eq!(machine.try_id(), Err(Refusal::GateClosed))
            }
            Ok(()) | Err(NotOpen::Settling(_)) => {}
            other => panic!("{other:?}"),
        }
        machine.disk.heal();
        machine.pass(SECOND);
        machine.settle();
        assert!(machine.id().tick > mark);
    }
}

#[test]
fn first_start_whose_file_cannot_be_made_opens_once_it_can() {
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

#[test]
fn choice_of_a_start_is_durable_before_the_gate_opens() {
    let machine = crashed();
    promote(&machine, 2);
    machine.boot_up();
    let _ = machine.open();
    let found = machine.disk.lowest(128).unwrap();
    assert_eq!((found.timeline, found.active), (2, Some(128)));
}

#[test]
fn stop_before_the_gate_was_open_writes_nothing() {
    let machine = Machine::alone(plain());
    machine.boot_up();
    machine.with(|generator| generator.write_exact_marks()).unwrap();
    assert_eq!(machine.disk.slots(), None);
    assert!(matches!(machine.open(), Err(NotOpen::Settling(_))));
    let before = machine.disk.slots();
    machine.with(|generator| generator.write_exact_marks()).unwrap();
    assert_eq!(machine.disk.slots(), before);

    let machine = copied();
    machine.why_closed();
    let before = machine.disk.slots();
    machine.with(|generator| generator.write_exact_marks()).unwrap();
    assert_eq!(machine.disk.slots(), before);
}

#[test]
fn first_ids_after_a_start_ahead_of_the_clock_wait_for_nothing_more() {
    let machine = Machine::alone(config("32/10/20", Tick::Second, 0, 7, 16_384, Limits::default()));
    machine.start_up();
    let begun = machine.boot.get();
    let ids: Vec<i64> = machine.with(|session| (0..100).map(|_| session.next_id().unwrap()).collect());
    assert_eq!(machine.boot.get(), begun);
    let layout = machine.config.borrow().layout;
    let Parts { tick, .. } = layout.unpack(ids[99]).unwrap();
    assert_eq!(tick, (machine.wall() + MAX_AHEAD) / SECOND, "the last tick that max_ahead allows");
}

#[test]
fn slot_is_a_json_document_with_version_checksum_and_record() {
    let machine = crashed();
    for slot in machine.disk.slots().unwrap() {
        assert_eq!(slot.len(), SLOT_BYTES);
        let document: Value = serde_json::from_slice(&slot).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&document), ["crc32c", "record", "version"]);
        assert_eq!(document["version"], 1);
        assert_eq!(document["crc32c"].as_str().unwrap().len(), 8);
        let record = &document["record"];
        let mut expected =
            ["generation", "system_identifier", "file", "timeline", "active", "max_ahead_us"].to_vec();
        expected.extend(["marks", "floor_us", "token"]);
        expected.sort();
        assert_eq!(keys(record), expected, "without a registry");
        assert_eq!(record["system_identifier"], SYSTEM);
        assert_eq!(record["timeline"], 1);
        assert_eq!(record["active"], 0);
        assert_eq!(record["max_ahead_us"], MAX_AHEAD);
        assert_eq!(record["marks"].as_object().unwrap().len(), 8);
        assert!(record["floor_us"].is_i64() && record["generation"].is_u64());
        assert!(record["file"]["inode"].is_u64() && record["file"]["born_ns"].is_i64());
    }
}

/// 16 lanes, and 48 workers of earlier settings.
#[test]
fn most_workers_with_the_longest_numbers_fit_a_slot() {
    let epoch_us = -62_135_596_800_000_000;
    let layout = Layout::new("41/5+5/12".parse().unwrap(), Tick::Millisecond, epoch_us).unwrap();
    let machine = Machine::alone(plain());
    machine.step(epoch_us + layout.max_tick() * MS - DAY - NOON);
    machine.set_start(|start| {
        *start = Start { system_identifier: u64::MAX, ..start_on(u32::MAX) };
    });
    for (datacenter, home) in [(31, 1), (31, 0), (30, 1), (30, 0), (29, 1)] {
        let workers = Workers::new(&layout, home, 15).unwrap();
        machine.set_config(Config { layout, datacenter, workers, ..plain() });
        machine.start_up();
        machine.id();
        machine.go_down();
    }
    assert_eq!(machine.disk.said().unwrap().marks.len(), 64);
}
