//! One scenario per test: another caller, or time itself, intervenes between two steps of a call. It does so when the
//! call looks at the clock, so each scenario runs the same way every time.

use crate::common::{Gen, When, config, generators, limits, open_gate};
use crate::simulation::basics::{Memory, default_config, start_on};
use crate::simulation::server::{DAY, HOUR, MS};
use crate::simulation::world::{Lock, Machine, is_locked};
use snowflake_core::{
    Config, Event, Layout, Limits, NoLane, NotOpen, Policy, Refusal, SequenceStart, Tick, Workers,
};
use std::collections::BTreeSet;

fn leak(generator: Gen) -> &'static Gen {
    Box::leak(Box::new(generator))
}

/// Generators on one new memory whose gate is open, and their machine, on which the clock is at `wall`.
fn opened<const N: usize>(config: Config, wall: i64) -> (Config, &'static Machine, [Gen; N]) {
    let world = Machine::starting_at(wall);
    let all = generators(&config, world);
    open_gate(&config, &all[0], 1);
    (config, world, all)
}

fn worker(config: &Config, id: i64) -> i64 {
    config.layout.unpack(id).unwrap().worker
}

fn tick(config: &Config, id: i64) -> i64 {
    config.layout.unpack(id).unwrap().tick
}

// ---- Calls that are overtaken by a rotation ----

/// Lane, then clock: in the other order, the call would push the new lane ahead to the time before the step.
#[test]
fn a_call_that_straddles_a_rotation_costs_no_second_lane() {
    let (config, world, [ours, theirs]) =
        opened(config("41/10/12", 3, 64, limits(Policy::Hold, 10 * MS, 0)), DAY);
    let theirs = leak(theirs);
    ours.next_id().unwrap();
    world.interrupt(1, When::AfterRead, move || {
        world.step(-HOUR);
        let id = theirs.next_id().unwrap();
        assert_eq!(theirs.status().counts.rotations, 1);
        assert_eq!(tick(&config, id), (DAY - HOUR) / MS);
    });
    let straddling = ours.next_id().unwrap();
    assert!(world.all_hooks_ran());
    assert_eq!(worker(&config, straddling), 0, "it claims in the lane that it had read");
    ours.next_id().unwrap();
    assert_eq!(ours.status().counts.rotations, 1);
}

/// The call that comes late to the lock finds the rotation done.
#[test]
fn a_rotation_that_somebody_else_has_made_is_not_made_again() {
    for look in 1..=4 {
        let (config, world, [ours, theirs]) =
            opened(config("41/10/12", 7, 64, limits(Policy::Hold, 10 * MS, 0)), DAY);
        let theirs = leak(theirs);
        ours.next_id().unwrap();
        world.step(-HOUR);
        world.interrupt(look, When::AfterRead, || {
            // While this thread holds the lock, nobody else can rotate.
            if !is_locked() {
                theirs.next_id().unwrap();
            }
        });
        let id = ours.next_id().unwrap();
        assert!(world.all_hooks_ran());
        let status = ours.status();
        assert_eq!((status.counts.rotations, status.steps.rollbacks), (1, 1), "interrupted at look {look}");
        assert_eq!(worker(&config, id), status.worker);
        assert_eq!(world.news().len(), 1, "reported once");
    }
}

// ---- Bursts ----

/// A generator with four IDs per tick that has run ahead as far as it may. The last call waited for a tick, and took
/// the first of its IDs.
fn used_up(world: &'static Machine) -> [&'static Gen; 2] {
    let config = config("41/10/2", 0, 64, limits(Policy::Hold, 10 * MS, 0));
    let [ours, theirs] = generators(&config, world).map(leak);
    open_gate(&config, ours, 1);
    while waited(world, || ours.next_id().map(drop)) == 0 {}
    assert_eq!(ours.status().ahead_us, 10 * MS);
    [ours, theirs]
}

fn waited<T>(world: &Machine, call: impl FnOnce() -> Result<T, Refusal>) -> i64 {
    let before = world.boot.get();
    call().unwrap();
    world.boot.get() - before
}

#[test]
fn a_call_waits_only_for_what_max_ahead_forbids() {
    let world = Machine::starting_at(DAY);
    let [ours, theirs] = used_up(world);
    for _ in 0..100 {
        for _ in 0..3 {
            assert_eq!(waited(world, || theirs.next_id()), 0, "the rest of the tick");
        }
        assert_eq!(waited(world, || ours.next_id()), MS, "the next tick");
    }
    assert_eq!(waited(world, || theirs.next_range(4)), MS, "a whole tick");
    let counts = ours.status().counts;
    assert_eq!((counts.waits, counts.wait_us, counts.since_us), (102, 102_000, 1));
    ours.reset_stats();
    let counts = ours.status().counts;
    assert_eq!((counts.waits, counts.wait_us, counts.since_us), (0, 0, world.wall()));
}

