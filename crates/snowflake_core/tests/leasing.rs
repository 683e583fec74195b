//! Leases: a registry says which workers a server has, and how long.

#[path = "model/mod.rs"]
mod model;

use model::disk::{EIO, Fault};
use model::server::{HOUR, MINUTE, MS, SECOND, Server};
use model::world::{Machine, SYSTEM, config};
use snowflake_core::host::{Claim, FileIdentity, SLOT_BYTES};
use snowflake_core::{Answer, Answered, Config, Contact, Lease, Limits, Parts, Policy, Refusal, Tick};
use snowflake_core::{ClosedReason, Start, Unopened, WorkerSource};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

const BITS: &str = "41/10/12";
const BACKUPS: usize = 3;
const GRANT: i64 = HOUR;
/// By how much clocks may differ at a failover of the registry: its `clock_tolerance`.
const TOLERANCE: i64 = MINUTE;

fn fleet(limits: Limits) -> Config {
    let source = WorkerSource::Registry;
    Config { source, ..config(BITS, Tick::Millisecond, 0, BACKUPS, 16_384, limits) }
}

fn member() -> Rc<Machine> {
    Machine::alone(fleet(Limits::default()))
}

/// With a configured number, which the registry has to confirm.
fn confirmed(home: i64) -> Config {
    let source = WorkerSource::Confirmed;
    Config { source, ..config(BITS, Tick::Millisecond, home, BACKUPS, 16_384, Limits::default()) }
}

/// A standby, from a base backup of its primary.
fn standby_of(primary: &Machine, config: Config) -> Machine {
    let disk = primary.disk.copy(&Rc::new(model::tape::Tape::given(Vec::new(), 0)), 900);
    let standby = Machine::new(config, &primary.boot, disk);
    standby.offset.set(primary.offset.get());
    standby.start.set(Start { was_in_recovery: true, ..primary.start.get() });
    standby.boot_up();
    standby
}

/// A registry that hands out groups by the rules.
struct Registry {
    id: Uuid,
    /// Each group's node, number, nonce and lease.
    groups: RefCell<BTreeMap<i64, (Contact, Lease)>>,
    /// How many groups there are.
    homes: Cell<i64>,
    /// Its clock, as a boot clock and what to add to it; that of its contacts, if it has none.
    clock: RefCell<Option<(Rc<Cell<i64>>, i64)>>,
    /// How far its clock is ahead.
    offset: Cell<i64>,
    is_away: Cell<bool>,
    /// It has failed over, and no clock has yet confirmed its own.
    is_unsure: Cell<bool>,
    /// Nothing is leased before this tick has passed; and what it was before the last doubt.
    fence: Cell<[i64; 2]>,
}

impl Registry {
    fn new() -> Self {
        Self {
            id: Uuid::from_u128(77),
            groups: RefCell::default(),
            homes: Cell::new(256),
            clock: RefCell::default(),
            offset: Cell::default(),
            is_away: Cell::default(),
            is_unsure: Cell::default(),
            fence: Cell::new([-1; 2]),
        }
    }

    /// Another server is the registry now. It has no commit from these groups' last contacts.
    fn fail_over(&self, lost: &[i64]) {
        self.groups.borrow_mut().retain(|home, _| !lost.contains(home));
        self.is_unsure.set(true);
    }

    /// An operator knows that nothing was lost.
    fn vouch(&self) {
        self.fence.set([self.fence.get()[1]; 2]);
        self.is_unsure.set(false);
    }

    /// The first contact after a failover: leases that have ended by then cannot be told from lost ones.
    fn discover(&self, groups: &mut BTreeMap<i64, (Contact, Lease)>, latest: i64) {
        let ended = latest + TOLERANCE / MS;
        groups.values_mut().filter(|(_, l)| l.until < ended).for_each(|(last, _)| last.node = Uuid::nil());
        let [before, _] = self.fence.get();
        self.fence.set([before.max(ended + GRANT / MS), before]);
        self.is_unsure.set(false);
    }

    fn answer(&self, contact: &Contact) -> Answer {
        self.answer_to(contact, None)
    }

    /// The answer to a node with this number, if it has one.
    fn answer_to(&self, contact: &Contact, wanted: Option<i64>) -> Answer {
        let mut groups = self.groups.borrow_mut();
        let own = self.clock.borrow().as_ref().map_or(contact.clock_us, |(boot, ahead)| boot.get() + ahead);
        let clocks = [contact.clock_us / MS, (own + self.offset.get()) / MS];
        let (now, latest) = (clocks[0].min(clocks[1]), clocks[0].max(clocks[1]));
        if clocks[0] - clocks[1] > GRANT / MS || self.is_unsure.get() && latest - now > TOLERANCE / MS {
            return Answer::Refused;
        }
        if self.is_unsure.get() {
            self.discover(&mut groups, latest);
        }
        let [fence, _] = self.fence.get();
        let until = now + GRANT / MS;
        let is_running = |home: i64| groups.get(&home).is_some_and(|(last, _)| !last.node.is_nil());
        if let Some(lease) = contact.lease
            && fence >= now
            && !is_running(lease.home)
            && (fence - GRANT / MS..=fence).contains(&lease.until)
        {
            groups.insert(lease.home, (*contact, lease));
        }
        if let Some((last, lease)) = groups.values_mut().find(|(last, _)| last.node == contact.node) {
            let is_repeated = last.number == contact.number && last.nonce == contact.nonce;
            if contact.number <= last.number && !is_repeated {
                return Answer::Over;
            }
            lease.until = lease.until.max(until).max(contact.lease.map_or(-1, |shown| shown.until));
            *last = *contact;
            return Answer::Granted { registry: self.id, lease: *lease };
        }
        if contact.lease.is_some() {
            return Answer::Over;
        }
        let is_free = |home: &i64| fence < now && groups.get(home).is_none_or(|(_, lease)| lease.until < now);
        let homes = wanted.map_or(0..self.homes.get(), |home| home..home + 1);
        let Some(home) = { homes }.find(is_free) else { return Answer::Refused };
        let floor = groups.get(&home).map_or(-1, |(_, lease)| lease.until).max(fence);
        let lease = Lease { home, floor, until };
        groups.insert(home, (*contact, lease));
        Answer::Granted { registry: self.id, lease }
    }

    /// Somebody else speaks for the node that has this group, or an operator retires it.
    fn end(&self, home: i64) {
        let mut groups = self.groups.borrow_mut();
        let (last, _) = groups.get_mut(&home).unwrap();
        last.node = Uuid::nil();
    }
}

/// A server that speaks to a registry.
trait Member: Server {
    fn enlist(&self) {
        let start = self.machine().start.get();
        self.machine().with(|generator| generator.enlist(&start)).expect("enlisted");
    }

    fn contact(&self) -> Contact {
        self.machine().with(|generator| generator.contact()).expect("durable").expect("enlisted")
    }

    fn answered(&self, contact: &Contact, answer: Answer) -> Answered {
        self.machine().with(|generator| generator.answered(contact, answer)).expect("durable")
    }

    /// Finds out, as a standby, which node it is.
    fn hold(&self) {
        let start = self.machine().start.get();
        self.machine().with(|generator| generator.hold(&start)).expect("a node");
    }

    /// A standby becomes a primary, without a restart.
    fn promote(&self, timeline: u32) -> i64 {
        self.set_start(|start| start.timeline = timeline);
        self.settle()
    }

    /// Contacts the registry, and once more if the lease was over.
    fn meet(&self, registry: &Registry) -> Answered {
        let contact = self.contact();
        let config = *self.machine().config.borrow();
        let wanted = (config.source == WorkerSource::Confirmed).then(|| config.workers.worker(0));
        match self.answered(&contact, registry.answer_to(&contact, wanted)) {
            Answered::Lost => self.meet(registry),
            otherwise => otherwise,
        }
    }

    /// Starts and gets a lease.
    fn join(&self, registry: &Registry) -> Lease {
        self.machine().boot_up();
        self.enlist();
        self.meet(registry);
        self.settle();
        self.lease().expect("a lease")
    }

    fn lease(&self) -> Option<Lease> {
        self.machine().with(|generator| generator.lease())
    }

    /// The server's memory is lost, but not its host's.
    fn crash(&self) {
        self.machine().go_down();
        self.machine().boot_up();
    }

