//! Servers with the data of another one that runs on, and data that was set back.

use super::Fault;
use crate::disk;
use crate::fleet::node::{MAX_AHEAD_MS, Node, Scene, discard};
use crate::shared::true_ms;
use crate::tally::lock;
use crate::volume::Volume;
use snowflake_server_tests::{ms, secs, wait_until};
use std::sync::atomic::Ordering;

/// A second server with a copy of the files, configured as the first.
pub fn copy(node: &mut Node, scene: &Scene, fault: &Fault) {
    let server = if fault.variant.is_multiple_of(3) {
        node.primary.server.backup()
    } else {
        node.primary.server.copy()
    };
    let mut clone = scene.member(server, &format!("a copy of {}", node.name()));
    if fault.crashes {
        clone.start();
    }
    if !node.primary.server.is_started() {
        node.primary.start();
    }
    if !clone.server.is_started() {
        clone.start();
    }
    node.invite(clone, scene);
    fault.hold(scene);
}

/// A second server on a clone of the volume, which was taken while the first one ran.
pub fn clone_volume(node: &mut Node, scene: &Scene, fault: &Fault) {
    if !scene.has_volumes {
        return scene.shared.skip();
    }
    let mut server = node.primary.server.sibling();
    {
        let _devices = lock(&scene.devices);
        let volume = put_on_volume(node, fault).clone_to(&server);
        let name = node.name();
        server.set("snowflake_id.node_name", &name);
        let mut clone = scene.member(server, &format!("a clone of {name}"));
        clone.volume = Some(volume);
        clone.start();
        node.invite(clone, scene);
    }
    fault.hold(scene);
}

/// The volume as it was some time before, on the same device.
pub fn set_back_volume(node: &mut Node, scene: &Scene, fault: &Fault) {
    if !scene.has_volumes {
        return scene.shared.skip();
    }
    let devices = lock(&scene.devices);
    put_on_volume(node, fault);
    let image = node.primary.snapshot();
    std::thread::sleep(fault.length(scene).clamp(ms(300), ms(3_000)));
    node.primary.stop(fault.down);
    node.primary.set_back(image);
    drop(devices);
    start_back(node);
    // It has replayed what its primary no longer has.
    if let Some(standby) = node.standby.take() {
        discard(standby);
        node.standby = Some(node.new_standby(&node.primary, &format!("{}-b", node.name()), scene));
    }
}

/// Moves a node to a volume of its own, if it is on none.
fn put_on_volume<'a>(node: &'a mut Node, fault: &Fault) -> &'a Volume {
    if node.primary.volume.is_none() {
        node.primary.put_on_volume(fault.down);
        std::thread::sleep(ms(fault.variant % 3_000));
    }
    node.primary.put_on_volume(fault.down)
}

/// The state file as it was some time before; its inode and time of birth are what they were.
pub fn set_back_state(node: &mut Node, scene: &Scene, fault: &Fault) {
    let before = node.primary.state_bytes();
    std::thread::sleep(fault.length(scene).clamp(ms(300), ms(3_000)));
    node.primary.stop(fault.down);
    disk::overwrite(&node.primary.server, 0, &before);
    start_back(node);
}

/// Starts a node without the newest state, with a right clock: it has passed those under which IDs were generated.
fn start_back(node: &mut Node) {
    std::thread::sleep(ms(200));
    wait_until("the clock to pass the last ID", secs(60), || {
        let newest_ms = node.primary.target.newest_ms.load(Ordering::Acquire);
        (newest_ms <= true_ms() + MAX_AHEAD_MS).then_some(())
    });
    node.primary.start();
    node.is_replaced = true;
}

/// Nobody fences the old primaries: they go on beside their successors on three timelines.
pub fn promote(node: &mut Node, scene: &Scene, fault: &Fault) {
    let had_standby = node.standby.is_some();
    let name = |role: &str| format!("{}-{role}", node.name());
    let (b, c) = (name("b"), name("c"));
    let second = node.standby.take().unwrap_or_else(|| node.new_standby(&node.primary, &b, scene));
    let third = node.new_standby(&second, &c, scene);
    for successor in [second, third] {
        successor.server.promote();
        let old = std::mem::replace(&mut node.primary, successor);
        node.invite(old, scene);
        std::thread::sleep(fault.length(scene) / 2);
    }
    if fault.crashes {
        node.guests[fault.variant as usize % 2].stop(fault.down);
        node.guests[fault.variant as usize % 2].start();
    }
    if had_standby {
        node.standby = Some(node.new_standby(&node.primary, &b, scene));
    }
}
