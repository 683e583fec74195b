//! Settings that take effect: at a reload in sessions that run, or from the start.

use postgres::Client;
use snowflake_server_tests::ids::{Ids, assert_ascending, at_ms, worker};
use snowflake_server_tests::sql::{assert_shows, fails, next, one, run, status, take};
use snowflake_server_tests::{Layout, Server, alone, hours, ms, secs, wait_until};
use std::collections::HashSet;
use std::time::Instant;

/// Takes whole milliseconds as fast as they come, and returns how many milliseconds at most the IDs were ahead of the
/// clock.
fn run_ahead(session: &mut Client, ticks: i32) -> f64 {
    one(
        session,
        &format!(
            "SELECT max(extract(epoch FROM snowflake_timestamp(r.last) - clock_timestamp()) * 1000)::float8
             FROM generate_series(1, {ticks}) AS i, snowflake_nextval_range(4096 + i % 1) AS r"
        ),
    )
}

/// Waits until a lower `max_ahead` counts: the keeper has looked while no ID lay further ahead than that.
#[track_caller]
fn wait_for_max_ahead(session: &mut Client, millis: i32) {
    wait_until("a lower max_ahead", secs(90), || {
        catch_up(session);
        std::thread::sleep(secs(1));
        (run_ahead(session, millis + 100) <= f64::from(millis)).then_some(())
    });
}

/// Waits until the clock has passed every ID.
fn catch_up(session: &mut Client) {
    let newest = at_ms(one(session, "SELECT snowflake_lastval()"));
    loop {
        let now: i64 = one(session, "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint");
        if now > newest {
            break;
        }
        std::thread::sleep(ms(10));
    }
}

/// A server whose first start was an hour ago, so that other lanes may be entered although the clock goes back.
fn seasoned() -> Server {
    let server = Server::builder().born(hours(1)).start_with_extension();
    next(&mut server.connect());
    server.step_forward(hours(1));
    next(&mut server.connect());
    server
}

#[test]
fn a_reload_of_max_ahead_counts_in_sessions_that_run() {
    let _alone = alone();
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    next(&mut session);
    for (value, most) in [("2s", 2_000.0), ("200ms", 200.0), ("0", 0.0), ("1s", 1_000.0)] {
        if value != "2s" {
            server.reload("snowflake_id.max_ahead", value);
            // The keeper brings it into force in its next round.
            std::thread::sleep(secs(2));
        }
        let ahead = run_ahead(&mut session, most as i32 + 1_500);
        assert!(ahead <= most, "{value}: {ahead} ms");
        assert!(ahead >= most - 50.0, "{value}: {ahead} ms only: not saturated");
        catch_up(&mut session);
    }
    let status = status(&mut session);
    assert_eq!((status.rotations, status.refusals), (0, 0), "{status:?}");
}

#[test]
fn a_reload_of_max_ahead_is_limited_by_the_ring() {
    let _alone = alone();
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    server.reload("snowflake_id.max_ahead", "1min");
    // The ring has 16,384 ticks, four times as many as IDs may run ahead.
    let ahead = run_ahead(&mut session, 6_500);
    assert!((3_900.0..=4_096.0).contains(&ahead), "{ahead} ms");
    server.wait_for_line("max_ahead is limited to 4096 ms until", secs(30));
    // A server that starts with it gets a ring of the right size.
    // A start begins that far ahead of the clock, which comes nearer afterwards.
    let began = Instant::now();
    server.restart();
    let mut session = server.connect();
    let ahead = run_ahead(&mut session, 1_000);
    let at_restart = ahead + began.elapsed().as_secs_f64() * 1_000.0;
    assert!(ahead <= 60_000.0 && at_restart >= 59_000.0, "{ahead} ms, {at_restart} ms");
}

/// A lower one would leave IDs far ahead, as a step back of the clock does, and cost a worker.
#[test]
fn lowering_max_ahead_under_load_costs_no_id_and_no_worker() {
    let _alone = alone();
    let mut server = Server::builder().setting("snowflake_id.max_ahead", "10s").start_with_extension();
    let mut session = server.connect();
    let mut ids = Ids::new();
    ids.add("before", take(&mut session, 1_000));
    run_ahead(&mut session, 10_100);
    server.reload("snowflake_id.max_ahead", "100ms");
    for _ in 0..20 {
        ids.add("meanwhile", take(&mut session, 1_000));
        std::thread::sleep(ms(100));
    }
    wait_for_max_ahead(&mut session, 100);
    let after = take(&mut session, 1_000);
    assert!(after.iter().all(|id| worker(*id) == 1), "{}", worker(after[0]));
    ids.add("after", after);
    ids.assert_unique();
    let status = status(&mut session);
    assert_eq!((status.rotations, status.rollbacks, status.refusals), (0, 0, 0), "{status:?}");
}

