//! The project's performance targets, and whether a run met them.

use crate::figures::{Run, Spread};

/// A limit to a ratio of two figures.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name in the page's template, which must give a cause if the target is missed.
    pub key: &'static str,
    /// A description of the comparison.
    pub what: &'static str,
    measurement: &'static str,
    /// The candidate to compare with.
    against: &'static str,
    limit: Limit,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// All of them, in the order in which the page has them.
pub const TARGETS: [Target; 5] = [
    Target {
        key: "clock",
        what: "a call, against `clock_timestamp()`",
        measurement: "call_ns",
        against: "clock",
        limit: Limit::AtMost(1.5),
    },
    Target {
        key: "nextval",
        what: "a call, against `nextval()`",
        measurement: "call_ns",
        against: "bigserial",
        limit: Limit::AtMost(0.25),
    },
    Target {
        key: "insert",
        what: "the time of one big INSERT, against `bigserial`",
        measurement: "insert_s",
        against: "bigserial",
        limit: Limit::AtMost(0.9),
    },
    Target {
        key: "tpcb",
        what: "the rate of TPC-B, against `bigserial`",
        measurement: "tpcb_tps",
        against: "bigserial",
        limit: Limit::AtLeast(1.0),
    },
    Target {
        key: "wal",
        what: "WAL of an inserted row, against `bigserial`",
        measurement: "wal_a_row",
        against: "bigserial",
        limit: Limit::AtMost(1.0),
    },
];

impl Target {
    /// The result of a run, and whether it meets the target: the median decides.
    pub fn judge(&self, run: &Run) -> Option<(Spread, bool)> {
        let found = run.ratio(self.measurement, "snowflake", (self.measurement, self.against))?;
        let is_met = match self.limit {
            Limit::AtMost(most) => found.median <= most,
            Limit::AtLeast(least) => found.median >= least,
        };
        Some((found, is_met))
    }

    /// The limit as text.
    pub fn limit(&self) -> String {
        match self.limit {
            Limit::AtMost(most) => format!("at most {most}"),
            Limit::AtLeast(least) => format!("at least {least}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(key: &str) -> Target {
        TARGETS.into_iter().find(|target| target.key == key).unwrap()
    }

    fn run(measurement: &str, ours: &[f64], theirs: &[f64]) -> Run {
        let mut run = Run::default();
        ours.iter().for_each(|figure| run.note(measurement, "snowflake", *figure));
        theirs.iter().for_each(|figure| run.note(measurement, "bigserial", *figure));
        run
    }

    #[test]
    fn the_median_of_the_rounds_ratios_decides() {
        let is_met = |ours: &[f64]| target("insert").judge(&run("insert_s", ours, &[10.0; 3])).unwrap().1;
        assert!(is_met(&[8.0, 9.0, 20.0]));
        assert!(!is_met(&[8.0, 9.1, 20.0]));
    }

    #[test]
    fn a_rate_has_to_be_at_least_the_other() {
        let is_met = |ours: f64| target("tpcb").judge(&run("tpcb_tps", &[ours], &[1000.0])).unwrap().1;
        assert!(is_met(1000.0));
        assert!(!is_met(999.0));
    }

    #[test]
    fn what_was_not_measured_is_no_pass() {
        assert!(target("tpcb").judge(&Run::default()).is_none());
        assert!(target("tpcb").judge(&run("tpcb_tps", &[1.0], &[])).is_none());
    }
}
