//! Obstacles: the real run refuses with nothing changed, and the dry run has a row for each, with a remedy.

use super::calls::{converts, database, insert, reasons, refused, refuses};
use snowflake_server_tests::sql::{fails, one, run};
use snowflake_server_tests::{Builder, Database, Server, Stop, pg_version};

/// The SQL that sets up a case, the arguments, the SQLSTATE, and words from the error.
type Case = (&'static str, &'static str, &'static str, &'static [&'static str]);

const REFUSED: &[Case] = &[
    // not such a table or column
    ("", "NULL, 'id'", "22004", &["null"]),
    ("", "0, 'id'", "42P01", &["OID 0"]),
    ("CREATE VIEW c1 AS SELECT 1 AS id", "'c1', 'id'", "42809", &["view public.c1"]),
    (
        "CREATE MATERIALIZED VIEW c2 AS SELECT 1 AS id",
        "'c2', 'id'",
        "42809",
        &["materialized view public.c2"],
    ),
    ("CREATE SEQUENCE c3", "'c3', 'last_value'", "42809", &["sequence public.c3"]),
    ("CREATE TABLE c4 (id integer PRIMARY KEY)", "'c4_pkey', 'id'", "42809", &["index public.c4_pkey"]),
    (
        "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;
         CREATE FOREIGN TABLE c5 (id bigint) SERVER s",
        "'c5', 'id'",
        "42809",
        &["foreign table public.c5"],
    ),
    ("", "'pg_class', 'oid'", "42809", &["pg_catalog.pg_class is a system catalog"]),
    ("", "'information_schema.sql_features', 'feature_id'", "42809", &["system catalog"]),
    ("CREATE TEMPORARY TABLE c6 (id serial PRIMARY KEY)", "'c6', 'id'", "42809", &["temporary", "DEFAULT"]),
    ("CREATE TABLE c7 (id serial PRIMARY KEY)", "'c7', 'ID'", "42703", &["column \"ID\" of table public.c7"]),
    (
        "ALTER TABLE c7 ADD gone integer; ALTER TABLE c7 DROP gone",
        "'c7', 'gone'",
        "42703",
        &["does not exist"],
    ),
    ("", "'c7', '........pg.dropped.2........'", "42703", &["does not exist"]),
    ("", "'c7', 'ctid'", "42809", &["system column"]),
    // types
    ("CREATE TABLE d1 (id numeric PRIMARY KEY)", "'d1', 'id'", "42804", &["numeric", "bigint first"]),
    ("CREATE TABLE d2 (id uuid PRIMARY KEY)", "'d2', 'id'", "42804", &["uuid"]),
    ("CREATE DOMAIN dom AS integer; CREATE TABLE d3 (id dom PRIMARY KEY)", "'d3', 'id'", "42804", &["dom"]),
    ("CREATE TABLE d4 (id integer[] PRIMARY KEY)", "'d4', 'id'", "42804", &["integer[]"]),
    // keys
    ("CREATE TABLE e1 (id serial)", "'e1', 'id'", "42P10", &["not a key", "ADD UNIQUE (id)"]),
    (
        "CREATE TABLE e2 (id serial, x integer); CREATE INDEX ON e2 (id)",
        "'e2', 'id'",
        "42P10",
        &["not a key"],
    ),
    ("CREATE UNIQUE INDEX ON e2 (id) WHERE x > 0", "'e2', 'id'", "42P10", &["not a key"]),
    ("CREATE UNIQUE INDEX ON e2 (x) INCLUDE (id)", "'e2', 'id'", "42P10", &["not a key"]),
    ("CREATE UNIQUE INDEX ON e2 ((id + 1))", "'e2', 'id'", "42P10", &["not a key"]),
    (
        "CREATE TABLE e3 (id bigint PRIMARY KEY); CREATE TABLE e4 (e3 bigint PRIMARY KEY REFERENCES e3)",
        "'e4', 'e3'",
        "42809",
        &["is a foreign key", "It references table public.e3.", "exclude this one's table from a set"],
    ),
    (
        "CREATE TABLE e5 (x integer, id integer GENERATED ALWAYS AS (x + 1) STORED UNIQUE)",
        "'e5', 'id'",
        "42809",
        &["generated column"],
    ),
    // defaults
    (
        "CREATE TABLE f1 (id bigint PRIMARY KEY DEFAULT 0)",
        "'f1', 'id'",
        "42611",
        &["The default is 0.", "DROP DEFAULT"],
    ),
    (
        "CREATE SEQUENCE f2_seq; CREATE TABLE f2 (id bigint PRIMARY KEY DEFAULT nextval('f2_seq') + 1)",
        "'f2', 'id'",
        "42611",
        &["nextval('public.f2_seq'::regclass) + 1", "DROP DEFAULT"],
    ),
    // what a wider type does not pass
    (
        "CREATE TABLE g1 (id serial PRIMARY KEY, x integer GENERATED ALWAYS AS (id * 2) STORED);
         CREATE TEMPORARY VIEW g1_v AS SELECT id FROM g1;
         CREATE MATERIALIZED VIEW g1_m AS SELECT max(id) FROM g1;
         CREATE RULE g1_r AS ON UPDATE TO g1 DO ALSO SELECT old.id;
         CREATE FUNCTION g1_f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
         CREATE TRIGGER g1_t BEFORE UPDATE OF id ON g1 FOR EACH ROW EXECUTE FUNCTION g1_f();
         CREATE POLICY g1_p ON g1 USING (id > 0);
         CREATE FUNCTION g1_sql() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT max(id) FROM g1; END;
         CREATE PUBLICATION g1_pub FOR TABLE g1 WHERE (id > 0)",
        "'g1', 'id'",
        "2BP01",
        &[
            "generated column x of table public.g1",
            "g1_v",
            "materialized view public.g1_m",
            "rule g1_r on table public.g1",
            "trigger g1_t on table public.g1",
            "policy g1_p on table public.g1",
            "function public.g1_sql()",
            "publication of table public.g1 in publication g1_pub",
        ],
    ),
    (
        "CREATE TABLE g2 (id serial PRIMARY KEY); CREATE TABLE g3 (g2 integer REFERENCES g2);
         CREATE MATERIALIZED VIEW g3_v AS SELECT g2 FROM g3",
        "'g2', 'id'",
        "2BP01",
        &["materialized view public.g3_v"],
    ),
    (
        "CREATE TABLE g4 (id serial PRIMARY KEY); CREATE TABLE g5 (x g4[])",
        "'g4', 'id'",
        "2BP01",
        &["column x of table public.g5"],
    ),
    (
        "CREATE TYPE g6_t AS (id integer); CREATE TABLE g6 OF g6_t (PRIMARY KEY (id))",
        "'g6', 'id'",
        "2BP01",
        &["type public.g6_t"],
    ),
    (
        "CREATE TABLE g7 (id serial PRIMARY KEY) PARTITION BY HASH (id);
         CREATE TABLE g7_0 PARTITION OF g7 FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        "'g7', 'id'",
        "2BP01",
        &["partition key of table public.g7", "copy the rows into a new table"],
    ),
    (
        "CREATE TABLE g8 (id serial PRIMARY KEY);
         CREATE TABLE g9 (g8 integer REFERENCES g8) PARTITION BY LIST ((g8 % 2))",
        "'g8', 'id'",
        "2BP01",
        &["partition key of table public.g9", "copy the rows into a new table"],
    ),
    // tables that cannot be taken along
    (
        "CREATE TABLE h1 (id bigserial PRIMARY KEY); CREATE TABLE h2 (id bigint, h integer);
         CREATE TABLE h3 () INHERITS (h1, h2)",
        "'h1', 'id'",
        "0A000",
        &["table public.h3", "more than one"],
    ),
    (
        "CREATE TABLE h4 (id bigserial, at date) PARTITION BY RANGE (at); CREATE UNIQUE INDEX ON h4 (id, at);
         DROP INDEX h4_id_at_idx;
         CREATE FOREIGN TABLE h4_1 PARTITION OF h4 FOR VALUES FROM ('2026-01-01') TO ('2027-01-01') SERVER s",
        "'h4', 'id'",
        "0A000",
        &["foreign table public.h4_1", "another server"],
    ),
    // values
    (
        "CREATE TABLE i1 (id bigint PRIMARY KEY); INSERT INTO i1 VALUES (9223372036854775807)",
        "'i1', 'id'",
        "55000",
        &["values that are not lower than new IDs", "9223372036854775807", "epoch"],
    ),
    (
        "CREATE TABLE i2 (id bigint PRIMARY KEY);
         INSERT INTO i2 SELECT snowflake_nextval() + (600000::bigint << 22) -- 10 minutes ahead",
        "'i2', 'id'",
        "55000",
        &["values that are not lower than new IDs"],
    ),
];

#[test]
fn what_cannot_be_converted_is_refused_with_nothing_changed() {
    let database = database();
    let mut session = database.connect();
    for (setup, ..) in REFUSED {
        run(&mut session, setup);
    }
    database.unchanged_by("a refusal", || {
        for (_, arguments, code, words) in REFUSED {
            let failure = refuses(&mut session, arguments, code);
            let reasons = format!("{}{}", failure.text(), reasons(&mut session, arguments).concat());
            for word in *words {
                assert!(reasons.contains(word), "{arguments}: {word:?} is missing in: {reasons}");
            }
        }
    });
}

/// Obstacles that the types of columns do not show, and that are cheap to find.
#[test]
fn what_only_the_real_run_would_meet_is_refused_before() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE FUNCTION even(integer) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 % 2 = 0';
         CREATE TABLE f1 (id integer PRIMARY KEY, CONSTRAINT f1_even CHECK (public.even(id)));
         CREATE TABLE f2 (id integer PRIMARY KEY); CREATE INDEX f2_even ON f2 (public.even(id));
         CREATE TABLE f3 (id integer PRIMARY KEY); CREATE INDEX f3_even ON f3 (id) WHERE public.even(id);
         CREATE TABLE f4 (id integer PRIMARY KEY, n integer); CREATE STATISTICS f4_even ON n, (public.even(id)) FROM f4;
         CREATE TABLE f5 (id integer PRIMARY KEY); CREATE TABLE f6 (f5 integer REFERENCES f5, CHECK (public.even(f5)));
         CREATE TABLE f7 (id integer PRIMARY KEY); CREATE TABLE f8 (f7 integer CONSTRAINT f8_fk REFERENCES f7);
         INSERT INTO f7 VALUES (2); ALTER TABLE f8 DISABLE TRIGGER ALL; INSERT INTO f8 VALUES (3);
         CREATE DOMAIN small AS integer; CREATE DOMAIN tiny AS small; CREATE DOMAIN big AS bigint;
         CREATE TABLE f9 (id bigint PRIMARY KEY); CREATE TABLE f10 (f9 small REFERENCES f9);
         CREATE TABLE f11 (id bigint PRIMARY KEY); CREATE TABLE f12 (f11 tiny REFERENCES f11);
         CREATE TABLE f13 (id bigint PRIMARY KEY); CREATE TABLE f14 (f13 big REFERENCES f13);
         CREATE TABLE f15 (id bigint PRIMARY KEY, CHECK (public.even((id % 10)::integer)));
         CREATE TABLE f16 (id integer PRIMARY KEY); CREATE INDEX f16_brin ON f16 USING brin (id int4_bloom_ops);
         CREATE TABLE f17 (id integer PRIMARY KEY);
         CREATE INDEX f17_brin ON f17 USING brin ((id + 1) int4_minmax_multi_ops);
         CREATE TABLE f18 (id integer PRIMARY KEY) WITH (user_catalog_table = true);
         CREATE TABLE f19 (id integer PRIMARY KEY); CREATE TABLE f20 (f19 integer REFERENCES f19);
         ALTER TABLE f19 OWNER TO owner; ALTER TABLE f20 OWNER TO owner; REVOKE REFERENCES ON f19 FROM owner",
    );
    let mut owner = database.connect_as("owner");
    for (table, code, words) in [
        ("f1", "2BP01", "constraint f1_even on table public.f1 with function public.even(integer)"),
        ("f2", "2BP01", "index public.f2_even with function public.even(integer)"),
        ("f3", "2BP01", "index public.f3_even with function public.even(integer)"),
        ("f4", "2BP01", "statistics object public.f4_even with function public.even(integer)"),
        ("f5", "2BP01", "on table public.f6 with function public.even(integer)"),
        ("f7", "55000", "constraint f8_fk on table public.f8 has disabled triggers"),
        ("f9", "0A000", "the domain public.small"),
        ("f11", "0A000", "the domain public.tiny over public.small"),
        ("f16", "42804", "index public.f16_brin with int4_bloom_ops"),
        ("f17", "42804", "index public.f17_brin with int4_minmax_multi_ops"),
        ("f18", "0A000", "cannot rewrite table public.f18"),
        ("f19", "42501", "First run GRANT REFERENCES ON public.f19 TO owner."),
    ] {
        let session = if table == "f19" { &mut owner } else { &mut session };
        let failure = refused(&database, session, &format!("'{table}', 'id'"), code);
        assert!(failure.text().contains(words), "{table}: {failure}");
    }
    // A foreign key from a wide column is not rebuilt, and a check on a wide column stays as it is.
    converts(&database, &mut session, "'f13', 'id'");
    converts(&database, &mut session, "'f15', 'id'");
    run(&mut session, "BEGIN READ ONLY");
    let failure = fails(&mut session, "25006", "SELECT snowflake_convert('f9', 'id')");
    assert!(failure.message.contains("read-only"), "{failure}");
    run(&mut session, "ROLLBACK");

    // Rows that the owner cannot see cannot be checked either.
    run(
        &mut session,
        "CREATE TABLE g1 (id integer PRIMARY KEY); CREATE TABLE g2 (g1 integer REFERENCES g1, mine boolean);
         INSERT INTO g1 VALUES (1); INSERT INTO g2 VALUES (1, false);
         ALTER TABLE g1 OWNER TO owner; ALTER TABLE g2 OWNER TO owner;
         ALTER TABLE g2 ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; CREATE POLICY p ON g2 USING (mine)",
    );
    let failure = refused(&database, &mut owner, "'g1', 'id'", "42501");
    assert!(failure.message.contains("row-level security hides rows of table public.g2"), "{failure}");
    // As the hint says.
    assert!(failure.hint.contains("ALTER TABLE public.g2 NO FORCE ROW LEVEL SECURITY"), "{failure}");
    run(&mut owner, "ALTER TABLE g2 NO FORCE ROW LEVEL SECURITY");
    converts(&database, &mut owner, "'g1', 'id'");
}

