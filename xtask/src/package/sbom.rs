//! The bill of materials of a package: CycloneDX's schema has it, and it names what is in the library.

use crate::command::{read, run};
use anyhow::{Context, Result, ensure};
use regex::bytes::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// # Errors
/// It is not in CycloneDX's format.
pub fn validate(sboms: &[&Path]) -> Result<()> {
    let companions = read(Command::new("scripts/companions").arg("cyclonedx"))?;
    let program = Path::new(companions.trim()).join("cyclonedx/validate.js");
    run(Command::new("node").arg(program).args(sboms))
}

/// What a package has of others.
pub struct Inside<'a> {
    pub library: &'a Path,
    /// The text with their licences.
    pub notices: &'a str,
}

/// # Errors
/// It is of another package, or does not say what is in the library.
pub fn check(sbom: &Path, package: &str, sum: &str, inside: &Inside<'_>) -> Result<()> {
    let sbom: Value = serde_json::from_str(&fs::read_to_string(sbom)?)?;
    let whole = &sbom["metadata"]["component"];
    ensure!(whole["name"] == package, "it is of {}, not of {package}", whole["name"]);
    ensure!(
        whole["hashes"][0]["content"] == sum,
        "it is of another {package} than the one with the sum {sum}"
    );
    let components = sbom["components"].as_array().context("components")?;
    let text = |component: &Value, field: &str| -> Result<String> {
        Ok(component[field].as_str().with_context(|| format!("{field} of {component}"))?.to_owned())
    };
    let mut names = BTreeSet::new();
    let mut known = BTreeSet::from([text(whole, "bom-ref")?]);
    for component in components {
        let (name, version) = (text(component, "name")?, text(component, "version")?);
        names.insert(format!("{name}-{version}"));
        // What cargo-about has a notice of is linked, and has a licence that packaging/about.toml accepts.
        let is_noted = inside.notices.lines().any(|line| line == format!("  {name} {version}"));
        let is_of_others = component["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:cargo/"));
        ensure!(is_noted || !is_of_others, "no notice of {name} {version}: scripts/notices");
        ensure!(known.insert(text(component, "purl")?), "{name} {version} is there twice");
    }
    // The library has the paths of some sources, for its messages.
    let found = crates_in(&fs::read(inside.library)?)?;
    ensure!(found.iter().any(|name| name.starts_with("pgrx-")), "the library names no crates: {found:?}");
    let missing: Vec<_> = found.difference(&names).collect();
    ensure!(missing.is_empty(), "the library has these crates as well: {missing:?}");
    let reached = reached(&sbom, &text(whole, "bom-ref")?)?;
    ensure!(reached == known, "what uses what leads to {reached:#?}, and there is {known:#?}");
    println!("   the bill of materials of {package} names {} components", components.len());
    Ok(())
}

/// "NAME-VERSION" of each whose source has a path in there.
fn crates_in(library: &[u8]) -> Result<BTreeSet<String>> {
    let path = Regex::new(r"(?-u)registry/src/[^/]+/([A-Za-z0-9_.+-]+)/")?;
    let names = path.captures_iter(library).map(|found| String::from_utf8_lossy(&found[1]).into_owned());
    Ok(names.collect())
}

/// What the package uses, and what that uses in turn.
fn reached(sbom: &Value, start: &str) -> Result<BTreeSet<String>> {
    let mut uses = BTreeMap::new();
    for entry in sbom["dependencies"].as_array().context("dependencies")? {
        uses.insert(entry["ref"].as_str(), entry["dependsOn"].as_array().context("dependsOn")?);
    }
    let mut reached = BTreeSet::new();
    let mut next = vec![start];
    while let Some(component) = next.pop() {
        if reached.insert(component.to_owned()) {
            let used = uses.get(&Some(component)).with_context(|| format!("what {component} uses"))?;
            next.extend(used.iter().filter_map(Value::as_str));
        }
    }
    Ok(reached)
}
