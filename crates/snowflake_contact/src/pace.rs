//! When the next contact is due.

use snowflake_core::Answer;
use std::time::Duration;

/// Time between two contacts that succeed.
const PERIOD: Duration = Duration::from_secs(10);
/// Pause after the first failure; each further one doubles it, up to the period.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The pauses between contacts.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// The number of failures since the last success.
    failures: u32,
    /// The last answer was that the lease is over.
    was_over: bool,
}

impl Pace {
    /// The pause after a contact with this answer, or with a failure. `left` is the time left on the lease: after a grant,
    /// the pause is a third of it, at most `PERIOD`. `jitter`, a random number from 0 to 1, spreads the contacts of servers
    /// that started together.
    pub fn after(&mut self, answer: Option<Answer>, left: Option<Duration>, jitter: f64) -> Duration {
        let is_over = answer == Some(Answer::Over);
        let was_over = std::mem::replace(&mut self.was_over, is_over);
        let length = match answer {
            Some(Answer::Granted { .. }) => {
                self.failures = 0;
                left.map_or(PERIOD, |left| (left / 3).clamp(FIRST_PAUSE, PERIOD))
            }
            // The node claims another lease at once, unless the answer to that is `Over`, too.
            Some(Answer::Over) if !was_over => return Duration::ZERO,
            _ => {
                let doublings = self.failures.min(8);
                self.failures = self.failures.saturating_add(1);
                (FIRST_PAUSE * (1 << doublings)).min(PERIOD)
            }
        };
        length.mul_f64(0.8 + 0.4 * jitter)
    }

    /// The shortest time between a contact with this pause and one that a client requests. After a failure, a request does
    /// not shorten the pause.
    pub fn at_least(&self, pause: Duration) -> Duration {
        if self.failures == 0 { pause.min(FIRST_PAUSE) } else { pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowflake_core::Lease;
    use uuid::Uuid;

    const FAILED: Option<Answer> = None;
    const OVER: Option<Answer> = Some(Answer::Over);
    const GRANTED: Option<Answer> =
        Some(Answer::Granted { registry: Uuid::nil(), lease: Lease { home: 1, floor: 0, until: 1 } });

    #[test]
    fn contacts_come_every_ten_seconds_give_or_take_a_fifth() {
        let mut pace = Pace::default();
        assert_eq!(pace.after(GRANTED, None, 0.0), Duration::from_secs(8));
        assert_eq!(pace.after(GRANTED, None, 0.5), Duration::from_secs(10));
        assert_eq!(pace.after(GRANTED, None, 1.0), Duration::from_secs(12));
    }

    #[test]
    fn a_lease_is_renewed_long_before_its_end() {
        let mut pace = Pace::default();
        let mut after = |millis| pace.after(GRANTED, Some(Duration::from_millis(millis)), 0.5).as_millis();
        assert_eq!([3_600_000, 30_000, 9_000, 2_000, 3].map(&mut after), [10_000, 10_000, 3_000, 666, 500]);
        let left = Some(Duration::from_secs(2));
        assert!(pace.after(GRANTED, left, 1.0) < Duration::from_secs(1));
        // After a failure, the time left on the lease does not shorten the pause.
        assert_eq!(pace.after(FAILED, left, 0.5), FIRST_PAUSE);
        assert_eq!(pace.after(FAILED, left, 0.5), FIRST_PAUSE * 2);
    }

    #[test]
    fn failures_double_the_pause_up_to_the_period_and_a_success_resets_it() {
        let mut pace = Pace::default();
        let of = |i: u32| if i.is_multiple_of(2) { FAILED } else { Some(Answer::Refused) };
        let pauses: Vec<_> = (0..7).map(|i| pace.after(of(i), None, 0.5).as_millis()).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        (0..100).for_each(|_| assert_eq!(pace.after(FAILED, None, 0.5), PERIOD));
        pace.after(GRANTED, None, 0.5);
        assert_eq!(pace.after(FAILED, None, 0.5), FIRST_PAUSE);
    }

    #[test]
    fn who_asks_for_a_contact_hastens_none_after_a_failure() {
        let mut pace = Pace::default();
        let pause = pace.after(GRANTED, None, 0.5);
        assert_eq!(pace.at_least(pause), FIRST_PAUSE);
        for _ in 0..8 {
            let pause = pace.after(FAILED, None, 0.5);
            assert_eq!(pace.at_least(pause), pause);
        }
        pace.after(GRANTED, None, 0.5);
        let pause = pace.after(OVER, None, 0.5);
        assert_eq!(pace.at_least(pause), Duration::ZERO);
    }

    #[test]
    fn a_lease_that_is_over_is_followed_by_a_claim_at_once_but_not_again_and_again() {
        let mut pace = Pace::default();
        assert_eq!(pace.after(OVER, None, 0.5), Duration::ZERO);
        assert_eq!(pace.after(OVER, None, 0.5), FIRST_PAUSE);
        assert_eq!(pace.after(OVER, None, 0.5), FIRST_PAUSE * 2);
        pace.after(GRANTED, None, 0.5);
        assert_eq!(pace.after(OVER, None, 0.5), Duration::ZERO);
        // Also if an operator retired the server while the registry was away.
        pace.after(GRANTED, None, 0.5);
        (0..8).for_each(|_| assert!(!pace.after(FAILED, None, 0.5).is_zero()));
        assert_eq!(pace.after(OVER, None, 0.5), Duration::ZERO);
    }
}
