//! Objects that another role has created beside the extension, to be called with the rights of a superuser: an
//! installation and a restore call none. Conversions are in `convert/hostile.rs`.

use postgres::{Client, NoTls};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::{column, fails, one, run};

// ---- the definitions ----

/// The extension's members of one kind, as returned by `query`.
pub(super) const MEMBERS: &str = "
    CREATE TEMPORARY VIEW members AS
    SELECT classid, objid FROM pg_depend
    WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
        AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')";

/// SQL without comments and literals.
fn code_of(sql: &str) -> String {
    let mut code = String::new();
    let mut rest = sql;
    while let Some(at) = rest.find(['\'', '-']) {
        let (before, from) = rest.split_at(at);
        code.push_str(before);
        rest = if from.starts_with("--") {
            from.find('\n').map_or("", |end| &from[end..])
        } else if let Some(literal) = from.strip_prefix('\'') {
            // A doubled quote ends one literal and begins another.
            literal.split_once('\'').expect("a literal ends").1
        } else {
            code.push('-');
            &from[1..]
        };
    }
    code + rest
}

/// The names that begin as the extension's own do, with their qualification: `ids.`, for example.
fn own_names(code: &str) -> Vec<(&str, &str)> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices("snowflake_")
        .filter(|(at, _)| !code[..*at].ends_with(is_name))
        .map(|(at, _)| {
            let end = code[at..].find(|c| !is_name(c)).map_or(code.len(), |length| at + length);
            (&code[..at], &code[at..end])
        })
        .collect()
}

#[test]
fn what_is_read_of_a_body_is_its_code() {
    let code = code_of("a := 'it''s snowflake_x'; -- snowflake_y, don't\nb - ids.snowflake_z(c)");
    assert_eq!(code, "a := ; \nb - ids.snowflake_z(c)");
    let names = own_names("ids.snowflake_a(x) + my_snowflake_b + snowflake_c");
    assert_eq!(names.iter().map(|(_, name)| *name).collect::<Vec<_>>(), ["snowflake_a", "snowflake_c"]);
    assert!(names[0].0.ends_with("ids.") && !names[1].0.ends_with("ids."));
}

#[test]
fn no_function_depends_on_its_callers_search_path() {
    let server = Server::builder().start();
    let mut session = server.connect();
    run(&mut session, "CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids");
    run(&mut session, MEMBERS);
    let functions = session
        .query(
            "SELECT p.oid::regprocedure::text, l.lanname::text, p.prosqlbody IS NOT NULL, p.prosrc,
                 coalesce((SELECT string_agg(c, '; ') FROM unnest(p.proconfig) c WHERE c LIKE 'search_path=%'), '')
             FROM members JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
             JOIN pg_language l ON l.oid = p.prolang",
            &[],
        )
        .expect("the functions");
    assert!(functions.len() > 30, "{}", functions.len());
    let mut seen = Vec::new();
    for function in &functions {
        let name: String = function.get(0);
        let (language, has_sql_body): (String, bool) = (function.get(1), function.get(2));
        let (body, path): (String, String) = (function.get(3), function.get(4));
        match language.as_str() {
            // Compiled, so it looks up nothing by name.
            "c" => assert_eq!(path, "", "{name}"),
            // Bound when it is created, and without SET, because then the planner would not inline it.
            "sql" if has_sql_body => assert_eq!(path, "", "{name}"),
            // A literal.
            "sql" if name == "snowflake_internal.snowflake_own_layouts()" => {
                assert_eq!(body, "SELECT '41/10/12 1ms 2024-01-01 00:00:00+00'::text");
            }
            // A body of text, in PL/pgSQL or SQL, is read with the search_path of the function.
            _ => {
                assert_eq!(path, "search_path=pg_catalog, pg_temp", "{name}");
                let code = code_of(&body);
                for (before, own) in own_names(&code) {
                    let is_named = before.ends_with("ids.") || before.ends_with("snowflake_internal.");
                    assert!(is_named || own == "snowflake_internal", "{name} uses {own} without its schema");
                }
            }
        }
        seen.push(language);
    }
    for language in ["c", "sql", "plpgsql"] {
        assert!(seen.iter().any(|seen| seen == language), "no function in {language}");
    }
}

