//! Bad input is refused with the right SQLSTATE and words, and nothing is lost by it.

use postgres::{Client, NoTls};
use snowflake_server_tests::ids::{Ids, assert_ascending, worker};
use snowflake_server_tests::sql::{Failure, column, fails, next, one, run, status, take};
use snowflake_server_tests::{Layout, Server, days, has_contrib, hours, ms, process, secs};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The ways to ask for IDs.
const CALLS: [&str; 3] =
    ["SELECT snowflake_nextval()", "SELECT snowflake_nextval_batch(2)", "SELECT snowflake_nextval_range(2)"];

/// Messages of Rust and its libraries are for programmers, and no user should see one.
#[track_caller]
fn assert_no_rust(text: &str) {
    for foreign in ["..=", "::", "panicked", "unwrap", "Err(", "None", "Some(", "os error", "utf-8", "parse"]
    {
        assert!(!text.contains(foreign), "{foreign:?} in: {text}");
    }
}

#[track_caller]
fn assert_tells(failure: &Failure, words: &[&str]) {
    assert_no_rust(&failure.text());
    for word in words {
        assert!(failure.text().contains(word), "{word:?} is missing in: {failure}");
    }
    assert!(!failure.detail.is_empty(), "no DETAIL: {failure}");
    // An argument's message says which values it can have: there is no more to do than to pass one.
    assert!(!failure.hint.is_empty() || failure.code == "22023", "no HINT: {failure}");
}

/// Every way to ask for IDs fails in the same way, as often as it is tried.
#[track_caller]
fn all_fail(session: &mut Client, code: &str, words: &[&str]) {
    for _ in 0..2 {
        for call in CALLS {
            assert_tells(&fails(session, code, call), words);
        }
    }
}

/// Why the generator is closed, when its status has none of the numbers of one that generates IDs.
#[track_caller]
fn closed_reason(session: &mut Client) -> String {
    let row = session.query_one("SELECT state, reason, issued FROM snowflake_status", &[]).unwrap();
    assert_eq!((row.get(0), row.get(2)), ("closed", None::<i64>));
    row.get(1)
}

// ---- settings that prevent IDs while the server runs ----

#[test]
fn without_preloading_the_extension_can_be_created_but_makes_no_ids() {
    // A later line has overridden the one with snowflake_id, and the error shows it to those who may see it.
    let server = Server::builder().setting("shared_preload_libraries", "plpgsql").start_with_extension();
    let mut session = server.connect();
    let value = "It started with shared_preload_libraries = 'plpgsql'.";
    all_fail(&mut session, "55000", &["shared_preload_libraries = 'snowflake_id'", "postgresql.conf", value]);
    run(&mut session, "CREATE ROLE clerk LOGIN");
    let failure = fails(&mut server.connect_as("clerk"), "55000", "SELECT snowflake_nextval()");
    assert!(!failure.text().contains("plpgsql"), "{failure}");
    // Reading by this server's own layout needs its settings.
    for call in ["snowflake_timestamp(1)", "snowflake_owner(1)", "snowflake_decode(1)"] {
        let failure = fails(&mut session, "55000", &format!("SELECT {call}"));
        assert_tells(&failure, &["shared_preload_libraries = 'snowflake_id'"]);
    }
    fails(&mut session, "55000", "SELECT snowflake_rotate()");
    fails(&mut session, "55000", "SELECT snowflake_lastval()");
    run(&mut session, "LOAD 'snowflake_id'");
    run(&mut session, "DROP EXTENSION snowflake_id; CREATE EXTENSION snowflake_id");
    // A table may have the default already; only its use fails, and leaves nothing behind.
    run(&mut session, "CREATE TABLE t (id bigint DEFAULT snowflake_nextval(), x integer)");
    fails(&mut session, "55000", "INSERT INTO t (x) VALUES (1)");
    assert_eq!(one::<i64>(&mut session, "SELECT count(*) FROM t"), 0);
}

#[test]
fn an_unset_worker_is_named_with_the_way_to_set_it() {
    let server = Server::builder().without("snowflake_id.worker_id").start_with_extension();
    let mut session = server.connect();
    all_fail(&mut session, "55000", &["snowflake_id.worker_id", "255", "restart"]);
    let reason = closed_reason(&mut session);
    assert!(reason.contains("snowflake_id.worker_id"), "{reason}");
    // Reading needs no worker.
    assert_eq!(one::<i32>(&mut session, "SELECT snowflake_worker((77 << 12)::bigint)"), 77);
}

#[test]
fn an_epoch_that_the_clock_has_not_reached_closes_the_gate_until_it_has() {
    let server = Server::builder()
        .setting("snowflake_id.epoch", "2100-01-01T00:00:00Z")
        .faketime(true)
        .start_with_extension();
    let mut session = server.connect();
    all_fail(&mut session, "55000", &["snowflake_id.epoch"]);
    let now = status(&mut session);
    assert_eq!(now.state, "closed");
    assert!(now.reason.expect("a reason").contains("epoch"));
    assert_eq!(now.issued, 0);

    // To a second after the epoch, by this clock.
    let epoch: Duration = secs(4_102_444_800);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    server.step_forward(epoch + secs(1) - now);
    let ids = take(&mut session, 10);
    assert_ascending("after the epoch", &ids);
    assert!(ids[0] > 0);
    let layout = Layout { epoch_ms: 4_102_444_800_000, ..Layout::DEFAULT };
    assert!((0..60_000).contains(&(layout.parts(ids[0]).at_ms - layout.epoch_ms)));
    assert_eq!(status(&mut session).state, "open");

    // And back to before it.
    server.step_back(days(1));
    all_fail(&mut session, "55000", &["snowflake_id.epoch"]);
    assert_eq!(status(&mut session).state, "closed");
    server.step_forward(days(1));
    assert!(next(&mut session) > ids[9]);
}

// ---- settings that keep the generator closed ----

/// A server that is restarted again and again, each time with settings of which one cannot be used.
struct Misconfigured {
    server: Server,
    /// An ID that it generated before any setting was changed.
    newest: i64,
}

const LOGGED: &str = "snowflake_id: cannot generate IDs: ";

impl Misconfigured {
    fn new() -> Self {
        let server = Server::builder().start_with_extension();
        let newest = next(&mut server.connect());
        Self { server, newest }
    }

