//! Settings that an operator changes, and functions that an operator calls.

use super::Fault;
use crate::act::{Act, Down};
use crate::random::Random;
use snowflake_server_tests::{ms, secs, wait_until};

pub fn other_layout(act: &mut Act, fault: &Fault) {
    act.stop(fault.down);
    act.primary.server.set("snowflake_id.layout", "40/10/13");
    act.start_closed(fault.kind.closed_for);
    act.stop(Down::Fast);
    act.primary.server.unset("snowflake_id.layout");
    act.start();
}

pub fn worker(act: &mut Act, fault: &Fault) {
    let Some(other) = act.stage.unused_worker() else { return act.skip() };
    let (home, future) = (act.worker, act.world.future);
    act.stop(fault.down);
    act.settled_count(&act.primary);
    let newest_ms = act.newest_ms();
    act.change_worker(other, i64::MIN);
    act.world.future = 0;
    act.start();
    act.must_serve_after("another worker");
    if fault.variant.is_multiple_of(2) {
        fault.hold(1);
        act.stop(fault.down);
        act.change_worker(home, newest_ms);
        act.world.future = future;
        act.start();
    }
}

pub fn backup_workers(act: &mut Act, fault: &Fault) {
    for backups in ["7", "3"] {
        act.stop(fault.down);
        act.primary.server.set("snowflake_id.backup_workers", backups);
        act.start();
        act.must_serve_after("another number of backups");
        fault.hold(1);
    }
}

pub fn reload(act: &mut Act, fault: &Fault) {
    let mut random = Random::new(fault.variant);
    let max_ahead_ms = random.pick(&[100_i64, 500, 2_000, 4_000]);
    let settings = [
        ("rollback_policy", random.pick(&["hold", "replay"]).to_owned()),
        ("max_ahead", max_ahead_ms.to_string()),
        ("max_wait", random.pick(&["0", "5", "50", "300"]).to_owned()),
    ];
    act.max_ahead_ms = max_ahead_ms;
    act.longest_ahead_ms = act.longest_ahead_ms.max(max_ahead_ms);
    act.set_clock(act.primary.offset_us());
    for member in [Some(&mut act.primary), act.standby.as_mut()].into_iter().flatten() {
        for (name, value) in &settings {
            member.server.set(&format!("snowflake_id.{name}"), value);
        }
        member.server.reread_settings();
    }
    let is_read =
        format!("SELECT current_setting('snowflake_id.max_ahead')::interval = interval '{max_ahead_ms} ms'");
    wait_until("the reload", secs(30), || {
        let row = act.primary.ask("the reload", |session| session.query_one(&is_read, &[]));
        row.get::<_, bool>(0).then_some(())
    });
    std::thread::sleep(ms(100));
}

pub fn rotate(act: &mut Act, fault: &Fault) {
    for _ in 0..=fault.variant % 4 {
        act.primary.rotate();
    }
}

pub fn adopt(act: &mut Act, fault: &Fault) {
    let ahead_ms = fault.variant % 400;
    act.adopt_with(&format!("now() + interval '{ahead_ms} ms'"));
}
