//! The PostgreSQL that `PG_CONFIG` names.

use crate::command::read;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// Where its parts are, as its `pg_config` says.
#[derive(Debug)]
pub struct Installation {
    /// As in "PostgreSQL 15.14 (Debian 15.14-0+deb12u1)".
    pub version: String,
    pub bindir: PathBuf,
    /// Of server libraries.
    pub pkglibdir: PathBuf,
    pub sharedir: PathBuf,
    pub include_server: PathBuf,
    /// Of the drivers of its test suites, each in a folder of its own.
    pub tests: PathBuf,
}

impl Installation {
    /// # Errors
    /// `PG_CONFIG` is not set, or names no such program.
    pub fn new() -> Result<Self> {
        let pg_config = std::env::var("PG_CONFIG").context("PG_CONFIG must name a pg_config")?;
        let ask = |option: &str| -> Result<String> {
            Ok(read(Command::new(&pg_config).arg(option))?.trim().to_owned())
        };
        let pgxs = PathBuf::from(ask("--pgxs")?);
        let tests = pgxs.parent().context("pgxs.mk is in a folder")?.join("../test");
        Ok(Self {
            version: ask("--version")?,
            bindir: ask("--bindir")?.into(),
            pkglibdir: ask("--pkglibdir")?.into(),
            sharedir: ask("--sharedir")?.into(),
            include_server: ask("--includedir-server")?.into(),
            tests,
        })
    }
}