    /// Starts it with these settings. The server runs, and says in its log, in its status and in each call what is
    /// wrong and how to correct it. IDs can be read, unless their layout is what is wrong.
    #[track_caller]
    fn is_closed(&mut self, settings: &[(&str, &str)], words: &[&str], can_read: bool) {
        let is_read_from = self.server.log().len();
        for (name, value) in settings {
            self.server.set(name, value);
        }
        self.server.restart();
        let mut session = self.server.connect();
        let mut words: Vec<&str> = words.to_vec();
        words.push("Then restart the server.");
        all_fail(&mut session, "55000", &words);
        for call in ["snowflake_rotate()", "snowflake_adopt()", "snowflake_reset_stats()"] {
            assert_tells(&fails(&mut session, "55000", &format!("SELECT {call}")), &words);
        }

        let reason = closed_reason(&mut session);
        for word in &words[..words.len() - 1] {
            assert!(reason.contains(word), "{settings:?}: {word:?} is missing in the reason: {reason}");
        }

        let told = || {
            let log = self.server.log();
            let lines: Vec<String> = log[is_read_from..].lines().map(str::to_owned).collect();
            let at = lines.iter().position(|line| line.contains(LOGGED))?;
            let has_all = lines[at..].iter().take(4).any(|line| line.contains("HINT:"));
            (has_all && lines.iter().filter(|line| line.contains(LOGGED)).count() == 1)
                .then(|| lines[at..].iter().take(4).map(String::as_str).collect::<String>())
        };
        let line = self.server.wait_for_worker("one line in the log", secs(10), |_| told());
        for word in &words {
            assert!(line.contains(word), "{settings:?}: {word:?} is missing in the log: {line}");
        }
        assert_no_rust(&line);

        let read = format!("snowflake_timestamp({})", self.newest);
        let layout = "SELECT layout IS NOT NULL AND epoch IS NOT NULL FROM snowflake_status";
        assert_eq!(one::<bool>(&mut session, layout), can_read, "{settings:?}");
        if can_read {
            run(&mut session, &format!("SELECT {read}"));
        } else {
            for call in [read.as_str(), "snowflake_decode(1)", "snowflake_encode(now(), 1, 1)"] {
                assert_tells(&fails(&mut session, "55000", &format!("SELECT {call}")), &words);
            }
        }
        run(&mut session, "CREATE TABLE IF NOT EXISTS written (x integer); INSERT INTO written VALUES (1)");

        for (name, _) in settings {
            self.server.unset(name);
        }
        self.server.set("snowflake_id.worker_id", "1");
    }

    /// Once every setting is corrected, new IDs lie above the earlier ones.
    fn opens(mut self) {
        self.server.restart();
        let mut session = self.server.connect();
        let id = next(&mut session);
        assert!(id > self.newest && worker(id) == 1);
        assert_eq!(status(&mut session).state, "open");
    }
}

#[test]
fn a_worker_outside_its_range_closes_the_generator_and_the_range_is_told() {
    let worker = "snowflake_id.worker_id";
    let mut server = Misconfigured::new();
    for value in ["256", "2147483647"] {
        server.is_closed(&[(worker, value)], &[worker, value, "0 to 255"], true);
    }
    server.is_closed(
        &[(worker, "128"), ("snowflake_id.backup_workers", "7")],
        &[worker, "7 backup workers", "0 to 127"],
        true,
    );
    for value in ["-2", "one"] {
        server.is_closed(&[(worker, value)], &[worker, value], true);
    }
    server.opens();

    let server = Server::builder().setting(worker, "256").start_with_extension();
    let mut session = server.connect();
    assert_eq!(one::<Option<i32>>(&mut session, "SELECT home_worker_id FROM snowflake_status"), None);
    // The server still knows the owners of the other workers.
    let owner = "SELECT (home_worker_id, lane) = (5, 3) FROM snowflake_owner(773::bigint << 12)";
    assert!(one::<bool>(&mut session, owner));
}

/// Two sources of one number: which of them counts is nothing to guess.
#[test]
fn a_worker_beside_a_registry_closes_the_generator() {
    let mut server = Misconfigured::new();
    server.is_closed(
        &[("snowflake_id.registry", "host=/nowhere")],
        &["snowflake_id.worker_id", "the registry assigns this server's worker"],
        true,
    );
    server.opens();
}

/// PostgreSQL accepts each of the statements, and the server is restarted at a later date.
#[test]
fn a_worker_that_another_setting_puts_outside_its_range_does_not_hold_the_database() {
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let before = next(&mut session);
    run(&mut session, "ALTER SYSTEM SET snowflake_id.backup_workers = 1");
    run(&mut session, "ALTER SYSTEM SET snowflake_id.worker_id = 300");
    run(&mut session, "ALTER SYSTEM RESET snowflake_id.backup_workers");
    assert!(next(&mut session) > before, "it counts from the restart");
    server.restart();
    let mut session = server.connect();
    all_fail(&mut session, "55000", &["snowflake_id.worker_id", "\"300\"", "0 to 255"]);
    run(&mut session, "ALTER SYSTEM RESET snowflake_id.worker_id");
    server.restart();
    assert!(next(&mut server.connect()) > before);
}

/// The settings that count are those of the next start, not those with which the server runs.
#[test]
fn alter_system_refuses_a_worker_that_the_other_settings_leave_no_room_for() {
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let worker = |worker: i32| format!("ALTER SYSTEM SET snowflake_id.worker_id = {worker}");
    let failure = fails(&mut session, "22023", &worker(300));
    assert_tells(&failure, &["snowflake_id.worker_id", "300", "0 to 255", "set those first"]);
    run(&mut session, &worker(255));
    run(&mut session, &worker(-1));
    run(&mut session, "ALTER SYSTEM SET snowflake_id.backup_workers = 2");
    run(&mut session, &worker(300));
    assert_tells(&fails(&mut session, "22023", &worker(341)), &["2 backup workers", "0 to 340"]);
    // The other file is edited by hand as well; that of ALTER SYSTEM takes precedence.
    server.set("snowflake_id.layout", "41/5+5/12");
    assert_tells(&fails(&mut session, "22023", &worker(10)), &["41/5+5/12", "0 to 9"]);
    run(&mut session, &worker(9));
    let datacenter = "ALTER SYSTEM SET snowflake_id.datacenter_id = 32";
    assert_tells(&fails(&mut session, "22023", datacenter), &["41/5+5/12", "at most 31"]);
    run(&mut session, "ALTER SYSTEM SET snowflake_id.layout = '41/10/12'");
    assert_tells(&fails(&mut session, "22023", datacenter), &["41/10/12", "at most 0", "set those first"]);
    run(&mut session, &worker(340));
    server.restart();
    assert_eq!(worker_of_this_server(&mut server.connect()), 340);
    // If the layout itself cannot be read, the worker is not to blame.
    run(&mut server.connect(), "ALTER SYSTEM RESET ALL");
    server.set("snowflake_id.layout", "twitter");
    run(&mut server.connect(), &worker(1_000));
}

/// The files may be changed in several places before the restart, so a reload must not compare them with what runs.
#[test]
fn a_reload_does_not_blame_a_worker_that_the_next_start_has_room_for() {
    let mut server = Server::builder().start_with_extension();
    server.set("snowflake_id.backup_workers", "1");
    server.set("snowflake_id.worker_id", "300");
    server.reload("work_mem", "5MB");
    let log = server.log();
    assert!(!log.contains("invalid value"), "{log}");
    let pending = "SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings WHERE pending_restart";
    assert_eq!(
        one::<String>(&mut server.connect(), pending),
        "snowflake_id.backup_workers snowflake_id.worker_id"
    );
    server.restart();
    assert_eq!(worker_of_this_server(&mut server.connect()), 300);
}

