//! A dump carries the layouts of its IDs: where a server with another layout restores it, the restore fails, and the
//! database is closed under both layouts.

use postgres::{Client, NoTls};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::{Failure, fails, one, run};
use std::path::Path;

pub(super) const EPOCH: &str = "snowflake_id.epoch";
pub(super) const EARLIER: &str = "2020-01-01T00:00:00Z";
/// The default layout, and the same with `EARLIER`, as a database records them.
pub(super) const DEFAULT: &str = "41/10/12 1ms 2024-01-01 00:00:00+00";
pub(super) const OTHER: &str = "41/10/12 1ms 2020-01-01 00:00:00+00";

const RECORD: &str = "SELECT coalesce(snowflake_internal.snowflake_own_layouts(), '')";

fn session_in(server: &Server, database: &str) -> Client {
    server.config().dbname(database).connect(NoTls).expect("the database")
}

/// Three orders, whose table stores values that were computed from their IDs.
const ORDERS: &str = "
    CREATE TABLE orders (
        id bigint PRIMARY KEY DEFAULT snowflake_nextval(), customer text,
        at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED);
    CREATE INDEX orders_at ON orders (snowflake_timestamp(id));
    INSERT INTO orders (customer) VALUES ('Ada'), ('Grace'), ('Edsger')";

/// A server with the default layout, its database `shop`, which belongs to `merchant`, and the dumps of the database in
/// the server's folder.
fn source() -> Server {
    let source = Server::builder().setting("snowflake_id.worker_id", "2").start();
    run(&mut source.connect(), "CREATE ROLE merchant LOGIN");
    run(&mut source.connect(), "CREATE DATABASE shop OWNER merchant");
    run(&mut session_in(&source, "shop"), "CREATE EXTENSION snowflake_id");
    run(&mut source.config().dbname("shop").user("merchant").connect(NoTls).expect("a session"), ORDERS);
    for (file, options) in [
        ("plain.sql", &[][..]),
        ("inserts.sql", &["--inserts"]),
        ("custom", &["-Fc"]),
        ("folder", &["-Fd"]),
        ("owners", &["-Fc", "-U", "merchant"]),
        ("data.sql", &["-a", "-t", "orders", "-e", "snowflake_id"]),
        ("without", &["-Fc", "--exclude-table-data=*.snowflake_config*"]),
    ] {
        source.tool("pg_dump", &[&["-f", file, "shop"][..], options].concat());
    }
    source
}

/// A new database that belongs to `merchant`.
fn create(server: &Server, database: &str, start: Start) {
    run(&mut server.connect(), &format!("CREATE DATABASE {database} OWNER merchant"));
    let mut session = session_in(server, database);
    let statements = match start {
        Start::Empty => return,
        Start::Extension => "CREATE EXTENSION snowflake_id".to_owned(),
        Start::Table => format!("CREATE EXTENSION snowflake_id; {ORDERS}; TRUNCATE orders"),
        Start::Ids => {
            "CREATE EXTENSION snowflake_id; CREATE TABLE own AS SELECT snowflake_nextval()".to_owned()
        }
    };
    run(&mut session, &statements);
}

#[derive(Clone, Copy)]
enum Start {
    Empty,
    Extension,
    /// With the table of the dump, without its rows.
    Table,
    /// With IDs of the server's layout.
    Ids,
}
use Start::{Empty, Extension, Ids, Table};

