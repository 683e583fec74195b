//! The marks that starts and operators leave behind: of copies, of workers of earlier settings, of earlier timelines.

#[path = "model/mod.rs"]
mod model;

use model::disk::{EIO, ENOSPC, Fault, Point};
use model::server::{HOUR, MINUTE, MS, SECOND, Server};
use model::world::{Machine, NOON, config};
use snowflake_core::recorded_layout;
use snowflake_core::{
    AdoptError, ClosedReason, Config, Disk, FloorCause, Layout, Limits, Prepared, Refusal, Tick, Unopened,
};
use std::rc::Rc;

/// `max_ahead` of the default limits.
const MAX_AHEAD: i64 = 2 * SECOND;
/// No mark may lie further ahead of the clock than this without a reason.
const SECONDS: i64 = 10 * SECOND;

fn home(worker: i64, backups: usize) -> Config {
    config("41/10/12", Tick::Millisecond, worker, backups, 16_384, Limits::default())
}

/// A server that has generated IDs and crashed.
fn crashed(config: Config) -> Rc<Machine> {
    let machine = Machine::alone(config);
    machine.start_up();
    machine.pass(MINUTE);
    machine.id();
    machine.go_down();
    machine
}

/// Asserts that the marks of all workers, known or not, are near the clock.
fn assert_marks_are_near(machine: &Machine) {
    let said = machine.disk.said().unwrap();
    let latest = (machine.wall() + SECONDS) / MS;
    let highest = said.marks.values().copied().chain([said.elsewhere]).max().unwrap();
    assert!(highest <= latest, "a mark lies {} ms too far ahead: {said:?}", highest - latest);
}

// ---- Copies

/// After its first start the copy has a file with its own identity. Only the marks of the original's workers still say
/// that they belong to another server.
#[test]
fn a_copy_that_crashed_under_a_worker_of_its_own_stays_closed_under_the_originals() {
    for backups in [0, 7] {
        let machine = crashed(home(0, backups));
        machine.disk.put(machine.disk.slots().unwrap());
        machine.set_config(home(5, backups));
        for _ in 0..2 {
            machine.start_up();
            assert_eq!(machine.id().worker, 5);
            assert_marks_of_others_are_near(&machine);
            machine.go_down();
        }
        machine.set_config(home(0, backups));
        for _ in 0..2 {
            assert_eq!(machine.why_closed(), ClosedReason::Copied, "{backups} backups");
            machine.go_down();
        }

        machine.boot_up();
        machine.open().unwrap_err();
        machine.adopt(machine.wall()).unwrap();
        assert_marks_are_near(&machine);
        machine.settle();
        let parts = machine.id();
        assert!(parts.worker == 0 && parts.tick <= (machine.wall() + MAX_AHEAD) / MS, "{parts:?}");
        machine.go_down();
        machine.start_up();
        machine.id();
        assert_marks_are_near(&machine);
    }
}

/// A rebuild puts the state of another server in the place of this one's, and that knows none of its marks. The host
/// does, until it boots.
#[test]
fn a_server_whose_state_was_replaced_by_anothers_starts_above_its_own_marks() {
    for boots in [false, true] {
        let machine = Machine::alone(home(0, 0));
        machine.start_up();
        machine.step(24 * HOUR);
        let last = machine.id();
        machine.step(-24 * HOUR);
        machine.go_down();
        machine.disk.put(crashed(home(5, 0)).disk.slots().unwrap());
        if boots {
            machine.disk.witness.forget();
        }
        // A rebuild may bring another worker along, and an operator corrects that later.
        for worker in [7, 0] {
            machine.set_config(home(worker, 0));
            machine.boot_up();
            let _ = machine.open();
            machine.go_down();
        }
        assert_eq!(machine.disk.said().unwrap().mark(0) < last.tick, boots);
        // Nobody else's marks are raised.
        assert!(machine.disk.said().unwrap().elsewhere <= (machine.wall() + SECONDS) / MS);

        // The other server may have the same worker. Who adopts the state speaks of that one's IDs only.
        machine.disk.put(crashed(home(0, 0)).disk.slots().unwrap());
        assert_eq!(machine.why_closed(), ClosedReason::Copied);
        machine.adopt(machine.wall()).unwrap();
        assert_eq!(machine.disk.said().unwrap().mark(0) < last.tick, boots);
        machine.go_down();
    }
}

/// What a server without a state knows of all workers, it knows of those that the host has seen, too.
#[test]
fn a_worker_that_the_host_has_seen_begins_no_lower_than_one_that_it_has_not() {
    let machine = crashed(home(0, 0));
    machine.pass(MINUTE);
    machine.disk.delete();
    machine.set_config(home(5, 0));
    machine.start_up();
    let said = machine.disk.said().unwrap();
    assert!(said.marks.contains_key(&0) && said.mark(0) >= said.elsewhere, "{said:?}");
    machine.go_down();
}

