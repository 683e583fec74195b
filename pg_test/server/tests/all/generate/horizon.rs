//! `snowflake_horizon`: a reader that polls a table by ID loses no row, whatever the writers do; and the same reader
//! without it does, so these tests can fail.

use postgres::Client;
use snowflake_server_tests::sql::{fails, one, run};
use snowflake_server_tests::{Builder, Server, Signal, Stop, hours, ms, secs, wait_until};
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const SCHEMA: &str = "
    CREATE TABLE outbox (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), kind text NOT NULL);
    CREATE TABLE outbox_horizon (horizon bigint, breaks bigint, since bigint);
    INSERT INTO outbox_horizon SELECT * FROM snowflake_horizon();
    CREATE TABLE big AS SELECT n FROM generate_series(1, 20000) AS n;
    ANALYZE big;
    CREATE PROCEDURE in_many_transactions() LANGUAGE plpgsql AS $$
    BEGIN
        FOR i IN 1..5 LOOP
            INSERT INTO outbox (kind) VALUES ('procedure');
            PERFORM pg_sleep(0.005);
            COMMIT;
        END LOOP;
    END $$;
    CREATE TABLE deferred (n integer);
    CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO outbox (kind) VALUES ('deferred');
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION at_commit();";

const STORE: &str = "UPDATE outbox_horizon SET (horizon, breaks, since) = (SELECT horizon, breaks, since FROM snowflake_horizon())";

/// A server that can prepare transactions, with the tables.
fn started(builder: Builder) -> Server {
    let server = builder.setting("max_prepared_transactions", "20").start_with_extension();
    run(&mut server.connect(), SCHEMA);
    server
}

/// A server that gets both tables by one subscription.
fn subscriber(publisher: &Server) -> Server {
    let mut session = publisher.connect();
    run(&mut session, "ALTER TABLE outbox_horizon REPLICA IDENTITY FULL");
    run(&mut session, "CREATE PUBLICATION polled FOR TABLE outbox, outbox_horizon");
    let server = Server::builder().setting("snowflake_id.worker_id", "2").start();
    let mut session = server.connect();
    run(&mut session, "CREATE TABLE outbox (id bigint PRIMARY KEY, kind text NOT NULL)");
    run(&mut session, "CREATE TABLE outbox_horizon (horizon bigint, breaks bigint, since bigint)");
    let socket = publisher.data();
    let socket = socket.parent().expect("the server's folder").display();
    let connection = format!("host={socket} user=postgres dbname=postgres");
    run(&mut session, &format!("CREATE SUBSCRIPTION polled CONNECTION '{connection}' PUBLICATION polled"));
    wait_until("the first copy", secs(60), || {
        let ready = "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel";
        one::<Option<bool>>(&mut session, ready).filter(|ready| *ready)
    });
    server
}

// ---- readers

/// A reader with all that it remembers.
#[derive(Debug, Default)]
struct Reader {
    from: i64,
    breaks: i64,
    seen: BTreeSet<i64>,
}

impl Reader {
    /// As the manual has it: the stored horizon and the rows by one snapshot.
    fn poll(&mut self, session: &mut Client, heeds_breaks: bool) {
        let query = "SELECT h.horizon, h.breaks, h.since, ARRAY(
                         SELECT o.id FROM outbox AS o WHERE o.id < h.horizon
                             AND o.id >= CASE WHEN h.breaks = $2 THEN $1 ELSE least($1, h.since) END)
                     FROM outbox_horizon AS h";
        // A reader that does not heed them takes every number for the one that it knows.
        let known: i64 = match heeds_breaks {
            true => self.breaks,
            false => one(session, "SELECT breaks FROM outbox_horizon"),
        };
        let row = session.query_one(query, &[&self.from, &known]).expect("the stored horizon");
        let (horizon, breaks, since): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        self.seen.extend(row.get::<_, Vec<i64>>(3));
        if heeds_breaks && breaks != self.breaks {
            self.from = self.from.min(since);
        }
        self.from = self.from.max(horizon);
        self.breaks = breaks;
    }

    /// Without a table of its own: the function in a statement of its own, and then the rows by another snapshot.
    fn poll_at_once(&mut self, session: &mut Client) {
        let row = session.query_one("SELECT * FROM snowflake_horizon()", &[]).expect("the horizon");
        let (horizon, breaks, since): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        if breaks != self.breaks {
            (self.from, self.breaks) = (self.from.min(since), breaks);
        }
        let query = "SELECT id FROM outbox WHERE id >= $1 AND id < $2";
        let rows = session.query(query, &[&self.from, &horizon]).expect("rows");
        self.seen.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
        self.from = self.from.max(horizon);
    }

    /// As programs do that know no horizon.
    fn poll_beyond_the_last(&mut self, session: &mut Client) {
        let rows = session.query("SELECT id FROM outbox WHERE id > $1", &[&self.from]).expect("rows");
        self.seen.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
        self.from = self.seen.last().copied().unwrap_or(0);
    }

    fn lost(&self, all: &BTreeSet<i64>) -> usize {
        assert!(self.seen.is_subset(all), "a row that was never committed");
        all.len() - self.seen.len()
    }
}