/// IDs that ran ahead under the longer one may have to be bounded by the next start.
#[test]
fn a_shorter_max_ahead_counts_once_the_clock_has_passed_the_restart() {
    let _alone = alone();
    let mut server = Server::builder().setting("snowflake_id.max_ahead", "5s").start_with_extension();
    let mut session = server.connect();
    let mut ids = Ids::new();
    run_ahead(&mut session, 5_100);
    ids.add("at the longer one's end", take(&mut session, 1_000));
    server.set("snowflake_id.max_ahead", "200ms");
    let began = Instant::now();
    server.restart();
    let mut session = server.connect();
    ids.add("above that", take(&mut session, 1_000));
    let ahead = run_ahead(&mut session, 100);
    // The clock has come nearer meanwhile.
    let at_restart = ahead + began.elapsed().as_secs_f64() * 1_000.0;
    assert!(ahead <= 5_000.0 && at_restart >= 4_000.0, "{ahead} ms, {at_restart} ms");
    wait_for_max_ahead(&mut session, 200);
    ids.add("with the shorter one", take(&mut session, 1_000));
    ids.assert_unique();
    assert_eq!(status(&mut session).refusals, 0);
}

#[test]
fn a_reload_of_max_wait_counts_in_sessions_that_run() {
    let mut server = seasoned();
    let mut session = server.connect();
    server.reload("snowflake_id.max_wait", "5s");
    let began = Instant::now();
    let newest = next(&mut session);
    // 4 s are missing: less than the old limit, and more than the new one.
    server.clock().back(secs(6));
    let id = next(&mut session);
    assert!(id > newest && worker(id) == 1, "waited instead of rotating");
    assert!(began.elapsed() >= ms(3_998), "{:?}", began.elapsed());
    server.reload("snowflake_id.max_wait", "0");
    next(&mut session);
    server.clock().back(secs(60));
    assert_eq!(worker(next(&mut session)), 513, "rotated instead of waiting");
}

#[test]
fn a_reload_of_the_policy_counts_in_sessions_that_run() {
    let mut server = seasoned();
    let mut session = server.connect();
    next(&mut session);
    server.reload("snowflake_id.rollback_policy", "replay");
    let newest = next(&mut session);
    server.step_back(secs(12));
    let id = next(&mut session);
    assert_eq!(worker(id), 1, "replayed");
    assert!(id < newest);
    server.reload("snowflake_id.rollback_policy", "hold");
    next(&mut session);
    server.step_back(secs(12));
    assert_eq!(worker(next(&mut session)), 513, "rotated");
}

#[test]
fn a_registry_that_a_reload_sets_beside_a_worker_waits_for_the_restart() {
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let before = next(&mut session);
    server.keeper();
    server.reload("snowflake_id.registry", "host=/nowhere");
    let line = "snowflake_id: snowflake_id.registry takes effect after a restart\n";
    server.wait_for_line(line, secs(30));
    assert!(next(&mut session) > before);
    server.restart();
    let failure = fails(&mut server.connect(), "55000", "SELECT snowflake_nextval()");
    assert!(failure.text().contains("invalid value for parameter \"snowflake_id.worker_id\""), "{failure}");
    assert_eq!(server.log().matches(line).count(), 1, "{}", server.log());
}

#[test]
fn a_registry_that_a_reload_sets_without_a_worker_is_said_to_need_a_restart() {
    let mut server = Server::builder().without("snowflake_id.worker_id").start();
    let mut session = server.connect();
    run(&mut session, "CREATE EXTENSION snowflake_id");
    server.reload("snowflake_id.registry", "host=/nowhere");
    wait_until("the reload of snowflake_id.registry", secs(30), || {
        let failure = fails(&mut session, "55000", "SELECT snowflake_nextval()");
        assert!(failure.message.contains("worker_id is not set"), "{failure}");
        failure.hint.starts_with("Restart the server").then_some(())
    });
}

#[test]
fn a_bad_value_in_a_reload_changes_nothing() {
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    next(&mut session);
    server.set("snowflake_id.max_wait", "soon");
    server.set("snowflake_id.worker_id", "9");
    server.reload("work_mem", "5MB");
    assert_shows(&mut session, "snowflake_id.max_wait", "5ms");
    assert_eq!(worker(next(&mut session)), 1);
    assert!(server.log().contains("snowflake_id.worker_id"), "{}", server.log());
}

