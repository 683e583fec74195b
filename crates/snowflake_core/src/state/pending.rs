//! The pending record: the content of the next write of the state. Plain data without a heap, because it is in memory
//! that processes share.

use super::record::Record;
use crate::layout::Layout;
use crate::lease::{Lease, Membership};
use crate::platform::FileIdentity;
use crate::workers::{MAX_LANES, Origins};
use std::iter::zip;
use uuid::Uuid;

/// How many workers of earlier settings and leases keep a mark each; the others share the floor.
const MAX_OTHERS: usize = 48;

/// The part of its record that the generator keeps in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRecord {
    pub(crate) generation: u64,
    pub(crate) system_identifier: u64,
    pub(crate) file: FileIdentity,
    /// The slot of the newest durable record.
    pub(crate) newest: usize,
    layout: Layout,
    /// The worker of each lane.
    origins: Origins,
    /// The active lane, or the one that a rotation makes active.
    pub(crate) active: usize,
    pub(crate) timeline: u32,
    /// As in the record.
    pub(crate) max_ahead_us: i64,
    pub(crate) token: Option<Uuid>,
    pub(crate) membership: Option<Membership>,
    /// Per lane, on disk, in ticks: no ID of the lane above it has ever been returned.
    pub(crate) marks: [i64; MAX_LANES],
    /// The marks of workers that have no lane, as in the record.
    others: [Option<(i64, i64)>; MAX_OTHERS],
    /// As in the record.
    floor_us: i64,
}

impl PendingRecord {
    /// Without any mark.
    pub(crate) const fn new(layout: Layout, origins: Origins) -> Self {
        Self {
            generation: 0,
            system_identifier: 0,
            file: FileIdentity::NONE,
            newest: 0,
            layout,
            origins,
            active: 0,
            timeline: 0,
            max_ahead_us: 0,
            token: None,
            membership: None,
            marks: [-1; MAX_LANES],
            others: [None; MAX_OTHERS],
            floor_us: i64::MIN,
        }
    }

    /// The successor of a record that was read from `slot`, for the lanes of these workers, of which the first is
    /// active. A lane whose worker the record does not have gets the record's floor.
    pub(crate) fn of(record: &Record, slot: usize, layout: Layout, origins: Origins) -> Self {
        let known = |worker: &i64| record.marks.get(worker).copied().unwrap_or(record.floor_us);
        let mut marks = [-1; MAX_LANES];
        zip(&mut marks, &*origins).for_each(|(mark, worker)| *mark = mark_of(&layout, known(worker)));
        let mut others: Vec<_> = record
            .marks
            .iter()
            .filter(|(worker, _)| !origins.contains(worker))
            .map(|(w, m)| (*w, *m))
            .collect();
        // If there are too many, the lowest marks share the floor, because the clock passes them first.
        others.sort_by_key(|(_, end_us)| std::cmp::Reverse(*end_us));
        let dropped_us = others.get(MAX_OTHERS).map_or(i64::MIN, |(_, end_us)| *end_us);
        Self {
            generation: record.generation,
            system_identifier: record.system_identifier,
            file: record.file,
            newest: slot,
            layout,
            origins,
            active: 0,
            timeline: record.timeline,
            max_ahead_us: record.max_ahead_us,
            token: record.token,
            membership: record.membership,
            marks,
            others: std::array::from_fn(|i| others.get(i).copied()),
            floor_us: record.floor_us.max(dropped_us),
        }
    }

    /// The same for other lanes, as of another lease. The present workers join the `others`.
    pub(crate) fn for_origins(&self, origins: Origins) -> Self {
        Self::of(&self.record(), self.newest, self.layout, origins)
    }

    /// The lease, if the node has one.
    pub(crate) fn lease(&self) -> Option<Lease> {
        self.membership.and_then(|membership| membership.lease)
    }

    /// The same with this membership.
    pub(crate) fn of_member(self, membership: Membership) -> Self {
        Self { membership: Some(membership), ..self }
    }

    /// Raises the mark of each lane to `mark`.
    pub(crate) fn raise_lanes(&mut self, mark: i64) {
        self.marks.iter_mut().for_each(|known| *known = mark.max(*known));
    }

    /// Raises the mark of every worker to `mark`, also of those that the record does not have.
    pub(crate) fn raise_all(&mut self, mark: i64) {
        self.raise_lanes(mark);
        let floor_us = self.layout.starts_at(mark + 1);
        self.others.iter_mut().flatten().for_each(|(_, end_us)| *end_us = floor_us.max(*end_us));
        self.floor_us = floor_us.max(self.floor_us);
    }

    /// The mark of a worker that the record does not have.
    pub(crate) fn floor(&self) -> i64 {
        mark_of(&self.layout, self.floor_us)
    }

    /// This record after the write of `attempted` failed, which is the newest that the file may hold.
    pub(crate) fn after_failed_write(self, attempted: &Self) -> Self {
        let Self { file, generation, newest, .. } = *attempted;
        Self { file, generation, newest, ..self }
    }

    /// The record.
    pub(crate) fn record(&self) -> Record {
        let lanes = zip(self.origins.iter().copied(), self.marks);
        let ends = lanes.map(|(worker, mark)| (worker, self.layout.starts_at(mark + 1)));
        Record {
            generation: self.generation,
            system_identifier: self.system_identifier,
            file: self.file,
            timeline: self.timeline,
            active: self.origins.get(self.active).copied(),
            max_ahead_us: self.max_ahead_us,
            marks: ends.chain(self.others.into_iter().flatten()).collect(),
            floor_us: self.floor_us,
            token: self.token,
            membership: self.membership,
        }
    }
}

/// The tick of a recorded mark: the last that begins before its time.
fn mark_of(layout: &Layout, end_us: i64) -> i64 {
    layout.tick_at(end_us.saturating_sub(1)).clamp(-1, layout.max_tick())
}
