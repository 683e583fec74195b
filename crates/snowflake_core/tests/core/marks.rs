//! The marks of workers that this server had under earlier settings.

use crate::simulation::fixtures::{plain, tick, with_backups};
use crate::simulation::server::{HOUR, MINUTE, MS, Server};
use crate::simulation::world::{Machine, config};
use snowflake_core::{Config, Limits, Refusal, Tick};

fn home(worker: i64, backups: usize) -> Config {
    config("41/10/12", Tick::Millisecond, worker, backups, 16_384, Limits::default())
}

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
            assert_eq!(machine.disk.said().unwrap().floor_us == i64::MIN, worker <= 48, "{worker}");
            known.add(&machine, worker);
            machine.go_down();
            if pace > 0 { machine.pass(pace) } else { machine.step(pace) }
        }
        assert_eq!(machine.disk.said().unwrap().marks.len(), 49, "the others share the floor");
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
fn workers_dropped_together_lose_no_mark() {
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

/// The floor is that of the greatest mark that was dropped, under a clock that is right now.
#[test]
fn dropped_worker_is_refused_below_the_floor() {
    let machine = Machine::alone(home(0, 0));
    machine.step(HOUR);
    machine.start_up();
    let last = machine.id();
    machine.go_down();
    machine.pass(HOUR);
    for worker in 1..60 {
        machine.set_config(home(worker, 0));
        machine.start_up();
        machine.id();
        machine.go_down();
    }
    assert!(!machine.disk.said().unwrap().marks.contains_key(&0));
    machine.step(-2 * HOUR);
    machine.set_config(home(0, 0));
    machine.start_up();
    assert!(matches!(machine.try_id(), Err(Refusal::NoLane(_))));
    assert!(machine.mark(0) >= last.tick);
}

#[test]
fn worker_that_comes_back_goes_on_above_its_mark() {
    let machine = Machine::alone(home(3, 7));
    machine.start_up();
    machine.pass(HOUR);
    let first = machine.id();
    machine.go_down();
    machine.step(-MS);
    let mut seen = vec![(first.worker, first.tick)];
    for worker in [5, 3, 7, 5, 3] {
        machine.set_config(home(worker, 7));
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
fn lanes_given_up_and_taken_back_keep_their_marks() {
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

/// At the epoch, a mark of -1 forbids no tick.
#[test]
fn first_start_at_the_epoch_counts_from_there() {
    let machine = Machine::alone(plain());
    machine.step(-machine.wall());
    machine.start_up();
    assert_eq!(machine.id().tick, tick(3_000 * MS) + 1);
}
