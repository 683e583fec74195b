//! What documents refer to exists: tests, whose names a reader takes in at a glance, mutants and faults of `scripts/chaos`,
//! the version, pages and their sections.

use super::pages::{DOCUMENTS, code, read, root, table};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::column;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

// ---- the tables of promises, of faults and of tools ----

/// The places of the tests that they name, as `folder::file::test` and `file::test`.
const TESTS: [&str; 3] =
    ["pg_test/server/tests/all", "crates/snowflake_core/tests/core", "crates/snowflake_core/tests"];

/// The first cells of a table, in its order.
fn first_cells(rows: &[Vec<String>]) -> Vec<&str> {
    rows.iter().map(|row| row[0].as_str()).collect()
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    let rows = table(&read("pg_test/README.md"), &["promise", "shown by"]);
    assert_all_shown(&rows, 2);
    let reliability = read("docs/reliability.md");
    let guarantees: Vec<&str> = reliability
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(|line| line.split("**").nth(1)?.strip_suffix('.'))
        .collect();
    assert!(guarantees.len() >= 9, "{guarantees:?}");
    assert!(first_cells(&rows).starts_with(&guarantees), "{guarantees:?}");
}

#[test]
fn every_mutant_breaks_one_promise() {
    let rows = table(&read("pg_test/README.md"), &["promise", "shown by"]);
    let promises = first_cells(&rows);
    for mutant in fs::read_dir(root().join("crates/snowflake_core/mutants")).expect("mutants") {
        let path = mutant.expect("a file").path();
        let text = fs::read_to_string(&path).expect("a mutant");
        let broken: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("Breaks: ")).collect();
        assert!(broken.len() == 1 && promises.contains(&broken[0]), "{}: {broken:?}", path.display());
    }
}

#[test]
fn every_fault_of_the_table_names_tests_that_exist() {
    let header = ["fault", "what the server does", "IDs unavailable for", "shown by"];
    let rows = table(&read("pg_test/README.md"), &header);
    assert!(rows.len() >= 40, "{} rows", rows.len());
    assert_all_shown(&rows, 4);
}

