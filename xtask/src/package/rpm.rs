//! The RPM: read, installed and removed by Debian's `rpm`, it has the files of the Debian package.

use super::{AFTER_UPGRADE, Package};
use crate::command::{as_root, read};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What Debian's packages have in the folder of the documents, and others have not.
const DEBIANS_OWN: [&str; 4] = ["README.Debian", "changelog.Debian.gz", "changelog.gz", "copyright"];

/// `files` are those of the Debian package, and `listed` their names.
///
/// # Errors
/// Where the RPM is not as it should be.
pub fn check(package: &Package, rpm: &Path, files: &Path, listed: &BTreeSet<String>) -> Result<()> {
    let (name, major) = (format!("snowflake_id_{}", package.major), &package.major);
    read(Command::new("rpm").arg("--checksig").arg(rpm))?;
    let is = query(rpm, &["--queryformat", "%{NAME} %{VERSION} %{ARCH} %{LICENSE}"])?;
    let expected = format!("{name} {} {} PostgreSQL", package.version, std::env::consts::ARCH);
    ensure!(is == expected, "{is}, not {expected}");
    let changes = query(rpm, &["--changelog"])?;
    ensure!(changes.contains(&format!(" - {}-", package.version)), "no change of this version: {changes}");
    let needs = query(rpm, &["--requires"])?;
    for need in [format!("postgresql{major}-server"), "libc.so.6(GLIBC_2.".to_owned()] {
        ensure!(needs.lines().any(|line| line.starts_with(&need)), "it does not require {need}: {needs}");
    }

    let root = package.root.join("rpm");
    fs::create_dir(&root)?;
    let installed = |action: &[&str], what: &Path| {
        let mut rpm = as_root("rpm");
        rpm.arg("--root").arg(&root).args(["--force-debian", "--nodeps"]).args(action).arg(what);
        read(&mut rpm).with_context(|| format!("rpm {action:?}"))
    };
    let said = installed(&["--install"], rpm)?;
    ensure!(said.is_empty(), "a first installation says {said}");
    let said = installed(&["--upgrade", "--replacepkgs"], rpm)?;
    ensure!(said.contains(AFTER_UPGRADE), "an upgrade does not say what to restart: {said}");
    installed(&["--verify"], Path::new(&name))?;
    let expected = copies(package, &name, files, listed)?;
    check_files(rpm, &name, &expected)?;
    for (file, from) in &expected {
        let same = fs::read(root.join(&file[1..]))? == fs::read(from)?;
        ensure!(same, "{file} is not the same as {}", from.display());
    }
    installed(&["--erase"], Path::new(&name))?;
    for left in expected.keys().map(String::as_str).chain([&*format!("/usr/share/doc/{name}")]) {
        ensure!(!root.join(&left[1..]).exists(), "the removed RPM has left {left}");
    }
    println!(
        "   the RPM has the same {} files, requires what the library does, and says what to restart",
        expected.len()
    );
    Ok(())
}

/// Its files, each with the file that it is a copy of.
fn copies(
    package: &Package,
    name: &str,
    files: &Path,
    listed: &BTreeSet<String>,
) -> Result<BTreeMap<String, PathBuf>> {
    let Package { major, .. } = package;
    let documents = format!("usr/share/doc/{}", package.name);
    let places = [
        (format!("usr/lib/postgresql/{major}"), format!("/usr/pgsql-{major}")),
        (format!("usr/share/postgresql/{major}"), format!("/usr/pgsql-{major}/share")),
        (documents.clone(), format!("/usr/share/doc/{name}")),
    ];
    let repository = std::env::current_dir()?;
    let mut expected =
        BTreeMap::from([(format!("/usr/share/licenses/{name}/LICENSE"), repository.join("LICENSE"))]);
    let own = DEBIANS_OWN.map(|file| format!("{documents}/{file}"));
    for file in listed.iter().filter(|file| !own.contains(file)) {
        let to = places.iter().find_map(|(from, to)| Some(format!("{to}{}", file.strip_prefix(from)?)));
        expected.insert(to.with_context(|| format!("a place for {file}"))?, files.join(file));
    }
    Ok(expected)
}

/// As the RPM lists them: root's, as rpmbuild would have them, and no folder that belongs to PostgreSQL or the system.
fn check_files(rpm: &Path, name: &str, expected: &BTreeMap<String, PathBuf>) -> Result<()> {
    let list = query(
        rpm,
        &["--queryformat", "[%{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILENAMES}\n]"],
    )?;
    let own = ["doc", "licenses"].map(|folder| format!("/usr/share/{folder}/{name}"));
    let mut names = BTreeSet::new();
    for line in list.lines() {
        let (attributes, file) = line.split_once(" /").context("a path")?;
        let file = format!("/{file}");
        let right = match attributes {
            "drwxr-xr-x root:root" => own.iter().any(|folder| file.starts_with(folder)),
            "-rwxr-xr-x root:root" => file.ends_with(".so") && names.insert(file),
            "-rw-r--r-- root:root" => !file.ends_with(".so") && names.insert(file),
            _ => false,
        };
        ensure!(right, "not as a file of this RPM should be: {line}");
    }
    let expected: BTreeSet<String> = expected.keys().cloned().collect();
    let (missing, more) = (&expected - &names, &names - &expected);
    ensure!(missing.is_empty() && more.is_empty(), "missing: {missing:#?}; should not be there: {more:#?}");
    Ok(())
}

fn query(rpm: &Path, what: &[&str]) -> Result<String> {
    read(Command::new("rpm").args(["--query", "--package"]).args(what).arg(rpm))
}
