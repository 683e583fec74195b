//! Startup: from a closed gate to an open one. `state/start.rs` lists the steps and decides; this file makes the
//! decision durable, waits for the clock, and publishes.

use super::Generator;
use crate::config::WorkerSource;
use crate::host::{Claim, Disk, Event, Host, Loaded, RecordName, Sight, WorkerMarks, WriteError};
use crate::journal::RETRY_US;
use crate::memory::{ColdState, Gate};
use crate::refusal::{ClosedReason, Errno, FloorCause, Unopened};
use crate::state::promises::{Heading, Promises};
use crate::state::record::Floor;
use crate::state::start::{Evidence, Opening, Start};
use parking_lot::lock_api::RawMutex;

/// A start waits for the clock to come within `max_ahead` of the restored mark, if that takes no longer than this. So
/// neither a crash nor a first start uses up a lane. Where it takes longer, the start takes another lane; if none can be
/// used, it waits for as long as the reservation is.
const SETTLING_US: i64 = 1_000_000;
/// A first start waits up to this much longer, so that its IDs are not ahead of the clock. Equals the default
/// `max_ahead`.
const FIRST_PATIENCE_US: i64 = 2_000_000;

/// Raises the marks of a new life to those that the host's witness has seen.
pub(super) fn respect_seen(disk: &dyn Disk, evidence: &Evidence<'_>, promises: &mut Promises) {
    if let Some(witness) = disk.witness() {
        evidence.respect_seen(promises, &witness.marks(evidence.start.system_identifier));
    }
}

