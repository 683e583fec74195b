//! Code that runs with somebody else's rights runs nothing that belongs to those who may create objects beside the
//! extension: not in a restore, not at its installation, not in a conversion.

use postgres::{Client, NoTls};
use snowflake_server_tests::sql::{Failure, column, fails, one, run};
use snowflake_server_tests::{Server, ms, secs, wait_until};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

// ---- the definitions ----

/// The extension's members of one kind, as returned by `query`.
const MEMBERS: &str = "
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
            "SELECT p.oid::regprocedure::text, l.lanname::text, p.prosqlbody IS NOT NULL, p.prosrc, p.prosecdef,
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
        let (body, is_definer, path): (String, bool, String) =
            (function.get(3), function.get(4), function.get(5));
        // What nodes and monitoring may see of tables on which they have no rights.
        let is_trusted = [
            "ids.snowflake_registry_contact(",
            "ids.snowflake_origin(",
            "snowflake_internal.snowflake_fleet_free_from(",
        ]
        .iter()
        .any(|own| name.starts_with(own));
        assert_eq!(is_definer, is_trusted, "{name}: SECURITY DEFINER");
        match language.as_str() {
            // Compiled, so it looks up nothing by name.
            "c" => assert_eq!(path, "", "{name}"),
            // Bound when it is created, and without SET, because then the planner would not inline it.
            "sql" => assert!(has_sql_body && path.is_empty(), "{name} has a body of text"),
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
    // Everything that a script could mean by the name of an own or built-in function, with arguments that match better.
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
                 AS $$ SELECT trap('~') IS NULL $$",
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
            ("snowflake_timestamp(integer)", "timestamptz"),
            ("snowflake_timestamp(integer, varchar)", "timestamptz"),
            ("snowflake_worker(integer)", "integer"),
            ("snowflake_sequence(numeric)", "integer"),
            ("snowflake_between_from(timestamp)", "bigint"),
            ("snowflake_between_until(date)", "bigint"),
            ("snowflake_to_base62(integer)", "text"),
            ("snowflake_from_base62(varchar)", "bigint"),
            ("snowflake_min(date)", "bigint"),
            ("snowflake_nextval(integer)", "bigint"),
            ("snowflake_server_layout(VARIADIC text[])", "text"),
            ("snowflake_nextval(VARIADIC bigint[])", "bigint"),
            ("pg_extension_config_dump(text, text)", "void"),
            ("pg_extension_config_dump(regclass, varchar)", "void"),
            ("format(text, text)", "text"),
            ("format(text, text, text)", "text"),
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

// ---- rights that others have on the extension's objects ----

/// What others than its owner may do with each object of the extension; not with functions that are for everybody.
fn rights(session: &mut Client) -> Vec<String> {
    run(session, MEMBERS);
    column(
        session,
        "SELECT pg_describe_object(classid, objid, 0) || ': ' || a.privilege_type || ' by ' || a.grantee::regrole::text
             || CASE WHEN a.is_grantable THEN ', who may grant it' ELSE '' END
         FROM members, LATERAL (
             SELECT relowner, relacl FROM pg_class
             WHERE classid = 'pg_class'::regclass AND oid = objid AND relkind IN ('r', 'v', 'S')
             UNION ALL
             SELECT nspowner, nspacl FROM pg_namespace WHERE classid = 'pg_namespace'::regclass AND oid = objid
             UNION ALL
             SELECT proowner, proacl FROM pg_proc WHERE classid = 'pg_proc'::regclass AND oid = objid
                 AND NOT EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) AS a
                                 WHERE a.grantee = 0)
         ) AS o (owner, acl), aclexplode(o.acl) AS a
         WHERE a.grantee <> o.owner ORDER BY 1",
    )
}

const GENEROUS: &str = "
    ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO app WITH GRANT OPTION;
    ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app WITH GRANT OPTION;
    ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO app WITH GRANT OPTION;
    ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO PUBLIC, pg_monitor, \"An app\";
    ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON FUNCTIONS TO PUBLIC, pg_monitor, \"An app\";";

#[test]
fn default_privileges_open_nothing_that_is_not_for_everybody() {
    let server = Server::builder().start();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE app LOGIN; CREATE ROLE \"An app\"; CREATE ROLE node");
    run(&mut session, "CREATE DATABASE generous");
    run(&mut session, "CREATE EXTENSION snowflake_id");
    let usual = rights(&mut session);
    assert!(usual.iter().any(|right| right == "view snowflake_status: SELECT by pg_monitor"), "{usual:#?}");
    assert!(usual.iter().any(|right| right == "schema snowflake_internal: USAGE by -"), "{usual:#?}");
    let connect = |role| server.config().dbname("generous").user(role).connect(NoTls).expect("a session");
    let mut session = connect("postgres");
    run(&mut session, &format!("{GENEROUS} CREATE EXTENSION snowflake_id"));
    assert_eq!(rights(&mut session), usual);
    run(&mut session, "SELECT snowflake_registry_create('node')");
    let mut app = connect("app");
    run(&mut app, "SELECT snowflake_nextval()");
    for attempt in [
        "SELECT snowflake_registry_reserve(1, 'mine')",
        "SELECT snowflake_internal.snowflake_fleet_operate('vouch', NULL, NULL)",
        "SELECT snowflake_rotate()",
        "SELECT snowflake_adopt()",
        "UPDATE snowflake_internal.snowflake_registry SET fence = 0",
        "DELETE FROM snowflake_internal.snowflake_registry_groups",
        "DELETE FROM snowflake_internal.snowflake_config",
        "TABLE snowflake_internal.snowflake_registry",
    ] {
        fails(&mut app, "42501", attempt);
    }
}

