//! The horizon without concurrency: what it passes and what holds it, what counts as a break, and what `since` covers.
//! `loom.rs` has the rest.

use crate::common::{Gen, config, generators, limits, open_gate};
use crate::simulation::fixtures::plain;
use crate::simulation::registry::{Member, Registry, member};
use crate::simulation::server::{DAY, HOUR, MINUTE, MS, Server};
use crate::simulation::world::Machine;
use snowflake_core::{Config, Horizon, Policy, Refusal, Slot, Slots};

/// The horizon of a server on which no transaction runs.
fn horizon(generator: &Gen) -> Horizon {
    let none = Slots { running: &[], prepared: &[] };
    generator.horizon(none, |_, _| false, |_| false).expect("an open gate")
}

/// The same of a simulated server.
fn of(machine: &Machine) -> Horizon {
    let none = Slots { running: &[], prepared: &[] };
    machine.with(|generator| generator.horizon(none, |_, _| false, |_| false).expect("an open gate"))
}

fn opened(config: &Config, world: &'static Machine) -> Gen {
    let [generator] = generators(config, world);
    open_gate(config, &generator, 1);
    generator
}

fn tick(config: &Config, id: i64) -> i64 {
    config.layout.unpack(id).unwrap().tick
}

#[test]
fn horizon_passes_all_ids_of_ended_transactions() {
    let config = config("41/10/12", 3, 64, limits(Policy::Hold, 10 * MS, 0));
    let world = Machine::starting_at(DAY);
    let generator = opened(&config, world);
    generator.rotate_now().unwrap();
    let first = horizon(&generator);
    for _ in 0..3 {
        let range = generator.next_range(2_000).unwrap();
        let later = horizon(&generator);
        assert!(range.last < later.id && later.id <= range.last + 4_096, "{later:?} after {range:?}");
        assert_eq!((later.breaks, later.since), (first.breaks, first.since));
        world.pass(MS / 2);
    }
    // Where no call comes, time alone moves it.
    world.pass(MINUTE);
    assert_eq!(tick(&config, horizon(&generator).id), world.wall() / MS);
}

/// A running transaction holds it at its first free position, to the ID; with a full tick, at the next tick.
#[test]
fn horizon_stays_at_the_first_id_of_a_running_transaction() {
    for used in [1, 4_000, 4_096] {
        let config = config("41/10/12", 3, 64, limits(Policy::Hold, 10 * MS, 0));
        let world = Machine::starting_at(DAY);
        let generator = opened(&config, world);
        generator.rotate_now().unwrap();
        let before = generator.next_range(used).unwrap();
        let slots = [Slot::default(), Slot::default()];
        generator.announce(&slots[1], 7);
        let first = generator.next_id().unwrap();
        assert!(before.last < first);
        world.pass(MINUTE);
        generator.announce(&slots[1], 7);
        generator.next_id().unwrap();
        let of_slots = |is_running: bool| {
            let slots = Slots { running: &slots, prepared: &[] };
            let horizon =
                generator.horizon(slots, |process, name| is_running && (process, name) == (1, 7), |_| false);
            horizon.unwrap().id
        };
        assert_eq!(of_slots(true), first, "after {used} IDs");
        assert!(of_slots(false) > first);
    }
}

#[test]
fn prepared_transactions_find_a_slot_while_there_is_room() {
    let config = config("41/10/12", 3, 64, limits(Policy::Hold, 10 * MS, 0));
    let generator = opened(&config, Machine::starting_at(DAY));
    let (own, prepared) = (Slot::default(), [Slot::default(), Slot::default()]);
    let slots = Slots { running: &[], prepared: &prepared };
    generator.next_id().unwrap();
    assert!(!slots.has_prepared(|_| true), "none yet");
    generator.announce(&own, 7);
    let first = generator.next_id().unwrap();
    // The second has generated nothing: its process's slot is of an earlier transaction.
    assert!(slots.prepare(&own, 7, 100, |_| true) && slots.prepare(&own, 8, 101, |_| true));
    assert!(!slots.prepare(&own, 9, 102, |_| true), "a third");
    assert!(slots.has_prepared(|name| name == 101) && !slots.has_prepared(|name| name == 102));
    let at = |progress: [u64; 2]| {
        generator.horizon(slots, |_, _| false, |name| progress.contains(&name)).unwrap().id
    };
    assert_eq!(at([100, 101]), first);
    assert!(at([101, 0]) > first);
    assert!(slots.prepare(&own, 9, 102, |name| name == 100), "in the place of one that has ended");
    assert!(slots.has_prepared(|name| name == 102) && !slots.has_prepared(|name| name == 101));
}

#[test]
fn closed_gate_has_no_horizon() {
    let config = config("41/10/12", 3, 64, limits(Policy::Hold, 10 * MS, 0));
    let [generator] = generators(&config, Machine::starting_at(DAY));
    let slots = Slots { running: &[], prepared: &[] };
    assert_eq!(generator.horizon(slots, |_, _| false, |_| false), Err(Refusal::GateClosed));
}

