//! Programs that have to succeed.

use anyhow::{Context, Result, ensure};
use std::process::Command;

/// A program that needs the rights of root.
pub fn as_root(program: &str) -> Command {
    if nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    let mut sudo = Command::new("sudo");
    sudo.arg(program);
    sudo
}

/// # Errors
/// It cannot be run, or fails.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Its standard output.
///
/// # Errors
/// It cannot be run, or fails: then with all that it has printed.
pub fn read(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{printed}{complaints}", output.status);
    Ok(printed)
}