/// Others take the tick for which a call has slept; it sleeps for the next one, as long as there are ticks.
#[test]
fn a_call_that_wakes_late_waits_for_the_next_tick() {
    let world = Machine::starting_at(DAY);
    let [ours, theirs] = used_up(world);
    theirs.next_range(3).unwrap();
    // The looks at the clock: the attempt's, the observation's and the ladder's; the fourth comes after the wait.
    world.interrupt(4, When::BeforeRead, || assert_eq!(waited(world, || theirs.next_range(4)), 0));
    assert_eq!(waited(world, || ours.next_id()), 2 * MS);
    assert!(world.all_hooks_ran());
}

#[test]
fn a_clock_that_stands_still_holds_nobody_up_while_ids_are_left() {
    let world = Machine::starting_at(DAY);
    let [ours, theirs] = used_up(world);
    world.stalled.set(true);
    assert_eq!(waited(world, || theirs.next_range(3)), 0);
    assert_eq!(ours.status().counts.rotations, 0);
    // The tick that max_ahead allows is full, and no wait brings another.
    ours.next_id().unwrap_err();
}

// ---- Replay ----

/// By the time that the call would lower the current tick, the clock has been corrected; then it must not lower it.
#[test]
fn a_replay_that_comes_too_late_undoes_nobodys_progress() {
    let (_, world, [ours, theirs]) = opened(config("41/10/2", 0, 64, limits(Policy::Replay, 2 * MS, 0)), DAY);
    let theirs = leak(theirs);
    ours.next_id().unwrap();
    world.step(-10 * MS);
    let highest: &'static std::cell::Cell<i64> = Box::leak(Box::default());
    // The looks at the clock: the attempt's, the observation's, then the ladder's, which decides.
    world.interrupt(3, When::AfterRead, || {
        world.step(11 * MS);
        // The second range does not fit into the rest of its tick, and leaves one ID there.
        theirs.next_range(3).unwrap();
        highest.set(theirs.next_range(3).unwrap().last);
    });
    let late = ours.next_id().unwrap();
    assert!(world.all_hooks_ran());
    assert!(late > highest.get(), "{late} comes after {}", highest.get());
}

/// Each revisited tick continues from its own last sequence.
#[test]
fn replay_follows_the_clock_and_goes_on_inside_used_ticks() {
    let (_, world, [ours]) = opened(config("41/10/4", 0, 64, limits(Policy::Replay, 0, 0)), DAY);
    let mut first_pass = vec![];
    for _ in 0..20 {
        first_pass.push(ours.next_id().unwrap());
        world.pass(MS);
    }
    world.step(-20 * MS);
    for first in first_pass {
        assert_eq!(ours.next_id().unwrap(), first + 1);
        assert_eq!(ours.status().last_id_at_us, Some(world.wall()));
        world.pass(MS);
    }
    assert_eq!(ours.status().counts.rotations, 0);
    assert_eq!(ours.status().issued, 40);
}

/// From the current tick, the second step is within the ring, but the words there belong to later ticks.
#[test]
fn two_steps_back_that_together_leave_the_ring_end_in_a_rotation() {
    let (config, world, [ours]) = opened(config("41/10/4", 1, 16, limits(Policy::Replay, 0, 0)), DAY);
    let mut last = 0;
    for _ in 0..40 {
        last = ours.next_id().unwrap();
        world.pass(MS);
    }
    for _ in 0..2 {
        world.step(-10 * MS);
        ours.next_id().unwrap();
    }
    let status = ours.status();
    assert_eq!((status.counts.rotations, status.steps.rollbacks, status.issued), (1, 2, 42));
    // Back on the first lane, which has an old entry in the slot of the clock's tick.
    world.pass(HOUR);
    ours.rotate_now().unwrap();
    let status = ours.status();
    assert_eq!((status.last_id_at_us, status.ahead_us), (Some(tick(&config, last) * MS), 0));
    world.pass(MS);
    assert_eq!(ours.lane_statuses()[0].usable_at_us, Some(world.wall()), "now, if idle");
}

