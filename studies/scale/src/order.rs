//! How often the clocks of two servers put two IDs into the wrong order.
//!
//! One server generates an ID, and another server generates one a true time `gap` later. Each server's clock has an
//! error of its own, normally distributed around true time. The IDs are in the wrong order if the first one's tick is
//! later, or if the ticks are equal and the first one's worker is higher, which is the case half of the time.

use crate::random;
use rand::Rng;
use rand_distr::{Distribution, Normal};
use snowflake_core::{Layout, Parts};

/// How well a fleet's clocks agree with true time.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// How they are synchronized.
    pub name: &'static str,
    /// Standard deviation of a clock's error, in milliseconds.
    pub sigma_ms: f64,
    /// The known figures, with their source.
    pub source: &'static str,
}

/// The standard deviations are our reading of the sources, which name no distribution.
pub const CLOCKS: [Clocks; 5] = [
    Clocks {
        name: "PTP, or NTP with hardware timestamps",
        sigma_ms: 0.001,
        source: "[chrony](https://chrony-project.org/): possibly below 1 µs",
    },
    Clocks {
        name: "a cloud's hardware clock",
        sigma_ms: 0.02,
        source: "[Amazon](https://aws.amazon.com/blogs/compute/its-about-time-microsecond-accurate-clocks-on-amazon-ec2-instances/): low double-digit µs",
    },
    Clocks {
        name: "NTP in a local network",
        sigma_ms: 0.2,
        source: "[chrony](https://manpages.ubuntu.com/manpages/trusty/en/man1/chrony.1.html): 100 to 200 µs, often better",
    },
    Clocks {
        name: "NTP over the Internet",
        sigma_ms: 3.0,
        source: "[chrony](https://chrony-project.org/): within a few milliseconds",
    },
    Clocks {
        name: "NTP over the Internet, a bad path",
        sigma_ms: 30.0,
        source: "[ntp.org](https://www.ntp.org/ntpfaq/ntp-s-algo/): 5 ms to 100 ms",
    },
];

/// Distribution function of the standard normal distribution.
fn phi(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// Its integral from minus infinity.
fn phi_integral(x: f64) -> f64 {
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    x * phi(x) + density
}

/// The probability that the two IDs are in the wrong order. All times are in milliseconds; `ahead` is how much further
/// the first server's IDs run ahead of its clock than the second one's.
///
/// Let `d` be the time of the first ID minus the time of the second one. It is normal around `ahead - gap`, with the
/// variance of two clocks. A tick of length t begins at a random phase, so between -t and t the order is wrong with
/// probability (1 + d/t) / 2: as if a number uniform in -t..t were added to d and the sign decided.
pub fn chance(sigma_ms: f64, tick_ms: f64, gap_ms: f64, ahead_ms: f64) -> f64 {
    let (s, d) = (sigma_ms * std::f64::consts::SQRT_2, ahead_ms - gap_ms);
    s / (2.0 * tick_ms) * (phi_integral((d + tick_ms) / s) - phi_integral((d - tick_ms) / s))
}

/// The same, counted over pairs of real IDs.
pub fn simulated(layout: &Layout, sigma_ms: f64, gap_ms: f64, ahead_ms: f64, pairs: u32) -> f64 {
    let mut random = random(u64::from(pairs));
    let error = Normal::new(0.0, sigma_ms).expect("a positive deviation");
    let now_us = layout.epoch_us() as f64 + 1e15;
    let mut wrong = 0;
    for _ in 0..pairs {
        let at_us = now_us + random.random::<f64>() * 1e10;
        let workers = layout.workers();
        let first_worker = random.random_range(0..workers);
        // Another server has another worker.
        let second_worker = (first_worker + random.random_range(1..workers)) % workers;
        let id = |true_us: f64, worker, error_ms: f64| {
            let tick = layout.tick_at((true_us + error_ms * 1e3) as i64);
            layout.pack(Parts { tick, datacenter: 0, worker, sequence: 0 }).expect("it fits")
        };
        let first = id(at_us, first_worker, error.sample(&mut random) + ahead_ms);
        let second = id(at_us + gap_ms * 1e3, second_worker, error.sample(&mut random));
        wrong += u32::from(first > second);
    }
    f64::from(wrong) / f64::from(pairs)
}

/// How far apart two events must be, in milliseconds, so that the probability is at most this.
pub fn gap_for(sigma_ms: f64, tick_ms: f64, ahead_ms: f64, most: f64) -> f64 {
    let (mut low, mut high) = (0.0, ahead_ms + tick_ms + 20.0 * sigma_ms);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if chance(sigma_ms, tick_ms, middle, ahead_ms) > most { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowflake_core::Tick;

    #[test]
    fn the_closed_form_is_what_real_ids_do() {
        let ms = Layout::default();
        let tick = |tick| Layout::new(ms.bits(), tick, ms.epoch_us()).unwrap();
        let (cs, s) = (tick(Tick::Centisecond), tick(Tick::Second));
        for (layout, tick_ms) in [(ms, 1.0), (cs, 10.0), (s, 1_000.0)] {
            for sigma in [0.02, 3.0, 300.0] {
                for gap in [0.0, 0.3, 8.0, 500.0] {
                    for ahead in [0.0, 5.0] {
                        let expected = chance(sigma, tick_ms, gap, ahead);
                        let found = simulated(&layout, sigma, gap, ahead, 10_000);
                        assert!((found - expected).abs() < 0.02, "{sigma} {gap} {ahead}: {found} {expected}");
                    }
                }
            }
        }
    }

    /// With a very short tick it is the difference of two normal distributions.
    #[test]
    fn without_a_tick_it_is_the_difference_of_two_clocks() {
        for gap in [0.0, 1.0, 3.0] {
            let expected = phi(-gap / (3.0 * 2.0_f64.sqrt()));
            assert!((chance(3.0, 1e-6, gap, 0.0) - expected).abs() < 1e-6);
        }
    }

    /// With perfect clocks only the tick matters: the chance falls evenly from one half to 0 at a gap of one tick.
    #[test]
    fn with_true_clocks_it_is_the_tick() {
        for (gap, expected) in [(0.0, 0.5), (0.25, 0.375), (0.5, 0.25), (1.0, 0.0), (2.0, 0.0)] {
            assert!((chance(1e-9, 1.0, gap, 0.0) - expected).abs() < 1e-6, "{gap}");
        }
    }

    #[test]
    fn the_gap_is_where_the_chance_is() {
        for most in [0.01, 1e-6] {
            let gap = gap_for(3.0, 1.0, 5.0, most);
            assert!((chance(3.0, 1.0, gap, 5.0) / most - 1.0).abs() < 1e-3);
        }
    }
}
