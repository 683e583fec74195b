//! What the contacts are about: this server's lease, which the generator keeps.

use crate::contact_status;
use crate::generator;
use crate::messages::{LeaseFailure, log};
use crate::settings;
use crate::shmem::SharedGenerator;
use crate::start;
use crate::time::clock_us;
use crate::wakeup::{self, BackgroundProcess};
use snowflake_contact::{Failure, Reply, Request, Value};
use snowflake_core::{Answer, Answered, Contact};
use std::time::Duration;

/// The contacts of this server's generator.
pub struct Leasing {
    generator: &'static SharedGenerator,
    /// Why this server could not load which node it is, as it was last logged.
    logged_closed: Option<String>,
    /// The refusal that was last logged, in an episode of refusals.
    logged_refusal: Option<String>,
    /// The end of the lease whose end was logged.
    logged_lease_end_us: Option<i64>,
    /// The contact that was asked last.
    asked: Option<Contact>,
}

impl Leasing {
    pub fn of(generator: &'static SharedGenerator) -> Self {
        Self { generator, logged_closed: None, logged_refusal: None, logged_lease_end_us: None, asked: None }
    }

    /// Finds out which node this is; `false` if it cannot speak to the registry now.
    fn load_node(&mut self, in_recovery: bool) -> bool {
        let start = if in_recovery { start::of_standby() } else { start::this() };
        let Err(why) = self.generator.load_node(&start) else {
            self.logged_closed = None;
            return true;
        };
        let error = generator::unopened(why);
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

    /// What remains of the lease; `None` if none runs.
    pub fn rest(&self) -> Option<Duration> {
        let (_, end_us) = self.generator.lease_end()?;
        let micros = u64::try_from(end_us.saturating_sub(clock_us(libc::CLOCK_REALTIME))).ok()?;
        Some(Duration::from_micros(micros)).filter(|rest| !rest.is_zero())
    }

    fn answered(&mut self, contact: &Contact, answer: Answer, said: &LeaseFailure) {
        let now = clock_us(libc::CLOCK_REALTIME);
        match self.generator.answered(contact, answer) {
            Ok(Answered::Renewed) => contact_status::set_granted(now),
            Ok(Answered::Leased) => {
                contact_status::set_granted(now);
                if let Some((home, end_us)) = self.generator.lease_end() {
                    log::lease_granted(home, end_us);
                }
                // The keeper opens the gate.
                wakeup::wake(BackgroundProcess::Keeper);
            }
            Ok(Answered::Lost) => {
                contact_status::set_refused(now, said);
                log::lease_lost(said);
            }
            Ok(Answered::Unchanged) => {
                contact_status::set_refused(now, said);
                if self.logged_refusal.as_ref() != Some(&said.error) {
                    self.logged_refusal = Some(said.error.clone());
                    log::lease_refused(said);
                }
            }
            Ok(Answered::Ignored) => contact_status::set_failed(&LeaseFailure::not_fitting()),
            // The generator has logged that it cannot write.
            Err(errno) => contact_status::set_failed(&LeaseFailure::unwritable(errno)),
        }
        if matches!(answer, Answer::Granted { .. }) {
            self.logged_refusal = None;
        }
    }

    /// Whether there is something to ask: this server knows which node it is.
    pub fn is_due(&mut self) -> bool {
        let is_due = self.load_node(generator::in_recovery());
        if is_due {
            self.log_lease_end_once();
        }
        is_due
    }

    /// The next contact, for the registry; `None` if there is none. It is durable where it has to be: it is sent at once.
    pub fn ask(&mut self) -> Option<Vec<Value>> {
        self.asked = match self.generator.contact() {
            Ok(contact) => contact,
            Err(errno) => {
                contact_status::set_failed(&LeaseFailure::unwritable(errno));
                None
            }
        };
        request(self.asked?, false).map(|request| request.arguments())
    }

    /// The contact that gives the lease back; `None` if there is no lease, or that cannot be written.
    pub fn release(&mut self) -> Option<Vec<Value>> {
        let contact = self.generator.release().ok()??;
        request(contact, true).map(|request| request.arguments())
    }

    /// What became of a contact. A failure leaves open whether the registry got it.
    pub fn done(&mut self, result: Result<Reply, Failure>) {
        match (result, self.asked.take()) {
            (Ok(Reply { answer, said, hint }), Some(contact)) => {
                self.answered(&contact, answer, &LeaseFailure { error: said, hint });
            }
            // The contact stays pending, and is repeated.
            (Err(failure), _) => contact_status::set_failed(&LeaseFailure::failed(&failure)),
            (Ok(_), None) => contact_status::set_failed(&LeaseFailure::not_fitting()),
        }
    }
}

/// A contact, and what the registry has to know of this server.
fn request(contact: Contact, releases: bool) -> Option<Request> {
    let settings = settings::get()?;
    Some(Request {
        contact,
        releases,
        node_name: settings::node_name(),
        layout: settings.layout,
        backup_workers: settings.workers.lanes() as i32 - 1,
        datacenter: settings.datacenter as i32,
        in_recovery: generator::in_recovery(),
        version: env!("CARGO_PKG_VERSION"),
    })
}
