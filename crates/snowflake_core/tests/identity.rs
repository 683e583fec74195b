//! Step 3 of a start: whose state it is. Copies, states that were put back, and standbys.

#[path = "model/mod.rs"]
mod model;

use model::disk::{EIO, ENOSPC, Fault, Point, Power};
use model::fixtures::{
    MAX_AHEAD, Rewrite, break_disk, copied, crashed, other_layouts, plain, tick, with_backups,
};
use model::server::{HOUR, MS, SECOND, Server};
use model::world::{Machine, NOON, SYSTEM, config};
use serde_json::Value;
use snowflake_core::host::{Claim, FileIdentity, SLOTS};
use snowflake_core::{ClosedReason, Config, Event, Limits};
use snowflake_core::{Start, Tick, Unopened, Workers};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

fn with_worker(home: i64) -> Config {
    config("41/10/12", Tick::Millisecond, home, 7, 16_384, Limits::default())
}

// ---- 3. Whose state it is

#[test]
fn the_state_of_another_cluster_closes() {
    let machine = crashed();
    machine.set_start(|start| start.system_identifier += 1);
    assert_eq!(machine.why_closed(), ClosedReason::Foreign(SYSTEM));
    machine.set_start(|start| start.timeline = 2);
    assert_eq!(machine.why_closed(), ClosedReason::Foreign(SYSTEM), "also on another timeline");
}

#[test]
fn a_copy_of_the_directory_on_the_same_timeline_stays_closed() {
    let machine = copied();
    let before = machine.disk.slots();
    assert_eq!(machine.why_closed(), ClosedReason::Copied);
    machine.pass(HOUR);
    assert_eq!(machine.open(), Err(Unopened::Closed(ClosedReason::Copied)), "time does not heal it");
    assert_eq!(machine.why_closed(), ClosedReason::Copied, "nor does another start");
    assert_eq!(machine.disk.slots(), before);
}

#[test]
fn the_inode_alone_and_the_time_of_birth_alone_tell_a_copy() {
    for field in ["inode", "born_ns"] {
        let machine = crashed();
        machine.rewrite_both(|document| {
            let known = document["record"]["file"][field].as_i64().unwrap();
            document["record"]["file"][field] = (known + 1).into();
        });
        assert_eq!(machine.why_closed(), ClosedReason::Copied, "{field}");
    }
}

#[test]
fn a_copy_on_a_new_timeline_opens_and_is_made_anew_with_an_identity_of_its_own() {
    let machine = copied();
    machine.set_start(|start| start.timeline = 2);
    let identity = machine.disk.identity();
    machine.start_up();
    assert_eq!(machine.id().worker, 128);
    assert_ne!(machine.disk.identity(), identity);
    machine.go_down();
    machine.start_up();
    assert_eq!(machine.id().worker, 128, "from now on it is this server's own");
}

/// The hint for a copy is to adopt it, or to configure another worker.
#[test]
fn a_copy_opens_under_a_worker_that_its_original_does_not_own() {
    let machine = copied();
    machine.set_config(config("41/10/12", Tick::Millisecond, 5, 7, 16_384, Limits::default()));
    machine.start_up();
    assert_eq!(machine.id().worker, 5);
    machine.go_down();
    machine.start_up();
    assert_eq!(machine.id().worker, 5);
}

/// Linux 4.11, or a newer file system, begins to report times of birth.
#[test]
fn a_file_system_that_begins_to_tell_times_of_birth_makes_no_copy() {
    let machine = crashed();
    machine.rewrite_both(|document| document["record"]["file"]["born_ns"] = 0.into());
    machine.start_up();
    machine.id();
    let told = machine.disk.identity().unwrap().born_ns;
    for slot in machine.disk.slots().unwrap() {
        let document: Value = serde_json::from_slice(&slot).unwrap();
        assert_eq!(document["record"]["file"]["born_ns"], told, "from now on it is known");
    }
    machine.go_down();
    machine.rewrite_both(|document| document["record"]["file"]["born_ns"] = (told + 1).into());
    assert_eq!(machine.why_closed(), ClosedReason::Copied, "another time of birth is another file");
}

