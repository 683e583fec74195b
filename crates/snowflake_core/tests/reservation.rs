//! How far a reservation reaches, who writes it, and what the status shows of it.

#[path = "model/mod.rs"]
mod model;

use model::disk::{Fault, Point};
use model::fixtures::{MAX_AHEAD, RESERVE, plain};
use model::server::{DAY, HOUR, MINUTE, MS, SECOND, Server};
use model::world::{Machine, config};
use snowflake_core::{Config, Generator, Layout, Limits, Parts, Tick};
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
fn a_call_without_waits_makes_ids_up_to_the_end_of_the_reservation() {
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
        machine.pass((machine.mark(0) - known.tick) * MS);
        let id = machine.with(|generator| generator.try_next_id());
        let parts = id.and_then(|id| layout.unpack(id)).expect("the last tick that is reserved");
        assert_eq!((parts.tick, parts.sequence), (machine.mark(0), 0));
        machine.pass(MS);
        assert_eq!(machine.with(|generator| generator.try_next_id()), None, "beyond the reservation");
        assert_eq!(machine.disk.writes.get(), before);
    }
}

/// The boot clock goes on while a machine sleeps, so the write seems to have taken hours. If the next reservation
/// reached as far ahead, the start after a crash would wait for hours.
#[test]
fn a_machine_that_slept_in_a_write_reserves_no_more_than_a_minute() {
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
fn a_call_that_comes_second_does_not_renew_the_reservation_again() {
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

/// Nothing can be issued before the clock has caught up, and a reservation from the frontier would reach too far.
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
fn with_ticks_of_a_second_the_keeper_spares_every_call_its_write() {
    for phase in [0, 1, 50 * MS, 100 * MS - 1] {
        let machine = running(seconds());
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
                let ends_at = epoch_us + (machine.mark(0) + 1) * layout.tick().micros();
                assert_eq!(reserved_until(&machine), ends_at);
                machine.pass(MINUTE);
                machine.id();
            }
        }
    }
}
