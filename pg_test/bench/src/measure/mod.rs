//! The measurements. A full run of all takes about five minutes for a version of PostgreSQL.

mod calls;
mod clients;
mod reading;
mod rows;

use crate::bench::Bench;

/// A measurement, its name, and the seconds that it may take in a full run.
pub struct Measurement {
    /// Its name on the command line.
    pub name: &'static str,
    /// One round after the other takes place for so long.
    pub seconds: f64,
    /// Measures.
    pub measure: fn(&mut Bench, seconds: f64),
}

const fn measurement(name: &'static str, seconds: f64, measure: fn(&mut Bench, f64)) -> Measurement {
    Measurement { name, seconds, measure }
}

/// In the order in which they run.
pub const MEASUREMENTS: [Measurement; 8] = [
    measurement("call", 35.0, calls::call),
    measurement("wal", 3.0, calls::wal),
    measurement("reading", 10.0, reading::reading),
    measurement("single", 40.0, clients::single),
    measurement("thousand", 20.0, clients::thousand),
    measurement("sustained", 10.0, clients::sustained),
    measurement("copy", 60.0, rows::copy),
    measurement("rows", 60.0, rows::rows),
];
