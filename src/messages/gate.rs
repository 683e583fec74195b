//! Errors of a generator that does not generate, by cause: a server that is not set up, a gate that is closed, a clock
//! that moved, a reservation that cannot be written.

use super::{Error, LeaseFailure, NO_HINT, STATE_FILE, error, not_ready};
use crate::postgres::display::{duration, os_error, quote, shown, timestamp};
use crate::postgres::time::clock_us;
use crate::postgres::wakeup::{self, BackgroundProcess};
use crate::settings::{self, BadValue};
use pgrx::PgSqlErrorCode::{
    ERRCODE_INVALID_PARAMETER_VALUE as INVALID, ERRCODE_INVALID_TRANSACTION_STATE as WRONG_STATE,
    ERRCODE_READ_ONLY_SQL_TRANSACTION as READ_ONLY,
};
use pgrx::pg_sys;
use snowflake_core::{ClosedReason, Errno, NoLane, Refusal};
use std::ffi::CStr;

/// Hint if the state cannot be written.
pub(super) const UNWRITABLE_HINT: &str =
    "Check the permissions and the free space of the data directory. The server retries every second.";
const COPY_HINT: &str = "If the original no longer exists, call snowflake_adopt. Otherwise set snowflake_id.worker_id \
     to a number that no other server has, and restart the server.";
/// Hint if no worker is usable because the clock moved.
const NO_LANE_HINT: &str = "Wait until then, or correct the clock if it is wrong. To generate IDs at once, set \
     snowflake_id.worker_id to a number that was never used, and restart the server.";
/// Hint if no worker is usable because of a floor, which holds for each number.
const FLOOR_HINT: &str = "Wait until then, or correct the clock if it is wrong. If snowflake_adopt was called with a wrong \
     time, and no ID of that time exists anywhere, stop the server, delete the folder snowflake_id in its data \
     directory, and start it.";
/// Hint if no worker is usable because the clock moved, and a registry assigns the workers.
const CLOCK_HINT: &str = "Wait until then, or correct the clock if it is wrong.";
const ALONE_HINT: &str =
    "Set snowflake_id.backup_workers to one number on all servers of the fleet, and restart them.";
/// Detail if the registrar does not run.
const NO_REGISTRAR: &str =
    "The process \"snowflake_id registrar\" does not run, so nothing contacts the registry.";
/// Its hint. PostgreSQL's views do not show a background worker without a database.
const NO_REGISTRAR_HINT: &str = "If ps(1) does not show the process within a minute, raise max_worker_processes and \
     restart the server.";

// ---- a server that is not set up ----

pub fn not_preloaded() -> Error {
    let why = "The server sets up the shared memory and the layout of snowflake IDs when it starts.";
    let detail = match preloaded() {
        Some(libraries) => format!("{why} It started with shared_preload_libraries = '{libraries}'."),
        None => why.to_owned(),
    };
    not_ready(
        "snowflake_id must be loaded via \"shared_preload_libraries\"",
        detail,
        "Add snowflake_id to the libraries there, or set shared_preload_libraries = 'snowflake_id' in postgresql.conf if \
         there are none, and restart the server. Only the last line that sets it counts: the view pg_file_settings shows \
         them all.",
    )
}

/// The libraries that the server has preloaded, for a role that may see the setting.
fn preloaded() -> Option<String> {
    // SAFETY: the text is PostgreSQL's own, and is copied.
    unsafe {
        let libraries = pg_sys::shared_preload_libraries_string;
        (sees_all_settings() && !libraries.is_null()).then(|| quote(CStr::from_ptr(libraries).to_bytes()))
    }
}

/// Whether the reader may see settings that others may not, such as `snowflake_id.registry` and `data_directory`, and so
/// texts that repeat them. A process without a database reports to the log.
fn sees_all_settings() -> bool {
    // SAFETY: a plain read; with a database within a transaction, as all callers are.
    unsafe {
        pg_sys::MyDatabaseId == pg_sys::InvalidOid
            || pg_sys::has_privs_of_role(pg_sys::GetUserId(), pg_sys::ROLE_PG_READ_ALL_SETTINGS.into())
    }
}

pub fn worker_unset(highest: i64) -> Error {
    not_ready(
        "cannot generate a snowflake ID: snowflake_id.worker_id is not set",
        "Each server needs a worker number of its own: two servers with the same number generate the same IDs.",
        match settings::registry() {
            Some(_) => "Restart the server: snowflake_id.registry was set since it started.".to_owned(),
            None => format!(
                "Set snowflake_id.worker_id in postgresql.conf to a number from 0 to {highest} that no other server has, \
                 and restart the server."
            ),
        },
    )
}

pub fn bad_value(BadValue { name, value, detail, hint }: &BadValue) -> Error {
    not_ready(
        format!("invalid value for parameter \"{name}\": \"{value}\""),
        detail.clone(),
        format!("{hint} Then restart the server."),
    )
}

