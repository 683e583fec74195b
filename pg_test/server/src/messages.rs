//! What the extension reports, as PostgreSQL prints it: each error, warning and line of the log that any test of a server
//! meets is one of `messages.txt`, whole.

use crate::Failure;
use regex::Regex;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ARE_COMPARED: AtomicBool = AtomicBool::new(true);

/// For a program that is no test, and may meet a message that no test has.
pub fn leave_uncompared() {
    ARE_COMPARED.store(false, Ordering::Relaxed);
}

/// The lines of `messages.txt`, in each of which `*` stands for any text: message, DETAIL and HINT; the message alone.
static APPROVED: LazyLock<Vec<[Regex; 2]>> = LazyLock::new(|| {
    let fits = |text: &str| Regex::new(&format!("(?s)^{}$", regex::escape(text).replace(r"\*", ".*")));
    let lines = include_str!("messages.txt").lines();
    lines.map(|line| [line, message_of(line)].map(|text| fits(text).expect("a line"))).collect()
});

fn message_of(line: &str) -> &str {
    line.split(" DETAIL: ").next().unwrap_or(line)
}

/// What PostgreSQL itself says of the extension's objects and processes.
const OF_POSTGRES: &str = "^(permission denied|must be |function |window function |value for domain |\
    background worker |server process |process [0-9]|deadlock detected|archive command |parse tree|trapped|read committed)";

/// A message with "snowflake" outside of quoted names is the extension's, and so is one that begins as its own do.
#[track_caller]
pub(crate) fn assert_approved(level: &str, failure: &Failure) {
    // A line of the log gives the reason in the words of a call's error.
    let text = format!("{level} {failure}").replace(
        "LOG 00000: snowflake_id: cannot generate IDs",
        "ERROR 55000: cannot generate a snowflake ID",
    );
    if ARE_COMPARED.load(Ordering::Relaxed) && !APPROVED.iter().any(|[whole, _]| whole.is_match(&text)) {
        let quoted = Regex::new(r#""[^"]*""#).expect("a pattern");
        let is_of_postgres = Regex::new(OF_POSTGRES).expect("a pattern").is_match(&failure.message);
        let is_named = quoted.replace_all(&failure.text(), "").contains("snowflake") && !is_of_postgres;
        let begins_as_ours = APPROVED.iter().any(|[_, message]| message.is_match(message_of(&text)));
        assert!(!is_named && !begins_as_ours, "not in messages.txt: {text}");
    }
}

/// As `assert_approved`, for all that a server has logged.
#[track_caller]
pub(crate) fn assert_log_approved(log: &str) {
    // Only with the `log_line_prefix` of this crate's servers.
    let line = r"(?m)^[-0-9]+ [0-9:.]+ [A-Z]+ \[[0-9]+\] ([0-9A-Z]{5}) ([A-Z0-9]+):  (.*(?:\n\t.*)*)";
    let mut reports: Vec<(&str, Failure)> = Vec::new();
    for line in Regex::new(line).expect("a pattern").captures_iter(log) {
        let (_, [code, level, text]) = line.extract();
        let text = text.replace("\n\t", "\n");
        match (level, reports.last_mut()) {
            ("DETAIL", Some((_, report))) => report.detail = text,
            ("HINT", Some((_, report))) => report.hint = text,
            ("CONTEXT" | "LOCATION" | "QUERY" | "STATEMENT", _) => {}
            _ => {
                let [detail, hint] = [String::new(), String::new()];
                reports.push((level, Failure { code: code.to_owned(), message: text, detail, hint }));
            }
        }
    }
    for (level, report) in reports {
        assert_approved(level, &report);
    }
}
