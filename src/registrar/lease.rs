//! What the contacts are about: this server's lease, which the generator keeps.

use super::Contacts;
use crate::bell::{self, Who};
use crate::fleet;
use crate::generator;
use crate::messages::{Error, Unleased, log};
use crate::settings;
use crate::shmem::SharedGenerator;
use crate::start;
use crate::time::clock_us;
use snowflake_contact::{self as wire, Failure, Request};
use snowflake_core::{Answer, Answered, ClosedReason, Contact, Lease, WorkerSource};
use uuid::Uuid;

/// The contacts of this server's generator.
pub struct Leasing {
    generator: &'static SharedGenerator,
    pending: Option<Contact>,
    /// Why the generator could not be enlisted, as it was last logged.
    told_closed: Option<ClosedReason>,
    /// The refusal that was last logged, in an episode of refusals.
    told_refused: Option<String>,
    /// The end of the lease whose end was logged.
    told_ended_us: Option<i64>,
}

impl Leasing {
    pub fn of(generator: &'static SharedGenerator) -> Self {
        Self { generator, pending: None, told_closed: None, told_refused: None, told_ended_us: None }
    }

    /// Finds out which node this is; `false` if it cannot speak to the registry now.
    fn enlist(&mut self, source: WorkerSource, in_recovery: bool) -> bool {
        let known = match (in_recovery, source) {
            (false, _) => self.generator.enlist(&start::without_prepared()),
            (true, WorkerSource::Confirmed) => self.generator.hold(&start::in_recovery()),
            (true, _) => self.generator.enlist(&start::in_recovery()),
        };
        match known {
            Ok(()) => {
                self.told_closed = None;
                true
            }
            Err(why) => {
                if self.told_closed.replace(why) != Some(why) {
                    log::unavailable(Error::Closed(why));
                }
                let (error, hint) = (Error::Closed(why).summary(), Error::Closed(why).hint());
                fleet::note_failed(&Unleased { error, hint });
                false
            }
        }
    }

    /// Logs, once, that the lease has ended.
    fn tell_of_end(&mut self) {
        if let Some((home, end_us)) = self.generator.lease_end()
            && end_us <= clock_us(libc::CLOCK_REALTIME)
            && self.told_ended_us != Some(end_us)
        {
            self.told_ended_us = Some(end_us);
            log::lease_ended(home, end_us, fleet::notes().unleased());
        }
    }

    fn answered(&mut self, contact: &Contact, answer: Answer, said: &Unleased) {
        let now = clock_us(libc::CLOCK_REALTIME);
        match self.generator.answered(contact, answer) {
            Ok(Answered::Renewed) => fleet::note_granted(now),
            Ok(Answered::Leased) => {
                fleet::note_granted(now);
                if let Some((home, end_us)) = self.generator.lease_end() {
                    log::lease_granted(home, end_us);
                }
                // The keeper opens the gate.
                bell::ring(Who::Keeper);
            }
            Ok(Answered::Lost) => {
                fleet::note_refused(now, said);
                log::lease_lost(said);
            }
            Ok(Answered::Unchanged) => {
                fleet::note_refused(now, said);
                if self.told_refused.as_ref() != Some(&said.error) {
                    self.told_refused = Some(said.error.clone());
                    log::lease_refused(said);
                }
            }
            Ok(Answered::Ignored) => fleet::note_failed(&Unleased::not_fitting()),
            // The generator has logged that it cannot write.
            Err(errno) => fleet::note_failed(&Unleased::unwritable(errno)),
        }
        if matches!(answer, Answer::Granted { .. }) {
            self.told_refused = None;
        }
    }
}

impl Contacts for Leasing {
    fn next(&mut self) -> Option<Request> {
        let settings = settings::get()?;
        let source = settings.source()?;
        let in_recovery = generator::in_recovery();
        if !self.enlist(source, in_recovery) {
            return None;
        }
        self.tell_of_end();
        let contact = match self.generator.contact() {
            Ok(contact) => contact?,
            Err(errno) => {
                fleet::note_failed(&Unleased::unwritable(errno));
                return None;
            }
        };
        self.pending = Some(contact);
        let is_wanted = source == WorkerSource::Confirmed;
        let layout = &settings.layout;
        let lease = contact.lease;
        Some(Request {
            registry: contact.registry.map(|registry| registry.as_u128()),
            node: contact.node.as_u128(),
            node_name: settings::node_name(),
            number: contact.number,
            nonce: contact.nonce.as_u128(),
            lease: lease.map(|l| wire::Lease { worker: l.home as i32, floor: l.floor, until: l.until }),
            clock_us: contact.clock_us,
            layout: layout.bits().to_string(),
            tick_ms: layout.tick().millis() as i32,
            epoch_us: layout.epoch_us(),
            backup_workers: settings.workers.lanes() as i32 - 1,
            datacenter: settings.datacenter as i32,
            wanted_worker: is_wanted.then(|| settings.workers.worker(0) as i32),
            in_recovery,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            system_identifier: start::system_identifier(),
        })
    }

    fn done(&mut self, result: Result<wire::Answer, Failure>) {
        let Some(contact) = self.pending.take() else { return };
        match result {
            Ok(wire::Answer::Granted { registry, worker, floor, until, .. }) => {
                let lease = Lease { home: worker.into(), floor, until };
                let answer = Answer::Granted { registry: Uuid::from_u128(registry), lease };
                self.answered(&contact, answer, &Unleased::said(None, None));
            }
            Ok(wire::Answer::Over { reason, detail, hint }) => {
                self.answered(&contact, Answer::Over, &Unleased::said(detail.or(reason), hint));
            }
            Ok(wire::Answer::Refused { reason, detail, hint, .. }) => {
                let said = Unleased::said(detail.or(Some(reason)), hint);
                self.answered(&contact, Answer::Refused, &said);
            }
            // The contact stays pending, and is repeated.
            Err(failure) => fleet::note_failed(&Unleased::failed(&failure)),
        }
    }
}
