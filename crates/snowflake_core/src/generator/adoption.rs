//! Adoption: what an operator vouches for, and the floors that raise or lower all marks.

use super::Generator;
use crate::host::{Event, Host};
use crate::lane::Lane;
use crate::memory::{ColdState, Gate};
use crate::refusal::{AdoptError, ClosedReason, Errno, FloorCause};
use crate::state::record::Promises;
use crate::state::start::Start;
use parking_lot::lock_api::RawMutex;
use std::iter::zip;

impl<H: Host, R: RawMutex> Generator<'_, H, R> {
    /// Vouches for the state: opens a gate that a lost, copied or foreign state keeps closed, with marks of
    /// at least `floor_us` (a Unix time); on an open gate raises the marks. With `lower`, marks become that floor
    /// also where they were higher, except of lanes that have generated IDs in this run; without, no mark that can be
    /// read is lowered. After it, [`open`](Self::open) ends what is left of a start.
    pub fn adopt(&self, start: &Start, floor_us: i64, lower: bool) -> Result<(), AdoptError> {
        let os_error = |errno| AdoptError::Closed(ClosedReason::Os(errno));
        let half: Vec<usize> = self.workers.half(start.timeline).collect();
        self.locked(|cold| {
            let evidence = self.evidence(start, &half);
            if matches!(cold.gate, Gate::Open | Gate::Settling) {
                let floor = evidence.floor_mark(floor_us)?;
                let done = match lower {
                    false => self.raise_marks(cold, floor, FloorCause::Operator),
                    true => self.lower_marks(cold, floor),
                };
                return done.map_err(os_error);
            }
            let Some(disk) = self.host.disk() else { return Ok(()) };
            let loaded = disk.load().map_err(os_error)?;
            let opening = evidence.adopt(loaded.as_ref(), floor_us, lower)?;
            self.commit(cold, start, opening).map(drop).map_err(AdoptError::Closed)
        })?;
        self.host.report(Event::Adopted { floor_us, lower });
        Ok(())
    }

    /// Raises every mark to `floor`: durable first, then in memory. Replay lowers the frontier under the same lock, so
    /// it cannot come between the two.
    pub(super) fn raise_marks(
        &self,
        cold: &mut ColdState,
        floor: i64,
        cause: FloorCause,
    ) -> Result<(), Errno> {
        cold.journal.promises.raise_all(floor, cause);
        // At once, also where a write has just failed: an operator waits for the answer.
        let heading = self.heading(cold.timeline, self.active());
        cold.journal.write_at_once(&self.host, &heading, &self.limits())?;
        for (lane, mark) in self.lanes.iter().zip(cold.journal.promises.marks) {
            lane.raise_floor(floor);
            self.publish_mark(cold, lane, mark);
        }
        Ok(())
    }

    /// Sets the marks to `floor`, except of lanes that can generate IDs: the active one, where the clock lets it, and
    /// those that have generated some since the start. Their marks are never lowered, because a call may be on its
    /// way.
    fn lower_marks(&self, cold: &mut ColdState, floor: i64) -> Result<(), Errno> {
        let before = cold.journal.promises;
        let used: Vec<bool> = self.lanes.iter().map(Lane::is_used).collect();
        cold.journal.promises.set_all(floor);
        for (index, _) in used.iter().enumerate().filter(|(_, is_used)| **is_used) {
            cold.journal.promises.marks[index] = before.marks[index].max(floor);
        }
        let heading = self.heading(cold.timeline, self.active());
        if let Err(errno) = cold.journal.write_at_once(&self.host, &heading, &self.limits()) {
            // Lower marks that are on no disk must not be taken for promises.
            let Promises { file, generation, newest, .. } = cold.journal.promises;
            cold.journal.promises = before;
            let promises = &mut cold.journal.promises;
            (promises.file, promises.generation, promises.newest) = (file, generation, newest);
            return Err(errno);
        }
        for ((lane, mark), is_used) in zip(zip(&self.lanes, cold.journal.promises.marks), used) {
            if !is_used {
                lane.lower_floor(mark);
            }
            self.publish_mark(cold, lane, mark);
        }
        Ok(())
    }

    /// Lets calls go up to a mark that is durable, where the gate is open.
    fn publish_mark(&self, cold: &ColdState, lane: &Lane<'_>, mark: i64) {
        if cold.gate == Gate::Open && self.host.disk().is_some() {
            lane.publish_ceiling(mark);
        }
    }
}
