//! Step 4 of a start: a new timeline.

#[path = "model/mod.rs"]
mod model;

use model::disk::EIO;
use model::fixtures::{MAX_AHEAD, Rewrite, break_disk, copied, crashed, plain, tick, with_backups};
use model::server::{DAY, HOUR, MS, SECOND, Server};
use model::tape::Tape;
use model::world::{Machine, NOON, SYSTEM, config};
use serde_json::Value;
use snowflake_core::{ClosedReason, Limits};
use snowflake_core::{Prepared, Refusal, Start, Tick, Unopened};
use std::rc::Rc;

/// Each server reads `max_ahead` from its own files.
#[test]
fn a_new_timeline_starts_above_what_was_made_under_the_longer_max_ahead_of_its_primary() {
    let limits = |max_ahead_us| Limits { max_ahead_us, ..Limits::default() };
    let with = |max_ahead_us| config("41/10/12", Tick::Millisecond, 0, 0, 1 << 18, limits(max_ahead_us));
    for lowered_since in [false, true] {
        let primary = Machine::alone(with(60 * SECOND));
        primary.start_up();
        // As far ahead as it may run.
        let highest = loop {
            primary.with(|generator| generator.next_range(4_096)).unwrap();
            let highest = primary.with(|generator| generator.frontier());
            if highest > tick(primary.wall() + 50 * SECOND) {
                break highest;
            }
        };
        if lowered_since {
            primary.with(|generator| generator.set_limits(limits(2 * SECOND)));
            primary.with(|generator| generator.keep_up()).unwrap();
        }
        let standby = Machine::alone(with(2 * SECOND));
        standby.step(primary.wall() - standby.wall());
        standby.disk.put(primary.disk.slots().unwrap());
        standby.set_start(|start| {
            *start = Start { system_identifier: SYSTEM, ..Start::of_timeline(2) };
            start.replayed_us = Some(primary.wall());
        });
        standby.boot_up();
        let _ = standby.open();
        let reached = if lowered_since { highest } else { tick(primary.wall() + 60 * SECOND) };
        assert!(standby.mark(0) >= reached, "{} < {reached}", standby.mark(0));
        assert!(matches!(standby.try_id(), Err(Refusal::NoLane(_))), "the clock has not come to it");
    }
}

/// Otherwise a backup could be taken with the old `max_ahead`, because the next reservation may be far off.
#[test]
fn a_longer_max_ahead_is_recorded_by_the_next_round_of_the_keeper() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.id();
    machine.with(|generator| generator.keep_up()).unwrap();
    machine.with(|generator| generator.set_limits(Limits { max_ahead_us: 4 * SECOND, ..Limits::default() }));
    machine.with(|generator| generator.keep_up()).unwrap();
    let written = machine.disk.changes();
    for slot in machine.disk.slots().unwrap() {
        let document: Value = serde_json::from_slice(&slot).unwrap();
        assert_eq!(document["record"]["max_ahead_us"], 4 * SECOND);
    }
    machine.with(|generator| generator.keep_up()).unwrap();
    assert_eq!(machine.disk.changes(), written, "once");
}

