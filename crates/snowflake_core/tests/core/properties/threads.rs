//! Threads at the same time, under a clock that moves.

use super::check_unique;
use super::ranges::{cases, configs};
use crate::common::{HIGHEST_READ, SharedClock};
use crate::simulation::world::Lock;
use proptest::prelude::*;
use snowflake_core::{Generator, Memory, Start};
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

proptest! {
    #![proptest_config(cases(400))]

    /// Real threads, tiny rings and sequences, a clock that jumps about: guarantees 1 and 4, and exact counts.
    #[test]
    fn any_threads_under_any_clock_keep_the_guarantees(
        config in configs(),
        threads in 2..=4_usize,
        moves in prop::collection::vec((-40..40_i64, any::<bool>()), 1..40),
        share in 0..=100_i64,
    ) {
        let us = config.layout.tick().micros();
        let middle = config.layout.starts_at(config.layout.max_tick().min(1 << 40) / 2);
        let clock = SharedClock::new(middle, 0);
        let memory = Memory::<Lock>::new(&config);
        let generators: Vec<_> =
            (0..threads).map(|_| Generator::new(&config, memory.view(), &clock)).collect();
        generators[0].open(&Start::of_timeline(1)).unwrap();
        let barrier = Barrier::new(threads + 1);
        let is_over = AtomicBool::new(false);
        let max_ahead = generators[0].limits().max_ahead_us;
        let all = std::thread::scope(|scope| {
            let (clock, barrier, is_over) = (&clock, &barrier, &is_over);
            let calls = generators.iter().map(|generator| {
                scope.spawn(move || {
                    let mut made = vec![];
                    barrier.wait();
                    for call in 0..200 {
                        let n = if call % 3 == 0 { generator.capacity() * share / 100 } else { 1 };
                        HIGHEST_READ.set(i64::MIN);
                        let Ok(range) = generator.next_range(n.max(1)) else { continue };
                        let tick = config.layout.unpack(range.first).unwrap().tick;
                        assert!(config.layout.starts_at(tick) <= HIGHEST_READ.get() + max_ahead, "guarantee 4");
                        made.push(range);
                    }
                    made
                })
            });
            let calls: Vec<_> = calls.collect();
            scope.spawn(move || {
                barrier.wait();
                for (ticks, is_time) in moves.iter().cycle() {
                    clock.wall.fetch_add(ticks * us, Ordering::SeqCst);
                    if *is_time {
                        clock.boot.fetch_add(ticks.abs() * us, Ordering::SeqCst);
                    }
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    std::thread::yield_now();
                }
            });
            let made: Vec<_> = calls.into_iter().map(|call| call.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            made.into_iter().flat_map(|made| made.expect("a caller failed")).collect::<Vec<_>>()
        });
        let count: i64 = all.iter().map(|range| range.last - range.first + 1).sum();
        let mut per_lane = HashMap::<i64, u64>::new();
        for range in &all {
            let worker = config.layout.unpack(range.first).unwrap().worker;
            *per_lane.entry(worker).or_default() += (range.last - range.first + 1) as u64;
        }
        check_unique(all);
        assert_eq!(generators[0].status().issued, count as u64);
        for lane in generators[0].lane_statuses() {
            assert_eq!(lane.issued, per_lane.get(&lane.worker).copied().unwrap_or(0), "lane {}", lane.lane);
        }
    }
}