/// IDs generated one by one, each in a millisecond of its own.
fn slowly(session: &mut Client, n: usize) -> Vec<i64> {
    let made: Vec<i64> = (0..n)
        .map(|_| {
            std::thread::sleep(ms(2));
            next(session)
        })
        .collect();
    assert_ascending("made slowly", &made);
    made
}

#[test]
fn the_sequence_starts_at_zero_by_default() {
    let server = Server::builder().start_with_extension();
    let made = slowly(&mut server.connect(), 100);
    assert!(made.iter().all(|id| id & 4_095 == 0), "{made:?}");
}

#[test]
fn a_spread_sequence_varies_the_low_bits_at_a_low_rate() {
    let server = Server::builder().setting("snowflake_id.sequence_start", "spread").start_with_extension();
    let mut session = server.connect();
    let made = slowly(&mut session, 300);
    let starts: Vec<i64> = made.iter().map(|id| id & 4_095).collect();
    assert!(starts.iter().all(|start| *start < 64), "within 1/64 of the field: {starts:?}");
    let different: HashSet<i64> = starts.iter().copied().collect();
    assert!(different.len() >= 32, "only {} different starts", different.len());
    // About as many odd as even ones, and the same for each of the six bits.
    for bit in 0..6 {
        let set = starts.iter().filter(|start| *start >> bit & 1 == 1).count();
        assert!((90..=210).contains(&set), "bit {bit} is set {set} times of 300");
    }
    // One range can take what is left of the smallest tick, and no more.
    let most = "SELECT last - first + 1 FROM snowflake_nextval_range(4033)";
    assert_eq!(one::<i64>(&mut session, most), 4_033);
    let failure = fails(&mut session, "22023", "SELECT snowflake_nextval_range(4034)");
    assert!(failure.text().contains("4033"), "{failure}");
    // Unique, ascending and counted even if ticks are used to their end.
    let before = status(&mut session).issued;
    let fast = take(&mut session, 200_000);
    assert_ascending("made fast", &fast);
    assert!(fast[0] > made[299]);
    assert_eq!(status(&mut session).issued, before + 200_000);
}

/// That of uid-generator, and Sonyflake's. IDs may run 2 s ahead, so the last ones have to wait.
#[test]
fn ticks_of_a_second_and_of_ten_milliseconds_work() {
    for (bits, tick, tick_ms, worker, count) in
        [("28/22/13", "1s", 1_000, 500_000, 40_000), ("39/16/8", "10ms", 10, 1, 60_000)]
    {
        let server = Server::builder()
            .setting("snowflake_id.layout", bits)
            .setting("snowflake_id.tick", tick)
            .setting("snowflake_id.worker_id", &worker.to_string())
            .start_with_extension();
        let [worker_bits, sequence_bits] =
            [1, 2].map(|n| bits.split('/').nth(n).expect("three").parse().expect("bits"));
        let layout = Layout { worker_bits, sequence_bits, tick_ms, ..Layout::DEFAULT };
        let mut session = server.connect();
        let began = Instant::now();
        let made = take(&mut session, count);
        let took = began.elapsed();
        assert_ascending(bits, &made);
        // The first second need not be whole. Of ticks of 10 ms, a busy machine may use up some more.
        let ticks: HashSet<i64> = made.iter().map(|id| layout.parts(*id).at_ms).collect();
        let full = made.len().div_ceil(1 << sequence_bits);
        assert!(
            ticks.len() >= full && (tick != "1s" || ticks.len() <= full + 1),
            "{bits}: {} ticks",
            ticks.len()
        );
        assert!((ms(200)..secs(60)).contains(&took), "{bits}: {took:?}");
        assert!(made.iter().all(|id| layout.parts(*id).worker == worker));
        agrees(&mut session, &layout, &made);
        assert_eq!(one::<i32>(&mut session, "SELECT tick_ms FROM snowflake_server_layout()"), tick_ms as i32);
        let now = status(&mut session);
        assert_eq!((now.rotations, now.refusals, now.issued), (0, 0, i64::from(count)), "{now:?}");
        assert!(now.waits > 0, "{now:?}");
    }
}

#[test]
fn a_datacenter_has_its_own_bits() {
    let server = Server::builder()
        .setting("snowflake_id.layout", "41/5+5/12")
        .setting("snowflake_id.datacenter_id", "19")
        .setting("snowflake_id.worker_id", "3")
        .start_with_extension();
    let mut session = server.connect();
    // 32 workers per datacenter: 8 home workers of 4 lanes each.
    for lane in [0, 2] {
        if lane != 0 {
            run(&mut session, "SELECT snowflake_rotate()");
            server.wait_for_line("rotated from worker 3 to worker 19\n", secs(30));
        }
        let id = next(&mut session);
        assert_eq!(worker(id), (19 << 5) + 3 + 8 * lane, "lane {lane}");
        let row = session
            .query_one(
                "SELECT d.datacenter_id, d.worker_id, snowflake_server($1) FROM snowflake_decode($1) AS d",
                &[&id],
            )
            .unwrap();
        let told: [i32; 3] = [row.get(0), row.get(1), row.get(2)];
        assert_eq!(told, [19, 3 + 8 * lane as i32, 3]);
    }
}

