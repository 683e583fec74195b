//! A generator's interface to its surroundings: clocks, waiting, a disk, and reports to an operator.

use crate::refusal::{Errno, NoLane};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// The surroundings of a generator.
pub trait Host {
    /// The wall clock: Unix time in microseconds. It may return any value at any time.
    fn wall_us(&self) -> i64;
    /// A clock that only goes forward, even while the machine sleeps, in microseconds from any origin.
    fn boot_us(&self) -> i64;
    /// Waits for about this long by the monotonic clock. May return early, and may unwind, because no lock is held
    /// (guarantee 6).
    fn wait(&self, micros: i64);
    /// Asks the keeper, the process that calls [`Generator::keep_up`](crate::Generator::keep_up), to do so at once;
    /// `false` if there is no keeper and the caller must write itself. Calls leave writing to the keeper because a
    /// process within an fsync cannot answer a cancel.
    fn ask_keeper(&self) -> bool {
        false
    }
    /// Waits as [`wait`](Self::wait) does, while the keeper writes.
    fn wait_for_keeper(&self, micros: i64) {
        self.wait(micros);
    }
    /// Tells an operator. No lock is held.
    fn report(&self, event: Event);
    /// A random number, for a node's ID or a nonce.
    fn random(&self) -> Uuid {
        Uuid::new_v4()
    }
    /// Where marks are kept. Without a disk, no promise outlives the memory.
    fn disk(&self) -> Option<&dyn Disk> {
        None
    }
}

/// An event that a [`Host`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The wall clock was stepped forward by this many microseconds, more than a minute.
    ForwardJump(i64),
    /// IDs carry another worker from now on.
    Rotated {
        /// The worker that was left.
        from: i64,
        /// The worker that is active now.
        to: i64,
        /// How far the wall clock was behind the last ID, in microseconds; 0 if that was no further than IDs may run
        /// ahead of it.
        behind_us: i64,
    },
    /// No lane can be used. Reported once until an ID has been generated again.
    Refused(NoLane),
    /// The state cannot be written. Reported once until it can be written again.
    WriteFailed(Errno),
    /// The state can be written again.
    WriteRecovered,
    /// The gate was opened for a timeline, on a worker.
    Opened {
        /// The timeline.
        timeline: u32,
        /// The worker.
        worker: i64,
        /// The worker's lane. Lane 0 is the home worker.
        lane: usize,
        /// The home worker.
        home: i64,
        /// The earliest time that its IDs can have, as a Unix time in microseconds.
        first_us: i64,
        /// No state was found, so the marks start from the clock.
        is_first: bool,
    },
    /// An operator vouched that no ID above this Unix time in microseconds exists.
    Adopted {
        /// The time.
        floor_us: i64,
        /// Higher marks were lowered to it.
        lower: bool,
    },
}

/// The host of a plain process: the system's clocks, and a thread's sleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemHost;

impl Host for SystemHost {
    fn wall_us(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        }
    }

    fn boot_us(&self) -> i64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_micros() as i64
    }

    fn wait(&self, micros: i64) {
        std::thread::sleep(Duration::from_micros(micros as u64));
    }

    fn report(&self, _event: Event) {}
}

// ---- the disk ----

/// The size of a slot: a whole block, so that writing one slot does not touch the other.
pub const SLOT_BYTES: usize = 4096;
/// The number of slots in the state file.
pub const SLOTS: usize = 2;

/// Identifies a file, so that a copy is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Inode.
    pub inode: u64,
    /// Time of birth, in nanoseconds since 1970; 0 if the file system does not record it.
    pub born_ns: i64,
    /// The same of the data directory that it lies in; two zeros if unknown.
    pub directory: (u64, i64),
}

impl FileIdentity {
    /// Identifies no file.
    pub(crate) const NOBODY: Self = Self { inode: 0, born_ns: 0, directory: (0, 0) };

    /// Whether a file that was recorded as `self` is `found`. A recorded time of birth of 0 matches any, so that a
    /// kernel or file system that begins to report it does not turn every file into a copy.
    pub(crate) fn is(self, found: Self) -> bool {
        let is = |recorded: (u64, i64), found: (u64, i64)| {
            recorded.0 == found.0 && (recorded.1 == found.1 || recorded.1 == 0)
        };
        is((self.inode, self.born_ns), (found.inode, found.born_ns))
            && (self.directory.0 == 0 || is(self.directory, found.directory))
    }
}

