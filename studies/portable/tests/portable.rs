//! The model of the portable generator holds, explored to its end, and every mutant is found.

use snowflake_portable::{MUTANTS, Mutant, Scope};
use stateright::{Checker, HasDiscoveries, Model};

const SCOPES: [(&str, Scope); 2] = [
    (
        "three callers",
        Scope { sessions: 3, last_tick: 3, field: 2, counts: 6, calls: 2, crashes: 1, mutant: None },
    ),
    (
        "two callers with more ticks",
        Scope { sessions: 2, last_tick: 4, field: 3, counts: 8, calls: 3, crashes: 1, mutant: None },
    ),
];

/// What broke, after which actions, and how many states there were.
fn explore(scope: Scope) -> (Option<&'static str>, String, usize) {
    let checker = scope.checker().threads(1).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let path = checker.discoveries().into_values().next();
    let breach = path.as_ref().and_then(|path| path.last_state().breach());
    let actions = path.map(|path| format!("{:?}", path.into_actions())).unwrap_or_default();
    (breach, actions, checker.unique_state_count())
}

#[test]
fn no_position_comes_out_twice_and_none_lies_before_the_clock() {
    for (name, scope) in SCOPES {
        let (breach, actions, states) = explore(scope);
        println!("{name}: {states} states");
        assert_eq!(breach, None, "{name}: {actions}");
        assert!(states > 10_000, "{name} explores next to nothing");
    }
}

#[test]
fn every_mutant_is_found() {
    for mutant in MUTANTS {
        let expected = match mutant {
            Mutant::TickUnchecked => "a tick before the clock",
            Mutant::CountUnchecked => "a count beyond the field",
            Mutant::FullTickCounted => "no count is left",
            _ => "an ID twice",
        };
        let found = SCOPES.map(|(_, scope)| explore(Scope { mutant: Some(mutant), ..scope }).0);
        assert!(found.contains(&Some(expected)), "{mutant:?}: {found:?}");
    }
}