fn all_rows(server: &Server) -> BTreeSet<i64> {
    let rows = server.connect().query("SELECT id FROM outbox", &[]).expect("rows");
    rows.iter().map(|row| row.get(0)).collect()
}

// ---- writers

/// One transaction, or a few, of a kind; `n` counts them.
type Writer = fn(&mut Client, usize);

const WRITERS: [(&str, Writer); 12] = [
    ("short", |session, _| run(session, "INSERT INTO outbox (kind) VALUES ('short')")),
    ("aborted", |session, _| run(session, "BEGIN; INSERT INTO outbox (kind) VALUES ('aborted'); ROLLBACK")),
    ("long", |session, n| {
        run(session, "BEGIN; INSERT INTO outbox (kind) VALUES ('long')");
        thread::sleep(ms(50 + 20 * (n as u64 % 5)));
        run(session, "INSERT INTO outbox (kind) VALUES ('long'); COMMIT");
    }),
    ("cancelled", |session, _| {
        run(session, "BEGIN; INSERT INTO outbox (kind) VALUES ('cancelled'); SAVEPOINT s");
        run(session, "SET LOCAL statement_timeout = '5ms'");
        let slow =
            "INSERT INTO outbox (kind) SELECT 'cancelled' FROM generate_series(1, 100), pg_sleep(0.05)";
        fails(session, "57014", slow);
        run(session, "ROLLBACK TO s; INSERT INTO outbox (kind) VALUES ('cancelled'); COMMIT");
    }),
    ("copy", |session, _| {
        run(session, "BEGIN");
        let mut copy = session.copy_in("COPY outbox (kind) FROM STDIN").expect("COPY");
        copy.write_all("copy\n".repeat(20).as_bytes()).expect("rows");
        copy.finish().expect("COPY");
        thread::sleep(ms(10));
        run(session, "COMMIT");
    }),
    ("savepoint", |session, _| {
        run(session, "BEGIN; SAVEPOINT s; INSERT INTO outbox (kind) VALUES ('savepoint'); ROLLBACK TO s");
        thread::sleep(ms(10));
        run(session, "INSERT INTO outbox (kind) VALUES ('savepoint'); RELEASE s; COMMIT");
    }),
    ("late", |session, _| {
        run(session, "BEGIN");
        let id: i64 = one(session, "SELECT snowflake_nextval()");
        let more: Vec<i64> = one(session, "SELECT array_agg(b) FROM snowflake_nextval_batch(3) AS b");
        thread::sleep(ms(20));
        run(session, &format!("INSERT INTO outbox VALUES ({id}, 'late'), ({}, 'late'); COMMIT", more[2]));
    }),
    ("range", |session, _| {
        run(session, "BEGIN");
        let first: i64 = one(session, r#"SELECT "first" FROM snowflake_nextval_range(10)"#);
        thread::sleep(ms(20));
        run(
            session,
            &format!("INSERT INTO outbox VALUES ({first}, 'range'), ({}, 'range'); COMMIT", first + 9),
        );
    }),
    ("prepared", |session, n| {
        let name: i32 = one(session, "SELECT pg_backend_pid()");
        run(session, "BEGIN; INSERT INTO outbox (kind) VALUES ('prepared')");
        run(session, &format!("PREPARE TRANSACTION '{name}'"));
        // The session goes on to its next transaction meanwhile.
        run(session, "INSERT INTO outbox (kind) VALUES ('short')");
        thread::sleep(ms(20));
        let end = if n.is_multiple_of(4) { "ROLLBACK" } else { "COMMIT" };
        run(session, &format!("{end} PREPARED '{name}'"));
    }),
    ("parallel", |session, _| {
        run(
            session,
            "BEGIN; SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0;
             SET LOCAL min_parallel_table_scan_size = 0;
             CREATE TEMP TABLE drawn ON COMMIT DROP AS SELECT snowflake_nextval() AS id FROM big WHERE n % 1000 = 0",
        );
        thread::sleep(ms(10));
        run(session, "INSERT INTO outbox SELECT id, 'parallel' FROM drawn; COMMIT");
    }),
    ("procedure", |session, _| run(session, "CALL in_many_transactions()")),
    ("deferred", |session, _| run(session, "BEGIN; INSERT INTO deferred VALUES (1); COMMIT")),
];

/// Runs the writers, `rounds` times each, beside what `beside` does until they have ended. Its argument is false then.
fn write_beside<T: Send>(
    server: &Server,
    rounds: usize,
    writers: &[(&str, Writer)],
    beside: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> T,
) -> T {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads = writers.iter().map(|(_, write)| {
            let mut session = server.connect();
            scope.spawn(move || (0..rounds).for_each(|n| write(&mut session, n)))
        });
        let threads: Vec<_> = threads.collect();
        let ended = &ended;
        let watch = scope.spawn(move || {
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            ended.store(true, Ordering::Relaxed);
            results.into_iter().for_each(|result| result.expect("a writer"));
        });
        let result = beside(&|| !ended.load(Ordering::Relaxed));
        watch.join().expect("the writers");
        result
    })
}

