//! PostgreSQL's own tools on servers that generate IDs: they run without complaints, and what they leave behind
//! continues as `docs/reliability.md` says. `pg_upgrade` is in `pg_upgrade.rs`,
//! `pg_rewind` in `durability/crashes.rs`, `pg_dump` in `database/dumps.rs`.

use postgres::{Client, NoTls};
use snowflake_server_tests::ids::{Ids, worker};
use snowflake_server_tests::sql::{assert_shows, column, fails, next, one, run, status, take, wait_for_id};
use snowflake_server_tests::{Builder, Server, Stop, days, has_contrib, pg_version, secs, wait_until};
use std::path::Path;
use std::{fs, thread};

/// Everything in a database that can contain the extension: keys, expression and partial indexes, a generated column, a
/// check, partitions, a converted column, views. All in a schema that is in no tool's search path.
const SHOP: &str = "
    CREATE SCHEMA ids;
    CREATE EXTENSION snowflake_id SCHEMA ids;
    SET search_path = public, ids;
    CREATE TABLE orders (
        id bigint PRIMARY KEY DEFAULT snowflake_nextval() CHECK (snowflake_worker(id) < 1024),
        customer text NOT NULL,
        made_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id)) STORED);
    CREATE INDEX orders_at ON orders (snowflake_timestamp(id));
    CREATE INDEX orders_text ON orders (snowflake_to_base62(id));
    CREATE INDEX orders_parts ON orders (((snowflake_decode(id)).sequence));
    CREATE INDEX orders_of_worker_1 ON orders (customer) WHERE snowflake_worker(id) = 1;
    CREATE INDEX orders_since_2025 ON orders (customer) WHERE snowflake_between(id, '2025-01-01Z', 'infinity');
    CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), what text) PARTITION BY RANGE (id);
    CREATE TABLE events_before PARTITION OF events
        FOR VALUES FROM (MINVALUE) TO (snowflake_min('2026-01-01Z'));
    CREATE TABLE events_since PARTITION OF events
        FOR VALUES FROM (snowflake_min('2026-01-01Z')) TO (MAXVALUE);
    CREATE INDEX ON events (snowflake_timestamp(id));
    CREATE TABLE legacy (id bigserial PRIMARY KEY, what text);
    INSERT INTO legacy (what) SELECT 'old ' || i FROM generate_series(1, 100) AS i;
    DO $$ BEGIN EXECUTE (SELECT script FROM snowflake_convert('legacy')); END $$;
    CREATE VIEW readable AS SELECT (snowflake_decode(id)).*, customer FROM orders;
    CREATE MATERIALIZED VIEW days AS
        SELECT date_trunc('day', snowflake_timestamp(id)) AS day, count(*) FROM orders GROUP BY 1";

/// Inserts rows into each of its tables.
const SELL: &str = "
    INSERT INTO orders (customer) SELECT 'customer ' || i % 7 FROM generate_series(1, 1000) AS i;
    INSERT INTO events (what) SELECT 'event ' || i FROM generate_series(1, 1000) AS i;
    INSERT INTO legacy (what) SELECT 'new ' || i FROM generate_series(1, 1000) AS i";

/// A server with the shop in it.
pub(super) fn shop(builder: Builder) -> Server {
    let server = builder.start();
    run(&mut server.connect(), SHOP);
    sell(&server);
    server
}

/// Sells as soon as the server generates IDs.
fn sell(server: &Server) {
    let mut session = in_shop(server);
    wait_for_id(&mut session);
    run(&mut session, SELL);
}

pub(super) fn in_shop(server: &Server) -> Client {
    let mut session = server.connect();
    run(&mut session, "SET search_path = public, ids");
    session
}

/// The IDs of all rows, in the order of a table scan for each table.
pub(super) fn sold(server: &Server) -> Vec<i64> {
    let ids = "SELECT id FROM orders UNION ALL SELECT id FROM events
               UNION ALL SELECT id FROM legacy WHERE what LIKE 'new%'";
    column(&mut in_shop(server), ids)
}

