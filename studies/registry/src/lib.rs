//! The rules of a fleet's registry as plain data and functions: what `sql/registry.sql` and `sql/registry_nodes.sql` do,
//! without settings, names and texts. `studies/fleet` explores them to the end; the generator's tests lease their workers
//! by them.
//!
//! A tick is a place among IDs. `T` is the type of ticks, clocks and numbers, `N` that of node ids and nonces: one byte
//! each where states are explored. The default of `N` is no node.
//!
//! Random histories compare the SQL with these rules, step by step. The SQL differs in what no invariant needs: it keeps
//! a history, so that a node whose lease is over claims nothing more in that life; a claim that is newer than the one of
//! a running lease ends that lease here, and is over there; and it believes a shown `until` only up to a grant and the
//! tolerance past its clock.

use std::ops::{Add, Sub};

/// A tick, a clock in ticks, or the number of a contact.
pub trait Tick: Copy + Ord + Default + Add<Output = Self> + Sub<Output = Self> {}

impl<T: Copy + Ord + Default + Add<Output = T> + Sub<Output = T>> Tick for T {}

/// The registry's tables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registry<T, N, const GROUPS: usize> {
    /// A row a group.
    pub rows: [Row<T, N>; GROUPS],
    /// For how long a lease is granted.
    pub grant: T,
    /// The difference of two clocks that the fleet tolerates.
    pub tolerance: T,
    /// Nothing is leased before both clocks have passed this.
    pub fence: T,
    /// For an operator who vouches: the fence as it was before the first doubt that is still on.
    pub before: Option<T>,
    /// It runs on a timeline that its row does not name, so commits may be lost: no contact has found out yet.
    pub is_elsewhere: bool,
}

/// A group in the registry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Row<T, N> {
    /// The node that has it or had it last.
    pub node: N,
    /// No ID of the lease lies in this tick or below.
    pub floor: T,
    /// The last tick of the lease.
    pub until: T,
    /// Of the last contact.
    pub number: T,
    /// Drawn for that number.
    pub nonce: N,
    /// Its lease is over: the node was retired, or claimed again, or a registry in doubt ended it.
    pub is_over: bool,
    /// An operator keeps it for a server without a registry.
    pub is_reserved: bool,
}

/// A contact on its way to the registry. Without a group it is a claim, with one a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request<T, N> {
    /// The node that asks.
    pub node: N,
    /// One higher than that of the contact before.
    pub number: T,
    /// Drawn for that number.
    pub nonce: N,
    /// The leased group, from 1; 0: none.
    pub group: u8,
    /// Floor of the lease.
    pub floor: T,
    /// The last tick of the lease that the node knows.
    pub until: T,
    /// The node's clock.
    pub clock: T,
}

/// The registry's answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reply<T> {
    /// The lease, renewed or new.
    Granted {
        /// The leased group, from 1.
        group: u8,
        /// No ID of the lease lies in this tick or below.
        floor: T,
        /// The last tick of the lease.
        until: T,
    },
    /// The lease of this node is over.
    Over,
}

impl<T: Tick, N: Copy + Eq + Default, const GROUPS: usize> Registry<T, N, GROUPS> {
    /// A registry without leases.
    pub fn new(grant: T, tolerance: T) -> Self {
        let (rows, fence) = ([Row::default(); GROUPS], T::default());
        Self { rows, grant, tolerance, fence, before: None, is_elsewhere: false }
    }

    /// A contact, in one transaction. `clock` is the registry's; `pick` is the group that a claim gets if it is free.
    /// `None`: refused, with nothing changed but what a doubt changes.
    pub fn contact(&mut self, request: &Request<T, N>, clock: T, pick: u8) -> Option<Reply<T>> {
        if self.is_elsewhere {
            if !self.can_find_out(request.clock, clock) {
                return None;
            }
            self.find_out(request.clock, clock);
        }
        self.answer(request, clock, pick)
    }

    /// Whether a contact with these two clocks may find out that commits may be lost: a registry whose clock is wrong for
    /// a moment ends nothing.
    pub fn can_find_out(&self, node_clock: T, clock: T) -> bool {
        node_clock.max(clock) <= node_clock.min(clock) + self.tolerance
    }

    /// F5: the latest time at which a lost contact may have been, as far as the registry can tell: by the two clocks of this
    /// one, and by the leases that it has, each of which ends one grant after the earlier clock of its last contact.
    pub fn latest(&self, node_clock: T, clock: T) -> T {
        let leases = self.rows.iter().filter(|row| row.is_running() && row.until > self.grant);
        leases.map(|row| row.until - self.grant).fold(node_clock.max(clock), T::max)
    }

