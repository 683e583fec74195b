//! Processes of the server that are killed, ended or stopped for a while.

use super::Fault;
use crate::act::Act;
use crate::random::Random;
use snowflake_server_tests::Signal;

pub fn kill_backend(act: &mut Act, fault: &Fault) {
    let backend = fault.pick(&act.primary.backends());
    kill(act, backend);
}

pub fn kill_keeper(act: &mut Act, _: &Fault) {
    let keeper = act.primary.keeper();
    kill(act, keeper);
}

pub fn kill(act: &mut Act, pid: Option<i32>) {
    match pid {
        Some(pid) => act.crash_by(|primary| primary.server.try_signal(pid, Signal::SIGKILL)),
        None => act.skip(),
    }
}

pub fn end_keeper(act: &mut Act, fault: &Fault) {
    match act.primary.keeper() {
        Some(pid) => drop(act.primary.server.try_signal(pid, Signal::SIGTERM)),
        None => act.skip(),
    }
    fault.hold(1);
}

pub fn freeze_keeper(act: &mut Act, fault: &Fault) {
    freeze(act, fault, act.primary.keeper());
}

pub fn freeze_backend(act: &mut Act, fault: &Fault) {
    freeze(act, fault, fault.pick(&act.primary.backends()));
}

fn freeze(act: &Act, fault: &Fault, pid: Option<i32>) {
    let Some(pid) = pid else { return act.skip() };
    if act.primary.server.try_signal(pid, Signal::SIGSTOP) {
        fault.hold(3);
        act.primary.server.try_signal(pid, Signal::SIGCONT);
    }
}

/// Cancels the statements of some backends, and terminates others.
pub fn cancel(act: &mut Act, fault: &Fault) {
    let backends = act.primary.backends();
    if backends.is_empty() {
        return;
    }
    let mut random = Random::new(fault.variant);
    for _ in 0..=fault.variant % 6 {
        let pid = random.pick(&backends);
        let how = random.pick(&["pg_cancel_backend", "pg_terminate_backend"]);
        act.primary.run(&format!("SELECT {how}({pid})"));
    }
}
