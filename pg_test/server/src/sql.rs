//! Shorthands for what tests ask of a server.

use crate::messages::assert_approved;
use crate::{look_until, secs, wait_until};
use postgres::types::FromSqlOwned;
use postgres::{Client, Error};
use serde::Deserialize;
use std::fmt;

/// An error as PostgreSQL reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// SQLSTATE.
    pub code: String,
    /// The primary message.
    pub message: String,
    /// DETAIL, or empty.
    pub detail: String,
    /// HINT, or empty.
    pub hint: String,
}

impl Failure {
    /// The server's part of an error; for a broken connection, the SQLSTATE is `closed`.
    #[track_caller]
    pub fn from(error: &Error) -> Self {
        let failure = match error.as_db_error() {
            Some(e) => Self {
                code: e.code().code().to_owned(),
                message: e.message().to_owned(),
                detail: e.detail().unwrap_or_default().to_owned(),
                hint: e.hint().unwrap_or_default().to_owned(),
            },
            None => Self {
                code: "closed".to_owned(),
                message: error.to_string(),
                detail: String::new(),
                hint: String::new(),
            },
        };
        assert_approved(error.as_db_error().map_or("", |e| e.severity()), &failure);
        failure
    }

    /// Message, DETAIL and HINT together.
    pub fn text(&self) -> String {
        format!("{}\nDETAIL: {}\nHINT: {}", self.message, self.detail, self.hint)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} DETAIL: {} HINT: {}", self.code, self.message, self.detail, self.hint)
    }
}

/// The one value of a query's only row.
#[track_caller]
pub fn one<T: FromSqlOwned>(client: &mut Client, query: &str) -> T {
    match client.query_one(query, &[]) {
        Ok(row) => row.get(0),
        Err(e) => panic!("{query}: {}", Failure::from(&e)),
    }
}

/// The first column of a query.
#[track_caller]
pub fn column<T: FromSqlOwned>(client: &mut Client, query: &str) -> Vec<T> {
    match client.query(query, &[]) {
        Ok(rows) => rows.iter().map(|row| row.get(0)).collect(),
        Err(e) => panic!("{query}: {}", Failure::from(&e)),
    }
}

/// Runs statements that must succeed.
#[track_caller]
pub fn run(client: &mut Client, statements: &str) {
    if let Err(e) = client.batch_execute(statements) {
        panic!("{statements}: {}", Failure::from(&e));
    }
}

/// Runs a statement that must fail with an SQLSTATE.
#[track_caller]
pub fn fails(client: &mut Client, code: &str, statement: &str) -> Failure {
    match client.batch_execute(statement) {
        Ok(()) => panic!("{statement} succeeded instead of failing with {code}"),
        Err(e) => {
            let failure = Failure::from(&e);
            assert_eq!(failure.code, code, "{statement}: {failure}");
            // The server sends the error before it ends the transaction, and its locks could be in the way of others.
            let _ = client.simple_query("");
            failure
        }
    }
}

/// One ID.
#[track_caller]
pub fn next(client: &mut Client) -> i64 {
    one(client, "SELECT snowflake_nextval()")
}

/// Waits until the server generates an ID; panics with the last refusal.
#[track_caller]
pub fn wait_for_id(client: &mut Client) -> i64 {
    let mut refusal = None;
    let id = look_until(secs(90), || match client.query_one("SELECT snowflake_nextval()", &[]) {
        Ok(row) => Some(row.get(0)),
        Err(e) => {
            refusal = Some(Failure::from(&e));
            None
        }
    });
    id.unwrap_or_else(|| panic!("waited 90 s in vain for an ID: {}", refusal.expect("no ID")))
}

/// Asserts the value of a setting in the session.
#[track_caller]
pub fn assert_shows(client: &mut Client, setting: &str, value: &str) {
    assert_eq!(one::<String>(client, &format!("SHOW {setting}")), value, "{setting}");
}

/// Waits until another session of this database waits for a lock. The client must not be in a transaction, in which
/// PostgreSQL would show the same activity again.
#[track_caller]
pub fn wait_for_lock(client: &mut Client) {
    let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity
                     WHERE wait_event_type = 'Lock' AND datname = current_database())";
    wait_until("a session to wait for a lock", secs(60), || one::<bool>(client, waits).then_some(()));
}

/// Many IDs of one session, in the order in which they were generated, in one response with 8 bytes per ID.
#[track_caller]
pub fn take(client: &mut Client, n: i32) -> Vec<i64> {
    let query =
        format!("SELECT string_agg(int8send(snowflake_nextval()), ''::bytea) FROM generate_series(1, {n})");
    unpack(&one::<Vec<u8>>(client, &query))
}

/// IDs of whole ticks, which run ahead of the clock, as far as they may if there are enough: of each tick the first ID and
/// the last. A restart that forgot them would generate them again.
#[track_caller]
pub fn take_ticks(client: &mut Client, ticks: u32) -> Vec<i64> {
    let query = format!(
        "SELECT string_agg(int8send(r.first) || int8send(r.last), ''::bytea)
         FROM generate_series(1, {ticks}) AS i, snowflake_nextval_range(4096 + i % 1) AS r"
    );
    unpack(&one::<Vec<u8>>(client, &query))
}

/// The IDs in the bytes of `string_agg(int8send(id), '')`.
pub fn unpack(bytes: &[u8]) -> Vec<i64> {
    let (ids, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty(), "whole IDs");
    ids.iter().map(|id| i64::from_be_bytes(*id)).collect()
}

/// The columns of `snowflake_status` that tests use.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Status {
    /// `open`, `closed` or `recovery`.
    pub state: String,
    /// Why the gate is closed.
    pub reason: Option<String>,
    /// The worker of the active lane.
    pub worker_id: Option<i64>,
    /// The configured worker.
    pub home_worker_id: Option<i64>,
    /// The active lane.
    pub lane: Option<i64>,
    /// How far the newest ID is ahead of the wall clock.
    pub ahead_ms: Option<f64>,
    /// The number of IDs generated.
    pub issued: i64,
    /// How often calls waited for the clock, and how long in total.
    pub waits: i64,
    /// See `waits`.
    #[serde(default)]
    pub wait_ms: f64,
    /// How many steps back of the clock were noticed.
    pub rollbacks: i64,
    /// The largest of them.
    #[serde(default)]
    pub largest_rollback_ms: f64,
    /// How many steps forward of more than a minute were noticed.
    pub forward_jumps: i64,
    /// How many rotations there were.
    pub rotations: i64,
    /// How many calls were refused.
    pub refusals: i64,
}

/// Reads `snowflake_status`.
#[track_caller]
pub fn status(client: &mut Client) -> Status {
    let row: String = one(client, "SELECT jsonb_strip_nulls(to_jsonb(s))::text FROM snowflake_status AS s");
    serde_json::from_str(&row).unwrap_or_else(|e| panic!("{row}: {e}"))
}
