//! What the model remembers beside the fleet, in order to check the invariants.

use crate::scopes::GROUPS;

/// A broken invariant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Breach {
    /// Two memories issued in one tick of one group: each ring begins with the first sequence, so an ID is there twice.
    Twice,
    /// An ID outside of (floor, until] of every lease that was granted for its group to a node of this memory.
    OutsideLease,
    /// Two leases of one group have a tick in common.
    Overlap,
    /// The registry got a contact whose number the disk of its node does not have.
    SentBeforeDurable,
    /// A permit reaches above the `until` or the mark that is on disk.
    PermittedBeforeDurable,
    /// A doubt ended a lease that runs by a clock that is right, if one of two is.
    EndedEarly,
}

/// A lease as the registry granted it, renewals included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
pub struct Lease {
    pub node: u8,
    pub group: u8,
    pub floor: u8,
    pub until: u8,
}

/// In the place of a node: the server for which a group is reserved.
pub const RESERVED: u8 = u8::MAX;

/// No run of any scope grants more leases.
const LEASES: usize = 6;

/// What nobody in the fleet knows, but the invariants are about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ghost {
    pub breach: Option<Breach>,
    /// Every lease ever granted, whoever still knows it; sorted, so that equal histories are equal.
    pub leases: [Lease; LEASES],
    /// The ticks in which IDs exist, a word a group.
    pub issued: [u16; GROUPS],
    /// A node that runs twice since a virtual machine was cloned, its last contact then, and the last tick that either
    /// may repeat.
    pub twin: u8,
    pub twin_number: u8,
    pub excused: u8,
}

impl Ghost {
    pub fn break_by(&mut self, breach: Breach) {
        self.breach.get_or_insert(breach);
    }

    /// The registry has granted this lease, or more of it.
    pub fn grant(&mut self, granted: Lease, number: u8) {
        if granted.node == self.twin && number <= self.twin_number {
            self.excused = self.excused.max(granted.until);
        }
        let is_same = |lease: &Lease| {
            (lease.node, lease.group, lease.floor) == (granted.node, granted.group, granted.floor)
        };
        let overlaps = |lease: &Lease| {
            lease.group == granted.group && lease.floor < granted.until && granted.floor < lease.until
        };
        if self.leases.iter().any(|lease| !is_same(lease) && overlaps(lease)) {
            self.break_by(Breach::Overlap);
        }
        let at = self.leases.iter().position(|lease| is_same(lease) || lease.node == 0);
        let lease = &mut self.leases[at.expect("room for every lease of the scope")];
        *lease = Lease { until: lease.until.max(granted.until), ..granted };
        // Blank ones last.
        self.leases.sort_unstable_by_key(|lease| (lease.node == 0, *lease));
    }

    /// The last tick ever granted to the node in the group.
    pub fn granted(&self, node: u8, group: u8) -> u8 {
        let of_node = self.leases.iter().filter(|lease| lease.node == node && lease.group == group);
        of_node.map(|lease| lease.until).max().unwrap_or(0)
    }

    /// The highest tick of the group in which an ID exists.
    pub fn newest(&self, group: u8) -> u8 {
        self.issued[group as usize - 1].checked_ilog2().unwrap_or(0) as u8
    }
}