    fn reboot(&self) {
        self.machine().disk.witness.forget();
        self.crash();
    }

    fn home(&self, parts: Parts) -> i64 {
        parts.worker % 256
    }
}

impl Member for Machine {}

#[test]
fn only_ids_of_the_lease_are_a_servers_own() {
    let (machine, registry) = (member(), Registry::new());
    let is_own = |worker: i64, tick: i64, datacenter: i64| {
        let parts = Parts { tick, datacenter, worker, sequence: 7 };
        machine.with(|generator| generator.is_own(&parts))
    };
    machine.boot_up();
    machine.enlist();
    assert!(!is_own(0, machine.wall() / MS, 0), "it has no worker");
    machine.join(&registry);
    registry.end(0);
    assert_eq!(machine.meet(&registry), Answered::Leased);
    let lease = machine.lease().expect("another");
    assert_eq!(lease.home, 1);
    // Of the first lease, and of other servers.
    assert_eq!([0, 2, 255, 256, 1_023].map(|worker| is_own(worker, machine.wall() / MS, 0)), [false; 5]);
    // Of each lane, within the lease.
    assert_eq!([1, 257, 513, 769].map(|worker| is_own(worker, machine.wall() / MS, 0)), [true; 4]);
    for (tick, own) in
        [(lease.floor, false), (lease.floor + 1, true), (lease.until, true), (lease.until + 1, false)]
    {
        assert_eq!(is_own(1, tick, 0), own, "{tick} of {lease:?}");
    }
    assert!(!is_own(1, machine.wall() / MS, 1), "of another datacenter");
}

#[test]
fn with_a_configured_worker_every_id_of_its_lanes_is_a_servers_own() {
    let machine = Machine::alone(config(BITS, Tick::Millisecond, 7, BACKUPS, 16_384, Limits::default()));
    let is_own = |worker: i64| {
        [0, i64::MAX >> 22].map(|tick| {
            let parts = Parts { tick, datacenter: 0, worker, sequence: 0 };
            machine.with(|generator| generator.is_own(&parts))
        })
    };
    machine.boot_up();
    assert_eq!([7, 263, 519, 775].map(is_own), [[true; 2]; 4]);
    assert_eq!([0, 6, 8, 264, 1_023].map(is_own), [[false; 2]; 5]);
}

#[test]
fn a_node_generates_nothing_before_it_has_a_lease_and_then_with_the_leased_worker() {
    let (machine, registry) = (member(), Registry::new());
    machine.boot_up();
    assert_eq!(machine.open(), Err(Unopened::NoLease));
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    assert_eq!(machine.meet(&registry), Answered::Leased);
    assert_eq!(machine.settle(), 0, "a lease's floor has passed: nothing waits");
    let id = machine.id();
    assert_eq!((id.worker, id.tick), (0, machine.wall() / MS));

    let second = member();
    second.join(&registry);
    assert_eq!(second.id().worker, 1);
}

#[test]
fn no_id_lies_above_the_end_of_the_lease_and_a_renewal_opens_it_without_a_restart() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    machine.id();
    machine.pass(GRANT - 10 * MS);
    let mut last = machine.id();
    while let Ok(id) = machine.try_id() {
        assert!(id.tick <= lease.until, "{id:?}");
        last = id;
        machine.pass(MS / 2);
    }
    assert_eq!(last.tick, lease.until, "the whole lease was used");
    assert_eq!(machine.try_id(), Err(Refusal::LeaseEnded));
    assert_eq!(machine.with(|generator| generator.obstacle()), Some(Refusal::LeaseEnded));
    machine.keep();
    assert!(machine.mark(0) <= lease.until, "no mark is promised above the lease");
    assert_eq!(machine.with(|generator| generator.rotate_now()), Err(Refusal::LeaseEnded));
    assert_eq!(machine.meet(&registry), Answered::Renewed);
    assert_eq!(machine.id().worker, last.worker);
}

#[test]
fn the_keeper_writes_nothing_for_a_reservation_that_has_reached_the_end_of_the_lease() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    machine.pass(GRANT - 100 * MS);
    machine.id();
    machine.keep();
    let writes = machine.disk.writes.get();
    machine.id();
    machine.keep();
    assert_eq!(machine.disk.writes.get(), writes);
}

#[test]
fn a_crash_and_a_clean_stop_keep_the_lease_without_the_registry() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    let before = machine.id();
    machine.crash();
    machine.settle();
    assert_eq!(machine.lease(), Some(lease));
    let between = machine.id();
    assert!(between.tick > before.tick && between.worker == before.worker);
    machine.stop();
    machine.boot_up();
    machine.settle();
    assert_eq!(machine.id().worker, before.worker);
}

#[test]
fn a_reboot_is_a_new_life_and_leaves_its_group_behind() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    let node = machine.contact().node;
    machine.reboot();
    assert_eq!(machine.open(), Err(Unopened::NoLease));
    let contact = machine.contact();
    assert!(contact.node != node && contact.lease.is_none() && contact.registry.is_none());
    machine.meet(&registry);
    machine.settle();
    assert_ne!(machine.home(machine.id()), lease.home);
}

#[test]
fn an_operator_can_vouch_for_the_earlier_life_of_a_rebooted_node() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    let before = machine.id();
    machine.reboot();
    machine.reboot();
    assert_eq!(machine.open(), Err(Unopened::NoLease));
    machine.adopt(machine.wall()).unwrap();
    machine.settle();
    assert_eq!(machine.lease(), Some(lease));
    let after = machine.id();
    assert!(after.worker == before.worker && after.tick > before.tick);
    assert_eq!(machine.meet(&registry), Answered::Renewed);
}

#[test]
fn nobody_can_vouch_for_a_copys_lease() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    let disk = machine.disk.copy(&Rc::new(model::tape::Tape::given(Vec::new(), 0)), 900);
    let copy = Machine::new(fleet(Limits::default()), &machine.boot, disk);
    copy.boot_up();
    assert_eq!(copy.open(), Err(Unopened::NoLease));
    copy.adopt(copy.wall()).unwrap();
    assert_eq!(copy.open(), Err(Unopened::NoLease));
}

#[test]
fn a_copy_is_another_node_whether_its_original_runs_or_not() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    machine.id();
    let disk = machine.disk.copy(&Rc::new(model::tape::Tape::given(Vec::new(), 0)), 900);
    let copy = Machine::new(fleet(Limits::default()), &machine.boot, disk);
    copy.join(&registry);
    assert_ne!(machine.id().worker, copy.id().worker);
    assert_ne!(machine.contact().node, copy.contact().node);
}

/// Boot, device, inode and time of birth are the same; only the witness knows that a later record was written.
#[test]
fn a_volume_that_was_rolled_back_is_a_new_life() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    let (slots, identity) = (machine.disk.slots().unwrap(), machine.disk.identity().unwrap());
    machine.pass(SECOND);
    machine.id();
    machine.keep();
    machine.go_down();
    machine.disk.put_as(slots, identity);
    machine.boot_up();
    assert_eq!(machine.open(), Err(Unopened::NoLease));
}

#[test]
fn a_server_killed_between_any_two_steps_of_a_write_keeps_its_lease() {
    use model::disk::{Down, Point, Power};
    let points =
        [Point::Open, Point::Write(0), Point::Write(1), Point::Sync(0), Point::Sync(1), Point::Synced(0)];
    for point in points {
        let (machine, registry) = (member(), Registry::new());
        let lease = machine.join(&registry);
        machine.id();
        machine.pass(SECOND);
        machine.disk.set_faults(move |at| if at == point { Fault::Down(Power::Server) } else { Fault::None });
        let machine_again = machine.clone();
        let down = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| machine_again.id()));
        assert!(down.unwrap_err().is::<Down>(), "{point:?} is not reached");
        machine.disk.heal();
        machine.crash();
        machine.settle();
        assert_eq!(machine.lease(), Some(lease), "{point:?}");
    }
}

