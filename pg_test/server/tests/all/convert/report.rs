//! The report of a conversion: a dry run returns all obstacles at once, code and columns to look at, what it leaves out, the
//! statements around the conversion, and the way back. The schemas are small, and each has a trait of an application that a
//! conversion broke, or was refused for.

use postgres::Client;
use snowflake_server_tests::sql::{column, fails, one, run};
use snowflake_server_tests::{Database, Server, pg_version};

#[track_caller]
fn database() -> Database {
    Database::shared(Server::builder(), "CREATE ROLE reader; CREATE ROLE bob LOGIN")
}

/// The rows of a kind, each with its object, statement, note and remedy.
#[track_caller]
fn rows(session: &mut Client, call: &str, kind: &str) -> Vec<String> {
    column(
        session,
        &format!(
            "SELECT concat_ws(' | ', object, replace(statement, E'\\n', ' '), note, remedy)
             FROM snowflake_convert{call} WHERE kind = '{kind}' ORDER BY step"
        ),
    )
}

/// Whether one of the rows is of an object, and has all of some words.
#[track_caller]
fn assert_has(rows: &[String], object: &str, words: &[&str]) {
    let of_object = |row: &&String| row.split(" | ").next() == Some(object);
    let row = rows.iter().find(of_object).unwrap_or_else(|| panic!("no row of {object}: {rows:#?}"));
    for word in words {
        assert!(row.contains(word), "{word:?} is missing in: {row}");
    }
}

/// The schema as PostgreSQL dumps it.
fn dumped(database: &Database) -> Vec<String> {
    let dump = database.server().dump(database.name(), &["--schema-only", "--schema=app"]);
    dump.lines().map(str::to_owned).collect()
}

// ---- obstacles ----

/// Four keys with obstacles of several kinds, with comments, rights and states of their own.
const OBSTACLES: &str = "
    CREATE SCHEMA app;
    CREATE TABLE app.a (id serial PRIMARY KEY, x text);
    CREATE TABLE app.b (id serial PRIMARY KEY, x text);
    CREATE TABLE app.c (id serial PRIMARY KEY, x text);
    CREATE TABLE app.d (id serial PRIMARY KEY, x text, g bigint GENERATED ALWAYS AS (id * 2) STORED NOT NULL CHECK (g > 0));
    CREATE INDEX ON app.d (g); COMMENT ON COLUMN app.d.g IS 'it''s twice'; GRANT SELECT (g) ON app.d TO reader;
    CREATE VIEW app.of_g AS SELECT g, x FROM app.d;
    CREATE MATERIALIZED VIEW app.m WITH (fillfactor = 70) AS SELECT id, x FROM app.a WITH NO DATA;
    CREATE UNIQUE INDEX m_id ON app.m (id); COMMENT ON INDEX app.m_id IS 'one'; ALTER MATERIALIZED VIEW app.m CLUSTER ON m_id;
    COMMENT ON MATERIALIZED VIEW app.m IS 'stored'; GRANT SELECT ON app.m TO reader WITH GRANT OPTION;
    CREATE STATISTICS app.m_stat ON id, x FROM app.m;
    CREATE VIEW app.on_m WITH (security_barrier = true) AS SELECT m.id, a.x FROM app.m JOIN app.a USING (id);
    CREATE FUNCTION app.t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER t AFTER UPDATE OF id ON app.b FOR EACH ROW EXECUTE FUNCTION app.t();
    ALTER TABLE app.b DISABLE TRIGGER t; COMMENT ON TRIGGER t ON app.b IS 'silent';
    CREATE RULE r AS ON DELETE TO app.b DO ALSO SELECT old.id; ALTER TABLE app.b ENABLE ALWAYS RULE r;
    CREATE POLICY p ON app.b AS RESTRICTIVE FOR UPDATE TO reader USING (id > 3) WITH CHECK (id > 4);
    COMMENT ON POLICY p ON app.b IS 'few';
    CREATE FUNCTION app.highest() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT max(id) FROM app.a; END;
    COMMENT ON FUNCTION app.highest() IS 'of a'; REVOKE ALL ON FUNCTION app.highest() FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION app.highest() TO reader;
    CREATE VIEW app.v AS SELECT id, x FROM app.c;
    CREATE FUNCTION app.f() RETURNS SETOF app.v LANGUAGE sql AS 'SELECT * FROM app.v'";

