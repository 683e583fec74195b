//! Standbys that take their primary's place.

use super::copies::live_beside;
use super::{DAY_US, Fault};
use crate::act::{Act, Down, Member};
use snowflake_server_tests::{secs, wait_until};

/// Promotes a standby, whose clock may be behind, while its primary runs on or after its primary stopped.
///
/// Two worlds are left out as unprotected: on the third timeline and later, a clock that lags behind a server
/// that was ahead two timelines before; and a primary that still runs beside its successor's successor.
pub fn promote(act: &mut Act, fault: &Fault) {
    let standby = take_standby(act);
    match standby.try_run("SELECT snowflake_nextval()") {
        Err(failure) if failure.code == "25006" => {}
        other => panic!("{}: a standby must refuse: {other:?}", standby.target.name),
    }
    if act.world.timeline > 1 {
        wait_for_replay(act, &standby);
    }
    standby.set_clock(-behind_us(fault), act.max_ahead_ms);
    if (fault.variant / 4).is_multiple_of(3) {
        act.stop(fault.down);
        act.gone_frontier_ms = act.frontier_ms();
        return succeed(act, standby, fault);
    }
    standby.server.promote();
    let old = act.replace_primary(standby);
    let mut old = act.serve_beside(old, |act| {
        fault.hold(1);
        if (fault.variant / 12).is_multiple_of(2) {
            act.serving().for_each(Member::rotate);
        }
        if fault.crashes {
            act.restart(Down::Killed);
        }
        act.must_serve_after("two primaries");
    });
    act.retire(&mut old, if fault.down == Down::Smart { Down::Fast } else { fault.down });
    act.set_clock_right();
    follow_up(act, old, fault);
}

/// Promotes a standby whose last restart began after the last commit, so that it has replayed none.
pub fn promote_after_a_restart(act: &mut Act, fault: &Fault) {
    let mut standby = take_standby(act);
    if act.world.timeline > 1 {
        wait_for_replay(act, &standby);
    }
    standby.server.restartpoint_with(&act.primary.server);
    act.stop_for_good(fault.down);
    standby.set_clock(-behind_us(fault), act.max_ahead_ms);
    // After a clean stop, the primary's last record is a checkpoint.
    standby.run("CHECKPOINT");
    standby.stop(fault.down);
    standby.start();
    succeed(act, standby, fault);
}

/// Two or three servers hand over to each other in turn. The one that followed last starts without recovery.
pub fn switch_over_often(act: &mut Act, fault: &Fault) {
    let mut standby = take_standby(act);
    let mut third = act.new_standby();
    let third_takes_part = fault.variant.is_multiple_of(2);
    for _ in 0..5 {
        act.primary.run(MARK);
        // A primary that stops sends the rest to those standbys that stream by then.
        standby.server.catch_up_with(&act.primary.server);
        third.server.catch_up_with(&act.primary.server);
        act.stop_for_good(if fault.down == Down::Smart { Down::Smart } else { Down::Fast });
        standby.set_clock(0, act.max_ahead_ms);
        standby.server.promote();
        let mut old = act.replace_primary(standby);
        act.world.timeline += 1;
        old.server.follow(&act.primary.server);
        old.start();
        third.stop(fault.down);
        third.server.follow(&act.primary.server);
        third.start();
        act.send_clients();
        act.must_serve_after("a switchover");
        fault.hold(1);
        (standby, third) = if third_takes_part { (third, old) } else { (old, third) };
    }
    act.standby = Some(standby);
    if (fault.variant / 2).is_multiple_of(2) {
        third.server.restartpoint_with(&act.primary.server);
    }
    third.stop(Down::Fast);
    third.server.stand_alone();
    live_beside(act, third, fault);
}

/// A commit, with which a standby learns its primary's time.
const MARK: &str = "CREATE TABLE IF NOT EXISTS mark (x int); INSERT INTO mark VALUES (1)";

pub fn take_standby(act: &mut Act) -> Member {
    act.standby.take().expect("drawn only where there is one")
}

/// How far the clock of a standby is behind when it is promoted (µs).
fn behind_us(fault: &Fault) -> i64 {
    match fault.variant % 4 {
        0 => 0,
        1 => fault.step_us % 1_000_000,
        _ => fault.step_us.min(DAY_US),
    }
}

