//! What is explored: how much of everything there is, and how often each kind of event may happen. Each scope goes to
//! its end; what a scope leaves out, another has.

use crate::mutants::Mutant;

/// Groups that the registry hands out. A group has one lane here.
pub const GROUPS: usize = 2;

/// Events that a scope limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A node contacts the registry.
    Contact,
    /// An ID; two show a duplicate.
    Id,
    /// A server goes down; the host stays.
    Crash,
    /// A host goes down, with its memory and the file there.
    Reboot,
    /// The files of a directory are copied to another.
    FileCopy,
    /// A volume is cloned to another host, where device, inode and birth time are the same.
    VolumeClone,
    /// A volume is rolled back to a snapshot of itself.
    Rollback,
    /// A virtual machine is cloned with its memory.
    MachineClone,
    /// A request or a reply is lost.
    Loss,
    /// The network delivers a request once more, later.
    Stray,
    /// A standby of the registry catches up; a backup is one that does so once.
    Sync,
    /// A standby of the registry is promoted, or a backup restored.
    Failover,
    /// An operator vouches that a failover lost nothing.
    Vouch,
    /// An operator retires a node.
    Retirement,
    /// An operator keeps a group for a server without a registry.
    Reservation,
}

pub const KINDS: usize = Kind::Reservation as usize + 1;

/// A bounded fleet.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// How tests and people name it.
    pub name: &'static str,
    /// How many data directories there are.
    pub slots: usize,
    /// How many of the servers issue IDs; the others hold leases.
    pub issuers: usize,
    /// How many groups the registry has.
    pub groups: u8,
    /// Every clock, at every read, says anything from 1 to this.
    pub clock: u8,
    /// How long a lease is granted for, in ticks.
    pub grant: u8,
    /// The difference of clocks that the fleet tolerates: s.
    pub tolerance: u8,
    /// How many ticks a reservation takes; 0: as many as the lease has.
    pub reserve: u8,
    /// Both directories are on one host, with one file.
    pub is_one_host: bool,
    /// How often what may happen; what is not named does not.
    pub limits: &'static [(Kind, u8)],
    /// How much more often all of that may happen, for a long run.
    pub deeper: u8,
    /// The sentence of the protocol that is left out.
    pub mutant: Option<Mutant>,
}

impl Scope {
    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(crate) fn limits(&self) -> [u8; KINDS] {
        let mut left = [0; KINDS];
        for (kind, times) in self.limits {
            // A deeper run lets everything that a scope has happen once more often.
            left[*kind as usize] = *times + self.deeper;
        }
        left
    }
}

use Kind::{
    Contact, Crash, Failover, FileCopy, Id, Loss, MachineClone, Reboot, Reservation, Retirement, Rollback,
    Stray, Sync, VolumeClone, Vouch,
};

const PLAIN: Scope = Scope {
    name: "",
    slots: 2,
    issuers: 2,
    groups: 1,
    clock: 3,
    grant: 1,
    tolerance: 0,
    reserve: 0,
    is_one_host: false,
    limits: &[],
    deeper: 0,
    mutant: None,
};

/// All of them.
pub const SCOPES: &[Scope] = &[
    Scope {
        name: "leases",
        clock: 3,
        limits: &[(Contact, 4), (Id, 2), (Loss, 1), (Retirement, 1), (Crash, 1)],
        ..PLAIN
    },
    Scope { name: "groups", groups: 2, limits: &[(Contact, 4), (Id, 2), (Retirement, 1)], ..PLAIN },
    Scope { name: "strays", clock: 5, limits: &[(Contact, 4), (Loss, 1), (Stray, 1)], ..PLAIN },
    Scope {
        name: "restarts",
        reserve: 1,
        limits: &[(Contact, 2), (Id, 2), (Crash, 1), (Reboot, 1), (FileCopy, 1)],
        ..PLAIN
    },
    Scope {
        name: "rollbacks",
        slots: 1,
        reserve: 1,
        limits: &[(Contact, 2), (Id, 2), (Crash, 2), (Reboot, 1), (Rollback, 1)],
        ..PLAIN
    },
    Scope {
        name: "one host",
        clock: 2,
        groups: 2,
        reserve: 1,
        is_one_host: true,
        limits: &[(Contact, 2), (Id, 2), (Crash, 1), (FileCopy, 2)],
        ..PLAIN
    },
    Scope {
        name: "volumes",
        clock: 2,
        groups: 2,
        reserve: 1,
        limits: &[(Contact, 2), (Id, 2), (Crash, 1), (VolumeClone, 2)],
        ..PLAIN
    },
    Scope { name: "machines", limits: &[(Contact, 4), (Id, 2), (Loss, 1), (MachineClone, 1)], ..PLAIN },
    Scope {
        name: "failover",
        clock: 5,
        tolerance: 1,
        limits: &[(Contact, 4), (Sync, 1), (Failover, 1)],
        ..PLAIN
    },
    Scope {
        name: "vouches",
        clock: 4,
        tolerance: 1,
        limits: &[(Contact, 4), (Sync, 1), (Failover, 1), (Vouch, 1)],
        ..PLAIN
    },
    Scope {
        name: "long grants",
        clock: 5,
        grant: 3,
        tolerance: 1,
        limits: &[(Contact, 4), (Failover, 1), (Retirement, 1)],
        ..PLAIN
    },
    Scope {
        name: "reservations",
        clock: 5,
        tolerance: 1,
        limits: &[(Contact, 3), (Sync, 1), (Failover, 1), (Vouch, 1), (Reservation, 1)],
        ..PLAIN
    },
    Scope {
        name: "failovers",
        clock: 4,
        limits: &[(Contact, 4), (Sync, 1), (Failover, 2), (Retirement, 1)],
        ..PLAIN
    },
    Scope {
        name: "two doubts",
        clock: 4,
        limits: &[(Contact, 4), (Sync, 1), (Failover, 2), (Vouch, 1)],
        ..PLAIN
    },
];
