//! Servers with the data of another one that may be running: copies, backups, standbys without recovery.

use super::replication::take_standby;
use super::{DAY_US, Fault};
use crate::act::{Act, Down, Member, is_closed};
use crate::disk;
use snowflake_server_tests::{faults, ms, secs, wait_until};
use std::path::Path;
use std::process::Command;

/// Starts a backup, or a copy of the files, of the primary or of its standby. It follows no server.
pub fn start_a_copy(act: &mut Act, fault: &Fault) {
    let is_hot = fault.variant.is_multiple_of(2);
    let is_of_standby = !(fault.variant / 6).is_multiple_of(3);
    let source = match act.standby.as_mut().filter(|_| is_of_standby) {
        Some(standby) => {
            standby.server.restartpoint_with(&act.primary.server);
            standby
        }
        None => &mut act.primary,
    };
    let server = if is_hot { source.server.backup() } else { source.server.copy() };
    if !source.server.is_started() {
        source.start();
    }
    server.stand_alone();
    let copy = Member::new(act.shared(), server, "copy");
    live_beside(act, copy, fault);
}

/// Starts a standby, which may have been a primary before, without recovery.
pub fn start_the_standby_alone(act: &mut Act, fault: &Fault) {
    let mut standby = take_standby(act);
    // The standby's control file learns the timeline that it follows.
    standby.server.restartpoint_with(&act.primary.server);
    standby.stop(fault.down);
    standby.server.stand_alone();
    live_beside(act, standby, fault);
    if act.standby.is_none() {
        act.standby = Some(act.new_standby());
    }
}

/// Starts a server that may be a twin of the primary beside it. It must stay closed until it has a worker of
/// its own, or takes the primary's place and is adopted.
pub fn live_beside(act: &mut Act, mut copy: Member, fault: &Fault) {
    copy.set_clock(0, act.max_ahead_ms);
    copy.start();
    copy = must_stay_closed(act, copy, fault);
    // The second start reads a control file that the first one wrote.
    copy.stop(fault.down);
    if fault.crashes {
        copy.set_clock(-(fault.step_us.min(DAY_US)), act.max_ahead_ms);
    }
    copy.start();
    copy = must_stay_closed(act, copy, fault);
    copy.set_clock(0, act.max_ahead_ms);
    match fault.variant / 2 % 3 {
        0 => copy.discard(),
        1 => serve_with_its_own_worker(act, copy, fault),
        _ => take_the_place_of_the_primary(act, copy, fault),
    }
}

const OF_A_STANDBY: &[&str] = &["another server may be generating IDs"];

fn serve_with_its_own_worker(act: &mut Act, mut copy: Member, fault: &Fault) {
    let Some(worker) = act.stage.unused_worker() else {
        act.skip();
        return copy.discard();
    };
    copy.server.set("snowflake_id.worker_id", &worker.to_string());
    copy.stop(Down::Fast);
    copy.start();
    act.note_worker(worker);
    // One that was a standby does not know which workers its primary has, so an operator vouches for this one.
    if is_closed(&copy.try_run("SELECT snowflake_nextval()"), OF_A_STANDBY) {
        copy.run("SELECT snowflake_adopt(now())");
    }
    let mut copy = act.serve_beside(copy, |act| {
        act.must_serve_after("a copy with its own worker");
        fault.hold(1);
    });
    copy.stop(Down::Fast);
    act.settled_count(&copy);
    copy.discard();
}

fn take_the_place_of_the_primary(act: &mut Act, copy: Member, fault: &Fault) {
    act.stop_for_good(fault.down);
    act.replace_primary(copy).discard();
    act.adopt();
    act.send_clients();
    // A standby of the original cannot follow the copy, because both are on one timeline.
    if let Some(standby) = act.standby.take() {
        standby.discard();
        act.standby = Some(act.new_standby());
    }
}

/// Sends clients to a server that may be a twin of the primary, beside it: it must refuse them.
fn must_stay_closed(act: &mut Act, copy: Member, fault: &Fault) -> Member {
    let (copy, generated) = ask_beside(act, copy, fault.hold_ms);
    let answer = copy.try_run("SELECT snowflake_nextval()");
    if generated == 0 && is_closed(&answer, fault.kind.closed_for) {
        return copy;
    }
    let name = &copy.target.name;
    act.shared().complain(format!("{name}: closed as a copy? {generated} IDs, then {answer:?}"));
    // Both now generate IDs for a while, so that the tally can tell whether they repeat each other's.
    ask_beside(act, copy, 5_000).0
}

/// Sends clients to another server beside the primary for a while. Returns how many IDs it generated.
fn ask_beside(act: &mut Act, copy: Member, hold_ms: u64) -> (Member, u64) {
    let before = act.settled_count(&copy);
    let copy = act.serve_beside(copy, |_| std::thread::sleep(ms(hold_ms)));
    let generated = act.settled_count(&copy) - before;
    (copy, generated)
}

/// Recovers a base backup to its end onto a new timeline, while the original runs on for a while.
pub fn restore(act: &mut Act, fault: &Fault) {
    let mut server = act.primary.server.backup();
    server.signal_recovery();
    let settings = [
        ("restore_command", "false"),
        ("recovery_target", "immediate"),
        ("recovery_target_action", "promote"),
    ];
    for (name, value) in settings {
        server.set(name, value);
    }
    let mut restored = Member::new(act.shared(), server, "restored");
    restored.set_clock(-(fault.step_us.min(DAY_US)), act.max_ahead_ms);
    restored.start();
    wait_until("the promotion", secs(30), || {
        let query = "SELECT NOT pg_is_in_recovery()";
        let row = restored.ask("recovery", |session| session.query_one(query, &[]));
        row.get::<_, bool>(0).then_some(())
    });
    for (name, _) in settings {
        restored.server.unset(name);
    }
    let old = act.replace_primary(restored);
    let mut old = act.serve_beside(old, |act| {
        act.must_serve_after("a restored backup beside its original");
    });
    act.retire(&mut old, fault.down);
    act.set_clock_right();
    act.world.timeline += 1;
    old.discard();
}

/// Puts an older state of the stopped primary over its files, without another inode: the state file alone, or with the
/// whole data directory.
pub fn put_back(act: &mut Act, fault: &Fault) {
    act.stop(fault.down);
    let state = act.primary.state_bytes();
    let data = act.primary.server.data();
    let is_whole = act.primary.disk.is_none() && fault.variant.is_multiple_of(2);
    let backup = is_whole.then(faults::new_folder);
    if let Some(backup) = &backup {
        shell("cp -a \"$1/.\" \"$2\"", &data, backup);
    }
    act.start();
    act.must_serve_after("a backup of files");
    fault.hold(1);
    act.stop(fault.down);
    match &backup {
        Some(backup) => {
            shell("find \"$1\" -mindepth 1 -maxdepth 1 ! -name snowflake_id -exec rm -r {} +", &data, backup);
            shell("cp -a \"$2/.\" \"$1\" && rm -r \"$2\"", &data, backup);
        }
        None => disk::overwrite(&act.primary.server, 0, &state),
    }
    act.start_closed(fault.kind.closed_for);
    act.adopt();
    // Its standby may have replayed more.
    if is_whole && let Some(standby) = act.standby.take() {
        standby.discard();
        act.standby = Some(act.new_standby());
    }
}

fn shell(script: &str, data: &Path, backup: &Path) {
    let status = Command::new("sh").args(["-ec", script, "sh"]).args([data, backup]).status();
    assert!(status.is_ok_and(|status| status.success()), "{script}");
}