/// The objects on which the extension's members depend, except for the extension and what initdb created.
const FOREIGN: &str = "
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid) || ' uses ' ||
        pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
    FROM pg_depend d
    WHERE (
            (d.classid, d.objid) IN (SELECT classid, objid FROM members)
            OR d.classid = 'pg_rewrite'::regclass
                AND (SELECT ev_class FROM pg_rewrite WHERE oid = d.objid) IN (SELECT objid FROM members)
            OR d.classid = 'pg_constraint'::regclass AND EXISTS (
                SELECT FROM pg_constraint WHERE oid = d.objid
                    AND (contypid IN (SELECT objid FROM members) OR conrelid IN (SELECT objid FROM members)))
            OR d.classid = 'pg_attrdef'::regclass
                AND (SELECT adrelid FROM pg_attrdef WHERE oid = d.objid) IN (SELECT objid FROM members)
            OR d.classid = 'pg_trigger'::regclass
                AND (SELECT tgrelid FROM pg_trigger WHERE oid = d.objid) IN (SELECT objid FROM members)
        )
        AND d.refobjid >= 16384 AND d.refclassid NOT IN ('pg_extension'::regclass, 'pg_namespace'::regclass)
        -- The columns of a composite type belong to a relation, of which only the type is a member.
        AND NOT (d.refclassid = 'pg_class'::regclass AND EXISTS (
            SELECT FROM pg_class
            WHERE oid = d.refobjid AND relkind = 'c' AND reltype IN (SELECT objid FROM members)))
        -- Types of tables and arrays are members from PostgreSQL 18 on.
        AND NOT (d.refclassid = 'pg_type'::regclass AND EXISTS (
            SELECT FROM pg_type WHERE oid = d.refobjid
                AND (typrelid IN (SELECT objid FROM members) OR typelem IN (SELECT objid FROM members))))
        AND (d.refclassid, d.refobjid) NOT IN (SELECT classid, objid FROM members)";

#[test]
fn an_installation_is_bound_to_nothing_that_lies_in_its_schema() {
    let server = Server::builder().start();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE ROLE guest LOGIN; CREATE SCHEMA shared; GRANT ALL ON SCHEMA shared TO guest;
         GRANT ALL ON SCHEMA public TO guest",
    );
    // Everything that a script could mean by the name of a built-in function, with arguments that match better; those of
    // own functions are in registry/installation.rs.
    let mut guest = server.connect_as("guest");
    for schema in ["shared", "public"] {
        run(&mut guest, &format!("SET search_path = {schema}"));
        run(
            &mut guest,
            "CREATE FUNCTION trap(text) RETURNS text LANGUAGE plpgsql AS
                 $$ BEGIN RAISE LOG 'trapped: % as %', $1, current_user; RETURN ''; END $$;
             CREATE FUNCTION trap(bigint, integer) RETURNS boolean LANGUAGE sql IMMUTABLE
                 AS $$ SELECT trap('=') IS NULL $$;
             CREATE FUNCTION trap(text, varchar) RETURNS boolean LANGUAGE sql IMMUTABLE
                 AS $$ SELECT trap('~') IS NULL $$;
             CREATE FUNCTION trap(name, name) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT trap('~') IS NULL $$;
             CREATE OPERATOR ~ (LEFTARG = name, RIGHTARG = name, FUNCTION = trap)",
        );
        for operator in [">=", "<=", "=", "<>", "<", ">"] {
            run(
                &mut guest,
                &format!(
                    "CREATE OPERATOR {operator} (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = trap)"
                ),
            );
        }
        run(&mut guest, "CREATE OPERATOR ~ (LEFTARG = text, RIGHTARG = varchar, FUNCTION = trap)");
        for (function, result) in [
            ("snowflake_server_layout(VARIADIC text[])", "text"),
            ("snowflake_nextval(VARIADIC bigint[])", "bigint"),
            ("pg_extension_config_dump(text, text)", "void"),
            ("pg_extension_config_dump(regclass, varchar)", "void"),
            ("format(text, text)", "text"),
            ("format(text, text, text)", "text"),
            ("format(text, regprocedure)", "text"),
            ("format(text, regnamespace)", "text"),
            ("format(text, regclass)", "text"),
            ("starts_with(text, varchar)", "boolean"),
            ("current_setting(varchar)", "text"),
        ] {
            run(
                &mut guest,
                &format!(
                    "CREATE FUNCTION {function} RETURNS {result} LANGUAGE sql AS
                         $$ SELECT trap('{function}')::{} $$",
                    if result == "void" { "text" } else { result }
                )
                .replace("SELECT trap('pg_", "SELECT FROM trap('pg_")
                .replace(")')::text $$", ")') $$"),
            );
        }
    }
    run(&mut session, "CREATE EXTENSION snowflake_id SCHEMA shared");
    run(&mut session, MEMBERS);
    assert_eq!(column::<String>(&mut session, FOREIGN), [""; 0]);

    // An equally good match makes the call ambiguous: it fails, and the function is not called.
    run(&mut session, "DROP EXTENSION snowflake_id CASCADE");
    run(
        &mut guest,
        "CREATE FUNCTION shared.snowflake_timestamp(bigint, integer DEFAULT 0) RETURNS text LANGUAGE sql AS
             $$ SELECT public.trap('by default') $$",
    );
    fails(&mut session, "42725", "CREATE EXTENSION snowflake_id SCHEMA shared");
    assert!(!server.log().contains("trapped"), "{}", server.log());
    run(&mut guest, "SELECT public.trap('it works')");
    assert!(server.log().contains("trapped: it works as guest"), "{}", server.log());
}

