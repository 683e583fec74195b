//! The data directories of new servers, which are copied from a template.

use crate::clock::Clock;
use crate::install::{Install, run};
use crate::sandbox::new_folder;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// By the installation whose `initdb` created a template, and how far the clock was back then, in seconds.
static TEMPLATES: LazyLock<Mutex<HashMap<(PathBuf, u64), PathBuf>>> = LazyLock::new(Mutex::default);

/// Creates the data directory `to`, as `initdb` would have created it `behind` ago. `pg_control` carries the time of
/// `initdb`, which a server without a state file relies on.
pub(crate) fn new_cluster(install: &Install, to: &Path, behind: Duration) {
    // Held meanwhile, so that the first test creates the template and the others wait for it.
    let mut templates = TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner);
    let made_by = (install.bindir.clone(), behind.as_secs());
    let template = templates.entry(made_by).or_insert_with(|| {
        let folder = new_folder();
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
        run(&mut initdb);
        data
    });
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(&*template).arg(to);
    run(&mut copy);
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
