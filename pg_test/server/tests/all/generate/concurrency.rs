//! Many sessions and many ways to ask for IDs: no ID repeats, and the order is as promised.

use postgres::Client;
use rand::Rng;
use snowflake_server_tests::ids::{assert_ascending, worker};
use snowflake_server_tests::sql::{column, next, one, run, status, take, unpack};
use snowflake_server_tests::traffic::{assert_ordered, ids_of};
use snowflake_server_tests::{Ids, Kind, Server, Traffic, alone, ms, secs};
use std::sync::Barrier;
use std::time::{Duration, Instant};

#[test]
fn a_hundred_sessions_make_ten_million_ids_and_none_repeats() {
    let _alone = alone();
    const SESSIONS: usize = 100;
    const EACH: usize = 100_000;
    let server = Server::builder().start_with_extension();
    let begin = Barrier::new(SESSIONS);
    let began = Instant::now();
    let mut ids = Ids::new();
    std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let (server, begin) = (&server, &begin);
                scope.spawn(move || {
                    let mut session = server.connect();
                    begin.wait();
                    (number, make_in_many_ways(&mut session, EACH))
                })
            })
            .collect();
        for session in sessions {
            let (number, made) = session.join().unwrap();
            assert_eq!(made.len(), EACH);
            ids.add(format!("session {number}"), made);
        }
    });
    let took = began.elapsed();
    assert_eq!(ids.len(), 10_000_000);
    ids.assert_each_ascending();
    let all = ids.assert_unique();
    assert!(all.iter().all(|id| worker(*id) == 1), "the clock stood still: one lane");
    // At most a full sequence field per millisecond, and IDs may run 2 s ahead.
    let ticks = (all[all.len() - 1] >> 22) - (all[0] >> 22);
    assert!(ticks as u128 <= took.as_millis() + 2_000, "{ticks} ticks in {took:?}");
    let status = status(&mut server.connect());
    assert!(status.issued >= 10_000_000, "{status:?}");
    assert_eq!((status.rotations, status.rollbacks, status.refusals), (0, 0, 0), "{status:?}");
}

/// Grouped by quarters of a millisecond, so that a quarter of a million numbers stand for all IDs.
#[test]
fn a_minute_at_the_layouts_cap_stays_on_one_worker_and_within_max_ahead() {
    const RANGES: &str = "SELECT string_agg(int8send(r.first), ''::bytea)
                          FROM generate_series(1, 100) AS i, snowflake_nextval_range(1024 + i % 1) AS r";
    let server = Server::builder().start_with_extension();
    let began = Instant::now();
    let mut ids = Ids::new();
    std::thread::scope(|scope| {
        let make = || {
            let mut session = server.connect();
            let mut firsts = Vec::new();
            while began.elapsed() < secs(60) {
                firsts.extend(unpack(&one::<Vec<u8>>(&mut session, RANGES)));
            }
            firsts
        };
        let sessions: Vec<_> = (0..3).map(|_| scope.spawn(make)).collect();
        for (number, session) in sessions.into_iter().enumerate() {
            ids.add(format!("session {number}"), session.join().unwrap());
        }
    });
    let took = began.elapsed();
    ids.assert_each_ascending();
    let firsts = ids.assert_unique();
    assert!(firsts.iter().all(|id| id % 1024 == 0 && worker(*id) == 1), "no two ranges share a part");
    let most = 4 * (took.as_millis() + 2_001);
    assert!(firsts.len() as u128 <= most, "{} ranges in {took:?}", firsts.len());
    let status = status(&mut server.connect());
    assert!(status.waits > 0, "it was never at the cap: {status:?}");
    assert_eq!((status.rotations, status.rollbacks, status.refusals), (0, 0, 0), "{status:?}");
}

/// `n` IDs of one session: single, by the thousand, in batches and in ranges, in random order.
fn make_in_many_ways(session: &mut Client, n: usize) -> Vec<i64> {
    let mut random = rand::rng();
    let single = session.prepare("SELECT snowflake_nextval()").unwrap();
    let range = session.prepare("SELECT first, last FROM snowflake_nextval_range($1)").unwrap();
    let batch = session
        .prepare("SELECT string_agg(int8send(id), ''::bytea) FROM snowflake_nextval_batch($1) id")
        .unwrap();
    let mut made: Vec<i64> = Vec::with_capacity(n);
    while made.len() < n {
        let most = (n - made.len()).min(20_000) as i32;
        match random.random_range(0..4) {
            0 => made.push(session.query_one(&single, &[]).unwrap().get(0)),
            1 => made.extend(take(session, random.random_range(1..=most))),
            2 => {
                let row = session.query_one(&batch, &[&random.random_range(1..=most)]).unwrap();
                made.extend(unpack(row.get(0)));
            }
            _ => {
                let size = random.random_range(1..=most.min(4_096));
                let row = session.query_one(&range, &[&size]).unwrap();
                let (first, last): (i64, i64) = (row.get(0), row.get(1));
                assert_eq!(last - first, i64::from(size) - 1);
                assert_eq!(first >> 22, last >> 22, "a range lies in one tick");
                made.extend(first..=last);
            }
        }
    }
    made
}

