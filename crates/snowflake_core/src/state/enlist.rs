//! The start of a server whose lease makes it a node of a fleet: where a registry says which workers it has, and where a
//! standby holds its number.

use super::promises::{NOBODY, Promises};
use super::record::Facts;
use super::slots::newest;
use super::start::{Evidence, Opening};
use crate::host::{Loaded, RecordName, Sight};
use crate::lease::Membership;
use crate::refusal::ClosedReason;
use crate::workers::{MAX_LANES, Origins};

/// The record of its primary as a standby keeps it while it holds its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// The workers whose marks the promises have as those of lanes.
    pub(crate) origins: Origins,
    /// The number of lanes, and the active worker.
    pub(crate) said: (usize, i64),
}

impl Evidence<'_> {
    /// The start of a server to which the registry says which workers it has. Its lease goes on only where nobody else can
    /// have it: the file is the one that was written, and the witness outside the data directory knows its last record.
    /// Everything else is a new life, that of `born`, without a lease: a reboot, every kind of copy, and a server that
    /// counts its workers in another way.
    pub(crate) fn enlist(
        &self,
        loaded: Option<&Loaded>,
        sight: impl Fn(RecordName, &[i64]) -> Sight,
        born: Membership,
        origins_of: impl Fn(i64) -> Origins,
    ) -> Result<Opening, ClosedReason> {
        let new_life = |mut opening: Opening, earlier_life: Option<Membership>| {
            opening.promises = opening.promises.without_lanes().of_member(born);
            opening.promises.facts.earlier_life = earlier_life;
            opening.promises.begin_life();
            opening
        };
        let Some(loaded) = loaded else { return Ok(new_life(self.fresh(self.first_mark()), None)) };
        let (slot, mut record) = match newest(loaded) {
            Ok(found) => found,
            Err(ClosedReason::Unreadable) => return Ok(new_life(self.fresh(self.first_mark()), None)),
            Err(newer) => return Err(newer),
        };
        let recorded = record.layout.read().ok_or(ClosedReason::Unreadable)?;
        if recorded != *self.layout {
            return self
                .under_other_layout(&record, &recorded, loaded)
                .map(|opening| new_life(opening, None));
        }
        let is_copied = record.is_copied(loaded.identity);
        let is_own = record.is_in_place(loaded.identity, self.start.system_identifier);
        if let Some(membership) = record.facts.membership
            && is_own
            && !is_copied
            && membership.counts_as(&born)
            && sight(record.facts.name, &[]) == Sight::Last
        {
            let origins = membership.lease.map_or(Origins::NONE, |lease| origins_of(lease.home));
            let promises = Promises::of(&record, slot, loaded.identity, &origins);
            let active = origins.iter().position(|origin| *origin == record.active).unwrap_or(self.half[0]);
            return Ok(Opening { promises, active, needs_new_file: false });
        }
        if record.facts.is_disowned && !self.start.made_timeline() {
            // The workers of its primary are unknown, also for a start without a registry after this one.
            record.facts.unknown_are_theirs = true;
        }
        if !is_own || is_copied {
            record.leave_to_original(&[]);
        }
        let lives = [record.facts.membership, record.facts.earlier_life].into_iter().flatten();
        let earlier_life = { lives }.find(|life| is_own && life.lease.is_some() && life.counts_as(&born));
        let mut promises = Promises::of(&record, slot, loaded.identity, &[]).of_nobody();
        promises.facts.system_identifier = self.start.system_identifier;
        let opening = Opening { promises, active: self.half[0], needs_new_file: is_copied };
        Ok(new_life(opening, earlier_life))
    }

    /// What a standby writes to hold its number, and whether the file is its own already. What its primary left there is
    /// kept word by word, because the start after its promotion has to decide by it.
    pub(crate) fn hold(
        &self,
        loaded: Option<&Loaded>,
    ) -> Result<(Promises, (u32, u32), Held, bool), ClosedReason> {
        let Some(loaded) = loaded else {
            let system_identifier = self.start.system_identifier;
            let facts = Facts { system_identifier, of_standby: true, ..Facts::NONE };
            let promises = Promises { facts, ..Promises::none() };
            let held = Held { origins: Origins::NONE, said: (0, NOBODY) };
            return Ok((promises, (self.start.timeline, self.start.depth.unwrap_or(0)), held, false));
        };
        let (slot, record) = newest(loaded)?;
        let recorded = record.layout.read().ok_or(ClosedReason::Unreadable)?;
        if recorded != *self.layout && !record.is_blank() {
            return Err(ClosedReason::OtherLayout(recorded));
        }
        let is_own = record.is_in_place(loaded.identity, self.start.system_identifier);
        // As many as there is room for, so that none is forgotten.
        let origins = Origins::of(record.marks.keys().copied().take(MAX_LANES));
        let promises = Promises::of(&record, slot, loaded.identity, &origins);
        let mut promises = if is_own { promises } else { promises.of_nobody() };
        promises.facts.of_standby = record.is_copied(loaded.identity);
        promises.facts.is_disowned = record.facts.is_disowned;
        // A file that is in place may be a clone's: its primary goes on in its own life.
        promises.begin_life();
        // With a lease, the primary may have used all lanes on its timeline: it had no halves.
        let lanes = if is_own || record.facts.membership.is_none() { record.lanes } else { 0 };
        let held = Held { origins, said: (lanes, record.active) };
        Ok((promises, (record.timeline, record.depth), held, is_own))
    }
}
