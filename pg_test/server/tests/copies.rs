//! A state that was put back, or stands beside its original, although its inode and time of birth are those of the
//! original: no ID repeats, and the server says why. What a test cannot mount on this machine it skips aloud.

use postgres::Client;
use snowflake_server_tests::ids::Ids;
use snowflake_server_tests::sql::{fails, next, one, run, status, take, unpack};
use snowflake_server_tests::{Server, Signal, Stop, days, faults, secs, wait_until};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PUT_BACK: &str = "the state file is older than the newest IDs";
const TAKEN: &str = "another server runs in this data directory";
const BESIDE: &str = "this data directory is a copy of a running server's";
const COPY: &str = "this data directory is a copy";
const LINK: &str = "is a symbolic link";

/// The IDs of some ticks, the very first one among them.
fn ids(server: &Server) -> Vec<i64> {
    let mut session = server.connect();
    let first = first_id(&mut session);
    [vec![first], take(&mut session, 20_000)].concat()
}

/// IDs until the server has written a later record than this one: until then, its marks bound all IDs.
fn later_ids(server: &Server, before: &[u8]) -> Vec<i64> {
    let mut session = server.connect();
    wait_until("a later record", secs(20), || {
        next(&mut session);
        (fs::read(file(server)).unwrap() != before).then_some(())
    });
    // As far ahead of the clock as they may run: whole ticks, each by its first and last ID.
    let ticks = "SELECT string_agg(int8send(r.first) || int8send(r.last), ''::bytea)
                 FROM generate_series(1, 2100) AS i, snowflake_nextval_range(4096 + i % 1) AS r";
    unpack(&one::<Vec<u8>>(&mut session, ticks))
}

fn first_id(session: &mut Client) -> i64 {
    wait_until("an ID", secs(20), || {
        session.query_one("SELECT snowflake_nextval()", &[]).ok().map(|row| row.get(0))
    })
}

#[track_caller]
fn closed(server: &Server, message: &str) {
    let mut session = server.connect();
    let failure = fails(&mut session, "55000", "SELECT snowflake_nextval()");
    assert!(failure.text().contains(message), "{failure}");
    assert!(!failure.text().is_empty() && status(&mut session).reason.expect("a reason").contains(message));
}

/// Runs a command that must work.
#[track_caller]
fn sh(script: &str, arguments: &[&Path]) {
    assert!(try_sh(script, arguments), "{script}");
}

fn try_sh(script: &str, arguments: &[&Path]) -> bool {
    let mut command = Command::new("sh");
    let status = command.args(["-ec", script, "sh"]).args(arguments).stdin(Stdio::null()).status();
    status.expect("sh can be started").success()
}

/// Whether this machine has the program.
fn has(program: &str) -> bool {
    let found = try_sh("command -v \"$1\" >/dev/null", &[Path::new(program)]);
    if !found {
        eprintln!("skipped: there is no {program}");
    }
    found
}

/// A copy of the stopped server's files, as a backup makes it.
fn backup_of(server: &Server) -> PathBuf {
    let backup = server.folder().join("backup");
    sh("cp -a \"$1\" \"$2\"", &[&server.data(), &backup]);
    backup
}

fn file(server: &Server) -> PathBuf {
    server.data().join("snowflake_id/state")
}

/// The witness is gone with the boot.
fn reboot(server: &Server) {
    fs::remove_file(server.witness()).expect("the witness");
}

// ---- files restored in place ----

const RESTORES: [(&str, &str); 3] = [
    ("cp", "cp -a \"$1/.\" \"$2\""),
    ("tar", "tar -C \"$1\" -c . | tar -C \"$2\" -x --overwrite"),
    ("rsync", "rsync -aI --inplace \"$1/\" \"$2/\""),
];

