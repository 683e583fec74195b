//! How far a load makes IDs run ahead of the clock: the real generator, in simulated time.
//!
//! A query takes several IDs at once, and queries arrive as a Poisson process. IDs that do not fit into a millisecond
//! are taken from the next ones, up to `max_ahead`. So the lead is the work in a queue whose server generates 4,096 IDs
//! per millisecond, and its mean over time is known (Pollaczek and Khinchine).

use crate::random;
use parking_lot::RawMutex;
use rand_distr::{Distribution, Exp1};
use snowflake_core::{Config, Event, Generator, Host, Memory, Start};
use snowflake_figures::stats::{mean, quantile};
use std::sync::atomic::{AtomicI64, Ordering};

/// A clock that only a test or a wait moves on.
struct Simulated<'a>(&'a AtomicI64);

impl Host for Simulated<'_> {
    fn wall_us(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn boot_us(&self) -> i64 {
        self.wall_us()
    }

    fn wait(&self, micros: i64) {
        self.0.fetch_add(micros.max(1), Ordering::Relaxed);
    }

    fn report(&self, _event: Event) {}
}

/// How far the last ID of a query was ahead of the clock, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Lead {
    /// The mean.
    pub mean_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The share of queries that had to wait for the clock.
    pub waited: f64,
}

/// Queries of `ids` each, arriving at the share `load` of what the layout can generate.
pub fn simulate(load: f64, ids: i64, queries: usize) -> Lead {
    let config = Config::default();
    let clock = AtomicI64::new(config.layout.epoch_us() + 1_000_000_000_000);
    let memory = Memory::<RawMutex>::new(&config);
    let generator = Generator::new(&config, memory.view(), Simulated(&clock));
    generator.open(&Start::of_timeline(1)).expect("it opens");
    let mut random = random(ids as u64);
    let between_us = ids as f64 / config.layout.sequences() as f64 * 1e3 / load;
    let mut at_us = clock.load(Ordering::Relaxed) as f64;
    // Several per swap, if they divide the tick; this only makes the simulation faster.
    let step = [1_024, 1].into_iter().find(|step| ids % step == 0).expect("1 divides everything");
    let (mut leads, mut waited) = (Vec::with_capacity(queries), 0);
    for _ in 0..queries {
        let share: f64 = Exp1.sample(&mut random);
        at_us += share * between_us;
        // A query that waited ends after the next one has arrived.
        at_us = at_us.max(clock.load(Ordering::Relaxed) as f64);
        clock.store(at_us as i64, Ordering::Relaxed);
        let before = clock.load(Ordering::Relaxed);
        let mut last = 0;
        for _ in 0..ids / step {
            last = generator.next_range(step).expect("an ID").last;
        }
        waited += usize::from(clock.load(Ordering::Relaxed) > before);
        let tick = config.layout.unpack(last).expect("an ID").tick;
        let lead_us = config.layout.starts_at(tick) - clock.load(Ordering::Relaxed);
        leads.push(lead_us.max(0) as f64 / 1e3);
    }
    let p99_ms = quantile(&leads, 0.99);
    Lead { mean_ms: mean(&leads), p99_ms, waited: waited as f64 / queries as f64 }
}

/// The expected mean: the work that a query finds, and its own.
pub fn expected_ms(load: f64, ids: i64) -> f64 {
    let own = ids as f64 / 4_096.0;
    load * own / (2.0 * (1.0 - load)) + own
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ID carries the beginning of its tick, and an idle generator has a tick left of which part is over. So the
    /// lead is half a tick to one and a half ticks less than the work.
    #[test]
    fn the_lead_is_the_work_in_a_queue() {
        for load in [0.3, 0.6, 0.8] {
            let lead = simulate(load, 102_400, 40_000);
            let expected = expected_ms(load, 102_400);
            assert!(
                (lead.mean_ms + 1.0 - expected).abs() < 0.5 + 0.025 * expected,
                "{load}: {lead:?}, not {expected}"
            );
        }
    }

    #[test]
    fn nobody_is_further_ahead_than_allowed() {
        let lead = simulate(1.5, 1_024_000, 100);
        assert!(lead.p99_ms <= 2_000.0, "{lead:?}");
        assert!(lead.waited > 0.3, "{lead:?}");
    }

    #[test]
    fn single_ids_stay_in_the_present() {
        assert!(simulate(0.5, 1, 100_000).p99_ms < 1.0);
    }
}