    /// F5: a contact with these clocks finds out that commits may be lost.
    pub fn find_out(&mut self, node_clock: T, clock: T) {
        let ended = self.latest(node_clock, clock) + self.tolerance;
        // Unless both clocks have passed the last fence: then a vouch says nothing of what came before it.
        if !self.is_in_doubt(ended) {
            self.before = Some(self.fence);
        }
        self.fence = self.fence.max(ended + self.grant);
        for row in self.rows.iter_mut().filter(|row| row.is_running() && row.until < ended) {
            row.is_over = true;
        }
        self.is_elsewhere = false;
    }

    /// Answers a contact in a registry that has found out what it may have lost.
    pub fn answer(&mut self, request: &Request<T, N>, clock: T, pick: u8) -> Option<Reply<T>> {
        // A node too far ahead can go on to its `until`, and no further.
        if request.clock > clock + self.grant {
            return None;
        }
        let until = request.clock.min(clock) + self.grant;
        match request.group {
            0 => self.claim(request, until, clock, pick),
            _ => self.renew(request, until, clock),
        }
    }

    /// F3. In doubt, a lease that the row does not have is neither renewed nor ended: its claim may have been lost.
    fn renew(&mut self, request: &Request<T, N>, until: T, clock: T) -> Option<Reply<T>> {
        let is_in_doubt = self.is_in_doubt(clock);
        let row = &mut self.rows[request.group as usize - 1];
        if row.node != request.node && is_in_doubt {
            return None;
        }
        let is_its_lease = row.node == request.node && !row.is_over && row.floor == request.floor;
        if !is_its_lease || !row.accepts(request) {
            return Some(Reply::Over);
        }
        let until = row.until.max(request.until).max(until);
        Some(self.grant(request, request.group, request.floor, until))
    }

    /// A group for a node without one.
    fn claim(&mut self, request: &Request<T, N>, until: T, clock: T, pick: u8) -> Option<Reply<T>> {
        let held = self.rows.iter().position(|row| row.node == request.node && !row.is_over);
        if let Some(held) = held {
            let row = self.rows[held];
            if !row.accepts(request) {
                return Some(Reply::Over);
            }
            if row.number == request.number {
                // The claim is asked again: the same answer.
                return Some(self.grant(request, held as u8 + 1, row.floor, row.until.max(until)));
            }
            // A node that claims says that it has no lease.
            self.rows[held].is_over = true;
        }
        let row = self.rows[pick as usize - 1];
        let is_free = |tick: T| tick < clock && tick < request.clock;
        if row.is_reserved || !is_free(row.until) || !is_free(self.fence) {
            return None;
        }
        Some(self.grant(request, pick, row.until.max(self.fence), until))
    }

    fn grant(&mut self, request: &Request<T, N>, group: u8, floor: T, until: T) -> Reply<T> {
        let Request { node, number, nonce, .. } = *request;
        self.rows[group as usize - 1] =
            Row { node, floor, until, number, nonce, is_over: false, is_reserved: false };
        Reply::Granted { group, floor, until }
    }

    /// An operator retires a node: its group comes free after `until`.
    pub fn retire(&mut self, group: u8) {
        self.rows[group as usize - 1].is_over = true;
    }

    /// Whether an operator can reserve the group now: no lease of it runs by the registry's clock.
    pub fn can_reserve(&self, group: u8, clock: T) -> bool {
        let row = self.rows[group as usize - 1];
        !(self.is_elsewhere || row.is_reserved || row.is_running() && row.until >= clock)
    }

    /// An operator reserves it, at once. The server for which it is kept begins when its own clock has passed the time
    /// that is returned; `None`: no server had the group before, and no commit was ever in doubt.
    pub fn reserve(&mut self, group: u8) -> Option<T> {
        let row = &mut self.rows[group as usize - 1];
        (row.is_over, row.is_reserved) = (true, true);
        let used = (row.until > T::default()).then_some(row.until);
        used.max(self.before.map(|_| self.fence))
    }

    /// An operator vouches that nothing was lost. The fence is as it was before.
    pub fn vouch(&mut self, clock: T) {
        self.is_elsewhere = false;
        if self.is_in_doubt(clock) {
            self.fence = self.before.expect("a doubt");
        }
    }

    /// Whether nothing is leased by this clock because commits may be lost.
    pub fn is_in_doubt(&self, clock: T) -> bool {
        self.before.is_some_and(|before| before != self.fence) && clock <= self.fence
    }
}

impl<T: Tick, N: Copy + Eq + Default> Row<T, N> {
    /// Whether its node has the lease, whatever the clock says: only a doubt ends it for its `until`.
    pub fn is_running(&self) -> bool {
        self.node != N::default() && !self.is_over
    }

    /// F3: a higher number, or the same contact once more.
    fn accepts(&self, request: &Request<T, N>) -> bool {
        (request.number, request.nonce) == (self.number, self.nonce) || request.number > self.number
    }
}
