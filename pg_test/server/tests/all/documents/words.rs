//! Every text that the library and the SQL can show, held against the rules of `src/messages/mod.rs` that a program can
//! check. The texts are collected from the sources, and what a server can be asked for is asked for.
//!
//! A primary message, a line of the log and a COMMENT begin with a lower-case letter and end without a full stop.
//! DETAIL, HINT and the description of a setting are full sentences. No text is empty, has two lines, or has a word of
//! [`UNUSUAL`].

use regex::{Captures, Regex};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::column;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The files of a folder with such an end, from the root of the repository.
fn files(folder: &str, end: &str) -> Vec<String> {
    let entries =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)).expect(folder);
    let mut names: Vec<String> =
        entries.map(|entry| format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy())).collect();
    names.retain(|name| name.ends_with(end));
    names.sort();
    names
}

// ---- the rules ----

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A primary message, a line of the log, a comment: lower case, no full stop.
    Message,
    /// DETAIL, HINT, a description: full sentences.
    Sentence,
}

/// Words that no reader expects, or that only a reader of the sources knows, each with what is said instead.
const UNUSUAL: [(&str, &str); 22] = [
    ("is back", "moved backwards"),
    ("to come", "future"),
    ("away", "unavailable"),
    ("whoever", "who does what"),
    ("nobody can", "cannot"),
    ("makes IDs", "generates IDs"),
    ("make IDs", "generate IDs"),
    ("make an ID", "generate an ID"),
    ("makes an ID", "generates an ID"),
    ("make a snowflake", "generate a snowflake"),
    ("were made", "were generated"),
    ("are made", "are generated"),
    ("is made", "is generated"),
    ("made an ID", "generated an ID"),
    ("one a row", "one per row"),
    ("a row a", "one row per"),
    ("wall clock", "system clock"),
    ("is asked for", "who asks"),
    ("frontier", "newest ID"),
    ("ceiling", "reserved time"),
    ("journal", "state file"),
    ("panicked", "what went wrong"),
];

/// A sentence may begin with one of these, in lower case: they are names.
const NAMES: [&str; 2] = ["n", "floor"];

/// What is wrong with a text, by the rules.
fn problems(kind: Kind, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut tell = |problem: &str| found.push(format!("{problem}: {text:?}"));
    if text.trim().is_empty() {
        tell("empty");
        return found;
    }
    if text.contains('\n') || text.trim() != text || text.contains("  ") {
        tell("not one line");
    }
    for (unusual, usual) in UNUSUAL {
        let is_word = |at: usize| {
            let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
            !is_letter(text[..at].chars().next_back())
                && !is_letter(text[at + unusual.len()..].chars().next())
        };
        if text.match_indices(unusual).any(|(at, _)| is_word(at)) {
            tell(&format!("{unusual:?}, say {usual:?}"));
        }
    }
    let first = text.chars().next().expect("not empty");
    let word = text.split([' ', '.', ',']).next().unwrap_or_default();
    match kind {
        Kind::Message => {
            // A placeholder or a quoted name says nothing about the case.
            if first.is_uppercase() {
                tell("begins with a capital letter");
            }
            if text.ends_with(['.', '!', ':', ';', ',']) {
                tell("ends with a punctuation mark");
            }
        }
        Kind::Sentence => {
            if first.is_lowercase() && !word.contains(['_', '{']) && !NAMES.contains(&word) {
                tell("begins with a lower-case letter");
            }
            // A placeholder after a full stop, or at the very beginning, is a sentence itself.
            let mut rest = text;
            while let Some(at) = rest.rfind('{').filter(|_| rest.ends_with('}')) {
                rest = rest[..at].trim_end();
            }
            if !rest.is_empty() && !rest.ends_with('.') {
                tell("ends without a full stop");
            }
        }
    }
    found
}

/// Whether a literal is for a reader: words with a space between them.
fn is_prose(text: &str) -> bool {
    text.contains(' ') && text.contains(|c: char| c.is_alphabetic())
}

