//! A private server, for a command that runs beside it.

use anyhow::{Context, Result};
use snowflake_server_tests::{Server, pg_config};
use std::process::Command;

/// Runs the command with PostgreSQL's programs in its path, and with the environment by which they find a new server;
/// settings are `name=value`. The server is gone afterwards.
///
/// # Errors
/// The command cannot be run, or fails.
pub fn run_beside(settings: &[String], command: &[String]) -> Result<()> {
    // Ctrl-C is the command's: psql goes on, others end, and with them this program.
    ctrlc::set_handler(|| {})?;
    // A reader looks at what PostgreSQL does by itself.
    let mut builder = Server::builder().without("autovacuum").without("fsync").without("max_wal_size");
    for setting in settings {
        let (name, value) = setting.split_once('=').with_context(|| format!("no 'name=value': {setting}"))?;
        builder = builder.setting(name, value);
    }
    let server = builder.start();
    eprintln!("-- A private server is in {}", server.folder().display());
    let (program, args) = command.split_first().context("no command")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PG") && !name.starts_with("PG_")) {
        command.env_remove(name);
    }
    command.env("PATH", format!("{}:{path}", pg_config("--bindir"))).env("PGHOST", server.folder());
    command.env("PGPORT", "5432").env("PGUSER", "postgres").env("PGDATABASE", "postgres").env("PGTZ", "UTC");
    crate::run(command.args(args))
}
