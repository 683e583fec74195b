//! A fleet's registry leases workers to its nodes. This file has the node's record of its lease, and how an answer of
//! the registry changes that record; the generator makes each change durable.
//!
//! # Why no ID repeats
//!
//! A lease is fenced by a place in ID space, not by a moment: a node generates no ID above the lease's `until`, and a
//! group goes to another node only with a floor at or above every `until` that was ever granted for it. No clock takes
//! part in that.
//!
//! A *contact* is one call of the registry. It carries a number, one higher than the last, and a nonce, and both are
//! durable before they are sent. So only one of two copies of a node goes on: the registry refuses the other, which
//! sends a number that was used with another nonce. A server that cannot show that it is the only one with its record,
//! and a node whose lease is over, take a new node ID and drop the pending contact.

use crate::layout::Layout;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A group of workers, leased: a home worker with its backup workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The home worker.
    pub home: i64,
    /// Every ID of the lease has a later tick. Two leases of one group differ in their floors.
    pub floor: i64,
    /// The last tick of the lease.
    pub until: i64,
}

/// One call of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// The registry that granted the last lease; `None` before the first.
    pub registry: Option<Uuid>,
    /// The node: one data directory, up to a restart over which its lease does not go on.
    pub node: Uuid,
    /// One higher than that of the contact before, unless that one is repeated.
    pub number: i64,
    /// Drawn for this number.
    pub nonce: Uuid,
    /// The lease to renew; `None` claims one.
    pub lease: Option<Lease>,
}

/// The registry's answer to a contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The node has this lease, be it renewed or new.
    Granted {
        /// The registry.
        registry: Uuid,
        /// The lease that it granted.
        lease: Lease,
    },
    /// The node's lease is over: a copy of the node, or its successor, made a later contact.
    Over,
    /// Nothing has changed.
    Refused,
}

/// How an answer changed what the node may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The lease goes on, to a later tick.
    Renewed,
    /// The node has another lease than before.
    Leased,
    /// The node has no lease any more.
    Lost,
    /// Nothing: the registry refused.
    Unchanged,
    /// Nothing: the answer is to a contact that is not pending any more, or it cannot be a registry's.
    Ignored,
}

/// A node's ID, its last contact, and its lease: a part of the record on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Membership {
    pub(crate) node: Uuid,
    pub(crate) registry: Option<Uuid>,
    /// The number and the nonce of the last contact.
    number: i64,
    nonce: Uuid,
    /// Whether that contact is yet unanswered.
    is_pending: bool,
    pub(crate) lease: Option<Lease>,
    /// How the node counts workers and ticks: what a lease allows depends on it, so a node that counts otherwise is
    /// another. So is one with another datacenter: the token of its home worker is not in the record.
    lanes: usize,
    layout: Layout,
}

impl Membership {
    /// A node that has not contacted a registry yet.
    pub(crate) fn new(node: Uuid, lanes: usize, layout: Layout) -> Self {
        let (number, nonce) = (0, Uuid::nil());
        Self { node, registry: None, number, nonce, is_pending: false, lease: None, lanes, layout }
    }

