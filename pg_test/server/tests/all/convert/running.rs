//! The ways to run a script, and what it does while others use the tables.

use super::{database, scripts, state};
use postgres::Client;
use snowflake_server_tests::sql::{column, fails, one, run, take_ticks, wait_for_lock};
use snowflake_server_tests::{Database, Failure, Server, fed, ms, pg_version};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

const TABLES: &str = "
    CREATE TABLE customers (id serial PRIMARY KEY, name text); INSERT INTO customers (name) VALUES ('Ada'), ('Grace');
    CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer integer NOT NULL REFERENCES customers);
    INSERT INTO orders (customer) SELECT 1 + g % 2 FROM generate_series(1, 50) g; CREATE VIEW names AS SELECT id, name FROM customers";

/// A database with the tables, and a session of their owner.
#[track_caller]
fn shop() -> (Database, Client) {
    let database = database();
    let mut owner = database.connect_as("owner");
    run(&mut owner, TABLES);
    run(&mut database.connect(), "ANALYZE");
    (database, owner)
}

fn psql(database: &Database, args: &[&str], input: &str) -> Output {
    let mut psql = database.server().client_program("psql", database.name());
    fed(psql.args(["-X", "-q", "-U", "owner"]).args(args), input)
}

fn is_converted(session: &mut Client) -> bool {
    let defaults: Vec<String> = column(
        session,
        "SELECT coalesce(column_default, '') FROM information_schema.columns
         WHERE table_schema = 'public' AND (table_name, column_name) IN (('customers', 'id'), ('orders', 'id')) ORDER BY table_name",
    );
    let are: Vec<bool> = defaults.iter().map(|d| d == "snowflake_nextval()").collect();
    assert!(are == [true, true] || are == [false, false], "{defaults:?}");
    are[0]
}

/// Each way runs the script, and then the way back that was kept.
#[test]
fn each_tool_runs_the_script_and_its_way_back() {
    let keep = "CREATE TABLE kept_conversion AS SELECT * FROM snowflake_convert('customers', 'orders');";
    let execute =
        |column: &str| format!("DO $$ BEGIN EXECUTE (SELECT {column} FROM kept_conversion); END $$;");
    for way in
        ["gexec", "file", "single transaction", "do", "transaction", "search_path", "savepoint", "extended"]
    {
        let (database, mut owner) = shop();
        run(&mut owner, keep);
        let before = state(&database);
        for column in ["script", "back"] {
            let text: String = one(&mut owner, &format!("SELECT {column} FROM kept_conversion"));
            let output = match way {
                "gexec" => {
                    Some(psql(&database, &[], &format!("SELECT {column} FROM kept_conversion \\gexec")))
                }
                "file" => Some(psql(&database, &["-f", "-"], &text)),
                "single transaction" => {
                    Some(psql(&database, &["-1", "-v", "ON_ERROR_STOP=1", "-f", "-"], &text))
                }
                _ => None,
            };
            match way {
                "do" => run(&mut owner, &execute(column)),
                "transaction" => run(&mut owner, &format!("BEGIN; CREATE TABLE log (); {text} DROP TABLE log; COMMIT")),
                "search_path" => run(
                    &mut owner,
                    &format!(
                        "CREATE SCHEMA IF NOT EXISTS \"$user\"; CREATE OR REPLACE FUNCTION \"$user\".current_setting(text)
                         RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$trapped$$; END';
                         SET search_path = '\"$user\"', pg_catalog, nowhere; {text} RESET search_path; DROP SCHEMA \"$user\" CASCADE"
                    ),
                ),
                "savepoint" => run(&mut owner, &format!("BEGIN; SAVEPOINT a; {text} RELEASE a; COMMIT")),
                "extended" => assert_eq!(owner.execute(&text, &[]).expect("it runs"), 0),
                _ => {
                    let output = output.expect("psql ran");
                    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
                    assert!(output.status.success() && said.is_empty(), "{way}: {said}");
                }
            }
            assert_eq!(is_converted(&mut owner), column == "script", "{way}");
        }
        assert_eq!(state(&database), before, "{way}");
    }
}

