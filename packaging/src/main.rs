//! `snowflake_packaging FILE.deb`: makes the RPM with the same files, a bill of materials for each of the two, and
//! `SHA256SUMS`, all beside the Debian package, and prints their names. `SOURCE_DATE_EPOCH` is the time that they
//! carry; the same package and time give the same bytes. Called by scripts/package, in the root of the repository.

mod rpm;
mod sbom;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the Debian package says of itself.
struct Debian {
    file: PathBuf,
    name: String,
    /// Of the extension.
    version: String,
    /// Of the package, for one version of the extension.
    revision: String,
    architecture: String,
    maintainer: String,
    /// Of PostgreSQL.
    major: String,
    /// The time that the packages carry, in seconds since 1970.
    epoch: u32,
}

impl Debian {
    fn read(file: &Path) -> Result<Self> {
        let field = |name| -> Result<String> {
            Ok(output(Command::new("dpkg-deb").arg("--field").arg(file).arg(name))?.trim().to_owned())
        };
        let name = field("Package")?;
        let version = field("Version")?;
        let (version, revision) = version.rsplit_once('-').context("VERSION-REVISION")?;
        Ok(Self {
            file: file.to_owned(),
            major: name.split('-').nth(1).context("postgresql-MAJOR-...")?.to_owned(),
            name,
            version: version.to_owned(),
            revision: revision.to_owned(),
            architecture: field("Architecture")?,
            maintainer: field("Maintainer")?,
            epoch: std::env::var("SOURCE_DATE_EPOCH")?.parse().context("SOURCE_DATE_EPOCH")?,
        })
    }
}

fn main() -> Result<()> {
    let deb = std::env::args_os().nth(1).map(PathBuf::from).context("usage: snowflake_packaging FILE.deb")?;
    let debian = Debian::read(&deb)?;
    let linked = sbom::Linked::into_library(&debian.major)?;
    let rpm = rpm::make(&debian)?;
    let mut files = Vec::new();
    for (file, url) in [(deb, sbom::url_of_deb(&debian)), (rpm, sbom::url_of_rpm(&debian))] {
        let sbom = PathBuf::from(format!("{}.cdx.json", file.display()));
        let text = serde_json::to_string_pretty(&linked.as_content_of(&debian, &file, &url)?)?;
        fs::write(&sbom, text + "\n")?;
        files.extend([file, sbom]);
    }
    let sums: Result<String> =
        files.iter().map(|file| Ok(format!("{}  {}\n", sha256(file)?, name_of(file)?))).collect();
    files.push(files[0].with_file_name("SHA256SUMS"));
    fs::write(&files[4], sums?)?;
    files.iter().for_each(|file| println!("{}", file.display()));
    Ok(())
}

fn name_of(file: &Path) -> Result<&str> {
    file.file_name().and_then(|name| name.to_str()).context("a file's name")
}

fn sha256(file: &Path) -> Result<String> {
    Ok(format!("{:x}", Sha256::digest(fs::read(file)?)))
}

/// The standard output of a program that has to succeed.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{complaints}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
