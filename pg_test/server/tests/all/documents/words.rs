//! The texts that the library and the SQL can show, held against the rules of `src/messages/mod.rs`: those that a server
//! shows, and all literals of the sources, in which a capital letter at the begin and a full stop at the end make a sentence.

use super::pages::{read, root};
use super::references::sources;
use regex::{Captures, Regex};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::column;
use std::fs;

// ---- the rules ----

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A primary message, a line of the log, a comment on an object: lower case, no full stop.
    Message,
    /// DETAIL, HINT, a setting's description: full sentences.
    Sentence,
    /// One of them.
    Either,
}
use Kind::{Either, Message, Sentence};

/// Words that no reader expects, or that only a reader of the sources knows.
const UNUSUAL: &str = r"(?-u:\b)(is back|to come|away|whoever|nobody can|makes? IDs|makes? an ID|make a snowflake|were made|are made|is made|made an ID|one a row|a row a|wall clock|is asked for|frontier|ceiling|journal|panicked)(?-u:\b)";

/// A sentence may begin with one of these names of arguments and columns, or with a setting, a function or a placeholder.
const NAMES: [&str; 5] = ["n", "floor", "id", "worker", "sequence"];

/// Cells of tables, and the begin of a sentence.
const TITLES: [&str; 3] = [
    "IDs since November 2010; older ones are plain numbers without a time",
    "Meituan's Leaf, snowflake mode",
    "Role %I",
];

/// What is wrong with a text.
fn problem(kind: Kind, text: &str) -> Option<String> {
    // What stands for a placeholder at the end has a full stop itself.
    let end = Regex::new(r"( ?\{[^}]*\})+$").expect("a pattern").replace(text, "");
    let is_stopped = text.ends_with(['.', '!', ':', ';', ',']);
    let is_capital = text.starts_with(char::is_uppercase);
    let word = text.split([' ', ',']).next().unwrap_or_default();
    let is_name = NAMES.contains(&word) || !word.starts_with(char::is_alphabetic) || word.contains('_');
    let says = Regex::new(UNUSUAL).expect("a pattern").find(text).map(|unusual| unusual.as_str());
    let wrong = if text.is_empty() {
        "it is empty"
    } else if kind != Either && (text.trim() != text || text.contains("  ") || text.contains('\n')) {
        "it is not one line"
    } else if let Some(unusual) = says {
        unusual
    } else if kind == Message && (is_capital || is_stopped) {
        "a message has a capital letter or a full stop"
    } else if kind == Sentence && !(is_capital || is_name) {
        "a sentence has no capital letter"
    } else if kind == Sentence && !(end.is_empty() || end.ends_with('.')) {
        "a sentence has no full stop"
    } else if kind == Either && !is_name && is_capital != end.ends_with('.') {
        "a capital letter makes a sentence, which has a full stop"
    } else {
        return None;
    };
    Some(format!("{wrong}: {text:?}"))
}

#[track_caller]
fn assert_all_right(texts: &[(Kind, String)], least: usize) {
    assert!(texts.len() >= least, "the sources have changed their form: {} texts", texts.len());
    let found: Vec<String> = texts.iter().filter_map(|(kind, text)| problem(*kind, text)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

// ---- the sources ----

/// The texts that match a pattern with a group `text`; in a match of its group `message` or `sentence` it is that.
fn texts(source: &str, pattern: &str, as_shown: impl Fn(&str) -> String) -> Vec<(Kind, String)> {
    let kind = |found: &Captures<'_>| match (found.name("message"), found.name("sentence")) {
        (Some(_), _) => Message,
        (_, Some(_)) => Sentence,
        _ => Either,
    };
    let pattern = Regex::new(pattern).expect("a pattern");
    let all = pattern.captures_iter(source);
    all.filter_map(|found| Some((kind(&found), as_shown(found.name("text")?.as_str()))))
        // Without a space it is a name.
        .filter(|(kind, text)| *kind != Either || text.contains(' ') && !TITLES.contains(&text.as_str()))
        .collect()
}

/// Literals outside comments; after a call that makes an error or a line of the log, its message.
fn texts_of_rust(source: &str) -> Vec<(Kind, String)> {
    let pattern = r#"(?xs) //[^\n]* | '"'
        | (?<message> (?-u:\b)(?:error|not_ready|text)\([\ \n]* (?:[A-Z_]+,[\ \n]*)? (?:format!\([\ \n]*)? )? "(?<text>(?:[^"\\]|\\.)*)""#;
    let continued = Regex::new(r"\\\n[\ \n]*").expect("a pattern");
    texts(source, pattern, |text| continued.replace_all(text, "").replace("\\\"", "\""))
}

/// Literals outside comments, with those on the next lines that SQL joins to them; statements are none.
fn texts_of_sql(source: &str) -> Vec<(Kind, String)> {
    let pattern = r"(?xs) --[^\n]* | (?: (?<message>(?:MESSAGE\ =|RAISE\ [A-Z]+|'[0-9A-Z]{5}',)[\ \n]* (?:format\([\ \n]*)?)
        | (?<sentence>(?:DETAIL|HINT)\ =[\ \n]* (?:format\([\ \n]*)?) )? '(?<text>(?:[^']|'')*)'";
    let joined = Regex::new(r"' *\n[\ \n]*'").expect("a pattern").replace_all(source, "");
    let mut texts = texts(&joined, pattern, |text| text.replace("''", "'"));
    let statement = Regex::new(r"^[A-Z]{2}").expect("a pattern");
    texts.retain(|(_, text)| !statement.is_match(text));
    texts
}