/// A restore: the database before it, the programs one after the other, their exit codes, the rows after them, and the
/// database's record.
type Restore = (Start, &'static str, &'static [i32], i64, &'static str);

/// Of parallel jobs, one may close the database before another one copies the rows.
const ANY: i64 = -2;

const BOTH: &str = "41/10/12 1ms 2020-01-01 00:00:00+00, 41/10/12 1ms 2024-01-01 00:00:00+00";

/// Into a server with the layout of the dump.
const SAME_LAYOUT: [Restore; 15] = [
    (Empty, "psql -f plain.sql", &[0], 3, DEFAULT),
    (Empty, "psql -f inserts.sql", &[0], 3, DEFAULT),
    (Empty, "psql -v ON_ERROR_STOP=1 -f plain.sql", &[0], 3, DEFAULT),
    (Empty, "psql -1 -f plain.sql", &[0], 3, DEFAULT),
    (Empty, "pg_restore custom", &[0], 3, DEFAULT),
    (Empty, "pg_restore -e custom", &[0], 3, DEFAULT),
    (Empty, "pg_restore -1 custom", &[0], 3, DEFAULT),
    (Empty, "pg_restore -j 2 folder", &[0], 3, DEFAULT),
    (Empty, "pg_restore -j 4 -e folder", &[0], 3, DEFAULT),
    (
        Empty,
        "pg_restore --section=pre-data custom; pg_restore --section=data custom; pg_restore --section=post-data custom",
        &[0, 0, 0],
        3,
        DEFAULT,
    ),
    (Table, "psql -f data.sql", &[0], 3, DEFAULT),
    (Table, "pg_restore -a custom", &[0], 3, DEFAULT),
    (Ids, "pg_restore -e custom", &[0], 3, DEFAULT),
    (Extension, "pg_restore -1 -e --no-comments -U merchant owners", &[0], 3, DEFAULT),
    (Empty, "pg_restore -e without", &[0], 3, DEFAULT),
];

/// Into a server with another layout.
const OTHER_LAYOUT: [Restore; 17] = [
    (Empty, "psql -f plain.sql", &[0], 3, BOTH),
    (Empty, "psql -f inserts.sql", &[0], 3, BOTH),
    (Empty, "psql -v ON_ERROR_STOP=1 -f plain.sql", &[3], 3, BOTH),
    (Empty, "psql -v ON_ERROR_STOP=1 -1 -f plain.sql", &[3], -1, ""),
    (Empty, "pg_restore custom", &[1], 3, BOTH),
    (Empty, "pg_restore -e custom", &[1], 3, BOTH),
    (Empty, "pg_restore -1 custom", &[1], -1, ""),
    (Empty, "pg_restore -j 2 folder", &[1], ANY, BOTH),
    (Empty, "pg_restore -j 4 -e folder", &[1], ANY, BOTH),
    (
        Empty,
        "pg_restore --section=pre-data custom; pg_restore --section=data custom; pg_restore --section=post-data custom",
        &[0, 1, 1],
        3,
        BOTH,
    ),
    (Table, "psql -f data.sql", &[0], 3, BOTH),
    (Table, "pg_restore -a custom", &[1], 3, BOTH),
    (Ids, "pg_restore -e custom", &[1], 3, BOTH),
    (Ids, "pg_restore custom; pg_restore -a custom", &[1, 1], 3, BOTH),
    (Extension, "pg_restore -e --no-comments -U merchant owners", &[1], 3, BOTH),
    (Extension, "pg_restore -1 -e --no-comments -U merchant owners", &[1], -1, OTHER),
    // On request.
    (Empty, "pg_restore -e without", &[0], 3, OTHER),
];

/// Runs the restores, and returns what differs from the tables above.
fn faults(server: &Server, folder: &Path, restores: &[Restore], own: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (n, (start, commands, codes, rows, record)) in restores.iter().enumerate() {
        let database = format!("d{n}");
        create(server, &database, *start);
        let mut said = String::new();
        let mut found = Vec::new();
        for command in commands.split("; ") {
            let words: Vec<&str> = command.split(' ').collect();
            let mut program = server.client_program(words[0], &database);
            let (file, options) = words[1..].split_last().expect("a file");
            if words[0] == "pg_restore" {
                program.args(["-d", &database]);
            } else {
                program.args(["-X", "-q"]);
            }
            let output = program.args(options).arg(folder.join(file)).output().expect("the program runs");
            said += &String::from_utf8_lossy(&output.stderr);
            found.push(output.status.code().unwrap_or(-1));
        }
        let mut session = session_in(server, &database);
        let exists: bool = one(&mut session, "SELECT to_regprocedure('snowflake_nextval()') IS NOT NULL");
        let now = if exists { one::<String>(&mut session, RECORD) } else { String::new() };
        let has_rows: bool = one(&mut session, "SELECT to_regclass('orders') IS NOT NULL");
        let count = if has_rows { one::<i64>(&mut session, "SELECT count(*) FROM orders") } else { -1 };
        let is_open = exists && is_open(&mut session);
        let is_silent = said.is_empty();
        let names_reason = said.contains("the dump's snowflake layout differs from this database's")
            || *rows == ANY && said.contains("the snowflake layout of this database differs");
        if found != *codes
            || ![count, ANY].contains(rows)
            || now != *record
            || is_open != (record == &own)
            // Under the same layout nothing is printed, and under another one the reason is.
            || is_silent != (record == &own && *rows >= 0)
            || !(is_silent || names_reason)
        {
            faults.push(format!(
                "{commands}: {found:?}, {count} rows, record {now:?}, open: {is_open}\n{said}"
            ));
        }
    }
    faults
}

/// Whether the database generates and reads IDs; both or neither.
#[track_caller]
fn is_open(session: &mut Client) -> bool {
    let calls = ["SELECT snowflake_nextval()", "SELECT snowflake_timestamp(1)"];
    let failures = calls.map(|call| session.batch_execute(call).err().map(|e| Failure::from(&e)));
    let closed = failures.iter().flatten().filter(|failure| failure.code == "55000").count();
    assert!(closed == 2 || failures.iter().all(Option::is_none), "{failures:?}");
    closed == 0
}

#[test]
fn restores_under_the_same_layout_are_silent() {
    let source = source();
    let server = Server::builder().start();
    run(&mut server.connect(), "CREATE ROLE merchant LOGIN");
    let folder = source.data().with_file_name("");
    let faults = faults(&server, &folder, &SAME_LAYOUT, DEFAULT);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // The same times, and the dump of the restored database is the dump.
    let at = "SELECT min(at)::text FROM orders WHERE at = snowflake_timestamp(id)";
    assert_eq!(
        one::<String>(&mut session_in(&server, "d0"), at),
        one::<String>(&mut session_in(&source, "shop"), at)
    );
    assert_eq!(server.dump("d0", &[]), source.dump("shop", &[]));
}

#[test]
fn restores_under_another_layout_fail_and_close() {
    let source = source();
    let mut server = Server::builder().setting(EPOCH, EARLIER).start();
    run(&mut server.connect(), "CREATE ROLE merchant LOGIN");
    let folder = source.data().with_file_name("");
    let faults = faults(&server, &folder, &OTHER_LAYOUT, OTHER);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // No layout opens them, because rows were computed by one and IDs generated by the other.
    server.unset(EPOCH);
    server.restart();
    for (n, (.., record)) in OTHER_LAYOUT.iter().enumerate().filter(|(_, (.., record))| *record == BOTH) {
        let failure =
            fails(&mut session_in(&server, &format!("d{n}")), "55000", "SELECT snowflake_worker(1)");
        assert!(failure.detail.starts_with(&format!("The database has {record}; ")), "{failure}");
        assert!(failure.hint.starts_with("A dump of another layout was restored here."), "{failure}");
    }
    // A superuser decides, and a dump of the closed database closes, too.
    let closed = server.dump("d0", &[]);
    run(&mut session_in(&server, "d0"), "SELECT snowflake_change_layout(has_ids => false)");
    assert!(is_open(&mut session_in(&server, "d0")));
    run(&mut server.connect(), "CREATE DATABASE again");
    let said = server.try_restore("again", &closed).expect_err("two layouts");
    assert!(said.contains(&format!("The dump has {BOTH}; the database has {BOTH}.")), "{said}");
    assert!(!is_open(&mut session_in(&server, "again")));
}

/// The manual's example, for an owner who is no superuser.
#[test]
fn the_owners_restore_runs_as_written() {
    let page = include_str!("../../../../../docs/operations.md");
    let example = page.split("```sh\n").find(|block| block.contains("--no-comments")).expect("the example");
    let example = example.split("```").next().expect("its end");
    let source = source();
    let psql = format!("{:?}", source.client_program("psql", "shop").get_program());
    let programs = Path::new(psql.trim_matches('"')).parent().expect("a folder").display().to_string();
    source.tool("/bin/bash", &["-euc", &format!("unset PGDATABASE; PATH={programs}:$PATH\n{example}")]);
    let mut session = session_in(&source, "new_shop");
    assert_eq!(one::<i64>(&mut session, "SELECT count(*) FROM orders WHERE at = snowflake_timestamp(id)"), 3);
    assert!(is_open(&mut session));
}

/// Parallel jobs may restore the rows in any order, and at the same time.
#[test]
fn either_row_of_a_dump_closes_and_the_other_fails() {
    let server = Server::builder().start();
    for tables in
        [["snowflake_config", "snowflake_config_check"], ["snowflake_config_check", "snowflake_config"]]
    {
        run(&mut server.connect(), "CREATE EXTENSION snowflake_id");
        let [first, second] =
            tables.map(|table| format!("INSERT INTO snowflake_internal.{table} VALUES ('{OTHER}')"));
        let (mut session, mut other) = (server.connect(), server.connect());
        // Two sessions have the lock of an INSERT, and neither waits for that of the other.
        let lock = "BEGIN; LOCK TABLE snowflake_internal.snowflake_config IN ROW EXCLUSIVE MODE";
        run(&mut session, &format!("SET lock_timeout = '20s'; {lock}"));
        run(&mut other, lock);
        run(&mut session, &first);
        // The second waits for the record of the first.
        let waiting = std::thread::spawn({
            let second = second.clone();
            move || other.batch_execute(&second).map_err(|e| Failure::from(&e))
        });
        snowflake_server_tests::sql::wait_for_lock(&mut server.connect());
        run(&mut session, "COMMIT");
        let failure = waiting.join().expect("the session").expect_err("both added");
        let detail = format!("The dump has {OTHER}; the database has {BOTH}. So");
        assert!(failure.detail.starts_with(&detail), "{failure}");
        fails(&mut session, "55000", &second);
        assert_eq!(one::<String>(&mut session, RECORD), BOTH);
        run(&mut server.connect(), "DROP EXTENSION snowflake_id");
    }
}

/// Nothing else says by which layout the IDs were generated.
#[test]
fn a_restore_before_preloading_keeps_the_layout() {
    let source = Server::builder().start_with_extension();
    run(&mut source.connect(), "CREATE TABLE orders AS SELECT snowflake_nextval() AS id");
    let mut other = Server::builder().without("shared_preload_libraries").start();
    let said = other.try_restore("postgres", &source.dump("postgres", &[])).expect_err("a warning");
    assert!(said.contains("WARNING:  snowflake_id must be loaded via") && !said.contains("ERROR"), "{said}");
    fails(&mut other.connect(), "55000", "SELECT snowflake_change_layout()");
    other.set("shared_preload_libraries", "snowflake_id");
    for (epoch, is_the_dumps) in [(EARLIER, false), ("2024-01-01T00:00:00Z", true)] {
        other.set(EPOCH, epoch);
        other.restart();
        let mut session = other.connect();
        assert_eq!(one::<String>(&mut session, RECORD), DEFAULT);
        assert_eq!(is_open(&mut session), is_the_dumps);
    }
}

#[test]
fn an_extension_without_a_usable_layout_records_none() {
    let mut server = Server::builder().setting(EPOCH, "2024-01-01").start();
    let said = server.try_restore("postgres", "CREATE EXTENSION snowflake_id").expect_err("a warning");
    let warning = "WARNING:  invalid value for parameter \"snowflake_id.epoch\": \"2024-01-01\"\nDETAIL:  The time has \
                   no offset from UTC.\nHINT:  Use a date and time with an explicit offset, for example \
                   2024-01-01T00:00:00Z. Then restart the server. Then call snowflake_change_layout() in this \
                   database. A database for a registry alone needs nothing.\n";
    assert!(said.ends_with(warning), "{said}");
    assert_eq!(one::<String>(&mut server.connect(), RECORD), "");
    let dump = server.dump("postgres", &[]);
    assert!(!dump.contains("41/10/12") && !dump.contains("\n\\N\n"), "{dump}");
    server.unset(EPOCH);
    server.restart();
    let mut session = server.connect();
    let failure = fails(&mut session, "55000", "SELECT snowflake_nextval()");
    assert_eq!(failure.message, "this database has recorded no snowflake layout");
    assert!(failure.hint.contains("snowflake_change_layout()"), "{failure}");
    run(&mut session, "SELECT snowflake_change_layout(); SELECT snowflake_nextval()");
    assert_eq!(one::<String>(&mut session, RECORD), DEFAULT);
}

/// Layouts are texts: of those that `Layout` reads and writes, no other one is taken.
#[test]
fn a_text_that_is_no_layout_is_not_recorded() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    for text in ["", "twitter", "41/10/12 1ms 2024-01-01", "x''); SELECT 1", &"4".repeat(1_000)] {
        let insert = format!("INSERT INTO snowflake_internal.snowflake_config VALUES ('{DEFAULT}, {text}')");
        let failure = fails(&mut session, "22023", &insert);
        assert!(failure.message.starts_with("invalid snowflake layout: "), "{failure}");
    }
    run(&mut session, "INSERT INTO snowflake_internal.snowflake_config VALUES (NULL), ('')");
    for table in ["snowflake_config", "snowflake_config_check"] {
        run(&mut session, &format!("INSERT INTO snowflake_internal.{table} VALUES ('{DEFAULT}')"));
        assert_eq!(one::<i64>(&mut session, &format!("SELECT count(*) FROM snowflake_internal.{table}")), 0);
    }
    assert_eq!(one::<String>(&mut session, RECORD), DEFAULT);
    // Without its triggers a table takes no row either, so that the restore fails.
    for table in ["snowflake_internal.snowflake_config", "snowflake_internal.snowflake_config_check"] {
        run(&mut session, &format!("ALTER TABLE {table} DISABLE TRIGGER ALL"));
        fails(&mut session, "23514", &format!("INSERT INTO {table} VALUES ('{OTHER}')"));
    }
    run(&mut session, &format!("SELECT snowflake_internal.snowflake_set_layouts('{{{DEFAULT},{OTHER}}}')"));
    assert_eq!(one::<String>(&mut session, RECORD), BOTH);
}
