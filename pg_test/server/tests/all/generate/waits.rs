//! A call that waits for the clock holds no lock, is visible, and can be ended at any moment.

use postgres::Client;
use snowflake_server_tests::ids::worker;
use snowflake_server_tests::process::processor_ticks;
use snowflake_server_tests::sql::{Failure, column, fails, next, one, run, status};
use snowflake_server_tests::{Server, Signal, Stop, hours, ms, pg_version, secs, wait_until};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A wait responds within milliseconds. A busy machine needs more, and a wait that does not respond a minute.
const AT_ONCE: Duration = secs(10);

/// Some of several waits respond within this time on any machine.
const SOON: Duration = ms(150);

/// How far the clock is behind the newest ID.
const BEHIND: Duration = secs(62);

/// A server whose calls have to wait for the clock for about a minute.
fn server_that_waits() -> Server {
    let server =
        Server::builder().setting("snowflake_id.max_wait", "300s").born(hours(1)).start_with_extension();
    next(&mut server.connect());
    server.step_forward(hours(1));
    next(&mut server.connect());
    server.step_back(BEHIND);
    server
}

/// Not by the client's request, for which the postmaster sends two signals. The second one may arrive after the first
/// has been handled or caught, and would end whatever runs then.
#[track_caller]
fn cancel(by: &mut Client, pid: i32) {
    assert!(one::<bool>(by, &format!("SELECT pg_cancel_backend({pid})")));
}

/// A call that is under way in a session of its own.
struct Waiting {
    pid: i32,
    thread: JoinHandle<(Client, Result<i64, Failure>, Instant)>,
}

impl Waiting {
    /// Sends the call, and returns once it is visible as waiting.
    fn start(server: &Server, mut session: Client) -> Self {
        let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
        let thread = std::thread::spawn(move || {
            let answer = session.query_one("SELECT snowflake_nextval()", &[]);
            let ended = Instant::now();
            let answer = answer.map(|row| row.get(0)).map_err(|e| Failure::from(&e));
            (session, answer, ended)
        });
        let mut watcher = server.connect();
        wait_until("the call to wait", secs(30), || waits(&mut watcher, pid).then_some(()));
        Self { pid, thread }
    }

    fn end(self) -> (Client, Result<i64, Failure>, Instant) {
        self.thread.join().unwrap()
    }

    #[track_caller]
    fn fails(self, code: &str) -> (Client, Instant) {
        let (session, answer, ended) = self.end();
        let failure = answer.expect_err("the call was to fail");
        assert_eq!(failure.code, code, "{failure}");
        (session, ended)
    }

    /// An administrator's command ends the session. The client does not always get to read the reason before it sees
    /// that the connection is gone, so the server's log must have it.
    #[track_caller]
    fn ends_by_termination(self, server: &Server) -> Instant {
        let reason = format!("[{}] 57P01 FATAL:  terminating connection", self.pid);
        let (_, answer, ended) = self.end();
        answer.expect_err("the call was to fail");
        let log = server.log();
        assert!(log.contains(&reason), "{reason:?} is missing in:\n{log}");
        ended
    }
}

/// Whether a backend waits inside the extension.
fn waits(watcher: &mut Client, pid: i32) -> bool {
    let row = watcher
        .query_one(
            "SELECT wait_event_type, wait_event FROM pg_stat_activity
             WHERE pid = $1 AND query LIKE '%snowflake_nextval%'",
            &[&pid],
        )
        .ok();
    let Some(row) = row else { return false };
    let (kind, event): (Option<String>, Option<String>) = (row.get(0), row.get(1));
    let clock = if pg_version() >= 17 { "SnowflakeClock" } else { "Extension" };
    (kind.as_deref(), event.as_deref()) == (Some("Extension"), Some(clock))
}

#[test]
fn a_wait_answers_cancel() {
    let server = server_that_waits();
    let mut other = server.connect();
    let mut session = server.connect();
    let mut took = Vec::new();
    for round in 0..10 {
        let waiting = Waiting::start(&server, session);
        std::thread::sleep(ms(30 * round));
        if round == 9 {
            server.step_back(secs(60));
        }
        let asked = Instant::now();
        cancel(&mut other, waiting.pid);
        let ended;
        (session, ended) = waiting.fails("57014");
        took.push(ended - asked);
    }
    took.sort();
    assert!(took[2] < SOON && took[9] < AT_ONCE, "{took:?}");
    // The session is as good as before.
    assert_eq!(one::<i32>(&mut session, "SELECT 1"), 1);
    let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
    let event = format!("SELECT wait_event = 'ClientRead' FROM pg_stat_activity WHERE pid = {pid}");
    wait_until("the session to wait for its client", secs(30), || {
        one::<Option<bool>>(&mut other, &event).filter(|waits| *waits)
    });
}

#[test]
fn a_cancelled_wait_inside_a_transaction_can_be_caught() {
    let server = server_that_waits();
    let mut session = server.connect();
    run(&mut session, "SET statement_timeout = 0; CREATE TABLE t (x integer)");
    let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
    let thread = std::thread::spawn(move || {
        run(
            &mut session,
            "DO $$ BEGIN
                 PERFORM snowflake_nextval();
             EXCEPTION WHEN query_canceled THEN
                 INSERT INTO t VALUES (1);
             END $$",
        );
        one::<i64>(&mut session, "SELECT count(*) FROM t")
    });
    let mut watcher = server.connect();
    wait_until("the call to wait", secs(30), || waits(&mut watcher, pid).then_some(()));
    cancel(&mut watcher, pid);
    assert_eq!(thread.join().unwrap(), 1);
}

