//! Crashes, restarts, a bad disk, copies and promotions. No ID ever repeats, and the gate stays closed if
//! that could not be promised. These are the rows of the fault table in `pg_test/README.md` that take seconds;
//! `scripts/chaos` has the others, and all of them in any order.

use nix::sys::signal::Signal;
use postgres::Client;
use snowflake_server_tests::disk::{SmallDisk, state_file, write_later_version};
use snowflake_server_tests::ids::Ids;
use snowflake_server_tests::refusals::assert_closed;
use snowflake_server_tests::sql::{Failure, fails, next, one, run, status, take, take_ticks};
use snowflake_server_tests::{Builder, Server, Stop, days, hours, ms, secs, wait_until};
use std::fs;
use std::time::{Duration, Instant};

fn server() -> Server {
    Server::builder().faketime(true).start_with_extension()
}

/// A server whose first start is so long ago that every lane may be used.
fn seasoned(builder: Builder) -> Server {
    let server = builder.born(days(400)).start_with_extension();
    next(&mut server.connect());
    server.step_forward(days(400));
    next(&mut server.connect());
    server
}

/// IDs that run as far ahead of the clock as they may, and a few single ones.
fn burst(server: &Server) -> Vec<i64> {
    let mut session = server.connect();
    [take_ticks(&mut session, 2_100), take(&mut session, 1_000)].concat()
}

/// An ID, as soon as the server generates one.
#[track_caller]
fn take_soon(server: &Server, limit: Duration) -> Vec<i64> {
    let mut session = server.connect();
    wait_until("IDs after the start", limit, || {
        session.query_one("SELECT snowflake_nextval()", &[]).ok().map(|row| vec![row.get(0)])
    })
}

// ---- crashes and restarts ----

#[test]
fn no_restart_repeats_an_id_however_the_server_ended() {
    let (mut server, mut ids) = (server(), Ids::new());
    for how in [Stop::Immediate, Stop::Fast, Stop::Smart, Stop::Immediate] {
        ids.add(format!("before {how:?}"), burst(&server));
        server.stop(how);
        server.start();
        ids.add(format!("after {how:?}"), take_soon(&server, secs(5)));
    }
    ids.add("at the end", burst(&server));
    ids.assert_unique();
    let status = status(&mut server.connect());
    assert_eq!((status.lane, status.rotations), (Some(0), 0), "a restart used up a lane");
}

#[test]
fn a_killed_backend_or_keeper_repeats_nothing() {
    let (mut server, mut ids) = (server(), Ids::new());
    for victim in ["SELECT pg_backend_pid()", "SELECT keeper_pid FROM snowflake_status"] {
        let mut session = server.connect();
        server.keeper();
        ids.add(format!("before {victim}"), burst(&server));
        let pid: i32 = one(&mut session, victim);
        server.kill_backend(pid);
        ids.add(format!("after {victim}"), take_soon(&server, secs(5)));
    }
    ids.assert_unique();
}

#[test]
fn a_restart_with_the_clock_back_repeats_nothing() {
    let mut server = seasoned(Server::builder());
    let mut ids = Ids::new();
    for (back, same_lane) in [(ms(200), true), (secs(30), false), (hours(1), false), (days(365), false)] {
        ids.add(format!("before {back:?}"), burst(&server));
        let lane = status(&mut server.connect()).lane;
        server.stop(Stop::Immediate);
        server.clock().back(back);
        server.start();
        ids.add(format!("after {back:?}"), take_soon(&server, secs(10)));
        assert_eq!(status(&mut server.connect()).lane == lane, same_lane, "{back:?}");
    }
    let line = "worker 513 generates the IDs of timeline 1\nDETAIL:  It is lane 2 of home worker 1. ";
    server.wait_for_line(line, secs(30));
    ids.add("at the end", burst(&server));
    ids.assert_unique();
}

