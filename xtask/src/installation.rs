//! The PostgreSQL under test.

use anyhow::{Context, Result};
use snowflake_server_tests::pg_config as ask;
use std::path::PathBuf;

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
    /// It has no test suites.
    pub fn new() -> Result<Self> {
        let pgxs = PathBuf::from(ask("--pgxs"));
        let tests = pgxs.parent().context("pgxs.mk is in a folder")?.join("../test");
        Ok(Self {
            version: ask("--version"),
            bindir: ask("--bindir").into(),
            pkglibdir: ask("--pkglibdir").into(),
            sharedir: ask("--sharedir").into(),
            include_server: ask("--includedir-server").into(),
            tests,
        })
    }
}
