//! The actions of a fleet, for stateright to explore.

use crate::invariants;
use crate::mutants::Mutant;
use crate::node;
use crate::scopes::{Kind, Scope};
use crate::state::{Memory, Registry, SLOTS, Slot, State};
use stateright::{Model, Property};

/// One step of the fleet. Slots and groups by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Start { slot: usize },
    Contact { slot: usize, clock: u8 },
    Answer { slot: usize, clock: u8, group: u8 },
    AnswerStray { clock: u8, group: u8 },
    Receive { slot: usize },
    Reserve { slot: usize },
    Id { slot: usize, tick: u8 },
    Crash { slot: usize },
    Reboot { slot: usize },
    CopyFiles { from: usize },
    CloneVolume { from: usize },
    CloneMachine { from: usize },
    Snapshot { slot: usize },
    RollBack { slot: usize },
    Lose { slot: usize },
    Duplicate { slot: usize },
    Sync,
    FailOver,
    ReachOldPrimary,
    Vouch { clock: u8 },
    Retire { group: u8 },
    KeepForServer { group: u8, clock: u8 },
}

impl Model for Scope {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::blank(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.ghost.breach.is_some() {
            return;
        }
        for slot in 0..self.slots {
            match &state.slots[slot].memory {
                Some(memory) => self.while_up(state, slot, memory, actions),
                None => actions.push(Action::Start { slot }),
            }
            self.disks(state, slot, actions);
        }
        self.network(state, actions);
        self.registrys(state, actions);
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = *before;
        if let Some(kind) = kind(&action) {
            let left = &mut state.left[kind as usize];
            *left = left.checked_sub(1)?;
        }
        self.apply(&mut state, action);
        (0..SLOTS).for_each(|slot| invariants::check(&mut state, slot));
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("the fleet's invariants hold", |_, state: &State| state.ghost.breach.is_none())]
    }
}

/// What limits an action.
fn kind(action: &Action) -> Option<Kind> {
    Some(match action {
        Action::Contact { .. } => Kind::Contact,
        Action::Id { .. } => Kind::Id,
        Action::Crash { .. } => Kind::Crash,
        Action::Reboot { .. } => Kind::Reboot,
        Action::CopyFiles { .. } => Kind::FileCopy,
        Action::CloneVolume { .. } => Kind::VolumeClone,
        Action::CloneMachine { .. } => Kind::MachineClone,
        Action::Snapshot { .. } => Kind::Rollback,
        Action::Lose { .. } => Kind::Loss,
        Action::Duplicate { .. } => Kind::Stray,
        Action::Sync => Kind::Sync,
        Action::FailOver => Kind::Failover,
        Action::Vouch { .. } => Kind::Vouch,
        Action::Retire { .. } => Kind::Retirement,
        Action::KeepForServer { .. } => Kind::Reservation,
        _ => return None,
    })
}

impl Scope {
    fn clocks(&self) -> std::ops::RangeInclusive<u8> {
        1..=self.clock
    }

    fn while_up(&self, state: &State, slot: usize, memory: &Memory, actions: &mut Vec<Action>) {
        let server = &state.slots[slot];
        if server.reply.is_some() {
            actions.push(Action::Receive { slot });
        } else if server.wire.is_none() && state.left[Kind::Contact as usize] > 0 {
            actions.extend(self.clocks().map(|clock| Action::Contact { slot, clock }));
        }
        if server.can_reserve(self) {
            actions.push(Action::Reserve { slot });
        }
        if slot < self.issuers && state.left[Kind::Id as usize] > 0 {
            actions.extend(memory.issuable().map(|tick| Action::Id { slot, tick }));
        }
    }

    fn disks(&self, state: &State, slot: usize, actions: &mut Vec<Action>) {
        let Slot { disk, memory, snapshot, .. } = &state.slots[slot];
        let may = |kind: Kind| state.left[kind as usize] > 0;
        if memory.is_some() {
            actions.extend(may(Kind::Crash).then_some(Action::Crash { slot }));
        }
        actions.extend(may(Kind::Reboot).then_some(Action::Reboot { slot }));
        if disk.node > 0 && may(Kind::Rollback) && snapshot.is_none() {
            actions.push(Action::Snapshot { slot });
        }
        if memory.is_none() && snapshot.is_some() {
            actions.push(Action::RollBack { slot });
        }
        if self.slots < SLOTS || disk.node == 0 || state.slots[SLOTS - 1 - slot].memory.is_some() {
            return;
        }
        actions.extend(may(Kind::FileCopy).then_some(Action::CopyFiles { from: slot }));
        actions.extend(may(Kind::VolumeClone).then_some(Action::CloneVolume { from: slot }));
        if memory.is_some() && may(Kind::MachineClone) {
            actions.push(Action::CloneMachine { from: slot });
        }
    }

    /// What the registry's clock can say when this contact arrives: anything, but that both clocks of a discovery, and all
    /// leases that are left, are behind both clocks of a lost contact by more than the tolerance.
    fn answering(&self, state: &State, node_clock: u8) -> impl Iterator<Item = u8> {
        let (scope, registry) = (*self, state.registry);
        let least = if self.has(Mutant::ClockBehindLoss) { 0 } else { registry.lost.unwrap_or_default() };
        self.clocks().filter(move |clock| {
            let is_excluded = registry.tables.latest(node_clock, *clock) + scope.tolerance < least;
            let finds_out = registry.tables.is_elsewhere && registry.can_find_out(&scope, node_clock, *clock);
            !(finds_out && is_excluded)
        })
    }

