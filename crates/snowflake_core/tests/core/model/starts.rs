//! How a server's runs end and begin: crashes, stops, starts, processes that live on, and states that are replaced.

use super::runs::{Lingering, Run, Server, Snapshot};
use super::scopes::{LONGEST_WAIT, MS, SECOND, settings};
use crate::simulation::disk::Power;
use crate::simulation::world::SYSTEM;
use snowflake_core::platform::SLOT_BYTES;
use snowflake_core::{AdoptError, ClosedReason, Config, Event, NotOpen, Start};

impl Server {
    pub fn down(&self, power: Power) {
        self.log(|| format!("{power:?} down"));
        self.machine.go_down();
        self.end_run();
        if power == Power::Machine {
            for other in self.others(true) {
                other.machine.go_down();
                other.end_run();
                other.end_lingering(false);
                other.machine.disk.lose_power();
            }
            self.end_lingering(false);
            self.machine.disk.lose_power();
        }
    }

    pub fn end_run(&self) {
        // Each start ends with a durable slot, which no write overwrites before another is durable.
        let was_open = self.run.take().is_open;
        self.is_damaged.set(self.is_damaged.get() && !was_open);
        self.late.set(None);
        // A start after a crash makes no timeline.
        let start = self.machine.start.get();
        self.machine.start.set(Start { made_timeline: false, replayed_us: None, ..start });
    }

    /// The server crashes, but for one process.
    pub fn linger(&self) {
        self.end_lingering(false);
        self.log(|| "down but for one process".to_owned());
        self.is_replaced.set(false);
        *self.lingering.borrow_mut() = Some(Lingering {
            memory: self.machine.memory.take(),
            config: *self.machine.config.borrow(),
            run: self.run.take(),
            events: self.machine.events.take(),
        });
        match self.world().forgets_lock {
            true => self.machine.disk.host_lock.release(),
            false => self.machine.disk.host_lock.is_own_held.set(true),
        }
        self.end_run();
    }

    /// An operator ends what uses this server's workers on another host.
    pub fn make_way(&self) {
        let workers = workers_of(&self.next_config());
        for other in self.others(false) {
            if !self.world().is_leased() && other.workers_in_use().iter().any(|it| workers.contains(it)) {
                if other.machine.is_up() {
                    other.down(Power::Server);
                }
                other.end_lingering(false);
            }
        }
    }

    fn next_config(&self) -> Config {
        settings(self.home.get(), self.backups.get(), self.limits.get(), self.world().source)
    }

    /// A start, up to the open gate or the reason why it stays closed.
    pub fn start(&self) {
        if self.run.borrow().is_open {
            return;
        }
        self.make_way();
        for attempt in 0..200 {
            if self.run.borrow().is_open {
                return;
            }
            if !self.machine.is_up() {
                self.boot_up();
            }
            self.live(|| self.try_to_open());
            assert!(attempt < 150, "the gate never opens");
        }
    }

    /// Whether rule 6 must close the gate: somebody put the file here, and it has a worker of this server.
    fn is_copy(&self, start: &Start) -> bool {
        let workers = workers_of(&self.machine.config.borrow());
        let loaded = self.machine.disk.loaded.borrow();
        let is_copied = loaded.as_ref().is_some_and(|(file, said)| {
            said.file != *file && workers.iter().any(|worker| said.marks.contains_key(worker))
        });
        is_copied && !start.made_timeline && !self.world().is_leased()
    }

    pub fn try_to_open(&self) {
        let start = self.machine.start.get();
        let was_decided = self.run.borrow().is_decided;
        let signed = [0, 1].map(|home| self.machine.disk.host_lock.signed(SYSTEM, home));
        let result = self.machine.with(|generator| generator.open(&start));
        let is_decided =
            matches!(result, Ok(()) | Err(NotOpen::Settling(_) | NotOpen::NoLease)) || was_decided;
        assert!(was_decided || !is_decided || !self.is_copy(&start), "a copy opens");
        // However many writes fail, one slot stays whole.
        let is_unreadable = self.machine.events.borrow().contains(&Event::Unreadable);
        assert!(!is_unreadable || self.is_damaged.get(), "no slot can be read");
        if let Some(lease) =
            self.machine.with(|generator| generator.lease()).filter(|_| is_decided && !was_decided)
        {
            let loaded = self.machine.disk.loaded.borrow();
            let (file, said) = loaded.as_ref().expect("a lease is in a record");
            let is_only =
                said.file == *file && said.token.is_some() && said.token == signed[lease.home as usize];
            assert!(is_only, "a lease goes on without the host's token");
        }
        self.decided(is_decided);
        match result {
            Ok(()) => {
                self.log(|| "open".to_owned());
                let worker = self.machine.with(|generator| generator.status().worker);
                self.run.borrow_mut().first_worker = worker;
                self.run.borrow_mut().is_open = true;
                let snapshot = self.machine.disk.slots().zip(self.machine.disk.identity());
                let mut snapshots = self.snapshots.borrow_mut();
                snapshots.truncate(2);
                snapshots.extend(snapshot);
            }
            Err(NotOpen::Settling(micros)) => {
                assert!((1..=LONGEST_WAIT).contains(&micros), "it settles for {micros} us");
                self.log(|| format!("settles for {micros} us"));
                self.waited.set(self.waited.get() + micros);
                self.machine.pass(micros);
            }
            Err(NotOpen::NoLease) => {
                self.machine.pass(self.world().registry.free_in(self.machine.wall()));
                self.meet(true);
            }
            Err(NotOpen::Closed(ClosedReason::Os(errno))) => {
                self.log(|| format!("closed by errno {errno}"));
                self.machine.pass(SECOND);
            }
            Err(NotOpen::Closed(ClosedReason::Copied)) => {
                assert!(self.is_copy(&start), "what is no copy is closed as one");
                self.log(|| "a copy".to_owned());
                self.adopt_copy();
            }
            Err(NotOpen::Closed(ClosedReason::Taken)) => self.wait_for_others(),
            Err(why) => panic!("not open: {why:?}"),
        }
    }

