//! The state file as the operating system sees it: who may read it, in what order it becomes durable, and which marks a
//! server leaves in it.

use serde_json::{Value, json};
use snowflake_server_tests::disk::{state_file, state_folder, write_later_version};
use snowflake_server_tests::ids::{Ids, at_ms};
use snowflake_server_tests::sql::{fails, next, one, run, wait_for_id};
use snowflake_server_tests::{Preload, Server, Stop, faults, secs, wait_until};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The newest record in the file.
fn record(server: &Server) -> Value {
    let bytes = fs::read(state_file(server)).expect("the state file can be read");
    let slots = bytes.chunks(4_096).filter_map(|slot| serde_json::from_slice::<Value>(slot).ok());
    let newest = slots.max_by_key(|slot| slot["record"]["generation"].as_u64()).expect("a slot");
    newest["record"].clone()
}

/// The mark of the home worker in the file: when the last tick ends that may have its IDs, as a Unix time in milliseconds.
fn mark_in_file(server: &Server) -> i64 {
    record(server)["marks"]["1"].as_i64().expect("a mark") / 1_000
}

/// The time was named for the IDs of all workers.
#[test]
fn a_wrong_time_that_was_adopted_holds_for_a_worker_never_used_and_the_hint_says_so() {
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let line =
        "worker 1 generates the IDs of timeline 1, with a new state file\nDETAIL:  It is the home worker. ";
    let rest = server.wait_for_line(line, secs(30));
    let (_, rest) = rest.split_once(" above the system clock, at ").expect("a time");
    let (first, _) = rest.split_once(".\n").expect("a time");
    let after = format!("SELECT '{first}' - pg_postmaster_start_time() BETWEEN '3 s' AND interval '90 s'");
    assert!(one::<bool>(&mut session, &after), "{first}");
    let floor: String = one(&mut session, "SELECT (now() + interval '20 hours')::timestamptz(3)::text");
    run(&mut session, &format!("SELECT snowflake_adopt('{floor}')"));
    server.wait_for_line(&format!("the state was adopted, with IDs above {floor}\n"), secs(30));
    assert!(!server.log().contains("STATEMENT:"), "the adoption is no statement's: {}", server.log());
    for worker in ["1", "77"] {
        server.set("snowflake_id.worker_id", worker);
        server.restart();
        let failure = fails(&mut server.connect(), "55000", "SELECT snowflake_nextval()");
        assert_eq!(
            failure.message, "cannot generate a snowflake ID: system clock moved backwards",
            "{worker}"
        );
        assert!(failure.hint.contains("delete the folder snowflake_id"), "{worker}: {failure}");
        assert!(!failure.hint.contains("worker_id"), "{worker}: {failure}");
    }
    server.stop(Stop::Fast);
    fs::remove_dir_all(state_folder(&server)).expect("the folder");
    server.start();
    wait_for_id(&mut server.connect());
}

/// An operator who removes one cause has to see the next.
#[test]
fn each_reason_for_a_closed_gate_is_logged_once() {
    let mut server = Server::builder().start_with_extension();
    let before = next(&mut server.connect());
    server.stop(Stop::Fast);
    let state = fs::read(state_file(&server)).expect("the state");
    let mut later = state.clone();
    write_later_version(&mut later);
    fs::set_permissions(state_file(&server), Permissions::from_mode(0o000)).expect("its mode");
    server.start();
    let lines = [
        "snowflake_id: cannot generate IDs: could not access file \"snowflake_id/state\": Permission denied\n",
        "snowflake_id: cannot generate IDs: file \"snowflake_id/state\" was written by a later version",
    ];
    server.wait_for_line(lines[0], secs(30));
    fs::write(state_file(&server), later).expect("a newer state");
    fs::set_permissions(state_file(&server), Permissions::from_mode(0o600)).expect("its mode");
    server.wait_for_line(lines[1], secs(30));
    // Several rounds of the keeper.
    std::thread::sleep(secs(4));
    for line in lines {
        assert_eq!(server.log().matches(line).count(), 1, "{line}: {}", server.log());
    }
    fs::write(state_file(&server), state).expect("the state");
    assert!(wait_for_id(&mut server.connect()) > before);
}

// ---- modes ----

/// `initdb --allow-group-access`: members of the group may make backups, so they may read the state too.
#[test]
fn the_state_is_as_open_to_the_group_as_the_data_directory() {
    for (mode, file_mode) in [(0o700, 0o600), (0o750, 0o640)] {
        let mut server = Server::builder().create();
        fs::set_permissions(server.data(), Permissions::from_mode(mode)).unwrap();
        server.start();
        let mut session = server.connect();
        run(&mut session, "CREATE EXTENSION snowflake_id");
        wait_for_id(&mut session);
        let assert_modes = || {
            let mode_of = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode_of(&state_folder(&server)), mode, "the folder");
            assert_eq!(mode_of(&state_file(&server)), file_mode, "the file in a folder of mode {mode:o}");
        };
        assert_modes();
        // Created again while the server runs.
        fs::remove_dir_all(state_folder(&server)).unwrap();
        wait_until("another state file", secs(20), || {
            next(&mut session);
            state_file(&server).exists().then_some(())
        });
        assert_modes();
    }
}

