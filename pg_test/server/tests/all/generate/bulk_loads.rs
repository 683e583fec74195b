//! COPY writes rows with `snowflake_nextval()` in batches. Each case runs twice, in a database as it is installed and in
//! one in which the function has no planner support, and so no twin: rows and errors are the same, and in both the IDs
//! are distinct and ascending.

use postgres::{Client, NoTls};
use snowflake_server_tests::ids::assert_ascending;
use snowflake_server_tests::sql::{column, fails, one, run};
use snowflake_server_tests::{Server, has_contrib, pg_version};
use std::io::Write;

/// More than COPY has in a batch.
const ROWS: usize = 1_200;

/// A server with files to load, and a session in each of the two databases.
struct Pair {
    server: Server,
    sessions: [Client; 2],
}

impl Pair {
    /// `setup` runs in both databases.
    fn start(setup: &str) -> Self {
        // Images of pages would make the volume of WAL depend on when a checkpoint was.
        let server = Server::builder().setting("full_page_writes", "off").start_with_extension();
        run(&mut server.connect(), "CREATE DATABASE without");
        let without = server.config().dbname("without").connect(NoTls).expect("a session");
        let mut pair = Self { sessions: [server.connect(), without], server };
        run(&mut pair.sessions[1], WITHOUT);
        pair.write("rows", |v| v.to_string());
        pair.write("some_bad", |v| if v % 7 == 0 { "bad".to_owned() } else { v.to_string() });
        pair.write("late_bad", |v| if v == ROWS - 1 { "bad".to_owned() } else { v.to_string() });
        pair.write("some_ids", |v| if v % 3 == 0 { format!("{v}\t{v}") } else { format!("made\t{v}") });
        let setup = pair.sql(setup);
        pair.sessions.iter_mut().for_each(|session| run(session, &setup));
        pair
    }

    fn write(&self, file: &str, line: fn(usize) -> String) {
        let text: String = (1..=ROWS).map(|v| line(v) + "\n").collect();
        std::fs::write(self.server.folder().join(file), text).expect("a file to load");
    }

    /// Statements with the paths of the files that they name as `{rows}`.
    fn sql(&self, statements: &str) -> String {
        let path = |name: &str| format!("'{}'", self.server.folder().join(name).display());
        ["rows", "some_bad", "late_bad", "some_ids", "out"]
            .iter()
            .fold(statements.to_owned(), |sql, name| sql.replace(&format!("{{{name}}}"), &path(name)))
    }

    /// Runs a case in both databases, each in a session that goes on to the next case.
    #[track_caller]
    fn compare(&mut self, case: &Case) {
        let (setup, load) = (self.sql(&case.setup), self.sql(&case.load));
        let [(rows, wal), (rows_without, wal_without)] = self.sessions.each_mut().map(|session| {
            run(session, "DROP SCHEMA IF EXISTS loading CASCADE; CREATE SCHEMA loading");
            run(session, &format!("SET search_path = loading, public; {setup}"));
            let before: String = one(session, "SELECT pg_current_wal_insert_lsn()::text");
            run(session, &load);
            let wal: i64 =
                one(session, &format!("SELECT (pg_current_wal_insert_lsn() - '{before}')::bigint"));
            let ids: Vec<i64> = column(session, case.ids);
            assert!(ids.len() > 10, "{}: {} IDs", case.name, ids.len());
            assert_ascending(case.name, &ids);
            (column::<String>(session, case.rows), wal)
        });
        assert!(rows.len() > 10, "{}: {} rows", case.name, rows.len());
        assert_eq!(rows, rows_without, "{}", case.name);
        let share = wal as f64 / wal_without as f64;
        println!("{}: {wal} bytes of WAL, {share:.3} of those without", case.name);
        match case.batches {
            Batches::Gained => assert!(share < 0.9, "{}: {share} of the WAL", case.name),
            Batches::Same => {
                assert!((0.98..1.02).contains(&share), "{}: {share} of the WAL", case.name)
            }
            Batches::Any => {}
        }
    }
}