#[test]
fn every_kind_of_chaos_shows_something() {
    let page = read("pg_test/README.md");
    let source = read("pg_test/chaos/src/faults.rs");
    // Their names are the only strings of small letters there.
    let is_name = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let kinds: Vec<&str> = source.split('"').skip(1).step_by(2).filter(is_name).collect();
    assert!(kinds.len() >= 40, "{kinds:?}");
    let missing: Vec<_> = kinds.iter().filter(|kind| !page.contains(&format!("`chaos {kind}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_tool_of_the_table_names_tests_that_exist() {
    let rows = table(&read("pg_test/README.md"), &["tool", "shown by"]);
    assert_all_shown(&rows, 2);
    let of_users = table(&read("docs/high-availability.md"), &["tool", "with this extension"]);
    let tools = |rows: &[Vec<String>]| rows.iter().flat_map(|row| code(&row[0])).collect::<BTreeSet<_>>();
    assert_eq!(tools(&rows), tools(&of_users));
}

/// The last column of tables with this many columns names tests, or faults of `scripts/chaos`.
fn assert_all_shown(rows: &[Vec<String>], columns: usize) {
    for row in rows {
        assert_eq!(row.len(), columns, "{row:?}");
        // A heading within the table.
        if row[0].starts_with("**") {
            continue;
        }
        let shown_by = code(&row[columns - 1]);
        assert!(!shown_by.is_empty(), "nothing shows {:?}", row[0]);
        shown_by.iter().for_each(|test| assert_exists(test));
    }
}

/// A test, as `file::test`, or a fault of `scripts/chaos`, as `chaos fault`.
fn assert_exists(test: &str) {
    if let Some(kind) = test.strip_prefix("chaos ") {
        let chaos = read("pg_test/chaos/src/faults.rs");
        assert!(chaos.contains(&format!("kind(\"{kind}\",")), "scripts/chaos has no fault {kind}");
        return;
    }
    let (file, name) = test.rsplit_once("::").unwrap_or_else(|| panic!("{test} is no test"));
    let file = file.replace("::", "/");
    let files = TESTS.map(|folder| root().join(folder).join(&file).with_extension("rs"));
    let source = files.iter().find_map(|file| fs::read_to_string(file).ok());
    let source = source.unwrap_or_else(|| panic!("{test}: there is no {file}.rs"));
    // At the top level of its file: the test of a module within would have a longer name.
    assert!(source.contains(&format!("\nfn {name}()")), "{test} does not exist");
}

/// The Rust sources in a folder and in those below it.
pub fn sources(folder: PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| if path.is_dir() { sources(path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .collect()
}

#[test]
fn no_test_has_a_name_of_over_80_characters() {
    let folders = ["crates", "pg_test", "portable", "src", "studies", "xtask"];
    let files: Vec<PathBuf> = folders.iter().flat_map(|folder| sources(root().join(folder))).collect();
    assert!(files.len() > 100, "{files:?}");
    let names: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).expect("a source");
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next());
            let is_long = |name: &&str| name.len() > 80 && !name.contains(' ');
            names.filter(is_long).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    assert!(names.is_empty(), "{names:#?}");
}

// ---- the version ----

#[test]
fn one_version_is_named_everywhere() {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let control = read("snowflake_id.control");
    assert!(control.contains("default_version = '@CARGO_VERSION@'"), "{control}");
    let changes = read("CHANGELOG.md");
    let mut headings = changes.lines().filter(|line| line.starts_with("## "));
    assert!(headings.any(|heading| heading.contains(VERSION)), "CHANGELOG.md has no {VERSION}");
    // Each with the number of times that it names the version.
    for (file, times) in [
        ("META.json", 2),
        ("README.md", 2),
        ("docs/installing.md", 3),
        ("packaging/cloudnative-pg/extension-image.yaml", 3),
        ("packaging/cloudnative-pg/image-catalog.yaml", 4),
    ] {
        let text = read(file);
        // The format of META.json has a version of its own, at the file's end.
        let text = text.split("\"meta-spec\"").next().unwrap_or_default();
        assert_eq!(text.matches(VERSION).count(), times, "{file} names {VERSION}");
    }
    let server = Server::builder().start();
    let versions = "SELECT version FROM pg_available_extension_versions WHERE name = 'snowflake_id'";
    assert_eq!(column::<String>(&mut server.connect(), versions), [VERSION]);
}

// ---- links ----

#[test]
fn every_link_leads_somewhere() {
    for document in
        DOCUMENTS.iter().chain(&["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "pg_test/README.md"])
    {
        let text = read(document);
        let folder = root().join(document).parent().expect("a folder").to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            // On GitHub, a repository's workflows are beside its files.
            if link.starts_with("https://") || link.starts_with("../../actions/workflows/test.yml") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { root().join(document) } else { folder.join(path) };
            assert!(target.exists(), "{document}: {link}");
            if !anchor.is_empty() {
                let target = std::fs::read_to_string(&target).expect("a page");
                let headings = target.lines().filter(|line| line.starts_with('#')).map(as_anchor);
                assert!(headings.into_iter().any(|heading| heading == anchor), "{document}: {link}");
            }
        }
    }
}

#[test]
fn the_index_names_each_page_by_its_title() {
    let index = read("docs/index.md");
    let entries =
        index.lines().filter_map(|line| line.strip_prefix("- [")?.split(')').next()?.split_once("]("));
    let entries: Vec<(&str, &str)> = entries.filter(|(_, path)| *path != "explorer.html").collect();
    for (title, path) in &entries {
        let page = read(&format!("docs/{path}"));
        assert_eq!(page.lines().next(), Some(format!("# {title}").as_str()), "{path}");
    }
    let listed = |path: &str| entries.iter().any(|(_, entry)| format!("docs/{entry}") == path);
    let missing: Vec<_> = DOCUMENTS.iter().filter(|path| !listed(path)).collect();
    assert_eq!(missing, [&"README.md", &"docs/index.md"]);
}

/// The anchor of a heading.
fn as_anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
