//! When a contact is due: in turn, after a failure, or because a process of this server asks for one.

use super::lease::Leasing;
use super::process::{CONTACT_LIMIT, Ended, contact};
use crate::contact_status;
use crate::messages::{LeaseFailure, log};
use crate::settings;
use crate::wakeup::{self, BackgroundProcess};
use pgrx::bgworkers::BackgroundWorker;
use pgrx::prelude::*;
use snowflake_contact::{Failure, Kind, Pace, Reply};
use std::ffi::CStr;
use std::time::{Duration, Instant};

/// Pause after which a server that cannot ask tries again.
const RETRY_ASKING: Duration = Duration::from_secs(1);

/// How long a stop of the server waits for the registry.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);
const RELEASE_RETRY: Duration = Duration::from_millis(100);

/// Makes contacts until SIGTERM, and gives the lease back if the server stops.
pub fn run(mut leasing: Leasing) {
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
            if !leasing.is_due() {
                due = Instant::now() + RETRY_ASKING;
                continue;
            }
            // pgrx reports a SIGTERM only once.
            let mut is_terminated = false;
            let is_obsolete = || {
                let is_changed = reread_settings() && settings::registry().as_ref() != Some(string);
                is_terminated |= BackgroundWorker::sigterm_received();
                is_changed || is_terminated
            };
            let result = match contact(string, CONTACT_LIMIT, || leasing.ask(), is_obsolete) {
                Ended::Abandoned if is_terminated => break,
                Ended::Abandoned => {
                    due = Instant::now() + RETRY_ASKING;
                    continue;
                }
                Ended::Answered(result) => result,
            };
            let answer = result.as_ref().ok().map(|reply| reply.answer);
            episode.log_once(&result);
            leasing.handle(result);
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
    if let Some(string) = registry.filter(|_| leasing.time_left().is_some() && is_server_stopping()) {
        release(&mut leasing, &string);
    }
}

/// Gives the lease back, so that the next start, or another server, has its workers as soon as the clock has passed its
/// IDs. Retries until the registry has accepted the connection: then this server ends the lease in its state, and if no
/// reply comes, the workers are free only when the grant ends.
fn release(leasing: &mut Leasing, connection_string: &CStr) {
    let end = Instant::now() + RELEASE_LIMIT;
    let mut is_asked = false;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let ask = || {
            is_asked = true;
            leasing.release()
        };
        let Ended::Answered(Err(failure)) = contact(connection_string, left, ask, || false) else { return };
        if is_asked || left < RELEASE_RETRY {
            return log::registry_unreachable(&LeaseFailure::failed(&failure));
        }
        std::thread::sleep(RELEASE_RETRY);
    }
}

/// Whether the server is being stopped, fast or smart: the postmaster has then written so into postmaster.pid. Otherwise it
/// restarts a process that got SIGTERM, which continues with the lease.
fn is_server_stopping() -> bool {
    const STATUS: usize = 7;
    let file = std::fs::read_to_string("postmaster.pid").unwrap_or_default();
    file.lines().nth(STATUS).is_some_and(|status| status.trim() == "stopping")
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
