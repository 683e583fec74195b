//! The files of `docs/monitoring/` are correct: a role with only `pg_monitor` can run their query, an exporter serves
//! their metrics, the numbers reflect what happens to a server, and the alert rules pass their tests and use no other
//! metrics; each expression of the dashboard has data in Prometheus.

use super::pages::{read, root};
use postgres::Client;
use serde_json::Value;
use snowflake_server_tests::disk::{Trouble, Troublemaker};
use snowflake_server_tests::fleet::{home, member, registry};
use snowflake_server_tests::sql::{fails, next, one, run, status};
use snowflake_server_tests::{Server, Stop, companions, hours, secs, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use yaml_rust2::{Yaml, YamlLoader};

fn folder() -> PathBuf {
    root().join("docs/monitoring")
}

fn yaml(file: &str) -> Yaml {
    let text = fs::read_to_string(folder().join(file)).expect("the file");
    YamlLoader::load_from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}")).remove(0)
}

fn text(value: &Yaml) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value:?} is no text")).to_owned()
}

fn list(value: &Yaml) -> &[Yaml] {
    value.as_vec().unwrap_or_else(|| panic!("{value:?} is no list"))
}

/// A query, its columns that are labels, and each metric's name, type and help.
#[derive(Debug, PartialEq)]
struct Queries {
    sql: String,
    labels: Vec<String>,
    metrics: Vec<[String; 3]>,
}

impl Queries {
    fn names(&self) -> BTreeSet<String> {
        self.metrics.iter().map(|[name, ..]| name.clone()).collect()
    }
}

/// The query of the server, and that of its workers.
fn all_of_postgres_exporter() -> [Queries; 2] {
    let file = yaml("postgres_exporter.yaml");
    let of = |(prefix, query): (&Yaml, &Yaml)| {
        let columns = list(&query["metrics"]).iter().map(|entry| {
            let (column, about) = entry.as_hash().expect("a mapping").front().expect("a column");
            (text(column), text(&about["usage"]).to_lowercase(), text(&about["description"]))
        });
        let (labels, metrics): (Vec<_>, Vec<_>) = columns.partition(|(_, usage, _)| usage == "label");
        let metric = |(column, usage, help)| [format!("{}_{column}", text(prefix)), usage, help];
        Queries {
            sql: text(&query["query"]),
            labels: labels.into_iter().map(|(column, ..)| column).collect(),
            metrics: metrics.into_iter().map(metric).collect(),
        }
    };
    let all: Vec<Queries> = file.as_hash().expect("a mapping").iter().map(of).collect();
    all.try_into().expect("each query is a round trip")
}

fn of_postgres_exporter() -> Queries {
    let [of_server, _] = all_of_postgres_exporter();
    of_server
}

fn all_of_sql_exporter() -> [Queries; 2] {
    let file = yaml("sql_exporter.yaml");
    let of = |query: &Yaml| {
        let own = list(&file["metrics"]).iter().filter(|metric| metric["query_ref"] == query["query_name"]);
        let metrics = own.clone().map(|metric| {
            let name = text(&metric["metric_name"]);
            let [column] = list(&metric["values"]) else { panic!("{name}: one column") };
            assert_eq!(name, format!("{}_{}", text(&query["query_name"]), text(column)));
            [name, text(&metric["type"]), text(&metric["help"])]
        });
        let labels = own.clone().filter_map(|metric| metric["key_labels"].as_vec()).flatten().map(text);
        Queries { sql: text(&query["query"]), labels: labels.collect(), metrics: metrics.collect() }
    };
    let all: Vec<Queries> = list(&file["queries"]).iter().map(of).collect();
    all.try_into().expect("each query is a round trip")
}

#[test]
fn both_exporters_are_told_the_same() {
    assert_eq!(all_of_postgres_exporter(), all_of_sql_exporter());
    for [name, kind, _] in of_postgres_exporter().metrics {
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
    }
}

