//! A fleet's registry, and servers that get their workers from it.

use super::server::{HOUR, MINUTE, MS, Server};
use super::tape::Tape;
use super::world::{Machine, config};
use snowflake_core::{Answer, Config, Contact, Effect, Lease, Limits, Parts, Tick, WorkerSource};
use snowflake_registry::{Reply, Request, Row};
use std::cell::{Cell, RefCell};
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

/// A registry that hands out groups by the rules, the first free one to each claim.
pub struct Registry {
    pub id: Uuid,
    pub tables: RefCell<snowflake_registry::Registry<i64, Uuid, 16>>,
    /// How many of the groups there are.
    pub groups: Cell<u8>,
    /// Its clock, as a boot clock and what to add to it; that of its contacts, if it has none.
    pub clock: RefCell<Option<(Rc<Cell<i64>>, i64)>>,
    /// How far its clock is ahead.
    pub offset: Cell<i64>,
    pub is_away: Cell<bool>,
}

impl Registry {
    pub fn new() -> Self {
        Self::of(16, GRANT)
    }

    pub fn of(groups: u8, grant: i64) -> Self {
        Self {
            id: Uuid::from_u128(77),
            tables: RefCell::new(snowflake_registry::Registry::new(grant / MS, TOLERANCE / MS)),
            groups: Cell::new(groups),
            clock: RefCell::default(),
            offset: Cell::default(),
            is_away: Cell::default(),
        }
    }

    fn tick(&self, of_contact: i64) -> i64 {
        let own = self.clock.borrow().as_ref().map(|(boot, ahead)| boot.get() + ahead);
        (own.unwrap_or(of_contact) + self.offset.get()) / MS
    }

    /// Another server is the registry now. It has no commit from these groups' last contacts.
    pub fn fail_over(&self, lost: &[usize]) {
        let mut tables = self.tables.borrow_mut();
        lost.iter().for_each(|home| tables.rows[*home] = Row::default());
        tables.is_elsewhere = true;
    }

    /// An operator knows that nothing was lost.
    pub fn vouch(&self) {
        self.tables.borrow_mut().vouch(self.tick(0));
    }

    /// An operator retires the node that has this group.
    pub fn end(&self, home: i64) {
        self.tables.borrow_mut().retire(home as u8 + 1);
    }

    /// The answer to a contact of a node whose clock says this.
    pub fn answer(&self, contact: &Contact, clock_us: i64) -> Answer {
        let Contact { node, number, nonce, lease, .. } = *contact;
        let shown = |lease: Lease| (lease.home as u8 + 1, lease.floor, lease.until);
        let (group, floor, until) = lease.map_or((0, 0, 0), shown);
        let clock = clock_us / MS;
        let request = Request { node, number, nonce, group, floor, until, clock };
        let mut tables = self.tables.borrow_mut();
        let mut picks = 1..=self.groups.get();
        match picks.find_map(|pick| tables.contact(&request, self.tick(clock_us), pick)) {
            Some(Reply::Granted { group, floor, until }) => {
                Answer::Granted { registry: self.id, lease: Lease { home: group as i64 - 1, floor, until } }
            }
            Some(Reply::Over) => Answer::Over,
            None => Answer::Refused,
        }
    }

    /// How long it takes until a group is free, by a node's clock.
    pub fn free_in(&self, clock: i64) -> i64 {
        let ends = self.tables.borrow().rows[..self.groups.get() as usize].iter().map(|row| row.until).min();
        ((ends.expect("a group") + 1) * MS - clock).max(0)
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

    fn answered(&self, contact: &Contact, answer: Answer) -> Effect {
        self.machine().with(|generator| generator.answered(contact, answer)).expect("durable")
    }

    /// Contacts the registry, and once more if the lease was over.
    fn meet(&self, registry: &Registry) -> Effect {
        let contact = self.contact();
        match self.answered(&contact, registry.answer(&contact, self.machine().wall())) {
            Effect::Lost => self.meet(registry),
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
