//! A server while it runs: calls and what they must return, faults of its disk, what others do in the middle of a call,
//! and its contacts with the registry.

use super::runs::{Last, Lingering, Made, Server, World};
use super::scopes::{FEW_STEPS, MS, WORKERS};
use super::starts::workers_of;
use crate::simulation::disk::{Down, EIO, ENOSPC, Fault, Point, Power};
use crate::simulation::world::{LockedOut, is_locked};
use snowflake_core::{Answer, Contact, Effect, Event, Lease, Parts, Policy, Refusal};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

impl Server {
    pub fn world(&self) -> Rc<World> {
        self.world.upgrade().expect("the world stands")
    }

    pub fn log(&self, text: impl FnOnce() -> String) {
        let (name, wall) = (self.name, self.machine.wall());
        self.world()
            .log(|| format!("server {name} at {}.{:03}: {}", wall / MS % 1_000_000_000, wall % MS, text()));
    }

    /// The other directories on the same host, or those on other hosts.
    pub fn others(&self, is_same_host: bool) -> Vec<Rc<Server>> {
        let servers = self.world().servers.borrow().clone();
        let is_other = |it: &Rc<Server>| it.name != self.name && (it.host == self.host) == is_same_host;
        servers.into_iter().filter(is_other).collect()
    }

    /// Whether a process of it generates IDs, and with which workers.
    fn is_alive(&self) -> bool {
        self.machine.is_up() || self.lingering.borrow().is_some()
    }

    pub fn workers_in_use(&self) -> Vec<i64> {
        let mut workers = Vec::new();
        if self.machine.is_up() {
            workers.extend(workers_of(&self.machine.config.borrow()));
        }
        workers.extend(self.lingering.borrow().iter().flat_map(|it| workers_of(&it.config)));
        workers
    }

    /// The fault that strikes at a point of the disk's protocol.
    pub fn at(&self, point: Point) -> Fault {
        let world = self.world();
        world.counts.borrow_mut().points += 1;
        let kinds = match (world.faulty_disk, world.interrupted) {
            _ if self.is_quiet.get() => 1,
            (true, true) => 5,
            (true, false) => 4,
            (false, true) => 5,
            (false, false) => 1,
        };
        let choice = world.tape.fault(kinds);
        if choice == 0 || (!world.faulty_disk && choice != 4) {
            return Fault::None;
        }
        world.counts.borrow_mut().faults += 1;
        self.log(|| {
            format!(
                "  {} at {point:?}",
                ["", "failure", "server down", "machine down", "a call"][choice as usize]
            )
        });
        match choice {
            1 => Fault::Fail(if matches!(point, Point::Open | Point::Make) { ENOSPC } else { EIO }),
            2 => Fault::Down(Power::Server),
            3 => Fault::Down(Power::Machine),
            _ => {
                // No IDs are generated before the gate is open, or during a clean stop.
                if self.run.borrow().is_open {
                    let before = self.machine.is_locked_by_another.replace(true);
                    self.nested(|| self.call());
                    self.machine.is_locked_by_another.set(before);
                }
                Fault::None
            }
        }
    }

    /// Lets others act before or after a call of this server looks at the clock.
    pub fn meanwhile(&self, look: &dyn Fn()) {
        const KINDS: [&str; 6] =
            ["a call", "two calls", "a step back", "a rotation", "an adopt", "another lease"];
        let world = self.world();
        let kinds = if world.is_leased() { KINDS.len() } else { KINDS.len() - 1 };
        let is_free =
            world.interrupted && self.depth.get() < 2 && self.run.borrow().is_open && !self.is_quiet.get();
        let choice = if is_free { world.tape.fault(1 + 2 * kinds as u32) as usize } else { 0 };
        if choice == 0 {
            return look();
        }
        world.counts.borrow_mut().faults += 1;
        let (kind, is_after) = ((choice - 1) % kinds, choice > kinds);
        if is_after {
            look();
        }
        self.log(|| {
            format!("  {} {} a look at the clock", KINDS[kind], if is_after { "after" } else { "before" })
        });
        match kind {
            0 => self.nested(|| self.call()),
            1 => {
                self.nested(|| self.call());
                self.nested(|| self.call());
            }
            2 => {
                // With another call, which may do the rotation for the step.
                world.step(self.host, FEW_STEPS[world.tape.choose(2) as usize]);
                self.nested(|| self.call());
            }
            3 => self.nested(|| self.rotate()),
            4 => self.nested(|| self.adopt()),
            _ => self.nested(|| {
                [0, 1].iter().for_each(|home| world.registry.end(*home));
                self.meet(true);
                self.meet(true);
                let start = self.machine.start.get();
                let is_open = self.machine.with(|generator| generator.open(&start)).is_ok();
                self.run.borrow_mut().is_open = is_open;
                world.step(self.host, FEW_STEPS[1]);
                self.call();
            }),
        }
        if !is_after {
            look();
        }
    }