/// The state file's content and identity.
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
    /// The operating system returned an error.
    Os(Errno),
}

/// Where the state file is kept. Called only under the cold lock.
pub trait Disk {
    /// Whether another server holds the disk. If none does, it is this server's from now on, for as long as one of its
    /// processes lives.
    fn is_taken(&self) -> bool {
        false
    }
    /// Reads the file; `None` if there is none.
    fn load(&self) -> Result<Option<Loaded>, Errno>;
    /// Writes each loaded slot onto itself, and fsyncs the file.
    ///
    /// After a crash of the server alone, and even more after a failed fsync, pages can look written that never reached
    /// the disk. So of two slots that look alike, one may not be durable, and nothing tells which. When each is written
    /// onto itself, the durable one stays whole whatever happens, and the other becomes durable. Only then may one of
    /// them be overwritten.
    fn write_again(&self, loaded: &Loaded) -> Result<(), Errno>;
    /// Writes one slot of the expected file, and fsyncs it.
    fn write(&self, expected: FileIdentity, slot: usize, bytes: &[u8]) -> Result<(), WriteError>;
    /// Creates the file, or replaces the whole file, with the same bytes in both slots, and makes it durable.
    fn create(&self, bytes: &dyn Fn(FileIdentity) -> Vec<u8>) -> Result<FileIdentity, Errno>;
    /// A memory outside the data directory that is lost with the boot, and knows which record was written last. Without
    /// one, every start is the first of a boot.
    fn witness(&self) -> Option<&dyn Witness> {
        None
    }
}

/// Tells one record from every other: no two runs of a server have the same number, and none uses a generation twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordName {
    /// Of the server's state: drawn with its first record, and left to the original by a copy and a new timeline.
    pub life: Uuid,
    /// Of the run that wrote the record: drawn at each start.
    pub run: Uuid,
    /// The record's generation. It grows from record to record, and from run to run.
    pub generation: u64,
}

/// What a witness knows of a record that a start has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing: no server has written this state on this host since it was booted.
    Unknown,
    /// It is the last one.
    Last,
    /// A later one was written: an older state was put back, or a copy went on from it.
    PutBack,
    /// A server that runs in another place goes on from this state.
    Beside,
}

/// What no two servers that run can have: a worker of one cluster, under one lease if a registry gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    system_identifier: u64,
    /// The floor of the lease, which tells it from others of the same workers.
    lease: Option<i64>,
    workers: Vec<i64>,
}

impl Claim {
    /// The claim of a cluster's workers, under the lease with this floor.
    pub fn new(system_identifier: u64, lease: Option<i64>, workers: Vec<i64>) -> Self {
        Self { system_identifier, lease, workers }
    }

    /// Whether both claim a worker.
    pub fn meets(&self, other: &Self) -> bool {
        let under = |claim: &Self| (claim.system_identifier, claim.lease);
        under(self) == under(other) && self.has_any(&other.workers)
    }

    /// Whether it claims one of these workers.
    pub fn has_any(&self, workers: &[i64]) -> bool {
        self.workers.iter().any(|worker| workers.contains(worker))
    }
}

/// Remembers which record was written last, since the host was booted. It cannot be copied with a data directory: not
/// file by file, not with its volume, and not to another host. A failure of the witness is a witness that knows nothing.
pub trait Witness {
    /// This record is about to be written. Until [`confirm`](Self::confirm), it, a record of its run that was announced
    /// before, or the last confirmed one may be in the file.
    /// The server claims its workers with it.
    fn announce(&self, record: RecordName, claim: &Claim);
    /// The announced record is durable, with these marks of the server's own workers, or this record was found and no
    /// witness knew it.
    fn confirm(&self, record: RecordName, marks: &WorkerMarks);
    /// Claims workers for as long as this server runs, or until it claims others or nothing.
    fn claim(&self, claim: Option<&Claim>);
    /// Whether another server that runs on this host has claimed one of these workers.
    fn is_met(&self, claim: &Claim) -> bool;
    /// What it knows of a record that was found. Of other servers in its life, those count that have used one of these
    /// workers; all, if there are none.
    fn sight(&self, record: RecordName, workers: &[i64]) -> Sight;
    /// The marks that the server in this place confirmed before, for a server of the same cluster that has none of them:
    /// a rebuild from another server leaves them behind.
    fn marks(&self, system_identifier: u64) -> WorkerMarks;
}

