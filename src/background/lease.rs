//! This server's lease, which the generator keeps: the requests for it, and the replies.

use crate::messages::{LeaseFailure, log};
use crate::postgres::control_file::system_identifier;
use crate::postgres::time::clock_us;
use crate::postgres::wakeup::{self, BackgroundProcess};
use crate::session::{generator, start};
use crate::settings;
use crate::shmem::{SharedGenerator, contact_status};
use snowflake_contact::{Failure, Reply, Request};
use snowflake_core::{Answer, Contact, Effect};
use std::time::Duration;

/// The requests of this server's generator for a lease.
pub struct Leasing {
    generator: &'static SharedGenerator,
    /// Last logged reason why this server could not load its node's identity.
    logged_closed: Option<String>,
    /// Last logged refusal; `None` since the last grant.
    logged_refusal: Option<String>,
    /// End of the lease whose end was last logged, as a Unix time in microseconds.
    logged_lease_end_us: Option<i64>,
}

impl Leasing {
    pub fn of(generator: &'static SharedGenerator) -> Self {
        Self { generator, logged_closed: None, logged_refusal: None, logged_lease_end_us: None }
    }

    /// Loads the node's identity; `false` if this server cannot contact the registry now.
    fn load_node(&mut self, in_recovery: bool) -> bool {
        let start = if in_recovery { start::of_standby() } else { start::this() };
        let Err(why) = self.generator.load_node(&start) else { return true };
        let error = generator::not_open(why);
        contact_status::set_failed(&LeaseFailure { error: error.summary(), hint: error.hint().to_owned() });
        let cause = error.cause().to_owned();
        if self.logged_closed.as_ref() != Some(&cause) {
            log::unavailable(error);
            self.logged_closed = Some(cause);
        }
        false
    }

    /// Logs, once, that the lease has ended.
    fn log_lease_end_once(&mut self) {
        if let Some((home, end_us)) = self.generator.lease_end()
            && end_us <= clock_us(libc::CLOCK_REALTIME)
            && self.logged_lease_end_us != Some(end_us)
        {
            self.logged_lease_end_us = Some(end_us);
            log::lease_ended(home, end_us, contact_status::get().failure());
        }
    }

    /// Time left on the lease; `None` without a lease that runs.
    pub fn time_left(&self) -> Option<Duration> {
        let (_, end_us) = self.generator.lease_end()?;
        let micros = end_us.saturating_sub(clock_us(libc::CLOCK_REALTIME));
        u64::try_from(micros).ok().map(Duration::from_micros)
    }

    fn answered(&mut self, contact: &Contact, answer: Answer, reason: &LeaseFailure) {
        let now = clock_us(libc::CLOCK_REALTIME);
        match self.generator.answered(contact, answer) {
            Ok(Effect::Renewed) => contact_status::set_granted(now),
            Ok(Effect::Leased) => {
                contact_status::set_granted(now);
                if let Some((home, end_us)) = self.generator.lease_end() {
                    log::lease_granted(home, end_us);
                }
                // The keeper opens the gate.
                wakeup::wake(BackgroundProcess::Keeper);
            }
            Ok(Effect::Lost) => {
                contact_status::set_refused(now, reason);
                log::lease_lost(reason);
            }
            Ok(Effect::Unchanged) => {
                contact_status::set_refused(now, reason);
                if self.logged_refusal.as_ref() != Some(&reason.error) {
                    self.logged_refusal = Some(reason.error.clone());
                    log::lease_refused(reason);
                }
            }
            Ok(Effect::Ignored) => contact_status::set_failed(&LeaseFailure::not_fitting()),
            // The generator has logged that it cannot write.
            Err(errno) => contact_status::set_failed(&LeaseFailure::unwritable(errno)),
        }
        if matches!(answer, Answer::Granted { .. }) {
            self.logged_refusal = None;
        }
    }

    /// The next request, whose number and nonce are durable; `None` if this server cannot ask now.
    pub fn ask(&mut self) -> Option<Request> {
        let in_recovery = generator::in_recovery();
        if !self.load_node(in_recovery) {
            return None;
        }
        self.log_lease_end_once();
        match self.generator.contact() {
            Ok(contact) => request(contact?, in_recovery),
            Err(errno) => {
                contact_status::set_failed(&LeaseFailure::unwritable(errno));
                None
            }
        }
    }

    /// Handles the result of this contact. After a failure, the registry may have received the request or not, so it stays
    /// pending and is repeated.
    pub fn handle(&mut self, contact: &Contact, result: Result<Reply, Failure>) {
        match result {
            Ok(Reply { answer, reason, hint }) => {
                self.answered(contact, answer, &LeaseFailure { error: reason, hint });
            }
            Err(failure) => contact_status::set_failed(&LeaseFailure::failed(&failure)),
        }
    }
}

/// A contact with this server's settings.
fn request(contact: Contact, in_recovery: bool) -> Option<Request> {
    let settings = settings::get()?;
    Some(Request {
        contact,
        system_identifier: system_identifier() as i64,
        node_name: settings::node_name(),
        layout: settings.layout,
        backup_workers: settings.workers.lanes() as i32 - 1,
        datacenter: settings.datacenter as i32,
        in_recovery,
        version: env!("CARGO_PKG_VERSION"),
    })
}