    /// Whether both nodes count workers and ticks alike, so that a lease means the same for both.
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        (self.lanes, self.layout) == (other.lanes, other.layout)
    }

    /// Begins a contact, or repeats the pending one: its answer may have been lost.
    pub(crate) fn begin(&mut self, nonce: Uuid) {
        if !self.is_pending {
            (self.number, self.nonce, self.is_pending) = (self.number + 1, nonce, true);
        }
    }

    /// The pending contact.
    pub(crate) fn contact(&self) -> Contact {
        let Self { node, registry, number, nonce, lease, .. } = *self;
        Contact { registry, node, number, nonce, lease }
    }

    /// The record after this answer, and the change for the node. `new_node`: its ID if its lease is over.
    pub(crate) fn after(&self, contact: &Contact, answer: Answer, new_node: Uuid) -> (Self, Effect) {
        let is_pending = self.is_pending && self.contact() == *contact;
        let answered = Self { is_pending: false, ..*self };
        match answer {
            _ if !is_pending => (*self, Effect::Ignored),
            Answer::Refused => (answered, Effect::Unchanged),
            Answer::Over => (Self::new(new_node, self.lanes, self.layout), Effect::Lost),
            Answer::Granted { registry, .. } if self.registry.is_some_and(|known| known != registry) => {
                (*self, Effect::Ignored)
            }
            Answer::Granted { registry, lease } => match self.lease {
                Some(held) if (held.home, held.floor) == (lease.home, lease.floor) => {
                    let until = lease.until.max(held.until);
                    let lease = Some(Lease { until, ..lease });
                    (Self { lease, ..answered }, Effect::Renewed)
                }
                _ => (Self { registry: Some(registry), lease: Some(lease), ..answered }, Effect::Leased),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn nonce(n: u128) -> Uuid {
        Uuid::from_u128(100 + n)
    }

    fn granted(home: i64, floor: i64, until: i64) -> Answer {
        Answer::Granted { registry: REGISTRY, lease: Lease { home, floor, until } }
    }

    /// A node that has been granted a lease.
    fn node() -> Membership {
        let mut node = Membership::new(Uuid::from_u128(7), 4, Layout::default());
        node.begin(nonce(1));
        let (node, effect) = node.after(&node.contact(), granted(3, 10, 20), nonce(0));
        assert_eq!(effect, Effect::Leased);
        node
    }

    #[test]
    fn a_contact_without_an_answer_is_repeated_with_its_number_and_nonce() {
        let mut node = node();
        node.begin(nonce(2));
        let first = node.contact();
        node.begin(nonce(3));
        assert_eq!(node.contact(), first);
        assert_eq!((first.registry, first.number, first.nonce), (Some(REGISTRY), 2, nonce(2)));
        let (mut node, _) = node.after(&first, Answer::Refused, nonce(0));
        assert_eq!(node.after(&first, Answer::Refused, nonce(0)), (node, Effect::Ignored));
        node.begin(nonce(3));
        assert_eq!((node.contact().number, node.contact().nonce), (3, nonce(3)));
    }

    #[test]
    fn an_answer_counts_once_and_only_for_the_pending_contact() {
        let mut node = node();
        node.begin(nonce(2));
        let contact = node.contact();
        let (after, effect) = node.after(&contact, granted(3, 10, 30), nonce(0));
        assert_eq!((effect, after.lease.unwrap().until), (Effect::Renewed, 30));
        assert_eq!(after.after(&contact, granted(3, 10, 40), nonce(0)), (after, Effect::Ignored));
        let forged = Contact { nonce: nonce(9), ..contact };
        assert_eq!(node.after(&forged, granted(3, 10, 40), nonce(0)), (node, Effect::Ignored));
    }

    #[test]
    fn a_renewal_never_lowers_until_and_another_floor_is_another_lease() {
        let mut node = node();
        node.begin(nonce(2));
        let contact = node.contact();
        let (after, _) = node.after(&contact, granted(3, 10, 15), nonce(0));
        assert_eq!(after.lease, Some(Lease { home: 3, floor: 10, until: 20 }));
        for (home, floor) in [(3, 20), (4, 10)] {
            let (after, effect) = node.after(&contact, granted(home, floor, 30), nonce(0));
            assert_eq!((effect, after.lease), (Effect::Leased, Some(Lease { home, floor, until: 30 })));
        }
    }

    #[test]
    fn a_node_whose_lease_is_over_is_another_node() {
        let mut node = node();
        node.begin(nonce(2));
        let (after, effect) = node.after(&node.contact(), Answer::Over, OTHER);
        assert_eq!((after, effect), (Membership::new(OTHER, 4, Layout::default()), Effect::Lost));
    }

    #[test]
    fn a_grant_of_another_registry_is_ignored() {
        let mut node = node();
        node.begin(nonce(2));
        let lease = Lease { home: 3, floor: 10, until: 90 };
        let answer = Answer::Granted { registry: OTHER, lease };
        assert_eq!(node.after(&node.contact(), answer, nonce(0)), (node, Effect::Ignored));
    }
}