#[test]
fn a_day_ahead_then_stopped_then_the_true_time_repeats_nothing() {
    let mut server = seasoned(Server::builder());
    let mut ids = Ids::new();
    ids.add("today", burst(&server));
    server.step_forward(days(1));
    ids.add("tomorrow", burst(&server));
    server.stop(Stop::Fast);
    server.clock().back(days(1));
    server.start();
    ids.add("today again", take_soon(&server, secs(5)));
    ids.assert_unique();
    let status = status(&mut server.connect());
    assert_ne!(status.lane, Some(0), "lane 0 holds IDs of tomorrow");
    server.wait_for_line("worker. IDs continue above everything that was reserved before, from ", secs(30));
}

#[test]
fn a_clean_stop_while_ids_are_ahead_goes_on_on_the_same_lane() {
    for (policy, tick, layout) in
        [("hold", "1ms", "41/10/12"), ("replay", "1ms", "41/10/12"), ("hold", "1s", "31/10/22")]
    {
        let mut server = Server::builder()
            .setting("snowflake_id.rollback_policy", policy)
            .setting("snowflake_id.tick", tick)
            .setting("snowflake_id.layout", layout)
            .faketime(true)
            .start_with_extension();
        let mut ids = Ids::new();
        ids.add("before", burst(&server));
        server.restart();
        let after = take_soon(&server, secs(30));
        ids.add("after", after);
        ids.assert_unique();
        assert_eq!(status(&mut server.connect()).lane, Some(0), "{policy} {tick}");
    }
}

// ---- the keeper ----

/// It hangs, or there was no room for it.
#[test]
fn without_a_keeper_calls_extend_the_reservation_themselves() {
    for processes in ["8", "0"] {
        let server = Server::builder().faketime(true).setting("max_worker_processes", processes);
        let server = server.start_with_extension();
        let mut session = server.connect();
        let keeper = (processes == "8").then(|| server.keeper());
        keeper.iter().for_each(|pid| server.stop_between_writes(&[*pid], |_| true));
        assert_eq!(one::<Option<i32>>(&mut session, "SELECT keeper_pid FROM snowflake_status"), keeper);
        let mut ids = Ids::new();
        for _ in 0..8 {
            ids.add("without", vec![next(&mut session)]);
            std::thread::sleep(ms(400));
        }
        ids.add("a burst", burst(&server));
        ids.assert_unique();
        keeper.iter().for_each(|pid| server.signal_backend(*pid, Signal::SIGCONT));
    }
}

#[test]
fn a_single_insert_every_3_seconds_pays_no_fsync() {
    // The reservation is shorter than the pause, so without a keeper each call would have to write.
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(&mut session, "CREATE TABLE t (id bigint DEFAULT snowflake_nextval())");
    next(&mut session);
    let reserved = "SELECT reserved_until > clock_timestamp() FROM snowflake_status";
    for _ in 0..3 {
        std::thread::sleep(secs(3));
        wait_until("the keeper's write", secs(30), || one::<bool>(&mut session, reserved).then_some(()));
        let before = written_by(&mut session);
        next(&mut session);
        assert_eq!(written_by(&mut session), before, "the call wrote");
    }
}

/// How many bytes the session's process has written to files.
fn written_by(session: &mut Client) -> u64 {
    let pid: i32 = one(session, "SELECT pg_backend_pid()");
    let io = fs::read_to_string(format!("/proc/{pid}/io")).expect("/proc/PID/io");
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).expect("write_bytes");
    line.parse().expect("a number")
}

