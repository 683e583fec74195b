//! A script and its way back leave the catalog, rows, statistics and positions of sequences as they were. The small schemas
//! have traits of applications that conversions broke once.

use super::{comes_back, comments, database, scripts, state};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::{column, fails, next, one, run};
use std::collections::BTreeSet;

const EVERYTHING: &str = include_str!("everything.sql");

/// All tables of `everything.sql` that have a key.
const TABLES: &str = "convert('app.plain', 'app.always', 'app.by_default', 'app.downwards', 'app.fleeting', 'app.one', 'app.two',
    'app.three', '\"Odd \"\"one\".\"T''x\"', 'app.by_text', 'app.without', 'app.item', 'app.made', 'app.excluded', 'app.event', 'app.base',
    'app.hashed', 'app.pair')";

/// The notes on `everything.sql`: what new IDs must fit, the rest, and the sequences.
const NOTES: [&str; 3] = [
    "CHECK (((x <> ''::text) OR (id > 0))) of table app.base; CHECK ((parent <> id)) of table app.item; CREATE INDEX event_half ON ONLY app.event \
     USING btree (((item % 7))); CREATE INDEX excluded_expr_excl ON app.excluded USING btree (((id + 1))); CREATE INDEX item_half ON app.item USING btree (((plain / 2))); CREATE INDEX item_plain ON app.item USING btree \
     (plain DESC, n) WHERE ((parent % 7) IS NULL); CREATE INDEX several_expr_idx ON app.several USING btree (((t / 2))); CREATE STATISTICS app.item_mod ON (plain % 7) FROM app.item; domain app.broad of column t of table \
     app.broad_one; generated column Sorted of table app.made; generated column a of table app.keyed; generated column g of table app.excluded; generated column g of table app.keyed; generated column h of table app.keyed; \
     generated column half of table app.hashed; generated column label of table app.made; policy adds on \
     table app.two; policy by_view on table app.two; policy deletes on table app.two; policy few s on table app.two; policy reads on table app.two; \
     the partition key HASH (((t % (7)::bigint))) of table app.moded; the partition key RANGE (x, id) of table app.pair; trigger Of key on table app.item; trigger on_event on table app.event",
    "published by \"All\", few, of_schema: widen the columns on the subscribers first; function app.highest(integer) may not accept a bigint, or \
     needs a sequence; function app.put(integer) may not accept a bigint, or needs a sequence; column TagIDs of table app.without stays as it is; \
     to change it: ALTER TABLE app.without ALTER COLUMN \"TagIDs\" TYPE bigint[]; column UserIDs of table app.without stays as it is; to change it: \
     ALTER TABLE app.without ALTER COLUMN \"UserIDs\" TYPE bigint; column n of table app.three stays as it is, with its sequence; \
     column ref_id of table app.base stays as it is; to change it: ALTER TABLE app.base ALTER COLUMN ref_id TYPE bigint; column tag_id of table app.without stays as it is; to change it: ALTER TABLE \
     app.without ALTER COLUMN tag_id TYPE bigint",
    "\"Odd \"\"one\".\"s'1\"; app.beside; app.event_id_seq; app.excluded_id_seq; app.free; app.hashed_id_seq; app.made_id_seq; \
     app.plain_id_seq; app.shared",
];
const LOCKED: &str = "\"Odd \"\"one\".\"T'x\", app.always, app.base, app.broad_one, app.by_default, app.by_text, app.downwards, app.event, \
    app.excluded, app.filed, app.fleeting, app.hashed, app.item, app.keyed, app.made, app.moded, app.one, app.outside, app.pair, app.pairs, app.plain, \
    app.several, app.three, app.two, app.without";
/// Conditions, and the columns that satisfy them once the tables are converted.
const CONVERTED: &[(&str, &str)] = &[
    (
        "pg_get_expr(d.adbin, d.adrelid) = 'snowflake_nextval()'",
        "T'x.I d a_second.id a_third.id always.id base.id by_default.id by_text.id derived.id downwards.id event.id event_1.id event_2.id excluded.id fleeting.a_key hashed.id hashed_0.id item.id made.id one.id pair.id pair_0.id plain.id three.id two.id without.id",
    ),
    (
        "a.atttypid IN ('smallint'::regtype, 'integer'::regtype)",
        "base.ref_id derived.ref_id excluded.g item.n keyed.a keyed.g keyed.h outside.id pair.x pair_0.x without.UserIDs without.half_id without.key id without.tag_id",
    ),
];

