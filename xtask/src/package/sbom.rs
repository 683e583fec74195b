//! The bill of materials of a package: CycloneDX's schema has it, and it names what is in the library.

use crate::command::{read, run};
use anyhow::{Context, Result, ensure};
use regex::bytes::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What only tests and build scripts use.
const NOT_LINKED: [&str; 4] = ["pgrx-tests", "bindgen", "tempfile", "snowflake_server_tests"];

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
    let about = fs::read_to_string("packaging/about.toml")?;
    let accepted = accepted_in(&about).context("accepted = [...] in packaging/about.toml")?;
    let text = |component: &Value, field: &str| -> Result<String> {
        Ok(component[field].as_str().with_context(|| format!("{field} of {component}"))?.to_owned())
    };
    let mut names = BTreeSet::new();
    let mut known = BTreeSet::from([text(whole, "bom-ref")?]);
    for component in components {
        let (name, version) = (text(component, "name")?, text(component, "version")?);
        let license = text(&component["licenses"][0], "expression")?;
        ensure!(
            is_accepted(&license, &accepted),
            "packaging/about.toml does not accept the license of {name}, {license}"
        );
        ensure!(!NOT_LINKED.contains(&&*name), "{name} is not in the library");
        names.insert(format!("{name}-{version}"));
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

/// The licences that the list for cargo-about names.
fn accepted_in(about: &str) -> Option<BTreeSet<&str>> {
    let list = about.split_once("\naccepted = [")?.1.split_once(']')?.0;
    Some(list.split(',').map(|name| name.trim().trim_matches('"')).collect())
}

/// Whether an expression of SPDX leaves the choice of licences that are all accepted.
fn is_accepted(expression: &str, accepted: &BTreeSet<&str>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any(&mut words, accepted) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, accepted: &BTreeSet<&str>) -> bool {
    let mut is = all(words, accepted);
    while words.next_if_eq(&"OR").is_some() {
        is |= all(words, accepted);
    }
    is
}

fn all(words: &mut Words<'_>, accepted: &BTreeSet<&str>) -> bool {
    let mut is = one(words, accepted);
    while words.next_if_eq(&"AND").is_some() {
        is &= one(words, accepted);
    }
    is
}

fn one(words: &mut Words<'_>, accepted: &BTreeSet<&str>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let is = any(words, accepted);
        return words.next_if_eq(&")").is_some() && is;
    }
    let name = words.next().unwrap_or_default();
    match words.next_if_eq(&"WITH").and_then(|_| words.next()) {
        Some(exception) => accepted.contains(&*format!("{name} WITH {exception}")),
        None => accepted.contains(name),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn crates_are_found_by_the_paths_of_their_sources() {
        let library =
            b"\xff/x/registry/src/index.crates.io-1/pgrx-pg-sys-0.18.1/src/a.rs\0registry/src/i/b-1.0.0+2/b";
        let found = crates_in(library).unwrap();
        assert_eq!(found, ["b-1.0.0+2", "pgrx-pg-sys-0.18.1"].map(str::to_owned).into());
    }

    #[test]
    fn a_licence_is_one_of_the_list() {
        let accepted = accepted_in("# x\naccepted = [\"MIT\", \"Zlib\"]\ntargets = [\"y\"]\n").unwrap();
        assert_eq!(accepted, ["MIT", "Zlib"].into());
        for fine in ["MIT", "GPL-3.0 OR MIT", "MIT AND (GPL-3.0 OR Zlib)", "GPL-3.0 AND Zlib OR MIT"] {
            assert!(is_accepted(fine, &accepted), "{fine}");
        }
        let other = [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT WITH x",
            "(MIT",
            "MIT/Zlib",
            "MIT Zlib",
            "MIT AND (GPL-3.0 OR y)",
        ];
        for other in other {
            assert!(!is_accepted(other, &accepted), "{other}");
        }
    }

    #[test]
    fn a_component_is_reached_through_others() {
        let uses = |what: &[&str]| json!({ "ref": what[0], "dependsOn": what[1..] });
        let sbom =
            json!({ "dependencies": [uses(&["a", "b"]), uses(&["b", "c"]), uses(&["c"]), uses(&["d"])] });
        assert_eq!(reached(&sbom, "a").unwrap(), ["a", "b", "c"].map(str::to_owned).into());
        assert!(reached(&json!({ "dependencies": [uses(&["a", "b"])] }), "a").is_err());
    }
}