/// Every tick that the clock reaches is full already. The error names a time from which there are IDs again.
#[test]
fn a_refusal_among_full_ticks_tells_when_there_will_be_room() {
    let (_, world, [ours]) = opened(config("41/10/0", 0, 64, limits(Policy::Replay, 0, 0)), DAY);
    for _ in 0..30 {
        ours.next_id().unwrap();
        world.pass(MS);
    }
    world.step(-20 * MS);
    let refusal = ours.next_id().unwrap_err();
    let Refusal::NoLane(NoLane { behind_us, usable_at_us, .. }) = refusal else { panic!("{refusal:?}") };
    let now = world.wall();
    assert!(usable_at_us > now, "usable at {usable_at_us}, and it is {now}: {behind_us} us behind");
    world.step(usable_at_us - now);
    ours.next_id().expect("at the time that the refusal named");
}

/// At the end of the time field, replay lowers the current tick below ticks that are all full.
#[test]
fn a_replay_at_the_end_of_the_time_field_does_not_spin() {
    let (_, world, [ours]) = opened(config("8/10/0", 0, 64, limits(Policy::Replay, 5 * MS, 0)), 230 * MS);
    let mut ids = 0;
    while ours.next_id().is_ok() {
        ids += 1;
        assert!(ids < 300);
    }
    world.step(-6 * MS);
    for _ in 0..3 {
        let refusal = ours.next_id().unwrap_err();
        assert!(matches!(refusal, Refusal::Exhausted | Refusal::NoLane(_)), "{refusal:?}");
    }
}

// ---- The end of the time field and extreme clocks ----

#[test]
fn the_time_field_ends_without_wrapping_and_the_generator_knows() {
    for policy in [Policy::Hold, Policy::Replay] {
        let (_, world, [ours]) = opened(config("5/0/1", 0, 64, limits(policy, 0, 0)), 30 * MS);
        let ids: Vec<_> = std::iter::from_fn(|| ours.next_id().ok()).collect();
        assert_eq!(ids, [60, 61, 62, 63]);
        assert_eq!(ours.next_id(), Err(Refusal::Exhausted));
        assert_eq!(ours.obstacle(), Some(Refusal::Exhausted));
        world.pass(DAY);
        assert_eq!(ours.next_id(), Err(Refusal::Exhausted));
        assert_eq!(ours.obstacle(), Some(Refusal::Exhausted));
    }
}

/// With 63 bits of time and sequence, the last entry of the last tick is the highest that there is.
#[test]
fn the_highest_id_of_a_layout_without_worker_bits_is_the_highest_bigint() {
    let config = Config {
        layout: Layout::new("42/0/21".parse().unwrap(), Tick::Second, 0).unwrap(),
        ..config("42/0/21", 0, 64, limits(Policy::Hold, 0, 0))
    };
    let world = Machine::starting_at(config.layout.starts_at(config.layout.max_tick()));
    let [ours] = generators(&config, world);
    open_gate(&config, &ours, 1);
    let capacity = config.layout.sequences();
    let most = ours.next_range(capacity - 1).unwrap();
    assert_eq!(most.last, i64::MAX - 1);
    assert_eq!(ours.next_id(), Ok(i64::MAX));
    assert_eq!(ours.next_id(), Err(Refusal::Exhausted));
    assert_eq!(ours.obstacle(), Some(Refusal::Exhausted));
    assert_eq!(ours.status().issued, capacity as u64);
    assert_eq!(ours.lane_statuses()[0].mark_us, Some(world.wall()));
}

/// A clock can return any value. The caller gets IDs or a correct refusal, never a panic or an endless loop.
#[test]
fn extreme_clocks_are_survived() {
    for epoch in [0, i64::MIN / 2, 1_704_067_200_000_000, i64::MAX / 2] {
        for clock in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX] {
            for policy in [Policy::Hold, Policy::Replay] {
                for max_wait in [0, 5 * MS, i64::MAX] {
                    let base = config("41/10/12", 3, 64, limits(policy, 10 * MS, max_wait));
                    let layout = Layout::new(base.layout.bits(), Tick::Millisecond, epoch).unwrap();
                    let config = Config { layout, ..base };
                    let world = Machine::starting_at(layout.starts_at(1_000_000));
                    world.boot.set(1);
                    world.set_wall(layout.starts_at(1_000_000));
                    let [ours] = generators(&config, world);
                    open_gate(&config, &ours, 1);
                    ours.next_id().unwrap();
                    world.set_wall(clock);
                    let (steps, is_back) = (ours.status().steps, clock < layout.starts_at(1_000_000));
                    assert_eq!((steps.rollbacks, steps.forward_jumps), (is_back.into(), (!is_back).into()));
                    // With unlimited patience, only a clock that has caught up ends the wait.
                    if max_wait < i64::MAX || layout.relative(clock) > 0 {
                        let _ = ours.next_id();
                    }
                    let _ = ours.obstacle();
                    let _ = ours.status();
                    let _ = ours.lane_statuses();
                    let _ = ours.rotate_now();
                }
            }
        }
    }
}

