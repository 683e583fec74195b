//! The wall clock of a running server moves while clients generate IDs. No ID ever repeats; what else happens is the
//! manual's ladder, rung by rung, for both policies.
//!
//! The cluster of each test is created 400 days ago and then brought to today, so that every lane is usable, however
//! far the clock goes back.

use postgres::Client;
use rand::Rng;
use snowflake_server_tests::ids::{at_ms, worker};
use snowflake_server_tests::sql::{Failure, Status, fails, next, one, run, status, take};
use snowflake_server_tests::traffic::{Call, assert_ordered, ids_of};
use snowflake_server_tests::{Builder, Kind, Server, Traffic, alone, days, ms, secs};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

const YEAR: Duration = days(365);
/// Default of `max_ahead`.
const MAX_AHEAD: Duration = secs(2);
/// The lanes of home worker 1 in the order in which timeline 1 takes them, and their workers.
const LANES: [i64; 4] = [0, 2, 3, 1];
const WORKERS: [i64; 4] = [1, 513, 769, 257];

/// A server at today's date whose statistics start now.
fn server(policy: &str) -> Server {
    server_with(Server::builder().setting("snowflake_id.rollback_policy", policy))
}

fn server_with(builder: Builder) -> Server {
    let server = builder.born(days(400)).start_with_extension();
    let mut session = server.connect();
    next(&mut session);
    server.step_forward(days(400));
    next_on_time(&mut session);
    let status = status(&mut session);
    assert_eq!(status.forward_jumps, 1, "{status:?}");
    run(&mut session, "SELECT snowflake_reset_stats()");
    server
}

/// Asserts that an ID carries the time of the server's wall clock, and not a later one, but for 5 ms that other calls
/// may take on a busy machine.
#[track_caller]
fn next_on_time(session: &mut Client) -> i64 {
    let now = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let row = session.query_one(&format!("SELECT {now}, snowflake_nextval(), {now}"), &[]).unwrap();
    let (before, id, after): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    assert!((before..=after + 5).contains(&at_ms(id)), "{} at {before} to {after}", at_ms(id));
    id
}

fn wall_ms(server: &Server) -> i64 {
    one(&mut server.connect(), "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint")
}

/// Clients that stay far below what a millisecond holds, so that their IDs do not run ahead.
const CLIENTS: [Kind; 4] = [Kind::One, Kind::Batch(5), Kind::Range(3), Kind::One];

fn traffic(server: &Server) -> Traffic {
    Traffic::start(server, &CLIENTS, ms(3))
}

fn status_of(server: &Server) -> Status {
    status(&mut server.connect())
}

/// The calls that ended before that moment, and those that began after it.
fn around(calls: &[Call], step: Instant, settled: Instant) -> (Vec<&Call>, Vec<&Call>) {
    let before: Vec<&Call> = calls.iter().filter(|call| call.ended < step).collect();
    let after: Vec<&Call> = calls.iter().filter(|call| call.began > settled).collect();
    for (name, part) in [("before", &before), ("after", &after)] {
        let clients: HashSet<usize> = part.iter().map(|call| call.client).collect();
        assert_eq!(clients.len(), CLIENTS.len(), "every client made IDs {name} the step");
    }
    (before, after)
}

fn assert_all_worked(calls: &[Call]) {
    if let Some(failure) = calls.iter().find_map(|call| call.outcome.as_ref().err()) {
        panic!("a call failed: {failure}");
    }
}

#[track_caller]
fn assert_workers<'a>(calls: impl IntoIterator<Item = &'a Call>, expected: i64) {
    for call in calls {
        for id in call.ids() {
            assert_eq!(worker(*id), expected, "{id} of client {}", call.client);
        }
    }
}