#[test]
fn a_file_system_that_tells_no_time_of_birth_any_more_is_not_trusted() {
    let machine = crashed();
    let slots = machine.disk.slots().unwrap();
    let inode = machine.disk.identity().unwrap().inode;
    machine.disk.put_as(slots, FileIdentity { inode, born_ns: 0, directory: (2, 2_000) });
    assert_eq!(machine.why_closed(), ClosedReason::Copied);
}

// ---- 3. A state that was put back, or stands beside its original

/// The server's last ID, after a snapshot of its file that it has outlived by a record; it has crashed since.
fn outlived() -> (Rc<Machine>, [Vec<u8>; SLOTS], i64) {
    let machine = crashed();
    machine.start_up();
    let snapshot = machine.disk.slots().unwrap();
    machine.pass(SECOND);
    let last = machine.id().tick;
    machine.go_down();
    (machine, snapshot, last)
}

/// Puts the snapshot into the file, which stays the same.
fn roll_back(machine: &Machine, snapshot: [Vec<u8>; SLOTS]) {
    machine.disk.put_as(snapshot, machine.disk.identity().unwrap());
}

#[test]
fn a_state_that_was_put_back_stays_closed_until_it_is_adopted_whatever_crashes_meanwhile() {
    let (machine, snapshot, last) = outlived();
    roll_back(&machine, snapshot);
    for _ in 0..2 {
        assert_eq!(machine.why_closed(), ClosedReason::PutBack);
        machine.go_down();
    }
    // A server that crashes while it is adopted is as far as before, or adopted.
    for point in [Point::Make, Point::Rename, Point::SyncFolder] {
        let slots = machine.disk.slots().unwrap();
        machine.boot_up();
        machine.disk.set_faults(move |at| if at == point { Fault::Fail(EIO) } else { Fault::None });
        let adopted = machine.adopt(machine.wall());
        machine.disk.heal();
        machine.go_down();
        assert!(adopted.is_err());
        if machine.disk.slots().unwrap() == slots {
            assert_eq!(machine.why_closed(), ClosedReason::PutBack);
            machine.go_down();
        }
    }
    machine.boot_up();
    let _ = machine.adopt(machine.wall());
    machine.settle();
    assert!(machine.id().tick > last);
    machine.stop();
    machine.start_up();
}

#[test]
fn a_state_that_was_put_back_before_a_reboot_goes_on_above_the_clock_on_the_same_lane() {
    // A crash between the reboot and the first record is another first start of the boot.
    for point in [None, Some(Point::Make), Some(Point::WriteAgain)] {
        let (machine, snapshot, last) = outlived();
        roll_back(&machine, snapshot);
        machine.disk.witness.forget();
        machine.boot_up();
        if let Some(point) = point {
            machine
                .disk
                .set_faults(move |at| if at == point { Fault::Down(Power::Server) } else { Fault::None });
            let _ = catch_unwind(AssertUnwindSafe(|| machine.open()));
            machine.disk.heal();
            machine.go_down();
            machine.boot_up();
        }
        assert!((1..=SECOND + MS).contains(&machine.settle()), "{point:?}");
        let parts = machine.id();
        assert!(parts.tick > last && parts.tick > (machine.wall() + SECOND) / MS);
        assert_eq!(machine.lane(), 0);
        // The other workers stay usable if this clock was wrong.
        let said = machine.disk.said().unwrap();
        assert!(said.marks.values().filter(|mark| **mark > machine.wall() / MS).count() == 1, "{said:?}");
    }
}

#[test]
fn a_state_beside_a_running_original_stays_closed_and_another_worker_opens_it() {
    let machine = crashed();
    machine.disk.witness.beside.replace(Some(vec![0]));
    assert_eq!(machine.why_closed(), ClosedReason::Beside);
    machine.go_down();
    let other = Workers::new(&plain().layout, 1, plain().workers.lanes() - 1).unwrap();
    machine.config.borrow_mut().workers = other;
    machine.start_up();
}

/// A clone that was first started while its original was down, with a number of its own as the manual says.
#[test]
fn a_clone_with_a_worker_of_its_own_does_not_keep_its_original_from_starting() {
    let machine = crashed();
    let own = machine.disk.said().unwrap().marks.keys().map(|worker| worker + 1).collect();
    machine.disk.witness.beside.replace(Some(own));
    machine.start_up();
}