    /// Runs `work` in the middle of a call; gives up if it would wait for that call's lock.
    fn nested(&self, work: impl FnOnce()) {
        self.depth.set(self.depth.get() + 1);
        let reads = self.machine.last_reads.get();
        let result = catch_unwind(AssertUnwindSafe(work));
        self.machine.last_reads.set(reads);
        self.depth.set(self.depth.get() - 1);
        if let Err(payload) = result
            && !payload.is::<LockedOut>()
        {
            resume_unwind(payload);
        }
    }

    /// Just before a start locks its workers: one who has them may generate an ID and end. The run begins now.
    pub fn before_lock(&self) {
        if self.run.borrow().is_decided {
            return;
        }
        let world = self.world();
        if !world.is_leased() && !self.is_quiet.get() {
            if self.lingering.borrow().is_some() && world.tape.choose(2) == 1 {
                self.machine.pass(20 * MS);
                self.end_lingering(true);
            }
            for other in self.others(true).iter().filter(|it| it.is_alive()) {
                if world.tape.choose(2) == 1 {
                    self.machine.pass(20 * MS);
                    other.end_at_once();
                }
            }
        }
        self.begin_run();
    }

    pub fn begin_run(&self) {
        let world = self.world();
        let (wall, config) = (self.machine.wall(), *self.machine.config.borrow());
        world.runs.set(world.runs.get() + 1);
        let mut run = self.run.borrow_mut();
        (run.number, run.host, run.moment) = (world.runs.get(), self.host, world.counts.borrow().calls);
        (run.start, run.lowest, run.highest_clock) = (wall, wall, wall);
        (run.workers, run.timeline) = (workers_of(&config), self.machine.start.get().timeline);
        (run.steps_back, run.is_leased) = (0, world.is_leased());
    }

    /// The start's decision is on disk, or it has failed.
    pub fn decided(&self, is_decided: bool) {
        let found = self.machine.disk.loaded.borrow().clone().map(|(_, said)| said);
        let asked = self.machine.with(|generator| generator.asked_limits().max_ahead_us);
        let wall = self.machine.wall();
        let mut run = self.run.borrow_mut();
        if run.is_decided || !is_decided {
            return;
        }
        run.is_decided = true;
        run.max_ahead = found.as_ref().map_or(0, |found| found.max_ahead_us).max(asked);
        run.found = found;
        let same = run.found.as_ref().is_some_and(|found| {
            found.timeline == run.timeline as u64
                // A start waits for 2 s at most: a mark may be of a commit that was replayed under a later clock.
                && found.active.filter(|active| run.workers.contains(active)).is_some_and(|active| {
                    found.marks.get(&active).is_some_and(|end| end - wall <= run.max_ahead + 2_000 * MS)
                })
                && run.workers.iter().all(|worker| found.marks.contains_key(worker))
        });
        run.must_keep_lane =
            same && !self.world().is_leased() && self.steps_back.get() == 0 && !self.is_disturbed.get();
    }

