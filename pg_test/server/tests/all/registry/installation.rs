//! A registry in its database: what can be created, in which schema, who dumps it, and which objects of ordinary roles its
//! code does not use.

use super::nodes::{Node, bare, now, registry};
use snowflake_server_tests::sql::{assert_shows, column, fails, one, run};
use snowflake_server_tests::{Server, ms};
use std::thread;

#[test]
fn a_registry_needs_nothing_preloaded_and_is_created_once() {
    let server = bare();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE node LOGIN; CREATE EXTENSION snowflake_id");
    let none = fails(&mut session, "55000", "SELECT snowflake_registry_retire('a')");
    assert_eq!(none.message, "this database is not a snowflake registry");
    let named = "grant_length layout tick epoch backup_workers datacenter_id clock_tolerance replaces_lost";
    for argument in named.split(' ') {
        let create = format!("SELECT snowflake_registry_create('node', {argument} => NULL)");
        let null = "arguments of snowflake_registry_create must not be null";
        assert_eq!(fails(&mut session, "22004", &create).message, null, "{argument}");
    }
    for (arguments, code) in [
        ("NULL", "22004"),
        ("'node', '1.999 s'", "22023"),
        ("'node', '30 days 1 s'", "22023"),
        ("'node', clock_tolerance => '0.999 s'", "22023"),
        ("'node', clock_tolerance => '30 min 1 s'", "22023"),
        ("'node', layout => '41-10-12'", "22023"),
        ("'node', layout => 'twitter'", "22023"),
        ("'node', layout => '42/10/12'", "22023"),
        ("'node', layout => '41/2/12', backup_workers => 7", "22023"),
        ("'node', tick => '5 ms'", "22023"),
        ("'node', tick => '1.5 ms'", "22023"),
        ("'node', tick => '1 mon'", "22023"),
        ("'node', epoch => now() + interval '1 min'", "22023"),
        ("'node', epoch => '-infinity'", "22023"),
        ("'node', epoch => '0001-12-31 23:59:59Z BC'", "22023"),
        ("'node', datacenter_id => 1", "22023"),
        ("'node', datacenter_id => -1, layout => '41/5+5/12'", "22023"),
        ("'node', backup_workers => 16", "22023"),
        ("'node', backup_workers => -1", "22023"),
        ("'nobody'", "42704"),
    ] {
        let failure = fails(&mut session, code, &format!("SELECT snowflake_registry_create({arguments})"));
        let range = "an argument of snowflake_registry_create is out of range";
        let is_ours = code == "22023" && !failure.message.starts_with("invalid layout: ");
        assert!(!is_ours || failure.message == range, "{failure}");
    }
    // What is allowed, to its ends; in whole ticks, not in fewer than a grant and the tolerance have. The fence is now.
    let row = "SELECT concat_ws(' ', layout, time_bits, datacenter_bits, worker_bits, sequence_bits, tick_ms,
                   date(epoch), backup_workers, datacenter_id, homes, grant_ticks, tolerance_ticks, fence_before,
                   lost_after, snowflake_internal.snowflake_fleet_time(fence, tick_ms, epoch)
                       BETWEEN now() - interval '1 s' AND clock_timestamp())
               FROM snowflake_internal.snowflake_registry";
    run(&mut session, "SET TimeZone = 'UTC'");
    for (arguments, stored) in [
        (
            "'2 s', clock_tolerance => '1 s', backup_workers => 0, layout => ' 41/0+10/12'",
            "41/10/12 41 0 10 12 1 2024-01-01 0 0 1024 2000 1000 t",
        ),
        (
            "'1 h', tick => '10 ms', layout => '39/3+11/10', backup_workers => 15, datacenter_id => 7",
            "39/3+11/10 39 3 11 10 10 2024-01-01 15 7 128 360000 6000 t",
        ),
        (
            "'30 days', clock_tolerance => '15 days', epoch => '0001-01-01Z', layout => '47/10/6'",
            "47/10/6 47 0 10 6 1 0001-01-01 3 0 256 2592000000 1296000000 t",
        ),
        (
            "'2.4 s', tick => '1 s', layout => '31/20/12', clock_tolerance => '1.2 s'",
            "31/20/12 31 0 20 12 1000 2024-01-01 3 0 262144 3 2 t",
        ),
    ] {
        run(&mut session, &format!("BEGIN; SELECT snowflake_registry_create('node', {arguments})"));
        assert_eq!(one::<String>(&mut session, row), stored, "{arguments}");
        assert_shows(&mut session, "idle_in_transaction_session_timeout", "1min");
        run(&mut session, "ROLLBACK");
    }
    run(&mut session, "SELECT snowflake_registry_create('node')");
    let twice = fails(&mut session, "55000", "SELECT snowflake_registry_create('node')");
    assert_eq!(twice.message, "this database is a snowflake registry already");
    thread::sleep(ms(5));
    // A role for each server, as SECURITY.md advises.
    run(&mut session, "CREATE ROLE db1 LOGIN IN ROLE node");
    let lease = Node::new("a").granted(&mut server.connect_as("db1"));
    assert_eq!(lease.worker, 0);
    let ahead = lease.until - now(&mut session);
    assert!((3_590_000..=3_600_000).contains(&ahead), "one hour, not {ahead} ms");
}