    fn adopt_copy(&self) {
        let floor_us = self.machine.wall() + [-5 * MS, 20 * MS][self.world().tape.choose(2) as usize];
        let start = self.machine.start.get();
        let result = self.machine.with(|generator| generator.adopt(&start, floor_us));
        self.log(|| format!("adopt: {result:?}"));
        self.is_disturbed.set(true);
        if result.is_ok() {
            self.run.borrow_mut().is_adopted = true;
            self.decided(true);
            let floor = self.machine.config.borrow().layout.tick_at(floor_us + self.max_ahead());
            self.adopted.set(self.adopted.get().max(floor));
        }
    }

    /// Another process on this host has one of the workers.
    fn wait_for_others(&self) {
        self.log(|| "taken".to_owned());
        let workers = workers_of(&self.machine.config.borrow());
        let has_any = |it: &Server| {
            self.world().is_leased() || it.workers_in_use().iter().any(|worker| workers.contains(worker))
        };
        let holders: Vec<_> = self.others(true).into_iter().filter(|it| has_any(it)).collect();
        let is_own = self.lingering.borrow().is_some();
        assert!(self.world().is_leased() || is_own || !holders.is_empty(), "nobody has the workers");
        let start = self.machine.start.get();
        let taken = NotOpen::Closed(ClosedReason::Taken);
        if !self.world().is_leased() {
            let is_quiet = self.is_quiet.replace(true);
            let adopted = self.machine.with(|generator| generator.adopt(&start, self.machine.wall()));
            self.is_quiet.set(is_quiet);
            assert_eq!(adopted, Err(AdoptError::NotOpen(taken)), "adopt went past a lock");
        }
        let with_an_id = self.world().tape.choose(2) == 1;
        self.end_lingering(with_an_id);
        for holder in &holders {
            holder.end_lingering(with_an_id);
            if holder.machine.is_up() {
                holder.down(Power::Server);
            }
        }
        if self.world().is_leased() {
            return self.down(Power::Server);
        }
        if !holders.is_empty() && !start.made_timeline {
            let again = self.machine.with(|generator| generator.open(&start));
            assert_eq!(again, Err(taken), "a clone takes its original's place");
            self.down(Power::Server);
        }
    }

    pub fn boot_up(&self) {
        let world = self.world();
        world.counts.borrow_mut().starts += 1;
        let config = self.next_config();
        let is_other = |it: &Lingering| workers_of(&it.config) != workers_of(&config);
        if self.lingering.borrow().as_ref().is_some_and(is_other) {
            // PostgreSQL starts no second server in one directory, whatever its workers.
            self.end_lingering(false);
        }
        *self.machine.config.borrow_mut() = config;
        self.machine.boot_up();
        // A file that was deleted while the server ran, and made again without a durable name, may be gone.
        if self.machine.disk.identity().is_none() {
            self.world().highest.borrow_mut().retain(|(_, name), _| *name != self.name);
        }
        // The restored mark may be far ahead of the clock.
        *self.run.borrow_mut() = Run { excuses: 1, ..Run::default() };
        self.begin_run();
        self.log(|| {
            format!(
                "start on timeline {}, home {}, backups {}, max_ahead {} us",
                self.machine.start.get().timeline,
                self.home.get(),
                self.backups.get(),
                self.limits.get().max_ahead_us
            )
        });
    }

    pub fn restart(&self, is_clean: bool) {
        if is_clean {
            self.run.borrow_mut().is_open = false;
            self.live(|| {
                let result = self.machine.with(|generator| generator.write_exact_marks());
                self.log(|| format!("exact marks: {result:?}"));
            });
        }
        if self.machine.is_up() {
            self.down(Power::Server);
        }
    }

    pub fn train(&self) {
        self.world().clocks.borrow_mut().push(self.machine.wall());
        for calls in [4, 4, 6] {
            self.machine.pass(5 * MS);
            (0..calls).for_each(|_| self.call());
        }
    }

    /// Puts a state into this directory, whose server is down.
    pub fn replace(&self, state: Option<Snapshot>, in_place: bool) {
        let disk = &self.machine.disk;
        match state {
            Some((slots, identity)) if in_place => disk.put_as(slots, identity),
            Some((slots, _)) => drop(disk.put(slots)),
            None => disk.delete(),
        }
        self.is_replaced.set(true);
        self.is_disturbed.set(true);
        self.adopted.set(-1);
        self.world().highest.borrow_mut().retain(|(_, name), _| *name != self.name);
    }

    /// Damages the slot of the newest record: it has other bytes, or none can be read.
    pub fn damage(&self) {
        let Some((mut slots, identity)) = self.state() else { return };
        let Some(slot) = self.machine.disk.newest_slot() else { return };
        let is_readable = self.world().tape.choose(2) == 0;
        self.log(|| format!("slot {slot} is damaged, readable: {is_readable}"));
        slots[slot] = if is_readable { vec![0; SLOT_BYTES] } else { Vec::new() };
        self.replace(Some((slots, identity)), true);
        self.is_damaged.set(true);
    }

    pub fn state(&self) -> Option<Snapshot> {
        self.machine.disk.slots().zip(self.machine.disk.identity())
    }
}

/// The workers of a server with this configuration.
pub fn workers_of(config: &Config) -> Vec<i64> {
    (0..config.workers.lanes()).map(|lane| config.workers.worker(lane)).collect()
}
