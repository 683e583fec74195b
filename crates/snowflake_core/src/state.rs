//! The durable state: what is promised on disk, how it is written, and what it means at the next start.
//!
//! A *record* says for each lane up to which tick IDs may have been made: its mark. It lies in a file of
//! two *slots* of 4 KiB, each a JSON document with a version, a CRC-32C and a generation. A record goes
//! first to the slot that does not hold the newest durable one, so that a torn write leaves the other
//! whole, and then to that one too. The file names its own inode and time of birth: in a copy they are
//! wrong, and a copy's original may still run.
//!
//! Reading and writing are the [`Disk`]'s; what a reading means is decided here, by pure functions.

use crate::lanes::MAX_LANES;
use crate::layout::{Layout, Tick};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Bytes of a slot: whole blocks, so that writing one touches nothing of the other.
pub const SLOT_BYTES: usize = 4096;
/// Slots of the file.
pub const SLOTS: usize = 2;
/// The version that this code writes, and the last one that it reads.
const VERSION: u32 = 1;
/// Where nothing was recorded, marks start this much above the greatest time that is known.
const FIRST_MARGIN_US: i64 = 1_000_000;
/// Workers of earlier settings whose marks are kept one by one; those beyond fold into `elsewhere`.
const MAX_FORMER: usize = 48;
/// The mark of a worker that belongs to the original of a copy: no clock comes so far.
const NOT_OURS: i64 = i64::MAX;
/// A floor further ahead of the clock than this is taken for a mistake.
const FARTHEST_FLOOR_US: i64 = 24 * 3_600_000_000;

/// An error of the operating system: its number.
pub type Errno = i32;

/// Which file it is: a copy has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Inode.
    pub inode: u64,
    /// Time of birth, in nanoseconds since 1970; 0 where the file system does not tell.
    pub born_ns: i64,
}

impl FileIdentity {
    /// Whether a file that was recorded as this one is `found`. A kernel or a file system that begins to tell
    /// times of birth makes no copy of a file.
    fn is(self, found: Self) -> bool {
        self.inode == found.inode && (self.born_ns == found.born_ns || self.born_ns == 0)
    }
}

/// The state file as it was found.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The file that was read.
    pub identity: FileIdentity,
    /// Its bytes, slot by slot.
    pub slots: [Vec<u8>; SLOTS],
}

/// Why a slot was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The file is gone, or another one lies in its place.
    Replaced,
    /// The operating system refused.
    Os(Errno),
}

/// Where the state file lies. Called only under the cold lock.
pub trait Disk {
    /// Reads the file; `None` where there is none.
    fn load(&self) -> Result<Option<Loaded>, Errno>;
    /// Writes what was loaded, each slot onto itself, and fsyncs it.
    ///
    /// A crash of the server alone leaves pages that look written and are not, and after an fsync that
    /// failed they even look clean: of two slots that look alike, one may never have reached the disk, and
    /// nothing tells which. Written onto itself, the one that is durable stays whole whatever happens, and
    /// the other becomes durable; only then may one of them be overwritten.
    fn write_again(&self, loaded: &Loaded) -> Result<(), Errno>;
    /// Writes one slot of the file that is expected to be there, and fsyncs it.
    fn write(&self, expected: FileIdentity, slot: usize, bytes: &[u8]) -> Result<(), WriteError>;
    /// Makes the file, or replaces it as a whole, with the same bytes in both slots, and makes it durable.
    fn create(&self, bytes: &dyn Fn(FileIdentity) -> Vec<u8>) -> Result<FileIdentity, Errno>;
}

/// The layout as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedLayout {
    bits: String,
    tick_ms: i64,
    epoch_us: i64,
}

impl RecordedLayout {
    fn of(layout: &Layout) -> Self {
        let tick_ms = layout.tick().micros() / 1_000;
        Self { bits: layout.bits().to_string(), tick_ms, epoch_us: layout.epoch_us() }
    }

    fn read(&self) -> Option<Layout> {
        Layout::new(self.bits.parse().ok()?, Tick::from_millis(self.tick_ms)?, self.epoch_us).ok()
    }
}