#[test]
fn a_lease_that_is_over_closes_the_gate_and_the_next_one_opens_it_without_a_restart() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    let before = machine.id();
    registry.end(0);
    let contact = machine.contact();
    assert_eq!(machine.answered(&contact, registry.answer(&contact)), Answered::Lost);
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    assert_eq!(machine.open(), Err(Unopened::NoLease));
    assert_ne!(machine.contact().node, contact.node);
    machine.meet(&registry);
    machine.settle();
    let after = machine.id();
    assert_eq!(machine.home(after), 1);
    assert!(after.tick >= before.tick);
}

/// Not only the active lane: the next lease begins on the first, whose permit is of the lease that is over.
#[test]
fn a_lease_that_is_over_closes_all_lanes() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    machine.id();
    machine.with(|generator| generator.rotate_now()).unwrap();
    machine.id();
    registry.end(0);
    assert_eq!(machine.meet(&registry), Answered::Leased);
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    machine.settle();
    assert_eq!(machine.id().worker, 1);
}

/// Also while the disk fails: whatever was written, no call gets an ID of the lease that is over, and the answer counts
/// once it can be written.
#[test]
fn a_lease_that_begins_or_resumes_on_a_failing_disk_begins_once_it_is_durable() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    let before = machine.id();
    machine.reboot();
    machine.enlist();
    machine.disk.set_faults(|_| Fault::Fail(EIO));
    machine.adopt(machine.wall()).unwrap_err();
    assert_eq!((machine.lease(), machine.open()), (None, Err(Unopened::NoLease)));
    machine.disk.heal();
    let contact = machine.contact();
    let answer = registry.answer(&contact);
    machine.disk.set_faults(|_| Fault::Fail(EIO));
    assert_eq!(machine.with(|generator| generator.answered(&contact, answer)), Err(EIO));
    assert_eq!((machine.lease(), machine.open()), (None, Err(Unopened::NoLease)));
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    machine.disk.heal();
    assert_eq!(machine.answered(&contact, answer), Answered::Leased);
    machine.settle();
    assert!(machine.home(machine.id()) != lease.home && machine.home(before) == lease.home);
    // A lease that is over is over, whether that can be written or not.
    registry.end(1);
    let contact = machine.contact();
    let answer = registry.answer(&contact);
    machine.disk.set_faults(|_| Fault::Fail(EIO));
    assert_eq!(machine.answered(&contact, answer), Answered::Lost);
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
}

/// The lease of the number before does not say that nobody else has the new one.
#[test]
fn a_confirmed_number_that_is_changed_needs_the_registrys_word_again() {
    let confirmed = |home| {
        let source = WorkerSource::Confirmed;
        Config { source, ..config(BITS, Tick::Millisecond, home, BACKUPS, 16_384, Limits::default()) }
    };
    let machine = Machine::alone(confirmed(5));
    machine.boot_up();
    machine.enlist();
    let until = machine.wall() / MS + GRANT / MS;
    let grant =
        |home| Answer::Granted { registry: Uuid::from_u128(77), lease: Lease { home, floor: -1, until } };
    let first = machine.contact();
    assert_eq!(machine.answered(&first, grant(5)), Answered::Leased);
    machine.settle();
    machine.id();
    machine.set_config(confirmed(6));
    machine.crash();
    assert_eq!(machine.open(), Err(Unopened::NoLease));
    let second = machine.contact();
    assert!(second.node != first.node && second.lease.is_none());
    assert_eq!(machine.answered(&second, grant(6)), Answered::Leased);
    machine.settle();
    assert_eq!(machine.id().worker, 6);
}

/// At each look at the clock, the lease of the call ends and another begins, of another group or of the same.
#[test]
fn a_call_that_slept_through_a_change_of_lease_generates_what_one_lease_allows() {
    for policy in [Policy::Hold, Policy::Replay] {
        for (home, floor_ahead) in [(9, -50), (9, 3), (9, 40), (0, 40)] {
            for look in 1..=6 {
                let machine = Machine::alone(fleet(Limits { policy, ..Limits::default() }));
                let registry = Registry::new();
                let first = machine.join(&registry);
                machine.id();
                machine.step(-20 * MS);
                let second = Lease {
                    home,
                    floor: machine.wall() / MS + floor_ahead,
                    until: machine.wall() / MS + 500,
                };
                let (looks, changing) = (Cell::new(0), machine.clone());
                *machine.meanwhile.borrow_mut() = Some(Rc::new(move |read: &dyn Fn()| {
                    looks.set(looks.get() + 1);
                    if looks.get() == look {
                        // The contact itself looks at the clock, too.
                        looks.set(100);
                        let contact = changing.contact();
                        let answer = Answer::Granted { registry: Uuid::from_u128(77), lease: second };
                        assert_eq!(changing.answered(&contact, answer), Answered::Leased);
                        let _ = changing.open();
                    }
                    read();
                }));
                for _ in 0..4 {
                    let Ok(id) = machine.try_id() else { break };
                    let allowed = |lease: Lease| {
                        machine.home(id) == lease.home && id.tick > lease.floor && id.tick <= lease.until
                    };
                    let is_old = allowed(first) && (home != 0 || id.tick <= second.floor);
                    assert!(
                        is_old || allowed(second),
                        "{policy:?} look {look}: {id:?} of {first:?} or {second:?}"
                    );
                }
            }
        }
    }
}

/// While a call sleeps, its lease ends, another begins that allows lower ticks, and a replay goes there. The call must
/// not follow with the permit of its own lease: below that lease's floor are the IDs of the group's earlier node.
#[test]
fn a_call_that_slept_through_a_replay_under_another_lease_stays_above_the_floor_of_its_own() {
    for look in 1..=6 {
        let config = fleet(Limits { policy: Policy::Replay, ..Limits::default() });
        let (machine, registry) = (Machine::alone(config), Registry::new());
        machine.boot_up();
        machine.enlist();
        let now = machine.wall() / MS;
        let first = Lease { home: 0, floor: now - 1_000, until: now + 60_000 };
        let grant = |lease| Answer::Granted { registry: registry.id, lease };
        let answer = grant(first);
        assert_eq!(machine.answered(&machine.contact(), answer), Answered::Leased);
        machine.settle();
        machine.id();
        let second = grant(Lease { home: 9, floor: -1, until: now + 60_000 });
        let (looks, changing) = (Cell::new(0), Rc::downgrade(&machine));
        *machine.meanwhile.borrow_mut() = Some(Rc::new(move |read: &dyn Fn()| {
            looks.set(looks.get() + 1);
            if looks.get() == look {
                looks.set(100);
                let machine = changing.upgrade().expect("it runs");
                assert_eq!(machine.answered(&machine.contact(), second), Answered::Leased);
                machine.settle();
                machine.step(-5 * SECOND);
                let _ = machine.try_id();
            }
            read();
        }));
        if let Ok(id) = machine.try_id() {
            let is_above = machine.home(id) != first.home || id.tick > first.floor;
            assert!(is_above, "look {look}: {id:?} of {first:?}");
        }
    }
}

/// Which workers a lease has depends on the number of lanes and on the datacenter.
#[test]
fn a_server_that_counts_its_workers_in_another_way_is_another_node() {
    let split = |datacenter| {
        let config = config("41/5+5/12", Tick::Millisecond, 0, BACKUPS, 16_384, Limits::default());
        Config { source: WorkerSource::Registry, datacenter, ..config }
    };
    let more_lanes = |backups| {
        let config = config(BITS, Tick::Millisecond, 0, backups, 16_384, Limits::default());
        Config { source: WorkerSource::Registry, ..config }
    };
    for (before, after) in [(more_lanes(3), more_lanes(7)), (split(1), split(2))] {
        let (machine, registry) = (Machine::alone(before), Registry::new());
        machine.join(&registry);
        machine.id();
        machine.set_config(after);
        machine.crash();
        assert_eq!(machine.open(), Err(Unopened::NoLease));
        machine.adopt(machine.wall()).unwrap();
        assert_eq!(machine.open(), Err(Unopened::NoLease));
        machine.set_config(before);
        machine.crash();
        assert_eq!(machine.open(), Err(Unopened::NoLease), "it was another node meanwhile");
    }
    let confirmed = |backups| Config { source: WorkerSource::Confirmed, ..more_lanes(backups) };
    let machine = Machine::alone(confirmed(3));
    machine.join(&Registry::new());
    machine.id();
    machine.set_config(confirmed(7));
    machine.crash();
    assert_eq!(machine.open(), Err(Unopened::NoLease));
}

