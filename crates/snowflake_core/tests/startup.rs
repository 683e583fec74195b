//! The decisions of a start, by the steps in `state/start.rs`, and the writes on which the next start relies.

#![cfg(not(loom))]

#[path = "model/mod.rs"]
mod model;

use model::disk::{EIO, ENOSPC, Fault, Point, Power};
use model::server::{DAY, HOUR, MS, SECOND, Server};
use model::tape::Tape;
use model::world::{Machine, NOON, SYSTEM, config};
use serde_json::Value;
use snowflake_core::host::{FileIdentity, SLOT_BYTES, SLOTS};
use snowflake_core::{
    AdoptError, ClosedReason, Config, Disk, Event, FloorCause, Layout, Limits, Parts, Policy,
};
use snowflake_core::{Prepared, Refusal, Start, Tick, Unopened, Workers, recorded_layout};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// `max_ahead` and `reserve` of the default limits.
const MAX_AHEAD: i64 = 2 * SECOND;
const RESERVE: i64 = 500 * MS;

fn plain() -> Config {
    config("41/10/12", Tick::Millisecond, 0, 7, 16_384, Limits::default())
}

fn with_backups(backups: usize) -> Config {
    config("41/10/12", Tick::Millisecond, 0, backups, 16_384, Limits::default())
}

fn with_worker(home: i64) -> Config {
    config("41/10/12", Tick::Millisecond, home, 7, 16_384, Limits::default())
}

/// Changes to the records in the file, which only these tests make.
trait Rewrite {
    fn rewrite(&self, slot: usize, change: impl FnOnce(&mut Value));
    fn rewrite_both(&self, change: impl Fn(&mut Value));
}

