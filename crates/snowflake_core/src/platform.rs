//! A generator's interface to its surroundings: clocks, waiting, a disk, and reports to an operator.

use crate::refusal::{Errno, NoLane};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The surroundings of a generator.
pub trait Platform {
    /// The wall clock: Unix time in microseconds. It may return any value at any time.
    fn wall_us(&self) -> i64;
    /// A clock that only goes forward, even while the machine sleeps, in microseconds from any origin.
    fn boot_us(&self) -> i64;
    /// Waits for about this long by the monotonic clock. May return early, and may unwind, because no lock is held
    /// (guarantee 6).
    fn wait(&self, micros: i64);
    /// Asks the keeper, the process that calls [`Generator::run_keeper`](crate::Generator::run_keeper), to do so at
    /// once; `false` if there is no keeper and the caller must write itself. Calls leave writing to the keeper because
    /// a process within an fsync cannot answer a cancel.
    fn ask_keeper(&self) -> bool {
        false
    }
    /// Waits as [`wait`](Self::wait) does, while the keeper writes.
    fn wait_for_keeper(&self, micros: i64) {
        self.wait(micros);
    }
    /// Reports an event to the operator. No lock is held.
    fn report(&self, event: Event);
    /// A random number, for a node's ID, a nonce or a token.
    fn random(&self) -> Uuid {
        Uuid::new_v4()
    }
    /// Where marks are kept.
    fn disk(&self) -> &dyn Disk;
}

/// An event that a [`Platform`] reports.
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
        /// No readable record was found, so the marks start from the clock.
        is_first: bool,
    },
    /// An operator vouched that no ID of another server is later than this Unix time in microseconds.
    Adopted(i64),
    /// Neither slot of the state file can be read, so the state is lost.
    Unreadable,
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
}

impl FileIdentity {
    /// Identifies no file.
    pub(crate) const NONE: Self = Self { inode: 0, born_ns: 0 };

    /// Whether a file that was recorded as `self` is `found`. A recorded time of birth of 0 matches any, so that a
    /// kernel or file system that begins to report it does not turn every file into a copy.
    pub(crate) fn is(self, found: Self) -> bool {
        self.inode == found.inode && (self.born_ns == found.born_ns || self.born_ns == 0)
    }
}

/// The state file's content and identity.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The file that was read.
    pub identity: FileIdentity,
    /// Its bytes, slot by slot; `None` for a slot that the device cannot read (EIO).
    pub slots: [Option<Vec<u8>>; SLOTS],
}

/// Why a slot was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The file was removed or replaced.
    Replaced,
    /// The operating system returned an error.
    Os(Errno),
}

/// Where the state file is kept. Called only under the cold lock.
pub trait Disk {
    /// Reads the file; `None` if there is none.
    fn load(&self) -> Result<Option<Loaded>, Errno>;
    /// Writes one slot of the expected file, and fsyncs it.
    fn write(&self, expected: FileIdentity, slot: usize, bytes: &[u8]) -> Result<(), WriteError>;
    /// Makes the file's name durable.
    fn sync_name(&self) -> Result<(), Errno>;
    /// Creates a file under another name. [`install`](Self::install) writes it.
    fn create(&self) -> Result<FileIdentity, Errno>;
    /// Writes these bytes into both slots of the created file, replaces the file by it, and makes that durable.
    fn install(&self, bytes: &[u8]) -> Result<(), Errno>;
    /// The host's lock on workers.
    fn host_lock(&self) -> &dyn HostLock;
}

/// The lock that a host keeps on each worker of a cluster, outside every data directory. A server that may generate IDs
/// with a worker holds its lock, until the last of its processes ends. It is lost with the boot.
pub trait HostLock {
    /// Locks these workers, as they stand in an ID, home worker first, and unlocks all others that this server holds.
    fn lock(&self, system_identifier: u64, workers: &[i64]) -> Locked;
    /// Writes into the places of the locked workers that this server holds them, under this token; `false` if that
    /// fails.
    fn sign(&self, workers: &[i64], token: Uuid) -> bool;
}

/// The outcome of [`HostLock::lock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// This server has the workers. The last server that signed for the home worker did so with this token.
    Own(Option<Uuid>),
    /// Another process has one of them; nothing is locked.
    Taken {
        /// It belongs to this data directory: a process of the run before.
        is_own_directory: bool,
    },
    /// The host has no such lock: no start is refused for a server beside it, and no lease goes on over a restart.
    Unavailable,
}