#[test]
fn files_that_are_restored_in_place_in_the_same_boot_are_recognized() {
    for (_, restore) in RESTORES.into_iter().filter(|(program, _)| has(program)) {
        let mut server = Server::builder().start_with_extension();
        let mut all = Ids::new();
        all.add("before the backup", ids(&server));
        server.stop(Stop::Fast);
        let backup = backup_of(&server);
        server.start();
        all.add("after the backup", ids(&server));
        // The files are put back, and the server crashes at once, before an operator looks.
        server.stop(Stop::Immediate);
        sh(restore, &[&backup, &server.data()]);
        server.start();
        closed(&server, COPY);
        server.stop(Stop::Immediate);
        server.start();
        closed(&server, COPY);
        run(&mut server.connect(), "SELECT snowflake_adopt()");
        all.add("after the restore", ids(&server));
        all.assert_unique();
    }
}

/// A server that crashed, whose state file was written over with an earlier content, and its IDs.
fn rolled_back() -> (Server, Ids) {
    let mut server = Server::builder().start_with_extension();
    let mut all = Ids::new();
    all.add("before", ids(&server));
    let snapshot = fs::read(file(&server)).unwrap();
    all.add("after the snapshot", later_ids(&server, &snapshot));
    server.crash();
    // The file stays the same one.
    fs::write(file(&server), &snapshot).unwrap();
    (server, all)
}

/// The inode and the time of birth are those that the record names, as after the rollback of a snapshot.
#[test]
fn a_state_that_was_rolled_back_in_place_is_recognized_in_the_same_boot() {
    let (mut server, mut all) = rolled_back();
    server.start();
    closed(&server, PUT_BACK);
    for how in [Stop::Fast, Stop::Immediate] {
        server.stop(how);
        server.start();
        closed(&server, PUT_BACK);
    }
    run(&mut server.connect(), "SELECT snowflake_adopt()");
    all.add("after the rollback", ids(&server));
    all.assert_unique();
    // It is this server's own state again.
    server.restart();
    all.add("at the end", ids(&server));
    all.assert_unique();
}

#[test]
fn files_that_are_restored_in_place_after_a_stop_are_recognized_in_a_later_boot() {
    let mut server = Server::builder().start_with_extension();
    ids(&server);
    let backup = server.folder().join("state");
    sh("cp -a \"$1\" \"$2\"", &[&file(&server), &backup]);
    server.restart();
    ids(&server);
    server.stop(Stop::Fast);
    sh("cat \"$1\" > \"$2\"", &[&backup, &file(&server)]);
    reboot(&server);
    server.start();
    closed(&server, COPY);
}

#[test]
fn a_state_that_was_rolled_back_in_an_earlier_boot_goes_on_above_the_clock() {
    let (mut server, mut all) = rolled_back();
    let _ = fs::remove_file(server.witness());
    server.start();
    all.add("after the rollback", ids(&server));
    all.assert_unique();
    assert_eq!(status(&mut server.connect()).lane, Some(0), "a reboot used up a lane");
}

// ---- two servers on one directory ----

/// PostgreSQL itself is deceived: `postmaster.pid` is gone, and another container has other shared memory. The second
/// server finds the lock, and generates IDs as soon as the first is gone.
#[test]
fn the_second_server_on_a_directory_is_refused_until_the_first_is_gone() {
    let mut first = Server::builder().start_with_extension();
    let mut all = Ids::new();
    all.add("the first", ids(&first));
    let mut second = first.sibling();
    sh("rm \"$1/postmaster.pid\" && ln -s \"$1\" \"$2\"", &[&first.data(), &second.data()]);
    if !second.contain() {
        return;
    }
    second.set("port", "5432");
    second.start();
    closed(&second, TAKEN);
    all.add("the first, later", ids(&first));
    first.crash();
    all.add("the second", ids(&second));
    all.assert_unique();
}

/// Shared storage that fails over to another host and back: the first host's witness knows only earlier records.
#[test]
fn a_state_that_comes_back_from_another_host_goes_on() {
    let mut server = Server::builder().start_with_extension();
    let mut all = Ids::new();
    all.add("the first host", ids(&server));
    server.stop(Stop::Fast);
    let remembered = fs::read(server.witness()).unwrap();
    reboot(&server);
    server.start();
    all.add("the second host", ids(&server));
    server.stop(Stop::Fast);
    fs::write(server.witness(), remembered).unwrap();
    server.start();
    all.add("the first host again", ids(&server));
    all.assert_unique();
}

