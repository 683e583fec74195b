//! Adoption: an operator vouches for the state, and sets a floor that raises or lowers all marks.

use super::Generator;
use super::startup::respect_seen;
use crate::config::WorkerSource;
use crate::host::{Event, Host};
use crate::memory::{ColdState, Gate};
use crate::refusal::{AdoptError, ClosedReason, Errno, FloorCause};
use crate::state::start::Start;
use parking_lot::lock_api::RawMutex;
use std::iter::zip;

impl<H: Host, R: RawMutex> Generator<'_, H, R> {
    /// Vouches for the state. Opens a gate that a lost, copied or foreign state keeps closed, with every mark at
    /// `floor_us` (a Unix time) or above; if the gate is open already, raises the marks. Without `lower`, no readable
    /// mark is lowered. With it, higher marks are lowered to the floor, or to the last tick that calls of this run
    /// have been allowed. Call [`open`](Self::open) afterwards to finish the start.
    pub fn adopt(&self, start: &Start, floor_us: i64, lower: bool) -> Result<(), AdoptError> {
        let os_error = |errno| AdoptError::Closed(ClosedReason::Os(errno));
        let mut opened = None;
        let adopted = self.locked(|cold| {
            // A server that starts by itself needs no operator, and keeps what it held as a standby.
            if cold.gate == Gate::Untried {
                opened = self.start(cold, start).ok().flatten();
            }
            let evidence = self.evidence(cold, start);
            if matches!(cold.gate, Gate::Open | Gate::Settling) {
                let floor = evidence.floor_mark(floor_us)?;
                self.resume_earlier_life(cold).map_err(os_error)?;
                let done = match lower {
                    false => self.raise_marks(cold, floor, FloorCause::Operator),
                    true => self.lower_marks(cold, floor),
                };
                return done.map_err(os_error);
            }
            let Some(disk) = self.host.disk() else { return Ok(()) };
            let loaded = self.load().map_err(AdoptError::Closed)?;
            let start = &start.placed(loaded.as_ref());
            let evidence = self.evidence(cold, start);
            let mut opening = evidence.adopt(loaded.as_ref(), floor_us, lower)?;
            // The floor speaks of IDs of other servers. Only `lower` speaks of this one's.
            if !lower {
                respect_seen(disk, &evidence, &mut opening.promises);
            }
            // A copy of a node is another node.
            opening.promises = opening.promises.of_nobody();
            self.commit(cold, start, opening).map(drop).map_err(AdoptError::Closed)
        });
        let done = adopted.is_ok().then_some(Event::Adopted { floor_us, lower });
        opened.into_iter().chain(done).for_each(|event| self.host.report(event));
        adopted
    }

    /// Raises every mark to `floor`, first on disk and then in memory. Replay lowers the frontier under the same lock,
    /// so it cannot come between the two.
    pub(super) fn raise_marks(
        &self,
        cold: &mut ColdState,
        floor: i64,
        cause: FloorCause,
    ) -> Result<(), Errno> {
        cold.journal.promises.raise_all(floor, cause);
        // Not delayed by a write that has just failed: an operator waits for the answer.
        let heading = self.heading(cold, self.active());
        cold.journal.write_at_once(&self.host, &heading)?;
        for lane in &self.lanes {
            lane.raise_floor(floor);
        }
        self.publish_marks(cold);
        Ok(())
    }

    /// Lowers or raises the marks to `floor`. No mark goes below what calls under way may still generate, nor below what
    /// the lane has generated since the start, which is less.
    fn lower_marks(&self, cold: &mut ColdState, floor: i64) -> Result<(), Errno> {
        let before = cold.journal.promises;
        cold.journal.promises.set_all(floor);
        if self.source != WorkerSource::Configured {
            // This run may have had them under an earlier lease, and a call may still have that lease's permit.
            cold.journal.promises.keep_former(&before);
        }
        // No operator can vouch for what other nodes generated below the floor of this node's lease.
        let least = before.lease().map_or(-1, |lease| lease.floor);
        let lanes = || zip(&self.lanes, before.marks);
        for (mark, (lane, known)) in zip(&mut cold.journal.promises.marks, lanes()) {
            *mark = lane.allowed().min(known).max(least).max(*mark);
        }
        let heading = self.heading(cold, self.active());
        if let Err(errno) = cold.journal.write_at_once(&self.host, &heading) {
            // The lowered marks are not on disk, so they are no promises.
            cold.journal.promises = before.after_failed_write(&cold.journal.promises);
            return Err(errno);
        }
        for (mark, (lane, known)) in zip(cold.journal.promises.marks, lanes()) {
            if mark < known {
                lane.lower_floor(mark);
            } else {
                lane.raise_floor(floor);
            }
        }
        self.publish_marks(cold);
        Ok(())
    }

    /// Lets calls go up to the marks, which must be durable, if the gate is open.
    fn publish_marks(&self, cold: &ColdState) {
        if cold.gate == Gate::Open && self.host.disk().is_some() {
            for lane in 0..self.lanes.len() {
                self.publish(cold, lane, cold.journal.promises.marks[lane]);
            }
        }
    }
}