/// Polls while there is something to come, then waits for what is under way, and polls once more.
fn poll_until_ended(goes_on: &(dyn Fn() -> bool + Sync), mut poll: impl FnMut()) {
    while goes_on() {
        poll();
        thread::sleep(ms(3));
    }
}

// ---- tests

/// Every kind of writer beside every kind of reader, on the primary, a standby and a logical subscriber.
#[test]
fn readers_by_the_horizon_lose_no_row() {
    let server = started(Server::builder().setting("wal_level", "logical"));
    let standby = server.standby(|builder| builder);
    let subscriber = subscriber(&server);
    let connect = |server: &Server| (server.connect(), Reader::default());
    let mut naive = connect(&server);
    let mut stored = connect(&server);
    let mut at_once = connect(&server);
    let mut on_standby = connect(&standby);
    let mut on_subscriber = connect(&subscriber);

    // One transaction that is overtaken, for certain.
    let (mut late, mut store) = (server.connect(), server.connect());
    run(&mut late, "BEGIN; INSERT INTO outbox (kind) VALUES ('late')");
    run(&mut store, "INSERT INTO outbox (kind) VALUES ('short')");
    run(&mut store, STORE);
    naive.1.poll_beyond_the_last(&mut naive.0);
    stored.1.poll(&mut stored.0, true);
    at_once.1.poll_at_once(&mut at_once.0);
    assert_eq!((naive.1.seen.len(), stored.1.seen.len(), at_once.1.seen.len()), (1, 0, 0));
    run(&mut late, "COMMIT");

    write_beside(&server, 40, &WRITERS, |goes_on| {
        thread::scope(|scope| {
            scope.spawn(|| poll_until_ended(goes_on, || run(&mut store, STORE)));
            scope.spawn(|| poll_until_ended(goes_on, || naive.1.poll_beyond_the_last(&mut naive.0)));
            scope.spawn(|| poll_until_ended(goes_on, || stored.1.poll(&mut stored.0, true)));
            scope.spawn(|| poll_until_ended(goes_on, || at_once.1.poll_at_once(&mut at_once.0)));
            scope.spawn(|| poll_until_ended(goes_on, || on_standby.1.poll(&mut on_standby.0, true)));
            scope.spawn(|| poll_until_ended(goes_on, || on_subscriber.1.poll(&mut on_subscriber.0, true)));
        });
    });
    run(&mut store, STORE);
    standby.catch_up_with(&server);
    naive.1.poll_beyond_the_last(&mut naive.0);
    stored.1.poll(&mut stored.0, true);
    at_once.1.poll_at_once(&mut at_once.0);
    on_standby.1.poll(&mut on_standby.0, true);
    let last: i64 = one(&mut store, "SELECT horizon FROM outbox_horizon");
    wait_until("the subscriber to have the last row", secs(60), || {
        on_subscriber.1.poll(&mut on_subscriber.0, true);
        (on_subscriber.1.from == last).then_some(())
    });

    let all = all_rows(&server);
    let kinds: i64 = one(&mut store, "SELECT count(DISTINCT kind) FROM outbox");
    assert_eq!(kinds as usize, WRITERS.len() - 1, "only of aborted transactions there are none");
    for (name, (_, reader)) in
        [("stored", &stored), ("at once", &at_once), ("standby", &on_standby), ("subscriber", &on_subscriber)]
    {
        assert_eq!(reader.lost(&all), 0, "{name}: lost, of {} rows", all.len());
    }
    let lost = naive.1.lost(&all);
    println!("by the last ID {lost} of {} rows were lost", all.len());
    assert!(lost > 0, "a reader without the horizon loses rows, too, where this test could find them");
}

