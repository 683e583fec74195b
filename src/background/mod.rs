//! The background processes: the keeper reserves ahead of use, the registrar has contacts with the fleet's registry.

mod contact;
pub mod keeper;
mod lease;
pub mod registrar;

use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::prelude::*;
use std::time::Duration;

/// Registers a process, which the postmaster starts then.
fn register(name: &str, function: &str, start: BgWorkerStartTime) {
    BackgroundWorkerBuilder::new(name)
        .set_library("snowflake_id")
        .set_function(function)
        .set_start_time(start)
        .set_restart_time(Some(Duration::from_secs(1)))
        .load();
}

/// Rereads the settings after a reload; returns whether there was one.
fn reread_settings() -> bool {
    let are_reloaded = BackgroundWorker::sighup_received();
    if are_reloaded {
        // SAFETY: a background worker rereads its settings here, as every server process does.
        unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
    }
    are_reloaded
}

/// Ends this process, which the postmaster starts again unless the server stops. After status 0 it would not.
fn end() {
    // SAFETY: ends the process as PostgreSQL's own workers do.
    unsafe { pg_sys::proc_exit(1) };
}
