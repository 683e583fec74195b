//! The way back: a key goes on as a bigserial or an identity, above its IDs.

use super::sets::{NEW_ROWS, SHOP, calls, database, refused};
use snowflake_server_tests::sql::{one, run};
use snowflake_server_tests::{Database, Server};

#[test]
fn no_value_comes_again_after_the_way_back() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE as_text (id text PRIMARY KEY DEFAULT snowflake_nextval()); INSERT INTO as_text VALUES ('99'), ('100');
         CREATE TABLE kept (id bigserial PRIMARY KEY); SELECT setval('kept_id_seq', 1000);
         SELECT snowflake_convert('kept', 'id', false, keep_sequence => true);
         CREATE TABLE negative (id bigint PRIMARY KEY DEFAULT snowflake_nextval()); INSERT INTO negative VALUES (-5)",
    );
    for (table, first) in [("as_text", "101"), ("kept", "1001"), ("negative", "1")] {
        calls(&database, &mut session, "snowflake_revert", &format!("'{table}', 'id'"));
        let insert = format!("INSERT INTO {table} DEFAULT VALUES RETURNING id::text");
        assert_eq!(one::<String>(&mut session, &insert), first, "{table}");
    }
    // Both keys would have the name of the sequence that the first has kept.
    run(
        &mut session,
        "CREATE TABLE a (b_c bigserial PRIMARY KEY); CREATE TABLE a_b (c bigint PRIMARY KEY DEFAULT snowflake_nextval());
         SELECT snowflake_convert('a', 'b_c', false, keep_sequence => true); INSERT INTO a VALUES (1), (7)",
    );
    let said = calls(&database, &mut session, "snowflake_revert_tables", "'{a, a_b}'");
    assert!(said[3].starts_with("CREATE SEQUENCE public.a_b_c_seq1 "), "{said:?}");
    assert_eq!(one::<i64>(&mut session, "INSERT INTO a DEFAULT VALUES RETURNING b_c"), 8);
    // A kept sequence is found where PostgreSQL has shortened its name within a character.
    let (table, key) = ("ä".repeat(31), "ß".repeat(30) + "s");
    run(
        &mut session,
        &format!(
            "CREATE TABLE {table} ({key} bigserial PRIMARY KEY); SELECT snowflake_convert('{table}', '{key}', false, true)"
        ),
    );
    let said = calls(&database, &mut session, "snowflake_revert", &format!("'{table}', '{key}'"));
    assert!(said[1].starts_with("ALTER SEQUENCE public"), "{said:?}");
    // A parent with another default cannot get the identity.
    run(
        &mut session,
        "CREATE TABLE p (id bigserial, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE TABLE p1 PARTITION OF p DEFAULT; ALTER TABLE p1 ALTER COLUMN id SET DEFAULT snowflake_nextval()",
    );
    let call = "snowflake_revert('p', 'id', becomes => 'identity always')";
    let failure = refused(&database, &mut session, call, "55000");
    assert_eq!(failure.message, "column \"id\" of table public.p has a default of its own");
    calls(&database, &mut session, "snowflake_revert", "'p', 'id'");
}

#[test]
fn a_schema_goes_back_to_sequences_or_identities_and_the_extension_can_be_dropped() {
    let database = database();
    let mut session = database.connect();
    for (becomes, kind) in [
        ("bigserial", "nextval('shop.orders_id_seq'::regclass)"),
        ("identity by default", "d"),
        ("identity always", "a"),
    ] {
        run(&mut session, "DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop");
        run(&mut session, SHOP);
        run(&mut session, "SELECT snowflake_convert_schema('shop', false)");
        run(&mut session, NEW_ROWS);
        let rows = "SELECT string_agg(r::text, ' ' ORDER BY r::text) FROM (
            SELECT o::text FROM shop.orders o UNION ALL SELECT l::text FROM shop.lines l UNION ALL
            SELECT c::text FROM shop.customers c) AS r";
        let before: String = one(&mut session, rows);
        let highest: i64 = one(&mut session, "SELECT max(id) FROM shop.orders");
        let said = calls(
            &database,
            &mut session,
            "snowflake_revert_schema",
            &format!("'shop', becomes => '{becomes}'"),
        );
        assert!(
            said[0].starts_with("LOCK TABLE shop.customers, shop.lines, shop.log, shop.orders IN"),
            "{said:?}"
        );
        assert_eq!(one::<String>(&mut session, rows), before, "IDs stay");
        let query = "SELECT coalesce(pg_get_expr(adbin, adrelid), attidentity::text) FROM pg_attribute
                     LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
                     WHERE attrelid = 'shop.orders'::regclass AND attname = 'id'";
        assert_eq!(one::<String>(&mut session, query), kind);
        let again = format!("'shop', becomes => '{becomes}'");
        assert_eq!(
            calls(&database, &mut session, "snowflake_revert_schema", &again),
            [""; 0],
            "nothing is left"
        );
        let mut fresh = database.restored();
        for session in [&mut session, &mut fresh] {
            run(session, "DROP EXTENSION snowflake_id");
            run(session, NEW_ROWS);
            assert_eq!(one::<i64>(session, "SELECT max(id) FROM shop.orders"), highest + 1);
            assert_eq!(one::<i64>(session, "SELECT max(id) FROM shop.orders WHERE customer < 10"), 9);
        }
        run(&mut session, "CREATE EXTENSION snowflake_id");
    }
}

