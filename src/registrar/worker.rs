//! When a contact is due: in turn, after a failure, or because a process of this server asks for one.

use super::lease::Leasing;
use super::process::{Ended, LONGEST, contact};
use crate::contact_status;
use crate::messages::{LeaseFailure, log};
use crate::settings;
use crate::wakeup::{self, BackgroundProcess};
use pgrx::bgworkers::BackgroundWorker;
use pgrx::prelude::*;
use snowflake_contact::{Failure, Kind, Pace, Reply};
use std::ffi::CStr;
use std::time::{Duration, Instant};

/// If there is nothing to ask now, there may be after this time.
const NOTHING_TO_ASK: Duration = Duration::from_secs(1);

/// A stop of the server waits for the registry no longer than this.
const LONGEST_RELEASE: Duration = Duration::from_secs(2);
const RELEASE_AGAIN: Duration = Duration::from_millis(100);

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
                due = Instant::now() + NOTHING_TO_ASK;
                continue;
            }
            // pgrx reports a SIGTERM only once.
            let mut is_told_to_end = false;
            let is_obsolete = || {
                let is_changed = reread_settings() && settings::registry().as_ref() != Some(string);
                is_told_to_end |= BackgroundWorker::sigterm_received();
                is_changed || is_told_to_end
            };
            let result = match contact(string, LONGEST, || leasing.ask(), is_obsolete) {
                Ended::Unasked if is_told_to_end => break,
                Ended::Unasked => {
                    due = Instant::now() + NOTHING_TO_ASK;
                    continue;
                }
                Ended::Answered(result) => result,
            };
            let answer = result.as_ref().ok().map(|reply| reply.answer);
            episode.tell(&result);
            leasing.done(result);
            let now = Instant::now();
            let pause = pace.after(answer, leasing.rest(), random());
            (due, not_before) = (now + pause, now + pace.at_least(pause));
            continue;
        }
        // Without a registry, until the settings are read again.
        if !BackgroundWorker::wait_latch(registry.is_some().then_some(wait)) {
            break;
        }
    }
    if let Some(string) = registry.filter(|_| leasing.rest().is_some() && is_server_stopping()) {
        release(&mut leasing, &string);
    }
}

/// Gives the lease back, so that the next start, or another server, has its workers as soon as the clock has passed its
/// IDs. The lease is over when the registry has accepted the connection; if it does not answer then, the workers stay taken
/// for a grant. Until then another try costs nothing: the stop can end the process that connects.
fn release(leasing: &mut Leasing, connection_string: &CStr) {
    let end = Instant::now() + LONGEST_RELEASE;
    let mut is_asked = false;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let ask = || {
            is_asked = true;
            leasing.release()
        };
        let Ended::Answered(Err(failure)) = contact(connection_string, left, ask, || false) else { return };
        if is_asked || left < RELEASE_AGAIN {
            return log::registry_away(&LeaseFailure::failed(&failure));
        }
        std::thread::sleep(RELEASE_AGAIN);
    }
}

/// Whether the server is being stopped, fast or smart: then the postmaster has written so into its file. Otherwise a process
/// that gets SIGTERM is started again, and goes on with the lease.
fn is_server_stopping() -> bool {
    const STATUS: usize = 7;
    let file = std::fs::read_to_string("postmaster.pid").unwrap_or_default();
    file.lines().nth(STATUS).is_some_and(|status| status.trim() == "stopping")
}

/// Rereads the settings if they were reloaded; whether they were.
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
    told: Vec<Kind>,
}

impl Episode {
    fn tell(&mut self, result: &Result<Reply, Failure>) {
        match result {
            Ok(_) if self.told.is_empty() => {}
            Ok(_) => {
                self.told.clear();
                log::registry_back();
            }
            Err(failure) if self.told.contains(&failure.kind) => {}
            Err(failure) => {
                self.told.push(failure.kind);
                log::registry_away(&LeaseFailure::failed(failure));
            }
        }
    }
}
