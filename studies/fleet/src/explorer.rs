//! Exploration of a scope, breadth first, by stateright.

use crate::ghost::Breach;
use crate::scopes::Scope;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::{Duration, Instant};

/// What an exploration found.
pub struct Explored {
    /// States that differ.
    pub states: usize,
    /// Actions on the longest path.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// The shortest way to a broken invariant, action by action.
    pub trace: Vec<String>,
    /// What broke at its end.
    pub breach: Option<Breach>,
}

/// Explores a scope to its end, or to the first broken invariant.
pub fn explore(scope: &Scope) -> Explored {
    let began = Instant::now();
    // One thread: with more, the first counterexample need not be a shortest one.
    let checker = scope.checker().threads(1).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let path = checker.discoveries().into_values().next();
    let breach = path.as_ref().and_then(|path| path.last_state().ghost.breach);
    let actions = path.map(|path| path.into_actions()).unwrap_or_default();
    Explored {
        states: checker.unique_state_count(),
        depth: checker.max_depth() - 1,
        time: began.elapsed(),
        trace: actions.iter().map(|action| format!("{action:?}")).collect(),
        breach,
    }
}
