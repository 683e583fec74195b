//! Real threads at full speed, compared with what a sequential generator would have generated.

use crate::simulation::basics::{Memory, NoDisk, default_config, start_on};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::{SharedClock, limits, settle};
use crate::simulation::world::Lock;
use snowflake_core::{Config, Disk, Event, Generator, Layout, Limits, Platform, Policy, Tick, Workers};

/// The system's clocks, and a thread's sleep.
#[derive(Clone, Copy)]
struct SystemPlatform;

impl Platform for SystemPlatform {
    fn wall_us(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        }
    }

    fn boot_us(&self) -> i64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_micros() as i64
    }

    fn wait(&self, micros: i64) {
        std::thread::sleep(Duration::from_micros(micros as u64));
    }

    fn report(&self, _event: Event) {}

    fn disk(&self) -> &dyn Disk {
        &NoDisk
    }
}

fn config(bits: &str, backups: usize, ring_ticks: usize, limits: Limits) -> Config {
    let layout = Layout::new(bits.parse().unwrap(), Tick::Millisecond, 1_704_067_200_000_000).unwrap();
    let workers = Workers::new(&layout, 0, backups).unwrap();
    Config { layout, workers, ring_ticks, limits, ..default_config() }
}

/// A call that got its ID: the moments at which it began and ended, in a count that all threads share, and the ID.
#[derive(Clone, Copy)]
struct Call {
    began: u64,
    ended: u64,
    id: i64,
}

