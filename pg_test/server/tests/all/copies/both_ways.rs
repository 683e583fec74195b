//! Two servers that replicate a table to each other: natively from PostgreSQL 16 on, and by pglogical before that. With
//! a worker each there is no conflict. What becomes of one worker on both, how it is seen before and refused, and the
//! way out. The statements are those of `examples/replication`, which the manual quotes.

use postgres::Client;
use snowflake_server_tests::fleet::{home, member, registry};
use snowflake_server_tests::sql::{column, fails, one, run};
use snowflake_server_tests::{Server, pg_version, read, secs, skip, wait_until};
use std::thread;

fn is_native() -> bool {
    pg_version() >= 16
}

/// The statements of an example, with this in place of each name.
fn example(name: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(read(&format!("examples/replication/{name}")), |text, (name, value)| {
        assert!(text.contains(name), "no {name} in: {text}");
        text.replace(name, value)
    })
}

/// A server with the table, before it replicates.
fn site(worker: &str, settings: &[(&str, &str)]) -> Server {
    let builder = Server::builder()
        .setting("snowflake_id.worker_id", worker)
        .setting("wal_level", "logical")
        .setting("track_commit_timestamp", "on")
        // A subscription that fails is tried again after this.
        .setting("wal_retrieve_retry_interval", "200ms");
    let builder = if is_native() { builder } else { builder.with_pglogical() };
    let builder = settings.iter().fold(builder, |builder, (name, value)| builder.setting(name, value));
    let site = builder.start_with_extension();
    allow_pglogical(&site);
    run(
        &mut site.connect(),
        "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), note text NOT NULL)",
    );
    site
}

/// The newest minor versions of PostgreSQL load only the output plugins that this setting names.
fn allow_pglogical(site: &Server) {
    let mut session = site.connect();
    let setting = "SELECT FROM pg_settings WHERE name = 'output_plugin_libraries'";
    if !is_native() && one(&mut session, &format!("SELECT EXISTS ({setting})")) {
        run(&mut session, "ALTER SYSTEM SET output_plugin_libraries = pgoutput, pglogical_output");
        run(&mut session, "SELECT pg_reload_conf()");
    }
}

/// Two servers with these workers, which replicate to each other.
fn sites(workers: [&str; 2], settings: &[(&str, &str)]) -> [Server; 2] {
    let sites = thread::scope(|scope| {
        let starting = workers.map(|worker| scope.spawn(move || site(worker, settings)));
        starting.map(|site| site.join().expect("it starts"))
    });
    let address = |site: &Server| format!("host={} port=5432 user=postgres", site.folder().display());
    let [a, b] = [0, 1].map(|site| address(&sites[site]));
    let setup = |node: &str, own: &str, other: &str| {
        let (dbname, other) = ("dbname=postgres", format!("{other} dbname=postgres"));
        let at = |host: &str| format!("host={host}.example.com dbname=app user=replicator");
        if is_native() {
            example("native.sql", &[(&at("b"), &other)])
        } else {
            let own = format!("{own} {dbname}");
            example("pglogical.sql", &[(&at("a"), &own), (&at("b"), &other), ("'a'", &format!("'{node}'"))])
        }
    };
    let setups = [setup("a", &a, &b), setup("b", &b, &a)];
    let parts: Vec<_> =
        setups.iter().map(|text| text.split_once("-- Once the other").expect("two parts")).collect();
    for (site, (first, _)) in sites.iter().zip(&parts) {
        run(&mut site.connect(), first);
    }
    for (site, (_, second)) in sites.iter().zip(&parts) {
        run(&mut site.connect(), &format!("--{second}"));
    }
    for site in &sites {
        let mut session = site.connect();
        let sends = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')";
        wait_until("a subscriber", secs(60), || one::<bool>(&mut session, sends).then_some(()));
    }
    sites
}

/// Adds a row with this note and an ID of this server's own; returns the ID.
fn add(site: &Server, note: &str) -> i64 {
    one(&mut site.connect(), &format!("INSERT INTO orders (note) VALUES ('{note}') RETURNING id"))
}

/// Both servers give a row of their own the same ID, in transactions that see nothing of each other; returns the ID.
fn add_twice(sites: [&Server; 2]) -> i64 {
    let mut sessions = sites.map(Server::connect);
    let id = one::<i64>(&mut sessions[0], "SELECT snowflake_nextval()");
    for (session, note) in sessions.iter_mut().zip(["of a", "of b"]) {
        run(session, &format!("BEGIN; INSERT INTO orders VALUES ({id}, '{note}')"));
    }
    sessions.iter_mut().for_each(|session| run(session, "COMMIT"));
    id
}

/// Waits until a row has this note. Each look wakes the postmaster, which starts the process that applies.
#[track_caller]
fn comes(site: &Server, id: i64, note: &str) {
    site.wait_for_worker(&format!("row {id} with {note:?}"), secs(60), |session| {
        (note_of(session, id).as_deref() == Some(note)).then_some(())
    });
}

