//! PostgreSQL's own programs, from the installation of the server that they are used on; and programs that read an input.

use crate::Server;
use crate::install::run;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

impl Server {
    /// Runs a PostgreSQL program, which must succeed; returns its output. It connects to this server unless told
    /// otherwise. Its working directory is the parent of the data directory, `data`.
    #[track_caller]
    pub fn tool(&self, program: &str, args: &[&str]) -> String {
        self.try_tool(program, args).unwrap_or_else(|said| panic!("{program} {args:?}: {said}"))
    }

    /// The same for a program that may fail.
    ///
    /// # Errors
    /// The output, if it did not succeed.
    pub fn try_tool(&self, program: &str, args: &[&str]) -> Result<String, String> {
        said(self.client_program(program, "postgres").env("PGDATA", "data").args(args))
    }

    /// Unpacks an archive into a new folder, which belongs to the servers' owner with everything in it.
    #[track_caller]
    pub fn unpack(&self, archive: &Path, folder: &Path) {
        crate::sandbox::make_folder(folder);
        let mut tar = self.install.command("/bin/tar", &self.folder);
        tar.arg("-xf").arg(archive).arg("-C").arg(folder);
        run(&mut tar);
    }

    /// Has pg_upgrade upgrade this stopped server into `new`, which was never started.
    ///
    /// # Errors
    /// The output of pg_upgrade, and the errors in the logs that it leaves.
    pub fn upgrade_to(&self, new: &Server, options: &[&str]) -> Result<String, String> {
        let mut upgrade = new.install.command("pg_upgrade", &new.folder);
        upgrade.arg("-b").arg(&self.install.bindir).arg("-B").arg(&new.install.bindir);
        upgrade.arg("-d").arg(self.data()).arg("-D").arg(new.data());
        said(upgrade.args(["-U", "postgres"]).args(options)).map_err(|said| {
            let mut search = Command::new("grep");
            search.args(["-rhi", "-A40", "error:", "--include=*.log"]);
            let logs = search.arg(new.data().join("pg_upgrade_output.d")).output().expect("grep can be run");
            said + &String::from_utf8_lossy(&logs.stdout)
        })
    }
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}

/// Runs a program with this input to its end.
#[track_caller]
pub fn fed(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads all of it");
    child.wait_with_output().expect("it is our child")
}

/// The same for one that must succeed; returns what it printed.
#[track_caller]
pub fn printed_by(command: &mut Command, input: &str) -> String {
    let output = fed(command, input);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{complaints}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}