#[test]
fn a_server_that_is_idle_for_over_a_minute_writes_only_a_host_lock_that_is_gone() {
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    next(&mut session);
    std::thread::sleep(secs(30));
    let is_reserved = "SELECT reserved_until > clock_timestamp() FROM snowflake_status";
    wait_until("the keeper's write", secs(20), || one::<bool>(&mut session, is_reserved).then_some(()));
    std::thread::sleep(secs(34));
    let file = state_file(&server);
    let modified = || fs::metadata(&file).unwrap().modified().unwrap();
    let keeper = server.keeper();
    let written = || fs::read_to_string(format!("/proc/{keeper}/io")).unwrap();
    let bytes = |io: &str| io.lines().find(|line| line.starts_with("write_bytes")).unwrap().to_owned();
    let (before, io) = (modified(), bytes(&written()));
    std::thread::sleep(secs(6));
    let lock = server.lock_file();
    let signed = fs::read(&lock).unwrap();
    fs::remove_file(&lock).unwrap();
    wait_until("the same signatures", secs(60), || (fs::read(&lock).ok()? == signed).then_some(()));
    assert_eq!(modified(), before);
    assert_eq!(bytes(&written()), io);

    // A reload is no ID, and its longer max_ahead has to be written.
    server.reload("snowflake_id.max_ahead", "3s");
    wait_until("the write of the longer max_ahead", secs(30), || (modified() > before).then_some(()));
    let ahead =
        "SELECT max(extract(epoch FROM snowflake_timestamp(r.last) - clock_timestamp()) * 1000)::float8
                 FROM generate_series(1, 4000) AS i, snowflake_nextval_range(4096 + i % 1) AS r";
    let ahead: f64 = one(&mut session, ahead);
    assert!(ahead > 2_100.0, "{ahead} ms ahead: the longer max_ahead is not in force");
    // IDs have woken the keeper. What the calls themselves could reserve has passed.
    std::thread::sleep(secs(9));
    wait_until("the keeper's write", secs(30), || one::<bool>(&mut session, is_reserved).then_some(()));
}

// ---- the disk ----

/// A tmpfs of a few blocks on the state's folder, mounted while the server is stopped.
fn small_disk(server: &mut Server) -> SmallDisk {
    server.stop(Stop::Fast);
    let disk = SmallDisk::cover(server);
    server.start();
    disk
}

/// A new inode makes this a copy to the generator, as it should; the operator vouches for it.
fn adopt(server: &Server) {
    run(&mut server.connect(), "SELECT snowflake_adopt()");
}

#[test]
fn a_read_only_disk_stops_ids_at_the_end_of_the_reservation_and_no_sooner() {
    // A reservation reaches half a second further than that.
    let mut server =
        Server::builder().setting("snowflake_id.max_ahead", "12s").faketime(true).start_with_extension();
    let disk = small_disk(&mut server);
    assert_closed(&server, "copy");
    adopt(&server);
    server.wait_for_clock();
    let mut ids = Ids::new();
    ids.add("before", take_soon(&server, secs(5)));
    server.wait_for_worker("the keeper's rounds", secs(60), |session| {
        let reserved = "SELECT reserved_until > clock_timestamp() + interval '10 s' FROM snowflake_status";
        one::<bool>(session, reserved).then_some(())
    });
    disk.read_only(true);
    ids.add("on what is reserved", vec![next(&mut server.connect())]);
    let reserved =
        "SELECT extract(epoch FROM reserved_until - clock_timestamp())::float8 FROM snowflake_status";
    let (reserved, began) = (one::<f64>(&mut server.connect(), reserved), Instant::now());
    assert!(reserved > 5.0, "{reserved} s");
    let failure = wait_until("the end of the reservation", secs(60), || {
        let mut session = server.connect();
        match session.query_one("SELECT snowflake_nextval()", &[]) {
            Ok(row) => {
                ids.add("still reserved", vec![row.get(0)]);
                None
            }
            Err(e) => Some(Failure::from(&e)),
        }
    });
    let lasted = began.elapsed().as_secs_f64();
    assert!(lasted > reserved - 0.1, "refused after {lasted} s of {reserved} s");
    assert_eq!(failure.code, "55000");
    assert!(failure.message.ends_with(": Read-only file system"), "as PostgreSQL says it: {failure}");
    let error = one::<Option<String>>(&mut server.connect(), "SELECT write_error FROM snowflake_status");
    assert!(error.is_some_and(|error| error.contains("Read-only")));
    assert_closed(&server, "Read-only file system");
    disk.read_only(false);
    ids.add("after", take_soon(&server, secs(5)));
    ids.assert_unique();
    assert_eq!(
        one::<Option<String>>(&mut server.connect(), "SELECT write_error FROM snowflake_status"),
        None
    );
    for line in [
        "snowflake_id: file \"snowflake_id/state\" is writable again\n",
        "snowflake_id: could not write file \"snowflake_id/state\": Read-only file system\n",
    ] {
        server.wait_for_line(line, secs(30));
        assert_eq!(server.log().matches(line).count(), 1, "{}", server.log());
    }
}