#[test]
fn everything_comes_back_as_it_was() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "SET allow_in_place_tablespaces = on");
    run(&mut session, "CREATE TABLESPACE \"Else where\" LOCATION ''");
    run(&mut session, "CREATE ACCESS METHOD \"My heap\" TYPE TABLE HANDLER heap_tableam_handler");
    run(&mut session, "GRANT CREATE ON TABLESPACE \"Else where\" TO owner");
    run(&mut database.connect_as("owner"), EVERYTHING);
    run(
        &mut session,
        "UPDATE pg_extension SET extname = 'My language' WHERE extname = 'plpgsql'; SET client_min_messages = error; CREATE PUBLICATION few FOR TABLE app.item, app.two;
         ALTER DEFAULT PRIVILEGES FOR ROLE reader GRANT SELECT ON TABLES TO PUBLIC; CREATE PUBLICATION of_schema FOR TABLES IN SCHEMA app; CREATE PUBLICATION \"All\" FOR ALL TABLES",
    );
    let script = comes_back(&database, "owner", TABLES).script;
    assert_eq!(comments(&script, "OBSTACLE"), [""; 0]);
    for (beginning, expected) in
        ["LOOK AT: new IDs must fit ", "LOOK AT: ", "LOOK AT: sequence "].iter().zip(NOTES)
    {
        let mut notes = comments(&script, beginning);
        notes.retain(|note| !note.starts_with("new IDs") && !note.starts_with("sequence "));
        let notes: Vec<_> =
            notes.iter().map(|note| note.split(" stays; once").next().expect("a part")).collect();
        assert_eq!(notes.join("; "), expected);
    }
    assert_eq!(comments(&script, "locks until the transaction ends, also against readers: "), [LOCKED]);
    assert!(
        !["app.event (0 bytes)", "app.event_1 (", "untouched", "DROP INDEX"]
            .iter()
            .any(|part| script.contains(part)),
        "{script}"
    );
    let keys = comments(&script, "snowflake IDs from now on: ").concat();
    assert!(keys.split(", ").is_sorted(), "{keys}");
    // A superuser runs it as the owner, and nothing then belongs to another role.
    let before = state(&database);
    let mut session = database.connect();
    let both = scripts(&mut session, TABLES);
    run(&mut session, "SET default_tablespace = \"Else where\"");
    run(&mut session, &both.script);
    let settings = |state: &[String]| -> BTreeSet<String> {
        let words =
            [" SET STATISTICS ", " CLUSTER ON ", " REPLICA IDENTITY ", " DISABLE ", " ENABLE ", " STORAGE "];
        state.iter().filter(|line| words.iter().any(|word| line.contains(word))).cloned().collect()
    };
    assert_eq!(settings(&state(&database)), settings(&before));
    for (condition, expected) in CONVERTED {
        let columns: Vec<String> = column(
            &mut session,
            &format!(
                "SELECT c.relname || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                 LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
                 WHERE c.oid >= 16384 AND c.relnamespace <> 'snowflake_internal'::regnamespace AND c.relkind IN ('r', 'p')
                     AND a.attnum > 0 AND {condition} ORDER BY c.relname, a.attname"
            ),
        );
        assert_eq!(columns.join(" "), *expected, "{condition}");
    }
    run(&mut session, "BEGIN; INSERT INTO app.plain DEFAULT VALUES; INSERT INTO app.derived DEFAULT VALUES");
    run(&mut session, "INSERT INTO app.a_third (at) VALUES ('2025-05-05')");
    for table in ["plain", "derived", "a_third"] {
        assert!(one::<i64>(&mut session, &format!("SELECT max(id) FROM app.{table}")) > 1 << 40, "{table}");
    }
    run(&mut session, "ROLLBACK");
    run(&mut session, &both.back);
    assert_eq!(state(&database), before);
}