/// The clock goes back by 6 s, and an operator rotates, while transactions live through it.
fn no_row_is_lost_to_steps(policy: &str) {
    // All workers begin above the clock of the start, which therefore has to be past.
    let builder = Server::builder().setting("snowflake_id.backup_workers", "15").born(hours(1));
    let server = started(builder.setting("snowflake_id.rollback_policy", policy));
    server.step_forward(hours(1));
    let (mut heeding, mut other) = (Reader::default(), Reader::default());
    let (mut session, mut store, mut operator) = (server.connect(), server.connect(), server.connect());
    let kinds = ["short", "long", "late", "prepared", "copy", "savepoint"];
    let writers: Vec<_> = WRITERS.into_iter().filter(|(kind, _)| kinds.contains(kind)).collect();
    let mut poll = |store: &mut Client| {
        run(store, STORE);
        heeding.poll(&mut session, true);
        other.poll(&mut session, false);
    };
    let mut round = 0;
    write_beside(&server, 60, &writers, |goes_on| {
        poll_until_ended(goes_on, || {
            round += 1;
            match round {
                20 | 120 => server.step_back(secs(6)),
                80 => server.step_forward(secs(6)),
                // The worker that was left last may not be usable yet.
                50 | 150 => drop(operator.batch_execute("SELECT snowflake_rotate()")),
                _ => {}
            }
            poll(&mut store);
        });
    });
    // One more for certain.
    run(&mut store, "INSERT INTO outbox (kind) VALUES ('short')");
    poll(&mut store);
    server.step_back(secs(6));
    run(&mut store, "INSERT INTO outbox (kind) VALUES ('short')");
    poll(&mut store);
    // The readers have to come past the highest ID.
    server.step_forward(secs(70));
    run(&mut store, "INSERT INTO outbox (kind) VALUES ('short')");
    poll(&mut store);
    let all = all_rows(&server);
    assert_eq!(heeding.lost(&all), 0, "lost, of {} rows", all.len());
    let lost = other.lost(&all);
    println!("{policy}: without breaks {lost} of {} rows were lost", all.len());
    assert!(lost > 0, "a reader that does not heed breaks loses rows, too");
}

#[test]
fn readers_that_heed_breaks_lose_no_row_to_a_rotation() {
    no_row_is_lost_to_steps("hold");
}

#[test]
fn readers_that_heed_breaks_lose_no_row_to_a_replay() {
    no_row_is_lost_to_steps("replay");
}

/// A restart is a break of its own, and nothing that came before it is lost.
#[test]
fn horizon_goes_on_after_a_stop_and_a_crash() {
    let mut server = started(Server::builder());
    let mut reader = Reader::default();
    for how in [Stop::Fast, Stop::Immediate] {
        let mut session = server.connect();
        run(&mut session, "INSERT INTO outbox (kind) VALUES ('short')");
        run(&mut session, STORE);
        reader.poll(&mut session, true);
        let (breaks, seen) = (reader.breaks, reader.seen.len());
        drop(session);
        server.stop(how);
        server.start();
        let mut session = server.connect();
        run(&mut session, "INSERT INTO outbox (kind) VALUES ('short')");
        run(&mut session, STORE);
        reader.poll(&mut session, true);
        assert_ne!(reader.breaks, breaks, "{how:?}");
        assert_eq!(reader.seen.len(), seen + 1, "{how:?}");
    }
    assert_eq!(reader.lost(&all_rows(&server)), 0);
}

