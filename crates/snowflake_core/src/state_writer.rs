//! The state writer: the pending record, and when and where it is written.
//!
//! A mark is raised in memory, then written, and only then published to calls (guarantee 2). It is never lowered, not
//! even if its write failed, because it may have reached the disk. All of this happens under the cold lock.

use crate::layout::Layout;
use crate::platform::{Disk, FileIdentity, Platform, WriteError};
use crate::refusal::Errno;
use crate::state::pending::PendingRecord;
use crate::state::record::{Record, encode};
use crate::workers::Origins;

/// How far past `max_ahead` a reservation reaches, in microseconds.
const RESERVE_US: i64 = 500_000;
/// After a failure, calls do not try again sooner than after this time.
pub(crate) const RETRY_US: i64 = 1_000_000;
/// A write that takes longer than this lengthens the next reservation no further.
const SLOWEST_WRITE_US: i64 = 30_000_000;

/// The pending record, and the result of the last write.
#[derive(Clone, Debug)]
pub(crate) struct StateWriter {
    /// The content of the next record.
    pub(crate) pending: PendingRecord,
    /// The error of the last write if it failed, and when, in microseconds of the boot clock.
    failure: Option<(Errno, i64)>,
    /// How long the last write took, in microseconds.
    write_us: i64,
}

impl StateWriter {
    pub(crate) const fn new(layout: Layout) -> Self {
        Self { pending: PendingRecord::new(layout, Origins::NONE), failure: None, write_us: 0 }
    }

    /// Raises the mark of `lane` to `mark`, if it is lower. Returns the lane's mark.
    pub(crate) fn raise_mark(&mut self, lane: usize, mark: i64) -> i64 {
        let pending = &mut self.pending.marks[lane];
        *pending = mark.max(*pending);
        *pending
    }

    /// How far past `max_ahead` a reservation reaches: twice the duration of the last write if that is longer, because
    /// a reservation must outlast the write that makes it durable.
    pub(crate) fn reserve_us(&self) -> i64 {
        RESERVE_US.max(2 * self.write_us.min(SLOWEST_WRITE_US))
    }

    /// Why the last write failed, if it did.
    pub(crate) fn failure(&self) -> Option<Errno> {
        self.failure.map(|(errno, _)| errno)
    }

    /// Why the last write failed, if that was less than a second ago.
    pub(crate) fn just_failed(&self, platform: &impl Platform) -> Option<Errno> {
        self.failure.filter(|(_, at_us)| platform.boot_us() - at_us < RETRY_US).map(|(errno, _)| errno)
    }

    /// Writes the pending record, or returns the error of a write that has just failed.
    pub(crate) fn write(&mut self, platform: &impl Platform) -> Result<(), Errno> {
        self.just_failed(platform).map_or_else(|| self.write_at_once(platform), Err)
    }

    /// Writes the pending record, even if a write has just failed: into the existing file or, if that fails, into a new
    /// one.
    pub(crate) fn write_at_once(&mut self, platform: &impl Platform) -> Result<(), Errno> {
        self.timed(platform, |pending, disk| {
            into_slot(pending, disk).or_else(|_| into_new_file(pending, disk))
        })
    }

    /// Writes the pending record into a new file, because the existing one is not this server's, or is damaged.
    pub(crate) fn write_new_file(&mut self, platform: &impl Platform) -> Result<(), Errno> {
        self.timed(platform, into_new_file)
    }

    /// Begins the next record, and remembers how long the write took and whether it failed.
    fn timed(
        &mut self,
        platform: &impl Platform,
        write: impl FnOnce(&mut PendingRecord, &dyn Disk) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let begun_us = platform.boot_us();
        self.pending.header.generation += 1;
        let written = write(&mut self.pending, platform.disk());
        let ended_us = platform.boot_us();
        self.write_us = ended_us - begun_us;
        self.failure = written.err().map(|errno| (errno, ended_us));
        written
    }
}

/// Writes into the slot that does not hold the newest durable record, so that a torn write leaves that record whole.
/// After a failure, the next record goes to the same slot.
fn into_slot(pending: &mut PendingRecord, disk: &dyn Disk) -> Result<(), WriteError> {
    let slot = 1 - pending.newest;
    disk.write(pending.header.file, slot, &encode(&pending.record()))?;
    pending.newest = slot;
    Ok(())
}

fn into_new_file(pending: &mut PendingRecord, disk: &dyn Disk) -> Result<(), Errno> {
    pending.header.file = replace_file(disk, pending.record())?;
    Ok(())
}

/// Replaces the file by a new one with this record, and returns the new one's identity.
pub(crate) fn replace_file(disk: &dyn Disk, mut record: Record) -> Result<FileIdentity, Errno> {
    record.header.file = disk.create()?;
    disk.install(&encode(&record))?;
    Ok(record.header.file)
}