/// The traits, the tables, a part of each note that a person needs, and what fails without it.
const TRAITS: &[(&str, &str, &[&str])] = &[
    // A trigger passes the key to a function whose parameter is an integer.
    (
        "CREATE TABLE app.singer (id serial PRIMARY KEY, songs integer NOT NULL DEFAULT 0);
         CREATE TABLE app.song (id serial PRIMARY KEY, singer integer NOT NULL REFERENCES app.singer);
         CREATE FUNCTION app.count_song(singer_id integer) RETURNS void LANGUAGE plpgsql AS
             $$ BEGIN UPDATE app.singer SET songs = songs + 1 WHERE id = singer_id; END $$;
         CREATE FUNCTION app.on_song() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM app.count_song(NEW.singer); RETURN NULL; END $$;
         CREATE TRIGGER t AFTER INSERT ON app.song FOR EACH ROW EXECUTE FUNCTION app.on_song();
         INSERT INTO app.singer DEFAULT VALUES; INSERT INTO app.song (singer) VALUES (1)",
        "convert_schema('app')",
        &["function app.count_song(integer) may not", "function app.on_song() may not"],
    ),
    // A check that compares two references.
    (
        "CREATE TABLE app.person (id serial PRIMARY KEY, boss integer REFERENCES app.person, CHECK (boss <> id));
         CREATE TABLE app.friends (id serial PRIMARY KEY, a integer REFERENCES app.person, b integer REFERENCES app.person,
             CONSTRAINT two_people CHECK (a <> b))",
        "convert_schema('app')",
        &["new IDs must fit CHECK ((a <> b)) of table app.friends"],
    ),
    // Dependents of several kinds.
    (
        "CREATE TABLE app.a (id serial PRIMARY KEY, x text); CREATE TABLE app.b (id serial PRIMARY KEY, x text);
         CREATE TABLE app.c (id serial PRIMARY KEY, x text); CREATE MATERIALIZED VIEW app.mv AS SELECT id FROM app.a;
         CREATE FUNCTION app.t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER t AFTER UPDATE OF id ON app.b FOR EACH ROW EXECUTE FUNCTION app.t();
         CREATE VIEW app.v AS SELECT id, x FROM app.c;
         CREATE FUNCTION app.f() RETURNS SETOF app.v LANGUAGE sql AS 'SELECT * FROM app.v'",
        "convert_schema('app')",
        &[],
    ),
    // An index with a function of another column.
    (
        "CREATE FUNCTION app.backwards(t timestamptz) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT -(extract(epoch FROM t))::bigint';
         CREATE TABLE app.a (id serial PRIMARY KEY); CREATE TABLE app.b (id serial PRIMARY KEY, a integer REFERENCES app.a, t timestamptz);
         CREATE INDEX i ON app.b (a, app.backwards(t))",
        "convert_schema('app')",
        &[],
    ),
    // An index whose function calls another one by a search_path of its own.
    (
        "SET search_path = app; CREATE FUNCTION inner_one(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $1 + 1';
         CREATE FUNCTION outer_one(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT inner_one($1)';
         CREATE TABLE a (id bigserial PRIMARY KEY, x bigint); ALTER FUNCTION outer_one SET search_path = app; CREATE INDEX i ON a (outer_one(x));
         RESET search_path",
        "convert_schema('app')",
        &[],
    ),
    // Functions that name the sequence.
    (
        "CREATE TABLE app.a (id serial PRIMARY KEY, x text);
         CREATE FUNCTION app.new_a(x text) RETURNS bigint LANGUAGE sql AS
             $$ INSERT INTO app.a (x) VALUES ($1); SELECT currval('app.a_id_seq') $$; SELECT app.new_a('one')",
        "convert_schema('app')",
        &["function app.new_a(text) may not accept a bigint, or needs a sequence", "sequence app.a_id_seq stays; once nothing calls it"],
    ),
    // A serial outside the primary key.
    (
        "CREATE TABLE app.account (id serial UNIQUE NOT NULL, number text PRIMARY KEY, big bigserial);
         CREATE TABLE app.invoice (id serial PRIMARY KEY, account integer REFERENCES app.account (id))",
        "convert_schema('app')",
        &[
            "column id of table app.account stays as it is; to change it: ALTER TABLE app.account ALTER COLUMN id TYPE bigint",
            "column big of table app.account stays as it is, with its sequence",
        ],
    ),
    // A trigger that casts a text with the key.
    (
        "CREATE TABLE app.node (id serial PRIMARY KEY, path text NOT NULL DEFAULT '', children integer NOT NULL DEFAULT 0);
         CREATE FUNCTION app.parents(path text) RETURNS SETOF integer LANGUAGE sql AS
             $$ SELECT p::integer FROM regexp_split_to_table($1, '/') AS p WHERE p <> '' $$;
         CREATE FUNCTION app.count_it() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN UPDATE app.node SET children = children + 1 WHERE id IN (SELECT app.parents(NEW.path)); RETURN NULL; END $$;
         CREATE TRIGGER t AFTER INSERT ON app.node FOR EACH ROW EXECUTE FUNCTION app.count_it(); INSERT INTO app.node DEFAULT VALUES",
        "convert_schema('app')",
        &["function app.count_it() may not", "function app.parents(text) may not"],
    ),
    // References without a foreign key.
    (
        "CREATE TABLE app.job (jobid serial PRIMARY KEY, name text); CREATE TABLE app.file (fileid bigserial PRIMARY KEY, jobid integer NOT NULL, all_of integer[]);
         CREATE INDEX ON app.file (jobid)",
        "convert_schema('app')",
        &[
            "column jobid of table app.file stays as it is; to change it: ALTER TABLE app.file ALTER COLUMN jobid TYPE bigint",
            "column all_of of table app.file stays as it is; to change it: ALTER TABLE app.file ALTER COLUMN all_of TYPE bigint[]",
        ],
    ),
    // Targets of statistics, and expressions that need casts once a column is wider.
    (
        "CREATE TABLE app.a (id serial PRIMARY KEY, x integer); CREATE TABLE app.b (id serial PRIMARY KEY, a integer REFERENCES app.a CHECK (a % 9 < 9));
         CREATE INDEX ia ON app.b ((a % 7)); ALTER INDEX app.ia ALTER COLUMN 1 SET STATISTICS 500;
         CREATE STATISTICS app.s ON id, a FROM app.b; ALTER STATISTICS app.s SET STATISTICS 77;
         CREATE VIEW app.v AS SELECT id % 3 AS m FROM app.a; INSERT INTO app.a SELECT g, g FROM generate_series(1, 1000) g;
         INSERT INTO app.b SELECT g, CASE WHEN g % 100 > 0 THEN 5 ELSE g END FROM generate_series(1, 1000) g",
        "convert_schema('app')",
        &["new IDs must fit CHECK (((a % 9) < 9)) of table app.b"],
    ),
    // A function of SQL that names its view without the schema.
    (
        "SET search_path = app; CREATE TABLE person (id serial PRIMARY KEY, name text); CREATE VIEW names AS SELECT id, name FROM person;
         CREATE FUNCTION list() RETURNS SETOF names LANGUAGE sql AS 'SELECT * FROM names'; RESET search_path",
        "convert_schema('app')",
        &[],
    ),
    // A sequence that no column owns, and one of a type of its own.
    (
        "CREATE SEQUENCE app.s; CREATE TABLE app.t (id integer DEFAULT nextval('app.s') PRIMARY KEY); CREATE SEQUENCE app.u AS integer;
         CREATE TABLE app.v (id bigint PRIMARY KEY DEFAULT nextval('app.u')); ALTER SEQUENCE app.u OWNED BY app.v.id",
        "convert_schema('app')",
        &[],
    ),
    // An exhausted key; a default of a text, as before PostgreSQL 8.1.
    (
        "CREATE TABLE app.t (id serial PRIMARY KEY); INSERT INTO app.t VALUES (2147483647); SELECT setval('app.t_id_seq', 2147483647);
         CREATE SEQUENCE app.users_seq; CREATE TABLE app.users (user_id integer DEFAULT nextval('app.users_seq'::text) PRIMARY KEY);
         CREATE TABLE app.identities (identity_id serial PRIMARY KEY, user_id integer NOT NULL REFERENCES app.users)",
        "convert_schema('app')",
        &[],
    ),
    // A view that names an index.
    (
        "CREATE TABLE app.orders (id serial PRIMARY KEY); CREATE VIEW app.sizes AS SELECT pg_relation_size('app.orders_pkey'::regclass) AS pkey",
        "convert_schema('app')",
        &[],
    ),
    // Transition tables.
    (
        "CREATE TABLE app.crate (id serial PRIMARY KEY); CREATE TABLE app.dep (id serial PRIMARY KEY, crate integer REFERENCES app.crate);
         CREATE FUNCTION app.rebuild(ids integer[]) RETURNS void LANGUAGE sql AS 'SELECT';
         CREATE FUNCTION app.added() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM app.rebuild(array_agg(crate)) FROM inserted; RETURN NULL; END';
         CREATE TRIGGER t AFTER INSERT ON app.dep REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION app.added()",
        "convert_schema('app')",
        &["function app.added() may not", "function app.rebuild(integer[]) may not"],
    ),
    // A default by a function with the name and argument of pgEdge's.
    (
        "CREATE FUNCTION app.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT pg_catalog.nextval($1) << 22';
         CREATE SEQUENCE app.s; CREATE TABLE app.t (id bigint PRIMARY KEY DEFAULT app.nextval('app.s'))",
        "convert_schema('app')",
        &["sequence app.s stays"],
    ),
];

#[test]
fn schemas_that_broke_once_come_back_and_are_explained() {
    for &(schema, call, expected) in TRAITS {
        let database = database();
        run(&mut database.connect_as("owner"), &format!("CREATE SCHEMA app; {schema}"));
        let script = comes_back(&database, "owner", call).script;
        let notes = comments(&script, "LOOK AT: ");
        for note in expected {
            assert!(notes.iter().any(|n| n.starts_with(note)), "{note}: {notes:#?}");
        }
        let is_silent = expected.is_empty()
            && notes.iter().any(|note| note.contains("may not") || note.contains("must fit"));
        assert!(!is_silent, "{schema}: {notes:#?}");
    }
}

#[test]
fn the_extension_may_be_in_any_schema() {
    let server = Server::builder().start();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE SCHEMA \"My ids\"; CREATE EXTENSION snowflake_id SCHEMA \"My ids\"; CREATE TABLE t (id serial PRIMARY KEY);
         ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    );
    let row =
        session.query_one("SELECT script, back FROM \"My ids\".snowflake_convert('t')", &[]).expect("a row");
    let (script, back): (String, String) = (row.get(0), row.get(1));
    run(&mut session, "ALTER SCHEMA \"My ids\" RENAME TO ids");
    // The statements name the default.
    fails(&mut session, "55006", &script);
    run(&mut session, "ALTER SCHEMA ids RENAME TO \"My ids\"");
    run(&mut session, &script);
    assert!(one::<i64>(&mut session, "INSERT INTO t DEFAULT VALUES RETURNING id") > 1 << 40);
    run(&mut session, &format!("DELETE FROM t; {back}"));
    assert_eq!(one::<i32>(&mut session, "INSERT INTO t DEFAULT VALUES RETURNING id"), 1);
}