#[test]
fn a_full_disk_does_not_stop_a_preallocated_file() {
    let mut server = server();
    let disk = small_disk(&mut server);
    adopt(&server);
    disk.fill();
    let mut ids = Ids::new();
    for _ in 0..10 {
        ids.add("on a full disk", take_soon(&server, secs(5)));
        std::thread::sleep(ms(200));
    }
    for how in [Stop::Fast, Stop::Immediate] {
        server.stop(how);
        server.start();
        ids.add("a start on a full disk", take_soon(&server, secs(5)));
    }
    // The file is deleted, but its space stays taken while it is open, so there is no room for another.
    let blocks = fs::File::open(state_file(&server)).unwrap();
    fs::remove_file(state_file(&server)).unwrap();
    wait_until("the disk to be missed", secs(30), || {
        server.connect().query_one("SELECT snowflake_nextval()", &[]).err().map(|e| {
            assert!(Failure::from(&e).text().contains("No space left on device"));
        })
    });
    let new = state_file(&server).with_extension("new");
    wait_until("the removal of the half-written file", secs(30), || (!new.exists()).then_some(()));
    drop(blocks);
    disk.free();
    ids.add("after", take_soon(&server, secs(5)));
    ids.assert_unique();
}

#[test]
fn a_file_deleted_or_replaced_while_running_is_made_anew() {
    let (mut server, mut ids) = (server(), Ids::new());
    ids.add("before", burst(&server));
    fs::remove_file(state_file(&server)).unwrap();
    wait_until("a new state file", secs(30), || {
        ids.add("meanwhile", take_soon(&server, secs(5)));
        state_file(&server).exists().then_some(())
    });
    let stranger = state_file(&server).with_extension("stranger");
    fs::write(&stranger, vec![b'x'; 8192]).unwrap();
    fs::rename(&stranger, state_file(&server)).unwrap();
    wait_until("the stranger to be replaced", secs(30), || {
        ids.add("with a stranger", take_soon(&server, secs(5)));
        (fs::read(state_file(&server)).unwrap()[0] == b'{').then_some(())
    });
    // Base backups do not follow a link.
    fs::rename(state_file(&server), &stranger).unwrap();
    std::os::unix::fs::symlink(&stranger, state_file(&server)).unwrap();
    wait_until("the link to be replaced", secs(30), || {
        ids.add("with a link", take_soon(&server, secs(5)));
        (!state_file(&server).is_symlink()).then_some(())
    });
    server.stop(Stop::Immediate);
    server.start();
    ids.add("after", take_soon(&server, secs(5)));
    ids.assert_unique();
}

/// Stops the server, changes the bytes of the file in place, and starts it again.
fn damage(server: &mut Server, change: impl FnOnce(&mut Vec<u8>)) {
    server.stop(Stop::Immediate);
    let mut bytes = fs::read(state_file(server)).unwrap();
    change(&mut bytes);
    use std::io::Write;
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(state_file(server)).unwrap();
    file.write_all(&bytes).unwrap();
    server.start();
}

#[test]
fn one_torn_slot_is_repaired_by_the_other() {
    let (mut server, mut ids) = (server(), Ids::new());
    for slot in [0, 1] {
        ids.add(format!("before {slot}"), burst(&server));
        damage(&mut server, |bytes| bytes[slot * 4096 + 100..slot * 4096 + 2_000].fill(b'#'));
        ids.add(format!("after {slot}"), take_soon(&server, secs(5)));
        assert_eq!(status(&mut server.connect()).lane, Some(0));
    }
    ids.assert_unique();
}

