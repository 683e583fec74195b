//! `snowflake_packaging EPOCH FILE.deb FILE.rpm`: a software bill of materials beside each of the two packages, which
//! carries the time EPOCH, in seconds since 1970; the same packages and time give the same bytes. Called by
//! scripts/package, in the root of the repository.

mod sbom;

use anyhow::{Context, Result, ensure};
use sbom::{Linked, Package};
use std::path::Path;
use std::process::Command;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [epoch, deb, rpm] = &args[..] else {
        anyhow::bail!("usage: snowflake_packaging EPOCH FILE.deb FILE.rpm")
    };
    let time = output(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ", &format!("-d@{epoch}")]))?;
    let debian = output(Command::new("dpkg-deb").args(["--show", "--showformat", DEBIAN]).arg(deb))?;
    let redhat =
        output(Command::new("rpm").args(["--query", "--queryformat", RED_HAT, "--package"]).arg(rpm))?;
    let major = debian.split('-').nth(1).context("postgresql-MAJOR-...")?;
    let linked = Linked::into_library(major)?;
    for (kind, file, said) in [("deb/debian", deb, &debian), ("rpm", rpm, &redhat)] {
        let [name, version, architecture, maintainer] = said.split('|').collect::<Vec<_>>()[..] else {
            anyhow::bail!("{said}")
        };
        let url = format!("pkg:{kind}/{name}@{version}?arch={architecture}");
        let package = Package { file: Path::new(file), name, version, maintainer, url: &url };
        let text = serde_json::to_string_pretty(&linked.as_content_of(&package, time.trim())?)?;
        std::fs::write(format!("{file}.cdx.json"), text + "\n")?;
    }
    Ok(())
}

/// What the packages say of themselves, in the order of the fields above.
const DEBIAN: &str = "${Package}|${Version}|${Architecture}|${Maintainer}";
const RED_HAT: &str = "%{NAME}|%{VERSION}-%{RELEASE}|%{ARCH}|%{PACKAGER}";

/// The standard output of a program that has to succeed.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{complaints}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
