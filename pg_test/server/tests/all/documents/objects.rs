//! The objects and settings that a server lists have descriptions, in the form that PostgreSQL's own have.

use super::pages::root;
use super::references::sources;
use regex::Regex;
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::column;
use std::fs;

/// Except internal functions, whose source has one. A comment on what users do not call says so in its first word.
#[test]
fn every_object_has_a_comment_and_helpers_say_that_they_are_internal() {
    let server = Server::builder().start_with_extension();
    let query = "
        SELECT ARRAY[pg_describe_object(d.classid, d.objid, 0), coalesce(obj_description(d.objid, c.relname::name), '')]
        FROM pg_depend d JOIN pg_class c ON c.oid = d.classid
        WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
            AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')
            AND NOT EXISTS (
                SELECT FROM pg_proc p WHERE d.classid = 'pg_proc'::regclass AND p.oid = d.objid
                    AND p.pronamespace = 'snowflake_internal'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL)
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
        let is_helper = ["schema ", "function ", "type "]
            .iter()
            .any(|kind| name.starts_with(&format!("{kind}snowflake_internal")));
        let is_line = !comment.is_empty() && !comment.contains('\n') && !comment.ends_with('.');
        if !is_line || is_helper != comment.starts_with("internal: ") {
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
    assert!(descriptions.len() >= 11, "{descriptions:?}");
    let is_sentence = |text: &&String| text.starts_with(char::is_uppercase) && text.ends_with('.');
    let others: Vec<&String> = descriptions.iter().filter(|text| !is_sentence(text)).collect();
    assert!(others.is_empty(), "{others:?}");
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