/// What is promised. Workers are named as they stand in an ID, datacenter included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    generation: u64,
    system_identifier: u64,
    timeline: u32,
    file: FileIdentity,
    layout: RecordedLayout,
    /// How many workers a server has, which is what halves are counted by.
    lanes: usize,
    active: i64,
    /// Per worker that this server owns or once owned: no ID above this tick has been made.
    marks: BTreeMap<i64, i64>,
    /// The mark of every other worker: the floor of the first start, or the greatest mark of former
    /// workers for which there is no room.
    elsewhere: i64,
    /// `max_ahead` when this was written, in microseconds; 0 in a record of an earlier version, which did not say.
    /// IDs that were made before are below the marks; those that the server makes once this was copied are not.
    #[serde(default)]
    max_ahead_us: i64,
    /// How far ahead of use the active lane's mark was reserved, in microseconds: a slow disk makes it longer
    /// than `reserve`.
    #[serde(default)]
    reserved_us: i64,
    /// The marks do not yet respect the transactions that earlier timelines prepared and did not commit.
    #[serde(default, skip_serializing_if = "is_false")]
    owes_prepared: bool,
    /// The last floor to which all marks were raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor: Option<Floor>,
}

/// A mark that was set for all workers, without an ID of this server's that reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// The tick.
    pub mark: i64,
    /// Why it was set.
    pub cause: FloorCause,
}

/// What sets a [`Floor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FloorCause {
    /// A start that found no state: what was made before is not known.
    NoState,
    /// A new timeline: other servers made IDs with these workers.
    NewTimeline,
    /// An operator, by `adopt`.
    Operator,
}

fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Serialize)]
struct Envelope<'a> {
    version: u32,
    crc32c: String,
    record: &'a RawValue,
}

#[derive(Deserialize)]
struct ReadEnvelope<'a> {
    version: u32,
    crc32c: String,
    #[serde(borrow)]
    record: &'a RawValue,
}

fn checksum(version: u32, record: &str) -> String {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&version.to_le_bytes()), record.as_bytes());
    format!("{crc:08x}")
}

/// The bytes of a slot that holds this record.
fn encode(record: &Record) -> Vec<u8> {
    let record = serde_json::value::to_raw_value(record).expect("a record is plain data");
    let crc32c = checksum(VERSION, record.get());
    let envelope = Envelope { version: VERSION, crc32c, record: &record };
    let mut bytes = serde_json::to_vec(&envelope).expect("an envelope is plain data");
    bytes.push(b'\n');
    assert!(bytes.len() <= SLOT_BYTES, "64 workers take about half a slot");
    bytes.resize(SLOT_BYTES, b' ');
    bytes
}

/// What a slot holds; `None`: nothing that can be read.
fn decode(bytes: &[u8]) -> Option<Result<Record, Closed>> {
    let envelope: ReadEnvelope<'_> = serde_json::from_slice(bytes).ok()?;
    if checksum(envelope.version, envelope.record.get()) != envelope.crc32c {
        return None;
    }
    if envelope.version > VERSION {
        return Some(Err(Closed::NewerVersion(envelope.version)));
    }
    serde_json::from_str(envelope.record.get()).ok().map(Ok)
}

/// The newest record of a file, and its slot.
fn newest(loaded: &Loaded) -> Result<(usize, Record), Closed> {
    let mut found: Option<(usize, Record)> = None;
    for (slot, bytes) in loaded.slots.iter().enumerate() {
        if let Some(record) = decode(bytes).transpose()?
            && found.as_ref().is_none_or(|(_, other)| other.generation < record.generation)
        {
            found = Some((slot, record));
        }
    }
    found.ok_or(Closed::Unreadable)
}

/// The layout with which the IDs of a state file were made, where that can be read.
pub fn recorded_layout(loaded: &Loaded) -> Option<Layout> {
    newest(loaded).ok()?.1.layout.read()
}

/// Why the gate stays closed after a start, until `adopt` or another configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The file could not be read or made: the operating system's error.
    Os(Errno),
    /// A file is there, and neither slot can be read.
    Unreadable,
    /// A slot was written by a later version.
    NewerVersion(u32),
    /// IDs were made with this layout, which is not the configured one.
    OtherLayout(Layout),
    /// The state is that of another database cluster: its system identifier.
    Foreign(u64),
    /// The directory is a copy of one that may still run.
    Copied,
    /// Another server began this timeline, and may still make its IDs: a standby was started without a promotion.
    NotPromoted(u32),
}