/// Asserts that the server goes on: it sells above everything that was sold, and every index finds its rows.
pub(super) fn goes_on(server: &Server) {
    let mut before = sold(server);
    assert!(before.len() >= 3_000, "{}", before.len());
    before.sort_unstable();
    sell(server);
    let after = sold(server);
    assert_eq!(after.len(), before.len() + 3_000);
    let mut ids = Ids::new();
    ids.add("the shop", after.clone());
    ids.assert_unique();
    let highest = before[before.len() - 1];
    let above = after.iter().filter(|id| **id > highest).count();
    assert_eq!(above, 3_000, "new IDs lie below old ones");
    indexes_are_whole(server);
}

/// Asserts that each index of the shop finds what the table has.
#[track_caller]
fn indexes_are_whole(server: &Server) {
    if !has_contrib() {
        return;
    }
    // Those of the catalogs are ten times as many.
    let theirs = ["--exclude-schema", "pg_catalog", "--exclude-schema", "pg_toast"];
    let check = ["--all", "--install-missing", "--heapallindexed", "--parent-check"];
    let found = server.tool("pg_amcheck", &[&check[..], &theirs].concat());
    let faults: Vec<&str> =
        found.lines().filter(|line| !line.ends_with("already exists, skipping")).collect();
    assert!(faults.is_empty(), "{faults:?}");
}

fn file(path: &Path) -> &str {
    path.to_str().expect("the tests' folders have plain names")
}

// ---- checksums, indexes, maintenance ----

pub(super) fn has_checksums(server: &Server) -> bool {
    let controls = server.tool("pg_controldata", &["-D", "data"]);
    let version = controls.lines().find(|line| line.starts_with("Data page checksum version:"));
    !version.expect("pg_controldata tells").ends_with(" 0")
}

#[test]
fn checksums_are_enabled_and_checked_on_a_cluster_that_made_ids() {
    let mut server = shop(Server::builder());
    server.stop(Stop::Fast);
    // From 18 on, initdb enables them.
    if has_checksums(&server) {
        server.tool("pg_checksums", &["--disable", "-D", "data"]);
    }
    server.tool("pg_checksums", &["--enable", "-D", "data"]);
    let said = server.tool("pg_checksums", &["--check", "-D", "data"]);
    assert!(said.contains("Bad checksums:  0"), "{said}");
    server.start();
    assert_shows(&mut server.connect(), "data_checksums", "on");
    goes_on(&server);
    server.stop(Stop::Fast);
    let said = server.tool("pg_checksums", &["--check", "-D", "data"]);
    assert!(said.contains("Bad checksums:  0"), "{said}");
}

#[test]
fn indexes_on_ids_pass_amcheck() {
    if !has_contrib() {
        return;
    }
    let server = shop(Server::builder());
    for _ in 0..3 {
        sell(&server);
    }
    run(&mut in_shop(&server), "DELETE FROM orders WHERE snowflake_sequence(id) % 3 = 0");
    server.tool("vacuumdb", &["--table", "orders"]);
    sell(&server);
    indexes_are_whole(&server);
    // amcheck has looked at these, and would report a row that is in no index.
    let checked = server.tool("pg_amcheck", &["--verbose", "--heapallindexed", "--parent-check"]);
    for index in
        ["orders_pkey", "orders_at", "orders_text", "orders_parts", "orders_of_worker_1", "legacy_pkey"]
    {
        assert!(checked.contains(&format!(".{index}\"")), "{index} was not checked:\n{checked}");
    }
}

/// They evaluate expressions of indexes with a search path of their own, which contains no extension.
#[test]
fn vacuum_reindex_cluster_and_analyze_evaluate_indexes_on_ids() {
    let server = shop(Server::builder());
    run(&mut in_shop(&server), "CLUSTER orders USING orders_at; CLUSTER legacy USING legacy_pkey");
    server.tool("vacuumdb", &["--all", "--full", "--analyze"]);
    server.tool("vacuumdb", &["--all", "--analyze-in-stages"]);
    server.tool("vacuumdb", &["--all", "--freeze", "--parallel", "2"]);
    server.tool("reindexdb", &["--all"]);
    server.tool("reindexdb", &["--concurrently", "--schema", "public"]);
    server.tool("clusterdb", &["--all"]);
    run(&mut in_shop(&server), "REFRESH MATERIALIZED VIEW days");
    // The statistics are those of the expression.
    let known: i64 =
        one(&mut server.connect(), "SELECT count(*) FROM pg_stats WHERE tablename = 'orders_at'");
    assert_eq!(known, 1);
    let log = server.log();
    assert!(!log.contains("ERROR"), "{log}");
    goes_on(&server);
}

