//! A model of everything that may happen to servers that generate IDs. The code is the real one; clocks, disks, hosts
//! and the order of events are simulated. No state that it reaches breaks guarantees 1 to 5, or this promise
//! (`Run::may_repeat`):
//!
//! > If two runs of one worker never overlap, no ID repeats, unless the newest state was lost or replaced and a clock
//! > was behind.
//!
//! One of the two goes wrong in most runs of the model: states are put back, lost, and started elsewhere, and clocks
//! step. Runs of one worker do not overlap on two hosts, because the model ends the one before it starts the other, as
//! an operator has to. On one host it leaves that to the host's lock.
//!
//! A run of the model is a tape of choices: which action comes next, where a fault strikes, and what it leaves behind.
//! Small scopes are explored completely, every tape of them; large ones at random. A failure prints its tape and what
//! happened on it; `MODEL_REPLAY="scope: 1,2,3"` runs that tape again. `MODEL_SECONDS` is how long each random scope
//! takes, `MODEL_SEED` where it starts, `MODEL_DEPTH` how many more actions the runs of the small scopes have, and
//! `MODEL_SHRINK` how many seconds are spent on shortening a failing tape.

mod actions;
mod exploring;
mod runs;
mod scopes;
mod server;
mod starts;

use exploring::{every_tape, explore, large, outcome, random_tapes};

#[test]
fn every_fault_at_every_point_of_the_disk() {
    every_tape("disk");
}

#[test]
fn every_order_of_clock_and_calls() {
    every_tape("clock");
}

#[test]
fn every_interleaving_of_two_calls() {
    every_tape("interleaving");
}

#[test]
fn every_correction_of_the_clock_by_an_hour() {
    every_tape("corrections");
}

#[test]
fn every_state_that_is_put_back_or_lost() {
    every_tape("states");
}

#[test]
fn every_slot_that_is_damaged() {
    every_tape("damaged slots");
}

#[test]
fn every_promotion_on_two_hosts() {
    every_tape("hosts");
}

#[test]
fn every_order_of_two_directories_on_one_host() {
    every_tape("one host");
}

#[test]
fn every_change_of_max_ahead() {
    every_tape("max_ahead");
}

#[test]
fn every_change_of_workers() {
    every_tape("workers");
}

#[test]
fn everything_that_operators_do() {
    every_tape("operator");
}

#[test]
fn every_change_of_leases() {
    every_tape("leases");
}

#[test]
fn every_fault_of_the_disk_under_a_lease() {
    every_tape("leases on a bad disk");
}

#[test]
fn every_change_of_leases_in_the_middle_of_a_call() {
    every_tape("interleaved leases");
}

#[test]
fn leases_at_random() {
    random_tapes("any leases");
}

#[test]
fn anything_at_random() {
    random_tapes("everything");
}

#[test]
fn a_bad_disk_at_random() {
    random_tapes("bad disk");
}

/// The simulated disk guarantees little enough that a start without the fsync is caught.
#[test]
fn a_start_that_believes_what_it_reads_is_found_out() {
    assert!(explore(large("trusting start"), 600).is_err());
}

#[test]
fn a_fleet_at_random() {
    random_tapes("fleet");
}

/// The lock must be held by all processes of a server, not by its postmaster alone.
#[test]
fn a_lock_that_ends_with_the_postmaster_is_found_out() {
    let scope = large("lock of the postmaster");
    let (_, tape) = explore(scope, 600).err().expect("it is found out");
    let (what, ..) = outcome(scope, &tape).expect_err("it fails again");
    assert!(what.contains("repeats"), "{what}");
}