/// Only transactions of this server that have generated IDs hold it.
#[test]
fn horizon_waits_for_no_other_transaction() {
    let server = started(Server::builder());
    let (mut idle, mut session) = (server.connect(), server.connect());
    let horizon = |session: &mut Client| one::<i64>(session, "SELECT horizon FROM snowflake_horizon()");
    let prepare = "BEGIN; CREATE TABLE t (n integer); INSERT INTO t VALUES (1); PREPARE TRANSACTION 'other'";
    run(&mut session, prepare);
    run(
        &mut idle,
        "BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE TABLE u (n integer); SELECT count(*) FROM outbox",
    );
    let before: i64 = one(&mut session, "SELECT snowflake_nextval()");
    assert!(horizon(&mut session) > before);
    let before: i64 = one(&mut session, "SELECT snowflake_nextval()");
    let first: i64 = one(&mut idle, "SELECT snowflake_nextval()");
    run(&mut session, "SELECT snowflake_nextval()");
    // Exact: nothing that was generated before the transaction's first ID is held back.
    let held = horizon(&mut session);
    assert!(before < held && held <= first, "{before} < {held} <= {first}");
    run(&mut idle, "SAVEPOINT s; SELECT snowflake_nextval(); ROLLBACK TO s");
    assert_eq!(horizon(&mut session), held, "a savepoint is not the end of the transaction");
    fails(&mut idle, "22012", "SELECT 1 / 0");
    assert_eq!(horizon(&mut session), held, "nor is an error behind the savepoint");
    // The session compares the layouts again, and so begins anew with its next call.
    run(&mut session, "ALTER FUNCTION snowflake_internal.snowflake_own_layouts() STABLE");
    run(&mut idle, "ROLLBACK TO s; LOCK TABLE deferred; SELECT snowflake_nextval()");
    assert_eq!(horizon(&mut session), held, "it has announced itself before");
    run(&mut idle, "ROLLBACK");
    assert!(horizon(&mut session) > first);
    run(&mut idle, "BEGIN");
    let second: i64 = one(&mut idle, "SELECT snowflake_nextval()");
    assert!(horizon(&mut session) <= second);
    run(&mut idle, "PREPARE TRANSACTION 'own'");
    run(&mut idle, "SELECT snowflake_nextval()");
    // Many transactions later.
    run(
        &mut session,
        "DO $$ BEGIN FOR i IN 1..9000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$",
    );
    assert!(horizon(&mut session) <= second, "its session is free, and it has yet to end");
    run(&mut session, "COMMIT PREPARED 'own'");
    assert!(horizon(&mut session) > second);
    run(&mut idle, "BEGIN");
    let second: i64 = one(&mut idle, "SELECT snowflake_nextval()");
    // A session that is gone holds nothing.
    let pid: i32 = one(&mut idle, "SELECT pg_backend_pid()");
    server.signal_backend(pid, Signal::SIGTERM);
    wait_until("the session's end", secs(60), || (horizon(&mut session) > second).then_some(()));
    run(&mut session, "ROLLBACK PREPARED 'other'");
}

/// IDs of the first two seconds have one tick, and the next worker, which is higher, has it, too.
#[test]
fn transaction_that_began_at_the_start_holds_the_horizon_through_a_rotation() {
    let mut server = started(Server::builder());
    server.restart();
    let (mut early, mut session) = (server.connect(), server.connect());
    run(&mut session, "SELECT snowflake_nextval()");
    run(&mut early, "BEGIN");
    let first: i64 = one(&mut early, "INSERT INTO outbox (kind) VALUES ('long') RETURNING id");
    run(&mut session, "SELECT snowflake_rotate()");
    let mut reader = Reader::default();
    reader.poll_at_once(&mut session);
    assert!(reader.from <= first, "{} <= {first}", reader.from);
    run(&mut early, "COMMIT");
    reader.poll_at_once(&mut session);
    assert_eq!(reader.lost(&all_rows(&server)), 0);
}

