//! The manual's errors and lines of the log are those that servers print, see `messages.txt`. A message needs a row there
//! unless its HINT suffices, so each without a HINT has one.

use super::pages::{read, root, table};
use super::references::sources;
use regex::Regex;
use std::fs;

/// Level or SQLSTATE, and message, of the errors and lines of the log on the page on operations. A row has those of one
/// cause; "…" stands for any text.
fn stated() -> Vec<(String, Regex)> {
    let rows = table(&read("docs/operations.md"), &["SQLSTATE and message", "what to do"]);
    let messages = rows.iter().flat_map(|row| {
        let pieces: Vec<&str> = row[0].split('`').collect();
        let messages = pieces.chunks_exact(2).map(|two| (two[0].trim_start_matches("<br>").trim(), two[1]));
        messages.map(|(state, message)| (state.to_owned(), fits(message))).collect::<Vec<_>>()
    });
    messages.collect()
}

fn fits(message: &str) -> Regex {
    Regex::new(&format!("^{}$", regex::escape(message).replace('…', ".*"))).expect("a pattern")
}

/// Level or SQLSTATE, message, and whether it has a HINT, of all that servers print.
fn printed() -> Vec<(String, String, bool)> {
    let text = read("pg_test/server/src/messages.txt");
    let parts = text.lines().map(|line| {
        let (state, rest) = line.split_once(": ").expect("level and SQLSTATE");
        let (message, hint) = rest.split_once(" DETAIL: ").expect("a DETAIL");
        let state = if state == "LOG 00000" { "LOG" } else { state.rsplit(' ').next().unwrap_or(state) };
        (state.to_owned(), message.to_owned(), !hint.ends_with("HINT: "))
    });
    parts.collect()
}

#[test]
fn the_manuals_messages_are_printed_and_it_has_those_without_a_hint() {
    let (stated, printed) = (stated(), printed());
    for (state, message) in &stated {
        let is_printed = printed.iter().any(|(other, text, _)| other == state && message.is_match(text));
        assert!(is_printed, "no server prints: {state} {message}");
    }
    for (state, text, _) in &printed {
        let may_have_hint = printed.iter().any(|(_, other, has_hint)| other == text && *has_hint);
        let is_stated = || stated.iter().any(|(other, message)| other == state && message.is_match(text));
        assert!(may_have_hint || is_stated(), "missing in the manual: {state} {text}");
    }
}

/// DETAIL says why, and only HINT what to do.
#[test]
fn no_detail_of_a_message_is_advice() {
    let advice = Regex::new(" DETAIL: (Add|Call|Check|Correct|If|Install|Move|Run|Set|Use|Wait) ");
    let advice = advice.expect("a pattern");
    let messages = read("pg_test/server/src/messages.txt");
    assert_eq!(messages.lines().find(|line| advice.is_match(line)), None);
}

/// All texts of the library are in one folder, which these tests read.
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
