//! What PostgreSQL's control file says: read in the postmaster before recovery writes it, and at a clean stop.

use pgrx::prelude::*;

/// The control file as it stood at some moment.
#[derive(Clone, Copy, Debug)]
pub struct ControlFile {
    /// When it was last written, as a Unix time in microseconds by this server's clock.
    pub written_us: i64,
    /// When its checkpoint began, as a Unix time in microseconds. On a standby that is the primary's checkpoint
    /// and the primary's clock. Rounded up, because PostgreSQL records whole seconds and rounds them down.
    pub checkpoint_us: i64,
    /// The latest timeline that the data directory had reached.
    pub timeline: u32,
    /// A standby, or in the middle of a restore.
    pub is_in_recovery: bool,
    /// Shut down cleanly, as a primary.
    pub is_shut_down: bool,
}

/// Reads it.
pub fn read() -> ControlFile {
    let mut is_intact = false;
    // SAFETY: DataDir is set before anything of ours runs. The result is palloc'ed plain data, and copied.
    let file = unsafe {
        let found = pg_sys::get_controlfile(pg_sys::DataDir, &mut is_intact);
        let file = found.read();
        pg_sys::pfree(found.cast());
        file
    };
    let checkpoint = file.checkPointCopy;
    let recovering = [pg_sys::DBState::DB_IN_ARCHIVE_RECOVERY, pg_sys::DBState::DB_SHUTDOWNED_IN_RECOVERY];
    ControlFile {
        written_us: file.time * 1_000_000,
        checkpoint_us: (checkpoint.time + 1) * 1_000_000,
        timeline: checkpoint.ThisTimeLineID.max(file.minRecoveryPointTLI),
        is_in_recovery: recovering.contains(&file.state),
        is_shut_down: file.state == pg_sys::DBState::DB_SHUTDOWNED,
    }
}
