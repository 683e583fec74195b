//! A server: what it does at its start, around a contact, and when it reserves and issues.

use crate::invariants::issue;
use crate::mutants::Mutant;
use crate::scopes::Scope;
use crate::state::{Memory, Permit, Record, Reply, Request, Slot, State};

impl State {
    /// Writes the record of a directory, and the token of a lease at its place in the host's file. A crash between the
    /// two leaves tokens that differ, and nothing was used yet of what was written: the model need not have it.
    fn write(&mut self, scope: &Scope, at: usize, record: Record) {
        self.slots[at].disk = record;
        if let Some(place) = self.place(scope, at, record.group) {
            *place = record.token;
        }
    }

    /// The place of a group in the file of the host under a directory.
    fn place(&mut self, scope: &Scope, at: usize, group: u8) -> Option<&mut u8> {
        let host = if scope.is_one_host { 0 } else { at };
        self.places[host].get_mut(usize::from(group).wrapping_sub(1))
    }

    /// Whether the lease in the record goes on: no other run was between that one and this.
    fn is_same_life(&mut self, scope: &Scope, at: usize) -> bool {
        let Record { group, home, token, .. } = self.slots[at].disk;
        let is_here = home == at as u8 || scope.has(Mutant::DirectoryIgnored);
        let place = self.place(scope, at, group);
        is_here && place.is_some_and(|place| *place == token || scope.has(Mutant::TokenIgnored))
    }

    /// A start: the same life, or a new one. It draws a token, and issues nothing at or below the clock and the mark. The
    /// clock says anything, unless the state may not be the newest: either of the two is right.
    pub fn start(&mut self, scope: &Scope, at: usize) {
        let before = self.slots[at].disk;
        let is_put_back = std::mem::take(&mut self.slots[at].is_put_back);
        if self.is_same_life(scope, at) {
            let clock = match is_put_back && !scope.has(Mutant::ClockIgnored) {
                true => self.ghost.newest(before.group),
                false => 0,
            };
            let token = match scope.has(Mutant::TokenNotDrawn) {
                true => before.token,
                false => self.slots[at].draw_token(at),
            };
            let mark = before.mark.max(clock);
            self.write(scope, at, Record { home: at as u8, token, mark, ..before });
        } else if scope.has(Mutant::NodeIdKept) && before.node != 0 {
            let Record { node, number, nonce, .. } = before;
            let token = self.slots[at].draw_token(at);
            self.write(scope, at, Record { node, number, nonce, home: at as u8, token, ..Record::default() });
        } else {
            self.live_anew(scope, at);
        }
        self.slots[at].boot_memory();
    }

    /// Draws a node id, for a node without a lease.
    fn live_anew(&mut self, scope: &Scope, at: usize) -> u8 {
        let node = self.slots[at].draw_node(at);
        let token = self.slots[at].draw_token(at);
        self.write(scope, at, Record { node, home: at as u8, token, ..Record::default() });
        node
    }

    /// A contact: a new one, or the pending one again. What is sent is durable first; a crash between the two is a
    /// request that is lost. The clock is not part of what was promised, and is read anew.
    pub fn send(&mut self, scope: &Scope, at: usize, clock: u8) {
        let mut record = self.slots[at].disk;
        if record.nonce == 0 {
            record.number += 1;
            record.nonce = self.slots[at].draw_nonce(at);
            if !scope.has(Mutant::SentFirst) {
                self.write(scope, at, record);
            }
        }
        self.slots[at].wire = Some(record.request(clock));
    }

    /// The answer: durable, then published under the cold lock.
    pub fn receive(&mut self, scope: &Scope, at: usize, reply: Reply) {
        self.slots[at].reply = None;
        match reply {
            Reply::Over => self.give_up(scope, at),
            Reply::Granted { group, floor, until } => {
                let was = self.slots[at].disk;
                let is_other = (was.group, was.floor) != (group, floor);
                let until = if is_other { until } else { was.until.max(until) };
                let mark = match scope.reserve {
                    0 => until,
                    _ if is_other => floor,
                    _ => was.mark,
                };
                let record = Record { group, floor, until, mark, nonce: 0, ..was };
                // A new lease that is not durable is lost, and nothing else: the next life has another one.
                if is_other || !scope.has(Mutant::PermitFirst) {
                    self.write(scope, at, record);
                }
                let memory = self.slots[at].memory.as_mut().expect("a server that is up");
                memory.permit = Permit { group, tick: mark.min(until) };
                if is_other {
                    memory.last = memory.last.max(floor + 1);
                }
            }
        }
    }

    /// The lease is over: the gate closes, and another life begins. Calls on the way end under the old permit.
    fn give_up(&mut self, scope: &Scope, at: usize) {
        let node = self.live_anew(scope, at);
        let memory = self.slots[at].memory.as_mut().expect("a server that is up");
        memory.permit = Permit::default();
        memory.nodes |= 1 << node;
    }

    /// Promises more ticks: durable, then published.
    pub fn reserve(&mut self, scope: &Scope, at: usize) {
        let disk = self.slots[at].disk;
        let limit = disk.until + scope.has(Mutant::MarkAboveUntil) as u8;
        let step = if scope.reserve == 0 { limit } else { scope.reserve };
        let mark = (disk.mark + step).min(limit);
        self.write(scope, at, Record { mark, ..disk });
        let memory = self.slots[at].memory.as_mut().expect("a server that is up");
        memory.permit = Permit { group: disk.group, tick: mark };
    }
}

impl Record {
    fn request(&self, clock: u8) -> Request {
        let Self { node, number, nonce, group, floor, until, .. } = *self;
        Request { node, number, nonce, group, floor, until, clock }
    }
}

impl Slot {
    fn boot_memory(&mut self) {
        let Record { node, group, until, mark, .. } = self.disk;
        self.memory = Some(Memory {
            permit: Permit { group, tick: if group == 0 { 0 } else { mark.min(until) } },
            last: mark + 1,
            nodes: 1 << node,
            ..Memory::default()
        });
    }

    /// Whether there is something left to reserve.
    pub fn can_reserve(&self, scope: &Scope) -> bool {
        let limit = self.disk.until + scope.has(Mutant::MarkAboveUntil) as u8;
        self.disk.group != 0 && self.disk.mark < limit
    }
}

impl Memory {
    /// The ticks that a call may issue: its clock says anything.
    pub fn issuable(&self) -> std::ops::RangeInclusive<u8> {
        self.last..=self.permit.tick
    }
}

/// A call.
pub fn call(state: &mut State, slot: usize, tick: u8) {
    let memory = state.slots[slot].memory.as_mut().expect("a server that is up");
    let group = memory.permit.group;
    memory.last = tick;
    issue(state, slot, group, tick);
}