/// A clone takes the number of its original, which was ahead of the clock, or its original takes the clone's.
#[test]
fn a_worker_that_the_server_did_not_use_last_begins_above_what_another_may_have_generated() {
    let machine = crashed();
    for home in [1, 0] {
        machine.set_config(with_worker(home));
        let latest = tick(machine.wall() + MAX_AHEAD);
        machine.start_up();
        assert!(machine.id().tick > latest, "worker {home}");
        machine.pass(HOUR);
        machine.stop();
        assert_eq!(machine.start_up(), 0, "worker {home} is its own now");
        machine.stop();
    }
}

/// Neither life nor record tells: the original was adopted since, or has written nothing since the host was booted, or
/// the state of the copy was lost.
#[test]
fn a_server_stays_closed_beside_one_that_has_claimed_a_worker_that_its_timeline_may_use() {
    let claim = |worker| Some(Claim::new(SYSTEM, None, vec![1_000, worker]));
    for deleted in [false, true] {
        let machine = crashed();
        if deleted {
            machine.disk.delete();
        }
        machine.disk.witness.forget();
        machine.disk.witness.of_others.replace(claim(768));
        assert_eq!(machine.why_closed(), ClosedReason::Beside);
        assert!(machine.adopt(machine.wall()).is_err(), "nor does an operator open it");
        assert_eq!(*machine.disk.witness.claimed.borrow(), None, "it would keep its original from starting");
        machine.pass(SECOND);
        machine.disk.witness.of_others.take();
        machine.settle();
        machine.go_down();
        // That of another server, of the other half, of another cluster.
        for other in [claim(769), claim(896), Some(Claim::new(SYSTEM + 1, None, vec![768]))] {
            machine.disk.witness.of_others.replace(other);
            machine.start_up();
            machine.go_down();
        }
    }
}

#[test]
fn a_server_claims_its_workers_before_it_writes() {
    let machine = crashed();
    machine.boot_up();
    machine.disk.set_faults(|at| if at == Point::Load { Fault::None } else { Fault::Fail(EIO) });
    machine.open().unwrap_err();
    let expected = Claim::new(SYSTEM, None, vec![768]);
    assert!(machine.disk.witness.claimed.borrow().as_ref().is_some_and(|claim| claim.meets(&expected)));
}

/// Somebody has deleted the witness while no ID was generated.
#[test]
fn a_witness_that_is_reminded_knows_the_last_record() {
    let reminded = || {
        let machine = crashed();
        machine.start_up();
        let snapshot = machine.disk.slots().unwrap();
        machine.pass(SECOND);
        machine.id();
        machine.disk.witness.forget();
        machine.disk.witness.claimed.take();
        machine.with(|generator| generator.remind_witness());
        machine.go_down();
        (machine, snapshot)
    };
    let (machine, _) = reminded();
    assert!(machine.disk.witness.claimed.borrow().is_some());
    assert_eq!(machine.start_up(), 0, "the record was the last one");
    let (machine, snapshot) = reminded();
    roll_back(&machine, snapshot);
    assert_eq!(machine.why_closed(), ClosedReason::PutBack);
}

#[test]
fn a_disk_that_another_server_holds_is_not_even_read_and_is_taken_as_soon_as_it_is_free() {
    let machine = crashed();
    machine.disk.is_taken.set(true);
    machine.disk.set_faults(|_| panic!("the disk is touched"));
    assert_eq!(machine.why_closed(), ClosedReason::Taken);
    assert!(machine.adopt(machine.wall()).is_err());
    machine.disk.is_taken.set(false);
    machine.disk.heal();
    assert_eq!(machine.settle(), 0);
}

/// What is put over the file of a run names the file of another.
#[test]
fn every_start_and_every_clean_stop_makes_a_new_file_where_it_can() {
    let machine = crashed();
    let identity = || machine.disk.identity().unwrap();
    let mut before = identity();
    let mut is_new = || std::mem::replace(&mut before, identity()) != identity();
    machine.start_up();
    assert!(is_new(), "a start");
    machine.stop();
    assert!(is_new(), "a stop");
    machine.disk.set_faults(|point| if point == Point::Make { Fault::Fail(ENOSPC) } else { Fault::None });
    machine.start_up();
    let last = machine.id().tick;
    machine.stop();
    assert!(!is_new(), "on a full disk");
    assert_eq!(machine.mark(0), last, "exact marks");
    machine.start_up();
}

