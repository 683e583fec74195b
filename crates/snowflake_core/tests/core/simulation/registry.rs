//! A fleet's registry, and servers that get their workers from it.

use super::server::{HOUR, MINUTE, MS, Server};
use super::tape::Tape;
use super::world::{Machine, config};
use snowflake_core::{Answer, Answered, Config, Contact, Lease, Limits, Parts, Tick, WorkerSource};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

pub const BITS: &str = "41/10/12";
pub const BACKUPS: usize = 3;
pub const GRANT: i64 = HOUR;
/// By how much clocks may differ at a failover of the registry: its `clock_tolerance`.
pub const TOLERANCE: i64 = MINUTE;

pub fn fleet(limits: Limits) -> Config {
    let source = WorkerSource::Registry;
    Config { source, ..config(BITS, Tick::Millisecond, 0, BACKUPS, 16_384, limits) }
}

pub fn member() -> Rc<Machine> {
    Machine::alone(fleet(Limits::default()))
}

/// A server that the registry knows nothing of.
pub fn configured(home: i64) -> Config {
    config(BITS, Tick::Millisecond, home, BACKUPS, 16_384, Limits::default())
}

/// A standby on another host, from a base backup of its primary.
pub fn standby_of(primary: &Machine) -> Machine {
    let disk = primary.disk.copy(&Rc::new(Tape::given(Vec::new(), 0)), 900);
    let standby = Machine::new(*primary.config.borrow(), &primary.boot, disk);
    standby.offset.set(primary.offset.get());
    standby.start.set(primary.start.get());
    standby.boot_up();
    standby
}

/// A registry that hands out groups by the rules.
pub struct Registry {
    pub id: Uuid,
    /// Each group's node, number, nonce and lease.
    pub groups: RefCell<BTreeMap<i64, (Contact, Lease)>>,
    /// How many groups there are.
    pub homes: Cell<i64>,
    /// Its clock, as a boot clock and what to add to it; that of its contacts, if it has none.
    pub clock: RefCell<Option<(Rc<Cell<i64>>, i64)>>,
    /// How far its clock is ahead.
    pub offset: Cell<i64>,
    pub is_away: Cell<bool>,
    /// It has failed over, and no clock has yet confirmed its own.
    pub is_unsure: Cell<bool>,
    /// Nothing is leased before this tick has passed; and what it was before the last doubt.
    pub fence: Cell<[i64; 2]>,
}

impl Registry {
    pub fn new() -> Self {
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
    pub fn fail_over(&self, lost: &[i64]) {
        self.groups.borrow_mut().retain(|home, _| !lost.contains(home));
        self.is_unsure.set(true);
    }

    /// An operator knows that nothing was lost.
    pub fn vouch(&self) {
        self.fence.set([self.fence.get()[1]; 2]);
        self.is_unsure.set(false);
    }

    /// The first contact after a failover: leases that have ended by then cannot be told from lost ones.
    pub fn discover(&self, groups: &mut BTreeMap<i64, (Contact, Lease)>, latest: i64) {
        let ended = latest + TOLERANCE / MS;
        groups.values_mut().filter(|(_, l)| l.until < ended).for_each(|(last, _)| last.node = Uuid::nil());
        let [before, _] = self.fence.get();
        self.fence.set([before.max(ended + GRANT / MS), before]);
        self.is_unsure.set(false);
    }

    pub fn answer(&self, contact: &Contact) -> Answer {
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
        let Some(home) = (0..self.homes.get()).find(is_free) else { return Answer::Refused };
        let floor = groups.get(&home).map_or(-1, |(_, lease)| lease.until).max(fence);
        let lease = Lease { home, floor, until };
        groups.insert(home, (*contact, lease));
        Answer::Granted { registry: self.id, lease }
    }

    /// Somebody else speaks for the node that has this group, or an operator retires it.
    pub fn end(&self, home: i64) {
        let mut groups = self.groups.borrow_mut();
        let (last, _) = groups.get_mut(&home).unwrap();
        last.node = Uuid::nil();
    }
}

/// A server that speaks to a registry.
pub trait Member: Server {
    fn load_node(&self) {
        let start = self.machine().start.get();
        self.machine().with(|generator| generator.load_node(&start)).expect("enlisted");
    }

    fn contact(&self) -> Contact {
        self.machine().with(|generator| generator.contact()).expect("durable").expect("enlisted")
    }

    fn answered(&self, contact: &Contact, answer: Answer) -> Answered {
        self.machine().with(|generator| generator.answered(contact, answer)).expect("durable")
    }

    /// Contacts the registry, and once more if the lease was over.
    fn meet(&self, registry: &Registry) -> Answered {
        let contact = self.contact();
        match self.answered(&contact, registry.answer(&contact)) {
            Answered::Lost => self.meet(registry),
            otherwise => otherwise,
        }
    }

    /// Starts and gets a lease.
    fn join(&self, registry: &Registry) -> Lease {
        self.machine().boot_up();
        self.load_node();
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
        self.machine().disk.host_lock.forget();
        self.crash();
    }

    fn home(&self, parts: Parts) -> i64 {
        parts.worker % 256
    }
}

impl Member for Machine {}
