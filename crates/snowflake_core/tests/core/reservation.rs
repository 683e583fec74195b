//! Rule 1 of a start, and what it asks of a run: how far a reservation reaches, who writes it, what the status shows of
//! it, and when another `max_ahead` comes into force.

use crate::simulation::disk::{EIO, Fault, Point};
use crate::simulation::fixtures::{
    MAX_AHEAD, RESERVE, clone_of, is_opened_first, plain, run_ahead, tick, with_backups, with_max_ahead,
};
use crate::simulation::server::{DAY, HOUR, MINUTE, MS, SECOND, Server};
use crate::simulation::world::{Machine, config};
use snowflake_core::{Config, Generator, Layout, Limits, Parts, Refusal, Tick};
use std::cell::Cell;
use std::rc::Rc;

fn seconds() -> Config {
    config("32/10/20", Tick::Second, 0, 7, 16_384, Limits::default())
}

/// A server that has been generating IDs for an hour.
fn running(config: Config) -> Rc<Machine> {
    let machine = Machine::alone(config);
    machine.start_up();
    machine.pass(HOUR);
    machine.id();
    machine
}

fn reserved_until(machine: &Machine) -> i64 {
    machine.with(|generator| generator.status()).reserved_until_us.expect("a reservation")
}

/// The path without waits generates the same IDs, and leaves everything else to a call that may wait.
#[test]
fn call_without_waits_generates_up_to_the_end_of_the_reservation() {
    let machine = Machine::alone(plain());
    machine.boot_up();
    assert_eq!(machine.with(|generator| generator.try_next_id()), None, "the gate is shut");
    machine.settle();
    machine.pass(HOUR);
    let layout = plain().layout;
    for _ in 0..3 {
        let known = machine.id();
        let before = machine.disk.writes.get();
        let parts = machine.with(|generator| generator.try_next_id()).and_then(|id| layout.unpack(id));
        assert_eq!(parts, Some(Parts { sequence: known.sequence + 1, ..known }));
        let mut tick = known.tick;
        while tick < machine.mark(0) {
            // A call looks at the clocks first if the last ID is more than a second old.
            let later = (tick + 1_000).min(machine.mark(0));
            machine.pass((later - tick) * MS);
            let id = machine.with(|generator| generator.try_next_id());
            let parts = id.and_then(|id| layout.unpack(id)).expect("a tick that is reserved");
            assert_eq!((parts.tick, parts.sequence), (later, 0));
            tick = later;
        }
        machine.pass(MS);
        assert_eq!(machine.with(|generator| generator.try_next_id()), None, "beyond the reservation");
        assert_eq!(machine.disk.writes.get(), before);
    }
    let machine = running(seconds());
    machine.pass(2 * SECOND);
    assert_eq!(machine.with(|generator| generator.try_next_id()), None, "more than a second later");
}

/// The boot clock goes on while a machine sleeps, so the write seems to have taken hours. If the next reservation
/// reached as far ahead, the start after a crash would wait for hours.
#[test]
fn machine_that_slept_in_a_write_reserves_a_minute_at_most() {
    for asleep in [MINUTE, HOUR, 9 * HOUR] {
        let machine = running(plain());
        let (twin, is_awake) = (Rc::downgrade(&machine), Cell::new(true));
        machine.disk.set_faults(move |point| {
            if matches!(point, Point::Sync(_)) && is_awake.replace(false) {
                twin.upgrade().expect("it runs").pass(asleep);
            }
            Fault::None
        });
        machine.pass(SECOND);
        for _ in 0..5 {
            machine.id();
            machine.keep();
            let ahead = machine.mark(0) - (machine.wall() + MAX_AHEAD) / MS;
            assert!(ahead <= MINUTE / MS, "{ahead} ms, asleep for {asleep} us");
            machine.pass(MINUTE);
        }
    }
}

/// Both calls find the reservation used up. The second to get the lock finds it moved, and writes nothing.
#[test]
fn second_call_does_not_renew_the_reservation_again() {
    let writes_of_a_call = |interrupted_at: Option<u32>| {
        let machine = running(plain());
        machine.pass(MINUTE);
        let (twin, reads) = (machine.clone(), Cell::new(0));
        let was_interrupted = Rc::new(Cell::new(false));
        let told = was_interrupted.clone();
        *machine.meanwhile.borrow_mut() = Some(Rc::new(move |look: &dyn Fn()| {
            reads.set(reads.get() + 1);
            look();
            if Some(reads.get()) == interrupted_at {
                told.set(true);
                let memory = twin.memory.borrow().clone().unwrap();
                Generator::new(&twin.config.borrow(), memory.view(), &*twin).next_id().unwrap();
            }
        }));
        let before = machine.disk.writes.get();
        machine.id();
        let writes = machine.disk.writes.get() - before;
        *machine.meanwhile.borrow_mut() = None;
        (writes, was_interrupted.get())
    };
    let (alone, _) = writes_of_a_call(None);
    assert!(alone > 0, "the reservation is used up");
    let mut interrupted = 0;
    for look in 1.. {
        let (writes, was_interrupted) = writes_of_a_call(Some(look));
        if !was_interrupted {
            break;
        }
        assert_eq!(writes, alone, "interrupted after look {look}");
        interrupted += 1;
    }
    assert!(interrupted >= 3, "the last look before the lock is among them");
}

