//! The programs of `examples/` do what they say on a real server, as a role that has rights only on its own tables.
//!
//! Each program checks itself, and exits with an error if something is wrong. What it cannot see is checked here: the
//! IDs that it printed are, digit for digit, those in its table. The queries for other engines read what the extension
//! reads.

use super::pages::{read, root};
use postgres::{Client, NoTls};
use snowflake_server_tests::registry::loopback_address;
use snowflake_server_tests::sql::{column, next, one, run};
use snowflake_server_tests::{Server, companions, days, fed, printed_by, secs, skip, wait_until};
use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

/// The output of a program, which must not fail.
#[track_caller]
fn checked(program: &str, output: &Output) -> String {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {}\n{printed}{complaints}", output.status);
    printed
}

const ROLE: &str = "CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app";

fn server() -> Server {
    let server = Server::builder().start_with_extension();
    run(&mut server.connect(), ROLE);
    server
}

/// A server without the library, but with the generator in PL/pgSQL.
fn portable_server() -> Server {
    let source = Server::builder().start_with_extension();
    let generator: String = one(&mut source.connect(), "SELECT snowflake_generator_sql(1)");
    let server = Server::builder().without_library().start();
    run(&mut server.connect(), &format!("BEGIN; {generator} COMMIT; {ROLE}"));
    server
}

/// Has a command connect as the role whose tables are its own.
fn as_app(command: &mut Command, server: &Server) {
    command.env("PGHOST", server.folder()).env("PGPORT", "5432");
    command.env("PGUSER", "app").env("PGDATABASE", "postgres");
}

/// Runs an example to its end, and returns its output.
#[track_caller]
fn play(server: &Server, mut example: Command) -> String {
    let name = format!("{example:?}");
    as_app(&mut example, server);
    let printed = checked(&name, &example.output().expect("it can be started"));
    assert_eq!(printed.lines().last(), Some("all is well"), "{name} did not come to its end:\n{printed}");
    printed
}

/// Asserts that an example has inserted this many rows, and has printed IDs from them.
#[track_caller]
fn assert_made(session: &mut Client, table: &str, rows: i64, printed: &str) {
    let shape = format!(
        "SELECT ARRAY[count(*), count(*) FILTER (WHERE snowflake_worker(id) = 1), count(DISTINCT id)] FROM {table}"
    );
    assert_eq!(one::<Vec<i64>>(session, &shape), [rows; 3], "{table}");
    let stored: BTreeSet<i64> = column(session, &format!("SELECT id FROM {table}")).into_iter().collect();
    let numbers = printed.split(|c: char| !c.is_ascii_digit()).filter(|number| number.len() >= 15);
    let ids: Vec<i64> = numbers.map(|number| number.parse().expect("a bigint")).collect();
    assert!(ids.len() >= 3, "few IDs in {printed}");
    for id in ids {
        assert!(stored.contains(&id), "{table} has no {id}, which was printed:\n{printed}");
    }
}

/// Compiles what it imports once, but not into a folder beside the examples.
fn python_of(part: &str) -> Command {
    let folder = companions(part);
    let mut command = Command::new(folder.join("bin/python"));
    command.env("PYTHONPYCACHEPREFIX", folder.join("compiled")).env_remove("PYTHONDONTWRITEBYTECODE");
    command
}

fn python(program: &str) -> Command {
    let mut command = python_of("python");
    command.arg(root().join("examples/python").join(program));
    command
}

fn node(program: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(companions("node").join(program));
    command
}

/// Whether node is new enough for some libraries.
fn has_node_20() -> bool {
    let asked = Command::new("node").args(["-p", "parseInt(process.versions.node) >= 20"]).output();
    let has = asked.is_ok_and(|output| output.stdout.starts_with(b"true"));
    if !has {
        skip("node20");
    }
    has
}

/// A test per example that needs no more than a server.
macro_rules! examples {
    ($($name:ident: $command:expr, $table:literal, $rows:literal, $servers:expr;)*) => {
        $(#[test]
        fn $name() {
            for server in Vec::from_iter($servers) {
                let printed = play(&server, $command);
                assert_made(&mut server.connect(), $table, $rows, &printed);
            }
        })*
    };
}

examples! {
    the_example_for_psycopg_works: python("psycopg_orders.py"), "psycopg_orders", 1503, [server()];
    the_example_for_sqlalchemy_works:
        python("sqlalchemy_orders.py"), "sqlalchemy_orders", 2102, [server(), portable_server()];
    the_example_for_django_works: python("django_orders.py"), "django_orders", 1006, [server(), portable_server()];
    the_example_for_drizzle_works: node("drizzle_orders.js"), "drizzle_orders", 1001, [server()];
    the_example_for_sequelize_works: node("sequelize_orders.js"), "sequelize_orders", 1001, [server()];
    the_example_for_typeorm_works:
        node("typeorm_orders.js"), "typeorm_orders", 1001, has_node_20().then(server);
    the_example_for_active_record_works: ruby("activerecord_orders.rb"), "activerecord_orders", 1001, [server()];
    the_example_for_doctrine_works: php("doctrine_orders.php"), "doctrine_orders", 3, [server()];
    the_example_for_eloquent_works: php("eloquent_orders.php"), "eloquent_orders", 4, [server()];
}

