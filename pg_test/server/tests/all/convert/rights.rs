//! Conversions, the way back and the steps of a new layout are executed as their caller, over what the caller owns: a
//! superuser's call runs nothing that another role has chosen.

use postgres::Client;
use snowflake_server_tests::sql::{Failure, column, fails, one, run};
use snowflake_server_tests::{Database, Server};

const REFUSAL: &str = "must be owner of all tables, sequences and views of the call";

/// A server of its own, where `bob` and `mallory` may call the functions and create objects in the schema `app`.
fn database() -> Database {
    let database = Database::from(Server::builder().start_with_extension());
    run(
        &mut database.connect(),
        "CREATE ROLE bob LOGIN; CREATE ROLE mallory LOGIN; CREATE ROLE member LOGIN IN ROLE bob; CREATE SCHEMA app;
         GRANT ALL ON SCHEMA app TO bob, mallory; GRANT USAGE ON SCHEMA app TO PUBLIC;
         GRANT EXECUTE ON FUNCTION snowflake_convert, snowflake_convert_tables, snowflake_convert_schema, snowflake_revert,
             snowflake_revert_tables, snowflake_revert_schema, snowflake_layout_steps TO bob, mallory, member",
    );
    database
}

/// All calls that change the tables `app.t` and `app.back`, dry and real, are refused with the same words.
#[track_caller]
fn refused(session: &mut Client) -> Failure {
    let calls = [
        "convert('app.t', 'id'",
        "convert_tables('{app.t}'",
        "convert_schema('app'",
        "revert('app.back', 'id'",
    ];
    let others = ["revert_tables('{app.back}'", "revert_schema('app'"];
    let mut failures = Vec::new();
    for call in calls.iter().chain(&others) {
        for dry_run in [true, false] {
            let call = format!("SELECT count(*) FROM snowflake_{call}, dry_run => {dry_run})");
            failures.push(fails(session, "42501", &call));
        }
    }
    assert!(failures.iter().all(|failure| failure.message == REFUSAL), "{failures:?}");
    failures.swap_remove(0)
}

/// Tables for [`refused`].
const TABLES: &str = "
    CREATE TABLE app.t (id serial PRIMARY KEY, n integer); INSERT INTO app.t (n) VALUES (1);
    CREATE TABLE app.back (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n integer);
    INSERT INTO app.back (n) VALUES (1)";