#[track_caller]
fn assert_all_right(texts: &[(Kind, String)], least: usize) {
    assert!(texts.len() >= least, "the sources have changed their form: {} texts", texts.len());
    let found: Vec<String> = texts.iter().flat_map(|(kind, text)| problems(*kind, text)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

// ---- tokens ----

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Literal(String),
    Sign(char),
}

impl Token {
    fn is(&self, sign: char) -> bool {
        *self == Token::Sign(sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self, Token::Word(this) if this.eq_ignore_ascii_case(word))
    }

    fn literal(&self) -> Option<&str> {
        if let Token::Literal(text) = self { Some(text) } else { None }
    }
}

/// The matches of a pattern: a group `literal`, whose text is still as in the source, a `word` or a `sign`. What is in none
/// of them, as a comment, is left out.
fn tokens(source: &str, pattern: &str, text_of: impl Fn(&str) -> String) -> Vec<Token> {
    let token = |found: Captures<'_>| {
        let literal = found.name("literal").map(|text| Token::Literal(text_of(text.as_str())));
        let word = || found.name("word").map(|word| Token::Word(word.as_str().to_owned()));
        literal.or_else(word).or_else(|| found.name("sign")?.as_str().chars().next().map(Token::Sign))
    };
    Regex::new(pattern).expect("a pattern").captures_iter(source).filter_map(token).collect()
}

/// Rust: comments, characters, literals. What opens with a quotation mark and is no character is a lifetime.
const RUST: &str = r##"(?xs) //[^\n]* | '(?:\\.[^']*|[^\\'])' | (?<literal> r\#".*?"\# | c?"(?:[^"\\]|\\.)*" )
    | (?<word>[0-9A-Za-z_]+) | (?<sign>[^\ \n])"##;

/// Literals have their escapes and continued lines resolved.
fn rust_tokens(source: &str) -> Vec<Token> {
    let escape = Regex::new(r"(?s)\\(\n[ \n]*|.)").expect("a pattern");
    tokens(source, RUST, |literal| {
        if literal.starts_with("r#") {
            return literal[3..literal.len() - 2].to_owned();
        }
        let quoted = literal.trim_start_matches('c');
        let inside = &quoted[1..quoted.len() - 1];
        let resolved = |found: &Captures<'_>| match &found[1] {
            "n" => "\n".to_owned(),
            text => text.trim_start().to_owned(),
        };
        escape.replace_all(inside, resolved).into_owned()
    })
}

/// SQL: comments, literals with those that SQL joins to them. Bodies between `$$` belong to the rest.
const SQL: &str = r"(?x) --[^\n]* | (?<literal> '(?:[^']|'')*' (?: (?:[\ \n]|--[^\n]*\n)+ '(?:[^']|'')*' )* )
    | (?<word>[0-9A-Za-z_]+) | (?<sign>[^\ \n])";

/// Literals have their doubled quotes resolved.
fn sql_tokens(source: &str) -> Vec<Token> {
    let part = Regex::new("'((?:[^']|'')*)'").expect("a pattern");
    tokens(source, SQL, |literal| {
        part.captures_iter(literal).map(|part| part[1].replace("''", "'")).collect()
    })
}

/// The expressions up to the end of the parentheses in which `tokens` begins, or up to the end of the list.
fn expressions(tokens: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0;
    let (mut start, mut list) = (0, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        let is_end = depth == 0
            && (matches!(token, Token::Sign(')' | ';'))
                || ["FROM", "WHERE", "HAVING"].iter().any(|word| token.is_word(word)));
        if is_end || depth == 0 && token.is(',') {
            list.push(&tokens[start..at]);
            start = at + 1;
        }
        if is_end {
            break;
        }
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
    }
    list.retain(|expression| !expression.is_empty());
    list
}

// ---- the library ----

/// Parts of messages, and what a display says: they follow the rule of a message.
const FRAGMENTS: [&str; 6] = [
    "cannot execute {function}{cause}",
    "{cause}: {}",
    "waiting until the system clock has passed all times that may have been used: {} left",
    "the registry's answer does not fit this server's settings",
    "snowflake_id.registry is not set",
    "could not write file \"{STATE_FILE}\": {}",
];

