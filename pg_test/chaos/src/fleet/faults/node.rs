//! What becomes of one node: its network, its processes, its host and its clock.

use super::Fault;
use crate::fleet::network::{CUTS, Cut};
use crate::fleet::node::{self, Node, Scene};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use snowflake_server_tests::{Signal, faults};

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

/// An operator knows that no copy of the node has run, and lets its earlier lease go on.
pub fn reboot_alone(node: &mut Node, scene: &Scene, fault: &Fault) {
    node.link(scene).cut(shut(fault));
    node.reboot(fault.down);
    if let Err(failure) = node.primary.try_run("SELECT snowflake_adopt()") {
        let name = &node.primary.target.name;
        assert_eq!(failure.code, "55000", "{name}: snowflake_adopt: {}", failure.text());
        scene.shared.skip();
    }
    fault.hold(scene);
    node.link(scene).heal();
}

/// Starts a node where it reads another boot id, with its witness still there.
pub fn other_boot(node: &mut Node, scene: &Scene, fault: &Fault) {
    if !scene.can_mount {
        return scene.shared.skip();
    }
    node.primary.stop(fault.down);
    let file = node.primary.server.folder().join("boot_id");
    let (high, low) = (fault.variant, fault.number);
    std::fs::write(&file, format!("{low:08x}-0000-4000-8000-{high:012x}\n")).expect("a file can be made");
    faults::own(&file);
    std::thread::scope(|threads| {
        let started = threads.spawn(|| {
            // Of this thread, and of the server that it starts.
            unshare(CloneFlags::CLONE_NEWNS).expect("as root");
            let boot_id = "/proc/sys/kernel/random/boot_id";
            mount(Some(&file), boot_id, None::<&str>, MsFlags::MS_BIND, None::<&str>).expect("as root");
            node.primary.start();
        });
        started.join().expect("it starts");
    });
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