fn worker_of_this_server(session: &mut Client) -> i32 {
    one(session, "SELECT home_worker_id FROM snowflake_status")
}

#[test]
fn a_number_of_backups_that_cannot_be_closes_the_generator() {
    let backups = "snowflake_id.backup_workers";
    let mut server = Misconfigured::new();
    for value in ["-1", "16", "many"] {
        server.is_closed(&[(backups, value)], &[backups, value], true);
    }
    // A worker field of 2 bits has no room for 8 lanes. IDs were generated with another layout, and cannot be read
    // either.
    let mut new = Server::builder().setting("snowflake_id.layout", "41/1/12").start_with_extension();
    let mut session = new.connect();
    all_fail(&mut session, "55000", &[backups, "\"3\"", "2 workers", "needs 4"]);
    assert_eq!(one::<i32>(&mut session, "SELECT snowflake_worker(1 << 12)"), 1);
    // The owner of a worker depends on that number.
    assert_tells(&fails(&mut session, "55000", "SELECT snowflake_owner(1 << 12)"), &[backups]);
    new.set(backups, "0");
    new.restart();
    next(&mut new.connect());
    server.opens();
}

#[test]
fn a_layout_that_does_not_add_up_closes_the_generator_and_no_id_is_read() {
    let layout = "snowflake_id.layout";
    let mut server = Misconfigured::new();
    for value in [
        "41/10/13",
        "41/10",
        "41/10/12/1",
        "0/10/12",
        "-1/10/12",
        "41/+/12",
        "41/5+/12",
        "41/10/x",
        "twitter",
        "64/0/0",
        "4294967296/10/12",
        "",
    ] {
        server.is_closed(&[(layout, value)], &[layout, &format!("\"{value}\"")], false);
    }
    // Each by itself would be valid.
    server.is_closed(&[(layout, "52/3/7"), ("snowflake_id.tick", "1s")], &[layout, "52/3/7", "42"], false);
    server.opens();
}

#[test]
fn an_unknown_tick_closes_the_generator_and_no_id_is_read() {
    let tick = "snowflake_id.tick";
    let mut server = Misconfigured::new();
    for value in ["2ms", "100ms", "0", "1min", "-1ms", "short"] {
        server.is_closed(&[(tick, value)], &[tick, value, "1ms, 10ms or 1s"], false);
    }
    server.opens();
}

#[test]
fn an_epoch_that_cannot_be_read_closes_the_generator_and_no_id_is_read() {
    let epoch = "snowflake_id.epoch";
    let mut server = Misconfigured::new();
    for (value, why) in [
        ("yesterday", "not a valid date and time"),
        ("infinity", "not a valid date and time"),
        ("2024-01-01", "no offset"),
        ("2024-01-01T00:00:00", "no offset"),
        ("2024-13-01T00:00:00Z", "not a valid date and time"),
        ("2023-02-29T00:00:00Z", "not a valid date and time"),
        ("2024-01-01T25:00:00Z", "not a valid date and time"),
        ("2024-01-01T00:00:00 Europe/Berlin", "not a valid date and time"),
        ("01.01.2024 00:00:00Z", "not a valid date and time"),
        ("-000001-01-01T00:00:00Z", "before the year 1"),
        ("", "not a valid date and time"),
    ] {
        server.is_closed(&[(epoch, value)], &[epoch, &format!("\"{value}\""), why], false);
    }
    server.opens();
}

#[test]
fn other_settings_that_cannot_be_close_the_generator() {
    let mut server = Misconfigured::new();
    for (name, value) in [
        ("snowflake_id.rollback_policy", "repeat"),
        ("snowflake_id.sequence_start", "one"),
        ("snowflake_id.max_ahead", "-1"),
        ("snowflake_id.max_wait", "soon"),
    ] {
        server.is_closed(&[(name, value)], &[name, value], true);
    }
    let long = "n".repeat(65);
    server.is_closed(
        &[("snowflake_id.node_name", &long)],
        &["snowflake_id.node_name", "65 characters"],
        true,
    );
    server.is_closed(
        &[("snowflake_id.layout", "41/5+5/12"), ("snowflake_id.datacenter_id", "32")],
        &["snowflake_id.datacenter_id", "32", "at most 31"],
        false,
    );
    // Ignored, it would leave the servers of two datacenters with one worker.
    server.is_closed(
        &[("snowflake_id.datacenter_id", "1")],
        &["snowflake_id.datacenter_id", "1", "at most 0"],
        false,
    );
    server.opens();
}

/// Two faults are two lines, and neither mentions the default layout that replaces a bad one.
#[test]
fn each_value_that_cannot_be_used_is_told_once() {
    let server = Server::builder()
        .setting("snowflake_id.layout", "28/22/14")
        .setting("snowflake_id.worker_id", "500000")
        .setting("snowflake_id.max_wait", "soon")
        .start_with_extension();
    let log = server.wait_for_worker("two lines in the log", secs(10), |_| {
        Some(server.log()).filter(|log| log.matches(LOGGED).count() >= 2)
    });
    assert_eq!(log.matches(LOGGED).count(), 2, "{log}");
    for name in ["layout", "max_wait"] {
        let line = format!("{LOGGED}invalid value for parameter \"snowflake_id.{name}\"");
        assert!(log.contains(&line), "{line} is missing in {log}");
    }
}

#[test]
fn a_standby_whose_settings_cannot_be_used_says_so_and_follows() {
    let primary = Server::builder().start_with_extension();
    let standby = primary.standby(|settings| settings.setting("snowflake_id.worker_id", "300"));
    standby.wait_for_worker("the line in the log", secs(10), |_| {
        standby.log().contains(&format!("{LOGGED}invalid value")).then_some(())
    });
    let mut session = standby.connect();
    assert!(closed_reason(&mut session).contains("snowflake_id.worker_id"));
    let id = next(&mut primary.connect());
    assert_eq!(one::<i32>(&mut session, &format!("SELECT snowflake_worker({id})")), 1);
    standby.promote();
    all_fail(&mut session, "55000", &["snowflake_id.worker_id", "0 to 255"]);
}

/// The postmaster loads the library before there is a logging collector.
#[test]
fn why_no_ids_are_made_is_in_the_file_of_the_logging_collector() {
    for (settings, line) in [
        (vec![("snowflake_id.worker_id", "300")], "invalid value for parameter \"snowflake_id.worker_id\""),
        (vec![], "snowflake_id.worker_id is not set"),
    ] {
        let collected =
            [("logging_collector", "on"), ("log_directory", "collected"), ("log_filename", "log")];
        let builder = Server::builder().without("snowflake_id.worker_id");
        let server = settings
            .into_iter()
            .chain(collected)
            .fold(builder, |builder, (name, value)| builder.setting(name, value))
            .start();
        server.wait_for_worker("the line in the log", secs(10), |_| {
            let log = std::fs::read_to_string(server.data().join("collected/log")).unwrap_or_default();
            let told = log.lines().skip_while(|told| !told.contains(&format!("{LOGGED}{line}")));
            told.take(3).any(|told| told.contains("HINT:")).then_some(())
        });
    }
}