/// What obstacles have beside their definitions, and obstacles on obstacles.
const DECORATED: &str = "
    CREATE SCHEMA app;
    CREATE TABLE app.a (id serial PRIMARY KEY, x text);
    ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO reader;
    CREATE FUNCTION app.z() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT max(id) FROM app.a; END;
    REVOKE ALL ON FUNCTION app.z() FROM reader, CURRENT_USER;
    ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM reader;
    CREATE FUNCTION app.y() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT app.z() + count(*) FROM app.a; END;
    GRANT EXECUTE ON FUNCTION app.y() TO reader WITH GRANT OPTION;
    CREATE VIEW app.on_y AS SELECT app.y() AS y; CREATE TABLE app.other (x text);
    CREATE POLICY p ON app.other USING (app.y() > 3);
    CREATE MATERIALIZED VIEW app.m WITH (toast.autovacuum_enabled = false) AS SELECT id, x, x || 'b' AS xb FROM app.a;
    ALTER MATERIALIZED VIEW app.m ALTER x SET STATISTICS 55, ALTER x SET STORAGE EXTERNAL, ALTER xb SET (n_distinct = 3),
        ALTER xb SET COMPRESSION pglz;
    CREATE STATISTICS app.m_stat ON id, x FROM app.m; ALTER STATISTICS app.m_stat SET STATISTICS 33;
    COMMENT ON STATISTICS app.m_stat IS 'of m'; ALTER MATERIALIZED VIEW app.m DEPENDS ON EXTENSION plpgsql;
    ALTER FUNCTION app.y() DEPENDS ON EXTENSION plpgsql;
    CREATE INDEX m_next ON app.m ((id + 1)); ALTER INDEX app.m_next ALTER COLUMN 1 SET STATISTICS 44;
    CREATE TABLE app.g (id serial PRIMARY KEY, n integer, g bigint GENERATED ALWAYS AS (id * 2) STORED NOT NULL,
        h bigint GENERATED ALWAYS AS (id * 3) STORED, CONSTRAINT both_kept UNIQUE (g, h) DEFERRABLE);
    ALTER TABLE app.g ALTER g SET STATISTICS 77, ALTER g SET (n_distinct = 5), ADD CONSTRAINT positive CHECK (g > 0);
    CREATE INDEX ON app.g (n) WHERE g > 4; CREATE INDEX g_both ON app.g (h, g); ALTER TABLE app.g CLUSTER ON g_both; COMMENT ON INDEX app.g_both IS 'ordered';
    CREATE UNIQUE INDEX g_one ON app.g (g); ALTER TABLE app.g REPLICA IDENTITY USING INDEX g_one;
    CREATE STATISTICS app.g_stat ON n, g FROM app.g; COMMENT ON CONSTRAINT positive ON app.g IS 'always';
    COMMENT ON CONSTRAINT both_kept ON app.g IS 'a pair';
    CREATE TABLE app.part (id serial, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
    CREATE TABLE app.part_1 PARTITION OF app.part DEFAULT;
    CREATE FUNCTION app.t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER t AFTER UPDATE OF id ON app.part FOR EACH ROW EXECUTE FUNCTION app.t(); ALTER TABLE app.part_1 DISABLE TRIGGER t";

/// Executes the report as a script, and returns the statements of the way back.
#[track_caller]
fn script(session: &mut Client) -> Vec<String> {
    run(session, "BEGIN; CREATE TEMPORARY TABLE report AS SELECT * FROM snowflake_convert_schema('app')");
    let of_kind = |kind| format!("SELECT statement FROM report WHERE kind = '{kind}' ORDER BY step");
    for statement in column::<String>(session, &of_kind("before")) {
        run(session, &statement);
    }
    assert_eq!(rows(session, "_schema('app')", "obstacle"), [""; 0]);
    run(session, "SELECT snowflake_convert_schema('app', dry_run => false)");
    for statement in column::<String>(session, &of_kind("after")) {
        run(session, &statement);
    }
    run(session, "COMMIT");
    column(session, &of_kind("revert"))
}

/// The lines of a dump, without their order.
fn sorted(dump: Vec<String>) -> Vec<String> {
    let mut lines: Vec<String> = dump.iter().map(|line| line.trim_end_matches(',').to_owned()).collect();
    lines.sort();
    lines
}

#[test]
fn a_dry_run_returns_all_obstacles_and_a_real_run_raises_the_first() {
    let database = database();
    let mut session = database.connect();
    // Its watcher reads all rows.
    run(&mut session, &OBSTACLES.replace(" WITH NO DATA", ""));
    run(
        &mut session,
        "CREATE TABLE app.e (id bigserial PRIMARY KEY); CREATE INDEX narrow ON app.e ((id::integer))",
    );
    let rows = database.unchanged_by("a dry run", || rows(&mut session, "_schema('app')", "obstacle"));
    let objects: Vec<&str> = rows.iter().filter_map(|row| row.split(" | ").next()).collect();
    assert_eq!(
        objects,
        [
            "function app.highest()",
            "generated column g of table app.d",
            "materialized view app.m",
            "policy p on table app.b",
            "rule r on table app.b",
            "trigger t on table app.b",
            "function app.f()",
            "index app.narrow",
        ]
    );
    let reason =
        "cannot widen column \"id\" of table app.a to bigint: The materialized view app.m depends on it.";
    assert_has(&rows, "materialized view app.m", &[reason, "drop the object, convert, and create it again."]);
    assert_has(&rows, "function app.f()", &["cannot drop view app.v and create it again"]);

    let call = "SELECT snowflake_convert_schema('app', dry_run => false)";
    let error = session.batch_execute(call).expect_err("eight obstacles");
    let error = error.as_db_error().expect("an error of the server");
    assert_eq!(error.message(), "cannot widen column \"id\" of table app.a to bigint");
    let detail = "The function app.highest() depends on it. This is the first of 8 obstacles.";
    assert_eq!(error.detail(), Some(detail));
    assert!(error.hint().is_some_and(|hint| hint.ends_with(" A dry run returns all.")), "{error:?}");
    assert_eq!(error.where_(), None, "no CONTEXT of the extension's functions");
}

/// The rows are a script.
#[test]
fn the_printed_statements_drop_obstacles_and_create_them_again() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, OBSTACLES);
    let before = dumped(&database);
    let back = script(&mut session);

    // All but the keys is as it was, and the generated column comes last.
    let after = dumped(&database);
    let is_of_keys = |line: &str| {
        [
            "_id_seq",
            "SEQUENCE",
            "    id ",
            "    AS integer",
            "    START WITH",
            "    INCREMENT BY",
            "    CACHE",
            "    NO M",
        ]
        .iter()
        .any(|part| line.contains(part))
    };
    let lines = |dump: &[String]| {
        let mut lines: Vec<String> = dump
            .iter()
            .filter(|line| !is_of_keys(line) && !line.starts_with("--") && !line.is_empty())
            .map(|line| line.trim_end_matches(',').to_owned())
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&after), lines(&before));
    run(&mut session, "INSERT INTO app.c (x) VALUES ('new')");
    run(&mut session, "DELETE FROM app.c");
    for statement in back {
        run(&mut session, &statement);
    }
    assert_eq!(sorted(dumped(&database)), sorted(before), "with the sequences");
    run(&mut session, "INSERT INTO app.d (x) VALUES ('new'); REFRESH MATERIALIZED VIEW app.m");
}

