//! What these tests and loom's share: a configuration and a start, memory on the heap, a disk whose writes succeed and
//! that never has a file, and a host without a lock.

use super::AtomicU64;
use snowflake_core::lock_api::RawMutex;
use snowflake_core::platform::{Disk, FileIdentity, HostLock, Loaded, Locked, WriteError};
use snowflake_core::{
    Config, Control, Errno, LaneMemory, Layout, Limits, SequenceStart, Start, View, WorkerSource, Workers,
};
use uuid::Uuid;

/// The default layout and limits; worker 0 with 3 backups.
pub fn default_config() -> Config {
    let (layout, limits) = (Layout::default(), Limits::default());
    Config {
        layout,
        datacenter: 0,
        workers: Workers::new(&layout, 0, 3).unwrap(),
        source: WorkerSource::Configured,
        sequence_start: SequenceStart::Zero,
        ring_ticks: Config::ring_ticks(&layout, &limits),
        limits,
    }
}

/// A start on a timeline, which it began unless that is the first.
pub fn start_on(timeline: u32) -> Start {
    Start { timeline, made_timeline: timeline > 1, system_identifier: 0, replayed_us: None }
}

pub struct Memory<R: RawMutex> {
    control: Control<R>,
    lanes: Box<[LaneMemory]>,
    slots: Box<[AtomicU64]>,
}

impl<R: RawMutex> Memory<R> {
    pub fn new(config: &Config) -> Self {
        let lanes = config.workers.lanes();
        Self {
            control: Control::new(R::INIT, config, 1),
            lanes: (0..lanes).map(|_| LaneMemory::default()).collect(),
            slots: (0..lanes * config.ring_ticks).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub fn view(&self) -> View<'_, R> {
        View { control: &self.control, lanes: &self.lanes, slots: &self.slots }
    }
}

pub struct NoDisk;

impl Disk for NoDisk {
    fn load(&self) -> Result<Option<Loaded>, Errno> {
        Ok(None)
    }

    fn write(&self, _: FileIdentity, _: usize, _: &[u8]) -> Result<(), WriteError> {
        Ok(())
    }

    fn sync_name(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn create(&self) -> Result<FileIdentity, Errno> {
        Ok(FileIdentity { inode: 1, born_ns: 1 })
    }

    fn install(&self, _: &[u8]) -> Result<(), Errno> {
        Ok(())
    }

    fn host_lock(&self) -> &dyn HostLock {
        self
    }
}

impl HostLock for NoDisk {
    fn lock(&self, _: u64, _: &[i64]) -> Locked {
        Locked::Unavailable
    }

    fn sign(&self, _: &[i64], _: Uuid) -> bool {
        false
    }
}