#[test]
fn an_installation_takes_over_nothing_that_is_there() {
    let server = Server::builder().start();
    let mut session = server.connect();
    let grant = "GRANT ALL ON SCHEMA public TO guest; GRANT CREATE ON DATABASE postgres TO guest";
    run(&mut session, &format!("CREATE ROLE guest LOGIN; {grant}"));
    for (hostile, code) in [
        ("FUNCTION snowflake_nextval() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'", "42723"),
        (
            "FUNCTION snowflake_between(bigint, timestamptz, timestamptz) RETURNS boolean
                 LANGUAGE sql AS 'SELECT true'",
            "42723",
        ),
        ("VIEW snowflake_status AS SELECT 1 AS one", "42P07"),
        ("SCHEMA snowflake_internal", "42P06"),
        ("TYPE snowflake_parts AS (created_at timestamptz)", "42710"),
        ("DOMAIN snowflake_base62 AS text", "42710"),
        ("VIEW snowflake_fleet AS SELECT 1 AS one", "42P07"),
    ] {
        let mut guest = server.connect_as("guest");
        run(&mut guest, &format!("CREATE {hostile}"));
        fails(&mut session, code, "CREATE EXTENSION snowflake_id");
        run(&mut guest, "DROP OWNED BY guest");
        run(&mut session, grant);
    }
    let script: String = one(
        &mut session,
        "SELECT pg_read_file(format('%s/extension/snowflake_id--%s.sql', setting,
             (SELECT default_version FROM pg_available_extensions WHERE name = 'snowflake_id')))
         FROM pg_config WHERE name = 'SHAREDIR'",
    );
    let script = script.to_uppercase();
    let creates: Vec<&str> = script.lines().filter(|line| line.trim_start().starts_with("CREATE ")).collect();
    assert!(creates.len() > 40, "{creates:?}");
    for create in creates {
        assert!(!create.contains(" OR REPLACE ") && !create.contains(" IF NOT EXISTS "), "{create}");
    }
    run(&mut session, "CREATE EXTENSION snowflake_id");
}

// ---- restores ----