/// A function of mallory, which PostgreSQL calls to plan, analyze or rewrite a table that uses it.
const TRAP: &str = "
    CREATE FUNCTION app.trap(n integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS
        $$ BEGIN RAISE LOG 'trapped %', current_user; RETURN n; END $$";

const AS_BOB: &str = "Connect as bob, which needs EXECUTE on the function, or as a member of it that is no superuser and \
                      SET ROLE to it.";

/// The script of a report is executed with the caller's rights: what it created would belong to the caller.
#[test]
fn the_script_of_a_report_has_only_what_the_caller_owns() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        &format!(
            "{TABLES}; {TRAP}; ALTER FUNCTION app.trap OWNER TO mallory; GRANT SELECT ON app.t TO mallory;
             CREATE MATERIALIZED VIEW app.own AS SELECT id FROM app.t"
        ),
    );
    let mut mallory = database.connect_as("mallory");
    run(
        &mut mallory,
        "CREATE FUNCTION app.definer() RETURNS bigint SECURITY DEFINER LANGUAGE sql
             BEGIN ATOMIC SELECT app.trap(id) FROM app.t; END;
         CREATE MATERIALIZED VIEW app.stored AS SELECT app.trap(id) FROM app.t; CREATE TABLE app.m (id integer);
         CREATE TABLE app.n (t_id integer CHECK (app.trap(t_id) > 0));
         CREATE FUNCTION app.planned() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM app.trap(1) FROM t; END';
         CREATE VIEW app.on_stored AS SELECT * FROM app.stored;
         CREATE RULE other AS ON INSERT TO app.m DO ALSO SELECT id, E'\\\\''; ALTER ROLE mallory SUPERUSER; --' FROM app.t;
         CREATE POLICY other ON app.m USING (id IN (SELECT t.id FROM app.t))",
    );
    let of_kinds = |session: &mut Client, kinds: &str| {
        column::<String>(
            session,
            &format!(
                "SELECT concat_ws(' | ', object, statement) FROM snowflake_convert('app.t', 'id')
                 WHERE kind IN ({kinds}) ORDER BY step"
            ),
        )
    };
    let obstacles = of_kinds(&mut session, "'obstacle'");
    assert_eq!(
        obstacles,
        [
            "function app.definer()",
            "materialized view app.own",
            "materialized view app.stored",
            "policy other on table app.m",
            "rule other on table app.m",
        ]
    );
    let script = of_kinds(&mut session, "'before', 'after', 'revert', 'check'");
    assert!(script.iter().any(|row| row.contains("CREATE MATERIALIZED VIEW app.own")), "{script:#?}");
    let with_statement = |row: &&String| row.contains(" | ");
    let statements: String = script.iter().filter(with_statement).map(String::as_str).collect();
    for word in ["definer", "stored", "other", "trap", "app.m", "planned"] {
        assert!(!statements.contains(word), "{word}: {script:#?}");
    }
    // They are named all the same.
    assert!(script.iter().any(|row| row == "function app.planned()"), "{script:#?}");
    let left_out = "SELECT concat_ws(' | ', object, statement, remedy) FROM snowflake_convert_schema('app')
         WHERE kind = 'left out' AND object LIKE '%app.n'";
    assert_eq!(
        one::<String>(&mut session, left_out),
        "column t_id of table app.n | The table belongs to mallory."
    );
    assert!(!database.server().log().contains("trapped postgres"), "a definition of mallory was executed");
}

#[test]
fn only_the_owner_converts_and_no_superuser_in_the_owners_place() {
    let database = database();
    let mut session = database.connect();
    run(&mut database.connect_as("bob"), TABLES);
    run(&mut session, "CREATE ROLE stranger LOGIN; CREATE ROLE admin SUPERUSER");
    for function in ["convert('app.t', 'id')", "revert('app.back', 'id')", "layout_steps()"] {
        let call = format!("SELECT snowflake_{function}");
        let failure = fails(&mut database.connect_as("stranger"), "42501", &call);
        assert!(failure.message.starts_with("permission denied for function"), "{failure}");
    }
    for role in ["member", "mallory", "postgres"] {
        let failure = refused(&mut database.connect_as(role));
        assert!(failure.detail.starts_with("Other owners, with the number of objects: bob "), "{failure}");
        assert_eq!(failure.hint, AS_BOB, "{role}");
    }
    // Code of bob could become the superuser again, in each of these.
    for become_bob in ["SET ROLE bob", "SET SESSION AUTHORIZATION bob", "SET ROLE admin; SET ROLE bob"] {
        let mut session = database.connect();
        run(&mut session, become_bob);
        assert_eq!(refused(&mut session).hint, AS_BOB, "{become_bob}");
    }
    let definer = "CREATE FUNCTION app.convert() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = public AS
                       'SELECT count(*) FROM snowflake_convert(''app.t'', ''id'', dry_run => false)'";
    run(&mut database.connect_as("bob"), definer);
    fails(&mut session, "42501", "SELECT app.convert()");

    let mut member = database.connect_as("member");
    run(&mut member, "SET ROLE bob; SELECT snowflake_convert('app.t', 'id', dry_run => false)");
    run(&mut member, "SELECT snowflake_revert_schema('app', dry_run => false)");
    // As the function's owner, whoever calls it.
    assert!(one::<i64>(&mut database.connect_as("mallory"), "SELECT app.convert()") > 0);
}