#[test]
fn a_preloaded_library_without_a_worker_says_so_once() {
    let server = Server::builder().without("snowflake_id.worker_id").start_with_extension();
    let log = server.wait_for_worker("the line in the log", secs(10), |_| {
        Some(server.log()).filter(|log| log.contains(LOGGED))
    });
    assert_eq!(log.matches(LOGGED).count(), 1, "{log}");
    let told: String = log.lines().skip_while(|line| !line.contains(LOGGED)).take(3).collect();
    for word in ["snowflake_id.worker_id is not set", "HINT:", "0 to 255"] {
        assert!(told.contains(word), "{word:?} is missing in {told}");
    }
    // A server that does not preload the library logs nothing.
    let plain = Server::builder().without("shared_preload_libraries").start_with_extension();
    assert!(!plain.log().contains("snowflake_id:"), "{}", plain.log());
}

#[test]
fn alter_system_refuses_a_value_that_can_never_be_used() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    for (setting, value) in [
        ("worker_id", "-2"),
        ("worker_id", "one"),
        ("datacenter_id", "-1"),
        ("backup_workers", "16"),
        ("layout", "41/10/13"),
        ("layout", "64/0/0"),
        ("tick", "2ms"),
        ("epoch", "2024-13-01T00:00:00Z"),
        ("epoch", "2024-01-01"),
        ("rollback_policy", "repeat"),
        ("sequence_start", "one"),
        ("max_ahead", "11min"),
        ("max_wait", "soon"),
        ("node_name", "two\nlines"),
        ("node_name", &"n".repeat(65)),
    ] {
        let statement = format!("ALTER SYSTEM SET snowflake_id.{setting} = '{value}'");
        let failure = fails(&mut session, "22023", &statement);
        assert!(failure.message.contains(setting), "{failure}");
        assert_no_rust(&failure.text());
    }
}

#[test]
fn an_unknown_setting_is_reported() {
    let server = Server::builder().setting("snowflake_id.worker", "5").start_with_extension();
    assert!(
        server.log().contains("invalid configuration parameter name \"snowflake_id.worker\""),
        "{}",
        server.log()
    );
    let mut session = server.connect();
    let failure = fails(&mut session, "42602", "SET snowflake_id.workerid = 5");
    assert!(failure.text().contains("snowflake_id.workerid"), "{failure}");
    next(&mut session);
}

// ---- who may do what ----

const SETTINGS: [(&str, &str); 11] = [
    ("worker_id", "5"),
    ("datacenter_id", "1"),
    ("backup_workers", "3"),
    ("layout", "41/10/12"),
    ("tick", "10ms"),
    ("epoch", "2020-01-01T00:00:00Z"),
    ("rollback_policy", "replay"),
    ("max_ahead", "1s"),
    ("max_wait", "1s"),
    ("sequence_start", "spread"),
    ("node_name", "other"),
];

#[test]
fn no_session_can_change_a_setting() {
    let server = Server::builder().start_with_extension();
    let mut superuser = server.connect();
    run(&mut superuser, "CREATE ROLE app LOGIN");
    let show = "SELECT string_agg(name || '=' || setting, ',' ORDER BY name) FROM pg_settings
                WHERE name LIKE 'snowflake_id.%' AND name <> 'snowflake_id.registry'";
    let before: String = one(&mut superuser, show);
    for (setting, _) in SETTINGS {
        assert!(before.contains(&format!("snowflake_id.{setting}=")), "{setting} in {before}");
    }
    for role in ["postgres", "app"] {
        let mut session = server.connect_as(role);
        let id = next(&mut session);
        for (setting, value) in SETTINGS {
            for statement in [
                format!("SET snowflake_id.{setting} = '{value}'"),
                format!("SET LOCAL snowflake_id.{setting} = '{value}'"),
                format!("SET snowflake_id.{setting} TO DEFAULT"),
                format!("SELECT set_config('snowflake_id.{setting}', '{value}', false)"),
            ] {
                fails(&mut session, "55P02", &statement);
            }
        }
        // Nor by the options of the connection.
        let options = "-c snowflake_id.worker_id=5";
        let refused = server.config().user(role).options(options).connect(NoTls);
        let failure = Failure::from(&refused.err().expect("the connection is refused"));
        assert_eq!(failure.code, "55P02", "{failure}");
        let after = next(&mut session);
        assert!(after > id);
        assert_eq!(worker(after), 1);
        assert_eq!(one::<String>(&mut session, show), before);
    }
    for (setting, value) in SETTINGS {
        for target in ["ROLE app", "DATABASE postgres", "ROLE ALL"] {
            fails(&mut superuser, "55P02", &format!("ALTER {target} SET snowflake_id.{setting} = '{value}'"));
        }
    }
    fails(&mut server.connect_as("app"), "42501", "ALTER SYSTEM SET snowflake_id.max_wait = '1s'");
    // Only a superuser may change the server's files.
    run(&mut superuser, "ALTER SYSTEM SET snowflake_id.max_wait = '1s'");
    fails(&mut superuser, "22023", "ALTER SYSTEM SET snowflake_id.layout = '41/10/13'");
    fails(&mut superuser, "22023", "ALTER SYSTEM SET snowflake_id.epoch = 'tomorrow'");
    fails(&mut superuser, "22023", "ALTER SYSTEM SET snowflake_id.tick = '2ms'");
}

#[test]
fn only_superusers_see_the_registrys_connection_string_and_only_the_servers_files_set_it() {
    let mut server = Server::builder().setting("snowflake_id.registry", "service=one").start_with_extension();
    let mut superuser = server.connect();
    run(
        &mut superuser,
        "CREATE ROLE app LOGIN; CREATE ROLE watcher LOGIN; GRANT pg_read_all_settings TO watcher",
    );
    let show = "SHOW snowflake_id.registry";
    for role in ["postgres", "watcher"] {
        assert_eq!(one::<String>(&mut server.connect_as(role), show), "service=one", "{role}");
    }
    let mut app = server.connect_as("app");
    fails(&mut app, "42501", show);
    fails(&mut app, "42501", "SELECT current_setting('snowflake_id.registry')");
    let listed = "SELECT count(*) FROM pg_settings WHERE name = 'snowflake_id.registry'";
    assert_eq!(one::<i64>(&mut app, listed), 0);
    for session in [&mut superuser, &mut app] {
        let failure =
            session.batch_execute("SET snowflake_id.registry = 'service=two'").expect_err("refused");
        assert!(["55P02", "42501"].contains(&Failure::from(&failure).code.as_str()));
    }
    server.reload("snowflake_id.registry", "host=a,b target_session_attrs=read-write");
}

// ---- arguments ----

