//! Adoption: an operator vouches for the state, with a floor that raises all marks (rule 8 in `state/start.rs`).

use super::Generator;
use crate::memory::{ColdState, Gate};
use crate::platform::{Event, Platform};
use crate::refusal::{AdoptError, ClosedReason, Errno, NotOpen};
use crate::state::start::{Start, mark_at};
use parking_lot::lock_api::RawMutex;

/// A floor further ahead of the clock than this counts as a mistake.
const FARTHEST_FLOOR_US: i64 = 24 * 3_600_000_000;

impl<P: Platform, R: RawMutex> Generator<'_, P, R> {
    /// For an operator who knows that no ID of another server is later than `floor_us` (a Unix time in microseconds),
    /// and that no other server uses this state. Opens a gate that a copied state keeps closed; if the gate is open
    /// already, raises the marks. Call
    /// [`open`](Self::open) afterwards to finish the start.
    pub fn adopt(&self, start: &Start, floor_us: i64) -> Result<(), AdoptError> {
        if floor_us > self.platform.wall_us().saturating_add(FARTHEST_FLOOR_US) {
            return Err(AdoptError::FloorInFuture);
        }
        let (adopted, events) = self.locked(|cold| {
            let mut events = [None, None];
            // A server that starts by itself needs no operator.
            let started = match cold.gate {
                Gate::Open | Gate::Settling => Ok([None, None]),
                Gate::Closed { .. } | Gate::Untried => self.start(cold, start, None),
            };
            let adopted = match started {
                Err(NotOpen::Closed(ClosedReason::Copied)) => {
                    self.start(cold, start, Some(floor_us)).map(|reported| events = reported)
                }
                Err(why) => Err(why),
                Ok(reported) => {
                    events = reported;
                    let ahead_us = self.control.live.max_ahead_us();
                    let floor = mark_at(&self.layout, floor_us.saturating_add(ahead_us));
                    let raised = self.raise_marks(cold, floor);
                    raised.map_err(|errno| NotOpen::Closed(ClosedReason::Os(errno)))
                }
            };
            (adopted.map_err(AdoptError::NotOpen), events)
        });
        let done = adopted.is_ok().then_some(Event::Adopted(floor_us));
        events.into_iter().flatten().chain(done).for_each(|event| self.platform.report(event));
        adopted
    }

    /// Raises every mark to `floor`, first on disk and then in memory. Replay lowers the current tick under the same
    /// lock, so it cannot come between the two.
    fn raise_marks(&self, cold: &mut ColdState, floor: i64) -> Result<(), Errno> {
        cold.writer.pending.raise_all(floor);
        // Not delayed by a write that has just failed: an operator waits for the answer.
        cold.writer.write_at_once(&self.platform)?;
        for lane in &self.lanes {
            lane.raise_floor(floor);
        }
        self.break_order(cold, self.lanes[self.active()].current_tick(), || ());
        Ok(())
    }
}
