//! The manual's site in Chromium: its search answers what people type, and its first page fits a small window.

use serde_json::{Value, json};
use snowflake_server_tests::{companions, printed_by, root};
use std::process::Command;

/// What is typed, and where its first hit leads.
const SEARCHES: [(&str, &str); 20] = [
    ("55000", "docs/operations.html"),
    ("NTP", "docs/reliability.html#which-policy-to-choose"),
    ("uninstall", "docs/installing.html#removing-it"),
    ("metabase", "docs/reading.html#report-by-time-with-a-bi-tool"),
    ("laptop", "docs/portable.html"),
    ("Amazon RDS", "docs/portable.html"),
    ("pgbouncer", "docs/clients.html#use-replicas-and-poolers"),
    ("kubernetes", "docs/high-availability.html#cloudnativepg"),
    ("throughput", "docs/settings.html#layout"),
    ("two servers same id", "docs/fleet.html#choose-a-worker"),
    ("53 bit", "docs/clients.html#javascript"),
    ("duplicate ids", "docs/reliability.html#what-is-not-protected"),
    ("created_at in the future", "docs/reading.html#read-the-fields-of-an-id"),
    ("docker compose", "docs/installing.html#docker"),
    ("partition", "docs/partitioning.html"),
    ("snowflake_nextval_range", "docs/sql.html#generate-ids"),
    ("cannot generate a snowflake ID: system clock moved backwards", "docs/operations.html#the-clock"),
    (
        "ERROR:  55000: cannot generate a snowflake ID: this data directory is a copy",
        "docs/operations.html#a-copied-data-directory",
    ),
    ("system clock moved backwards", "docs/operations.html#the-clock"),
    ("ERROR:  n must be between 1 and 4096", "docs/operations.html#arguments-and-replicated-rows"),
];

#[test]
fn the_search_answers_what_people_type_and_the_first_page_fits() {
    let site = std::env::temp_dir().join(format!("snowflake_site.{}", std::process::id()));
    let made = Command::new(root().join("scripts/site")).arg(&site).output().expect("scripts/site");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    for page in ["ARCHITECTURE", "CONTRIBUTING", "pg_test/README"] {
        assert!(!site.join(page).with_extension("html").exists(), "{page} is for developers");
    }
    let sidebar = std::fs::read_to_string(site.join("docs/sql.html")).expect("a page");
    assert!(sidebar.contains("href=\"explorer.html\">Explorer</a>"), "the sidebar has no explorer");

    let mut node = Command::new("node");
    node.arg(companions("browser").join("site.js")).arg(&site);
    let queries: Value = SEARCHES.iter().map(|(query, _)| *query).collect();
    let seen: Value = serde_json::from_str(&printed_by(&mut node, &queries.to_string())).expect("JSON");
    std::fs::remove_dir_all(&site).expect("the site can be deleted");

    for ((query, page), hits) in SEARCHES.iter().zip(seen["hits"].as_array().expect("a list")) {
        assert_eq!(hits[0], *page, "{query}: {hits}");
    }
    assert_eq!(seen["cut"], json!([0, 0, 0]), "px that a block of the first page is wider than its place");
}
