//! Calls that convert one key, dry and real, and what they leave behind: shared by the tests of keys.

use postgres::Client;
use snowflake_server_tests::sql::{Failure, column, fails, next, one};
use snowflake_server_tests::{Database, Server};

/// A database of the server that the tests share, with roles that none of them changes.
#[track_caller]
pub fn database() -> Database {
    let builder =
        Server::builder().setting("wal_level", "logical").setting("plan_cache_mode", "force_generic_plan");
    Database::shared(
        builder,
        "CREATE ROLE owner LOGIN; CREATE ROLE app; CREATE ROLE reader;
                 GRANT EXECUTE ON FUNCTION snowflake_convert TO owner",
    )
}

/// The statements of a conversion, in their order; executed if `dry_run` is false.
#[track_caller]
pub fn convert(session: &mut Client, arguments: &str, dry_run: bool) -> Vec<String> {
    column(
        session,
        &format!(
            "SELECT statement FROM snowflake_convert({arguments}, dry_run => {dry_run}) WHERE kind = 'statement' ORDER BY step"
        ),
    )
}

/// The dry run changes nothing, and the real run executes what it said.
#[track_caller]
pub fn converts(database: &Database, session: &mut Client, arguments: &str) -> Vec<String> {
    let said = database.unchanged_by(arguments, || convert(session, arguments, true));
    assert_eq!(convert(session, arguments, false), said, "{arguments}");
    said
}

/// A conversion that is refused, by the dry run and by the real one, with nothing changed.
#[track_caller]
pub fn refused(database: &Database, session: &mut Client, arguments: &str, code: &str) -> Failure {
    database.unchanged_by(arguments, || refuses(session, arguments, code))
}

/// As [`refused`], for tests that check the database themselves.
#[track_caller]
pub fn refuses(session: &mut Client, arguments: &str, code: &str) -> Failure {
    let failure =
        fails(session, code, &format!("SELECT * FROM snowflake_convert({arguments}, dry_run => false)"));
    // The dry run says what the real one will: a lack of rights as its error, an obstacle as a row.
    let reasons = reasons(session, arguments);
    assert!(reasons[0].contains(&failure.message), "{failure}: {reasons:?}");
    assert!(!failure.hint.is_empty(), "no HINT: {failure}");
    assert!(failure.hint.ends_with('.') || failure.hint.ends_with("'snowflake_id'"), "{failure}");
    assert!(failure.detail.is_empty() || failure.detail.ends_with('.'), "{failure}");
    failure
}

/// The obstacles that a dry run returns, each with its object, reason and remedy, or its error.
#[track_caller]
pub fn reasons(session: &mut Client, arguments: &str) -> Vec<String> {
    let query = format!(
        "SELECT concat_ws(' | ', object, note, remedy) FROM snowflake_convert({arguments})
         WHERE kind = 'obstacle' ORDER BY step"
    );
    match session.query(&query, &[]) {
        Ok(rows) => rows.iter().map(|row| row.get(0)).collect(),
        Err(e) => vec![Failure::from(&e).text()],
    }
}

/// A new row's key, which must be an ID generated now.
#[track_caller]
pub fn insert(session: &mut Client, insert: &str, key: &str) -> i64 {
    let low = next(session);
    let id: i64 = one(session, &format!("{insert} RETURNING {key}"));
    let high = next(session);
    assert!(low < id && id < high, "{insert}: {id} is not between {low} and {high}");
    id
}

#[track_caller]
pub fn kind_of(session: &mut Client, table: &str, key: &str) -> String {
    let query = format!(
        "SELECT format_type(atttypid, NULL) || ' ' || attidentity::text || ' ' ||
             coalesce(pg_get_expr(adbin, adrelid), 'no default') || CASE WHEN attnotnull THEN ' not null' ELSE '' END
         FROM pg_attribute LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
         WHERE attrelid = '{table}'::regclass AND attname = '{key}'"
    );
    one(session, &query)
}