/// By hand, then because the clock steps back, then by a replay. What is held within `max_ahead` is none.
#[test]
fn rotations_and_replays_are_breaks_and_hold_is_none() {
    let config = config("41/10/12", 3, 64, limits(Policy::Hold, 10 * MS, 0));
    let world = Machine::starting_at(DAY);
    let generator = opened(&config, world);
    let start = horizon(&generator);
    world.pass(2 * DAY);
    generator.next_id().unwrap();
    world.step(-10 * MS);
    generator.next_id().unwrap();
    assert_eq!(horizon(&generator).breaks, start.breaks, "held");

    generator.rotate_now().unwrap();
    let by_hand = horizon(&generator);
    assert_eq!(by_hand.breaks, start.breaks + 1);
    assert_eq!(tick(&config, by_hand.since), 3 * DAY / MS - 10, "the clock's tick, not the start's");

    world.pass(3 * DAY);
    generator.next_id().unwrap();
    world.step(-MINUTE);
    let id = generator.next_id().unwrap();
    let stepped = horizon(&generator);
    assert_eq!((stepped.breaks, generator.status().counts.rotations), (start.breaks + 2, 2));
    assert!(stepped.since <= id);
    assert_eq!(tick(&config, stepped.since), tick(&config, id));

    world.pass(2 * DAY);
    generator.set_limits(limits(Policy::Replay, 10 * MS, 0));
    generator.next_id().unwrap();
    world.step(-20 * MS);
    let id = generator.next_id().unwrap();
    let replayed = horizon(&generator);
    assert_eq!((replayed.breaks, generator.status().counts.rotations), (start.breaks + 3, 2));
    assert_eq!(tick(&config, replayed.since), tick(&config, id));
}

/// A reader that looks once a day may have seen none of them, although the first was two days before the last.
#[test]
fn since_covers_breaks_that_follow_one_another_within_a_day() {
    let config = config("41/10/12", 7, 64, limits(Policy::Hold, 10 * MS, 0));
    let world = Machine::starting_at(10 * DAY);
    let generator = opened(&config, world);
    let start = horizon(&generator);
    world.pass(5 * DAY);
    generator.next_id().unwrap();
    world.step(-MINUTE);
    let lowest = generator.next_id().unwrap();
    for breaks in 2..=4 {
        world.pass(23 * HOUR);
        generator.rotate_now().unwrap();
        generator.next_id().unwrap();
        let found = horizon(&generator);
        assert!(start.since < found.since && found.since <= lowest, "{found:?} after {breaks} breaks");
    }
    world.pass(DAY);
    generator.rotate_now().unwrap();
    let later = horizon(&generator);
    assert_eq!(tick(&config, later.since), world.wall() / MS);
    assert_eq!(later.breaks, start.breaks + 5);
}

/// Also where its ID is of the lowest tick of the run, and of a lower worker than the reader's.
#[test]
fn transaction_that_lives_through_breaks_holds_the_horizon_below_its_ids() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.stop();
    machine.pass(HOUR);
    machine.start_up();
    machine.id();
    // To before the start, where no order has begun so far.
    machine.step(-10 * MINUTE);
    machine.id();
    let slots = [Slot::default()];
    let first = machine.with(|generator| {
        generator.announce(&slots[0], 7);
        generator.next_id().unwrap()
    });
    for breaks in 3..=5 {
        machine.with(|generator| generator.rotate_now().unwrap());
        machine.pass(MINUTE);
        let slots = Slots { running: &slots, prepared: &[] };
        let held = machine.with(|generator| generator.horizon(slots, |_, name| name == 7, |_| false));
        let held = held.unwrap();
        assert_eq!(held.id >> 22, (first >> 22) - 1, "{held:?} after {breaks} breaks, and {first}");
    }
}

/// The next lane begins where the clock was when it was entered, so that `since` stays true.
#[test]
fn clock_that_goes_back_again_before_the_first_id_leads_to_none_below_since() {
    let config = config("41/10/12", 7, 64, limits(Policy::Hold, 10 * MS, 0));
    let world = Machine::starting_at(10 * DAY);
    let generator = opened(&config, world);
    let start = horizon(&generator);
    world.pass(DAY);
    for rotations in 1..=3 {
        generator.rotate_now().unwrap();
        world.step(-HOUR);
        let id = generator.next_id().unwrap();
        let found = horizon(&generator);
        assert_eq!(found.breaks, start.breaks + 2 * rotations, "another rotation");
        assert!(found.since <= id);
    }
}

#[test]
fn starts_and_adoptions_are_breaks() {
    let machine = Machine::alone(plain());
    machine.start_up();
    machine.id();
    let first = of(&machine);
    assert!(first.since <= first.id);
    machine.adopt(machine.wall()).unwrap();
    let adopted = of(&machine);
    assert_eq!(adopted.breaks, first.breaks + 1);
    for is_clean in [true, false] {
        let before = of(&machine);
        if is_clean {
            machine.stop()
        } else {
            machine.go_down()
        }
        machine.pass(10 * MINUTE);
        machine.start_up();
        let after = of(&machine);
        assert_ne!(after.breaks, before.breaks);
        assert!(before.id < after.since && after.since <= after.id, "{before:?}, {after:?}");
    }
}

#[test]
fn change_of_lease_is_a_break_and_a_renewal_is_none() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    let first = of(&machine);
    machine.meet(&registry);
    assert_eq!(of(&machine).breaks, first.breaks, "renewed");
    registry.end(0);
    machine.meet(&registry);
    machine.settle();
    let id = machine.id();
    let changed = of(&machine);
    assert!(changed.breaks > first.breaks);
    let tick_of_since = changed.since >> 22;
    assert!(tick_of_since <= id.tick, "{changed:?}, and {id:?}");
}
