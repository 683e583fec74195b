//! Workers chosen at random: the birthday problem and its consequences.

use crate::random;
use rand::Rng;

/// The probability that at least two of `servers` draw the same of `workers` values.
pub fn chance(servers: u32, workers: u32) -> f64 {
    let all_differ: f64 = (0..servers).map(|i| 1.0 - f64::from(i) / f64::from(workers)).product();
    1.0 - all_differ.max(0.0)
}

/// The same, by drawing random numbers.
pub fn simulated(servers: u32, workers: u32, draws: u32) -> f64 {
    let mut random = random(u64::from(servers));
    let is_shared = |_: &u32| {
        let mut taken = vec![false; workers as usize];
        (0..servers).any(|_| std::mem::replace(&mut taken[random.random_range(0..workers) as usize], true))
    };
    let mut is_shared = is_shared;
    (0..draws).filter(|draw| is_shared(draw)).count() as f64 / f64::from(draws)
}

/// How many of `servers` share their worker with another, on average.
pub fn sharing(servers: u32, workers: u32) -> f64 {
    let n = f64::from(servers);
    n * (1.0 - (1.0 - 1.0 / f64::from(workers)).powf(n - 1.0))
}

/// The bits that a random number needs so that the probability of a collision among `servers` is at most this.
pub fn bits_for(servers: u32, most: f64) -> u32 {
    let pairs = f64::from(servers) * f64::from(servers - 1) / 2.0;
    (pairs / most).log2().ceil() as u32
}

/// The IDs per second that two servers with the same worker both generate, if each generates `rate` per second as a
/// Poisson process. Both begin each millisecond with sequence 0, so they share the smaller of their two counts.
pub fn duplicates_per_s(rate: f64) -> f64 {
    let mean: f64 = rate / 1_000.0;
    let highest = (mean + 12.0 * mean.sqrt() + 20.0) as i32;
    // The smaller count is k or more if both are; the mean is the sum of these probabilities.
    let mut at_least = 1.0;
    let mut sum = 0.0;
    for k in 0..highest {
        let exactly = (f64::from(k) * mean.ln() - mean - libm::lgamma(f64::from(k) + 1.0)).exp();
        at_least -= exactly;
        if at_least <= 1e-15 {
            break;
        }
        sum += at_least * at_least;
    }
    1_000.0 * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_distr::{Distribution, Poisson};

    #[test]
    fn it_is_the_birthday_problem() {
        assert!((chance(23, 365) - 0.5073).abs() < 1e-4);
        assert_eq!(chance(1, 1_024), 0.0);
        assert_eq!(chance(1_025, 1_024), 1.0);
        // 1 - exp(-n(n-1)/2m), if few of many are drawn.
        assert!((chance(10, 1_024) - (1.0 - (-45.0_f64 / 1_024.0).exp())).abs() < 1e-3);
    }

    #[test]
    fn drawing_agrees() {
        for servers in [5, 20, 38, 80] {
            assert!((simulated(servers, 1_024, 20_000) - chance(servers, 1_024)).abs() < 0.015, "{servers}");
        }
    }

    #[test]
    fn duplicates_are_the_smaller_of_two_numbers() {
        let mut random = random(7);
        for rate in [100.0, 5_000.0, 1e6] {
            let number = Poisson::new(rate / 1_000.0).unwrap();
            let ticks = 50_000;
            let both = |_| -> f64 { f64::min(number.sample(&mut random), number.sample(&mut random)) };
            let found = (0..ticks).map(both).sum::<f64>() * 1_000.0 / f64::from(ticks);
            assert!((found / duplicates_per_s(rate) - 1.0).abs() < 0.06, "{rate}: {found}");
        }
    }

    #[test]
    fn the_bits_are_enough() {
        assert_eq!(bits_for(2, 0.5), 1);
        assert_eq!(bits_for(1_024, 1e-6), 39);
    }
}