/// The first IDs of a lease lie below the floor of a first start, so that floor does not show whether there are any.
#[test]
fn a_server_that_had_a_lease_is_bound_to_its_layout_and_one_that_had_none_is_not() {
    let other = Config {
        layout: snowflake_core::Layout::new(BITS.parse().unwrap(), Tick::Millisecond, 1_000).unwrap(),
        ..fleet(Limits::default())
    };
    let (machine, registry) = (member(), Registry::new());
    machine.boot_up();
    machine.enlist();
    machine.set_config(other);
    machine.crash();
    machine.enlist();
    machine.set_config(fleet(Limits::default()));
    machine.crash();
    machine.enlist();
    machine.meet(&registry);
    machine.settle();
    machine.id();
    machine.stop();
    machine.set_config(other);
    assert!(matches!(machine.why_closed(), snowflake_core::ClosedReason::OtherLayout(_)));
}

/// A copy that has more workers of its original to remember than there is room for still knows how far its own lease
/// went.
#[test]
fn a_copy_of_a_server_with_many_leases_resumes_its_own_above_its_own_ids() {
    let (original, registry) = (member(), Registry::new());
    original.join(&registry);
    for home in 0..14 {
        original.id();
        registry.end(home);
        original.meet(&registry);
        original.settle();
    }
    let disk = original.disk.copy(&Rc::new(model::tape::Tape::given(Vec::new(), 0)), 900);
    let copy = Machine::new(fleet(Limits::default()), &original.boot, disk);
    copy.offset.set(original.offset.get());
    copy.join(&registry);
    copy.pass(10 * SECOND);
    let before = copy.id();
    copy.reboot();
    copy.step(-5 * SECOND);
    assert_eq!(copy.open(), Err(Unopened::NoLease));
    copy.adopt(copy.wall()).unwrap();
    copy.settle();
    // Its clock is behind its own IDs.
    assert!(matches!(copy.try_id(), Err(Refusal::NoLane(_))), "an ID below {before:?}");
}

#[test]
fn number_and_nonce_are_durable_before_they_are_sent() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    machine.disk.set_faults(|_| Fault::Fail(EIO));
    assert_eq!(machine.with(|generator| generator.contact()), Err(EIO));
    machine.disk.heal();
    let contact = machine.contact();
    // The answer is lost, and so is the memory.
    machine.crash();
    machine.settle();
    let again = machine.contact();
    assert_eq!((again.number, again.nonce), (contact.number, contact.nonce));
    assert_eq!(machine.meet(&registry), Answered::Renewed);
    assert_eq!(machine.contact().number, contact.number + 1);
}

#[test]
fn what_was_granted_is_durable_before_calls_can_use_it() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    machine.pass(GRANT + SECOND);
    assert_eq!(machine.try_id(), Err(Refusal::LeaseEnded));
    let contact = machine.contact();
    let answer = registry.answer(&contact);
    machine.disk.set_faults(|_| Fault::Fail(EIO));
    assert_eq!(machine.with(|generator| generator.answered(&contact, answer)), Err(EIO));
    assert_eq!(machine.try_id(), Err(Refusal::LeaseEnded));
    assert_eq!(machine.lease(), Some(lease));
    machine.disk.heal();
    assert_eq!(machine.answered(&contact, answer), Answered::Renewed);
    machine.pass(SECOND);
    machine.id();
}

#[test]
fn a_standby_claims_its_own_group_and_uses_it_at_once_when_it_is_promoted() {
    let (primary, registry) = (member(), Registry::new());
    primary.join(&registry);
    primary.id();
    let standby = standby_of(&primary, fleet(Limits::default()));
    standby.enlist();
    assert_eq!(standby.meet(&registry), Answered::Leased);
    standby.set_start(|start| start.timeline = 2);
    assert_eq!(standby.settle(), 0);
    assert_eq!((standby.id().worker, primary.id().worker), (1, 0));
    standby.pass(SECOND);
    standby.keep();
    assert_eq!(standby.disk.said().unwrap().timeline, 2);
}

#[test]
fn under_a_lease_a_lane_follows_what_this_server_did_with_its_worker_before() {
    let configured = config(BITS, Tick::Millisecond, 0, BACKUPS, 16_384, Limits::default());
    let machine = Machine::alone(configured);
    machine.start_up();
    let before = machine.id();
    machine.stop();
    machine.step(-SECOND);
    machine.set_config(Config { source: WorkerSource::Registry, ..configured });
    let registry = Registry::new();
    machine.boot_up();
    machine.enlist();
    machine.meet(&registry);
    machine.settle();
    let after = machine.id();
    assert!(after.worker == before.worker && after.tick > before.tick, "{before:?} {after:?}");
}

#[test]
fn no_operator_lowers_marks_below_the_floor_of_the_lease() {
    let (machine, registry) = (member(), Registry::new());
    let node = Contact {
        registry: None,
        node: Uuid::from_u128(3),
        number: 1,
        nonce: Uuid::from_u128(4),
        lease: None,
        clock_us: machine.wall() - GRANT - SECOND,
    };
    let Answer::Granted { lease: earlier, .. } = registry.answer(&node) else { panic!("a lease") };
    let lease = machine.join(&registry);
    assert_eq!((lease.home, lease.floor), (earlier.home, earlier.until));
    machine.lower(machine.wall() - 2 * GRANT).unwrap();
    assert!((0..4).all(|lane| machine.mark(lane * 256) >= lease.floor));
}

#[test]
fn a_configured_worker_needs_the_registrys_word_and_no_other_group_will_do() {
    let machine = Machine::alone(confirmed(5));
    machine.boot_up();
    assert_eq!(machine.open(), Err(Unopened::NoLease));
    let contact = machine.contact();
    let now = machine.wall() / MS;
    let grant = |home| Answer::Granted {
        registry: Uuid::from_u128(77),
        lease: Lease { home, floor: now - 5, until: now + 60_000 },
    };
    assert_eq!(machine.answered(&contact, grant(4)), Answered::Ignored);
    assert_eq!(machine.answered(&contact, grant(5)), Answered::Leased);
    machine.settle();
    assert_eq!(machine.id().worker, 5);
    // The lease survives a reboot, as a configured worker does.
    machine.reboot();
    machine.settle();
    assert_eq!(machine.id().worker, 5);
}

/// An operator takes the setting out while the registry is down, and puts it back.
#[test]
fn a_server_that_comes_back_to_its_registry_is_the_node_that_it_was() {
    let (machine, registry) = (Machine::alone(confirmed(5)), Registry::new());
    machine.join(&registry);
    let node = machine.contact().node;
    machine.set_config(Config { source: WorkerSource::Configured, ..confirmed(5) });
    machine.crash();
    machine.settle();
    let between = machine.id();
    machine.set_config(confirmed(5));
    machine.crash();
    machine.settle();
    assert!(machine.id().tick > between.tick);
    assert_eq!(machine.contact().node, node);
}

/// The volume was cloned. The witness knows the records that the clone writes under a number of its own, and not who had
/// the lease before.
#[test]
fn a_clone_that_ran_with_a_number_of_its_own_has_no_lease_of_its_original() {
    for timeline in [1, 2] {
        let (machine, registry) = (member(), Registry::new());
        machine.join(&registry);
        machine.reboot();
        machine.set_config(Config { source: WorkerSource::Configured, ..confirmed(50) });
        machine.set_start(|start| start.timeline = timeline);
        machine.crash();
        machine.settle();
        machine.id();
        // An operator raises the marks of a server, which changes nothing else.
        machine.adopt(machine.wall()).unwrap();
        machine.pass(3 * SECOND);
        assert_eq!(machine.id().worker % 256, 50);
        machine.set_config(fleet(Limits::default()));
        machine.crash();
        assert_eq!(machine.open(), Err(Unopened::NoLease));
    }
}