/// Lets `threads` threads generate `calls` IDs each, all at once.
fn hammer<P: Platform + Sync + Copy>(config: &Config, platform: P, threads: usize, calls: usize) -> Outcome {
    let memory = Memory::<Lock>::new(config);
    let generators: Vec<_> = (0..threads).map(|_| Generator::new(config, memory.view(), platform)).collect();
    settle(&generators[0], &start_on(1));
    let began_us = platform.wall_us();
    let (moment, barrier) = (AtomicU64::new(0), Barrier::new(threads));
    let threads = std::thread::scope(|scope| {
        let (moment, barrier) = (&moment, &barrier);
        let calls = generators.iter().map(|generator| {
            scope.spawn(move || {
                barrier.wait();
                let call = || {
                    let began = moment.fetch_add(1, Ordering::SeqCst);
                    let id = generator.next_id().ok();
                    let ended = moment.fetch_add(1, Ordering::SeqCst);
                    id.map(|id| Call { began, ended, id })
                };
                (0..calls).filter_map(|_| call()).collect::<Vec<_>>()
            })
        });
        let calls: Vec<_> = calls.collect();
        calls.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let issued = generators[0].lane_statuses().iter().map(|lane| (lane.worker, lane.issued)).collect();
    Outcome { began_us, threads, issued, rotations: generators[0].status().counts.rotations }
}

struct Outcome {
    began_us: i64,
    threads: Vec<Vec<Call>>,
    issued: HashMap<i64, u64>,
    rotations: u64,
}

impl Outcome {
    fn ids(&self) -> Vec<i64> {
        let mut ids: Vec<_> = self.threads.iter().flatten().map(|call| call.id).collect();
        ids.sort_unstable();
        ids
    }

    /// A sequential generator fills each tick from its first sequence on without a gap, and counts correctly.
    fn is_what_one_caller_could_have_made(&self, config: &Config) {
        let ids = self.ids();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "an ID was made twice");
        let mut next = HashMap::<(i64, i64), i64>::new();
        let mut made = HashMap::<i64, u64>::new();
        for id in ids {
            let parts = config.layout.unpack(id).unwrap();
            let next = next.entry((parts.worker, parts.tick)).or_default();
            assert_eq!(parts.sequence, *next, "a gap, or more than fit, in tick {}", parts.tick);
            *next += 1;
            *made.entry(parts.worker).or_default() += 1;
        }
        for (worker, issued) in &self.issued {
            assert_eq!(made.get(worker).copied().unwrap_or(0), *issued, "count of worker {worker}");
        }
    }

    /// Guarantee 5: an ID whose call ended before another call began is below that call's ID. Goes through the calls in
    /// the order in which they began, and keeps the highest ID of those that had ended by then.
    fn is_in_order(&self) {
        for thread in &self.threads {
            assert!(thread.windows(2).all(|pair| pair[0].id < pair[1].id), "one thread's own order");
        }
        let mut moments = vec![];
        for call in self.threads.iter().flatten() {
            moments.push((call.began, true, call.id));
            moments.push((call.ended, false, call.id));
        }
        moments.sort_unstable();
        let mut highest = -1;
        for (_, is_begin, id) in moments {
            match is_begin {
                true => assert!(id > highest, "guarantee 5: {id} began after {highest} had ended"),
                false => highest = highest.max(id),
            }
        }
    }
}

#[test]
fn millions_of_ids_by_the_systems_clock() {
    let config = default_config();
    let outcome = hammer(&config, SystemPlatform, 4, 700_000);
    assert_eq!(outcome.threads.iter().map(Vec::len).sum::<usize>(), 4 * 700_000);
    assert_eq!(outcome.rotations, 0);
    outcome.is_in_order();
    outcome.is_what_one_caller_could_have_made(&config);
}

/// Four IDs per tick and a ring of 64 ticks: the ring wraps, the threads compete for each tick, and calls wait.
#[test]
fn a_tiny_ring_under_the_systems_clock() {
    let limits = limits(Policy::Hold, 16_000, 10_000_000);
    let config = config("41/10/2", 7, 64, limits);
    let outcome = hammer(&config, SystemPlatform, 4, 2_000);
    assert_eq!(outcome.rotations, 0);
    outcome.is_in_order();
    outcome.is_what_one_caller_could_have_made(&config);
}

#[test]
fn nobody_exceeds_the_layout_by_more_than_max_ahead() {
    let limits = limits(Policy::Hold, 20_000, 10_000_000);
    let config = config("41/10/6", 0, 128, limits);
    let outcome = hammer(&config, SystemPlatform, 4, 8_000);
    let ticks = (SystemPlatform.wall_us() - outcome.began_us) / 1_000 + 20 + 2;
    let most = ticks * config.layout.sequences();
    assert!(outcome.ids().len() as i64 <= most, "{} IDs in {ticks} ticks", outcome.ids().len());
}

/// Threads that generate single IDs as fast as they can, and one that takes whole ticks: neither may starve. A
/// whole-tick range ends the tick for the others, so if it always came first, they would get nothing. Who comes first
/// is the scheduler's choice, so how many they get depends on what else the machine does: a tenth is asked for, in one
/// of five attempts.
#[test]
fn single_calls_go_on_beside_ranges_of_whole_ticks() {
    let ranges = 50;
    assert!((0..5).any(|_| singles_beside(ranges) > ranges * 256 / 10), "single calls starve");
}

/// How many single IDs three threads generate while another one takes whole ticks.
fn singles_beside(ranges: u64) -> u64 {
    let limits = limits(Policy::Hold, 20_000, 10_000_000);
    let config = config("41/10/8", 0, 128, limits);
    let memory = Memory::<Lock>::new(&config);
    let generators: Vec<_> = (0..4).map(|_| Generator::new(&config, memory.view(), SystemPlatform)).collect();
    let [whole, single @ ..] = &generators[..] else { unreachable!() };
    settle(whole, &start_on(1));
    let (is_over, singles) = (AtomicBool::new(false), AtomicU64::new(0));
    let (of_singles, took) = std::thread::scope(|scope| {
        for generator in single {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    generator.next_id().unwrap();
                    singles.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Until IDs run as far ahead of the clock as they may.
        while whole.status().ahead_us < 19_000 {
            std::thread::yield_now();
        }
        singles.store(0, Ordering::Relaxed);
        let began = Instant::now();
        for _ in 0..ranges {
            whole.next_range(config.layout.sequences()).unwrap();
        }
        let of_singles = singles.load(Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        (of_singles, began.elapsed())
    });
    println!("{of_singles} single IDs beside {ranges} whole ticks");
    assert!(took < Duration::from_secs(30), "{ranges} whole ticks took {took:?}");
    of_singles
}

/// A clock that moves on a little with each look.
fn stepping() -> SharedClock {
    SharedClock::new(1_800_000_000_000_000, 1)
}

/// Without a step, order holds over all threads and no lane is left, although ticks of four IDs keep filling up.
#[test]
fn millions_of_ids_in_order_by_a_clock_of_our_own() {
    for policy in [Policy::Hold, Policy::Replay] {
        let limits = limits(policy, 4_000, 1_000_000);
        let config = config("41/10/2", 3, 64, limits);
        let outcome = hammer(&config, &stepping(), 4, 250_000);
        outcome.is_in_order();
        outcome.is_what_one_caller_could_have_made(&config);
        assert_eq!(outcome.rotations, 0, "{policy:?}");
    }
}

/// Steps back by up to 200 ticks and forward again, all the time: each ID is unique, and counted once.
#[test]
fn millions_of_ids_while_somebody_steps_the_clock() {
    for policy in [Policy::Hold, Policy::Replay] {
        let limits = limits(policy, 4_000, 3_000);
        let config = config("41/10/3", 7, 64, limits);
        let clock = &stepping();
        let is_over = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                for step in [-3_000, 9_000, -200_000, 250_000, -61_000, 80_000, -1, 7_000].iter().cycle() {
                    clock.wall.fetch_add(*step, Ordering::SeqCst);
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            let outcome = hammer(&config, clock, 4, 250_000);
            is_over.store(true, Ordering::Relaxed);
            outcome
        });
        let made = outcome.ids().len();
        assert!(made > 100_000, "{policy:?}: only {made} IDs");
        outcome.is_what_one_caller_could_have_made(&config);
    }
}

/// Many threads see one step back: one of them rotates, and the step is counted once.
#[test]
fn a_hundred_threads_that_see_one_step_make_one_rotation() {
    for _ in 0..20 {
        let limits = limits(Policy::Hold, 4_000, 3_000);
        let config = config("41/10/12", 7, 64, limits);
        let clock = &stepping();
        let memory = Memory::<Lock>::new(&config);
        let generators: Vec<_> = (0..100).map(|_| Generator::new(&config, memory.view(), clock)).collect();
        settle(&generators[0], &start_on(1));
        clock.wait(3_600_000_000);
        generators[0].next_id().unwrap();
        clock.wall.fetch_sub(3_600_000_000, Ordering::SeqCst);
        let barrier = Barrier::new(generators.len());
        std::thread::scope(|scope| {
            for generator in &generators {
                scope.spawn(|| {
                    barrier.wait();
                    generator.next_id().unwrap();
                });
            }
        });
        let status = generators[0].status();
        assert_eq!((status.counts.rotations, status.steps.rollbacks, status.steps.forward_jumps), (1, 1, 0));
        assert_eq!((status.issued, clock.jumps_forward.load(Ordering::Relaxed)), (101, 0));
    }
}