#[test]
fn all_that_a_call_changes_has_one_owner() {
    let database = database();
    let mut session = database.connect();
    let (mut bob, mut mallory) = (database.connect_as("bob"), database.connect_as("mallory"));
    run(&mut bob, TABLES);
    run(&mut bob, "GRANT ALL ON app.t TO mallory");
    for (connect, disconnect) in [
        ("CREATE TABLE app.u (t integer REFERENCES app.t)", "DROP TABLE app.u"),
        ("CREATE VIEW app.v AS SELECT id FROM app.t", "DROP VIEW app.v"),
        (
            "RESET ROLE; CREATE TABLE app.c () INHERITS (app.t); ALTER TABLE app.c OWNER TO mallory",
            "DROP TABLE app.c",
        ),
        (
            "RESET ROLE; CREATE STATISTICS app.s ON id, n FROM app.t; ALTER STATISTICS app.s OWNER TO mallory",
            "DROP STATISTICS app.s",
        ),
    ] {
        run(&mut session, &format!("SET ROLE mallory; {connect}; RESET ROLE"));
        for dry_run in [true, false] {
            let call = format!("SELECT snowflake_convert('app.t', 'id', {dry_run})");
            for session in [&mut bob, &mut mallory, &mut session] {
                let failure = fails(session, "42501", &call);
                assert_eq!(failure.message, REFUSAL, "{connect}");
                assert!(
                    failure.hint.starts_with("Pass tables of one owner, or exclude those of others."),
                    "{connect}: {failure}"
                );
            }
            let failure = fails(&mut bob, "42501", &call);
            assert!(
                failure.detail.starts_with("Other owners, with the number of objects: mallory 1 ("),
                "{failure}"
            );
        }
        run(&mut session, disconnect);
    }
    // A sequence of another role stays, because any role may name it in a default; so does a table that is not changed.
    run(
        &mut session,
        "CREATE SEQUENCE app.wide_id_seq; GRANT USAGE, SELECT ON SEQUENCE app.wide_id_seq TO bob; SET ROLE bob;
         CREATE TABLE app.wide (id bigint PRIMARY KEY DEFAULT nextval('app.wide_id_seq')); GRANT REFERENCES ON app.wide TO mallory;
         SET ROLE mallory; CREATE TABLE app.u (wide bigint REFERENCES app.wide); RESET ROLE",
    );
    let said = column::<String>(
        &mut bob,
        "SELECT concat_ws(' | ', statement, note) FROM snowflake_convert('app.wide', 'id', false) ORDER BY step",
    );
    let stays = "sequence app.wide_id_seq stays, because it belongs to postgres";
    assert!(said.iter().any(|row| row.ends_with(stays)), "{said:#?}");
    assert!(!said.concat().contains("SEQUENCE"), "only its owner changes it: {said:#?}");
}

