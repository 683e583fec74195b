//! Every scope of the model holds, explored to its end, and every mutant is found by the scope that is named with it.
//!
//! `FLEET_DEEPER=1` lets everything that a scope limits happen once more often, which takes far longer and much
//! memory.

use snowflake_fleet::Breach::{self, EndedEarly, Overlap, PermittedBeforeDurable, SentBeforeDurable, Twice};
use snowflake_fleet::{Explored, Mutant, SCOPES, Scope, explore};
use std::env;

/// Which scope finds which mutant, and what breaks.
const FOUND: &[(Mutant, &str, Breach)] = &[
    (Mutant::MarkAboveUntil, "leases", PermittedBeforeDurable),
    (Mutant::NoFloor, "leases", Overlap),
    (Mutant::NumberIgnored, "machines", Twice),
    (Mutant::NonceIgnored, "machines", Twice),
    (Mutant::FloorNotCompared, "strays", Overlap),
    (Mutant::NodeIdKept, "restarts", Twice),
    (Mutant::SentFirst, "leases", SentBeforeDurable),
    (Mutant::PermitFirst, "leases", PermittedBeforeDurable),
    (Mutant::AnsweredFirst, "leases", Overlap),
    (Mutant::NoDoubt, "failover", Overlap),
    (Mutant::NoFence, "failover", Overlap),
    (Mutant::ShortFence, "failover", Overlap),
    (Mutant::FenceWithoutTolerance, "failover", Overlap),
    (Mutant::FenceLowered, "failovers", Overlap),
    (Mutant::PassedNotEnded, "failover", Overlap),
    (Mutant::EndedWithoutTolerance, "failover", Overlap),
    (Mutant::EndedLate, "failover", Overlap),
    (Mutant::AnyClockFindsOut, "failover", EndedEarly),
    (Mutant::UnknownRenewed, "failover", Overlap),
    (Mutant::BeforeKept, "two doubts", Overlap),
    (Mutant::NotClamped, "failover", Overlap),
    (Mutant::LeasesIgnored, "failover", Overlap),
    (Mutant::ReservedBelowFence, "reservations", Overlap),
    (Mutant::ReservedBelowUntil, "reservations", Overlap),
    (Mutant::ReservedRunning, "reservations", Overlap),
    (Mutant::TokenIgnored, "volumes", Twice),
    (Mutant::ClockIgnored, "rollbacks", Twice),
    (Mutant::DirectoryIgnored, "one host", Twice),
];

/// What the protocol does not protect from: the model shows that each breaks it.
const UNPROTECTED: &[(Mutant, &str, Breach)] = &[
    (Mutant::WrongVouch, "vouches", Overlap),
    (Mutant::OldPrimary, "failover", Overlap),
    (Mutant::TwinNotExcused, "machines", Twice),
    (Mutant::ClockBehindLoss, "failover", Overlap),
];

/// What the protocol says beyond what the invariants need.
const HARMLESS: &[(Mutant, &str)] = &[
    // A disk without the newest state starts above a clock that is right: the two are not wrong at once.
    (Mutant::TokenNotDrawn, "rollbacks"),
];

fn scope(name: &str) -> Scope {
    let deeper = env::var("FLEET_DEEPER").map_or(0, |times| times.parse().expect("a small number"));
    Scope { deeper, ..*SCOPES.iter().find(|scope| scope.name == name).expect("a scope of that name") }
}

fn explore_it(scope: &Scope) -> Explored {
    let found = explore(scope);
    let mutant = scope.mutant.map(|mutant| format!("{mutant:?}")).unwrap_or_default();
    let (states, depth, time) = (found.states, found.depth, found.time);
    println!("{:15} {mutant:21} {states:>9} states, depth {depth:>2}, {time:.1?}", scope.name);
    found
}

fn holds(name: &str) {
    let found = explore_it(&scope(name));
    assert_eq!(found.breach, None, "after\n{}", found.trace.join("\n"));
}

fn are_found(mutants: &[(Mutant, &str, Breach)]) {
    for (mutant, name, breach) in mutants {
        let found = explore_it(&Scope { mutant: Some(*mutant), deeper: 0, ..scope(name) });
        assert_eq!(found.breach, Some(*breach), "{mutant:?} in {name} after\n{}", found.trace.join("\n"));
    }
}

#[test]
fn leases_renewals_and_claims_by_two_servers() {
    holds("leases");
    holds("groups");
}

#[test]
fn requests_that_are_delivered_twice_or_lost() {
    holds("strays");
}

#[test]
fn crashes_reboots_and_copies() {
    holds("restarts");
}

#[test]
fn volumes_that_are_rolled_back_or_cloned() {
    holds("rollbacks");
    holds("one host");
    holds("volumes");
}

#[test]
fn virtual_machines_that_are_cloned_repeat_no_more_than_one_grant() {
    holds("machines");
}

#[test]
fn a_registry_that_loses_commits() {
    holds("failover");
    holds("long grants");
    holds("failovers");
}

#[test]
fn operators_who_vouch_and_reserve() {
    holds("vouches");
    holds("two doubts");
    holds("reservations");
}

#[test]
fn every_mutant_is_found() {
    are_found(FOUND);
}

#[test]
fn what_is_not_protected_breaks() {
    are_found(UNPROTECTED);
}

#[test]
fn what_is_harmless_breaks_nothing() {
    for (mutant, name) in HARMLESS {
        let found = explore_it(&Scope { mutant: Some(*mutant), deeper: 0, ..scope(name) });
        assert_eq!(found.breach, None, "{mutant:?} in {name} after\n{}", found.trace.join("\n"));
    }
}

#[test]
fn every_scope_is_explored() {
    let source = include_str!("fleet.rs");
    for scope in SCOPES {
        assert!(source.contains(&format!("holds(\"{}\");", scope.name)), "{} is not explored", scope.name);
    }
}
