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

/// Removes the folder when the test process is gone, however it went: its standard input is a pipe
/// whose other end only the test process has. A test that was killed leaves servers behind; they are
/// known by their `postmaster.pid`, and their working directory proves that the pid is still theirs.
/// A small file system may lie over the folder of the extension's state.
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
umount -l "$1"/*/data/snowflake_id 2>/dev/null
rm -rf "$1"
"#;

struct Sandbox {
    root: PathBuf,
    /// Holds the pipe whose end wakes the janitor.
    _janitor: Child,
    next: AtomicU32,
    /// By whose `initdb` made the template, and how far the clock was back then, in seconds.
    templates: Mutex<HashMap<(PathBuf, u64), PathBuf>>,
}

fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        // A Unix socket's path has at most 107 bytes: short names.
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

/// Has ext4 put each folder in here somewhere else on the disk (`T` marks the top of unrelated folders). Else
/// they share a place where a new file looks at every one that was deleted within the last minute before it
/// has an inode: the copies of data directories, made and removed again, would take half of the tests' CPU time.
/// Where the file system knows no such mark, it needs none.
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

/// A new empty folder that the servers' owner owns.
pub(crate) fn new_folder() -> PathBuf {
    let sandbox = sandbox();
    // The place on the disk goes by the name alone: so no two processes have the same.
    let n = sandbox.next.fetch_add(1, Ordering::Relaxed);
    let path = sandbox.root.join(format!("{}-{n}", std::process::id()));
    make_folder(&path);
    path
}

/// Makes the data directory `to`, as `initdb` would have made it `behind` ago. (`pg_control` carries
/// the time of `initdb`, and a server without a state of its own goes by that.)
pub(crate) fn new_cluster(install: &Install, to: &Path, behind: Duration) {
    let sandbox = sandbox();
    // Held meanwhile: the first test makes the template, the others wait for it.
    let mut templates = sandbox.templates.lock().unwrap_or_else(PoisonError::into_inner);
    let made_by = (install.bindir.clone(), behind.as_secs());
    let name = format!("template-{}", templates.len());
    let template = templates.entry(made_by).or_insert_with(|| {
        let folder = sandbox.root.join(name);
        make_folder(&folder);
        let data = folder.join("pgdata");
        let mut initdb = install.command("initdb", &folder);
        initdb
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
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
}