fn note_of(session: &mut Client, id: i64) -> Option<String> {
    column(session, &format!("SELECT note FROM orders WHERE id = {id}")).pop()
}

/// Waits for a text in the log, and returns the log from there on.
#[track_caller]
fn logged(site: &Server, text: &str) -> String {
    wait_until(&format!("{text} in the log"), secs(60), || {
        let log = site.log();
        log.find(text).map(|at| log[at..].to_owned())
    })
}

/// Has pglogical apply at once. By itself it may wait for more than a minute; PostgreSQL waits for seconds.
fn retry(site: &Server) {
    if !is_native() {
        for switch in ["disable", "enable"] {
            let call =
                format!("SELECT pglogical.alter_subscription_{switch}('other_server', immediate := true)");
            run(&mut site.connect(), &call);
        }
    }
}

fn content(site: &Server) -> (i64, String) {
    let all = "SELECT count(*), coalesce(md5(string_agg(o::text, ',' ORDER BY id)), '') FROM orders AS o";
    let row = site.connect().query_one(all, &[]).expect("the rows");
    (row.get(0), row.get(1))
}

/// What the check of the manual finds.
fn foreign_rows_of_own_worker(site: &Server) -> Vec<i64> {
    column(&mut site.connect(), &example("check.sql", &[]))
}

fn guard(site: &Server) {
    run(&mut site.connect(), &example("guard.sql", &[]));
}

const CLIENTS: usize = 8;
const ROWS: usize = 200;

#[test]
fn eight_clients_a_side_with_a_worker_each_meet_no_conflict() {
    let sites = sites(["1", "2"], &[]);
    sites.iter().for_each(guard);
    thread::scope(|scope| {
        for site in &sites {
            for client in 0..CLIENTS {
                scope.spawn(move || {
                    let mut session = site.connect();
                    for row in 0..ROWS {
                        run(&mut session, &format!("INSERT INTO orders (note) VALUES ('{client}.{row}')"));
                    }
                });
            }
        }
    });
    let rows = (2 * CLIENTS * ROWS) as i64;
    wait_until("all rows on both", secs(120), || {
        sites.iter().all(|site| content(site).0 == rows).then_some(())
    });
    assert_eq!(content(&sites[0]), content(&sites[1]));
    for site in &sites {
        assert_eq!(foreign_rows_of_own_worker(site), [0; 0]);
        let log = site.log();
        assert!(!log.contains("ERROR: ") && !log.contains("CONFLICT"), "{log}");
    }
}

/// Datacenters number their servers alike.
#[test]
fn a_row_of_another_datacenter_is_of_another_server() {
    let site = Server::builder()
        .setting("snowflake_id.layout", "41/5+5/12")
        .setting("snowflake_id.datacenter_id", "2")
        .setting("track_commit_timestamp", "on")
        .start_with_extension();
    let mut replication = site.connect();
    run(&mut replication, "CREATE TABLE orders (id bigint PRIMARY KEY, note text)");
    run(&mut replication, "SELECT pg_replication_origin_create('other_server')");
    run(&mut replication, "SELECT pg_replication_origin_session_setup('other_server')");
    let own: i64 = one(&mut replication, "SELECT snowflake_nextval()");
    run(&mut replication, &format!("INSERT INTO orders VALUES ({own}), ({own} + (1 << 17))"));
    assert_eq!(foreign_rows_of_own_worker(&site), [own]);
}

const REFUSAL: &str =
    "23000 ERROR:  replicated row of table \"orders\" has an ID of this server's own worker";

#[test]
fn one_worker_on_both_is_seen_before_it_happens_and_refused_by_the_guard() {
    let [a, mut b] = sites(["1", "1"], &[]);
    let first = add(&a, "first of a");
    comes(&b, first, "first of a");
    assert_eq!(foreign_rows_of_own_worker(&b), [first]);
    assert_eq!(foreign_rows_of_own_worker(&a), [0; 0]);

    [&a, &b].into_iter().for_each(guard);
    let (of_a, of_b) = (add(&a, "more of a"), add(&b, "of b"));
    for (site, id) in [(&b, of_a), (&a, of_b)] {
        let log = logged(site, REFUSAL);
        assert!(log.contains(&format!("DETAIL:  Failing row contains ({id},")), "{log}");
        assert_eq!(note_of(&mut site.connect(), id), None);
    }

    // The way out: the other server accepts all rows as soon as it has another worker.
    b.set("snowflake_id.worker_id", "2");
    b.restart();
    [&a, &b].into_iter().for_each(retry);
    comes(&b, of_a, "more of a");
    // This one gets the rows that the other generated with its worker.
    run(&mut a.connect(), "ALTER TABLE orders DISABLE TRIGGER refuse_own_worker");
    retry(&a);
    comes(&a, of_b, "of b");
    run(&mut a.connect(), "ALTER TABLE orders ENABLE REPLICA TRIGGER refuse_own_worker");
    let last = add(&b, "last of b");
    comes(&a, last, "last of b");
    let last = add(&a, "last of a");
    comes(&b, last, "last of a");
    assert_eq!(content(&a), content(&b));
}