#[test]
fn no_registry_is_created_while_others_have_rights_on_it() {
    let server = Server::builder().without_library().start();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE app LOGIN; CREATE ROLE node; CREATE EXTENSION snowflake_id");
    for right in [
        "EXECUTE ON FUNCTION snowflake_internal.snowflake_fleet_operate(text, integer, text)",
        "EXECUTE ON FUNCTION snowflake_registry_vouch()",
        "UPDATE ON snowflake_internal.snowflake_registry",
        "SELECT ON snowflake_internal.snowflake_registry_groups",
        "DELETE ON snowflake_internal.snowflake_config",
    ] {
        run(&mut session, &format!("GRANT {right} TO app"));
        let failure = fails(&mut session, "55000", "SELECT snowflake_registry_create('node')");
        let privilege = right.split(' ').next().expect("a word");
        assert!(failure.detail.contains(privilege) && failure.detail.contains("by app"), "{failure}");
        assert!(!failure.hint.is_empty(), "{failure}");
        run(&mut session, &format!("REVOKE {right} FROM app"));
    }
    run(&mut session, "GRANT SELECT ON snowflake_fleet TO app; SELECT snowflake_registry_create('node')");
}

/// PostgreSQL's own roles reach every table.
#[test]
fn who_may_write_all_data_changes_no_layout_of_a_database() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE clerk LOGIN IN ROLE pg_write_all_data, pg_read_all_data");
    run(&mut session, "GRANT SET ON PARAMETER session_replication_role TO clerk");
    run(
        &mut session,
        "CREATE TABLE t (id bigint); INSERT INTO t VALUES (1); SELECT snowflake_nextval();
         GRANT TRUNCATE ON snowflake_internal.snowflake_config TO clerk",
    );
    let mut clerk = server.connect_as("clerk");
    for role in ["origin", "replica"] {
        run(&mut clerk, &format!("SET session_replication_role = {role}; UPDATE t SET id = 2"));
        for attempt in [
            "UPDATE snowflake_internal.snowflake_config SET layout = layout",
            "UPDATE snowflake_internal.snowflake_config SET is_used = false",
            "DELETE FROM snowflake_internal.snowflake_config",
            "TRUNCATE snowflake_internal.snowflake_config",
        ] {
            let failure = fails(&mut clerk, "42501", attempt);
            assert!(!failure.detail.is_empty() && !failure.hint.is_empty(), "{failure}");
        }
        // The layout of the IDs that are here outlives what a publisher does, whatever it is.
        run(&mut session, &format!("SET session_replication_role = {role}"));
        let failure = fails(&mut session, "0A000", "TRUNCATE snowflake_internal.snowflake_config");
        assert!(failure.hint.contains("DELETE"), "{failure}");
    }
    run(&mut session, "DELETE FROM snowflake_internal.snowflake_config; RESET session_replication_role");
    let used = "SELECT count(*) FROM snowflake_internal.snowflake_config c WHERE c.is_used";
    assert_eq!(one::<i64>(&mut session, used), 1);
    run(&mut session, "DELETE FROM snowflake_internal.snowflake_config");
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

    // The row is accepted, accepted with a warning because of its layout, and accepted if nothing tells the server's.
    let as_it_was = Server::builder();
    let other = Server::builder().setting("snowflake_id.epoch", "2025-01-01T00:00:00Z");
    let bare = Server::builder().without("shared_preload_libraries");
    for builder in [as_it_was, other, bare] {
        let other = builder.start();
        run(&mut other.connect(), "CREATE ROLE merchant LOGIN");
        run(&mut other.connect(), "CREATE DATABASE shop OWNER merchant");
        other.tool("pg_restore", &["-d", "shop", dump]);
        let mut session = shop(&other, "postgres");
        let traps = "SELECT count(*) FROM pg_proc WHERE proname IN ('trap', 'format') AND oid >= 16384";
        assert_eq!(one::<i64>(&mut session, traps), 2, "they were restored before the row");
        // The same in a session whose search_path has the traps first.
        run(&mut session, "SET search_path = public, pg_catalog");
        let _ = session.batch_execute("UPDATE snowflake_internal.snowflake_config SET layout = '40/10/13'");
        assert!(!other.log().contains("trapped"), "{}", other.log());
        // The traps would have been noticed.
        run(&mut session, "SELECT public.trap('it works')");
        assert!(other.log().contains("trapped: it works as postgres"), "{}", other.log());
    }
}

// ---- conversions ----

