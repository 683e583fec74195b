//! `ALTER EXTENSION snowflake_id UPDATE`, from what each release installed and left in `sql/install`, and from a version
//! that these tests make of today's, so that there is always one: it leaves what `CREATE EXTENSION` leaves, and the
//! library serves the older SQL before.

use postgres::Client;
use snowflake_server_tests::sql::{column, one, run};
use snowflake_server_tests::{Server, extension_folder, root};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Scripts beside those of the server, while it exists.
struct Scripts(Vec<PathBuf>);

impl Scripts {
    /// The way from `version` to today's: what it installed, and what brings that up to date.
    fn of(version: &str, installation: &str, update: &str) -> Self {
        let mut scripts = Self(Vec::new());
        scripts.put(&format!("snowflake_id--{version}.sql"), installation);
        scripts.put(&format!("snowflake_id--{version}--{}.sql", env!("CARGO_PKG_VERSION")), update);
        scripts
    }

    /// That of a release, whose way to today's is installed.
    fn released(file: &Path) -> Self {
        let mut scripts = Self(Vec::new());
        let name = file.file_name().and_then(|name| name.to_str()).expect("a plain name");
        scripts.put(name, &fs::read_to_string(file).expect("it can be read"));
        scripts
    }

    fn put(&mut self, name: &str, text: &str) {
        let file = extension_folder().join(name);
        fs::write(&file, text).expect("the user who installed the library can write here");
        self.0.push(file);
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        self.0.iter().for_each(|file| fs::remove_file(file).expect("it was written"));
    }
}

/// A database, and the extension in it in an earlier version; `None` for today's.
fn database(server: &Server, name: &str, version: Option<&str>) -> Client {
    run(&mut server.connect(), &format!("CREATE DATABASE {name}"));
    let mut session = server.config().dbname(name).connect(postgres::NoTls).expect("it is there");
    let version = version.map(|version| format!("VERSION '{version}'")).unwrap_or_default();
    run(&mut session, &format!("CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids {version}"));
    session
}

/// All that the database has of the extension: each member's definition, comment and rights, and the rows that a dump
/// takes along. As pg_upgrade has it dumped, because every other dump leaves members out.
fn members(server: &Server, database: &str) -> String {
    let dump = server.dump(database, &["--binary-upgrade", "--schema-only"]);
    // Numbers of objects and transactions; the tables among them are named below.
    let varies = |line: &&str| {
        ["binary_upgrade_set_next_", "binary_upgrade_create_empty_extension", "relfrozenxid", "WHERE oid = "]
            .iter()
            .any(|part| line.contains(part))
    };
    let members: String =
        dump.lines().filter(|line| !varies(line)).map(|line| line.to_owned() + "\n").collect();
    let mut session = server.config().dbname(database).connect(postgres::NoTls).expect("it is there");
    let rows = "SELECT t::regclass || ' ' || c || ' ' || e.extversion || ' ' || e.extrelocatable
                FROM pg_extension e, unnest(extconfig, extcondition) AS rows(t, c)
                WHERE extname = 'snowflake_id' ORDER BY 1";
    members + &column::<String>(&mut session, rows).join("\n")
}

/// What differs between an update, from a version whose scripts are there, and a new installation.
fn differences(server: &Server, version: &str) -> Vec<String> {
    let mut session = database(server, "updated", Some(version));
    run(
        &mut session,
        "CREATE TABLE t (id bigint DEFAULT ids.snowflake_nextval()); INSERT INTO t DEFAULT VALUES",
    );
    is_served(server, &mut session);
    run(&mut session, "ALTER EXTENSION snowflake_id UPDATE; INSERT INTO t DEFAULT VALUES; DROP TABLE t");
    drop(session);
    drop(database(server, "new", None));
    let (updated, new) = (members(server, "updated"), members(server, "new"));
    run(&mut server.connect(), "DROP DATABASE updated");
    run(&mut server.connect(), "DROP DATABASE new");
    let lacks = |one: &str, other: &str, whose: &str| -> Vec<String> {
        let others: HashSet<&str> = other.lines().collect();
        let lines = one.lines().filter(|line| !others.contains(line));
        lines.map(|line| format!("{whose}: {line}")).collect()
    };
    let mut differences = [lacks(&updated, &new, "updated"), lacks(&new, &updated, "new")].concat();
    if differences.is_empty() && updated != new {
        differences.push("the order".to_owned());
    }
    differences
}