pub fn in_recovery() -> Error {
    error(
        READ_ONLY,
        "cannot generate a snowflake ID during recovery",
        "A standby cannot generate IDs: it could repeat its primary's.",
        "Run the statement on the primary. If the primary is lost, promote this server.",
    )
}

pub fn in_parallel_worker() -> Error {
    error(
        WRONG_STATE,
        "cannot generate a snowflake ID during a parallel operation",
        "A parallel worker has called a function that generates IDs. Its plan could return one ID in two columns, and \
         IDs out of order.",
        "Mark each function that generates IDs, or inserts rows with them, as PARALLEL RESTRICTED or PARALLEL UNSAFE.",
    )
}

pub fn no_lease(why: Option<LeaseFailure>) -> Error {
    let (detail, hint) = why_not_renewed(why).unwrap_or_else(|| {
        let hint = "Retry the statement later. The view snowflake_status then shows how the contact ended.";
        ("The first contact with the registry has not ended yet.".to_owned(), hint.to_owned())
    });
    not_ready(
        "cannot generate a snowflake ID: the registry has assigned no worker to this server",
        detail,
        hint,
    )
}

/// Detail and hint: why the last contact brought no lease, which may name hosts, role and database.
fn why_not_renewed(why: Option<LeaseFailure>) -> Option<(String, String)> {
    if wakeup::pid_of(BackgroundProcess::Registrar).is_none() {
        return Some((NO_REGISTRAR.to_owned(), NO_REGISTRAR_HINT.to_owned()));
    }
    let LeaseFailure { error, hint } = why?;
    let cause =
        if sees_all_settings() { format!(": {}", error.trim_end_matches('.')) } else { String::new() };
    Some((format!("The last contact with the registry brought no lease{cause}."), hint))
}

/// Detail and hint: when the lease ended, and why it was not renewed. Without a cause, no contact has failed: the clock was
/// set forward, or the server slept, and the next contact renews the lease.
pub(super) fn lease_end(home: i64, ended_at_us: i64, why: Option<LeaseFailure>) -> (String, String) {
    let ended = format!("The lease of worker {home} ended at {}.", timestamp(ended_at_us));
    let asks = || ("This server asks the registry to renew it.".to_owned(), NO_HINT.to_owned());
    let (why, hint) = why_not_renewed(why).unwrap_or_else(asks);
    (format!("{ended} {why}"), hint)
}

pub fn lease_ended(home: i64, ended_at_us: i64, why: Option<LeaseFailure>) -> Error {
    let (detail, hint) = lease_end(home, ended_at_us, why);
    not_ready(
        "cannot generate a snowflake ID: the registry did not renew this server's lease in time",
        detail,
        hint,
    )
}

// ---- a call that gets no ID ----

pub fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::GateClosed => not_ready(
            "cannot generate a snowflake ID: the generator is closed",
            "Another process closed the generator while this call was opening it.",
            "Retry the statement. If the error persists, the view snowflake_status shows the reason.",
        ),
        Refusal::BeforeEpoch(micros) => not_ready(
            "cannot generate a snowflake ID: system clock is before snowflake_id.epoch",
            format!("The system clock is {} before the epoch.", duration(micros)),
            "Correct the clock. If the epoch is wrong, set snowflake_id.epoch to a time in the past and restart the \
             server.",
        ),
        Refusal::LeaseEnded => unreachable!("it is said with the lease"),
        Refusal::Exhausted => not_ready(
            "cannot generate a snowflake ID: the layout's time field is exhausted",
            settings::layout()
                .map(|it| format!("Layout {it} ends at {}.", timestamp(it.ends_at_us())))
                .unwrap_or_default(),
            "Correct the clock if it is ahead. Otherwise move the fleet to a layout with more time bits or a coarser \
             tick.",
        ),
        Refusal::NotDurable(errno) => not_ready(
            format!(
                "cannot generate a snowflake ID: could not write file \"{STATE_FILE}\": {}",
                os_error(errno)
            ),
            "No time can be reserved on disk, and an ID beyond the reserved time could repeat after a crash.",
            UNWRITABLE_HINT,
        ),
        Refusal::NoLane(no_lane) => not_ready(
            "cannot generate a snowflake ID: system clock moved backwards",
            format!(
                "The system clock is {} behind the times that IDs have or may have. {}",
                duration(no_lane.behind_us.max(0)),
                usable_first(&no_lane)
            ),
            match no_lane.is_floor {
                true => FLOOR_HINT,
                false if settings::has_registry() => CLOCK_HINT,
                false => NO_LANE_HINT,
            },
        ),
    }
}

/// The error of a rotation that an operator requested. Often the clock has not moved: a worker that was just left is usable
/// only after the clock has passed its reservation.
pub fn not_rotated(refusal: Refusal) -> Error {
    match refusal {
        Refusal::NoLane(no_lane) => {
            let is_alone = settings::get().is_some_and(|settings| settings.workers.lanes() == 1);
            let (why, hint) = match is_alone {
                true => ("backup_workers is 0.".to_owned(), ALONE_HINT),
                false => (usable_first(&no_lane), NO_HINT),
            };
            not_ready("cannot execute snowflake_rotate: no other worker is usable", why, hint)
        }
        other => refused(other),
    }
}

