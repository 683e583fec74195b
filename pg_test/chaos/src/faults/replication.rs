//! Standbys that take their primary's place. All have one number, one after another. The state of a standby is older
//! than its primary's, and its clock differs by up to 0.9 s, as those of two hosts may.

use super::Fault;
use super::copies::live_beside;
use crate::act::{A_SECOND, Act, Down, Member, is_closed};
use snowflake_server_tests::{secs, wait_until};

/// Promotes a standby after its primary stopped. Or before: then the host's lock keeps it closed until the primary has
/// stopped, and it opens by itself.
pub fn promote(act: &mut Act, fault: &Fault) {
    let standby = take_standby(act);
    match standby.try_run("SELECT snowflake_nextval()") {
        Err(failure) if failure.code == "25006" => {}
        other => panic!("{}: a standby must refuse: {other:?}", standby.target.name),
    }
    // Often to the lane on which the next timeline starts.
    if fault.crashes {
        act.primary.rotate();
        fault.hold(1);
    }
    standby.set_clock(fault.apart_us(), act.longest_ahead_ms);
    // Of a max_ahead that was lowered, the standby knows nothing, and it would not wait for the clock to pass.
    let may_be_early = act.max_ahead_ms == act.longest_ahead_ms;
    if (fault.variant / 8).is_multiple_of(3) && may_be_early {
        standby.server.promote();
        wait_until("the host's lock to keep a promoted server closed", secs(30), || {
            is_closed(&standby.try_run("SELECT snowflake_nextval()"), A_SECOND).then_some(())
        });
        fault.hold(1);
        act.stop(fault.down);
        act.gone_newest_ms = act.newest_ms();
        return succeed(act, standby, fault);
    }
    act.stop_for_good(fault.down);
    standby.server.promote();
    succeed(act, standby, fault);
}

/// Promotes a standby whose last restart began after the last commit, so that it has replayed none.
pub fn promote_after_a_restart(act: &mut Act, fault: &Fault) {
    let mut standby = take_standby(act);
    standby.server.restartpoint_with(&act.primary.server);
    act.stop_for_good(fault.down);
    standby.set_clock(fault.apart_us(), act.longest_ahead_ms);
    // After a clean stop, the primary's last record is a checkpoint.
    standby.run("CHECKPOINT");
    standby.stop(fault.down);
    standby.start();
    standby.server.promote();
    succeed(act, standby, fault);
}

/// Two or three servers hand over to each other in turn.
pub fn switch_over_often(act: &mut Act, fault: &Fault) {
    let mut standby = take_standby(act);
    let mut third = act.new_standby();
    let third_takes_part = fault.variant.is_multiple_of(2);
    for _ in 0..5 {
        // A primary that stops sends the rest to those standbys that stream by then.
        standby.server.catch_up_with(&act.primary.server);
        third.server.catch_up_with(&act.primary.server);
        if fault.crashes {
            act.primary.rotate();
        }
        act.stop_for_good(if fault.down == Down::Smart { Down::Smart } else { Down::Fast });
        standby.set_clock(fault.apart_us(), act.longest_ahead_ms);
        standby.server.promote();
        let mut old = act.replace_primary(standby);
        act.world.is_replaced = false;
        old.server.follow(&act.primary.server);
        old.start();
        third.stop(fault.down);
        third.server.follow(&act.primary.server);
        third.start();
        act.send_clients();
        act.must_serve_after("a switchover");
        fault.hold(1);
        act.set_clock_right();
        (standby, third) = if third_takes_part { (third, old) } else { (old, third) };
    }
    act.standby = Some(standby);
    third.discard();
}

/// Starts a standby, which may have been a primary before, without recovery beside its primary.
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

fn take_standby(act: &mut Act) -> Member {
    act.standby.take().expect("drawn only where there is one")
}

/// The promoted standby takes the place of its primary, which is down. That one follows, rewound, or is replaced.
fn succeed(act: &mut Act, standby: Member, fault: &Fault) {
    let mut old = act.replace_primary(standby);
    act.world.is_replaced = false;
    act.send_clients();
    act.must_serve_after("a promotion");
    act.set_clock_right();
    old.set_clock(0, act.longest_ahead_ms);
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