#[test]
fn what_postgresql_18_does_not_widen_is_refused_before() {
    if pg_version() < 18 {
        return;
    }
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE p (id integer CONSTRAINT own NOT NULL UNIQUE); CREATE TABLE c (id integer CONSTRAINT other NOT NULL);
         ALTER TABLE c INHERIT p; CREATE TABLE g () INHERITS (c);
         CREATE TABLE q (id integer PRIMARY KEY); CREATE TABLE child () INHERITS (q);
         CREATE TABLE r (id bigint DEFAULT snowflake_nextval() UNIQUE); INSERT INTO r DEFAULT VALUES;
         ALTER TABLE r ADD CONSTRAINT v NOT NULL id NOT VALID",
    );
    let failure = refused(&database, &mut session, "'p', 'id'", "55000");
    assert_eq!(failure.detail, "Table public.c names its NOT NULL constraint other, and its parent own.");
    // As the hints say.
    let remedy = failure.hint.trim_start_matches("First run ").trim_end_matches('.').replace(", and", ",");
    for statement in remedy.split(", ") {
        run(&mut session, statement);
    }
    converts(&database, &mut session, "'p', 'id'");
    converts(&database, &mut session, "'q', 'id'");

    // As for a primary key with a referencing column, whose child has a primary key of its own.
    run(
        &mut session,
        "CREATE TABLE doc (id serial PRIMARY KEY);
         CREATE TABLE file (ref integer NOT NULL, name text, PRIMARY KEY (ref, name));
         CREATE TABLE doc_file (PRIMARY KEY (ref, name), FOREIGN KEY (ref) REFERENCES doc) INHERITS (file)",
    );
    let failure = refused(&database, &mut session, "'doc', 'id'", "55000");
    let names = "names its NOT NULL constraint doc_file_ref_not_null, and its parent file_ref_not_null.";
    assert!(failure.detail.contains(names), "{failure}");
    let remedy = failure.hint.trim_start_matches("First run ").trim_end_matches('.').replace(", and", ",");
    for statement in remedy.split(", ") {
        run(&mut session, statement);
    }
    converts(&database, &mut session, "'doc', 'id'");

    for becomes in ["identity always", "identity by default"] {
        let call = format!("SELECT snowflake_revert('r', 'id', becomes => '{becomes}')");
        let failure = fails(&mut session, "55000", &call);
        assert!(failure.hint.contains("ALTER TABLE public.r VALIDATE CONSTRAINT v,"), "{failure}");
    }
    run(
        &mut session,
        "ALTER TABLE r VALIDATE CONSTRAINT v; SELECT snowflake_revert('r', 'id', false, 'identity always')",
    );

    if !one::<bool>(
        &mut session,
        "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'btree_gist')",
    ) {
        return;
    }
    run(
        &mut session,
        "CREATE EXTENSION btree_gist; CREATE TABLE room (id integer, at daterange, PRIMARY KEY (id, at WITHOUT OVERLAPS));
         CREATE TABLE booking (room integer, at daterange,
             CONSTRAINT fk FOREIGN KEY (room, PERIOD at) REFERENCES room (id, PERIOD at));
         CREATE TABLE wide (id bigint, follows integer, at daterange, PRIMARY KEY (id, at WITHOUT OVERLAPS),
             FOREIGN KEY (follows, PERIOD at) REFERENCES wide (id, PERIOD at))",
    );
    let failure = refused(&database, &mut session, "'room', 'id'", "0A000");
    assert_eq!(failure.detail, "The constraint fk on table public.booking is temporal.");
    run(
        &mut session,
        "BEGIN; ALTER TABLE booking DROP CONSTRAINT fk; SELECT snowflake_convert('room', 'id', false);
         ALTER TABLE booking ALTER COLUMN room TYPE bigint,
             ADD CONSTRAINT fk FOREIGN KEY (room, PERIOD at) REFERENCES room (id, PERIOD at); COMMIT",
    );
    converts(&database, &mut session, "'wide', 'id'");
}

