//! Rights that roles have on the extension's objects, from defaults and from grants. Who may call what is in
//! `pg_test/regress/sql/rights.sql`, conversions in `convert/rights.rs`, settings in `generate/setting_rights.rs`.

use super::calls::{Call, TABLES, calls};
use super::planted_objects::MEMBERS;
use postgres::{Client, NoTls};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::{column, fails, one, run};

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
        &format!(
            "CREATE ROLE app LOGIN; {TABLES}; ALTER TABLE plain OWNER TO app; ALTER TABLE filled OWNER TO app"
        ),
    );
    let calls = calls(&mut session, "public");
    let issued = "SELECT issued FROM snowflake_status";
    let before: i64 = one(&mut session, issued);
    let mut app = server.config().user("app").connect(NoTls).unwrap();
    for Call { sql, .. } in calls {
        // Most of them are allowed, or fail for want of a right.
        let _ = app.batch_execute(&sql);
        assert_eq!(one::<i64>(&mut session, issued), before, "{sql}");
    }
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
