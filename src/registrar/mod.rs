//! The registrar: a background worker that asks the fleet's registry for this server's lease, and renews it. It is the
//! only process that speaks to the network, and no call waits for it while the gate is open.
//!
//! `worker` decides when a contact is due, `lease` what it is about, `process` makes it.

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

/// Has the postmaster start the registrar if a registry is configured. It starts before recovery, because a lease has
/// to be renewed during a long one, too, and a standby has one of its own.
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
    // Without a generator there is nothing to lease. The keeper logs why, and status 0 ends the registrar for good.
    let Some(generator) = shmem::generator() else { return };
    worker::run(Leasing::of(generator));
    // Status 0 would tell the postmaster never to start the registrar again.
    // SAFETY: ends the process as PostgreSQL's own workers do.
    unsafe { pg_sys::proc_exit(1) };
}