#[test]
fn a_number_of_ids_that_cannot_be_is_refused_and_costs_none() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let before = next(&mut session);
    let issued = status(&mut session).issued;
    for n in [-1, i32::MIN] {
        let failure = fails(&mut session, "22023", &format!("SELECT snowflake_nextval_batch({n})"));
        assert_tells(&failure, &[&n.to_string()]);
    }
    for n in [0, -1, 4_097, i32::MAX, i32::MIN] {
        let failure = fails(&mut session, "22023", &format!("SELECT snowflake_nextval_range({n})"));
        assert_tells(&failure, &[&n.to_string(), "4096"]);
    }
    fails(&mut session, "42883", "SELECT snowflake_nextval_batch(1::bigint)");
    // STRICT: null in, null out.
    assert!(column::<i64>(&mut session, "SELECT snowflake_nextval_batch(NULL)").is_empty());
    assert!(column::<i64>(&mut session, "SELECT id FROM snowflake_nextval_batch(NULL) id").is_empty());
    let row = session.query_one("SELECT first, last FROM snowflake_nextval_range(NULL)", &[]).unwrap();
    assert_eq!((row.get(0), row.get(1)), (None::<i64>, None::<i64>));
    assert!(column::<i64>(&mut session, "SELECT snowflake_nextval_batch(0)").is_empty());
    assert_eq!(status(&mut session).issued, issued);
    assert_eq!(one::<i64>(&mut session, "SELECT snowflake_lastval()"), before);
    // The largest that there is.
    let whole = "SELECT last - first + 1 FROM snowflake_nextval_range(4096)";
    assert_eq!(one::<i64>(&mut session, whole), 4_096);
    assert_eq!(status(&mut session).issued, issued + 4_096);
}

#[test]
fn before_the_first_id_of_a_session_there_is_no_last_one() {
    let server = Server::builder().start_with_extension();
    next(&mut server.connect());
    let mut session = server.connect();
    let undefined = ["not yet defined in this session", "generated no ID"];
    assert_tells(&fails(&mut session, "55000", "SELECT snowflake_lastval()"), &undefined);
}

/// A pool of sessions sends DISCARD ALL between two clients, so that neither sees what the other did.
#[test]
fn the_last_id_is_forgotten_with_what_a_session_discards() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(&mut session, "CREATE SEQUENCE s");
    let both = ["SELECT lastval()", "SELECT snowflake_lastval()"];
    for discard in ["DISCARD ALL", "DISCARD SEQUENCES", "DO $$ BEGIN EXECUTE 'DISCARD SEQUENCES'; END $$"] {
        run(&mut session, "SELECT nextval('s'), snowflake_nextval()");
        run(&mut session, discard);
        for last in both {
            fails(&mut session, "55000", last);
        }
    }
    // Statements that keep a sequence's last value keep ours.
    let id = next(&mut session);
    run(&mut session, "SELECT nextval('s')");
    for kept in ["DISCARD PLANS", "DISCARD TEMP", "RESET ALL", "DEALLOCATE ALL", "BEGIN; ROLLBACK"] {
        run(&mut session, kept);
        assert_eq!(one::<i64>(&mut session, "SELECT snowflake_lastval()"), id, "{kept}");
    }
    // A DISCARD that fails discards nothing.
    run(&mut session, "BEGIN");
    fails(&mut session, "25001", "DISCARD ALL");
    run(&mut session, "ROLLBACK");
    for last in both {
        run(&mut session, last);
    }
    assert_eq!(one::<i64>(&mut session, "SELECT snowflake_lastval()"), id);
    // Prepared, as drivers send it.
    let discard = session.prepare("DISCARD ALL").expect("prepare");
    session.execute(&discard, &[]).expect("it runs");
    fails(&mut session, "55000", "SELECT snowflake_lastval()");
    let id = next(&mut session);
    assert_eq!(one::<i64>(&mut session, "SELECT snowflake_lastval()"), id);
}

/// Utility statements pass through one extension after another, in either order.
#[test]
fn other_extensions_see_what_is_discarded_too() {
    if !has_contrib() {
        return;
    }
    for libraries in ["pg_stat_statements, snowflake_id", "snowflake_id, pg_stat_statements"] {
        let server = Server::builder().setting("shared_preload_libraries", libraries).start_with_extension();
        let mut session = server.connect();
        run(&mut session, "CREATE EXTENSION pg_stat_statements");
        next(&mut session);
        run(&mut session, "DISCARD SEQUENCES");
        fails(&mut session, "55000", "SELECT snowflake_lastval()");
        let seen = "SELECT calls FROM pg_stat_statements WHERE query = 'DISCARD SEQUENCES'";
        assert_eq!(one::<i64>(&mut session, seen), 1, "{libraries}");
    }
}

