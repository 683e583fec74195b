//! A clock that is wrong for a while, under a running server or from its start on.

use super::{DAY_US, Fault};
use crate::act::Act;

/// A step forward by more than this, and back again, leaves a lane with IDs in the future.
const FORWARD_US: i64 = 2_000_000;

pub fn step_back(act: &mut Act, fault: &Fault) {
    step(act, fault, -fault.step_us);
}

pub fn step_forward(act: &mut Act, fault: &Fault) {
    step(act, fault, fault.step_us);
}

fn step(act: &mut Act, fault: &Fault, offset_us: i64) {
    act.set_clock(offset_us);
    fault.hold(1);
    if fault.crashes {
        act.restart(fault.down);
        fault.hold(1);
    }
    if fault.stays {
        act.world.shifted = true;
    } else {
        act.set_clock(0);
    }
    count_lane(act, offset_us);
}

pub fn step_back_stopped(act: &mut Act, fault: &Fault) {
    step_stopped(act, fault, -fault.step_us);
}

pub fn step_forward_stopped(act: &mut Act, fault: &Fault) {
    step_stopped(act, fault, fault.step_us);
}

fn step_stopped(act: &mut Act, fault: &Fault, offset_us: i64) {
    act.stop(fault.down);
    act.set_clock(offset_us);
    act.start();
    fault.hold(1);
    if fault.crashes {
        start_at_the_true_time(act, fault);
    } else {
        act.set_clock(0);
    }
    count_lane(act, offset_us);
}

pub fn start_after_a_day_forward(act: &mut Act, fault: &Fault) {
    act.set_clock(DAY_US);
    fault.hold(1);
    start_at_the_true_time(act, fault);
    count_lane(act, DAY_US);
}

fn start_at_the_true_time(act: &mut Act, fault: &Fault) {
    act.stop(fault.down);
    act.set_clock(0);
    act.start();
}

fn count_lane(act: &mut Act, offset_us: i64) {
    if offset_us > FORWARD_US {
        act.world.future += 1;
    }
}