/// Compares the extension's reading of IDs with the harness's.
#[track_caller]
fn assert_decodes(server: &Server, ids: &[i64]) {
    let mut session = server.connect();
    for id in ids.iter().step_by(ids.len().div_ceil(20).max(1)) {
        let row = session
            .query_one(
                "SELECT d.worker_id::bigint, (extract(epoch FROM d.created_at) * 1000)::bigint,
                        snowflake_server($1)::bigint
                 FROM snowflake_decode($1) AS d",
                &[id],
            )
            .unwrap();
        let told: [i64; 3] = [row.get(0), row.get(1), row.get(2)];
        assert_eq!(told, [worker(*id), at_ms(*id), worker(*id) % 256], "{id}");
    }
}

/// Rung 1. No ID waits or fails, and all ascend across the step, on the same lane.
#[test]
fn hold_keeps_ascending_after_a_step_of_500_ms() {
    let by = ms(500);
    let server = server("hold");
    let traffic = traffic(&server);
    traffic.go_on_for(10, ms(300));
    let mut session = server.connect();
    // One call at the last moment, so that there is something to hold.
    let asked = Instant::now();
    let newest = next(&mut session);
    let step = Instant::now();
    server.clock().back(by);
    let held: f64 = one(
        &mut session,
        "SELECT extract(epoch FROM snowflake_timestamp(snowflake_nextval()) - clock_timestamp())::float8 * 1000",
    );
    let since = asked.elapsed();
    traffic.go_on(10);
    let settled = Instant::now();
    server.step_back(Duration::ZERO);
    let status = status_of(&server);
    // ... until the clock has caught up, and on.
    traffic.go_on_for(10, by + ms(200));
    let calls = traffic.finish();

    assert_all_worked(&calls);
    around(&calls, step, settled);
    assert_ordered(&calls);
    assert!(next(&mut server.connect()) > newest);
    assert_workers(&calls, 1);
    let all = ids_of(&calls).assert_unique();
    assert_decodes(&server, &all);
    // Less than the step, because the clock has gone on since the last call before it.
    let least = 498.0 - since.as_secs_f64() * 1e3;
    assert!((least..=510.0).contains(&held), "IDs are ahead of the clock by {held} ms, after {since:?}");
    assert_eq!((status.lane, status.worker_id), (Some(0), Some(1)), "{status:?}");
    assert_eq!((status.rotations, status.refusals), (0, 0), "{status:?}");
    assert_eq!((status.rollbacks, status.forward_jumps), (1, 0), "{status:?}");
    assert_rollback(&status, by);
}

/// Asserts that the largest step back in the status is this one.
#[track_caller]
fn assert_rollback(status: &Status, by: Duration) {
    let error = (status.largest_rollback_ms - by.as_secs_f64() * 1_000.0).abs();
    assert!(error <= 1.0, "a step of {by:?}, but {status:?}");
}

/// Rung 4. One rotation, nothing fails, and IDs follow the wall clock on the other lane.
fn a_step_that_rotates(policy: &str, by: Duration) {
    let server = server(policy);
    let traffic = traffic(&server);
    traffic.go_on_for(10, ms(300));
    let step = Instant::now();
    server.step_back(by);
    traffic.go_on(10);
    let settled = Instant::now();
    traffic.go_on_for(10, ms(300));
    next_on_time(&mut server.connect());
    let status = status_of(&server);
    let calls = traffic.finish();

    assert_all_worked(&calls);
    let (before, after) = around(&calls, step, settled);
    assert_ordered(before.iter().copied());
    assert_ordered(after.iter().copied());
    assert_workers(before, WORKERS[0]);
    assert_workers(after, WORKERS[1]);
    let all = ids_of(&calls).assert_unique();
    assert_decodes(&server, &all);
    assert_eq!((status.lane, status.worker_id), (Some(2), Some(WORKERS[1])), "{status:?}");
    assert_eq!(status.home_worker_id, Some(1), "{status:?}");
    assert_eq!((status.rotations, status.refusals), (1, 0), "{status:?}");
    assert_eq!((status.rollbacks, status.forward_jumps), (1, 0), "{status:?}");
    assert_rollback(&status, by);
    let line =
        "rotated from worker 1 to worker 513: system clock moved backwards\nDETAIL:  The system clock is ";
    let rest = server.wait_for_line(line, secs(30));
    let (behind, _) = rest.split_once(" behind the newest ID.\n").unwrap_or_else(|| panic!("{rest}"));
    let precision = if by < days(2) { 3.0 } else { 3_603.0 };
    assert!((seconds(&server, behind) - by.as_secs_f64()).abs() < precision, "{by:?} {behind}");
}

