//! PostgreSQL's control file, read by the postmaster before recovery writes it, and at a clean stop.

use pgrx::prelude::*;

/// The control file at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ControlFile {
    /// When its checkpoint began, as a Unix time in microseconds. On a standby this is the primary's checkpoint by the
    /// primary's clock. Rounded up, because PostgreSQL rounds it down to whole seconds.
    pub checkpoint_us: i64,
    /// The latest timeline that the data directory had reached.
    pub timeline: u32,
    /// The server was a standby, or was being restored.
    pub is_in_recovery: bool,
    /// The server was shut down cleanly, as a primary.
    pub is_shut_down: bool,
}

/// Reads the control file.
pub fn read() -> ControlFile {
    let mut is_intact = false;
    // SAFETY: DataDir is set before any extension runs. The result is palloc'ed plain data, and copied.
    let file = unsafe {
        let found = pg_sys::get_controlfile(pg_sys::DataDir, &mut is_intact);
        let file = found.read();
        pg_sys::pfree(found.cast());
        file
    };
    let checkpoint = file.checkPointCopy;
    let recovering = [pg_sys::DBState::DB_IN_ARCHIVE_RECOVERY, pg_sys::DBState::DB_SHUTDOWNED_IN_RECOVERY];
    ControlFile {
        checkpoint_us: (checkpoint.time + 1) * 1_000_000,
        timeline: checkpoint.ThisTimeLineID.max(file.minRecoveryPointTLI),
        is_in_recovery: recovering.contains(&file.state),
        is_shut_down: file.state == pg_sys::DBState::DB_SHUTDOWNED,
    }
}

/// The cluster's system identifier.
pub fn system_identifier() -> u64 {
    // SAFETY: known to every process since the control file was read.
    unsafe { pg_sys::GetSystemIdentifier() }
}
