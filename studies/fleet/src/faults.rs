//! What happens to hosts, directories and the registry's servers.

use crate::mutants::Mutant;
use crate::scopes::Scope;
use crate::state::{GROUPS, Record, SLOTS, Slot, State};

impl Slot {
    /// The server goes down. A reply on its way has nobody to go to; a request that still arrives is a stray.
    pub fn crash(&mut self) {
        (self.memory, self.wire, self.reply) = (None, None, None);
    }

    /// The files are copied to another directory. The record names the old one.
    pub fn copy_files(&mut self, record: Record) {
        (self.disk, self.is_put_back) = (record, true);
    }

    /// A volume clone is mounted on another host: it looks like the directory that was there before.
    pub fn clone_volume(&mut self, record: Record, at: usize) {
        self.copy_files(Record { home: at as u8, ..record });
    }
}

impl State {
    /// The host goes down, and with it the file that is in its memory.
    pub fn reboot(&mut self, at: usize) {
        self.slots[at].crash();
        self.places[at] = [0; GROUPS];
    }

    /// A virtual machine is cloned with its memory: everything is there twice but the connection. Until the registry
    /// has heard of one of the two what the other did not send, both have one lease.
    pub fn clone_machine(&mut self, scope: &Scope, from: usize) {
        let to = SLOTS - 1 - from;
        let origin = self.slots[from];
        let Slot { lives, draws, tokens, .. } = self.slots[to];
        let disk = Record { home: to as u8, ..origin.disk };
        self.slots[to] = Slot { disk, wire: None, reply: None, lives, draws, tokens, ..origin };
        self.places[to] = self.places[from];
        if !scope.has(Mutant::TwinNotExcused) {
            self.ghost.twin = disk.node;
            self.ghost.twin_number = disk.number;
            self.ghost.excused = self.ghost.granted(disk.node, disk.group);
        }
    }

    /// A standby of the registry is promoted, or a backup restored: what it does not have is lost.
    pub fn fail_over(&mut self, scope: &Scope) {
        let old = self.registry;
        self.registry = self.standby;
        self.registry.tables.is_elsewhere = true;
        if self.standby != old && !scope.has(Mutant::OldPrimary) {
            self.registry.lost = Some(self.standby.lost.unwrap_or_default().max(old.since));
        }
        self.standby = match scope.has(Mutant::OldPrimary) {
            true => old,
            false => self.registry,
        };
    }
}
