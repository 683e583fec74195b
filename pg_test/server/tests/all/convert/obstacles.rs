//! What keeps a script from working, or what it would lose: the call names all of it before anything is locked, and once it
//! is removed, the script works.

use super::{comes_back, comments, database, scripts, state};
use regex::Regex;
use snowflake_server_tests::sql::{fails, run};
use snowflake_server_tests::{Database, pg_version};

/// The schema, a statement of a superuser, the obstacle, and what removes it. Each has the tables `app.t` and `app.r`.
/// `DEPENDS`, `NO PARTITION` and `DISABLED` stand for their texts.
const OBSTACLES: &[(&str, &str, &str, &str)] = &[
    ("", "ALTER TABLE app.r OWNER TO reader", "table app.r belongs to reader, and table app.t to owner: convert tables of one owner",
        "ALTER TABLE app.r OWNER TO owner"),
    ("", "CREATE TABLE app.wide (t bigint REFERENCES app.t)",
        "table app.wide belongs to postgres, and table app.t to owner: convert tables of one owner", "DROP TABLE app.wide"),
    ("CREATE VIEW app.v AS SELECT id FROM app.t; CREATE FUNCTION app.f() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT max(id) FROM app.t; END",
        "ALTER VIEW app.v OWNER TO reader; CREATE VIEW app.x AS SELECT x FROM app.t; ALTER FUNCTION app.f OWNER TO reader;
         CREATE FUNCTION app.next(text, app.v) RETURNS text LANGUAGE sql AS 'SELECT $1'; CREATE AGGREGATE app.a(app.v) (sfunc = app.next, stype = text); ALTER AGGREGATE app.a(app.v) OWNER TO owner",
        "function app.a(app.v) DEPENDS; function app.f() DEPENDS; function app.next(text,app.v) DEPENDS; view app.v DEPENDS",
        "DROP VIEW app.v CASCADE; DROP FUNCTION app.f"),
    ("", "CREATE TEMPORARY VIEW v AS SELECT id FROM app.t; ALTER VIEW v OWNER TO owner",
        "rule _RETURN on view pg_temp.v DEPENDS", "DROP VIEW pg_temp.v"),
    ("", "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE app.f () INHERITS (app.t) SERVER s;
          ALTER TABLE app.f OWNER TO owner",
        "foreign table app.f is a foreign table: detach it, and convert it on its own server", "DROP FOREIGN TABLE app.f"),
    ("", "CREATE TABLE app.e (id serial PRIMARY KEY); ALTER EXTENSION plpgsql ADD TABLE app.e; ALTER EXTENSION plpgsql ADD TABLE app.r",
        "table app.r belongs to an extension, which would create it as it was", "ALTER EXTENSION plpgsql DROP TABLE app.r"),
    ("CREATE TABLE app.p (t integer REFERENCES app.t, n integer) PARTITION BY HASH (t); CREATE TABLE app.p0 PARTITION OF app.p FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        "", "column t of table app.p is in a partition key, and cannot become bigint: copy the rows into a new table",
        "DROP TABLE app.p"),
    ("CREATE DOMAIN app.d AS integer; CREATE TABLE app.x (t app.d REFERENCES app.t)", "",
        "column t of table app.x has the domain app.d: first change it to bigint",
        "ALTER TABLE app.x ALTER t TYPE bigint"),
    ("CREATE VIEW app.v AS SELECT id FROM app.t; COMMENT ON TYPE app.v IS 'a row'", "", "view app.v is created again, and would lose rights or a comment of its row type",
        "COMMENT ON TYPE app.v IS NULL"),
    ("CREATE VIEW app.v AS SELECT id FROM app.t; REVOKE USAGE ON TYPE app.v FROM PUBLIC", "", "view app.v is created again, and would lose rights or a comment of its row type",
        "DROP VIEW app.v"),
    ("CREATE VIEW app.v AS SELECT id FROM app.t; GRANT SELECT (id) ON app.v TO reader WITH GRANT OPTION",
        "GRANT USAGE ON SCHEMA app TO reader; SET ROLE reader; GRANT SELECT (id) ON app.v TO PUBLIC; RESET ROLE",
        "view app.v is created again, and would lose rights that another role granted", "DROP VIEW app.v"),
    ("", "CREATE TABLE app.theirs (id bigint); CREATE POLICY p ON app.theirs USING (EXISTS (SELECT FROM app.t WHERE id > 7))",
        "policy p on table app.theirs DEPENDS", "DROP TABLE app.theirs"),
    ("CREATE TABLE app.w (t bigint REFERENCES app.t)", "ALTER TABLE app.w DISABLE TRIGGER ALL", "constraint w_t_fkey on table app.w DISABLED",
        "ALTER TABLE app.w ENABLE TRIGGER ALL"),
    ("CREATE TABLE app.k (id bigserial PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE app.k0 PARTITION OF app.k FOR VALUES FROM (-10) TO (-5);
      CREATE TABLE app.k1 PARTITION OF app.k FOR VALUES FROM (9000000000000000000) TO (MAXVALUE)",
        "", "table app.k NO PARTITION", "CREATE TABLE app.k2 PARTITION OF app.k FOR VALUES FROM (1000) TO (9000000000000000000)"),
    ("CREATE VIEW app.v AS SELECT id FROM app.t; GRANT SELECT ON app.v TO reader WITH GRANT OPTION",
        "GRANT USAGE ON SCHEMA app TO reader; SET ROLE reader; GRANT SELECT ON app.v TO PUBLIC; RESET ROLE",
        "view app.v is created again, and would lose rights that another role granted", "REVOKE SELECT ON app.v FROM reader CASCADE"),
    ("CREATE FUNCTION app.f() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT max(id) FROM app.t; END;
      GRANT EXECUTE ON FUNCTION app.f TO reader WITH GRANT OPTION; GRANT USAGE ON SCHEMA app TO reader",
        "ALTER EXTENSION plpgsql ADD FUNCTION app.f; SET ROLE reader; GRANT EXECUTE ON FUNCTION app.f TO PUBLIC;
         RESET ROLE",
        "function app.f() is created again, and would lose its extension; function app.f() is created again, and \
         would lose rights that another role granted",
        "ALTER EXTENSION plpgsql DROP FUNCTION app.f; REVOKE EXECUTE ON FUNCTION app.f FROM reader CASCADE"),
    ("CREATE TABLE app.p (t integer NOT NULL REFERENCES app.t, n integer NOT NULL, UNIQUE (t, n)) PARTITION BY HASH (n);
      CREATE TABLE app.p0 PARTITION OF app.p FOR VALUES WITH (MODULUS 1, REMAINDER 0); ALTER TABLE app.p0 REPLICA IDENTITY USING INDEX p0_t_n_key",
        "", "index app.p0_t_n_key is the replica identity of partition app.p0, and would no longer be: first ALTER TABLE app.p0 REPLICA \
         IDENTITY FULL, and set it again afterwards", "ALTER TABLE app.p0 REPLICA IDENTITY FULL"),
    ("CREATE TABLE app.n (id bigserial PRIMARY KEY); CREATE TABLE app.m (n integer REFERENCES app.n)",
        "UPDATE pg_trigger SET tgenabled = 'A' WHERE tgrelid = 'app.m'::regclass",
        "constraint m_n_fkey on table app.m DISABLED", "ALTER TABLE app.m ENABLE TRIGGER ALL"),
    ("", "REVOKE EXECUTE ON FUNCTION snowflake_nextval FROM PUBLIC; CREATE TABLE app.u (id serial PRIMARY KEY); ALTER TABLE app.u OWNER TO owner; GRANT INSERT (x, id) ON app.t TO reader; GRANT INSERT ON app.r TO reader; GRANT INSERT ON app.t TO PUBLIC",
        "table app.t takes rows from roles that may not execute the new default: first GRANT EXECUTE ON FUNCTION public.snowflake_nextval() TO PUBLIC, owner, reader; table app.u takes rows from roles that may not execute the new default: first GRANT EXECUTE ON FUNCTION public.snowflake_nextval() TO owner",
        "GRANT EXECUTE ON FUNCTION public.snowflake_nextval() TO PUBLIC, reader"),
    ("CREATE SEQUENCE app.own; CREATE TABLE app.child (id integer DEFAULT nextval('app.own')) INHERITS (app.t);
      CREATE TABLE app.i (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
      CREATE TABLE app.j (id integer DEFAULT 7) INHERITS (app.i)", "",
        "column id of table app.child has a default of its own, which the new one would replace: first ALTER TABLE \
         ONLY app.child ALTER COLUMN id DROP DEFAULT; column id of table app.j has a default of its own, which the new \
         one would replace: first ALTER TABLE ONLY app.j ALTER COLUMN id DROP DEFAULT",
        "ALTER TABLE ONLY app.child ALTER COLUMN id DROP DEFAULT; ALTER TABLE ONLY app.j ALTER COLUMN id DROP DEFAULT"),
    ("ALTER TABLE app.r ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; ALTER TABLE app.t FORCE ROW LEVEL SECURITY", "", "table app.r hides rows from its owner: first ALTER TABLE app.r NO FORCE ROW LEVEL SECURITY, and FORCE it again afterwards",
        "ALTER TABLE app.r NO FORCE ROW LEVEL SECURITY"),
    ("CREATE TABLE app.k (id bigserial PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE app.k0 PARTITION OF app.k FOR VALUES FROM (0) TO (1000) PARTITION BY RANGE (id);
      CREATE TABLE app.k00 PARTITION OF app.k0 FOR VALUES FROM (0) TO (1000)",
        "", "table app.k NO PARTITION", "CREATE TABLE app.k1 PARTITION OF app.k FOR VALUES FROM (1000) TO (MAXVALUE)"),
    ("CREATE TABLE app.k (id bigserial, l text, PRIMARY KEY (id, l)) PARTITION BY LIST (l); CREATE TABLE app.ka PARTITION OF app.k FOR VALUES IN ('a') PARTITION BY LIST (id);
      CREATE TABLE app.ka0 PARTITION OF app.ka FOR VALUES IN (1, 2)",
        "CREATE TABLE app.e (id bigserial PRIMARY KEY) PARTITION BY HASH (id); CREATE TABLE app.h (id bigserial PRIMARY KEY) PARTITION BY HASH (id); CREATE TABLE app.h0 PARTITION OF app.h FOR VALUES WITH (MODULUS 1, REMAINDER 0) PARTITION BY RANGE (id);
         CREATE TABLE app.h00 PARTITION OF app.h0 FOR VALUES FROM (0) TO (1000); ALTER TABLE app.e OWNER TO owner; ALTER TABLE app.h OWNER TO owner; ALTER TABLE app.h0 OWNER TO owner; ALTER TABLE app.h00 OWNER TO owner",
        "table app.h0 NO PARTITION; table app.ka NO PARTITION",
        "CREATE TABLE app.ka1 PARTITION OF app.ka DEFAULT; CREATE TABLE app.h1 PARTITION OF app.h0 DEFAULT"),
    ("ALTER TABLE app.t ADD g bigint GENERATED ALWAYS AS (id * 2::bigint) STORED; CREATE TABLE app.child () INHERITS (app.t)", "",
        "column g of table app.child DEPENDS; column g of table app.t DEPENDS", "ALTER TABLE app.t DROP COLUMN g"),
    ("", "SET client_min_messages = error; CREATE PUBLICATION p FOR TABLE app.t WHERE (id > 7); ALTER TABLE app.t REPLICA IDENTITY FULL",
        "publication of table app.t in publication p DEPENDS", "DROP PUBLICATION p"),
];

const DEPENDS: &str = "depends on a column that becomes bigint, and the script does not create it again: drop it \
                       before, and create it again afterwards";
const NO_PARTITION: &str = "has no partition for new IDs: first create a default partition, or one for a range of id \
                            that holds future IDs";
const DISABLED: &str =
    "has disabled triggers, which would be enabled: enable them before, and disable them again afterwards";

#[track_caller]
fn shop(schema: &str) -> Database {
    let database = database();
    let tables = "CREATE SCHEMA app; CREATE TABLE app.t (id serial PRIMARY KEY, x text); CREATE TABLE app.r (t integer REFERENCES app.t)";
    run(&mut database.connect_as("owner"), &format!("{tables}; {schema}"));
    database
}

#[test]
fn each_obstacle_is_named_and_can_be_removed() {
    let temporary = Regex::new("pg_temp_[0-9]+").expect("a pattern");
    for &(schema, of_superuser, obstacle, removed) in OBSTACLES {
        let database = shop(schema);
        let mut superuser = database.connect();
        run(&mut superuser, of_superuser);
        let mut owner = database.connect_as("owner");
        let text = scripts(&mut owner, "convert_schema('app')").script;
        let found = comments(&text, "OBSTACLE: ");
        let whole = obstacle.replace("DEPENDS", DEPENDS).replace("NO PARTITION", NO_PARTITION);
        let whole = whole.replace("DISABLED", DISABLED);
        assert_eq!(temporary.replace(&found.join("; "), "pg_temp"), whole);
        let before = state(&database);
        let failure = fails(&mut superuser, "55000", &text);
        assert_eq!(failure.message, "cannot convert the keys because of obstacles");
        assert_eq!(failure.detail, format!("In the way: {}.", found.join("; ")));
        assert_eq!(state(&database), before, "{obstacle}");
        run(if removed.starts_with("CREATE") { &mut owner } else { &mut superuser }, removed);
        let script = comes_back(&database, "owner", "convert_schema('app')").script;
        assert_eq!(comments(&script, "OBSTACLE"), [""; 0], "{obstacle}");
    }
}

/// PostgreSQL 18 names NOT NULL constraints, and gives a parent's name to its children.
#[test]
fn not_null_constraints_of_other_names_are_obstacles() {
    // On PostgreSQL 18, there are virtual columns, too.
    let kind = if pg_version() < 18 { "STORED" } else { "VIRTUAL" };
    let database = shop(&format!(
        "ALTER TABLE app.t ADD g integer GENERATED ALWAYS AS (id + 1) {kind}; CREATE TABLE app.file (ref integer NOT NULL CHECK (ref > 0), name text, PRIMARY KEY (ref, name));
         CREATE TABLE app.t_file (PRIMARY KEY (ref, name), FOREIGN KEY (ref) REFERENCES app.t) INHERITS (app.file)",
    ));
    let mut owner = database.connect_as("owner");
    let found = comments(&scripts(&mut owner, "convert_schema('app')").script, "OBSTACLE: ");
    if pg_version() < 18 {
        assert_eq!(found, [""; 0]);
    } else {
        let (_, remedy) = found[0].split_once("first ").expect("a remedy");
        run(&mut owner, &remedy.replace(", and", ",").replace(", ", "; "));
    }
    comes_back(&database, "owner", "convert_schema('app')");
}

#[test]
fn calls_without_a_key_fail_at_once() {
    let database = shop(
        "CREATE TABLE app.keyless (x text); CREATE SCHEMA empty; CREATE TABLE app.wide (id bigint UNIQUE); CREATE VIEW app.v AS SELECT 1;
         CREATE TABLE app.text (id text PRIMARY KEY); CREATE TABLE app.seven (id integer PRIMARY KEY DEFAULT 7); CREATE TABLE app.pair (a integer, b integer, PRIMARY KEY (a, b));
         CREATE TABLE app.sub (id integer PRIMARY KEY, a integer, FOREIGN KEY (a, id) REFERENCES app.pair); CREATE TABLE app.parts (id integer PRIMARY KEY) PARTITION BY HASH (id);
         CREATE TABLE app.part PARTITION OF app.parts FOR VALUES WITH (MODULUS 1, REMAINDER 0); CREATE TABLE app.loose (id serial, x text);
         CREATE INDEX ON app.loose (id); CREATE UNIQUE INDEX ON app.loose (id) WHERE id > 7; CREATE UNIQUE INDEX ON app.loose (x) INCLUDE (id); CREATE UNIQUE INDEX invalid ON app.loose (id)",
    );
    run(
        &mut database.connect(),
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'app.invalid'::regclass",
    );
    let mut owner = database.connect_as("owner");
    let of_app = "text seven pair sub part loose r wide v".split(' ').map(|name| format!("app.{name}"));
    for table in of_app.chain(["temporary", "pg_class"].map(str::to_owned)) {
        run(&mut owner, "CREATE TEMPORARY TABLE IF NOT EXISTS temporary (id serial PRIMARY KEY)");
        let failure = fails(&mut owner, "42P16", &format!("SELECT snowflake_convert('{table}')"));
        assert_eq!(failure.message.replace('"', ""), format!("table {table} has no key to convert"));
    }
    assert!(owner.query("SELECT snowflake_convert(VARIADIC '{}')", &[]).expect("no error").is_empty());
    for (code, call, words) in [
        ("42P16", "convert('app.t', 'app.keyless')", "table app.keyless has no key to convert"),
        ("42P16", "convert_schema('empty')", "schema empty has no key to convert"),
        ("42P16", "convert_schema('app', exclude => '{t}')", "schema app has no key to convert"),
        ("42P01", "convert_schema('app', '{t,pg_class}')", "schema app has no table like \"pg_class\""),
        ("22004", "convert('app.t', NULL)", "arguments of snowflake_convert must not be null"),
        ("22004", "convert(VARIADIC NULL)", "arguments of snowflake_convert must not be null"),
        ("22004", "convert_schema(NULL)", "arguments of snowflake_convert_schema must not be null"),
        ("22004", "convert_schema('app', NULL)", "arguments of snowflake_convert_schema must not be null"),
        (
            "22004",
            "convert_schema('app', '{t,NULL}')",
            "arguments of snowflake_convert_schema must not be null",
        ),
    ] {
        let failure = fails(&mut owner, code, &format!("SELECT * FROM snowflake_{call}"));
        assert_eq!(failure.message, words, "{call}");
    }
}
