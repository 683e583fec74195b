//! What a call that is refused says: its SQLSTATE, message, DETAIL and HINT, and nothing of Rust.

use crate::Server;
use crate::sql::{Failure, fails, status};
use postgres::Client;

/// The ways to ask for IDs.
const CALLS: [&str; 3] =
    ["SELECT snowflake_nextval()", "SELECT snowflake_nextval_batch(2)", "SELECT snowflake_nextval_range(2)"];

/// Messages of Rust and its libraries are for programmers, and no user should see one.
#[track_caller]
pub fn assert_no_rust(text: &str) {
    for foreign in ["..=", "::", "panicked", "unwrap", "Err(", "None", "Some(", "os error", "utf-8", "parse"]
    {
        assert!(!text.contains(foreign), "{foreign:?} in: {text}");
    }
}

/// The error has these words.
#[track_caller]
pub fn assert_tells(failure: &Failure, words: &[&str]) {
    assert_no_rust(&failure.text());
    for word in words {
        assert!(failure.text().contains(word), "{word:?} is missing in: {failure}");
    }
}

/// Every way to ask for IDs fails in the same way, as often as it is tried.
#[track_caller]
pub fn all_fail(session: &mut Client, code: &str, words: &[&str]) {
    for _ in 0..2 {
        for call in CALLS {
            assert_tells(&fails(session, code, call), words);
        }
    }
}

/// A server's gate is closed for a reason that contains this, and that the error has, too.
#[track_caller]
pub fn assert_closed(server: &Server, message: &str) -> Failure {
    let mut session = server.connect();
    let failure = fails(&mut session, "55000", "SELECT snowflake_nextval()");
    assert!(failure.text().contains(message), "{message:?} is missing in: {failure}");
    let status = status(&mut session);
    assert_eq!(status.state, "closed", "{status:?}");
    let is_told = |reason: &str| reason.contains(message) && reason.ends_with(&failure.detail);
    assert!(status.reason.as_deref().is_some_and(is_told), "{status:?}: {failure}");
    failure
}

/// Why the generator is closed, when its status has none of the numbers of one that generates IDs.
#[track_caller]
pub fn closed_reason(session: &mut Client) -> String {
    let row = session.query_one("SELECT state, reason, issued FROM snowflake_status", &[]).unwrap();
    assert_eq!((row.get(0), row.get(2)), ("closed", None::<i64>));
    row.get(1)
}
