//! Settings that cannot be used: `ALTER SYSTEM` refuses them, and a server that starts with one generates no IDs. It says
//! why in its log, in its status and in each call.

use postgres::Client;
use snowflake_server_tests::ids::worker;
use snowflake_server_tests::refusals::{all_fail, assert_tells, closed_reason};
use snowflake_server_tests::sql::{fails, next, one, run, status};
use snowflake_server_tests::{Server, secs};

const LOGGED: &str = "snowflake_id: cannot generate IDs: ";

/// A server that is restarted again and again, each time with settings of which one cannot be used.
struct Misconfigured {
    server: Server,
    /// An ID that it generated before any setting was changed.
    newest: i64,
}

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

        let has_worker = can_read
            && !settings.iter().any(|(name, _)| name.contains("worker") || name.contains("registry"));
        let home: Option<i32> = one(&mut session, "SELECT home_worker_id FROM snowflake_status");
        assert!(home == Some(1) || !has_worker, "{settings:?}: {home:?}");
        let failure = fails(&mut session, "55000", "SELECT snowflake_nextval()");
        assert_eq!(closed_reason(&mut session), format!("{}: {}", failure.message, failure.detail));

        // The log has the same, once.
        let cause = failure.message.trim_start_matches("cannot generate a snowflake ID: ");
        let line = format!("{LOGGED}{cause}\nDETAIL:  {}\nHINT:  {}\n", failure.detail, failure.hint);
        let log = self.server.wait_for_worker(&format!("{line:?} in the log"), secs(10), |_| {
            Some(self.server.log().split_off(is_read_from)).filter(|log| log.contains(&line))
        });
        assert_eq!(log.matches(LOGGED).count(), 1, "{log}");

        let read = format!("snowflake_timestamp({})", self.newest);
        let layout = "SELECT layout IS NOT NULL AND epoch IS NOT NULL FROM snowflake_status";
        assert_eq!(one::<bool>(&mut session, layout), can_read, "{settings:?}");
        if can_read {
            run(&mut session, &format!("SELECT {read}"));
        } else {
            for call in [
                &read,
                "snowflake_encode(now(), 1, 1)",
                "snowflake_generator_sql(1, layout => '41/10/12')",
                "snowflake_reader_sql()",
            ] {
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
        server.is_closed(&[(worker, value)], &[worker, value, "worker_id must be 0 to 255."], true);
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
    assert_eq!(one::<i32>(&mut session, "SELECT snowflake_server(773::bigint << 12)"), 5);
}

/// Two sources of one number: which of them counts is nothing to guess.
#[test]
fn a_worker_beside_a_registry_closes_the_generator() {
    let mut server = Misconfigured::new();
    for worker in ["0", "1"] {
        server.is_closed(
            &[("snowflake_id.registry", "host=/nowhere"), ("snowflake_id.worker_id", worker)],
            &["snowflake_id.registry is set, and the registry assigns this server's worker."],
            true,
        );
    }
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
    let why = "Layout 41/1/12 has 2 workers; backup_workers = 3 needs 4.";
    all_fail(&mut session, "55000", &[backups, "\"3\"", why]);
    assert_eq!(one::<i32>(&mut session, "SELECT snowflake_worker(1 << 12)"), 1);
    // The owner of a worker depends on that number.
    assert_tells(&fails(&mut session, "55000", "SELECT snowflake_server(1 << 12)"), &[backups]);
    new.set(backups, "0");
    new.restart();
    next(&mut new.connect());
    server.opens();
}

#[test]
fn a_layout_that_does_not_add_up_closes_the_generator_and_no_id_is_read() {
    let layout = "snowflake_id.layout";
    let mut server = Misconfigured::new();
    // properties::layouts has all that cannot be read.
    for value in ["41/10/13", "41/10", "0/10/12", "41/10/x", "64/0/0", "4294967296/10/12", ""] {
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
        server.is_closed(&[(tick, value)], &[tick, value], false);
    }
    server.opens();
}

#[test]
fn an_epoch_that_cannot_be_read_closes_the_generator_and_no_id_is_read() {
    let epoch = "snowflake_id.epoch";
    let mut server = Misconfigured::new();
    for (value, why) in [
        ("yesterday", "not a valid date and time"),
        ("2024-01-01T00:00:00", "no offset"),
        ("2024-13-01T00:00:00Z", "not a valid date and time"),
        ("2024-01-01T00:00:00 Europe/Berlin", "not a valid date and time"),
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
    server.is_closed(&[("snowflake_id.node_name", &long)], &["takes 65 characters"], true);
    server.is_closed(
        &[("snowflake_id.layout", "41/5+5/12"), ("snowflake_id.datacenter_id", "32")],
        &["\"32\"", "With layout 41/5+5/12, datacenter_id must be at most 31."],
        false,
    );
    // Ignored, it would leave the servers of two datacenters with one worker.
    server.is_closed(&[("snowflake_id.datacenter_id", "1")], &["\"1\"", "at most 0."], false);
    server.opens();
}

#[test]
fn a_standby_whose_settings_cannot_be_used_says_so_and_follows() {
    let primary = Server::builder().start_with_extension();
    let standby = primary.standby(|settings| settings.setting("snowflake_id.worker_id", "300"));
    standby.wait_for_worker("a line in the standby's log about an invalid value", secs(10), |_| {
        standby.log().contains(&format!("{LOGGED}invalid value")).then_some(())
    });
    let mut session = standby.connect();
    assert!(closed_reason(&mut session).contains("snowflake_id.worker_id"));
    let id = next(&mut primary.connect());
    assert_eq!(one::<i32>(&mut session, &format!("SELECT snowflake_worker({id})")), 1);
    standby.promote();
    all_fail(&mut session, "55000", &["snowflake_id.worker_id", "0 to 255"]);
}

// ---- settings that are missing ----

#[test]
fn without_preloading_the_extension_can_be_created_but_makes_no_ids() {
    // A later line has overridden the one with snowflake_id, and the error shows it to those who may see it.
    let server = Server::builder().setting("shared_preload_libraries", "plpgsql").start_with_extension();
    let mut session = server.connect();
    all_fail(&mut session, "55000", &["It started with shared_preload_libraries = 'plpgsql'."]);
    run(&mut session, "CREATE ROLE clerk LOGIN");
    let failure = fails(&mut server.connect_as("clerk"), "55000", "SELECT snowflake_nextval()");
    assert!(!failure.text().contains("plpgsql"), "{failure}");
    // Reading by this server's own layout needs its settings.
    for call in [
        "snowflake_timestamp(1)",
        "snowflake_server(1)",
        "snowflake_decode(1)",
        "snowflake_encode(now(), 0, 0)",
        "snowflake_min(now())",
        "snowflake_max(now())",
        "snowflake_between(1, '2026-01-01', '2026-01-02')",
    ] {
        assert_tells(&fails(&mut session, "55000", &format!("SELECT {call}")), &["must be loaded via"]);
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
    let server =
        Server::builder().without("snowflake_id.worker_id").setting("max_prepared_transactions", "1");
    let server = server.start_with_extension();
    let mut session = server.connect();
    all_fail(&mut session, "55000", &["snowflake_id.worker_id is not set", "from 0 to 255"]);
    assert!(closed_reason(&mut session).contains("snowflake_id.worker_id is not set"));
    let log = server.wait_for_worker("a line in the log about worker_id", secs(10), |_| {
        Some(server.log()).filter(|log| log.contains(LOGGED))
    });
    assert_eq!(log.matches(LOGGED).count(), 1, "{log}");
    // Reading needs no worker.
    assert_eq!(one::<i32>(&mut session, "SELECT snowflake_worker((77 << 12)::bigint)"), 77);
    run(&mut session, "BEGIN; PREPARE TRANSACTION 'p'");
    run(&mut session, "ROLLBACK PREPARED 'p'");
    // A server that does not preload the library logs nothing.
    let plain = Server::builder().without("shared_preload_libraries").start_with_extension();
    assert!(!plain.log().contains("snowflake_id:"), "{}", plain.log());
}

// ---- what the log has ----

/// Two faults are two lines, and neither mentions the default that replaces a bad value, nor what does not fit it.
#[test]
fn each_value_that_cannot_be_used_is_told_once() {
    for (bad, others) in [
        ([("layout", "28/22/14"), ("max_wait", "soon")], [("worker_id", "500000"), ("datacenter_id", "1")]),
        ([("backup_workers", "16"), ("max_ahead", "-1")], [("worker_id", "300"), ("datacenter_id", "0")]),
    ] {
        let builder = bad.iter().chain(&others).fold(Server::builder(), |builder, (name, value)| {
            builder.setting(&format!("snowflake_id.{name}"), value)
        });
        let server = builder.start_with_extension();
        let log = server.wait_for_worker("two lines in the log about settings", secs(10), |_| {
            Some(server.log()).filter(|log| log.matches(LOGGED).count() >= 2)
        });
        assert_eq!(log.matches(LOGGED).count(), 2, "{log}");
        for (name, _) in bad {
            let line = format!("{LOGGED}invalid value for parameter \"snowflake_id.{name}\"");
            assert!(log.contains(&line), "{line} is missing in {log}");
        }
    }
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
        server.wait_for_worker(&format!("{line:?} and a HINT in the collected log"), secs(10), |_| {
            let log = std::fs::read_to_string(server.data().join("collected/log")).unwrap_or_default();
            let told = log.lines().skip_while(|told| !told.contains(&format!("{LOGGED}{line}")));
            told.take(3).any(|told| told.contains("HINT:")).then_some(())
        });
    }
}

// ---- before they come into force ----

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
        ("tick", "2ms"),
        ("epoch", "2024-13-01T00:00:00Z"),
        ("epoch", "2024-01-01"),
        ("rollback_policy", "repeat"),
        ("sequence_start", "one"),
        ("max_ahead", "11min"),
        ("max_wait", "soon"),
        ("node_name", "two\tparts"),
        ("node_name", &"n".repeat(65)),
        ("node_name", &"é".repeat(9)),
    ] {
        let statement = format!("ALTER SYSTEM SET snowflake_id.{setting} = '{value}'");
        let failure = fails(&mut session, "22023", &statement);
        assert!(failure.message.contains(setting), "{failure}");
        assert!(value != "41/10/13" || failure.detail.contains(" need 64 bits"), "{failure}");
    }
    for (setting, value) in
        [("max_ahead", "10min"), ("max_wait", "10min"), ("node_name", &"n".repeat(64)), ("node_name", "é a")]
    {
        run(&mut session, &format!("ALTER SYSTEM SET snowflake_id.{setting} = '{value}'"));
    }
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
    server.set("Snowflake_ID.layout", "41/5+5/12");
    assert_tells(&fails(&mut session, "22023", &worker(10)), &["41/5+5/12", "0 to 9"]);
    run(&mut session, &worker(9));
    let datacenter = "ALTER SYSTEM SET snowflake_id.datacenter_id = 32";
    assert_tells(&fails(&mut session, "22023", datacenter), &["41/5+5/12", "at most 31"]);
    run(&mut session, "ALTER SYSTEM SET snowflake_id.layout = '41/10/12'");
    assert_tells(&fails(&mut session, "22023", datacenter), &["41/10/12", "at most 0", "set those first"]);
    run(&mut session, &worker(340));
    server.restart();
    assert_eq!(worker_of_this_server(&mut server.connect()), 340);
    // If the layout cannot be read, or has no room for any worker with its backup workers, the worker is not to blame.
    run(&mut server.connect(), "ALTER SYSTEM RESET ALL");
    for layout in ["twitter", "41/1/21"] {
        server.set("snowflake_id.layout", layout);
        run(&mut server.connect(), &worker(1_000));
    }
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
