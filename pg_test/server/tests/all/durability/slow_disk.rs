//! While an fsync of the state file takes seconds, sessions that want IDs wait for the keeper's write: they respond to
//! a cancel and to their timeout, are visible, and leave the processors alone.

use postgres::Client;
use snowflake_server_tests::disk::{Trouble, Troublemaker};
use snowflake_server_tests::process::{has_ended, processor_ticks};
use snowflake_server_tests::sql::{fails, next, one, run, status};
use snowflake_server_tests::{Builder, Server, Signal, hours, ms, pg_version, secs, wait_until};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A server on a disk whose fsyncs of the state file take longer.
struct Slow {
    server: Server,
    disk: Troublemaker,
}

impl Slow {
    fn new() -> Self {
        Self::of(Server::builder())
    }

    fn of(builder: Builder) -> Self {
        let mut server = builder.create();
        let disk = Troublemaker::new(&mut server);
        server.start();
        run(&mut server.connect(), "CREATE EXTENSION snowflake_id");
        next(&mut server.connect());
        Self { server, disk }
    }

    fn takes(&self, each: Duration) {
        self.disk.make(Trouble::Slow(each.as_millis() as i32));
    }

    /// Waits until the keeper writes nothing any more unless it is asked: the clock passes what it has reserved.
    fn falls_asleep(&self) {
        let mut session = self.server.connect();
        let is_asleep = "SELECT reserved_until < clock_timestamp() FROM snowflake_status";
        wait_until("the keeper to write no more", secs(120), || {
            one::<bool>(&mut session, is_asleep).then_some(())
        });
    }
}

/// IDs in a thread of its own, one after another, as fast as the disk lets them.
fn issue(mut session: Client, seconds: u64) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let began = Instant::now();
        while began.elapsed() < secs(seconds) {
            let _ = session.query_one("SELECT snowflake_nextval()", &[]);
            sleep(ms(20));
        }
    })
}

#[test]
fn a_call_after_an_idle_minute_answers_timeout_and_cancel_on_a_slow_disk() {
    let slow = Slow::new();
    slow.falls_asleep();
    let (mut session, mut other) = (slow.server.connect(), slow.server.connect());
    let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
    run(&mut session, "SET statement_timeout = '500ms'");
    slow.takes(secs(60));
    let began = Instant::now();
    let failure = fails(&mut session, "57014", "SELECT snowflake_nextval()");
    assert!(began.elapsed() < secs(20), "a timeout of 0.5 s took {:?}: {failure}", began.elapsed());

    run(&mut session, "SET statement_timeout = 0");
    let call = std::thread::spawn(move || fails(&mut session, "57014", "SELECT snowflake_nextval()"));
    let waiting = format!("SELECT wait_event FROM pg_stat_activity WHERE pid = {pid} AND state = 'active'");
    let event = wait_until("the call to be seen waiting", secs(30), || {
        other.query_opt(&waiting, &[]).unwrap().and_then(|row| row.get::<_, Option<String>>(0))
    });
    assert_eq!(event, if pg_version() >= 17 { "SnowflakeState" } else { "Extension" });
    let asked = Instant::now();
    assert!(one::<bool>(&mut other, &format!("SELECT pg_cancel_backend({pid})")));
    call.join().unwrap();
    assert!(asked.elapsed() < secs(20), "a cancel took {:?}", asked.elapsed());
    slow.takes(secs(0));
    next(&mut other);
}

/// The clock steps back so far that another worker is needed, while the disk is slow.
#[test]
fn a_call_that_has_to_rotate_answers_its_timeout_while_the_disk_is_slow() {
    let slow = Slow::of(Server::builder().born(hours(1)));
    let mut session = slow.server.connect();
    slow.server.step_forward(hours(1));
    next(&mut session);
    slow.takes(secs(60));
    slow.server.step_back(secs(30));
    run(&mut session, "SET statement_timeout = '500ms'");
    let began = Instant::now();
    let failure = fails(&mut session, "57014", "SELECT snowflake_nextval()");
    assert!(began.elapsed() < secs(20), "a timeout of 0.5 s took {:?}: {failure}", began.elapsed());
    slow.takes(secs(0));
    run(&mut session, "SET statement_timeout = 0");
    next(&mut session);
    assert_eq!(status(&mut session).rotations, 1);
}

#[test]
fn a_write_shows_a_wait_event_and_a_keeper_that_waits_for_it_leaves_when_it_is_told() {
    let slow = Slow::new();
    let (mut session, mut other) = (slow.server.connect(), slow.server.connect());
    let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
    next(&mut session);
    let keeper = slow.server.keeper();
    let busy = issue(slow.server.connect(), 4);
    slow.takes(secs(60));
    let rotation = std::thread::spawn(move || session.execute("SELECT snowflake_rotate()", &[]));
    let writing = format!("SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = {pid}");
    let event = wait_until("the write to be seen", secs(30), || {
        let row = other.query_one(&writing, &[]).unwrap();
        (row.get::<_, Option<&str>>(0) == Some("Extension")).then(|| row.get::<_, Option<String>>(1).unwrap())
    });
    assert_eq!(event, if pg_version() >= 17 { "SnowflakeState" } else { "Extension" });
    // In the meantime the keeper makes its round, and waits for the lock that one of the two holds.
    sleep(ms(500));
    let asked = Instant::now();
    // pg_terminate_backend() does not find a process that is connected to no database.
    slow.server.signal_backend(keeper, Signal::SIGTERM);
    wait_until("the keeper to leave", secs(20), || has_ended(keeper).then_some(()));
    slow.takes(secs(0));
    wait_until("another keeper", secs(90), || {
        // A new connection wakes a sleeping postmaster.
        let mut session = slow.server.connect();
        let now: Option<i32> = one(&mut session, "SELECT keeper_pid FROM snowflake_status");
        now.filter(|pid| *pid != keeper && *pid != 0)
    });
    assert!(asked.elapsed() < secs(90));
    rotation.join().unwrap().unwrap();
    busy.join().unwrap();
    next(&mut other);
}

#[test]
fn hundreds_of_sessions_that_wait_for_the_disk_leave_the_processors_alone() {
    let slow = Slow::new();
    let sessions = 80;
    let mut clients: Vec<Client> = (0..sessions).map(|_| slow.server.connect()).collect();
    let pids: Vec<i32> = clients.iter_mut().map(|client| one(client, "SELECT pg_backend_pid()")).collect();
    for client in &mut clients {
        next(client);
    }
    slow.takes(secs(4));
    let calls: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || {
                let began = Instant::now();
                while began.elapsed() < secs(6) {
                    client.query_one("SELECT snowflake_nextval()", &[]).expect("an ID, late");
                }
            })
        })
        .collect();
    sleep(secs(2));
    let spent = |pids: &[i32]| pids.iter().map(|pid| processor_ticks(*pid)).sum::<u64>();
    let (before, began) = (spent(&pids), Instant::now());
    sleep(secs(3));
    let cores = (spent(&pids) - before) as f64 / 100.0 / began.elapsed().as_secs_f64();
    slow.takes(secs(0));
    for call in calls {
        call.join().unwrap();
    }
    assert!(cores < 0.8, "{sessions} sessions that wait use {cores:.2} cores");
    assert_eq!(status(&mut slow.server.connect()).state, "open");
}