/// The texts of a file of `src/messages`: calls of `error`, `not_ready` and `said` have a message, a DETAIL and a HINT.
/// All other literals are sentences for these, unless they begin as a line of the log does.
fn texts_of_messages(source: &str) -> Vec<(Kind, String)> {
    let tokens = rust_tokens(source);
    let mut texts = Vec::new();
    let mut is_message = vec![false; tokens.len()];
    for (at, token) in tokens.iter().enumerate() {
        let skipped = match token {
            Token::Word(name) if name == "error" => 1,
            Token::Word(name) if name == "not_ready" || name == "said" => 0,
            _ => continue,
        };
        let is_called = tokens.get(at + 1).is_some_and(|next| next.is('('))
            && !tokens[at - 1].is('.')
            && !tokens[at - 1].is_word("fn");
        if !is_called {
            continue;
        }
        let arguments = expressions(&tokens[at + 2..]);
        assert_eq!(arguments.len(), 3 + skipped, "the arguments of {token:?}: {arguments:?}");
        let message = arguments[skipped];
        let from = message.as_ptr() as usize - tokens.as_ptr() as usize;
        let from = from / std::mem::size_of::<Token>();
        is_message[from..from + message.len()].fill(true);
    }
    for (at, token) in tokens.iter().enumerate() {
        let Some(text) = token.literal() else { continue };
        let is_internal = at >= 2
            && ["unreachable", "expect", "panic"].iter().any(|word| tokens[at - 2].is_word(word))
            || at >= 3 && tokens[at - 3].is_word("unreachable");
        if is_internal {
            continue;
        }
        let is_fragment = FRAGMENTS.contains(&text) || text.starts_with("snowflake_id: ");
        if is_message[at] || is_fragment {
            texts.push((Kind::Message, text.to_owned()));
        } else if is_prose(text) || text.is_empty() {
            texts.push((Kind::Sentence, text.to_owned()));
        }
    }
    texts
}

/// The sentences of a file whose literals are details, hints and descriptions.
fn sentences(source: &str, left_out: &[&str]) -> Vec<(Kind, String)> {
    let tokens = rust_tokens(source);
    let mut texts = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        // `expect("…")`, `reason = "…"`, `note: "…"`.
        let is_left_out = at >= 2
            && ["expect", "reason", "note", "unreachable"].iter().any(|word| tokens[at - 2].is_word(word))
            || at >= 3 && tokens[at - 3].is_word("unreachable");
        let text = token.literal().filter(|text| is_prose(text) && !is_left_out && !left_out.contains(text));
        texts.extend(text.map(|text| (Kind::Sentence, text.to_owned())));
    }
    texts
}

#[test]
fn the_texts_of_errors_and_of_the_log_follow_the_rules() {
    let names = files("src/messages", ".rs");
    assert!(names.len() >= 5, "{names:?}");
    let sources = names.iter().filter(|name| !name.ends_with("/mod.rs"));
    let texts: Vec<_> = sources.flat_map(|name| texts_of_messages(&read(name))).collect();
    assert_all_right(&texts, 100);
    let messages = texts.iter().filter(|(kind, _)| *kind == Kind::Message).count();
    assert!(messages >= 45, "{messages} messages");
}

/// Nobody else reports anything, so that the texts above are all.
#[test]
fn only_the_messages_report() {
    let folders = ["src", "src/functions", "src/settings"];
    let names: Vec<String> = folders.iter().flat_map(|folder| files(folder, ".rs")).collect();
    assert!(names.len() >= 20, "{names:?}");
    for name in names {
        let source = read(&name);
        for word in [
            "ErrorReport::new",
            "ereport!(",
            " error!(",
            " warning!(",
            " notice!(",
            " info!(",
            " log!(",
            " panic!(",
        ] {
            assert!(!source.contains(word), "{name}: {word}");
        }
    }
}

#[test]
fn what_is_said_about_settings_follows_the_rules() {
    let texts: Vec<_> =
        files("src/settings", ".rs").iter().flat_map(|name| sentences(&read(name), &[])).collect();
    assert_all_right(&texts, 28);
}

