//! Conversions of sets, the views that come with them, and the way back: each table is rewritten once, a view keeps all
//! that it had, and a reverted key goes on as a bigserial or identity above its IDs.

use postgres::Client;
use snowflake_server_tests::sql::{Failure, column, fails, one, run};
use snowflake_server_tests::{Database, Server, ms, pg_version, secs, wait_until};
use std::thread;
use std::time::Instant;

/// A database of the server that the tests share, with roles that none of them changes.
#[track_caller]
fn database() -> Database {
    let roles = ["keeper", "other", "reader", "app"].map(|role| format!("CREATE ROLE {role} LOGIN"));
    let grants = ["snowflake_convert", "snowflake_convert_schema", "snowflake_revert"]
        .map(|function| format!("GRANT EXECUTE ON FUNCTION {function} TO keeper, other"));
    Database::shared(Server::builder(), &format!("{};{}", roles.join(";"), grants.join(";")))
}

/// The statements of a call, which the dry run returns and changes nothing, and the real run executes.
#[track_caller]
fn calls(database: &Database, session: &mut Client, function: &str, arguments: &str) -> Vec<String> {
    let call = |dry_run| {
        // The way back has statements only.
        format!(
            "SELECT statement FROM {function}({arguments}, dry_run => {dry_run}) AS r
             WHERE coalesce(to_jsonb(r) ->> 'kind', 'statement') = 'statement' ORDER BY step"
        )
    };
    let said: Vec<String> = database.unchanged_by(arguments, || column(session, &call(true)));
    assert_eq!(column::<String>(session, &call(false)), said, "{function}({arguments})");
    said
}

/// A refusal of the dry run and of the real one, with nothing changed.
#[track_caller]
fn refused(database: &Database, session: &mut Client, call: &str, code: &str) -> Failure {
    let (said, failure) = database.unchanged_by(call, || {
        let real = format!("SELECT {}, dry_run => false)", call.trim_end_matches(')'));
        // The dry run of a conversion returns an obstacle as a row, and that of the way back raises it.
        let query = format!(
            "SELECT note FROM {call} AS r WHERE to_jsonb(r) ->> 'kind' = 'obstacle' ORDER BY step LIMIT 1"
        );
        let said = match session.query_one(&query, &[]) {
            Ok(row) => row.get(0),
            Err(e) => Failure::from(&e).message,
        };
        (said, fails(session, code, &real))
    });
    assert!(said.contains(&failure.message), "the dry run says what the real one will: {said}, {failure}");
    assert!(failure.hint.ends_with('.') && failure.detail.ends_with('.'), "{failure}");
    failure
}