/// The clock alone bounds the IDs that exist, as if there were no file.
#[test]
fn a_file_that_cannot_be_read_is_logged_and_opens_after_a_second() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 5] = [
        ("both slots torn", |bytes| {
            bytes[100] ^= 1;
            bytes[4196] ^= 1;
        }),
        ("empty", Vec::clear),
        ("truncated", |bytes| bytes.truncate(50)),
        ("zeros", |bytes| bytes.fill(0)),
        ("a bad checksum", |bytes| {
            for slot in [0, 4096] {
                let at = bytes[slot..].windows(9).position(|w| w == b"\"crc32c\":").unwrap() + slot + 10;
                bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            }
        }),
    ];
    let (mut server, mut ids) = (server(), Ids::new());
    for (n, (name, change)) in changes.into_iter().enumerate() {
        ids.add(format!("before {name}"), burst(&server));
        let began = Instant::now();
        damage(&mut server, change);
        ids.add(format!("after {name}"), vec![next(&mut server.connect())]);
        assert!(began.elapsed() >= secs(1), "{name}: {:?}", began.elapsed());
        let line = "file \"snowflake_id/state\" contains no valid record\n";
        assert_eq!(server.log().matches(line).count(), n + 1, "{name}: {}", server.log());
    }
    ids.assert_unique();
}

#[test]
fn a_state_of_a_later_version_keeps_the_gate_closed_until_that_is_installed() {
    let (mut server, mut ids) = (server(), Ids::new());
    ids.add("before", burst(&server));
    let mut mine = Vec::new();
    damage(&mut server, |bytes| {
        mine.clone_from(bytes);
        write_later_version(bytes);
    });
    let failure = assert_closed(&server, "was written by a later version");
    assert_eq!(failure.detail, "The file has format version 9.");
    damage(&mut server, |bytes| *bytes = mine);
    ids.add("after", take_soon(&server, secs(5)));
    ids.assert_unique();
}

#[test]
fn a_state_of_another_cluster_is_a_copy() {
    let (mut server, mut ids) = (server(), Ids::new());
    ids.add("before", burst(&server));
    let foreign = {
        let mut other = Server::builder().start_with_extension();
        next(&mut other.connect());
        other.stop(Stop::Fast);
        fs::read(state_file(&other)).unwrap()
    };
    damage(&mut server, |bytes| *bytes = foreign);
    assert_closed(&server, "is a copy");
    adopt(&server);
    ids.add("adopted", burst(&server));
    ids.assert_unique();
}

// ---- settings ----

#[test]
fn another_layout_tick_or_epoch_than_the_databases_neither_generates_nor_reads() {
    const DIFFERS: &str = "the snowflake layout of this database differs from this server's";
    let mut server = server();
    let id = next(&mut server.connect());
    for (setting, value) in [("layout", "41/9/13"), ("tick", "10ms"), ("epoch", "2024-01-02T00:00:00Z")] {
        let setting = format!("snowflake_id.{setting}");
        server.set(&setting, value);
        server.restart();
        let failure = assert_closed(&server, DIFFERS);
        assert!(failure.text().contains("41/10/12 1ms 2024-01-01"), "{failure}");
        let read = fails(&mut server.connect(), "55000", &format!("SELECT snowflake_timestamp({id})"));
        assert!(read.text().contains(DIFFERS), "{read}");
        server.unset(&setting);
        server.restart();
        assert!(next(&mut server.connect()) > id);
    }
}

#[test]
fn more_and_fewer_backup_workers_repeat_nothing() {
    let (mut server, mut ids) = (server(), Ids::new());
    for backups in ["7", "3", "1", "0", "15", "7"] {
        server.set("snowflake_id.backup_workers", backups);
        server.restart();
        ids.add(format!("{backups} backups"), take_soon(&server, secs(5)));
        ids.add(format!("{backups} backups"), burst(&server));
        run(
            &mut server.connect(),
            "DO $$ BEGIN PERFORM snowflake_rotate(); EXCEPTION WHEN OTHERS THEN END $$",
        );
        ids.add(format!("{backups} backups, rotated"), take_soon(&server, secs(5)));
    }
    ids.assert_unique();
}

