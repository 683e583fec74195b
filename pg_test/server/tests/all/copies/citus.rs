//! A cluster of Citus: which node generates an ID, that none repeats, and that `docs/citus.md` is true. Citus is in no
//! package registry, so these tests are skipped where the PostgreSQL under test does not have it.
//!
//! Nodes are called db-1 to db-4, as on the page; db-1 is the coordinator. Blocks of the page are read as
//! `documents/examples.rs` reads them, and so are these comments:
//!
//! * `<!-- on db-4 -->`: the next block runs there;
//! * `<!-- set db-4 NAME = VALUE -->`: this setting of the node is changed, and the node restarted.
//!
//! Its `sh` block creates the check on the coordinator.

use postgres::Client;
use snowflake_server_tests::ids::worker;
use snowflake_server_tests::sql::{column, fails, one, run, take};
use snowflake_server_tests::{Builder, Ids, Server, fed, has_extension, read, secs, skip};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Mutex;
use std::thread;

const PAGE: &str = "docs/citus.md";

fn is_skipped() -> bool {
    let is_skipped = !has_extension("citus");
    if is_skipped {
        skip("citus");
    }
    is_skipped
}

// ---- nodes ----

/// A server that may become a node.
fn with_citus(worker: u32) -> Builder {
    Server::builder()
        .setting("shared_preload_libraries", "citus, snowflake_id")
        .setting("snowflake_id.worker_id", &worker.to_string())
        .setting("citus.shard_count", "8")
        // It wakes up in every database, and the tests wait for nothing that it does.
        .setting("citus.recover_2pc_interval", "-1")
}

/// Starts a server with Citus, by which other nodes and itself reach it over its socket.
fn start(builder: Builder) -> Server {
    let mut server = builder.start();
    let folder = name(&server);
    server.reload("citus.local_hostname", &folder);
    run(&mut server.connect(), "CREATE EXTENSION citus");
    server
}

/// What Citus knows the node by.
fn name(server: &Server) -> String {
    server.folder().display().to_string()
}

fn add(coordinator: &Server, node: &Server) {
    run(&mut coordinator.connect(), &format!("SELECT citus_add_node('{}', 5432)", name(node)));
}

/// Waits until the node generates IDs: a first start waits for its clock, a lease for the registry.
fn wait_until_open(node: &Server) {
    node.wait_for_worker("an open gate", secs(60), |session| {
        one::<bool>(session, "SELECT state = 'open' FROM snowflake_status").then_some(())
    });
}

/// Starts the coordinator and two workers, and creates the extension on the coordinator only.
fn cluster() -> Vec<Server> {
    let nodes: Vec<Server> = (1..=3).map(|n| start(with_citus(n))).collect();
    run(&mut nodes[0].connect(), &format!("SELECT citus_set_coordinator_host('{}')", name(&nodes[0])));
    nodes[1..].iter().for_each(|node| add(&nodes[0], node));
    run(&mut nodes[0].connect(), "CREATE EXTENSION snowflake_id");
    nodes.iter().for_each(wait_until_open);
    nodes
}

const TABLES: &str = "
    CREATE TABLE visits (customer integer);
    SELECT create_distributed_table('visits', 'customer');
    INSERT INTO visits SELECT generate_series(1, 2000);
    CREATE TABLE orders (
        customer integer, id bigint DEFAULT snowflake_nextval(), how text, PRIMARY KEY (customer, id));
    SELECT create_distributed_table('orders', 'customer');
    CREATE TABLE places (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), how text);
    SELECT create_distributed_table('places', 'id');
    CREATE TABLE kinds (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), how text);
    SELECT create_reference_table('kinds');
    CREATE TABLE filled (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), how text);
    INSERT INTO filled (how) SELECT 'filled before it was distributed' FROM generate_series(1, 1000);
    SELECT create_distributed_table('filled', 'id')";

/// Each statement that generates IDs, without its node; whether the client's node evaluates the default.
const WRITES: &[(&str, bool)] = &[
    ("INSERT INTO orders (customer, how) VALUES (1, 'values'), (2, 'values')", true),
    ("INSERT INTO orders (customer, how) SELECT n, 'series' FROM generate_series(1, 50) AS n", true),
    ("INSERT INTO orders (customer, how) SELECT customer, 'select' FROM visits", false),
    (
        "INSERT INTO orders (customer, how) SELECT * FROM (SELECT customer, 'offset' FROM visits OFFSET 0) AS v",
        true,
    ),
    (
        "INSERT INTO orders (id, customer, how) SELECT snowflake_nextval(), customer, 'call' FROM visits",
        false,
    ),
    ("INSERT INTO places (how) VALUES ('values')", true),
    ("INSERT INTO places (how) SELECT 'select' FROM visits", false),
    ("INSERT INTO kinds (how) VALUES ('values')", true),
    ("INSERT INTO kinds (how) SELECT 'select' FROM visits WHERE customer <= 10", false),
    ("INSERT INTO orders (customer, how) SELECT 1, 'reference' FROM kinds LIMIT 30", true),
];