    /// The last process of the run before ends.
    pub fn end_lingering(&self, with_an_id: bool) {
        if with_an_id {
            self.linger_on(|| self.call());
        }
        if self.lingering.take().is_some() {
            self.log(|| "its last process ends".to_owned());
            let lock = &self.machine.disk.host_lock;
            lock.is_own_held.set(false);
            // A server that was started without regard to it has its lock by now.
            if !self.world().forgets_lock {
                lock.release();
            }
        }
    }

    /// The process that lingers acts.
    pub fn linger_on(&self, work: impl FnOnce()) {
        let Some(mut lingering) = self.lingering.take() else { return };
        let swap = |with: &mut Lingering| {
            std::mem::swap(&mut with.memory, &mut *self.machine.memory.borrow_mut());
            std::mem::swap(&mut with.config, &mut *self.machine.config.borrow_mut());
            std::mem::swap(&mut with.run, &mut *self.run.borrow_mut());
            std::mem::swap(&mut with.events, &mut *self.machine.events.borrow_mut());
        };
        swap(&mut lingering);
        let adopted = self.adopted.replace(-1);
        self.quietly(work);
        self.adopted.set(adopted);
        swap(&mut lingering);
        *self.lingering.borrow_mut() = Some(lingering);
    }

    /// Acts while another holds the cold lock of this thread.
    fn quietly(&self, work: impl FnOnce()) {
        let (is_quiet, before) =
            (self.is_quiet.replace(true), self.machine.is_locked_by_another.replace(true));
        self.nested(work);
        self.is_quiet.set(is_quiet);
        self.machine.is_locked_by_another.set(before);
    }

    /// All processes of this server end, after one more ID.
    fn end_at_once(&self) {
        if self.run.borrow().is_open {
            self.quietly(|| self.call());
        }
        self.end_lingering(true);
        self.log(|| "ends".to_owned());
        *self.machine.memory.borrow_mut() = None;
        self.machine.disk.host_lock.release();
        self.end_run();
    }

    /// Rotates on an operator's request.
    pub fn rotate(&self) {
        self.run.borrow_mut().must_keep_lane = false;
        self.run.borrow_mut().excuses += 2;
        let result = self.machine.with(|generator| generator.rotate_now());
        self.count_rotations();
        self.log(|| format!("rotate: {result:?}"));
    }

    fn count_rotations(&self) {
        let rotated = |event: &&Event| matches!(event, Event::Rotated { .. });
        let rotations = self.machine.events.borrow().iter().filter(rotated).count();
        self.run.borrow_mut().rotations = rotations;
    }

    pub fn max_ahead(&self) -> i64 {
        self.machine.with(|generator| generator.limits().max_ahead_us)
    }

