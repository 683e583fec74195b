//! The registry: one function for nodes, and what operators and failovers do to it.

use crate::invariants::{Breach, Ghost, Lease, RESERVED};
use crate::mutants::Mutant;
use crate::scopes::{Kind, Scope};
use crate::state::{Commits, DOUBTS, Doubt, Registry, Reply, Request, Row};

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
            _ => Some(self.renew(ghost, scope, request, clock)),
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
        let fenced = latest - if scope.has(Mutant::FenceWithoutTolerance) { scope.tolerance } else { 0 };
        self.doubt(scope, ended, fenced);
    }

    /// No lost contact had both clocks after `fenced`, and no lease with an `until` before `ended` is sure to run.
    fn doubt(&mut self, scope: &Scope, ended: u8, fenced: u8) {
        self.is_elsewhere = false;
        let lost = self.lost.take();
        if scope.has(Mutant::NoDoubt) {
            return;
        }
        let at = self.doubts.iter().position(Option::is_none).expect("room for every doubt of the scope");
        self.doubts[at] = Some(Doubt { fence: self.fence, lost });
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

    /// F3, and in doubt F5.
    fn renew(&mut self, ghost: &mut Ghost, scope: &Scope, request: &Request, clock: u8) -> Reply {
        let row = self.rows[request.group as usize - 1];
        let is_its_own = row.node == request.node && !row.is_over;
        let is_its_lease = row.floor == request.floor || scope.has(Mutant::FloorNotCompared);
        let is_accepted = is_its_own && is_its_lease && row.accepts(scope, request);
        if !is_accepted && !self.takes_back(scope, &row, request, clock) {
            return Reply::Over;
        }
        let until = row.until.max(request.until).max(scope.earlier(request.clock, clock) + scope.grant);
        self.grant(ghost, scope, request, (request.floor, until), clock)
    }

    /// Whether a registry in doubt believes a node whose lease its row does not know.
    fn takes_back(&self, scope: &Scope, row: &Row, request: &Request, clock: u8) -> bool {
        // What ended at discovery lies below this.
        let least = self.fence.saturating_sub(scope.grant + scope.has(Mutant::TakenBackLow) as u8);
        let is_in_doubt = clock <= self.fence;
        let is_stale = row.node == request.node && !row.accepts(scope, request);
        is_in_doubt
            && !is_stale
            && !row.is_reserved
            && (!row.is_running() || scope.has(Mutant::TakenBackFromAnother))
            && (request.until >= least || scope.has(Mutant::TakenBackBlindly))
            && (request.until <= self.fence || scope.has(Mutant::TakenBackAboveFence))
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
            let committed = Commits { earlier: request.clock.min(clock), registry: clock };
            self.since = self.since.and(committed);
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

    /// Whether an operator who knows all can vouch now: that nothing was lost, or that nothing was committed after
    /// `dead_since`.
    pub fn can_vouch(&self, scope: &Scope, dead_since: Option<u8>) -> bool {
        let lost = match (self.is_elsewhere, self.last_doubt()) {
            (true, _) => self.lost,
            (false, Some(at)) => self.doubts[at].and_then(|doubt| doubt.lost),
            (false, None) => return false,
        };
        match dead_since {
            None => lost.is_none() || scope.has(Mutant::WrongVouch),
            Some(time) => time >= lost.unwrap_or_default().registry,
        }
    }

    fn last_doubt(&self) -> Option<usize> {
        (0..DOUBTS).rev().find(|at| self.doubts[*at].is_some())
    }

    /// An operator vouches, for all since the row was last right. Nobody need have found out yet.
    pub fn vouch(&mut self, scope: &Scope, dead_since: Option<u8>) {
        let dead_since = dead_since.map(|time| time - scope.has(Mutant::VouchedEarly) as u8);
        match (dead_since, self.last_doubt()) {
            (None, _) if self.is_elsewhere => (self.is_elsewhere, self.lost) = (false, None),
            (Some(time), _) if self.is_elsewhere => self.doubt(scope, time, time),
            (_, None) => {}
            (None, Some(at)) => self.fence = self.doubts[at].take().expect("a doubt").fence,
            // The doubt may go on, and somebody may vouch for all of it.
            (Some(time), Some(at)) => {
                let before = self.doubts[at].expect("a doubt").fence;
                self.fence = self.fence.min(before.max(time + scope.grant));
            }
        }
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