// ---- backups ----

/// Takes a base backup while IDs are generated; returns a server with it that was not started.
#[track_caller]
fn backup(server: &Server, options: &[&str]) -> Server {
    let copy = server.sibling();
    let folder = copy.folder().join("backup");
    let mut args = vec!["-X", "stream", "-c", "fast", "-D", file(&folder)];
    args.extend(options);
    thread::scope(|scope| {
        let maker = scope.spawn(|| {
            sell(server);
            take(&mut in_shop(server), 100_000);
        });
        server.tool("pg_basebackup", &args);
        maker.join().expect("IDs");
    });
    if options.contains(&"tar") {
        server.unpack(&folder.join("base.tar"), &copy.data());
        server.unpack(&folder.join("pg_wal.tar"), &copy.folder().join("wal"));
        let unpacked = copy.folder().join("wal");
        for segment in fs::read_dir(&unpacked).expect("a folder").map(|entry| entry.expect("a file").path()) {
            let name = segment.file_name().expect("a name");
            if segment.is_file() {
                fs::rename(&segment, copy.data().join("pg_wal").join(name)).expect("one file system");
            }
        }
        fs::rename(folder.join("backup_manifest"), copy.data().join("backup_manifest")).expect("a manifest");
    } else {
        fs::rename(&folder, copy.data()).expect("one file system");
    }
    copy
}

#[track_caller]
fn verify(backup: &Server) {
    let said = backup.tool("pg_verifybackup", &[file(&backup.data())]);
    assert!(said.contains("backup successfully verified"), "{said}");
}

/// The state in a backup is a copy: started without recovery, the server generates no IDs with the worker of its original,
/// and nobody can vouch for it, as long as the original runs.
#[track_caller]
fn is_a_copy(backup: &mut Server) {
    backup.set("snowflake_id.worker_id", "1");
    backup.start();
    for call in ["SELECT snowflake_nextval()", "SELECT snowflake_adopt(clock_timestamp())"] {
        let failure = fails(&mut in_shop(backup), "55000", call);
        assert!(failure.text().contains("another server on this host generates IDs"), "{failure}");
    }
    backup.set("snowflake_id.worker_id", "2");
    backup.restart();
    goes_on(backup);
}

/// Recovered to its end beside its original, with a worker of its own, it is on the second timeline, which begins with
/// another of its workers.
#[track_caller]
fn recovers(backup: &mut Server) {
    backup.set("snowflake_id.worker_id", "3");
    backup.recover();
    goes_on(backup);
    assert_eq!(worker(next(&mut in_shop(backup))), 3 + 256);
}

/// A cluster whose first start was long ago, so that every worker may be used at once.
fn old_shop(builder: Builder) -> Server {
    let server = shop(builder.born(days(400)));
    server.step_forward(days(400));
    sell(&server);
    server
}

#[test]
fn a_plain_backup_is_verified_and_is_a_copy() {
    let server = old_shop(Server::builder());
    let mut copy = backup(&server, &[]);
    assert!(copy.data().join("snowflake_id/state").exists());
    verify(&copy);
    // The manifest includes the state too.
    let state = fs::read(copy.data().join("snowflake_id/state")).expect("a state");
    let spoilt = [&state[..state.len() - 1], b"!"].concat();
    fs::write(copy.data().join("snowflake_id/state"), spoilt).expect("it can be written");
    let said = copy.try_tool("pg_verifybackup", &["data"]).unwrap_err();
    assert!(said.contains("checksum mismatch for file \"snowflake_id/state\""), "{said}");
    fs::write(copy.data().join("snowflake_id/state"), state).expect("it can be written");
    verify(&copy);
    is_a_copy(&mut copy);
}

#[test]
fn a_backup_in_tar_files_is_verified_and_recovers_to_a_worker_of_its_own() {
    let server = old_shop(Server::builder());
    let mut copy = backup(&server, &["--format", "tar"]);
    verify(&copy);
    recovers(&mut copy);
}

