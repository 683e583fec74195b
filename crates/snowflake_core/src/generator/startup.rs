//! Startup: from a closed gate to an open one. `state/start.rs` has the rules and decides; this file locks, reads,
//! makes the decision durable, waits for the clock, and publishes.

use super::Generator;
use crate::config::WorkerSource;
use crate::lease::Membership;
use crate::memory::{ColdState, Gate, Run};
use crate::platform::{Disk, Event, Loaded, Locked, Platform};
use crate::refusal::{ClosedReason, NotOpen, Refusal};
use crate::state::pending::PendingRecord;
use crate::state::record::{Header, newest};
use crate::state::start::{Decision, Evidence, Found, Start};
use crate::state_writer::{RETRY_US, replace_file};
use crate::workers::Origins;
use parking_lot::lock_api::RawMutex;

/// A start waits up to this long for the clock to come within `max_ahead` of the lane's first tick: longer than a crash
/// in a burst or the second of rule 4 demands. If it takes longer, the ladder decides.
const LONGEST_WAIT_US: i64 = 2_000_000;

impl<P: Platform, R: RawMutex> Generator<'_, P, R> {
    /// Whether the gate is open.
    pub fn is_open(&self) -> bool {
        self.lanes[self.active()].permitted().is_some()
    }

    /// Opens the gate: locks the workers, reads the state, decides, and makes the decision durable. Does not wait: if
    /// the clock has yet to catch up, it returns [`NotOpen::Settling`]. Does nothing if the gate is open.
    pub fn open(&self, start: &Start) -> Result<(), NotOpen> {
        self.observe_clock();
        let (result, events) = self.locked(|cold| {
            let mut events = [None, None];
            let started = self.start_unless_done(cold, start).map(|reported| events = reported);
            let settled = started.and_then(|()| self.settle(cold, start));
            (settled.map(|opened| events[1] = events[1].or(opened)), events)
        });
        events.into_iter().flatten().for_each(|event| self.platform.report(event));
        result
    }

    /// Loads the node's ID and lease from the record, so that this server, standby or not, can contact the registry.
    /// Does nothing after the first time.
    pub fn load_node(&self, start: &Start) -> Result<(), NotOpen> {
        self.locked(|cold| self.start_unless_done(cold, start).map(drop))
    }

    /// Takes the workers' locks again after their file in /dev/shm was deleted. Returns whether it could.
    pub fn lock_again(&self) -> bool {
        self.locked(|cold| {
            let lock = self.platform.disk().host_lock();
            let pending = &cold.writer.pending;
            let origins = self.origins(cold);
            matches!(cold.gate, Gate::Open | Gate::Settling)
                && matches!(lock.lock(pending.header.system_identifier, &origins), Locked::Own(_))
                // A nil token never equals a recorded one.
                && lock.sign(&origins, pending.header.token.unwrap_or_default())
        })
    }

    fn start_unless_done(&self, cold: &mut ColdState, start: &Start) -> Result<[Option<Event>; 2], NotOpen> {
        match cold.gate {
            Gate::Open | Gate::Settling => Ok([None, None]),
            Gate::Closed { reason, retry_at_us } if self.platform.boot_us() < retry_at_us => {
                Err(NotOpen::Closed(reason))
            }
            Gate::Closed { .. } | Gate::Untried => self.start(cold, start, None),
        }
    }

    /// A start up to the durable decision, or why the gate stays closed.
    pub(super) fn start(
        &self,
        cold: &mut ColdState,
        start: &Start,
        adopted_us: Option<i64>,
    ) -> Result<[Option<Event>; 2], NotOpen> {
        self.try_start(cold, start, adopted_us).map_err(|(why, retry_at_us)| {
            // A gate that stays closed, as a copy's, must not keep another server from opening its own.
            if why != NotOpen::Closed(ClosedReason::Taken) {
                self.lock_workers(start.system_identifier, &[]);
            }
            // With a registry, the next start takes the home worker from the record.
            cold.home = cold.home.filter(|_| self.source == WorkerSource::Configured);
            if let NotOpen::Closed(reason) = why {
                cold.gate = Gate::Closed { reason, retry_at_us };
            }
            why
        })
    }

    /// The steps of rule 2, in their order. An error says when to try again, by the boot clock.
    fn try_start(
        &self,
        cold: &mut ColdState,
        start: &Start,
        adopted_us: Option<i64>,
    ) -> Result<[Option<Event>; 2], (NotOpen, i64)> {
        let later = |reason| (NotOpen::Closed(reason), self.platform.boot_us() + RETRY_US);
        let first_lane = self.configured.first_lane(start.timeline);
        let in_range = |now_us| {
            let refused = |refusal| (NotOpen::Clock(refusal), self.platform.boot_us());
            self.check_range(now_us).map_err(refused)
        };
        let disk = self.platform.disk();
        let load = || -> Result<Option<Loaded>, (NotOpen, i64)> {
            disk.load().map_err(|errno| later(ClosedReason::Os(errno)))
        };
        let find = |loaded: &Option<Loaded>| -> Result<Option<Found>, (NotOpen, i64)> {
            let Some(loaded) = loaded else { return Ok(None) };
            let found = newest(loaded).map_err(later)?;
            Ok(found.map(|(slot, record)| Found { record, slot, file: loaded.identity }))
        };

        let mut origins = match self.source {
            WorkerSource::Configured => self.origins(cold),
            WorkerSource::Registry => self.leased_origins(find(&load()?)?.as_ref()),
        };
        let mut locked = self.lock_workers(start.system_identifier, &origins);
        if let Locked::Taken { is_own_directory } = locked
            && (is_own_directory || self.source == WorkerSource::Configured)
        {
            // It is no copy any more, also after a restart: this start made a timeline.
            if start.made_timeline
                && let Some(Found { record, file, .. }) = find(&load()?)?
                && !record.is_in_place(file, start.system_identifier)
            {
                let mut own = record;
                own.header.system_identifier = start.system_identifier;
                replace_file(disk, own).map_err(|errno| later(ClosedReason::Os(errno)))?;
            }
            // Do not retry: a clone that was left running would take the lock while the original restarts.
            let retries = is_own_directory || start.made_timeline;
            let retry_at_us = if retries { self.platform.boot_us() } else { i64::MAX };
            return Err((NotOpen::Closed(ClosedReason::Taken), retry_at_us));
        }
        let loaded = load()?;
        let found = find(&loaded)?;
        let is_unreadable = loaded.is_some() && found.is_none();
        let membership = (self.source == WorkerSource::Registry).then(|| {
            let goes_on = self.membership_that_goes_on(found.as_ref(), start, locked);
            goes_on.unwrap_or_else(|| self.new_node())
        });
        if membership.is_some_and(|membership| membership.lease.is_none()) {
            // A copy must not keep its original from going on with the lease.
            origins = Origins::NONE;
            locked = self.lock_workers(start.system_identifier, &origins);
        }
        let now_us = self.platform.wall_us();
        in_range(now_us)?;
        let evidence = Evidence {
            layout: &self.layout,
            origins,
            first_lane,
            start,
            found,
            now_us,
            max_ahead_us: self.asked_limits().max_ahead_us,
            membership,
            adopted_us,
        };
        let mut decision = evidence.decide().map_err(later)?;
        decision.needs_new_file = decision.needs_new_file
            || loaded.is_some_and(|loaded| !make_durable(disk, &decision.pending, &loaded));
        decision.pending.header.token = self.sign_workers(&origins, locked);
        let is_first = evidence.found.is_none();

        cold.home = match membership {
            Some(membership) => membership.lease.map(|lease| lease.home),
            None => cold.home,
        };
        cold.writer.pending = decision.pending;
        let written = match decision.needs_new_file {
            true => cold.writer.write_new_file(&self.platform),
            false => cold.writer.write_at_once(&self.platform),
        };
        written.map_err(|errno| later(ClosedReason::Os(errno)))?;
        self.begin_run(cold, decision, now_us);
        // A node in a fleet may have yet to wait for its lease.
        let opened = membership.is_none().then(|| self.opened(cold, is_first));
        Ok([is_unreadable.then_some(Event::Unreadable), opened])
    }

    /// Write nothing while the clock is outside the layout: the marks would outlive the clock's correction.
    fn check_range(&self, now_us: i64) -> Result<(), Refusal> {
        let relative_us = self.layout.relative(now_us);
        if relative_us < 0 {
            return Err(Refusal::BeforeEpoch(-relative_us));
        }
        if self.layout.tick().containing(relative_us) > self.max_tick {
            return Err(Refusal::Exhausted);
        }
        Ok(())
    }

    /// Sets the lanes up for a run whose decision is durable. The gate stays closed.
    fn begin_run(&self, cold: &mut ColdState, decision: Decision, start_us: i64) {
        let Decision { pending, above, .. } = decision;
        let active = pending.active;
        cold.run = Run { start_us, above, longer_ahead_until_us: i64::MIN };
        for (lane, mark) in self.lanes.iter().zip(pending.marks) {
            lane.raise_floor(mark);
        }
        self.lanes[active].raise_floor(above);
        self.control.live.set_max_ahead(pending.header.max_ahead_us);
        self.break_order(cold, self.lanes[active].current_tick(), || self.control.live.activate(active));
        self.set_until(cold);
        cold.gate = Gate::Settling;
    }

    // ---- rules 5 and 7 ----

    pub(super) fn lock_workers(&self, system_identifier: u64, origins: &[i64]) -> Locked {
        self.platform.disk().host_lock().lock(system_identifier, origins)
    }

    /// Draws a token and writes it where the workers are locked; `None` if that cannot be.
    pub(super) fn sign_workers(&self, origins: &[i64], locked: Locked) -> Option<uuid::Uuid> {
        if origins.is_empty() || !matches!(locked, Locked::Own(_)) {
            return None;
        }
        let token = self.platform.random();
        self.platform.disk().host_lock().sign(origins, token).then_some(token)
    }

    /// The workers of the lease in a record; none if the record has none.
    fn leased_origins(&self, found: Option<&Found>) -> Origins {
        let membership = found.and_then(|found| found.record.header.membership);
        let lease = membership.and_then(|membership| membership.lease);
        let is_in_range = |home: &i64| (0..=self.configured.highest_home()).contains(home);
        lease.map(|lease| lease.home).filter(is_in_range).map_or(Origins::NONE, |home| self.origins_of(home))
    }

    /// Rule 7. A node without a lease is another node after a restart.
    fn membership_that_goes_on(
        &self,
        found: Option<&Found>,
        start: &Start,
        locked: Locked,
    ) -> Option<Membership> {
        let Found { record, file, .. } = found?;
        let membership =
            record.header.membership.filter(|membership| membership.counts_like(&self.new_node()))?;
        let is_same_token = matches!(locked, Locked::Own(Some(token)) if record.header.token == Some(token));
        (is_same_token && membership.lease.is_some() && record.is_in_place(*file, start.system_identifier))
            .then_some(membership)
    }

    // ---- from the decision to the open gate ----

    fn opened(&self, cold: &ColdState, is_first: bool) -> Event {
        let (active, workers) = (self.active(), self.workers(cold));
        Event::Opened {
            timeline: cold.writer.pending.header.timeline,
            worker: workers.worker(active),
            lane: active,
            home: workers.worker(0),
            first_us: self.layout.starts_at(self.lanes[active].current_tick()),
            is_first,
        }
    }

    /// Opens the gate once the clock is near the lane's first tick, or too far from it to wait.
    fn settle(&self, cold: &mut ColdState, start: &Start) -> Result<Option<Event>, NotOpen> {
        if cold.gate == Gate::Open {
            return Ok(None);
        }
        if self.source == WorkerSource::Registry && cold.writer.pending.lease().is_none() {
            return Err(NotOpen::NoLease);
        }
        let missing_us = self.behind_us(self.active()) - self.control.live.max_ahead_us();
        let longest_us = LONGEST_WAIT_US + self.layout.tick().micros();
        if (1..=longest_us).contains(&missing_us) {
            return Err(NotOpen::Settling(missing_us));
        }
        // Marks that were raised meanwhile may be in memory only, if their write failed (guarantee 2).
        if cold.writer.failure().is_some() {
            let written = cold.writer.write(&self.platform);
            written.map_err(|errno| NotOpen::Closed(ClosedReason::Os(errno)))?;
        }
        cold.gate = Gate::Open;
        // `start` may have run in recovery, on the earlier timeline.
        cold.writer.pending.header.timeline = start.timeline;
        self.publish(cold, self.active(), cold.writer.pending.marks[self.active()]);
        Ok((self.source == WorkerSource::Registry).then(|| self.opened(cold, false)))
    }
}

/// Makes the record that a start has read durable, and the file's name, before the other slot is overwritten; `false` if
/// that fails, or if a slot cannot be read.
///
/// After a crash of the server alone, and even more after a failed fsync, a page can look written that never reached the
/// disk. So the newest slot may not be durable, and nothing shows it. Written onto itself, a durable slot stays whole
/// even in a crash, and of one that is not durable the other slot has the newest durable record until then.
fn make_durable(disk: &dyn Disk, pending: &PendingRecord, loaded: &Loaded) -> bool {
    let PendingRecord { header: Header { file, .. }, newest, .. } = *pending;
    let [Some(first), Some(second)] = &loaded.slots else { return false };
    disk.write(file, newest, [first, second][newest]).is_ok() && disk.sync_name().is_ok()
}