/// The guard is not there, and both servers have generated one ID.
#[test]
fn an_id_that_was_generated_twice_stops_replication_until_one_row_has_another() {
    // pglogical does so with this setting only.
    let settings: &[_] = if is_native() { &[] } else { &[("pglogical.conflict_resolution", "error")] };
    let [a, mut b] = sites(["1", "1"], settings);
    let id = add_twice([&a, &b]);
    for (site, note) in [(&a, "of a"), (&b, "of b")] {
        logged(site, if is_native() { "23505 ERROR:" } else { "cannot apply conflicting row" });
        assert_eq!(note_of(&mut site.connect(), id).as_deref(), Some(note));
    }
    let waiting = add(&a, "waits");

    b.set("snowflake_id.worker_id", "2");
    b.restart();
    let step = |n: usize| {
        let text = example("renumber.sql", &[(":id", &id.to_string())]);
        text.split("-- ").nth(n).map(|step| format!("-- {step}")).expect("a step")
    };
    let new: i64 = one(&mut b.connect(), &step(1));
    run(&mut a.connect(), &step(2));
    [&a, &b].into_iter().for_each(retry);
    comes(&a, new, "of b");
    run(&mut a.connect(), &step(3));
    for site in [&a, &b] {
        comes(site, id, "of a");
        comes(site, new, "of b");
        comes(site, waiting, "waits");
    }
    assert_eq!(content(&a), content(&b));
}

/// The servers keep each other's row, and replication goes on.
#[test]
fn pglogical_overwrites_the_rows_of_an_id_that_was_generated_twice() {
    if is_native() {
        return skip("pglogical");
    }
    let [a, mut b] = sites(["1", "1"], &[]);
    let id = add_twice([&a, &b]);
    comes(&a, id, "of b");
    comes(&b, id, "of a");
    for (site, lost) in [(&a, "of a"), (&b, "of b")] {
        let log = logged(site, "CONFLICT: remote INSERT on relation public.orders");
        assert!(log.contains(&format!("existing local tuple {{id[int8]:{id} note[text]:{lost}}}")), "{log}");
        assert!(!site.log().contains("ERROR: "), "{}", site.log());
        assert_eq!(foreign_rows_of_own_worker(site), [id]);
    }

    // Each has the other's row, so none is lost.
    b.set("snowflake_id.worker_id", "2");
    b.restart();
    let text = example("exchange.sql", &[(":id", &id.to_string())]);
    let steps: Vec<&str> = text.split("-- ").collect();
    let new: i64 = one(&mut a.connect(), &format!("-- {}", steps[1]));
    retry(&b);
    comes(&b, new, "of b");
    run(&mut b.connect(), &format!("-- {}", steps[2]));
    retry(&a);
    comes(&a, id, "of a");
    assert_eq!(content(&a), content(&b));
    assert_eq!(content(&a).0, 2);
}

#[test]
fn the_guard_refuses_an_id_that_was_generated_twice_before_a_row_is_overwritten() {
    let sites = sites(["1", "1"], &[]);
    sites.iter().for_each(guard);
    let id = add_twice([&sites[0], &sites[1]]);
    for (site, note) in sites.iter().zip(["of a", "of b"]) {
        logged(site, REFUSAL);
        assert_eq!(note_of(&mut site.connect(), id).as_deref(), Some(note));
    }
}

/// Without replication: a session that applies rows is enough.
#[test]
fn under_a_registry_the_guard_refuses_ids_of_the_lease_and_no_others() {
    let registry = registry("1 hour");
    let servers = ["one", "other"].map(|name| member(&registry, name).start_with_extension());
    let homes = servers.each_ref().map(home);
    assert_ne!(homes[0], homes[1]);
    let site = &servers[0];
    run(&mut site.connect(), "CREATE TABLE orders (id bigint)");
    guard(site);
    let mut session = site.connect();
    run(&mut session, "SET session_replication_role = replica");
    let row = |time: &str, worker: i32| {
        format!("INSERT INTO orders VALUES (snowflake_encode({time}, {worker}, 0))")
    };
    for lane in 0..4 {
        fails(&mut session, "23000", &row("now()", homes[0] + 256 * lane));
        run(&mut session, &row("now()", homes[1] + 256 * lane));
    }
    // The lease ends in an hour: later IDs of the worker may be somebody else's.
    fails(&mut session, "23000", &row("now() + interval '50 min'", homes[0]));
    run(&mut session, &row("now() + interval '70 min'", homes[0]));
    // Another server gets the worker, and this one another.
    run(&mut registry.connect(), "SELECT snowflake_registry_retire('one')");
    wait_until("another lease", secs(60), || (home(site) != homes[0]).then_some(()));
    run(&mut session, &row("now()", homes[0]));
    fails(&mut session, "23000", &row("now() + interval '1 min'", home(site)));
}
