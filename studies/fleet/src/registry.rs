//! The registry: one function for nodes, and what operators and failovers do to it.

use crate::invariants::{Breach, Ghost, Lease, RESERVED};
use crate::mutants::Mutant;
use crate::scopes::{Kind, Scope};
use crate::state::{Registry, Reply, Request, Row};

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
        if self.is_elsewhere {
            if !scope.finds_out(request.clock, clock) {
                return None;
            }
            self.find_out(ghost, scope, request.clock, clock);
        }
        // A node too far ahead can go on to its `until`, and no further.
        if request.clock > clock + scope.grant {
            return None;
        }
        match request.group {
            0 => self.claim(ghost, scope, request, clock, pick),
            _ => self.renew(ghost, scope, request, clock),
        }
    }

    /// F5: a contact finds out that commits may be lost.
    fn find_out(&mut self, ghost: &mut Ghost, scope: &Scope, node_clock: u8, clock: u8) {
        let latest = node_clock.max(clock) + scope.tolerance;
        let ended = match scope.mutant {
            Some(Mutant::EndedWithoutTolerance) => latest - scope.tolerance,
            Some(Mutant::EndedLate) => latest - 1,
            _ => latest,
        };
        // A registry whose clock is wrong for a moment ends nothing.
        let early = node_clock.min(clock) + 2 * scope.tolerance;
        if self.rows.iter().any(|row| row.is_running() && row.until < ended && row.until >= early) {
            ghost.break_by(Breach::EndedEarly);
        }
        self.is_elsewhere = false;
        let has_lost = self.lost.take().is_some();
        if scope.has(Mutant::NoDoubt) {
            return;
        }
        // Both clocks have passed the last fence: who vouches now says nothing of what came before it.
        let is_new = self.before.is_none() || self.fence < latest;
        self.has_lost = has_lost || (self.has_lost && !is_new);
        if is_new && !(scope.has(Mutant::BeforeKept) && self.before.is_some()) {
            self.before = Some(self.fence);
        }
        let fenced = latest - if scope.has(Mutant::FenceWithoutTolerance) { scope.tolerance } else { 0 };
        let fence = fenced + scope.grant - scope.has(Mutant::ShortFence) as u8;
        self.fence = match scope.mutant {
            Some(Mutant::NoFence) => self.fence,
            Some(Mutant::FenceLowered) => fence,
            _ => self.fence.max(fence),
        };
        if !scope.has(Mutant::PassedNotEnded) {
            for row in self.rows.iter_mut().filter(|row| row.is_running() && row.until < ended) {
                row.is_over = true;
            }
        }
    }

    /// F3. In doubt, a lease that the row does not have is neither renewed nor ended: its claim may have been lost.
    fn renew(&mut self, ghost: &mut Ghost, scope: &Scope, request: &Request, clock: u8) -> Option<Reply> {
        let row = &mut self.rows[request.group as usize - 1];
        let is_its_own = row.node == request.node && !row.is_over;
        let is_its_lease = row.floor == request.floor || scope.has(Mutant::FloorNotCompared);
        let is_unknown = row.node != request.node && self.before.is_some() && clock <= self.fence;
        let is_accepted = is_its_own && is_its_lease && row.accepts(scope, request);
        let is_renewed_blindly = is_unknown && scope.has(Mutant::UnknownRenewed);
        if !is_accepted && !is_renewed_blindly {
            return (!is_unknown).then_some(Reply::Over);
        }
        if request.is_release {
            (row.is_over, row.until) = (true, request.until);
            ghost.release(request);
            return Some(Reply::Over);
        }
        let until = row.until.max(request.until).max(scope.earlier(request.clock, clock) + scope.grant);
        Some(self.grant(ghost, scope, request, (request.floor, until), clock))
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
                let until = row.until.max(scope.earlier(request.clock, clock) + scope.grant);
                return Some(self.grant(ghost, scope, &again, (row.floor, until), clock));
            }
            if !row.accepts(scope, request) {
                return Some(Reply::Over);
            }
            // A node that claims says that it has no lease.
            self.rows[held].is_over = true;
        }
        let row = self.rows[pick as usize - 1];
        let is_free = |tick: u8| tick < clock && tick < request.clock;
        if row.is_reserved || !is_free(row.until) || !is_free(self.fence) {
            return None;
        }
        let floor = if scope.has(Mutant::NoFloor) { 0 } else { row.until.max(self.fence) };
        let claim = Request { group: pick, ..*request };
        let until = scope.earlier(request.clock, clock) + scope.grant;
        Some(self.grant(ghost, scope, &claim, (floor, until), clock))
    }

    fn grant(
        &mut self,
        ghost: &mut Ghost,
        scope: &Scope,
        request: &Request,
        (floor, until): (u8, u8),
        clock: u8,
    ) -> Reply {
        let Request { node, number, nonce, group, .. } = *request;
        // A registry that answers before it commits may crash in between.
        if !scope.has(Mutant::AnsweredFirst) {
            self.rows[group as usize - 1] =
                Row { node, floor, until, number, nonce, is_over: false, is_reserved: false };
        }
        // What nobody can lose need not be remembered.
        if scope.limits()[Kind::Failover as usize] > 0 {
            self.since = self.since.max(request.clock.min(clock));
        }
        ghost.grant(Lease { node, group, floor, until }, number);
        Reply::Granted { group, floor, until }
    }

    /// An operator retires a node: its group comes free after `until`.
    pub fn retire(&mut self, group: u8) {
        self.rows[group as usize - 1].is_over = true;
    }

    /// Whether an operator can reserve the group now, for a server whose clock is not behind by more than the tolerance.
    pub fn can_reserve(&self, scope: &Scope, group: u8, clock: u8) -> bool {
        let row = self.rows[group as usize - 1];
        let margin = if scope.has(Mutant::ReservedWithoutTolerance) { 0 } else { scope.tolerance };
        let is_free = |tick: u8| tick + margin < clock;
        let is_fenced = !is_free(self.fence) && !scope.has(Mutant::ReservedBelowFence);
        !self.is_elsewhere && !row.is_reserved && is_free(row.until) && !is_fenced
    }

    /// An operator reserves it. That server's IDs begin where its clock is, and nobody ends them.
    pub fn reserve(&mut self, ghost: &mut Ghost, scope: &Scope, group: u8, clock: u8) {
        let row = &mut self.rows[group as usize - 1];
        (row.is_over, row.is_reserved) = (true, true);
        let floor = clock.saturating_sub(scope.tolerance + 1);
        ghost.grant(Lease { node: RESERVED, group, floor, until: u8::MAX }, 0);
    }

    /// Whether an operator who knows all can vouch now: nothing was lost, neither in the failover of which no contact has
    /// come to know, nor in a doubt that is still on by the registry's clock.
    pub fn can_vouch(&self, scope: &Scope, clock: u8) -> bool {
        let is_on = self.is_on(clock);
        let is_wrong = (self.is_elsewhere && self.lost.is_some()) || (is_on && self.has_lost);
        (self.is_elsewhere || is_on) && (!is_wrong || scope.has(Mutant::WrongVouch))
    }

    /// An operator vouches. The fence is as it was before.
    pub fn vouch(&mut self, clock: u8) {
        (self.is_elsewhere, self.lost) = (false, None);
        if self.is_on(clock) {
            self.has_lost = false;
            self.fence = self.before.take().expect("a doubt");
        }
    }

    fn is_on(&self, clock: u8) -> bool {
        self.before.is_some() && clock <= self.fence
    }
}

impl Row {
    fn is_running(&self) -> bool {
        self.node != 0 && !self.is_over
    }

    /// F3: a higher number, or the same contact once more.
    fn accepts(&self, scope: &Scope, request: &Request) -> bool {
        let is_again =
            request.number == self.number && (request.nonce == self.nonce || scope.has(Mutant::NonceIgnored));
        request.number > self.number || is_again || scope.has(Mutant::NumberIgnored)
    }
}
