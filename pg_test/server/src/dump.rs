//! Dumps of a server's databases, and their restoration, as `pg_dump | psql` does it.

use crate::Server;
use std::io::Write;
use std::process::{Command, Stdio};

impl Server {
    fn client(&self, program: &str, database: &str) -> Command {
        let mut command = self.install.command(program, &self.folder);
        command.arg("-h").arg(&self.folder).args(["-p", "5432", "-U", "postgres", "-d", database]);
        command
    }

    /// What `pg_dump` writes of a database. Without the two lines that differ from dump to dump: newer
    /// versions put a random key into them.
    #[track_caller]
    pub fn dump(&self, database: &str, options: &[&str]) -> String {
        let output = self.client("pg_dump", database).args(options).output().expect("pg_dump can be run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "pg_dump {options:?}: {errors}");
        let dump = String::from_utf8(output.stdout).expect("the server's encoding is UTF-8");
        let varies = |line: &&str| line.starts_with("\\restrict ") || line.starts_with("\\unrestrict ");
        dump.lines().filter(|line| !varies(line)).map(|line| line.to_owned() + "\n").collect()
    }

    /// Restores a dump into a database; every statement must succeed, and say nothing.
    #[track_caller]
    pub fn restore(&self, database: &str, dump: &str) {
        self.try_restore(database, dump).unwrap_or_else(|errors| panic!("psql: {errors}"));
    }

    /// Restores a dump into a database, up to the first statement that fails.
    ///
    /// # Errors
    /// What psql had to say.
    pub fn try_restore(&self, database: &str, dump: &str) -> Result<(), String> {
        let mut psql = self.client("psql", database);
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
        psql.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = psql.spawn().expect("psql can be run");
        // psql reads to the end even when it has something to complain about, and complains in few words.
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