#[test]
fn obstacles_have_settings_comments_states_and_rights_again() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, DECORATED);
    let before = sorted(dumped(&database));
    // A function of these would be executable by reader.
    run(
        &mut session,
        "ALTER DEFAULT PRIVILEGES IN SCHEMA app GRANT ALL ON FUNCTIONS TO reader WITH GRANT OPTION",
    );
    let back = script(&mut session);
    for statement in back {
        run(&mut session, &statement);
    }
    run(&mut session, "ALTER DEFAULT PRIVILEGES IN SCHEMA app REVOKE ALL ON FUNCTIONS FROM reader");
    assert_eq!(sorted(dumped(&database)), before);
}

/// Partitions and children may have indexes, constraints, comments and rights of their own on the column.
#[test]
fn a_generated_column_that_others_inherit_is_in_no_script() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app;
         CREATE TABLE app.part (id serial, at date, g bigint GENERATED ALWAYS AS (id * 2) STORED, PRIMARY KEY (id, at))
             PARTITION BY RANGE (at);
         CREATE TABLE app.part_1 PARTITION OF app.part DEFAULT; CREATE INDEX ON app.part (g);
         CREATE TABLE app.up (id serial PRIMARY KEY, g bigint GENERATED ALWAYS AS (id * 2) STORED);
         CREATE TABLE app.down (CHECK (g < 9)) INHERITS (app.up)",
    );
    assert_eq!(rows(&mut session, "_schema('app')", "obstacle").len(), 4);
    for kind in ["before", "after"] {
        assert_eq!(rows(&mut session, "_schema('app')", kind), [""; 0]);
    }
}

#[test]
fn a_lack_of_rights_is_an_error_of_the_dry_run_too_and_groups_owners() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app; CREATE TABLE app.a (id serial PRIMARY KEY); CREATE TABLE app.z (id serial PRIMARY KEY);
         CREATE TABLE app.y (id bigserial PRIMARY KEY); ALTER TABLE app.z OWNER TO bob; ALTER TABLE app.y OWNER TO bob",
    );
    for dry_run in [true, false] {
        let call = format!("SELECT snowflake_convert_schema('app', {dry_run})");
        let failure = fails(&mut session, "42501", &call);
        assert_eq!(
            failure.detail,
            "Other owners, with the number of objects: bob 4 (app.y, app.y_id_seq, app.z, app.z_id_seq)."
        );
        assert!(failure.hint.contains("exclude those of others"), "{failure}");
    }
    // As the hint says.
    run(&mut session, "SELECT snowflake_convert_schema('app', false, exclude => '{y,z}')");
}

