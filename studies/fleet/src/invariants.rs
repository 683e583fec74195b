//! What must hold in every state.

use crate::ghost::{Breach, Lease};
use crate::state::{Request, Slot, State};

/// The memory of `slot` issues an ID.
pub fn issue(state: &mut State, slot: usize, group: u8, tick: u8) {
    let memory = state.slots[slot].memory.as_mut().expect("a server that is up");
    let (ring, issued) = (&mut memory.ring[group as usize - 1], &mut state.ghost.issued[group as usize - 1]);
    let bit = 1_u16 << tick;
    let nodes = memory.nodes;
    let (is_mine, exists) = (*ring & bit != 0, *issued & bit != 0);
    *ring |= bit;
    *issued |= bit;
    let allows = |lease: &Lease| {
        nodes & 1 << lease.node != 0 && lease.group == group && lease.floor < tick && tick <= lease.until
    };
    let is_twins = state.ghost.twin != 0 && nodes & 1 << state.ghost.twin != 0;
    if exists && !is_mine && !(is_twins && tick <= state.ghost.excused) {
        state.ghost.break_by(Breach::Twice);
    }
    if !state.ghost.leases.iter().any(allows) {
        state.ghost.break_by(Breach::OutsideLease);
    }
}

/// A contact reaches the registry from the server that waits for its answer.
pub fn arrive(state: &mut State, slot: usize, request: &Request) {
    let disk = state.slots[slot].disk;
    if disk.node == request.node && disk.number < request.number {
        state.ghost.break_by(Breach::SentBeforeDurable);
    }
}

/// What must hold of a server at any time.
pub fn check(state: &mut State, slot: usize) {
    let Slot { disk, memory, .. } = &state.slots[slot];
    let permit = memory.unwrap_or_default().permit;
    if permit.tick > disk.mark.min(disk.until) {
        state.ghost.break_by(Breach::PermittedBeforeDurable);
    }
}
