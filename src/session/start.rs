//! The facts of the past by which a start decides: timeline, control file and replayed WAL.

use crate::postgres::control_file::system_identifier;
use crate::postgres::time::from_postgres;
use crate::shmem;
use pgrx::prelude::*;
use snowflake_core::Start;

/// The facts of this start once recovery is over.
pub fn this() -> Start {
    // SAFETY: these need only that recovery is over.
    let (timeline, replayed) = unsafe { (pg_sys::GetWALInsertionTimeLine(), pg_sys::GetLatestXTime()) };
    let before = shmem::control_file_before().expect("there is a generator");
    let commit_us = (replayed != 0).then(|| from_postgres(replayed));
    // When a standby is restarted, its replay begins at a checkpoint, and does not see the commits before it again.
    let checkpoint_us = before.is_in_recovery.then_some(before.checkpoint_us);
    Start {
        timeline,
        made_timeline: timeline > before.timeline,
        system_identifier: system_identifier(),
        replayed_us: commit_us.max(checkpoint_us),
    }
}

/// The facts of a standby, which suffice to identify its node.
pub fn of_standby() -> Start {
    let before = shmem::control_file_before().expect("there is a generator");
    Start {
        timeline: before.timeline,
        made_timeline: false,
        system_identifier: system_identifier(),
        replayed_us: None,
    }
}