/// How many workers' marks a [`Witness`] keeps.
const MAX_MARKS: usize = 64;

/// The marks of a cluster's workers, as Unix times in microseconds: no ID of the worker is later.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkerMarks {
    system_identifier: u64,
    times: BTreeMap<i64, i64>,
}

impl WorkerMarks {
    /// Marks of workers in a cluster.
    pub fn new(system_identifier: u64, times: impl IntoIterator<Item = (i64, i64)>) -> Self {
        Self { system_identifier, times: times.into_iter().collect() }
    }

    /// See [`Witness::confirm`]. Of workers that are not among these, what was known stays; if they are too many, the
    /// lowest marks are forgotten, because the clock reaches them first.
    pub fn confirm(&mut self, marks: &Self) {
        if marks.times.is_empty() {
            return;
        }
        if self.system_identifier != marks.system_identifier {
            *self = Self { system_identifier: marks.system_identifier, times: BTreeMap::new() };
        }
        self.times.extend(&marks.times);
        while self.times.len() > MAX_MARKS {
            let lowest = self.times.iter().min_by_key(|(_, time)| **time).map(|(worker, _)| *worker);
            lowest.map(|worker| self.times.remove(&worker));
        }
    }

    /// Adds the marks of the same cluster that another place knows; of two for a worker, the higher one counts.
    pub fn join(&mut self, other: &Self) {
        for (worker, time) in other.times.iter().filter(|_| other.system_identifier == self.system_identifier)
        {
            let known = self.times.entry(*worker).or_insert(*time);
            *known = (*known).max(*time);
        }
    }

    /// Whether it has one of these workers.
    pub fn has_any(&self, workers: &[i64]) -> bool {
        workers.iter().any(|worker| self.times.contains_key(worker))
    }

    /// The workers and their marks, the latest first.
    pub(crate) fn latest_first(&self) -> Vec<(i64, i64)> {
        let mut times: Vec<_> = self.times.iter().map(|(worker, time)| (*worker, *time)).collect();
        times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        times
    }
}

/// The last records of a state, for a [`Witness`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct LastRecords {
    announced: Option<RecordName>,
    confirmed: Option<RecordName>,
}

impl LastRecords {
    /// See [`Witness::announce`].
    pub fn announce(&mut self, record: RecordName) {
        self.announced = Some(record);
    }

    /// See [`Witness::confirm`].
    pub fn confirm(&mut self, record: RecordName) {
        self.confirmed = Some(record);
    }

    /// Whether the file may hold this record if nobody has touched it since. A run whose writes failed may have left any
    /// of the records that it announced since its last confirmed one.
    pub fn have(&self, record: RecordName) -> bool {
        let run = |name: &RecordName| (name.life, name.run);
        let is_later =
            |known: RecordName| run(&known) != run(&record) || known.generation < record.generation;
        let is_announced = self
            .announced
            .is_some_and(|known| run(&known) == run(&record) && record.generation <= known.generation);
        self.confirmed == Some(record) || (is_announced && self.confirmed.is_none_or(is_later))
    }

    /// Whether anything is known of the last record.
    pub fn know(&self) -> bool {
        self.confirmed.is_some()
    }

    /// Whether they are records of a state in this life.
    pub fn are_of(&self, life: Uuid) -> bool {
        let known = [self.announced, self.confirmed].into_iter().flatten();
        !life.is_nil() && { known }.any(|known| known.life == life)
    }

    /// Whether the record is a later one of the same life than any of these: the state has been in use elsewhere, as on
    /// another host of a cluster with a shared volume, and has come back.
    pub fn are_behind(&self, record: RecordName) -> bool {
        let known = [self.announced, self.confirmed].into_iter().flatten();
        self.know() && { known }
            .all(|known| known.life == record.life && known.generation < record.generation)
    }

    /// Whether somebody who began with the state of this record has gone on from it.
    pub fn outran(&self, record: RecordName) -> bool {
        let known = [self.announced, self.confirmed].into_iter().flatten();
        { known }.any(|known| known.life == record.life && known.generation > record.generation)
    }
}