/// Once a key exceeds the old type, columns stay bigint, and only the sequence or identity comes back.
#[test]
fn after_new_ids_old_sequences_continue() {
    let database = database();
    let mut owner = database.connect_as("owner");
    run(
        &mut owner,
        "CREATE SCHEMA app; CREATE TABLE app.a (id serial PRIMARY KEY, k text GENERATED ALWAYS AS ('a' || id) STORED UNIQUE);
         CREATE TABLE app.b (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a integer REFERENCES app.a);
         CREATE TABLE app.down (id smallint GENERATED BY DEFAULT AS IDENTITY (INCREMENT -2 START -1) PRIMARY KEY);
         CREATE TABLE app.full (id bigint GENERATED BY DEFAULT AS IDENTITY (MAXVALUE 9) PRIMARY KEY); INSERT INTO app.full VALUES (10);
         CREATE TABLE app.low (id bigint GENERATED BY DEFAULT AS IDENTITY (INCREMENT -1 MINVALUE -9) PRIMARY KEY); INSERT INTO app.low VALUES (-10);
         CREATE TABLE app.none (id integer GENERATED BY DEFAULT AS IDENTITY (INCREMENT -1) PRIMARY KEY);
         CREATE TABLE app.late (id smallint GENERATED BY DEFAULT AS IDENTITY (START 1000) PRIMARY KEY); INSERT INTO app.late VALUES (5);
         CREATE VIEW app.v AS SELECT id, a FROM app.b; INSERT INTO app.a DEFAULT VALUES; INSERT INTO app.b (a) VALUES (1);
         INSERT INTO app.down VALUES (DEFAULT), (DEFAULT), (-9)",
    );
    let both = scripts(&mut owner, "convert_schema('app')");
    run(&mut owner, "INSERT INTO app.b (a) VALUES (1)");
    run(&mut owner, &both.script);
    let new = next(&mut owner);
    run(
        &mut owner,
        "INSERT INTO app.a DEFAULT VALUES; INSERT INTO app.v (a) SELECT max(id) FROM app.a; INSERT INTO app.down DEFAULT VALUES",
    );
    assert!(one::<i64>(&mut owner, "SELECT min(id) FROM app.a WHERE id > 1") > new);
    run(&mut owner, &both.back);
    assert_eq!(one::<i64>(&mut owner, "INSERT INTO app.a DEFAULT VALUES RETURNING id"), 2);
    assert_eq!(one::<i64>(&mut owner, "INSERT INTO app.v (a) VALUES (2) RETURNING id"), 3);
    assert_eq!(one::<i64>(&mut owner, "INSERT INTO app.down DEFAULT VALUES RETURNING id"), -11);
    assert_eq!(one::<i64>(&mut owner, "SELECT nextval(pg_get_serial_sequence('app.late', 'id'))"), 1_000);
    fails(&mut owner, "428C9", "INSERT INTO app.b VALUES (1, 1)");
    fails(&mut owner, "2200H", "INSERT INTO app.full DEFAULT VALUES");
    fails(&mut owner, "2200H", "INSERT INTO app.low DEFAULT VALUES");
    // The bounds of the old type are now those of bigint.
    let bounded = "SELECT sequencename::text FROM pg_sequences WHERE NOT (-1::bigint << 63 = min_value OR ~(-1::bigint << 63) = max_value) ORDER BY 1";
    assert_eq!(column::<String>(&mut owner, bounded), ["a_id_seq", "full_id_seq", "low_id_seq"]);
}