/// A table that references the key can be in a schema that its owner does not reach.
#[test]
fn a_lack_of_usage_on_a_schema_is_an_error_with_a_remedy() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "GRANT EXECUTE ON FUNCTION snowflake_convert TO bob; CREATE SCHEMA app; GRANT ALL ON SCHEMA app TO bob; CREATE SCHEMA far;
         CREATE TABLE app.a (id serial PRIMARY KEY); CREATE TABLE far.b (a integer REFERENCES app.a);
         ALTER TABLE app.a OWNER TO bob; ALTER TABLE far.b OWNER TO bob",
    );
    let call = "SELECT snowflake_convert('app.a', 'id', false)";
    let mut bob = database.connect_as("bob");
    let failure = fails(&mut bob, "42501", call);
    assert_eq!(failure.message, "permission denied for schema far");
    assert_eq!(failure.detail, "The call locks and changes far.b.");
    // As the hint says.
    assert_eq!(failure.hint, "First run GRANT USAGE ON SCHEMA far TO bob.");
    run(&mut session, "GRANT USAGE ON SCHEMA far TO bob");
    run(&mut bob, call);
}

/// Several columns may have one obstacle.
#[test]
fn an_obstacle_names_a_column_of_its_table() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app; CREATE TABLE app.b (id serial PRIMARY KEY); CREATE TABLE app.c (a_b integer REFERENCES app.b);
         CREATE MATERIALIZED VIEW app.m AS SELECT id, a_b FROM app.b LEFT JOIN app.c ON a_b = id",
    );
    let found = rows(&mut session, "_schema('app')", "obstacle");
    let column = "cannot widen column \"a_b\" of table app.c to bigint";
    assert_has(&found, "materialized view app.m", &[column]);
}

#[test]
fn an_index_function_that_postgresql_cannot_plan_is_named() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app; SET search_path = app, public;
         CREATE FUNCTION inner_one(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $1 + 1';
         CREATE FUNCTION outer_one(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT inner_one($1)';
         CREATE TABLE a (id bigserial PRIMARY KEY, x bigint); CREATE TABLE b (id bigserial PRIMARY KEY);
         CREATE TABLE c (b integer REFERENCES b, x bigint); CREATE TABLE d (a bigint REFERENCES a, x bigint)",
    );
    // From PostgreSQL 17 on, the index is created with the search_path of a conversion.
    let is_possible = pg_version() < 17;
    for table in ["a", "c", "d"] {
        let create = format!("CREATE INDEX {table}_x ON {table} (outer_one(x))");
        assert_eq!(session.batch_execute(&create).is_ok(), is_possible, "{create}");
    }
    if !is_possible {
        return;
    }
    let found = rows(&mut session, "_schema('app')", "obstacle");
    let words = [
        "function inner_one(bigint) does not exist",
        "ALTER FUNCTION app.outer_one(bigint) SET search_path = app, ",
    ];
    assert_has(&found, "index app.a_x", &words);
    assert_has(&found, "index app.c_x", &words);
    assert_eq!(found.len(), 2, "nothing reads d: {found:#?}");
    // The other keys are in the report.
    assert!(rows(&mut session, "_schema('app')", "statement").iter().any(|row| row.contains("app.b ALTER")));
    let failure = fails(&mut session, "42883", "SELECT snowflake_convert_schema('app', false)");
    assert!(failure.message.contains("cannot read table app.a"), "{failure}");
    // As the hint says.
    run(&mut session, "ALTER FUNCTION app.outer_one(bigint) SET search_path = app, pg_temp");
    run(&mut session, "SELECT snowflake_convert_schema('app', false)");
}

/// PostgreSQL rebuilds an index with a function of another column.
#[test]
fn an_index_on_a_key_with_a_function_of_another_column_is_no_obstacle() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app; CREATE TABLE app.a (id serial PRIMARY KEY);
         CREATE FUNCTION app.back(t timestamptz) RETURNS bigint IMMUTABLE LANGUAGE sql AS
             'SELECT -(extract(epoch FROM t))::bigint';
         CREATE FUNCTION app.even(integer) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT $1 % 2 = 0';
         CREATE TABLE app.b (id serial PRIMARY KEY, a integer REFERENCES app.a, t timestamptz);
         CREATE INDEX ON app.b (a, app.back(t)); CREATE INDEX own ON app.b (a, app.even(a));
         CREATE INDEX whole ON app.b ((b IS NULL), app.back(t))",
    );
    let found = rows(&mut session, "_schema('app')", "obstacle");
    assert_has(&found, "index app.own with function app.even(integer)", &["\"a\" of table app.b"]);
    run(&mut session, "DROP INDEX app.own, app.whole; SELECT snowflake_convert_schema('app', false)");
    run(
        &mut session,
        "WITH a AS (INSERT INTO app.a DEFAULT VALUES RETURNING id) INSERT INTO app.b (a, t) SELECT id, now() FROM a",
    );
}

// ---- code ----