/// Rust's texts are UTF-8; a database's may be in another encoding.
#[test]
fn a_text_in_another_encoding_is_refused_as_any_other() {
    let server = Server::builder().start_with_extension();
    for (database, encoding) in [("latin", "LATIN1"), ("bytes", "SQL_ASCII"), ("korean", "EUC_KR")] {
        run(
            &mut server.connect(),
            &format!(
                "CREATE DATABASE {database} ENCODING {encoding} LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            ),
        );
        let mut session = server.config().dbname(database).connect(NoTls).expect("a session");
        run(&mut session, "CREATE EXTENSION snowflake_id");
        // These two bytes are one character in some of the encodings and two in others.
        let text = "E'\\xb0\\xa1345678901'";
        for call in [
            format!("snowflake_from_base62({text})"),
            format!("snowflake_decode(1, {text})"),
            format!("snowflake_worker(1, {text})"),
            format!("snowflake_decode(1, '41/10/12 1ms ' || {text})"),
            format!("snowflake_decode(1, '41/10/12 ' || {text} || ' 2015-01-01')"),
            format!("snowflake_decode(1, {text} || ' 1ms 2015-01-01')"),
        ] {
            let failure = fails(&mut session, "22023", &format!("SELECT {call}"));
            assert_tells(&failure, &["\\xb0\\xa1345678901"]);
        }
        // PostgreSQL's own message repeats the bytes, and cannot convert those of SQL_ASCII for the client.
        if encoding != "SQL_ASCII" {
            let refused = "ALTER SYSTEM SET snowflake_id.layout = E'\\xb0\\xa1'";
            assert_no_rust(&fails(&mut session, "22023", refused).text());
        }
        assert_eq!(one::<i32>(&mut session, "SELECT snowflake_worker(77 << 12, 'TWITTER')"), 77 & 31);
        let id = next(&mut session);
        let there_and_back = format!("SELECT snowflake_from_base62(snowflake_to_base62({id}))");
        assert_eq!(one::<i64>(&mut session, &there_and_back), id);
    }
    // In UTF-8, a message shows the text as it is.
    let mut session = server.connect();
    assert_tells(&fails(&mut session, "22023", "SELECT snowflake_from_base62('Zürich')"), &["Zürich"]);
    assert_tells(&fails(&mut session, "22023", "SELECT snowflake_decode(1, 'Zürich')"), &["Zürich"]);
}

/// Each argument that can be wrong, in the worst way.
#[test]
fn no_error_has_a_text_of_rust() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let layouts = [
        "",
        " ",
        "myspace",
        "41/10/12",
        "41/10/12 5ms 2015-01-01",
        "41/10/12 1ms yesterday",
        "41/10/12 1ms 2015-13-01",
        "41/10/12 1ms 2015-02-30T00:00:00Z",
        "41/10/12 1ms 2015-01-01T25:00:00Z",
        "41/10/12 1ms 2015-01-01T00:00:00",
        "41/10/12 1ms 99999-01-01T00:00:00Z",
        "41/10/12 1ms 2015-01-01T00:00:00+99:00",
        "41/10/14 1ms 2015-01-01",
        "0/10/12 1ms 2015-01-01",
        "64/0/0 1ms 2015-01-01",
        "20/1/40 1ms 2015-01-01",
        "99999999999/1/1 1ms 2015-01-01",
        "-1/1/1 1ms 2015-01-01",
        "41/+/12 1ms 2015-01-01",
        "41/s12/w 1ms 2015-01-01",
    ];
    let mut calls: Vec<String> =
        layouts.iter().map(|layout| format!("snowflake_decode(1, '{layout}')")).collect();
    for text in
        ["", "0", "00000000000000", "-0000000001", "+0000000001", "0000000000 ", "zzzzzzzzzzz", "0000000000é"]
    {
        calls.push(format!("snowflake_from_base62('{text}')"));
    }
    for id in ["-1", "-9223372036854775808"] {
        for function in ["snowflake_decode", "snowflake_owner", "snowflake_timestamp", "snowflake_to_base62"]
        {
            calls.push(format!("{function}('{id}'::bigint)"));
        }
        calls.push(format!("snowflake_decode('{id}'::bigint, 'instagram')"));
    }
    calls.push("snowflake_decode(9223372036854775807, '41/5/7 1ms 2015-01-01')".to_owned());
    for n in [i32::MIN, -1, 0, 4_097, i32::MAX] {
        calls.push(format!("snowflake_nextval_range({n})"));
    }
    calls.push("snowflake_nextval_batch(-1)".to_owned());
    for time in ["-infinity", "infinity", "0001-01-01 BC", "294276-12-31", "2023-12-31 23:59:59.999999+00"] {
        calls.push(format!("snowflake_min('{time}')"));
        calls.push(format!("snowflake_max('{time}')"));
        calls.push(format!("snowflake_encode('{time}', 0, 0)"));
    }
    for (worker, sequence) in [(-1, 0), (1_024, 0), (0, -1), (0, 4_096), (i32::MIN, i32::MAX)] {
        calls.push(format!("snowflake_encode(now(), {worker}, {sequence})"));
    }
    for epoch in ["-infinity", "infinity", "0001-12-31 BC", "294276-12-31"] {
        calls.push(format!("snowflake_generator_sql(1, epoch => '{epoch}')"));
    }
    calls.push("snowflake_adopt('infinity')".to_owned());
    calls.push("snowflake_lastval()".to_owned());
    for call in calls {
        let error = session.batch_execute(&format!("SELECT {call}")).expect_err(&call);
        let failure = Failure::from(&error);
        assert!(["22023", "22008", "55000", "0A000"].contains(&failure.code.as_str()), "{call}: {failure}");
        assert_tells(&failure, &[]);
    }
    // The words refer to what was asked for.
    let failure = fails(&mut session, "22023", "SELECT snowflake_nextval_range(0)");
    assert!(failure.message.contains("between 1 and") && failure.hint.is_empty(), "{failure}");
    let failure = fails(&mut session, "22023", "SELECT snowflake_decode(-1, 'instagram')");
    assert!(!failure.text().contains("never negative"), "{failure}");
    let failure = fails(&mut session, "22023", "SELECT snowflake_decode(1, '64/0/0 1ms 2015-01-01')");
    assert!(failure.detail.contains("has 64 bits"), "{failure}");
}

// ---- texts of any length ----

/// What an argument of a type is where another argument is tried.
const OTHERS: [(&str, &str); 23] = [
    ("bigint", "1"),
    ("bigint[]", "'{1}'::bigint[]"),
    ("boolean", "false"),
    ("integer", "1"),
    ("integer[]", "'{}'::integer[]"),
    ("interval", "interval '1 s'"),
    ("jsonb", "'[]'::jsonb"),
    ("name", "'x'"),
    ("numeric", "1"),
    ("oid", "1::oid"),
    ("oid[]", "'{}'::oid[]"),
    ("regclass", "'big'::regclass"),
    ("regclass[]", "'{big}'::regclass[]"),
    ("regnamespace", "'public'::regnamespace"),
    ("regprocedure", "'pg_catalog.now()'::regprocedure"),
    ("regrole", "'postgres'::regrole"),
    ("snowflake_internal.snowflake_key[]", "'{}'::snowflake_internal.snowflake_key[]"),
    ("snowflake_internal.snowflake_refusal", "NULL::snowflake_internal.snowflake_refusal"),
    ("snowflake_internal.snowflake_step[]", "'{}'::snowflake_internal.snowflake_step[]"),
    ("snowflake_base62", "'00000000001'::snowflake_base62"),
    ("text", "'x'"),
    ("timestamp with time zone", "now()"),
    ("uuid", "'00000000-0000-0000-0000-000000000007'::uuid"),
];

/// A call of each of the extension's functions for each text that it takes, with the text of the table `big`; and whether
/// it must leave the most of that where it is.
fn calls_with_a_big_text(session: &mut Client) -> Vec<(String, bool)> {
    let functions = session
        .query(
            "SELECT p.oid::regproc::text, has_function_privilege('nobody', p.oid, 'EXECUTE'),
                 obj_description(p.oid, 'pg_proc') LIKE 'internal: %', p.probin IS NOT NULL,
                 array(SELECT format_type(t, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, i)
                       ORDER BY i)
             FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
             WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')",
            &[],
        )
        .expect("the functions");
    let mut calls = vec![("t::snowflake_base62::text".to_owned(), true)];
    for function in &functions {
        let (name, is_public, is_internal): (String, bool, bool) =
            (function.get(0), function.get(1), function.get(2));
        let (is_compiled, types): (bool, Vec<String>) = (function.get(3), function.get(4));
        let others: Option<Vec<&str>> = types
            .iter()
            .map(|of_type| OTHERS.iter().find(|(name, _)| name == of_type).map(|(_, value)| *value))
            .collect();
        let Some(others) = others else {
            // A row, perhaps with texts; or what no SQL can pass.
            assert!(
                !is_public || types.iter().all(|of_type| of_type == "internal"),
                "{name}({types:?}) can be called by everybody"
            );
            continue;
        };
        for (at, of_type) in types.iter().enumerate() {
            if ["text", "snowflake_base62"].contains(&of_type.as_str()) {
                let mut arguments = others.clone();
                arguments[at] = "t";
                // A superuser's own calls in PL/pgSQL may fill memory.
                let is_bounded =
                    is_compiled || name.ends_with("_registry_contact") || is_public && !is_internal;
                calls.push((format!("{name}({})", arguments.join(", ")), is_bounded));
            }
        }
    }
    assert!(calls.len() > 12, "{calls:?}");
    calls
}

