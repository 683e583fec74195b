//! What becomes of the registry, and what its operators do.

use super::Fault;
use crate::fleet::network::CUTS;
use crate::fleet::node::Scene;
use crate::fleet::registry::{Registry, new_server};
use snowflake_server_tests::{Clock, Server, secs, sql, wait_until, without_warnings};
use std::time::Duration;

pub fn stop(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    registry.down(false);
    fault.hold(scene);
    registry.up();
}

pub fn kill(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    registry.down(true);
    fault.hold(scene);
    registry.up();
}

pub fn freeze(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    registry.freeze(fault.length(scene));
}

/// No node can commit anything while the standby takes over, so nothing is lost, and the operator may vouch.
pub fn switch_over(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    let mut session = registry.session();
    sql::run(&mut session, "ALTER ROLE node NOLOGIN");
    let sessions = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'node'";
    wait_until("the nodes' sessions to end", secs(30), || {
        (sql::one::<i64>(&mut session, sessions) == 0).then_some(())
    });
    registry.catch_up();
    registry.down(fault.crashes);
    fault.hold(scene);
    registry.fail_over(fault.apart());
    if fault.variant.is_multiple_of(2) {
        registry.operate("snowflake_registry_vouch()", &[]);
    }
    sql::run(&mut registry.session(), "ALTER ROLE node LOGIN");
}

pub fn fail_over(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    registry.down(true);
    if fault.variant.is_multiple_of(2) {
        fault.hold(scene);
    }
    registry.fail_over(fault.apart());
}

pub fn fail_over_lost(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    registry.cut_standby();
    fault.hold(scene);
    registry.down(true);
    registry.fail_over(fault.apart());
}

pub fn restore(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    let mut backup = registry.primary.backup();
    fault.hold(scene);
    registry.down(true);
    backup.signal_recovery();
    let settings = [
        ("restore_command", "false"),
        ("recovery_target", "immediate"),
        ("recovery_target_action", "promote"),
    ];
    settings.iter().for_each(|(name, value)| backup.set(name, value));
    assert!(backup.try_start(secs(60)).is_ok(), "the backup did not start: {}", backup.log());
    wait_until("the promotion", secs(30), || {
        sql::one::<bool>(&mut backup.connect(), "SELECT NOT pg_is_in_recovery()").then_some(())
    });
    settings.iter().for_each(|(name, _)| backup.unset(name));
    registry.replace(backup, fault.apart());
}

pub fn restore_dump(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    let dump = without_warnings(&registry.primary.dump("postgres", &[]));
    let restored: Server = new_server();
    fault.hold(scene);
    registry.down(true);
    restored.restore("postgres", &dump);
    registry.replace(restored, fault.apart());
}

pub fn clock_back(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    move_clock(registry, scene, fault, Clock::back, Clock::forward);
}

pub fn clock_forward(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    move_clock(registry, scene, fault, Clock::forward, Clock::back);
}

type Step = fn(&Clock, Duration);

fn move_clock(registry: &Registry, scene: &Scene, fault: &Fault, there: Step, back: Step) {
    let by = Duration::from_micros(fault.step_us.unsigned_abs());
    there(registry.primary.clock(), by);
    fault.hold(scene);
    back(registry.primary.clock(), by);
}

/// Ends the leases of some nodes, which go on with other workers.
pub fn retire(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    let names: Vec<String> = sql::column(
        &mut registry.session(),
        "SELECT DISTINCT node_name FROM snowflake_fleet WHERE granted_until > now() ORDER BY node_name",
    );
    if names.is_empty() {
        return scene.shared.skip();
    }
    for i in 0..=fault.variant % 3 {
        let name = &names[(fault.variant / 3 + i) as usize % names.len()];
        // 42704: it was given up meanwhile, or was the last one's.
        registry.operate(&format!("snowflake_registry_retire('{name}')"), &["42704"]);
    }
}

/// Reserves a worker that nobody has, and gives it back.
pub fn reserve(registry: &mut Registry, scene: &Scene, fault: &Fault) {
    // 55000: it is leased, or the registry is in doubt.
    let is_reserved = (0..28).map(|i| (fault.variant + i) % 28).find(|worker| {
        registry.operate(&format!("snowflake_registry_reserve({worker}, 'for a while')"), &["55000"])
    });
    let Some(worker) = is_reserved else { return scene.shared.skip() };
    fault.hold(scene);
    registry.operate(&format!("snowflake_registry_unreserve({worker})"), &[]);
}

pub fn cut_all(_: &mut Registry, scene: &Scene, fault: &Fault) {
    let cut = CUTS[fault.variant as usize % CUTS.len()];
    scene.links.iter().for_each(|link| link.cut(cut));
    fault.hold(scene);
    scene.links.iter().for_each(|link| link.heal());
}