/// Clients write through all nodes at the same time. Returns every ID, by how it was generated, with whether that was
/// by the client's node, whose number is the key's first part.
fn write_everywhere(nodes: &[Server], rounds: usize) -> BTreeMap<(usize, String), Vec<i64>> {
    run(&mut nodes[0].connect(), "SET client_min_messages = error");
    for statement in TABLES.split(';') {
        run(&mut nodes[0].connect(), statement);
    }
    let kept: Mutex<BTreeMap<(usize, String), Vec<i64>>> = Mutex::default();
    let keep = |node: usize, how: &str, ids: Vec<i64>| {
        kept.lock().unwrap().entry((node, how.to_owned())).or_default().extend(ids);
    };
    thread::scope(|scope| {
        for (n, node) in nodes.iter().enumerate() {
            scope.spawn(move || {
                let mut session = node.connect();
                for _ in 0..rounds {
                    for &(statement, _) in WRITES {
                        keep(n, statement, column(&mut session, &format!("{statement} RETURNING id")));
                    }
                    copy(&mut session, n);
                    keep(n, "call", take(&mut session, 500));
                }
            });
        }
    });
    let mut kept = kept.into_inner().unwrap();
    for n in 0..nodes.len() {
        let copied = format!("SELECT id FROM orders WHERE how = 'copy {n}'");
        kept.insert((n, "copy".to_owned()), column(&mut nodes[0].connect(), &copied));
    }
    kept.insert((0, "filled".to_owned()), column(&mut nodes[0].connect(), "SELECT id FROM filled"));
    kept
}

fn copy(session: &mut Client, node: usize) {
    let mut writer = session.copy_in("COPY orders (customer, how) FROM STDIN").expect("COPY begins");
    for customer in 1..=100 {
        writeln!(writer, "{customer}\tcopy {node}").expect("a row");
    }
    writer.finish().expect("COPY ends");
}

fn assert_all_differ(kept: &BTreeMap<(usize, String), Vec<i64>>) {
    let mut all = Ids::new();
    for ((node, how), ids) in kept {
        assert!(!ids.is_empty(), "db-{}: no ID by {how}", node + 1);
        all.add(format!("db-{}: {how}", node + 1), ids.clone());
    }
    println!("{} IDs", all.len());
    all.assert_unique();
}

/// How many different contents the copies of a table have.
fn versions(coordinator: &Server, table: &str) -> i64 {
    let versions = format!(
        "SELECT count(DISTINCT result) FROM run_command_on_placements('{table}',
             'SELECT md5(string_agg(t::text, '','' ORDER BY t::text)) FROM %s AS t')"
    );
    one(&mut coordinator.connect(), &versions)
}

#[test]
fn no_id_repeats_however_and_wherever_rows_are_written() {
    if is_skipped() {
        return;
    }
    let nodes = cluster();
    println!("{}", one::<String>(&mut nodes[0].connect(), "SELECT citus_version() || '; ' || version()"));
    let kept = write_everywhere(&nodes, 10);
    assert_all_differ(&kept);
    assert_eq!(versions(&nodes[0], "kinds"), 1);
    // The workers of the nodes, of which the coordinator has no shards.
    for ((n, how), ids) in &kept {
        let workers: BTreeSet<i64> = ids.iter().map(|id| worker(*id)).collect();
        let is_own = WRITES.iter().find(|(statement, _)| statement == how).is_none_or(|(_, is_own)| *is_own);
        let expected = if is_own { vec![*n as i64 + 1] } else { vec![2, 3] };
        assert_eq!(workers.into_iter().collect::<Vec<_>>(), expected, "db-{}: {how}", n + 1);
    }
}

// ---- the check of the page ----

/// The blocks of the page in this language, each with its line.
fn blocks(language: &str) -> Vec<(usize, String)> {
    let text = read(PAGE);
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        if let Some(found) = line.strip_prefix("```") {
            let of_block: Vec<&str> =
                lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            if found == language {
                blocks.push((number, of_block.join("\n")));
            }
        }
    }
    blocks
}

fn create_check(coordinator: &Server) {
    run(&mut coordinator.connect(), include_str!("../../../../../examples/citus/check_nodes.sql"));
}