/// Traps that the owner of a database sets for the extension's trigger.
const TRAPS: &str = "
    CREATE FUNCTION public.trap(text) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN RAISE LOG 'trapped: % as %', $1, current_user; RETURN $1; END $$;
    CREATE FUNCTION public.format(text, text, integer, timestamptz, text, integer, timestamptz) RETURNS text
        LANGUAGE sql AS $$ SELECT public.trap('format') $$;
    CREATE FUNCTION public.snowflake_timestamp(integer) RETURNS timestamptz
        LANGUAGE sql AS $$ SELECT public.trap('snowflake_timestamp')::timestamptz $$;
    CREATE FUNCTION public.current_setting(varchar) RETURNS text
        LANGUAGE sql AS $$ SELECT public.trap('current_setting') $$;
    CREATE FUNCTION public.same(text, varchar) RETURNS boolean
        LANGUAGE sql AS $$ SELECT public.trap('=') IS NULL $$;
    CREATE FUNCTION public.same(text, text) RETURNS boolean
        LANGUAGE sql AS $$ SELECT public.trap('=') IS NULL $$;
    CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = varchar, FUNCTION = public.same);
    CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.same);
    CREATE OPERATOR public.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = public.same);";

#[test]
fn a_superusers_restore_runs_nothing_of_the_databases_owner() {
    let server = Server::builder().start();
    run(&mut server.connect(), "CREATE ROLE merchant LOGIN");
    run(&mut server.connect(), "CREATE DATABASE shop OWNER merchant");
    let shop = |server: &Server, role: &str| -> Client {
        server.config().dbname("shop").user(role).connect(NoTls).expect("the database")
    };
    run(&mut shop(&server, "postgres"), "CREATE EXTENSION snowflake_id");
    run(&mut shop(&server, "merchant"), TRAPS);
    let dump = server.data().with_file_name("shop.dump");
    let dump = dump.to_str().expect("a path");
    server.tool("pg_dump", &["-Fc", "-f", dump, "shop"]);

    // The layout is recorded in any case: under another one with an error, and silently without a layout of the server.
    let as_it_was = Server::builder();
    let other = Server::builder().setting("snowflake_id.epoch", "2025-01-01T00:00:00Z");
    let bare = Server::builder().without("shared_preload_libraries");
    for (builder, differs) in [(as_it_was, false), (other, true), (bare, false)] {
        let other = builder.start();
        run(&mut other.connect(), "CREATE ROLE merchant LOGIN");
        run(&mut other.connect(), "CREATE DATABASE shop OWNER merchant");
        let said = other.try_tool("pg_restore", &["-d", "shop", dump]).err().unwrap_or_default();
        let has_failed = said.contains("ERROR:  the dump's snowflake layout differs from this database's")
            && said.contains("errors ignored on restore: 1");
        assert!(has_failed == differs && said.is_empty() != differs, "{said}");
        let mut session = shop(&other, "postgres");
        let traps = "SELECT count(*) FROM pg_proc WHERE proname IN ('trap', 'format') AND oid >= 16384";
        assert_eq!(one::<i64>(&mut session, traps), 2, "they were restored before the row");
        // The same in a session whose search_path has the traps first.
        run(&mut session, "SET search_path = public, pg_catalog");
        let another =
            "INSERT INTO snowflake_internal.snowflake_config VALUES ('41/10/12 1ms 2021-01-01 00:00:00+00')";
        run(&mut session, another);
        let _ = session.batch_execute("SELECT snowflake_change_layout(false)");
        assert!(!other.log().contains("trapped"), "{}", other.log());
        // The traps would have been noticed.
        run(&mut session, "SELECT public.trap('it works')");
        assert!(other.log().contains("trapped: it works as postgres"), "{}", other.log());
    }
}

// ---- the schema of the extension ----