/// The query's one row, by column.
#[track_caller]
fn look(session: &mut Client) -> BTreeMap<String, f64> {
    let sql = of_postgres_exporter().sql;
    // Like an exporter, takes everything as a number.
    let sql = format!("SELECT key, value::float8 FROM ({sql}) AS q, json_each_text(row_to_json(q))");
    let rows = session.query(&sql, &[]).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// A role created as docs/monitoring.md says.
fn watcher(server: &Server) -> Client {
    run(&mut server.connect(), "CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher");
    server.connect_as("watcher")
}

#[test]
fn a_role_with_pg_monitor_alone_reads_every_column() {
    let server = Server::builder().start_with_extension();
    next(&mut server.connect());
    let seen = look(&mut watcher(&server));
    let named: BTreeSet<String> =
        of_postgres_exporter().names().iter().map(|name| name.replacen("snowflake_", "", 1)).collect();
    assert_eq!(seen.keys().cloned().collect::<BTreeSet<_>>(), named);

    // The membership is what allows it.
    run(&mut server.connect(), "CREATE ROLE stranger LOGIN");
    fails(&mut server.connect_as("stranger"), "42501", &of_postgres_exporter().sql);
}

#[test]
fn the_numbers_follow_what_happens() {
    let builder = Server::builder().setting("snowflake_id.max_ahead", "10s");
    // A first start has its IDs run ahead, and that of this server was a minute ago.
    let mut server = builder.born(secs(60)).start_with_extension();
    let mut session = server.connect();
    next(&mut session);
    server.step_forward(secs(60));
    next(&mut session);
    run(&mut session, "SELECT snowflake_reset_stats(), snowflake_nextval()");
    let mut watcher = watcher(&server);
    let calm = look(&mut watcher);
    for (name, value) in [
        ("open", 1.0),
        ("in_recovery", 0.0),
        ("datacenter_id", 0.0),
        ("home_worker_id", 1.0),
        ("worker_id", 1.0),
        ("backup_workers", 3.0),
        ("backup_workers_usable", 3.0),
        ("max_ahead_seconds", 10.0),
        ("write_error", 0.0),
        ("keeper", 1.0),
        ("issued_total", 1.0),
        ("rollbacks_total", 0.0),
        ("largest_rollback_seconds", 0.0),
        ("forward_jumps_total", 0.0),
        ("rotations_total", 0.0),
        ("refusals_total", 0.0),
        // There is no registry.
        ("registry_error", 0.0),
        ("lease_ended", 0.0),
        ("lease_seconds", 0.0),
        ("fleet_workers", 0.0),
        ("fleet_workers_free", 0.0),
        ("fleet_clock_offset_seconds", 0.0),
        ("fleet_doubt", 0.0),
    ] {
        assert_eq!(calm[name], value, "{name} of {calm:?}");
    }
    assert!((0.0..0.1).contains(&calm["ahead_seconds"]), "{calm:?}");
    // 2^41 ms after the epoch.
    assert_eq!(calm["expires_timestamp_seconds"], 1_704_067_200.0 + 2_199_023_255.552);

    // A small step back.
    next(&mut session);
    server.step_back(secs(9));
    next(&mut session);
    let ahead = look(&mut watcher);
    // Less than the step, because the clock has gone on since.
    assert!((0.2..9.0).contains(&ahead["ahead_seconds"]), "{ahead:?}");
    assert_eq!(ahead["rollbacks_total"], 1.0, "{ahead:?}");
    assert!((8.5..9.5).contains(&ahead["largest_rollback_seconds"]), "{ahead:?}");
    server.step_forward(secs(9));

    // A jump forward, and the way back: one worker is left, and then no other can be entered.
    server.step_forward(hours(1));
    next(&mut session);
    assert_eq!(look(&mut watcher)["forward_jumps_total"], 1.0);
    server.step_back(hours(1));
    next(&mut session);
    let rotated = look(&mut watcher);
    assert_eq!(rotated["rotations_total"], 1.0, "{rotated:?}");
    assert_ne!(rotated["worker_id"], 1.0, "{rotated:?}");
    assert_eq!(rotated["home_worker_id"], 1.0, "{rotated:?}");
    assert_eq!(rotated["backup_workers_usable"], 2.0, "{rotated:?}");
    // Before the start of all of them.
    server.step_back(hours(1));
    fails(&mut session, "55000", "SELECT snowflake_nextval()");
    let refused = look(&mut watcher);
    assert_eq!(refused["refusals_total"], 1.0, "{refused:?}");
    assert_eq!(refused["open"], 0.0, "{refused:?}");
    assert_eq!(refused["backup_workers_usable"], 0.0, "{refused:?}");
    assert_eq!(refused["issued_total"], status(&mut session).issued as f64);

    // Waits, with a worker that may wait and does not rotate any more.
    server.step_forward(hours(1));
    server.reload("snowflake_id.max_wait", "20s");
    server.reload("snowflake_id.max_ahead", "0");
    assert_eq!(look(&mut watcher)["max_ahead_seconds"], 0.0);
    let before = look(&mut watcher);
    next(&mut session);
    server.step_back(secs(8));
    next(&mut session);
    let waited = look(&mut watcher);
    assert!(waited["waits_total"] > before["waits_total"], "{waited:?}");
    let seconds = waited["wait_seconds_total"] - before["wait_seconds_total"];
    assert!((0.5..10.0).contains(&seconds), "{waited:?}");
}

#[test]
fn a_state_that_cannot_be_written_shows() {
    let registry = registry("1 hour");
    let mut server = member(&registry, "a").start_with_extension();
    home(&server);
    let mut session = server.connect();
    let mut watcher = watcher(&server);
    let folder = server.data().join("snowflake_id");
    // Neither the file nor a new one can be written. This needs a server that does not run as root.
    let permit = |file, folder_mode| {
        fs::set_permissions(folder.join("state"), Permissions::from_mode(file)).expect("it is a file");
        fs::set_permissions(&folder, Permissions::from_mode(folder_mode)).expect("it is a folder");
    };
    permit(0o400, 0o500);
    wait_until("the end of the reservation", secs(30), || {
        session.batch_execute("SELECT snowflake_nextval()").is_err().then_some(())
    });
    // The registrar cannot ask the registry.
    let has_error = |session: &mut Client, error: &str| {
        let query = format!("SELECT coalesce(registry_error, '') LIKE '%{error}%' FROM snowflake_status");
        wait_until("the registrar's error", secs(60), || one::<bool>(session, &query).then_some(()));
    };
    has_error(&mut session, "could not write file");
    let seen = look(&mut watcher);
    assert_eq!((seen["write_error"], seen["registry_error"], seen["open"]), (1.0, 1.0, 0.0), "{seen:?}");

    server.stop(Stop::Fast);
    permit(0o000, 0o700);
    server.start();
    let (mut session, mut watcher) = (server.connect(), server.connect_as("watcher"));
    has_error(&mut session, "could not access file");
    permit(0o600, 0o700);
    wait_until("IDs again", secs(30), || session.batch_execute("SELECT snowflake_nextval()").ok());
    let seen = look(&mut watcher);
    assert_eq!((seen["write_error"], seen["open"]), (0.0, 1.0), "{seen:?}");
}

/// A disk whose fsyncs hang shows itself by the absence of values: the view waits for the process that writes. Its reader's
/// statement_timeout ends that, so the exporter reports an error, and its series end.
#[test]
fn a_disk_that_hangs_is_an_error_for_the_exporter_and_not_a_hang() {
    let mut server = Server::builder().create();
    let disk = Troublemaker::new(&mut server);
    server.start();
    let mut session = server.connect();
    run(&mut session, "CREATE EXTENSION snowflake_id");
    next(&mut session);
    let mut watcher = watcher(&server);
    run(&mut watcher, "SET statement_timeout = '1s'");
    disk.make(Trouble::Slow(600_000));
    let sql = of_postgres_exporter().sql;
    // The keeper moves the reservation for a minute after the last ID.
    server.wait_for_worker("the keeper to write", secs(10), |_| {
        watcher.batch_execute(&sql).is_err().then_some(())
    });
    fails(&mut watcher, "57014", &sql);
    disk.make(Trouble::None);
    run(&mut watcher, "RESET statement_timeout");
    assert_eq!(look(&mut watcher)["open"], 1.0);
}

#[test]
fn standbys_and_servers_without_a_worker_can_be_watched() {
    let mut server = Server::builder().start_with_extension();
    next(&mut server.connect());
    drop(watcher(&server));
    let standby = server.standby(|settings| settings);
    let seen = look(&mut standby.connect_as("watcher"));
    assert_eq!((seen["open"], seen["in_recovery"], seen["keeper"]), (0.0, 1.0, 0.0), "{seen:?}");
    drop(standby);

    server.unset("snowflake_id.worker_id");
    server.restart();
    let seen = look(&mut server.connect_as("watcher"));
    assert_eq!((seen["open"], seen["home_worker_id"], seen["backup_workers"]), (0.0, -1.0, 0.0), "{seen:?}");
    assert!(seen["expires_timestamp_seconds"] > 0.0, "{seen:?}");

    server.stop(Stop::Fast);
    server.unset("shared_preload_libraries");
    server.start();
    let seen = look(&mut server.connect_as("watcher"));
    assert_eq!((seen["open"], seen["home_worker_id"]), (0.0, -1.0), "{seen:?}");
    assert_eq!(seen["expires_timestamp_seconds"], 0.0, "{seen:?}");
}

#[test]
fn a_lease_and_the_fleet_of_a_registry_can_be_watched() {
    let mut registry = registry("20 s");
    let mut of_registry = watcher(&registry);
    let empty = look(&mut of_registry);
    assert_eq!((empty["fleet_workers"], empty["fleet_workers_free"]), (256.0, 256.0), "{empty:?}");

    let server = member(&registry, "a").start_with_extension();
    let home = home(&server);
    let mut of_server = watcher(&server);
    let seen = wait_until("a lease", secs(60), || {
        let seen = look(&mut of_server);
        (seen["lease_seconds"] > 5.0).then_some(seen)
    });
    assert!(seen["lease_seconds"] <= 20.0, "{seen:?}");
    assert_eq!((seen["home_worker_id"], seen["lease_ended"]), (f64::from(home), 0.0), "{seen:?}");
    assert_eq!(seen["fleet_workers"], 0.0, "the registry is another database");
    wait_until("the lease to be counted, and the clock to be seen", secs(60), || {
        // The next contact overwrites it.
        run(
            &mut registry.connect(),
            "UPDATE snowflake_internal.snowflake_registry_groups SET clock_offset_ms = -2500",
        );
        let fleet = look(&mut of_registry);
        let not_preloaded = (fleet["open"], fleet["expires_timestamp_seconds"]);
        assert_eq!((fleet["fleet_workers"], not_preloaded), (256.0, (0.0, 0.0)), "{fleet:?}");
        (fleet["fleet_workers_free"] == 255.0 && fleet["fleet_clock_offset_seconds"] == 2.5).then_some(())
    });

    registry.stop(Stop::Immediate);
    // Its queries look one after another.
    let ended = [("lease_ended", 1.0), ("registry_error", 1.0), ("lease_seconds", 0.0), ("open", 0.0)];
    wait_until("the lease to end", secs(120), || {
        let seen = look(&mut of_server);
        ended.iter().all(|(name, value)| seen[*name] == *value).then_some(())
    });
    registry.start();
    wait_until("another contact", secs(60), || {
        let seen = look(&mut of_server);
        (seen["registry_error"] == 0.0 && seen["lease_seconds"] > 0.0 && seen["open"] == 1.0).then_some(())
    });
}

#[test]
fn a_datacenter_is_told_where_the_layout_has_one() {
    let server = Server::builder()
        .setting("snowflake_id.layout", "41/5+5/12")
        .setting("snowflake_id.datacenter_id", "3")
        .start_with_extension();
    assert_eq!(look(&mut watcher(&server))["datacenter_id"], 3.0);
}

/// Datacenter and worker of each series that the alert about shared workers compares, without those of standbys.
fn owned(watcher: &mut Client) -> BTreeSet<(String, String)> {
    let [_, of_workers] = all_of_postgres_exporter();
    assert_eq!(of_workers.labels[..2], ["datacenter", "worker"]);
    let rows = watcher.query(&of_workers.sql, &[]).expect("a role with pg_monitor alone may");
    let counted = rows.iter().filter(|row| row.get::<_, i32>("owned") == 1);
    counted.map(|row| (row.get("datacenter"), row.get("worker"))).collect()
}

#[test]
fn servers_with_other_backup_workers_show_which_workers_they_share() {
    let of = |home: &str, backups: &str| {
        let builder = Server::builder().setting("snowflake_id.worker_id", home);
        builder.setting("snowflake_id.backup_workers", backups).start_with_extension()
    };
    let (seven, three) = (of("1", "7"), of("129", "3"));
    let (of_seven, of_three) = (owned(&mut watcher(&seven)), owned(&mut watcher(&three)));
    assert_eq!((of_seven.len(), of_three.len()), (8, 4));
    assert!(of_three.is_subset(&of_seven), "{of_three:?} {of_seven:?}");
    drop(seven);
    // A standby has its primary's, and generates nothing.
    let standby = three.standby(|settings| settings);
    assert_eq!(owned(&mut standby.connect_as("watcher")), BTreeSet::new());
}

// ---- the real programs ----

/// The folder of the programs that `scripts/companions` has unpacked.
fn programs() -> PathBuf {
    companions("monitoring").join("usr/bin")
}

/// Ends the process with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that was free a moment ago.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port()
}