#[test]
fn code_that_may_break_is_named() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app; CREATE SCHEMA api; CREATE SCHEMA far;
         CREATE TABLE app.singer (id serial PRIMARY KEY, songs integer NOT NULL DEFAULT 0);
         CREATE TABLE app.song (id serial PRIMARY KEY, singer integer NOT NULL REFERENCES app.singer);
         CREATE TABLE app.wide (id bigserial PRIMARY KEY, n integer DEFAULT nextval('app.wide_id_seq'::text),
             singer integer, generated integer GENERATED ALWAYS AS (singer + 1) STORED);
         CREATE FUNCTION api.count_song(integer) RETURNS void LANGUAGE plpgsql AS
             $$ BEGIN UPDATE app.singer SET songs = songs + 1 WHERE id = $1; END $$;
         CREATE FUNCTION api.on_song() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM api.count_song(NEW.singer), api.helper('1'); RETURN NULL; END $$;
         CREATE TRIGGER t AFTER INSERT ON app.song FOR EACH ROW EXECUTE FUNCTION api.on_song();
         CREATE FUNCTION api.helper(text) RETURNS SETOF integer LANGUAGE sql AS $$ SELECT $1::integer $$;
         CREATE FUNCTION app.ids() RETURNS integer[] LANGUAGE sql AS $$ SELECT '{1}'::integer[] $$;
         CREATE PROCEDURE far.add() LANGUAGE sql AS $$ INSERT INTO app.song (singer) VALUES (1) $$;
         CREATE FUNCTION far.last() RETURNS bigint LANGUAGE sql AS $$ SELECT currval('app.WIDE_ID_SEQ') $$;
         CREATE FUNCTION far.atomic() RETURNS bigint LANGUAGE sql
             BEGIN ATOMIC SELECT currval('app.wide_id_seq'::text); END;
         CREATE FUNCTION far.unrelated(integer) RETURNS integer LANGUAGE sql AS 'SELECT $1';
         DO $$ BEGIN EXECUTE format('CREATE FUNCTION far.endless() RETURNS bigint LANGUAGE sql AS %L',
             'SELECT 1 --' || repeat(' ', 100000) || 'song'); END $$;
         CREATE FUNCTION far.touches() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TRIGGER t BEFORE INSERT ON app.wide FOR EACH ROW EXECUTE FUNCTION far.touches()",
    );
    let found = rows(&mut session, "_schema('app')", "check");
    assert_has(
        &found,
        "function api.on_song()",
        &["trigger t of table app.song calls it", "column singer of table app.song"],
    );
    assert_has(
        &found,
        "function api.count_song(integer)",
        &["names column", "table app.singer", "of the old type"],
    );
    assert_has(&found, "function api.helper(text)", &["of the old type"]);
    assert_has(&found, "function app.ids()", &["of the old type"]);
    assert_has(&found, "function far.add()", &["table app.song", "variables, parameters, casts"]);
    assert_has(&found, "function far.last()", &["it names sequence app.wide_id_seq", "currval"]);
    assert_has(&found, "function far.atomic()", &["it names sequence app.wide_id_seq"]);
    assert_has(
        &found,
        "default value for column n of table app.wide",
        &["it names sequence app.wide_id_seq"],
    );
    assert_has(
        &found,
        "applications",
        &["lastval()", "pair inserted rows", "RETURNING", "ORM", "Reconnect pools"],
    );
    assert_has(
        &found,
        "extension plpgsql_check",
        &[
            "'{api.count_song(integer),api.on_song()}'::regprocedure[]",
            "plpgsql_check_function",
            "not installed",
        ],
    );
    for name in ["unrelated", "touches", "generated", "endless"] {
        assert!(!found.concat().contains(name), "{found:#?}");
    }
    // Of a bigint key, only what names its sequence.
    let found = rows(&mut session, "('app.wide', 'id')", "check");
    assert_eq!(found.len(), 4, "{found:#?}");
    // The report of the real run has it, too.
    let found = rows(&mut session, "('app.wide', 'id', false)", "check");
    assert_eq!(found.len(), 4, "{found:#?}");
}

/// The statement, as for functions of another name: the extension itself is not everywhere.
#[test]
fn the_statement_for_plpgsql_check_is_valid() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app; CREATE TABLE app.a (id serial PRIMARY KEY, n integer);
         CREATE FUNCTION app.t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE FUNCTION app.orphan() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM FROM app.a; RETURN NEW; END';
         CREATE FUNCTION app.\"It's\"(integer) RETURNS integer LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
         CREATE TRIGGER t BEFORE INSERT ON app.a FOR EACH ROW EXECUTE FUNCTION app.t();
         CREATE FUNCTION plpgsql_check_function(f regprocedure, relid regclass) RETURNS SETOF text LANGUAGE sql AS
             $$ SELECT concat_ws(' of ', f, nullif(relid, 0)::regclass) $$",
    );
    let query =
        "SELECT statement FROM snowflake_convert_schema('app') WHERE object = 'extension plpgsql_check'";
    let statement: String = one(&mut session, query);
    let checked = column::<String>(&mut session, &format!("SELECT c FROM ({statement}) AS s ORDER BY 1"));
    assert_eq!(checked, ["app.\"It's\"(integer)", "app.t() of app.a"]);
}

// ---- what is left out ----

