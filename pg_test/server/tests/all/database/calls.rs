//! A call of each function that users call, made from the catalog, so that a new function is in these tests without a word:
//! what one grant suffices for, and what a server with another layout refuses.

use super::planted_objects::MEMBERS;
use postgres::{Client, NoTls};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::{Failure, run};

/// A function, and a call of it. The tables are those of `TABLES`.
pub(super) struct Call {
    pub name: String,
    pub signature: String,
    pub sql: String,
}

/// A table without IDs and one with them. A role that owns them can call each function, but for its rights.
pub(super) const TABLES: &str = "
    CREATE TABLE plain (id bigserial PRIMARY KEY);
    CREATE TABLE filled (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
    INSERT INTO filled DEFAULT VALUES";

/// A call of each member of the extension outside its own schema, except those that only superusers may call. `schema` has
/// the tables.
pub(super) fn calls(session: &mut Client, schema: &str) -> Vec<Call> {
    run(session, MEMBERS);
    let rows = session
        .query(
            "SELECT p.oid::regprocedure::text, p.proname::text, p.prokind = 'w', p.prorettype = 'trigger'::regtype,
                 coalesce(p.proargnames[:p.pronargs], '{}'), p.proargtypes::regtype[]::text[],
                 p.pronargdefaults::integer
             FROM members m JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
             WHERE p.pronamespace <> 'snowflake_internal'::regnamespace
                 AND p.proname NOT LIKE 'snowflake\\_registry\\_%' AND p.proname <> 'snowflake_change_layout'
             ORDER BY p.oid::regprocedure::text COLLATE \"C\"",
            &[],
        )
        .expect("the functions");
    run(session, "DROP VIEW members");
    let call = |row: &postgres::Row| {
        let (signature, name): (String, String) = (row.get(0), row.get(1));
        let (names, types): (Vec<String>, Vec<String>) = (row.get(4), row.get(5));
        let required = names.len() - row.get::<_, i32>(6) as usize;
        let arguments: Vec<String> = names
            .iter()
            .zip(&types)
            .take(required)
            .map(|(of, type_)| value(&name, of, type_, schema))
            .collect();
        let sql = if row.get(3) {
            format!("CREATE TRIGGER guard BEFORE INSERT ON filled FOR EACH ROW EXECUTE FUNCTION {name}()")
        } else {
            let window = if row.get(2) { " OVER ()" } else { "" };
            let reads = arguments.iter().any(|argument| argument == "filled.id");
            let from = if reads { " FROM filled" } else { "" };
            format!("SELECT {name}({}){window}{from}", arguments.join(", "))
        };
        Call { name, signature, sql }
    };
    rows.iter().map(call).collect()
}

/// A value of an argument, with which the call succeeds.
fn value(function: &str, name: &str, type_: &str, schema: &str) -> String {
    let table = if function.starts_with("snowflake_convert") { "plain" } else { "filled" };
    match (name, type_) {
        ("layout", "text") => "'twitter'".to_owned(),
        ("base62", "text") => "'00000000001'".to_owned(),
        ("column_name", _) => "'id'".to_owned(),
        ("schema_name", _) => format!("'{schema}'"),
        (_, "regnamespace") => format!("'{schema}'"),
        (_, "regclass") => format!("'{table}'"),
        (_, "regclass[]") => format!("VARIADIC '{{{table}}}'"),
        (_, "bigint") => "filled.id".to_owned(),
        // A worker that this server does not have.
        ("worker", "integer") => "900".to_owned(),
        (_, "integer") => "3".to_owned(),
        (_, "timestamp with time zone") => "now()".to_owned(),
        _ => panic!("{function}: no value for {name} {type_}"),
    }
}

/// Except IDs of other systems and base62, which do not depend on the layout, and scripts of conversions, which are refused
/// when they run.
#[test]
fn calls_by_the_layout_are_refused_in_a_database_of_another() {
    const INDEPENDENT: &[&str] = &[
        "snowflake_convert(regclass[])",
        "snowflake_convert_schema(regnamespace,text[])",
        "snowflake_decode(bigint,text)",
        "snowflake_from_base62(text)",
        "snowflake_generator_sql(integer,name,text,interval,timestamp with time zone)",
        "snowflake_lastval()",
        "snowflake_refuse_own_worker()",
        "snowflake_server_layout()",
        "snowflake_timestamp(bigint,text)",
        "snowflake_to_base62(bigint)",
    ];
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(&mut session, TABLES);
    let everybody = "SELECT has_function_privilege('public', $1::text::regprocedure, 'EXECUTE')";
    let mut calls = calls(&mut session, "public");
    calls.retain(|call| session.query_one(everybody, &[&call.signature]).expect("a right").get(0));
    drop(session);
    server.set("snowflake_id.epoch", "2020-01-01T00:00:00Z");
    server.restart();
    let mut others = Vec::new();
    for call in calls {
        // A session of its own, because a session may remember what it has compared.
        let failure = server.connect().batch_execute(&format!("BEGIN; {}; ROLLBACK", call.sql));
        let message = failure.err().map(|error| Failure::from(&error).message).unwrap_or_default();
        if message != "the snowflake layout of this database differs from this server's" {
            others.push(call.signature);
        }
    }
    assert_eq!(others, INDEPENDENT);
}

#[test]
fn one_grant_suffices_where_execute_is_revoked_by_default() {
    let server = Server::builder().start();
    let mut session = server.connect();
    run(
        &mut session,
        "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
         CREATE ROLE app LOGIN; CREATE ROLE inserter LOGIN;
         CREATE EXTENSION snowflake_id",
    );
    run(
        &mut session,
        &format!(
            "CREATE SCHEMA own AUTHORIZATION app; SET search_path = own, public; {TABLES};
             ALTER TABLE plain OWNER TO app; ALTER TABLE filled OWNER TO app; RESET search_path"
        ),
    );
    let mut app = server.config().user("app").connect(NoTls).unwrap();
    run(&mut app, "SET search_path = own, public");
    let (mut faults, mut open) = (Vec::new(), Vec::new());
    for Call { name, signature, sql } in calls(&mut session, "own") {
        let mut attempt = || {
            let outcome = app.batch_execute(&format!("BEGIN; {sql}; ROLLBACK"));
            run(&mut app, "ROLLBACK");
            outcome.map_err(|error| Failure::from(&error))
        };
        if attempt().is_ok() {
            open.push(signature.clone());
        }
        // A role that converts a key inserts rows by it.
        let also = if name.contains("convert") || name.contains("revert") {
            "GRANT EXECUTE ON FUNCTION snowflake_nextval() TO app"
        } else {
            ""
        };
        run(&mut session, &format!("GRANT EXECUTE ON FUNCTION {signature} TO app; {also}"));
        if let Err(failure) = attempt() {
            // These two were called: without a registry there is nothing to ask, and no ID was generated.
            let has_nothing = ["snowflake_origin", "snowflake_lastval"].contains(&name.as_str());
            if !has_nothing || failure.code == "42501" {
                faults.push(format!("{sql}: {failure}"));
            }
        }
        run(&mut session, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM app");
        run(&mut session, "GRANT EXECUTE ON FUNCTION snowflake_nextval() TO inserter");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // Only what snowflake_decode() and conversions call.
    let called = [
        "datacenter(bigint)",
        "min(timestamp with time zone)",
        "sequence(bigint)",
        "timestamp(bigint)",
        "timestamp(bigint,text)",
        "worker(bigint)",
    ];
    assert_eq!(open, called.map(|function| format!("snowflake_{function}")));
    // A view needs no grant on what it calls.
    run(&mut app, "SELECT FROM snowflake_layouts");
    // COPY calls another function in the place of the default.
    run(
        &mut session,
        "CREATE TABLE copied (id bigint DEFAULT snowflake_nextval(), note text); GRANT INSERT ON copied TO inserter",
    );
    let mut inserter = server.connect_as("inserter");
    let mut copy = inserter.copy_in("COPY copied (note) FROM STDIN").unwrap();
    std::io::Write::write_all(&mut copy, b"a\nb\n").unwrap();
    assert_eq!(copy.finish().unwrap(), 2);
}