#[test]
fn those_who_insert_may_go_on_after_the_way_back() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE ROLE \"An app\"; CREATE SCHEMA shop; GRANT USAGE, CREATE ON SCHEMA shop TO keeper;
         GRANT USAGE ON SCHEMA shop TO PUBLIC; SET ROLE keeper;
         CREATE TABLE shop.t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n integer);
         GRANT INSERT, SELECT ON shop.t TO app; GRANT INSERT (n) ON shop.t TO \"An app\"; GRANT SELECT ON shop.t TO reader;
         INSERT INTO shop.t (n) VALUES (1); RESET ROLE; REVOKE CREATE ON SCHEMA shop FROM keeper",
    );
    let mut keeper = database.connect_as("keeper");
    let failure = refused(&database, &mut keeper, "snowflake_revert('shop.t', 'id')", "42501");
    assert_eq!(failure.hint, "First run GRANT CREATE ON SCHEMA shop TO keeper.");
    run(&mut session, "GRANT CREATE ON SCHEMA shop TO keeper");
    let said = calls(&database, &mut keeper, "snowflake_revert", "'shop.t', 'id'");
    assert_eq!(said[3], "GRANT USAGE ON SEQUENCE shop.t_id_seq TO \"An app\", app");
    let owner = "SELECT relowner::regrole::text FROM pg_class WHERE oid = 'shop.t_id_seq'::regclass";
    assert_eq!(one::<String>(&mut session, owner), "keeper");
    let gap = "INSERT INTO shop.t (n) VALUES (2) RETURNING id - (SELECT max(id) FROM shop.t)";
    assert_eq!(one::<i64>(&mut database.connect_as("app"), gap), 1);
}

#[test]
fn a_kept_sequence_is_taken_again_and_the_name_of_another_is_not() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id serial PRIMARY KEY); GRANT USAGE ON SEQUENCE t_id_seq TO reader;
         ALTER SEQUENCE t_id_seq MAXVALUE 1000 CYCLE INCREMENT BY 10;
         SELECT snowflake_convert('t', 'id', false, keep_sequence => true); INSERT INTO t DEFAULT VALUES;
         CREATE TABLE owning (id bigserial PRIMARY KEY); ALTER TABLE owning ALTER COLUMN id SET DEFAULT snowflake_nextval();
         CREATE TABLE used (id bigint PRIMARY KEY DEFAULT snowflake_nextval()); CREATE SEQUENCE used_id_seq;
         CREATE VIEW of_used AS SELECT nextval('used_id_seq'); CREATE TABLE used_id_seq1 ()",
    );
    let sequence: u32 = one(&mut session, "SELECT 't_id_seq'::regclass::oid");
    let highest: i64 = one(&mut session, "SELECT max(id) FROM t");
    let said = calls(&database, &mut session, "snowflake_revert", "'t', 'id'");
    assert_eq!(
        said[1],
        format!(
            "ALTER SEQUENCE public.t_id_seq AS bigint NO MINVALUE NO MAXVALUE NO CYCLE START WITH {} RESTART \
             OWNED BY public.t.id",
            highest + 1
        )
    );
    assert_eq!(one::<u32>(&mut session, "SELECT pg_get_serial_sequence('t', 'id')::regclass::oid"), sequence);
    assert!(one::<bool>(&mut session, "SELECT has_sequence_privilege('reader', 't_id_seq', 'USAGE')"));
    for step in [1, 11] {
        assert_eq!(one::<i64>(&mut session, "INSERT INTO t DEFAULT VALUES RETURNING id"), highest + step);
    }
    let said = calls(&database, &mut session, "snowflake_revert", "'owning', 'id'");
    assert!(said[1].starts_with("ALTER SEQUENCE public.owning_id_seq"), "{said:?}");
    run(&mut session, "ALTER TABLE owning ALTER COLUMN id SET DEFAULT snowflake_nextval()");
    let said =
        calls(&database, &mut session, "snowflake_revert", "'owning', 'id', becomes => 'identity always'");
    assert_eq!(said[3], "DROP SEQUENCE public.owning_id_seq");
    let said = calls(&database, &mut session, "snowflake_revert", "'used', 'id'");
    assert!(said[1].starts_with("CREATE SEQUENCE public.used_id_seq2 "), "{said:?}");
}