impl Rewrite for Machine {
    /// Changes a slot's record and its checksum.
    fn rewrite(&self, slot: usize, change: impl FnOnce(&mut Value)) {
        self.disk.scribble(slot, |bytes| {
            let mut document: Value = serde_json::from_slice(bytes).unwrap();
            change(&mut document);
            let version = document["version"].as_u64().unwrap() as u32;
            let record = document["record"].to_string();
            let crc = crc32c::crc32c_append(crc32c::crc32c(&version.to_le_bytes()), record.as_bytes());
            let text = format!(r#"{{"version":{version},"crc32c":"{crc:08x}","record":{record}}}"#);
            *bytes = text.into_bytes();
            bytes.resize(SLOT_BYTES, b' ');
        });
    }

    fn rewrite_both(&self, change: impl Fn(&mut Value)) {
        self.rewrite(0, &change);
        self.rewrite(1, &change);
    }
}

fn tick(unix_us: i64) -> i64 {
    unix_us / MS
}

/// A server that was first started two days ago, has generated an ID, and has crashed since.
fn crashed() -> Rc<Machine> {
    let machine = Machine::alone(plain());
    machine.step(-2 * DAY);
    machine.start_up();
    machine.step(2 * DAY);
    machine.id();
    machine.go_down();
    machine
}

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

fn other_layouts() -> [(&'static str, Config); 3] {
    let epoch = Layout::new(plain().layout.bits(), Tick::Millisecond, 1_000).unwrap();
    let with_epoch = Config { layout: epoch, ..plain() };
    [
        ("bits", config("42/10/11", Tick::Millisecond, 0, 7, 16_384, Limits::default())),
        ("tick", config("41/10/12", Tick::Centisecond, 0, 7, 16_384, Limits::default())),
        ("epoch", with_epoch),
    ]
}

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

// ---- 3. Whose state it is

#[test]
fn the_state_of_another_cluster_closes() {
    let machine = crashed();
    machine.set_start(|start| start.system_identifier += 1);
    assert_eq!(machine.why_closed(), ClosedReason::Foreign(SYSTEM));
    machine.set_start(|start| start.timeline = 2);
    assert_eq!(machine.why_closed(), ClosedReason::Foreign(SYSTEM), "also on another timeline");
}

/// The machine with the file replaced by one with the same bytes, as in a copied directory.
fn copied() -> Rc<Machine> {
    let machine = crashed();
    machine.disk.put(machine.disk.slots().unwrap());
    machine
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
    machine.disk.witness.is_beside.set(true);
    assert_eq!(machine.why_closed(), ClosedReason::Beside);
    machine.go_down();
    let other = Workers::new(&plain().layout, 1, plain().workers.lanes() - 1).unwrap();
    machine.config.borrow_mut().workers = other;
    machine.start_up();
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

// ---- 4. A new timeline

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

// ---- Failed writes

/// Lets the next `free` writes pass and makes all later ones fail with `errno` at `points`; returns a count of them
/// all.
fn break_disk(machine: &Machine, free: u32, errno: i32, points: fn(Point) -> bool) -> Rc<Cell<u32>> {
    let seen = Rc::new(Cell::new(0));
    let count = seen.clone();
    machine.disk.set_faults(move |point| {
        if !points(point) {
            return Fault::None;
        }
        count.set(count.get() + 1);
        if count.get() > free { Fault::Fail(errno) } else { Fault::None }
    });
    seen
}

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

#[test]
fn a_crash_while_the_disk_is_slow_waits_for_the_clock_if_there_is_no_other_lane() {
    for write_us in [4 * SECOND, 20 * SECOND] {
        let machine = crashed_on_a_slow_disk(0, write_us);
        let waited = machine.start_up();
        assert!(waited > SECOND, "{waited}");
        assert!(waited <= 2 * write_us + SECOND, "{waited} for writes of {write_us} us");
        machine.id();
    }
}

/// As long as the wait is short, a crash uses up no lane.
#[test]
fn a_crash_while_the_disk_is_slow_goes_on_on_another_lane_if_the_wait_is_longer_than_a_second() {
    for (write_us, is_long) in [(2_500 * MS, false), (4 * SECOND, true), (20 * SECOND, true)] {
        let machine = crashed_on_a_slow_disk(7, write_us);
        let waited = machine.start_up();
        let rotates = machine.id().worker != 0;
        assert_eq!((waited > 0, rotates), (!is_long, is_long), "{waited} us for writes of {write_us} us");
        assert!(waited <= SECOND + MS, "{waited}");
        // It is the reservation that is ahead. The clock has not moved.
        assert_eq!(machine.told(|event| matches!(event, Event::Rotated { behind_us: 1.., .. })), 0);
    }
}

/// After a clean stop, marks are exact: if the clock then steps far back, there is no reservation to wait for.
#[test]
fn a_clean_stop_leaves_no_reservation_to_be_waited_for() {
    let machine = Rc::new(Machine::alone(plain()));
    machine.start_up();
    machine.with(|generator| generator.set_limits(Limits { reserve_us: 60 * SECOND, ..Limits::default() }));
    for _ in 0..10 {
        machine.id();
        machine.pass(10 * SECOND);
    }
    machine.stop();
    machine.set_config(plain());
    machine.step(-30 * SECOND);
    assert_eq!(machine.start_up(), 0);
    machine.id();
    assert_ne!(machine.lane(), 0);
    assert_eq!(machine.told(|event| matches!(event, Event::Rotated { behind_us: 1.., .. })), 1);
}

// ---- The keeper writes

/// A keeper that answers at its `nth` call; returns how often it was waited for.
fn with_keeper(machine: &Rc<Machine>, nth: u32) -> Rc<Cell<u32>> {
    let waits = Rc::new(Cell::new(0));
    let (counted, keeper) = (waits.clone(), Rc::downgrade(machine));
    *machine.keeper.borrow_mut() = Some(Rc::new(move || {
        counted.set(counted.get() + 1);
        if counted.get() >= nth {
            let _ = keeper.upgrade().unwrap().with(|generator| generator.keep_up());
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
    let interrupted = machine.clone();
    // The call itself never touches the disk.
    machine.disk.set_faults(move |_| {
        assert!(waits.get() >= 3, "a call wrote");
        let _ = &interrupted;
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
    let rotations = machine.with(|generator| generator.status().rotations);
    waits.set(0);
    machine.id();
    assert_eq!(machine.with(|generator| generator.status().rotations), rotations + 1);
    assert_eq!(machine.told(|event| matches!(event, Event::Rotated { .. })), 1);
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
    assert!(waits.get() < 100, "a call waited for a keeper that was done: {}", waits.get());
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
    machine.with(|generator| generator.keep_up()).unwrap();
    machine.pass(10 * SECOND);
    machine.id();
    assert!(waits.get() > 0, "once it has done something, it is asked again");
}

#[test]
fn a_call_is_refused_when_the_keeper_cannot_write() {
    let machine = Rc::new(Machine::alone(plain()));
    machine.start_up();
    with_keeper(&machine, 1);
    machine.pass(10 * SECOND);
    break_disk(&machine, 0, EIO, |_| true);
    for _ in 0..3 {
        assert_eq!(machine.try_id(), Err(Refusal::NotDurable(EIO)));
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
fn a_file_that_vanishes_between_the_slots_is_made_anew_too() {
    let machine = Machine::alone(plain());
    machine.start_up();
    let twin = machine.clone();
    let opened = Cell::new(0);
    machine.disk.set_faults(move |point| {
        if point == Point::Open {
            opened.set(opened.get() + 1);
            if opened.get() == 2 {
                twin.disk.delete();
            }
        }
        Fault::None
    });
    machine.pass(HOUR);
    let parts = machine.id();
    assert!(machine.disk.lowest(0).unwrap().mark(0) >= parts.tick, "guarantee 2");
    machine.disk.heal();
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
    assert_eq!(machine.open(), Err(Unopened::Closed(ClosedReason::Os(EIO))));
    assert_eq!(machine.told(|event| *event == Event::WriteRecovered), 0);
}

// ---- Power

/// A write that failed is made again into the same slot: only the other one has a durable record.
#[test]
fn a_failed_write_and_a_torn_one_leave_the_durable_record() {
    // The tape decides the slots' fates: 0 is kept, 1 is lost, 2 is torn.
    for fates in (0..27).map(|n| vec![n % 3, n / 3 % 3, n / 9]) {
        let tape = Rc::new(Tape::given(fates.clone(), 0));
        let machine =
            Machine::new(plain(), &Rc::new(Cell::new(77_000_000)), model::disk::SimDisk::new(&tape));
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
            let machine = Machine::new(plain(), &boot, model::disk::SimDisk::new(&tape));
            machine.start_up();
            for _ in 1..writes {
                machine.pass(HOUR);
                machine.id();
            }
            // The fsync of the second slot fails: the promise is durable, but only in the first.
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
            machine.boot_up();
            if let Err(Unopened::Closed(why)) = machine.open() {
                assert_eq!(why, ClosedReason::Unreadable);
                continue;
            }
            machine.settle();
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
    machine.set_start(|start| start.timeline = 2);
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

// ---- adopt

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

// ---- keep_up

#[test]
fn keep_up_moves_a_short_reservation_and_leaves_a_long_one_alone() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.pass(HOUR);
    machine.id();
    let reserved =
        || machine.with(|generator| generator.status()).reserved_until_us.unwrap() - machine.wall();
    let before = machine.disk.changes();
    machine.with(|generator| generator.keep_up()).unwrap();
    assert_eq!(machine.disk.changes(), before, "enough is left");
    machine.pass(RESERVE / 2 + 10 * MS);
    machine.with(|generator| generator.keep_up()).unwrap();
    assert!((RESERVE - MS..=RESERVE + 2 * MS).contains(&reserved()), "{}", reserved());
}

#[test]
fn with_a_keeper_no_call_writes() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.pass(HOUR);
    machine.id();
    for round in 0..100 {
        machine.pass(RESERVE / 4);
        machine.with(|generator| generator.keep_up()).unwrap();
        let before = machine.disk.writes.get();
        machine.id();
        assert_eq!(machine.disk.writes.get(), before, "round {round}");
    }
}

#[test]
fn a_reservation_reaches_no_further_than_max_ahead_and_reserve_past_the_clock() {
    for max_ahead_us in [0, 3 * MS, MAX_AHEAD] {
        for reserve_us in [0, 400, MS, RESERVE] {
            let limits = Limits { max_ahead_us, reserve_us, ..Limits::default() };
            let machine = Machine::alone(config("41/20/2", Tick::Millisecond, 0, 0, 16_384, limits));
            machine.start_up();
            machine.pass(HOUR);
            for _ in 0..3_000 {
                let before = machine.wall();
                machine.id();
                machine.with(|generator| generator.keep_up()).unwrap();
                let end = machine.mark(0);
                let most = tick(machine.wall() + max_ahead_us + reserve_us.max(MS));
                assert!(end <= most, "{max_ahead_us} {reserve_us}: {} beyond", end - most);
                assert!(machine.wall() - before <= 2 * MS, "no call waits for more than its tick");
            }
        }
    }
}

#[test]
fn a_reservation_is_at_least_a_whole_tick_ahead() {
    let limits = Limits { max_ahead_us: 0, reserve_us: 0, ..Limits::default() };
    let machine = Machine::alone(config("32/10/20", Tick::Second, 0, 0, 16_384, limits));
    machine.start_up();
    machine.pass(HOUR);
    let parts = machine.id();
    assert!(machine.mark(0) > parts.tick);
}

#[test]
fn keep_up_does_nothing_before_the_gate_is_open_and_after_a_clean_stop() {
    let machine = copied();
    machine.why_closed();
    let before = machine.disk.changes();
    machine.with(|generator| generator.keep_up()).unwrap();
    assert_eq!(machine.disk.changes(), before);

    let machine = Machine::alone(plain());
    machine.start_up();
    machine.id();
    machine.with(|generator| generator.write_exact_marks()).unwrap();
    machine.pass(HOUR);
    let before = machine.disk.slots();
    machine.with(|generator| generator.keep_up()).unwrap();
    assert_eq!(machine.disk.slots(), before);
}

#[test]
fn keep_up_survives_a_clock_that_steps_back() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.pass(DAY);
    machine.id();
    let mark = machine.mark(0);
    machine.step(-HOUR);
    machine.with(|generator| generator.keep_up()).unwrap();
    assert!(machine.mark(0) >= mark, "guarantee 2: no mark is lowered");
    machine.id();
    machine.with(|generator| generator.keep_up()).unwrap();
    assert_eq!(machine.lane(), 2);
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