/// PostgreSQL itself refuses each of these, so none of the obstacles is imaginary.
#[test]
fn each_obstacle_to_widening_is_one_for_postgresql_too() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'");
    for obstacle in [
        "ALTER TABLE t ADD x integer GENERATED ALWAYS AS (id * 2) STORED",
        "CREATE TEMPORARY VIEW v AS SELECT id FROM t",
        "CREATE VIEW v AS SELECT id FROM t; CREATE MATERIALIZED VIEW m AS SELECT id FROM v",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM t",
        "CREATE RULE r AS ON UPDATE TO t DO ALSO SELECT old.id",
        "CREATE TRIGGER tr BEFORE UPDATE OF id ON t FOR EACH ROW EXECUTE FUNCTION f()",
        "CREATE TRIGGER tr BEFORE UPDATE ON t FOR EACH ROW WHEN (old.id > 0) EXECUTE FUNCTION f()",
        "CREATE POLICY p ON t USING (id > 0)",
        "CREATE FUNCTION g() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT max(id) FROM t; END",
        "CREATE PUBLICATION p FOR TABLE t WHERE (id > 0)",
        "CREATE PUBLICATION p FOR TABLE t (id)",
        "CREATE TABLE u (x t)",
        "CREATE VIEW v AS SELECT t FROM t; CREATE TABLE u (x v[])",
        "CREATE TYPE pair AS (a t, b t); CREATE TABLE u (x pair)",
        "CREATE DOMAIN d AS t; CREATE TABLE u (x d[])",
    ] {
        let table = "BEGIN; CREATE TABLE t (id integer PRIMARY KEY, y integer)";
        run(&mut session, &format!("{table}; {obstacle}"));
        assert!(session.batch_execute("ALTER TABLE t ALTER COLUMN id TYPE bigint").is_err(), "{obstacle}");
        run(&mut session, &format!("ROLLBACK; {table}; {obstacle}"));
        fails(&mut session, "2BP01", "SELECT snowflake_convert('t', 'id', false)");
        run(&mut session, "ROLLBACK");
    }
    // And these are not obstacles.
    for ally in [
        "CREATE VIEW v AS SELECT y FROM t",
        "CREATE VIEW v AS SELECT id FROM t",
        "CREATE VIEW v AS SELECT t FROM t",
        "CREATE TRIGGER tr BEFORE UPDATE ON t FOR EACH ROW WHEN (old.y > 0) EXECUTE FUNCTION f()",
        "CREATE POLICY p ON t USING (y > 0)",
        "CREATE FUNCTION g(t) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
        "CREATE PUBLICATION p FOR TABLE t",
        "CREATE INDEX ON t ((id % 10)) WHERE id > 5",
        "CREATE STATISTICS s ON id, y FROM t",
        "ALTER TABLE t ADD CHECK (id > 0)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_pkey",
        "CLUSTER t USING t_pkey",
    ] {
        run(&mut session, &format!("BEGIN; CREATE TABLE t (id integer PRIMARY KEY, y integer); {ally}"));
        run(
            &mut session,
            "SELECT snowflake_convert('t', 'id', false); INSERT INTO t DEFAULT VALUES; ROLLBACK",
        );
    }
}