/// Tables that reference one another, in a circle too, and one that has no key of its own.
const SHOP: &str = "
    CREATE TABLE shop.customers (id serial PRIMARY KEY, referred_by integer REFERENCES shop.customers);
    CREATE TABLE shop.orders (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        customer integer NOT NULL REFERENCES shop.customers, payer integer REFERENCES shop.customers);
    CREATE TABLE shop.lines (id bigserial PRIMARY KEY, ordered integer REFERENCES shop.orders, buyer smallint
        REFERENCES shop.customers);
    ALTER TABLE shop.customers ADD last_order integer REFERENCES shop.orders;
    CREATE TABLE shop.tags (tag text PRIMARY KEY, line integer REFERENCES shop.lines);
    CREATE TABLE shop.log (id serial, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
    CREATE TABLE shop.log_2026 PARTITION OF shop.log FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
    CREATE TABLE shop.numbers (id uuid PRIMARY KEY, number serial UNIQUE);
    INSERT INTO shop.customers SELECT i FROM generate_series(1, 9) i;
    INSERT INTO shop.orders (customer) SELECT i FROM generate_series(1, 9) i;
    INSERT INTO shop.lines (ordered, buyer) SELECT i, i FROM generate_series(1, 9) i;
    INSERT INTO shop.tags VALUES ('t', 3); INSERT INTO shop.log (at) VALUES ('2026-05-05')";

/// A new customer, with an order, its line, and a row of the log.
const NEW_ROWS: &str = "
    WITH c AS (INSERT INTO shop.customers DEFAULT VALUES RETURNING id) INSERT INTO shop.orders (customer) SELECT id FROM c;
    INSERT INTO shop.lines (ordered, buyer) SELECT max(id), max(customer) FROM shop.orders;
    UPDATE shop.customers SET last_order = (SELECT max(id) FROM shop.orders);
    INSERT INTO shop.log (at) VALUES ('2026-05-05')";

// ---- sets ----

#[test]
fn a_schema_is_converted_in_one_call_that_rewrites_each_table_once() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE SCHEMA shop");
    run(&mut session, SHOP);
    run(
        &mut session,
        "CREATE TABLE rewrites (relid regclass);
         CREATE FUNCTION count_it() RETURNS event_trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO public.rewrites VALUES (pg_event_trigger_table_rewrite_oid()); END';
         CREATE EVENT TRIGGER count_them ON table_rewrite EXECUTE FUNCTION count_it()",
    );
    let said = calls(&database, &mut session, "snowflake_convert_schema", "'shop'");
    assert_eq!(
        said,
        [
            "LOCK TABLE shop.customers, shop.lines, shop.log, shop.orders, shop.tags IN ACCESS EXCLUSIVE MODE",
            "ALTER TABLE shop.orders ALTER COLUMN id DROP IDENTITY",
            "ALTER TABLE shop.customers ALTER COLUMN id TYPE bigint, ALTER COLUMN referred_by TYPE bigint, \
             ALTER COLUMN last_order TYPE bigint",
            "ALTER TABLE shop.lines ALTER COLUMN ordered TYPE bigint, ALTER COLUMN buyer TYPE bigint",
            "ALTER TABLE shop.log ALTER COLUMN id TYPE bigint",
            "ALTER TABLE shop.orders ALTER COLUMN id TYPE bigint, ALTER COLUMN customer TYPE bigint, \
             ALTER COLUMN payer TYPE bigint",
            "ALTER TABLE shop.tags ALTER COLUMN line TYPE bigint",
            "ANALYZE shop.customers, shop.lines, shop.log, shop.log_2026, shop.orders, shop.tags",
            "ALTER TABLE shop.customers ALTER COLUMN id SET DEFAULT public.snowflake_nextval()",
            "ALTER TABLE shop.lines ALTER COLUMN id SET DEFAULT public.snowflake_nextval()",
            "ALTER TABLE shop.log ALTER COLUMN id SET DEFAULT public.snowflake_nextval()",
            "ALTER TABLE shop.orders ALTER COLUMN id SET DEFAULT public.snowflake_nextval()",
            "DROP SEQUENCE shop.customers_id_seq",
            "DROP SEQUENCE shop.lines_id_seq",
            "DROP SEQUENCE shop.log_id_seq",
        ]
    );
    let counts = "SELECT relid || ' ' || count(*) FROM rewrites GROUP BY relid ORDER BY relid::text";
    assert_eq!(
        column::<String>(&mut session, counts),
        ["shop.customers 1", "shop.lines 1", "shop.log_2026 1", "shop.orders 1", "shop.tags 1"]
    );
    run(&mut session, "DROP EVENT TRIGGER count_them");
    assert_eq!(
        calls(&database, &mut session, "snowflake_convert_schema", "'shop'"),
        [""; 0],
        "nothing is left"
    );
    for session in [&mut session, &mut database.restored()] {
        run(session, NEW_ROWS);
        let ids: i64 =
            one(session, "SELECT count(*) FROM shop.lines WHERE id > 9 AND ordered > 9 AND buyer > 9");
        assert_eq!(ids, 1);
    }
}