/// What the check finds, with the names of the page; `new` is no node so far.
fn problems(nodes: &[Server], new: Option<usize>) -> Vec<String> {
    let new = new.map(|n| format!("'{}'", name(&nodes[n]))).unwrap_or_default();
    let query = format!("SELECT node || ' ' || problem FROM check_nodes({new})");
    let found: Vec<String> = column(&mut nodes[0].connect(), &query);
    let mut found: Vec<String> = found.iter().map(|problem| with_names_of_the_page(problem, nodes)).collect();
    found.sort();
    found
}

fn with_names_of_the_page(text: &str, nodes: &[Server]) -> String {
    // With what follows, because a name may be the beginning of another one.
    (1..).zip(nodes).fold(text.to_owned(), |text, (n, node)| {
        text.replace(&format!("{}:", name(node)), &format!("db-{n}:"))
    })
}

#[test]
fn the_check_finds_each_mistake() {
    if is_skipped() {
        return;
    }
    let mut nodes = cluster();
    create_check(&nodes[0]);
    assert_eq!(problems(&nodes, None), [""; 0]);
    // The function is on all nodes.
    assert_eq!(column::<String>(&mut nodes[2].connect(), "SELECT problem FROM check_nodes()"), [""; 0]);

    // A double worker.
    nodes[2].set("snowflake_id.worker_id", "2");
    nodes[2].restart();
    wait_until_open(&nodes[2]);
    let twice = ["db-2:5432 shares workers with db-3:5432", "db-3:5432 shares workers with db-2:5432"];
    assert_eq!(problems(&nodes, None), twice);

    // A closed node.
    nodes[2].set("snowflake_id.worker_id", "-1");
    nodes[2].restart();
    let found = problems(&nodes, None);
    assert!(found.len() == 1 && found[0].starts_with("db-3:5432 generates no IDs: "), "{found:?}");
    assert!(found[0].contains("snowflake_id.worker_id"), "{found:?}");
    nodes[2].set("snowflake_id.worker_id", "3");
    nodes[2].restart();
    wait_until_open(&nodes[2]);

    // A node without a record, which a superuser gives to it.
    run(&mut nodes[1].connect(), "SELECT snowflake_internal.snowflake_set_layouts('{}')");
    let found = problems(&nodes, None);
    let missing = "db-2:5432 generates no IDs: this database has recorded no snowflake layout";
    assert!(found.len() == 1 && found[0].starts_with(missing), "{found:?}");
    run(&mut nodes[1].connect(), "SELECT snowflake_change_layout()");
    assert_eq!(problems(&nodes, None), [""; 0]);

    // A restore of another layout closes the coordinator alone.
    let restore =
        "INSERT INTO snowflake_internal.snowflake_config VALUES ('41/10/12 1ms 2020-01-01 00:00:00+00')";
    run(&mut nodes[0].connect(), restore);
    let found = problems(&nodes, None);
    let differs =
        "db-1:5432 generates no IDs: the snowflake layout of this database differs from this server's";
    assert!(found.len() == 1 && found[0].starts_with(differs), "{found:?}");
    let all = "SELECT * FROM run_command_on_all_nodes('SELECT snowflake_change_layout(has_ids => false)') WHERE NOT success";
    assert!(nodes[0].connect().query(all, &[]).expect("all nodes").is_empty());
    assert_eq!(problems(&nodes, None), [""; 0]);

    // A new node with another epoch, before and after it is added.
    nodes.push(start(with_citus(4).setting("snowflake_id.epoch", "2020-01-01T00:00:00Z")));
    run(&mut nodes[3].connect(), "CREATE EXTENSION snowflake_id");
    wait_until_open(&nodes[3]);
    let layouts = [(1, 2024), (2, 2024), (3, 2024), (4, 2020)].map(|(n, year)| {
        format!("db-{n}:5432 has layout 41/10/12 1ms since {year}-01-01 00:00:00 with 3 backup workers")
    });
    assert_eq!(problems(&nodes, Some(3)), layouts);
    add(&nodes[0], &nodes[3]);
    assert_eq!(problems(&nodes, None), layouts);

    // With fewer backup workers, a node has other lanes, of which some are those of another node.
    run(&mut nodes[0].connect(), &format!("SELECT citus_remove_node('{}', 5432)", name(&nodes[3])));
    nodes[2].set("snowflake_id.backup_workers", "1");
    nodes[2].set("snowflake_id.worker_id", "257");
    nodes[2].restart();
    let found = problems(&nodes, None);
    assert!(found.contains(&"db-1:5432 shares workers with db-3:5432".to_owned()), "{found:?}");
    assert!(found.iter().any(|problem| problem.ends_with("with 1 backup workers")), "{found:?}");
}

