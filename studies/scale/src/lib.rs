//! How `snowflake_id` performs on servers and in fleets that no test machine has. This program writes the numbers and
//! plots of `docs/scale.md`.
//!
//! * [`capacity`]: how many IDs a server and a fleet can generate with each layout, and when the time field ends;
//! * [`contention`]: the effect of many cores on the one word that they all swap;
//! * [`ahead`]: how far a load makes IDs run ahead of the clock, with the real generator in simulated time;
//! * [`order`]: how often the clocks of two servers put two IDs into the wrong order;
//! * [`collisions`]: the consequences of choosing workers at random;
//! * [`calibration`]: the measurements and their machine;
//! * [`page`] and [`pictures`]: the tables and sentences between the page's markers, and its pictures.
//!
//! If a question has a known closed form, the simulation is tested against it. Seeds are fixed, so the page is the same
//! on every machine.

#![forbid(unsafe_code)]

pub mod ahead;
pub mod calibration;
pub mod capacity;
pub mod collisions;
pub mod contention;
pub mod order;
pub mod page;
pub mod pictures;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// The random numbers of one part of the study: the same in every run, and independent of the other parts.
pub fn random(part: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(part)
}