/// systemd and others clear the folder: a snapshot that is started later must find that its original runs.
#[test]
fn a_witness_that_was_deleted_under_a_server_is_held_again() {
    let server = Server::builder().start_with_extension();
    let is_held = || {
        let file = fs::File::open(server.witness()).ok()?;
        matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)).then_some(())
    };
    ids(&server);
    assert!(is_held().is_some());
    reboot(&server);
    wait_until("a witness that is held", secs(60), || {
        ids(&server);
        is_held()
    });
    // A session makes it anew, and ends.
    let keeper = server.keeper();
    server.signal_backend(keeper, Signal::SIGSTOP);
    reboot(&server);
    one::<i64>(&mut server.connect(), "SELECT snowflake_rotate()::bigint");
    wait_until("the end of the session", secs(60), || is_held().is_none().then_some(()));
    server.signal_backend(keeper, Signal::SIGCONT);
    wait_until("a witness that the keeper holds", secs(60), is_held);
}

/// A new container has another `/dev/shm`: the start is the first of a boot.
#[test]
fn a_container_that_is_made_anew_goes_on_above_the_clock() {
    let (mut server, mut all) = rolled_back();
    if server.contain() {
        server.start();
        all.add("in the container", ids(&server));
        all.assert_unique();
    }
}

// ---- beside the original ----

/// A file system in a file, or an overlay. Unmounted at the end.
struct Mount {
    at: PathBuf,
}

impl Mount {
    fn of(what: &[&str], at: &Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        faults::own(at);
        let status = Command::new("mount").args(what).arg(at).status();
        let is_mounted = status.is_ok_and(|status| status.success());
        if !is_mounted {
            eprintln!("skipped: this machine does not mount {what:?}");
        }
        is_mounted.then(|| Self { at: at.to_owned() })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        sh("umount -l \"$1\"", &[&self.at]);
    }
}

#[test]
fn two_overlays_over_one_lower_directory_are_recognized() {
    let mut original = Server::builder().start_with_extension();
    let mut all = Ids::new();
    all.add("the lower directory", ids(&original));
    original.stop(Stop::Fast);
    let lower = original.data();
    // Overlays need a file system that is none itself.
    let Some(_files) = Mount::of(&["-t", "tmpfs", "tmpfs"], &original.folder().join("files")) else { return };
    let files = original.folder().join("files");
    sh(
        "cp -a \"$1\" \"$2/lower\"; mkdir \"$2/upper1\" \"$2/upper2\" \"$2/work1\" \"$2/work2\"",
        &[&lower, &files],
    );
    // The copy is the original from now on.
    let mut base = original.sibling();
    sh("ln -s \"$1/lower\" \"$2\"", &[&files, &base.data()]);
    base.set("port", "5432");
    base.start();
    closed(&base, COPY);
    run(&mut base.connect(), "SELECT snowflake_adopt()");
    all.add("the base", ids(&base));
    base.stop(Stop::Fast);
    let overlay = |n: u32, server: &Server| {
        let of = |name: &str| files.join(name).display().to_string();
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            of("lower"),
            of(&format!("upper{n}")),
            of(&format!("work{n}"))
        );
        sh("chown --reference=\"$1\" \"$2\"", &[&files.join("lower"), &files.join(format!("upper{n}"))]);
        sh("chmod 700 \"$1\"", &[&files.join(format!("upper{n}"))]);
        Mount::of(&["-t", "overlay", "overlay", "-o", &options], &server.data())
    };
    let (mut first, mut second) = (base.sibling(), base.sibling());
    let Some(_first) = overlay(1, &first) else { return };
    let Some(_second) = overlay(2, &second) else { return };
    for server in [&mut first, &mut second] {
        server.set("port", "5432");
        server.start();
    }
    let mut generate = Vec::new();
    for (name, server) in [("the first", &first), ("the second", &second)] {
        let mut session = server.connect();
        if session.query_one("SELECT snowflake_nextval()", &[]).is_ok() {
            generate.push(name);
            all.add(name, ids(server));
        }
    }
    all.assert_unique();
    assert!(generate.len() <= 1, "{generate:?}");
    closed(&second, COPY);
}

