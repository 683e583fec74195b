//! Files that were put back, and servers of one cluster beside each other on one host: no ID repeats, and the server says
//! why it generates none. What a test cannot mount on this machine it skips aloud.

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, Uid, mkfifo};
use snowflake_server_tests::disk::state_file;
use snowflake_server_tests::ids::{Ids, worker};
use snowflake_server_tests::refusals::assert_closed;
use snowflake_server_tests::sql::{Failure, fails, one, run, status, take, take_ticks, wait_for_id};
use snowflake_server_tests::{
    Server, Signal, Stop, assert_best_of_three, faults, ms, process, secs, skip, wait_until,
};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const TAKEN: &str = "another server on this host generates IDs with this worker";
const COPY: &str = "this data directory is a copy";
const LINK: &str = "the folder \"snowflake_id\" is a symbolic link";

/// The first ID that the server generates, ticks as far ahead of the clock as they may run, each by its first and last ID,
/// and single IDs.
fn ids(server: &Server) -> Vec<i64> {
    let mut session = server.connect();
    let first = wait_for_id(&mut session);
    [vec![first], take_ticks(&mut session, 2_100), take(&mut session, 1_000)].concat()
}

/// A server, and its first IDs under this name.
#[track_caller]
fn started(name: &str) -> (Server, Ids) {
    let server = Server::builder().start_with_extension();
    let mut all = Ids::new();
    all.add(name, ids(&server));
    (server, all)
}

#[track_caller]
fn closed(server: &Server, message: &str) -> Failure {
    let failure = assert_closed(server, message);
    assert_eq!(failure.message, format!("cannot generate a snowflake ID: {message}"));
    failure
}

/// The gate is closed because the server in `other` has a worker.
#[track_caller]
fn closed_beside(server: &Server, other: &Server) {
    let failure = closed(server, TAKEN);
    let other = other.data();
    let signed = " signed last for the lock on one of this server's workers.";
    assert_eq!(failure.detail, format!("The server in data directory \"{}\"{signed}", other.display()));
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
        skip(program);
    }
    found
}

/// A copy of the stopped server's files, as a backup makes it.
fn backup_of(server: &Server) -> PathBuf {
    let backup = server.folder().join("backup");
    sh("cp -a \"$1\" \"$2\"", &[&server.data(), &backup]);
    backup
}

/// A server in another place that has this running server's files, as a snapshot has them.
fn clone_of(server: &Server) -> Server {
    let mut clone = server.sibling();
    // PostgreSQL removes files meanwhile. The record of the state has two slots.
    sh("cp -a \"$1\" \"$2\" || true; rm \"$2/postmaster.pid\"", &[&server.data(), &clone.data()]);
    clone.set("port", "5432");
    clone
}

/// Asserts that a server which accepts connections generates IDs at once.
#[track_caller]
fn opens_at_once(mut start: impl FnMut() -> (Server, Vec<i64>)) {
    assert_best_of_three(ms(500), || {
        let (server, before) = start();
        let mut session = server.connect();
        let began = Instant::now();
        let first = one(&mut session, "SELECT snowflake_nextval()");
        let took = began.elapsed();
        let mut all = Ids::new();
        all.add("before", before);
        all.add("the first", vec![first]);
        all.add("after", ids(&server));
        all.assert_unique();
        assert_eq!(status(&mut session).lane, Some(0), "a backup worker was used up");
        took
    });
}

// ---- files restored ----

const RESTORES: [(&str, &str); 3] = [
    ("cp", "cp -a \"$1/.\" \"$2\""),
    ("tar", "tar -C \"$1\" -c . | tar -C \"$2\" -x --overwrite"),
    ("rsync", "rsync -aI --inplace \"$1/\" \"$2/\""),
];

#[test]
fn files_written_over_those_in_place_open_at_once() {
    for (_, restore) in RESTORES.into_iter().filter(|(program, _)| has(program)) {
        opens_at_once(|| {
            let mut server = Server::builder().start_with_extension();
            let before = ids(&server);
            server.stop(Stop::Fast);
            let backup = backup_of(&server);
            server.start();
            let after = ids(&server);
            server.stop(Stop::Immediate);
            sh(restore, &[&backup, &server.data()]);
            server.start();
            (server, [before, after].concat())
        });
    }
}