#[test]
fn tables_are_excluded_by_names_and_patterns() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app; CREATE TABLE app.auth_user (id serial PRIMARY KEY);
         CREATE TABLE app.auth_group (id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY);
         CREATE TABLE app.log (id bigserial PRIMARY KEY, of_user integer REFERENCES app.auth_user);
         CREATE TABLE app.post (id serial PRIMARY KEY);
         CREATE TABLE app.auth_posts (id serial PRIMARY KEY, post integer REFERENCES app.post)",
    );
    let call = r"_schema('app', exclude => ARRAY['auth\_%', 'log'])";
    let statements = rows(&mut session, call, "statement").concat();
    // What references a converted key is widened, wherever it is.
    assert!(statements.contains("ALTER TABLE app.auth_posts ALTER COLUMN post TYPE bigint"), "{statements}");
    for word in ["auth_user", "auth_group", "app.log", "auth_posts ALTER COLUMN id"] {
        assert!(!statements.contains(word), "{word}: {statements}");
    }
    let left_out = rows(&mut session, call, "left out");
    for table in ["auth_group", "auth_user", "auth_posts", "log"] {
        let words = ["the call leaves the table out", &format!("snowflake_convert('app.{table}', 'id')")];
        assert_has(&left_out, &format!("column id of table app.{table}"), &words);
    }
    for (exclude, code) in [
        ("ARRAY['auth_usr']", "42P01"),
        ("ARRAY['log', NULL]", "22004"),
        ("NULL", "22004"),
        (r"ARRAY['log', 'auth\']", "22023"),
        (r"ARRAY['auth\\\']", "22023"),
        (r"ARRAY['log', 'auth\\']", "42P01"),
    ] {
        let call = format!("SELECT snowflake_convert_schema('app', exclude => {exclude})");
        let failure = fails(&mut session, code, &call);
        assert!(!failure.detail.is_empty() && !failure.hint.is_empty(), "{failure}");
    }
    run(
        &mut session,
        &format!("SELECT snowflake_convert{}", call.replace("exclude", "dry_run => false, exclude")),
    );
    let kept: i64 =
        one(&mut session, "SELECT count(*) FROM pg_class WHERE relkind = 'S' AND relname LIKE 'auth%'");
    assert_eq!(kept, 3, "their sequences");
    run(&mut session, "INSERT INTO app.auth_user DEFAULT VALUES; INSERT INTO app.post DEFAULT VALUES");
    assert_eq!(one::<i32>(&mut session, "SELECT max(id) FROM app.auth_user"), 1);
    assert_eq!(rows(&mut session, call, "statement"), [""; 0], "nothing is left");
}

#[test]
fn columns_that_may_be_keys_or_hold_ids_are_named() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app; CREATE TABLE app.account (id serial UNIQUE NOT NULL, number text PRIMARY KEY);
         CREATE TABLE app.invoice (id serial PRIMARY KEY, account integer REFERENCES app.account (id), object_id integer,
             tags integer[] DEFAULT '{}', paid integer, \"ownerId\" smallint, wide_id bigint);
         CREATE TABLE app.keyless (id serial);
         CREATE TABLE app.own (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
         CREATE TABLE app.kind (id integer PRIMARY KEY); CREATE TABLE app.pair (a_id integer DEFAULT 0, b integer,
             PRIMARY KEY (a_id, b))",
    );
    // Arrays of any shape.
    let found = rows(&mut session, "_tables('{{app.invoice}}')", "left out");
    assert_has(&found, "column object_id of table app.invoice", &["no foreign key"]);
    let found = rows(&mut session, "_schema('app', exclude => '{{invoice, kind}}')", "left out");
    assert_has(&found, "column id of table app.invoice", &["the call leaves the table out"]);
    let found = rows(&mut session, "_schema('app', exclude => '{{own}}')", "left out");
    let of_own: Vec<&String> =
        found.iter().filter(|row| row.starts_with("column id of table app.own ")).collect();
    assert!(of_own.len() == 1 && of_own[0].ends_with("| the call leaves the table out"), "{found:#?}");
    let found = rows(&mut session, "_schema('app')", "left out");
    let convert = "SELECT * FROM public.snowflake_convert('app.account', 'id')";
    assert_has(&found, "column id of table app.account", &[convert, "not in the primary key"]);
    assert_has(&found, "column id of table app.kind", &["the key has no sequence"]);
    let widen = "ALTER TABLE app.invoice ALTER COLUMN object_id TYPE bigint |";
    assert_has(&found, "column object_id of table app.invoice", &[widen, "no foreign key"]);
    assert_has(&found, "column tags of table app.invoice", &["TYPE bigint[]", "its numbers may be IDs"]);
    assert_has(&found, "column a_id of table app.pair", &["no foreign key"]);
    assert_has(&found, "column \"ownerId\" of table app.invoice", &["ALTER COLUMN \"ownerId\" TYPE bigint"]);
    let keyless = "column id of table app.keyless";
    assert_has(&found, keyless, &["snowflake_convert('app.keyless', 'id')", "not in the primary key"]);
    assert_eq!(found.len(), 7, "{found:#?}");
    assert_eq!(rows(&mut session, "_schema('pg_catalog')", "left out"), [""; 0]);
    for row in found.iter().filter(|row| !row.starts_with(keyless)) {
        run(&mut session, row.split(" | ").nth(1).expect("a statement"));
    }
}