#[test]
fn a_worker_that_was_never_used_goes_on_at_once_where_all_lanes_lie_in_the_future() {
    let mut server = seasoned(Server::builder());
    let mut ids = Ids::new();
    server.step_forward(days(365));
    for _ in 0..4 {
        ids.add("a year ahead", take(&mut server.connect(), 1_000));
        let _ = server.connect().batch_execute("SELECT snowflake_rotate()");
    }
    server.step_back(days(365));
    assert_closed(&server, "system clock moved backwards");
    // What the error's hint says.
    server.set("snowflake_id.worker_id", "2");
    server.restart();
    ids.add("another worker", take_soon(&server, secs(5)));
    server.set("snowflake_id.worker_id", "1");
    server.restart();
    assert_closed(&server, "system clock moved backwards");
    ids.assert_unique();
}

// ---- copies, standbys, failover ----

/// The first server goes on after it was lost, with a history that is discarded, and later follows its successor.
#[test]
fn a_primary_that_is_rewound_follows_its_successor_and_repeats_nothing() {
    let mut ids = Ids::new();
    let mut primary =
        seasoned(Server::builder().setting("wal_log_hints", "on").setting("wal_keep_size", "1GB"));
    let mut standby = primary.standby(|builder| builder);
    ids.add("the first", burst(&primary));
    standby.promote();
    run(&mut primary.connect(), "CREATE TABLE lost ()");
    ids.add("the first, on", burst(&primary));
    primary.stop(Stop::Fast);
    ids.add("the second", take_soon(&standby, secs(10)));
    run(&mut standby.connect(), "CHECKPOINT");
    primary.rewind(&standby).unwrap_or_else(|e| panic!("{e}"));
    primary.follow(&standby);
    primary.start();
    fails(&mut primary.connect(), "25006", "SELECT snowflake_nextval()");
    ids.add("the second, on", burst(&standby));
    run(&mut standby.connect(), "CREATE TABLE kept ()");
    primary.catch_up_with(&standby);
    standby.stop(Stop::Immediate);
    primary.promote();
    ids.add("the first again", take_soon(&primary, secs(10)));
    ids.add("the first again", burst(&primary));
    ids.assert_unique();
}

#[test]
fn promoting_and_failing_back_three_times_repeats_nothing() {
    let mut ids = Ids::new();
    let mut primary = seasoned(Server::builder());
    for timeline in 1..=4 {
        ids.add(format!("timeline {timeline}"), burst(&primary));
        let standby = primary.standby(|builder| builder);
        // The clocks agree within a second, and the last IDs were replayed.
        run(
            &mut primary.connect(),
            "CREATE TABLE IF NOT EXISTS t (id bigint); INSERT INTO t SELECT snowflake_nextval()",
        );
        standby.catch_up_with(&primary);
        primary.stop(Stop::Immediate);
        standby.clock().back(ms(500 * (timeline % 2)));
        standby.promote();
        ids.add(format!("after promotion {timeline}"), take_soon(&standby, secs(10)));
        primary = standby;
    }
    ids.add("at last", burst(&primary));
    ids.assert_unique();
}

#[test]
fn a_base_backup_taken_while_ids_are_made_is_a_sound_standby() {
    let primary = server();
    let mut ids = Ids::new();
    let standby = std::thread::scope(|scope| {
        let maker = scope.spawn(|| burst(&primary));
        let standby = primary.standby(|builder| builder);
        ids.add("the primary", maker.join().unwrap());
        standby
    });
    drop(primary);
    standby.promote();
    ids.add("the standby", take_soon(&standby, secs(10)));
    ids.add("the standby", burst(&standby));
    ids.assert_unique();
}