/// PostgreSQL's own errors leave everything as it was, too: here the planner inlines a function of an index.
#[test]
fn errors_of_postgresql_change_nothing() {
    let database = database();
    let mut owner = database.connect_as("owner");
    run(&mut owner, &format!("CREATE SCHEMA app; {}", TRAITS[4].0));
    run(&mut owner, "ALTER FUNCTION app.outer_one RESET ALL");
    let before = state(&database);
    let text = scripts(&mut owner, "convert_schema('app')").script;
    fails(&mut owner, "42883", &text);
    assert_eq!(state(&database), before);
    run(&mut owner, "ALTER FUNCTION app.outer_one SET search_path = app");
    run(&mut owner, &text);
}

/// By the types of their arguments and results, and by words of their texts.
#[test]
fn functions_with_integers_or_sequences_are_noted() {
    let database = database();
    run(
        &mut database.connect_as("owner"),
        "CREATE SCHEMA app; CREATE TABLE app.t (id serial PRIMARY KEY); CREATE FUNCTION app.other(bigint, text) RETURNS text LANGUAGE sql AS 'SELECT $2';
         CREATE FUNCTION app.small(smallint) RETURNS void LANGUAGE sql AS 'SELECT'; CREATE FUNCTION app.result() RETURNS integer LANGUAGE sql AS 'SELECT 1';
         CREATE FUNCTION app.output(OUT a text, OUT b smallint[]) LANGUAGE plpgsql AS 'BEGIN END';
         CREATE FUNCTION app.many(integer[]) RETURNS void LANGUAGE sql AS 'SELECT'; CREATE FUNCTION app.of_extension(integer) RETURNS void LANGUAGE sql AS 'SELECT';
         DO $$ DECLARE word text; BEGIN
             FOREACH word IN ARRAY '{int, integer, int4, int2, smallint, serial, nextval, currval, lastval, setval, small, other}'::text[] LOOP
                 EXECUTE format('CREATE FUNCTION app.%I() RETURNS void LANGUAGE plpgsql AS ''BEGIN /* %s( */ END''', 'w_' || word, upper(word));
             END LOOP; END $$",
    );
    run(&mut database.connect(), "ALTER EXTENSION plpgsql ADD FUNCTION app.of_extension(integer)");
    let script = scripts(&mut database.connect_as("owner"), "convert('app.t')").script;
    let notes = comments(&script, "LOOK AT: function app.")
        .join(" ")
        .replace(" may not accept a bigint, or needs a sequence", "");
    assert_eq!(
        notes,
        "many(integer[]) output() result() small(smallint) w_currval() w_int() w_int2() w_int4() w_integer() w_lastval() w_nextval() \
         w_serial() w_setval() w_small() w_smallint()"
    );
}