const WITHOUT: &str = "
    CREATE EXTENSION snowflake_id; UPDATE pg_proc SET prosupport = 0 WHERE proname = 'snowflake_nextval'";

/// Where COPY writes in batches.
#[derive(Clone, Copy, Debug)]
enum Batches {
    /// Only with the twin.
    Gained,
    /// With or without it; or never.
    Same,
    /// Not compared, because other statements write WAL, or another server does.
    Any,
}

/// The table `t` is loaded; the column `v` counts its rows.
struct Case {
    name: &'static str,
    setup: String,
    load: String,
    /// The IDs, in the order in which they were generated.
    ids: &'static str,
    /// What else there is to compare.
    rows: &'static str,
    batches: Batches,
}

fn case(name: &'static str, setup: &str, load: &str, batches: Batches) -> Case {
    let (ids, rows) = ("SELECT id FROM t ORDER BY v", "SELECT v::text FROM t ORDER BY v");
    Case { name, setup: setup.to_owned(), load: load.to_owned(), ids, rows, batches }
}

impl Case {
    fn ids(self, ids: &'static str) -> Self {
        Self { ids, ..self }
    }

    fn rows(self, rows: &'static str) -> Self {
        Self { rows, ..self }
    }
}

const TABLE: &str = "CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), v integer);";
const LOAD: &str = "COPY t (v) FROM {rows}";

/// A table with a column for what a function saw of the rows before.
const SEEING: &str = "
    CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), v integer, seen bigint);
    CREATE FUNCTION seen() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM t); END $$;";
const SEEN: &str = "SELECT v || ' ' || seen FROM t ORDER BY v";