    /// Asks for one ID and checks the result.
    pub fn call(&self) {
        let world = self.world();
        world.counts.borrow_mut().calls += 1;
        let moment = world.counts.borrow().calls;
        let adopted = self.adopted.get();
        let before = self.run.borrow().last;
        // A rotation during this call may explain a lower ID.
        let mut last = {
            let run = self.run.borrow();
            Last { id: 0, rotations: run.rotations, steps_back: run.steps_back, leases: run.leases }
        };
        let ahead_before = self.max_ahead();
        self.machine.last_reads.set([i64::MIN; 2]);
        let result = self.machine.with(|generator| generator.next_id());
        let (read, max_ahead) = (self.machine.highest_read(), self.max_ahead().max(ahead_before));
        self.count_rotations();
        {
            let run = self.run.borrow();
            assert!(run.rotations as u32 <= run.steps_back + run.excuses, "one step back cost two lanes");
        }
        let id = match result {
            Ok(id) => id,
            Err(refusal) => {
                self.log(|| format!("refused: {refusal:?}"));
                assert!(
                    refusal != Refusal::GateClosed || !self.run.borrow().is_open || world.is_leased(),
                    "an open gate is closed again"
                );
                if let Refusal::NoLane(_) = refusal {
                    let run = self.run.borrow();
                    let is_first = run.last.is_none() && run.must_keep_lane && run.steps_back == 0;
                    assert!(!is_first, "no lane for the first ID after a start");
                    drop(run);
                    self.check_lanes();
                }
                return;
            }
        };
        world.counts.borrow_mut().ids += 1;
        let layout = self.machine.config.borrow().layout;
        let parts = layout.unpack(id).expect("an ID of this layout");
        self.log(|| format!("ID in tick {} of worker {}", parts.tick % 1_000_000_000, parts.worker));
        self.check_unique(id, &parts, moment, read);
        if world.is_leased() {
            let home = parts.worker % (WORKERS / (self.backups.get() as i64 + 1));
            let allows =
                |lease: &Lease| lease.home == home && lease.floor < parts.tick && parts.tick <= lease.until;
            assert!(world.grants.borrow().iter().any(allows), "no lease: {parts:?}");
        }
        let has_file = self.machine.disk.identity().is_some();
        if has_file && !(self.is_quiet.get() && self.is_replaced.get()) {
            let mut highest = world.highest.borrow_mut();
            let highest = highest.entry((parts.worker, self.name)).or_insert(-1);
            *highest = parts.tick.max(*highest);
            if let Some(mark) = self.machine.disk.lowest_mark(parts.worker) {
                assert!(
                    parts.tick <= mark,
                    "guarantee 2: tick {} is above the durable mark {mark}",
                    parts.tick
                );
            }
        }
        let mut run = self.run.borrow_mut();
        if let Some(found) = &run.found {
            let mark = match found.marks.contains_key(&parts.worker) {
                true => found.mark(parts.worker),
                // The floor of a lease replaces that of the record.
                false if world.is_leased() => -1,
                false => found.mark(parts.worker),
            };
            assert!(parts.tick > mark, "guarantee 3: {parts:?} after {found:?}");
            if run.last.is_none() && run.must_keep_lane && run.steps_back == 0 {
                assert_eq!(Some(parts.worker), found.active, "a crash used up a lane");
            }
        }
        assert!(parts.tick * MS <= read + max_ahead, "guarantee 4: {} us ahead", parts.tick * MS - read);
        assert!(parts.tick > adopted, "{parts:?} is below the floor of an adopt that had returned");
        if let Some(last) = before
            && (last.rotations, last.leases) == (run.rotations, run.leases)
            && (self.machine.config.borrow().limits.policy == Policy::Hold
                || last.steps_back == run.steps_back)
        {
            assert!(id > last.id, "guarantee 5: {parts:?} after {:?}", layout.unpack(last.id));
        }
        if run.last.is_none() {
            self.steps_back.set(run.steps_back);
            self.is_disturbed.set(false);
        }
        last.id = id;
        if run.last.is_none_or(|known| {
            let is_other = (known.rotations, known.leases) != (last.rotations, last.leases);
            is_other || known.steps_back != last.steps_back || known.id < id
        }) {
            run.last = Some(last);
        }
        run.highest = run.highest.max(parts.tick * MS);
        run.highest_clock = run.highest_clock.max(read);
        self.committed.set(Some(self.machine.wall()));
    }

    /// The oracle: an ID that was generated before.
    fn check_unique(&self, id: i64, parts: &Parts, moment: u64, clock: i64) {
        let world = self.world();
        let run = self.run.borrow();
        let mut history = world.history.borrow_mut();
        let mut made = Made { run: run.number, host: self.host, moment, clock };
        if let Some(earlier) = history.get(&id) {
            assert_ne!(earlier.run, run.number, "guarantee 1: {parts:?} twice in one run");
            assert!(
                run.may_repeat(parts, earlier) && (!world.is_leased() || earlier.host == self.host),
                "server {} repeats {parts:?} of clock {}: {earlier:?}; started at {}, lowest {}, floored {}, found {:?}",
                self.name,
                earlier.clock % 1_000_000_000_000,
                run.start % 1_000_000_000_000,
                run.lowest % 1_000_000_000_000,
                run.is_floored(parts.worker),
                run.found
            );
            self.log(|| "which is excused".to_owned());
            world.counts.borrow_mut().excused += 1;
            made.clock = made.clock.min(earlier.clock);
        }
        history.insert(id, made);
    }

