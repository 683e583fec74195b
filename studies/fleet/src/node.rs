//! A server: what it does at its start, around a contact, and when it reserves and issues.

use crate::invariants::issue;
use crate::mutants::Mutant;
use crate::scopes::Scope;
use crate::state::{Change, Memory, Permit, Record, Reply, Request, Slot, State};

impl Slot {
    /// Writes the record, and tells the witness. A crash between the two leaves a witness that fits no record, and
    /// nothing was used yet of what was written: the model need not have it.
    fn write(&mut self, scope: &Scope, record: Record) {
        let before = self.disk.generation;
        let generation = before + scope.counts_generations() as u8;
        self.disk = Record { generation, ..record };
        self.witness = if scope.has(Mutant::WitnessLate) { before } else { generation };
    }

    /// Whether nobody but this directory can have the lease in its record.
    fn is_same_life(&self, scope: &Scope, at: usize) -> bool {
        let is_here = self.disk.home == at as u8 || scope.has(Mutant::DirectoryIgnored);
        let is_this_boot = self.disk.boot == self.boot || scope.has(Mutant::BootIgnored) || scope.is_fixed;
        let is_newest =
            self.disk.generation == self.witness || scope.has(Mutant::WitnessIgnored) || scope.is_fixed;
        self.disk.node != 0 && is_here && is_this_boot && is_newest
    }

    /// A start: the same life, or a new one.
    pub fn start(&mut self, scope: &Scope, at: usize) {
        let (home, boot, before) = (at as u8, self.boot, self.disk);
        if self.is_same_life(scope, at) {
            self.write(scope, Record { home, boot, ..before });
        } else if scope.has(Mutant::NodeIdKept) && before.node != 0 {
            self.write(scope, Record { home, boot, group: 0, floor: 0, until: 0, mark: 0, ..before });
        } else {
            let node = self.draw_node(at);
            let generation = before.generation;
            self.write(scope, Record { node, home, boot, generation, ..Record::default() });
        }
        self.boot_memory();
    }

    /// A start of a directory that an operator adopts: the old lease goes on above `floor`, which the operator says
    /// no ID of the old lease is above.
    pub fn start_adopted(&mut self, scope: &Scope, at: usize, floor: u8) {
        let mark = match scope.mutant {
            Some(Mutant::AdoptedWithoutFloor) => self.disk.mark,
            Some(Mutant::AdoptedBelowFloor) => floor,
            _ => floor.max(self.disk.floor),
        };
        self.write(scope, Record { home: at as u8, boot: self.boot, mark, ..self.disk });
        self.boot_memory();
    }

    fn boot_memory(&mut self) {
        let Record { node, group, until, mark, .. } = self.disk;
        self.memory = Some(Memory {
            permit: Permit { group, tick: if group == 0 { 0 } else { mark.min(until) } },
            last: mark + 1,
            restored: mark,
            nodes: 1 << node,
            ..Memory::default()
        });
    }

    /// A contact: a new one, or the pending one again. What is sent is durable first; a crash between the two is a
    /// request that is lost. The clock is not part of what was promised, and is read anew.
    pub fn send(&mut self, scope: &Scope, at: usize, clock: u8) {
        let mut record = self.disk;
        if record.nonce == 0 {
            record.number += 1;
            record.nonce = self.draw_nonce(at);
            if !scope.has(Mutant::SentFirst) {
                self.write(scope, record);
            }
        }
        let Record { node, number, nonce, group, floor, until, .. } = record;
        self.wire = Some(Request { node, number, nonce, group, floor, until, clock });
    }

