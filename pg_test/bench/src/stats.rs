//! Statistics of measured values.

use statrs::statistics::{Data, OrderStatistics};

/// The median of some rounds, and the middle half of them: quartiles, unlike the least and the greatest value, do not
/// grow with the number of rounds, and one disturbed round does not move them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Half of the rounds are below it.
    pub median: f64,
    /// A quarter of the rounds is below it.
    pub low: f64,
    /// A quarter of the rounds is above it.
    pub high: f64,
}

impl Spread {
    /// The statistics of at least one round.
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let share = |share| Data::new(rounds.to_vec()).quantile(share);
        (!rounds.is_empty()).then(|| Self { median: share(0.5), low: share(0.25), high: share(0.75) })
    }

    /// The statistics of the ratios within each round. What disturbs the machine for longer than a round affects both
    /// sides of a ratio, and cancels out.
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        Self::of(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
    }

    /// Whether the middle half of the rounds lies on both sides of a limit, so that they do not decide.
    pub fn straddles(&self, limit: f64) -> bool {
        self.low < limit && limit < self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_the_middle_half() {
        let spread = Spread::of(&[5.0, 1.0, 3.0, 2.0, 4.0, 7.0, 6.0]).unwrap();
        assert_eq!(spread.median, 4.0);
        assert!((1.9..=2.5).contains(&spread.low) && (5.5..=6.1).contains(&spread.high), "{spread:?}");
        assert_eq!(Spread::of(&[1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_ratio_compares_each_round_with_itself() {
        // The machine was three times as slow in the last round.
        let ratio = Spread::of_ratios(&[2.0, 2.0, 6.0], &[10.0, 10.0, 30.0]).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (0.2, 0.2, 0.2));
    }

    #[test]
    fn rounds_on_both_sides_of_a_limit_do_not_decide() {
        let spread = Spread { median: 0.88, low: 0.8, high: 0.95 };
        assert!(spread.straddles(0.9));
        assert!(!spread.straddles(0.75) && !spread.straddles(1.0));
    }
}