/// Waits until the standby has replayed a commit that is above all IDs of earlier timelines, by the primary's
/// clock, which is right.
fn wait_for_replay(act: &Act, standby: &Member) {
    wait_until("a commit above all earlier IDs to be replayed", secs(30), || {
        act.primary.run(MARK);
        let query = "SELECT (extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000)::bigint";
        let replayed = standby.ask("the last replayed commit", |session| session.query_one(query, &[]));
        let replayed_ms: Option<i64> = replayed.get(0);
        replayed_ms.filter(|ms| ms + act.max_ahead_ms > act.gone_frontier_ms).map(drop)
    });
}

/// The standby takes the place of its primary, which is down.
fn succeed(act: &mut Act, standby: Member, fault: &Fault) {
    standby.server.promote();
    let old = act.replace_primary(standby);
    act.send_clients();
    act.must_serve_after("a promotion");
    act.set_clock_right();
    follow_up(act, old, fault);
}

/// The primary's clock is a day ahead, and right again. Its standby takes over, mostly with a worker of its own. The
/// old primary is rebuilt from it and takes over again, and then its clock comes to that day again.
pub fn rebuild_after_a_day_forward(act: &mut Act, fault: &Fault) {
    let mut standby = take_standby(act);
    let home = act.worker;
    act.set_clock(DAY_US);
    fault.hold(1);
    act.set_clock(0);
    act.must_serve_after("a clock that was a day ahead");
    act.world.future += 1;
    act.stop_for_good(fault.down);
    standby.set_clock(0, act.max_ahead_ms);
    let own = if fault.variant.is_multiple_of(5) { None } else { act.stage.unused_worker() };
    if let Some(own) = own {
        standby.stop(Down::Fast);
        standby.server.set("snowflake_id.worker_id", &own.to_string());
        act.note_worker(own);
        act.worker = own;
        standby.start();
    }
    standby.server.promote();
    let mut old = act.replace_primary(standby);
    act.world.timeline += 1;
    act.send_clients();
    act.must_serve_after("a failover");
    act.primary.run("CHECKPOINT");
    let is_rewound = fault.variant.is_multiple_of(2) && old.server.rewind(&act.primary.server).is_ok();
    if !is_rewound {
        if old.disk.is_some() {
            // A mount point cannot be replaced.
            act.skip();
            old.discard();
            return act.standby = Some(act.new_standby());
        }
        let backup = act.primary.server.backup();
        std::fs::remove_dir_all(old.server.data()).expect("the old data directory");
        std::fs::rename(backup.data(), old.server.data()).expect("the new data directory");
    }
    old.server.follow(&act.primary.server);
    old.server.set("snowflake_id.worker_id", &home.to_string());
    act.worker = home;
    old.set_clock(0, act.max_ahead_ms);
    old.start();
    old.server.catch_up_with(&act.primary.server);
    act.stop_for_good(Down::Fast);
    old.server.promote();
    let second = act.replace_primary(old);
    act.world.timeline += 1;
    act.send_clients();
    act.must_serve_after("a failback");
    act.set_clock(DAY_US);
    fault.hold(1);
    act.set_clock(0);
    act.must_serve_after("the day again");
    second.discard();
    act.standby = Some(act.new_standby());
}

/// After a promotion, rewinds the old primary, which then follows, or makes a new standby.
fn follow_up(act: &mut Act, mut old: Member, fault: &Fault) {
    act.world.timeline += 1;
    old.set_clock(0, act.max_ahead_ms);
    if (fault.variant / 24).is_multiple_of(2) {
        // pg_rewind looks for the new timeline in the control file.
        act.primary.run("CHECKPOINT");
        match old.server.rewind(&act.primary.server) {
            Ok(()) => {
                old.server.follow(&act.primary.server);
                old.start();
                act.standby = Some(old);
                return;
            }
            Err(why) => {
                eprintln!("pg_rewind: {}", why.trim_end());
                act.skip();
            }
        }
    }
    old.discard();
    act.standby = Some(act.new_standby());
}
