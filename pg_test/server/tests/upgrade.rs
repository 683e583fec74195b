//! From version to version: an upgrade ends where a fresh installation begins, and the library serves the
//! SQL of the versions before it.

use postgres::Client;
use snowflake_server_tests::sql::{column, next, one, run};
use snowflake_server_tests::{Ids, Server, install_script};
use std::fs;
use std::path::Path;

const OLD: &str = "0.1.0";
const NEW: &str = env!("CARGO_PKG_VERSION");

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A server, the scripts of its PostgreSQL including those of old versions, which cargo-pgrx does not install.
fn server() -> Server {
    let name = format!("snowflake_id--{OLD}.sql");
    install_script(&root().join("sql/install").join(name));
    Server::builder().start()
}

/// Everything that belongs to the extension, each with its definition, comment and rights.
fn members(session: &mut Client) -> Vec<String> {
    let members = "
        SELECT format(E'%s\\n  %s\\n  %s\\n', pg_describe_object(classid, objid, 0),
            coalesce(obj_description(objid, classid::regclass::text), 'no comment'),
            CASE classid::regclass
                WHEN 'pg_proc'::regclass THEN
                    (SELECT concat(pg_get_functiondef(oid), proacl) FROM pg_proc WHERE oid = objid)
                WHEN 'pg_class'::regclass THEN
                    (SELECT concat(relkind, relacl, CASE WHEN relkind = 'v' THEN pg_get_viewdef(oid) END,
                        (SELECT string_agg(format('%s %s %s', attname, format_type(atttypid, atttypmod), attnotnull),
                            ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = objid AND attnum > 0),
                        (SELECT string_agg(pg_get_triggerdef(oid), ', ' ORDER BY tgname)
                            FROM pg_trigger WHERE tgrelid = objid))
                    FROM pg_class WHERE oid = objid)
                WHEN 'pg_type'::regclass THEN
                    (SELECT concat(typtype, typacl, typcollation::regcollation, format_type(typbasetype, typtypmod),
                        (SELECT string_agg(pg_get_constraintdef(oid), ', ' ORDER BY conname)
                            FROM pg_constraint WHERE contypid = objid),
                        (SELECT string_agg(format('%s %s', attname, format_type(atttypid, atttypmod)), ', '
                            ORDER BY attnum) FROM pg_attribute WHERE attrelid = typrelid AND attnum > 0))
                    FROM pg_type WHERE oid = objid)
            END)
        FROM pg_depend
        WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')
        ORDER BY 1";
    let mut members: Vec<String> = column(session, members);
    members.push(one(session, "SELECT format('for dumps: %s %s', extconfig::regclass[], extcondition) FROM pg_extension WHERE extname = 'snowflake_id'"));
    members
}

#[test]
fn an_upgrade_ends_where_a_fresh_installation_begins() {
    let server = server();
    let mut session = server.connect();
    run(&mut session, &format!("CREATE EXTENSION snowflake_id VERSION '{OLD}'"));
    run(&mut session, "ALTER EXTENSION snowflake_id UPDATE");
    let upgraded = members(&mut session);
    run(&mut session, "DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id");
    let fresh = members(&mut session);
    assert!(fresh.len() > 20, "{fresh:#?}");
    for member in &fresh {
        assert!(upgraded.contains(member), "after an upgrade there is no\n{member}\nbut\n{upgraded:#?}");
    }
    assert_eq!(upgraded.len(), fresh.len(), "an upgrade leaves more behind");
    assert_eq!(
        one::<String>(&mut session, "SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'"),
        NEW
    );
}

/// Between `apt upgrade` and `ALTER EXTENSION UPDATE`, in every database that has the extension.
#[test]
fn the_library_serves_the_sql_of_the_version_before() {
    let server = server();
    let mut session = server.connect();
    run(&mut session, &format!("CREATE EXTENSION snowflake_id VERSION '{OLD}'"));
    let mut ids = Ids::new();
    ids.add("one by one", (0..1_000).map(|_| next(&mut session)).collect());
    ids.add("a batch", column(&mut session, "SELECT snowflake_nextval_batch(1000)"));
    ids.add("a range", column(&mut session, "SELECT first FROM snowflake_nextval_range(7)"));
    ids.assert_unique();
    // Every function that anybody may call, with an ID or nothing; what it says is the new version's matter.
    for call in column::<String>(
        &mut session,
        "SELECT format('SELECT %s(%s)', proname, CASE WHEN pronargs = 0 THEN '' ELSE '1' END)
         FROM pg_proc JOIN pg_depend ON objid = pg_proc.oid AND classid = 'pg_proc'::regclass AND deptype = 'e'
         WHERE refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')
             AND proname <> 'snowflake_adopt'",
    ) {
        run(&mut session, &call);
    }
    run(&mut session, "SELECT snowflake_adopt()");
    assert_eq!(one::<String>(&mut session, "SELECT state FROM snowflake_status"), "open");
    assert_eq!(one::<i64>(&mut session, "SELECT count(*) FROM snowflake_workers"), 8);

    run(&mut session, "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval())");
    run(&mut session, "INSERT INTO orders DEFAULT VALUES; ALTER EXTENSION snowflake_id UPDATE");
    run(&mut session, "INSERT INTO orders DEFAULT VALUES");
    assert_eq!(one::<i64>(&mut session, "SELECT count(*) FROM orders"), 2, "defaults outlive the upgrade");
}

#[test]
fn one_version_is_named_everywhere() {
    let control = fs::read_to_string(root().join("snowflake_id.control")).unwrap();
    assert!(control.contains("default_version = '@CARGO_VERSION@'"), "{control}");
    let changes = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert!(
        changes.lines().any(|line| line.starts_with("## ") && line.contains(NEW)),
        "CHANGELOG.md has no {NEW}"
    );
    let upgrade = format!("sql/snowflake_id--{OLD}--{NEW}.sql");
    assert!(root().join(&upgrade).exists(), "{upgrade}");
    // Each with the number of times that it names the version.
    for (file, times) in [
        ("META.json", 2),
        ("docs/installing.md", 2),
        ("packaging/cloudnative-pg/extension-image.yaml", 3),
        ("packaging/cloudnative-pg/image-catalog.yaml", 4),
    ] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        assert_eq!(text.matches(NEW).count(), times, "{file} names {NEW}");
    }
    let server = server();
    let mut session = server.connect();
    let versions =
        "SELECT version FROM pg_available_extension_versions WHERE name = 'snowflake_id' ORDER BY 1";
    assert_eq!(column::<String>(&mut session, versions), [OLD, NEW]);
}