/// Nothing can be issued before the clock has caught up, and a reservation from the current tick would reach too far.
#[test]
fn keep_up_writes_nothing_while_the_clock_is_back() {
    for back in [MAX_AHEAD + RESERVE, MINUTE, DAY] {
        let machine = running(plain());
        // Less than half of the reservation is left.
        while reserved_until(&machine) - machine.wall() > RESERVE / 2 - 10 * MS {
            machine.pass(10 * MS);
            machine.id();
        }
        let before = machine.disk.changes();
        machine.step(-back);
        machine.keep();
        assert_eq!(machine.disk.changes(), before, "the clock is back by {back} us");
        machine.step(back);
        machine.keep();
        assert!(machine.disk.changes() > before, "it was short all the time");
    }
}

/// The keeper looks ten times per second, at worst right before a tick begins. With ticks of a second, it must see then
/// that the coming tick is the last reserved one.
#[test]
fn keeper_spares_every_call_its_write_with_ticks_of_a_second() {
    let on_time = Config { limits: Limits { max_ahead_us: 0, ..Limits::default() }, ..seconds() };
    for (phase, config) in
        [0, 1, 50 * MS, 100 * MS - 1].into_iter().flat_map(|us| [(us, seconds()), (us, on_time)])
    {
        let machine = running(config);
        machine.pass(SECOND - machine.wall() % SECOND + phase);
        machine.id();
        machine.keep();
        for round in 0..200 {
            machine.pass(100 * MS - 1);
            machine.keep();
            let before = machine.disk.writes.get();
            machine.id();
            machine.pass(1);
            machine.id();
            assert_eq!(machine.disk.writes.get(), before, "phase {phase} us, round {round}");
        }
    }
}

/// An ID may have been generated in the mark's own tick, so the reservation ends with that tick.
#[test]
fn reserved_until_is_the_tick_after_the_mark() {
    const EPOCH: i64 = 1_704_067_200_000_000;
    for base in [plain(), seconds()] {
        for epoch_us in [0, EPOCH] {
            let layout = Layout::new(base.layout.bits(), base.layout.tick(), epoch_us).unwrap();
            let machine = running(Config { layout, ..base });
            for _ in 0..3 {
                machine.keep();
                let ends_at = machine.disk.said().unwrap().marks[&0];
                assert_eq!(reserved_until(&machine), ends_at);
                assert_eq!((ends_at - epoch_us) % layout.tick().micros(), 0);
                assert!(ends_at > machine.wall() + MAX_AHEAD);
                machine.pass(MINUTE);
                machine.id();
            }
            machine.go_down();
            machine.start_up();
            assert_eq!(reserved_until(&machine), machine.disk.said().unwrap().marks[&0], "before any ID");
        }
    }
}

// ---- How far, and how often

#[test]
fn reservation_reaches_half_a_second_past_max_ahead() {
    for max_ahead_us in [0, 3 * MS, MAX_AHEAD, 60 * SECOND] {
        let machine = running(with_max_ahead(max_ahead_us));
        for _ in 0..3_000 {
            let before = machine.wall();
            machine.with(|generator| generator.next_range(4_096)).unwrap();
            assert!(machine.wall() - before <= MS, "no call waits for more than its tick");
            let written = machine.disk.changes();
            machine.keep();
            if machine.disk.changes() > written {
                assert_eq!(machine.mark(0), tick(machine.wall() + max_ahead_us + RESERVE), "{max_ahead_us}");
            }
        }
        assert!(machine.mark(0) >= tick(machine.wall() + max_ahead_us), "it was renewed");
    }
}

#[test]
fn reservation_is_at_least_a_whole_tick_ahead() {
    let limits = Limits { max_ahead_us: 0, ..Limits::default() };
    let machine = running(config("32/10/20", Tick::Second, 0, 0, 16_384, limits));
    let parts = machine.id();
    assert!(machine.disk.said().unwrap().marks[&0] > (parts.tick + 1) * SECOND);
}