/// Whatever the length of a text, a function refuses it by what PostgreSQL has stored of its length, reads no more than
/// its beginning, and quotes no more than that.
#[test]
fn a_text_of_any_length_ends_no_process_and_fills_no_memory() {
    // Of the second, escaped, no message could be made: PostgreSQL has no text of a gigabyte.
    const TEXTS: [(&str, &str); 2] = [
        ("latin1", "repeat(repeat(chr(233), 1000), 269000)"),
        ("utf8", "repeat(repeat(chr(233), 1000), 100000)"),
    ];
    let mut server = Server::builder().start();
    run(&mut server.connect(), "CREATE ROLE nobody");
    for (encoding, text) in TEXTS {
        let create = format!("CREATE DATABASE {encoding} ENCODING {encoding} LC_COLLATE 'C' LC_CTYPE 'C'");
        run(&mut server.connect(), &format!("{create} TEMPLATE template0"));
        let mut session = server.config().dbname(encoding).connect(NoTls).expect("a session");
        run(&mut session, "CREATE TABLE big (t text); CREATE TABLE less (t text)");
        // Compressed by a hundred, as anybody can send it.
        run(&mut session, &format!("INSERT INTO big SELECT {text}"));
        run(&mut session, "INSERT INTO less SELECT left(t, 1000000) FROM big");
    }
    refuses_big_texts(&mut server, TEXTS);
    server.unset("shared_preload_libraries");
    server.unset("snowflake_id.worker_id");
    server.restart();
    refuses_big_texts(&mut server, TEXTS);
}

fn refuses_big_texts(server: &mut Server, texts: [(&str, &str); 2]) {
    for (encoding, text) in texts {
        let config = server.config().dbname(encoding).clone();
        let connect = || config.connect(NoTls).expect("a session");
        run(&mut connect(), "DROP EXTENSION IF EXISTS snowflake_id; CREATE EXTENSION snowflake_id");
        let calls = calls_with_a_big_text(&mut connect());
        let mut problems = Vec::new();
        for is_registry in [false, true] {
            if is_registry {
                run(&mut connect(), "SELECT snowflake_registry_create('nobody')");
            }
            let begin = || {
                let mut session = connect();
                let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
                (session, pid, process::peak_memory(pid))
            };
            // One session serves until it has needed some memory, because what calls need adds up.
            let mut begun = begin();
            for (call, is_bounded) in &calls {
                let (session, pid, before) = &mut begun;
                let table = if *is_bounded { "big" } else { "less" };
                let said =
                    session.query_one(&format!("SELECT octet_length(({call})::text) FROM {table}"), &[]);
                let length = match said {
                    Ok(row) => row.get::<_, Option<i32>>(0).unwrap_or_default() as usize,
                    Err(error) if error.is_closed() => {
                        problems.push(format!("{call}: the process ended"));
                        server.wait_until_ready();
                        begun = begin();
                        continue;
                    }
                    Err(error) => Failure::from(&error).text().len(),
                };
                let grown = process::peak_memory(*pid) - *before;
                if length >= 2_000 || grown >= 100_000_000 {
                    problems.push(format!("{call}: {length} bytes of text, {grown} of memory"));
                }
                if grown >= 50_000_000 {
                    begun = begin();
                }
            }
        }
        assert!(problems.is_empty(), "{encoding}: {problems:#?}");
        // Not stored: as it is in memory.
        let call = format!("SELECT snowflake_from_base62({text})");
        let failure = fails(&mut connect(), "22023", &call);
        assert!(failure.text().len() < 2_000 && failure.message.contains("..."), "{failure}");
    }
}

/// The names of columns that a trigger gets are texts, too.
#[test]
fn a_trigger_with_a_long_name_of_a_column_quotes_its_beginning() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let long = "é".repeat(5_000_000);
    run(
        &mut session,
        &format!(
            "CREATE TABLE t (id bigint);
             CREATE TRIGGER guard BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION snowflake_refuse_own_worker('{long}');
             ALTER TABLE t ENABLE REPLICA TRIGGER guard; SET session_replication_role = replica"
        ),
    );
    let failure = fails(&mut session, "42703", "INSERT INTO t VALUES (1)");
    assert_tells(&failure, &["column \"éé"]);
    assert!(failure.text().len() < 1_000, "{} bytes", failure.text().len());
}

/// ALTER SYSTEM can be granted, and a setting's value is a text.
#[test]
fn a_long_value_of_a_setting_is_refused_with_a_short_text() {
    let server = Server::builder().start();
    let mut session = server.connect();
    let long = "z".repeat(5_000_000);
    for name in ["layout", "epoch", "node_name"] {
        let failure =
            fails(&mut session, "22023", &format!("ALTER SYSTEM SET snowflake_id.{name} = '{long}'"));
        // The message is PostgreSQL's own.
        assert_no_rust(&failure.detail);
        assert!((20..400).contains(&failure.detail.len()), "{name}: {} bytes", failure.detail.len());
    }
}

#[test]
fn a_negative_id_is_refused() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    for id in ["-1", "-9223372036854775808"] {
        for function in [
            "snowflake_decode",
            "snowflake_owner",
            "snowflake_timestamp",
            "snowflake_worker",
            "snowflake_sequence",
        ] {
            let failure = fails(&mut session, "22023", &format!("SELECT {function}('{id}'::bigint)"));
            assert_tells(&failure, &[id]);
        }
        fails(&mut session, "22023", &format!("SELECT * FROM snowflake_decode('{id}'::bigint)"));
        fails(&mut session, "22023", &format!("SELECT (snowflake_decode('{id}'::bigint)).*"));
    }
    // The bounds of the layout can be read.
    let row = session
        .query_one(
            "SELECT d.worker_id, d.sequence, extract(epoch FROM d.created_at)::float8
             FROM snowflake_decode(9223372036854775807) AS d",
            &[],
        )
        .unwrap();
    assert_eq!((row.get(0), row.get(1)), (1_023, 4_095));
    let end: f64 = row.get(2);
    assert!((end - (1_704_067_200_000f64 + (1i64 << 41) as f64 - 1.0) / 1e3).abs() < 0.002, "{end}");
    assert_eq!(one::<i32>(&mut session, "SELECT snowflake_sequence(0)"), 0);
    assert_eq!(one::<Option<i32>>(&mut session, "SELECT snowflake_worker(NULL)"), None);
}

// ---- the end of time ----

/// A time field of 20 bits lasts 2^20 ms, a good 17 minutes.
const TINY: Layout = Layout { worker_bits: 10, sequence_bits: 12, tick_ms: 1, epoch_ms: 1_767_225_600_000 };
const TINY_TICKS: i64 = 1 << 20;

