//! The registry's answers and operators in this model: the rules, what the invariants need to know of them, and their
//! mutants, each of which spoils what the rules have done or see.

use crate::ghost::{Breach, Ghost, Lease, RESERVED};
use crate::mutants::Mutant;
use crate::scopes::{Kind, Scope};
use crate::state::{Registry, Reply, Request, Row};

impl Registry {
    /// A contact, in one transaction. `clock` is read after the row's lock; `pick` is the group that a claim gets if it
    /// is free, for the choice among free ones is a matter of taste.
    pub fn contact(
        &mut self,
        ghost: &mut Ghost,
        scope: &Scope,
        request: &Request,
        clock: u8,
        pick: u8,
    ) -> Option<Reply> {
        if self.tables.is_elsewhere {
            if !self.can_find_out(scope, request.clock, clock) {
                return None;
            }
            self.find_out(ghost, scope, request.clock, clock);
        }
        self.spoil_row(scope, request, clock);
        let before = self.tables;
        let mut reply = self.tables.answer(request, clock, pick);
        if let Some(Reply::Granted { group, floor, until }) = &mut reply {
            match scope.mutant {
                Some(Mutant::NoFloor) if request.group == 0 => *floor = 0,
                Some(Mutant::NotClamped) => *until = (*until).max(request.clock + scope.grant),
                _ => {}
            }
            let row = &mut self.tables.rows[*group as usize - 1];
            (row.floor, row.until) = (*floor, *until);
            // A registry that answers before it commits may crash in between.
            if scope.has(Mutant::AnsweredFirst) {
                self.tables = before;
            }
            // What nobody can lose need not be remembered.
            if scope.limits()[Kind::Failover as usize] > 0 {
                self.since = self.since.max(request.clock.min(clock));
            }
            let (node, number) = (request.node, request.number);
            ghost.grant(Lease { node, group: *group, floor: *floor, until: *until }, number);
        }
        reply
    }

    pub fn can_find_out(&self, scope: &Scope, node_clock: u8, clock: u8) -> bool {
        self.tables.can_find_out(node_clock, clock) || scope.has(Mutant::AnyClockFindsOut)
    }

    fn find_out(&mut self, ghost: &mut Ghost, scope: &Scope, node_clock: u8, clock: u8) {
        let (tolerance, before) = (scope.tolerance, self.tables);
        let (of_clocks, of_leases) = (node_clock.max(clock), before.latest(0, 0));
        let latest = before.latest(node_clock, clock);
        let has_lost = self.lost.take().is_some();
        self.has_lost = has_lost || self.has_lost && before.is_in_doubt(latest + tolerance);
        self.tables.find_out(node_clock, clock);
        let now = &mut self.tables;
        match scope.mutant {
            Some(Mutant::NoDoubt) => *now = snowflake_registry::Registry { is_elsewhere: false, ..before },
            Some(Mutant::NoFence) => now.fence = before.fence,
            Some(Mutant::ShortFence) => now.fence = before.fence.max(now.fence - 1),
            Some(Mutant::FenceWithoutTolerance) => now.fence = before.fence.max(now.fence - tolerance),
            Some(Mutant::FenceLowered) => now.fence = latest + tolerance + scope.grant,
            Some(Mutant::LeasesIgnored) => {
                now.fence = before.fence.max(of_clocks + tolerance + scope.grant);
                now.rows.iter_mut().zip(&before.rows).for_each(|(row, was)| {
                    row.is_over = was.is_over || was.until < of_clocks + tolerance;
                });
            }
            Some(Mutant::BeforeKept) => now.before = before.before.or(now.before),
            Some(Mutant::PassedNotEnded) => now.rows = before.rows,
            Some(Mutant::EndedWithoutTolerance) => now.rows.iter_mut().for_each(|row| {
                row.is_over &= row.until < latest;
            }),
            Some(Mutant::EndedLate) => now.rows.iter_mut().for_each(|row| {
                row.is_over &= row.until < latest + tolerance - 1;
            }),
            _ => {}
        }
        // A registry whose clock is wrong for a moment ends nothing that leases do not show to have passed.
        let early = (node_clock.min(clock) + tolerance).max(of_leases) + tolerance;
        let is_early = |row: &Row, was: &Row| was.is_running() && !row.is_running() && row.until >= early;
        if now.rows.iter().zip(&before.rows).any(|(row, was)| is_early(row, was)) {
            ghost.break_by(Breach::EndedEarly);
        }
    }

    /// A registry that does not look at something takes what a node shows of it for its own.
    fn spoil_row(&mut self, scope: &Scope, request: &Request, clock: u8) {
        let Request { node, group, floor, until, number, nonce, .. } = *request;
        let is_in_doubt = self.tables.is_in_doubt(clock);
        for (at, row) in self.tables.rows.iter_mut().enumerate() {
            let is_shown = at + 1 == group as usize;
            match scope.mutant {
                Some(Mutant::NumberIgnored) if row.node == node && number < row.number => {
                    (row.number, row.nonce) = (number, nonce);
                }
                Some(Mutant::NumberIgnored | Mutant::NonceIgnored)
                    if row.node == node && number == row.number =>
                {
                    row.nonce = nonce;
                }
                Some(Mutant::FloorNotCompared) if row.node == node && is_shown => row.floor = floor,
                Some(Mutant::UnknownRenewed) if row.node != node && is_shown && is_in_doubt => {
                    *row = Row { node, floor, until, number, nonce, ..Row::default() };
                }
                _ => {}
            }
        }
    }

    pub fn can_reserve(&self, scope: &Scope, group: u8, clock: u8) -> bool {
        // No lease runs by such a clock.
        let clock = if scope.has(Mutant::ReservedRunning) { u8::MAX } else { clock };
        self.tables.can_reserve(group, clock)
    }

    /// An operator reserves it. That server's IDs begin above the time that is returned, and nobody ends them.
    pub fn reserve(&mut self, ghost: &mut Ghost, scope: &Scope, group: u8) {
        let (until, was_over) = {
            let row = &self.tables.rows[group as usize - 1];
            (row.until, row.is_over)
        };
        let returned = self.tables.reserve(group).unwrap_or_default();
        let floor = match scope.mutant {
            Some(Mutant::ReservedBelowFence) => until,
            Some(Mutant::ReservedBelowUntil) => 0,
            _ => returned,
        };
        if scope.has(Mutant::ReservedRunning) {
            self.tables.rows[group as usize - 1].is_over = was_over;
        }
        ghost.grant(Lease { node: RESERVED, group, floor, until: u8::MAX }, 0);
    }

    /// Whether an operator who knows all can vouch now: nothing was lost, neither in the failover of which no contact has
    /// come to know, nor in a doubt that is still on by the registry's clock.
    pub fn can_vouch(&self, scope: &Scope, clock: u8) -> bool {
        let (is_elsewhere, is_on) = (self.tables.is_elsewhere, self.tables.is_in_doubt(clock));
        let is_wrong = (is_elsewhere && self.lost.is_some()) || (is_on && self.has_lost);
        (is_elsewhere || is_on) && (!is_wrong || scope.has(Mutant::WrongVouch))
    }

    pub fn vouch(&mut self, clock: u8) {
        self.lost = None;
        self.has_lost &= !self.tables.is_in_doubt(clock);
        self.tables.vouch(clock);
    }
}