#[test]
fn a_call_that_begins_after_another_returned_gets_a_greater_id() {
    let _alone = alone();
    let server = Server::builder().start_with_extension();
    let kinds = [
        Kind::One,
        Kind::One,
        Kind::One,
        Kind::Batch(50),
        Kind::Range(64),
        Kind::Range(500),
        Kind::Batch(1_000),
        Kind::One,
    ];
    let traffic = Traffic::start(&server, &kinds, Duration::ZERO);
    traffic.go_on_for(200, ms(500));
    let calls = traffic.finish();
    assert!(calls.iter().all(|call| call.outcome.is_ok()));
    assert!(calls.len() > 1_600, "{}", calls.len());
    assert_ordered(&calls);
    ids_of(&calls).assert_unique();
}

#[test]
fn a_session_knows_its_own_last_id_and_no_other() {
    let server = Server::builder().start_with_extension();
    let (mut ours, mut theirs) = (server.connect(), server.connect());
    run(&mut ours, "BEGIN");
    let lost = next(&mut ours);
    run(&mut ours, "ROLLBACK");
    let id = next(&mut ours);
    assert!(id > lost, "a rollback gives no ID back");
    let other = next(&mut theirs);
    assert_eq!(one::<i64>(&mut ours, "SELECT snowflake_lastval()"), id);
    assert_eq!(one::<i64>(&mut theirs, "SELECT snowflake_lastval()"), other);
}

/// A way to generate IDs, which is repeated with a growing `round`. It returns the IDs that the client was told; all
/// others are in tables.
type Way = fn(&mut Client, round: i32) -> Vec<i64>;

const WAYS: [(&str, Way); 9] = [
    ("COPY FROM", |session, _| {
        let mut copy = session.copy_in("COPY copied (note) FROM STDIN").unwrap();
        for i in 0..500 {
            std::io::Write::write_all(&mut copy, format!("row {i}\n").as_bytes()).unwrap();
        }
        assert_eq!(copy.finish().unwrap(), 500);
        Vec::new()
    }),
    ("INSERT ... SELECT", |session, _| {
        let insert = "INSERT INTO selected (note) SELECT i::text FROM generate_series(1, 500) AS i";
        assert_eq!(session.execute(insert, &[]).unwrap(), 500);
        Vec::new()
    }),
    ("INSERT ... RETURNING", |session, _| {
        let insert = "INSERT INTO returned (note) VALUES ('a'), ('b'), ('c') RETURNING id";
        let told: Vec<i64> = column(session, insert);
        assert_eq!(told.len(), 3);
        assert_ascending("INSERT ... RETURNING", &told);
        // They are in the table, so returning them as well would count them twice.
        let stored: i64 =
            session.query_one("SELECT count(*) FROM returned WHERE id = ANY($1)", &[&told]).unwrap().get(0);
        assert_eq!(stored, 3);
        Vec::new()
    }),
    ("ON CONFLICT DO NOTHING", |session, round| {
        let insert = "INSERT INTO upserted (name) SELECT 'n' || i FROM generate_series($1, $1 + 19) i
                      ON CONFLICT (name) DO NOTHING";
        // Half of the names exist already, or another session inserts them now.
        assert!(session.execute(insert, &[&(round * 10)]).unwrap() <= 20);
        Vec::new()
    }),
    ("ON CONFLICT DO UPDATE", |session, round| {
        let insert = "INSERT INTO upserted (name) SELECT 'n' || i FROM generate_series($1, $1 + 19) i
                      ON CONFLICT (name) DO UPDATE SET times = upserted.times + 1";
        assert_eq!(session.execute(insert, &[&(round * 10)]).unwrap(), 20);
        Vec::new()
    }),
    ("a partitioned table", |session, _| {
        let insert = "INSERT INTO parted (part) SELECT i % 4 FROM generate_series(1, 200) AS i";
        assert_eq!(session.execute(insert, &[]).unwrap(), 200);
        Vec::new()
    }),
    ("a PL/pgSQL loop", |session, _| {
        run(
            session,
            "DO $$
             DECLARE made bigint; before bigint := 0;
             BEGIN
                 FOR i IN 1..200 LOOP
                     made := snowflake_nextval();
                     ASSERT made > before;
                     before := made;
                     INSERT INTO looped VALUES (made);
                 END LOOP;
             END $$",
        );
        Vec::new()
    }),
    ("a prepared statement", |session, round| {
        if round == 0 {
            run(session, "PREPARE made AS SELECT snowflake_nextval()");
        }
        // More often than five times, after which PostgreSQL may use a generic plan.
        (0..20).map(|_| one(session, "EXECUTE made")).collect()
    }),
    ("plain calls", |session, _| {
        let mut made = take(session, 1_000);
        made.push(next(session));
        made
    }),
];