/// Rung 2. No rotation, no wait, nothing fails: IDs follow the wall clock back on the same lane, and continue within
/// milliseconds in which IDs were generated before.
#[test]
fn replay_follows_the_clock_back_by_5_s() {
    let by = secs(5);
    let server = server("replay");
    let traffic = traffic(&server);
    // As long as the step, so that there is something to revisit.
    traffic.go_on_for(10, by + ms(200));
    let step = Instant::now();
    server.step_back(by);
    traffic.go_on(10);
    let settled = Instant::now();
    next_on_time(&mut server.connect());
    let status = status_of(&server);
    traffic.go_on_for(10, ms(1_000));
    let calls = traffic.finish();

    assert_all_worked(&calls);
    let (before, after) = around(&calls, step, settled);
    let ticks = |calls: &[&Call]| -> HashSet<i64> {
        calls.iter().flat_map(|call| call.ids()).map(|id| at_ms(*id)).collect()
    };
    let revisited = ticks(&before).intersection(&ticks(&after)).count();
    assert!(revisited > 0, "no millisecond was revisited");
    assert_ordered(before);
    assert_ordered(after);
    assert_workers(&calls, 1);
    let all = ids_of(&calls).assert_unique();
    assert_decodes(&server, &all);
    assert_eq!((status.lane, status.worker_id), (Some(0), Some(1)), "{status:?}");
    assert_eq!((status.rotations, status.refusals, status.waits), (0, 0, 0), "{status:?}");
    assert_eq!(status.rollbacks, 1, "{status:?}");
    assert_rollback(&status, by);
}

#[test]
fn hold_rotates_after_a_step_of_10_s() {
    a_step_that_rotates("hold", secs(10));
}

#[test]
fn hold_rotates_after_a_step_of_a_year() {
    a_step_that_rotates("hold", YEAR);
}

// The ring remembers 16,384 ms; from before that, nothing can be continued.

#[test]
fn replay_rotates_after_a_step_of_a_year() {
    a_step_that_rotates("replay", YEAR);
}

/// Rung 3, with a step and a `max_wait` that a busy machine cannot use up by accident.
#[test]
fn a_step_a_little_beyond_max_ahead_is_waited_for() {
    let server = server_with(Server::builder().setting("snowflake_id.max_wait", "60s"));
    let mut session = server.connect();
    let asked = Instant::now();
    let newest = next(&mut session);
    server.clock().back(MAX_AHEAD + secs(8));
    let began = Instant::now();
    let id = next(&mut session);
    let (took, since) = (began.elapsed(), asked.elapsed());
    assert!(id > newest);
    assert_eq!(worker(id), 1);
    assert!(since >= ms(7_998), "the call came back after {since:?}");
    let status = status_of(&server);
    assert_eq!((status.waits, status.rotations, status.refusals), (1, 0, 0), "{status:?}");
    let took_ms = took.as_secs_f64() * 1e3;
    assert!((took_ms / 2.0..=took_ms + 1.0).contains(&status.wait_ms), "{took:?} {status:?}");
    assert_eq!(status.rollbacks, 1, "{status:?}");
    assert_rollback(&status, MAX_AHEAD + secs(8));
}

/// While the active worker is ten minutes ahead of the clock, and its home worker five.
#[test]
fn a_worker_is_used_again_once_the_clock_has_passed_its_mark() {
    let server = server_with(Server::builder().setting("snowflake_id.backup_workers", "1"));
    let mut session = server.connect();
    server.step_back(secs(600));
    assert_eq!(worker(next(&mut session)), 513);
    server.step_forward(secs(900));
    assert_eq!(worker(next(&mut session)), 513);
    server.step_back(secs(600));
    let failure = fails(&mut session, "55000", "SELECT snowflake_nextval()");
    assert!(failure.detail.contains("Worker 1 is usable first, when the clock reaches 20"), "{failure}");
    server.step_forward(secs(330));
    assert_eq!(worker(next(&mut session)), 1);
}