#[test]
fn partitions_and_children_go_back_with_their_parent() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE log (id bigint DEFAULT snowflake_nextval(), at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE TABLE log_2026 PARTITION OF log FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
         CREATE TABLE city (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), name text);
         CREATE TABLE capital () INHERITS (city); CREATE TABLE port () INHERITS (city);
         ALTER TABLE port ALTER COLUMN id SET DEFAULT -1;
         INSERT INTO log (at) VALUES ('2026-05-05'); INSERT INTO capital (name) VALUES ('Oslo')",
    );
    let failure = refused(&database, &mut session, "snowflake_revert('log_2026', 'id')", "42P16");
    assert_eq!(failure.detail, "It comes from table public.log.");
    let said = calls(&database, &mut session, "snowflake_revert_tables", "'{log_2026, capital}'");
    assert_eq!(
        said.iter().filter(|statement| statement.starts_with("ALTER TABLE")).collect::<Vec<_>>(),
        [
            "ALTER TABLE ONLY public.capital ALTER COLUMN id SET DEFAULT nextval('public.city_id_seq'::regclass)",
            "ALTER TABLE ONLY public.city ALTER COLUMN id SET DEFAULT nextval('public.city_id_seq'::regclass)",
            "ALTER TABLE public.log ALTER COLUMN id SET DEFAULT nextval('public.log_id_seq'::regclass)",
        ]
    );
    for session in [&mut session, &mut database.restored()] {
        let highest: i64 = one(session, "SELECT max(id) FROM city");
        assert_eq!(
            one::<i64>(session, "INSERT INTO capital (name) VALUES ('Rome') RETURNING id"),
            highest + 1
        );
        assert_eq!(one::<i64>(session, "INSERT INTO port (name) VALUES ('Kiel') RETURNING id"), -1);
        run(
            session,
            "INSERT INTO log_2026 (at) VALUES ('2026-06-06'); INSERT INTO log (at) VALUES ('2026-06-06')",
        );
    }
}

#[test]
fn the_way_back_needs_no_generator_and_says_why_it_refuses() {
    let database =
        Database::from(Server::builder().without("shared_preload_libraries").start_with_extension());
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id bigint UNIQUE DEFAULT snowflake_nextval(), n integer);
         CREATE TABLE full_one (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
         INSERT INTO full_one VALUES (9223372036854775807);
         CREATE DOMAIN broad AS bigint; CREATE TABLE d (id broad PRIMARY KEY DEFAULT snowflake_nextval())",
    );
    for (call, code, words) in [
        ("snowflake_revert('t', NULL)", "22004", "arguments of snowflake_revert must not be null"),
        ("snowflake_revert('t', 'id', becomes => 'serial')", "22023", "becomes must not be \"serial\""),
        ("snowflake_revert('t', 'ID')", "42703", "column \"ID\" of table public.t does not exist"),
        (
            "snowflake_revert('t', 'id', becomes => 'identity always')",
            "55000",
            "column \"id\" of table public.t accepts nulls",
        ),
        ("snowflake_revert('d', 'id', becomes => 'identity always')", "42804", "is of type public.broad"),
        ("snowflake_revert('full_one', 'id')", "55000", "has the highest value of its type"),
    ] {
        let failure = refused(&database, &mut session, call, code);
        assert!(failure.message.contains(words), "{call}: {failure}");
    }
    assert_eq!(calls(&database, &mut session, "snowflake_revert", "'t', 'n'"), [""; 0]);
    calls(&database, &mut session, "snowflake_revert_tables", "'{t, d}'");
    run(&mut session, "INSERT INTO t (n) VALUES (1); INSERT INTO d DEFAULT VALUES");
}