/// The row of a prepared transaction is committed after the promotion, and its ID may be the newest of all.
#[test]
fn a_new_timeline_starts_above_the_transactions_that_were_prepared_before_it() {
    let promoted = || {
        let machine = copied();
        machine.set_config(with_backups(0));
        machine.step(-40 * SECOND);
        machine.set_start(|start| {
            start.timeline = 2;
            start.replayed_us = Some(NOON - HOUR);
            start.prepared = Prepared::Unread;
        });
        machine
    };
    let read = |machine: &Machine| machine.set_start(|start| start.prepared = Prepared::Read(Some(NOON)));
    let is_above = |machine: &Machine| {
        let reached = tick(NOON + MAX_AHEAD);
        assert!(machine.mark(0) >= reached, "{} < {reached}", machine.mark(0));
        machine.pass(45 * SECOND);
        machine.settle();
        assert!(machine.id().tick > reached);
    };

    let machine = promoted();
    machine.boot_up();
    assert_eq!(machine.open(), Err(Unopened::PreparedUnread));
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    read(&machine);
    let _ = machine.open();
    is_above(&machine);

    // Prepared under a longer `max_ahead`, which the record names, even if the start is written before they are read.
    for crashes in [false, true] {
        let machine = promoted();
        machine.rewrite_both(|document| document["record"]["max_ahead_us"] = (60 * SECOND).into());
        machine.boot_up();
        assert_eq!(machine.open(), Err(Unopened::PreparedUnread));
        if crashes {
            machine.go_down();
            machine.set_start(|start| start.timeline_before = 2);
            machine.boot_up();
            assert_eq!(machine.open(), Err(Unopened::PreparedUnread));
        }
        read(&machine);
        let _ = machine.open();
        assert!(machine.mark(0) >= tick(NOON + 60 * SECOND), "{}", machine.mark(0));
    }

    // The server crashes before a session has read them; the next start still has to.
    let machine = promoted();
    machine.boot_up();
    assert_eq!(machine.open(), Err(Unopened::PreparedUnread));
    machine.go_down();
    machine.set_start(|start| start.timeline_before = 2);
    machine.boot_up();
    assert_eq!(machine.open(), Err(Unopened::PreparedUnread));
    read(&machine);
    let _ = machine.open();
    is_above(&machine);

    // They are read, but the raised marks cannot be written: the next attempt still knows of them.
    let machine = promoted();
    machine.boot_up();
    assert_eq!(machine.open(), Err(Unopened::PreparedUnread));
    read(&machine);
    break_disk(&machine, 0, EIO, |_| true);
    for _ in 0..3 {
        assert_eq!(machine.open(), Err(Unopened::Closed(ClosedReason::Os(EIO))));
        machine.pass(SECOND);
    }
    machine.disk.heal();
    machine.pass(SECOND);
    let _ = machine.open();
    is_above(&machine);

    // There are none, so only the replayed WAL is waited for.
    let machine = promoted();
    machine.set_start(|start| start.prepared = Prepared::Read(None));
    assert!(machine.start_up() <= SECOND + MS);
}

#[test]
fn the_second_timeline_starts_at_once_on_lane_1_whatever_the_clock_was() {
    let machine = copied();
    machine.step(-DAY);
    machine.set_start(|start| {
        start.timeline = 2;
        start.replayed_us = Some(NOON + HOUR);
    });
    let waited = machine.start_up();
    let parts = machine.id();
    assert_eq!(parts.worker, 128);
    assert_eq!(waited, 0);
}

/// Found by the chaos program: the clock was a day ahead at the last transactions, and the primary had another worker
/// by then than when the standby was created. Only lanes of the other half were used, under either worker.
#[test]
fn a_second_timeline_with_another_worker_starts_at_once_on_its_half_too() {
    let machine = copied();
    machine.set_config(config("41/10/12", Tick::Millisecond, 5, 7, 16_384, Limits::default()));
    machine.set_start(|start| {
        start.timeline = 2;
        start.replayed_us = Some(NOON + DAY);
    });
    assert_eq!(machine.start_up(), 0);
    assert_eq!(machine.id().worker, 5 + 128);
}

/// With another number of lanes, its half may overlap the first timeline's.
#[test]
fn a_second_timeline_that_counts_lanes_otherwise_starts_above_what_was_replayed() {
    let machine = copied();
    machine.set_config(with_backups(3));
    machine.set_start(|start| {
        start.timeline = 2;
        start.replayed_us = Some(NOON + HOUR);
    });
    machine.boot_up();
    machine.open().unwrap();
    for worker in [0, 256, 512, 768] {
        assert!(machine.mark(worker) >= tick(NOON + HOUR + MAX_AHEAD), "{worker}");
    }
}

