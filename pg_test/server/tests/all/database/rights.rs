//! Rights that roles have on the extension's objects, from defaults and from grants. Who may call what is in
//! `pg_test/regress/sql/rights.sql`, conversions in `convert/hostile.rs`, settings in `generate/setting_rights.rs`.

use super::planted_objects::MEMBERS;
use postgres::{Client, NoTls};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::{Failure, column, fails, one, run};

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

/// A call of each function that a role may be granted, for a role with nothing but this grant and what rows with a
/// snowflake default need.
const GRANTED: [&str; 37] = [
    "SELECT snowflake_nextval()",
    "SELECT snowflake_nextval_batch(3)",
    "SELECT snowflake_nextval_range(3)",
    "SELECT snowflake_lastval()",
    "SELECT snowflake_decode(id) FROM filled",
    "SELECT (snowflake_decode(id, 'twitter')).* FROM filled",
    "SELECT snowflake_timestamp(id) FROM filled",
    "SELECT snowflake_timestamp(id, 'twitter') FROM filled",
    "SELECT snowflake_datacenter(id) FROM filled",
    "SELECT snowflake_datacenter(id, 'twitter') FROM filled",
    "SELECT snowflake_worker(id) FROM filled",
    "SELECT snowflake_worker(id, 'twitter') FROM filled",
    "SELECT snowflake_sequence(id) FROM filled",
    "SELECT snowflake_sequence(id, 'twitter') FROM filled",
    "SELECT snowflake_owner(id) FROM filled",
    "SELECT snowflake_encode(now(), 1, 1)",
    "SELECT snowflake_min(now())",
    "SELECT snowflake_max(now())",
    "SELECT FROM filled WHERE snowflake_between(id, now() - interval '1 day', now())",
    "SELECT snowflake_to_base62(id) FROM filled",
    "SELECT snowflake_from_base62('00000000001')",
    "SELECT snowflake_time_encoder(now())",
    "SELECT snowflake_time_decoder('00000000001')",
    "SELECT snowflake_reader_sql()",
    "SELECT snowflake_generator_sql(1)",
    "CREATE TRIGGER guard BEFORE INSERT ON filled FOR EACH ROW EXECUTE FUNCTION snowflake_refuse_own_worker()",
    "SELECT snowflake_rotate()",
    "SELECT snowflake_adopt(now() - interval '1 day')",
    "SELECT snowflake_reset_stats()",
    "SELECT snowflake_convert('plain')",
    "SELECT snowflake_convert_schema('own')",
    "SELECT snowflake_layout_steps()",
    "SELECT snowflake_server_layout()",
    "SELECT snowflake_origin(1)",
    "SELECT snowflake_at(now(), 900) OVER ()",
    "SELECT snowflake_next_at(now(), 900, 'filled')",
    "SELECT snowflake_horizon()",
];

