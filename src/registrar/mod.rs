//! The registrar: a background worker that asks the fleet's registry for this server's lease, and renews it. Only its
//! children use the network, and no call waits for them while the gate is open.
//!
//! `worker` schedules contacts, `lease` builds requests and applies replies, `process` makes a contact in a child process.

mod lease;
mod process;
mod worker;

use crate::settings;
use crate::shmem;
use lease::Leasing;
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags};
use pgrx::prelude::*;
use std::time::Duration;

const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Registers the registrar if a registry is configured. It starts with the postmaster, because a lease must be renewed
/// during a long recovery, and a standby has a lease, too.
pub fn register() {
    if settings::registry().is_none() {
        return;
    }
    BackgroundWorkerBuilder::new("snowflake_id registrar")
        .set_type("snowflake_id registrar")
        .set_library("snowflake_id")
        .set_function("snowflake_registrar_main")
        .enable_shmem_access(None)
        .set_start_time(BgWorkerStartTime::PostmasterStart)
        .set_restart_time(Some(RESTART_AFTER))
        .load();
}

/// The registrar's process.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn snowflake_registrar_main(_argument: pg_sys::Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    // Without a generator there is nothing to lease. The keeper logs why; after status 0 the postmaster does not start the
    // registrar again.
    let Some(generator) = shmem::generator() else { return };
    worker::run(Leasing::of(generator));
    // After status 0 the postmaster would not start the registrar again.
    // SAFETY: ends the process as PostgreSQL's own workers do.
    unsafe { pg_sys::proc_exit(1) };
}
