//! Conversions of tables with views: a view keeps all that it had, or the conversion is refused.

use super::sets::{SHOP, calls, database, refused};
use snowflake_server_tests::sql::{column, fails, one, run, wait_for_lock};
use snowflake_server_tests::{Database, Server, pg_version};
use std::thread;

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
        wait_for_lock(&mut database.connect());
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
            wait_for_lock(&mut database.connect());
            run(&mut other, "COMMIT");
            assert!(!conversion.join().expect("the conversion ends"), "{revoke}");
        });
    }
}