/// Enough for a cluster to be created and started.
const START: Duration = secs(300);

/// A server whose time field lasts for another `left`.
fn server_at_the_end(left: Duration) -> Server {
    let end = ms((TINY.epoch_ms + TINY_TICKS) as u64);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    // Starting the cluster takes time, so the last seconds begin only then.
    let server = Server::builder()
        .setting("snowflake_id.layout", "20/10/12")
        .setting("snowflake_id.epoch", "2026-01-01T00:00:00Z")
        .born(now - (end - left - START))
        .start_with_extension();
    let target = (end - left).as_micros() as i64;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    let by = u64::try_from(target - (now + server.clock().offset()));
    server.step_forward(Duration::from_micros(by.expect("a start within five minutes")));
    server
}

#[test]
fn an_exhausted_time_field_is_an_error_and_never_wraps() {
    let server = server_at_the_end(secs(5));
    let mut session = server.connect();
    let expires: i64 =
        one(&mut session, "SELECT (extract(epoch FROM expires_at) * 1000)::bigint FROM snowflake_status");
    assert_eq!(expires, TINY.epoch_ms + TINY_TICKS);
    assert_eq!(status(&mut session).state, "open");
    // Slowly, to the very end.
    let mut ids: Vec<i64> = Vec::new();
    let began = Instant::now();
    let failure = loop {
        match session.query_one("SELECT snowflake_nextval()", &[]) {
            Ok(row) => ids.push(row.get(0)),
            Err(e) => break Failure::from(&e),
        }
        assert!(began.elapsed() < secs(30), "it goes on for ever");
        std::thread::sleep(ms(2));
    };
    assert_eq!(failure.code, "55000", "{failure}");
    assert_tells(&failure, &["exhausted"]);
    assert!(ids.len() > 100);
    assert_ascending("until the end", &ids);
    let ticks = |id: i64| id >> 22;
    assert!(ids.iter().all(|id| *id > 0 && ticks(*id) < TINY_TICKS));
    let is_over = "SELECT clock_timestamp() >= expires_at FROM snowflake_status";
    assert!(one::<bool>(&mut session, is_over), "it ended too early");
    all_fail(&mut session, "55000", &["exhausted"]);
    let now = status(&mut session);
    assert_eq!(now.state, "closed");
    assert!(now.reason.expect("a reason").contains("exhausted"));
    // Nor does it come back when the field would have wrapped.
    server.step_forward(ms(TINY_TICKS as u64 - 1_000));
    all_fail(&mut session, "55000", &["exhausted"]);
    server.step_forward(hours(24));
    all_fail(&mut session, "55000", &["exhausted"]);
    // If the clock was only ahead, IDs are available again once it is corrected. (To a time after the server's start,
    // which may have taken minutes, because no worker generates IDs of a time before that.)
    let beyond =
        "SELECT (extract(epoch FROM clock_timestamp() - expires_at) * 1000)::bigint FROM snowflake_status";
    let beyond: i64 = one(&mut session, beyond);
    server.step_back(ms(beyond as u64) + secs(4));
    let id = next(&mut session);
    ids.push(id);
    assert!(id > 0 && ticks(id) < TINY_TICKS);
    let mut all = Ids::new();
    all.add("all", ids);
    all.assert_unique();
    assert_eq!(status(&mut session).state, "open");
}

#[test]
fn a_time_field_that_is_used_up_in_advance_is_an_error_too() {
    let server = server_at_the_end(secs(4));
    let mut session = server.connect();
    // Whole milliseconds, faster than the clock, so the last tick is reached ahead of time.
    run(&mut session, "CREATE TABLE made (first bigint, last bigint)");
    run(
        &mut session,
        "DO $$ DECLARE
             made record;
             firsts bigint[];
             lasts bigint[];
         BEGIN
             BEGIN
                 LOOP
                     made := snowflake_nextval_range(4096);
                     firsts := firsts || made.first;
                     lasts := lasts || made.last;
                 END LOOP;
             EXCEPTION WHEN object_not_in_prerequisite_state THEN
                 INSERT INTO made SELECT * FROM unnest(firsts, lasts);
             END;
         END $$",
    );
    all_fail(&mut session, "55000", &["exhausted"]);
    let row = session
        .query_one("SELECT min(first), max(last), count(*), count(DISTINCT first) FROM made", &[])
        .unwrap();
    let (lowest, highest, count, distinct): (i64, i64, i64, i64) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    assert!(lowest > 0);
    assert_eq!(highest >> 22, TINY_TICKS - 1, "to the last tick");
    assert_eq!(highest & 4_095, 4_095, "to the last ID of it");
    assert_eq!(count, distinct);
    all_fail(&mut session, "55000", &["exhausted"]);
}

#[test]
fn a_field_that_was_used_up_by_a_clock_ahead_is_not_the_end_when_the_clock_is_set_right() {
    let server = server_at_the_end(secs(600));
    let mut session = server.connect();
    let before = next(&mut session);
    // The clock is ahead by 10 minutes, and the last milliseconds are used up.
    server.step_forward(secs(596));
    let failure = fails(
        &mut session,
        "55000",
        "DO $$ BEGIN LOOP PERFORM snowflake_nextval_range(4096); END LOOP; END $$",
    );
    assert_tells(&failure, &["exhausted"]);
    server.step_back(secs(596));
    // As after any other step back: there are other lanes.
    let after = next(&mut session);
    assert_eq!((worker(before), worker(after)), (1, 513));
}

// ---- standbys ----

#[test]
fn a_standby_makes_no_ids_until_it_is_promoted() {
    let primary = Server::builder().start_with_extension();
    let mut ids = Ids::new();
    ids.add("the primary, before", take(&mut primary.connect(), 1_000));
    // A worker of its own, as the manual asks for.
    let standby = primary.standby(|settings| settings.setting("snowflake_id.worker_id", "2"));
    let mut session = standby.connect();
    all_fail(&mut session, "25006", &["standby"]);
    fails(&mut session, "25006", "SELECT snowflake_rotate()");
    let now = status(&mut session);
    assert_eq!(now.state, "recovery");
    assert!(now.reason.is_some_and(|reason| !reason.is_empty()));
    assert_eq!(now.issued, 0);
    // Reading works.
    let id = next(&mut primary.connect());
    assert_eq!(one::<i32>(&mut session, &format!("SELECT snowflake_worker({id})")), 1);

    standby.promote();
    let made = take(&mut session, 1_000);
    assert_ascending("the promoted standby", &made);
    // Timeline 2 starts on lane 1.
    assert!(made.iter().all(|id| worker(*id) == 2 + 256), "{}", worker(made[0]));
    ids.add("the promoted standby", made);
    let now = status(&mut session);
    assert_eq!((now.state.as_str(), now.lane, now.worker_id), ("open", Some(1), Some(258)), "{now:?}");
    ids.add("the primary, after", take(&mut primary.connect(), 1_000));
    ids.assert_unique();
}