/// Two or three steps in a row: further lanes, each with its own mark, until there is none left.
#[test]
fn hold_goes_to_further_lanes_at_a_second_and_a_third_step_of_5_s() {
    let by = secs(5);
    let server = server("hold");
    let mut session = server.connect();
    let traffic = traffic(&server);
    for (round, expected) in WORKERS.into_iter().enumerate() {
        if round > 0 {
            server.step_back(by);
        }
        traffic.go_on_for(10, ms(200));
        let id = next_on_time(&mut session);
        assert_eq!(worker(id), expected, "after {round} steps");
        let status = status_of(&server);
        assert_eq!((status.rotations, status.rollbacks), (round as i64, round as i64), "{status:?}");
        assert_eq!(status.lane, Some(LANES[round]), "{status:?}");
        assert_eq!(status.refusals, 0, "{status:?}");
    }
    let calls = traffic.finish();
    assert_all_worked(&calls);
    ids_of(&calls).assert_unique();

    // Each lane has the mark of its own last ID.
    let lanes = session
        .query(
            "SELECT lane::bigint, worker_id::bigint, active,
                    (extract(epoch FROM mark) * 1000)::bigint, issued::bigint
             FROM snowflake_workers ORDER BY lane",
            &[],
        )
        .unwrap();
    assert_eq!(lanes.len(), 4);
    for (number, row) in lanes.iter().enumerate() {
        let (lane, lane_worker, active): (i64, i64, bool) = (row.get(0), row.get(1), row.get(2));
        let (mark, issued): (Option<i64>, i64) = (row.get(3), row.get(4));
        assert_eq!((lane, lane_worker), (number as i64, 1 + 256 * number as i64));
        assert_eq!(active, lane == LANES[3], "lane {lane}");
        let made: Vec<i64> = calls
            .iter()
            .flat_map(|call| call.ids().iter().copied())
            .filter(|id| worker(*id) == lane_worker)
            .collect();
        let newest = made.iter().copied().map(at_ms).max().expect("every lane made IDs");
        let mark = mark.expect("a lane that was used has a mark");
        // The IDs of the test's own session count as well, and the keeper goes on with the active lane.
        let room = if active { 60_000 } else { 4_500 };
        assert!((newest..newest + room).contains(&mark), "lane {lane}: {mark} for {newest}");
        assert!(issued >= made.len() as i64, "lane {lane}");
    }

    // A further step finds no lane; none comes into reach while that is tried.
    server.step_back(secs(60));
    refuses(&server, secs(60));
}