#[test]
fn texts_of_the_library_follow_the_rules() {
    let mut files: Vec<_> =
        ["src/messages", "src/settings"].iter().flat_map(|folder| sources(root().join(folder))).collect();
    files.retain(|file| !file.ends_with("messages/mod.rs")); // its texts are parts, and empty ones
    let core = ["layout", "foreign", "base62"].map(|file| format!("crates/snowflake_core/src/{file}.rs"));
    files.extend(core.iter().map(|file| root().join(file)).chain([root().join("src/functions/registry.rs")]));
    let read = |file| fs::read_to_string(file).expect("a source");
    let texts: Vec<_> = files.iter().flat_map(|file| texts_of_rust(&read(file))).collect();
    assert!(texts.iter().filter(|(kind, _)| *kind == Message).count() >= 50);
    assert_all_right(&texts, 200);
}

#[test]
fn texts_of_the_sql_follow_the_rules() {
    let files = fs::read_dir(root().join("sql")).expect("a folder").map(|file| file.expect("a file").path());
    let files = files.filter(|file| file.extension().is_some_and(|end| end == "sql"));
    let sources = files.map(|file| fs::read_to_string(file).expect("SQL"));
    let texts: Vec<_> =
        sources.chain([read("portable/snowflake_id.sql")]).flat_map(|sql| texts_of_sql(&sql)).collect();
    assert!(texts.iter().filter(|(kind, _)| *kind == Message).count() >= 40);
    assert_all_right(&texts, 200);
}

/// So the texts above are all.
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

/// Comments name a role, a session, a server or a mechanism, and files do not speak.
#[test]
fn comments_of_the_product_name_their_subjects() {
    let vague = r"(?m)(?://[/!]?|--) (?:.*\. )?(?:(?:Of|Who|Whoever|What) |(?:.*[^a-z])?(?:[Nn]obody|[Ss]omebody|[Ww]hoever|[Ww]hatever|[Aa]new|[Tt]old|[Tt]ells?|[Hh]ears?)(?-u:\b)).*$";
    let vague = Regex::new(vague).expect("a pattern");
    let sql =
        ["sql", "portable"].iter().flat_map(|folder| fs::read_dir(root().join(folder)).expect("a folder"));
    let sql = sql.map(|file| file.expect("a file").path()).filter(|file| file.is_file());
    let rust = ["src", "crates/snowflake_core/src", "crates/snowflake_contact/src"];
    let files: Vec<_> = rust.iter().flat_map(|folder| sources(root().join(folder))).chain(sql).collect();
    assert!(files.len() >= 100, "{}", files.len());
    let mut found = Vec::new();
    for file in files {
        let source = fs::read_to_string(&file).expect("a source");
        found.extend(vague.find_iter(&source).map(|line| format!("{}: {}", file.display(), line.as_str())));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn faults_in_texts_are_found() {
    let is_found =
        |texts: Vec<(Kind, String)>| texts.iter().any(|(kind, text)| problem(*kind, text).is_some());
    for (rust, is_wrong) in [
        (r#"not_ready("cannot generate {id}", "It was moved. {why}", format!("n is {n}."))"#, false),
        (r#"// not_ready("Cannot generate a snowflake ID.")"#, false),
        (r#"error(INVALID, format!("Cannot generate {id}."))"#, true),
        (
            r#"("Wait \"until\" \
            then")"#,
            true,
        ),
        (r#"("wait until then.")"#, true),
        (r#"("Nothing of it is away.")"#, true),
        (r#"text("", "It was moved.")"#, true),
    ] {
        assert_eq!(is_found(texts_of_rust(rust)), is_wrong, "{rust}");
    }
    for (sql, is_wrong) in [
        ("MESSAGE = 'the dump''s layout differs', HINT = 'Restore it '\n  'elsewhere.' -- 'It is'", false),
        ("('42809', format('%s is not a table', label), 'It is a view.', 'Name a table.')", false),
        ("('42809', format('Table %s is a view.', label), 'It is a view.')", true),
        ("RAISE NOTICE 'converted column %.', key", true),
        ("DETAIL = format('the row has %s', layout)", true),
        ("'It is a '\n    'view'", true),
    ] {
        assert_eq!(is_found(texts_of_sql(sql)), is_wrong, "{sql}");
    }
}

// ---- what a server shows ----

/// In the expected output of the regression tests, which says what is a message, and what a sentence.
#[test]
fn what_psql_prints_follows_the_rules() {
    let line = Regex::new(r"(?m)^(?:ERROR|WARNING|NOTICE|(DETAIL|HINT)):  (.*)$").expect("a pattern");
    let folder = fs::read_dir(root().join("pg_test/regress/expected")).expect("a folder");
    let printed = folder.map(|file| fs::read_to_string(file.expect("a file").path()).expect("an output"));
    let printed = printed.collect::<String>();
    let mut texts: Vec<_> = line
        .captures_iter(&printed)
        .map(|text| (if text.get(1).is_some() { Sentence } else { Message }, text[2].to_owned()))
        .collect();
    texts.retain(|(_, text)| !text.starts_with("drop cascades to ")); // PostgreSQL's own
    assert_all_right(&texts, 100);
}

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
        found.extend(problem(Message, comment).map(|problem| format!("{name}: {problem}")));
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
    assert_all_right(&descriptions.into_iter().map(|text| (Sentence, text)).collect::<Vec<_>>(), 11);
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