/// Records that were announced and not confirmed may be in the file: the run's own, not those of a copy.
#[test]
fn writes_that_failed_before_a_crash_do_not_look_like_a_state_that_was_put_back() {
    let machine = crashed();
    for failing in [Point::Sync(0), Point::Sync(1)] {
        machine.start_up();
        machine.disk.set_faults(move |at| {
            if at == failing || at == Point::Make { Fault::Fail(EIO) } else { Fault::None }
        });
        for _ in 0..3 {
            machine.pass(2 * SECOND);
            let _ = machine.try_id();
        }
        machine.go_down();
        machine.disk.heal();
        machine.start_up();
        machine.id();
        machine.go_down();
    }
}

// ---- 3. Standbys that were started without a promotion

/// A start on a timeline that another server began: the control file says that the directory had reached it before.
fn as_a_follower(start: &mut Start, timeline: u32) {
    (start.timeline, start.timeline_before, start.was_in_recovery) = (timeline, timeline, true);
}

/// The next start of a server that was in recovery and then ran without.
fn after_recovery(start: &mut Start) {
    start.was_in_recovery = false;
}

/// A standby does not write its file, so that names the timeline of the base backup.
#[test]
fn a_standby_that_has_followed_a_failover_and_is_started_beside_its_primary_stays_closed() {
    for timeline in [2, 3, 6] {
        // With a file that was copied from the primary, and with its own: that of the first primary, after a
        // switchover.
        for machine in [copied(), crashed()] {
            let mark = machine.mark(0);
            machine.set_start(|start| as_a_follower(start, timeline));
            assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(timeline));
            machine.set_start(after_recovery);
            assert_eq!(
                machine.why_closed(),
                ClosedReason::NotPromoted(timeline),
                "nor does it open at the second start"
            );
            assert_eq!(machine.mark(0), mark);
        }
    }
}

#[test]
fn a_standby_that_has_followed_a_failover_opens_when_it_is_promoted() {
    for machine in [copied(), crashed()] {
        machine.set_start(|start| {
            as_a_follower(start, 2);
            start.timeline = 3;
        });
        machine.start_up();
        machine.id();
    }
}

/// A former primary that was killed soon after it began to follow. Its control file does not name its successor's
/// timeline yet, and its state file is its own.
#[test]
fn an_old_primary_that_was_in_recovery_stays_closed_on_its_own_timeline_too() {
    let machine = crashed();
    let mark = machine.mark(0);
    machine.set_start(|start| as_a_follower(start, 1));
    assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(1));
    assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(1));
    machine.set_start(after_recovery);
    assert_eq!(
        machine.why_closed(),
        ClosedReason::NotPromoted(1),
        "the next start finds what the first has left"
    );
    assert_eq!(machine.mark(0), mark);
    machine.set_start(|start| (start.timeline, start.timeline_before) = (3, 2));
    machine.start_up();
    assert_eq!(machine.id().worker, 256, "promoted later, it is a primary as any");
}

/// A backup from before the first ID has no file, so a standby created from it has none.
#[test]
fn a_standby_without_a_file_that_is_started_beside_its_primary_stays_closed_for_good() {
    let machine = Machine::alone(plain());
    machine.set_start(|start| as_a_follower(start, 1));
    assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(1));
    machine.set_start(after_recovery);
    assert_eq!(
        machine.why_closed(),
        ClosedReason::NotPromoted(1),
        "the next start finds what the first has left"
    );
    machine.set_start(|start| (start.timeline, start.timeline_before) = (2, 1));
    machine.start_up();
    assert_eq!(machine.id().worker, 128, "promoted later, it is a primary as any");
}

/// A standby that has no state, as the postmaster starts it, and stops it again.
fn noted() -> Rc<Machine> {
    let machine = Machine::alone(plain());
    let start = Start { was_in_recovery: true, timeline_before: 1, ..machine.start.get() };
    machine.boot_up();
    machine.with(|generator| generator.note_standby(&start)).unwrap();
    machine.go_down();
    machine
}

/// pg_resetwal makes the control file say that the server was a primary.
#[test]
fn a_standby_without_a_file_notes_that_it_is_one() {
    let machine = noted();
    for home in [0, 5] {
        machine.set_config(with_worker(home));
        machine.set_start(|start| (start.timeline, start.timeline_before) = (1, 1));
        assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(1), "home worker {home}");
    }
    machine.set_start(|start| (start.timeline, start.timeline_before) = (2, 1));
    machine.start_up();
    assert_eq!(machine.id().worker, 5 + 128, "promoted later, it is a primary as any");
    assert_eq!(machine.told(|event| matches!(event, Event::Opened { is_first: true, .. })), 1);
}