/// Neither has written a record that the other could know: the host has just booted, and the disk is slow. Neither has a
/// state, so that each is the only one in its life.
#[test]
fn of_two_copies_that_start_at_once_only_one_generates_ids() {
    let mut first = Server::builder().start_with_extension();
    let mut second = first.copy();
    for server in [&mut first, &mut second] {
        let folder = server.data().join("snowflake_id");
        sh("rm -r \"$1\"; mkdir \"$1\"; chown --reference=\"$2\" \"$1\"", &[&folder, &server.data()]);
        sh("chmod 500 \"$1\"", &[&folder]);
    }
    first.start();
    // It would, as soon as its record is on disk.
    let failure = fails(&mut first.connect(), "55000", "SELECT snowflake_nextval()");
    assert!(failure.text().contains("snowflake_id/state"), "{failure}");
    sh("chmod 700 \"$1\"", &[&second.data().join("snowflake_id")]);
    second.start();
    closed(&second, BESIDE);
    sh("chmod 700 \"$1\"", &[&first.data().join("snowflake_id")]);
    ids(&first);
    second.restart();
    closed(&second, BESIDE);
    first.restart();
    ids(&first);
    first.stop(Stop::Fast);
    ids(&second);
}

#[test]
fn a_snapshot_beside_its_original_is_recognized() {
    if !has("mkfs.btrfs") {
        return;
    }
    let mut original = Server::builder().start_with_extension();
    original.stop(Stop::Fast);
    let image = original.folder().join("image");
    sh("truncate -s 1G \"$1\" && mkfs.btrfs -q \"$1\"", &[&image]);
    let volume = original.folder().join("volume");
    let Some(_volume) = Mount::of(&["-o", "loop", &image.display().to_string()], &volume) else { return };
    let (sub, snapshot) = (volume.join("sub"), volume.join("snapshot"));
    sh(
        "btrfs -q subvolume create \"$1\"; chmod 755 \"$2\"; cp -a \"$3\" \"$1/data\"",
        &[&sub, &volume, &original.data()],
    );
    let mut on_volume = original.sibling();
    sh("ln -s \"$1/data\" \"$2\"", &[&sub, &on_volume.data()]);
    on_volume.set("port", "5432");
    on_volume.start();
    run(&mut on_volume.connect(), "SELECT snowflake_adopt()");
    let mut all = Ids::new();
    all.add("before", ids(&on_volume));
    sh("btrfs -q subvolume snapshot \"$1\" \"$2\"; rm \"$2/data/postmaster.pid\"", &[&sub, &snapshot]);
    let mut beside = on_volume.sibling();
    sh("ln -s \"$1/data\" \"$2\"", &[&snapshot, &beside.data()]);
    beside.set("port", "5432");
    beside.start();
    closed(&beside, BESIDE);
    let snapshot_of_file = fs::read(file(&beside)).unwrap();
    all.add("the original", later_ids(&on_volume, &snapshot_of_file));
    // The original is gone, but it has gone on.
    on_volume.crash();
    beside.restart();
    closed(&beside, PUT_BACK);
    // Rolled back in place: the original's own subvolume again, of the past.
    beside.stop(Stop::Fast);
    sh("mv \"$1\" \"$1.old\"; mv \"$2\" \"$1\"", &[&sub, &snapshot]);
    on_volume.set("port", "5432");
    on_volume.start();
    closed(&on_volume, PUT_BACK);
    run(&mut on_volume.connect(), "SELECT snowflake_adopt()");
    all.add("after the rollback", ids(&on_volume));
    all.assert_unique();
    // What was rolled back is older than the adoption, and knows nothing of it.
    let mut older = on_volume.sibling();
    sh("rm -f \"$1.old/data/postmaster.pid\"; ln -s \"$1.old/data\" \"$2\"", &[&sub, &older.data()]);
    older.set("port", "5432");
    older.start();
    closed(&older, BESIDE);
}

