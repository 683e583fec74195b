//! Other roles that use the database beside a conversion. A call reads expressions of the tables' owner alone, so that it
//! waits for no lock of another role, and reads no text of one, nor does the script while it has its locks.

use super::{comments, database, scripts, try_scripts};
use snowflake_server_tests::sql::{fails, run};
use snowflake_server_tests::{Database, Failure};
use std::time::{Duration, Instant};

#[track_caller]
fn shop() -> Database {
    let database = database();
    run(
        &mut database.connect_as("owner"),
        "CREATE SCHEMA app; GRANT ALL ON SCHEMA app TO reader;
         CREATE TABLE app.t (id serial PRIMARY KEY); CREATE TABLE app.r (t integer REFERENCES app.t, id bigserial PRIMARY KEY);
         INSERT INTO app.t DEFAULT VALUES; CREATE VIEW app.v AS SELECT id FROM app.t; GRANT REFERENCES ON app.t TO reader",
    );
    database
}

/// A call, and the script, with hardly any time to wait for a lock.
fn converted(database: &Database, call: &str) -> Result<(), Failure> {
    let mut owner = database.connect_as("owner");
    run(&mut owner, "SET lock_timeout = '20ms'");
    let both = try_scripts(&mut owner, call)?;
    owner.batch_execute(&both.script).map_err(|e| Failure::from(&e))
}

/// Expressions, defaults and functions that cannot be read without a lock that another session has.
#[test]
fn locks_of_other_roles_do_not_stop_a_conversion() {
    let database = shop();
    let mut other = database.connect_as("reader");
    run(
        &mut other,
        "CREATE TABLE app.own (id serial PRIMARY KEY, n integer GENERATED ALWAYS AS (7) STORED);
         CREATE FUNCTION app.f() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT max(id) FROM app.own; END;
         CREATE VIEW app.others AS SELECT id FROM app.own; BEGIN;
         CREATE TEMPORARY TABLE temporary (id integer DEFAULT 3 CHECK (id > 2)); LOCK TABLE temporary;
         ALTER TABLE app.own ADD CHECK (id > 0), ALTER n SET STATISTICS 7",
    );
    let mut superuser = database.connect();
    run(&mut superuser, "SET client_min_messages = error; CREATE PUBLICATION everything FOR ALL TABLES");
    converted(&database, "convert('app.t', 'app.r')").expect("no lock is needed");
    run(&mut other, "ROLLBACK");
}

/// In the schema of the call, too, its own tables come first.
#[test]
fn defaults_of_other_roles_are_not_deparsed() {
    let database = shop();
    let mut other = database.connect();
    run(&mut other, "SET max_stack_depth = '6MB'; SET SESSION AUTHORIZATION reader");
    let terms = vec!["1"; 7674].join(" + ");
    run(
        &mut other,
        &format!(
            "CREATE SEQUENCE app.numbers;
             CREATE TABLE app.a_first (id integer PRIMARY KEY DEFAULT nextval('app.numbers') + {terms});
             CREATE TABLE app.b_then (id integer PRIMARY KEY DEFAULT nextval((CASE WHEN 0 = {terms} THEN '' ELSE 'app.numbers' END)::regclass));
             CREATE TABLE app.c_last (ref integer DEFAULT {terms} REFERENCES app.t, g integer GENERATED ALWAYS AS (ref + {terms}) STORED);
             CREATE POLICY p ON app.c_last USING (ref = {terms}); ALTER TABLE app.c_last ADD CHECK (ref <> {terms})"
        ),
    );
    // Deparsing takes more of the stack than this.
    let mut owner = database.connect();
    run(&mut owner, "SET max_stack_depth = '1000kB'; SET SESSION AUTHORIZATION owner");
    fails(
        &mut owner,
        "54001",
        "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'app.c_last'::regclass",
    );
    let obstacles = comments(&scripts(&mut owner, "convert_schema('app')").script, "OBSTACLE: ");
    let others = |table| {
        format!("table app.{table} belongs to reader, and table app.r to owner: convert tables of one owner")
    };
    let read_it = ["column g of", "policy p on"].map(|what| format!("{what} table app.c_last depends on a column that becomes bigint, and the script does not create it again: drop it before, and create it again afterwards"));
    assert_eq!(obstacles, [read_it, ["b_then", "c_last"].map(others)].concat());
    run(&mut other, "DROP TABLE app.c_last");
    converted(&database, "convert_schema('app', exclude => '{b\\_%}')")
        .expect("the others are not its tables");
}

#[test]
fn functions_of_other_roles_are_not_read() {
    let database = shop();
    let time = |what: &str| -> Duration {
        let mut owner = database.connect_as("owner");
        let times = (0..3).map(|_| {
            let began = Instant::now();
            scripts(&mut owner, "convert('app.t', 'app.r')");
            began.elapsed()
        });
        let least = times.min().expect("three");
        println!("{what}: {least:?}");
        least
    };
    let before = time("without the functions");
    run(
        &mut database.connect_as("reader"),
        "DO $do$ BEGIN FOR n IN 1..300 LOOP
             EXECUTE format('CREATE FUNCTION app.f%s(integer) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN %s END $$', n,
                            (SELECT string_agg('PERFORM nextval(''x' || g || ''');', ' ') FROM generate_series(1, 4000) g));
         END LOOP; END $do$",
    );
    // To split these texts into words takes tens of seconds.
    assert!(time("beside 300 functions of 100 kB") < before * 4 + Duration::from_secs(1));
    converted(&database, "convert('app.t', 'app.r')").expect("nobody is in the way");
}

/// To deparse the owner's view locks what it reads: this ends by the timeout, in the script by its own.
#[test]
fn views_over_locked_tables_end_by_lock_timeout() {
    let database = shop();
    let mut other = database.connect_as("reader");
    run(&mut other, "CREATE TABLE app.theirs (id integer); GRANT SELECT ON app.theirs TO owner");
    run(
        &mut database.connect_as("owner"),
        "CREATE VIEW app.both AS SELECT t.id FROM app.t JOIN app.theirs USING (id)",
    );
    let text = scripts(&mut database.connect_as("owner"), "convert('app.t')").script;
    run(&mut other, "BEGIN; LOCK TABLE app.theirs");
    assert_eq!(converted(&database, "convert('app.t')").expect_err("a lock").code, "55P03");
    let mut owner = database.connect_as("owner");
    let began = Instant::now();
    fails(&mut owner, "55P03", &text);
    assert!(began.elapsed() >= Duration::from_secs(5));
    run(&mut other, "ROLLBACK");
    run(&mut owner, &text);
}