#[test]
fn a_standby_with_a_file_leaves_it_alone() {
    for machine in [copied(), crashed()] {
        let slots = machine.disk.slots();
        machine.boot_up();
        let start = Start { was_in_recovery: true, timeline_before: 1, ..machine.start.get() };
        machine.with(|generator| generator.note_standby(&start)).unwrap();
        assert_eq!(machine.disk.slots(), slots);
    }
}

/// The standby's own settings do not tell which lanes its primary used.
#[test]
fn a_standby_without_a_file_that_is_promoted_starts_above_all_that_it_has_replayed() {
    let machine = noted();
    machine.step(-40 * SECOND);
    machine.set_start(|start| {
        (start.timeline, start.timeline_before, start.replayed_us) = (2, 1, Some(NOON + HOUR));
    });
    machine.boot_up();
    let _ = machine.open();
    for worker in (0..1_024).step_by(128) {
        assert!(machine.mark(worker) >= tick(NOON + HOUR + MAX_AHEAD), "worker {worker}");
    }
}

/// It was started alone once, with fewer backup workers than its primary.
#[test]
fn a_standby_that_noted_its_own_number_of_lanes_starts_above_all_that_it_has_replayed() {
    let machine = copied();
    machine.set_config(with_backups(3));
    machine.set_start(|start| as_a_follower(start, 1));
    assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(1));
    machine.set_start(|start| {
        (start.timeline, start.timeline_before, start.was_in_recovery) = (2, 1, false);
        start.replayed_us = Some(NOON + HOUR);
    });
    machine.boot_up();
    let _ = machine.open();
    for worker in (0..1_024).step_by(256) {
        assert!(machine.mark(worker) >= tick(NOON + HOUR + MAX_AHEAD), "worker {worker}");
    }
}

/// All servers of the group were given another layout before the first ID.
#[test]
fn the_layout_of_a_standby_without_a_file_binds_nobody() {
    let machine = noted();
    let (_, other) = other_layouts()[0];
    machine.set_config(other);
    assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(1));
    machine.set_start(|start| (start.timeline, start.timeline_before) = (2, 1));
    machine.start_up();
    machine.id();
}

#[test]
fn a_standby_without_a_file_stays_closed_while_the_mark_of_that_cannot_be_written() {
    let machine = Machine::alone(plain());
    machine.set_start(|start| as_a_follower(start, 1));
    break_disk(&machine, 0, ENOSPC, |_| true);
    assert_eq!(machine.why_closed(), ClosedReason::Os(ENOSPC));
    machine.disk.heal();
    machine.pass(SECOND);
    assert_eq!(machine.open(), Err(Unopened::Closed(ClosedReason::NotPromoted(1))));
    machine.set_start(after_recovery);
    assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(1));
}

/// The whole group's workers were changed after the standby had been created, so its record does not know them. Found
/// by the chaos program.
#[test]
fn a_standby_that_was_not_promoted_stays_closed_under_a_worker_that_it_does_not_know() {
    for machine in [copied(), crashed()] {
        machine.set_start(|start| as_a_follower(start, 2));
        machine.set_config(with_worker(5));
        assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(2));
        machine.set_start(after_recovery);
        assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(2));
        // Its primary can have got any worker since, so an operator vouches for each.
        machine.set_config(with_worker(6));
        assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(2));
        machine.adopt(machine.wall()).unwrap();
        machine.settle();
        assert_eq!(machine.id().worker % 128, 6);
        machine.go_down();
        machine.start_up();
        assert_eq!(machine.id().worker % 128, 6);
        machine.go_down();
        for home in [0, 5] {
            machine.set_config(with_worker(home));
            assert_eq!(machine.why_closed(), ClosedReason::Copied, "home worker {home}");
        }
        machine.set_config(with_worker(7));
        assert_eq!(machine.why_closed(), ClosedReason::UnknownWorker);
        let before = machine.wall();
        machine.adopt(before - HOUR).unwrap();
        assert!(machine.mark(7) >= tick(before), "nothing is known of it");
        machine.settle();
        assert_eq!(machine.id().worker % 128, 7);
        machine.go_down();
        machine.set_config(with_worker(6));
        machine.start_up();
        assert_eq!(machine.id().worker % 128, 6, "it is this server's still");
    }
}