/// Calls each function, and reads each view, of an older version; errors of the arguments are fine.
fn is_served(server: &Server, session: &mut Client) {
    // As the functions have it that others call; the longest queries would be compiled for seconds.
    run(session, "SET jit = off");
    let calls = "
        SELECT format('SELECT * FROM %s(%s)', p.oid::regproc, (
            SELECT string_agg(CASE WHEN p.provariadic <> 0 AND n = p.pronargs THEN 'VARIADIC ' ELSE '' END || CASE t::regtype::text
                WHEN 'bigint' THEN '123456789012345' WHEN 'integer' THEN '1' WHEN 'boolean' THEN 'false'
                WHEN 'text' THEN '''1''' WHEN 'interval' THEN '''1 s''' WHEN 'timestamp with time zone' THEN 'now()'
                WHEN 'regclass' THEN '''pg_class''' WHEN 'name' THEN '''id''' ELSE 'NULL' END
                || '::' || t::regtype, ', ' ORDER BY n)
            FROM unnest(p.proargtypes) WITH ORDINALITY AS of (t, n)))
        FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
        JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
        WHERE extname = 'snowflake_id' AND d.deptype = 'e' AND p.prokind = 'f'
            AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype, 'internal'::regtype)
        UNION ALL SELECT format('SELECT * FROM %s', c.oid::regclass)
        FROM pg_depend d JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
        JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
        WHERE extname = 'snowflake_id' AND d.deptype = 'e' AND c.relkind IN ('v', 'r')";
    let calls: Vec<String> = column(session, calls);
    assert!(calls.len() > 20, "{calls:?}");
    for call in calls {
        let mut transaction = session.transaction().expect("the server is there");
        let code = transaction.simple_query(&call).err().and_then(|e| e.code().cloned());
        let is_lacking =
            code.is_some_and(|code| ["XX", "58", "42883"].iter().any(|class| code.code().starts_with(class)));
        assert!(!is_lacking, "{call}: {}", server.log());
        transaction.rollback().expect("the server is there");
    }
}

/// An earlier version of today's, without a function and a right; and the statements of an update from there.
fn earlier(server: &Server) -> (String, [String; 3]) {
    let mut session = database(server, "earlier", None);
    let function = "ids.snowflake_lastval()";
    let definition = one(&mut session, &format!("SELECT pg_get_functiondef('{function}'::regprocedure)"));
    let comment: String = one(&mut session, &format!("SELECT obj_description('{function}'::regprocedure)"));
    drop(session);
    run(&mut server.connect(), "DROP DATABASE earlier");
    let today = format!("snowflake_id--{}.sql", env!("CARGO_PKG_VERSION"));
    let today = fs::read_to_string(extension_folder().join(today)).expect("the extension is installed");
    let right = "SELECT ON @extschema@.snowflake_status";
    let removed = format!("DROP FUNCTION @extschema@.snowflake_lastval(); REVOKE {right} FROM pg_monitor;");
    let update = [
        definition,
        format!("COMMENT ON FUNCTION {function} IS $${comment}$$"),
        format!("GRANT {right} TO pg_monitor"),
    ];
    (format!("{today}\n{removed}\n"), update)
}

/// What earlier versions installed, by their numbers, as `sql/install` has it.
fn released() -> Vec<(String, PathBuf)> {
    let folder = root().join("sql/install");
    let files = fs::read_dir(folder).into_iter().flatten().map(|file| file.unwrap().path());
    let version = |file: &Path| {
        let name = file.file_name()?.to_str()?;
        Some(name.strip_prefix("snowflake_id--")?.strip_suffix(".sql")?.to_owned())
    };
    files.filter_map(|file| Some((version(&file)?, file))).collect()
}

#[test]
fn an_update_leaves_what_a_new_installation_leaves() {
    let server = Server::builder().start_with_extension();
    for (version, file) in released() {
        let _script = Scripts::released(&file);
        assert_eq!(differences(&server, &version), [""; 0], "from {version}");
    }
    let (installation, update) = earlier(&server);
    let _scripts = Scripts::of("0.9.9", &installation, &update.join(";\n"));
    assert_eq!(differences(&server, "0.9.9"), [""; 0]);
}