/// postgres_exporter on a server, whose role `watcher` it takes, and its port.
fn exporter(server: &Server) -> (Running, u16) {
    let port = port();
    let exporter = Command::new(programs().join("prometheus-postgres-exporter"))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg(format!("--extend.query-path={}", folder().join("postgres_exporter.yaml").display()))
        .args(["--disable-default-metrics", "--disable-settings-metrics"])
        .env(
            "DATA_SOURCE_NAME",
            format!("host={} user=watcher dbname=postgres sslmode=disable", server.folder().display()),
        )
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(Running)
        .expect("it can be started");
    (exporter, port)
}

/// What a program on this machine serves, if it does already.
fn get(port: u16, path: &str) -> Option<String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, page)| page.to_owned())
}

#[test]
fn postgres_exporter_serves_every_metric() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(&mut session, "SELECT snowflake_reset_stats()");
    run(&mut session, "SELECT count(*) FROM snowflake_nextval_batch(12345)");
    drop(watcher(&server));
    let (_exporter, port) = exporter(&server);
    let page = wait_until("the exporter", secs(90), || {
        get(port, "/metrics").filter(|page| page.contains("snowflake_"))
    });

    let (owned, single): (Vec<&str>, Vec<&str>) = page
        .lines()
        .filter(|line| line.starts_with("snowflake_"))
        .partition(|line| line.starts_with("snowflake_worker_owned{"));
    assert_eq!(owned.len(), 4, "a series per worker: {owned:?}");
    assert!(owned[0].contains("worker=\"1\"") && owned[0].ends_with(" 1"), "{owned:?}");
    let mut served = BTreeMap::new();
    for line in single {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let name = series.split('{').next().expect("a name").to_owned();
        assert!(served.insert(name, value.parse::<f64>().expect("a number")).is_none(), "two series: {line}");
    }
    let queries = of_postgres_exporter();
    assert_eq!(served.keys().cloned().collect::<BTreeSet<_>>(), queries.names());
    for [name, kind, _] in &queries.metrics {
        assert!(page.contains(&format!("# TYPE {name} {kind}\n")), "{name} is no {kind}");
    }
    assert_eq!(served["snowflake_open"], 1.0);
    assert_eq!(served["snowflake_issued_total"], 12345.0);
    let expires: f64 =
        one(&mut session, "SELECT extract(epoch FROM expires_at)::float8 FROM snowflake_status");
    assert_eq!(served["snowflake_expires_timestamp_seconds"], expires);
}

