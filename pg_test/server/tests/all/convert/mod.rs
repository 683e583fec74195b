//! Scripts that convert keys, and their ways back.

mod beside;
mod drawn;
mod hostile;
mod obstacles;
mod running;
mod ways_back;

use postgres::Client;
use snowflake_server_tests::sql::{Failure, column, one, run};
use snowflake_server_tests::{Database, Server};
use std::collections::BTreeSet;

/// A script, and the one that brings the old keys back.
struct Scripts {
    script: String,
    back: String,
}

/// Databases of a server with the roles `owner` and `reader`; `owner` may create objects in `public` and in schemas of
/// its own.
#[track_caller]
fn database() -> Database {
    let database = Database::shared(Server::builder(), "CREATE ROLE owner LOGIN; CREATE ROLE reader LOGIN");
    let grants =
        format!("GRANT CREATE ON DATABASE {} TO owner; GRANT ALL ON SCHEMA public TO owner", database.name());
    run(&mut database.connect(), &grants);
    database
}

/// What a call returns, in a transaction that can write nothing.
#[track_caller]
fn scripts(session: &mut Client, call: &str) -> Scripts {
    try_scripts(session, call).unwrap_or_else(|failure| panic!("{call}: {failure}"))
}

fn try_scripts(session: &mut Client, call: &str) -> Result<Scripts, Failure> {
    let mut transaction = session.build_transaction().read_only(true).start().expect("a transaction");
    let query = format!("SELECT script, back FROM snowflake_{call}");
    let row = transaction.query_one(&query, &[]).map_err(|e| Failure::from(&e))?;
    Ok(Scripts { script: row.get(0), back: row.get(1) })
}

/// The comment lines of a script with this beginning.
fn comments(script: &str, beginning: &str) -> Vec<String> {
    let lines = script.lines().filter_map(|line| line.strip_prefix("-- ")?.strip_prefix(beginning));
    lines.map(str::to_owned).collect()
}

/// The schema as PostgreSQL dumps it, the rows of all tables in their order, which columns have statistics, and the
/// positions of the sequences.
#[track_caller]
fn state(database: &Database) -> Vec<String> {
    let mut session = database.connect();
    // Functions in indexes may need it.
    run(&mut session, "SET search_path = app, public");
    state_of(database.server(), database.name(), &mut session)
}

#[track_caller]
fn state_of(server: &Server, name: &str, session: &mut Client) -> Vec<String> {
    let dump = server.dump(name, &["--schema-only", "--exclude-schema=snowflake_internal"]);
    let rows = "SELECT coalesce(string_agg(format('SELECT %L || its_row::text FROM ONLY %s AS its_row', oid::regclass, oid::regclass),
                    ' UNION ALL ' ORDER BY oid::regclass::text), 'SELECT NULL WHERE false') FROM pg_class
                WHERE relkind = 'r' AND oid >= 16384 AND relnamespace <> 'snowflake_internal'::regnamespace";
    let rows: String = one(session, rows);
    let mut state: Vec<String> = dump.lines().map(str::to_owned).collect();
    state.extend(column(session, &rows));
    state.extend(column(
        session,
        "SELECT concat_ws(' ', 'statistics of', schemaname, tablename, attname) FROM pg_stats
         WHERE schemaname NOT IN ('pg_catalog', 'information_schema', 'snowflake_internal') ORDER BY 1",
    ));
    state.extend(column(
        session,
        "SELECT concat_ws(' ', 'position of', schemaname, sequencename, last_value) FROM pg_sequences ORDER BY 1",
    ));
    state
}

/// Asserts that two states are equal, and shows the lines that differ.
#[track_caller]
fn assert_same(after: &[String], before: &[String], context: &str) {
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (before.iter().collect(), after.iter().collect());
    let lost: Vec<_> = old.difference(&new).collect();
    let added: Vec<_> = new.difference(&old).collect();
    assert!(after == before, "{context}\nlost: {lost:#?}\nadded: {added:#?}");
}

/// Runs both scripts of a call, and asserts that everything is as it was.
#[track_caller]
fn comes_back(database: &Database, role: &str, call: &str) -> Scripts {
    let mut session = database.connect_as(role);
    // An index may have a function that fails in it.
    let _ = database.connect().execute("ANALYZE", &[]);
    let before = state(database);
    let scripts = scripts(&mut session, call);
    assert!(![&scripts.script, &scripts.back].iter().any(|text| text.contains(" ;")), "{}", scripts.script);
    assert_same(&state(database), &before, "the call changes nothing");
    run(&mut session, &scripts.script);
    assert!(state(database) != before);
    run(&mut session, &scripts.back);
    assert_same(&state(database), &before, &scripts.back);
    scripts
}