/// A server that does not preload the extension when Citus creates it there.
#[test]
fn a_node_that_was_added_without_preloading_is_found() {
    if is_skipped() {
        return;
    }
    let mut nodes = cluster();
    create_check(&nodes[0]);
    let bare = with_citus(4).setting("shared_preload_libraries", "citus").without("snowflake_id.worker_id");
    nodes.push(start(bare));
    let found = problems(&nodes, Some(3));
    assert!(found.len() == 1 && found[0].starts_with("db-4:5432 cannot be checked: ERROR"), "{found:?}");
    add(&nodes[0], &nodes[3]);
    let found = problems(&nodes, None);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("db-4:5432 generates no IDs: snowflake_id must be loaded"), "{found:?}");
    nodes[3].set("shared_preload_libraries", "citus, snowflake_id");
    nodes[3].set("snowflake_id.worker_id", "4");
    nodes[3].restart();
    let found = problems(&nodes, None);
    let missing = "db-4:5432 generates no IDs: this database has recorded no snowflake layout";
    assert!(found.len() == 1 && found[0].starts_with(missing), "{found:?}");
    run(&mut nodes[3].connect(), "SELECT snowflake_change_layout()");
    wait_until_open(&nodes[3]);
    assert_eq!(problems(&nodes, None), [""; 0]);
    nodes[3].stop(snowflake_server_tests::Stop::Fast);
    let found = problems(&nodes, None);
    assert!(found.len() == 1 && found[0].starts_with("db-4:5432 cannot be checked: "), "{found:?}");
}

// ---- what the page says ----

/// The page's examples, from top to bottom.
#[test]
fn the_page_runs_as_written() {
    if is_skipped() {
        return;
    }
    let lines = blocks("ini").remove(0).1;
    assert!(lines.contains("shared_preload_libraries = 'citus, snowflake_id'"), "{lines}");
    assert!(
        lines.contains("snowflake_id.worker_id = 1\n") || lines.ends_with("snowflake_id.worker_id = 1"),
        "{lines}"
    );
    // The new node has the number of another one.
    let mut nodes: Vec<Server> = [1, 2, 3].map(|n| start(with_citus(n))).into();
    nodes.push(with_citus(3).start());
    let folder = name(&nodes[3]);
    nodes[3].reload("citus.local_hostname", &folder);

    let text = read(PAGE);
    let (mut on, mut output) = (0, String::new());
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let place = format!("{PAGE}:{number}");
        if let Some(comment) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) {
            let words: Vec<&str> = comment.split(' ').collect();
            let node: usize = words[1].strip_prefix("db-").and_then(|n| n.parse().ok()).expect("a node");
            match words[..] {
                ["on", _] => on = node - 1,
                ["set", _, setting, "=", value] => {
                    nodes[node - 1].set(setting, value);
                    nodes[node - 1].restart();
                }
                _ => panic!("{place}: {comment} is not understood"),
            }
        }
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        match language {
            "sql" => {
                // A first start waits for its clock, as the page says.
                let has_it = "SELECT count(*) = 1 FROM pg_extension WHERE extname = 'snowflake_id'";
                nodes.iter().filter(|node| one(&mut node.connect(), has_it)).for_each(wait_until_open);
                output =
                    psql(&place, &nodes[std::mem::take(&mut on)], &with_folders(&block.join("\n"), &nodes));
            }
            "text" => assert_eq!(
                cells(&block.join("\n")),
                cells(&with_names_of_the_page(&output, &nodes)),
                "{place}"
            ),
            "sh" => create_check(&nodes[0]),
            "ini" => {}
            other => panic!("{place}: blocks of {other} are not understood"),
        }
    }
    assert_eq!(versions(&nodes[0], "kinds"), 1);
}

fn with_folders(text: &str, nodes: &[Server]) -> String {
    (1..).zip(nodes).fold(text.to_owned(), |text, (n, node)| {
        text.replace(&format!("'db-{n}'"), &format!("'{}'", name(node)))
    })
}

/// Runs a block, each statement by itself. Returns the last table that psql prints.
fn psql(place: &str, node: &Server, block: &str) -> String {
    let mut command = node.client_program("psql", "postgres");
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]);
    let printed = fed(&mut command, block);
    assert!(printed.status.success(), "{place}: {}", String::from_utf8_lossy(&printed.stderr));
    let tables = String::from_utf8_lossy(&printed.stdout).into_owned();
    tables.trim_end().rsplit("\n\n").next().unwrap_or_default().to_owned()
}