fn ruby(program: &str) -> Command {
    companions("ruby");
    let mut command = Command::new("ruby");
    command.arg(root().join("examples/ruby").join(program));
    command
}

// ---- conversions ----

/// A program of `pg_test/server/clients`, as the owner of its tables.
#[track_caller]
fn client_of_a_conversion(server: &Server, program: &str, argument: &str) -> Command {
    client(python_of("python"), server, program, argument)
}

/// A program of `pg_test/server/clients`, run by that interpreter.
fn client(mut command: Command, server: &Server, program: &str, argument: &str) -> Command {
    command.arg(root().join("pg_test/server/clients").join(program)).arg(argument);
    as_app(&mut command, server);
    command
}

/// Django's models of its own tables have keys of 32 bits.
#[test]
fn django_migrates_after_a_conversion_that_excludes_its_own_tables() {
    for (argument, expected) in [
        ("exclude", "new user: True\nlog in: 1\nmigrate: None\norder: (1, 2)\n"),
        ("all", "new user: False\nlog in: DatabaseError \nmigrate: DataError 22003\norder: (1, 2)\n"),
    ] {
        let server = server();
        let mut program = client_of_a_conversion(&server, "django_convert.py", argument);
        let printed = checked(argument, &program.output().expect("it can be started"));
        assert_eq!(printed, expected, "{argument}");
    }
}

#[test]
fn django_keeps_its_own_keys_if_a_migration_converts_them() {
    let server = server();
    let mut program = client_of_a_conversion(&server, "django_auto.py", "");
    let printed = checked("django_auto.py", &program.output().expect("it can be started"));
    assert_eq!(printed, "bulk_create: 1000 1000\nsnowflakes: True\na join: 1000\n");
}

#[test]
fn typeorm_drops_the_default_if_its_model_lacks_it() {
    if !has_node_20() {
        return;
    }
    let server = server();
    run(
        &mut server.connect(),
        "CREATE TABLE orders (id serial PRIMARY KEY, customer text NOT NULL);
         DO $$ BEGIN EXECUTE (SELECT script FROM snowflake_convert('orders')); END $$; ALTER TABLE orders OWNER TO app",
    );
    for (argument, expected) in
        [("none", "ALTER TABLE \"orders\" ALTER COLUMN \"id\" DROP DEFAULT\n"), ("default", "")]
    {
        let mut node = Command::new("node");
        node.env("NODE_PATH", companions("node").join("node_modules"));
        let mut program = client(node, &server, "typeorm_convert.js", argument);
        let printed = checked(argument, &program.output().expect("it can be started"));
        assert_eq!(printed, expected, "{argument}");
    }
}

/// In the transaction of a migration, with a way back that the migration keeps.
#[test]
fn alembic_upgrades_and_downgrades_by_the_scripts() {
    let server = server();
    let mut program = client_of_a_conversion(&server, "alembic_convert.py", "songs");
    let printed = checked("alembic", &program.output().expect("it can be started"));
    assert_eq!(
        printed,
        "upgraded: bigint snowflake_nextval()\nfailed: bigint snowflake_nextval()\ndowngraded: integer nextval('songs_id_seq'::regclass)\n"
    );
}

