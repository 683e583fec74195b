//! Leasing: the fleet's registry grants this server its workers, up to a tick. Each contact is durable before it is
//! sent, and each answer before it is used (see `lease.rs`). The caller is the process that connects to the registry.

use super::Generator;
use crate::config::WorkerSource;
use crate::layout::Parts;
use crate::lease::{Answer, Contact, Effect, Lease, Membership};
use crate::memory::{ColdState, Gate};
use crate::platform::Platform;
use crate::refusal::Errno;
use crate::state::pending::PendingRecord;
use parking_lot::lock_api::RawMutex;

/// `until` without a lease: no tick is allowed.
const NO_TICK: i64 = -1;

impl<P: Platform, R: RawMutex> Generator<'_, P, R> {
    /// Begins a contact with the registry, or repeats the one whose answer is missing. Durable before it is returned. The
    /// process that sends it adds its clock last. `None` before [`load_node`](Self::load_node).
    pub fn contact(&self) -> Result<Option<Contact>, Errno> {
        self.locked(|cold| {
            let Some(membership) = &mut cold.writer.pending.header.membership else { return Ok(None) };
            membership.begin(self.platform.random());
            // Write even a contact that was already pending: its earlier write may have failed.
            cold.writer.write_at_once(&self.platform)?;
            Ok(cold.writer.pending.header.membership.map(|membership| membership.contact()))
        })
    }

    /// Does what the registry's answer to this contact demands. After an error nothing has changed, and the contact is
    /// to be repeated.
    pub fn answered(&self, contact: &Contact, answer: Answer) -> Result<Effect, Errno> {
        if let Answer::Granted { lease, .. } = answer
            && !self.can_be_granted(&lease)
        {
            return Ok(Effect::Ignored);
        }
        self.locked(|cold| {
            let before = cold.writer.pending;
            let Some(membership) = before.header.membership else { return Ok(Effect::Ignored) };
            let (after, effect) = membership.after(contact, answer, self.platform.random());
            let mut pending = before;
            pending.header.membership = Some(after);
            match effect {
                Effect::Ignored => {}
                Effect::Unchanged => cold.writer.pending = pending,
                Effect::Renewed => {
                    self.write_or_revert(cold, pending)?;
                    self.set_until(cold);
                }
                Effect::Lost => self.lose(cold, pending),
                Effect::Leased => self.switch_lease(cold, pending)?,
            }
            Ok(effect)
        })
    }

    /// The lease, if this server has one.
    pub fn lease(&self) -> Option<Lease> {
        self.control.cold.lock().writer.pending.lease()
    }

    /// The home worker of the lease, and when the lease ends, as a Unix time in microseconds.
    pub fn lease_end(&self) -> Option<(i64, i64)> {
        self.lease().map(|lease| (lease.home, self.layout.starts_at(lease.until + 1)))
    }

    /// The workers that this server has now, as they stand in an ID, home worker first.
    pub fn worker_numbers(&self) -> Vec<i64> {
        self.origins(&self.control.cold.lock()).to_vec()
    }

    /// Whether an ID with these fields is one that this server may generate. One that another server generated means
    /// that both use the same worker. Under a lease, IDs of the group's earlier and later holders are not.
    pub fn is_own(&self, parts: &Parts) -> bool {
        let Some((home, _)) = self.configured.owner(parts.worker) else { return false };
        parts.datacenter == self.datacenter
            && match self.source {
                WorkerSource::Configured => home == self.configured.worker(0),
                WorkerSource::Registry => self.lease().is_some_and(|lease| {
                    lease.home == home && lease.floor < parts.tick && parts.tick <= lease.until
                }),
            }
    }

    /// Whether the registry's numbers are of this layout.
    fn can_be_granted(&self, lease: &Lease) -> bool {
        self.source == WorkerSource::Registry
            && (0..=self.configured.highest_home()).contains(&lease.home)
            && (-1..=lease.until).contains(&lease.floor)
            && lease.until <= self.layout.max_tick()
    }

    /// The lease is over: no call gets an ID of it from now on, except those that have read their permit, and what they
    /// generate is below the lease's end. A failed write is harmless: with the old record the registry gives the same
    /// answer.
    fn lose(&self, cold: &mut ColdState, pending: PendingRecord) {
        self.leave(cold);
        cold.writer.pending = pending;
        self.lock_workers(pending.header.system_identifier, &[]);
        let _ = cold.writer.write_at_once(&self.platform);
    }

    fn leave(&self, cold: &mut ColdState) {
        self.lanes.iter().for_each(|lane| lane.close());
        cold.gate = Gate::Settling;
    }

    /// This server as a node that has not contacted a registry yet.
    pub(super) fn new_node(&self) -> Membership {
        Membership::new(self.platform.random(), self.configured.lanes(), self.layout)
    }

    /// Begins with another lease: closes the gate, makes the lease durable, and brings every lane above its floor
    /// before a permit for it can be published. The first lane is that of the timeline.
    fn switch_lease(&self, cold: &mut ColdState, pending: PendingRecord) -> Result<(), Errno> {
        let Some(lease) = pending.lease() else { return Ok(()) };
        self.leave(cold);
        let first = self.configured.first_lane(pending.header.timeline);
        let origins = self.origins_of(lease.home);
        let mut pending = pending.for_origins(origins);
        pending.active = first;
        pending.raise_lanes(lease.floor);
        // A server whose lease of these workers is over may still have the lock. The registry keeps the two apart; this
        // one has no token then.
        let locked = self.lock_workers(pending.header.system_identifier, &origins);
        pending.header.token = self.sign_workers(&origins, locked);
        let home = cold.home.replace(lease.home);
        if let Err(errno) = self.write_or_revert(cold, pending) {
            cold.home = home;
            return Err(errno);
        }
        for (lane, mark) in self.lanes.iter().zip(pending.marks) {
            lane.raise_floor(mark);
        }
        self.break_order(cold, self.lanes[first].current_tick(), || self.control.live.activate(first));
        self.set_until(cold);
        Ok(())
    }

    /// Makes `pending` durable, or keeps the pending record of before, which may be in the file as well.
    fn write_or_revert(&self, cold: &mut ColdState, pending: PendingRecord) -> Result<(), Errno> {
        let before = std::mem::replace(&mut cold.writer.pending, pending);
        let written = cold.writer.write_at_once(&self.platform);
        if written.is_err() {
            cold.writer.pending = before;
        }
        written
    }

    /// Publishes the end of the lease to calls, once it is durable.
    pub(super) fn set_until(&self, cold: &ColdState) {
        let until = match self.source {
            WorkerSource::Configured => i64::MAX,
            WorkerSource::Registry => cold.writer.pending.lease().map_or(NO_TICK, |lease| lease.until),
        };
        self.control.live.set_until(until);
    }
}