/// Of a clone, which started at the same time. Another lease of the same workers is that of another node, be it over or
/// not.
#[test]
fn a_server_stays_closed_beside_one_that_has_claimed_the_workers_of_its_lease() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    let claim = |floor| Some(Claim::new(SYSTEM, Some(floor), vec![lease.home]));
    assert!(machine.disk.witness.claimed.borrow().as_ref().unwrap().meets(&claim(lease.floor).unwrap()));
    machine.disk.witness.of_others.replace(claim(lease.floor));
    machine.crash();
    assert_eq!(machine.open(), Err(Unopened::Closed(ClosedReason::Beside)));
    machine.disk.witness.of_others.replace(claim(lease.floor + 1));
    machine.pass(SECOND);
    machine.settle();
    assert_eq!(machine.lease(), Some(lease));
    registry.end(lease.home);
    let contact = machine.contact();
    assert_eq!(machine.answered(&contact, registry.answer(&contact)), Answered::Lost);
    let claimed = machine.disk.witness.claimed.borrow();
    assert_eq!(*claimed, Some(Claim::new(SYSTEM, None, vec![])), "it has none");
}

/// Without its registry for a while, and rebooted: with a number, it is the same node again.
#[test]
fn a_number_outlives_a_reboot_without_the_registry() {
    let (machine, registry) = (Machine::alone(confirmed(5)), Registry::new());
    machine.join(&registry);
    let node = machine.contact().node;
    machine.set_config(Config { source: WorkerSource::Configured, ..confirmed(5) });
    machine.reboot();
    machine.settle();
    machine.set_config(confirmed(5));
    machine.crash();
    machine.settle();
    assert_eq!(machine.contact().node, node);
}

/// Halfway through the move of a group whose servers share a number: the standby has joined, is promoted, and its
/// primary has not.
#[test]
fn a_confirmed_number_keeps_to_the_half_of_its_timeline() {
    let configured = Config { source: WorkerSource::Configured, ..confirmed(5) };
    for holds_before in [true, false] {
        let (primary, registry) = (Machine::alone(configured), Registry::new());
        primary.start_up();
        primary.id();
        let standby = standby_of(&primary, confirmed(5));
        if holds_before {
            standby.hold();
            assert_eq!(standby.meet(&registry), Answered::Leased);
            standby.promote(2);
        } else {
            standby.set_start(|start| start.timeline = 2);
            standby.enlist();
            standby.meet(&registry);
            standby.settle();
        }
        assert_eq!((primary.id().worker / 256, standby.id().worker / 256), (0, 1));
        let workers = |machine: &Machine| {
            [(); 4].map(|()| {
                machine.pass(10 * SECOND);
                machine.with(|generator| generator.rotate_now()).expect("another lane");
                machine.id().worker / 256
            })
        };
        let (mut of_primary, mut of_standby) = (workers(&primary), workers(&standby));
        of_primary.sort();
        of_standby.sort();
        assert_eq!((of_primary, of_standby), ([0, 0, 2, 2], [1, 1, 3, 3]));
        standby.crash();
        standby.set_start(|start| (start.timeline_before, start.was_in_recovery) = (2, false));
        standby.settle();
        assert_eq!(standby.id().worker / 256 % 2, 1);
    }
}

#[test]
fn a_standby_holds_its_number_and_uses_it_at_once_when_it_is_promoted() {
    let (primary, registry) = (Machine::alone(confirmed(5)), Registry::new());
    primary.join(&registry);
    primary.id();
    let standby = standby_of(&primary, confirmed(6));
    standby.hold();
    let contact = standby.contact();
    assert!(contact.lease.is_none() && contact.node != primary.contact().node, "it is another node");
    assert_eq!(standby.meet(&registry), Answered::Leased);
    let lease = standby.lease().expect("a lease");
    assert_eq!(lease.home, 6);
    assert_eq!(standby.with(|generator| generator.lane_statuses())[0].mark_us, None);
    // A restart of the standby is the same node, and so is a reboot.
    for _ in 0..2 {
        standby.reboot();
        standby.hold();
        assert_eq!(standby.lease(), Some(lease));
        assert_eq!(standby.meet(&registry), Answered::Renewed);
    }
    // A copy of the standby is not.
    let copy = standby_of(&standby, confirmed(6));
    copy.hold();
    assert_eq!((copy.lease(), copy.contact().lease), (None, None));
    let node = standby.contact().node;
    assert!(
        standby.promote(2) <= 4 * SECOND,
        "the second timeline starts above its primary's IDs, and no later"
    );
    assert_eq!((standby.id().worker % 256, standby.contact().node), (6, node));
    assert_eq!(standby.meet(&registry), Answered::Renewed);
}

/// A snapshot of the primary's volume has its file in place. In one life, the primary would not start beside it.
#[test]
fn a_standby_that_was_cloned_with_the_volume_of_its_primary_leaves_it_its_life() {
    let life = |machine: &Machine| {
        let document: serde_json::Value = serde_json::from_slice(&machine.disk.slots().unwrap()[0]).unwrap();
        document["record"]["life"].clone()
    };
    let clone = Machine::alone(confirmed(5));
    clone.join(&Registry::new());
    clone.crash();
    let of_primary = life(&clone);
    clone.set_config(confirmed(6));
    clone.hold();
    assert_ne!(life(&clone), of_primary);
}

/// The keeper has had no time to start it.
#[test]
fn a_standby_that_an_operator_adopts_at_once_after_its_promotion_keeps_its_number() {
    let (primary, registry) = (Machine::alone(confirmed(5)), Registry::new());
    primary.join(&registry);
    let standby = standby_of(&primary, confirmed(6));
    standby.hold();
    standby.meet(&registry);
    let node = standby.contact().node;
    standby.set_start(|start| start.timeline = 2);
    standby.adopt(standby.wall()).unwrap();
    standby.settle();
    let last = standby.id();
    assert_eq!((last.worker % 256, standby.contact().node), (6, node));
    assert!(standby.mark(last.worker) >= last.tick);
    assert_eq!(standby.meet(&registry), Answered::Renewed);
}

/// It would speak to the registry for the server that runs there, and end that one's lease.
#[test]
fn a_server_that_recovers_in_the_directory_of_another_holds_nothing() {
    let registry = Registry::new();
    let machine = Machine::alone(confirmed(5));
    machine.join(&registry);
    machine.crash();
    let (start, writes) = (machine.start.get(), machine.disk.writes.get());
    machine.disk.is_taken.set(true);
    assert_eq!(machine.with(|generator| generator.hold(&start)), Err(ClosedReason::Taken));
    assert_eq!(machine.disk.writes.get(), writes);
    assert_eq!(machine.with(|generator| generator.contact()), Ok(None));
    machine.disk.is_taken.set(false);
    machine.hold();
    assert_eq!(machine.meet(&registry), Answered::Renewed);
}

/// The registry's floor is durable before the lanes are there to be raised.
#[test]
fn a_standby_that_is_promoted_begins_above_the_floor_of_what_it_holds() {
    for restarted in [false, true] {
        let primary = Machine::alone(confirmed(5));
        let standby = standby_of(&primary, confirmed(6));
        standby.hold();
        let contact = standby.contact();
        let now = standby.wall() / MS;
        let lease = Lease { home: 6, floor: now + 10_000, until: now + 60_000 };
        let answer = Answer::Granted { registry: Uuid::from_u128(77), lease };
        assert_eq!(standby.answered(&contact, answer), Answered::Leased);
        if restarted {
            standby.crash();
        }
        standby.set_start(|start| start.timeline = 2);
        let _ = standby.open();
        standby.pass(20 * SECOND);
        standby.settle();
        assert!((0..4).all(|lane| standby.mark(6 + lane * 256) >= lease.floor));
        assert!(standby.id().tick > lease.floor);
    }
}