    /// A call was refused because no lane can be used: so it is for those that the run has not entered, by the marks on
    /// disk and rules 2 and 3.
    fn check_lanes(&self) {
        let world = self.world();
        if world.faulty_disk || world.interrupted || world.is_leased() || self.is_quiet.get() {
            return;
        }
        let run = self.run.borrow();
        let mut entered = vec![run.first_worker];
        entered.extend(self.machine.events.borrow().iter().filter_map(|event| match event {
            Event::Rotated { to, .. } => Some(*to),
            _ => None,
        }));
        let now = self.machine.wall();
        let Some(said) = self.machine.disk.said() else { return };
        let latest = (now + self.max_ahead()) / MS;
        for worker in run.workers.iter().filter(|worker| !entered.contains(worker)) {
            let above = if now >= run.start { (run.start + run.max_ahead) / MS } else { -1 };
            let first = 1 + above.max(said.mark(*worker));
            assert!(first > latest, "worker {worker} can be used from {first} on, and it is {latest}");
        }
    }

    pub fn adopt(&self) {
        let world = self.world();
        let floor_us = self.machine.wall() + [-5 * MS, 0, 20 * MS][world.tape.choose(3) as usize];
        let start = self.machine.start.get();
        let result = self.machine.with(|generator| generator.adopt(&start, floor_us));
        self.log(|| format!("adopt: {result:?}"));
        self.is_disturbed.set(true);
        self.run.borrow_mut().excuses += 1;
        self.run.borrow_mut().must_keep_lane = false;
        if result.is_ok() {
            let config = *self.machine.config.borrow();
            let floor = config.layout.tick_at(floor_us + self.max_ahead());
            self.adopted.set(self.adopted.get().max(floor));
        }
    }

    /// Speaks to the registry. The answer arrives, or is kept for later.
    pub fn meet(&self, arrives: bool) {
        let world = self.world();
        let contact = match self.machine.with(|generator| generator.contact()) {
            Ok(Some(contact)) => contact,
            Ok(None) => {
                let start = self.machine.start.get();
                let enlisted = self.machine.with(|generator| generator.load_node(&start));
                self.decided(enlisted.is_ok());
                return self.log(|| format!("enlists: {enlisted:?}"));
            }
            Err(errno) => return self.log(|| format!("no contact: errno {errno}")),
        };
        let answer = world.registry.answer(&contact, self.machine.wall());
        if let Answer::Granted { lease, .. } = answer {
            world.grants.borrow_mut().push(lease);
        }
        if arrives {
            self.hear(&contact, answer);
        } else {
            self.log(|| "the answer is late".to_owned());
            self.late.set(Some((contact, answer)));
        }
    }

    pub fn hear(&self, contact: &Contact, answer: Answer) {
        let before = self.machine.with(|generator| generator.lease());
        let result = self.machine.with(|generator| generator.answered(contact, answer));
        self.log(|| format!("{answer:?}: {result:?}"));
        let after = self.machine.with(|generator| generator.lease());
        match (result, answer) {
            (Ok(Effect::Renewed | Effect::Leased), Answer::Granted { lease, .. }) => {
                assert_eq!(after.map(|it| (it.home, it.floor)), Some((lease.home, lease.floor)));
            }
            (Ok(Effect::Lost), _) => assert_eq!(after, None),
            _ => assert_eq!(after, before, "an answer that changes nothing"),
        }
        if !matches!(result, Ok(Effect::Ignored | Effect::Unchanged | Effect::Renewed)) {
            let mut run = self.run.borrow_mut();
            run.is_open &= self.machine.with(|generator| generator.is_open());
            run.leases += 1;
            run.excuses += 2;
        }
    }

    /// Runs `work` until it ends; if the server goes down during it, starts the server again.
    pub fn live(&self, work: impl FnOnce()) {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(()) => {}
            Err(payload) => match payload.downcast::<Down>() {
                Ok(down) => {
                    self.depth.set(0);
                    self.machine.is_locked_by_another.set(false);
                    self.down(down.0);
                }
                Err(other) => resume_unwind(other),
            },
        }
        assert!(!is_locked(), "the lock was left locked");
    }
}
