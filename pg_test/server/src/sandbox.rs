//! The temporary folder of a test process.

use crate::install::{install, run};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

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
        Sandbox { root, _janitor: janitor, next: AtomicU32::new(1) }
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

/// Compiles a library that a server loads before all others. A C compiler is there wherever Rust is, because Rust needs it
/// to link.
pub(crate) fn compile(source: &str) -> PathBuf {
    let folder = new_folder();
    let (code, library) = (folder.join("preload.c"), folder.join("preload.so"));
    std::fs::write(&code, source).expect("the source can be written");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&code).arg("-ldl");
    run(&mut compiler);
    library
}

/// Has a command's program load the library, before those that it is to load already.
pub(crate) fn preload(command: &mut Command, library: &Path) {
    let others = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD").and_then(|(_, value)| value);
    let mut libraries = library.as_os_str().to_owned();
    if let Some(others) = others {
        libraries.push(":");
        libraries.push(others);
    }
    command.env("LD_PRELOAD", libraries);
}
