//! The actions of a fleet, for stateright to explore.

use crate::caller::{self, Read};
use crate::invariants;
use crate::mutants::Mutant;
use crate::node;
use crate::scopes::{Kind, Scope};
use crate::state::{Memory, Registry, Reply, SLOTS, Slot, State};
use stateright::{Model, Property};

/// One step of the fleet. Slots, callers and groups by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Start { slot: usize },
    Contact { slot: usize, clock: u8 },
    Answer { slot: usize, clock: u8, group: u8 },
    AnswerStray { clock: u8, group: u8 },
    Receive { slot: usize },
    Finish { slot: usize },
    Reserve { slot: usize },
    Id { slot: usize, tick: u8 },
    Read { caller: usize, clock: u8 },
    Replay { slot: usize, clock: u8 },
    Swap { slot: usize },
    Release { slot: usize, clock: u8 },
    RaiseMarks { slot: usize, floor: u8 },
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
        Action::RaiseMarks { .. } => Kind::Adoption,
        Action::Release { .. } => Kind::Release,
        Action::Replay { .. } => Kind::Replay,
        _ => return None,
    })
}

impl Scope {
    fn clocks(&self) -> std::ops::RangeInclusive<u8> {
        1..=self.clock
    }

    fn while_up(&self, state: &State, slot: usize, memory: &Memory, actions: &mut Vec<Action>) {
        let server = &state.slots[slot];
        if let Some(change) = memory.change {
            debug_assert!(change.permit.group > 0);
            actions.push(Action::Finish { slot });
        } else {
            if server.reply.is_some() {
                actions.push(Action::Receive { slot });
            } else if server.wire.is_none() && state.left[Kind::Contact as usize] > 0 {
                actions.extend(self.clocks().map(|clock| Action::Contact { slot, clock }));
            }
            if server.can_reserve(self) {
                actions.push(Action::Reserve { slot });
            }
            if state.left[Kind::Adoption as usize] > 0 && server.disk.group > 0 {
                actions.extend(self.clocks().map(|floor| Action::RaiseMarks { slot, floor }));
            }
            if state.left[Kind::Release as usize] > 0 && server.disk.group > 0 {
                actions.extend(self.clocks().map(|clock| Action::Release { slot, clock }));
            }
        }
        if slot == 0 && self.callers > 0 {
            self.calls(state, memory, actions);
        } else if slot < self.issuers && state.left[Kind::Id as usize] > 0 {
            actions.extend(memory.issuable().map(|tick| Action::Id { slot, tick }));
        }
        if slot < self.issuers {
            self.replays(state, slot, memory, actions);
        }
    }

    fn calls(&self, state: &State, memory: &Memory, actions: &mut Vec<Action>) {
        for caller in 0..self.callers {
            match memory.callers[caller].next(self) {
                Read::Clock => actions.extend(self.clocks().map(|clock| Action::Read { caller, clock })),
                Read::Claim if state.left[Kind::Id as usize] == 0 => {}
                _ => actions.push(Action::Read { caller, clock: 0 }),
            }
        }
    }

    fn replays(&self, state: &State, slot: usize, memory: &Memory, actions: &mut Vec<Action>) {
        let is_locked = memory.change.is_some() && !self.has(Mutant::ReplayUnlocked);
        if state.left[Kind::Replay as usize] > 0 && !is_locked && memory.replay.is_none() {
            let back = self.clocks().filter(|clock| memory.can_replay(*clock));
            actions.extend(back.map(|clock| Action::Replay { slot, clock }));
        }
        if memory.replay.is_some() {
            actions.push(Action::Swap { slot });
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

    /// What the registry's clock can say when this contact arrives: anything, but that both clocks of a discovery are
    /// behind both of a lost contact by more than the tolerance.
    fn answering(&self, state: &State, node_clock: u8) -> impl Iterator<Item = u8> {
        let (scope, registry) = (*self, state.registry);
        let least = if self.has(Mutant::ClockBehindLoss) { 0 } else { registry.lost.unwrap_or_default() };
        self.clocks().filter(move |clock| {
            let is_excluded = node_clock.max(*clock) + scope.tolerance < least;
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
            Action::Release { slot, clock } => state.release(self, slot, clock),
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
            Action::Read { caller, clock } => {
                let is_claim = state.slots[0]
                    .memory
                    .is_some_and(|memory| memory.callers[caller].next(self) == Read::Claim);
                state.left[Kind::Id as usize] -= is_claim as u8;
                caller::step(state, self, caller, clock);
            }
            Action::Finish { slot } | Action::Replay { slot, .. } | Action::Swap { slot } => {
                self.change_memory(state.slots[slot].memory.as_mut().expect("a server that is up"), action);
            }
            _ => self.happen(state, action),
        }
    }

    fn answer(&self, state: &mut State, slot: usize, clock: u8, group: u8) {
        let request = state.slots[slot].wire.take().expect("a request");
        invariants::arrive(state, slot, &request);
        let reply: Option<Reply> = state.registry.contact(&mut state.ghost, self, &request, clock, group);
        // A server that has given its lease back waits for no answer.
        state.slots[slot].reply = reply.filter(|_| !request.is_release);
    }

    fn change_memory(&self, memory: &mut Memory, action: Action) {
        match action {
            Action::Replay { clock, .. } if self.has(Mutant::ReplayUnlocked) => {
                memory.replay = Some((memory.last, clock));
            }
            Action::Replay { clock, .. } => memory.replay(clock),
            Action::Swap { .. } => {
                if let Some((seen, clock)) = memory.replay.take()
                    && memory.last == seen
                {
                    memory.last = clock;
                }
            }
            _ => {
                let change = memory.change.expect("a change under way");
                memory.finish(change);
            }
        }
    }

    fn happen(&self, state: &mut State, action: Action) {
        match action {
            Action::Reserve { slot } => state.reserve(self, slot),
            Action::RaiseMarks { slot, floor } => state.raise_marks(self, slot, floor),
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
            Action::KeepForServer { group, clock } => {
                state.registry.reserve(&mut state.ghost, self, group, clock);
            }
            _ => unreachable!("{action:?} is applied elsewhere"),
        }
    }
}
