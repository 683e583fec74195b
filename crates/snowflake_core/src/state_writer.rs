//! The state writer: the pending record, and when and where it is written.
//!
//! A mark is raised in memory, then written, and only then published to calls (guarantee 2). It is never lowered, not
//! even if its write failed, because it may have reached the disk. All of this happens under the cold lock.

use crate::host::{Disk, Host, WriteError};
use crate::refusal::Errno;
use crate::state::encode;
use crate::state::pending::{Heading, PendingRecord};

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
    pub(crate) const fn new() -> Self {
        Self { pending: PendingRecord::empty(), failure: None, write_us: 0 }
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
    pub(crate) fn just_failed(&self, host: &impl Host) -> Option<Errno> {
        self.failure.filter(|(_, at_us)| host.boot_us() - at_us < RETRY_US).map(|(errno, _)| errno)
    }

    /// Writes the pending record, or returns the error of a write that has just failed.
    pub(crate) fn write(&mut self, host: &impl Host, heading: &Heading<'_>) -> Result<(), Errno> {
        self.just_failed(host).map_or_else(|| self.write_at_once(host, heading), Err)
    }

    /// Writes the pending record, even if a write has just failed: into the existing file or, if that fails, into a new
    /// one.
    pub(crate) fn write_at_once(&mut self, host: &impl Host, heading: &Heading<'_>) -> Result<(), Errno> {
        self.timed(host, |pending, disk| {
            into_slots(pending, disk, heading).or_else(|_| into_new_file(pending, disk, heading))
        })
    }

    /// Writes the pending record into a new file, because the existing one is not this server's.
    pub(crate) fn replace_file(&mut self, host: &impl Host, heading: &Heading<'_>) -> Result<(), Errno> {
        self.timed(host, |pending, disk| into_new_file(pending, disk, heading))
    }

    /// Begins the next record, and remembers how long the write took and whether it failed.
    fn timed(
        &mut self,
        host: &impl Host,
        write: impl FnOnce(&mut PendingRecord, &dyn Disk) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Some(disk) = host.disk() else { return Ok(()) };
        let begun_us = host.boot_us();
        self.pending.generation += 1;
        let written = write(&mut self.pending, disk);
        let ended_us = host.boot_us();
        self.write_us = ended_us - begun_us;
        self.failure = written.err().map(|errno| (errno, ended_us));
        written
    }
}

/// Writes first into the slot that does not hold the newest durable record, so that a torn write leaves that record
/// whole, then into the other.
fn into_slots(pending: &mut PendingRecord, disk: &dyn Disk, heading: &Heading<'_>) -> Result<(), WriteError> {
    let bytes = encode(&pending.record(heading, pending.file));
    let first = 1 - pending.newest;
    disk.write(pending.file, first, &bytes)?;
    pending.newest = first;
    // The record is durable by now. If the second write fails, the next record goes to this slot first.
    match disk.write(pending.file, 1 - first, &bytes) {
        Err(WriteError::Replaced) => Err(WriteError::Replaced),
        Ok(()) | Err(WriteError::Os(_)) => Ok(()),
    }
}

fn into_new_file(pending: &mut PendingRecord, disk: &dyn Disk, heading: &Heading<'_>) -> Result<(), Errno> {
    pending.file = disk.create(&|file| encode(&pending.record(heading, file)))?;
    pending.newest = 0;
    Ok(())
}