#[test]
fn what_is_said_about_layouts_and_base62_follows_the_rules() {
    let core = ["layout", "foreign", "base62"].map(|file| format!("crates/snowflake_core/src/{file}.rs"));
    let mut texts: Vec<_> = core.iter().flat_map(|name| sentences(&read(name), &[])).collect();
    // Layouts, not sentences.
    texts.retain(|(_, text)| !text.starts_with(|c: char| c.is_ascii_digit()));
    assert_all_right(&texts, 12);
    // Of the SQL in these files only the parts of statements are left.
    let mut functions = files("src/functions", ".rs");
    // These make SQL.
    functions.retain(|name| !["/readers.rs", "/portable.rs"].iter().any(|file| name.ends_with(file)));
    let others = ["the SQL declares OUT parameters", "pg_catalog, pg_temp"];
    let mut texts: Vec<_> = functions.iter().flat_map(|name| sentences(&read(name), &others)).collect();
    texts.retain(|(_, text)| !text.contains("CREATE "));
    assert_all_right(&texts, 1);
}

// ---- the SQL ----

/// The texts of a file: of RAISE, of COMMENTs, of rows with a SQLSTATE, a message, DETAIL and HINT, and whatever else
/// begins as a sentence does.
fn texts_of_sql(source: &str) -> Vec<(Kind, String)> {
    let tokens = sql_tokens(source);
    let is_state = |text: &str| {
        let is_allowed = |c: char| c.is_ascii_digit() || c.is_ascii_uppercase();
        text.len() == 5 && text.contains(|c: char| c.is_ascii_digit()) && text.chars().all(is_allowed)
    };
    let mut kinds = vec![None; tokens.len()];
    let mut mark = |from: usize, count: usize, kind| kinds[from..from + count].fill(Some(kind));
    let place =
        |part: &[Token]| (part.as_ptr() as usize - tokens.as_ptr() as usize) / std::mem::size_of::<Token>();
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1);
        match token {
            Token::Literal(text) if is_state(text) && next.is_some_and(|next| next.is(',')) => {
                let parts = expressions(&tokens[at + 2..]);
                assert!(parts.len() >= 3, "a row of a refusal: {parts:?}");
                for (part, kind) in parts.iter().zip([Kind::Message, Kind::Sentence, Kind::Sentence]) {
                    mark(place(part), part.len(), kind);
                }
            }
            Token::Word(word) if word == "RAISE" => {
                let literal = (at + 2..at + 3).find(|at| tokens[*at].literal().is_some());
                if let Some(at) = literal {
                    mark(at, 1, Kind::Message);
                }
            }
            Token::Word(word) if next.is_some_and(|next| next.is('=')) => {
                let kind = match word.as_str() {
                    "MESSAGE" => Kind::Message,
                    "DETAIL" | "HINT" => Kind::Sentence,
                    _ => continue,
                };
                let parts = expressions(&tokens[at + 2..]);
                mark(place(parts[0]), parts[0].len(), kind);
            }
            Token::Word(word) if word == "COMMENT" => {
                let end = tokens[at..].iter().position(|token| token.is(';')).expect("it ends") + at;
                mark(end - 1, 1, Kind::Message);
            }
            _ => {}
        }
    }
    // Statements begin in capitals.
    let is_statement = |text: &str| {
        let word = text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        word.len() > 1 && word.chars().all(char::is_uppercase)
    };
    let mut texts = Vec::new();
    for (token, kind) in tokens.iter().zip(kinds) {
        let Some(text) = token.literal().filter(|text| is_prose(text) || (text.is_empty() && kind.is_some()))
        else {
            continue;
        };
        // A note of a plan begins with a lower-case letter, as a message does; names and patterns are no prose.
        let is_sentence = !is_statement(text) && text.starts_with(char::is_uppercase);
        let kind = kind.or(is_sentence.then_some(Kind::Sentence));
        texts.extend(kind.map(|kind| (kind, text.to_owned())));
    }
    texts
}

