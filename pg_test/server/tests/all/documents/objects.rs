//! The settings that a server lists have descriptions, in the form that PostgreSQL's own have. Comments on objects
//! are in `regress/sql/install.sql`.

use super::pages::root;
use super::references::sources;
use regex::Regex;
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::column;
use std::fs;

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