#[test]
fn reservation_is_renewed_once_half_of_it_is_used() {
    let machine = running(plain());
    let before = machine.disk.changes();
    machine.pass((MAX_AHEAD + RESERVE) / 2 - MS);
    machine.keep();
    assert_eq!(machine.disk.changes(), before, "enough is left");
    machine.pass(MS);
    machine.keep();
    assert!(machine.disk.changes() > before);
    assert_eq!(machine.mark(0), tick(machine.wall() + MAX_AHEAD + RESERVE));
}

#[test]
fn slow_disk_doubles_its_last_write() {
    let machine = running(plain());
    for write_us in [100 * MS, 3 * SECOND, 600 * MS] {
        let slow = Rc::downgrade(&machine);
        machine.disk.set_faults(move |point| {
            if matches!(point, Point::Sync(_)) {
                slow.upgrade().expect("it runs").pass(write_us);
            }
            Fault::None
        });
        machine.pass(MINUTE);
        machine.id();
        machine.pass(MINUTE);
        let wall = machine.wall();
        machine.id();
        assert_eq!(machine.mark(0), tick(wall + MAX_AHEAD + RESERVE.max(2 * write_us)), "{write_us} us");
    }
}

// ---- Another max_ahead by a reload

fn set_max_ahead(machine: &Machine, max_ahead_us: i64) {
    machine.with(|generator| generator.set_limits(Limits { max_ahead_us, ..Limits::default() }));
}

fn max_ahead(machine: &Machine) -> i64 {
    machine.with(|generator| generator.limits()).max_ahead_us
}

/// The longest `max_ahead` that a start may find in the record.
fn recorded(machine: &Machine) -> i64 {
    machine.disk.lowest(0).unwrap().max_ahead_us
}

#[test]
fn longer_max_ahead_comes_into_force_once_it_is_durable() {
    for by_call in [false, true] {
        let machine = running(plain());
        machine.keep();
        set_max_ahead(&machine, 4 * SECOND);
        assert_eq!(max_ahead(&machine), MAX_AHEAD, "not durable");
        machine.disk.set_faults(|_| Fault::Fail(EIO));
        assert_eq!(machine.with(|generator| generator.run_keeper()), Err(Refusal::NotDurable(EIO)));
        assert_eq!((max_ahead(&machine), recorded(&machine)), (MAX_AHEAD, MAX_AHEAD), "nor with this disk");
        machine.disk.heal();
        machine.pass(SECOND);
        if by_call {
            machine.pass(MINUTE);
            machine.id();
        } else {
            machine.keep();
        }
        assert_eq!((max_ahead(&machine), recorded(&machine)), (4 * SECOND, 4 * SECOND));
        let written = machine.disk.changes();
        machine.keep();
        assert_eq!(machine.disk.changes(), written, "once");
        run_ahead(&machine);
        assert_eq!(machine.id().tick, tick(machine.wall() + 4 * SECOND));
    }
}

/// The operator's remedy where there is no other lane.
#[test]
fn longer_max_ahead_comes_into_force_while_the_clock_is_behind() {
    let machine = running(with_backups(0));
    let (last, mark) = (machine.id(), machine.mark(0));
    machine.step(-3 * SECOND);
    assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))));
    set_max_ahead(&machine, 4 * SECOND);
    machine.keep();
    assert_eq!((machine.id().tick, machine.mark(0)), (last.tick, mark));
}

#[test]
fn shorter_max_ahead_comes_into_force_once_the_clock_has_passed_the_begin() {
    let machine = running(with_max_ahead(60 * SECOND));
    machine.stop();
    let begun = machine.wall();
    machine.start_up();
    set_max_ahead(&machine, MAX_AHEAD);
    while machine.wall() < begun + 60 * SECOND {
        machine.keep();
        assert_eq!(max_ahead(&machine), 60 * SECOND);
        machine.id();
        machine.pass(SECOND);
    }
    machine.keep();
    assert_eq!(max_ahead(&machine), MAX_AHEAD);
    // IDs of the longer one can lie a minute ahead. Their mark may be lost, so the record keeps it as long.
    let longest = machine.wall() + 60 * SECOND;
    while machine.wall() < longest {
        assert_eq!(recorded(&machine), 60 * SECOND);
        let _ = machine.try_id();
        machine.pass(SECOND);
        machine.keep();
    }
    machine.pass(MINUTE);
    machine.id();
    machine.keep();
    assert_eq!(recorded(&machine), MAX_AHEAD);
}

