//! The project's performance targets, and whether a run met them.
//!
//! All are limits to ratios of two costs, of which each round has its own. None is about whole transactions: a commit
//! waits for the disk a thousand times as long as a key takes, so a rate of TPC-B says nothing about keys.

use crate::run::Run;
use crate::stats::Spread;

/// A limit to the ratio of our cost to another's.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What is measured.
    pub what: &'static str,
    /// What it is compared with.
    pub against: &'static str,
    /// The greatest ratio that meets the target.
    pub limit: f64,
    measurement: &'static str,
    other: &'static str,
}

/// How a run stands to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The median is within the limit.
    Met,
    /// The median is beyond the limit.
    Missed,
    /// The median is beyond the limit, but the middle half of the rounds lies on both sides of it.
    Unclear,
}

const fn target(
    what: &'static str,
    against: &'static str,
    limit: f64,
    measurement: &'static str,
    other: &'static str,
) -> Target {
    Target { what, against, limit, measurement, other }
}

/// All of them, in the order in which the page has them.
pub const TARGETS: [Target; 12] = [
    target("time of a call", "`clock_timestamp()`", 1.5, "call_ns", "clock"),
    target("time of a call", "`nextval()`", 0.25, "call_ns", "bigserial"),
    target("WAL of a call", "`nextval()`", 0.0, "call_wal", "bigserial"),
    target("time of one `INSERT` of 500,000 rows", "`bigserial`", 0.9, "insert_s", "bigserial"),
    target("WAL of an inserted row", "`bigserial`", 1.0, "insert_wal", "bigserial"),
    target("time of one `COPY` of 500,000 rows", "`bigserial`", 0.9, "copy_s", "bigserial"),
    target("WAL of a copied row", "`bigserial`", 0.97, "copy_wal", "bigserial"),
    target("time of a query with one ID, 8 clients", "`pg_backend_pid()`", 1.03, "single_us", "no_id"),
    target("time of an ID without end", "4,096 IDs per ms", 1.01, "sustained_ns", "cap"),
    target("reading the time", "the same by hand", 1.3, "read_time_ms", "by_hand"),
    target("reading all fields", "the same by hand", 1.3, "read_all_ms", "by_hand"),
    target("reading an ID of Discord", "the same by hand", 1.3, "read_foreign_ms", "by_hand"),
];

impl Target {
    /// The result of a run, and whether it meets the target.
    pub fn judge(&self, run: &Run) -> Option<(Spread, Verdict)> {
        let found = run.ratio(self.measurement, "snowflake", self.other)?;
        let verdict = match found.median {
            median if median <= self.limit => Verdict::Met,
            _ if found.straddles(self.limit) => Verdict::Unclear,
            _ => Verdict::Missed,
        };
        Some((found, verdict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(ours: &[f64]) -> Option<Verdict> {
        let mut run = Run::default();
        for figure in ours {
            run.note("insert_s", "snowflake", *figure);
            run.note("insert_s", "bigserial", 10.0);
        }
        TARGETS[3].judge(&run).map(|(_, verdict)| verdict)
    }

    #[test]
    fn the_median_of_the_rounds_ratios_decides() {
        assert_eq!(judged(&[8.0, 8.5, 9.0, 20.0, 30.0]), Some(Verdict::Met));
        assert_eq!(judged(&[9.1, 9.2, 9.3, 9.4, 9.5]), Some(Verdict::Missed));
    }

    #[test]
    fn rounds_on_both_sides_of_the_limit_do_not_miss_it() {
        assert_eq!(judged(&[8.0, 8.0, 9.1, 9.5, 9.5]), Some(Verdict::Unclear));
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        assert_eq!(judged(&[]), None);
    }
}
