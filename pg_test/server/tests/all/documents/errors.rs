//! The manual's errors and lines of the log are those of the code and of the SQL.

use super::pages::{code, read, root, table, tables};
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;

/// The sources of the messages, with the path of the state file filled in.
fn messages() -> String {
    let files = ["gate", "reading"].map(|file| read(&format!("src/messages/{file}.rs")));
    files.concat().replace("{STATE_FILE}", "snowflake_id/state")
}

/// SQLSTATE or level, and message, of what SQL raises, but for the refusals of functions for administrators, which have
/// DETAIL and HINT in place of a row in the manual.
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

/// SQLSTATE and message of the errors in the manual: on the page on operations, and on those of single functions.
fn stated_errors() -> Vec<(String, String)> {
    let of_functions = tables(&["SQLSTATE", "message"]);
    let of_functions = of_functions.iter().map(|row| (row[0].clone(), code(&row[1]).remove(0)));
    rows_of_operations().into_iter().filter(|(state, _)| state != LOGGED).chain(of_functions).collect()
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
fn every_error_of_the_sql_is_in_the_manual_or_has_detail_and_hint() {
    let (raised, stated) = (raised(), stated_errors());
    assert!(raised.len() >= 20, "the SQL has changed its form; found {raised:?}");
    for (state, text) in &raised {
        let is_stated = stated.iter().any(|(other, message)| other == state && is_stated_as(text, message));
        assert!(is_stated, "missing: {state} {text}");
    }
    let folder = fs::read_dir(root().join("sql")).expect("the folder sql");
    for file in folder.map(|entry| entry.expect("a file").path()) {
        let source = fs::read_to_string(&file).expect("SQL");
        for statement in
            source.split("RAISE EXCEPTION").skip(1).map(|rest| rest.split(";\n").next().unwrap_or(rest))
        {
            let is_explained = ["DETAIL = ", "HINT = "].iter().all(|part| statement.contains(part));
            assert!(is_explained, "{}: {statement}", file.display());
        }
    }
}

/// SQLSTATE and message of the calls that make errors in `src/messages`: `error(STATE, "…"` and `not_ready("…"`, either
/// with a `format!`.
#[test]
fn every_error_of_the_code_is_in_the_manual() {
    let states = [
        ("NOT_READY", "55000"),
        ("NO_RIGHT", "42501"),
        ("READ_ONLY", "25006"),
        ("WRONG_STATE", "25000"),
        ("INVALID", "22023"),
        ("OVERFLOW", "22008"),
        ("UNSUPPORTED", "0A000"),
    ];
    let source = messages();
    let message = |text: &str| {
        let start = text.find('"').expect("a message") + 1;
        let text = as_printed(&text[start..].replace("\\\"", "”"));
        text[..text.find('"').expect("its end")].replace('”', "\"")
    };
    let calls = |name: &'static str| source.split(name).skip(1).map(str::trim_start);
    let mut errors: Vec<(&str, String)> = Vec::new();
    for call in calls(" error(") {
        let state = states.iter().find(|(name, _)| call.starts_with(name));
        let (_, state) = state.unwrap_or_else(|| panic!("no state: {call:.80}"));
        errors.push((state, message(call)));
    }
    for call in calls(" not_ready(") {
        assert!(call.starts_with(['"', 'f']), "no message: {call:.80}");
        errors.push(("55000", message(call)));
    }
    assert!(errors.len() >= 33, "the code has changed its form; found {errors:?}");

    let stated = stated_errors();
    for (state, message) in errors {
        // "{id}" in the code is "…" in the manual.
        let mut pieces = message.split(['{', '}']);
        let mut shown = pieces.next().unwrap_or_default().to_owned();
        while let (Some(_), Some(text)) = (pieces.next(), pieces.next()) {
            shown = shown + "…" + text;
        }
        assert!(stated.contains(&(state.to_owned(), shown.clone())), "missing: {state} {shown}");
    }
}

/// The lines that the server logs by itself.
#[test]
fn the_page_on_operations_has_every_line_of_the_log_and_no_other() {
    let source = as_printed(&read("src/messages/log.rs").replace("\\\"", "”"));
    // The registry's server logs from SQL.
    let registry = read("sql/registry_nodes.sql");
    let of_registry = registry.split("RAISE LOG '").skip(1).filter_map(|rest| rest.split('\'').next());
    // "{worker}" in the code is "…" in the manual.
    let logged: BTreeSet<Vec<String>> = source
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|text| text.starts_with("snowflake_id: "))
        .chain(of_registry)
        .map(|text| text.replace('”', "\"").split(['{', '}']).step_by(2).map(str::to_owned).collect())
        .collect();
    assert!(logged.len() >= 10, "the code has changed its form; found {logged:?}");
    let stated: BTreeSet<Vec<String>> = rows_of_operations()
        .iter()
        .filter(|(state, _)| state == LOGGED)
        .map(|(_, message)| message.split('…').map(str::to_owned).collect())
        .collect();
    assert_eq!(stated, logged);
}
