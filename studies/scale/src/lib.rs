//! What `snowflake_id` gives on servers and fleets that no test machine has: `docs/scale.md` is made by this
//! program, its numbers and its plots.
//!
//! * [`capacity`]: what the layouts let a server and a fleet issue, and when their time field ends;
//! * [`contention`]: what many cores do to the one word that they all swap;
//! * [`ahead`]: how far a load makes IDs run ahead of the clock, by the real generator in simulated time;
//! * [`order`]: how often the clocks of two servers put two IDs into the wrong order;
//! * [`collisions`]: what would happen if workers were drawn at random;
//! * [`calibration`]: what was measured, on which machine, and the measuring;
//! * [`page`] and [`plot`]: tables and sentences between the page's markers, and its pictures.
//!
//! Where a question has a known closed form, the simulation is tested against it. Seeds are fixed, so that
//! the page is the same wherever it is made.

#![forbid(unsafe_code)]

pub mod ahead;
pub mod calibration;
pub mod capacity;
pub mod collisions;
pub mod contention;
pub mod order;
pub mod page;
pub mod plot;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// The random numbers of one part of the study: the same at every run, and independent of the other parts.
pub fn random(part: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(part)
}

/// The value below which this share of the values lies; sorts them.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (share * (values.len() - 1) as f64).round() as usize;
    values[index]
}

/// The arithmetic mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
