//! The other tests rely on the harness; these show that it does what it says. They do not need the extension.

use nix::sys::signal::Signal;
use snowflake_server_tests::sql::{assert_shows, fails, one, run};
use snowflake_server_tests::{Builder, Server, Stop, days, ms, pg_version, secs, wait_until};
use std::time::{Duration, Instant};

fn plain() -> Builder {
    Server::builder().without_library()
}

#[test]
fn a_server_starts_restarts_and_is_gone_afterwards() {
    let mut server = plain().start();
    let version: i32 =
        one(&mut server.connect(), "SELECT current_setting('server_version_num')::int / 10000");
    assert_eq!(version, pg_version() as i32);
    run(&mut server.connect(), "CREATE TABLE kept AS SELECT 1 AS x");
    server.restart();
    let first = server.pid();
    server.stop(Stop::Immediate);
    server.start();
    assert_ne!(server.pid(), first);
    assert_eq!(one::<i32>(&mut server.connect(), "SELECT x FROM kept"), 1);
    assert!(server.log().contains("automatic recovery in progress"), "{}", server.log());
    let pid = server.pid();
    drop(server);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_server_is_stopped_once_it_has_recovered_from_a_crash() {
    let mut server = plain().start();
    let mut session = server.connect();
    // WAL enough for a recovery that takes a while.
    run(&mut session, "CREATE TABLE t AS SELECT i FROM generate_series(1, 1500000) AS i");
    let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
    server.signal_backend(pid, Signal::SIGKILL);
    server.wait_for_line("all server processes terminated; reinitializing", secs(20));
    server.stop(Stop::Fast);
    let log = server.log();
    let at = |line: &str| log.rfind(line).unwrap_or_else(|| panic!("{line:?} is missing in {log}"));
    assert!(at("automatic recovery in progress") < at("ready to accept connections"), "{log}");
    assert!(at("ready to accept connections") < at("received fast shutdown request"), "{log}");
    assert!(log.contains("database system is shut down"), "{log}");
}

#[test]
fn a_server_that_cannot_start_leaves_its_log() {
    let log = plain().setting("shared_buffers", "1 parsec").start_expecting_failure();
    assert!(log.contains("invalid value for parameter \"shared_buffers\""), "{log}");
}

#[test]
fn a_setting_is_reloaded() {
    let mut server = plain().start();
    server.reload("work_mem", "5MB");
}

#[test]
fn the_wall_clock_of_a_running_server_moves_by_a_millisecond_and_by_years() {
    let server = plain().faketime(true).start();
    for by in [ms(1), ms(3), ms(500), secs(5), days(1), days(730)] {
        server.step_back(by);
        server.step_forward(by + ms(7));
        server.step_back(ms(7));
    }
    let (low, high) = server.measured_offset(ms(5));
    assert!(low <= 0 && 0 <= high, "{low}..{high}");
}

#[test]
fn a_running_session_sees_the_step_too() {
    let server = plain().faketime(true).start();
    let mut session = server.connect();
    let now = "SELECT extract(epoch FROM clock_timestamp())::float8";
    let before: f64 = one(&mut session, now);
    server.clock().back(secs(100));
    let after: f64 = one(&mut session, now);
    assert!((90.0..=100.0).contains(&(before - after)), "{before} {after}");
}

/// As on a real machine, which the tests of waits rely on.
#[test]
fn a_step_back_stretches_the_timeouts_of_postgresql() {
    let server = plain().faketime(true).start();
    let mut session = server.connect();
    run(&mut session, "SET statement_timeout = '10s'");
    let mut watcher = server.connect();
    let began = Instant::now();
    let sleeper = std::thread::spawn(move || {
        fails(&mut session, "57014", "SELECT pg_sleep(60)");
        Instant::now()
    });
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    wait_until("the session to sleep", secs(30), || (one::<i64>(&mut watcher, asleep) == 1).then_some(()));
    server.step_back(secs(2));
    let took = sleeper.join().unwrap() - began;
    assert!(took >= ms(11_900), "{took:?}");
}

#[test]
fn a_cluster_can_be_made_in_the_past() {
    let server = plain().born(days(400)).start();
    let (low, high) = server.measured_offset(secs(1));
    let expected = -(days(400).as_micros() as i64);
    assert!((low..=high).contains(&expected), "{low}..{high}");
    let made: f64 = one(
        &mut server.connect(),
        "SELECT extract(epoch FROM clock_timestamp() - modification)::float8
         FROM pg_stat_file('PG_VERSION')",
    );
    // Files keep their true times: only clock calls are faked.
    assert!(made < -days(399).as_secs_f64(), "{made}");
}

#[test]
fn a_stopped_backend_does_nothing_until_it_is_continued() {
    let server = plain().start();
    let mut session = server.connect();
    let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
    server.signal_backend(pid, Signal::SIGSTOP);
    let began = Instant::now();
    let asked = std::thread::spawn(move || {
        let _: i32 = one(&mut session, "SELECT 1");
        Instant::now()
    });
    std::thread::sleep(ms(400));
    server.signal_backend(pid, Signal::SIGCONT);
    let took: Duration = asked.join().unwrap() - began;
    assert!(took >= ms(400), "{took:?}");
}

#[test]
fn a_server_comes_back_after_one_of_its_backends_was_killed() {
    let mut server = plain().start();
    let mut session = server.connect();
    let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
    let postmaster = server.pid();
    server.kill_backend(pid);
    assert_eq!(server.pid(), postmaster);
    assert!(session.batch_execute("SELECT 1").is_err());
    assert_eq!(one::<i32>(&mut server.connect(), "SELECT 1"), 1);
}

#[test]
fn a_standby_follows_and_can_be_promoted() {
    let server = plain().faketime(true).start();
    server.clock().back(secs(1_000));
    run(&mut server.connect(), "CREATE TABLE t AS SELECT 1 AS x");
    let standby = server.standby(|settings| settings.setting("work_mem", "7MB"));
    assert!(one::<bool>(&mut standby.connect(), "SELECT pg_is_in_recovery()"));
    assert_shows(&mut standby.connect(), "work_mem", "7MB");
    assert_eq!(one::<i32>(&mut standby.connect(), "SELECT x FROM t"), 1);
    let (low, high) = standby.measured_offset(ms(500));
    assert!((low..=high).contains(&-1_000_000_000), "{low}..{high}");
    standby.promote();
    run(&mut standby.connect(), "INSERT INTO t VALUES (2)");
}
