//! pg_partman from Debian's packages.

use crate::install::companions;
use crate::sql;
use postgres::Client;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A version of pg_partman.
#[derive(Clone, Debug)]
pub struct Partman {
    /// As numbers, so that versions can be compared.
    pub version: Vec<u32>,
    script: PathBuf,
}

/// All versions that `scripts/companions` fetches, the oldest first: at least one, and none older than the time encoder.
pub fn versions() -> &'static [Partman] {
    static FOUND: OnceLock<Vec<Partman>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let folder = companions("partman");
        let files = std::fs::read_dir(&folder).expect("scripts/companions names a folder");
        let mut versions: Vec<Partman> =
            files.map(|file| Partman::of(file.expect("a file").path())).collect();
        versions.sort_by(|a, b| a.version.cmp(&b.version));
        let oldest = versions.first().unwrap_or_else(|| panic!("{} is empty", folder.display()));
        assert!(oldest.version >= vec![5, 2], "{oldest:?} has no time encoder");
        versions
    })
}

impl Partman {
    fn of(script: PathBuf) -> Self {
        let name = script.file_stem().expect("a file").to_string_lossy().into_owned();
        let numbers =
            name.strip_prefix("pg_partman--").unwrap_or_else(|| panic!("{name} is no script of it"));
        let version = numbers.split('.').map(|number| number.parse().expect("a number")).collect();
        Self { version, script }
    }

    /// Does what `CREATE EXTENSION pg_partman SCHEMA partman` does, except that the objects do not belong to an
    /// extension. So no file is installed into a server's folder that others use.
    #[track_caller]
    pub fn create(&self, session: &mut Client) {
        let script = std::fs::read_to_string(&self.script).expect("the script can be read");
        let is_for_members = |line: &&str| line.contains("pg_extension_config_dump");
        let plain: Vec<&str> = script.lines().filter(|line| !is_for_members(line)).collect();
        assert_eq!(script.lines().count() - plain.len(), 2, "its two tables are for pg_dump");
        sql::run(session, &plain.join("\n").replace("@extschema@", "partman"));
    }
}