/// A table with a serial key, and views that wait under the names of both. Reading one of them calls the trap.
const IN_WAIT: &str = "
    CREATE SCHEMA app; CREATE SCHEMA evil;
    CREATE TABLE app.t (id bigserial PRIMARY KEY);
    INSERT INTO app.t SELECT FROM generate_series(1, 10);
    CREATE FUNCTION evil.trap() RETURNS bigint LANGUAGE plpgsql AS
        $$ BEGIN IF current_user = 'postgres' THEN RAISE LOG 'trapped a superuser'; END IF; RETURN 1; END $$;
    CREATE VIEW app.t_view AS SELECT evil.trap() AS id;
    CREATE VIEW app.s_view AS SELECT evil.trap() AS last_value, true AS is_called;
    CREATE VIEW evil.t AS SELECT evil.trap() AS id;
    CREATE VIEW evil.t_id_seq AS SELECT evil.trap() AS last_value, true AS is_called;";

/// A name is changed to mean something else, and changed back; how often a conversion is tried meanwhile, and how it may
/// end. The locks of a superuser keep the names of schemas, and those of tables and sequences are looked at under the
/// lock. Whoever does neither is refused for what the other object is within a few calls; only a dry run that locks no
/// table shows itself seldom, by the trap.
const SWAPS: [(&str, &str, &str, i32, &[&str]); 3] = [
    (
        "a table",
        "BEGIN; ALTER TABLE app.t RENAME TO t_real; ALTER VIEW app.t_view RENAME TO t; COMMIT",
        "BEGIN; ALTER VIEW app.t RENAME TO t_view; ALTER TABLE app.t_real RENAME TO t; COMMIT",
        250,
        &["converted", "42P01", "55006"],
    ),
    (
        "a sequence",
        "BEGIN; ALTER SEQUENCE app.t_id_seq RENAME TO s_real; ALTER VIEW app.s_view RENAME TO t_id_seq; COMMIT",
        "BEGIN; ALTER VIEW app.t_id_seq RENAME TO s_view; ALTER SEQUENCE app.s_real RENAME TO t_id_seq; COMMIT",
        100,
        &["converted", "42P01", "55006"],
    ),
    (
        "a schema",
        "BEGIN; ALTER SCHEMA app RENAME TO app_real; ALTER SCHEMA evil RENAME TO app; COMMIT",
        "BEGIN; ALTER SCHEMA app RENAME TO evil; ALTER SCHEMA app_real RENAME TO app; COMMIT",
        60,
        &["converted"],
    ),
];

#[test]
fn a_conversion_runs_nothing_that_takes_a_name_meanwhile() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE merchant LOGIN; GRANT CREATE ON DATABASE postgres TO merchant");
    run(&mut server.connect_as("merchant"), IN_WAIT);
    let table: u32 = one(&mut session, "SELECT 'app.t'::regclass::oid");
    // Planned once and not for each call: most of the time would go into that.
    run(&mut session, "SET statement_timeout = '20s'; SET plan_cache_mode = force_generic_plan");
    for (name, there, back, calls, endings) in SWAPS {
        let (is_over, swaps) = (AtomicBool::new(false), AtomicI32::new(0));
        let mut said: BTreeMap<String, usize> = BTreeMap::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut merchant = server.connect_as("merchant");
                run(&mut merchant, "SET lock_timeout = '50ms'");
                while !is_over.load(Ordering::Relaxed) {
                    if merchant.batch_execute(there).is_err() {
                        run(&mut merchant, "ROLLBACK");
                        continue;
                    }
                    swaps.fetch_add(1, Ordering::Relaxed);
                    while merchant.batch_execute(back).is_err() {
                        run(&mut merchant, "ROLLBACK");
                    }
                    thread::sleep(ms(1));
                }
            });
            // On a busy machine, hardly any swap gets in between two conversions.
            let mut call = 0;
            while call < calls || call < 20 * calls && swaps.load(Ordering::Relaxed) <= calls / 12 {
                let convert = format!(
                    "BEGIN; SELECT count(*) FROM snowflake_convert({table}::regclass, 'id', {}, {})",
                    call % 2 == 0,
                    call % 4 < 2
                );
                let outcome = match session.batch_execute(&convert) {
                    Ok(()) => "converted".to_owned(),
                    Err(e) => Failure::from(&e).code,
                };
                *said.entry(outcome).or_default() += 1;
                run(&mut session, "ROLLBACK");
                call += 1;
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let swaps = swaps.into_inner();
        println!("{name}: {swaps} swaps, {said:?}");
        assert!(!server.log().contains("trapped"), "{name}: {swaps} swaps, {said:?}");
        assert!(
            said.keys().all(|ending| endings.contains(&ending.as_str())),
            "{name}: {swaps} swaps, {said:?}"
        );
        assert!(
            swaps > calls / 12 && said.get("converted") > Some(&(calls as usize / 12)),
            "{name}: {swaps} swaps, {said:?}"
        );
    }
    // The trap would have been noticed.
    run(&mut session, "SELECT id FROM app.t_view");
    assert!(server.log().contains("trapped a superuser"));
}