/// Where untrusted roles run SQL of their own.
#[test]
fn after_the_revoke_that_the_security_policy_names_nobody_uses_up_ids() {
    let policy = include_str!("../../../../../SECURITY.md").replace("\n  ", " ");
    let revoke =
        policy.split('`').find(|text| text.starts_with("REVOKE EXECUTE ON FUNCTION snowflake_nextval()"));
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(&mut session, revoke.expect("the statement"));
    run(
        &mut session,
        "CREATE ROLE app LOGIN;
         CREATE TABLE plain (id bigserial PRIMARY KEY);
         CREATE TABLE filled (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
         INSERT INTO filled DEFAULT VALUES;
         ALTER TABLE plain OWNER TO app; ALTER TABLE filled OWNER TO app",
    );
    let issued = "SELECT issued FROM snowflake_status";
    let before: i64 = one(&mut session, issued);
    let mut app = server.config().user("app").connect(NoTls).unwrap();
    for call in GRANTED {
        // Most of them are allowed, or fail for want of a right.
        let _ = app.batch_execute(call);
        assert_eq!(one::<i64>(&mut session, issued), before, "{call}");
    }
}

#[test]
fn where_execute_is_revoked_by_default_one_grant_suffices() {
    let server = Server::builder().start();
    let mut session = server.connect();
    run(
        &mut session,
        "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
         CREATE ROLE app LOGIN; CREATE ROLE inserter LOGIN;
         CREATE EXTENSION snowflake_id",
    );
    run(&mut session, "SET ROLE app");
    for call in ["snowflake_nextval()", "snowflake_max(now())", "snowflake_between(1, now(), now())"] {
        fails(&mut session, "42501", &format!("SELECT {call}"));
    }
    run(&mut session, "RESET ROLE");
    let functions = session
        .query(
            "SELECT oid::regprocedure::text, proname::text FROM pg_proc
             WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'snowflake%'
             -- Only superusers may call these.
                 AND proname NOT LIKE 'snowflake_registry_%'",
            &[],
        )
        .unwrap();
    assert_eq!(functions.len(), GRANTED.len());
    let mut faults = Vec::new();
    run(
        &mut session,
        "CREATE SCHEMA own AUTHORIZATION app;
         CREATE TABLE own.plain (id bigserial PRIMARY KEY);
         CREATE TABLE own.filled (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
         INSERT INTO own.filled DEFAULT VALUES;
         ALTER TABLE own.plain OWNER TO app; ALTER TABLE own.filled OWNER TO app",
    );
    let mut app = server.config().user("app").connect(NoTls).unwrap();
    run(&mut app, "SET search_path = own, public");
    for function in &functions {
        let (signature, name): (String, String) = (function.get(0), function.get(1));
        let has_layout = signature.ends_with("(bigint,text)");
        let calls = GRANTED.iter().filter(|call| {
            let (_, after) = call.split_once(&format!("{name}(")).unwrap_or_default();
            !after.is_empty() && after.contains("'twitter'") == has_layout
        });
        let call = calls.collect::<Vec<_>>();
        assert_eq!(call.len(), 1, "{signature}");
        run(&mut session, &format!("GRANT EXECUTE ON FUNCTION {signature} TO app"));
        run(&mut app, "BEGIN");
        if let Err(e) = app.batch_execute(call[0]) {
            let failure = Failure::from(&e);
            // Without a registry, or an ID, there is nothing to ask; but they have been called.
            if !["snowflake_origin", "snowflake_lastval"].contains(&&*name) || failure.code == "42501" {
                faults.push(format!("{}: {failure}", call[0]));
            }
        }
        run(&mut app, "ROLLBACK");
        run(&mut session, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM app");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // A view needs no grant on what it calls.
    run(&mut session, "SET ROLE app");
    assert!(one::<i64>(&mut session, "SELECT count(*) FROM snowflake_layouts") > 5);
    run(&mut session, "RESET ROLE");
    // Of what users call, only those readers are open that others need.
    let open: Vec<String> = column(
        &mut session,
        "SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
             AND proname LIKE 'snowflake%' AND has_function_privilege('public', oid, 'EXECUTE') ORDER BY 1",
    );
    let readers = ["datacenter", "from_base62", "min", "sequence", "timestamp", "to_base62", "worker"];
    assert_eq!(open, readers.map(|reader| format!("snowflake_{reader}")));
    // COPY calls another function in the place of the default.
    run(
        &mut session,
        "CREATE TABLE copied (id bigint DEFAULT snowflake_nextval(), note text);
         GRANT INSERT ON copied TO inserter; GRANT EXECUTE ON FUNCTION snowflake_nextval() TO inserter",
    );
    let mut inserter = server.connect_as("inserter");
    let mut copy = inserter.copy_in("COPY copied (note) FROM STDIN").unwrap();
    std::io::Write::write_all(&mut copy, b"a\nb\n").unwrap();
    assert_eq!(copy.finish().unwrap(), 2);
}

#[test]
fn a_role_with_grants_on_other_columns_inserts_generated_ids_only() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), customer text NOT NULL);
         CREATE ROLE app; GRANT SELECT, INSERT (customer) ON orders TO app; SET ROLE app",
    );
    let id: i64 = one(&mut session, "INSERT INTO orders (customer) VALUES ('Ada') RETURNING id");
    assert!(id > 1 << 53);
    for id in ["7", "DEFAULT"] {
        fails(&mut session, "42501", &format!("INSERT INTO orders (id, customer) VALUES ({id}, 'Grace')"));
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
