//! The registry: one function for nodes, and what operators and failovers do to it.

use crate::invariants::{Ghost, Lease};
use crate::mutants::Mutant;
use crate::scopes::Scope;
use crate::state::{GRANT, Registry, Reply, Request, Row};

impl Registry {
    /// A contact, in one transaction. `clock` is read after the row's lock; `pick` is the group that a claim gets if it
    /// is free, for the choice among free ones is a matter of taste. `None`: refused, with nothing changed but what a
    /// doubt changes.
    pub fn contact(
        &mut self,
        ghost: &mut Ghost,
        scope: &Scope,
        request: &Request,
        clock: u8,
        pick: u8,
    ) -> Option<Reply> {
        ghost.clock = ghost.clock.max(clock);
        if self.is_elsewhere {
            self.doubt(ghost, scope, clock);
        }
        // A node too far ahead can go on to its `until`, and no further.
        if request.clock > clock + GRANT && !scope.has(Mutant::AnyClock) {
            return None;
        }
        match request.group {
            0 => self.claim(ghost, scope, request, clock, pick),
            _ => Some(self.renew(ghost, scope, request, clock)),
        }
    }

    /// F5: commits may be lost.
    fn doubt(&mut self, ghost: &mut Ghost, scope: &Scope, clock: u8) {
        self.is_elsewhere = false;
        (ghost.was_lost, ghost.is_lost) = (ghost.is_lost, false);
        if scope.has(Mutant::NoDoubt) {
            return;
        }
        self.fence_before = self.fence;
        let fence = clock + if scope.has(Mutant::ShortFence) { GRANT } else { 2 * GRANT };
        self.fence = match scope.mutant {
            Some(Mutant::NoFence) => self.fence,
            Some(Mutant::FenceLowered) => fence,
            _ => self.fence.max(fence),
        };
        if !scope.has(Mutant::PassedNotEnded) {
            for row in self.rows.iter_mut().filter(|row| row.node != 0 && row.until < clock) {
                row.is_over = true;
            }
        }
    }

    /// F3, and in doubt F5.
    fn renew(&mut self, ghost: &mut Ghost, scope: &Scope, request: &Request, clock: u8) -> Reply {
        let row = self.rows[request.group as usize - 1];
        let is_its_own = row.node == request.node && !row.is_over;
        let is_its_lease = row.floor == request.floor || scope.has(Mutant::FloorNotCompared);
        let is_accepted = is_its_own && is_its_lease && row.accepts(scope, request);
        if !is_accepted && !self.takes_back(scope, &row, request, clock) {
            return Reply::Over;
        }
        let until = row.until.max(request.until).max(request.clock + GRANT);
        self.grant(ghost, scope, request, request.floor, until)
    }

    /// Whether a registry in doubt believes a node whose lease its row does not know.
    fn takes_back(&self, scope: &Scope, row: &Row, request: &Request, clock: u8) -> bool {
        // The clock at discovery was not behind that of the registry whose commits were lost; the one of the moment may
        // be. The fence remembers it.
        let latest = match scope.has(Mutant::TakenBackByTheMoment) {
            true => clock,
            false => clock.max(self.fence.saturating_sub(2 * GRANT)),
        };
        let is_in_doubt = clock <= self.fence;
        let is_stale = row.node == request.node && !row.accepts(scope, request);
        is_in_doubt
            && !is_stale
            && (row.node == 0 || row.is_over || scope.has(Mutant::TakenBackFromAnother))
            && (request.until > latest || scope.has(Mutant::TakenBackBlindly))
            && (request.until >= row.until || scope.has(Mutant::TakenBackBelow))
    }

    /// A group for a node without one.
    fn claim(
        &mut self,
        ghost: &mut Ghost,
        scope: &Scope,
        request: &Request,
        clock: u8,
        pick: u8,
    ) -> Option<Reply> {
        let held = self.rows.iter().position(|row| row.node == request.node && !row.is_over);
        if let Some(held) = held {
            let row = self.rows[held];
            if row.number == request.number && row.accepts(scope, request) {
                // The claim is asked again: the same answer.
                let again = Request { group: held as u8 + 1, ..*request };
                let until = row.until.max(request.clock + GRANT);
                return Some(self.grant(ghost, scope, &again, row.floor, until));
            }
            if !row.accepts(scope, request) {
                return Some(Reply::Over);
            }
            // A node that claims says that it has no lease.
            self.rows[held].is_over = true;
        }
        let row = self.rows[pick as usize - 1];
        let is_free = |tick: u8| tick < clock && tick < request.clock;
        if !is_free(row.until) || !is_free(self.fence) {
            return None;
        }
        let floor = if scope.has(Mutant::NoFloor) { 0 } else { row.until.max(self.fence) };
        let claim = Request { group: pick, ..*request };
        Some(self.grant(ghost, scope, &claim, floor, request.clock + GRANT))
    }

    fn grant(&mut self, ghost: &mut Ghost, scope: &Scope, request: &Request, floor: u8, until: u8) -> Reply {
        let Request { node, number, nonce, group, .. } = *request;
        // A registry that answers before it commits may crash in between.
        if !scope.has(Mutant::AnsweredFirst) {
            self.rows[group as usize - 1] = Row { node, floor, until, number, nonce, is_over: false };
        }
        ghost.grant(Lease { node, group, floor, until }, number);
        Reply::Granted { group, floor, until }
    }

    /// An operator retires a node: its group comes free after `until`.
    pub fn retire(&mut self, group: u8) {
        self.rows[group as usize - 1].is_over = true;
    }

    /// An operator vouches that the last failover lost nothing.
    pub fn vouch(&mut self) {
        self.fence = self.fence_before;
    }
}

impl Row {
    /// F3: a higher number, or the same contact once more.
    fn accepts(&self, scope: &Scope, request: &Request) -> bool {
        let is_again =
            request.number == self.number && (request.nonce == self.nonce || scope.has(Mutant::NonceIgnored));
        request.number > self.number || is_again || scope.has(Mutant::NumberIgnored)
    }
}