/// A function that tries to get a superuser's rights back, and notices if it has them.
const TRAP: &str = "
    CREATE FUNCTION app.act(place text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        BEGIN RESET ROLE; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN RESET SESSION AUTHORIZATION; EXCEPTION WHEN OTHERS THEN NULL; END;
        IF session_user = 'postgres' THEN
            BEGIN
                CREATE TEMPORARY TABLE left_behind ();
                RAISE LOG 'trapped a superuser in %, who owns what it left behind', place;
            EXCEPTION WHEN OTHERS THEN NULL;
            END;
        END IF;
        IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
            RAISE LOG 'trapped a superuser in %', place;
        ELSE
            RAISE LOG 'passed % as %', place, current_user;
        END IF;
    END $$;
    -- A function that is not volatile may not do that itself.
    CREATE FUNCTION app.trap(place text, n integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM app.act(place);
        RETURN n;
    END $$";

/// Tables whose definitions call it. PostgreSQL evaluates them to plan, analyze and rewrite.
const TRAPPED: &str = "
    CREATE TABLE app.{t} (
        id {type} PRIMARY KEY, n integer DEFAULT 1, g integer GENERATED ALWAYS AS (app.trap('generated', n)) STORED,
        CHECK (app.trap('check', n) = 1));
    CREATE INDEX ON app.{t} (n) WHERE app.trap('predicate', 1) = 1;
    CREATE INDEX ON app.{t} (app.trap('index', n));
    CREATE STATISTICS app.{t} ON n, (app.trap('statistics', n)) FROM app.{t};
    CREATE TABLE app.{t}_ref (id integer REFERENCES app.{t}, n integer)
        PARTITION BY LIST ((n + app.trap('partition', 1)));
    CREATE TABLE app.{t}_ref_1 PARTITION OF app.{t}_ref DEFAULT;
    CREATE TABLE app.{t}_parts (id {type}, n integer, CHECK (app.trap('part', n) = 1), PRIMARY KEY (id, n))
        PARTITION BY RANGE (n);
    CREATE TABLE app.{t}_part PARTITION OF app.{t}_parts DEFAULT;
    CREATE INDEX ON app.{t}_part (n) WHERE app.trap('predicate of a partition', 1) = 1;
    CREATE VIEW app.{t}_view AS SELECT id, app.trap('view', n) AS n FROM app.{t} WHERE app.trap('view', n) = n;
    ALTER VIEW app.{t}_view ALTER COLUMN n SET DEFAULT app.trap('default of a view', 1);
    CREATE RULE r AS ON INSERT TO app.{t}_view DO INSTEAD INSERT INTO app.{t} (n) VALUES (app.trap('rule', new.n));
    INSERT INTO app.{t} DEFAULT VALUES; INSERT INTO app.{t}_ref VALUES (1, 1); INSERT INTO app.{t}_parts (n) VALUES (1)";

#[test]
fn a_superusers_conversion_runs_the_tables_functions_as_their_owner() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE ROLE mallory LOGIN; CREATE SCHEMA app; GRANT ALL ON SCHEMA app TO mallory;
         GRANT EXECUTE ON FUNCTION snowflake_convert TO mallory",
    );
    run(&mut server.connect_as("mallory"), TRAP);
    for (table, kind) in [("wide", "bigserial"), ("small", "serial")] {
        let setup = TRAPPED.replace("{t}", table).replace("{type}", kind);
        run(&mut server.connect_as("mallory"), &setup);
        for call in [("", true), ("SET ROLE mallory", true), ("SET ROLE mallory; BEGIN", false), ("", false)]
        {
            let (before, dry_run) = call;
            for key in [table.to_owned(), format!("{table}_parts")] {
                // With nothing cached of what was evaluated before, and with a temporary schema, whose creation is a write
                // that a call refuses.
                let mut session = server.connect();
                run(&mut session, "CREATE TEMPORARY TABLE first ()");
                run(&mut session, before);
                let convert = format!("SELECT count(*) FROM snowflake_convert('app.{key}', 'id', {dry_run})");
                assert!(one::<i64>(&mut session, &convert) > 1, "{convert}");
                if before.is_empty() {
                    let revert =
                        format!("SELECT count(*) FROM snowflake_revert('app.{key}', 'id', {dry_run})");
                    assert_eq!(one::<i64>(&mut session, &revert) > 1, !dry_run, "{revert}");
                }
                let log = server.log();
                assert!(!log.contains("trapped a superuser"), "{call:?} {key}: {log}");
            }
        }
    }
    let log = server.log();
    for place in ["generated", "check", "predicate", "index", "statistics", "partition", "part"] {
        assert!(log.contains(&format!("passed {place} as mallory")), "{place} was never evaluated");
    }
    // The trap would have been noticed.
    run(&mut server.connect(), "SELECT max(id) FROM app.wide");
    assert!(server.log().contains("trapped a superuser in predicate"));
}