// ---- the order of writes ----

/// Records what a server does to its state: `name` is a file in the folder, or `folder` or `data`.
const RECORDER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void tell(const char *what, const char *path)
{
    /* Not the lock of the workers, which need not outlive the boot. */
    const char *folder = strncmp(path, "/dev/shm/snowflake_id.", 22) ? strstr(path, "snowflake_id") : NULL;
    const char *name = NULL;
    size_t size = strlen(path);
    if (folder)
        name = folder[12] == '/' ? folder + 13 : "folder";
    else if (size >= 5 && strcmp(path + size - 5, "/data") == 0)
        name = "data";
    const char *record = getenv("SNOWFLAKE_RECORD");
    int file = name && record ? open(record, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    char line[256];
    int length = snprintf(line, sizeof line, "%s %s\n", what, name);
    syscall(SYS_write, file, line, length);
    close(file);
}

static void tell_of(const char *what, int file)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size > 0) {
        path[size] = 0;
        tell(what, path);
    }
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off_t at)
{
    tell_of("write", file);
    return syscall(SYS_pwrite64, file, bytes, size, at);
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t at)
{
    return pwrite64(file, bytes, size, at);
}

int fsync(int file)
{
    tell_of("fsync", file);
    return syscall(SYS_fsync, file);
}

