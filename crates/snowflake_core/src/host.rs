//! What a generator needs from the world around it: clocks, waiting, a disk, somebody to tell.

use crate::refusal::{Errno, NoLane};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The world around a generator.
pub trait Host {
    /// The wall clock: Unix time in microseconds. It may say anything at any time.
    fn wall_us(&self) -> i64;
    /// A clock that only goes forward, also while the machine sleeps, in microseconds from anywhere.
    fn boot_us(&self) -> i64;
    /// Waits for about this long by the monotonic clock. May return early, and may unwind: no lock is
    /// held (guarantee 6).
    fn wait(&self, micros: i64);
    /// Asks the keeper, the process that calls [`Generator::keep_up`](crate::Generator::keep_up), to do so at once;
    /// `false`: there is none, and the caller writes itself. A process within an fsync answers nobody, so calls
    /// leave writing to the keeper.
    fn ask_keeper(&self) -> bool {
        false
    }
    /// Waits as [`wait`](Self::wait) does, while the keeper writes.
    fn wait_for_keeper(&self, micros: i64) {
        self.wait(micros);
    }
    /// Tells an operator. No lock is held.
    fn report(&self, event: Event);
    /// Where marks are kept. Without a disk nothing is promised beyond the memory's life.
    fn disk(&self) -> Option<&dyn Disk> {
        None
    }
}

/// What a [`Host`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The wall clock was stepped forward by this many microseconds, more than a minute.
    ForwardJump(i64),
    /// IDs come from another worker now.
    Rotated {
        /// The worker that was left.
        from: i64,
        /// The worker that is active now.
        to: i64,
        /// How far the wall clock was behind the last ID, in microseconds; 0: no further than IDs may
        /// run ahead of it.
        behind_us: i64,
    },
    /// No lane can be used. Told once until an ID has been generated again.
    Refused(NoLane),
    /// The state cannot be written. Told once until it can be written again.
    WriteFailed(Errno),
    /// The state can be written again.
    WriteRecovered,
    /// The gate was opened for a timeline, on a worker.
    Opened {
        /// The timeline.
        timeline: u32,
        /// The worker.
        worker: i64,
        /// Its lane, and the home worker of all lanes.
        lane: usize,
        /// See `lane`.
        home: i64,
        /// The earliest time that its IDs carry, as a Unix time in microseconds.
        first_us: i64,
        /// No state was found: marks start from the clock.
        is_first: bool,
    },
    /// An operator vouched that no ID above this Unix time in microseconds exists.
    Adopted {
        /// The time.
        floor_us: i64,
        /// Marks above it were lowered.
        lower: bool,
    },
}

/// The host of a plain process: the system's clock, and a thread's sleep.
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

/// Bytes of a slot: whole blocks, so that writing one touches nothing of the other.
pub const SLOT_BYTES: usize = 4096;
/// Slots of the state file.
pub const SLOTS: usize = 2;

/// Which file it is: a copy has another identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Inode.
    pub inode: u64,
    /// Time of birth, in nanoseconds since 1970; 0 where the file system does not tell.
    pub born_ns: i64,
}

impl FileIdentity {
    /// Nobody's file.
    pub(crate) const NOBODY: Self = Self { inode: 0, born_ns: 0 };

    /// Whether a file that was recorded as this one is `found`. A kernel or a file system that begins to tell
    /// times of birth turns no file into a copy.
    pub(crate) fn is(self, found: Self) -> bool {
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
    /// Creates the file, or replaces it as a whole, with the same bytes in both slots, and makes it durable.
    fn create(&self, bytes: &dyn Fn(FileIdentity) -> Vec<u8>) -> Result<FileIdentity, Errno>;
}