/// The state that a primary left is what the start after a promotion decides by, and what shows that there was none.
#[test]
fn a_standby_that_holds_a_number_starts_as_one_that_holds_none() {
    let timelines = [(1, 1), (2, 1), (3, 1), (3, 2)];
    let primaries = [(None, 5), (Some(5), 5), (Some(5), 6), (Some(6), 5)];
    for ((of_primary, of_standby), leased) in primaries.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        for (timeline, before) in timelines {
            for was_in_recovery in [true, false] {
                let outcomes = [false, true].map(|holds| {
                    let unconfirmed = |home| Config { source: WorkerSource::Configured, ..confirmed(home) };
                    let primary = Machine::alone(match leased {
                        true => confirmed(of_primary.unwrap_or(9)),
                        false => unconfirmed(of_primary.unwrap_or(9)),
                    });
                    if of_primary.is_some() {
                        match leased {
                            true => drop(primary.join(&Registry::new())),
                            false => drop(primary.start_up()),
                        }
                        primary.id();
                    }
                    let standby = standby_of(&primary, confirmed(of_standby));
                    if holds {
                        standby.hold();
                        let contact = standby.contact();
                        assert_eq!(standby.answered(&contact, Answer::Refused), Answered::Unchanged);
                        standby.crash();
                        standby.hold();
                    }
                    standby.set_config(unconfirmed(of_standby));
                    standby.crash();
                    standby.pass(SECOND);
                    let mut outcomes = Vec::new();
                    // What the first start could not do, the second has to remember.
                    for was_in_recovery in [was_in_recovery, false] {
                        standby.set_start(|start| {
                            (start.timeline, start.timeline_before) = (timeline, before);
                            start.was_in_recovery = was_in_recovery;
                        });
                        let opened = standby.open();
                        let said = standby.disk.said();
                        outcomes.push((opened, said.map(|record| (record.timeline, record.marks))));
                        standby.crash();
                    }
                    outcomes
                });
                let [without, with] = outcomes;
                let case =
                    format!("{of_primary:?} {leased} {of_standby} {timeline} {before} {was_in_recovery}");
                assert_eq!(with, without, "{case}");
            }
        }
    }
}

#[test]
fn a_server_that_comes_back_to_a_number_has_it_at_once() {
    let (machine, registry) = (Machine::alone(confirmed(5)), Registry::new());
    machine.join(&registry);
    let (first, node) = (machine.id(), machine.contact().node);
    for home in [6, 5, 6, 7, 5] {
        machine.set_config(confirmed(home));
        machine.pass(SECOND);
        machine.crash();
        machine.join(&registry);
        assert_eq!(machine.lease().expect("a lease").home, home);
        assert_eq!(machine.id().worker, home);
    }
    assert_eq!(machine.contact().node, node);
    assert!(machine.id().tick > first.tick);
    // A copy was never under any number.
    let copy = standby_of(&machine, confirmed(6));
    copy.hold();
    assert_eq!(copy.lease(), None);
}

/// Whoever had the number meanwhile generated IDs above what this server was granted.
#[test]
fn a_number_that_another_server_got_meanwhile_is_lost() {
    let (machine, other, registry) =
        (Machine::alone(confirmed(5)), Machine::alone(confirmed(5)), Registry::new());
    let lease = machine.join(&registry);
    machine.set_config(confirmed(6));
    machine.crash();
    machine.join(&registry);
    [&machine, &other].iter().for_each(|server| server.pass(GRANT + SECOND));
    assert!(other.join(&registry).floor >= lease.until);
    machine.set_config(confirmed(5));
    machine.crash();
    machine.settle();
    assert_eq!(machine.try_id(), Err(Refusal::LeaseEnded));
    assert_eq!(machine.meet(&registry), Answered::Unchanged);
    assert_eq!(machine.lease(), None);
}

/// Under a lease a primary rotates over all lanes, so on the second timeline none of them is unused.
#[test]
fn a_standby_without_the_registry_of_its_primary_respects_all_lanes() {
    let with = |source| Config { source, ..confirmed(5) };
    let primary = Machine::alone(with(WorkerSource::Registry));
    primary.boot_up();
    primary.enlist();
    let contact = primary.contact();
    let lease = Lease { home: 5, floor: -1, until: primary.wall() / MS + GRANT / MS };
    primary.answered(&contact, Answer::Granted { registry: Uuid::from_u128(77), lease });
    primary.settle();
    primary.id();
    let standby = standby_of(&primary, with(WorkerSource::Configured));
    primary.pass(10 * SECOND);
    primary.with(|generator| generator.rotate_now()).unwrap();
    let last = primary.id();
    assert_eq!(last.worker, 5 + 256);
    // The standby's clock is behind, but it has replayed what its primary committed.
    standby.step(-5 * SECOND);
    standby.set_start(|start| {
        start.timeline = 2;
        start.was_in_recovery = true;
        start.replayed_us = Some(primary.wall());
    });
    standby.boot_up();
    standby.settle();
    assert!(matches!(standby.try_id(), Err(Refusal::NoLane(_))), "worker 261 has IDs up to {last:?}");
}

#[test]
fn without_a_registry_the_record_is_what_it_was() {
    let machine = Machine::alone(config(BITS, Tick::Millisecond, 5, BACKUPS, 16_384, Limits::default()));
    machine.start_up();
    machine.id();
    let slots: [Vec<u8>; 2] = machine.disk.slots().unwrap();
    let text = String::from_utf8(slots.concat()).unwrap();
    assert!(!text.contains("membership") && !text.contains("earlier_life"), "{text}");
}

// ---- two events at once ----

/// What a server does about its lease, each with a write.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Enlist,
    Hold,
    Contact,
    Renewed,
    Leased,
    Lost,
    Resume,
}

/// No write succeeds during a deed. Then the disk works again, and the server goes on, or it has crashed meanwhile.
#[test]
fn a_deed_that_cannot_be_written_changes_nothing_and_is_done_again() {
    for deed in
        [Deed::Enlist, Deed::Hold, Deed::Contact, Deed::Renewed, Deed::Leased, Deed::Lost, Deed::Resume]
    {
        for crashes in [false, true] {
            let case = format!("{deed:?} {crashes}");
            let registry = Registry::new();
            let primary = Machine::alone(confirmed(9));
            primary.join(&registry);
            let machine = match deed {
                Deed::Hold => standby_of(&primary, confirmed(5)),
                _ => Machine::new(
                    assigned(),
                    &primary.boot,
                    model::disk::SimDisk::new(&Rc::new(model::tape::Tape::given(Vec::new(), 0))),
                ),
            };
            machine.boot_up();
            let is_new = matches!(deed, Deed::Enlist | Deed::Hold);
            if !is_new {
                machine.join(&registry);
                machine.id();
            }
            let lease = machine.lease();
            if matches!(deed, Deed::Leased | Deed::Lost) {
                registry.end(0);
            }
            if matches!(deed, Deed::Leased) {
                let contact = machine.contact();
                assert_eq!(machine.answered(&contact, registry.answer(&contact)), Answered::Lost);
            }
            if matches!(deed, Deed::Resume) {
                machine.reboot();
                machine.enlist();
            }
            let asked = match deed {
                Deed::Renewed | Deed::Leased | Deed::Lost => Some(machine.contact()),
                _ => None,
            };
            let start = machine.start.get();
            let answer = asked.map(|asked| registry.answer(&asked));
            let try_it = || match deed {
                Deed::Enlist => machine.with(|generator| generator.enlist(&start)).map(drop).map_err(drop),
                Deed::Hold => machine.with(|generator| generator.hold(&start)).map(drop).map_err(drop),
                Deed::Contact => machine.with(|generator| generator.contact()).map(drop).map_err(drop),
                Deed::Resume => machine.adopt(machine.wall()).map_err(drop),
                Deed::Renewed | Deed::Leased | Deed::Lost => {
                    let answered =
                        machine.with(|generator| generator.answered(&asked.unwrap(), answer.unwrap()));
                    answered.map(drop).map_err(drop)
                }
            };
            let before = machine.lease();
            machine.disk.set_faults(|_| Fault::Fail(EIO));
            // A lease that is over is over, whatever the disk does.
            assert_eq!(try_it().is_ok(), matches!(deed, Deed::Lost), "{case}");
            if !matches!(deed, Deed::Lost) {
                assert_eq!(machine.lease(), before, "{case}");
            }
            if !matches!(deed, Deed::Contact | Deed::Renewed) {
                assert_eq!(machine.try_id(), Err(Refusal::GateClosed), "{case}");
            }
            machine.disk.heal();
            if crashes {
                machine.crash();
                match deed {
                    Deed::Hold => machine.hold(),
                    _ => machine.enlist(),
                }
                // What was asked before the crash is asked again.
                if let Some(asked) = asked {
                    let again = machine.contact();
                    assert_eq!(
                        (again.node, again.number, again.nonce),
                        (asked.node, asked.number, asked.nonce),
                        "{case}"
                    );
                    machine.answered(&again, registry.answer(&again));
                }
            } else {
                machine.pass(2 * SECOND);
                assert_eq!(try_it(), Ok(()), "{case}");
            }
            if matches!(deed, Deed::Resume) && crashes {
                machine.adopt(machine.wall()).expect("the earlier life");
            }
            machine.meet(&registry);
            if matches!(deed, Deed::Hold) {
                machine.promote(2);
            } else {
                machine.settle();
            }
            let id = machine.id();
            let has = machine.lease().expect("a lease");
            assert!(machine.home(id) == has.home && (has.floor..=has.until).contains(&id.tick), "{case}");
            if matches!(deed, Deed::Contact | Deed::Renewed | Deed::Resume) {
                assert_eq!(lease.map(|lease| lease.home), Some(has.home), "{case}");
            }
        }
    }
}