#[test]
fn the_texts_of_the_sql_follow_the_rules() {
    let names = files("sql", ".sql");
    assert!(names.len() >= 6, "{names:?}");
    let texts: Vec<_> = names.iter().flat_map(|name| texts_of_sql(&read(name))).collect();
    assert_all_right(&texts, 150);
    let messages = texts.iter().filter(|(kind, _)| *kind == Kind::Message).count();
    assert!((80..texts.len() - 60).contains(&messages), "{messages} messages of {} texts", texts.len());
}

// ---- what a server shows ----

/// Every object has a comment, and what users do not call says so in its first word.
#[test]
fn every_object_has_a_comment_and_helpers_say_that_they_are_internal() {
    let server = Server::builder().start_with_extension();
    let query = "
        SELECT ARRAY[pg_describe_object(d.classid, d.objid, 0), coalesce(obj_description(d.objid, c.relname::name), '')]
        FROM pg_depend d JOIN pg_class c ON c.oid = d.classid
        WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
            AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')
            -- From PostgreSQL 18 on also the types of arrays and of tables, which nobody comments.
            AND NOT EXISTS (
                SELECT FROM pg_type t LEFT JOIN pg_class r ON r.oid = t.typrelid
                WHERE d.classid = 'pg_type'::regclass AND t.oid = d.objid AND (t.typcategory = 'A' OR r.relkind <> 'c'))
        UNION ALL
        SELECT ARRAY['extension', obj_description(oid, 'pg_extension')]
        FROM pg_extension WHERE extname = 'snowflake_id'";
    let objects: Vec<Vec<String>> = column(&mut server.connect(), query);
    assert!(objects.len() > 45, "{objects:?}");
    let mut found = Vec::new();
    for object in &objects {
        let (name, comment) = (&object[0], &object[1]);
        found.extend(problems(Kind::Message, comment).iter().map(|problem| format!("{name}: {problem}")));
        let helpers =
            ["_row(", "_rows(", "_in_copy(", "_support(", "_check(", "_fields", "snowflake_between_"];
        let is_helper = helpers.iter().any(|part| name.contains(part))
            || ["schema ", "function ", "type "]
                .iter()
                .any(|kind| name.starts_with(&format!("{kind}snowflake_internal")));
        if is_helper != comment.starts_with("internal: ") {
            found.push(format!("{name}: {comment:?}"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_setting_has_a_description_in_full_sentences() {
    let server = Server::builder().start_with_extension();
    let query = "SELECT coalesce(short_desc, '') FROM pg_settings WHERE name LIKE 'snowflake\\_id.%'";
    let descriptions: Vec<String> = column(&mut server.connect(), query);
    assert_all_right(&descriptions.into_iter().map(|text| (Kind::Sentence, text)).collect::<Vec<_>>(), 11);
}

/// `\df snowflake*` and `\dx+` print a line per function, with its arguments and its result.
#[test]
fn lists_of_functions_fit_a_screen() {
    let server = Server::builder().start_with_extension();
    let query = "
        SELECT proname || '(' || pg_get_function_arguments(oid) || ') ' || pg_get_function_result(oid)
        FROM pg_proc WHERE proname LIKE 'snowflake%' AND pronamespace <> 'snowflake_internal'::regnamespace
            -- The first two are called once, and the other by servers.
            AND proname NOT IN ('snowflake_registry_create', 'snowflake_generator_sql', 'snowflake_registry_contact')
            AND greatest(length(pg_get_function_arguments(oid)), length(pg_get_function_result(oid))) > 180";
    let wide: Vec<String> = column(&mut server.connect(), query);
    assert!(wide.is_empty(), "{wide:#?}");
}

// ---- the rules are kept because a violation is found ----

#[test]
fn a_violation_is_found() {
    use Kind::{Message, Sentence};
    for (kind, text) in [
        (Message, "Cannot generate a snowflake ID"),
        (Message, "cannot generate a snowflake ID."),
        (Message, "cannot generate:"),
        (Message, "cannot generate\na snowflake ID"),
        (Message, "the clock is back"),
        (Message, "cannot make an ID"),
        (Message, ""),
        (Sentence, ""),
        (Sentence, "wait until then."),
        (Sentence, "Wait until then"),
        (Sentence, "Wait {}"),
        (Sentence, "Wait until then. "),
        (Sentence, "Nothing of it is away."),
    ] {
        assert_ne!(problems(kind, text), Vec::<String>::new(), "{kind:?} {text:?}");
    }
    for (kind, text) in [
        (Message, "snowflake_id: worker {worker} generates the IDs of timeline {timeline}"),
        (Message, "\"{text}\" is no ID"),
        (Message, "{id} is not a snowflake ID"),
        (Message, "a runaway clock is backed up"),
        (Sentence, "n is {n}."),
        (Sentence, "snowflake_adopt set this limit."),
        (Sentence, "{} {}"),
    ] {
        assert_eq!(problems(kind, text), [""; 0]);
    }
}

#[test]
fn a_violation_is_found_wherever_it_is_planted() {
    let is_found =
        |texts: Vec<(Kind, String)>| texts.iter().any(|(kind, text)| !problems(*kind, text).is_empty());
    let library = read("src/messages/gate.rs");
    let log = read("src/messages/log.rs");
    let convert = ["convert_keys", "convert_checks", "convert_views", "convert", "revert"]
        .map(|part| read(&format!("sql/{part}.sql")))
        .concat();
    let config = read("sql/config.sql");
    let table = read("src/settings/table.rs");
    for source in [&library, &log] {
        assert!(!is_found(texts_of_messages(source)));
    }
    for source in [&convert, &config] {
        assert!(!is_found(texts_of_sql(source)));
    }
    // The text, and what takes its place.
    let plant = |source: &str, from: &str, to: &str| {
        assert!(source.contains(from), "{from:?} is gone");
        source.replacen(from, to, 1)
    };
    for (from, to) in [
        ("system clock moved backwards\"", "system clock moved backwards.\""),
        (
            "\"cannot generate a snowflake ID: the generator",
            "\"Cannot generate a snowflake ID: the generator",
        ),
        ("to a number that was never used, and restart the server.\"", "to another number\""),
        ("\"The state was not adopted.\"", "\"\""),
        ("Run the statement on the primary. If", "run the statement on the primary. If"),
        ("is too far behind the first ID\"", "is too far behind the first ID.\""),
    ] {
        assert!(is_found(texts_of_messages(&plant(&library, from, to))), "{to}");
    }
    for (from, to) in [
        ("is writable again\"", "is writable again.\""),
        ("cannot generate IDs: {}\"", "no IDs are made: {}\""),
        ("New IDs follow the clock.", "New IDs follow the clock"),
        ("Restart the server to use", "restart the server to use"),
    ] {
        assert!(is_found(texts_of_messages(&plant(&log, from, to))), "{to}");
    }
    for (from, to) in [
        ("'%s does not exist', described", "'%s does not exist.', described"),
        ("'PostgreSQL computes its values.'", "'PostgreSQL computes its values'"),
        (
            "'Detach it first, and convert it on that server.'",
            "'Detach it first, and convert it on that server'",
        ),
        ("%s is not a key', described", "%s is not a key.', described"),
        ("skipping'", "skipping.'"),
        ("'internal: a statement of a plan'", "'A statement of a plan'"),
        ("Check the names and run the call again.'", "Check the names'"),
    ] {
        assert!(is_found(texts_of_sql(&plant(&convert, from, to))), "{to}");
    }
    for (from, to) in [
        ("'the dump''s snowflake layout", "'The dump''s snowflake layout"),
        ("IDs, delete the row of snowflake_config.'", "IDs, delete the row of snowflake_config'"),
    ] {
        assert!(is_found(texts_of_sql(&plant(&config, from, to))), "{to}");
    }
    for (from, to) in [
        ("1ms, 10ms or 1s.\"", "1ms, 10ms or 1s\""),
        ("\"This server's worker number", "\"this server's worker number"),
        ("The value is not an integer.", "It is away."),
    ] {
        assert!(is_found(sentences(&plant(&table, from, to), &[])), "{to}");
    }
}