/// Each was a way to run code with more rights, when a superuser's call still executed as the owners of tables.
#[test]
fn a_superusers_call_over_tables_of_others_runs_none_of_their_code() {
    let database = database();
    let mut session = database.connect();
    run(&mut database.connect_as("mallory"), TRAP);
    run(
        &mut database.connect_as("mallory"),
        "CREATE TYPE app.mood AS ENUM ('calm');
         CREATE FUNCTION app.trap(app.mood) RETURNS json LANGUAGE plpgsql AS
             $$ BEGIN PERFORM app.trap(1); RETURN '1'; END $$;
         CREATE CAST (app.mood AS json) WITH FUNCTION app.trap(app.mood);
         CREATE FUNCTION app.distance(integer, integer) RETURNS double precision IMMUTABLE LANGUAGE plpgsql AS
             $$ BEGIN RETURN app.trap($1 - $2); END $$;
         CREATE TYPE app.span AS RANGE (SUBTYPE = integer, SUBTYPE_DIFF = app.distance)",
    );
    for (kind, attack) in [
        // A partition's check comes from its parent.
        (
            "bigserial",
            "ALTER TABLE app.t ADD CHECK (app.trap(1) > 0 AND id <> 0); CREATE TABLE app.part PARTITION OF app.t DEFAULT",
        ),
        // A function of PostgreSQL looks for the cast of a type when it is called.
        (
            "serial",
            "ALTER TABLE app.t ADD m app.mood DEFAULT 'calm'; CREATE TABLE app.part PARTITION OF app.t
             (CHECK (to_jsonb(m) <> 'null' OR id > 0)) DEFAULT",
        ),
        // ANALYZE measures the lengths of ranges.
        (
            "serial",
            "ALTER TABLE app.t ADD r app.span DEFAULT '[1,3)'; CREATE TABLE app.part PARTITION OF app.t DEFAULT",
        ),
    ] {
        let setup = format!(
            "DROP TABLE IF EXISTS app.t, app.back; CREATE TABLE app.t (id {kind}, n integer, PRIMARY KEY (id, n))
                 PARTITION BY LIST (n); CREATE TABLE app.back (id bigint PRIMARY KEY DEFAULT snowflake_nextval())"
        );
        let mut bob = database.connect_as("bob");
        run(&mut bob, &setup);
        run(&mut bob, attack);
        run(&mut bob, "INSERT INTO app.t (n) VALUES (1), (2)");
        let before = database.server().log().len();
        assert_eq!(refused(&mut session).hint, AS_BOB, "{attack}");
        let log = &database.server().log()[before..];
        assert!(!log.contains("trapped"), "{attack}: {log}");
        // Bob's own call does what bob's ALTER TABLE does.
        run(&mut database.connect_as("bob"), "SELECT snowflake_convert('app.t', 'id', false)");
        let log = &database.server().log()[before..];
        assert!(log.contains("trapped bob") && !log.contains("trapped postgres"), "{attack}: {log}");
    }
}

/// The owner of a schema can put another in its place between two statements, so that a name means another object.
#[test]
fn a_superusers_call_names_nothing_in_schemas_of_others() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "GRANT CREATE ON DATABASE postgres TO mallory; CREATE SCHEMA lib AUTHORIZATION mallory;
         CREATE TABLE app.t (id serial PRIMARY KEY, n integer);
         CREATE STATISTICS lib.s ON id, n FROM app.t; ALTER STATISTICS lib.s SET STATISTICS 7",
    );
    let convert = "SELECT snowflake_convert('app.t', 'id', false)";
    for (make, remove) in [
        ("SELECT", "DROP STATISTICS lib.s"),
        ("CREATE VIEW lib.v AS SELECT id FROM app.t", "DROP VIEW lib.v"),
        ("CREATE TABLE lib.u (t bigint REFERENCES app.t)", "DROP TABLE lib.u"),
        ("ALTER TABLE app.t SET SCHEMA lib", "ALTER TABLE lib.t SET SCHEMA app"),
    ] {
        run(&mut session, make);
        for dry_run in [true, false] {
            let table: u32 = one(&mut session, "SELECT oid FROM pg_class WHERE relname = 't'");
            let call = format!("SELECT snowflake_convert({table}::regclass, 'id', {dry_run})");
            let failure = fails(&mut session, "42501", &call);
            assert_eq!(failure.message, REFUSAL, "{make}");
            assert!(
                failure.detail.starts_with("Owners of their schemas, with the number of objects: mallory "),
                "{failure}"
            );
            assert!(failure.hint.starts_with("A superuser's call needs schemas of superusers"), "{failure}");
        }
        run(&mut session, remove);
    }
    // So it is for the schema of the extension, which the owner of a database owns.
    run(&mut session, "ALTER DATABASE postgres OWNER TO mallory");
    let failure = fails(&mut session, "42501", convert);
    assert!(failure.detail.ends_with(": mallory 1 (extension snowflake_id)."), "{failure}");
    // As the hint says.
    run(&mut session, "ALTER SCHEMA public OWNER TO postgres");
    run(&mut session, convert);
}

