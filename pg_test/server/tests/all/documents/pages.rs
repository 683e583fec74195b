//! The manual's pages, with their blocks and tables, for the tests that compare them with the code.

use std::collections::BTreeMap;

pub use snowflake_server_tests::{read, root};

/// The documents that users read.
pub const DOCUMENTS: &[&str] = &[
    "README.md",
    "docs/benchmarks.md",
    "docs/citus.md",
    "docs/clients.md",
    "docs/comparison.md",
    "docs/fleet.md",
    "docs/high-availability.md",
    "docs/importing.md",
    "docs/index.md",
    "docs/installing.md",
    "docs/migration.md",
    "docs/monitoring.md",
    "docs/operations.md",
    "docs/partitioning.md",
    "docs/polling.md",
    "docs/portable.md",
    "docs/reading.md",
    "docs/registry.md",
    "docs/reliability.md",
    "docs/replication.md",
    "docs/settings.md",
    "docs/sql.md",
];

/// A part of a document that has a meaning here.
#[derive(Debug)]
pub enum Part {
    /// Line number, language with its options, text.
    Block(usize, String, String),
    /// Line number, text.
    Comment(usize, String),
}

pub fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut block: Option<(usize, String, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (&mut block, line.trim_end().strip_prefix("```")) {
            (None, Some(language)) => block = Some((number, language.to_owned(), String::new())),
            (Some(_), Some(_)) => {
                let (number, language, text) = block.take().expect("a block is open");
                parts.push(Part::Block(number, language, text));
            }
            (Some((_, _, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {
                assert!(
                    !line.trim_start().starts_with("```"),
                    "line {number}: an indented block is not played"
                );
                let comment = line.trim().strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
                parts.extend(comment.map(|comment| Part::Comment(number, comment.trim().to_owned())));
            }
        }
    }
    assert!(block.is_none(), "a block is not closed");
    parts
}

pub fn first_ini(text: &str) -> String {
    let ini = parts(text).into_iter().find_map(|part| match part {
        Part::Block(_, language, text) if language == "ini" => Some(text),
        _ => None,
    });
    ini.expect("an ini block")
}

/// Lines of `postgresql.conf`.
pub fn conf(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line} is no setting"));
            (name.trim().to_owned(), value.trim().trim_matches('\'').to_owned())
        })
        .collect()
}

/// The rows of the tables whose header starts with these cells, each as its cells.
pub fn table(text: &str, header: &[&str]) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_start_matches('|').trim_end_matches('|');
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let is_header = |line: &&str| line.starts_with('|') && cells(line).starts_with(&owned(header));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().any(is_header), "no table {header:?}");
    let starts = (0..lines.len()).filter(|at| is_header(&lines[*at]));
    let rows = starts.flat_map(|at| lines[at + 2..].iter().take_while(|line| line.starts_with('|')));
    rows.map(|line| cells(line)).collect()
}

/// The rows of all such tables, in any document.
pub fn tables(header: &[&str]) -> Vec<Vec<String>> {
    let starts = |text: &str| text.contains(&format!("\n| {} |", header.join(" | ")));
    let texts: Vec<String> =
        DOCUMENTS.iter().map(|document| read(document)).filter(|text| starts(text)).collect();
    assert!(!texts.is_empty(), "no table {header:?}");
    texts.iter().flat_map(|text| table(text, header)).collect()
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// The text between backticks.
pub fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
