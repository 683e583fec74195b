//! A harness for tests of `snowflake_id` against real PostgreSQL servers.
//!
//! A test starts a server of its own in a temporary folder, connects to it over a Unix socket, and stops exactly that
//! server when it goes out of scope. It shares nothing with other servers on the machine. The parts:
//!
//! * [`server`]: start, restart, stop, clone as a standby, read the log;
//! * [`clock`]: move the wall clock of a running server;
//! * [`database`]: databases on a server that all tests of a program share, for tests that need no server of their own;
//! * [`disk`]: a small disk under the state file, and a library that breaks its writes;
//! * [`faults`]: base backups, `pg_rewind`, stray signals; `preload`: libraries between server and disk;
//! * [`fleet`]: a registry, and servers that get their workers from it;
//! * [`ids`]: split IDs into fields independently of the extension, find duplicates and their origins;
//! * [`messages`]: all that the extension reports is as `messages.txt` has it;
//! * [`partman`]: several versions of the extension pg_partman;
//! * [`patroni`]: clusters that Patroni manages, with an etcd of their own;
//! * [`process`]: the state of a server's processes as Linux reports it;
//! * `programs`: PostgreSQL's own programs, run on a server or on its files; any program that is fed;
//! * [`refusals`]: what a call that is refused says;
//! * [`registry`]: a stand-in for the fleet's registry;
//! * `replication`: standbys, switchovers, and servers that are started without recovery;
//! * [`traffic`]: clients that generate IDs in the background while a test does something to the server;
//! * [`sql`]: short-hands for queries, errors with their SQLSTATE, and the status view.
//!
//! The environment variable `PG_CONFIG` chooses the PostgreSQL installation (without it, the tests use the one that
//! `scripts/postgres` prints), `PG_CONFIG_OLD` the older one that some tests upgrade from. If the tests run as root, the servers run as the operating system's user `postgres`, because
//! PostgreSQL refuses to run as root.

pub mod clock;
mod cluster;
pub mod database;
pub mod disk;
mod dump;
pub mod faults;
pub mod fleet;
pub mod ids;
mod install;
pub mod messages;
pub mod partman;
pub mod patroni;
mod preload;
pub mod process;
mod programs;
pub mod refusals;
pub mod registry;
mod replication;
mod sandbox;
pub mod server;
pub mod sql;
pub mod traffic;

pub use clock::Clock;
pub use database::Database;
pub use dump::without_warnings;
pub use ids::{Ids, Layout};
pub use install::{companions, extension_folder, has_contrib, has_extension, pg_config, pg_version};
pub use nix::sys::signal::Signal;
pub use preload::Preload;
pub use programs::{fed, printed_by};
pub use server::{Builder, Server, Stop};
pub use sql::{Failure, Status};
pub use traffic::{Call, Kind, Traffic};

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// `n` milliseconds.
pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// `n` seconds.
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// `n` hours.
pub const fn hours(n: u64) -> Duration {
    Duration::from_secs(n * 3600)
}

/// `n` days.
pub const fn days(n: u64) -> Duration {
    Duration::from_secs(n * 86_400)
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file of the repository.
#[track_caller]
pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Held by tests that keep every core busy, or that measure time, so that parallel tests of one file do not disturb
/// each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that panicked while it held the lock leaves nothing behind that others could see.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Panics if none of three attempts takes less than this: the machine may be busy with other tests.
#[track_caller]
pub fn assert_best_of_three(limit: Duration, attempt: impl FnMut() -> Duration) {
    let mut took = Vec::new();
    for duration in std::iter::repeat_with(attempt).take(3) {
        if duration < limit {
            return;
        }
        took.push(duration);
    }
    panic!("three times longer than {limit:?}: {took:?}");
}

/// Says that a test shows nothing here because this machine lacks something. Where `CI` is set, a test must not pass that
/// way, unless `MAY_SKIP` names what is missing.
///
/// # Panics
/// If continuous integration expects it.
#[track_caller]
pub fn skip(missing: &str) {
    let [is_ci, may_skip] = ["CI", "MAY_SKIP"].map(|name| std::env::var(name).unwrap_or_default());
    assert!(
        is_ci.is_empty() || may_skip.split_whitespace().any(|name| name == missing),
        "there is no {missing}, and MAY_SKIP does not name it"
    );
    eprintln!("SKIPPED, nothing was tested: there is no {missing}");
}

/// Calls `ready` until it returns a value; panics with `what` if that takes longer than `limit`, in which it has looked
/// often: a machine that stood still meanwhile is given more. The longer it takes, the less often it looks, because other
/// tests run beside it.
#[track_caller]
pub fn wait_until<T>(what: &str, limit: Duration, ready: impl FnMut() -> Option<T>) -> T {
    look_until(limit, ready).unwrap_or_else(|| panic!("waited {limit:?} in vain for {what}"))
}

/// As [`wait_until`], but returns `None` if it was in vain.
fn look_until<T>(limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    let mut looks = 0;
    loop {
        let answer = ready();
        looks += 1;
        if answer.is_some() || began.elapsed() >= limit && looks >= 20 {
            return answer;
        }
        std::thread::sleep((began.elapsed() / 10).clamp(ms(5), ms(50)));
    }
}
