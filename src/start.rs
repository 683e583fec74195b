//! This start's knowledge of the server's past: its timeline, the control file, and the replayed WAL.

use crate::control_file;
use crate::messages::{gate, log};
use crate::shmem::{self, SharedGenerator};
use crate::time::from_postgres;
use pgrx::prelude::*;
use snowflake_core::{Prepared, Start};
use std::fs;

unsafe extern "C" {
    /// PostgreSQL's `max_prepared_transactions`, which pgrx does not declare. It is fixed while the server runs.
    safe static max_prepared_xacts: std::ffi::c_int;
}

/// The knowledge of this start once recovery is over. Of prepared transactions it knows nothing yet, except that there
/// are none if the server allows none.
pub fn without_prepared() -> Start {
    // SAFETY: these need only that recovery is over.
    let (timeline, system_identifier, replayed, most_prepared) = unsafe {
        (
            pg_sys::GetWALInsertionTimeLine(),
            pg_sys::GetSystemIdentifier(),
            pg_sys::GetLatestXTime(),
            max_prepared_xacts,
        )
    };
    let before = shmem::control_file_before().expect("there is a generator");
    let commit_us = (replayed != 0).then(|| from_postgres(replayed));
    // When a standby is restarted, its replay begins at a checkpoint, and does not see the commits before it again.
    let has_replayed = before.is_in_recovery || timeline > before.timeline;
    let checkpoint_us = has_replayed.then_some(before.checkpoint_us);
    Start {
        timeline,
        depth: depth(timeline),
        timeline_before: before.timeline,
        was_in_recovery: before.is_in_recovery,
        system_identifier,
        control_us: before.written_us,
        replayed_us: commit_us.max(checkpoint_us),
        prepared: if most_prepared == 0 { Prepared::Read(None) } else { Prepared::Unread },
    }
}

/// How many timelines led to this one, itself included; `None` if its history cannot be read. Each is named in a line of
/// the file that PostgreSQL writes when a timeline begins. What led to the first of them counts by that one's number.
/// PostgreSQL's own function ends the session if the file is damaged.
fn depth(timeline: u32) -> Option<u32> {
    if timeline == 1 {
        return Some(1);
    }
    let history = fs::read_to_string(format!("pg_wal/{timeline:08X}.history")).ok()?;
    let lines = history.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let number = |line: &str| line.split_whitespace().next()?.parse::<u32>().ok();
    let ancestors = lines.map(number).collect::<Option<Vec<_>>>()?;
    let are_ascending = ancestors.is_sorted_by(|a, b| a < b) && *ancestors.last()? < timeline;
    are_ascending.then_some(ancestors[0].saturating_add(ancestors.len() as u32))
}

/// The cluster's system identifier.
pub fn system_identifier() -> u64 {
    // SAFETY: known to every process since the control file was read.
    unsafe { pg_sys::GetSystemIdentifier() }
}

/// The knowledge of a standby: enough to find out which node it is.
pub fn of_standby() -> Start {
    let before = shmem::control_file_before().expect("there is a generator");
    Start {
        timeline: before.timeline,
        depth: depth(before.timeline),
        timeline_before: before.timeline,
        was_in_recovery: true,
        system_identifier: system_identifier(),
        control_us: before.written_us,
        replayed_us: Some(before.checkpoint_us),
        prepared: Prepared::Unread,
    }
}

/// The same, with the prepared transactions, which only a session can read.
pub fn with_prepared() -> Start {
    Start { prepared: read_prepared(), ..without_prepared() }
}

/// Has a standby note what its state does not say of it. Called by the postmaster.
pub fn note_standby(generator: &SharedGenerator) {
    if control_file::is_recovery_signalled()
        && let Err(why) = generator.note_standby(&of_standby())
    {
        log::unavailable(gate::closed(why));
    }
}

/// When the last of the prepared transactions was prepared. Only a session can ask, because PostgreSQL tells it only
/// through SQL. It asks with a superuser's rights, because the caller may have no right to that function.
fn read_prepared() -> Prepared {
    let latest = "SELECT pg_catalog.max(prepared) FROM pg_catalog.pg_prepared_xact()";
    let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
    // SAFETY: plain settings of the session, which PostgreSQL resets itself if an error ends the statement.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        let restricted =
            context | (pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION) as i32;
        pg_sys::SetUserIdAndSecContext(pg_sys::BOOTSTRAP_SUPERUSERID.into(), restricted);
    }
    // Read-only, because parallel queries allow nothing else.
    let latest = Spi::connect(|client| {
        client.select(latest, Some(1), &[]).and_then(|table| table.first().get_one::<TimestampWithTimeZone>())
    });
    // SAFETY: as above.
    unsafe { pg_sys::SetUserIdAndSecContext(user, context) };
    let latest = latest.expect("a function of PostgreSQL's own");
    Prepared::Read(latest.map(|time| from_postgres(time.into())))
}