#[test]
fn ids_made_in_all_ways_at_the_same_time_do_not_repeat() {
    let _alone = alone();
    let server = Server::builder().start_with_extension();
    run(
        &mut server.connect(),
        "CREATE TABLE copied (id bigint DEFAULT snowflake_nextval(), note text);
         CREATE TABLE selected (id bigint DEFAULT snowflake_nextval(), note text);
         CREATE TABLE returned (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), note text);
         CREATE TABLE upserted (id bigint DEFAULT snowflake_nextval(), name text UNIQUE,
                                times integer DEFAULT 1);
         CREATE TABLE looped (id bigint);
         CREATE TABLE parted (id bigint DEFAULT snowflake_nextval(), part integer)
             PARTITION BY LIST (part);
         CREATE TABLE parted_0 PARTITION OF parted FOR VALUES IN (0);
         CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
         -- A partition's own default does not count when the row comes through its parent.
         CREATE TABLE parted_2 (id bigint DEFAULT -1, part integer);
         ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES IN (2);
         CREATE TABLE parted_3 PARTITION OF parted FOR VALUES IN (3);",
    );
    let begin = Barrier::new(2 * WAYS.len());
    let mut ids = Ids::new();
    std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..2 * WAYS.len())
            .map(|number| {
                let (server, begin) = (&server, &begin);
                scope.spawn(move || {
                    let (name, way) = WAYS[number % WAYS.len()];
                    let mut session = server.connect();
                    begin.wait();
                    let (began, mut round, mut made) = (Instant::now(), 0, Vec::new());
                    while began.elapsed() < ms(500) || round < 100 {
                        made.extend(way(&mut session, round));
                        round += 1;
                    }
                    (format!("{name}, session {number}"), made)
                })
            })
            .collect();
        for session in sessions {
            let (name, made) = session.join().unwrap();
            assert_ascending(&name, &made);
            ids.add(name, made);
        }
    });
    let mut session = server.connect();
    for table in ["copied", "selected", "returned", "upserted", "parted", "looped"] {
        let stored: Vec<i64> = column(&mut session, &format!("SELECT id FROM {table}"));
        assert!(stored.len() >= 200, "{table} has {} rows", stored.len());
        ids.add(format!("table {table}"), stored);
    }
    let updated: i64 = one(&mut session, "SELECT count(*) FROM upserted WHERE times > 1");
    assert!(updated > 0, "some inserts did conflict");
    let all = ids.assert_unique();
    assert!(all.iter().all(|id| worker(*id) == 1));
    let status = status(&mut session);
    // Conflicts and unused defaults that were evaluated cost IDs too.
    assert!(status.issued >= all.len() as i64, "{status:?}");
}

#[test]
fn a_batch_streams() {
    // A billion values cannot be computed in advance; the first of them come at once.
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(&mut session, "SET statement_timeout = '20s'");
    let began = Instant::now();
    run(
        &mut session,
        "BEGIN;
         DECLARE c CURSOR FOR SELECT snowflake_nextval_batch(1000000000)",
    );
    let first: Vec<i64> = column(&mut session, "FETCH 10 FROM c");
    assert_eq!(first.len(), 10);
    assert_ascending("a batch", &first);
    assert!(began.elapsed() < secs(5), "{:?}", began.elapsed());
    run(&mut session, "ROLLBACK");
    assert_eq!(column::<i64>(&mut session, "SELECT snowflake_nextval_batch(0)"), [0i64; 0]);
    std::thread::sleep(ms(1));
    assert!(next(&mut session) > first[9]);
}
