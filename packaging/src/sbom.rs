//! The software bill of materials: what is linked into the library, in CycloneDX's format.

use crate::output;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The crates of the library, and what each of them uses.
pub struct Linked {
    crates: BTreeMap<String, Value>,
    uses: BTreeMap<String, BTreeSet<String>>,
    /// That of the extension itself.
    root: String,
}

/// One that has the library.
pub struct Package<'a> {
    pub file: &'a Path,
    pub name: &'a str,
    /// With the package's own revision.
    pub version: &'a str,
    pub maintainer: &'a str,
    /// In the form of <https://github.com/package-url/purl-spec>.
    pub url: &'a str,
}

impl Linked {
    /// As Cargo resolves it for this build alone: without the dependencies of tests, tools, macros and build scripts,
    /// which are not linked, and with the features of one PostgreSQL.
    pub fn into_library(major: &str) -> Result<Self> {
        let mut tree = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        tree.args(["tree", "--locked", "--package=snowflake_id", "--no-default-features"]);
        tree.args(["--edges=normal,no-proc-macro", "--charset=ascii", "--prefix=depth"]);
        tree.arg("--format=|{p}|{l}|{r}").arg(format!("--features=pg{major}"));
        let mut linked = Self::in_tree(&output(&mut tree)?, &checksums(&fs::read_to_string("Cargo.lock")?))?;
        linked.add_standard_library()?;
        Ok(linked)
    }

    /// Lines "DEPTH|NAME vVERSION ...|LICENSE|REPOSITORY"; what a crate uses follows where it first occurs.
    fn in_tree(tree: &str, checksums: &BTreeMap<String, String>) -> Result<Self> {
        let mut linked = Self { crates: BTreeMap::new(), uses: BTreeMap::new(), root: String::new() };
        let mut above: Vec<String> = Vec::new();
        for line in tree.lines() {
            let fields: Vec<&str> = line.trim_end_matches(" (*)").split('|').collect();
            let &[depth, package, license, repository] = &fields[..] else {
                anyhow::bail!("cargo tree: {line}")
            };
            let mut words = package.split(' ');
            let name = words.next().context("a name")?;
            let version = words.next().and_then(|word| word.strip_prefix('v')).context("a version")?;
            // A crate in this repository is none of the same name on crates.io.
            let kind =
                if words.next().is_some_and(|word| word.starts_with("(/")) { "generic" } else { "cargo" };
            let url = format!("pkg:{kind}/{name}@{version}");
            above.truncate(depth.parse()?);
            match above.last() {
                Some(user) => _ = linked.uses.entry(user.clone()).or_default().insert(url.clone()),
                None => linked.root.clone_from(&url),
            }
            above.push(url.clone());
            linked.uses.entry(url.clone()).or_default();
            let mut component = component(name, version, &url, license);
            if let Some(sum) = checksums.get(&format!("{name} {version}")) {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
            }
            if !repository.is_empty() {
                component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
            }
            linked.crates.insert(url, component);
        }
        Ok(linked)
    }

    /// It is in every library, and in no Cargo.lock.
    fn add_standard_library(&mut self) -> Result<()> {
        let printed = output(Command::new("rustc").arg("--version"))?;
        let version = printed.split(' ').nth(1).context("rustc VERSION")?;
        let url = format!("pkg:generic/rust-std@{version}");
        self.crates.insert(url.clone(), component("rust-std", version, &url, "MIT OR Apache-2.0"));
        for uses in self.uses.values_mut() {
            uses.insert(url.clone());
        }
        self.uses.insert(url, BTreeSet::new());
        Ok(())
    }

    /// The bill for a package of the library.
    pub fn as_content_of(&self, package: &Package<'_>, time: &str) -> Result<Value> {
        let &Package { file, name, version, maintainer, url } = package;
        let sum = output(Command::new("sha256sum").arg(file))?;
        let sum = sum.split(' ').next().context("a checksum")?;
        let file = file.file_name().and_then(|name| name.to_str()).context("a file's name")?;
        let mut whole = component(name, version, url, "PostgreSQL");
        whole["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        whole["properties"] = json!([{ "name": "file", "value": file }]);
        let (supplier, email) = maintainer.split_once(" <").context("NAME <ADDRESS>")?;
        let email = email.trim_end_matches('>');
        let uses = self.uses.iter().map(|(user, used)| json!({ "ref": user, "dependsOn": used }));
        let all = json!({ "ref": url, "dependsOn": [self.root] });
        Ok(json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": serial_number(sum),
            "version": 1,
            "metadata": {
                "timestamp": time,
                "supplier": { "name": supplier, "contact": [{ "email": email }] },
                "component": whole,
            },
            "components": self.crates.values().collect::<Vec<_>>(),
            "dependencies": std::iter::once(all).chain(uses).collect::<Vec<_>>(),
        }))
    }
}

fn component(name: &str, version: &str, url: &str, license: &str) -> Value {
    // Cargo's older form of it has a slash.
    let license = license.replace('/', " OR ");
    json!({
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": version,
        "licenses": [{ "expression": license }],
        "purl": url,
    })
}

/// A UUID of the version for what is made of other data, so that the same package has the same.
fn serial_number(sum: &str) -> String {
    format!("urn:uuid:{}-{}-8{}-8{}-{}", &sum[..8], &sum[8..12], &sum[13..16], &sum[17..20], &sum[20..32])
}

/// Those of the archives on crates.io, by "NAME VERSION". Their entries have a name, a version, a source and a checksum.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let archives = lock.split("[[package]]").filter(|entry| entry.contains("\nchecksum = "));
    let quoted = archives.map(|entry| entry.split('"').skip(1).step_by(2).collect::<Vec<_>>());
    quoted.map(|entry| (format!("{} {}", entry[0], entry[1]), entry[3].to_owned())).collect()
}