#[test]
fn the_number_of_locks_is_about_right_and_too_many_have_a_remedy() {
    let few = Server::builder().setting("max_connections", "10").setting("max_locks_per_transaction", "64");
    let server = few.start_with_extension();
    let mut session = server.connect();
    let mut tables = String::from("CREATE SCHEMA app;");
    for i in 0..30 {
        tables += &format!("CREATE TABLE app.t{i} (id serial PRIMARY KEY, a integer, b integer);");
    }
    for i in 0..30 {
        tables += &format!(
            "ALTER TABLE app.t{i} ADD FOREIGN KEY (a) REFERENCES app.t{}, ADD FOREIGN KEY (b) REFERENCES app.t{};",
            (i * 7 + 1) % 30,
            (i * 3 + 2) % 30
        );
    }
    run(&mut session, &tables);
    let note = |session: &mut Client, call: &str| rows(session, call, "statement").swap_remove(0);
    let said = note(&mut session, "_schema('app')");
    assert!(
        said.contains("and max_locks_per_transaction allows all sessions 640 | Convert fewer tables"),
        "{said}"
    );
    let number = said.split("takes about ").nth(1).and_then(|rest| rest.split(' ').next());
    let number: i64 = number.expect("a number").parse().expect("a number");
    run(&mut session, "BEGIN; SELECT snowflake_convert_schema('app', false)");
    let taken: i64 = one(&mut session, "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()");
    assert!((taken * 7 / 10..taken * 14 / 10).contains(&number), "{number} of {taken}");
    run(&mut session, "ROLLBACK");
    let said = note(&mut session, "('app.t0', 'id')");
    assert!(!said.contains("Convert fewer tables"), "{said}");
}

// ---- the way back ----