/// The file can be read, but not written onto itself.
#[test]
fn a_server_whose_file_cannot_be_rewritten_keeps_its_number() {
    for config in [assigned(), confirmed(5)] {
        let (machine, registry) = (Machine::alone(config), Registry::new());
        let lease = machine.join(&registry);
        machine.id();
        machine.go_down();
        machine.disk.set_faults(|at| match at {
            model::disk::Point::WriteAgain | model::disk::Point::Write(_) => Fault::Fail(EIO),
            _ => Fault::None,
        });
        machine.boot_up();
        machine.settle();
        assert_eq!(machine.lease(), Some(lease));
        machine.id();
    }
}

/// IDs of an earlier life of the data are ahead of the clock, and an operator has said so.
#[test]
fn a_floor_that_an_operator_has_set_holds_under_each_later_lease() {
    for before_first in [false, true] {
        let (machine, registry) = (member(), Registry::new());
        machine.boot_up();
        machine.enlist();
        if !before_first {
            machine.join(&registry);
            machine.id();
        }
        let floor = machine.wall() + HOUR / 2;
        machine.adopt(floor).expect("a floor");
        for home in 0..2 {
            if home > 0 || !before_first {
                registry.end(if before_first { home - 1 } else { home });
            }
            assert_eq!(machine.meet(&registry), Answered::Leased);
            let home = machine.lease().expect("a lease").home;
            assert!((0..4).all(|lane| machine.mark(home + lane * 256) >= floor / MS), "{before_first}");
        }
        let _ = machine.open();
        assert!(machine.try_id().is_err());
        machine.pass(HOUR / 2 + SECOND);
        machine.meet(&registry);
        machine.settle();
        assert!(machine.id().tick > floor / MS);
    }
}

#[test]
fn an_earlier_life_is_resumed_above_the_floor_of_who_resumes_it() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    machine.id();
    machine.reboot();
    assert_eq!(machine.open(), Err(Unopened::NoLease));
    let floor = machine.wall() + 30 * SECOND;
    machine.adopt(floor).expect("a floor");
    assert_eq!(machine.lease(), Some(lease));
    assert!((0..4).all(|lane| machine.mark(lane * 256) >= floor / MS));
    machine.pass(40 * SECOND);
    machine.settle();
    assert!(machine.id().tick > floor / MS);
}

/// A lane that the server had left has a permit still, and is the first of the next lease.
#[test]
fn a_lease_that_is_over_closes_the_lanes_that_were_left_too() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    machine.id();
    machine.pass(SECOND);
    machine.with(|generator| generator.rotate_now()).expect("another lane");
    assert_eq!(machine.lane(), 1);
    registry.end(0);
    assert_eq!(machine.meet(&registry), Answered::Leased);
    assert_eq!(machine.lane(), 0);
    machine.step(-SECOND);
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    machine.step(SECOND);
    machine.settle();
    assert_eq!(machine.home(machine.id()), 1);
}

/// pg_createsubscriber and pg_resetwal change the system identifier in place.
#[test]
fn a_state_of_another_cluster_has_no_lease_of_this_one() {
    for config in [assigned(), confirmed(5)] {
        let (machine, registry) = (Machine::alone(config), Registry::new());
        machine.join(&registry);
        let node = machine.contact().node;
        machine.set_config(if config.source == WorkerSource::Registry { config } else { confirmed(6) });
        machine.set_start(|start| start.system_identifier += 1);
        machine.crash();
        machine.enlist();
        assert_eq!(machine.lease(), None);
        machine.set_config(config);
        assert!(machine.contact().node != node);
        if config.source == WorkerSource::Registry {
            machine.adopt(machine.wall()).expect("a floor");
            assert_eq!(machine.lease(), None, "nor an earlier life");
        }
    }
}

// ---- for how long a server generates no IDs, with the default grant and the default tolerance ----

/// How far apart contacts are at most, be they answered or not.
const PERIOD: i64 = 12 * SECOND;
/// How far apart the clients' calls are here.
const STEP: i64 = 2 * SECOND;

/// Servers with clients, and their registry, in virtual time.
struct Fleet {
    registry: Registry,
    servers: Vec<Machine>,
    /// When the last contact of each server was.
    contacted: Vec<i64>,
    /// When each server generated its last ID, and the longest time between two.
    generated: Vec<i64>,
    longest: Vec<i64>,
    seen: std::collections::BTreeSet<(i64, i64)>,
}

impl Fleet {
    /// All of them have run for a while.
    fn of(configs: &[Config]) -> Self {
        let boot = Rc::new(Cell::new(77_000_000));
        let server = |(i, config): (usize, &Config)| {
            let disk = model::disk::SimDisk::new(&Rc::new(model::tape::Tape::given(Vec::new(), i as u32)));
            Machine::new(*config, &boot, disk)
        };
        let servers: Vec<Machine> = configs.iter().enumerate().map(server).collect();
        let registry = Registry::new();
        *registry.clock.borrow_mut() = Some((boot.clone(), servers[0].offset.get()));
        for server in &servers {
            server.join(&registry);
        }
        let now = vec![boot.get(); servers.len()];
        let (contacted, generated) = (now.clone(), now);
        let longest = vec![0; servers.len()];
        let mut fleet = Self { registry, servers, contacted, generated, longest, seen: Default::default() };
        fleet.run(20 * MINUTE);
        assert_eq!(fleet.longest(), 0);
        fleet
    }

    fn run(&mut self, micros: i64) {
        let end = self.servers[0].boot.get() + micros;
        while self.servers[0].boot.get() < end {
            self.servers[0].pass(STEP);
            let now = self.servers[0].boot.get();
            for (i, server) in self.servers.iter().enumerate() {
                if now - self.contacted[i] >= PERIOD {
                    self.contacted[i] = now;
                    match self.registry.is_away.get() {
                        true => drop(server.contact()),
                        false => drop(server.meet(&self.registry)),
                    }
                }
                let _ = server.open();
                if let Ok(id) = server.try_id() {
                    assert!(self.seen.insert((id.worker, id.tick)), "{id:?} of server {i} is there already");
                    self.generated[i] = now;
                }
                self.longest[i] = self.longest[i].max(now - self.generated[i]);
            }
        }
    }

    fn reboot(&mut self, server: usize) {
        self.servers[server].reboot();
        self.servers[server].enlist();
        // A start contacts the registry at once.
        self.contacted[server] = i64::MIN / 2;
    }

    fn longest(&self) -> i64 {
        self.longest.iter().copied().max().expect("a server")
    }

    /// For no longer than this a server generated no IDs, and for nearly as long one did.
    #[track_caller]
    fn assert_longest(&self, limit: i64) {
        let longest = self.longest();
        assert!(longest <= limit, "{} s are more than {} s", longest / SECOND, limit / SECOND);
        assert!(
            longest >= limit - 3 * MINUTE,
            "{} s: the manual says {} s",
            longest / SECOND,
            limit / SECOND
        );
    }
}

fn assigned() -> Config {
    fleet(Limits::default())
}

/// Until a server has heard from the registry again.
const HEARD: i64 = PERIOD + STEP;
/// For how long a registry that has failed over leases nothing.
const DOUBT: i64 = GRANT + 2 * TOLERANCE + HEARD;