#[test]
fn a_registry_serves_one_datacenter() {
    let server = registry(", layout => '41/5+5/12', datacenter_id => 31, backup_workers => 4");
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    let capacity = "SELECT concat_ws(' ', workers, free) FROM snowflake_fleet_capacity";
    assert_eq!(column::<String>(&mut operator, capacity), ["6 6"]);
    let mut here = Node { layout: "41/5+5/12".into(), datacenter: 31, backups: 4, ..Node::new("a") };
    let refusal = Node { datacenter: 30, ..here.clone() }.refused(&mut session, "settings");
    assert!(refusal.detail.contains("datacenter_id 31"), "{refusal:?}");
    assert_eq!(here.granted(&mut session).worker, 0);
    // A reservation takes one as well.
    run(&mut operator, "SELECT snowflake_registry_reserve(3, 'mine')");
    assert_eq!(column::<String>(&mut operator, capacity), ["6 4"]);
    // Retired, and not free before its `until`.
    run(&mut operator, "SELECT snowflake_registry_retire('a')");
    assert_eq!(column::<String>(&mut operator, capacity), ["6 4"]);
    // Worker 24 is lane 4 of home worker 0, and worker 30 would be lane 5.
    let id = |center: i64, worker: i64| (now(&mut server.connect()) << 22) + (center << 17) + (worker << 12);
    let origin = |id: i64| {
        format!("SELECT node_name || ' ' || home_worker_id || ' ' || lane FROM snowflake_origin({id})")
    };
    assert_eq!(column::<String>(&mut operator, &origin(id(31, 24))), ["a 0 4"]);
    for (center, worker) in [(30, 24), (31, 25), (31, 30)] {
        assert_eq!(column::<String>(&mut operator, &origin(id(center, worker))), [""; 0]);
    }
}

#[test]
fn a_registry_of_a_large_layout_leases_65536_groups() {
    let server = registry(", '1 h', '28/22/13', '1 s', '2024-01-01 00:00Z', 3");
    let (mut session, mut operator) = (server.connect_as("node"), server.connect());
    // Both clocks have to pass the second of the creation.
    thread::sleep(ms(1_100));
    let huge = Node { layout: "28/22/13".into(), tick_ms: 1_000, ..Node::new("b") };
    assert_eq!(huge.clone().granted(&mut session).worker, 0);
    assert_eq!(one::<i64>(&mut operator, "SELECT workers FROM snowflake_fleet_capacity"), 65_536);
    run(&mut operator, "SELECT snowflake_registry_reserve(65535, 'the last')");
    let above = fails(&mut operator, "22023", "SELECT snowflake_registry_reserve(65536, '')");
    let home_workers = "The registry leases home workers 0 to 65535.";
    assert_eq!((&above.message[..], &above.detail[..]), ("worker_id 65536 is out of range", home_workers));
}

