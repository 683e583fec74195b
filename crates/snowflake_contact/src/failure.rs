//! Why a contact has no answer.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where to look, which decides what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// On this server: libpq cannot be loaded, or the process that makes the contact did not work.
    Server,
    /// On the way: the connection string, hosts and network, the role and its rights.
    Connection,
    /// On the registry: the call failed there.
    Call,
    /// The registry has another version: no such function, or an answer that this version does not know.
    Answer,
}

/// A contact without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong.
    pub kind: Kind,
    /// The cause in one line, in libpq's or the registry's words where they have some.
    pub text: String,
    /// What to do about it, in the registry's words where it has some.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure; its text becomes one line.
    pub fn new(kind: Kind, text: impl AsRef<str>) -> Self {
        Self { kind, text: one_line(text.as_ref()), hint: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The most bytes of a text that is passed on.
const LONGEST: usize = 1_000;

/// A text in one line: libpq has a line per host, and indents advice such as "Is the server running on that host?",
/// which is left out.
pub fn one_line(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('\t')).map(str::trim);
    let joined = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let plain: String = joined.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if plain.len() <= LONGEST {
        return plain;
    }
    format!("{}...", &plain[..plain.floor_char_boundary(LONGEST)])
}

/// libpq's text about a connection string. It quotes the part that it does not understand, and that may be a part of a
/// password: of `password=my secret` libpq says `missing "=" after "secret"`. So if the string may have a password, no
/// quoted part that stands in it is passed on.
pub fn about_string(message: &str, connection_string: &str) -> String {
    if connection_string.contains("passw") || connection_string.contains('@') {
        without_parts_of(connection_string, message)
    } else {
        message.to_owned()
    }
}

/// libpq's text about an attempt to connect. It quotes hosts and ports: of `postgresql://node:my@secret@host` libpq
/// takes `secret@host` for the host, of `postgresql://node:my/secret@host` it takes `my` for the port. So unless the
/// only `@` comes before the first `/`, no quoted part of the string is passed on.
pub fn about_connection(message: &str, connection_string: &str) -> String {
    let Some((_, uri)) = connection_string.split_once("://") else { return message.to_owned() };
    let (authority, rest) = uri.split_once('/').unwrap_or((uri, ""));
    if authority.matches('@').count() > 1 || rest.contains('@') {
        without_parts_of(connection_string, message)
    } else {
        message.to_owned()
    }
}

fn without_parts_of(connection_string: &str, message: &str) -> String {
    let parts = message.split('"').enumerate().map(|(i, part)| {
        let is_quoted = i % 2 == 1;
        if is_quoted && part != "=" && connection_string.contains(part) { "..." } else { part }
    });
    parts.collect::<Vec<_>>().join("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_several_hosts_become_one_line_without_advice() {
        let text = "connection to server at \"a\", port 1 failed: Connection refused\n\
                    \tIs the server running on that host and accepting TCP/IP connections?\n\
                    connection to server at \"b\", port 1 failed: timeout expired\n";
        assert_eq!(
            one_line(text),
            "connection to server at \"a\", port 1 failed: Connection refused; \
             connection to server at \"b\", port 1 failed: timeout expired"
        );
        assert_eq!(one_line("a\u{7}b\0c"), "a b c");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let cut = one_line(&"ü".repeat(LONGEST));
        assert_eq!(cut.len(), LONGEST + 3);
        assert!(cut.ends_with("ü..."));
    }

    #[test]
    fn no_part_of_a_password_is_passed_on() {
        let said =
            about_string("missing \"=\" after \"secret\" in connection info string", "password=my secret");
        assert_eq!(said, "missing \"=\" after \"...\" in connection info string");
        let said = about_string("invalid connection option \"hots\"", "hots=a");
        assert_eq!(said, "invalid connection option \"hots\"");

        let said = "could not translate host name \"secret@host\" to address: Name or service not known";
        assert!(!about_connection(said, "postgresql://node:my@secret@host/db").contains("secret"));
        assert_eq!(about_connection(said, "postgresql://node:my@host/db"), said);
        let said = "invalid integer value \"secret\" for connection option \"port\"";
        assert!(!about_connection(said, "postgresql://node:secret/more@host/db").contains("secret"));
    }
}