/// Found by the model: the floor holds for all workers, whichever this server is given.
#[test]
fn adopt_of_anothers_worker_keeps_an_earlier_floor() {
    let machine = crashed();
    machine.start_up();
    let floor = machine.wall() + HOUR;
    machine.adopt(floor).unwrap();
    machine.go_down();
    machine.set_start(|start| as_a_follower(start, 1));
    assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(1));
    machine.set_config(with_worker(5));
    assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(1));
    machine.adopt(machine.wall()).unwrap();
    assert!(machine.mark(5) >= tick(floor), "{}", machine.mark(5));
}

/// Each copy of a copy has a worker of its own, until the record has no room for all those of its originals.
#[test]
fn a_copy_of_copies_never_takes_a_workers_original_for_its_own() {
    let with_sixteen = |home| config("41/10/12", Tick::Millisecond, home, 15, 16_384, Limits::default());
    let machine = Machine::alone(with_sixteen(0));
    machine.start_up();
    machine.id();
    for home in 1..=4 {
        machine.go_down();
        machine.disk.put(machine.disk.slots().unwrap());
        machine.set_config(with_sixteen(home));
        machine.start_up();
        machine.id();
    }
    for home in 0..4 {
        machine.go_down();
        machine.set_config(with_sixteen(home));
        let why = machine.why_closed();
        assert!(matches!(why, ClosedReason::Copied | ClosedReason::UnknownWorker), "{home}: {why:?}");
    }
    machine.go_down();
    machine.set_config(with_sixteen(4));
    machine.start_up();
    machine.id();
    machine.go_down();
    // It cannot be told from one that was forgotten.
    machine.set_config(with_sixteen(5));
    assert_eq!(machine.why_closed(), ClosedReason::UnknownWorker);
    machine.adopt(machine.wall()).unwrap();
    machine.settle();
    assert_eq!(machine.id().worker % 64, 5);
}

/// Restore drills with the same archive take numbers, so the number of the second timeline can be odd.
#[test]
fn a_timelines_half_goes_by_its_depth() {
    for (timeline, depth, parity) in [(9, Some(2), 1), (12, Some(3), 0), (9, None, 0), (12, None, 1)] {
        let machine = copied();
        machine.set_start(|start| {
            (start.timeline, start.timeline_before, start.depth) = (timeline, 1, depth);
            start.replayed_us = Some(NOON + HOUR);
        });
        machine.boot_up();
        machine.open().unwrap();
        assert_eq!(machine.lane() % 2, parity, "timeline {timeline}, depth {depth:?}");
        let lanes = machine.with(|generator| generator.lane_statuses());
        assert!(lanes.iter().all(|lane| lane.in_half == (lane.lane % 2 == parity)));
        // Another timeline may have begun from the first, and used the same half.
        assert!(machine.mark(machine.lane() as i64 * 128) >= tick(NOON + HOUR + MAX_AHEAD));
        // Without the history, the record tells.
        machine.go_down();
        machine.set_start(|start| (start.timeline_before, start.depth) = (timeline, None));
        machine.boot_up();
        machine.open().unwrap();
        assert_eq!(machine.lane() % 2, parity, "timeline {timeline}, depth {depth:?}, later");
    }
}

/// Its primary used the lanes of the second timeline, which a promoted server has for itself.
#[test]
fn an_adopted_standby_starts_above_all_that_it_has_replayed() {
    let machine = copied();
    machine.step(-40 * SECOND);
    machine.set_start(|start| {
        as_a_follower(start, 2);
        start.replayed_us = Some(NOON);
    });
    assert_eq!(machine.why_closed(), ClosedReason::NotPromoted(2));
    machine.adopt(machine.wall()).unwrap();
    for worker in (0..1_024).step_by(128) {
        assert!(machine.mark(worker) >= tick(NOON + MAX_AHEAD), "worker {worker}: {}", machine.mark(worker));
    }
    machine.pass(45 * SECOND);
    machine.settle();
    machine.id();
    machine.go_down();
    machine.set_start(after_recovery);
    machine.start_up();
    machine.id();
}