/// PostgreSQL refuses SET ROLE in a function with its owner's rights, and whoever wrote one relies on that.
#[test]
fn a_function_with_its_owners_rights_executes_nothing_as_another_role() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE ROLE team; CREATE ROLE service LOGIN IN ROLE postgres, team; CREATE ROLE guest LOGIN; CREATE SCHEMA app;
         GRANT ALL ON SCHEMA app TO service, team; GRANT USAGE ON SCHEMA app TO guest;
         GRANT EXECUTE ON FUNCTION snowflake_convert TO service",
    );
    let mut service = server.connect_as("service");
    let report = "CREATE FUNCTION app.report(query text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS
                      $$ DECLARE r text; BEGIN EXECUTE query INTO r; RETURN r; END $$";
    run(&mut service, report);
    let mut guest = server.connect_as("guest");
    for role in ["postgres", "team"] {
        let who = format!(
            "SELECT snowflake_internal.snowflake_execute_as('{role}'::regrole, 'SELECT current_user')"
        );
        assert_eq!(one::<String>(&mut service, &who), role);
        for refused in [format!("SET ROLE {role}"), who] {
            let failure = fails(&mut guest, "42501", &format!("SELECT app.report($q${refused}$q$)"));
            assert!(!failure.message.contains("permission denied for"), "{failure}");
        }
    }
    // It converts what is its owner's, and a superuser's does anything.
    run(&mut service, "CREATE TABLE app.own (id serial PRIMARY KEY)");
    let convert =
        "SELECT app.report($q$SELECT count(*)::text FROM snowflake_convert('app.own', 'id', false)$q$)";
    run(&mut guest, convert);
    run(
        &mut session,
        "CREATE TABLE app.teams (id serial PRIMARY KEY); ALTER TABLE app.teams OWNER TO team;
         ALTER FUNCTION app.report OWNER TO postgres",
    );
    run(&mut guest, &convert.replace("app.own", "app.teams"));
}

/// What a view names in the schema of somebody who puts another schema in its place while the tables are rewritten.
#[test]
fn a_view_is_created_again_with_what_it_has_named() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE ROLE mallory LOGIN; CREATE ROLE owner; CREATE SCHEMA app AUTHORIZATION owner;
         GRANT CREATE ON DATABASE postgres TO mallory; CREATE SCHEMA lib AUTHORIZATION mallory;
         CREATE DOMAIN lib.label AS text; CREATE TABLE lib.other (n) AS SELECT 1;
         GRANT USAGE ON SCHEMA lib TO owner; GRANT SELECT ON lib.other TO owner; SET ROLE owner;
         CREATE TABLE app.t (id serial PRIMARY KEY, v text); INSERT INTO app.t (v) VALUES ('x');
         CREATE VIEW app.v AS SELECT id, v::lib.label, n FROM app.t, lib.other; RESET ROLE",
    );
    let mut mallory = server.connect_as("mallory");
    run(
        &mut mallory,
        "CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC;
         CREATE FUNCTION evil.trap() RETURNS integer LANGUAGE plpgsql AS
             $$ BEGIN RAISE LOG 'trapped %', current_user; RETURN 1; END $$;
         CREATE DOMAIN evil.label AS text CHECK (evil.trap() = 1);
         CREATE VIEW evil.other AS SELECT evil.trap() AS n; GRANT SELECT ON evil.other TO PUBLIC;
         SET lock_timeout = '1s'",
    );
    // The conversion waits for the sequence when it has dropped the view and rewritten the table.
    let mut holder = server.connect();
    run(&mut holder, "BEGIN; SELECT nextval('app.t_id_seq')");
    thread::scope(|scope| {
        let converter = scope.spawn(|| run(&mut session, "SELECT snowflake_convert('app.t', 'id', false)"));
        wait_until("the conversion to wait", secs(60), || {
            one::<bool>(&mut holder, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)").then_some(())
        });
        let is_renamed = mallory.batch_execute("ALTER SCHEMA lib RENAME TO lib_real");
        run(&mut holder, "COMMIT");
        converter.join().expect("the conversion");
        let refused = Failure::from(&is_renamed.expect_err("the schema was renamed meanwhile"));
        assert_eq!(refused.code, "55P03", "{refused}");
    });
    run(&mut mallory, "ALTER SCHEMA lib RENAME TO lib_real; ALTER SCHEMA evil RENAME TO lib");
    run(&mut session, "SELECT * FROM app.v");
    assert!(!server.log().contains("trapped"), "{}", server.log());
    run(&mut session, "SELECT * FROM lib.other");
    assert!(server.log().contains("trapped postgres"), "it would have been noticed");
}