/// What a start knows besides the file.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The timeline that the server writes: 1, 2, ...
    pub timeline: u32,
    /// The latest timeline that the data directory had reached before this start, by its control file. A later
    /// one is of this start's own making; on this one another server may be at work.
    pub timeline_before: u32,
    /// The control file said before this start that the server was a standby, or in the middle of a restore.
    pub was_in_recovery: bool,
    /// The cluster's system identifier.
    pub system_identifier: u64,
    /// When the control file was last written before this start, as a Unix time in microseconds.
    pub control_us: i64,
    /// The latest time that is known of what was replayed, as a Unix time in microseconds: that of the last
    /// commit, or of the checkpoint from which the replay began, which is the primary's.
    pub replayed_us: Option<i64>,
    /// Transactions that were prepared before this start and are not committed.
    pub prepared: Prepared,
}

/// What a start knows of prepared transactions: an ID in one of them can be later than the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Nothing: they can be read in a session only.
    Unread,
    /// When the last of them was prepared, as a Unix time in microseconds; `None`: there is none.
    Read(Option<i64>),
}

impl Start {
    /// A start on a timeline (1, 2, ...) about which nothing else is known. Any timeline but the first is of
    /// its own making.
    pub fn of_timeline(timeline: u32) -> Self {
        Self {
            timeline,
            timeline_before: timeline.saturating_sub(1).max(1),
            was_in_recovery: false,
            system_identifier: 0,
            control_us: i64::MIN,
            replayed_us: None,
            prepared: Prepared::Read(None),
        }
    }

    /// Whether this start began its timeline, as a promotion does and a restore to a point in time.
    fn made_timeline(&self) -> bool {
        self.timeline > self.timeline_before
    }

    /// The latest time that is known of what other servers have done on earlier timelines.
    fn known_us(&self) -> Option<i64> {
        match self.prepared {
            Prepared::Read(prepared_us) => self.replayed_us.max(prepared_us),
            Prepared::Unread => self.replayed_us,
        }
    }
}

/// What the generator keeps in memory of its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promises {
    pub(crate) system_identifier: u64,
    pub(crate) file: FileIdentity,
    pub(crate) generation: u64,
    /// The slot of the newest durable record.
    pub(crate) newest: usize,
    /// Per lane, on disk: no ID of the lane above it has ever been returned.
    pub(crate) marks: [i64; MAX_LANES],
    /// Workers of earlier settings and their marks: one of them may be configured again.
    former: [Option<(i64, i64)>; MAX_FORMER],
    elsewhere: i64,
    /// As in [`Record`].
    pub(crate) max_ahead_us: i64,
    /// As in [`Record`].
    pub(crate) reserved_us: i64,
    /// As in [`Record`].
    pub(crate) owes_prepared: bool,
    /// As in [`Record`].
    pub(crate) floor: Option<Floor>,
}

/// How a lane's worker stands in an ID, for each lane of this server.
type Nodes<'a> = &'a [i64];

impl Promises {
    /// Nothing: what a generator without a disk has.
    pub(crate) const fn none() -> Self {
        Self {
            system_identifier: 0,
            file: FileIdentity { inode: 0, born_ns: 0 },
            generation: 0,
            newest: 0,
            marks: [-1; MAX_LANES],
            former: [None; MAX_FORMER],
            elsewhere: -1,
            max_ahead_us: 0,
            reserved_us: 0,
            owes_prepared: false,
            floor: None,
        }
    }

    /// Raises every mark to `floor`, those of other workers too.
    pub(crate) fn raise(&mut self, floor: i64, cause: FloorCause) {
        self.every_mark().for_each(|mark| *mark = (*mark).max(floor));
        if self.floor.is_none_or(|known| known.mark < floor) {
            self.floor = Some(Floor { mark: floor, cause });
        }
    }

    /// Sets every mark to `floor`, but those of a copy's original.
    pub(crate) fn set(&mut self, floor: i64) {
        self.every_mark().filter(|mark| **mark != NOT_OURS).for_each(|mark| *mark = floor);
        self.floor = Some(Floor { mark: floor, cause: FloorCause::Operator });
    }

    fn every_mark(&mut self) -> impl Iterator<Item = &mut i64> {
        let former = self.former.iter_mut().flatten().map(|(_, mark)| mark);
        self.marks.iter_mut().chain(former).chain([&mut self.elsewhere])
    }