#[test]
fn error_before_the_epoch_says_by_how_much() {
    let config = config("41/10/12", 7, 64, limits(Policy::Hold, 10 * MS, 0));
    let world = Machine::starting_at(-HOUR);
    let [ours] = generators(&config, world);
    let start = start_on(1);
    assert_eq!(ours.open(&start), Err(NotOpen::Clock(Refusal::BeforeEpoch(HOUR))));
    world.pass(HOUR);
    open_gate(&config, &ours, 1);
    world.step(-HOUR);
    assert_eq!(ours.next_id(), Err(Refusal::BeforeEpoch(HOUR)));
    assert_eq!((ours.status().before_epoch_us, ours.status().ahead_us), (HOUR, 0));
    world.pass(HOUR - 9 * MS);
    assert_eq!(tick(&config, ours.next_id().unwrap()), 1);
    world.pass(HOUR);
    assert_eq!((ours.status().before_epoch_us, ours.status().counts.rotations), (0, 0));
}

// ---- Waiting ----

/// The wall clock does not move at all: the wait ends by the monotonic clock, and the call leaves the lane.
#[test]
fn a_clock_that_stands_still_does_not_hold_a_call_for_ever() {
    for policy in [Policy::Hold, Policy::Replay] {
        let (config, world, [ours]) = opened(config("41/10/1", 1, 64, limits(policy, 0, 5 * MS)), DAY);
        world.stalled.set(true);
        let boot = world.boot.get();
        let ids: Vec<_> = (0..4).map(|_| ours.next_id().unwrap()).collect();
        assert_eq!(tick(&config, ids[0]), tick(&config, ids[3]));
        assert_eq!(ours.status().counts.rotations, 1);
        assert!(world.boot.get() - boot <= 7 * MS);
        let refusal = ours.next_id().unwrap_err();
        assert!(matches!(refusal, Refusal::NoLane(_)), "{refusal:?}");
    }
}

/// It looks at the clock each 50 ms.
#[test]
fn a_long_wait_ends_when_the_clock_is_corrected_and_counts_once() {
    let (_, world, [ours]) = opened(config("41/10/12", 0, 64, limits(Policy::Hold, 0, 400 * MS)), DAY);
    ours.next_id().unwrap();
    world.step(-300 * MS);
    world.steps_in_waits.borrow_mut().extend([0, 300 * MS]);
    assert_eq!(waited(world, || ours.next_id()), 100 * MS);
    let counts = ours.status().counts;
    assert_eq!((counts.waits, counts.wait_us), (1, 100_000));
}

// ---- Counting and reporting steps ----

/// Two callers see one step. The one that had read the clock before it must not count a step back.
#[test]
fn a_reading_from_before_a_step_counts_no_step() {
    let (_, world, [ours, theirs]) = opened(config("41/10/12", 3, 64, Limits::default()), DAY);
    let theirs = leak(theirs);
    world.interrupt(1, When::AfterRead, || {
        world.step(-HOUR);
        assert_eq!(theirs.status().steps.rollbacks, 1);
    });
    ours.status();
    let status = ours.status();
    assert!(world.all_hooks_ran());
    assert_eq!((status.steps.rollbacks, status.steps.forward_jumps), (1, 0));
    assert_eq!(world.news(), []);
}

/// The process slept between its looks at the two clocks. That is no step, and must leave no false offset.
#[test]
fn a_process_that_sleeps_between_two_clocks_has_seen_no_step() {
    let config = config("41/10/12", 3, 64, Limits::default());
    let world = Machine::starting_at(DAY);
    let [ours] = generators(&config, world);
    world.interrupt(1, When::BeforeRead, || world.pass(20 * MS));
    open_gate(&config, &ours, 1);
    assert!(world.all_hooks_ran());
    assert_eq!(ours.status().steps.rollbacks, 0, "slept when the offset was first seen");

    // Up to half a millisecond counts as one moment. Three looks that take longer are left to the next call.
    for (slept, looks, seen, largest) in
        [(20 * MS, 1, 1, HOUR), (501, 2, 1, HOUR), (501, 3, 0, HOUR), (500, 1, 1, HOUR - 500)]
    {
        ours.reset_stats();
        world.step(-HOUR);
        (1..=looks).for_each(|look| world.interrupt(look, When::BeforeRead, move || world.pass(slept)));
        assert_eq!(ours.status().steps.rollbacks, seen, "slept for {slept} us");
        let steps = ours.status().steps;
        assert!(world.all_hooks_ran());
        assert_eq!((steps.rollbacks, steps.largest_rollback_us), (1, largest), "slept for {slept} us");
    }
}