/// Backups that PostgreSQL 17 and later combine from increments.
#[test]
fn an_incremental_backup_is_put_together_and_is_a_copy() {
    let mut server = old_shop(Server::builder().setting("wal_level", "replica"));
    if pg_version() < 17 {
        // An earlier server has no increments and says so; nothing else can be tested.
        let said = server.try_tool("pg_basebackup", &["-D", "x", "--incremental", "y"]).unwrap_err();
        assert!(said.contains("unrecognized option"), "{said}");
        return;
    }
    server.set("summarize_wal", "on");
    server.restart();
    sell(&server);
    let full = backup(&server, &[]);
    let state = |server: &Server| fs::read(server.data().join("snowflake_id/state")).expect("a state");
    wait_until("the state to be written again", secs(60), || {
        sell(&server);
        (state(&server) != state(&full)).then_some(())
    });
    let manifest = full.data().join("backup_manifest");
    let increment = backup(&server, &["--incremental", file(&manifest)]);
    verify(&full);
    verify(&increment);
    for (n, order) in [&full, &increment].iter().enumerate() {
        assert!(order.data().join("snowflake_id/state").exists(), "backup {n} has no state");
    }
    for recovered in [false, true] {
        let mut whole = server.sibling();
        let (from, to) = ([full.data(), increment.data()], whole.data());
        let said = server.tool("pg_combinebackup", &[file(&from[0]), file(&from[1]), "-o", file(&to)]);
        assert_eq!(said, "");
        verify(&whole);
        // It has the later one of the two states.
        assert!(state(&whole) == state(&increment) && state(&whole) != state(&full));
        if recovered { recovers(&mut whole) } else { is_a_copy(&mut whole) }
    }
}

// ---- all databases as SQL ----

#[test]
fn all_databases_of_a_server_are_dumped_and_restored() {
    let server = shop(Server::builder());
    server.tool("createdb", &["second"]);
    server.tool("createuser", &["seller"]);
    run(
        &mut in_shop(&server),
        "GRANT SELECT, INSERT ON orders TO seller; GRANT USAGE ON SCHEMA ids TO seller",
    );
    let mut second = server.config().dbname("second").connect(NoTls).expect("a session");
    run(&mut second, SHOP);
    run(&mut second, SELL);
    // The roles that exist already are those that initdb creates; psql's key is random.
    let comparable = |dump: &str| -> String {
        let differs = ["CREATE ROLE postgres;", "\\restrict ", "\\unrestrict "];
        let kept = dump.lines().filter(|line| !differs.iter().any(|start| line.starts_with(start)));
        kept.map(|line| line.to_owned() + "\n").collect()
    };
    let dump = comparable(&server.tool("pg_dumpall", &[]));
    let restored = Server::builder().setting("snowflake_id.worker_id", "2").start();
    restored.restore("postgres", &dump);
    assert_eq!(comparable(&restored.tool("pg_dumpall", &[])), dump);
    goes_on(&restored);
}

// ---- WAL ----

#[test]
fn ids_write_no_wal() {
    let server = shop(Server::builder());
    let mut session = in_shop(&server);
    let position = "SELECT pg_current_wal_insert_lsn()::text";
    let before: String = one(&mut session, position);
    take(&mut session, 100_000);
    run(&mut session, "SELECT snowflake_rotate()");
    // pg_waldump fails if it finds nothing. A commit flushes it.
    run(&mut session, "SELECT pg_logical_emit_message(true, 'after', 'the IDs')");
    let after: String = one(&mut session, position);
    let said = server.tool("pg_waldump", &["-p", "data/pg_wal", "-s", &before, "-e", &after]);
    // The resource managers of the records.
    let managers: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix("rmgr: ")?.split(' ').next()).collect();
    assert!(managers.contains(&"LogicalMessage"), "{said}");
    // The rest is the server's housekeeping, which logs what runs, and prunes pages that a session happens to read.
    let housekeeping = ["LogicalMessage", "Transaction", "Standby", "XLOG", "Heap2"];
    assert!(managers.iter().all(|name| housekeeping.contains(name)), "{said}");
    assert!(managers.len() < 20, "{said}");
}

// ---- a cluster that becomes another one ----