    /// The bytes of a slot, for the file `file`.
    pub(crate) fn encode(
        &self,
        layout: &Layout,
        nodes: Nodes<'_>,
        choice: Choice,
        file: FileIdentity,
    ) -> Vec<u8> {
        encode(&Record {
            generation: self.generation,
            system_identifier: self.system_identifier,
            timeline: choice.timeline,
            file,
            layout: RecordedLayout::of(layout),
            lanes: nodes.len(),
            active: nodes[choice.active],
            marks: nodes.iter().copied().zip(self.marks).chain(self.former.into_iter().flatten()).collect(),
            elsewhere: self.elsewhere,
            max_ahead_us: self.max_ahead_us,
            reserved_us: self.reserved_us,
            owes_prepared: self.owes_prepared,
            floor: self.floor,
        })
    }
}

/// Timeline and active lane, as a record names them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) timeline: u32,
    pub(crate) active: usize,
}

/// What a start came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) promises: Promises,
    pub(crate) active: usize,
    /// The file has to be made anew, for there is none of this server.
    pub(crate) is_new: bool,
}

/// What a start reads, in one value.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) nodes: Nodes<'a>,
    /// Lanes of the timeline's half, in the order of rotation.
    pub(crate) half: &'a [usize],
    pub(crate) start: &'a Start,
    /// The wall clock, as a Unix time in microseconds.
    pub(crate) now_us: i64,
    /// The greatest `max_ahead` under which IDs may have been made, in microseconds: this server's, as far as no
    /// record says more.
    pub(crate) max_ahead_us: i64,
}