#[test]
fn a_dry_run_of_a_set_shows_sizes_and_locks() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE SCHEMA shop");
    run(&mut session, SHOP);
    let rows: Vec<String> = column(
        &mut session,
        "SELECT concat_ws(' | ', locks, size, rewrites) FROM snowflake_convert_tables('{shop.log, shop.lines}')
         WHERE kind = 'statement' AND statement LIKE 'ALTER TABLE%' ORDER BY step",
    );
    assert_eq!(
        rows,
        [
            "ACCESS EXCLUSIVE on shop.log | 24 kB | t",
            "ACCESS EXCLUSIVE on shop.tags | 32 kB | t",
            "ACCESS EXCLUSIVE on shop.lines | 24 kB | f",
            "ACCESS EXCLUSIVE on shop.log | 24 kB | f",
        ]
    );
}

#[test]
fn a_set_is_refused_for_what_is_no_key_of_it() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE SCHEMA shop");
    run(&mut session, SHOP);
    let failure =
        refused(&database, &mut session, "snowflake_convert_tables('{shop.lines, shop.tags}')", "42P16");
    assert_eq!(failure.message, "table shop.tags has no serial or identity key");
    for call in [
        "snowflake_convert_tables(NULL)",
        "snowflake_convert_tables('{shop.lines, NULL}')",
        "snowflake_convert_tables('{{shop.lines, NULL}}')",
        "snowflake_revert_tables('{{shop.lines, NULL}}')",
        "snowflake_convert_schema(NULL)",
        "snowflake_revert_tables(NULL)",
        "snowflake_revert_schema(NULL)",
    ] {
        refused(&database, &mut session, call, "22004");
    }
    // What one table of the set cannot do, no table does.
    run(&mut session, "CREATE MATERIALIZED VIEW shop.m AS SELECT id FROM shop.customers");
    let failure = refused(&database, &mut session, "snowflake_convert_schema('shop')", "2BP01");
    assert!(failure.detail.contains("materialized view shop.m"), "{failure}");
    // A table of an extension is none of the schema's.
    run(
        &mut session,
        "DROP MATERIALIZED VIEW shop.m; CREATE TABLE shop.of_extension (id serial PRIMARY KEY);
         ALTER EXTENSION snowflake_id ADD TABLE shop.of_extension",
    );
    let said: Vec<String> = column(
        &mut session,
        "SELECT statement FROM snowflake_convert_schema('shop', false) WHERE kind = 'statement'",
    );
    assert!(!said.is_empty() && !said.join(" ").contains("of_extension"), "{said:?}");
    fails(&mut session, "0A000", "SELECT snowflake_convert_tables('{shop.of_extension}', false)");
}

#[test]
fn sets_in_any_order_and_their_readers_do_not_wait_for_each_other() {
    let database = database();
    let mut session = database.connect();
    // With plans for any arguments, they wait for each other more than they plan.
    for setting in ["deadlock_timeout = '20ms'", "plan_cache_mode = force_generic_plan"] {
        run(&mut session, &format!("ALTER DATABASE {} SET {setting}", database.name()));
    }
    run(&mut session, "CREATE SCHEMA shop");
    run(&mut session, SHOP);
    run(
        &mut session,
        "CREATE VIEW shop.a AS SELECT id, customer FROM shop.orders;
         CREATE VIEW shop.b AS SELECT a.id FROM shop.a JOIN shop.log ON a.id = log.id;
         CREATE VIEW shop.c AS SELECT count(*) FROM shop.b",
    );
    let repeat = |statements: &'static [&'static str]| {
        let database = &database;
        move || {
            let mut session = database.connect();
            let began = Instant::now();
            let mut rounds = 0;
            while rounds < 15 && began.elapsed() < secs(60) {
                for statement in statements {
                    run(&mut session, "BEGIN");
                    run(&mut session, statement);
                    run(&mut session, "ROLLBACK");
                }
                rounds += 1;
                thread::sleep(ms(1));
            }
            assert!(rounds > 3, "{rounds}");
        }
    };
    thread::scope(|scope| {
        let sessions = [
            scope.spawn(repeat(&[
                "SELECT snowflake_convert_tables('{shop.orders, shop.log, shop.customers}', false)",
            ])),
            scope.spawn(repeat(&[
                "SELECT snowflake_convert_tables('{shop.log, shop.customers, shop.lines}', false)",
            ])),
            scope.spawn(repeat(&["SELECT snowflake_convert('shop.orders', 'id', false)"])),
            scope.spawn(repeat(&[
                "SELECT FROM shop.c",
                "SELECT FROM shop.b",
                "SELECT FROM shop.log",
                "SELECT FROM shop.a",
            ])),
        ];
        for session in sessions {
            session.join().expect("no deadlock");
        }
    });
}