#[test]
fn what_depends_on_a_bigint_key_does_not_stand_in_the_way() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id bigserial PRIMARY KEY, x bigint GENERATED ALWAYS AS (id * 2) STORED);
         CREATE TABLE log (id bigint);
         CREATE VIEW v AS SELECT id FROM t; CREATE MATERIALIZED VIEW m AS SELECT max(id) FROM t;
         CREATE RULE r AS ON DELETE TO t DO ALSO INSERT INTO log VALUES (old.id);
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO public.log VALUES (new.id); RETURN new; END';
         CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();
         ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (id > 0);
         CREATE PUBLICATION pub FOR TABLE t WHERE (id > 0);
         CREATE TABLE u (x t);
         INSERT INTO t DEFAULT VALUES",
    );
    converts(&database, &mut session, "'t', 'id'");
    let mut fresh = database.restored();
    for session in [&mut session, &mut fresh] {
        let id = insert(session, "INSERT INTO t DEFAULT VALUES", "id");
        assert_eq!(one::<i64>(session, "SELECT max(id) FROM log"), id);
        assert_eq!(one::<i64>(session, "SELECT max(x) FROM t"), id * 2);
        assert_eq!(one::<i64>(session, "SELECT max(id) FROM v"), id);
    }
}

#[test]
fn a_table_of_an_extension_is_refused() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id serial PRIMARY KEY); ALTER EXTENSION snowflake_id ADD TABLE t;
         CREATE TABLE u (id serial PRIMARY KEY)",
    );
    let failure = fails(&mut session, "0A000", "SELECT snowflake_convert('t', 'id', false)");
    assert!(failure.detail.contains("belongs to an extension"), "{failure}");
}