/// The settings of a transaction are what they were, once the script has ended in it.
#[test]
fn a_script_leaves_the_settings_of_its_transaction() {
    let (database, mut owner) = shop();
    let both = scripts(&mut owner, "convert('customers')");
    let mut session = database.connect();
    let strings = if pg_version() < 19 { "off" } else { "on" };
    let settings = "SELECT current_setting('role') UNION ALL SELECT * FROM (SELECT concat_ws(' ', name, setting) FROM pg_settings
                    WHERE NOT starts_with(name, 'plpgsql.') ORDER BY name) AS s";
    run(
        &mut session,
        &format!(
            "BEGIN; SET LOCAL search_path = 'a b', public; SET LOCAL standard_conforming_strings = {strings};
             SET LOCAL transform_null_equals = on; SET LOCAL array_nulls = off; SET LOCAL intervalstyle = iso_8601; SET LOCAL xmloption = document;
             SET LOCAL default_tablespace = pg_default"
        ),
    );
    let before: Vec<String> = column(&mut session, settings);
    run(&mut session, &both.script);
    assert_eq!(column::<String>(&mut session, settings), before);
    run(&mut session, "COMMIT");
    // Policies hide no rows from the way back.
    run(&mut owner, "ALTER TABLE customers ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY");
    fails(&mut owner, "42501", &both.back);
}

/// A script that was cut somewhere does all, or nothing. A statement is cut by the end of its file, or of its line.
#[test]
fn a_script_that_was_cut_changes_nothing() {
    let (database, mut owner) = shop();
    let text = scripts(&mut owner, "convert_schema('public')").script;
    let end = text.rfind("END").expect("the end");
    let before = state(&database);
    for n in 1..24 {
        let cut = text.floor_char_boundary(end * n / 24);
        psql(&database, &["-f", "-"], &text[..cut]);
        assert!(!is_converted(&mut owner), "{}", &text[..cut]);
    }
    assert_eq!(state(&database), before);
    psql(&database, &["-f", "-"], &text);
    assert!(is_converted(&mut owner));
}

/// A script fits only what it was made for, and runs once.
#[test]
fn after_any_change_a_script_must_be_made_again() {
    for change in [
        "DROP VIEW names; ALTER TABLE customers ALTER id TYPE bigint",
        "ALTER TABLE customers ALTER id SET DEFAULT 7",
        "ALTER TABLE orders ALTER customer TYPE bigint",
        "ALTER TABLE orders RENAME customer TO buyer",
        "ALTER TABLE orders ALTER id DROP IDENTITY",
        "ALTER TABLE orders ALTER id SET GENERATED BY DEFAULT",
        "ALTER TABLE orders ALTER customer TYPE smallint",
        "CREATE OR REPLACE VIEW names AS SELECT id, name || '' AS name FROM customers WHERE id > 0",
        "CREATE VIEW more AS SELECT id FROM customers",
        "GRANT SELECT ON names TO reader",
        "COMMENT ON TYPE names IS 'an obstacle'",
        "DROP VIEW names",
        "CREATE TABLE items (customer integer REFERENCES customers)",
        "CREATE TABLE child () INHERITS (customers)",
        "CREATE SCHEMA moved; ALTER TABLE orders SET SCHEMA moved",
        "CREATE POLICY p ON customers USING (id > 0)",
        "CREATE STATISTICS s ON id, name FROM customers; ALTER STATISTICS s SET STATISTICS 5",
        "ALTER TABLE customers RENAME id TO key; ALTER TABLE orders RENAME id TO key",
        "DROP TABLE orders",
        "DROP TABLE orders; CREATE TABLE orders (id bigint PRIMARY KEY, customer integer)",
        "", // the script itself
    ] {
        let (database, mut owner) = shop();
        let text = scripts(&mut owner, "convert('customers', 'orders')").script;
        run(&mut owner, if change.is_empty() { &text } else { change });
        let before = state(&database);
        let failure = Failure::from(&owner.batch_execute(&text).expect_err(change));
        let is_gone = change.starts_with("DROP TABLE") || change.ends_with("SCHEMA moved");
        let codes = if is_gone { ["42P01", "55006"] } else { ["55006"; 2] };
        assert!(codes.contains(&failure.code.as_str()), "{change}: {failure}");
        let changed = "the tables changed since the script was made";
        assert!(failure.code != "55006" || failure.message == changed, "{failure}");
        assert_eq!(state(&database), before, "{change}");
    }
}

