//! The manual's errors and lines of the log are those of the code and of the SQL. A message needs a row there unless its
//! HINT suffices, so each without a HINT has one.

use super::pages::{read, root, table};
use super::references::sources;
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;

/// The sources of the messages, with the path of the state file filled in.
fn messages() -> String {
    let files = ["gate", "reading"].map(|file| read(&format!("src/messages/{file}.rs")));
    files.concat().replace("{STATE_FILE}", "snowflake_id/state")
}

/// SQLSTATE or level, and message, of what SQL raises, but for the refusals of functions for administrators.
fn raised() -> Vec<(String, String)> {
    // "%s" in the code is "…" in the manual; a text with one word is none.
    let texts = |part: &str| {
        let literal = Regex::new("'((?:[^']|'')*)'").expect("a pattern");
        let texts = literal.captures_iter(part).map(|text| text[1].replace("''", "'").replace("%s", "…"));
        texts.filter(|text| text.contains(' ')).collect::<Vec<_>>()
    };
    let raise = r"(?s)(?:ERRCODE = '([0-9A-Za-z_]+)',[ \n]*)?MESSAGE = (.*?),[ \n]*(?:DETAIL|HINT) =";
    let call = r"_error\('([0-9A-Z]+)',[ \n]*(?:pg_catalog\.format\()?('(?:[^']|'')*')";
    let mut found = Vec::new();
    for (file, pattern) in [
        ("sql/layout.sql", raise),
        ("sql/importing.sql", raise),
        ("sql/replication.sql", raise),
        ("portable/snowflake_id.sql", raise),
        ("portable/snowflake_id.sql", call),
    ] {
        for raised in Regex::new(pattern).expect("a pattern").captures_iter(&read(file)) {
            let state = match raised.get(1).map_or("WARNING", |state| state.as_str()) {
                "insufficient_privilege" => "42501",
                "feature_not_supported" => "0A000",
                "integrity_constraint_violation" => "23000",
                "trigger_protocol_violated" => "39P01",
                "object_not_in_prerequisite_state" => "55000",
                state => state,
            };
            found.extend(texts(&raised[2]).into_iter().map(|text| (state.to_owned(), text)));
        }
    }
    found
}

/// The text of all string literals as a user sees them: continued lines joined, quotes unescaped.
fn as_printed(source: &str) -> String {
    let mut lines = source.split("\\\n");
    let mut joined = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        joined.push_str(line.trim_start());
    }
    joined.replace("\\\"", "\"")
}

/// What the page on operations has in the place of the SQLSTATE of a line of the log.
const LOGGED: &str = "LOG";

/// SQLSTATE and message of the errors and lines of the log on the page on operations. A row has those of one cause.
fn rows_of_operations() -> Vec<(String, String)> {
    let rows = table(&read("docs/operations.md"), &["SQLSTATE and message", "what to do"]);
    let messages = rows.iter().flat_map(|row| {
        let pieces: Vec<&str> = row[0].split('`').collect();
        let messages = pieces.chunks_exact(2).map(|two| (two[0].trim_start_matches("<br>").trim(), two[1]));
        messages.map(|(state, message)| (state.to_owned(), message.to_owned())).collect::<Vec<_>>()
    });
    messages.collect()
}

/// SQLSTATE and message of the errors in the manual.
fn stated_errors() -> Vec<(String, String)> {
    rows_of_operations().into_iter().filter(|(state, _)| state != LOGGED).collect()
}

#[test]
fn every_error_message_of_the_manual_is_in_the_code() {
    let source = as_printed(&messages());
    let raised = raised();
    for (state, message) in stated_errors() {
        if raised.iter().any(|(other, text)| *other == state && is_stated_as(text, &message)) {
            continue;
        }
        // "…" stands for what the message is about.
        for part in message.split('…').filter(|part| !part.trim_matches(['"', ' ', ':']).is_empty()) {
            assert!(source.contains(part), "no error says {part:?}");
        }
    }
}

/// Whether a text is what the manual states, where "…" stands for anything.
fn is_stated_as(text: &str, stated: &str) -> bool {
    let pattern = stated.split('…').map(regex::escape).collect::<Vec<_>>().join(".*");
    Regex::new(&format!("^{pattern}$")).expect("a pattern").is_match(text)
}

