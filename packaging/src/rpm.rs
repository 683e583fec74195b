//! The RPM, with the names and paths of those on yum.postgresql.org.

use crate::{Debian, output};
use anyhow::{Context, Result};
use rpm::{BuildConfig, CompressionType, Dependency, FileOptions, PackageBuilder};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Of the program, which runs where the library was built.
const ARCHITECTURE: &str = std::env::consts::ARCH;
const DESCRIPTION: &str = "\
An extension that generates IDs for a column's default: each encodes its
creation time, its server's number and a sequence.

All sessions of a server share one generator in shared memory. A call takes
no lock, writes no WAL and costs little more than reading the clock. Each
ID's time is reserved on disk before the ID is returned, so no crash, restart
or failover repeats it.";
/// What Debian's packages have in the folder of the documents, and others have not.
const DEBIANS_OWN: [&str; 4] = ["README.Debian", "changelog.Debian.gz", "changelog.gz", "copyright"];

pub fn name(debian: &Debian) -> String {
    format!("snowflake_id_{}", debian.major)
}

pub fn architecture() -> &'static str {
    ARCHITECTURE
}

/// Makes it beside the Debian package, of the files in there.
pub fn make(debian: &Debian) -> Result<PathBuf> {
    let files = tempfile::tempdir()?;
    output(Command::new("dpkg-deb").arg("--extract").arg(&debian.file).arg(files.path()))?;
    let files = files.path();
    let (name, major) = (name(debian), &debian.major);
    let documents = files.join("usr/share/doc").join(&debian.name);
    for file in DEBIANS_OWN {
        fs::remove_file(documents.join(file))?;
    }

    let summary = format!("Unique, time-ordered 64-bit IDs for PostgreSQL {major}");
    let mut rpm = PackageBuilder::new(&name, &debian.version, "PostgreSQL", ARCHITECTURE, &summary);
    // Any RPM system reads gzip, and no host's name is in the package, so that each builds the same.
    rpm.using_config(BuildConfig::v4().source_date(debian.epoch).compression(CompressionType::Gzip))
        .release(&debian.revision)
        .description(DESCRIPTION)
        .group("Applications/Databases")
        .packager(&debian.maintainer)
        .add_changelog_entry(
            format!("{} - {}-{}", debian.maintainer, debian.version, debian.revision),
            format!("- Built for PostgreSQL {major}. What has changed is in CHANGELOG.md."),
            debian.epoch,
        )
        .default_file_attrs(Some(0o644), Some("root".into()), Some("root".into()))
        .default_dir_attrs(Some(0o755), Some("root".into()), Some("root".into()));

    let library = files.join(format!("usr/lib/postgresql/{major}/lib/snowflake_id.so"));
    // As rpmbuild has it: it asks only executable libraries what they need.
    let options = FileOptions::new(format!("/usr/pgsql-{major}/lib/snowflake_id.so")).permissions(0o755);
    rpm.with_file(&library, options)?;
    for file in fs::read_dir(files.join(format!("usr/share/postgresql/{major}/extension")))? {
        let file = file?;
        let to = format!("/usr/pgsql-{major}/share/extension/{}", file.file_name().display());
        rpm.with_file(file.path(), FileOptions::new(to))?;
    }
    rpm.with_dir(&documents, format!("/usr/share/doc/{name}"), |file| file.doc())?;
    let licenses = format!("/usr/share/licenses/{name}");
    rpm.with_dir_entry(FileOptions::dir(&licenses))?;
    rpm.with_file("LICENSE", FileOptions::new(format!("{licenses}/LICENSE")).license())?;

    rpm.requires(Dependency::any(format!("postgresql{major}-server")));
    for need in needs(&output(Command::new("objdump").arg("-p").arg(&library))?)? {
        rpm.requires(Dependency::any(need));
    }
    let made = debian
        .file
        .with_file_name(format!("{name}-{}-{}.{ARCHITECTURE}.rpm", debian.version, debian.revision));
    rpm.build()?.write_file(&made)?;
    Ok(made)
}

/// What rpmbuild would find that a 64-bit library requires: libraries, and versions of their symbols. Out of objdump's
/// lines "  NEEDED  LIBRARY", and after "  required from LIBRARY:" one "    HASH FLAGS NUMBER VERSION" for each.
fn needs(objdump: &str) -> Result<Vec<String>> {
    let mut needs = vec!["rtld(GNU_HASH)".to_owned()];
    let mut from = None;
    for line in objdump.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["NEEDED", library] => needs.push(format!("{library}()(64bit)")),
            ["required", "from", library] => from = library.strip_suffix(':'),
            [hash, _, _, version] if from.is_some() && hash.starts_with("0x") => {
                needs.push(format!("{}({version})(64bit)", from.context("a library")?));
            }
            _ => from = None,
        }
    }
    Ok(needs)
}
