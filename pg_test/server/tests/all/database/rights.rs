//! Rights that roles have on the extension's objects, from defaults and from grants. Those of each object are in
//! `pg_test/regress/sql/install.sql`, conversions in `convert/hostile.rs`, settings in `generate/setting_rights.rs`.

use super::calls::{Call, TABLES, calls};
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
    // They are in regress/expected/install.out.
    let usual = rights(&mut session);
    let connect = |role| server.config().dbname("generous").user(role).connect(NoTls).expect("a session");
    let mut session = connect("postgres");
    // A function of another extension, which its own view calls.
    run(
        &mut session,
        "CREATE FUNCTION theirs() RETURNS integer IMMUTABLE RETURN 7; REVOKE ALL ON FUNCTION theirs FROM PUBLIC;
         CREATE FUNCTION caller() RETURNS integer RETURN theirs(); ALTER EXTENSION plpgsql ADD FUNCTION caller()",
    );
    run(&mut session, &format!("{GENEROUS} CREATE EXTENSION snowflake_id"));
    assert_eq!(rights(&mut session), usual);
    assert!(!one::<bool>(&mut session, "SELECT has_function_privilege('public', 'theirs()', 'EXECUTE')"));
    run(&mut session, "SELECT snowflake_registry_create('node')");
    run(&mut connect("app"), "SELECT snowflake_nextval()");
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

/// Who may have a database record a layout: the owner, who restores dumps, may add one. PostgreSQL's own roles reach every
/// table, and those of a publisher run here as the subscription's owner.
#[test]
fn only_the_owner_adds_a_layout_and_only_superusers_replace() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE ROLE merchant LOGIN; ALTER DATABASE postgres OWNER TO merchant; CREATE ROLE app LOGIN;
         CREATE ROLE clerk LOGIN IN ROLE pg_write_all_data, pg_read_all_data; CREATE ROLE node;
         GRANT SET ON PARAMETER session_replication_role TO clerk, merchant",
    );
    let own = "'41/10/12 1ms 2024-01-01 00:00:00+00'";
    let other = "'41/10/12 1ms 2020-01-01 00:00:00+00'";
    let config = "INSERT INTO snowflake_internal.snowflake_config VALUES";
    let check = "INSERT INTO snowflake_internal.snowflake_config_check VALUES";
    let cases = [
        ("app", format!("{config} ({own})"), "42501"),
        ("clerk", format!("{config} ({own})"), "42501"),
        ("clerk", format!("{config} ({other})"), "42501"),
        ("clerk", format!("{check} ({other})"), "42501"),
        ("clerk", format!("SET session_replication_role = replica; {config} ({other})"), "42501"),
        ("clerk", "DELETE FROM snowflake_internal.snowflake_config".to_owned(), ""),
        ("clerk", "TRUNCATE snowflake_internal.snowflake_config".to_owned(), "42501"),
        ("merchant", format!("{config} ({own}); {check} ({own})"), ""),
        ("merchant", "INSERT INTO snowflake_internal.snowflake_registry SELECT".to_owned(), "23502"),
        ("merchant", format!("SET session_replication_role = replica; {config} ({other})"), ""),
        ("merchant", format!("SET session_replication_role = replica; {check} ({other})"), "55000"),
    ];
    let record = "SELECT snowflake_internal.snowflake_own_layouts()";
    for (role, statement, code) in &cases {
        let mut attacker = server.connect_as(role);
        let said = attacker.batch_execute(statement).map_err(|e| Failure::from(&e).code);
        assert_eq!(said.err().unwrap_or_default(), *code, "{role}: {statement}");
        let now: String = one(&mut session, record);
        let added = statement.contains(other) && *role == "merchant" && ["", "55000"].contains(code);
        assert_eq!(now.contains("2020"), added, "{role}: {statement}");
    }
    // In a registry, INSERT would decide which server may generate which IDs.
    run(&mut session, "CREATE DATABASE fleet OWNER merchant");
    let mut fleet = server.config().dbname("fleet").connect(NoTls).expect("a session");
    run(
        &mut fleet,
        "CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids; SELECT ids.snowflake_registry_create('node')",
    );
    let mut merchant = server.config().dbname("fleet").user("merchant").connect(NoTls).expect("a session");
    for table in ["snowflake_registry", "snowflake_registry_groups", "snowflake_registry_leases"] {
        fails(&mut merchant, "42501", &format!("INSERT INTO snowflake_internal.{table} SELECT"));
    }
}
