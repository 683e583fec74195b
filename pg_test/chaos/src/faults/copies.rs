//! Servers with the data of another one: copies, backups and volumes, beside it on its host, in its place, or on another
//! host in between; and older files in the place of the newest.

use super::Fault;
use crate::act::{A_COPY, A_SECOND, Act, Down, Member, is_closed};
use crate::disk;
use snowflake_server_tests::{Server, faults, ms, secs, wait_until};
use std::path::Path;
use std::process::Command;

// ---- beside the original

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

/// Starts a server with the data of the primary, which runs on the same host. It must stay closed until it has a worker
/// of its own, or takes the primary's place.
pub fn live_beside(act: &mut Act, mut copy: Member, fault: &Fault) {
    copy.set_clock(0, act.longest_ahead_ms);
    copy.start();
    copy = must_stay_closed(act, copy, fault);
    // The second start reads a control file that the first one wrote.
    copy.stop(fault.down);
    copy.start();
    copy = must_stay_closed(act, copy, fault);
    if fault.crashes {
        // It does not take the place of a primary that restarts.
        act.restart(fault.down);
        copy = must_stay_closed(act, copy, fault);
    }
    match fault.variant / 2 % 3 {
        0 => copy.discard(),
        1 => serve_with_its_own_worker(act, copy, fault),
        _ => take_the_place_of_the_primary(act, copy, fault),
    }
}

fn serve_with_its_own_worker(act: &mut Act, mut copy: Member, fault: &Fault) {
    let Some(worker) = act.stage.unused_worker() else {
        act.skip();
        return copy.discard();
    };
    copy.server.set("snowflake_id.worker_id", &worker.to_string());
    copy.stop(Down::Fast);
    copy.start();
    act.note_worker(worker);
    let mut copy = act.serve_beside(copy, |act| {
        act.must_serve_after("a copy with its own worker");
        fault.hold(1);
    });
    copy.stop(Down::Fast);
    act.settled_count(&copy);
    copy.discard();
}

/// The primary stops, and the copy goes on: after a restart, or after an operator adopted it.
fn take_the_place_of_the_primary(act: &mut Act, copy: Member, fault: &Fault) {
    act.stop_for_good(fault.down);
    act.replace_primary(copy).discard();
    if (fault.variant / 18).is_multiple_of(2) {
        act.restart(fault.down);
    }
    act.adopt();
    act.send_clients();
    // A standby of the original cannot follow the copy, because both are on one timeline.
    act.renew_standby();
}

/// Sends clients to a server with the primary's data, beside it: it must refuse them.
fn must_stay_closed(act: &mut Act, copy: Member, fault: &Fault) -> Member {
    let (copy, generated) = ask_beside(act, copy, fault.hold_ms);
    let answer = copy.try_run("SELECT snowflake_nextval()");
    if generated == 0 && is_closed(&answer, fault.kind.closed_for) {
        return copy;
    }
    let name = &copy.target.name;
    act.shared().complain(format!("{name}: closed beside its original? {generated} IDs, then {answer:?}"));
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

// ---- in the place of the original

/// Recovers a base backup to its end onto a new timeline. While the original runs on the same host, the restored server
/// stays closed, and it opens by itself when that one has stopped.
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
    restored.set_clock(fault.apart_us(), act.longest_ahead_ms);
    fault.hold(1);
    let is_early = fault.variant.is_multiple_of(2) && act.max_ahead_ms == act.longest_ahead_ms;
    if !is_early {
        act.stop_for_good(fault.down);
    }
    restored.start();
    wait_until("the promotion", secs(30), || {
        let query = "SELECT NOT pg_is_in_recovery()";
        let row = restored.ask("recovery", |session| session.query_one(query, &[]));
        row.get::<_, bool>(0).then_some(())
    });
    if is_early {
        let answer = restored.try_run("SELECT snowflake_nextval()");
        let name = &restored.target.name;
        assert!(is_closed(&answer, A_SECOND), "{name}: closed beside its original? {answer:?}");
        act.stop(fault.down);
        act.gone_newest_ms = act.newest_ms();
    }
    for (name, _) in settings {
        restored.server.unset(name);
    }
    act.replace_primary(restored).discard();
    act.world.is_replaced = false;
    act.send_clients();
    act.must_serve_after("a restored backup");
    act.set_clock_right();
    act.renew_standby();
}

/// Puts an older state of the stopped primary over its files, which stay the same files: the state file alone, or the
/// whole data directory. The server cannot tell, and begins above the clock.
pub fn put_back(act: &mut Act, fault: &Fault) {
    put_back_files(act, fault, false);
    act.start();
    act.world.is_replaced = true;
    // It may have replayed more.
    act.renew_standby();
}