/// A server that crashed, with an earlier content of its state file, and its IDs. The inode and the time of birth are those
/// that the record names, as after the rollback of a snapshot.
fn rolled_back() -> (Server, Vec<i64>) {
    let mut server = Server::builder().start_with_extension();
    let before = ids(&server);
    let snapshot = fs::read(state_file(&server)).unwrap();
    wait_until("a later record", secs(20), || {
        wait_for_id(&mut server.connect());
        (fs::read(state_file(&server)).unwrap() != snapshot).then_some(())
    });
    let after = ids(&server);
    server.crash();
    fs::write(state_file(&server), &snapshot).unwrap();
    (server, [before, after].concat())
}

#[test]
fn a_state_rolled_back_in_place_opens_at_once_also_after_a_reboot() {
    for is_rebooted in [false, true] {
        opens_at_once(|| {
            let (mut server, ids) = rolled_back();
            if is_rebooted {
                fs::remove_file(server.lock_file()).expect("the file of the boot");
            }
            server.start();
            (server, ids)
        });
    }
}

/// It has another `/dev/shm`.
#[test]
fn a_new_container_opens_at_once_though_the_state_was_rolled_back() {
    if !Server::builder().create().contain() {
        return;
    }
    opens_at_once(|| {
        let (mut server, ids) = rolled_back();
        assert!(server.contain());
        server.start();
        (server, ids)
    });
}

#[test]
fn files_restored_as_new_ones_are_a_copy_until_adopted_or_given_another_worker() {
    let (mut server, mut all) = started("before");
    server.stop(Stop::Fast);
    let backup = backup_of(&server);
    server.start();
    all.add("after the backup", ids(&server));
    server.stop(Stop::Fast);
    let restore = |server: &Server| sh("rm -r \"$2\"; cp -a \"$1\" \"$2\"", &[&backup, &server.data()]);
    restore(&server);
    server.start();
    // However often it is started.
    for how in [Stop::Immediate, Stop::Fast] {
        closed(&server, COPY);
        server.stop(how);
        server.start();
    }
    closed(&server, COPY);
    let began = Instant::now();
    run(&mut server.connect(), "SELECT snowflake_adopt()");
    assert!(began.elapsed() >= secs(1), "it did not wait for the clock: {:?}", began.elapsed());
    all.add("adopted", ids(&server));
    server.restart();
    all.add("adopted and restarted", ids(&server));
    server.stop(Stop::Fast);
    restore(&server);
    server.set("snowflake_id.worker_id", "2");
    server.start();
    let with_another = ids(&server);
    assert_eq!(worker(with_another[0]), 2);
    all.add("another worker", with_another);
    all.assert_unique();
}

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
            skip("mounts");
        }
        is_mounted.then(|| Self { at: at.to_owned() })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        sh("umount -l \"$1\"", &[&self.at]);
    }
}

/// A server whose data directory lies behind a link.
fn server_at(from: &Server, data: &Path) -> Server {
    let mut server = from.sibling();
    sh("ln -s \"$1\" \"$2\"", &[data, &server.data()]);
    server.set("port", "5432");
    server
}

/// A server on a volume, which is a file system in a file, and its first IDs.
struct OnVolume {
    base: Server,
    volume: PathBuf,
    mount: Mount,
    server: Server,
    all: Ids,
}

impl OnVolume {
    /// `None` where this machine cannot have one.
    fn start() -> Option<Self> {
        if !has("mkfs.ext4") {
            return None;
        }
        let mut base = Server::builder().start_with_extension();
        base.stop(Stop::Fast);
        let (image, volume) = (base.folder().join("image"), base.folder().join("volume"));
        sh("truncate -s 256M \"$1\" && mkfs.ext4 -q \"$1\"", &[&image]);
        let mount = Self::mount(&image, &volume)?;
        sh("cp -a \"$1\" \"$2/data\"; chmod 755 \"$2\"", &[&base.data(), &volume]);
        let mut server = server_at(&base, &volume.join("data"));
        server.start();
        run(&mut server.connect(), "SELECT snowflake_adopt()");
        let mut all = Ids::new();
        all.add("before the snapshot", ids(&server));
        Some(Self { base, volume, mount, server, all })
    }

    fn mount(image: &Path, at: &Path) -> Option<Mount> {
        Mount::of(&["-o", "loop", &image.display().to_string()], at)
    }