/// Asserts that the marks of the copy's own workers, and of those that nobody has owned, are near the clock.
fn assert_marks_of_others_are_near(machine: &Machine) {
    let said = machine.disk.said().unwrap();
    let latest = (machine.wall() + SECONDS) / MS;
    assert!(said.mark(5) <= latest && said.mark(6) <= latest && said.elsewhere <= latest, "{said:?}");
}

// ---- Adopting while every write fails

/// A server whose IDs ran ahead of the clock as far as they may, so that the next start has to wait for the clock.
fn crashed_at_full_speed() -> Rc<Machine> {
    let machine = Machine::alone(home(0, 7));
    machine.start_up();
    machine.pass(MINUTE);
    while machine.id().tick < (machine.wall() + MAX_AHEAD) / MS {
        machine.with(|generator| generator.next_range(4_096)).unwrap();
    }
    machine.keep();
    machine.go_down();
    machine
}

/// The marks that could not be written are in memory only, so the gate does not open on them (guarantee 2).
#[test]
fn marks_that_adopt_could_not_write_while_the_gate_settles_keep_it_closed() {
    for errno in [EIO, ENOSPC] {
        let machine = crashed_at_full_speed();
        machine.boot_up();
        let Err(Unopened::Settling(micros)) = machine.open() else { panic!("it opens at once") };
        let before = machine.disk.slots();
        machine.disk.set_faults(move |point| match point {
            Point::Open | Point::Make => Fault::Fail(errno),
            _ => Fault::None,
        });
        let floor = machine.wall();
        let refused = Err(AdoptError::Closed(ClosedReason::Os(errno)));
        assert_eq!(machine.adopt(floor), refused);
        // Within a second after a failure nothing is written again, but the disk stays the reason.
        for wait in [micros, MS, SECOND, MINUTE] {
            machine.pass(wait);
            assert_eq!(machine.open(), Err(Unopened::Closed(ClosedReason::Os(errno))), "after {wait} us");
            assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
        }
        assert_eq!(machine.disk.slots(), before, "nothing was written");

        machine.disk.heal();
        machine.pass(SECOND);
        machine.settle();
        let floor = (floor + MAX_AHEAD) / MS;
        for worker in [0, 9, 256, 896] {
            let durable = machine.disk.lowest_mark(worker).unwrap();
            assert!(durable >= floor, "the mark of {worker} lies {} ms below the floor", floor - durable);
        }
        assert!(machine.id().tick > floor);
    }
}

// ---- Workers of earlier settings

/// The last marks of all workers that ever generated an ID; none may be lowered.
#[derive(Default)]
struct Known(Vec<(i64, i64)>);

impl Known {
    fn check(&mut self, machine: &Machine, story: &str) {
        let said = machine.disk.said().expect("a record");
        for (worker, mark) in &mut self.0 {
            let now = said.mark(*worker);
            assert!(now >= *mark, "{story}: the mark of worker {worker} fell by {}", *mark - now);
            *mark = now;
        }
    }

    fn add(&mut self, machine: &Machine, worker: i64) {
        self.0.push((worker, machine.mark(worker)));
    }
}

/// More workers than keep a mark each: the others share one, which must not be lower than their own were.
#[test]
fn sixty_home_workers_in_turn_lose_no_mark() {
    // Between them the clock goes on, or steps back. If it steps back, the lowest marks are those of the last workers.
    for pace in [HOUR, MINUTE, -MS] {
        let machine = Machine::alone(home(0, 0));
        let mut known = Known::default();
        for worker in 0..60 {
            machine.set_config(home(worker, 0));
            machine.start_up();
            known.check(&machine, "at a start");
            let parts = machine.id();
            assert!(machine.mark(worker) >= parts.tick, "guarantee 2");
            known.check(&machine, "after an ID");
            known.add(&machine, worker);
            machine.go_down();
            if pace > 0 { machine.pass(pace) } else { machine.step(pace) }
        }
        // Each worker continues above its own last mark, even if that is shared now.
        for worker in (0..60).rev() {
            let mark = machine.mark(worker);
            machine.set_config(home(worker, 0));
            machine.start_up();
            known.check(&machine, "back again");
            assert!(machine.id().tick > mark, "guarantee 3, worker {worker}");
            machine.go_down();
        }
    }
}