#[test]
fn a_wait_answers_terminate_and_a_stop_of_the_server() {
    let mut server = server_that_waits();
    let waiting = Waiting::start(&server, server.connect());
    std::thread::sleep(ms(500));
    let asked = Instant::now();
    let sent: bool = one(&mut server.connect(), &format!("SELECT pg_terminate_backend({})", waiting.pid));
    assert!(sent);
    let ended = waiting.ends_by_termination(&server);
    assert!(ended - asked < AT_ONCE, "{:?}", ended - asked);

    let waiting = Waiting::start(&server, server.connect());
    let asked = Instant::now();
    server.stop(Stop::Fast);
    let ended = waiting.ends_by_termination(&server);
    assert!(ended - asked < AT_ONCE, "{:?}", ended - asked);
    assert!(asked.elapsed() < 2 * AT_ONCE, "the stop took {:?}", asked.elapsed());
}

#[test]
fn a_wait_answers_statement_timeout_while_the_clock_is_back() {
    let server = server_that_waits();
    let mut session = server.connect();
    run(&mut session, "SET statement_timeout = '1s'");
    // A batch and a range wait in the same way.
    let calls = ["snowflake_nextval()", "snowflake_nextval_batch(10)", "snowflake_nextval_range(10)"];
    let took = calls.map(|call| {
        let began = Instant::now();
        fails(&mut session, "57014", &format!("SELECT {call}"));
        began.elapsed()
    });
    assert!(took.iter().all(|took| (ms(990)..secs(1) + AT_ONCE).contains(took)), "{took:?}");
    assert!(took.iter().any(|took| *took < secs(1) + SOON), "{took:?}");
}

#[test]
fn waiting_calls_hold_no_lock_and_profit_from_a_rotation() {
    let server = server_that_waits();
    let calls: Vec<Waiting> = (0..10).map(|_| Waiting::start(&server, server.connect())).collect();
    let mut session = server.connect();
    let began = Instant::now();
    let now = status(&mut session);
    assert_eq!(now.state, "open");
    assert_eq!((now.lane, now.rotations), (Some(0), 0), "{now:?}");
    let lanes: Vec<i64> = column(&mut session, "SELECT lane::bigint FROM snowflake_workers");
    assert_eq!(lanes.len(), 4);
    // The write's wait event ends with the write.
    let is_over = "ASSERT (SELECT wait_event IS NULL FROM pg_stat_activity WHERE pid = pg_backend_pid());";
    run(&mut session, &format!("DO $$ BEGIN {is_over} PERFORM snowflake_rotate(); {is_over} END $$"));
    assert!(!server.log().contains("STATEMENT:"), "{}", server.log());
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    assert_eq!(worker(next(&mut session)), 513);
    for call in calls {
        let (_, answer, ended) = call.end();
        assert_eq!(worker(answer.expect("an ID")), 513);
        assert!(ended - began < AT_ONCE, "{:?}", ended - began);
    }
    let now = status(&mut session);
    assert_eq!((now.waits, now.rotations), (10, 1), "{now:?}");
    assert!(now.wait_ms > 0.0);
}

#[test]
fn a_wait_ends_soon_after_the_clock_was_set_right() {
    let server = server_that_waits();
    let waiting = Waiting::start(&server, server.connect());
    let set_right = Instant::now();
    server.step_forward(BEHIND);
    let (_, answer, ended) = waiting.end();
    assert_eq!(worker(answer.expect("an ID")), 1);
    assert!(ended - set_right < AT_ONCE, "{:?}", ended - set_right);
}

/// After a crash in a burst, the first call waits at the closed gate. Several attempts, because on a busy machine the wait
/// may be over before the call.
#[test]
fn a_wait_at_the_gate_answers_statement_timeout() {
    let mut server = Server::builder().faketime(true).start_with_extension();
    let attempt = || {
        let ticks =
            "SELECT count(*) FROM generate_series(1, 2100) AS i, snowflake_nextval_range(4096 + i % 1)";
        one::<i64>(&mut server.connect(), ticks);
        server.crash();
        server.clock().back(ms(1_300));
        server.start();
        let mut session = server.connect();
        run(&mut session, "SET statement_timeout = '200ms'");
        let answer = session.query_one("SELECT snowflake_nextval()", &[]).map(drop);
        run(&mut session, "SET statement_timeout = 0");
        next(&mut session);
        assert_eq!(status(&mut session).rotations, 0);
        server.clock().forward(ms(1_300));
        answer.err().map(|e| Failure::from(&e))
    };
    let failure = std::iter::repeat_with(attempt).take(5).flatten().next();
    let failure = failure.expect("the wait was always over before the call");
    assert_eq!(failure.code, "57014", "{failure}");
}

#[test]
fn a_wait_takes_no_processor_time_to_speak_of() {
    let server = server_that_waits();
    let waiting = Waiting::start(&server, server.connect());
    // It wakes the process, which goes on to wait.
    server.signal_backend(waiting.pid, Signal::SIGHUP);
    let before = processor_ticks(waiting.pid);
    std::thread::sleep(secs(2));
    let used = processor_ticks(waiting.pid) - before;
    assert!(used <= 10, "{used} hundredths of a second in 2 s");
    server.step_forward(BEHIND);
    waiting.end().1.expect("an ID");
}
