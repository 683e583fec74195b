//! The PostgreSQL that the tests run against, the older one that they upgrade from, and the user they run it as.

use nix::unistd::{Uid, User};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A PostgreSQL installation, found once per test process.
#[derive(Debug)]
pub(crate) struct Install {
    pub(crate) bindir: PathBuf,
    sharedir: PathBuf,
    /// Major version, for instance 15.
    version: u32,
    /// The user that the servers run as; `None` for the user who runs the tests.
    owner: Option<User>,
}

/// The major version of the PostgreSQL under test.
pub fn pg_version() -> u32 {
    install().version
}

/// Whether the PostgreSQL under test has contrib modules. The 16 that `scripts/postgres` installs comes without them;
/// every other must have them.
pub fn has_contrib() -> bool {
    let has = install().sharedir.join("extension/amcheck.control").exists();
    assert!(has || pg_version() == 16, "this PostgreSQL lacks its contrib modules");
    if !has {
        crate::skip("contrib");
    }
    has
}

/// Whether an extension is installed beside the PostgreSQL under test.
pub fn has_extension(name: &str) -> bool {
    extension_folder().join(format!("{name}.control")).exists()
}

/// Where the PostgreSQL under test has the scripts of extensions.
pub fn extension_folder() -> PathBuf {
    install().sharedir.join("extension")
}

/// The `pg_config` that `PG_CONFIG` names, or else the one that the scripts use.
fn chosen() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let named = std::env::var_os("PG_CONFIG").filter(|name| !name.is_empty());
        named.map_or_else(|| said_by(&mut script("postgres")).into(), PathBuf::from)
    })
}

/// What it says, for instance about `--bindir`.
#[track_caller]
pub fn pg_config(option: &str) -> String {
    ask(chosen(), option)
}

/// The installation under test.
pub(crate) fn install() -> &'static Install {
    static FOUND: OnceLock<Install> = OnceLock::new();
    FOUND.get_or_init(|| Install::of(chosen()))
}

/// The older installation that `PG_CONFIG_OLD` names, from whose servers pg_upgrade upgrades.
#[track_caller]
pub(crate) fn older() -> &'static Install {
    static FOUND: OnceLock<Install> = OnceLock::new();
    FOUND.get_or_init(|| {
        let pg_config = std::env::var_os("PG_CONFIG_OLD");
        let pg_config = pg_config.expect("PG_CONFIG_OLD must name the pg_config of an older PostgreSQL");
        let older = Install::of(Path::new(&pg_config));
        assert!(older.version < pg_version(), "PG_CONFIG_OLD is not older than PG_CONFIG");
        older
    })
}

/// The PostgreSQL under test with the extension pglogical.
#[track_caller]
pub(crate) fn with_pglogical() -> &'static Install {
    static FOUND: OnceLock<Install> = OnceLock::new();
    FOUND.get_or_init(|| {
        let servers = companions("pglogical").join("usr/lib/postgresql");
        Install::of(&servers.join(pg_version().to_string()).join("bin/pg_config"))
    })
}

/// The PostgreSQL under test with repmgr and pg_auto_failover, if `scripts/companions` finds both for it.
#[track_caller]
pub(crate) fn with_failover() -> Option<&'static Install> {
    static FOUND: OnceLock<Option<Install>> = OnceLock::new();
    let find = || {
        let servers = companions("failover").join("usr/lib/postgresql");
        let pg_config = servers.join(pg_version().to_string()).join("bin/pg_config");
        pg_config.exists().then(|| Install::of(&pg_config))
    };
    FOUND.get_or_init(find).as_ref()
}

impl Install {
    fn of(pg_config: &Path) -> Self {
        let text = ask(pg_config, "--version");
        // "PostgreSQL 15.14 (Debian 15.14-0+deb12u1)", "PostgreSQL 18beta1"
        let digits: String =
            text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        let owner = Uid::effective().is_root().then(|| {
            User::from_name("postgres")
                .expect("the user database can be read")
                .expect("PostgreSQL refuses to run as root, and there is no user postgres")
        });
        Install {
            bindir: ask(pg_config, "--bindir").into(),
            sharedir: ask(pg_config, "--sharedir").into(),
            version: digits.parse().expect("pg_config --version gives a number"),
            owner,
        }
    }
}

fn ask(pg_config: &Path, option: &str) -> String {
    said_by(Command::new(pg_config).arg(option))
}

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name))
}

/// What a command prints; panics with all its output if it fails.
#[track_caller]
fn said_by(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {}\n{said}{complaints}", output.status);
    said
}

impl Install {
    /// A command of this installation (`initdb`, `postgres`, ...), to be run in `folder` as the servers' owner and
    /// without the caller's `PG*` and `RUST_*` environment. With `RUST_BACKTRACE=1`, an error that ends a wait would
    /// first look up the symbols of its backtrace, which takes tens of milliseconds.
    pub(crate) fn command(&self, program: &str, folder: &Path) -> Command {
        let mut command = Command::new(self.bindir.join(program));
        self.prepare(&mut command, folder);
        if let Some(user) = &self.owner {
            // The standard library also drops the supplementary groups when it drops root.
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }

    /// The same in a container: with shared memory and `/dev/shm` of its own, but for the tests' own folders, which may
    /// lie there. Takes root.
    pub(crate) fn contained(&self, program: &str, folder: &Path) -> Command {
        const SCRIPT: &str = "mount --rbind /dev/shm /mnt; mount -t tmpfs -o mode=1777 tmpfs /dev/shm; \
                              for kept in /mnt/snowflake.*/; do \
                                  if [ -d \"$kept\" ]; then \
                                      mkdir \"/dev/shm/${kept#/mnt/}\"; mount --rbind \"$kept\" \"/dev/shm/${kept#/mnt/}\"; \
                                  fi; \
                              done; \
                              user=$1 group=$2; shift 2; \
                              exec setpriv --reuid $user --regid $group --clear-groups \"$@\"";
        let user = self.owner.as_ref().expect("a container takes root");
        let mut command = Command::new("unshare");
        self.prepare(&mut command, folder);
        command.args(["--ipc", "--mount", "sh", "-ec", SCRIPT, "sh"]);
        command.arg(user.uid.to_string()).arg(user.gid.to_string()).arg(self.bindir.join(program));
        command
    }

    fn prepare(&self, command: &mut Command, folder: &Path) {
        command.current_dir(folder).env("LC_ALL", "C").process_group(0);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("PG") || text.starts_with("RUST_") {
                command.env_remove(name);
            }
        }
        if let Some(user) = &self.owner {
            command.env("HOME", folder).env("USER", &user.name).env("LOGNAME", &user.name);
        }
    }

    /// Gives a file or folder to the servers' owner.
    pub(crate) fn own(&self, path: &Path) {
        if let Some(user) = &self.owner {
            std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .unwrap_or_else(|e| panic!("cannot chown {}: {e}", path.display()));
        }
    }
}

/// The folder in which `scripts/companions` has installed a part, which it does now if it is missing: otherwise nothing
/// here would be tested with it.
#[track_caller]
pub fn companions(part: &str) -> PathBuf {
    let folder = said_by(script("companions").arg(part).env("PG_CONFIG", chosen()));
    PathBuf::from(folder).join(part)
}

/// Runs a command to its end; panics with all its output if it fails.
#[track_caller]
pub(crate) fn run(command: &mut Command) {
    said_by(command);
}