/// With backup workers, many workers lose their own marks in one start, and each had another mark.
#[test]
fn many_workers_that_are_folded_away_at_once_lose_no_mark() {
    let machine = Machine::alone(home(0, 15));
    let mut known = Known::default();
    for worker in 0..60 {
        machine.set_config(home(worker, 15));
        machine.start_up();
        known.check(&machine, "at a start");
        for _ in 0..8 {
            machine.pass(MINUTE);
            let parts = machine.id();
            machine.with(|generator| generator.rotate_now()).unwrap();
            known.check(&machine, "after a rotation");
            assert!(machine.mark(parts.worker) >= parts.tick, "guarantee 2");
            known.add(&machine, parts.worker);
        }
        machine.go_down();
        machine.pass(MINUTE);
    }
    assert_eq!(known.0.len(), 480);
}

// ---- What a start knows of earlier times

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

/// When the earliest tick begins that any worker of this server may still use.
fn earliest(machine: &Machine) -> i64 {
    let said = machine.disk.said().unwrap();
    let lowest = said.marks.values().copied().chain([said.elsewhere]).min().unwrap();
    machine.config.borrow().layout.starts_at(lowest + 1)
}

fn assert_between(earliest: i64, least: i64, most: i64, story: &str) {
    assert!(earliest >= least, "{story}: {} us below what may have been used", least - earliest);
    assert!(earliest <= most, "{story}: {} us further than need be", earliest - most);
}

/// The new primary's clock lags by a minute; the replayed WAL keeps it above its predecessors' IDs.
#[test]
fn on_a_third_timeline_a_clock_that_lags_starts_above_what_was_replayed() {
    for config in layouts() {
        for has_file in [false, true] {
            let tick = config.layout.tick().micros();
            let machine = Machine::alone(config);
            machine.step(-HOUR);
            if has_file {
                machine.start_up();
                machine.id();
                machine.go_down();
            }
            machine.step(HOUR);
            let replayed = machine.wall();
            machine.set_start(|start| {
                start.timeline = 3;
                start.control_us = replayed - MINUTE;
                start.replayed_us = Some(replayed);
            });
            machine.step(-MINUTE);
            machine.boot_up();
            let _ = machine.open();
            let story = format!("{} from {}", config.layout.tick(), config.layout.epoch_us());
            let least = replayed + MAX_AHEAD;
            assert_between(earliest(&machine), least, least + 2 * SECOND + tick, &story);
        }
    }
}

/// The file is gone, and the clock is back at a time at which IDs were generated: only the control file's time is left.
#[test]
fn without_a_file_a_clock_that_lags_starts_above_the_control_files_time() {
    for config in layouts() {
        let tick = config.layout.tick().micros();
        let machine = Machine::alone(config);
        machine.set_start(|start| start.control_us = NOON);
        machine.step(-MINUTE);
        machine.boot_up();
        let _ = machine.open();
        let story = format!("{} from {}", config.layout.tick(), config.layout.epoch_us());
        let least = NOON + MAX_AHEAD;
        assert_between(earliest(&machine), least, least + 2 * SECOND + tick, &story);
    }
}

/// The control file's times are whole seconds, rounded up, so right after `initdb` its checkpoint is ahead of the
/// clock.
#[test]
fn a_first_start_right_after_the_cluster_was_made_waits_and_refuses_nobody() {
    for ahead in [0, SECOND / 2, SECOND] {
        let machine = Machine::alone(home(0, 7));
        machine.set_start(|start| start.replayed_us = Some(NOON + ahead));
        machine.boot_up();
        assert!(matches!(machine.open(), Err(Unopened::Settling(_))), "{ahead} us: {:?}", machine.open());
        machine.settle();
        assert_eq!(machine.id().worker, 0);
    }
}

/// A backup from before the first ID has no file, and transactions that were prepared since are not committed yet.
#[test]
fn without_a_file_a_new_timeline_starts_above_the_transactions_that_were_prepared_before_it() {
    let machine = Machine::alone(home(0, 0));
    machine.set_start(|start| {
        start.timeline = 2;
        start.control_us = NOON - HOUR;
        start.replayed_us = Some(NOON - HOUR);
        start.prepared = Prepared::Unread;
    });
    machine.step(-MINUTE);
    machine.boot_up();
    assert_eq!(machine.open(), Err(Unopened::PreparedUnread));
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    machine.go_down();
    // The server crashes before a session has read them; the next start still has to.
    machine.set_start(|start| start.timeline_before = 2);
    machine.boot_up();
    assert_eq!(machine.open(), Err(Unopened::PreparedUnread));
    machine.set_start(|start| start.prepared = Prepared::Read(Some(NOON)));
    let _ = machine.open();
    let least = NOON + MAX_AHEAD;
    assert_between(earliest(&machine), least, least + 2 * SECOND, "with a transaction of noon");
}

/// Its lanes are its own, so no transaction that was prepared before it can hold an ID of theirs.
#[test]
fn a_second_timeline_with_a_half_of_its_own_waits_for_no_prepared_transaction() {
    let machine = crashed(home(0, 7));
    machine.set_start(|start| {
        start.timeline = 2;
        start.replayed_us = Some(NOON);
        start.prepared = Prepared::Unread;
    });
    machine.boot_up();
    assert_eq!(machine.open(), Ok(()));
    assert_eq!(machine.id().worker, 128);
}

