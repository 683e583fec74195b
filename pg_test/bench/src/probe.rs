//! A fixed piece of work, done on every core before and after each round: it takes longer if something else runs, or if
//! the machine has become slower.

use std::hint::black_box;
use std::thread::{available_parallelism, scope};
use std::time::Instant;

const STEPS: u64 = 2_000_000;
const TRIES: usize = 3;

/// The least of a few tries, in milliseconds: what disturbs only one of them passes.
pub fn ms() -> f64 {
    (0..TRIES).map(|_| once()).fold(f64::MAX, f64::min)
}

fn once() -> f64 {
    let cores = available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| (0..STEPS).fold(0_u64, |sum, n| black_box(sum.wrapping_mul(31).wrapping_add(n))));
        }
    });
    began.elapsed().as_secs_f64() * 1e3
}