/// As in a database with Citus; only its table of distributed tables is looked at.
#[test]
fn a_column_by_which_citus_distributes_is_refused() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "SET allow_system_table_mods = on;
         CREATE TABLE pg_catalog.pg_dist_partition
             (logicalrelid regclass PRIMARY KEY, partmethod \"char\", partkey text);
         RESET allow_system_table_mods; GRANT SELECT ON pg_catalog.pg_dist_partition TO PUBLIC;
         CREATE TABLE events (id bigserial PRIMARY KEY, tenant integer);
         CREATE TABLE places (tenant integer, id bigserial, PRIMARY KEY (tenant, id));
         CREATE TABLE \"Kinds\" (id serial PRIMARY KEY);
         CREATE TABLE of_kinds (kind integer REFERENCES \"Kinds\");
         INSERT INTO pg_dist_partition VALUES
             ('events', 'h', '{VAR :varno 1 :varattno 1 :vartype 20 :vartypmod -1 :varlevelsup 0 :location -1}'),
             ('places', 'h', '{VAR :varno 1 :varattno 1 :vartype 23 :vartypmod -1 :varlevelsup 0 :location -1}'),
             ('of_kinds', 'h', '{VAR :varno 1 :varattno 1 :vartype 23 :vartypmod -1 :varlevelsup 0 :location -1}'),
             ('\"Kinds\"', 'n', NULL)",
    );
    let failure = refuses(&mut session, "'events', 'id'", "0A000");
    assert!(failure.detail.contains("Citus distributes the table by this column"), "{failure}");
    assert!(failure.hint.contains("undistribute_table('public.events')"), "{failure}");
    assert!(failure.hint.contains("create_distributed_table('public.events', 'id')"), "{failure}");
    let failure = refuses(&mut session, "'\"Kinds\"', 'id'", "0A000");
    assert!(failure.message.contains("column \"kind\" of table public.of_kinds"), "{failure}");
    run(&mut session, "SELECT snowflake_convert('places', 'id', false)");
}

