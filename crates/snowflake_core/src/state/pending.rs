//! The pending record: the content of the next write of the state. Plain data without a heap, because it is in memory
//! that processes share.

use super::record::{Header, Record};
use crate::layout::Layout;
use crate::lease::Lease;
use crate::platform::FileIdentity;
use crate::workers::{MAX_LANES, Origins};
use std::iter::zip;

/// How many workers of earlier settings and leases keep a mark each; the others share the floor.
const MAX_OTHERS: usize = 48;

/// The part of its record that the generator keeps in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRecord {
    pub(crate) header: Header,
    /// The slot of the newest durable record.
    pub(crate) newest: usize,
    layout: Layout,
    /// The worker of each lane.
    origins: Origins,
    /// The active lane, or the one that a rotation makes active.
    pub(crate) active: usize,
    /// Per lane, on disk, in ticks: no ID of the lane above it has ever been returned.
    pub(crate) marks: [i64; MAX_LANES],
    /// The marks of workers that have no lane, as in the record.
    others: [Option<(i64, i64)>; MAX_OTHERS],
}

impl PendingRecord {
    /// Without any mark.
    pub(crate) const fn new(layout: Layout, origins: Origins) -> Self {
        Self {
            header: Header {
                generation: 0,
                system_identifier: 0,
                file: FileIdentity::NONE,
                timeline: 0,
                max_ahead_us: 0,
                floor_us: i64::MIN,
                token: None,
                membership: None,
            },
            newest: 0,
            layout,
            origins,
            active: 0,
            marks: [-1; MAX_LANES],
            others: [None; MAX_OTHERS],
        }
    }

    /// The successor of a record that was read from `slot`, for the lanes of these workers, of which the first is
    /// active. A lane whose worker the record does not have gets the record's floor.
    pub(crate) fn of(record: &Record, slot: usize, layout: Layout, origins: Origins) -> Self {
        let known = |worker: &i64| record.marks.get(worker).copied().unwrap_or(record.header.floor_us);
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
            header: Header { floor_us: record.header.floor_us.max(dropped_us), ..record.header },
            newest: slot,
            layout,
            origins,
            active: 0,
            marks,
            others: std::array::from_fn(|i| others.get(i).copied()),
        }
    }

    /// The same for other lanes, as of another lease. The present workers join the `others`.
    pub(crate) fn for_origins(&self, origins: Origins) -> Self {
        Self::of(&self.record(), self.newest, self.layout, origins)
    }

    /// The lease, if the node has one.
    pub(crate) fn lease(&self) -> Option<Lease> {
        self.header.membership.and_then(|membership| membership.lease)
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
        self.header.floor_us = floor_us.max(self.header.floor_us);
    }

    /// The mark of a worker that the record does not have.
    pub(crate) fn floor(&self) -> i64 {
        mark_of(&self.layout, self.header.floor_us)
    }

    /// The record.
    pub(crate) fn record(&self) -> Record {
        let lanes = zip(self.origins.iter().copied(), self.marks);
        let ends = lanes.map(|(worker, mark)| (worker, self.layout.starts_at(mark + 1)));
        Record {
            header: self.header,
            active: self.origins.get(self.active).copied(),
            marks: ends.chain(self.others.into_iter().flatten()).collect(),
        }
    }
}

/// The tick of a recorded mark: the last that begins before its time.
fn mark_of(layout: &Layout, end_us: i64) -> i64 {
    layout.tick_at(end_us.saturating_sub(1)).clamp(-1, layout.max_tick())
}