    /// A copy of the volume, with the inodes and times of birth of the original.
    fn snapshot(&self) -> PathBuf {
        let snapshot = self.base.folder().join("snapshot");
        let image = self.base.folder().join("image");
        sh("sync -f \"$1\"; cp --sparse=always \"$2\" \"$3\"", &[&self.volume, &image, &snapshot]);
        snapshot
    }
}

#[test]
fn a_volume_rolled_back_to_a_snapshot_opens_at_once() {
    let Some(mut on) = OnVolume::start() else { return };
    let snapshot = on.snapshot();
    on.all.add("after the snapshot", ids(&on.server));
    on.server.stop(Stop::Fast);
    let OnVolume { base: _base, volume, mount, mut server, mut all } = on;
    drop(mount);
    let Some(_mount) = OnVolume::mount(&snapshot, &volume) else { panic!("it was mounted before") };
    server.start();
    let began = Instant::now();
    all.add("rolled back", vec![one(&mut server.connect(), "SELECT snowflake_nextval()")]);
    assert!(began.elapsed() < secs(1), "{:?}", began.elapsed());
    all.add("rolled back", ids(&server));
    all.assert_unique();
}

// ---- beside each other ----

/// Asks for what holds the lock of a worker.
fn is_locked(server: &Server, worker: i64) -> bool {
    let Ok(file) = File::options().read(true).write(true).open(server.lock_file()) else { return false };
    let mut range = range(worker);
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut range)).expect("the lock can be read");
    i32::from(range.l_type) != libc::F_UNLCK
}

fn range(worker: i64) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: worker * 1_024,
        l_len: 1,
        l_pid: 0,
    }
}

#[test]
fn a_clone_beside_its_original_waits_for_a_restart_and_a_worker_of_its_own_opens_it() {
    let (mut original, mut all) = started("the original");
    let mut clone = clone_of(&original);
    clone.start();
    closed_beside(&clone, &original);
    run(&mut clone.connect(), "CREATE ROLE stranger LOGIN");
    let told = fails(&mut clone.connect_as("stranger"), "55000", "SELECT snowflake_nextval()");
    assert!(told.message.contains(TAKEN) && told.detail.starts_with("Another server had locked"), "{told}");
    let adopted = fails(&mut clone.connect(), "55000", "SELECT snowflake_adopt()");
    assert!(adopted.detail.contains(&original.data().display().to_string()), "{adopted}");
    let line = format!("cannot generate IDs: {TAKEN}");
    clone.wait_for_worker("the keeper's line", secs(20), |_| clone.log().contains(&line).then_some(()));
    all.add("the original, on", ids(&original));
    // It does not take the place of a server that restarts.
    for how in [Stop::Fast, Stop::Immediate] {
        original.stop(how);
        std::thread::sleep(ms(1_500));
        closed(&clone, TAKEN);
        original.start();
        all.add("the original, restarted", ids(&original));
        closed_beside(&clone, &original);
    }
    assert_eq!(clone.log().matches(&line).count(), 1, "{}", clone.log());
    // A worker of its own opens it beside the original.
    clone.set("snowflake_id.worker_id", "2");
    clone.restart();
    all.add("the clone, with another worker", ids(&clone));
    clone.set("snowflake_id.worker_id", "1");
    clone.restart();
    closed_beside(&clone, &original);
    all.add("the original, at last", ids(&original));
    // Its run with another worker made the file its own.
    original.stop(Stop::Fast);
    clone.restart();
    all.add("the clone", ids(&clone));
    all.assert_unique();
}

#[test]
fn a_clone_is_a_copy_after_its_original_has_stopped_and_it_was_restarted() {
    let (mut original, mut all) = started("the original");
    let mut clone = clone_of(&original);
    clone.start();
    closed_beside(&clone, &original);
    all.add("the original, on", ids(&original));
    original.stop(Stop::Fast);
    clone.restart();
    closed(&clone, COPY);
    run(&mut clone.connect(), "SELECT snowflake_adopt()");
    all.add("the clone", ids(&clone));
    // Now the original is the one that has to wait.
    original.start();
    closed_beside(&original, &clone);
    all.assert_unique();
}