/// What is mounted of the volume in a file, with a server on it.
fn on_volume(from: &Server, image: &Path, name: &str) -> Option<(Mount, Server)> {
    let volume = from.folder().join(name);
    let mount = Mount::of(&["-o", "loop", &image.display().to_string()], &volume)?;
    let server = from.sibling();
    sh("ln -s \"$1/data\" \"$2\"", &[&volume, &server.data()]);
    Some((mount, server))
}

#[test]
fn clones_of_a_volume_are_recognized_by_the_workers_that_they_use() {
    if !has("mkfs.ext4") {
        return;
    }
    let mut base = Server::builder().start_with_extension();
    base.stop(Stop::Fast);
    let [image, early, late] = ["image", "early", "late"].map(|name| base.folder().join(name));
    sh("truncate -s 256M \"$1\" && mkfs.ext4 -q \"$1\"", &[&image]);
    let Some((_volume, mut original)) = on_volume(&base, &image, "volume") else { return };
    let volume = base.folder().join("volume");
    sh("cp -a \"$1\" \"$2/data\"; chmod 755 \"$2\"", &[&base.data(), &volume]);
    original.set("port", "5432");
    original.start();
    run(&mut original.connect(), "SELECT snowflake_adopt()");
    let mut all = Ids::new();
    all.add("the original", ids(&original));
    original.stop(Stop::Fast);
    let clone = |to: &Path| sh("sync -f \"$1\"; cp --sparse=always \"$2\" \"$3\"", &[&volume, &image, to]);
    clone(&early);
    // One with a number of its own is the first to go on.
    let Some((_clone, mut beside)) = on_volume(&base, &early, "beside") else { return };
    beside.set("snowflake_id.worker_id", "2");
    beside.start();
    all.add("the clone", ids(&beside));
    original.start();
    all.add("the original, later", ids(&original));
    beside.stop(Stop::Fast);
    original.stop(Stop::Fast);
    clone(&late);
    // Two timelines further, the original may use the workers of the clone's timeline.
    for _ in 0..2 {
        sh(
            "touch \"$1/data/standby.signal\"; chown --reference=\"$1/data\" \"$1/data/standby.signal\"",
            &[&volume],
        );
        original.start();
        original.promote();
        all.add("the original, promoted", ids(&original));
        original.stop(Stop::Fast);
    }
    original.start();
    all.add("the original, at last", ids(&original));
    let Some((_late, mut older)) = on_volume(&base, &late, "older") else { return };
    older.set("port", "5432");
    older.start();
    closed(&older, BESIDE);
    all.assert_unique();
}

// ---- a folder that is not there ----

#[test]
fn a_symbolic_link_in_the_place_of_the_folder_is_refused() {
    let mut server = Server::builder().start_with_extension();
    let mut all = Ids::new();
    all.add("before", ids(&server));
    server.stop(Stop::Fast);
    let (folder, elsewhere) = (server.data().join("snowflake_id"), server.folder().join("elsewhere"));
    fs::rename(&folder, &elsewhere).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    server.start();
    closed(&server, LINK);
    let failure = fails(&mut server.connect(), "55000", "SELECT snowflake_adopt()");
    assert!(failure.text().contains("snowflake_id/state"), "{failure}");
    server.stop(Stop::Fast);
    fs::remove_file(&folder).unwrap();
    fs::rename(&elsewhere, &folder).unwrap();
    server.start();
    all.add("after", ids(&server));
    all.assert_unique();
}

/// Both directories hold one file.
#[test]
fn a_state_that_two_data_directories_share_is_recognized() {
    let mut server = Server::builder().start_with_extension();
    ids(&server);
    server.stop(Stop::Fast);
    let mut copy = server.sibling();
    sh(
        "cp -a \"$1\" \"$2\" && ln -f \"$1/snowflake_id/state\" \"$2/snowflake_id/state\"",
        &[&server.data(), &copy.data()],
    );
    copy.set("port", "5432");
    copy.start();
    closed(&copy, COPY);
}

// ---- a full disk, and what lasts no longer ----

