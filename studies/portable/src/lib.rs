//! A model of the portable generator (`src/functions/portable.sql`): sessions that stall between any two steps, calls that
//! fail at any of them, crashes that lose no WAL, and clocks that say anything. No position comes out twice in any state
//! that is reached, the counts do not run out, and each rule that is left out is missed.
//!
//! The sequence holds a tick and a count. `nextval` raises the count; `setval` writes both. Each is one step, as
//! PostgreSQL holds the sequence's buffer meanwhile. A session's steps are those of the functions:
//!
//! | step | in SQL |
//! | --- | --- |
//! | idle -> draws, or waits | `snowflake_nextval` has read the sequence: its tick has room, or is full |
//! | draws -> drawn | `nextval` |
//! | drawn -> issued, or waits | it reads the clock, and returns or calls `snowflake_move` |
//! | waits -> holds | `LOCK TABLE` |
//! | holds -> draws again, or drew | it has read the sequence: there is room, or what it has read is full |
//! | draws again -> drew | `nextval` |
//! | drew -> issued, or moves | it reads the clock: the tick serves, or is old or full |
//! | moves -> issued, or idle | `setval`: a larger tick, or, where that would be too late, the present one's end |

use stateright::{Model, Property};

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// A move does not wait for the lock.
    NoLock,
    /// A move sets the tick of the clock even if that is the present one, or below it.
    TickNotLarger,
    /// The increment of the sequence is 1: it changes the tick.
    IncrementOfOne,
    /// A call does not compare the tick with the clock.
    TickUnchecked,
    /// A call does not compare the count with the field.
    CountUnchecked,
    /// A call draws a count of a full tick.
    FullTickCounted,
    /// A refused move leaves room in the present tick.
    RoomWhenRefused,
    /// After a crash the sequence is what it was before the last change.
    WalLost,
}

/// Every mutant.
pub const MUTANTS: [Mutant; 8] = [
    Mutant::NoLock,
    Mutant::TickNotLarger,
    Mutant::IncrementOfOne,
    Mutant::TickUnchecked,
    Mutant::CountUnchecked,
    Mutant::FullTickCounted,
    Mutant::RoomWhenRefused,
    Mutant::WalLost,
];

/// How much of everything there is.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Sessions that call.
    pub sessions: usize,
    /// Ticks end here: a session that would need a later one is refused.
    pub last_tick: u8,
    /// IDs of a tick.
    pub field: u8,
    /// Counts that the sequence can hold.
    pub counts: u8,
    /// Calls of each session.
    pub calls: u8,
    /// Crashes.
    pub crashes: u8,
    /// The deliberate fault, if any.
    pub mutant: Option<Mutant>,
}

/// A value of the sequence. Ordered by tick, then count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value {
    /// The low bits.
    pub tick: u8,
    /// The high bits.
    pub count: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Session {
    Idle,
    Draws,
    Drawn(Value),
    Waits,
    Holds,
    DrawsAgain,
    Drew(Value),
    Moves { to: u8 },
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    sequence: Value,
    before: Value,
    clock: u8,
    holder: Option<usize>,
    sessions: Vec<(Session, u8)>,
    crashes: u8,
    issued: Vec<Value>,
    breach: Option<&'static str>,
}

impl State {
    /// What must not be, if it is.
    pub fn breach(&self) -> Option<&'static str> {
        self.breach
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next step of a session.
    Step(usize),
    /// A session's call fails: it is cancelled, or runs out of stack or locks. Its lock is free.
    Fail(usize),
    /// The server crashes and starts again. `nextval` has logged values ahead, so the count goes on further up.
    Crash,
    /// The clock says this.
    Clock(u8),
}

impl Scope {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// `None` where the sequence is at its end, which ends all calls for good.
    fn nextval(&self, state: &mut State) -> Option<Value> {
        state.before = state.sequence;
        let Value { tick, count } = state.sequence;
        state.sequence = match self.is(Mutant::IncrementOfOne) {
            true => Value { tick: tick + 1, count },
            false => Value { tick, count: count + 1 },
        };
        if state.sequence.count == self.counts {
            state.breach = Some("no count is left");
        }
        (state.sequence.count < self.counts && state.sequence.tick <= self.last_tick)
            .then_some(state.sequence)
    }

    fn is_full(&self, value: Value) -> bool {
        value.count >= self.field && !self.is(Mutant::FullTickCounted)
    }