#[test]
fn numbers_that_overlap_under_other_backup_workers_are_seen() {
    // 129, 385, 641 and 897.
    let original = Server::builder().setting("snowflake_id.worker_id", "129").start_with_extension();
    let mut all = Ids::new();
    all.add("the original", ids(&original));
    let mut clone = clone_of(&original);
    for (worker_id, backups, overlaps) in
        [("385", "0", true), ("386", "0", false), ("1", "7", true), ("2", "7", false)]
    {
        clone.set("snowflake_id.worker_id", worker_id);
        clone.set("snowflake_id.backup_workers", backups);
        clone.start();
        match overlaps {
            // Nor has it a lock on worker 1, which it could have.
            true => {
                closed_beside(&clone, &original);
                assert!(!is_locked(&clone, 1));
            }
            false => all.add(format!("worker {worker_id}"), ids(&clone)),
        }
        clone.stop(Stop::Fast);
    }
    all.add("the original, on", ids(&original));
    all.assert_unique();
}

/// A process whose server is gone, stopped so that it does not notice. Ends with the test.
struct Last(i32);

impl Last {
    /// Kills a server's postmaster while this process lives on, and waits until no other does.
    #[track_caller]
    fn of(server: &mut Server, pid: i32) -> Self {
        server.signal_backend(pid, Signal::SIGSTOP);
        let last = Self(pid);
        let others = process::children(server.pid() as i32).into_iter().filter(|other| *other != pid);
        let others: Vec<i32> = others.collect();
        server.kill_postmaster();
        wait_until("all other processes of the server to end", secs(60), || {
            others.iter().all(|pid| process::has_ended(*pid)).then_some(())
        });
        last
    }

    fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.0), signal);
    }

    /// Goes on, and ends, because its postmaster is gone.
    fn ends(&self) {
        self.signal(Signal::SIGCONT);
        wait_until("the end of the last process", secs(60), || process::has_ended(self.0).then_some(()));
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// A backend whose postmaster was killed may still return an ID. The lock's file may have been deleted before.
#[test]
fn a_killed_postmasters_backend_keeps_the_lock_from_another_directory() {
    for is_deleted in [false, true] {
        let (mut original, mut all) = started("the original");
        if is_deleted {
            fs::remove_file(original.lock_file()).expect("the lock");
            let mut killed = original.connect();
            let backend = one(&mut killed, "SELECT pg_backend_pid()");
            original.kill_backend(backend);
            all.add("after a crash", ids(&original));
        }
        let mut clone = clone_of(&original);
        let mut session = original.connect();
        let backend = one(&mut session, "SELECT pg_backend_pid()");
        let last = Last::of(&mut original, backend);
        clone.start();
        closed_beside(&clone, &original);
        last.ends();
        std::thread::sleep(ms(1_500));
        closed(&clone, TAKEN);
        clone.restart();
        closed(&clone, COPY);
        original.start();
        all.add("the original, started again", ids(&original));
        all.assert_unique();
    }
}

/// PostgreSQL itself does not wait for the log's collector, which has no shared memory.
#[test]
fn a_start_waits_for_the_last_process_of_its_own_directory_and_opens() {
    let mut server = Server::builder().setting("logging_collector", "on").start_with_extension();
    let mut all = Ids::new();
    all.add("before", ids(&server));
    let collector = process::children(server.pid() as i32)
        .into_iter()
        .find(|pid| process::title(*pid).contains("logger"))
        .expect("the log's collector");
    let last = Last::of(&mut server, collector);
    server.start();
    closed(&server, "this server's workers are still locked on this host");
    last.ends();
    all.add("after", ids(&server));
    all.assert_unique();
}

/// systemd's RemoveIPC and others clear the folder.
#[test]
fn a_deleted_lock_is_made_again_and_keeps_a_clone_closed() {
    let (original, mut all) = started("the original");
    let locked = |server: &Server| {
        wait_until("the lock of worker 1 in /dev/shm", secs(60), || is_locked(server, 1).then_some(()));
        assert!([257, 513, 769].iter().all(|worker| is_locked(server, *worker)));
        assert!(!is_locked(server, 129));
    };
    locked(&original);
    fs::remove_file(original.lock_file()).expect("the lock");
    locked(&original);
    let mut clone = clone_of(&original);
    clone.start();
    closed_beside(&clone, &original);
    // The next keeper locks it again.
    let keeper = original.keeper();
    original.signal_backend(keeper, Signal::SIGTERM);
    original.wait_for_worker("another keeper", secs(60), |session| {
        one::<Option<i32>>(session, "SELECT keeper_pid FROM snowflake_status").filter(|pid| *pid != keeper)
    });
    locked(&original);
    all.add("the original, on", ids(&original));
    all.assert_unique();
}

/// As a session that opens the gate before the keeper looks: what it has opened itself is unlocked when it ends.
#[test]
fn a_lock_that_another_process_has_is_locked_when_that_ends() {
    let server = Server::builder().start_with_extension();
    ids(&server);
    let other = another_name(&server.lock_file(), 0o600);
    let file = File::options().read(true).write(true).open(&other).expect("a file");
    fcntl(&file, FcntlArg::F_OFD_SETLK(&range(1))).expect("a lock");
    fs::rename(&other, server.lock_file()).expect("one folder");
    // Longer than the keeper's rounds.
    std::thread::sleep(secs(1));
    drop(file);
    wait_until("the keeper's lock", secs(60), || is_locked(&server, 1).then_some(()));
}

/// A file that could be the lock, under another name.
fn another_name(lock: &Path, mode: u32) -> PathBuf {
    let other = lock.with_extension("other");
    fs::write(&other, "").expect("a file");
    fs::set_permissions(&other, Permissions::from_mode(mode)).expect("a mode");
    faults::own(&other);
    other
}

/// The folder belongs to everybody.
#[test]
fn a_lock_that_cannot_be_made_is_logged_once_and_the_gate_opens() {
    type Make = fn(&Path) -> bool;
    let makers: [(&str, Make); 5] = [
        ("another user's file", |path| fs::write(path, "").is_ok()),
        ("a symbolic link", |path| symlink(another_name(path, 0o600), path).is_ok()),
        ("a hard link", |path| fs::hard_link(another_name(path, 0o600), path).is_ok()),
        ("a file that others may write", |path| fs::rename(another_name(path, 0o622), path).is_ok()),
        ("a pipe", |path| mkfifo(path, Mode::S_IRWXU).map(|()| faults::own(path)).is_ok()),
    ];
    for (what, make) in makers {
        if what == "another user's file" && !Uid::effective().is_root() {
            continue;
        }
        let (mut server, mut all) = started("before");
        server.stop(Stop::Fast);
        let path = server.lock_file();
        fs::remove_file(&path).expect("the lock");
        assert!(make(&path), "{what} can be made");
        server.start();
        let line = format!(
            "[{}] 00000 LOG:  snowflake_id: could not lock this server's workers in file \"{}\": ",
            server.keeper(),
            path.display()
        );
        server.wait_for_line(&line, secs(60));
        all.add("without the lock", ids(&server));
        std::thread::sleep(secs(1));
        assert_eq!(server.log().matches(&line).count(), 1, "{what}: {}", server.log());
        let _ = fs::remove_file(path.with_extension("other"));
        // As soon as it can.
        fs::remove_file(&path).expect(what);
        wait_until("the lock of worker 1 in /dev/shm", secs(60), || is_locked(&server, 1).then_some(()));
        all.assert_unique();
    }
}

#[test]
fn a_standby_locks_nothing() {
    let mut primary = Server::builder().start_with_extension();
    ids(&primary);
    let standby = primary.standby(|builder| builder);
    fails(&mut standby.connect(), "25006", "SELECT snowflake_nextval()");
    assert!(is_locked(&primary, 1));
    primary.stop(Stop::Fast);
    assert!(!is_locked(&standby, 1));
    standby.promote();
    ids(&standby);
    assert!(is_locked(&standby, 1));
}

#[test]
fn a_promoted_standby_waits_for_its_primary_on_this_host_and_opens_by_itself() {
    let (mut primary, mut all) = started("the primary");
    let standby = primary.standby(|builder| builder);
    standby.promote();
    closed_beside(&standby, &primary);
    all.add("the primary, on", ids(&primary));
    primary.stop(Stop::Fast);
    all.add("its successor", ids(&standby));
    primary.start();
    closed_beside(&primary, &standby);
    all.add("its successor, on", ids(&standby));
    all.assert_unique();
}

/// Its successor looks more often than the keeper of a primary that is idle, or on a slow machine.
#[test]
fn a_deleted_lock_keeps_a_promoted_standby_closed() {
    let (primary, mut all) = started("the primary");
    let standby = primary.standby(|builder| builder);
    standby.promote();
    closed_beside(&standby, &primary);
    let keeper = primary.keeper();
    primary.signal_backend(keeper, Signal::SIGSTOP);
    fs::remove_file(primary.lock_file()).expect("the lock");
    // Many rounds of the other keeper.
    std::thread::sleep(secs(1));
    closed_beside(&standby, &primary);
    primary.signal_backend(keeper, Signal::SIGCONT);
    wait_until("the lock of worker 1 in /dev/shm", secs(60), || is_locked(&primary, 1).then_some(()));
    closed_beside(&standby, &primary);
    all.add("the primary, on", ids(&primary));
    all.assert_unique();
}

/// Neither has a state that the other could know.
#[test]
fn of_two_copies_without_a_state_only_one_opens() {
    let mut first = Server::builder().start_with_extension();
    let mut second = first.copy();
    for server in [&mut first, &mut second] {
        fs::remove_dir_all(server.data().join("snowflake_id")).expect("the state");
    }
    first.start();
    second.start();
    let opened = [&first, &second].map(|server| {
        let mut session = server.connect();
        session.query_one("SELECT snowflake_nextval()", &[]).is_ok()
    });
    assert_eq!(opened.iter().filter(|is_open| **is_open).count(), 1, "{opened:?}");
}

/// It has the inodes of its original, so it is no copy. Which of the two goes on does not matter, as long as their runs do
/// not overlap.
#[test]
fn a_snapshot_beside_its_original_waits_for_a_restart() {
    let Some(mut on) = OnVolume::start() else { return };
    let clone = on.base.folder().join("clone");
    let Some(_clone) = OnVolume::mount(&on.snapshot(), &clone) else { panic!("another was mounted before") };
    sh("rm \"$1/data/postmaster.pid\"", &[&clone]);
    let mut beside = server_at(&on.base, &clone.join("data"));
    beside.start();
    closed(&beside, TAKEN);
    on.all.add("the original, on", ids(&on.server));
    on.server.crash();
    std::thread::sleep(ms(1_500));
    closed(&beside, TAKEN);
    beside.restart();
    on.all.add("the snapshot", ids(&beside));
    on.server.start();
    closed(&on.server, TAKEN);
    on.all.assert_unique();
}

#[test]
fn of_two_overlays_over_one_lower_directory_only_one_opens() {
    let (mut base, mut all) = started("the lower directory");
    base.stop(Stop::Fast);
    // Overlays need a file system that is none itself.
    let files = base.folder().join("files");
    let Some(_files) = Mount::of(&["-t", "tmpfs", "tmpfs"], &files) else { return };
    sh(
        "cp -a \"$1\" \"$2/lower\"; mkdir \"$2/upper1\" \"$2/upper2\" \"$2/work1\" \"$2/work2\"",
        &[&base.data(), &files],
    );
    let overlay = |n: u32, server: &Server| {
        let of = |name: &str| files.join(name).display().to_string();
        let (upper, work) = (of(&format!("upper{n}")), of(&format!("work{n}")));
        let options = format!("lowerdir={},upperdir={upper},workdir={work}", of("lower"));
        sh("chown --reference=\"$1\" \"$2\"; chmod 700 \"$2\"", &[&files.join("lower"), Path::new(&upper)]);
        Mount::of(&["-t", "overlay", "overlay", "-o", &options], &server.data())
    };
    let (mut first, mut second) = (base.sibling(), base.sibling());
    let Some(_first) = overlay(1, &first) else { return };
    let Some(_second) = overlay(2, &second) else { return };
    for server in [&mut first, &mut second] {
        server.set("port", "5432");
        server.start();
    }
    closed(&first, COPY);
    run(&mut first.connect(), "SELECT snowflake_adopt()");
    all.add("the first", ids(&first));
    let refused = fails(&mut second.connect(), "55000", "SELECT snowflake_adopt()");
    assert!(refused.text().contains(TAKEN), "{refused}");
    all.assert_unique();
}

// ---- a folder that is not there, and no room for a new file ----

#[test]
fn a_symbolic_link_in_the_place_of_the_folder_is_refused() {
    let (mut server, mut all) = started("before");
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

/// Only the owner of the folder may make files in it, so no new file can be made.
#[test]
fn where_no_new_file_can_be_made_a_server_starts_and_stops_cleanly() {
    let (mut server, mut all) = started("before");
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