#[test]
fn the_alert_rules_pass_their_tests() {
    for arguments in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]] {
        let output = Command::new(programs().join("promtool"))
            .args(arguments)
            .current_dir(folder())
            .output()
            .expect("promtool can be started");
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && printed.contains("SUCCESS"), "{arguments:?}: {printed}");
    }
}

/// The names of the metrics in an expression.
fn metrics(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("snowflake_")).map(str::to_owned).collect()
}

#[test]
fn the_alert_rules_use_metrics_that_exist_and_are_explained_and_tested() {
    let exported: BTreeSet<String> = all_of_postgres_exporter().iter().flat_map(Queries::names).collect();
    let page = read("docs/monitoring.md");
    let tests = fs::read_to_string(folder().join("alerts_test.yaml")).expect("the tests");
    let file = yaml("alerts.yaml");
    let rules = list(&file["groups"][0]["rules"]);
    for rule in rules {
        let (name, expression) = (text(&rule["alert"]), text(&rule["expr"]));
        let used = metrics(&expression);
        assert!(!used.is_empty() && used.is_subset(&exported), "{name} uses {used:?}");
        assert!(!text(&rule["annotations"]["summary"]).is_empty(), "{name}");
        assert!(!text(&rule["annotations"]["action"]).is_empty(), "{name}");
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name} is not seen to fire");
    }
    let (paging, informing) = page.split_once("**The others inform**").expect("two kinds of alerts");
    let is_paging = |rule: &&Yaml| text(&rule["labels"]["severity"]) == "critical";
    for rule in rules {
        let part = if is_paging(&rule) { paging } else { informing };
        let name = text(&rule["alert"]);
        assert!(
            part.contains(&format!("`{name}`")),
            "docs/monitoring.md does not have {name} where it belongs"
        );
    }
    let of_a_registry = |rule: &&&Yaml| {
        let used = metrics(&text(&rule["expr"]));
        used.iter().all(|name| name.contains("_fleet_") || name.contains("_lease_"))
    };
    let paging: Vec<&Yaml> = rules.iter().filter(is_paging).collect();
    let with_a_registry = paging.iter().filter(of_a_registry).count();
    assert_eq!((paging.len() - with_a_registry, with_a_registry), (4, 3), "the page says how many");
    let alerts = page.split('`').filter(|text| text.starts_with("Snowflake") && !text.contains(' '));
    let alerts: BTreeSet<&str> = alerts
        .filter(|name| !["SnowflakeClock", "SnowflakeState", "SnowflakeRegistry"].contains(name))
        .collect();
    assert_eq!(alerts.len(), rules.len(), "docs/monitoring.md names an alert that is not there: {alerts:?}");
    for [name, _, description] in all_of_postgres_exporter().iter().flat_map(|queries| &queries.metrics) {
        assert!(description.split(' ').count() > 1, "postgres_exporter.yaml does not explain {name}");
    }
    let named = page.split('`').filter(|text| text.starts_with("snowflake_"));
    let views = ["snowflake_status", "snowflake_workers", "snowflake_fleet", "snowflake_fleet_capacity"];
    let unknown: Vec<&str> = named
        .filter(|name| !name.ends_with("()") && !views.contains(name) && !exported.contains(*name))
        .collect();
    assert!(unknown.is_empty(), "docs/monitoring.md names metrics that are not there: {unknown:?}");
}