#[test]
fn every_error_of_the_sql_has_a_hint_or_is_in_the_manual() {
    let stated = stated_errors();
    assert!(raised().len() >= 20, "the SQL has changed its form; found {:?}", raised());
    let folder = fs::read_dir(root().join("sql")).expect("the folder sql");
    let files = folder.map(|entry| entry.expect("a file").path());
    for file in files.chain([root().join("portable/snowflake_id.sql")]) {
        let source = fs::read_to_string(&file).expect("SQL");
        let statements =
            |start| source.split(start).skip(1).map(|rest: &str| rest.split(";\n").next().unwrap_or(rest));
        // The generator in PL/pgSQL catches SFID1 and SFID2 itself.
        for statement in statements("RAISE EXCEPTION").filter(|statement| !statement.contains("'SFID")) {
            let is_explained = statement.contains("DETAIL = ") && statement.contains("HINT = ");
            let message = statement.split("MESSAGE = '").nth(1).and_then(|rest| rest.split('\'').next());
            let is_stated =
                || stated.iter().any(|(_, text)| message.is_some_and(|found| is_stated_as(found, text)));
            assert!(is_explained || is_stated(), "{}: {statement}", file.display());
        }
        for call in statements("snowflake_error('") {
            assert!(!call.contains(", '')"), "{}: no hint: {call}", file.display());
        }
    }
}

/// SQLSTATE and message of the calls that make errors in `src/messages`, `error(STATE, "…"` and `not_ready("…"`, either
/// with a `format!`; and whether their function gives each a HINT.
fn errors_of_the_code() -> Vec<(&'static str, String, bool)> {
    let states = [
        ("READ_ONLY", "25006"),
        ("WRONG_STATE", "25000"),
        ("INVALID", "22023"),
        ("OVERFLOW", "22008"),
        ("UNSUPPORTED", "0A000"),
    ];
    let message = |text: &str| {
        let start = text.find('"').expect("a message") + 1;
        let text = as_printed(&text[start..].replace("\\\"", "”"));
        text[..text.find('"').expect("its end")].replace('”', "\"")
    };
    let mut errors = Vec::new();
    for function in messages().split("\nfn ").flat_map(|part| part.split("\npub fn ")) {
        let has_hint = !function.contains("NO_HINT,\n") && !function.contains("NO_HINT)");
        for call in function.split(" error(").skip(1).map(str::trim_start) {
            let state = states.iter().find(|(name, _)| call.starts_with(name));
            let (_, state) = state.unwrap_or_else(|| panic!("no state: {call:.80}"));
            errors.push((*state, message(call), has_hint));
        }
        for call in function.split(" not_ready(").skip(1).map(str::trim_start) {
            assert!(call.starts_with(['"', 'f']), "no message: {call:.80}");
            errors.push(("55000", message(call), has_hint));
        }
    }
    errors
}

#[test]
fn every_error_of_the_code_without_a_hint_is_in_the_manual() {
    let errors = errors_of_the_code();
    assert!(errors.len() >= 33, "the code has changed its form; found {errors:?}");

    let stated = stated_errors();
    for (state, message, _) in errors.into_iter().filter(|(_, _, has_hint)| !has_hint) {
        let shown = shown(&message);
        assert!(stated.contains(&(state.to_owned(), shown.clone())), "missing: {state} {shown}");
    }
}

/// The lines that the server logs by itself.
#[test]
fn the_manual_has_every_line_of_the_log_without_a_hint() {
    let source = as_printed(&read("src/messages/log.rs").replace("\\\"", "”"));
    // A line's text, and the code and texts up to the next line.
    let lines = source.split("\"snowflake_id: ").skip(1).map(|rest| {
        let (text, rest) = rest.split_once('"').expect("its end");
        (format!("snowflake_id: {text}"), !rest.contains("NO_HINT"))
    });
    // The registry's server logs from SQL.
    let registry = read("sql/registry_nodes.sql");
    let of_registry = registry.split("RAISE LOG '").skip(1).map(|rest| {
        let text = rest.split('\'').next().expect("a text").to_owned();
        (text, rest.split(";\n").next().expect("a statement").contains("HINT = "))
    });
    // "{worker}" in the code is "…" in the manual.
    let logged: Vec<(String, bool)> = lines
        .chain(of_registry)
        .map(|(text, has_hint)| (shown(&text.replace('”', "\"")), has_hint))
        .collect();
    let with_hint = logged.iter().filter(|(_, has_hint)| *has_hint).count();
    assert!(logged.len() >= 20 && with_hint >= 10, "the code has changed its form; found {logged:?}");
    let rows = rows_of_operations();
    let stated: BTreeSet<&str> =
        rows.iter().filter(|(state, _)| state == LOGGED).map(|(_, message)| message.as_str()).collect();
    for (text, _) in logged.iter().filter(|(_, has_hint)| !has_hint) {
        assert!(stated.contains(text.as_str()), "missing: {text}");
    }
    for text in stated {
        assert!(logged.iter().any(|(logged, _)| logged == text), "no line of the log says {text}");
    }
}

/// "{id}" in the code is "…" in the manual.
fn shown(text: &str) -> String {
    text.split(['{', '}']).step_by(2).collect::<Vec<_>>().join("…")
}

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