int mkdir(const char *path, mode_t mode)
{
    tell("make", path);
    return syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int rename(const char *from, const char *to)
{
    tell("rename", from);
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
"#;

/// The operations on the state.
struct Record {
    path: PathBuf,
    taken: usize,
}

impl Record {
    fn of(server: &mut Server) -> Self {
        let path = server.folder().join("record");
        fs::write(&path, "").unwrap();
        faults::own(&path);
        server.preload(Preload::compile(RECORDER, "SNOWFLAKE_RECORD", path.clone()));
        Self { path, taken: 0 }
    }

    /// The operations since the last call. It is never in the middle of a write, because each ends with an fsync.
    fn take(&mut self) -> Vec<String> {
        let text = wait_until("the end of a write", secs(20), || {
            let text = fs::read_to_string(&self.path).unwrap();
            text.lines().last().is_some_and(|line| line.starts_with("fsync")).then_some(text)
        });
        let done: Vec<String> = text.lines().skip(self.taken).map(str::to_owned).collect();
        self.taken += done.len();
        done
    }
}

/// A new file is complete and durable before it gets its name, and the name is durable before anything relies on it.
const MAKING: [&str; 7] = [
    "make folder",
    "fsync data",
    "write state.new",
    "write state.new",
    "fsync state.new",
    "rename state.new",
    "fsync folder",
];

/// A power loss keeps what was fsynced, in that order; nothing else would show it at once.
#[test]
fn each_write_of_the_state_is_durable_before_the_next_step() {
    let mut server = Server::builder().create();
    let mut record = Record::of(&mut server);
    server.start();
    let mut session = server.connect();
    run(&mut session, "CREATE EXTENSION snowflake_id");
    wait_for_id(&mut session);
    let first = record.take();
    assert_eq!(first[..MAKING.len()], MAKING, "the first start");
    assert_each_write_is_synced(&first);

    // The last run may have left pages that look written but are not, and a name that is not durable.
    server.restart();
    let mut session = server.connect();
    wait_for_id(&mut session);
    let second = record.take();
    // The end of the first run comes before the start of the second.
    let again = ["write state", "fsync state", "fsync folder", "fsync data"];
    let start = second.windows(again.len()).position(|done| done == again);
    let start = start.unwrap_or_else(|| panic!("the file is not made sure of: {second:?}"));
    let (stopping, starting) = (&second[..start], &second[start + again.len()..]);
    for (when, done) in [("the stop", stopping), ("the start", starting)] {
        assert!(!done.is_empty() && !done.contains(&MAKING[0].to_owned()), "{when}: {second:?}");
        assert_each_write_is_synced(done);
    }

    fs::remove_file(state_file(&server)).unwrap();
    wait_until("another state file", secs(20), || {
        next(&mut session);
        state_file(&server).exists().then_some(())
    });
    server.stop(Stop::Fast);
    let third = record.take();
    assert!(third.windows(MAKING.len()).any(|done| *done == MAKING), "{third:?}");
    assert_each_write_is_synced(&third);
}

#[track_caller]
fn assert_each_write_is_synced(mut done: &[String]) {
    while !done.is_empty() {
        let whole = if done[0] == MAKING[0] { &MAKING[..] } else { &["write state", "fsync state"] };
        assert_eq!(done[..whole.len().min(done.len())], *whole, "in {done:?}");
        done = &done[whole.len()..];
    }
}

/// A read of a slot fails with EIO, if the file `BAD_SLOTS` has its number.
const BAD_BLOCKS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_bad(int file, off_t at)
{
    char link[64], path[4096], slots[8] = "";
    FILE *told = fopen(getenv("BAD_SLOTS"), "r");
    if (told) {
        if (!fgets(slots, sizeof slots, told))
            slots[0] = 0;
        fclose(told);
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = 0;
    return strstr(path, "/snowflake_id/state") && strchr(slots, '0' + (int) (at / 4096));
}

ssize_t pread64(int file, void *bytes, size_t size, off_t at)
{
    if (at < 8192 && is_bad(file, at)) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, file, bytes, size, at);
}

ssize_t pread(int file, void *bytes, size_t size, off_t at)
{
    return pread64(file, bytes, size, at);
}
"#;

#[test]
fn a_slot_that_cannot_be_read_makes_a_new_file() {
    let mut server = Server::builder().create();
    let bad = faults::new_folder().join("bad");
    fs::write(&bad, "").unwrap();
    server.preload(Preload::compile(BAD_BLOCKS, "BAD_SLOTS", bad.clone()));
    server.start();
    run(&mut server.connect(), "CREATE EXTENSION snowflake_id");
    let mut ids = Ids::new();
    ids.add("before", vec![wait_for_id(&mut server.connect())]);
    let inode = |server: &Server| fs::metadata(state_file(server)).expect("the state file").ino();
    for slots in ["0", "1", "01"] {
        server.stop(Stop::Immediate);
        let before = inode(&server);
        fs::write(&bad, slots).unwrap();
        server.start();
        ids.add(slots, vec![wait_for_id(&mut server.connect())]);
        assert_ne!(inode(&server), before, "slots {slots}");
    }
    ids.assert_unique();
    assert_eq!(server.log().matches("contains no valid record").count(), 1, "for both slots");
}

// ---- which marks are left ----

/// An immediate stop is a crash: IDs on their way to their tables may be missing from the server's knowledge.
#[test]
fn an_immediate_stop_leaves_the_reservation_and_not_exact_marks() {
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    wait_for_id(&mut session);
    // The first IDs run ahead of the clock.
    std::thread::sleep(secs(5));
    let last = next(&mut session);
    // The keeper moves the reservation for a minute.
    let ahead = || mark_in_file(&server) - at_ms(last);
    wait_until("a mark past the last ID", secs(30), || (ahead() >= 300).then_some(()));
    server.stop(Stop::Immediate);
    let ahead = mark_in_file(&server) - at_ms(last);
    assert!(ahead >= 300, "the mark is {ahead} ms past the last ID");

    server.start();
    let last = wait_for_id(&mut server.connect());
    server.stop(Stop::Fast);
    assert_eq!(mark_in_file(&server), at_ms(last) + 1, "a clean stop writes exact marks");
    let file = fs::metadata(state_file(&server)).expect("the state file");
    let born = file.created().map_or(0, |at| at.duration_since(UNIX_EPOCH).expect("a time").as_nanos());
    assert_eq!(record(&server)["file"], json!({"inode": file.ino(), "born_ns": born as i64}));
}

const MARKS: &str = "
    SELECT (extract(epoch FROM min(mark)) * 1000000)::bigint, (extract(epoch FROM max(mark)) * 1000000)::bigint
    FROM snowflake_workers";

/// The lowest and highest mark of this server's workers, as Unix times in milliseconds; `None` before its start.
fn marks(server: &Server) -> Option<(i64, i64)> {
    let row = server.connect().query_one(MARKS, &[]).expect("marks");
    Some((row.get::<_, Option<i64>>(0)? / 1_000, row.get::<_, Option<i64>>(1)? / 1_000))
}

/// `max_ahead`, in milliseconds.
const MAX_AHEAD: i64 = 2_000;

/// The clock is not the only evidence of a promoted server: see rule 4 of the core's `state/start.rs`.
#[test]
fn a_promoted_server_whose_clock_is_back_starts_above_the_last_replayed_commit() {
    let mut primary = Server::builder().faketime(true).start_with_extension();
    let standby = primary.standby(|builder| builder);
    // Well after the backup's checkpoint, which has a time too.
    std::thread::sleep(secs(4));
    let mut session = primary.connect();
    run(&mut session, "CREATE TABLE the_last ()");
    let position: String = one(&mut session, "SELECT pg_current_wal_lsn()::text");
    let replayed = wait_until("the standby to catch up", secs(20), || {
        let query = format!(
            "SELECT floor(extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000)::bigint
             WHERE pg_last_wal_replay_lsn() >= '{position}'"
        );
        standby.connect().query_opt(&query, &[]).expect("a time")?.get::<_, Option<i64>>(0)
    });
    primary.stop(Stop::Fast);
    standby.clock().back(secs(60));
    standby.promote();
    let marks = || marks(&standby);
    let (lowest, highest) = wait_until("the marks of all lanes in the state file", secs(20), marks);
    // And a second for clocks that differ.
    let least = replayed + MAX_AHEAD + 1_000;
    assert!(lowest >= least, "{} ms below what may have been used", least - lowest);
    let most = least + 2_000;
    assert!(highest <= most, "{} ms further than need be", highest - most);
}