#[test]
fn a_script_runs_in_read_committed_transactions_only() {
    let (database, mut owner) = shop();
    let text = scripts(&mut owner, "convert('customers')").script;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let failure = fails(&mut owner, "25001", &format!("BEGIN ISOLATION LEVEL {level}; {text}"));
        assert_eq!(failure.message, "the script must run in a READ COMMITTED transaction");
        assert!(failure.detail.starts_with(&format!("This transaction is {level} and")), "{failure}");
        run(&mut owner, "ROLLBACK");
    }
    run(&mut owner, &format!("BEGIN ISOLATION LEVEL READ UNCOMMITTED; {text} ROLLBACK"));
    fails(&mut owner, "25006", &format!("BEGIN READ ONLY; {text}"));
    run(&mut owner, "ROLLBACK");
    assert!(!is_converted(&mut database.connect()));
}

/// By default it waits for a lock for 5 seconds; a timeout of the session or a cancellation changes nothing, either.
#[test]
fn timeouts_end_a_script_and_change_nothing() {
    let (database, mut owner) = shop();
    let text = scripts(&mut owner, "convert('customers', 'orders')").script;
    let before = state(&database);
    let mut reader = database.connect();
    run(&mut reader, "BEGIN; SELECT FROM customers");
    let began = Instant::now();
    fails(&mut owner, "55P03", &text);
    assert!(began.elapsed() >= ms(5000));
    for (setting, code) in [("lock_timeout = '50ms'", "55P03"), ("statement_timeout = '400ms'", "57014")] {
        fails(&mut owner, code, &format!("SET {setting}; {text}"));
        run(&mut owner, "RESET ALL");
    }
    run(&mut reader, "COMMIT");
    assert_eq!(state(&database), before);
    // Within the rewrite, too.
    run(
        &mut owner,
        "CREATE FUNCTION slow(bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN $1; END'",
    );
    run(&mut owner, "CREATE INDEX slow ON customers (slow(id::bigint))");
    let text = scripts(&mut owner, "convert('customers', 'orders')").script;
    let before = state(&database);
    fails(&mut owner, "57014", &format!("SET statement_timeout = '500ms'; {text}"));
    assert_eq!(state(&database), before);
}

/// Writers go on, wait for the script, and their keys are unique before, meanwhile and afterwards.
#[test]
fn writers_go_on_beside_a_script_and_its_way_back() {
    let (database, mut owner) = shop();
    run(&mut owner, "INSERT INTO customers (name) SELECT g FROM generate_series(1, 20000) g");
    let both = scripts(&mut owner, "convert('customers', 'orders')");
    let is_over = AtomicBool::new(false);
    let written: usize = thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let mut writer = database.connect_as("owner");
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut written = 0;
                    while !is_over.load(Ordering::Relaxed) || written < 20 {
                        // A deadlock with the script is the application's to retry.
                        let wrote = writer.batch_execute(
                            "WITH c AS (INSERT INTO customers (name) VALUES ('new') RETURNING id)
                             INSERT INTO orders (customer) SELECT id FROM c",
                        );
                        match wrote.map_err(|e| Failure::from(&e)) {
                            Ok(()) => written += 1,
                            Err(failure) => assert_eq!(failure.code, "40P01", "{failure}"),
                        }
                    }
                    written
                })
            })
            .collect();
        let mut run_it = |text: &str| {
            while let Err(e) = owner.batch_execute(text) {
                let failure = Failure::from(&e);
                assert!(["40P01", "55P03"].contains(&failure.code.as_str()), "{failure}");
            }
            thread::sleep(ms(300));
        };
        run_it(&both.script);
        run_it(&both.back);
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("a writer")).sum()
    });
    let counts = "SELECT ARRAY[(SELECT count(*) FROM customers WHERE name = 'new'),
                      (SELECT count(*) FROM orders JOIN customers c ON c.id = customer WHERE name = 'new')]";
    assert_eq!(one::<Vec<i64>>(&mut owner, counts), [written as i64; 2]);
}