#[test]
fn copy_loads_the_same_rows_in_batches() {
    use Batches::{Any, Gained, Same};
    let mut pair = Pair::start("");
    let mut cases = vec![
        case("a table", TABLE, LOAD, Gained),
        case("a temporary table", "CREATE TEMPORARY TABLE t (id bigint DEFAULT snowflake_nextval(), v integer)",
            "COPY t (v) FROM {rows}; CREATE TABLE kept AS TABLE t; DROP TABLE t; ALTER TABLE kept RENAME TO t", Any),
        case("rows that are chosen", TABLE, "COPY t (v) FROM {rows} WHERE v % 2 = 0", Gained),
        case("frozen rows", TABLE, "BEGIN; TRUNCATE t; COPY t (v) FROM {rows} (FREEZE); COMMIT", Gained),
        case("in a function", TABLE, "DO $$ BEGIN COPY t (v) FROM {rows}; END $$", Gained),
        case("partitions", "
            CREATE TABLE t (id bigint DEFAULT snowflake_nextval(), v integer) PARTITION BY RANGE (v);
            CREATE TABLE low PARTITION OF t (id DEFAULT -1) FOR VALUES FROM (0) TO (300);
            CREATE TABLE high (v integer, id bigint DEFAULT -2);
            ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (300) TO (10000)", LOAD, Gained),
        case("a partition with a default of its own", "
            CREATE TABLE t (id bigint DEFAULT -1, v integer) PARTITION BY RANGE (v);
            CREATE TABLE own PARTITION OF t (id DEFAULT snowflake_nextval()) FOR VALUES FROM (0) TO (10000)",
            "COPY own (v) FROM {rows}", Gained),
        case("generated columns", "
            CREATE TABLE t (id bigint DEFAULT snowflake_nextval(), v integer,
                doubled integer GENERATED ALWAYS AS (v * 2) STORED,
                made_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED)", LOAD, Gained)
            .rows("SELECT doubled || ' ' || (made_at = snowflake_timestamp(id)) FROM t ORDER BY v"),
        case("a domain with the default", "
            CREATE DOMAIN key AS bigint DEFAULT snowflake_nextval() CHECK (VALUE > 0);
            CREATE TABLE t (id key PRIMARY KEY, v integer)", LOAD, Gained),
        case("a domain whose check generates an ID", "
            CREATE DOMAIN key AS bigint DEFAULT snowflake_nextval() CHECK (VALUE < snowflake_nextval());
            CREATE TABLE t (id key PRIMARY KEY, v integer)", LOAD, Gained),
        case("an ID in a text", "
            CREATE TABLE t (id text COLLATE \"C\" DEFAULT snowflake_to_base62(snowflake_nextval()), v integer)",
            LOAD, Gained)
            .ids("SELECT snowflake_from_base62(id) FROM t ORDER BY v"),
        case("a function that is inlined", "
            CREATE FUNCTION new_key() RETURNS bigint LANGUAGE sql AS 'SELECT snowflake_nextval()';
            CREATE TABLE t (id bigint DEFAULT new_key(), v integer)", LOAD, Gained),
        // PostgreSQL would inline this one too, and generate two IDs, if it took its argument for cheap and stable.
        case("a function that uses its argument twice", "
            CREATE FUNCTION twice(bigint) RETURNS bigint[] LANGUAGE sql AS 'SELECT ARRAY[$1, $1]';
            CREATE TABLE t (v integer, ids bigint[] DEFAULT twice(snowflake_nextval()))", LOAD, Same)
            .ids("SELECT ids[1] FROM t ORDER BY v")
            .rows("SELECT (ids[1] = ids[2])::text FROM t ORDER BY v"),
        case("a function that uses its argument twice, where operators cost nothing", "
            CREATE FUNCTION twice(bigint) RETURNS bigint[] LANGUAGE sql AS 'SELECT ARRAY[$1, $1]';
            CREATE TABLE t (v integer, ids bigint[] DEFAULT twice(snowflake_nextval()))",
            "SET cpu_operator_cost = 0; COPY t (v) FROM {rows}; RESET cpu_operator_cost", Same)
            .ids("SELECT ids[1] FROM t ORDER BY v")
            .rows("SELECT (ids[1] = ids[2])::text FROM t ORDER BY v"),
        case("a function that uses its argument twice, where operators cost more than any number", "
            CREATE FUNCTION twice(bigint) RETURNS bigint[] LANGUAGE sql AS 'SELECT ARRAY[$1, $1]';
            CREATE TABLE t (v integer, ids bigint[] DEFAULT twice(snowflake_nextval()))",
            "SET cpu_operator_cost = 1e308; COPY t (v) FROM {rows}; RESET cpu_operator_cost", Same)
            .ids("SELECT ids[1] FROM t ORDER BY v")
            .rows("SELECT (ids[1] = ids[2])::text FROM t ORDER BY v"),
        case("a function that uses its argument twice, where ten operators cost the greatest number", "
            CREATE FUNCTION twice(bigint) RETURNS bigint[] LANGUAGE sql AS 'SELECT ARRAY[$1, $1]';
            CREATE TABLE t (v integer, ids bigint[] DEFAULT twice(snowflake_nextval()))",
            "SET cpu_operator_cost = 1.7976931348623157e307; COPY t (v) FROM {rows}; RESET cpu_operator_cost", Same)
            .ids("SELECT ids[1] FROM t ORDER BY v")
            .rows("SELECT (ids[1] = ids[2])::text FROM t ORDER BY v"),
        case("another default that reads the table",
            &format!("{SEEING} ALTER TABLE t ALTER seen SET DEFAULT seen()"), LOAD, Same)
            .rows(SEEN),
        case("a BEFORE trigger that reads the table", &format!("{SEEING}
            CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN NEW.seen = seen(); RETURN NEW; END $$;
            CREATE TRIGGER see BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION see()"), LOAD, Same)
            .rows(SEEN),
        case("an AFTER trigger with all rows", "
            CREATE TABLE sums (rows bigint, ids bigint, v bigint);
            CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), v integer);
            CREATE FUNCTION sum_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO sums SELECT count(*), count(DISTINCT id), sum(v) FROM new_rows; RETURN NULL; END $$;
            CREATE TRIGGER sum_up AFTER INSERT ON t REFERENCING NEW TABLE AS new_rows
                EXECUTE FUNCTION sum_up()", LOAD, Any)
            .rows("SELECT v || ' ' || (SELECT sums::text FROM sums) FROM t ORDER BY v"),
        case("a view with an INSTEAD OF trigger", &format!("{TABLE}
            CREATE VIEW seen AS TABLE t;
            ALTER VIEW seen ALTER id SET DEFAULT snowflake_nextval();
            CREATE FUNCTION put() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN INSERT INTO t VALUES (NEW.id, NEW.v); RETURN NEW; END $$;
            CREATE TRIGGER put INSTEAD OF INSERT ON seen FOR EACH ROW EXECUTE FUNCTION put()"),
            "COPY seen (v) FROM {rows}", Same),
    ];
    if pg_version() >= 16 {
        cases.push(
            case("the option DEFAULT", TABLE, "COPY t FROM {some_ids} (DEFAULT 'made')", Gained)
                .ids("SELECT id FROM t WHERE id <> v ORDER BY v")
                .rows("SELECT v || ' ' || (id = v) FROM t ORDER BY v"),
        );
    }
    if pg_version() >= 17 {
        cases.push(case("rows with errors", TABLE, "COPY t (v) FROM {some_bad} (ON_ERROR ignore)", Gained));
    }
    cases.iter().for_each(|case| pair.compare(case));
}

#[test]
fn copy_batches_rows_for_another_server() {
    if !has_contrib() {
        return;
    }
    let mut pair = Pair::start("");
    let folder = pair.server.folder().display().to_string();
    // The other table is in the first database, and both write to it, one after the other.
    let setup = format!(
        "CREATE EXTENSION IF NOT EXISTS postgres_fdw WITH SCHEMA public;
         DROP SERVER IF EXISTS own CASCADE;
         CREATE SERVER own FOREIGN DATA WRAPPER postgres_fdw
             OPTIONS (host '{folder}', port '5432', dbname 'postgres', batch_size '100');
         CREATE USER MAPPING FOR postgres SERVER own OPTIONS (user 'postgres');"
    );
    run(&mut pair.server.connect(), "CREATE TABLE public.elsewhere (id bigint, v integer)");
    let table = "CREATE FOREIGN TABLE t (id bigint DEFAULT snowflake_nextval(), v integer)
                     SERVER own OPTIONS (schema_name 'public', table_name 'elsewhere');";
    let empty = "DELETE FROM t;";
    pair.compare(&case("a foreign table", &format!("{setup}{table}{empty}"), LOAD, Batches::Any));
    let parted = "
        CREATE TABLE t (id bigint DEFAULT snowflake_nextval(), v integer) PARTITION BY RANGE (v);
        CREATE TABLE near PARTITION OF t FOR VALUES FROM (0) TO (300);
        CREATE FOREIGN TABLE far PARTITION OF t FOR VALUES FROM (300) TO (10000)
            SERVER own OPTIONS (schema_name 'public', table_name 'elsewhere');";
    pair.compare(&case("a foreign partition", &format!("{setup}{parted}{empty}"), LOAD, Batches::Any));
}

/// A trigger on `t` that runs a statement in the middle of the COPY, at one row of the second batch.
fn amid(statement: &str) -> String {
    format!(
        "{TABLE}
         CREATE TABLE old AS SELECT generate_series(1, 50) AS v;
         CREATE TABLE ids (id bigint DEFAULT snowflake_nextval(), v serial);
         CREATE FUNCTION amid() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN IF NEW.v = 1100 THEN {statement}; END IF; RETURN NEW; END $$;
         CREATE TRIGGER amid BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION amid()"
    )
}

/// What runs within a COPY sees a VOLATILE function, however it is nested.
#[test]
fn a_statement_within_copy_is_as_ever() {
    let mut pair = Pair::start("");
    for (name, statement, ids) in [
        (
            "ALTER TABLE",
            "ALTER TABLE old ADD COLUMN id bigint DEFAULT snowflake_nextval()",
            "SELECT id FROM old ORDER BY v",
        ),
        (
            "ALTER TABLE in a DO block in SQL that is built",
            "EXECUTE 'DO $do$ BEGIN ALTER TABLE old ADD COLUMN id bigint DEFAULT snowflake_nextval(); END $do$'",
            "SELECT id FROM old ORDER BY v",
        ),
        (
            "ALTER TABLE after a COPY",
            "COPY ids (v) FROM {rows};
            ALTER TABLE old ADD COLUMN id bigint DEFAULT snowflake_nextval()",
            "SELECT id FROM old ORDER BY v",
        ),
        (
            "ALTER TABLE after a COPY that fails",
            "BEGIN COPY ids (v) FROM {late_bad}; EXCEPTION WHEN OTHERS THEN
                ALTER TABLE old ADD COLUMN id bigint DEFAULT snowflake_nextval(); END",
            "SELECT id FROM old ORDER BY v",
        ),
        ("COPY", "COPY ids (v) FROM {rows}", "SELECT id FROM ids ORDER BY v"),
        (
            "COPY in a DO block",
            "EXECUTE $do$ DO $in$ BEGIN COPY ids (v) FROM {rows}; END $in$ $do$",
            "SELECT id FROM ids ORDER BY v",
        ),
        (
            "CREATE TABLE AS",
            "CREATE TABLE made AS SELECT v, snowflake_nextval() AS id FROM old",
            "SELECT id FROM made ORDER BY v",
        ),
        (
            "a materialized view",
            "CREATE MATERIALIZED VIEW made AS SELECT v, snowflake_nextval() AS id FROM old",
            "SELECT id FROM made ORDER BY v",
        ),
        (
            "a type that is changed",
            "ALTER TABLE old ALTER v TYPE bigint USING snowflake_nextval()",
            "SELECT v FROM old ORDER BY ctid",
        ),
        ("INSERT", "INSERT INTO ids (v) SELECT v FROM old", "SELECT id FROM ids ORDER BY v"),
        (
            "INSERT in a DO block",
            "EXECUTE 'DO $do$ BEGIN FOR i IN 1..50 LOOP INSERT INTO ids DEFAULT VALUES; END LOOP; END $do$'",
            "SELECT id FROM ids ORDER BY v",
        ),
        (
            "an expression of PL/pgSQL",
            "FOR i IN 1..50 LOOP INSERT INTO ids VALUES (snowflake_nextval(), i); END LOOP",
            "SELECT id FROM ids ORDER BY v",
        ),
        (
            "UPDATE",
            "ALTER TABLE old ADD id bigint; UPDATE old SET id = snowflake_nextval()",
            "SELECT id FROM old ORDER BY v",
        ),
    ] {
        pair.compare(&case(name, &amid(statement), LOAD, Batches::Any).ids(ids));
    }
}

/// After each way in which a COPY can end, the session is as before.
#[test]
fn a_copy_that_failed_leaves_nothing_behind() {
    let mut pair = Pair::start("");
    for (name, load) in [
        ("an error", "BEGIN; SAVEPOINT s; COPY t (v) FROM {late_bad}"),
        ("an error in a function", "DO $$ BEGIN COPY t (v) FROM {late_bad}; END $$"),
        ("an error before the first row", "COPY t (v) FROM {rows} (FORMAT binary)"),
        (
            "an error in the default",
            "ALTER TABLE t ALTER id SET DEFAULT snowflake_nextval() / (id_of() - 1); COPY t (v) FROM {rows}",
        ),
    ] {
        let load = pair.sql(load);
        for session in &mut pair.sessions {
            run(
                session,
                "DROP SCHEMA IF EXISTS loading CASCADE; CREATE SCHEMA loading; SET search_path = loading, public",
            );
            run(session, &format!("{TABLE} CREATE FUNCTION id_of() RETURNS integer LANGUAGE sql RETURN 1"));
            session.batch_execute(&load).expect_err(name);
            let _ = session.batch_execute("ROLLBACK TO s; COMMIT");
        }
        pair.compare(&case(
            name,
            "CREATE TABLE old AS SELECT generate_series(1, 50) AS v",
            "ALTER TABLE old ADD COLUMN id bigint DEFAULT snowflake_nextval(); ALTER TABLE old RENAME TO t",
            Batches::Any,
        ));
        pair.compare(&case(name, TABLE, LOAD, Batches::Gained));
    }
    // A client that gives up, as behind a pooler that hands the session to another.
    for session in &mut pair.sessions {
        let mut copy = session.copy_in("COPY t (v) FROM STDIN").expect("COPY begins");
        copy.write_all(b"1\n2\n").expect("rows");
        drop(copy);
    }
    pair.compare(&case("a client gave up", TABLE, LOAD, Batches::Gained));
    pair.compare(&case(
        "a savepoint",
        TABLE,
        "BEGIN; SAVEPOINT s; COPY t (v) FROM {rows}; ROLLBACK TO s;
        COPY t (v) FROM {rows}; COMMIT",
        Batches::Gained,
    ));
}

/// An error of PostgreSQL in the planner's support function must not end the server. Besides, COPY needs no lock on this
/// table, which VACUUM FULL may hold for long.
#[test]
fn copy_does_not_wait_for_pg_constraint() {
    let mut pair = Pair::start(TABLE);
    let load = pair.sql(LOAD);
    // A first COPY, so that the table is in PostgreSQL's caches.
    pair.sessions.iter_mut().for_each(|session| run(session, &format!("{load}; SET lock_timeout = '200ms'")));
    for (at, session) in pair.sessions.iter_mut().enumerate() {
        let mut other =
            pair.server.config().dbname(["postgres", "without"][at]).connect(NoTls).expect("a session");
        run(&mut other, "BEGIN; LOCK TABLE pg_catalog.pg_constraint IN ACCESS EXCLUSIVE MODE");
        run(session, &load);
        run(&mut other, "ROLLBACK");
        assert_eq!(one::<i64>(session, "SELECT count(DISTINCT id) FROM t"), 2 * ROWS as i64);
    }
}

/// COPY of a query plans it in the same memory context, but with a planner.
#[test]
fn copy_of_a_query_sees_a_volatile_function() {
    let mut pair = Pair::start("");
    // Of two equal aggregates that are not volatile, PostgreSQL computes one.
    let query = "COPY (SELECT v, min(snowflake_nextval()), min(snowflake_nextval())
                       FROM generate_series(1, 50) v GROUP BY v ORDER BY v) TO {out}";
    let load = format!("{query}; COPY t FROM {{out}}");
    pair.compare(
        &case("COPY TO", "CREATE TABLE t (v integer, id bigint, other bigint)", &load, Batches::Any)
            .rows("SELECT (id < other)::text FROM t ORDER BY v"),
    );
}

/// The executor checks the right when it prepares the default, and so does the planner's support function.
#[test]
fn copy_needs_the_right_to_execute() {
    let mut pair = Pair::start(
        "CREATE SCHEMA loading; SET search_path = loading, public;
         CREATE TABLE t (id bigint DEFAULT snowflake_nextval(), v integer);
         REVOKE ALL ON FUNCTION snowflake_nextval() FROM PUBLIC;
         GRANT USAGE ON SCHEMA loading TO PUBLIC; GRANT ALL ON t TO PUBLIC",
    );
    run(&mut pair.server.connect(), "CREATE ROLE guest LOGIN; GRANT pg_read_server_files TO guest");
    let load = pair.sql(LOAD);
    let failures = pair.sessions.each_mut().map(|session| {
        run(session, "SET ROLE guest");
        let failure = fails(session, "42501", &load);
        assert_eq!(failure, fails(session, "42501", "INSERT INTO t (v) VALUES (1)"));
        run(session, "RESET ROLE; GRANT EXECUTE ON FUNCTION snowflake_nextval() TO guest; SET ROLE guest");
        run(session, &load);
        failure
    });
    assert_eq!(failures[0], failures[1]);
    assert_eq!(failures[0].message, "permission denied for function snowflake_nextval");
    // Whoever was granted the one function only still loads, without batches.
    let session = &mut pair.sessions[0];
    run(
        session,
        "RESET ROLE; REVOKE ALL ON ALL FUNCTIONS IN SCHEMA snowflake_internal FROM PUBLIC; SET ROLE guest",
    );
    run(session, &load);
    assert_eq!(one::<i64>(session, "SELECT count(DISTINCT id) FROM t"), 2 * ROWS as i64);
}

/// PostgreSQL plans the check of a domain once for a session, and does so within the first COPY that uses it.
#[test]
fn a_domains_check_is_planned_without_the_twin() {
    let mut pair = Pair::start(
        "REVOKE ALL ON FUNCTION snowflake_nextval() FROM PUBLIC;
         CREATE DOMAIN key AS bigint DEFAULT snowflake_nextval() CHECK (VALUE < snowflake_nextval());
         CREATE TABLE t (id key, v integer); CREATE TABLE old AS SELECT generate_series(1, 50) AS v",
    );
    run(&mut pair.server.connect(), "CREATE ROLE guest");
    let load = pair.sql(LOAD);
    let failures = pair.sessions.each_mut().map(|session| {
        // The check's cached plan must not let a role call a function on which it has no right.
        run(session, &format!("{load}; SET ROLE guest"));
        let failure = fails(session, "42501", "SELECT 1::bigint::key");
        // Nor must it seem stable, or else (from PostgreSQL 19 on) a column would get its default without a rewrite.
        run(session, "RESET ROLE");
        let file = "SELECT pg_relation_filenode('old')::bigint";
        let before: i64 = one(session, file);
        run(session, "ALTER TABLE old ADD COLUMN id key DEFAULT 1");
        assert_ne!(one::<i64>(session, file), before, "rewritten");
        failure
    });
    assert_eq!(failures[0], failures[1]);
}

#[test]
fn nobody_can_call_the_twin() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let twin = "snowflake_nextval_in_copy";
    for argument in
        ["", "0", "0::bigint", "'0'", "NULL", "NULL::internal", "NULL::bigint", "ROW()", "ARRAY[0]"]
    {
        session.batch_execute(&format!("SELECT {twin}({argument})")).expect_err(argument);
    }
    assert_eq!(one::<i64>(&mut session, "SELECT issued::bigint FROM snowflake_status"), 0);
    session.batch_execute("SELECT snowflake_nextval_support(NULL)").expect_err("internal");
}

#[test]
fn copy_without_the_library_fails_as_ever() {
    let server = Server::builder().without_library().start();
    let mut session = server.connect();
    for setup in [
        "CREATE EXTENSION snowflake_id",
        "UPDATE pg_proc SET prosupport = 0 WHERE proname = 'snowflake_nextval'",
    ] {
        run(&mut session, &format!("{setup}; DROP TABLE IF EXISTS t; {TABLE}"));
        let failure = fails(&mut session, "55000", "COPY t (v) FROM PROGRAM 'echo 1'");
        assert_eq!(failure, fails(&mut session, "55000", "INSERT INTO t (v) VALUES (1)"));
    }
}
