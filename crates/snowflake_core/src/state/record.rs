//! What the state file says: a *record* holds for each lane its mark, the tick up to which IDs may exist.

use crate::host::{FileIdentity, RecordName};
use crate::layout::{Layout, Tick};
use crate::lease::Membership;
use crate::refusal::FloorCause;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Under how many other numbers a server is known to itself.
const MAX_NUMBERS: usize = 2;
/// The mark of a worker that belongs to the original of a copy. No clock reaches it.
pub(crate) const NOT_OURS: i64 = i64::MAX;

/// The layout as the record holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordedLayout {
    bits: String,
    tick_ms: i64,
    epoch_us: i64,
}

impl RecordedLayout {
    pub(super) fn of(layout: &Layout) -> Self {
        let tick_ms = layout.tick().millis();
        Self { bits: layout.bits().to_string(), tick_ms, epoch_us: layout.epoch_us() }
    }

    pub(super) fn read(&self) -> Option<Layout> {
        Layout::new(self.bits.parse().ok()?, Tick::from_millis(self.tick_ms)?, self.epoch_us).ok()
    }
}

/// What a record says besides its heading and its marks. The generator keeps the same in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Its generation, among others.
    #[serde(flatten)]
    pub(crate) name: RecordName,
    pub(crate) system_identifier: u64,
    pub(crate) file: FileIdentity,
    /// The mark of every other worker: the floor of the first start, or the greatest mark of the earlier workers for
    /// which there is no room.
    pub(super) elsewhere: i64,
    /// `max_ahead` when this was written, in microseconds. IDs that the server generated before are below the marks.
    /// Those that it generates after this file was copied need not be, and this bounds them.
    pub(crate) max_ahead_us: i64,
    /// How far ahead of use the active lane's mark was reserved, in microseconds; more than `reserve` if the disk was
    /// slow.
    pub(crate) reserved_us: i64,
    /// The marks do not yet lie above the IDs in transactions that earlier timelines prepared and did not commit.
    pub(crate) owes_prepared: bool,
    /// A worker that this record does not name may be another server's: this directory was that of a standby, or there
    /// was no room for all workers of its originals.
    pub(super) unknown_are_theirs: bool,
    /// The last floor to which all marks were raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) floor: Option<Floor>,
    /// An operator vouched for a state that was lost, or for another layout: IDs may exist of which no mark tells.
    pub(super) is_vouched: bool,
    /// In a fleet with a registry: who this node is, and its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) membership: Option<Membership>,
    /// What the membership was before the node's present life, until that has a lease. An operator may vouch for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) earlier_life: Option<Membership>,
    /// Who this server is under other configured numbers that the registry confirmed, the latest first.
    pub(super) other_numbers: [Option<Membership>; MAX_NUMBERS],
    /// A standby wrote this, because it holds a number: the file is its own, and so are the memberships. All else is as
    /// its primary left it.
    pub(super) of_standby: bool,
    /// Whoever wrote this did not own the directory: a standby without a state, or a server that was started without a
    /// promotion. Only a promotion or an operator makes it a primary's.
    pub(super) is_disowned: bool,
}

impl Facts {
    /// Of a generator without a disk.
    pub(super) const NONE: Self = Self {
        name: RecordName { life: Uuid::nil(), run: Uuid::nil(), generation: 0 },
        system_identifier: 0,
        file: FileIdentity::NOBODY,
        elsewhere: -1,
        max_ahead_us: 0,
        reserved_us: 0,
        owes_prepared: false,
        unknown_are_theirs: false,
        floor: None,
        is_vouched: false,
        membership: None,
        earlier_life: None,
        other_numbers: [None; MAX_NUMBERS],
        of_standby: false,
        is_disowned: false,
    };
}

/// The promises as a slot holds them. Workers are stored as they stand in an ID, datacenter included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(super) facts: Facts,
    pub(super) timeline: u32,
    /// The timeline's depth, on which the half depends; 0 if whoever wrote this did not know it.
    pub(super) depth: u32,
    pub(super) layout: RecordedLayout,
    /// The number of lanes when this was written, because the halves depend on it.
    pub(super) lanes: usize,
    pub(super) active: i64,
    /// For each worker that this server owns or once owned: no ID above this tick exists.
    pub(super) marks: BTreeMap<i64, i64>,
}

/// A mark that was set for all workers, although no ID of this server reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// The tick.
    pub mark: i64,
    /// Why it was set.
    pub cause: FloorCause,
}

impl Record {
    /// Whether no ID was generated under this record: it began with a start that found no state, and no mark has passed
    /// that start's floor. Only true after a clean stop, because only that writes exact marks.
    pub(super) fn is_unused(&self) -> bool {
        let is_below =
            |floor: Floor| self.marks.values().chain([&self.facts.elsewhere]).all(|mark| *mark <= floor.mark);
        let is_first = |floor: Floor| floor.cause == FloorCause::NoState && !self.facts.is_vouched;
        self.facts.floor.is_some_and(|floor| is_first(floor) && is_below(floor))
    }

    /// The highest mark of this server's workers and of those that it had or may have.
    pub(super) fn highest_mark(&self) -> i64 {
        let known = self.marks.values().copied().filter(|mark| *mark != NOT_OURS);
        known.max().unwrap_or(-1).max(self.facts.elsewhere)
    }

    /// Whether it lies in the file into which it was written, in the same cluster: whoever reads it there is the node
    /// that wrote it.
    pub(super) fn is_in_place(&self, file: FileIdentity, system_identifier: u64) -> bool {
        self.facts.file.is(file) && self.facts.system_identifier == system_identifier
    }

    /// Whether it is a copy of another server's, as far as the marks go.
    pub(super) fn is_copied(&self, file: FileIdentity) -> bool {
        self.facts.of_standby || !self.facts.file.is(file)
    }

    /// Whether a standby wrote it that had no record of its primary: it says nothing of any worker.
    pub(super) fn is_blank(&self) -> bool {
        self.facts.of_standby && self.marks.is_empty()
    }

    /// Gives all workers, except those of `origins`, to the original of the copy in which this record was found.
    pub(super) fn leave_to_original(&mut self, origins: &[i64]) {
        let theirs = self.marks.iter_mut().filter(|(origin, _)| !origins.contains(origin));
        theirs.for_each(|(_, mark)| *mark = NOT_OURS);
    }

    /// The mark of a worker that need not be in the record.
    pub(super) fn mark_of(&self, origin: i64) -> i64 {
        let unknown = if self.facts.unknown_are_theirs { NOT_OURS } else { self.facts.elsewhere };
        self.marks.get(&origin).copied().unwrap_or(unknown)
    }

    /// Whether the record has a worker of `origins` whose mark satisfies `with`.
    pub(super) fn has_worker(&self, origins: &[i64], with: impl Fn(i64) -> bool) -> bool {
        origins.iter().any(|origin| self.marks.get(origin).is_some_and(|mark| with(*mark)))
    }
}