/// The host may take long over a report, or call the generator, so no lock is held.
#[test]
fn a_forward_jump_seen_while_the_gate_opens_is_reported_without_a_lock() {
    let config = config("41/10/12", 3, 64, Limits::default());
    let world = Machine::starting_at(DAY);
    let [ours] = generators(&config, world);
    ours.status();
    world.step(HOUR);
    open_gate(&config, &ours, 1);
    assert_eq!(world.news()[0], Event::ForwardJump(HOUR));
}

#[test]
fn a_refusal_is_told_once_until_there_was_an_id_again() {
    let (_, world, [ours]) = opened(config("41/10/12", 0, 64, limits(Policy::Hold, 10 * MS, 0)), DAY);
    ours.next_id().unwrap();
    for told in 1..=2 {
        world.step(-HOUR);
        for _ in 0..3 {
            ours.next_id().unwrap_err();
        }
        assert_eq!(world.news().len(), told);
        // Back at the old time, IDs continue in the tick of the last one.
        world.step(HOUR);
        ours.next_id().unwrap();
    }
    assert_eq!(ours.status().counts.refusals, 6);
}

// ---- Rotation by hand, timelines, limits ----

/// Lanes of the timeline's parity come first.
#[test]
fn each_rollback_uses_a_lane_and_one_more_is_refused_until_the_first_is_free() {
    let (config, world, [ours]) = opened(config("41/10/12", 3, 64, limits(Policy::Hold, 10 * MS, 0)), DAY);
    let mut workers = vec![];
    for _ in 0..4 {
        workers.push(worker(&config, ours.next_id().unwrap()));
        world.pass(5 * MS);
        ours.next_id().unwrap();
        world.step(-HOUR);
    }
    assert_eq!(workers, [0, 512, 768, 256]);
    let refusal = ours.next_id().unwrap_err();
    let usable = DAY + 15 * MS - 3 * HOUR + 5 * MS;
    let expected = NoLane { behind_us: HOUR, worker: 256, usable_at_us: usable - 10 * MS, is_floor: false };
    assert_eq!(refusal, Refusal::NoLane(expected));
    assert_eq!(ours.obstacle(), Some(refusal));
    assert_eq!(ours.lane_statuses().iter().map(|lane| lane.issued).collect::<Vec<_>>(), [2; 4]);
    assert_eq!(ours.status().counts.rotations, 3);
    world.set_wall(expected.usable_at_us);
    assert_eq!(worker(&config, ours.next_id().unwrap()), expected.worker);
}

/// `max_wait` is for whichever lane is usable first, not only for the active one.
#[test]
fn a_lane_that_is_usable_within_max_wait_is_waited_for() {
    // Wherever the clock catches up within a call, the call ends.
    let overtaken = (1..=12).map(|look| (0, None, look));
    for (too_early, wait, look) in [(0, Some(5 * MS), 0), (1, None, 0)].into_iter().chain(overtaken) {
        let (config, world, [ours]) =
            opened(config("41/10/12", 1, 128, limits(Policy::Hold, 10 * MS, 5 * MS)), DAY);
        ours.next_id().unwrap();
        let usable = ours.lane_statuses()[0].mark_us.unwrap() + MS;
        world.step(-HOUR);
        assert_eq!(worker(&config, ours.next_id().unwrap()), 512);
        world.set_wall(usable + 59 * MS);
        assert_eq!(worker(&config, ours.next_id().unwrap()), 512);
        // Now the first lane's next tick is 15 ms ahead, and that of the active one 74 ms.
        world.step(-74 * MS - too_early);
        let now = world.wall();
        let foretold = ours.obstacle();
        if look > 0 {
            world.interrupt(look, When::BeforeRead, || world.step(5 * MS));
            ours.next_id().unwrap();
            continue;
        }
        let outcome = ours.next_id();
        assert_eq!(outcome.err(), foretold);
        assert_eq!(ours.status().counts.refusals, u64::from(wait.is_none()));
        if let Some(wait) = wait {
            let id = outcome.unwrap();
            assert_eq!((worker(&config, id), tick(&config, id)), (0, usable / MS - 10));
            assert_eq!(world.wall() - now, wait);
            assert_eq!(ours.status().counts.waits, 1);
        } else {
            let Err(Refusal::NoLane(no_lane)) = outcome else { panic!("{outcome:?}") };
            assert_eq!((no_lane.worker, no_lane.usable_at_us - now), (0, 5 * MS + 1));
        }
    }
}

