//! The cost of a step of the clock, and the steps that are reported.

use crate::common::{Gen, When, config, generators, limits, open_gate};
use crate::simulation::server::{DAY, MS, SECOND};
use crate::simulation::world::{Machine, is_locked};
use snowflake_core::{Event, Policy, Refusal};

/// A replay goes further back than the ring reaches, where the entries belong to later ticks, and another process
/// rotates between any two looks of the call. The later ticks belong to the old lane; the new lane follows the clock.
#[test]
fn a_rotation_in_the_middle_of_a_replay_behind_the_ring_costs_one_lane() {
    const LOOKS: usize = 12;
    let mut interrupted = 0;
    for look in 1..=LOOKS {
        for when in [When::BeforeRead, When::AfterRead] {
            let config = config("41/10/4", 3, 16, limits(Policy::Replay, 0, 0));
            let world = Machine::starting_at(DAY);
            let [ours, theirs] = generators(&config, world);
            let theirs: &'static Gen = Box::leak(Box::new(theirs));
            open_gate(&config, &ours, 1);
            for _ in 0..40 {
                ours.next_id().unwrap();
                world.pass(MS);
            }
            world.step(-10 * MS);
            ours.next_id().unwrap();
            world.step(-10 * MS);
            world.interrupt(look, when, || {
                // While this thread holds the lock, nobody else can rotate.
                if !is_locked() && theirs.status().counts.rotations == 0 {
                    theirs.rotate_now().unwrap();
                }
            });
            let id = ours.next_id().unwrap();
            interrupted += usize::from(world.all_hooks_ran());
            let now = world.wall() / MS;
            assert_eq!(ours.status().counts.rotations, 1, "look {look}");
            // A call that had read the old lane before the rotation may still use it.
            let next = ours.next_id().unwrap();
            for id in [id, next] {
                let parts = config.layout.unpack(id).unwrap();
                assert!(parts.tick <= now, "look {look}: {} ticks ahead of the clock", parts.tick - now);
            }
            assert_eq!(ours.status().counts.waits, 0, "look {look}: nothing is waited for");
            assert_eq!(config.layout.unpack(next).unwrap().worker, 512, "look {look}: the lane entered");
            assert_eq!(ours.status().counts.rotations, 1, "look {look}");
        }
    }
    assert!(interrupted >= 8, "{interrupted} looks were interrupted");
}

#[test]
fn steps_count_beyond_noise_and_are_told_of_from_a_minute_on() {
    for (step, back, is_told) in
        [(60 * SECOND, 0, false), (60 * SECOND + 1, 0, true), (-500, 0, false), (-501, 1, false)]
    {
        let config = config("41/10/12", 3, 64, limits(Policy::Hold, 10 * MS, 0));
        let world = Machine::starting_at(DAY);
        let [ours] = generators(&config, world);
        open_gate(&config, &ours, 1);
        ours.next_id().unwrap();
        world.step(step);
        ours.next_id().unwrap();
        let steps = ours.status().steps;
        assert_eq!((steps.rollbacks, steps.forward_jumps), (back, u64::from(is_told)), "{step} us");
        let told = if is_told { vec![Event::ForwardJump(step)] } else { vec![] };
        assert_eq!(world.news(), told, "{step} us");
    }
}

/// IDs run ahead of the clock by up to `max_ahead`, and by part of a tick more. A rotation within that does not mean
/// that the clock has moved.
#[test]
fn a_rotation_tells_how_far_the_clock_is_behind_where_ids_do_not_run_so_far_ahead() {
    let max_ahead = 10 * MS;
    for (step, behind_us) in [
        (0, 0),
        (max_ahead, 0),
        (max_ahead + MS, 0),
        (max_ahead + MS + 1, max_ahead + MS + 1),
        (DAY / 2, DAY / 2),
    ] {
        let config = config("41/10/12", 3, 64, limits(Policy::Hold, max_ahead, 0));
        let world = Machine::starting_at(DAY);
        let [ours] = generators(&config, world);
        open_gate(&config, &ours, 1);
        ours.next_id().unwrap();
        world.step(-step);
        ours.rotate_now().unwrap();
        let rotated = Event::Rotated { from: 0, to: 512, behind_us };
        assert_eq!(world.news(), vec![rotated], "back by {step} us");
    }
}

/// The last tick of the time field can be waited for; there is none after it.
#[test]
fn a_rotation_at_the_end_of_the_time_field_is_refused_by_what_is_left_of_it() {
    let config = config("5/0/1", 0, 64, limits(Policy::Hold, 0, 0));
    let world = Machine::starting_at(31 * MS);
    let [ours] = generators(&config, world);
    open_gate(&config, &ours, 1);
    ours.next_id().unwrap();
    let refused = ours.rotate_now();
    assert!(matches!(refused, Err(Refusal::NoLane(_))), "{refused:?} with an ID left");
    ours.next_id().unwrap();
    assert_eq!(ours.rotate_now(), Err(Refusal::Exhausted));
}
