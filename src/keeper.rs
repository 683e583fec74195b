//! The keeper: a background worker that moves the reservation ahead while IDs are generated, so that calls need not
//! wait for the disk. Without it calls do so themselves.

use crate::bell::{self, Who};
use crate::generator;
use crate::host::PgHost;
use crate::messages::{gate, log};
use crate::settings;
use crate::shmem::{self, SharedGenerator};
use crate::start;
use crate::witness;
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags};
use pgrx::prelude::*;
use snowflake_core::{ClosedReason, Host, Unopened};
use std::time::{Duration, Instant};

/// A quarter of the default reservation, because the keeper moves it when half of it is left.
const ROUND: Duration = Duration::from_millis(100);
const IDLE_ROUND: Duration = Duration::from_secs(1);
/// After this long without an ID, the keeper stops writing.
const IDLE_AFTER: Duration = Duration::from_secs(60);
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Has the postmaster start the keeper once recovery is over. If there is no generator, or a rebuild brought along the
/// worker of another server, the keeper first logs that, and starts earlier. It logs from a process of its own, because
/// the postmaster starts the logging collector later than this.
pub fn register() {
    let has_generator = settings::get().is_some_and(|settings| settings.config().is_some());
    let is_early = !has_generator || shmem::homes_of_rebuild().is_some();
    let start =
        if is_early { BgWorkerStartTime::ConsistentState } else { BgWorkerStartTime::RecoveryFinished };
    BackgroundWorkerBuilder::new("snowflake_id keeper")
        .set_type("snowflake_id keeper")
        .set_library("snowflake_id")
        .set_function("snowflake_keeper_main")
        .enable_shmem_access(None)
        .set_start_time(start)
        .set_restart_time(Some(RESTART_AFTER))
        .load();
}

/// The keeper's process.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn snowflake_keeper_main(_argument: pg_sys::Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    let Some(generator) = shmem::generator() else {
        match settings::bad_values() {
            [] => log::unavailable(generator::missing()),
            bad => bad.iter().for_each(|bad| log::unavailable(gate::bad_value(bad))),
        }
        // Status 0 tells the postmaster not to start the worker again.
        return;
    };
    if let Some((before, configured)) = shmem::homes_of_rebuild() {
        log::worker_of_another(before, configured);
    }
    while generator::in_recovery() {
        if !BackgroundWorker::wait_latch(Some(ROUND)) {
            // SAFETY: as at the end.
            unsafe { pg_sys::proc_exit(1) };
        }
    }
    bell::answer_as(Who::Keeper);

    tell_of_expiry();
    let mut told = None;
    let mut round = open(generator, &mut told);
    let mut frontier = generator.frontier();
    let mut last_moved = Instant::now();
    while BackgroundWorker::wait_latch(Some(round)) {
        if BackgroundWorker::sighup_received() {
            // SAFETY: a background worker rereads its settings here, as every server process does.
            unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
        }
        if !generator.is_open() {
            round = open(generator, &mut told);
            continue;
        }
        if generator.frontier() != frontier {
            (frontier, last_moved) = (generator.frontier(), Instant::now());
        }
        let is_idle = last_moved.elapsed() > IDLE_AFTER;
        if bell::was_rung(Who::Keeper) || !is_idle {
            // A failure is logged where it happens, and snowflake_status shows it.
            let _ = generator.keep_up();
        }
        if !witness::keep_hold() {
            generator.remind_witness();
        }
        round = if is_idle { IDLE_ROUND } else { ROUND };
    }
    // Status 0 would tell the postmaster never to start the keeper again.
    // SAFETY: ends the process as PostgreSQL's own workers do.
    unsafe { pg_sys::proc_exit(1) };
}

/// Logs the end of the layout's time two years ahead, because a whole fleet has to change its layout.
fn tell_of_expiry() {
    const SOON_US: i64 = 2 * 366 * 86_400_000_000;
    let Some(layout) = settings::layout() else { return };
    let expires_at_us = layout.ends_at_us();
    if expires_at_us.saturating_sub(PgHost.wall_us()) < SOON_US {
        log::expiry(expires_at_us);
    }
}

/// Opens the gate ahead of the first call; returns how long to wait before the next round. Logs a reason that keeps it
/// closed once, so that an operator learns of it before a user does.
fn open(generator: &SharedGenerator, told: &mut Option<ClosedReason>) -> Duration {
    match generator.open(&start::without_prepared()) {
        Ok(()) => ROUND,
        Err(Unopened::Settling(micros)) => Duration::from_micros(micros as u64).min(ROUND),
        // The registrar says why, and wakes the keeper when there is one.
        Err(Unopened::NoLease) => IDLE_ROUND,
        // Only a session can read prepared transactions, so the first one opens the gate.
        Err(Unopened::PreparedUnread) => IDLE_ROUND,
        Err(Unopened::Closed(why)) => {
            if told.replace(why) != Some(why) {
                log::unavailable(gate::closed(why));
            }
            // Often the other server is the last process of the run before.
            if why == ClosedReason::Taken { ROUND } else { IDLE_ROUND }
        }
    }
}