#[test]
fn an_epoch_with_an_offset_is_read_without_regard_to_the_time_zone() {
    let server = Server::builder()
        .setting("snowflake_id.epoch", "2024-01-01T02:00:00+02:00")
        .setting("timezone", "America/New_York")
        .start_with_extension();
    let mut session = server.connect();
    let id = next(&mut session);
    let epoch: i64 = one(&mut session, "SELECT extract(epoch FROM epoch)::bigint FROM snowflake_status");
    assert_eq!(epoch, 1_704_067_200);
    let error: f64 = one(
        &mut session,
        &format!("SELECT extract(epoch FROM clock_timestamp() - snowflake_timestamp({id}))::float8"),
    );
    assert!((0.0..10.0).contains(&error), "{error} s");
    let read = format!("SELECT (extract(epoch FROM snowflake_timestamp({id})) * 1000)::bigint");
    assert_eq!(one::<i64>(&mut session, &read), at_ms(id));
}

/// The extension decodes IDs as this harness does.
#[track_caller]
fn agrees(session: &mut Client, layout: &Layout, ids: &[i64]) {
    for id in ids.iter().step_by(ids.len().div_ceil(50)) {
        let parts = layout.parts(*id);
        let row = session
            .query_one(
                "SELECT (extract(epoch FROM created_at) * 1000)::bigint, worker_id::bigint,
                        sequence::bigint
                 FROM snowflake_decode($1)",
                &[id],
            )
            .unwrap();
        let told: [i64; 3] = [row.get(0), row.get(1), row.get(2)];
        assert_eq!(told, [parts.at_ms, parts.worker, parts.sequence], "{id}");
    }
}

#[test]
fn as_few_as_no_backup_workers_are_possible() {
    let mut server = Server::builder()
        .setting("snowflake_id.backup_workers", "0")
        .setting("snowflake_id.worker_id", "1023")
        .faketime(true)
        .start_with_extension();
    let mut session = server.connect();
    let newest = next(&mut session);
    assert_eq!(worker(newest), 1_023);
    let failure = fails(&mut session, "55000", "SELECT snowflake_rotate()");
    assert_eq!(failure.detail, "backup_workers is 0.");
    server.step_back(secs(60));
    let failure = fails(&mut session, "55000", "SELECT snowflake_nextval()");
    assert!(failure.hint.ends_with("to a number that was never used, and restart the server."), "{failure}");
    // Usable again when the clock is no more than max_ahead behind.
    server.step_forward(secs(58));
    assert!(next(&mut session) > newest);
    // Home workers of three lanes leave the last of 1024 workers to no server.
    server.set("snowflake_id.backup_workers", "2");
    server.set("snowflake_id.worker_id", "0");
    server.restart();
    let owners = "SELECT array_agg(snowflake_server(w << 12))::text FROM unnest('{341,1022,1023,1023}'::bigint[]) AS w";
    assert_eq!(one::<String>(&mut server.connect(), owners), "{0,340,NULL,NULL}");
}

/// 36 bits of milliseconds are 795 days.
#[test]
fn a_layout_that_ends_within_two_years_is_told_of_at_each_start() {
    let dates = one::<Vec<String>>(
        &mut Server::builder().start().connect(),
        "SELECT ARRAY[d::text, (d + interval '68719476.736 s')::text]
         FROM (SELECT (now() AT TIME ZONE 'UTC')::date - 100) AS t (d)",
    );
    let mut server = Server::builder()
        .setting("snowflake_id.layout", "36/10/12")
        .setting("snowflake_id.epoch", &format!("{}T00:00:00Z", dates[0]))
        .start();
    let line = format!("snowflake_id: the layout's time field ends at {}+00\n", dates[1]);
    let told = |server: &Server| server.log().matches(&line).count();
    server.wait_for_worker("the end of the time field in the log", secs(10), |_| {
        (told(&server) == 1).then_some(())
    });
    server.restart();
    server.wait_for_worker("the end of the time field in the log, again", secs(10), |_| {
        (told(&server) == 2).then_some(())
    });
    let usual = Server::builder().start_with_extension();
    assert!(!usual.log().contains("the layout's time field ends"));
}