// ---- views ----

/// A view with all that it can have, and views on it.
const VIEWS: &str = "
    CREATE VIEW shop.v WITH (security_barrier, security_invoker = on) AS
        SELECT id, customer AS \"The customer\", payer FROM shop.orders WHERE id > 0 WITH CASCADED CHECK OPTION;
    CREATE VIEW shop.w (number, late) AS SELECT id, '2026-01-01'::date < date '2026-02-01' FROM shop.v;
    CREATE VIEW shop.on_both AS SELECT v.payer, w.number FROM shop.v JOIN shop.w ON v.id = w.number;
    CREATE VIEW shop.aside AS SELECT payer FROM shop.v;
    ALTER VIEW shop.v ALTER COLUMN payer SET DEFAULT 1;
    ALTER VIEW shop.w RENAME COLUMN late TO \"is it?\";
    COMMENT ON VIEW shop.v IS 'it''s v'; COMMENT ON COLUMN shop.v.\"The customer\" IS 'who';
    CREATE FUNCTION shop.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
    CREATE TRIGGER \"T\" INSTEAD OF INSERT OR UPDATE ON shop.w FOR EACH ROW EXECUTE FUNCTION shop.f('x');
    COMMENT ON TRIGGER \"T\" ON shop.w IS 'instead';
    CREATE RULE r AS ON DELETE TO shop.w DO INSTEAD DELETE FROM shop.on_both WHERE number = old.number;
    CREATE RULE nothing AS ON DELETE TO shop.on_both DO INSTEAD NOTHING;
    COMMENT ON RULE r ON shop.w IS 'deletes';
    GRANT SELECT ON shop.v TO reader WITH GRANT OPTION; GRANT INSERT, DELETE ON shop.v TO reader;
    GRANT SELECT (id), UPDATE (payer) ON shop.v TO clerk; GRANT SELECT ON shop.on_both TO PUBLIC;
    REVOKE TRUNCATE, TRIGGER ON shop.w FROM keeper";

/// All of each view but the types of its columns.
const OF_VIEWS: &str = "
    SELECT concat_ws('|', c.relname, pg_get_viewdef(c.oid), c.relowner::regrole, c.reloptions,
        (SELECT array_agg(concat_ws(' ', grantor::regrole, grantee::regrole, privilege_type, is_grantable)
             ORDER BY grantor, grantee, privilege_type)
         FROM aclexplode(coalesce(c.relacl, acldefault('r', c.relowner)))),
        obj_description(c.oid, 'pg_class'),
        (SELECT array_agg(concat_ws('|', attname, attacl, pg_get_expr(adbin, adrelid), col_description(c.oid, attnum))
             ORDER BY attnum)
         FROM pg_attribute LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum) WHERE attrelid = c.oid AND attnum > 0),
        (SELECT array_agg(pg_get_triggerdef(oid) || coalesce(obj_description(oid, 'pg_trigger'), '')) FROM pg_trigger
         WHERE tgrelid = c.oid),
        (SELECT array_agg(pg_get_ruledef(oid) || coalesce(obj_description(oid, 'pg_rewrite'), '') ORDER BY rulename)
         FROM pg_rewrite WHERE ev_class = c.oid))
    FROM pg_class c WHERE c.relkind = 'v' AND c.relnamespace = 'shop'::regnamespace ORDER BY 1";

