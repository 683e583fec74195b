//! An operator's `adopt`: the marks from which the lanes begin where somebody vouches for the state.

use super::record::NOT_OURS;
use super::slots::newest;
use super::start::{Evidence, Opening};
use crate::host::Loaded;
use crate::layout::Layout;
use crate::refusal::{AdoptError, ClosedReason, FloorCause};

/// A floor further ahead of the clock than this counts as a mistake.
const FARTHEST_FLOOR_US: i64 = 24 * 3_600_000_000;

impl Evidence<'_> {
    /// The outcome of an operator's `adopt`, which asserts that the state is this server's, and that no other server
    /// generated an ID above `floor` (a Unix time in microseconds). Readable marks are lowered only if `lower` asserts
    /// the same of this server.
    pub(crate) fn adopt(
        &self,
        loaded: Option<&Loaded>,
        floor_us: i64,
        lower: bool,
    ) -> Result<Opening, AdoptError> {
        let floor = self.floor_mark(floor_us)?;
        let mut opening = self.vouched(loaded, floor_us, lower)?;
        if lower {
            opening.promises.set_all(floor);
        }
        Ok(opening)
    }

    fn vouched(&self, loaded: Option<&Loaded>, floor_us: i64, lower: bool) -> Result<Opening, AdoptError> {
        let raised = |evidence: &Self, mut opening: Opening| {
            opening.promises.raise_all(evidence.floor_mark(floor_us)?, FloorCause::Operator);
            Ok(opening)
        };
        // IDs may exist of which no mark of this record tells.
        let anew = |mut opening: Opening| {
            opening.promises.facts.is_vouched = true;
            raised(self, opening)
        };
        let lost = || anew(self.fresh(self.first_mark()));
        let Some(loaded) = loaded else { return lost() };
        let (slot, mut record) = match newest(loaded) {
            Ok(found) => found,
            Err(ClosedReason::Unreadable) => return lost(),
            Err(newer) => return Err(AdoptError::Closed(newer)),
        };
        let Some(recorded) = record.layout.read().filter(|_| !record.is_blank()) else { return lost() };
        if recorded != *self.layout {
            if self.is_unused(&record, loaded) {
                return raised(self, self.unused(&record, &recorded));
            }
            // With `lower` the operator vouches that no ID above the floor exists, whatever was reserved.
            let vouched = if lower { recorded.tick_at(floor_us) } else { i64::MAX };
            let mark = self.adopt_layout(&recorded, record.highest_mark().min(vouched).max(-1))?;
            return anew(self.fresh(mark));
        }
        if record.facts.is_disowned {
            // Which workers its primary has is unknown, so the operator vouches for the configured ones only.
            record.facts.unknown_are_theirs = true;
            record.leave_to_original(&self.origins);
        }
        let mut promises = self.promises(&record, slot, loaded);
        promises.begin_life();
        let evidence = self.under(&record);
        // The operator vouches that the original's workers are this server's now. Nothing is known of their marks but what
        // an operator has said of all workers.
        let known = promises.facts.floor.filter(|floor| floor.cause == FloorCause::Operator);
        let first =
            evidence.first_mark().max(promises.facts.elsewhere).max(known.map_or(-1, |floor| floor.mark));
        let ours = promises.marks.iter_mut().filter(|mark| **mark == NOT_OURS);
        ours.for_each(|mark| *mark = first);
        if record.timeline != self.start.timeline {
            self.respect_earlier_timelines(&mut promises, &record);
        }
        raised(&evidence, Opening { promises, active: self.half[0], needs_new_file: true })
    }

    /// The mark of a floor.
    pub(crate) fn floor_mark(&self, floor_us: i64) -> Result<i64, AdoptError> {
        if floor_us > self.now_us.saturating_add(FARTHEST_FLOOR_US) {
            return Err(AdoptError::FloorInFuture);
        }
        Ok(self.mark_at(floor_us))
    }

    /// The mark from which the configured layout can continue after layout `old`, whose highest mark is `mark`.
    fn adopt_layout(&self, old: &Layout, mark: i64) -> Result<i64, AdoptError> {
        let new = self.layout;
        let highest_old = old.highest_id(mark);
        let first = (self.same_instant(old, mark) + 1).max(new.tick_at(self.now_us));
        if new.lowest_id(first) <= highest_old {
            return Err(AdoptError::LayoutBelow(*old));
        }
        Ok(first)
    }
}
