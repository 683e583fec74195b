//! No name, and no function or operator that comes first in the `search_path`, misleads a conversion.

use super::calls::{convert, database, insert, kind_of, refuses};
use snowflake_server_tests::sql::{one, run};

/// Names that would act as statements, literals or other names if they were put into a statement unquoted.
const NAMES: [&str; 7] = [
    "Mixed Case",
    "semi; DROP TABLE victim; --",
    "quote' || pg_sleep(1000) || '",
    "double\"quote",
    "back\\slash",
    "$convert$; DROP TABLE victim; $convert$",
    "%I %s %L %1$s",
];

#[test]
fn no_name_is_taken_for_anything_else() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE TABLE victim (id integer)");
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let literal = |name: &str| format!("'{}'", name.replace('\'', "''"));
    for name in NAMES {
        let (ident, key, key_view) = (quoted(name), literal(name), quoted(&format!("{name} view")));
        run(
            &mut session,
            &format!(
                "CREATE SCHEMA {ident};
                 CREATE TABLE {ident}.{ident} ({ident} serial PRIMARY KEY);
                 CREATE TABLE {ident}.child ({ident} integer REFERENCES {ident}.{ident});
                 CREATE VIEW {ident}.{key_view} AS SELECT {ident} FROM {ident}.{ident};
                 COMMENT ON COLUMN {ident}.{key_view}.{ident} IS {key}; CREATE ROLE {ident};
                 GRANT SELECT ({ident}), SELECT ON {ident}.{key_view} TO {ident};
                 CREATE RULE {ident} AS ON INSERT TO {ident}.{key_view} DO INSTEAD NOTHING;
                 CREATE TABLE {ident}.kept ({ident} serial PRIMARY KEY);
                 CREATE TABLE {ident}.identity ({ident} integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
                 INSERT INTO {ident}.{ident} DEFAULT VALUES; INSERT INTO {ident}.identity DEFAULT VALUES"
            ),
        );
        convert(&mut session, &format!("{}, {key}", literal(&format!("{ident}.{ident}"))), false);
        let identity = literal(&format!("{ident}.identity"));
        refuses(&mut session, &format!("{identity}, {key}, keep_sequence => true"), "0A000");
        convert(&mut session, &format!("{identity}, {key}"), false);
        let kept = literal(&format!("{ident}.kept"));
        convert(&mut session, &format!("{kept}, {key}, keep_sequence => true"), false);
        insert(&mut session, &format!("INSERT INTO {ident}.kept DEFAULT VALUES"), &ident);
        insert(&mut session, &format!("INSERT INTO {ident}.{ident} DEFAULT VALUES"), &ident);
        insert(&mut session, &format!("INSERT INTO {ident}.identity DEFAULT VALUES"), &ident);
        run(&mut session, &format!("SELECT snowflake_revert({identity}, {key}, false, 'identity always')"));
        run(&mut session, &format!("SELECT snowflake_revert({kept}, {key}, false)"));
        insert(&mut session, &format!("INSERT INTO {ident}.{ident} DEFAULT VALUES"), &ident);
        run(
            &mut session,
            &format!("INSERT INTO {ident}.kept DEFAULT VALUES; INSERT INTO {ident}.identity DEFAULT VALUES"),
        );
        let failure = refuses(&mut session, &format!("{identity}, {}", literal("no'\"; such")), "42703");
        assert!(failure.message.contains("column \"no'\"; such\""), "{failure}");
    }
    let mut fresh = database.restored();
    for name in NAMES {
        let ident = quoted(name);
        insert(&mut fresh, &format!("INSERT INTO {ident}.{ident} DEFAULT VALUES"), &ident);
    }
    assert_eq!(one::<i64>(&mut fresh, "SELECT count(*) FROM victim"), 0);
}

#[test]
fn no_function_or_operator_of_the_same_name_comes_between() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id serial PRIMARY KEY); INSERT INTO t DEFAULT VALUES;
         CREATE TABLE u (t integer REFERENCES t);
         CREATE SCHEMA evil;
         CREATE FUNCTION evil.trap() RETURNS boolean LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'trapped'; END $$;
         CREATE FUNCTION evil.text_trap(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT evil.trap()';
         CREATE FUNCTION evil.oid_trap(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT evil.trap()';
         CREATE FUNCTION evil.int8_trap(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT evil.trap()';
         CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.text_trap);
         CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.text_trap);
         CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.oid_trap);
         CREATE OPERATOR evil.>= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.int8_trap);
         CREATE FUNCTION evil.max(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT evil.trap()::integer::bigint';
         CREATE FUNCTION evil.format(text, text) RETURNS text LANGUAGE sql AS 'SELECT evil.trap()::text';
         CREATE FUNCTION evil.pg_has_role(oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT evil.trap()';
         CREATE FUNCTION evil.snowflake_nextval() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
         CREATE FUNCTION evil.snowflake_timestamp(bigint) RETURNS timestamptz LANGUAGE sql AS
             'SELECT ''infinity''::timestamptz';
         CREATE TABLE evil.pg_class (oid oid); CREATE TABLE evil.pg_attribute (attrelid oid);
         CREATE TABLE evil.t (id serial PRIMARY KEY);
         CREATE TYPE evil.bigint AS ENUM ('trapped');
         SET search_path = evil, pg_catalog, public;
         CREATE TEMPORARY TABLE pg_depend (objid oid)",
    );
    let call = "SELECT statement FROM public.snowflake_convert('public.t', 'id', false) WHERE kind OPERATOR(pg_catalog.=) 'statement'";
    let said: Vec<String> = session.query(call, &[]).expect("no trap").iter().map(|row| row.get(0)).collect();
    assert!(
        said.iter().any(|statement| statement.ends_with("DEFAULT public.snowflake_nextval()")),
        "{said:?}"
    );
    run(&mut session, "RESET search_path");
    insert(&mut session, "INSERT INTO public.t DEFAULT VALUES", "id");
    assert_eq!(kind_of(&mut session, "public.u", "t"), "bigint  no default");
}

#[test]
fn it_makes_no_difference_how_a_session_writes_names_and_literals() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id serial PRIMARY KEY); CREATE TABLE u (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
         SET quote_all_identifiers = on; SET default_transaction_isolation = 'read committed'",
    );
    // PostgreSQL 19 has only the standard's literals.
    if one::<i32>(&mut session, "SELECT current_setting('server_version_num')::int") < 190_000 {
        run(&mut session, "SET standard_conforming_strings = off");
    }
    convert(&mut session, "'t', 'id'", false);
    for table in ["t", "u"] {
        assert_eq!(convert(&mut session, &format!("'{table}', 'id'"), false), [""; 0], "nothing to do");
    }
}

#[test]
fn the_extension_may_lie_in_any_schema() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE SCHEMA \"Our %s IDs\"; DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id SCHEMA \"Our %s IDs\";
         CREATE SCHEMA app; CREATE TABLE app.t (id serial PRIMARY KEY)",
    );
    run(&mut session, "SELECT \"Our %s IDs\".snowflake_convert('app.t', 'id', false)");
    run(&mut session, "INSERT INTO app.t DEFAULT VALUES");
    let before = "SELECT count(*) FROM \"Our %s IDs\".snowflake_convert('app.t', 'id', false)";
    assert_eq!(one::<i64>(&mut session, before), 0, "it is seen to be converted");
    run(&mut database.restored(), "INSERT INTO app.t DEFAULT VALUES");
}
