//! The temporary folder of a test process, and the data directory that its servers are copied from.

use crate::clock::Clock;
use crate::install::{Install, install, run};
use std::collections::HashMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Removes the folder when the test process has ended, for whatever reason: its standard input is a pipe whose other
/// end only the test process has. A test that was killed leaves servers behind. Their `postmaster.pid` names them, and
/// their working directory proves that the pid is still theirs. Each has left its lock file. A small file system may be
/// mounted on the folder of the extension's state.
const JANITOR: &str = r#"
read -r _
for file in "$1"/*/data/postmaster.pid; do
    [ -e "$file" ] || continue
    pid=$(head -n 1 "$file")
    [ "$(readlink "/proc/$pid/cwd")" = "${file%/postmaster.pid}" ] && kill -QUIT "$pid"
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
        [ "$(readlink "/proc/$pid/cwd")" = "${file%/postmaster.pid}" ] || break
        sleep 0.5
    done
done
for data in "$1"/*/data; do
    rm -f "/dev/shm/snowflake_id.$(od -An -tu8 -N8 "$data/global/pg_control" | tr -d ' ')"
done
umount -l "$1"/*/data/snowflake_id 2>/dev/null
rm -rf "$1"
"#;

struct Sandbox {
    root: PathBuf,
    /// Keeps the pipe open whose end wakes the janitor.
    _janitor: Child,
    next: AtomicU32,
    /// The template data directories, by the installation whose `initdb` created them, and how far the clock was back
    /// then, in seconds.
    templates: Mutex<HashMap<(PathBuf, u64), PathBuf>>,
}

fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        // A Unix socket's path has at most 107 bytes, so the name is short.
        let name = format!("snowflake.{}.{:08x}", std::process::id(), rand::random::<u32>());
        let root = std::env::temp_dir().join(name);
        make_folder(&root);
        let root = root.canonicalize().expect("the folder was made just now");
        spread_folders(&root);
        let janitor = Command::new("sh")
            .args(["-c", JANITOR, "sh"])
            .arg(&root)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh can be started");
        Sandbox { root, _janitor: janitor, next: AtomicU32::new(1), templates: Mutex::default() }
    })
}

/// Tells ext4 to spread these folders over the disk (`T` marks the top of unrelated folders). Otherwise they share an
/// area in which creating a file inspects every inode that was freed within the last minute, and creating and removing
/// copies of data directories would take half of the tests' CPU time. File systems without this mark do not need it.
fn spread_folders(root: &Path) {
    let mut mark = Command::new("chattr");
    let _ = mark.arg("+T").arg(root).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

pub(crate) fn make_folder(path: &Path) {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
    install().own(path);
}

/// A new empty folder that belongs to the servers' owner.
pub(crate) fn new_folder() -> PathBuf {
    let sandbox = sandbox();
    // The place on the disk depends only on the name, so no two processes may use the same name.
    let n = sandbox.next.fetch_add(1, Ordering::Relaxed);
    let path = sandbox.root.join(format!("{}-{n}", std::process::id()));
    make_folder(&path);
    path
}

/// Creates the data directory `to`, as `initdb` would have created it `behind` ago. `pg_control` carries the time of
/// `initdb`, which a server without a state file relies on.
pub(crate) fn new_cluster(install: &Install, to: &Path, behind: Duration) {
    let sandbox = sandbox();
    // Held meanwhile, so that the first test creates the template and the others wait for it.
    let mut templates = sandbox.templates.lock().unwrap_or_else(PoisonError::into_inner);
    let made_by = (install.bindir.clone(), behind.as_secs());
    let name = format!("template-{}", templates.len());
    let template = templates.entry(made_by).or_insert_with(|| {
        let folder = sandbox.root.join(name);
        make_folder(&folder);
        let data = folder.join("pgdata");
        let mut initdb = install.command("initdb", &folder);
        initdb
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
            // Each copy would have 16 MB of it otherwise, which is half of a new cluster.
            .args(["--wal-segsize=1", "-D"])
            .arg(&data);
        if !behind.is_zero() {
            let clock = Clock::new(&folder);
            clock.back(behind);
            clock.apply_to(&mut initdb);
        }
        run(initdb);
        data
    });
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(&*template).arg(to);
    run(copy);
    identify(to);
}

/// Gives a new cluster a system identifier of its own, as `initdb` would have. Servers of one cluster on one host lock
/// their workers against each other.
fn identify(data: &Path) {
    let identifier = (rand::random::<u64>() >> 1).to_ne_bytes();
    let change = |path: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = std::fs::read(path).expect("initdb wrote it");
        change(&mut bytes);
        std::fs::write(path, bytes).expect("it can be written");
    };
    // It is the first field, and the last one is the checksum of those before.
    change(&data.join("global/pg_control"), &|bytes| {
        let checksum = |bytes: &[u8], at: usize| crc32c::crc32c(&bytes[..at]).to_ne_bytes();
        let at = (8..512).find(|at| bytes[*at..*at + 4] == checksum(bytes, *at)).expect("a checksum");
        bytes[..8].copy_from_slice(&identifier);
        let sum = checksum(bytes, at);
        bytes[at..at + 4].copy_from_slice(&sum);
    });
    // The header of a segment's first page has it after 24 bytes.
    let wal = std::fs::read_dir(data.join("pg_wal")).expect("initdb wrote it");
    for segment in wal.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
        change(&segment, &|bytes| bytes[24..32].copy_from_slice(&identifier));
    }
}