/// The statements that create a view again run as its owner, who gets no right of the tables' owner or the superuser.
#[test]
fn a_view_of_somebody_else_gains_nothing_from_a_conversion() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE ROLE bob LOGIN; CREATE ROLE mallory LOGIN; CREATE SCHEMA app; GRANT ALL ON SCHEMA app TO bob, mallory;
         GRANT EXECUTE ON FUNCTION snowflake_convert, snowflake_convert_schema TO bob",
    );
    let mut bob = server.connect_as("bob");
    run(
        &mut bob,
        "CREATE TABLE app.bobs (id serial PRIMARY KEY, secret text); INSERT INTO app.bobs (secret) VALUES ('s');
         GRANT SELECT (id) ON app.bobs TO mallory",
    );
    let mut mallory = server.connect_as("mallory");
    run(&mut mallory, TRAP);
    run(
        &mut mallory,
        "CREATE VIEW app.spy AS SELECT id, secret, app.trap('view', 1) FROM app.bobs WHERE app.trap('view', 1) = 1;
         ALTER VIEW app.spy ALTER COLUMN secret SET DEFAULT app.trap('default', 1)::text;
         CREATE FUNCTION app.act_on() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM app.act('trigger'); RETURN new; END $$;
         CREATE TRIGGER t INSTEAD OF INSERT ON app.spy FOR EACH ROW EXECUTE FUNCTION app.act_on();
         CREATE RULE r AS ON DELETE TO app.spy DO INSTEAD SELECT app.act('rule'); GRANT SELECT ON app.spy TO PUBLIC",
    );
    // Not by bob, who would have to do it with mallory's rights.
    for call in ["snowflake_convert('app.bobs', 'id'", "snowflake_convert_schema('app'"] {
        for dry_run in [true, false] {
            let failure = fails(&mut bob, "42501", &format!("SELECT {call}, dry_run => {dry_run})"));
            assert_eq!(failure.message, "must be owner of view app.spy");
        }
    }
    run(
        &mut session,
        "CREATE FUNCTION public.tell() RETURNS event_trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE LOG '% by %', tg_tag, current_user; END $$;
         CREATE EVENT TRIGGER tell ON ddl_command_start EXECUTE FUNCTION public.tell();
         SELECT snowflake_convert_schema('app'); SELECT snowflake_convert_schema('app', false);
         DROP EVENT TRIGGER tell",
    );
    let log = server.log();
    assert!(!log.contains("trapped"), "{log}");
    for tag in ["ALTER VIEW", "DROP VIEW", "CREATE VIEW", "CREATE TRIGGER", "CREATE RULE", "GRANT"] {
        assert!(log.contains(&format!("{tag} by mallory")), "{tag}: {log}");
        let others = ["bob", "postgres"].map(|role| format!("{tag} by {role}"));
        assert!(!others.iter().any(|line| log.contains(line)), "{tag}: {log}");
    }
    assert!(log.contains("ALTER TABLE by bob"), "{log}");
    let owner = "SELECT relowner::regrole::text FROM pg_class WHERE oid = 'app.spy'::regclass";
    assert_eq!(one::<String>(&mut session, owner), "mallory");
    for session in [&mut bob, &mut mallory, &mut session] {
        fails(session, "42501", "SELECT secret FROM app.spy");
    }
}

/// The validation of a foreign key reads both tables with the rights of one owner.
#[test]
fn tables_of_owners_who_could_trap_each_other_are_not_converted_together() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE ROLE mallory LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE admin SUPERUSER; CREATE SCHEMA app;
         GRANT ALL ON SCHEMA app TO mallory, bob; GRANT EXECUTE ON FUNCTION snowflake_convert TO mallory, bob;
         CREATE TABLE app.crown (id serial PRIMARY KEY); INSERT INTO app.crown DEFAULT VALUES;
         GRANT REFERENCES, SELECT ON app.crown TO mallory",
    );
    let setup = TRAPPED.replace("{t}", "own").replace("{type}", "serial");
    let mut mallory = server.connect_as("mallory");
    run(&mut mallory, TRAP);
    run(&mut mallory, &setup);
    run(
        &mut mallory,
        "CREATE TABLE app.spy (crown integer REFERENCES app.crown, n integer DEFAULT 1);
         CREATE INDEX ON app.spy (n) WHERE app.trap('the other table', 1) = 1; INSERT INTO app.spy VALUES (1)",
    );
    let is_refused = |key: &str, session: &mut Client| {
        for dry_run in [true, false] {
            let call = format!("SELECT count(*) FROM snowflake_convert('{key}', 'id', {dry_run})");
            let failure = fails(session, "42501", &call);
            assert_eq!(failure.message, "cannot convert tables of different owners together", "{failure}");
            assert!(failure.detail.contains("belongs to mallory"), "{failure}");
            assert!(failure.hint.contains("foreign key"), "{failure}");
        }
        let log = server.log();
        assert!(!log.contains("trapped a superuser"), "{key}: {log}");
    };
    is_refused("app.crown", &mut server.connect());
    // The other way round: mallory's key, and a superuser's reference.
    run(&mut session, "CREATE TABLE app.spied (own integer REFERENCES app.own)");
    is_refused("app.own", &mut server.connect());
    run(&mut session, "DROP TABLE app.spied");
    // A partition, which is read with the rights of the parent's owner.
    run(&mut session, "CREATE TABLE app.parent (id bigint PRIMARY KEY) PARTITION BY HASH (id)");
    run(
        &mut session,
        "CREATE TABLE app.child PARTITION OF app.parent FOR VALUES WITH (MODULUS 1, REMAINDER 0);
         ALTER TABLE app.child OWNER TO mallory",
    );
    is_refused("app.parent", &mut server.connect());
    // Membership goes one way: bob is mallory, and mallory is not bob.
    run(&mut session, "GRANT mallory TO bob; ALTER TABLE app.crown OWNER TO bob");
    is_refused("app.crown", &mut server.connect_as("bob"));

    // As the hint says.
    run(&mut mallory, "ALTER TABLE app.spy DROP CONSTRAINT spy_crown_fkey, ALTER COLUMN crown TYPE bigint");
    run(&mut server.connect_as("bob"), "SELECT snowflake_convert('app.crown', 'id', false)");
    run(&mut session, "GRANT REFERENCES ON app.crown TO mallory");
    run(&mut mallory, "ALTER TABLE app.spy ADD FOREIGN KEY (crown) REFERENCES app.crown");
    // Superusers gain nothing from each other.
    run(
        &mut session,
        "CREATE TABLE app.a (id serial PRIMARY KEY); CREATE TABLE app.b (a integer REFERENCES app.a);
         ALTER TABLE app.b OWNER TO admin; SELECT snowflake_convert('app.a', 'id', false)",
    );
}