#[test]
fn a_server_that_makes_no_ids_is_not_given_such_a_default() {
    let builders: [(Builder, &str); 2] = [
        (Server::builder().without("shared_preload_libraries"), "shared_preload_libraries"),
        (Server::builder().without("snowflake_id.worker_id"), "snowflake_id.worker_id"),
    ];
    for (builder, word) in builders {
        let database = Database::from(builder.start_with_extension());
        let mut session = database.connect();
        run(&mut session, "CREATE TABLE t (id serial PRIMARY KEY)");
        let failure = refused(&database, &mut session, "'t', 'id'", "55000");
        assert!(failure.message.contains(word), "{failure}");
    }
    let server = Server::builder().start_with_extension();
    run(&mut server.connect(), "CREATE TABLE t (id serial PRIMARY KEY)");
    let mut standby = server.standby(|builder| builder);
    fails(&mut standby.connect(), "25006", "SELECT snowflake_convert('t', 'id')");
    fails(&mut standby.connect(), "25006", "SELECT snowflake_convert('t', 'id', false)");
    standby.stop(Stop::Fast);
}

// ---- rights ----

#[test]
fn roles_that_may_insert_need_the_right_to_generate_ids() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE ROLE \"Some app\"; REVOKE EXECUTE ON FUNCTION snowflake_nextval() FROM PUBLIC;
         CREATE TABLE t (id bigserial PRIMARY KEY, n integer); ALTER TABLE t OWNER TO owner;
         GRANT INSERT ON t TO app; GRANT INSERT (n) ON t TO \"Some app\"; GRANT SELECT ON t TO reader",
    );
    let mut owner = database.connect_as("owner");
    let failure = refused(&database, &mut owner, "'t', 'id'", "42501");
    let message = "roles that may insert into table t may not execute snowflake_nextval()";
    assert_eq!(failure.message.replace("public.", ""), message, "{failure}");
    assert!(failure.detail.contains("\"Some app\", app, owner"), "{failure}");
    // As the hint says.
    let (_, grant) = failure.hint.split_once("run ").expect("a statement");
    run(&mut session, grant.trim_end_matches('.'));
    run(&mut session, "GRANT INSERT ON t TO PUBLIC");
    let failure = refused(&database, &mut owner, "'t', 'id'", "42501");
    assert!(failure.hint.contains("TO PUBLIC."), "{failure}");
    run(&mut session, "REVOKE INSERT ON t FROM PUBLIC");
    converts(&database, &mut owner, "'t', 'id'");
    run(&mut session, "SET ROLE app");
    run(&mut session, "INSERT INTO t (n) VALUES (1)");
}

#[test]
fn values_that_row_level_security_hides_are_not_overlooked() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id bigint PRIMARY KEY, mine boolean);
         INSERT INTO t VALUES (1, true), (9223372036854775807, false);
         ALTER TABLE t OWNER TO owner; ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
         CREATE POLICY p ON t USING (mine)",
    );
    let mut owner = database.connect_as("owner");
    let failure = refused(&database, &mut owner, "'t', 'id'", "42501");
    assert!(failure.message.contains("row-level security hides rows of table public.t"), "{failure}");
    run(&mut owner, "ALTER TABLE t NO FORCE ROW LEVEL SECURITY");
    refused(&database, &mut owner, "'t', 'id'", "55000");
    run(&mut owner, "DELETE FROM t WHERE NOT mine");
    converts(&database, &mut owner, "'t', 'id'");
}
