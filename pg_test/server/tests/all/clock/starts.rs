//! How soon a server generates IDs after a start, as the manual's page on reliability says, and with which worker. A time is
//! the best of three, because the machine may be busy with other tests.

use snowflake_server_tests::ids::{Ids, at_ms, worker};
use snowflake_server_tests::sql::{fails, next, one, run, status, take, take_ticks};
use snowflake_server_tests::{Builder, Server, Stop, assert_best_of_three, hours, ms, secs};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The second of rule 4, and what a call and a reading of the view take on a busy machine.
const A_SECOND: Duration = ms(1_600);

fn server() -> Server {
    Server::builder().faketime(true).start_with_extension()
}

/// IDs that run ahead of the clock.
fn burst(server: &Server, ticks: u32) -> Vec<i64> {
    take_ticks(&mut server.connect(), ticks)
}

/// The server's first ID, and how long the call took.
#[track_caller]
fn first(server: &Server) -> (i64, Duration) {
    let mut session = server.connect();
    let began = Instant::now();
    let id = next(&mut session);
    (id, began.elapsed())
}

/// How far an ID is ahead of the server's clock.
fn ahead_ms(server: &Server, id: i64) -> i64 {
    let now = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    at_ms(id) - one::<i64>(&mut server.connect(), now)
}

// ---- without a wait, or with a short one ----

#[test]
fn a_clean_restart_generates_ids_at_once_and_up_to_max_ahead_ahead() {
    let mut server = server();
    let mut ids = Ids::new();
    assert_best_of_three(ms(500), || {
        ids.add("before", burst(&server, 2_100));
        server.restart();
        let (id, took) = first(&server);
        assert!(ahead_ms(&server, id) <= 2_000, "{id}");
        ids.add("after", vec![id]);
        took
    });
    ids.add("at last", burst(&server, 2_100));
    ids.assert_unique();
    let status = status(&mut server.connect());
    assert_eq!((status.lane, status.rotations), (Some(0), 0), "{status:?}");
}

#[test]
fn a_crash_in_a_burst_costs_at_most_half_a_second() {
    for (max_ahead, ticks) in [("2s", 2_100), ("20s", 21_000)] {
        let builder = Server::builder().setting("snowflake_id.max_ahead", max_ahead);
        let mut server = builder.start();
        run(&mut server.connect(), "CREATE EXTENSION snowflake_id");
        let mut ids = Ids::new();
        assert_best_of_three(ms(900), || {
            ids.add("before", burst(&server, ticks));
            server.crash();
            server.start();
            let (id, took) = first(&server);
            ids.add("after", vec![id]);
            took
        });
        ids.assert_unique();
        assert_eq!(status(&mut server.connect()).lane, Some(0), "{max_ahead}");
    }
}

/// As the images of containers do at their first start.
#[test]
fn a_stop_right_after_the_first_start_spends_no_worker() {
    for how in [Stop::Fast, Stop::Immediate] {
        assert_best_of_three(secs(3), || {
            let mut server = Server::builder().start();
            server.stop(how);
            server.start();
            run(&mut server.connect(), "CREATE EXTENSION snowflake_id");
            let (id, took) = first(&server);
            assert_eq!((worker(id), status(&mut server.connect()).rotations), (1, 0), "{how:?}");
            took
        });
    }
}

// ---- a second, in which calls wait ----

/// Asserts that a server opens a second after it begins, no sooner, and that calls wait for it.
#[track_caller]
fn opens_after_a_second(ids: &mut Ids, mut make: impl FnMut() -> Server, begin: impl Fn(&mut Server)) {
    assert_best_of_three(A_SECOND, || {
        let mut server = make();
        let began = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is long after 1970");
        begin(&mut server);
        let (id, took) = first(&server);
        // A second and max_ahead.
        let after = at_ms(id) - began.as_millis() as i64;
        assert!(after >= 3_000, "the first ID is of {after} ms after the start");
        assert!(ahead_ms(&server, id) <= 2_000, "{id}");
        ids.add("the first", vec![id]);
        took
    });
}

#[test]
fn a_first_start_opens_after_a_second() {
    let make = || Server::builder().create();
    opens_after_a_second(&mut Ids::new(), make, |server| {
        server.start();
        run(&mut server.connect(), "CREATE EXTENSION snowflake_id");
    });
}

#[test]
fn a_promotion_opens_after_a_second() {
    let mut ids = Ids::new();
    let mut standbys = Vec::new();
    let mut primary = server();
    for _ in 0..3 {
        standbys.push(primary.standby(|builder| builder));
    }
    ids.add("the primary", burst(&primary, 2_100));
    let lsn: String = one(&mut primary.connect(), "SELECT pg_current_wal_lsn()::text");
    standbys.iter().for_each(|standby| standby.wait_for_replay_to(&lsn));
    primary.stop(Stop::Fast);
    // Each follows the same primary, so a number of one timeline is used again: their runs do not overlap.
    let mut standbys = standbys.into_iter();
    let make = || standbys.next().expect("three of them");
    opens_after_a_second(&mut ids, make, |standby| standby.promote());
    ids.assert_unique();
}