/// The statements of a change of the layout evaluate what reads IDs, for every row.
#[test]
fn the_steps_of_a_new_layout_run_the_tables_functions_as_their_owner() {
    let server = Server::builder().start_with_extension();
    run(
        &mut server.connect(),
        "CREATE ROLE \"mallory's\" LOGIN; CREATE SCHEMA app; GRANT ALL ON SCHEMA app TO \"mallory's\"",
    );
    let mut mallory = server.connect_as("mallory's");
    run(&mut mallory, TRAP);
    run(
        &mut mallory,
        "CREATE DOMAIN app.d AS bigint CHECK (app.trap('domain', snowflake_worker(VALUE)) >= 0);
         CREATE TABLE app.t (
             id bigint, g integer GENERATED ALWAYS AS (app.trap('generated', snowflake_worker(id))) STORED, d app.d,
             CHECK (app.trap('check', snowflake_worker(id)) >= 0));
         CREATE INDEX ON app.t (app.trap('index', snowflake_worker(id)));
         CREATE INDEX ON app.t (id) WHERE app.trap('predicate', 1) = snowflake_worker(4096);
         CREATE STATISTICS app.s ON id, (app.trap('statistics', snowflake_worker(id))) FROM app.t;
         CREATE MATERIALIZED VIEW app.m AS SELECT app.trap('view', snowflake_worker(id)) FROM app.t;
         INSERT INTO app.t VALUES (4096, DEFAULT, 4096);
         CREATE DOMAIN app.few AS integer CHECK (app.trap('literal', VALUE) >= 0)",
    );
    // Triggers of other tables hold for these functions as ever.
    run(
        &mut server.connect(),
        "CREATE FUNCTION app.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''refused''; END';
         CREATE TABLE app.limited (n integer); GRANT INSERT ON app.limited TO \"mallory's\";
         CREATE TRIGGER refuse BEFORE INSERT ON app.limited FOR EACH ROW EXECUTE FUNCTION app.refuse()",
    );
    run(
        &mut mallory,
        "CREATE FUNCTION app.try() RETURNS void LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO app.limited VALUES (1); EXCEPTION WHEN OTHERS THEN RAISE LOG 'tried'; END $$;
         CREATE FUNCTION app.try(n integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS
             $$ BEGIN PERFORM app.try(); RETURN n; END $$;
         CREATE TABLE app.trying (id bigint, g integer GENERATED ALWAYS AS (app.try(snowflake_worker(id))) STORED);
         INSERT INTO app.trying VALUES (4096)",
    );
    // To read the literal is to call the functions of the domain's owner.
    let own = "CREATE TABLE own (id bigint, CHECK (snowflake_worker(id) <> ALL ('{1}'::app.few[])));
        CREATE TABLE owned (id bigint, g integer GENERATED ALWAYS AS (app.trap('others', snowflake_worker(id))) STORED)";
    run(&mut server.connect(), own);
    let before = server.log().len();
    server.restore("postgres", "SELECT statement FROM snowflake_layout_steps() \\gexec\n");
    let notes = "SELECT note FROM snowflake_layout_steps() WHERE statement IS NULL";
    assert_eq!(
        column::<String>(&mut server.connect(), notes),
        [
            "Recompute g of public.owned by hand, because it uses what others own: \
             function app.trap(text,integer) of mallory's.",
            "Check the rows against constraint own_id_check on table public.own by hand, because it uses what others \
             own: function app.trap(text,integer) of mallory's, type app.few of mallory's."
        ]
    );
    let log = &server.log()[before..];
    assert!(!log.contains("trapped a superuser"), "{log}");
    assert!(log.contains("tried"), "{log}");
    assert_eq!(one::<i64>(&mut server.connect(), "SELECT count(*) FROM app.limited"), 0);
    for place in ["domain", "generated", "check", "index", "predicate", "statistics", "view"] {
        assert!(log.contains(&format!("passed {place} as mallory's")), "{place} was not evaluated: {log}");
    }
    run(&mut server.connect(), "UPDATE app.t SET id = id");
    assert!(server.log().contains("trapped a superuser in generated"), "the trap would have been noticed");
    // A schema's owner puts something else in the place of what has its statement already, or of what that names.
    run(
        &mut server.connect(),
        "GRANT CREATE ON DATABASE postgres TO \"mallory's\"; ALTER SCHEMA app OWNER TO \"mallory's\";
         CREATE TABLE app.own (id bigint, g integer GENERATED ALWAYS AS (snowflake_worker(id)) STORED);
         CREATE DOMAIN app.of_own AS bigint CHECK (snowflake_worker(VALUE) >= 0);
         CREATE SCHEMA other AUTHORIZATION \"mallory's\"; CREATE TABLE other.t (id bigint); INSERT INTO other.t VALUES (4096);
         CREATE SCHEMA named AUTHORIZATION \"mallory's\";
         CREATE FUNCTION named.is_fine(integer) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true';
         CREATE TABLE naming (id bigint CHECK (named.is_fine(snowflake_worker(id)))); INSERT INTO naming VALUES (4096)",
    );
    let of_own = "SELECT statement FROM snowflake_layout_steps()
                  WHERE statement ~ 'execute_as.* (app.own|app.of_own|app.t|public.naming) (SET|ADD)'";
    let statements: Vec<String> = column(&mut server.connect(), of_own);
    assert_eq!(statements.len(), 5, "{statements:?}");
    run(&mut server.connect(), &statements.join(";"));
    run(
        &mut mallory,
        "DROP TABLE app.own; CREATE VIEW app.own AS SELECT 1::bigint AS id;
         DROP DOMAIN app.of_own; CREATE DOMAIN app.of_own AS text;
         ALTER SCHEMA named RENAME TO former; CREATE SCHEMA named;
         CREATE FUNCTION named.is_fine(integer) RETURNS boolean LANGUAGE plpgsql AS
             $$ BEGIN RAISE LOG 'fell for another schema: %', current_user; RETURN true; END $$;
         ALTER SCHEMA app RENAME TO own; ALTER SCHEMA other RENAME TO app;
         CREATE FUNCTION app.trap(text, integer) RETURNS integer LANGUAGE plpgsql AS
             $$ BEGIN RAISE LOG 'fell for another table: %', current_user; RETURN $2; END $$;
         CREATE VIEW app.own AS SELECT 1::bigint AS id; CREATE DOMAIN app.of_own AS text",
    );
    for statement in &statements {
        fails(&mut server.connect(), "55000", statement);
    }
    assert!(!server.log().contains("fell for"), "{}", server.log());
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
        FOR part IN SELECT * FROM pg_proc WHERE proname ~ '^snowflake_(convert|revert|execute)_' LOOP
            EXECUTE format(
                'CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $$
                     BEGIN PERFORM public.trap(%L); RETURN %s; END $$',
                part.proname, pg_get_function_arguments(part.oid), pg_get_function_result(part.oid), part.proname,
                CASE WHEN part.proretset THEN '' ELSE 'NULL' END);
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
    for call in [
        "SELECT count(*) FROM old.snowflake_convert('app.t', 'id')",
        "SELECT count(*) FROM old.snowflake_convert('app.t', 'id', false)",
        "SELECT count(*) FROM old.snowflake_convert_schema('app', false)",
        "SELECT count(*) FROM old.snowflake_revert('app.t', 'id', false)",
        "SELECT count(*) FROM old.snowflake_revert_tables('{app.t}')",
    ] {
        let failure = fails(&mut session, "55000", call);
        assert_eq!(failure.message, "the schema of the extension snowflake_id was renamed", "{call}");
        assert!(failure.detail.contains("public") && !failure.hint.is_empty(), "{failure}");
    }
    // In this transaction nothing can be locked, so nothing may be called.
    run(&mut session, "BEGIN READ ONLY");
    fails(&mut session, "25006", "SELECT count(*) FROM old.snowflake_convert('app.t', 'id')");
    run(&mut session, "ROLLBACK");
    let planted = "SELECT count(*) FROM pg_proc
                   WHERE pronamespace = 'public'::regnamespace AND starts_with(proname, 'snowflake_convert_')";
    assert!(one::<i64>(&mut session, planted) >= 5);
    // What needs no name in that schema still works.
    run(
        &mut session,
        "UPDATE snowflake_internal.snowflake_config SET layout = layout;
         INSERT INTO snowflake_internal.snowflake_config VALUES ('41/10/12', 1, '2024-01-01 00:00Z');
         SELECT FROM old.snowflake_layout_steps()",
    );
    run(&mut session, "SELECT old.snowflake_decode(old.snowflake_nextval())");
    run(
        &mut session,
        "SELECT old.snowflake_between(1, '2024-01-01', '2025-01-01'); SELECT FROM old.snowflake_status",
    );
    assert!(!server.log().contains("trapped"), "{}", server.log());
    run(&mut session, "SELECT public.snowflake_server_layout()");
    assert!(server.log().contains("trapped: snowflake_server_layout as postgres"), "{}", server.log());
    // As the hint says.
    run(&mut session, "DROP SCHEMA public CASCADE; ALTER SCHEMA old RENAME TO public");
    run(
        &mut session,
        "SELECT snowflake_convert('app.t', 'id', false); UPDATE snowflake_internal.snowflake_config SET layout = layout",
    );
}
