//! The registrar: a background worker that asks the fleet's registry for this server's lease, and renews it. Only its
//! children use the network, and no call waits for them while the gate is open.
//!
//! This file schedules contacts: in turn, after a failure, or because a process of this server asks for one. `lease` builds
//! requests and applies replies, `contact` makes a contact in a child process.

use super::contact::{Ended, contact};
use super::lease::Leasing;
use super::reread_settings;
use crate::messages::{LeaseFailure, log};
use crate::postgres::wakeup::{self, BackgroundProcess};
use crate::settings;
use crate::shmem::{self, contact_status};
use pgrx::bgworkers::{BackgroundWorker, BgWorkerStartTime, SignalWakeFlags};
use pgrx::prelude::*;
use snowflake_contact::{Failure, Kind, Pace, Reply};
use std::time::{Duration, Instant};

/// Pause after which a server that cannot ask tries again.
const RETRY_ASKING: Duration = Duration::from_secs(1);

/// Registers the registrar if a registry is configured. It starts with the postmaster, because a lease must be renewed
/// during a long recovery, and a standby has a lease, too.
pub fn register() {
    if settings::registry().is_some() {
        super::register(
            "snowflake_id registrar",
            "snowflake_registrar_main",
            BgWorkerStartTime::PostmasterStart,
        );
    }
}

/// The registrar's process.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn snowflake_registrar_main(_argument: pg_sys::Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    // Without a generator there is nothing to lease. The keeper logs why; after status 0 the postmaster does not start the
    // registrar again.
    let Some(generator) = shmem::generator() else { return };
    run(Leasing::of(generator));
    super::end();
}

/// Makes contacts until SIGTERM. Sends nothing at a stop: the next start goes on with the lease by the host's token.
fn run(mut leasing: Leasing) {
    wakeup::register(BackgroundProcess::Registrar);
    let mut pace = Pace::default();
    let mut episode = Episode::default();
    let mut registry = settings::registry();
    let mut due = Instant::now();
    // A contact that a call requests comes no sooner than this.
    let mut not_before = due;
    loop {
        reread_settings();
        let configured = settings::registry();
        if configured != registry {
            (registry, due) = (configured, Instant::now());
            if registry.is_none() {
                contact_status::set_failed(&LeaseFailure::removed());
                log::registry_removed();
            }
        }
        if wakeup::take_request(BackgroundProcess::Registrar) {
            due = due.min(not_before);
        }
        let wait = due.saturating_duration_since(Instant::now());
        if let Some(string) = registry.as_ref().filter(|_| wait.is_zero()) {
            let Some(request) = leasing.ask() else {
                due = Instant::now() + RETRY_ASKING;
                continue;
            };
            // pgrx reports a SIGTERM only once.
            let mut is_terminated = false;
            let is_obsolete = || {
                let is_changed = reread_settings() && settings::registry().as_ref() != Some(string);
                is_terminated |= BackgroundWorker::sigterm_received();
                is_changed || is_terminated
            };
            let result = match contact(string, &request, is_obsolete) {
                Ended::Abandoned if is_terminated => break,
                Ended::Abandoned => {
                    due = Instant::now() + RETRY_ASKING;
                    continue;
                }
                Ended::Answered(result) => result,
            };
            let answer = result.as_ref().ok().map(|reply| reply.answer);
            episode.log_once(&result);
            leasing.handle(&request.contact, result);
            let now = Instant::now();
            let pause = pace.after(answer, leasing.time_left(), random());
            (due, not_before) = (now + pause, now + pace.at_least(pause));
            continue;
        }
        // Without a registry, wait until the settings are read again.
        if !BackgroundWorker::wait_latch(registry.is_some().then_some(wait)) {
            break;
        }
    }
}

/// A random number from 0 to 1.
fn random() -> f64 {
    // SAFETY: PostgreSQL seeds this process's own generator when it starts.
    unsafe { pg_sys::pg_prng_double(&raw mut pg_sys::pg_global_prng_state) }
}

/// Logs each kind of failure once, until the registry answers again.
#[derive(Default)]
struct Episode {
    logged: Vec<Kind>,
}

impl Episode {
    fn log_once(&mut self, result: &Result<Reply, Failure>) {
        match result {
            Ok(_) if self.logged.is_empty() => {}
            Ok(_) => {
                self.logged.clear();
                log::registry_reachable();
            }
            Err(failure) if self.logged.contains(&failure.kind) => {}
            Err(failure) => {
                self.logged.push(failure.kind);
                log::registry_unreachable(&LeaseFailure::failed(failure));
            }
        }
    }
}