    fn serves(&self, value: Value, clock: u8) -> bool {
        (value.tick >= clock || self.is(Mutant::TickUnchecked))
            && (value.count < self.field || self.is(Mutant::CountUnchecked))
    }

    /// A call has this position.
    fn issue(&self, state: &mut State, value: Value, clock: u8) {
        match state.issued.binary_search(&value) {
            Ok(_) => state.breach = Some("an ID twice"),
            Err(place) => state.issued.insert(place, value),
        }
        if value.tick < clock {
            state.breach = Some("a tick before the clock");
        }
        if value.count >= self.field {
            state.breach = Some("a count beyond the field");
        }
    }

    /// The next state of a session, which fails where the sequence is at its end.
    fn draw(&self, state: &mut State, drawn: impl Fn(Value) -> Session) -> Session {
        self.nextval(state).map_or(Session::Idle, drawn)
    }

    fn end(state: &mut State, who: usize) {
        if state.holder == Some(who) {
            state.holder = None;
        }
        state.sessions[who].0 = Session::Idle;
    }

    /// `None` where the session cannot go on.
    fn step(&self, state: &mut State, who: usize) -> Option<()> {
        let clock = state.clock;
        let (session, calls) = state.sessions[who];
        state.sessions[who].0 = match session {
            Session::Idle if calls == self.calls => return None,
            Session::Idle => {
                state.sessions[who].1 += 1;
                if !self.is_full(state.sequence) { Session::Draws } else { Session::Waits }
            }
            Session::Draws => self.draw(state, Session::Drawn),
            Session::Drawn(value) if self.serves(value, clock) => {
                self.issue(state, value, clock);
                Session::Idle
            }
            Session::Drawn(_) => Session::Waits,
            Session::Waits if state.holder.is_some() && !self.is(Mutant::NoLock) => return None,
            Session::Waits => {
                state.holder = Some(who);
                Session::Holds
            }
            Session::Holds if self.is_full(state.sequence) => Session::Drew(state.sequence),
            Session::Holds => Session::DrawsAgain,
            Session::DrawsAgain => self.draw(state, Session::Drew),
            Session::Drew(value) if self.serves(value, clock) => {
                self.issue(state, value, clock);
                Self::end(state, who);
                return Some(());
            }
            Session::Drew(value) => {
                let later = if value.tick >= clock { value.tick + 1 } else { clock };
                Session::Moves { to: if self.is(Mutant::TickNotLarger) { clock } else { later } }
            }
            Session::Moves { to } if to > self.last_tick => {
                state.before = state.sequence;
                state.sequence.count = self.field - 2 * u8::from(self.is(Mutant::RoomWhenRefused));
                Self::end(state, who);
                return Some(());
            }
            Session::Moves { to } => {
                state.before = state.sequence;
                state.sequence = Value { tick: to, count: 0 };
                // The clock that the move has read is at most the tick.
                self.issue(state, state.sequence, 0);
                Self::end(state, who);
                return Some(());
            }
        };
        Some(())
    }
}

impl Model for Scope {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // A new sequence: its tick lies below every clock's.
        let sequence = Value { tick: 0, count: 0 };
        vec![State {
            sequence,
            before: sequence,
            clock: 1,
            holder: None,
            sessions: vec![(Session::Idle, 0); self.sessions],
            crashes: 0,
            issued: Vec::new(),
            breach: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((0..self.sessions).map(Action::Step));
        actions.extend((1..=self.last_tick).filter(|clock| *clock != state.clock).map(Action::Clock));
        let is_busy = |who: &usize| state.sessions[*who].0 != Session::Idle;
        actions.extend((0..self.sessions).filter(is_busy).map(Action::Fail));
        if state.crashes < self.crashes {
            actions.push(Action::Crash);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Step(who) => self.step(&mut next, who)?,
            Action::Clock(clock) => next.clock = clock,
            Action::Fail(who) => Self::end(&mut next, who),
            Action::Crash => {
                next.crashes += 1;
                (0..self.sessions).for_each(|who| Self::end(&mut next, who));
                next.sequence = match self.is(Mutant::WalLost) {
                    true => next.before,
                    false => Value { count: next.sequence.count + 1, ..next.sequence },
                };
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("no breach", |_, state: &State| state.breach.is_none())]
    }
}