fn usable_first(no_lane: &NoLane) -> String {
    format!(
        "Worker {} is usable first, when the clock reaches {}.",
        no_lane.worker,
        timestamp(no_lane.usable_at_us)
    )
}

// ---- a gate that a start left closed ----

pub fn closed(why: ClosedReason) -> Error {
    match why {
        ClosedReason::Os(libc::ELOOP) => not_ready(
            "cannot generate a snowflake ID: the folder \"snowflake_id\" is a symbolic link",
            "Base backups skip what lies behind a symbolic link, so a restored server would not know which IDs exist.",
            "Stop the server, move the folder itself to the place of the link, and start the server.",
        ),
        ClosedReason::Os(errno) => not_ready(
            format!(
                "cannot generate a snowflake ID: could not access file \"{STATE_FILE}\": {}",
                os_error(errno)
            ),
            "Without this file, IDs could repeat after the next restart.",
            UNWRITABLE_HINT,
        ),
        ClosedReason::NewerVersion(version) => not_ready(
            format!(
                "cannot generate a snowflake ID: file \"{STATE_FILE}\" was written by a later version of snowflake_id"
            ),
            format!("The file has format version {version}."),
            "Install the version that wrote the file, or a later one.",
        ),
        ClosedReason::Copied => not_ready(
            "cannot generate a snowflake ID: this data directory is a copy",
            "The state file was copied: its inode, its creation time or the cluster's system identifier differs from the \
             recorded one. The original server may still generate IDs.",
            COPY_HINT,
        ),
        ClosedReason::Taken => taken(None),
    }
}

/// Another process on this host has locked one of the workers. `directory` is the data directory that signed for the lock
/// last: that of the process, unless another server has taken the lock since and has yet to sign.
pub fn taken(directory: Option<String>) -> Error {
    let own = std::env::current_dir().unwrap_or_default();
    let detail = match directory {
        Some(directory) if Some(directory.as_str()) == own.to_str() => {
            return not_ready(
                "cannot generate a snowflake ID: this server's workers are still locked on this host",
                "This server signed for the lock last. Either a process of its last run still has the lock, or another server \
                 has just taken it.",
                "\"fuser -v /dev/shm/snowflake_id.*\" lists the processes that have it. A logging collector ends with the last \
                 program that sessions have started: find these with \"ps -ef\", and end them. IDs then follow without a \
                 restart.",
            );
        }
        Some(directory) if sees_all_settings() => format!(
            "The server in data directory \"{}\" signed last for the lock on one of this server's workers.",
            shown(directory.as_bytes())
        ),
        _ => "Another server had locked one of this server's workers when this server started.".to_owned(),
    };
    not_ready(
        "cannot generate a snowflake ID: another server on this host generates IDs with this worker",
        detail,
        "If this server should generate IDs in place of the other one, stop that, and call snowflake_adopt. Otherwise set \
         snowflake_id.worker_id to a number that no other server has, and restart this server.",
    )
}

/// The gate opens after a short wait for the clock.
pub fn settling(micros: i64) -> Error {
    not_ready(
        "cannot generate a snowflake ID yet: the system clock is too far behind the first ID",
        format!("It will be near enough in {}.", duration(micros)),
        NO_HINT,
    )
}

// ---- adoption ----

pub fn not_adopted(errno: Errno) -> Error {
    not_ready(
        format!(
            "cannot execute snowflake_adopt: could not access file \"{STATE_FILE}\": {}",
            os_error(errno)
        ),
        "The state was not adopted.",
        "Check the permissions and the free space of the data directory, then call snowflake_adopt again.",
    )
}

pub fn floor_in_future(floor_us: i64) -> Error {
    error(
        INVALID,
        "floor must not be more than one day ahead of the system clock",
        format!(
            "floor is {}; the system clock reads {}.",
            // A timestamp of infinity, counted from 1970.
            if floor_us == i64::MAX { "infinity".to_owned() } else { timestamp(floor_us) },
            timestamp(clock_us(libc::CLOCK_REALTIME))
        ),
        "Check the floor, and the server's clock.",
    )
}

// ---- of snowflake_horizon, where the bound is not known ----

pub fn no_horizon_in_recovery() -> Error {
    not_ready(
        "cannot execute snowflake_horizon during recovery",
        "Only the server that generates the IDs knows which transactions have not ended.",
        "Call it on the primary, store the result in a table there, and read that table on the standby.",
    )
}

pub fn no_horizon_earlier_prepared() -> Error {
    not_ready(
        "cannot execute snowflake_horizon: a transaction was prepared before the server started",
        "It is not known which IDs the transaction generated.",
        "Commit or roll back the prepared transactions. The view pg_prepared_xacts lists them.",
    )
}
