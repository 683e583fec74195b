//! A call on the hot path that sleeps between any two of its reads, and a replay: lane, permit, clock, last, claim. A
//! group has one lane here, so that the first read is the slot itself.

use crate::invariants::issue;
use crate::mutants::Mutant;
use crate::scopes::Scope;
use crate::state::{Caller, Memory, State};

/// What a call reads next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    Permit,
    Clock,
    Last,
    /// Nothing: it claims.
    Claim,
}

/// The order of the reads.
fn order(scope: &Scope) -> [Read; 3] {
    match scope.mutant {
        Some(Mutant::LastFirst) => [Read::Last, Read::Permit, Read::Clock],
        Some(Mutant::ClockFirst) => [Read::Clock, Read::Permit, Read::Last],
        _ => [Read::Permit, Read::Clock, Read::Last],
    }
}

impl Caller {
    pub fn next(&self, scope: &Scope) -> Read {
        order(scope).get(self.reads as usize).copied().unwrap_or(Read::Claim)
    }

    /// The tick that it goes for.
    fn tick(&self) -> u8 {
        self.clock.max(self.last)
    }
}

/// One step of a call; `clock` is what the clock says if it reads that.
pub fn step(state: &mut State, scope: &Scope, caller: usize, clock: u8) {
    let memory = state.slots[0].memory.as_mut().expect("a server that is up");
    let (permit, last) = (memory.permit, memory.last);
    let call = &mut memory.callers[caller];
    match call.next(scope) {
        Read::Permit => call.permit = permit,
        Read::Clock => call.clock = clock,
        Read::Last => call.last = last,
        Read::Claim => return claim(state, caller),
    }
    call.reads += 1;
    // A call that finds nothing to issue takes the cold path, and starts over.
    let has_all = call.reads == 3;
    if (has_all && call.tick() > call.permit.tick) || (call.permit.tick == 0 && call.reads > 1) {
        *call = Caller::default();
    }
}

/// The ring lets it have its tick, whatever else happened; then it raises `last`.
fn claim(state: &mut State, caller: usize) {
    let memory = state.slots[0].memory.as_mut().expect("a server that is up");
    let call = std::mem::take(&mut memory.callers[caller]);
    memory.last = memory.last.max(call.tick());
    issue(state, 0, call.permit.group, call.tick());
}

impl Memory {
    /// Under the cold lock, and looking again there: `last` goes back to a clock above the restored mark.
    pub fn replay(&mut self, clock: u8) {
        self.last = clock;
    }

    pub fn can_replay(&self, clock: u8) -> bool {
        clock > self.restored && clock < self.last
    }
}