/// While a flush inserts its rows, the clock moves back further than IDs may run ahead: another worker goes on, below.
#[test]
fn sqlalchemy_pairs_objects_with_their_ids_if_its_model_has_the_default() {
    // Backup workers have no IDs of the last days, so each is usable at once.
    let server = Server::builder().born(days(400)).start_with_extension();
    let mut session = server.connect();
    next(&mut session);
    server.step_forward(days(400));
    run(&mut session, ROLE);
    run(
        &mut session,
        "CREATE TABLE songs (id serial PRIMARY KEY, name text); INSERT INTO songs (name) VALUES ('old');
         DO $$ BEGIN EXECUTE (SELECT script FROM snowflake_convert('songs')); END $$; GRANT ALL ON songs TO app;
         CREATE FUNCTION wait_for_the_clock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_advisory_xact_lock(1);
             WHILE clock_timestamp() >= now() LOOP END LOOP;
             RETURN NEW;
         END $$;
         CREATE TRIGGER wait BEFORE INSERT ON songs FOR EACH ROW WHEN (NEW.name = 'song 100')
             EXECUTE FUNCTION wait_for_the_clock()",
    );
    for (argument, mistaken) in [("unchanged", true), ("server_default", false)] {
        let program = client_of_a_conversion(&server, "sqlalchemy_convert.py", argument)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        wait_until("the flush that waits", secs(120), || {
            one::<bool>(&mut session, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory')")
                .then_some(())
        });
        server.clock().back(secs(60));
        let printed = checked(argument, &program.wait_with_output().expect("it ends"));
        assert_eq!(printed == "mistaken: 0 of 200\n", !mistaken, "{argument}: {printed}");
    }
}

#[test]
fn the_example_for_node_postgres_works() {
    let server = server();
    let printed = play(&server, node("pg_orders.js"));
    assert_made(&mut server.connect(), "pg_orders", 1001, &printed);
    // In this setting a Number rounds nearly every ID, also one by one.
    let server = Server::builder().setting("snowflake_id.sequence_start", "spread").start_with_extension();
    run(&mut server.connect(), ROLE);
    let mut example = node("pg_orders.js");
    example.env("SEQUENCE_START", "spread");
    play(&server, example);
}

/// In its default settings it would drop the extension's views, so it names none of them only because of the filter in
/// the configuration, and afterwards it finds nothing to change.
#[test]
fn drizzle_kit_with_the_documented_filter_drops_nothing_of_the_extension() {
    let server = server();
    let push = || {
        let mut command = Command::new("npx");
        command.current_dir(companions("node")).args(["drizzle-kit", "push", "--verbose"]);
        command.args(["--config", "drizzle.config.js"]).stdin(Stdio::null());
        as_app(&mut command, &server);
        checked("drizzle-kit", &command.output().expect("it can be started"))
    };
    let first = push();
    assert!(
        first.contains("CREATE TABLE \"drizzle_kit_orders\"") && first.contains("Changes applied"),
        "{first}"
    );
    let again = push();
    assert!(again.contains("No changes detected"), "{again}");
    for printed in [first, again] {
        assert!(!printed.contains("DROP"), "{printed}");
    }
    run(&mut server.connect(), "INSERT INTO drizzle_kit_orders (customer) VALUES ('Ada')");
}

#[test]
fn rails_loads_fixtures_with_the_recipe_only() {
    companions("ruby");
    let server = server();
    let run = |argument| {
        let mut program = client(Command::new("ruby"), &server, "rails_fixtures.rb", argument);
        program.output().expect("it can be started")
    };
    let refused = run("alone");
    assert!(!refused.status.success());
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(complaint.contains(r#"relation "public" does not exist"#), "{complaint}");
    // Serial keys go on after the highest of a fixture.
    assert_eq!(checked("recipe", &run("recipe")), "Ada Grace\n42\n");
}

/// Prints a schema.rb of PGDATABASE, or loads the one that it reads.
const SCHEMA_RB: &str = r#"
    require "active_record"
    ActiveRecord::Base.establish_connection(adapter: "postgresql")
    ActiveRecord::Schema.verbose = false
    if ARGV[0] == "dump"
        ActiveRecord::SchemaDumper.dump(ActiveRecord::Base.connection, $stdout)
    else
        eval($stdin.read)
    end
"#;

fn schema_rb(server: &Server, database: &str, action: &str, schema: &str) -> Output {
    let mut ruby = Command::new("ruby");
    ruby.args(["-e", SCHEMA_RB, action])
        .env("PGHOST", server.folder())
        .env("PGPORT", "5432")
        .env("PGUSER", "postgres")
        .env("PGDATABASE", database);
    fed(&mut ruby, schema)
}

#[test]
fn schema_rb_needs_the_extension_in_its_schema_before_it_is_loaded() {
    companions("ruby");
    let server = Server::builder().start();
    let mut session = server.connect();
    run(&mut session, "CREATE DATABASE before");
    let in_ids = "CREATE SCHEMA ids; CREATE EXTENSION snowflake_id SCHEMA ids";
    run(&mut session, in_ids);
    run(&mut session, "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT ids.snowflake_nextval())");
    let schema = checked("the dump", &schema_rb(&server, "postgres", "dump", ""));
    assert!(schema.contains(r#"default: -> { "ids.snowflake_nextval()" }"#), "{schema}");

    let refused = schema_rb(&server, "before", "load", &schema);
    assert!(!refused.status.success());
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(complaint.contains(r#"schema "ids" does not exist"#), "{complaint}");

    let connect = |database: &str| server.config().dbname(database).connect(NoTls).expect("a session");
    run(&mut connect("template1"), in_ids);
    run(&mut session, "CREATE DATABASE after");
    checked("the load", &schema_rb(&server, "after", "load", &schema));
    run(&mut connect("after"), "INSERT INTO orders DEFAULT VALUES");
}

/// A server, and the last argument of a program in Java: JDBC knows no Unix sockets.
fn server_for_java() -> (Server, String) {
    let address = loopback_address();
    let server = Server::builder().setting("listen_addresses", &address).start_with_extension();
    run(&mut server.connect(), ROLE);
    (server, format!("jdbc:postgresql://{address}/postgres?user=app"))
}

#[test]
fn the_example_for_jdbc_works() {
    companions("java");
    let (server, url) = server_for_java();
    let mut java = Command::new("java");
    java.args(["-cp", "/usr/share/java/postgresql.jar"]);
    java.arg(root().join("examples/java/JdbcOrders.java")).arg(url);
    let printed = play(&server, java);
    assert_made(&mut server.connect(), "jdbc_orders", 1001, &printed);
}

#[test]
fn the_example_for_eclipselink_works() {
    let built = companions("eclipselink").display().to_string();
    let jars = ["eclipselink", "eclipselink-jpa-2.1-spec", "org.eclipse.persistence.jpa.jpql", "postgresql"];
    let jars = jars.map(|jar| format!(":/usr/share/java/{jar}.jar")).concat();
    let (server, url) = server_for_java();
    let mut java = Command::new("java");
    java.args(["-cp", &(built + &jars), "EclipseLinkOrders", &url]);
    let printed = play(&server, java);
    assert_made(&mut server.connect(), "eclipselink_orders", 3, &printed);
}

fn php(program: &str) -> Command {
    companions("php");
    let mut command = Command::new("php");
    command.arg(root().join("examples/php").join(program));
    command
}

/// The server counts every ID that it generated, so the count shows that the pool asked for no more batches than it
/// should.
#[test]
fn the_example_of_a_pool_works() {
    let server = server();
    let mut session = server.connect();
    run(&mut session, "SELECT snowflake_reset_stats()");
    play(&server, python("pooled.py"));
    let issued: i64 = one(&mut session, "SELECT issued FROM snowflake_status");
    // 120 IDs took 3 batches of 50. The first pool had 30 of them left, and its threads needed 2,000 more, so 40 batches;
    // the second pool's threads did too. Then came a batch of 1,000, and two more.
    assert_eq!(issued, 3 * 50 + 40 * 50 + 40 * 50 + 1000 + 2 * 50);
}

/// Which registry a machine asks depends on the machine, so a lock file must not name one.
#[test]
fn the_lock_file_of_npm_names_no_registry() {
    let lock = read("examples/node/package-lock.json");
    assert!(lock.contains("\"integrity\""));
    assert!(!lock.contains("\"resolved\""), "run npm install with --omit-lockfile-registry-resolved");
}

/// The IDs of a server, of other times too, and the fields that its own functions read, as the engines print them.
#[test]
fn other_engines_read_what_the_extension_reads() {
    let server = server();
    let mut session = server.connect();
    let made = "SELECT snowflake_encode('2025-12-31 23:00Z'::timestamptz + n * interval '47 min 1.007 s',
                                        (n % 1024)::integer, (n * 7 % 4096)::integer)
                FROM generate_series(0, 12000) AS n";
    let ids: Vec<i64> = column(&mut session, made);
    let fields = "SELECT concat_ws(',', id, to_char(snowflake_timestamp(id) AT TIME ZONE 'UTC',
                                                    'YYYY-MM-DD HH24:MI:SS.MS'),
                                   snowflake_worker(id), snowflake_sequence(id))
                  FROM unnest($1::bigint[]) AS id WHERE snowflake_between(id, '2026-01-01Z', '2027-01-01Z')
                  ORDER BY id";
    let rows = session.query(fields, &[&ids]).expect("the fields");
    let expected: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(expected.len() > 10_000 && expected.len() < ids.len());
    let input: String = ids.iter().map(|id| format!("{id}\n")).collect();
    for engine in ["clickhouse", "duckdb", "sqlite"] {
        let mut command = python_of("readers");
        command.arg(root().join("examples/readers/run.py")).arg(engine);
        let printed = printed_by(&mut command, &input);
        // DuckDB's Python module prints microseconds, and none of them where there is no fraction.
        let read: Vec<String> = printed.lines().map(in_milliseconds).collect();
        assert_eq!(read, expected, "{engine}");
    }
}

fn in_milliseconds(row: &str) -> String {
    let fields: Vec<&str> = row.split(',').collect();
    let [id, time, rest @ ..] = &fields[..] else { panic!("{row}") };
    let time = if time.contains('.') { (*time).to_owned() } else { format!("{time}.000") };
    format!("{id},{},{}", &time[..23], rest.join(","))
}