/// A fleet was stopped and given other settings, and later its first ones again. Its standby saw both, and knows no more
/// of its primary than the base backup says.
#[test]
fn a_second_timeline_whose_standby_ran_with_other_settings_meanwhile_starts_above_what_was_replayed() {
    let longer = Limits { max_ahead_us: 4 * SECOND, ..Limits::default() };
    let machine = copied();
    let stands_by = |machine: &Machine| {
        machine.boot_up();
        let start = Start { was_in_recovery: true, timeline_before: 1, ..machine.start.get() };
        machine.with(|generator| generator.note_standby(&start)).unwrap();
    };
    stands_by(&machine);
    machine.set_config(config("41/10/12", Tick::Millisecond, 0, 3, 16_384, longer));
    stands_by(&machine);
    let written = machine.disk.changes();
    stands_by(&machine);
    assert_eq!(machine.disk.changes(), written, "once");
    machine.set_config(plain());
    stands_by(&machine);
    machine.set_start(|start| {
        start.timeline = 2;
        start.replayed_us = Some(NOON + HOUR);
    });
    machine.boot_up();
    machine.open().unwrap();
    for worker in (0..1_024).step_by(128) {
        assert!(machine.mark(worker) >= tick(NOON + HOUR + 4 * SECOND), "{worker}");
    }
}

/// `max_ahead` was longer on all servers, until a reload.
#[test]
fn a_promoted_server_respects_the_longest_max_ahead_since_its_start() {
    let machine = copied();
    machine.set_config(with_backups(0));
    machine.boot_up();
    for max_ahead_us in [4 * SECOND, MAX_AHEAD] {
        let limits = Limits { max_ahead_us, ..Limits::default() };
        machine.with(|generator| generator.set_limits(limits));
    }
    machine.set_start(|start| {
        start.timeline = 2;
        start.replayed_us = Some(NOON + HOUR);
        start.prepared = Prepared::Unread;
    });
    assert_eq!(machine.open(), Err(Unopened::PreparedUnread));
    assert!(machine.mark(0) >= tick(NOON + HOUR + 4 * SECOND), "{}", machine.mark(0));
    // What was prepared, too.
    machine.set_start(|start| start.prepared = Prepared::Read(Some(NOON + 2 * HOUR)));
    let _ = machine.open();
    assert!(machine.mark(0) >= tick(NOON + 2 * HOUR + 4 * SECOND), "{}", machine.mark(0));
}

/// Found by the chaos program: the first timeline had rotated to worker 256, and a standby had replayed that and was
/// promoted. With fewer backup workers it then owned that worker, with the mark of the base backup.
#[test]
fn a_worker_of_the_other_half_that_a_later_setting_brings_in_starts_above_what_was_replayed() {
    let machine = copied();
    machine.set_start(|start| {
        start.timeline = 2;
        start.replayed_us = Some(NOON + HOUR);
    });
    machine.start_up();
    machine.id();
    machine.go_down();
    machine.set_config(with_backups(3));
    machine.start_up();
    assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))));
    machine.pass(HOUR + 2 * SECOND);
    let parts = machine.id();
    assert!([256, 768].contains(&parts.worker), "the half of the second timeline");
    assert!(parts.tick > tick(NOON + HOUR + MAX_AHEAD), "{parts:?}");
}

/// With halves, the third timeline uses lanes that the first has used.
#[test]
fn the_third_timeline_starts_above_what_was_replayed() {
    let machine = copied();
    machine.step(-10 * SECOND);
    machine.set_start(|start| {
        start.timeline = 3;
        start.replayed_us = Some(NOON);
    });
    machine.boot_up();
    machine.open().unwrap();
    for lane in [0, 2, 4, 6] {
        assert!(machine.mark(lane * 128) >= tick(NOON + MAX_AHEAD), "lane {lane}");
    }
    let Err(Refusal::NoLane(no_lane)) = machine.try_id() else { panic!("no lane can be used yet") };
    machine.pass(no_lane.usable_at_us - machine.wall());
    assert!(machine.id().tick > tick(NOON + MAX_AHEAD));
    assert_eq!(machine.lane() % 2, 0);
}

#[test]
fn a_third_timeline_that_replayed_no_commit_goes_by_the_control_file() {
    let machine = copied();
    machine.set_start(|start| {
        start.timeline = 3;
        start.control_us = NOON + 20 * SECOND;
    });
    machine.boot_up();
    machine.open().unwrap();
    assert!(machine.mark(2 * 128) >= tick(NOON + 20 * SECOND + MAX_AHEAD));
}

