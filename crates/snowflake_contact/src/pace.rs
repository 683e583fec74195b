//! When the next contact is due.

use crate::{Answer, Failure};
use std::time::Duration;

/// Between two contacts that succeed.
const PERIOD: Duration = Duration::from_secs(10);
/// After the first contact that fails. It doubles up to the period.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// How often contacts are made.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// The number of failures since the last success.
    failures: u32,
    /// The last answer was that the lease is over.
    was_over: bool,
}

impl Pace {
    /// How long to wait after a contact. `jitter` is a random number from 0 to 1. It spreads the contacts of servers
    /// that started together.
    pub fn after(&mut self, result: &Result<Answer, Failure>, jitter: f64) -> Duration {
        let is_over = matches!(result, Ok(Answer::Over { .. }));
        let was_over = std::mem::replace(&mut self.was_over, is_over);
        let length = match result {
            Ok(Answer::Granted { .. }) => {
                self.failures = 0;
                PERIOD
            }
            // The node claims anew at once. If that is over, too, something is wrong.
            Ok(Answer::Over { .. }) if !was_over => return Duration::ZERO,
            _ => {
                let doublings = self.failures.min(8);
                self.failures = self.failures.saturating_add(1);
                (FIRST_PAUSE * (1 << doublings)).min(PERIOD)
            }
        };
        length.mul_f64(0.8 + 0.4 * jitter.clamp(0.0, 1.0))
    }

    /// How long one for which somebody has asked waits at least, after a contact with this pause. Where the last one
    /// brought nothing, clients that ask hasten nothing.
    pub fn at_least(&self, pause: Duration) -> Duration {
        if self.failures == 0 { pause.min(FIRST_PAUSE) } else { pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn granted() -> Result<Answer, Failure> {
        Ok(Answer::Granted { registry: 1, worker: 1, floor: 0, until: 1, registry_clock_us: 0 })
    }

    fn over() -> Result<Answer, Failure> {
        Ok(Answer::Over { reason: None, detail: None, hint: None })
    }

    #[test]
    fn contacts_come_every_ten_seconds_give_or_take_a_fifth() {
        let mut pace = Pace::default();
        assert_eq!(pace.after(&granted(), 0.0), Duration::from_secs(8));
        assert_eq!(pace.after(&granted(), 0.5), Duration::from_secs(10));
        assert_eq!(pace.after(&granted(), 1.0), Duration::from_secs(12));
    }

    #[test]
    fn failures_double_the_pause_up_to_the_period_and_a_success_resets_it() {
        let mut pace = Pace::default();
        let failed = Err(Failure::new(Kind::Connection, "no route"));
        let pauses: Vec<_> = (0..7).map(|_| pace.after(&failed, 0.5).as_millis()).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
        (0..100).for_each(|_| assert_eq!(pace.after(&failed, 0.5), PERIOD));
        pace.after(&granted(), 0.5);
        assert_eq!(pace.after(&failed, 0.5), FIRST_PAUSE);
    }

    #[test]
    fn who_asks_for_a_contact_hastens_none_after_a_failure() {
        let mut pace = Pace::default();
        let pause = pace.after(&granted(), 0.5);
        assert_eq!(pace.at_least(pause), FIRST_PAUSE);
        let failed = Err(Failure::new(Kind::Connection, "no route"));
        for _ in 0..8 {
            let pause = pace.after(&failed, 0.5);
            assert_eq!(pace.at_least(pause), pause);
        }
        pace.after(&granted(), 0.5);
        let pause = pace.after(&over(), 0.5);
        assert_eq!(pace.at_least(pause), Duration::ZERO);
    }

    #[test]
    fn a_refusal_is_asked_again_as_a_failure_is() {
        let refused =
            Ok(Answer::Refused { reason: "full".into(), detail: None, hint: None, free_at_us: None });
        let mut pace = Pace::default();
        assert_eq!(pace.after(&refused, 0.5), FIRST_PAUSE);
        assert_eq!(pace.after(&refused, 0.5), FIRST_PAUSE * 2);
    }

    #[test]
    fn a_lease_that_is_over_is_followed_by_a_claim_at_once_but_not_again_and_again() {
        let mut pace = Pace::default();
        assert_eq!(pace.after(&over(), 0.5), Duration::ZERO);
        assert_eq!(pace.after(&over(), 0.5), FIRST_PAUSE);
        assert_eq!(pace.after(&over(), 0.5), FIRST_PAUSE * 2);
        pace.after(&granted(), 0.5);
        assert_eq!(pace.after(&over(), 0.5), Duration::ZERO);
    }
}
