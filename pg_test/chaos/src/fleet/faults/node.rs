//! What becomes of one node: its network, its processes, its host and its clock.

use super::Fault;
use crate::fleet::network::{CUTS, Cut};
use crate::fleet::node::{self, Node, Scene};
use snowflake_server_tests::Signal;

pub fn cut(node: &mut Node, scene: &Scene, fault: &Fault) {
    node.link(scene).cut(CUTS[fault.variant as usize % CUTS.len()]);
    fault.hold(scene);
    node.link(scene).heal();
}

fn shut(fault: &Fault) -> Cut {
    if fault.crashes { Cut::Stall } else { Cut::Close }
}

pub fn restart(node: &mut Node, _: &Scene, fault: &Fault) {
    node.restart(fault.down);
}

pub fn restart_alone(node: &mut Node, scene: &Scene, fault: &Fault) {
    node.link(scene).cut(shut(fault));
    node.restart(fault.down);
    fault.hold(scene);
    node.link(scene).heal();
}

pub fn reboot(node: &mut Node, _: &Scene, fault: &Fault) {
    node.reboot(fault.down);
}

pub fn reboot_alone(node: &mut Node, scene: &Scene, fault: &Fault) {
    node.link(scene).cut(shut(fault));
    node.reboot(fault.down);
    fault.hold(scene);
    node.link(scene).heal();
}

pub fn kill_backend(node: &mut Node, scene: &Scene, fault: &Fault) {
    let backends = node.primary.backends();
    let backend = backends.get(fault.variant as usize % backends.len().max(1));
    signal(node, scene, backend.copied(), Signal::SIGKILL);
}

pub fn kill_registrar(node: &mut Node, scene: &Scene, _: &Fault) {
    signal(node, scene, node.primary.registrar(), Signal::SIGKILL);
}

pub fn freeze(node: &mut Node, scene: &Scene, fault: &Fault) {
    let thaw = node::freeze(&node.primary.server);
    let length = fault.length(scene);
    std::thread::sleep(if fault.variant.is_multiple_of(2) {
        length.max(scene.grant * 11 / 10)
    } else {
        length
    });
    drop(thaw);
}

pub fn freeze_registrar(node: &mut Node, scene: &Scene, fault: &Fault) {
    freeze_one(node, scene, fault, node.primary.registrar());
}

pub fn freeze_keeper(node: &mut Node, scene: &Scene, fault: &Fault) {
    freeze_one(node, scene, fault, node.primary.keeper());
}

fn freeze_one(node: &Node, scene: &Scene, fault: &Fault, pid: Option<i32>) {
    signal(node, scene, pid, Signal::SIGSTOP);
    fault.hold(scene);
    if let Some(pid) = pid {
        node.primary.server.try_signal(pid, Signal::SIGCONT);
    }
}

fn signal(node: &Node, scene: &Scene, pid: Option<i32>, signal: Signal) {
    if !pid.is_some_and(|pid| node.primary.server.try_signal(pid, signal)) {
        scene.shared.skip();
    }
}

pub fn clock_back(node: &mut Node, scene: &Scene, fault: &Fault) {
    move_clock(node, scene, fault, -fault.step_us);
}

pub fn clock_forward(node: &mut Node, scene: &Scene, fault: &Fault) {
    move_clock(node, scene, fault, fault.step_us);
}

fn move_clock(node: &mut Node, scene: &Scene, fault: &Fault, offset_us: i64) {
    if node.is_replaced {
        return scene.shared.skip();
    }
    node.set_clock(offset_us);
    fault.hold(scene);
    if fault.crashes {
        node.restart(fault.down);
        if fault.variant.is_multiple_of(2) {
            fault.hold(scene);
        }
    }
    node.set_clock(0);
}