#[test]
fn the_printed_statements_bring_a_schema_back_as_it_was() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app; CREATE TABLE app.tag (id serial PRIMARY KEY, of_tag smallint REFERENCES app.tag);
         CREATE TABLE app.small (id smallserial PRIMARY KEY); CREATE TABLE app.big (id bigserial PRIMARY KEY);
         CREATE TABLE app.always (id integer GENERATED ALWAYS AS IDENTITY (START WITH 7 INCREMENT BY 3) PRIMARY KEY);
         CREATE TABLE app.by_default (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, tag integer REFERENCES app.tag);
         CREATE TABLE app.plain (id integer PRIMARY KEY, \"Small one\" smallint REFERENCES app.small);
         CREATE VIEW app.v AS SELECT id, id % 2 = 0 AS even FROM app.tag; COMMENT ON VIEW app.v IS 'tags';
         INSERT INTO app.tag SELECT FROM generate_series(1, 5); INSERT INTO app.always DEFAULT VALUES;
         INSERT INTO app.big SELECT FROM generate_series(1, 5); INSERT INTO app.by_default DEFAULT VALUES;
         GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA app TO reader; GRANT UPDATE ON app.big_id_seq TO reader WITH GRANT OPTION",
    );
    let before = dumped(&database);
    for call in ["_schema('app', dry_run => false)", "('app.plain', 'id', dry_run => false)"] {
        run(&mut session, &format!("CREATE TEMPORARY TABLE IF NOT EXISTS back (n serial, statement text);
            INSERT INTO back (statement) SELECT statement FROM snowflake_convert{call} WHERE kind = 'revert' ORDER BY step"));
    }
    assert_ne!(dumped(&database), before);
    for statement in column::<String>(&mut session, "SELECT statement FROM back ORDER BY n") {
        run(&mut session, &statement);
    }
    // The sequences go on above the highest value, and have that as their start; the rest is as it was.
    assert_eq!(dumped(&database), before);
    assert_eq!(one::<i32>(&mut session, "INSERT INTO app.tag DEFAULT VALUES RETURNING id"), 6);
    assert!(one::<i32>(&mut session, "INSERT INTO app.always DEFAULT VALUES RETURNING id") > 7);

    // Once there is an ID, a column stays bigint.
    run(
        &mut session,
        "DELETE FROM back; INSERT INTO back (statement) SELECT statement FROM snowflake_convert_schema('app', dry_run => false)
         WHERE kind = 'revert' AND note IS NULL ORDER BY step; INSERT INTO app.small DEFAULT VALUES",
    );
    fails(&mut session, "22003", "ALTER TABLE app.small ALTER COLUMN id TYPE smallint");
    for statement in column::<String>(&mut session, "SELECT statement FROM back ORDER BY n") {
        run(&mut session, &statement);
    }
    let sequences =
        "SELECT count(*) FROM pg_sequence s JOIN pg_depend d ON d.objid = s.seqrelid AND d.refobjsubid > 0
         JOIN pg_class c ON c.oid = d.refobjid AND c.relnamespace = 'app'::regnamespace AND c.relkind = 'r'";
    assert_eq!(one::<i64>(&mut session, sequences), 5, "each key but the plain one has a sequence");
}

#[test]
fn sequences_have_their_names_options_comments_and_rights_again() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app; CREATE SCHEMA far; CREATE SEQUENCE far.lone; CREATE SEQUENCE app.\"Lone\" INCREMENT 3;
         CREATE TABLE app.a (id serial PRIMARY KEY); ALTER SEQUENCE app.a_id_seq MAXVALUE 1000 CACHE 5 CYCLE;
         COMMENT ON SEQUENCE app.a_id_seq IS 'of a'; CREATE TABLE app.b (id serial PRIMARY KEY);
         ALTER SEQUENCE app.b_id_seq RENAME TO odd; GRANT USAGE ON SEQUENCE app.odd TO reader; CREATE TABLE app.c (id bigserial PRIMARY KEY);
         REVOKE UPDATE ON SEQUENCE app.c_id_seq FROM CURRENT_USER; ALTER SEQUENCE app.c_id_seq MINVALUE -5 START -5;
         CREATE TABLE app.e (id integer GENERATED ALWAYS AS IDENTITY (MAXVALUE 900 CYCLE) PRIMARY KEY);
         COMMENT ON SEQUENCE app.e_id_seq IS 'of e'; INSERT INTO app.a DEFAULT VALUES; INSERT INTO app.b DEFAULT VALUES",
    );
    for (keep_sequence, identity) in [(false, ""), (true, "DROP TABLE app.e")] {
        run(&mut session, identity);
        let before = sorted(dumped(&database));
        let call = format!("_schema('app', dry_run => false, keep_sequence => {keep_sequence})");
        let back =
            format!("SELECT statement FROM snowflake_convert{call} WHERE kind = 'revert' ORDER BY step");
        for statement in column::<String>(&mut session, &back) {
            run(&mut session, &statement);
        }
        assert_eq!(sorted(dumped(&database)), before);
        assert_eq!(
            one::<i32>(&mut session, "SELECT nextval('app.odd')::integer"),
            2 + i32::from(keep_sequence)
        );
    }
    // A sequence without an owner gets the column as its owner, if it is in the schema of the table.
    run(
        &mut session,
        "CREATE TABLE app.d (id integer PRIMARY KEY DEFAULT nextval('app.\"Lone\"'));
         CREATE TABLE app.f (id integer PRIMARY KEY DEFAULT nextval('far.lone'))",
    );
    let back = "SELECT statement FROM snowflake_convert_tables('{app.d,app.f}', false) WHERE kind = 'revert' ORDER BY step";
    for statement in column::<String>(&mut session, back) {
        run(&mut session, &statement);
    }
    let sequences = "SELECT concat_ws(' ', pg_get_serial_sequence('app.d', 'id'), seqincrement, pg_get_serial_sequence('app.f', 'id'))
        FROM pg_sequence WHERE seqrelid = 'app.\"Lone\"'::regclass";
    assert_eq!(one::<String>(&mut session, sequences), "app.\"Lone\" 3 app.f_id_seq");
}

#[test]
fn the_notes_say_what_a_key_loses() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA app; CREATE TABLE app.always (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n integer);
         CREATE TABLE app.by_default (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY);
         CREATE TABLE app.part (id bigint DEFAULT snowflake_nextval() PRIMARY KEY) PARTITION BY RANGE (id);
         CREATE TABLE app.rest PARTITION OF app.part DEFAULT;
         CREATE ROLE inserter; GRANT USAGE ON SCHEMA app TO inserter",
    );
    let said = rows(&mut session, "_schema('app')", "statement");
    let of = |table: &str| {
        said.iter()
            .find(|row| row.contains(&format!("{table} ALTER COLUMN id DROP IDENTITY")))
            .expect("a row")
            .clone()
    };
    let refusal =
        "an INSERT that gives a value is no longer refused: GRANT INSERT on the other columns alone";
    assert!(of("always").contains(refusal) && !of("by_default").contains(refusal), "{said:?}");
    let back = "SELECT string_agg(note, ' ') FROM snowflake_revert('app.part', 'id')";
    assert!(one::<String>(&mut session, back).contains("the partition of the last ID gets all further rows"));
    // As the note says.
    run(
        &mut session,
        "SELECT snowflake_convert('app.always', 'id', false); GRANT INSERT (n) ON app.always TO inserter; SET ROLE inserter;
         INSERT INTO app.always (n) VALUES (1)",
    );
    fails(&mut session, "42501", "INSERT INTO app.always (id, n) VALUES (1, 1)");
    run(&mut session, "RESET ROLE; DROP OWNED BY inserter; DROP ROLE inserter");
}