/// Rung 5. All lanes are used, and the clock has just gone back by another `by`.
#[track_caller]
fn refuses(server: &Server, by: Duration) {
    let mut session = server.connect();
    let waits = status(&mut session).waits;
    let before = wall_ms(server);
    let failure = fails(&mut session, "55000", "SELECT snowflake_nextval()");
    let after = wall_ms(server);
    assert_eq!(status(&mut session).waits, waits, "it waited");
    let row = session
        .query_one(
            "SELECT (extract(epoch FROM min(usable_at)) * 1000)::bigint,
                    (extract(epoch FROM min(mark)) * 1000)::bigint,
                    (SELECT (extract(epoch FROM last_id_at) * 1000)::bigint FROM snowflake_status)
             FROM snowflake_workers",
            &[],
        )
        .unwrap();
    let (usable, lowest_mark, newest): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    let now = wall_ms(server);
    // The lane that is the least ahead, as soon as it is within max_ahead. That is the active one, which continues from
    // its last ID; the others' marks are the ends of reservations.
    assert!((newest - 2_001..=newest - 1_999).contains(&usable), "{usable} {newest}");
    assert!(lowest_mark >= newest, "{lowest_mark} {newest}");
    let until = usable - now;
    let by_ms = by.as_millis() as i64;
    assert!((by_ms - 40_000..=by_ms - 1_900).contains(&until), "{until} ms to go after a step of {by_ms} ms");
    assert_refusal_tells(server, &failure, newest - after..=newest - before, usable);

    // It keeps failing, and the log reports it once, not at every call.
    let line = " LOG:  snowflake_id: cannot generate IDs: system clock moved backwards\nDETAIL:  The system clock is ";
    let told = || server.log().matches(line).count();
    let before = status_of(server).refusals;
    assert!(before >= 1);
    assert_eq!(told(), 1, "{}", server.log());
    let mut other = server.connect();
    for _ in 0..50 {
        fails(&mut session, "55000", "SELECT snowflake_nextval()");
        fails(&mut other, "55000", "SELECT snowflake_nextval_batch(2)");
        fails(&mut other, "55000", "SELECT snowflake_nextval_range(2)");
    }
    let status = status_of(server);
    assert_eq!(status.refusals, before + 150, "{status:?}");
    assert_eq!(status.rotations, 3, "{status:?}");
    assert_eq!(told(), 1, "{}", server.log());
    // Nor can an operator rotate to one.
    fails(&mut session, "55000", "SELECT snowflake_rotate()");

    // The clock catches up, and IDs flow again without anybody's help.
    server.step_forward(ms(until as u64));
    let id = next(&mut session);
    assert!(WORKERS.contains(&worker(id)));
    assert!(at_ms(id) <= wall_ms(server) + MAX_AHEAD.as_millis() as i64);
    next(&mut other);
}

/// DETAIL says how far the clock is back, and when a lane is usable; HINT says what to do.
#[track_caller]
fn assert_refusal_tells(server: &Server, failure: &Failure, behind_ms: RangeInclusive<i64>, usable_ms: i64) {
    let between =
        " behind the times that IDs have or may have. Worker 257 is usable first, when the clock reaches ";
    let (far, at) = failure.detail.split_once(between).unwrap_or_else(|| panic!("{failure}"));
    // How far, to the precision that it shows.
    let far_ms = seconds(server, far.strip_prefix("The system clock is ").expect("a time")) * 1e3;
    let digits_ms = if *behind_ms.start() > 600_000 { 2_000 } else { 150 };
    let told = behind_ms.start() - digits_ms..=behind_ms.end() + digits_ms;
    assert!(told.contains(&(far_ms as i64)), "{behind_ms:?} ms, but: {failure}");
    let at = at.trim_end_matches('.');
    let read = format!("SELECT (extract(epoch FROM '{at}'::timestamptz) * 1000)::bigint");
    let read: i64 = one(&mut server.connect(), &read);
    assert!((read - usable_ms).abs() <= 1, "{read} is not {usable_ms}: {failure}");
    assert!(failure.hint.contains(" To generate IDs at once, set snowflake_id.worker_id "), "{failure}");
}

/// A length of time as messages have it, in seconds.
fn seconds(server: &Server, text: &str) -> f64 {
    one(&mut server.connect(), &format!("SELECT extract(epoch FROM interval '{text}')::float8"))
}

#[test]
fn a_jump_forward_is_logged_and_counted_although_nothing_waits_for_it() {
    let server = server("hold");
    let mut session = server.connect();
    let before = next(&mut session);
    server.step_forward(secs(50));
    assert!(next(&mut session) > before);
    assert_eq!(status_of(&server).forward_jumps, 0, "not more than a minute");
    for (jumps, (by, told)) in (1..).zip([(ms(4_000_500), "66 min 40 s"), (secs(9_030), "2 h 30 min")]) {
        server.step_forward(by);
        // The calls themselves have counted it, because nobody has read the status since.
        take(&mut session, 1_000);
        server.wait_for_line(&format!("snowflake_id: system clock moved forward by {told}\n"), secs(30));
        let status = status_of(&server);
        assert_eq!((status.forward_jumps, status.rotations), (jumps, 0), "{status:?}");
    }
    // The first is of `server`.
    assert_eq!(server.log().matches("system clock moved forward by").count(), 3, "{}", server.log());
}

