//! While an fsync of the state file takes seconds, sessions that want IDs wait for the keeper's write: they respond to
//! a cancel and to their timeout, are visible, and leave the processors alone.

use postgres::Client;
use snowflake_server_tests::process::{has_ended, processor_ticks};
use snowflake_server_tests::sql::{fails, next, one, run, status};
use snowflake_server_tests::{
    Builder, Preload, Server, Signal, faults, hours, ms, pg_version, secs, wait_until,
};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// An fsync of the state file takes longer by as many milliseconds as the file `SLOW_FSYNC` says, while it says so. How
/// many it took is added to the file with `.took` at the end of the name.
const SLOW_FSYNC: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long delay(void)
{
    FILE *file = fopen(getenv("SLOW_FSYNC"), "r");
    long delay = 0;

    if (file && fscanf(file, "%ld", &delay) != 1)
        delay = 0;
    if (file)
        fclose(file);
    return delay;
}

int fsync(int fd)
{
    static int (*real)(int);
    char link[64], path[4096], took[4096];
    struct timespec began, ended;
    ssize_t length;
    int result;

    if (!real)
        real = (int (*)(int)) dlsym(RTLD_NEXT, "fsync");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    if (!strstr(path, "/snowflake_id/"))
        return real(fd);
    clock_gettime(CLOCK_MONOTONIC, &began);
    {
        for (long slept = 0; slept < delay(); slept += 20) {
            struct timespec left = {0, 20000000};
            while (nanosleep(&left, &left))
                ;
        }
    }
    result = real(fd);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    snprintf(took, sizeof took, "%s.took", getenv("SLOW_FSYNC"));
    FILE *file = fopen(took, "a");
    if (file) {
        fprintf(file, "%ld\n", (ended.tv_sec - began.tv_sec) * 1000 + (ended.tv_nsec - began.tv_nsec) / 1000000);
        fclose(file);
    }
    return result;
}
"#;

/// A server on such a disk.
struct Slow {
    server: Server,
    file: PathBuf,
}

impl Slow {
    fn new() -> Self {
        Self::of(Server::builder())
    }

    fn of(builder: Builder) -> Self {
        let file = faults::new_folder().join("delay");
        std::fs::write(&file, "0").unwrap();
        let mut server = builder.create();
        server.preload(Preload::compile(SLOW_FSYNC, "SLOW_FSYNC", file.clone()));
        server.start();
        run(&mut server.connect(), "CREATE EXTENSION snowflake_id");
        next(&mut server.connect());
        Self { server, file }
    }

    fn takes(&self, each: Duration) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, each.as_millis().to_string()).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    /// How long the longest fsync took.
    fn longest(&self) -> Duration {
        let text = std::fs::read_to_string(self.file.with_extension("took")).expect("fsyncs");
        ms(text.lines().map(|line| line.parse().expect("a number")).max().expect("an fsync"))
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

/// The first slow write was planned as a fast one, so its mark has passed when it ends, and a second write follows. A
/// machine may delay a call for other reasons, but not in each round.
#[test]
fn a_disk_that_becomes_slow_delays_a_call_by_two_writes_at_most() {
    let slow = Slow::new();
    let (mut session, mut other) = (slow.server.connect(), slow.server.connect());
    let mut rounds = Vec::new();
    for _ in 0..4 {
        slow.takes(secs(0));
        let is_short = "SELECT reserved_until < clock_timestamp() + interval '3 s' FROM snowflake_status";
        wait_until("a reservation as long as on a fast disk", secs(60), || {
            next(&mut session);
            one::<bool>(&mut other, is_short).then_some(())
        });
        slow.takes(secs(2));
        let (began, mut longest) = (Instant::now(), ms(0));
        while began.elapsed() < secs(12) {
            let called = Instant::now();
            next(&mut session);
            longest = longest.max(called.elapsed());
            sleep(ms(5));
        }
        let write = slow.longest();
        println!("{longest:?} for a call, {write:?} for a write");
        if longest < 2 * write {
            return;
        }
        rounds.push((longest, write));
    }
    panic!("calls and writes took {rounds:?}");
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
    let reserved = "SELECT reserved_until::text FROM snowflake_status";
    let before: String = one(&mut other, reserved);
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
    // No ID was generated: the keeper writes because it was asked.
    wait_until("the keeper's write", secs(60), || {
        (one::<String>(&mut other, reserved) != before).then_some(())
    });
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
