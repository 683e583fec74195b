//! Dumps of a server's databases, and restoring them, as with `pg_dump | psql`.

use crate::Server;
use std::io::Write;
use std::process::Stdio;

/// The dump, restored without the warning that a server that only serves the registry generates no IDs.
#[must_use]
pub fn without_warnings(dump: &str) -> String {
    dump.replace("client_min_messages = warning", "client_min_messages = error")
}

impl Server {
    /// The output of `pg_dump` for a database, without the two lines that differ from dump to dump, because newer
    /// versions put a random key into them.
    #[track_caller]
    pub fn dump(&self, database: &str, options: &[&str]) -> String {
        let output =
            self.client_program("pg_dump", database).args(options).output().expect("pg_dump can be run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "pg_dump {options:?}: {errors}");
        let dump = String::from_utf8(output.stdout).expect("the server's encoding is UTF-8");
        let varies = |line: &&str| line.starts_with("\\restrict ") || line.starts_with("\\unrestrict ");
        dump.lines().filter(|line| !varies(line)).map(|line| line.to_owned() + "\n").collect()
    }

    /// Restores a dump into a database; every statement must succeed, and print nothing.
    #[track_caller]
    pub fn restore(&self, database: &str, dump: &str) {
        self.try_restore(database, dump).unwrap_or_else(|errors| panic!("psql: {errors}"));
    }

    /// Restores a dump into a database, up to the first statement that fails.
    ///
    /// # Errors
    /// The output of psql.
    pub fn try_restore(&self, database: &str, dump: &str) -> Result<(), String> {
        let mut psql = self.client_program("psql", database);
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
        psql.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = psql.spawn().expect("psql can be run");
        // psql reads on to the end after an error, and reports it in few words.
        let sent = child.stdin.take().expect("a pipe").write_all(dump.as_bytes());
        let output = child.wait_with_output().expect("it is our child");
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || !errors.is_empty() {
            return Err(errors.into_owned());
        }
        sent.expect("psql reads all of it");
        Ok(())
    }
}