#[test]
fn views_keep_definition_options_owner_rights_comments_defaults_triggers_and_rules() {
    let database = Database::from(Server::builder().start_with_extension());
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE ROLE keeper LOGIN; CREATE ROLE reader; CREATE ROLE clerk; CREATE ROLE guest;
         CREATE SCHEMA shop AUTHORIZATION keeper; GRANT EXECUTE ON FUNCTION snowflake_convert TO keeper",
    );
    let mut keeper = database.connect_as("keeper");
    run(&mut keeper, SHOP);
    run(&mut keeper, VIEWS);
    // What these would give, no view has.
    run(
        &mut keeper,
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO guest;
         ALTER DEFAULT PRIVILEGES IN SCHEMA shop GRANT ALL ON TABLES TO reader WITH GRANT OPTION",
    );
    let before: Vec<String> = column(&mut session, OF_VIEWS);
    assert!(before.len() == 4 && before[2].contains("reader"), "{before:#?}");
    let said = calls(&database, &mut keeper, "snowflake_convert", "'shop.orders', 'id'");
    assert!(said.contains(&"DROP VIEW shop.on_both".to_owned()), "{said:?}");
    assert_eq!(column::<String>(&mut session, OF_VIEWS), before);
    let types = "SELECT string_agg(DISTINCT atttypid::regtype::text, ' ' ORDER BY atttypid::regtype::text)
                 FROM pg_attribute WHERE attrelid IN ('shop.v'::regclass, 'shop.w'::regclass) AND attnum > 0";
    assert_eq!(one::<String>(&mut session, types), "bigint boolean integer");
    let mut fresh = database.restored();
    assert_eq!(column::<String>(&mut fresh, OF_VIEWS), before);
    run(&mut session, "INSERT INTO shop.orders (customer) VALUES (1)");
    assert!(one::<i64>(&mut session, "SELECT max(id) FROM shop.v") > 9);
    // A second conversion meets views whose columns are wide in part.
    let said = calls(&database, &mut keeper, "snowflake_convert", "'shop.customers', 'id'");
    assert!(said.contains(&"DROP VIEW shop.v".to_owned()), "{said:?}");
    assert_eq!(column::<String>(&mut session, OF_VIEWS), before);
}