/// The cells of a table without what pads them; the rows in order of their cells, because names differ from the page's.
fn cells(table: &str) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = table
        .lines()
        .filter(|line| !line.starts_with("--"))
        .map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    if let Some(after_header) = rows.get_mut(1..) {
        after_header.sort();
    }
    rows
}

/// What the page says without an example.
#[test]
fn what_citus_refuses_and_what_differs_between_copies() {
    if is_skipped() {
        return;
    }
    let nodes = cluster();
    let mut session = nodes[0].connect();
    for statement in TABLES.split(';') {
        run(&mut session, statement);
    }
    // UPDATE.
    for value in ["DEFAULT", "snowflake_nextval()"] {
        let failure = fails(&mut session, "0A000", &format!("UPDATE orders SET id = {value}"));
        assert!(failure.message.contains("must not be VOLATILE"), "{failure}");
    }
    // ADD COLUMN, and what repairs it, for a table that others refer to.
    run(&mut session, "INSERT INTO kinds (how) VALUES ('a'), ('b')");
    run(&mut session, "CREATE TABLE of_kind (kind bigint REFERENCES kinds, customer integer)");
    run(&mut session, "SELECT create_distributed_table('of_kind', 'customer')");
    for default in ["gen_random_uuid()::text", "snowflake_nextval()::text"] {
        run(&mut session, &format!("ALTER TABLE kinds ADD COLUMN more text DEFAULT {default}"));
        assert_eq!(versions(&nodes[0], "kinds"), 3, "{default}");
        run(&mut session, "BEGIN");
        run(&mut session, "SELECT undistribute_table('kinds', cascade_via_foreign_keys => true)");
        run(&mut session, "SELECT create_reference_table('kinds')");
        run(&mut session, "SELECT create_distributed_table('of_kind', 'customer')");
        run(&mut session, "COMMIT");
        assert_eq!(versions(&nodes[0], "kinds"), 1, "{default}");
        run(&mut session, "ALTER TABLE kinds DROP COLUMN more");
    }
    run(&mut session, "ALTER TABLE visits ADD COLUMN id bigint DEFAULT snowflake_nextval()");
    assert_eq!(one::<i64>(&mut session, "SELECT count(DISTINCT id) FROM visits"), 2000);
    run(&mut session, "SET citus.shard_replication_factor = 2");
    run(&mut session, "CREATE TABLE twice (customer integer)");
    run(&mut session, "SELECT create_distributed_table('twice', 'customer')");
    run(&mut session, "INSERT INTO twice SELECT generate_series(1, 100)");
    run(&mut session, "ALTER TABLE twice ADD COLUMN id bigint DEFAULT snowflake_nextval()");
    assert_eq!(versions(&nodes[0], "twice"), 2 * 8);
    run(&mut session, "RESET citus.shard_replication_factor");

    // Conversion.
    run(&mut session, "CREATE TABLE by_id (id bigserial PRIMARY KEY)");
    run(&mut session, "SELECT create_distributed_table('by_id', 'id')");
    let convert = |table: &str| {
        format!("DO $$ BEGIN EXECUTE (SELECT script FROM snowflake_convert('{table}')); END $$")
    };
    fails(&mut session, "0A000", &convert("by_id"));
    run(&mut session, "CREATE TABLE narrow (customer integer, id serial, PRIMARY KEY (customer, id))");
    run(&mut session, "SELECT create_distributed_table('narrow', 'customer')");
    run(&mut session, "INSERT INTO narrow SELECT generate_series(1, 100)");
    fails(&mut session, "XX000", &convert("narrow"));
    for (table, column) in [("by_id", "id"), ("narrow", "customer")] {
        run(&mut session, &format!("SELECT undistribute_table('{table}')"));
        run(&mut session, &convert(table));
        run(&mut session, &format!("SELECT create_distributed_table('{table}', '{column}')"));
    }
    run(&mut session, "CREATE TABLE referred (id bigserial PRIMARY KEY)");
    run(&mut session, "SELECT create_reference_table('referred')");
    run(&mut session, &convert("referred"));
    for insert in ["by_id DEFAULT VALUES", "narrow VALUES (1)", "referred DEFAULT VALUES"] {
        let id: i64 = one(&mut nodes[2].connect(), &format!("INSERT INTO {insert} RETURNING id"));
        assert_eq!(worker(id), 3, "{insert}");
    }

    // The check needs no superuser.
    create_check(&nodes[0]);
    run(&mut session, "CREATE ROLE monitor LOGIN IN ROLE pg_monitor");
    let seen: i64 = one(&mut nodes[0].connect_as("monitor"), "SELECT count(*) FROM check_nodes()");
    assert_eq!(seen, 0);
}