impl<H: Host, R: RawMutex> Generator<'_, H, R> {
    /// Whether the gate is open.
    pub fn is_open(&self) -> bool {
        self.lanes[self.active()].permitted().is_some()
    }

    /// Opens the gate: reads the state, decides, and makes the decision durable. Does not wait: if the clock has yet to
    /// catch up, it returns [`Unopened::Settling`]. Does nothing if the gate is open.
    pub fn open(&self, start: &Start) -> Result<(), Unopened> {
        self.observe_clock();
        let (result, event) = self.locked(|cold| {
            let mut event = None;
            let started = match cold.gate {
                Gate::Open | Gate::Settling => Ok(()),
                Gate::Closed { reason, retry_at_us } if self.host.boot_us() < retry_at_us => Err(reason),
                Gate::Closed { .. } | Gate::Untried => self.start(cold, start).map(|opened| event = opened),
            };
            let settled = started.map_err(Unopened::Closed).and_then(|()| self.settle(cold, start));
            (settled.map(|opened| event = event.or(opened)), event)
        });
        if let Some(event) = event {
            self.host.report(event);
        }
        result
    }

    /// The steps of a start, up to the durable decision.
    pub(super) fn start(&self, cold: &mut ColdState, start: &Start) -> Result<Option<Event>, ClosedReason> {
        // What a standby held is in its file.
        if cold.held.take().is_some() {
            cold.journal.promises = Promises::none();
        }
        let chosen = self.load().and_then(|loaded| {
            let start = &start.placed(loaded.as_ref());
            let evidence = self.evidence(cold, start);
            let opening = match self.host.disk() {
                Some(disk) => self.decide(cold, disk, loaded.as_ref(), &evidence)?,
                None => {
                    Opening { promises: Promises::none(), active: evidence.half[0], needs_new_file: false }
                }
            };
            self.commit(cold, start, opening)
        });
        if let Err(reason) = chosen {
            // Which lease it has is in its file.
            cold.home = cold.home.filter(|_| self.source != WorkerSource::Registry);
            // A lock is looked at without an access to the disk.
            let pause_us = if reason == ClosedReason::Taken { 0 } else { RETRY_US };
            cold.gate = Gate::Closed { reason, retry_at_us: self.host.boot_us() + pause_us };
        }
        chosen
    }

    /// The state file; `None` if there is none, or no disk.
    pub(super) fn load(&self) -> Result<Option<Loaded>, ClosedReason> {
        let Some(disk) = self.host.disk() else { return Ok(None) };
        if disk.is_taken() {
            return Err(ClosedReason::Taken);
        }
        disk.load().map_err(ClosedReason::Os)
    }

    fn decide(
        &self,
        cold: &ColdState,
        disk: &dyn Disk,
        loaded: Option<&Loaded>,
        evidence: &Evidence<'_>,
    ) -> Result<Opening, ClosedReason> {
        let sight = |name: RecordName, workers: &[i64]| {
            let Some(witness) = disk.witness() else { return Sight::Unknown };
            let sight = witness.sight(name, workers);
            if sight == Sight::Last {
                // Until this run's own first record is written, it stays the last.
                witness.confirm(name, &WorkerMarks::default());
            }
            sight
        };
        let mut opening = match self.source {
            WorkerSource::Registry => {
                evidence.enlist(loaded, sight, self.born(), |home| self.origins_of(home))?
            }
            WorkerSource::Configured | WorkerSource::Confirmed => {
                evidence.decide(loaded, sight).map_err(|reason| match reason {
                    ClosedReason::NotPromoted(_) => {
                        self.disown(cold, disk, loaded, evidence).map_or_else(ClosedReason::Os, |()| reason)
                    }
                    _ => reason,
                })?
            }
        };
        respect_seen(disk, evidence, &mut opening.promises);
        // A file that cannot be rewritten may not be durable, so a new file replaces it.
        opening.needs_new_file |= loaded.is_some_and(|loaded| disk.write_again(loaded).is_err());
        Ok(opening)
    }

    /// Creates a file that identifies itself as a copy, so that the gate stays closed at the next start too.
    fn disown(
        &self,
        cold: &ColdState,
        disk: &dyn Disk,
        loaded: Option<&Loaded>,
        evidence: &Evidence<'_>,
    ) -> Result<(), Errno> {
        let Some((promises, timeline, depth)) = evidence.disowned(loaded) else { return Ok(()) };
        let heading = Heading { timeline, depth, ..self.heading(cold, evidence.half[0]) };
        disk.create(&|file| promises.encode(&heading, file)).map(drop)
    }

    /// Has a standby note in its state with which settings it runs, if its primary's record names others. Without a
    /// state it notes that it is a standby. Otherwise a start without recovery could take the directory for one that was
    /// never used: after pg_resetwal, the control file does not say any more that it was a standby's. Origins of a
    /// registry need no note, because they generate nothing without a lease.
    pub fn note_standby(&self, start: &Start) -> Result<(), ClosedReason> {
        let Some(disk) = self.host.disk().filter(|_| self.source != WorkerSource::Registry) else {
            return Ok(());
        };
        self.locked(|cold| {
            let evidence = self.evidence(cold, start);
            match self.load()? {
                Some(loaded) => evidence.noted(&loaded).map_or(Ok(()), |(slot, bytes)| {
                    // The newest record last, so that a torn write leaves it whole.
                    let write = |slot| disk.write(loaded.identity, slot, &bytes);
                    write(1 - slot).and_then(|()| write(slot)).map_err(|error| match error {
                        WriteError::Os(errno) => ClosedReason::Os(errno),
                        WriteError::Replaced => ClosedReason::Unreadable,
                    })
                }),
                None => self.disown(cold, disk, None, &evidence).map_err(ClosedReason::Os),
            }
        })
    }

    pub(super) fn evidence<'a>(&'a self, cold: &ColdState, start: &'a Start) -> Evidence<'a> {
        Evidence {
            layout: &self.layout,
            origins: self.origins(cold),
            half: self.half(start.timeline, start.depth()).collect(),
            start,
            now_us: self.host.wall_us(),
            // A standby may have had a longer one, as its primary had, until a reload.
            max_ahead_us: match cold.gate {
                Gate::Open | Gate::Settling => self.control.switch.max_ahead_us(),
                Gate::Closed { .. } | Gate::Untried => self.control.switch.longest_ahead_us(),
            },
        }
    }

    /// Claims the workers of a start, and makes its decision durable. The gate stays closed.
    pub(super) fn commit(
        &self,
        cold: &mut ColdState,
        start: &Start,
        mut opening: Opening,
    ) -> Result<Option<Event>, ClosedReason> {
        let active = opening.active;
        let is_first = opening.needs_new_file && opening.promises.facts.name.generation == 0;
        (cold.timeline, cold.depth) = (start.timeline, start.depth());
        match self.source {
            // Without its registry, a server is the same node still: it may come back to it.
            WorkerSource::Configured => {}
            WorkerSource::Confirmed => {
                opening.promises = opening.promises.of_number(self.configured.worker(0), self.born());
            }
            WorkerSource::Registry => drop(opening.promises.facts.membership.get_or_insert(self.born())),
        }
        let lease = opening.promises.lease();
        if self.source == WorkerSource::Registry {
            cold.home = lease.map(|lease| lease.home);
        } else if let Some(lease) = lease.filter(|lease| lease.home == self.configured.worker(0)) {
            // A standby could not write it with the marks when it got the lease.
            opening.promises.raise_lanes(lease.floor);
        }
        self.name_run(&mut opening.promises);
        let heading = self.heading(cold, active);
        if !self.claim_workers(&opening.promises.claim(&heading)) {
            return Err(ClosedReason::Beside);
        }
        cold.journal.promises = opening.promises;
        let written = match opening.needs_new_file {
            true => cold.journal.replace_file(&self.host, &heading),
            false => cold.journal.renew_file(&self.host, &heading),
        };
        written.map_err(ClosedReason::Os)?;
        for (lane, mark) in self.lanes.iter().zip(opening.promises.marks) {
            lane.raise_floor(mark);
        }
        self.control.switch.activate(active);
        self.set_until(cold);
        cold.gate = Gate::Settling;
        // A node in a fleet may have yet to wait for its lease.
        Ok((self.source != WorkerSource::Registry).then(|| self.opened(cold, is_first)))
    }

    /// Claims workers; `false`, and nothing is claimed, if another server that runs on this host has claimed one of them.
    /// Of two that claim at once, at least one sees the other, because each claims before it looks.
    fn claim_workers(&self, claim: &Claim) -> bool {
        let Some(witness) = self.host.disk().and_then(|disk| disk.witness()) else { return true };
        witness.claim(Some(claim));
        let is_met = witness.is_met(claim);
        if is_met {
            witness.claim(None);
        }
        !is_met
    }

    /// Draws what tells this run's records from those of others.
    pub(super) fn name_run(&self, promises: &mut Promises) {
        promises.facts.name.run = self.host.random();
        if promises.facts.name.life.is_nil() {
            promises.facts.name.life = self.host.random();
        }
    }

    fn opened(&self, cold: &ColdState, is_first: bool) -> Event {
        let (active, workers) = (self.active(), self.workers(cold));
        Event::Opened {
            timeline: cold.timeline,
            worker: workers.worker(active),
            lane: active,
            home: workers.worker(0),
            first_us: self.layout.starts_at(self.lanes[active].frontier()),
            is_first,
        }
    }

    /// Opens the gate once the clock is near the restored mark, or too far from it to wait.
    fn settle(&self, cold: &mut ColdState, start: &Start) -> Result<Option<Event>, Unopened> {
        if cold.gate == Gate::Open {
            return Ok(None);
        }
        if self.source != WorkerSource::Configured && cold.journal.promises.lease().is_none() {
            return Err(Unopened::NoLease);
        }
        // Other servers generated their IDs with workers of their own if the registry handed all of them out.
        if cold.journal.promises.facts.owes_prepared && self.source != WorkerSource::Registry {
            self.respect_prepared(cold, start)?;
        }
        let is_durable = self.host.disk().is_some();
        if is_durable && let Some(missing_us) = self.settling_us(cold) {
            return Err(Unopened::Settling(missing_us));
        }
        // Marks that were raised meanwhile may be in memory only, if their write failed (guarantee 2).
        if cold.journal.failure().is_some() {
            let heading = self.heading(cold, self.active());
            let written = cold.journal.write(&self.host, &heading);
            written.map_err(|errno| Unopened::Closed(ClosedReason::Os(errno)))?;
        }
        cold.gate = Gate::Open;
        // A standby with a lease is promoted before its gate opens.
        if cold.timeline != start.timeline {
            (cold.timeline, cold.depth) = (start.timeline, start.depth());
        }
        for lane in 0..self.lanes.len() {
            let mark = cold.journal.promises.marks[lane];
            self.publish(cold, lane, if is_durable { mark } else { self.layout.max_tick() });
        }
        Ok((self.source == WorkerSource::Registry).then(|| self.opened(cold, false)))
    }

    /// How long to wait for the clock, in microseconds; `None` if it is there, or too far away to wait for: then the first
    /// call rotates.
    fn settling_us(&self, cold: &ColdState) -> Option<i64> {
        let floor = self.floor(cold, self.active());
        let max_ahead_us = self.limits().max_ahead_us;
        // At a first start the wait is short, so its IDs wait until they are not ahead of the clock, unless `max_ahead`
        // is longer than the wait may be.
        let ahead_us = match floor {
            Some(Floor { cause: FloorCause::NoState, .. }) => {
                max_ahead_us - max_ahead_us.min(FIRST_PATIENCE_US)
            }
            _ => max_ahead_us,
        };
        let missing_us = self.behind_us(self.active()) - ahead_us;
        // The record may say more than `reserve`: with a slow disk the last run reserved further ahead.
        let reserved_us =
            cold.journal.reserve_us(&self.limits()).max(cold.journal.promises.facts.reserved_us);
        // A floor lies above the latest of several clocks, which may differ slightly.
        let floored_us = max_ahead_us.min(FIRST_PATIENCE_US) + 2 * SETTLING_US;
        let settling_us = if floor.is_some() { floored_us } else { SETTLING_US };
        let tick_us = self.layout.tick().micros();
        let patience_us = reserved_us.max(settling_us) + tick_us;
        let is_short = missing_us <= SETTLING_US + tick_us;
        // All lanes begin above a floor, and another would only be ahead of the clock sooner.
        let is_worth_it = || is_short || floor.is_some() || self.next_lane(cold, self.active(), 1).is_err();
        ((1..=patience_us).contains(&missing_us) && is_worth_it()).then_some(missing_us)
    }

    /// Raises the marks above the IDs in transactions that earlier timelines left prepared.
    fn respect_prepared(&self, cold: &mut ColdState, start: &Start) -> Result<(), Unopened> {
        let evidence = self.evidence(cold, start);
        // Their IDs were generated under the other server's `max_ahead`, which the record keeps for as long as the
        // prepared transactions are unread.
        let max_ahead_us = evidence.max_ahead_us.max(cold.journal.promises.facts.max_ahead_us);
        let evidence = Evidence { max_ahead_us, ..evidence };
        let floor = evidence.prepared_mark().ok_or(Unopened::PreparedUnread)?;
        cold.journal.promises.facts.owes_prepared = false;
        let raised = match cold.journal.just_failed(&self.host) {
            None => self.raise_marks(cold, floor, FloorCause::NewTimeline),
            Some(errno) => Err(errno),
        };
        raised.map_err(|errno| {
            cold.journal.promises.facts.owes_prepared = true;
            Unopened::Closed(ClosedReason::Os(errno))
        })
    }
}