    /// The answer: durable, then published under the cold lock.
    pub fn receive(&mut self, scope: &Scope, at: usize, reply: Reply) {
        self.reply = None;
        match reply {
            Reply::Over => self.give_up(scope, at),
            Reply::Granted { group, floor, until } => {
                let was = self.disk;
                let is_other = (was.group, was.floor) != (group, floor);
                let until = if is_other { until } else { was.until.max(until) };
                let mark = match scope.reserve {
                    0 => until,
                    _ if is_other => floor,
                    _ => was.mark,
                };
                let record = Record { group, floor, until, mark, nonce: 0, ..was };
                if !scope.has(Mutant::PermitFirst) {
                    self.write(scope, record);
                }
                let permit = Permit { group, tick: mark.min(until) };
                self.publish(scope, at, is_other, Change { floor, permit });
            }
        }
    }

    /// The lease is over: the gate closes, and another life begins. Calls on the way end under the old permit.
    fn give_up(&mut self, scope: &Scope, at: usize) {
        let node = self.draw_node(at);
        let Record { home, boot, generation, .. } = self.disk;
        self.write(scope, Record { node, home, boot, generation, ..Record::default() });
        let memory = self.memory.as_mut().expect("a server that is up");
        memory.permit = Permit::default();
        memory.nodes |= 1 << node;
    }

    fn publish(&mut self, scope: &Scope, at: usize, is_other: bool, change: Change) {
        let memory = self.memory.as_mut().expect("a server that is up");
        if !is_other {
            memory.permit = change.permit;
            return;
        }
        if scope.has(Mutant::PermitBeforeFloor) {
            memory.permit = change.permit;
        } else {
            memory.restored = change.floor;
            memory.last = memory.last.max(change.floor + 1);
        }
        // Only a call that sleeps between its reads can tell that there are two steps.
        match at == 0 && scope.callers > 0 {
            true => memory.change = Some(change),
            false => memory.finish(change),
        }
    }

    /// Whether there is something left to reserve.
    pub fn can_reserve(&self, scope: &Scope) -> bool {
        let memory = self.memory.unwrap_or_default();
        let limit = self.disk.until + scope.has(Mutant::MarkAboveUntil) as u8;
        // Not while a lease change holds the cold lock, and only up to what the lease has.
        self.disk.group != 0 && memory.change.is_none() && self.disk.mark < limit
    }

    /// Promises more ticks: durable, then published.
    pub fn reserve(&mut self, scope: &Scope) {
        let limit = self.disk.until + scope.has(Mutant::MarkAboveUntil) as u8;
        let step = if scope.reserve == 0 { limit } else { scope.reserve };
        let mark = (self.disk.mark + step).min(limit);
        self.write(scope, Record { mark, ..self.disk });
        let memory = self.memory.as_mut().expect("a server that is up");
        memory.permit = Permit { group: self.disk.group, tick: mark };
    }

    /// An operator's floor on an open gate: every mark is raised. The permit stays at or below `until`.
    pub fn raise_marks(&mut self, scope: &Scope, floor: u8) {
        let mark = self.disk.mark.max(floor);
        self.write(scope, Record { mark, ..self.disk });
        let until = self.disk.until;
        let memory = self.memory.as_mut().expect("a server that is up");
        memory.restored = memory.restored.max(floor);
        memory.last = memory.last.max(floor + 1);
        memory.permit.tick = if scope.has(Mutant::AdoptAboveUntil) { mark } else { mark.min(until) };
    }
}

impl Memory {
    /// The second half of a lease change.
    pub fn finish(&mut self, change: Change) {
        self.change = None;
        self.permit = change.permit;
        self.restored = change.floor;
        self.last = self.last.max(change.floor + 1);
    }

    /// The ticks that a call which is one step may issue: its clock says anything.
    pub fn issuable(&self) -> std::ops::RangeInclusive<u8> {
        self.last..=self.permit.tick
    }
}

/// A call that is one step.
pub fn call(state: &mut State, slot: usize, tick: u8) {
    let memory = state.slots[slot].memory.as_mut().expect("a server that is up");
    let group = memory.permit.group;
    memory.last = tick;
    issue(state, slot, group, tick);
}