#[test]
fn without_halves_the_second_timeline_starts_above_what_was_replayed() {
    for backups in 0..3 {
        let machine = Machine::alone(with_backups(backups));
        machine.start_up();
        machine.id();
        machine.go_down();
        machine.set_start(|start| {
            start.timeline = 2;
            start.replayed_us = Some(NOON + 20 * SECOND);
        });
        machine.boot_up();
        machine.open().unwrap();
        let stride = 1_024 / (backups as i64 + 1);
        for lane in 0..=backups as i64 {
            assert!(machine.mark(lane * stride) >= tick(NOON + 20 * SECOND + MAX_AHEAD), "{backups} {lane}");
        }
        machine.pass(30 * SECOND);
        assert_eq!(machine.id().worker, (1 % (backups as i64 + 1)) * stride);
    }
}

#[test]
fn a_floor_of_a_new_timeline_never_lowers_a_mark() {
    let machine = crashed();
    let mark = machine.mark(0);
    machine.set_start(|start| {
        start.timeline = 3;
        start.replayed_us = Some(NOON - DAY);
    });
    machine.start_up();
    assert!(machine.mark(0) >= mark);
}

/// A base backup from before the first ID has no state at all, but the timeline tells that IDs may have been generated
/// since.
#[test]
fn a_promoted_server_without_a_file_respects_what_was_replayed_too() {
    for (backups, timeline) in [(0, 2), (2, 2), (7, 3)] {
        let machine = Machine::alone(with_backups(backups));
        machine.step(-HOUR);
        machine.set_start(|start| {
            start.timeline = timeline;
            start.control_us = NOON - HOUR;
            start.replayed_us = Some(NOON);
        });
        machine.boot_up();
        let _ = machine.open();
        assert!(machine.mark(0) >= tick(NOON + MAX_AHEAD), "{backups} backups, timeline {timeline}");
    }
}

/// IDs that the old primary generated but did not replicate lie after the last replayed commit. If the clocks agree,
/// they do not lie after this clock.
#[test]
fn a_new_timeline_on_used_lanes_starts_above_its_own_clock_too() {
    let old = Machine::alone(with_backups(0));
    old.start_up();
    old.id();
    let new = Machine::new(with_backups(0), &old.boot, old.disk.copy(&Rc::new(Tape::given(vec![], 0)), 500));
    new.set_start(|start| {
        start.timeline = 2;
        start.replayed_us = Some(old.wall());
    });
    // Replication stops. The old primary goes on at full speed, so its IDs run ahead of its clock.
    old.pass(3 * SECOND);
    let mut highest = old.id();
    while highest.tick < tick(old.wall() + MAX_AHEAD) {
        old.with(|generator| generator.next_range(4_096)).unwrap();
        highest = old.id();
    }
    old.go_down();
    new.start_up();
    let parts = new.id();
    assert!(parts.tick > highest.tick, "{parts:?} could be {highest:?} again");
}

/// Since the copy was made, the old primary may have used other workers, which the copy does not know.
#[test]
fn a_worker_that_the_copy_does_not_know_starts_above_what_was_replayed() {
    let old = Machine::alone(config("41/10/12", Tick::Millisecond, 128, 0, 16_384, Limits::default()));
    old.start_up();
    let tape = Rc::new(Tape::given(vec![], 0));
    let new = Machine::new(plain(), &old.boot, old.disk.copy(&tape, 500));
    old.pass(HOUR);
    let id = old.id();
    // The whole fleet changes to worker 0 with 7 backup workers; then the standby, whose clock lags, takes over.
    new.step(-HOUR / 2);
    new.set_start(|start| {
        start.timeline = 2;
        start.replayed_us = Some(old.wall());
    });
    new.boot_up();
    let _ = new.open();
    assert!(new.mark(128) >= id.tick, "worker 128 is lane 1 now, and was the old primary's home");
}