#[test]
fn a_restore_to_a_new_timeline_opens_after_a_second() {
    let mut ids = Ids::new();
    let mut original = server();
    ids.add("before the backup", burst(&original, 2_100));
    let mut backups = [original.backup(), original.backup(), original.backup()].into_iter();
    ids.add("after the backup", burst(&original, 2_100));
    original.stop(Stop::Fast);
    opens_after_a_second(&mut ids, || backups.next().expect("three of them"), Server::recover);
    ids.assert_unique();
}

#[test]
fn another_worker_opens_after_a_second_and_so_does_the_first_one_again() {
    let mut server = Some(server());
    let mut ids = Ids::new();
    ids.add("at first", burst(server.as_ref().expect("it runs"), 2_100));
    for worker_id in ["2", "1"] {
        let mut stopped = server.take().expect("it runs");
        let mut attempts = 0;
        assert_best_of_three(A_SECOND, || {
            attempts += 1;
            // Each attempt is a change of the number.
            stopped.set("snowflake_id.worker_id", if attempts % 2 == 1 { worker_id } else { "3" });
            let began = Instant::now();
            stopped.restart();
            let (id, took) = first(&stopped);
            assert!(began.elapsed() >= secs(1), "after {:?}", began.elapsed());
            ids.add(format!("worker {worker_id}"), vec![id]);
            took
        });
        ids.add(format!("worker {worker_id}"), burst(&stopped, 2_100));
        server = Some(stopped);
    }
    ids.assert_unique();
}

#[test]
fn a_state_deleted_while_the_server_was_down_opens_after_a_second() {
    let mut ids = Ids::new();
    let make = || {
        let mut server = server();
        // At most max_ahead ahead of the clock, so below the first ID after the start.
        burst(&server, 2_100);
        server.stop(Stop::Immediate);
        std::fs::remove_dir_all(server.data().join("snowflake_id")).expect("the state");
        server
    };
    opens_after_a_second(&mut ids, make, Server::start);
}

// ---- a clock that is wrong at a start, and is set right afterwards ----

/// A time service corrects the clock after the boot.
#[test]
fn a_clock_that_is_set_back_by_an_hour_after_a_start_rotates_at_once() {
    for how in [Stop::Fast, Stop::Immediate] {
        let mut server = server();
        let mut ids = Ids::new();
        ids.add("before", burst(&server, 2_100));
        server.stop(how);
        server.clock().forward(hours(1));
        server.start();
        ids.add("an hour ahead", burst(&server, 2_100));
        server.step_back(hours(1));
        let (id, took) = first(&server);
        assert_eq!(worker(id), 513, "{how:?}");
        assert!(ahead_ms(&server, id) <= 2_000 && took < secs(5), "{how:?}: {took:?}");
        ids.add("corrected", burst(&server, 2_100));
        // The next start knows the time that the first worker has reached.
        server.restart();
        ids.add("restarted", burst(&server, 2_100));
        assert_eq!(status(&mut server.connect()).worker_id, Some(513));
        ids.assert_unique();
    }
}

#[test]
fn a_clock_set_back_to_before_a_start_is_not_replayed_into_the_run_before() {
    let builder = Server::builder().setting("snowflake_id.rollback_policy", "replay");
    let mut server = builder.faketime(true).start_with_extension();
    let mut ids = Ids::new();
    let spread = |server: &Server| -> Vec<i64> {
        let mut session = server.connect();
        (0..20)
            .flat_map(|_| {
                std::thread::sleep(ms(50));
                take(&mut session, 50)
            })
            .collect()
    };
    ids.add("the run before", spread(&server));
    server.restart();
    server.wait_for_clock();
    ids.add("this run", spread(&server));
    server.step_back(secs(5));
    ids.add("set back", spread(&server));
    ids.assert_unique();
    assert_eq!(status(&mut server.connect()).worker_id, Some(513));
}

#[test]
fn a_promotion_an_hour_ahead_waits_for_the_clock_or_takes_another_worker() {
    let mut primary = server();
    let mut ids = Ids::new();
    ids.add("the primary", burst(&primary, 2_100));
    let mut standby = primary.standby(|builder: Builder| builder);
    primary.stop(Stop::Fast);
    standby.clock().forward(hours(1));
    standby.promote();
    ids.add("an hour ahead", burst(&standby, 2_100));
    standby.step_back(hours(1));
    let refused = |server: &Server| {
        let failure = fails(&mut server.connect(), "55000", "SELECT snowflake_nextval()");
        assert!(failure.text().contains("system clock moved backwards"), "{failure}");
        assert!(failure.hint.contains("worker_id"), "{failure}");
    };
    refused(&standby);
    standby.set("snowflake_id.worker_id", "2");
    standby.restart();
    let (id, took) = first(&standby);
    assert!(worker(id) % 256 == 2 && took < secs(5), "{id}: {took:?}");
    ids.add("another worker", vec![id]);
    ids.add("another worker", burst(&standby, 2_100));
    standby.set("snowflake_id.worker_id", "1");
    standby.restart();
    refused(&standby);
    standby.step_forward(hours(1));
    ids.add("the clock has caught up", burst(&standby, 2_100));
    ids.assert_unique();
}