/// The usual case of a wrong clock: nobody has read the status while it was ahead.
#[test]
fn a_step_back_is_counted_although_nobody_noticed_the_step_forward_before_it() {
    let server = server("hold");
    let mut session = server.connect();
    next(&mut session);
    server.step_forward(secs(50));
    assert_eq!(worker(next(&mut session)), 1);
    server.step_back(secs(50));
    assert_eq!(worker(next(&mut session)), 513);
    let status = status_of(&server);
    assert_eq!((status.rotations, status.rollbacks), (1, 1), "{status:?}");
    assert_rollback(&status, secs(50));
}

/// Guarantee 4: whatever the clock does, no ID lies further ahead of it than `max_ahead`.
#[test]
fn no_id_is_ahead_of_the_clock_by_more_than_max_ahead() {
    let _alone = alone();
    for policy in ["hold", "replay"] {
        let server = server(policy);
        let mut session = server.connect();
        // Whole milliseconds, as fast as they come, so that IDs run as far ahead as they may.
        let mut saturate = |ticks: i32| -> f64 {
            one(
                &mut session,
                &format!(
                    "SELECT max(extract(epoch FROM snowflake_timestamp(r.last) - clock_timestamp())
                                * 1000)::float8
                     FROM generate_series(1, {ticks}) AS i,
                          snowflake_nextval_range(4096 + i % 1) AS r"
                ),
            )
        };
        let ahead = saturate(4_500);
        assert!((1_900.0..=2_000.0).contains(&ahead), "{policy}: ahead by {ahead} ms");
        for by in [ms(1), ms(3), ms(500), secs(5), secs(60)] {
            server.clock().back(by);
            let ahead = saturate(1_000);
            assert!(ahead <= 2_000.0, "{policy}, a step of {by:?}: ahead by {ahead} ms");
        }
    }
}

/// A clock out of control: steps of any size in either direction, a few per second, under load.
fn a_mad_clock(policy: &str) {
    let server = server(policy);
    let mut kinds = CLIENTS.to_vec();
    kinds.extend([Kind::Range(200), Kind::Batch(200)]);
    let traffic = Traffic::start(&server, &kinds, ms(1));
    let mut random = rand::rng();
    let mut watcher = server.connect();
    let began = Instant::now();
    let mut steps = 0;
    // How much happens in a given time depends on chance and on the machine.
    let is_enough = |steps: usize, watcher: &mut Client| {
        let status = status(watcher);
        steps > 60 && status.rollbacks > 10 && status.rotations >= 3 && status.issued > 20_000
    };
    while began.elapsed() < secs(3) || !is_enough(steps, &mut watcher) {
        assert!(began.elapsed() < secs(90), "{steps} steps, but {:?}", status(&mut watcher));
        // Back and forward in turn, from 1 ms to a day, small steps as often as large ones. The sum stays near today,
        // so that lanes become usable again.
        let by = Duration::from_secs_f64(10f64.powf(random.random_range(-3.0..5.0)));
        let offset = server.clock().offset();
        let back = if offset.unsigned_abs() < 3_600_000_000 { random.random_bool(0.5) } else { offset > 0 };
        if back {
            server.clock().back(by);
        } else {
            server.clock().forward(by);
        }
        steps += 1;
        std::thread::sleep(ms(random.random_range(1..100)));
    }
    let calls = traffic.finish();
    for failure in calls.iter().filter_map(|call| call.outcome.as_ref().err()) {
        assert_eq!(failure.code, "55000", "{failure}");
    }
    let made = ids_of(&calls).assert_unique();
    assert!(made.len() > 10_000, "only {} IDs", made.len());
    for call in &calls {
        for id in call.ids() {
            assert!(WORKERS.contains(&worker(*id)), "{id} is of worker {}", worker(*id));
        }
    }
}

#[test]
fn hold_makes_no_duplicate_whatever_the_clock_does() {
    a_mad_clock("hold");
}

#[test]
fn replay_makes_no_duplicate_whatever_the_clock_does() {
    a_mad_clock("replay");
}
