//! Leasing: the fleet's registry says which workers this server has, and up to which tick. What is sent to it and what
//! it answers is durable here first (`lease.rs` says why); the process that speaks to it is the caller.

use super::Generator;
use crate::config::WorkerSource;
use crate::host::Host;
use crate::layout::Parts;
use crate::lease::{Answer, Answered, Contact, Lease, Membership};
use crate::memory::{ColdState, Gate};
use crate::refusal::{ClosedReason, Errno};
use crate::state::promises::Promises;
use crate::state::start::Start;
use parking_lot::lock_api::RawMutex;

/// `until` without a lease: no tick is allowed.
const NO_TICK: i64 = -1;

impl<H: Host, R: RawMutex> Generator<'_, H, R> {
    /// Finds out who this node is, so that it can speak to the registry: also on a standby, if it is the registry that
    /// says which workers it has. Does nothing if that is known.
    pub fn enlist(&self, start: &Start) -> Result<(), ClosedReason> {
        self.locked(|cold| match cold.gate {
            Gate::Open | Gate::Settling => Ok(()),
            Gate::Closed { .. } | Gate::Untried => self.start(cold, start).map(drop),
        })
    }

    /// Finds out who this standby is, so that it holds its configured number before it is promoted. Its state stays what
    /// its primary left there: [`open`](Self::open) decides by that.
    pub fn hold(&self, start: &Start) -> Result<(), ClosedReason> {
        self.locked(|cold| {
            let Some(disk) = self.host.disk().filter(|_| cold.held.is_none()) else { return Ok(()) };
            if matches!(cold.gate, Gate::Open | Gate::Settling) {
                return Ok(());
            }
            let loaded = self.load()?;
            let (promises, (timeline, depth), held, is_own) =
                self.evidence(cold, start).hold(loaded.as_ref())?;
            let is_whole = loaded.is_some_and(|loaded| disk.write_again(&loaded).is_ok());
            let mut promises = promises.of_number(self.configured.worker(0), self.born());
            self.name_run(&mut promises);
            cold.journal.promises = promises;
            (cold.timeline, cold.depth, cold.held) = (timeline, depth, Some(held));
            let heading = self.heading(cold, self.active());
            let written = match is_own && is_whole {
                true => cold.journal.write_at_once(&self.host, &heading),
                false => cold.journal.replace_file(&self.host, &heading),
            };
            written.map_err(|errno| {
                cold.held = None;
                ClosedReason::Os(errno)
            })
        })
    }

    /// Begins a contact with the registry, or repeats the one whose answer is missing. Durable before it is returned;
    /// `None` before [`enlist`](Self::enlist) or [`hold`](Self::hold).
    pub fn contact(&self) -> Result<Option<Contact>, Errno> {
        self.locked(|cold| {
            let Some(membership) = &mut cold.journal.promises.facts.membership else { return Ok(None) };
            membership.begin(self.host.random());
            let heading = self.heading(cold, self.active());
            // Even if it is pending since before: the last write may have failed.
            cold.journal.write_at_once(&self.host, &heading)?;
            let membership = cold.journal.promises.facts.membership;
            Ok(membership.map(|membership| membership.contact(self.host.wall_us())))
        })
    }

    /// Does what the registry's answer to this contact demands. After an error nothing has changed, and the contact is
    /// to be repeated.
    pub fn answered(&self, contact: &Contact, answer: Answer) -> Result<Answered, Errno> {
        if let Answer::Granted { lease, .. } = answer
            && !self.can_be_granted(&lease)
        {
            return Ok(Answered::Ignored);
        }
        self.locked(|cold| {
            let before = cold.journal.promises;
            let Some(membership) = before.facts.membership else { return Ok(Answered::Ignored) };
            let (after, answered) = membership.after(contact, answer, self.host.random());
            let promises = before.of_member(after);
            match answered {
                Answered::Ignored => {}
                Answered::Unchanged => cold.journal.promises = promises,
                // The lanes are brought above the lease's floor when the standby is promoted.
                _ if cold.held.is_some() => self.write_or_revert(cold, promises)?,
                Answered::Renewed => self.renew(cold, promises)?,
                Answered::Lost => self.lose(cold, promises),
                Answered::Leased => {
                    let floor = after.lease.map_or(NO_TICK, |lease| lease.floor);
                    self.move_in(cold, promises, floor)?;
                }
            }
            Ok(answered)
        })
    }

    /// The lease, if this server has one.
    pub fn lease(&self) -> Option<Lease> {
        self.control.cold.lock().journal.promises.lease()
    }

    /// The home worker of the lease, and when the lease ends, as a Unix time in microseconds.
    pub fn lease_end(&self) -> Option<(i64, i64)> {
        self.lease().map(|lease| (lease.home, self.layout.starts_at(lease.until + 1)))
    }

    /// Whether [`adopt`](Self::adopt) would resume the lease that this server had before a reboot of its host.
    pub fn is_resumable(&self) -> bool {
        self.resumable(&self.control.cold.lock()).is_some()
    }

    /// Whether an ID with these fields is one that this server may generate. One that another server generated means
    /// that both use the same worker. Under a lease, IDs of the group's earlier and later holders are not.
    pub fn is_own(&self, parts: &Parts) -> bool {
        let Some((home, _)) = self.configured.owner(parts.worker) else { return false };
        parts.datacenter == self.datacenter
            && match self.source {
                WorkerSource::Configured => home == self.configured.worker(0),
                WorkerSource::Confirmed | WorkerSource::Registry => self.lease().is_some_and(|lease| {
                    lease.home == home && lease.floor < parts.tick && parts.tick <= lease.until
                }),
            }
    }

    /// Whether the registry's numbers are of this layout, and of the configured worker if there is one.
    fn can_be_granted(&self, lease: &Lease) -> bool {
        let is_home = match self.source {
            WorkerSource::Registry => (0..=self.configured.highest_home()).contains(&lease.home),
            WorkerSource::Confirmed => lease.home == self.configured.worker(0),
            WorkerSource::Configured => false,
        };
        is_home && (-1..=lease.until).contains(&lease.floor) && lease.until <= self.layout.max_tick()
    }

    /// The lease goes on: durable first, then for calls.
    fn renew(&self, cold: &mut ColdState, promises: Promises) -> Result<(), Errno> {
        self.write_or_revert(cold, promises)?;
        self.set_until(cold);
        Ok(())
    }

    /// The lease is over: no call gets an ID of it from now on, except those that have read their permit, and what they
    /// generate lies below the lease's end. A write that fails changes nothing about that: the old record leads to the
    /// same answer.
    fn lose(&self, cold: &mut ColdState, promises: Promises) {
        self.leave(cold);
        cold.journal.promises = promises;
        let heading = self.heading(cold, self.active());
        let _ = cold.journal.write_at_once(&self.host, &heading);
    }

    fn leave(&self, cold: &mut ColdState) {
        self.lanes.iter().for_each(|lane| lane.close());
        cold.gate = Gate::Settling;
        self.control.switch.set_until(NO_TICK);
    }

    /// This server as a node in a new life.
    pub(super) fn born(&self) -> Membership {
        Membership::new(self.host.random(), self.configured.lanes(), self.datacenter)
    }

    /// Begins with another lease: closes the gate, makes the lease durable, and brings every lane above its floor
    /// before a permit for it can be published. The first lane is that of the timeline.
    fn move_in(&self, cold: &mut ColdState, promises: Promises, floor: i64) -> Result<(), Errno> {
        let Some(lease) = promises.lease() else { return Ok(()) };
        self.leave(cold);
        let first = self.half(cold.timeline, cold.depth).next().unwrap_or(0);
        let promises =
            promises.for_lease(&self.heading(cold, self.active()), &self.origins_of(lease.home), floor);
        let home = cold.home.replace(lease.home);
        if let Err(errno) = self.write_or_revert(cold, promises) {
            cold.home = home;
            return Err(errno);
        }
        for (lane, mark) in self.lanes.iter().zip(promises.marks) {
            lane.raise_floor(mark);
        }
        self.control.switch.activate(first);
        self.set_until(cold);
        Ok(())
    }

    /// Makes promises durable, or keeps what was promised before, which may be in the file as well.
    fn write_or_revert(&self, cold: &mut ColdState, promises: Promises) -> Result<(), Errno> {
        let before = std::mem::replace(&mut cold.journal.promises, promises);
        let heading = self.heading(cold, self.active());
        let written = cold.journal.write_at_once(&self.host, &heading);
        if written.is_err() {
            cold.journal.promises = before.after_failed_write(&cold.journal.promises);
        }
        written
    }

    /// Tells calls where the lease ends, once that is durable.
    pub(super) fn set_until(&self, cold: &ColdState) {
        let until = match self.source {
            WorkerSource::Configured => i64::MAX,
            _ => cold.journal.promises.lease().map_or(NO_TICK, |lease| lease.until),
        };
        self.control.switch.set_until(until);
    }

    /// What the node was before its host was rebooted, if an operator can resume its lease. With a configured number there
    /// is none to choose.
    fn resumable(&self, cold: &ColdState) -> Option<Membership> {
        let promises = &cold.journal.promises;
        let is_free = self.source == WorkerSource::Registry && promises.lease().is_none();
        promises.facts.earlier_life.filter(|_| is_free)
    }

    /// An operator vouches that no copy of this node runs: the lease of its earlier life goes on.
    pub(super) fn resume_earlier_life(&self, cold: &mut ColdState) -> Result<(), Errno> {
        let promises = cold.journal.promises;
        let Some(earlier) = self.resumable(cold) else { return Ok(()) };
        let floor = earlier.lease.map_or(NO_TICK, |lease| promises.floor_to_resume(&lease));
        self.move_in(cold, promises.of_member(earlier), floor)
    }
}