/// Even if the operator's floor is long ago, readable marks are respected.
#[test]
fn a_layout_is_adopted_above_the_old_marks_with_a_floor_of_long_ago() {
    let machine = crashed(home(0, 7));
    let highest = home(0, 7).layout.highest_id(machine.mark(0));
    machine.set_config(config("41/11/11", Tick::Millisecond, 0, 7, 16_384, Limits::default()));
    assert_eq!(machine.why_closed(), ClosedReason::OtherLayout(home(0, 7).layout));
    machine.adopt(machine.wall() - HOUR).unwrap();
    machine.settle();
    assert!(machine.with(|generator| generator.next_id()).unwrap() > highest);
}

/// A refusal names the cause that set the floor, not a later one that would have set the same.
#[test]
fn a_floor_that_raises_nothing_leaves_the_cause_of_the_one_that_is_there() {
    let machine = Machine::alone(home(0, 0));
    machine.set_start(|start| start.control_us = NOON + HOUR);
    machine.boot_up();
    machine.open().unwrap();
    let cause = || match machine.try_id() {
        Err(Refusal::NoLane(no_lane)) => no_lane.floor,
        other => panic!("{other:?}"),
    };
    assert_eq!(cause(), Some(FloorCause::NoState));
    // A start that finds nothing adds a margin of a second.
    machine.adopt(NOON + HOUR + SECOND).unwrap();
    assert_eq!(cause(), Some(FloorCause::NoState), "the same mark");
    machine.adopt(NOON + HOUR + SECOND + MS).unwrap();
    assert_eq!(cause(), Some(FloorCause::Operator), "a higher one");
}

/// A mark of -1 forbids no tick.
#[test]
fn starts_before_the_epoch_forbid_no_tick() {
    let machine = Machine::alone(home(0, 7));
    machine.step(-NOON - HOUR);
    for _ in 0..3 {
        machine.boot_up();
        let _ = machine.open();
        let said = machine.disk.said().unwrap();
        assert!(said.marks.values().copied().chain([said.elsewhere]).all(|mark| mark == -1), "{said:?}");
        assert!(machine.try_id().is_err());
        machine.go_down();
    }
    machine.pass(HOUR);
    machine.start_up();
    assert_eq!(machine.id().tick, 0);
}

// ---- What a file tells

#[test]
fn a_file_tells_with_which_layout_its_ids_were_made() {
    for config in layouts() {
        let machine = crashed(config);
        let read = || recorded_layout(&machine.disk.load().unwrap().unwrap());
        assert_eq!(read(), Some(config.layout));
        machine.disk.scribble(0, Vec::clear);
        assert_eq!(read(), Some(config.layout), "one slot is enough");
        machine.disk.scribble(1, Vec::clear);
        assert_eq!(read(), None);
    }
}

/// An ID that is generated while lower marks are being written must not lie above its mark (guarantee 2).
#[test]
fn an_id_that_is_made_while_marks_are_lowered_stays_below_its_mark() {
    let machine = crashed(home(0, 0));
    machine.start_up();
    machine.pass(MINUTE);
    // The keeper has moved the reservation, and no ID was generated in this run.
    machine.keep();
    let (twin, made) = (machine.clone(), Rc::new(std::cell::Cell::new(None)));
    let told = made.clone();
    machine.disk.set_faults(move |point| {
        if matches!(point, Point::Sync(_)) && told.get().is_none() {
            told.set(Some(twin.id().tick));
        }
        Fault::None
    });
    machine.lower(machine.wall() - HOUR).unwrap();
    machine.disk.heal();
    let tick = made.get().expect("an ID was made meanwhile");
    let mark = machine.mark(0);
    assert!(mark >= tick, "the mark lies {} ms below an ID", tick - mark);
}

/// Lower marks whose write failed may be on disk all the same, so no ID may lie above them (guarantee 2).
#[test]
fn after_a_failed_write_of_lower_marks_no_id_lies_above_what_may_be_on_disk() {
    let machine = crashed(home(0, 0));
    machine.start_up();
    machine.pass(MINUTE);
    machine.keep();
    machine.disk.set_faults(|point| match point {
        Point::Sync(_) | Point::Make => Fault::Fail(EIO),
        _ => Fault::None,
    });
    machine.lower(machine.wall() - HOUR).unwrap_err();
    if let Ok(parts) = machine.try_id() {
        let mark = machine.disk.lowest_mark(0).unwrap();
        assert!(mark >= parts.tick, "the mark may lie {} ms below an ID", parts.tick - mark);
    }
}