    fn network(&self, state: &State, actions: &mut Vec<Action>) {
        let picks = |group: u8| if group == 0 { 1..=self.groups } else { 0..=0 };
        for slot in 0..self.slots {
            let Slot { wire, reply, .. } = &state.slots[slot];
            if let Some(request) = wire {
                for clock in self.answering(state, request.clock) {
                    let answers = picks(request.group).map(|group| Action::Answer { slot, clock, group });
                    actions.extend(answers);
                }
                if state.stray.is_none() && state.left[Kind::Stray as usize] > 0 {
                    actions.push(Action::Duplicate { slot });
                }
            }
            if (wire.is_some() || reply.is_some()) && state.left[Kind::Loss as usize] > 0 {
                actions.push(Action::Lose { slot });
            }
        }
        if let Some(request) = &state.stray {
            for clock in self.answering(state, request.clock) {
                actions.extend(picks(request.group).map(|group| Action::AnswerStray { clock, group }));
            }
        }
    }

    fn registrys(&self, state: &State, actions: &mut Vec<Action>) {
        let may = |kind: Kind| state.left[kind as usize] > 0;
        // What the protocol does not protect from: a reservation that is lost.
        let reserved = |registry: &Registry| registry.tables.rows.map(|row| row.is_reserved);
        let loses_reservation = reserved(&state.registry) != reserved(&state.standby);
        if may(Kind::Failover) {
            actions.extend((!loses_reservation).then_some(Action::FailOver));
            // A failover without a loss needs a standby that has everything.
            actions.extend(may(Kind::Sync).then_some(Action::Sync));
        } else if self.has(Mutant::OldPrimary) {
            actions.push(Action::ReachOldPrimary);
        }
        if may(Kind::Vouch) {
            let clocks = self.clocks().filter(|clock| state.registry.can_vouch(self, *clock));
            actions.extend(clocks.map(|clock| Action::Vouch { clock }));
        }
        if may(Kind::Reservation) {
            for group in 1..=self.groups {
                let clocks = self.clocks().filter(|clock| state.registry.can_reserve(self, group, *clock));
                actions.extend(clocks.map(|clock| Action::KeepForServer { group, clock }));
            }
        }
        if may(Kind::Retirement) {
            let held =
                (1..=self.groups).filter(|group| state.registry.tables.rows[*group as usize - 1].node > 0);
            actions.extend(held.map(|group| Action::Retire { group }));
        }
    }

    fn apply(&self, state: &mut State, action: Action) {
        match action {
            Action::Start { slot } => state.start(self, slot),
            Action::Contact { slot, clock } => state.send(self, slot, clock),
            Action::Answer { slot, clock, group } => self.answer(state, slot, clock, group),
            Action::AnswerStray { clock, group } => {
                let request = state.stray.take().expect("a stray request");
                let _ = state.registry.contact(&mut state.ghost, self, &request, clock, group);
            }
            Action::Receive { slot } => {
                let reply = state.slots[slot].reply.expect("a reply");
                state.receive(self, slot, reply);
            }
            Action::Id { slot, tick } => node::call(state, slot, tick),
            _ => self.happen(state, action),
        }
    }

    fn answer(&self, state: &mut State, slot: usize, clock: u8, group: u8) {
        let request = state.slots[slot].wire.take().expect("a request");
        invariants::arrive(state, slot, &request);
        state.slots[slot].reply = state.registry.contact(&mut state.ghost, self, &request, clock, group);
    }

    fn happen(&self, state: &mut State, action: Action) {
        match action {
            Action::Reserve { slot } => state.reserve(self, slot),
            Action::Crash { slot } => state.slots[slot].crash(),
            Action::Reboot { slot } => state.reboot(slot),
            Action::CopyFiles { from } => {
                let record = state.slots[from].disk;
                state.slots[SLOTS - 1 - from].copy_files(record);
            }
            Action::CloneVolume { from } => {
                let (record, to) = (state.slots[from].disk, SLOTS - 1 - from);
                state.slots[to].clone_volume(record, to);
            }
            Action::CloneMachine { from } => state.clone_machine(self, from),
            Action::Snapshot { slot } => state.slots[slot].snapshot = Some(state.slots[slot].disk),
            Action::RollBack { slot } => {
                let snapshot = state.slots[slot].snapshot.take().expect("a snapshot");
                (state.slots[slot].disk, state.slots[slot].is_put_back) = (snapshot, true);
            }
            Action::Lose { slot } => (state.slots[slot].wire, state.slots[slot].reply) = (None, None),
            Action::Duplicate { slot } => state.stray = state.slots[slot].wire,
            Action::Sync => {
                state.registry.since = 0;
                state.standby = state.registry;
            }
            Action::FailOver => state.fail_over(self),
            Action::ReachOldPrimary => std::mem::swap(&mut state.registry, &mut state.standby),
            Action::Vouch { clock } => state.registry.vouch(clock),
            Action::Retire { group } => state.registry.tables.retire(group),
            Action::KeepForServer { group, .. } => {
                state.registry.reserve(&mut state.ghost, self, group);
            }
            _ => unreachable!("{action:?} is applied elsewhere"),
        }
    }
}