/// On PostgreSQL 15 and later, the owner of a database owns its schema public, and can replace it by another one that
/// has functions with the extension's names and arguments.
const ANOTHER_SCHEMA: &str = "
    ALTER SCHEMA public RENAME TO old;
    CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC;
    CREATE FUNCTION public.trap(text) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN RAISE LOG 'trapped: % as %', $1, current_user; RETURN $1; END $$;
    CREATE FUNCTION public.snowflake_nextval() RETURNS bigint LANGUAGE sql
        AS $$ SELECT length(public.trap('snowflake_nextval'))::bigint $$;
    CREATE FUNCTION public.snowflake_timestamp(bigint) RETURNS timestamptz LANGUAGE sql
        AS $$ SELECT public.trap('snowflake_timestamp')::timestamptz $$;
    CREATE FUNCTION public.snowflake_server_layout(OUT layout text, OUT tick_ms integer, OUT epoch timestamptz)
        LANGUAGE sql AS $$ SELECT public.trap('snowflake_server_layout'), 1, now() $$;
    CREATE VIEW public.snowflake_config AS SELECT public.trap('snowflake_config') AS layout;
    -- All that snowflake_convert() calls.
    DO $do$
    DECLARE
        part record;
    BEGIN
        FOR part IN SELECT * FROM pg_proc WHERE proname ~ '^snowflake_convert_' LOOP
            EXECUTE format(
                'CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $$
                     BEGIN PERFORM public.trap(%L); RETURN %s; END $$',
                part.proname, pg_get_function_arguments(part.oid), pg_get_function_result(part.oid), part.proname,
                CASE WHEN part.proretset OR part.prorettype = 'void'::regtype THEN '' ELSE 'NULL' END);
        END LOOP;
    END $do$;";

#[test]
fn another_schema_of_the_extensions_name_is_not_taken_for_it() {
    let server = Server::builder().start_with_extension();
    run(&mut server.connect(), "CREATE ROLE merchant LOGIN; ALTER DATABASE postgres OWNER TO merchant");
    let mut merchant = server.connect_as("merchant");
    run(&mut merchant, "CREATE SCHEMA app; CREATE TABLE app.t (id bigserial PRIMARY KEY)");
    run(&mut merchant, "INSERT INTO app.t SELECT FROM generate_series(1, 10)");
    run(&mut merchant, ANOTHER_SCHEMA);
    let mut session = server.connect();
    let convert = "EXECUTE (SELECT script FROM old.snowflake_convert('app.t'))";
    run(
        &mut session,
        &format!(
            "DO $$ BEGIN {convert}; RAISE EXCEPTION 'undone'; EXCEPTION WHEN raise_exception THEN END $$"
        ),
    );
    run(&mut session, "SELECT old.snowflake_convert_schema('app')");
    let planted = "SELECT count(*) FROM pg_proc
                   WHERE pronamespace = 'public'::regnamespace AND starts_with(proname, 'snowflake_convert_')";
    assert!(one::<i64>(&mut session, planted) >= 5);
    // What needs no name in that schema still works.
    run(
        &mut session,
        "INSERT INTO snowflake_internal.snowflake_config VALUES ('41/10/12 1ms 2021-01-01 00:00:00+00');
         SELECT old.snowflake_change_layout(false)",
    );
    run(&mut session, "SELECT old.snowflake_decode(old.snowflake_nextval())");
    run(
        &mut session,
        "SELECT old.snowflake_between(1, '2024-01-01', '2025-01-01'); SELECT FROM old.snowflake_status",
    );
    assert!(!server.log().contains("trapped"), "{}", server.log());
    run(&mut session, "SELECT public.snowflake_server_layout()");
    assert!(server.log().contains("trapped: snowflake_server_layout as postgres"), "{}", server.log());
    run(&mut session, "DROP SCHEMA public CASCADE; ALTER SCHEMA old RENAME TO public");
    run(&mut merchant, "DO $$ BEGIN EXECUTE (SELECT script FROM snowflake_convert('app.t')); END $$");
}

/// In the usual schema, which belongs to the owner of the database, a registry's extension is created without preloading.
#[test]
fn without_preloading_an_installation_calls_nothing_that_lies_in_its_schema() {
    let server = Server::builder().without_library().start();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE owner LOGIN; GRANT ALL ON SCHEMA public TO owner");
    let trap = "CREATE FUNCTION public.concat_ws(text, text, text) RETURNS text LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'trapped as %', current_user; END $$";
    run(&mut server.connect_as("owner"), trap);
    run(&mut session, "CREATE EXTENSION snowflake_id");
}