#[test]
fn rotation_by_hand_prefers_the_timelines_parity() {
    let config = config("41/10/12", 7, 64, limits(Policy::Hold, 10 * MS, 0));
    for timeline in 1..=9 {
        let world = Machine::starting_at(DAY);
        let [ours] = generators(&config, world);
        assert_eq!(ours.rotate_now(), Err(Refusal::GateClosed));
        open_gate(&config, &ours, timeline);
        open_gate(&config, &ours, timeline);
        let first = (i64::from(timeline) - 1) % 8;
        assert_eq!(worker(&config, ours.next_id().unwrap()), first * 128);
        let workers = [(); 5].map(|()| {
            ours.next_id().unwrap();
            world.pass(1_000 * MS);
            ours.rotate_now().unwrap()
        });
        assert_eq!(workers, [2, 4, 6, 8, 10].map(|lanes| (first + lanes) % 8 * 128), "timeline {timeline}");
    }
}

#[test]
fn rotation_by_hand_that_is_refused_names_another_worker() {
    let (_, world, [ours]) = opened(config("41/10/12", 1, 64, limits(Policy::Hold, 10 * MS + 500, 0)), DAY);
    ours.next_id().unwrap();
    assert_eq!(ours.rotate_now(), Ok(512));
    let Err(Refusal::NoLane(no_lane)) = ours.rotate_now() else {
        panic!("the first worker is not usable yet")
    };
    assert_eq!(no_lane.worker, 0);
    assert!(no_lane.usable_at_us > world.wall());
    world.set_wall(no_lane.usable_at_us);
    assert_eq!(ours.rotate_now(), Ok(0));
}

/// A backend that starts late creates a generator on memory that is in use.
#[test]
fn a_further_generator_leaves_the_limits_in_force_alone() {
    let config = config("41/10/12", 0, 64, limits(Policy::Hold, 17 * MS, 0));
    let world = Machine::starting_at(DAY);
    let memory = Box::leak(Box::new(Memory::<Lock>::new(&config)));
    let ours = Gen::new(&config, memory.view(), world);
    assert_eq!(ours.limits().max_ahead_us, 16 * MS, "a quarter of the ring");
    let changed = limits(Policy::Replay, 5 * MS, 7 * MS);
    ours.set_limits(changed);
    let _late = Gen::new(&config, memory.view(), world);
    assert_eq!(ours.asked_limits(), changed);
}

#[test]
fn spread_sequences_vary_where_an_id_comes_once_a_second() {
    let config = config("41/10/12", 0, 64, Limits::default());
    let config = Config { sequence_start: SequenceStart::Spread, ..config };
    let (config, world, [ours]) = opened(config, DAY);
    let sequence = |_| {
        world.pass(1_000 * MS);
        config.layout.unpack(ours.next_id().unwrap()).unwrap().sequence
    };
    assert_eq!((0..1_000).map(sequence).collect::<BTreeSet<_>>(), (0..64).collect());
}

#[test]
fn issued_counts_from_the_first_sequence_of_each_tick() {
    let config =
        Config { sequence_start: SequenceStart::Spread, ..config("32/8/23", 0, 64, Limits::default()) };
    let (_, world, [ours]) = opened(config, DAY);
    for issued in 1..=200 {
        world.pass(MS);
        ours.next_id().unwrap();
        assert_eq!(ours.status().issued, issued);
    }
}

/// Datacenter bits above their field would be read as time.
#[test]
#[should_panic(expected = "datacenter")]
fn a_datacenter_outside_its_field_is_no_configuration() {
    let layout = Layout::new("41/2+8/12".parse().unwrap(), Tick::Millisecond, 0).unwrap();
    let workers = Workers::new(&layout, 0, 0).unwrap();
    let config = Config { layout, workers, datacenter: 4, ring_ticks: 64, ..default_config() };
    let _: [Gen; 1] = generators(&config, Machine::starting_at(DAY));
}