#[test]
fn the_steps_of_a_new_layout_are_the_callers() {
    let database = database();
    let (mut session, mut bob) = (database.connect(), database.connect_as("bob"));
    run(
        &mut bob,
        "CREATE TABLE app.t (id bigint CHECK (snowflake_worker(id) >= 0),
             w integer GENERATED ALWAYS AS (snowflake_worker(id)) STORED);
         CREATE INDEX ON app.t (snowflake_worker(id)); CREATE DOMAIN app.d AS bigint CHECK (snowflake_worker(VALUE) >= 0)",
    );
    run(
        &mut session,
        "CREATE SCHEMA lib AUTHORIZATION mallory; CREATE TABLE lib.t (id bigint CHECK (snowflake_worker(id) >= 0));
         CREATE TABLE app.own (id bigint CHECK (snowflake_worker(id) >= 0));
         CREATE TABLE app.parent (id bigint CHECK (snowflake_worker(id) >= 0)); CREATE TABLE app.child () INHERITS (app.parent);
         ALTER TABLE app.child OWNER TO mallory",
    );
    let steps = |session: &mut Client| {
        let query = "SELECT concat_ws(' | ', left(split_part(statement, ';', 1), 20),
                         substring(statement FROM 'app\\.\\w+'), note) FROM snowflake_layout_steps()";
        column::<String>(session, query)
    };
    let of_bob = "bob has steps for 2 tables, materialized views or domains: connect as that role, or as a member of it that \
                  is no superuser and SET ROLE to it.";
    let of_mallory = "mallory owns the schema or a child of 2 tables, materialized views or domains: first give it to their \
                      owner.";
    let said = steps(&mut session);
    assert!(said[0].starts_with("MERGE INTO") && said[0].contains("Gives this database"), "{said:#?}");
    assert!(said[1].contains("app.own") && said.len() == 4, "{said:#?}");
    assert!(
        said[2..].contains(&of_bob.to_owned()) && said[2..].contains(&of_mallory.to_owned()),
        "{said:#?}"
    );
    run(&mut session, "SET ROLE bob");
    assert!(steps(&mut session).contains(&of_bob.to_owned()), "a superuser as bob");

    let said = steps(&mut bob);
    assert_eq!(said[0], "First postgres must give this database the server's layout.");
    let own = said.iter().filter(|step| step.contains("app.t") || step.contains("app.d")).count();
    assert_eq!(own, 5, "{said:#?}");
    assert!(said.iter().any(|step| step.starts_with("postgres has steps for 3 tables")), "{said:#?}");
    let statements: Vec<String> =
        column(&mut bob, "SELECT statement FROM snowflake_layout_steps() WHERE statement IS NOT NULL");
    // Rows that row-level security hides are not left out in silence.
    run(
        &mut bob,
        "INSERT INTO app.t VALUES (1); ALTER TABLE app.t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    );
    fails(&mut bob, "42501", &statements[0]);
    run(&mut bob, "ALTER TABLE app.t NO FORCE ROW LEVEL SECURITY");
    for statement in statements {
        run(&mut bob, &statement);
    }
}

/// A recursive UNION ends because it finds no new row, and with a counter or a path in the row each is new.
#[test]
fn no_recursive_query_counts() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let counter = regex::Regex::new(r"[+-] [0-9]|[|][|]").expect("a pattern");
    let mut queries = 0;
    for place in ["sql", "src/functions"] {
        for file in std::fs::read_dir(format!("{folder}/{place}")).expect("a folder") {
            let file = file.expect("a file").path();
            if file.extension().is_none_or(|extension| extension != "sql") {
                continue;
            }
            let text = std::fs::read_to_string(&file).expect("SQL");
            for (_, part) in
                text.split("WITH RECURSIVE").skip(1).map(|part| part.split_once(" AS ").expect("AS"))
            {
                // Up to the parenthesis that ends the query.
                let mut depth = 0;
                let end = part.find(|c| {
                    depth += i32::from(c == '(') - i32::from(c == ')');
                    c == ')' && depth == 0
                });
                let query = &part[..end.expect("the end")];
                queries += 1;
                let counts = counter.is_match(query);
                let after = part[query.len()..].trim_start_matches(')').trim_start();
                assert!(!counts || after.starts_with("CYCLE"), "{}: {query}", file.display());
            }
        }
    }
    assert!(queries >= 8, "{queries} queries");
}