impl Reading<'_> {
    /// The last tick that may have been issued by this Unix time: none after it is below `max_ahead`.
    fn mark_at(&self, unix_us: i64) -> i64 {
        let latest = unix_us.saturating_add(self.max_ahead_us);
        self.layout.tick_at(latest).clamp(-1, self.layout.max_tick())
    }

    /// Where nothing is recorded.
    fn first_mark(&self) -> i64 {
        self.floor_above(self.start.control_us.max(self.start.known_us().unwrap_or(i64::MIN)))
    }

    /// A mark that IDs of this Unix time, and of this clock's, do not reach, also where the clocks that made
    /// them are a little ahead of it.
    fn floor_above(&self, known_us: i64) -> i64 {
        self.mark_at(known_us.max(self.now_us).saturating_add(FIRST_MARGIN_US))
    }

    fn fresh(&self, mark: i64) -> Opening {
        let promises = Promises {
            system_identifier: self.start.system_identifier,
            marks: [mark; MAX_LANES],
            elsewhere: mark,
            owes_prepared: self.start.prepared == Prepared::Unread,
            floor: Some(Floor { mark, cause: FloorCause::NoState }),
            ..Promises::none()
        };
        Opening { promises, active: self.half[0], is_new: true }
    }

    /// The promises of a record, for the lanes of this configuration.
    fn promises(&self, record: &Record, slot: usize, identity: FileIdentity) -> Promises {
        let mut marks = [record.elsewhere; MAX_LANES];
        for (mark, node) in marks.iter_mut().zip(self.nodes) {
            *mark = *record.marks.get(node).unwrap_or(&record.elsewhere);
        }
        let not_owned = record.marks.iter().filter(|(node, _)| !self.nodes.contains(node));
        let mut not_owned: Vec<(i64, i64)> = not_owned.map(|(node, mark)| (*node, *mark)).collect();
        // The lowest are folded away first: they matter least.
        not_owned.sort_by_key(|(_, mark)| std::cmp::Reverse(*mark));
        let mut former = [None; MAX_FORMER];
        former.iter_mut().zip(&not_owned).for_each(|(place, worker)| *place = Some(*worker));
        let folded = not_owned.iter().skip(MAX_FORMER).map(|(_, mark)| *mark);
        let folded = folded.filter(|mark| *mark != NOT_OURS).max().unwrap_or(-1);
        Promises {
            system_identifier: self.start.system_identifier,
            file: identity,
            generation: record.generation,
            newest: slot,
            marks,
            former,
            elsewhere: record.elsewhere.max(folded),
            max_ahead_us: record.max_ahead_us,
            reserved_us: record.reserved_us,
            owes_prepared: record.owes_prepared,
            floor: record.floor,
        }
    }

    /// Whether a worker of this configuration is in the record with a mark like this.
    fn has_worker(&self, record: &Record, with: impl Fn(i64) -> bool) -> bool {
        self.nodes.iter().any(|node| record.marks.get(node).is_some_and(|mark| with(*mark)))
    }

    /// After [`Closed::NotPromoted`]: what is to be written so that the next start, before which the server was not
    /// in recovery any more, does not take the directory for its own. `None`: the file says so already.
    pub(crate) fn disowned(&self, loaded: Option<&Loaded>) -> Option<(u32, Promises)> {
        let Some(loaded) = loaded else {
            return Some((self.start.timeline, self.fresh(self.first_mark()).promises));
        };
        let (slot, record) = newest(loaded).ok()?;
        let says_so =
            !record.file.is(loaded.identity) && self.nodes.iter().all(|node| record.marks.contains_key(node));
        (!says_so).then(|| (record.timeline, self.promises(&record, slot, loaded.identity)))
    }

    /// The steps 1 to 6 of a start; the seventh is the caller's: make it durable, then open the gate.
    pub(crate) fn decide(&self, loaded: Option<&Loaded>) -> Result<Opening, Closed> {
        let Some(loaded) = loaded else {
            // A standby of before the first ID, started beside its primary.
            if self.start.was_in_recovery && !self.start.made_timeline() {
                return Err(Closed::NotPromoted(self.start.timeline));
            }
            return Ok(self.fresh(self.first_mark()));
        };
        let (slot, record) = newest(loaded)?;
        let recorded = record.layout.read().ok_or(Closed::Unreadable)?;
        if recorded != *self.layout {
            return Err(Closed::OtherLayout(recorded));
        }
        let is_foreign = record.system_identifier != self.start.system_identifier;
        let is_new_timeline = record.timeline != self.start.timeline;
        let is_copy = !record.file.is(loaded.identity);
        // A standby does not touch the file: once it has followed a failover, the record names a timeline before
        // the one that it is on, and only who began this one tells whether it was promoted. A standby that was killed
        // soon after a failover does not even know of it.
        let is_followed = (is_new_timeline || self.start.was_in_recovery) && !self.start.made_timeline();
        // With a worker of its own a copy never meets its original, as long as it keeps to it.
        let is_theirs = is_foreign || is_followed || (is_copy && !is_new_timeline);
        if is_foreign && self.has_worker(&record, |_| true) {
            return Err(Closed::Foreign(record.system_identifier));
        }
        // What workers its primary has by now, a standby's record cannot say.
        if is_followed && (self.start.was_in_recovery || self.has_worker(&record, |_| true)) {
            return Err(Closed::NotPromoted(self.start.timeline));
        }
        if self.has_worker(&record, |mark| is_theirs || mark == NOT_OURS) {
            return Err(Closed::Copied);
        }
        let mut promises = self.promises(&record, slot, loaded.identity);
        if is_theirs {
            promises.former.iter_mut().flatten().for_each(|(_, mark)| *mark = NOT_OURS);
        }
        let mut active = self.half[0];
        if is_new_timeline {
            self.respect_earlier_timelines(&mut promises, &record);
        } else if let Some(lane) = self.nodes.iter().position(|node| *node == record.active)
            && self.half.contains(&lane)
        {
            active = lane;
        }
        // A copy's file names its original: it is made anew, with its own identity.
        Ok(Opening { promises, active, is_new: is_copy })
    }

    /// Any worker but those that are this timeline's alone may have been used by an earlier timeline, of
    /// which this server knows only what was replayed and, where the clocks agree, that it made nothing
    /// above this clock. The second timeline's alone are the lanes of its half, where there are halves and
    /// the first one counted them alike; but only for the server that began it.
    fn respect_earlier_timelines(&self, promises: &mut Promises, record: &Record) {
        let reading = self.under(record);
        let floor = reading.floor_above(self.start.known_us().unwrap_or(self.start.control_us));
        let has_halves = self.half.len() < self.nodes.len();
        let same_halves = record.lanes == self.nodes.len();
        let is_second = self.start.timeline <= 2 && self.start.made_timeline();
        let own: &[usize] = if has_halves && same_halves && is_second { self.half } else { &[] };
        let kept = own.iter().map(|lane| (*lane, promises.marks[*lane])).collect::<Vec<_>>();
        promises.raise(floor, FloorCause::NewTimeline);
        kept.into_iter().for_each(|(lane, mark)| promises.marks[lane] = mark);
        promises.owes_prepared = self.start.prepared == Prepared::Unread && own.is_empty();
    }

    /// The same, where the IDs in question were made by the server that wrote this record: under its `max_ahead`.
    fn under(&self, record: &Record) -> Self {
        Self { max_ahead_us: self.max_ahead_us.max(record.max_ahead_us), ..*self }
    }

    /// The mark that respects the transactions that were prepared on earlier timelines; `None` where they cannot
    /// be read.
    pub(crate) fn prepared_mark(&self) -> Option<i64> {
        match self.start.prepared {
            Prepared::Unread => None,
            Prepared::Read(None) => Some(-1),
            Prepared::Read(Some(prepared_us)) => {
                Some(self.mark_at(prepared_us.saturating_add(FIRST_MARGIN_US)))
            }
        }
    }

    /// What an operator's `adopt` comes to: the state at hand is this server's, and no ID above `floor`
    /// (a Unix time in microseconds) was made elsewhere. A mark that can be read is lowered only where `lower`
    /// says that no ID above `floor` was made here either.
    pub(crate) fn adopt(
        &self,
        loaded: Option<&Loaded>,
        floor_us: i64,
        lower: bool,
    ) -> Result<Opening, AdoptError> {
        let floor = self.floor_mark(floor_us)?;
        let mut opening = self.vouched(loaded, floor_us)?;
        if lower {
            opening.promises.set(floor);
        }
        Ok(opening)
    }

    fn vouched(&self, loaded: Option<&Loaded>, floor_us: i64) -> Result<Opening, AdoptError> {
        let raised = |reading: &Self, mut opening: Opening| {
            opening.promises.raise(reading.floor_mark(floor_us)?, FloorCause::Operator);
            Ok(opening)
        };
        let lost = || raised(self, self.fresh(self.first_mark()));
        let Some(loaded) = loaded else { return lost() };
        let (slot, record) = match newest(loaded) {
            Ok(found) => found,
            Err(Closed::Unreadable) => return lost(),
            Err(newer) => return Err(AdoptError::Closed(newer)),
        };
        let Some(recorded) = record.layout.read() else { return lost() };
        if recorded != *self.layout {
            let known = record.marks.values().copied().filter(|mark| *mark != NOT_OURS);
            let highest = known.max().unwrap_or(-1).max(record.elsewhere);
            return raised(self, self.fresh(self.adopt_layout(&recorded, highest)?));
        }
        let mut promises = self.promises(&record, slot, loaded.identity);
        let reading = self.under(&record);
        // Vouched for: what was the original's is this server's now, from where nothing is known.
        let ours = promises.marks.iter_mut().filter(|mark| **mark == NOT_OURS);
        ours.for_each(|mark| *mark = reading.first_mark());
        if record.timeline != self.start.timeline {
            self.respect_earlier_timelines(&mut promises, &record);
        }
        raised(&reading, Opening { promises, active: self.half[0], is_new: true })
    }

    /// The mark that a floor asks for.
    pub(crate) fn floor_mark(&self, floor_us: i64) -> Result<i64, AdoptError> {
        if floor_us > self.now_us.saturating_add(FARTHEST_FLOOR_US) {
            return Err(AdoptError::FloorInFuture);
        }
        Ok(self.mark_at(floor_us))
    }

    /// The mark from which the configured layout may go on after `old`, whose highest mark is `mark`.
    fn adopt_layout(&self, old: &Layout, mark: i64) -> Result<i64, AdoptError> {
        let new = self.layout;
        let highest_old = old.highest_id(mark);
        // In the new layout's time, the old marks are those of the same instant.
        let same_instant = new.tick_at(old.starts_at(mark)).max(-1);
        let first = (same_instant + 1).max(new.tick_at(self.now_us));
        if new.lowest_id(first) <= highest_old {
            return Err(AdoptError::LayoutBelow(*old));
        }
        Ok(first)
    }
}

/// Why `adopt` was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptError {
    /// The floor lies more than a day ahead of the clock.
    FloorInFuture,
    /// The configured layout's IDs would lie below those that were made with this one.
    LayoutBelow(Layout),
    /// What adopting cannot mend.
    Closed(Closed),
}