#[test]
fn a_view_that_cannot_be_created_again_is_refused() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE SCHEMA shop AUTHORIZATION keeper; GRANT USAGE ON SCHEMA shop TO reader");
    let mut keeper = database.connect_as("keeper");
    run(
        &mut keeper,
        "CREATE TABLE shop.t (id serial PRIMARY KEY, n integer); CREATE VIEW shop.v AS SELECT id FROM shop.t;
         GRANT SELECT ON shop.v TO reader WITH GRANT OPTION",
    );
    let call = "snowflake_convert('shop.t', 'id')";
    for (obstacle, words, remove) in [
        (
            "CREATE MATERIALIZED VIEW shop.m AS SELECT id FROM shop.v",
            "materialized view shop.m",
            "DROP MATERIALIZED VIEW shop.m",
        ),
        (
            "CREATE FUNCTION shop.f(shop.v) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "function shop.f(shop.v)",
            "DROP FUNCTION shop.f(shop.v)",
        ),
        (
            "CREATE FUNCTION shop.f() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT max(id) FROM shop.v; END",
            "function shop.f()",
            "DROP FUNCTION shop.f()",
        ),
        (
            "CREATE RULE r AS ON INSERT TO shop.t DO ALSO SELECT FROM shop.v",
            "rule r on table shop.t",
            "DROP RULE r ON shop.t",
        ),
        ("CREATE TABLE shop.u (v shop.v)", "column v of table shop.u", "DROP TABLE shop.u"),
    ] {
        run(&mut keeper, obstacle);
        let failure = refused(&database, &mut keeper, call, "2BP01");
        assert_eq!(failure.message, "cannot drop view shop.v and create it again", "{obstacle}");
        assert!(failure.detail.contains(words), "{obstacle}: {failure}");
        run(&mut keeper, remove);
    }
    // A temporary view may be another session's.
    run(&mut keeper, "CREATE TEMPORARY VIEW passing AS SELECT id FROM shop.v");
    let failure = refused(&database, &mut keeper, call, "2BP01");
    assert!(failure.detail.contains("passing"), "{failure}");
    run(&mut keeper, "DROP VIEW passing");

    // What another role granted, only that role grants again.
    run(&mut database.connect_as("reader"), "GRANT SELECT ON shop.v TO other");
    let failure = refused(&database, &mut keeper, call, "42501");
    assert!(failure.detail.starts_with("Another role granted rights on it"), "{failure}");
    run(&mut database.connect_as("reader"), "REVOKE SELECT ON shop.v FROM other");
    run(&mut session, "ALTER EXTENSION snowflake_id ADD VIEW shop.v");
    let failure = refused(&database, &mut keeper, call, "0A000");
    assert!(failure.detail.contains("belongs to an extension"), "{failure}");
    run(
        &mut session,
        "ALTER EXTENSION snowflake_id DROP VIEW shop.v; SET allow_system_table_mods = on;
         INSERT INTO pg_seclabel VALUES ('shop.v'::regclass, 'pg_class'::regclass, 1, 'provider', 'label')",
    );
    let failure = refused(&database, &mut keeper, call, "0A000");
    assert_eq!(failure.detail, "It has a security label.");
    for (own, restore) in [
        ("COMMENT ON TYPE shop.v IS 'a row'", "COMMENT ON TYPE shop.v IS NULL"),
        (
            "REVOKE USAGE ON TYPE shop.v FROM PUBLIC",
            "UPDATE pg_type SET typacl = NULL WHERE oid = 'shop.v'::regtype",
        ),
    ] {
        run(&mut session, &format!("DELETE FROM pg_seclabel; {own}"));
        let failure = refused(&database, &mut keeper, call, "0A000");
        assert_eq!(failure.detail, "Its row type has rights or a comment of its own.", "{own}");
        run(&mut session, restore);
    }
    run(&mut session, "RESET allow_system_table_mods");
    calls(&database, &mut keeper, "snowflake_convert", "'shop.t', 'id'");
    let rights: String =
        one(&mut session, "SELECT relacl::text FROM pg_class WHERE oid = 'shop.v'::regclass");
    assert!(rights.contains("reader=r*/keeper"), "{rights}");
}

/// Each of two roles has granted the other what it has itself: after the change of the view's owner, in a circle.
#[test]
fn a_circle_of_grants_on_a_view_is_refused_at_once() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE ROLE r1; CREATE ROLE r2 LOGIN; GRANT ALL ON SCHEMA public TO r2;
         GRANT EXECUTE ON FUNCTION snowflake_convert TO r2; CREATE TABLE t (id serial PRIMARY KEY);
         CREATE VIEW v AS SELECT id FROM t; COMMENT ON RULE \"_RETURN\" ON v IS 'the query';
         GRANT SELECT ON v TO r1 WITH GRANT OPTION; SET ROLE r1; GRANT SELECT ON v TO r2 WITH GRANT OPTION; RESET ROLE;
         ALTER TABLE t OWNER TO r2; ALTER VIEW v OWNER TO r2",
    );
    let mut owner = database.connect_as("r2");
    run(&mut owner, "SET statement_timeout = '60s'");
    let failure = refused(&database, &mut owner, "snowflake_convert('t', 'id')", "42501");
    assert_eq!(failure.detail, "Another role granted rights on it, and only that role can grant them again.");
    // As the hint says.
    run(&mut session, "REVOKE SELECT ON v FROM r1 CASCADE");
    calls(&database, &mut owner, "snowflake_convert", "'t', 'id'");
    let comment = "SELECT obj_description(oid, 'pg_rewrite') FROM pg_rewrite WHERE ev_class = 'v'::regclass";
    assert_eq!(one::<String>(&mut session, comment), "the query");
}

