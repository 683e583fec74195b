//! What the scripts leave to a program: `cargo xtask COMMAND`. Each command is called by one of them, which has set up
//! the machine before.

mod fleet;
mod server;
mod suites;

use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  upstream SOURCES                   the suites in PostgreSQL's source
  can-upgrade                        whether pg_upgrade can, from PG_CONFIG_OLD's
  fleet                              servers with a registry, and what becomes of them
  server [NAME=VALUE...] -- COMMAND  runs a command beside a private server";

fn main() -> Result<()> {
    snowflake_server_tests::messages::leave_uncompared();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, args)) = args.split_first() else { bail!(USAGE) };
    match (command.as_str(), args) {
        ("upstream", [sources]) => suites::upstream(Path::new(sources)),
        ("can-upgrade", []) => suites::can_upgrade(),
        ("fleet", []) => fleet::show(),
        ("server", args) => match args.iter().position(|arg| arg == "--") {
            Some(n) => server::run_beside(&args[..n], &args[n + 1..]),
            None => bail!(USAGE),
        },
        _ => bail!(USAGE),
    }
}

/// Runs a program that has to succeed.
fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