/// The role may read nothing but what everybody may.
#[test]
fn a_database_without_a_registry_is_dumped_by_ordinary_roles() {
    let server = bare();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE guest LOGIN; CREATE ROLE node; CREATE EXTENSION snowflake_id");
    let dump =
        || server.client_program("pg_dump", "postgres").arg("--username=guest").output().expect("pg_dump");
    assert!(dump().status.success(), "{}", String::from_utf8_lossy(&dump().stderr));
    run(&mut session, "SELECT snowflake_registry_create('node')");
    assert!(!dump().status.success());
    fails(
        &mut server.connect_as("guest"),
        "42501",
        "SELECT FROM snowflake_internal.snowflake_registry_groups",
    );
}

// ---- whose schema it is ----

#[test]
fn a_registry_is_not_created_in_a_schema_of_an_ordinary_role() {
    let server = bare();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE node LOGIN; CREATE ROLE merchant LOGIN; CREATE EXTENSION snowflake_id");
    // Who owns the database owns the schema public, could rename it, and could create functions there.
    run(&mut session, "ALTER DATABASE postgres OWNER TO merchant");
    let early = fails(&mut session, "55000", "SELECT snowflake_registry_create('node')");
    let others = "other roles have CREATE on a schema of the extension";
    assert_eq!((&early.message[..], &early.detail[..]), (others, "They are: merchant."));
    run(
        &mut session,
        "DROP EXTENSION snowflake_id; CREATE SCHEMA fleet; CREATE EXTENSION snowflake_id SCHEMA fleet",
    );
    let own = "ALTER SCHEMA fleet OWNER TO merchant";
    run(&mut session, own);
    fails(&mut session, "55000", "SELECT fleet.snowflake_registry_create('node')");
    run(&mut session, "ALTER SCHEMA fleet OWNER TO postgres; SELECT fleet.snowflake_registry_create('node')");
    thread::sleep(ms(5));
    // Later, servers call nothing in that schema.
    run(&mut session, own);
    assert_eq!(Node::new("a").granted(&mut server.connect_as("node")).worker, 0);
}