#[test]
fn a_view_with_parts_that_its_owner_may_not_name_is_refused_by_the_dry_run() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA lib; GRANT CREATE ON SCHEMA public TO other; GRANT USAGE ON SCHEMA lib TO other;
         CREATE FUNCTION lib.f(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT $1';
         CREATE FUNCTION lib.g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
         SET ROLE other; CREATE TABLE t (id serial PRIMARY KEY);
         CREATE VIEW v AS SELECT id, lib.f(1) FROM t;
         CREATE TRIGGER g INSTEAD OF INSERT ON v FOR EACH ROW EXECUTE FUNCTION lib.g(); RESET ROLE;
         REVOKE USAGE ON SCHEMA lib FROM other; REVOKE EXECUTE ON FUNCTION lib.g FROM PUBLIC;
         REVOKE CREATE ON SCHEMA public FROM other",
    );
    let mut other = database.connect_as("other");
    let failure = refused(&database, &mut other, "snowflake_convert('t', 'id')", "42501");
    let create = "First run GRANT CREATE ON SCHEMA public TO other.";
    assert!(failure.hint.contains(create), "{failure}");
    assert!(failure.hint.contains("First run GRANT USAGE ON SCHEMA lib TO other."), "{failure}");
    assert!(failure.hint.contains("First grant EXECUTE on that function to other"), "{failure}");
    assert!(failure.detail.ends_with(" This is the first of 3 obstacles."), "{failure}");
    run(&mut session, "GRANT USAGE ON SCHEMA lib TO other; GRANT EXECUTE ON FUNCTION lib.g TO other");
    let failure = refused(&database, &mut other, "snowflake_convert('t', 'id')", "42501");
    assert_eq!(failure.hint, create);
    run(&mut session, "GRANT CREATE ON SCHEMA public TO other");
    calls(&database, &mut other, "snowflake_convert", "'t', 'id'");
}

#[test]
fn indexes_stay_dependent_on_extensions_and_partitions_keep_their_replica_identity() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id serial PRIMARY KEY); CREATE INDEX i ON t (id); ALTER INDEX i DEPENDS ON EXTENSION snowflake_id;
         CREATE TABLE p (id serial, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE TABLE p1 PARTITION OF p DEFAULT; ALTER TABLE p1 REPLICA IDENTITY USING INDEX p1_pkey",
    );
    run(
        &mut session,
        "CREATE TABLE of_extension (id serial PRIMARY KEY); ALTER EXTENSION snowflake_id ADD SEQUENCE of_extension_id_seq",
    );
    let failure = refused(&database, &mut session, "snowflake_convert('of_extension', 'id')", "2BP01");
    assert_eq!(failure.detail, "These objects depend on it: extension snowflake_id.");
    let said = calls(&database, &mut session, "snowflake_convert", "'t', 'id'");
    assert_eq!(said[2], "ALTER INDEX public.i DEPENDS ON EXTENSION snowflake_id");
    let dependencies = "SELECT count(*) FROM pg_depend WHERE objid = 'i'::regclass AND deptype = 'x'";
    assert_eq!(one::<i64>(&mut session, dependencies), 1);
    let failure = refused(&database, &mut session, "snowflake_convert('p', 'id')", "0A000");
    assert!(failure.detail.contains("replica identity index public.p1_pkey"), "{failure}");
    run(&mut session, "ALTER TABLE p1 REPLICA IDENTITY FULL");
    calls(&database, &mut session, "snowflake_convert", "'p', 'id'");
}