/// The same with new files: a copy, until an operator adopts it.
pub fn put_back_anew(act: &mut Act, fault: &Fault) {
    put_back_files(act, fault, true);
    act.start_closed(fault.kind.closed_for);
    act.adopt();
    act.renew_standby();
}

fn put_back_files(act: &mut Act, fault: &Fault, anew: bool) {
    act.stop(fault.down);
    let state = act.primary.state_bytes();
    let data = act.primary.server.data();
    let has_mounts = act.primary.disk.is_some() || act.primary.volume.is_some();
    let is_whole = !has_mounts && fault.variant.is_multiple_of(2);
    let backup = is_whole.then(faults::new_folder);
    if let Some(backup) = &backup {
        shell("cp -a \"$1/.\" \"$2\"", &data, backup);
    }
    act.start();
    act.must_serve_after("a backup of files");
    fault.hold(1);
    act.stop_for_good(fault.down);
    match &backup {
        Some(backup) => {
            let kept = if anew { "" } else { "! -name snowflake_id" };
            let remove = format!("find \"$1\" -mindepth 1 -maxdepth 1 {kept} -exec rm -r {{}} +");
            shell(&remove, &data, backup);
            shell("cp -a \"$2/.\" \"$1\" && rm -r \"$2\"", &data, backup);
        }
        None if anew => disk::replace(&act.primary.server, &state),
        None => disk::overwrite(&act.primary.server, 0, &state),
    }
}

/// Rolls the primary's volume back to an earlier snapshot.
pub fn roll_back(act: &mut Act, fault: &Fault) {
    move_to_volume(act, fault.down);
    let image = act.primary.snapshot();
    fault.hold(2);
    act.stop_for_good(fault.down);
    act.primary.set_back(image);
    act.start();
    act.world.is_replaced = true;
    act.renew_standby();
}

/// The files are new ones there, so an operator adopts them.
fn move_to_volume(act: &mut Act, down: Down) {
    if act.primary.volume.is_none() {
        act.primary.put_on_volume(down);
        act.adopt();
        act.send_clients();
    }
    act.must_serve_after("a move to a volume");
}

// ---- on another host in between

/// The server runs on another host, whose clock differs, and then on its own again, with the same data directory.
pub fn move_away_and_back(act: &mut Act, fault: &Fault) {
    act.stop(fault.down);
    assert!(act.primary.server.contain(), "drawn only where there are containers");
    act.set_clock(fault.apart_us());
    act.start();
    act.must_serve_after("a start on another host");
    fault.hold(1);
    act.stop(fault.down);
    act.primary.server.leave_container();
    act.set_clock(0);
    act.start();
}

/// A copy runs on another host, whose clock differs, while the original is down, which then goes on with its own state.
pub fn run_elsewhere(act: &mut Act, fault: &Fault) {
    let down = if fault.down == Down::Smart { Down::Fast } else { fault.down };
    let is_volume = fault.variant.is_multiple_of(3) && act.world.has_volumes && act.primary.disk.is_none();
    if is_volume {
        move_to_volume(act, down);
    }
    // A base backup has an older state than the copies of a stopped server.
    let backup = (!is_volume && fault.variant.is_multiple_of(2)).then(|| act.primary.server.backup());
    fault.hold(1);
    act.stop_for_good(down);
    let mut volume = None;
    let mut server: Server = match backup {
        Some(backup) => backup,
        None if is_volume => {
            let server = act.primary.server.sibling();
            volume = act.primary.volume.as_ref().map(|of| of.clone_to(&server));
            server
        }
        None => {
            let copy = act.primary.server.sibling();
            shell("cp -a \"$1\" \"$2\"", &act.primary.server.data(), &copy.data());
            copy
        }
    };
    // Also writes the settings of the copy.
    server.set("snowflake_id.worker_id", &act.worker.to_string());
    assert!(server.contain(), "drawn only where there are containers");
    if fault.crashes {
        let _ = std::fs::remove_dir_all(disk::state_folder(&server));
    }
    let mut there = Member::new(act.shared(), server, "elsewhere");
    there.volume = volume;
    there.set_clock(fault.apart_us(), act.longest_ahead_ms);
    there.start();
    let home = act.replace_primary(there);
    if is_closed(&act.primary.try_run("SELECT snowflake_nextval()"), A_COPY) {
        act.adopt();
    }
    act.send_clients();
    act.must_serve_after("a copy on another host");
    fault.hold(1);
    act.stop_for_good(down);
    let there = act.replace_primary(home);
    there.discard();
    act.start();
    act.world.is_replaced = true;
}

fn shell(script: &str, from: &Path, to: &Path) {
    let status = Command::new("sh").args(["-ec", script, "sh"]).args([from, to]).status();
    assert!(status.is_ok_and(|status| status.success()), "{script}");
}
