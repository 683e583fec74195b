//! The keeper: a background worker that moves the reservation ahead while IDs are generated, so that calls need not
//! wait for the disk. Without it calls do so themselves.

use crate::messages::{gate, log};
use crate::platform::{PgPlatform, host_lock};
use crate::postgres::wakeup::{self, BackgroundProcess};
use crate::session::{generator, start};
use crate::settings;
use crate::shmem::{self, SharedGenerator};
use pgrx::bgworkers::{BackgroundWorker, BgWorkerStartTime, SignalWakeFlags};
use pgrx::prelude::*;
use snowflake_core::{ClosedReason, NotOpen, Platform};
use std::time::{Duration, Instant};

/// Shorter than half of the shortest reservation, which is 250 ms with a `max_ahead` of 0.
const ROUND: Duration = Duration::from_millis(100);
const IDLE_ROUND: Duration = Duration::from_secs(1);
/// After this long without an ID, the keeper stops writing.
const IDLE_AFTER: Duration = Duration::from_secs(60);

/// Registers the keeper, which the postmaster starts once recovery is over. Without a generator it starts earlier, and
/// only logs why. The postmaster cannot log that here, because it starts the logging collector later.
pub fn register() {
    let has_generator = settings::config().is_some();
    let start =
        if has_generator { BgWorkerStartTime::RecoveryFinished } else { BgWorkerStartTime::ConsistentState };
    super::register("snowflake_id keeper", "snowflake_keeper_main", start);
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
        // After status 0 the postmaster does not start the worker again.
        return;
    };
    wakeup::register(BackgroundProcess::Keeper);

    log_layout_expiry();
    let mut logged = None;
    let mut round = open(generator, &mut logged);
    let mut current_tick = generator.current_tick();
    let mut last_moved = Instant::now();
    // run_keeper() puts a changed max_ahead into force.
    let mut is_reloaded = false;
    let mut is_locked = true;
    while BackgroundWorker::wait_latch(Some(round)) {
        if super::reread_settings() {
            is_reloaded = true;
            log_pending_registry();
        }
        if host_lock::is_lost() || !is_locked {
            // A session may hold the locks of the workers, in a file that it opened: retry until it exits.
            is_locked = generator.lock_again();
        }
        if !generator.is_open() {
            round = open(generator, &mut logged);
            continue;
        }
        if generator.current_tick() != current_tick {
            (current_tick, last_moved) = (generator.current_tick(), Instant::now());
        }
        let is_idle = last_moved.elapsed() > IDLE_AFTER;
        if wakeup::take_request(BackgroundProcess::Keeper) || !is_idle || std::mem::take(&mut is_reloaded) {
            // A failure is logged where it happens, and snowflake_status shows it.
            let _ = generator.run_keeper();
        }
        round = if is_idle { IDLE_ROUND } else { ROUND };
    }
    super::end();
}

/// Logs the end of the layout's time two years ahead, because a whole fleet has to change its layout.
fn log_layout_expiry() {
    const SOON_US: i64 = 2 * 366 * 86_400_000_000;
    let Some(layout) = settings::layout() else { return };
    let expires_at_us = layout.ends_at_us();
    if expires_at_us.saturating_sub(PgPlatform.wall_us()) < SOON_US {
        log::expiry(expires_at_us);
    }
}

/// Logs that a registry that a reload has set takes effect after a restart.
fn log_pending_registry() {
    if settings::registry().is_some() && !settings::has_registry() {
        log::registry_waits();
    }
}

/// Opens the gate ahead of the first call; returns how long to wait before the next round. Logs each reason that keeps it
/// closed, so that an operator sees it before a user does.
fn open(generator: &SharedGenerator, logged: &mut Option<String>) -> Duration {
    let why = match generator.open(&start::this()) {
        Ok(()) => return ROUND,
        Err(NotOpen::Settling(micros)) => return Duration::from_micros(micros as u64).min(ROUND),
        // The registrar logs why, and wakes the keeper when there is a lease.
        Err(NotOpen::NoLease) => return IDLE_ROUND,
        Err(why) => why,
    };
    let error = generator::not_open(why);
    let cause = error.cause().to_owned();
    if logged.as_ref() != Some(&cause) {
        log::unavailable(error);
        *logged = Some(cause);
    }
    // Often the other process belongs to this server's previous run, and exits soon.
    if why == NotOpen::Closed(ClosedReason::Taken) { ROUND } else { IDLE_ROUND }
}