#[test]
fn a_registry_that_is_away_for_less_than_a_grant_costs_nothing_and_one_for_longer_what_is_beyond() {
    for failed_over in [false, true] {
        let mut fleet = Fleet::of(&[assigned(); 2]);
        fleet.registry.is_away.set(true);
        fleet.run(GRANT - 2 * MINUTE);
        fleet.registry.is_away.set(false);
        if failed_over {
            fleet.registry.fail_over(&[]);
        }
        fleet.run(2 * HOUR);
        assert_eq!(fleet.longest(), 0);
    }
    let mut fleet = Fleet::of(&[assigned(); 2]);
    fleet.registry.is_away.set(true);
    fleet.run(GRANT + 30 * MINUTE);
    fleet.registry.is_away.set(false);
    fleet.run(2 * HOUR);
    fleet.assert_longest(30 * MINUTE + 2 * HEARD);
}

#[test]
fn a_failover_of_the_registry_costs_running_leases_nothing_and_new_ones_a_grant_and_two_tolerances() {
    // With lost commits, too: the lease that the registry has lost is taken back.
    for lost in [&[][..], &[0]] {
        for offset in [-50 * SECOND, 0, 50 * SECOND] {
            let mut fleet = Fleet::of(&[assigned(); 2]);
            fleet.registry.offset.set(offset);
            fleet.registry.fail_over(lost);
            fleet.run(3 * HOUR);
            assert_eq!(fleet.longest(), 0, "{lost:?} {offset}");
        }
    }
    for vouched in [false, true] {
        let mut fleet = Fleet::of(&[assigned(); 2]);
        fleet.registry.fail_over(&[]);
        fleet.run(MINUTE);
        fleet.reboot(0);
        if vouched {
            fleet.run(MINUTE);
            fleet.registry.vouch();
        }
        fleet.run(2 * HOUR);
        fleet.assert_longest(if vouched { MINUTE + HEARD } else { DOUBT });
    }
}

#[test]
fn a_registry_that_is_away_for_more_than_a_grant_and_fails_over_leases_nothing_for_another_unless_somebody_vouches()
 {
    for vouched in [false, true] {
        let mut fleet = Fleet::of(&[assigned(); 2]);
        fleet.registry.is_away.set(true);
        fleet.run(GRANT + 30 * MINUTE);
        fleet.registry.is_away.set(false);
        fleet.registry.fail_over(&[]);
        if vouched {
            fleet.run(MINUTE);
            fleet.registry.vouch();
        }
        fleet.run(2 * HOUR);
        fleet.assert_longest(30 * MINUTE + if vouched { MINUTE + HEARD } else { DOUBT });
    }
}

#[test]
fn clocks_that_are_apart_by_less_than_a_grant_cost_nothing() {
    for offset in [-(GRANT - 5 * MINUTE), GRANT - 5 * MINUTE, 5 * GRANT] {
        let mut fleet = Fleet::of(&[assigned(); 2]);
        fleet.registry.offset.set(offset);
        fleet.run(3 * HOUR);
        assert_eq!(fleet.longest(), 0, "{offset}");
    }
}

/// It ends nothing, and renews nothing: servers go on to the ends of their leases.
#[test]
fn a_registry_that_has_failed_over_to_a_wrong_clock_is_away_until_the_clock_is_right_or_somebody_vouches() {
    for vouched in [false, true] {
        let mut fleet = Fleet::of(&[assigned(); 2]);
        fleet.registry.offset.set(-5 * HOUR);
        fleet.registry.fail_over(&[]);
        fleet.run(GRANT - 3 * MINUTE);
        fleet.registry.offset.set(0);
        if vouched {
            fleet.registry.vouch();
        }
        fleet.run(2 * HOUR);
        assert_eq!(fleet.longest(), 0);
    }
    let mut fleet = Fleet::of(&[assigned(); 2]);
    fleet.registry.offset.set(5 * HOUR);
    fleet.registry.fail_over(&[]);
    fleet.run(GRANT + 30 * MINUTE);
    fleet.registry.offset.set(0);
    fleet.run(2 * HOUR);
    fleet.assert_longest(30 * MINUTE + DOUBT);
}

#[test]
fn a_server_whose_clock_is_more_than_a_grant_ahead_stops_until_the_clock_is_right() {
    let mut fleet = Fleet::of(&[assigned(); 2]);
    fleet.servers[1].step(2 * GRANT);
    fleet.run(10 * MINUTE);
    fleet.servers[1].step(-2 * GRANT);
    fleet.run(HOUR);
    assert_eq!(fleet.longest[0], 0);
    fleet.assert_longest(10 * MINUTE + HEARD);
}

#[test]
fn servers_that_are_rebooted_have_ids_at_once_while_workers_are_free() {
    let mut fleet = Fleet::of(&[assigned(), assigned(), confirmed(200)]);
    (0..3).for_each(|server| fleet.reboot(server));
    fleet.run(10 * MINUTE);
    assert_eq!(fleet.longest(), 0);

    // With a number, not even the registry is needed; without one, it is.
    let mut fleet = Fleet::of(&[assigned(), confirmed(200)]);
    fleet.registry.is_away.set(true);
    (0..2).for_each(|server| fleet.reboot(server));
    fleet.run(10 * MINUTE);
    fleet.registry.is_away.set(false);
    fleet.run(10 * MINUTE);
    assert_eq!(fleet.longest[1], 0);
    fleet.assert_longest(10 * MINUTE + HEARD);

    // Nor is there a free one.
    let mut fleet = Fleet::of(&[assigned(); 2]);
    fleet.registry.homes.set(2);
    (0..2).for_each(|server| fleet.reboot(server));
    fleet.run(2 * HOUR);
    fleet.assert_longest(GRANT + HEARD);
}

/// Each server is the registry's primary in its turn. The other one has to generate the IDs meanwhile.
#[test]
fn a_pair_that_holds_its_own_registry_and_is_rebooted_in_turn_needs_numbers_or_a_vouch() {
    for (configs, vouched, limit) in [
        ([assigned(); 2], false, DOUBT),
        ([assigned(); 2], true, HEARD),
        ([confirmed(0), confirmed(1)], false, 0),
    ] {
        let mut fleet = Fleet::of(&configs);
        for rebooted in [0, 1] {
            fleet.registry.fail_over(&[]);
            fleet.reboot(rebooted);
            fleet.run(MINUTE);
            if vouched {
                fleet.registry.vouch();
            }
            fleet.run(9 * MINUTE);
            // What the standby cannot generate, nobody asks of it.
            fleet.generated[rebooted] = fleet.servers[0].boot.get();
            if rebooted == 0 {
                fleet.longest = vec![0; 2];
            }
        }
        fleet.run(2 * HOUR);
        fleet.longest[1] = 0;
        fleet.assert_longest(limit);
    }
}

// ---- the states of releases ----

/// Has the machine's disk hold what a release wrote, as a slot of `tests/state` has it: from its release on, that never
/// changes. Returns the mark of worker 0.
fn put(machine: &Machine, slot: &std::path::Path) -> i64 {
    let text = std::fs::read_to_string(slot).expect("it can be read");
    let record = &serde_json::from_str::<serde_json::Value>(&text).expect("JSON")["record"];
    let file: FileIdentity = serde_json::from_value(record["file"].clone()).expect("an identity");
    let mut bytes = text.into_bytes();
    bytes.resize(SLOT_BYTES, b' ');
    machine.disk.put_as([bytes.clone(), bytes], file);
    record["marks"]["0"].as_i64().expect("a mark")
}

#[test]
fn the_states_of_all_releases_are_read() {
    let mut releases = 0;
    for folder in std::fs::read_dir("tests/state").expect("the folder is there") {
        let folder = folder.expect("it can be read").path();
        let configured = config(BITS, Tick::Millisecond, 0, BACKUPS, 16_384, Limits::default());
        let machine = Machine::alone(configured);
        let mark = put(&machine, &folder.join("configured.json"));
        machine.pass(2 * SECOND); // and the mark is ahead of the clock
        machine.boot_up();
        machine.settle();
        let id = machine.id();
        assert!(id.worker == 0 && id.tick > mark, "{id:?} is not above {mark}");

        let machine = member();
        put(&machine, &folder.join("leased.json"));
        machine.boot_up();
        assert_eq!(machine.open(), Err(Unopened::NoLease), "nothing vouches for its life");
        machine.adopt(machine.wall()).expect("it can be read");
        assert_eq!(machine.lease().map(|lease| lease.home), Some(0));
        releases += 1;
    }
    assert!(releases > 0);
}