/// Whoever may create functions in the schema has put one there for each way to call one of the extension's with other
/// types, before the extension was created.
#[test]
fn nothing_of_the_extension_calls_a_function_that_was_there_before() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let own = "SELECT p.proname::text, p.proargtypes::regtype[]::text[]
               FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid JOIN pg_extension e ON e.oid = d.refobjid
               WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass
                   AND e.extname = 'snowflake_id' AND p.pronargs BETWEEN 1 AND 6";
    let own: Vec<(String, Vec<String>)> =
        session.query(own, &[]).expect("rows").iter().map(|row| (row.get(0), row.get(1))).collect();
    run(&mut session, "CREATE ROLE merchant LOGIN");
    run(&mut session, "CREATE DATABASE planted");
    let connect = |role: &str| {
        server.config().user(role).dbname("planted").connect(postgres::NoTls).expect("a session")
    };
    run(&mut connect("postgres"), "GRANT CREATE ON SCHEMA public TO merchant");
    let mut merchant = connect("merchant");
    let mut planted = 0;
    for (name, types) in &own {
        for changed in 1..1 << types.len() {
            for other in ["text", "bigint", "numeric"] {
                let kind = |(n, own): (usize, &String)| match changed >> n & 1 {
                    1 => other.to_owned(),
                    _ => own.clone(),
                };
                let types = types.iter().enumerate().map(kind).collect::<Vec<String>>().join(", ");
                // CREATE EXTENSION would fail at one of these.
                if own.iter().any(|(own, own_types)| own == name && own_types.join(", ") == types) {
                    continue;
                }
                let body = "RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$planted$$; END'";
                // An error where it has a type of the extension's, which is not there yet, or is planted already.
                let create = format!("CREATE FUNCTION public.{name}({types}) {body}");
                planted += usize::from(merchant.batch_execute(&create).is_ok());
            }
        }
    }
    assert!(planted > 100, "{planted}");
    let mut session = connect("postgres");
    run(&mut session, "CREATE ROLE node; CREATE EXTENSION snowflake_id");
    let called: Vec<String> = column(
        &mut session,
        "SELECT DISTINCT p.oid::regprocedure::text FROM pg_depend d JOIN pg_proc p ON p.oid = d.refobjid
         WHERE d.refclassid = 'pg_proc'::regclass AND p.proowner = 'merchant'::regrole",
    );
    assert_eq!(called, [""; 0]);
    for (schema, role) in
        [("public, snowflake_internal", "merchant"), ("snowflake_internal", "merchant"), ("public", "PUBLIC")]
    {
        run(&mut session, &format!("GRANT CREATE ON SCHEMA {schema} TO {role}"));
        let open = fails(&mut session, "55000", "SELECT snowflake_registry_create('node')");
        assert_eq!(open.detail, format!("They are: {role}."));
        run(&mut session, &format!("REVOKE CREATE ON SCHEMA {schema} FROM {role}"));
    }
    run(&mut session, "SELECT snowflake_registry_create('node'), snowflake_registry_vouch()");
    fails(&mut session, "42704", "SELECT snowflake_registry_retire('a'::text)");
    // Bodies in PL/pgSQL are bound when they run.
    run(
        &mut session,
        "CREATE TABLE orders (id bigserial PRIMARY KEY); CREATE TABLE lines (id bigint REFERENCES orders)",
    );
    for statement in [
        "SELECT snowflake_registry_reserve(3, 'mine'::text), snowflake_registry_unreserve(3)",
        "SELECT * FROM snowflake_convert('orders'::regclass)",
        "SELECT snowflake_change_layout()",
        "SELECT snowflake_decode(1::bigint), snowflake_min(now()), snowflake_max(now())",
        "SELECT FROM orders WHERE snowflake_between(id, now(), now())",
        "SELECT FROM snowflake_status, snowflake_workers, snowflake_fleet, snowflake_fleet_capacity",
    ] {
        run(&mut session, statement);
    }
}

/// Its owner is no superuser, and has put types with constraints in the place of the registry's tables.
#[test]
fn a_renamed_schema_has_none_of_the_code_in_its_place_run() {
    let server = bare();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE ROLE node LOGIN; CREATE ROLE merchant LOGIN; CREATE SCHEMA fleet;
         CREATE EXTENSION snowflake_id SCHEMA fleet",
    );
    run(&mut session, "SELECT fleet.snowflake_registry_create('node')");
    run(&mut session, "GRANT CREATE ON DATABASE postgres TO merchant; ALTER SCHEMA fleet RENAME TO old");
    run(
        &mut server.connect_as("merchant"),
        "CREATE SCHEMA fleet; GRANT USAGE ON SCHEMA fleet TO PUBLIC;
         CREATE SEQUENCE fleet.calls;
         CREATE TYPE fleet.a_row AS (id uuid);
         -- A rollback does not take back what a sequence has given.
         CREATE FUNCTION fleet.evil(fleet.a_row) RETURNS boolean LANGUAGE sql
             AS 'SELECT nextval(''fleet.calls'') > 0';
         CREATE DOMAIN fleet.snowflake_registry AS fleet.a_row CHECK (fleet.evil(VALUE));
         CREATE DOMAIN fleet.snowflake_registry_groups AS fleet.a_row CHECK (fleet.evil(VALUE))",
    );
    let mut node = server.connect_as("node");
    run(&mut node, "SET search_path = old");
    thread::sleep(ms(5));
    assert_eq!(Node::new("a").granted(&mut node).worker, 0);
    for call in ["vouch()", "retire('a')", "reserve(1, 'mine')", "unreserve(1)"] {
        run(&mut session, &format!("SELECT old.snowflake_registry_{call}"));
    }
    assert!(!one::<bool>(&mut session, "SELECT is_called FROM fleet.calls"), "the merchant's function ran");
}
