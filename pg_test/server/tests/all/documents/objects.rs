//! Which sources may report.

use super::pages::root;
use super::references::sources;
use regex::Regex;
use std::fs;

/// All texts of the library are in one folder, which the tests of the manual read.
#[test]
fn only_the_messages_report() {
    let report = Regex::new(r"ErrorReport::new|(?-u:\b)(ereport|error|warning|notice|info|log|panic)!\(");
    let report = report.expect("a pattern");
    let mut files = sources(root().join("src"));
    files.retain(|file| !file.components().any(|part| part.as_os_str() == "messages"));
    assert!(files.len() >= 40, "{files:?}");
    files.retain(|file| report.is_match(&fs::read_to_string(file).expect("a source")));
    assert!(files.is_empty(), "{files:?}");
}