#[test]
fn standby_has_no_horizon_and_says_where_it_is() {
    let mut server = started(Server::builder());
    let standby = server.standby(|builder| builder);
    let failure = fails(&mut standby.connect(), "55000", "SELECT snowflake_horizon()");
    assert_eq!(failure.message, "cannot execute snowflake_horizon during recovery");
    standby.catch_up_with(&server);
    server.stop(Stop::Fast);
    standby.promote();
    let mut session = standby.connect();
    run(&mut session, STORE);
    let mut reader = Reader::default();
    run(&mut session, "INSERT INTO outbox (kind) VALUES ('short')");
    run(&mut session, STORE);
    reader.poll(&mut session, true);
    assert_eq!(reader.seen.len(), 1);
}

#[test]
fn closed_gate_has_no_horizon() {
    let server = Server::builder().without("snowflake_id.worker_id").start();
    let mut session = server.connect();
    run(&mut session, "CREATE EXTENSION snowflake_id");
    for function in ["horizon", "rotate", "adopt", "reset_stats"] {
        let failure = fails(&mut session, "55000", &format!("SELECT snowflake_{function}()"));
        let message = format!("cannot execute snowflake_{function}: snowflake_id.worker_id is not set");
        assert_eq!(failure.message, message);
    }

    let mut original = started(Server::builder());
    let mut copy = original.copy();
    copy.start();
    let failure = fails(&mut copy.connect(), "55000", "SELECT snowflake_horizon()");
    assert_eq!(failure.message, "cannot execute snowflake_horizon: this data directory is a copy");
}

/// PostgreSQL refuses it, and nothing of it remains.
#[test]
fn one_prepared_transaction_too_many_is_postgresqls_error() {
    let server = Server::builder().setting("max_prepared_transactions", "1").start_with_extension();
    let mut session = server.connect();
    run(&mut session, SCHEMA);
    let keeper = server.keeper();
    let begin = "BEGIN; INSERT INTO outbox (kind) VALUES ('prepared')";
    for round in 0..200 {
        run(&mut session, begin);
        run(&mut session, "PREPARE TRANSACTION 'first'");
        run(&mut session, begin);
        let failure = fails(&mut session, "53200", "PREPARE TRANSACTION 'second'");
        assert_eq!(failure.message, "maximum number of prepared transactions reached", "round {round}");
        run(&mut session, "COMMIT PREPARED 'first'");
    }
    assert_eq!(one::<i64>(&mut session, "SELECT count(*) FROM outbox WHERE kind = 'prepared'"), 200);
    run(&mut session, "SELECT snowflake_horizon()");
    assert_eq!(server.keeper(), keeper, "no process has crashed");
    // By default none can be prepared, with or without a generator.
    for builder in [Server::builder(), Server::builder().without("snowflake_id.worker_id")] {
        let server = builder.start();
        let mut session = server.connect();
        run(&mut session, "BEGIN");
        let failure = fails(&mut session, "55000", "PREPARE TRANSACTION 'first'");
        assert_eq!(failure.message, "prepared transactions are disabled");
    }
}

/// Until it ends, also after a crash of a session, which begins shared memory anew.
#[test]
fn transaction_prepared_before_the_start_leaves_no_horizon() {
    let mut server = started(Server::builder());
    let prepare = |session: &mut Client, name: &str| {
        run(session, "BEGIN; INSERT INTO outbox (kind) VALUES ('prepared')");
        run(session, &format!("PREPARE TRANSACTION '{name}'"));
    };
    let expect_error = |session: &mut Client| {
        let failure = fails(session, "55000", "SELECT snowflake_horizon()");
        assert!(failure.message.ends_with(": a transaction was prepared before the server started"));
    };
    let mut session = server.connect();
    prepare(&mut session, "of this run");
    run(&mut session, STORE);
    drop(session);
    server.restart();
    let mut session = server.connect();
    expect_error(&mut session);
    prepare(&mut session, "of the next");
    expect_error(&mut session);
    run(&mut session, "COMMIT PREPARED 'of this run'");
    run(&mut session, STORE);

    let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
    server.kill_backend(pid);
    server.wait_until_ready();
    let mut session = server.connect();
    expect_error(&mut session);
    run(&mut session, "ROLLBACK PREPARED 'of the next'");
    wait_until("snowflake_horizon() without an error", secs(60), || {
        session.batch_execute(STORE).is_ok().then_some(())
    });
}