// ---- the dashboard ----

fn dashboard() -> Value {
    let text = fs::read_to_string(folder().join("grafana.json")).expect("the dashboard");
    serde_json::from_str(&text).expect("JSON")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn expressions() -> Vec<String> {
    let dashboard = dashboard();
    let targets = items(&dashboard["panels"]).iter().flat_map(|panel| items(&panel["targets"]));
    targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect()
}

/// The answer to an instant query.
fn ask(prometheus: u16, expression: &str) -> Option<Value> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let answer = get(prometheus, &format!("/api/v1/query?query={encoded}"))?;
    let answer: Value = serde_json::from_str(&answer).ok()?;
    assert_eq!(answer["status"], "success", "{expression}: {answer}");
    Some(answer["data"]["result"].clone())
}

#[test]
fn every_expression_of_the_dashboard_has_data_in_prometheus() {
    let exported = of_postgres_exporter().names();
    let expressions = expressions();
    for expression in &expressions {
        let used = metrics(expression);
        assert!(!used.is_empty() && used.is_subset(&exported), "{expression} uses {used:?}");
    }

    let registry = registry("10 min");
    let server = member(&registry, "a").start_with_extension();
    home(&server);
    drop((watcher(&registry), watcher(&server)));
    let (_of_registry, registry_port) = exporter(&registry);
    let (_of_server, server_port) = exporter(&server);
    let work = server.folder().join("prometheus");
    fs::create_dir(&work).expect("it is new");
    let port = port();
    let config = format!(
        "global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: snowflake
    static_configs: [{{targets: ['127.0.0.1:{registry_port}', '127.0.0.1:{server_port}']}}]
"
    );
    fs::write(work.join("prometheus.yml"), config).expect("it can be written");
    let _prometheus = Command::new(programs().join("prometheus"))
        .arg("--config.file=prometheus.yml")
        .arg("--storage.tsdb.path=data")
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .current_dir(&work)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(Running)
        .expect("it can be started");

    let mut session = server.connect();
    let filled = |expression: &str| expression.replace("$instance", ".*").replace("$__rate_interval", "1m");
    for expression in &expressions {
        wait_until(&format!("data of {expression}"), secs(120), || {
            next(&mut session);
            let data = ask(port, &filled(expression))?;
            (!items(&data).is_empty()).then_some(())
        });
    }
    // Some of what the panels then say.
    for (expression, value) in [
        ("count(snowflake_open{instance=~\"$instance\"} == 1) or vector(0)", "1"),
        ("snowflake_fleet_doubt and snowflake_fleet_workers > 0", "0"),
        ("snowflake_fleet_workers > 0", "256"),
    ] {
        assert!(expressions.iter().any(|known| known == expression), "{expression}");
        let data = ask(port, &filled(expression)).expect("an answer");
        assert_eq!(data[0]["value"][1], value, "{expression}: {data}");
        assert_eq!(items(&data).len(), 1, "{expression}: {data}");
    }
    let rate = "sum(rate(snowflake_issued_total{instance=~\"$instance\"}[$__rate_interval]))";
    assert!(expressions.iter().any(|known| known == rate));
    wait_until("IDs per second", secs(60), || {
        next(&mut session);
        let data = ask(port, &filled(rate))?;
        data[0]["value"][1].as_str()?.parse::<f64>().is_ok_and(|rate| rate > 0.0).then_some(())
    });
}