/// A machine whose IDs ran ahead under a longer `max_ahead` than its settings have now.
fn lowered() -> Rc<Machine> {
    let machine = Machine::alone(with_max_ahead(60 * SECOND));
    machine.start_up();
    machine.pass(2 * MINUTE);
    run_ahead(&machine);
    set_max_ahead(&machine, MAX_AHEAD);
    machine.keep();
    machine
}

/// The record from before the reload is put back, or runs as a copy with a right clock.
#[test]
fn shorter_max_ahead_repeats_nothing_in_a_state_that_is_put_back() {
    let machine = lowered();
    let clone = clone_of(&machine, true);
    machine.with(|generator| generator.rotate_now()).unwrap();
    let last = machine.id();
    machine.go_down();
    clone.set_config(with_backups(3));
    clone.start_up();
    assert_eq!(clone.told(is_opened_first), 0);
    clone.with(|generator| generator.rotate_now()).unwrap();
    let next = clone.id();
    assert!(next.worker == last.worker && next.tick > last.tick, "{next:?} after {last:?}");
}

/// Lanes that the run enters once the clock is right again begin above where the start began.
#[test]
fn shorter_max_ahead_waits_for_the_begin_after_a_step_to_before_the_start() {
    let machine = running(with_max_ahead(60 * SECOND));
    machine.stop();
    machine.start_up();
    let begun = machine.wall() + 60 * SECOND;
    machine.step(-2 * MINUTE);
    assert_ne!(machine.id().worker, 0, "another lane, which has no restored mark");
    set_max_ahead(&machine, MAX_AHEAD);
    while machine.wall() < begun {
        machine.keep();
        assert_eq!(
            max_ahead(&machine),
            60 * SECOND,
            "{} s before the begin",
            (begun - machine.wall()) / SECOND
        );
        machine.pass(10 * SECOND);
        machine.id();
    }
    machine.pass(SECOND);
    machine.keep();
    assert_eq!(max_ahead(&machine), MAX_AHEAD);
}

/// IDs of the longest one can lie ahead, whatever came after it.
#[test]
fn second_shorter_max_ahead_keeps_the_longest_in_the_record() {
    let machine = lowered();
    machine.pass(MINUTE);
    machine.keep();
    assert_eq!(max_ahead(&machine), MAX_AHEAD);
    let longest = machine.wall() + 60 * SECOND;
    machine.pass(SECOND);
    machine.id();
    machine.pass(3 * SECOND);
    set_max_ahead(&machine, 0);
    machine.keep();
    assert_eq!(max_ahead(&machine), 0);
    while machine.wall() < longest {
        assert_eq!(recorded(&machine), 60 * SECOND);
        machine.pass(SECOND);
        machine.id();
        machine.keep();
    }
    machine.pass(MINUTE);
    machine.id();
    machine.keep();
    assert_eq!(recorded(&machine), 0);
}

/// A mark at the end of the time field would close the generator for good, after a crash.
#[test]
fn clock_past_the_layouts_end_raises_no_mark() {
    let deeds = ["rotate", "keep", "a longer max_ahead", "call"];
    // Without a bit for the sequence, a permit has none above the time field.
    for (deed, bits) in deeds.into_iter().flat_map(|deed| [(deed, "41/10/12"), (deed, "52/11/0")]) {
        let machine = running(config(bits, Tick::Millisecond, 0, 7, 16_384, Limits::default()));
        let end = machine.config.borrow().layout.ends_at_us();
        for past in [0, DAY] {
            let step = end + past - machine.wall();
            machine.step(step);
            match deed {
                "rotate" => {
                    let rotated = machine.with(|generator| generator.rotate_now());
                    assert_eq!(rotated, Err(Refusal::Exhausted));
                }
                "keep" => machine.keep(),
                "call" => assert_eq!(machine.try_id(), Err(Refusal::Exhausted)),
                _ => {
                    set_max_ahead(&machine, 3 * SECOND + past / DAY);
                    let _ = machine.with(|generator| generator.run_keeper());
                }
            }
            machine.step(-step);
            machine.id();
        }
        machine.go_down();
        machine.pass(MINUTE);
        machine.start_up();
        assert!(machine.id().tick < tick(machine.wall() + 3 * SECOND), "after {deed}");
    }
}

/// If the shorter one came into force at once, the next call would find its tick too far ahead, and leave the worker.
#[test]
fn shorter_max_ahead_waits_until_the_newest_id_is_within_it() {
    let machine = lowered();
    assert_eq!(machine.id().worker, 0);
    machine.pass(MINUTE);
    machine.keep();
    assert_eq!(max_ahead(&machine), MAX_AHEAD);
    assert_eq!(machine.id().worker, 0);
}
