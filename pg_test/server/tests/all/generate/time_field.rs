//! Both ends of the time field: before the epoch and after the last tick no ID is generated, and no time wraps.

use snowflake_server_tests::ids::{Ids, assert_ascending, worker};
use snowflake_server_tests::refusals::{all_fail, assert_tells};
use snowflake_server_tests::sql::{Failure, fails, next, one, status, take};
use snowflake_server_tests::{Layout, Server, days, hours, ms, secs};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[test]
fn an_epoch_that_the_clock_has_not_reached_closes_the_gate_until_it_has() {
    let server = Server::builder()
        .setting("snowflake_id.epoch", "2100-01-01T00:00:00Z")
        .faketime(true)
        .start_with_extension();
    let mut session = server.connect();
    all_fail(&mut session, "55000", &["snowflake_id.epoch"]);
    let now = status(&mut session);
    assert_eq!(now.state, "closed");
    assert!(now.reason.expect("a reason").contains("epoch"));
    assert_eq!(now.issued, 0);

    // To a second after the epoch, by this clock.
    let epoch: Duration = secs(4_102_444_800);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    server.step_forward(epoch + secs(1) - now);
    let ids = take(&mut session, 10);
    assert_ascending("after the epoch", &ids);
    assert!(ids[0] > 0);
    let layout = Layout { epoch_ms: 4_102_444_800_000, ..Layout::DEFAULT };
    assert!((0..60_000).contains(&(layout.parts(ids[0]).at_ms - layout.epoch_ms)));
    assert_eq!(status(&mut session).state, "open");

    // And back to before it.
    server.step_back(days(1));
    all_fail(&mut session, "55000", &["before the epoch.", "set snowflake_id.epoch to a time in the past"]);
    assert_eq!(status(&mut session).state, "closed");
    server.step_forward(days(1));
    assert!(next(&mut session) > ids[9]);
}

// ---- the last tick ----

/// A time field of 20 bits lasts 2^20 ms, a good 17 minutes.
const TINY: Layout = Layout { worker_bits: 10, sequence_bits: 12, tick_ms: 1, epoch_ms: 1_767_225_600_000 };

const TINY_TICKS: i64 = 1 << 20;

/// Enough for a cluster to be created and started.
const START: Duration = secs(300);

/// A server whose time field lasts for another `left`.
fn server_at_the_end(left: Duration) -> Server {
    let end = ms((TINY.epoch_ms + TINY_TICKS) as u64);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    // Starting the cluster takes time, so the last seconds begin only then.
    let server = Server::builder()
        .setting("snowflake_id.layout", "20/10/12")
        .setting("snowflake_id.epoch", "2026-01-01T00:00:00Z")
        .born(now - (end - left - START))
        .start_with_extension();
    let target = (end - left).as_micros() as i64;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    let by = u64::try_from(target - (now + server.clock().offset()));
    server.step_forward(Duration::from_micros(by.expect("a start within five minutes")));
    server
}

#[test]
fn an_exhausted_time_field_is_an_error_and_never_wraps() {
    let server = server_at_the_end(secs(5));
    let mut session = server.connect();
    let expires: i64 =
        one(&mut session, "SELECT (extract(epoch FROM expires_at) * 1000)::bigint FROM snowflake_status");
    assert_eq!(expires, TINY.epoch_ms + TINY_TICKS);
    assert_eq!(status(&mut session).state, "open");
    // Slowly, to the very end.
    let mut ids: Vec<i64> = Vec::new();
    let began = Instant::now();
    let failure = loop {
        match session.query_one("SELECT snowflake_nextval()", &[]) {
            Ok(row) => ids.push(row.get(0)),
            Err(e) => break Failure::from(&e),
        }
        assert!(began.elapsed() < secs(30), "it goes on for ever");
        std::thread::sleep(ms(2));
    };
    assert_eq!(failure.code, "55000", "{failure}");
    assert_eq!(failure.message, "cannot generate a snowflake ID: the layout's time field is exhausted");
    assert!(!ids.is_empty());
    assert_ascending("until the end", &ids);
    let ticks = |id: i64| id >> 22;
    assert!(ids.iter().all(|id| *id > 0 && ticks(*id) < TINY_TICKS));
    let is_over = "SELECT clock_timestamp() >= expires_at FROM snowflake_status";
    assert!(one::<bool>(&mut session, is_over), "it ended too early");
    all_fail(&mut session, "55000", &["exhausted"]);
    let now = status(&mut session);
    assert_eq!(now.state, "closed");
    assert!(now.reason.expect("a reason").contains("exhausted"));
    // Nor does it come back when the field would have wrapped.
    server.step_forward(ms(TINY_TICKS as u64 - 1_000));
    all_fail(&mut session, "55000", &["exhausted"]);
    server.step_forward(hours(24));
    all_fail(&mut session, "55000", &["exhausted"]);
    // If the clock was only ahead, IDs are available again once it is corrected. (To a time after the server's start,
    // which may have taken minutes, because no worker generates IDs of a time before that.)
    let beyond =
        "SELECT (extract(epoch FROM clock_timestamp() - expires_at) * 1000)::bigint FROM snowflake_status";
    let beyond: i64 = one(&mut session, beyond);
    server.step_back(ms(beyond as u64) + secs(4));
    let id = next(&mut session);
    ids.push(id);
    assert!(id > 0 && ticks(id) < TINY_TICKS);
    let mut all = Ids::new();
    all.add("all", ids);
    all.assert_unique();
    assert_eq!(status(&mut session).state, "open");
}

#[test]
fn a_time_field_used_up_by_a_clock_ahead_opens_once_the_clock_is_right() {
    let server = server_at_the_end(secs(600));
    let mut session = server.connect();
    let before = next(&mut session);
    // The clock is ahead by 10 minutes, and the last milliseconds are used up.
    server.step_forward(secs(596));
    let failure = fails(
        &mut session,
        "55000",
        "DO $$ BEGIN LOOP PERFORM snowflake_nextval_range(4096); END LOOP; END $$",
    );
    assert_tells(&failure, &["exhausted"]);
    server.step_back(secs(596));
    // As after any other step back: there are other lanes.
    let after = next(&mut session);
    assert_eq!((worker(before), worker(after)), (1, 513));
}