/// Only the owner of the folder may make files in it, so no new file can be made.
#[test]
fn where_no_new_file_can_be_made_a_server_starts_and_stops_cleanly() {
    let mut server = Server::builder().start_with_extension();
    let mut all = Ids::new();
    all.add("before", ids(&server));
    let folder = server.data().join("snowflake_id");
    // A folder in the place of the new file fails every attempt to make one, even for root.
    fs::create_dir(folder.join("state.new")).unwrap();
    faults::own(&folder.join("state.new"));
    for _ in 0..2 {
        server.restart();
        all.add("after a restart", ids(&server));
    }
    let error: Option<String> = one(&mut server.connect(), "SELECT write_error FROM snowflake_status");
    assert_eq!(error, None);
    all.assert_unique();
}

// ---- a rebuild ----

/// pg_rewind copies the source's settings, its worker among them.
#[test]
fn a_server_that_a_rewind_gave_another_worker_says_so() {
    let mut old = Server::builder().setting("wal_log_hints", "on").start_with_extension();
    ids(&old);
    let new = old.standby(|builder| builder.setting("snowflake_id.worker_id", "2"));
    new.promote();
    ids(&new);
    old.stop(Stop::Fast);
    old.rewind(&new).expect("a rewind");
    old.set("snowflake_id.worker_id", "2");
    old.follow(&new);
    old.start();
    old.wait_for_line(
        "snowflake_id: worker_id is 2, but this server used worker 1 before it was rebuilt",
        secs(20),
    );
    // Its own number again: nothing to say.
    old.set("snowflake_id.worker_id", "1");
    let said = |server: &Server| server.log().matches("before it was rebuilt").count();
    let before = said(&old);
    old.restart();
    old.promote();
    ids(&old);
    assert_eq!(said(&old), before);
    // An operator may change the number, and knows it.
    old.set("snowflake_id.worker_id", "3");
    old.restart();
    ids(&old);
    assert_eq!(said(&old), before);
}

/// A server that is rebuilt takes the state of its successor, which knows nothing of the marks that its own wrong clock
/// left far ahead.
fn a_rebuilt_server_respects_the_marks_of_its_wrong_clock(rebuild: impl FnOnce(&mut Server, &Server)) {
    let ahead = days(1);
    let builder = Server::builder().faketime(true).setting("wal_log_hints", "on");
    let mut old = builder.setting("snowflake_id.backup_workers", "0").start_with_extension();
    let mut all = Ids::new();
    all.add("before", ids(&old));
    let new = old.standby(|builder| builder.setting("snowflake_id.worker_id", "2"));
    old.step_forward(ahead);
    all.add("of the wrong clock", ids(&old));
    old.stop(Stop::Immediate);
    old.clock().back(ahead);
    new.promote();
    all.add("of the successor", ids(&new));
    rebuild(&mut old, &new);
    old.set("snowflake_id.worker_id", "1");
    old.follow(&new);
    old.start();
    old.catch_up_with(&new);
    old.promote();
    // Its worker has no tick before the next day. What it had begun of that day is over when the clock comes there.
    let refused = fails(&mut old.connect(), "55000", "SELECT snowflake_nextval()");
    assert!(refused.text().contains("clock"), "{refused}");
    old.step_forward(ahead);
    all.add("when the clock is there", ids(&old));
    all.assert_unique();
}

#[test]
fn a_server_that_was_rewound_respects_the_marks_of_its_wrong_clock() {
    a_rebuilt_server_respects_the_marks_of_its_wrong_clock(|old, new| {
        // It has to end cleanly once: pg_rewind may not do that by itself under another owner.
        old.start();
        old.stop(Stop::Fast);
        old.rewind(new).expect("a rewind");
    });
}

#[test]
fn a_server_made_anew_in_the_same_place_respects_the_marks_of_its_wrong_clock() {
    a_rebuilt_server_respects_the_marks_of_its_wrong_clock(|old, new| {
        let backup = new.backup();
        fs::remove_dir_all(old.data()).expect("the old data directory");
        fs::rename(backup.data(), old.data()).expect("the new one");
    });
}
