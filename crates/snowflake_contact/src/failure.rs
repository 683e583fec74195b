//! The failure of a contact: no reply.

use serde::{Deserialize, Serialize};

/// The place of a failure, which determines the hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// On this server: libpq cannot be loaded, or the process that makes the contact failed.
    Server,
    /// On the way: the connection string, hosts and network, the role and its rights.
    Connection,
    /// On the registry: the call failed there.
    Call,
    /// The registry has another version: without such a function, or with a reply that this version cannot read.
    Answer,
}

/// A contact without a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The place of the failure.
    pub kind: Kind,
    /// The cause in one line: libpq's or the registry's text if there is one.
    pub text: String,
    /// The registry's hint, if it has one.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure; its text becomes one line.
    pub fn new(kind: Kind, text: impl AsRef<str>) -> Self {
        Self { kind, text: one_line(text.as_ref()), hint: None }
    }
}

/// Maximum length of a text, in bytes; a longer one is cut.
const LONGEST: usize = 1_000;

/// A text in one line: libpq has a line per host. Leaves out its indented advice.
pub fn one_line(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('\t')).map(str::trim);
    let joined = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let plain: String = joined.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if plain.len() <= LONGEST {
        return plain;
    }
    format!("{}...", &plain[..plain.floor_char_boundary(LONGEST)])
}

/// libpq's text about a connection string. It quotes the part that it cannot parse, which may be a part of a password: for
/// `password=my secret` the text is `missing "=" after "secret"`. So if the string may contain a password, quoted parts of
/// it are removed.
pub fn about_string(message: &str, connection_string: &str) -> String {
    if connection_string.contains("passw") || connection_string.contains('@') {
        without_parts_of(connection_string, message)
    } else {
        message.to_owned()
    }
}

/// libpq's text about an attempt to connect. It quotes hosts and ports: libpq takes `secret@host` for the host in
/// `postgresql://node:my@secret@host`, and `my` for the port in `postgresql://node:my/secret@host`. So unless the only `@`
/// comes before the first `/`, quoted parts of the string are removed.
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
                    \tIs the server running on that host and accepting TCP/IP connections?\n\n\
                    \x20connection to server at \"b\", port 1 failed: timeout expired\n";
        assert_eq!(
            Failure::new(Kind::Connection, text).text,
            "connection to server at \"a\", port 1 failed: Connection refused; \
             connection to server at \"b\", port 1 failed: timeout expired"
        );
        assert_eq!(one_line("a\u{7}b\0c"), "a b c");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(one_line(&"ü".repeat(500)), "ü".repeat(500));
        assert_eq!(one_line(&format!("a{}", "ü".repeat(500))), format!("a{}...", "ü".repeat(499)));
    }

    #[test]
    fn no_part_of_a_password_is_passed_on() {
        let said =
            about_string("missing \"=\" after \"secret\" in connection info string", "passwd=my secret");
        assert_eq!(said, "missing \"=\" after \"...\" in connection info string");
        let said = about_string("invalid connection option \"se\"", "postgresql://node:my@host?se=cret");
        assert_eq!(said, "invalid connection option \"...\"");
        let said = about_string("invalid connection option \"hots\"", "hots=a");
        assert_eq!(said, "invalid connection option \"hots\"");

        let said = "could not translate host name \"secret@host\" to address: Name or service not known";
        assert!(!about_connection(said, "postgresql://node:my@secret@host/db").contains("secret"));
        let said = "could not translate host name \"host\" to address: Name or service not known";
        for string in ["postgresql://node:my@host/db", "postgresql://node:my@host", "host=/host user=a@b"] {
            assert_eq!(about_connection(said, string), said);
        }
        let said = "invalid integer value \"secret\" for connection option \"port\"";
        let said = about_connection(said, "postgresql://node:secret/more@host/db");
        assert_eq!(said, "invalid integer value \"...\" for connection option \"port\"");
    }
}