/// pg_resetwal after a loss of WAL: the state file is not WAL, so it stays valid as it is.
#[test]
fn after_a_reset_of_the_wal_no_id_repeats() {
    let mut server = shop(Server::builder());
    // Otherwise the extension would be lost along with the WAL.
    run(&mut server.connect(), "CHECKPOINT");
    let mut ids = Ids::new();
    ids.add("before", take(&mut in_shop(&server), 50_000));
    server.crash();
    fs::remove_file(server.data().join("postmaster.pid")).expect("a killed postmaster leaves it behind");
    server.tool("pg_resetwal", &["--force", "-D", "data"]);
    server.start();
    wait_until("an ID", secs(30), || server.connect().query_one("SELECT ids.snowflake_nextval()", &[]).ok());
    ids.add("after", take(&mut in_shop(&server), 50_000));
    let all = ids.assert_unique();
    ids.assert_each_ascending();
    assert_eq!(all.len(), 100_000);
    assert_eq!(status(&mut in_shop(&server)).lane, Some(0));
}

/// pg_resetwal after a loss of the control file too: the cluster gets another system identifier, so the state is a copy until
/// somebody vouches for it.
#[test]
fn a_control_file_that_was_made_anew_keeps_the_gate_closed() {
    let mut server = shop(Server::builder());
    server.stop(Stop::Fast);
    let controls = server.tool("pg_controldata", &["-D", "data"]);
    let value = |name: &str| {
        let line = controls.lines().find(|line| line.starts_with(name)).expect(name);
        line.split(':').skip(1).collect::<Vec<_>>().join(":").trim().to_owned()
    };
    let xid = value("Latest checkpoint's NextXID").split(':').next_back().expect("a number").to_owned();
    let oid = value("Latest checkpoint's NextOID");
    let control_file = server.data().join("global/pg_control");
    let length = fs::metadata(&control_file).expect("a control file").len();
    fs::write(&control_file, vec![0; length as usize]).expect("it can be written");
    let segment: u32 = value("Bytes per WAL segment").parse().expect("a number");
    let segment = format!("--wal-segsize={}", segment >> 20);
    server.tool("pg_resetwal", &["--force", &segment, "-x", &xid, "-o", &oid, "-D", "data"]);
    server.start();
    let failure = fails(&mut in_shop(&server), "55000", "SELECT snowflake_nextval()");
    assert!(failure.text().contains("this data directory is a copy"), "{failure}");
    run(&mut in_shop(&server), "SELECT snowflake_adopt(clock_timestamp())");
    goes_on(&server);
}

/// The program exists from PostgreSQL 17 on. Once it has promoted the standby that it turns into a subscriber, it gives
/// it a system identifier of its own, so the state belongs to another cluster here too.
#[test]
fn a_standby_that_becomes_a_subscriber_makes_ids_once_it_is_adopted() {
    let publisher = old_shop(Server::builder().setting("wal_level", "logical"));
    let mut subscriber = publisher.standby(|settings| settings.setting("snowflake_id.worker_id", "2"));
    subscriber.stop(Stop::Fast);
    let from = format!("host={} port=5432 user=postgres dbname=postgres", file(publisher.folder()));
    let socket = file(subscriber.folder());
    let convert = ["-D", "data", "-P", &from, "-d", "postgres", "-s", socket, "-p", "5433", "-U", "postgres"];
    let converted = subscriber.try_tool("pg_createsubscriber", &convert);
    if pg_version() < 17 {
        assert!(converted.unwrap_err().contains("No such file"));
        return;
    }
    converted.unwrap();
    subscriber.start();
    let failure = fails(&mut in_shop(&subscriber), "55000", "SELECT snowflake_nextval()");
    assert!(failure.text().contains("this data directory is a copy"), "{failure}");
    run(&mut in_shop(&subscriber), "SELECT snowflake_adopt()");
    let of_subscriber =
        "INSERT INTO orders (customer) SELECT 'of the subscriber' FROM generate_series(1, 1000)";
    wait_until("the gate to open", secs(30), || in_shop(&subscriber).batch_execute(of_subscriber).ok());
    sell(&publisher);
    let arrived = "SELECT count(*) FROM orders";
    let all = one::<i64>(&mut in_shop(&publisher), arrived) + 1_000;
    wait_until("the publisher's rows", secs(20), || {
        (one::<i64>(&mut in_shop(&subscriber), arrived) == all).then_some(())
    });
    let servers = "SELECT array_agg(DISTINCT snowflake_server(id) ORDER BY snowflake_server(id)) FROM orders";
    assert_eq!(one::<Vec<i32>>(&mut in_shop(&subscriber), servers), [1, 2]);
}

// ---- pg_upgrade ----