#[test]
fn a_view_keeps_its_literals_whatever_the_session_has_set() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id serial PRIMARY KEY, n integer); INSERT INTO t VALUES (1, NULL);
         CREATE VIEW v AS SELECT '{NULL,\"NULL\"}'::text[] AS a, n = NULL AS e, 1.1::float8 AS f,
             '2026-01-02 03:04'::timestamptz AS z, E'\\\\\\'' AS q, '\\x005c'::bytea AS b, '-1 day 2 h'::interval AS i
             FROM t WHERE id > 0;
         CREATE TABLE before AS SELECT v::text AS r FROM v",
    );
    run(&mut session, &format!("ALTER DATABASE {} SET array_nulls = off", database.name()));
    let mut other = database.connect();
    if pg_version() < 19 {
        run(&mut other, "SET standard_conforming_strings = off");
    }
    run(
        &mut other,
        "SET transform_null_equals = on;
         SET extra_float_digits = -5; SET datestyle = 'SQL, DMY'; SET intervalstyle = 'sql_standard';
         SET bytea_output = escape; SET timezone = 'Asia/Kolkata'; SELECT snowflake_convert('t', 'id', false)",
    );
    let is_same = "SELECT v::text = r FROM v, before";
    assert!(one::<bool>(&mut session, is_same), "{}", one::<String>(&mut session, "SELECT v::text FROM v"));
}

#[test]
fn a_view_that_gets_another_owner_meanwhile_keeps_it() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "GRANT CREATE ON SCHEMA public TO app; CREATE TABLE t (id serial PRIMARY KEY);
         CREATE VIEW v AS SELECT id FROM t",
    );
    let mut other = database.connect();
    run(&mut other, "BEGIN; ALTER VIEW v OWNER TO app");
    let call = "SELECT snowflake_convert('t', 'id', false)";
    thread::scope(|scope| {
        let conversion = scope.spawn(|| fails(&mut session, "55006", call));
        let waits = "SELECT count(*) > 0 FROM pg_stat_activity
                     WHERE wait_event_type = 'Lock' AND datname = current_database()";
        wait_until("the conversion's wait", secs(60), || {
            one::<bool>(&mut database.connect(), waits).then_some(())
        });
        run(&mut other, "COMMIT");
        conversion.join().expect("the conversion ends");
    });
    let owner = "SELECT relowner::regrole::text FROM pg_class WHERE oid = 'v'::regclass";
    assert_eq!(one::<String>(&mut other, owner), "app");
    fails(&mut other, "42501", call);
}

#[test]
fn a_right_that_is_revoked_meanwhile_does_not_come_back() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id serial PRIMARY KEY, n integer); CREATE VIEW v AS SELECT id, n FROM t;
         GRANT SELECT, INSERT ON v TO reader; GRANT UPDATE (n) ON v TO reader",
    );
    let mut other = database.connect();
    for (revoke, right) in [
        ("REVOKE SELECT ON v FROM reader", "has_table_privilege('reader', 'v', 'SELECT')"),
        ("REVOKE UPDATE (n) ON v FROM reader", "has_column_privilege('reader', 'v', 'n', 'UPDATE')"),
    ] {
        run(&mut other, "BEGIN");
        run(&mut other, revoke);
        thread::scope(|scope| {
            let conversion = scope.spawn(|| {
                let convert = "BEGIN; SELECT snowflake_convert('t', 'id', false)";
                // From PostgreSQL 18 on, it sees the change only after its lock, and asks to be called again.
                if let Err(error) = session.batch_execute(convert) {
                    assert_eq!(error.code().map(|code| code.code()), Some("55006"), "{error}");
                    run(&mut session, "ROLLBACK");
                    run(&mut session, convert);
                }
                let is_left: bool = one(&mut session, &format!("SELECT {right}"));
                run(&mut session, "ROLLBACK");
                is_left
            });
            let waits = "SELECT count(*) > 0 FROM pg_stat_activity
                     WHERE wait_event_type = 'Lock' AND datname = current_database()";
            wait_until("the conversion's wait", secs(60), || {
                one::<bool>(&mut database.connect(), waits).then_some(())
            });
            run(&mut other, "COMMIT");
            assert!(!conversion.join().expect("the conversion ends"), "{revoke}");
        });
    }
}

// ---- the way back ----

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