/// As the manual says, until they are prepared again; trigger functions, until the session ends.
#[test]
fn prepared_statements_have_the_old_types_after_a_script() {
    let (database, mut owner) = shop();
    run(
        &mut owner,
        "CREATE FUNCTION of_id() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM NEW.id; RETURN NULL; END';
         CREATE TRIGGER of_id AFTER UPDATE ON customers FOR EACH ROW EXECUTE FUNCTION of_id()",
    );
    let text = scripts(&mut owner, "convert('customers', 'orders')").script;
    let mut pooled = database.connect_as("owner");
    let prepare = "PREPARE returns AS SELECT id FROM customers; PREPARE compares AS SELECT name FROM customers WHERE id = $1";
    run(
        &mut pooled,
        &format!("{prepare}; UPDATE customers SET name = 'Ada'; EXECUTE returns; EXECUTE compares (1)"),
    );
    run(&mut owner, &text);
    fails(&mut pooled, "42804", "UPDATE customers SET name = 'Grace'");
    fails(&mut pooled, "0A000", "EXECUTE returns");
    let id: i64 = one(&mut owner, "INSERT INTO customers DEFAULT VALUES RETURNING id");
    fails(&mut pooled, "22003", &format!("EXECUTE compares ({id})"));
    run(&mut pooled, &format!("DEALLOCATE ALL; {prepare}; EXECUTE returns; EXECUTE compares ({id})"));
    run(&mut database.connect(), "UPDATE customers SET name = 'Grace'");
}

#[test]
fn on_a_server_without_a_worker_a_script_changes_nothing() {
    let database = Database::shared(Server::builder().without("snowflake_id.worker_id"), "");
    let mut session = database.connect();
    run(&mut session, TABLES);
    let text = scripts(&mut session, "convert('customers', 'orders')").script;
    let before = state(&database);
    fails(&mut session, "55000", &text);
    assert_eq!(state(&database), before);
}

/// With statistics, the planner takes the names of columns for as good as unique.
#[test]
fn columns_of_twice_the_partitions_take_twice_the_reads() {
    let (database, _) = shop();
    let mut session = database.connect();
    run(&mut session, "CREATE TABLE u (t integer REFERENCES customers, n integer) PARTITION BY LIST (n)");
    let [once, twice] = [1, 101].map(|first| {
        let partition = |n| format!("CREATE TABLE u_{n} PARTITION OF u FOR VALUES IN ({n});");
        let partitions: String = (first..first + 100).map(partition).collect();
        run(&mut session, &format!("{partitions} ANALYZE"));
        let mut session = database.connect();
        run(&mut session, "BEGIN");
        let columns = "SELECT count(*) FROM snowflake_internal.snowflake_convert_columns(
                           ARRAY[('customers', 'id')::snowflake_internal.snowflake_key])";
        assert_eq!(one::<i64>(&mut session, columns), first + 102);
        let reads =
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_sys_tables WHERE relname = 'pg_attribute'";
        one::<i64>(&mut session, reads)
    });
    assert!(twice < 2 * once, "{once}, and then {twice}");
}

/// What is committed while the script waits for its lock counts.
#[test]
fn rows_that_a_script_waits_for_are_seen() {
    let (database, mut owner) = shop();
    let text = scripts(&mut owner, "convert('customers', 'orders')").script;
    let mut writer = database.connect_as("owner");
    run(&mut writer, "BEGIN; INSERT INTO orders OVERRIDING SYSTEM VALUE VALUES (9000000000000000000, 1)");
    thread::scope(|scope| {
        let waits = scope.spawn(|| fails(&mut owner, "55000", &text));
        wait_for_lock(&mut database.connect());
        run(&mut writer, "COMMIT");
        let failure = waits.join().expect("it fails");
        let values = "column \"id\" of table public.orders has values that are not lower than new IDs";
        assert_eq!(failure.message, values);
        assert_eq!(failure.detail, "The highest value is 9000000000000000000.");
    });
    // Another worker of this server may generate lower IDs than this one, which is ahead of the clock.
    take_ticks(&mut owner, 500);
    let is_lowest =
        "SELECT snowflake_internal.snowflake_convert_lowest() <= snowflake_min(clock_timestamp())";
    assert!(one::<bool>(&mut owner, is_lowest));
}
