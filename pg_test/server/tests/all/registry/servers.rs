//! A fleet with a registry: no worker is set by hand, and none is used twice, whatever becomes of servers and registry.

use postgres::Client;
use snowflake_server_tests::fleet::{check, home, ids, member, registry};
use snowflake_server_tests::ids::{Ids, worker};
use snowflake_server_tests::sql::{Failure, column, fails, one, run, wait_for_id};
use snowflake_server_tests::{Kind, Server, Stop, Traffic, ms, secs, wait_until};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::thread;
use std::time::{Instant, SystemTime};

fn error(session: &mut Client) -> Failure {
    Failure::from(&session.query_one("SELECT snowflake_nextval()", &[]).expect_err("a refusal"))
}

/// Waits until the lease has ended; returns the refusal of a call.
#[track_caller]
fn end_of_lease(session: &mut Client) -> Failure {
    wait_until("the lease to end", secs(60), || {
        session.query_one("SELECT snowflake_nextval()", &[]).err().map(|refused| Failure::from(&refused))
    })
}

#[test]
fn servers_that_start_at_once_without_a_worker_get_workers_of_their_own() {
    let registry = registry("1 hour");
    let servers: Vec<Server> = thread::scope(|scope| {
        let start = |i: usize| {
            let builder = member(&registry, &format!("node-{i}"));
            scope.spawn(move || builder.start_with_extension())
        };
        let started: Vec<_> = (0..8).map(start).collect();
        started.into_iter().map(|server| server.join().expect("it starts")).collect()
    });
    let homes: BTreeSet<i32> = servers.iter().map(home).collect();
    assert_eq!(homes.len(), 8);
    let generated: Vec<Vec<i64>> = servers.iter().map(|server| ids(server, 1_000)).collect();
    check(&generated);

    // What the registry knows of it.
    let mut session = registry.connect();
    let names: Vec<String> = column(&mut session, "SELECT node_name FROM snowflake_fleet ORDER BY node_name");
    assert_eq!(names, (0..8).map(|i| format!("node-{i}")).collect::<Vec<_>>());
    for (i, ids) in generated.iter().enumerate() {
        let origin: String =
            one(&mut session, &format!("SELECT node_name FROM snowflake_origin({})", ids[0]));
        assert_eq!(origin, format!("node-{i}"));
    }
}

#[test]
fn a_lease_survives_restarts_and_crashes_without_the_registry() {
    let mut registry = registry("1 hour");
    let mut server = member(&registry, "a").start_with_extension();
    let before = home(&server);
    let first = ids(&server, 10);
    registry.stop(Stop::Immediate);
    server.crash();
    server.start();
    let second = ids(&server, 10);
    server.restart();
    let third = ids(&server, 10);
    assert!(first.iter().max() < second.iter().min() && second.iter().max() < third.iter().min());
    assert!([first, second, third].concat().iter().all(|id| worker(*id) % 256 == i64::from(before)));
    let state: String = one(&mut server.connect(), "SELECT registry_state FROM snowflake_status");
    assert_eq!(state, "away");
}

#[test]
fn without_the_registry_ids_end_with_the_lease_and_come_again_with_it() {
    let mut registry = registry("15 s");
    let server = member(&registry, "a").start_with_extension();
    home(&server);
    let mut session = server.connect();
    registry.stop(Stop::Immediate);
    let mut generated = Vec::new();
    let refusal = wait_until("the lease to end", secs(60), || {
        match session.query_one("SELECT snowflake_nextval()", &[]) {
            Ok(row) => generated.push(row.get::<_, i64>(0)),
            Err(refused) => return Some(Failure::from(&refused)),
        }
        thread::sleep(ms(20));
        None
    });
    assert_eq!(refusal.code, "55000");
    assert!(refusal.message.contains("did not renew this server's lease in time"), "{}", refusal.text());
    assert!(!generated.is_empty());
    let state: String = one(&mut session, "SELECT registry_state FROM snowflake_status");
    assert_eq!(state, "ended");
    // A contact that failed is no answer.
    assert!(one::<bool>(&mut session, "SELECT last_contact_at < granted_until FROM snowflake_status"));
    let rotation = fails(&mut session, "55000", "SELECT snowflake_rotate()");
    assert_eq!(
        rotation.message,
        refusal.message.replace("generate a snowflake ID", "execute snowflake_rotate")
    );
    let beyond = "SELECT count(*) FROM unnest($1::bigint[]) AS id, snowflake_status
                  WHERE snowflake_timestamp(id) >= granted_until";
    assert_eq!(session.query_one(beyond, &[&generated]).expect("counted").get::<_, i64>(0), 0);

    server.wait_for_line("could not contact the registry", secs(60));
    let ended = "snowflake_id: this server's lease ended, and it generates no IDs\nDETAIL:  The lease of worker 0 ended at ";
    let rest = server.wait_for_line(ended, secs(60));
    let why = "+00. The last contact with the registry brought no lease: connection to server on socket";
    assert!(rest.contains(why), "{rest}");
    // At least one more contact fails, before which the registrar looks at the lease again.
    thread::sleep(secs(15));
    assert_eq!(server.log().matches(ended).count(), 1, "{}", server.log());
    registry.start();
    wait_for_id(&mut session);
    server.wait_for_line("the registry answers again", secs(60));
}

/// Nobody asks this server for an ID meanwhile, which would ask for a renewal.
#[test]
fn a_lease_shorter_than_the_time_between_contacts_is_renewed_before_its_end() {
    let registry = registry("6 s");
    let server = member(&registry, "a").start_with_extension();
    home(&server);
    let mut session = registry.connect();
    let lease =
        "SELECT extract(epoch FROM last_contact_at)::float8, extract(epoch FROM granted_until)::float8
                 FROM snowflake_fleet";
    let mut read = || -> (f64, f64) {
        let row = session.query_one(lease, &[]).expect("a lease");
        (row.get(0), row.get(1))
    };
    let mut before = read();
    wait_until("a renewal of a lease that runs", secs(60), || {
        let (contact, end) = read();
        let ended = std::mem::replace(&mut before, (contact, end)).1;
        (contact < ended && end > ended).then_some(())
    });
}

/// What a contact needs to connect is no difference of clocks.
#[test]
fn a_slow_way_to_the_registry_is_not_taken_for_a_wrong_clock() {
    let registry = registry("1 h");
    let mut session = registry.connect();
    run(&mut session, "ALTER SYSTEM SET post_auth_delay = 2");
    run(&mut session, "SELECT pg_reload_conf()");
    let patient = format!("{} connect_timeout=20", registry.registry_string());
    let _server = member(&registry, "a").setting("snowflake_id.registry", &patient).start();
    wait_until("a contact by the same clock", secs(60), || {
        let clock = "SELECT max(clock_offset_ms) > -2000 FROM snowflake_fleet";
        one::<Option<bool>>(&mut session, clock).filter(|is_same| *is_same)
    });
}

#[test]
fn a_server_without_room_for_the_registrar_says_why_its_lease_ended() {
    let registry = registry("4 s");
    let mut server = member(&registry, "a").start_with_extension();
    home(&server);
    server.stop(Stop::Fast);
    server.set("max_worker_processes", "0");
    server.start();
    let mut session = server.connect();
    let refusal = end_of_lease(&mut session);
    assert!(refusal.detail.contains("\"snowflake_id registrar\" does not run"), "{refusal}");
    // The hint names no view, because none shows the process.
    let shown = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'snowflake%'";
    server.set("max_worker_processes", "8");
    server.stop(Stop::Fast);
    server.start();
    home(&server);
    assert_eq!(one::<i64>(&mut server.connect(), shown), 0);
}

#[test]
fn a_copy_of_a_server_is_another_node_beside_its_original() {
    let registry = registry("1 hour");
    let mut original = member(&registry, "a").start_with_extension();
    home(&original);
    let before = ids(&original, 100);
    let mut copy = original.copy();
    original.start();
    copy.start();
    let pair = [ids(&original, 10_000), {
        home(&copy);
        ids(&copy, 10_000)
    }];
    check(&pair);
    // The copy was made of a server that had given its workers back: either can have them now.
    let mut all = Ids::new();
    all.add("before, and both", [before, pair.concat()].concat());
    all.assert_unique();
}

/// Nobody fences the old primaries: each of them goes on beside its successors.
#[test]
fn old_primaries_beside_their_successors_over_three_timelines_repeat_nothing() {
    let registry = registry("1 hour");
    let first = member(&registry, "first").start_with_extension();
    home(&first);
    let second = first.standby(|builder| builder.setting("snowflake_id.node_name", "second"));
    let third = second.standby(|builder| builder.setting("snowflake_id.node_name", "third"));
    let of_registry = "SELECT string_agg(in_recovery::text, ' ' ORDER BY in_recovery) FROM snowflake_fleet";
    let mut session = registry.connect();
    wait_until("leases of the standbys", secs(30), || {
        (one::<String>(&mut session, of_registry) == "false true true").then_some(())
    });
    second.promote();
    let of_second = ids(&second, 1_000);
    third.promote();
    let of_third = ids(&third, 1_000);
    check(&[ids(&first, 1_000), [of_second, ids(&second, 1_000)].concat(), of_third]);
}

#[test]
fn registry_removed_by_a_reload_is_logged_and_is_the_reason_once_the_lease_ends() {
    let registry = registry("6 s");
    let mut server = member(&registry, "a").faketime(true).start_with_extension();
    let before = home(&server);
    server.set("snowflake_id.registry", "");
    server.reread_settings();
    let mut session = server.connect();
    let refusal = end_of_lease(&mut session);
    let hint = "snowflake_id.registry is not set.\nHINT: Set snowflake_id.registry, and reload the settings.";
    assert!(refusal.text().ends_with(hint), "{refusal}");
    assert_eq!(server.log().matches("snowflake_id.registry was removed").count(), 1, "{}", server.log());
    server.set("snowflake_id.registry", &registry.registry_string());
    server.reread_settings();
    wait_for_id(&mut session);
    assert_eq!(home(&server), before);
    // A clock before the lease's floor leaves no lane; the registry assigns the worker, whatever the settings say.
    server.step_back(secs(3_600));
    let failure = fails(&mut session, "55000", "SELECT snowflake_nextval()");
    assert_eq!(failure.hint, "Wait until then, or correct the clock if it is wrong.", "{failure}");
}

/// As the manual says: with another registry, and without the state that belongs to the old one.
#[test]
fn a_fleet_moves_to_another_epoch_with_another_registry() {
    let registry = registry("6 s");
    let mut server = member(&registry, "a").start_with_extension();
    home(&server);
    let before = ids(&server, 100);
    server.stop(Stop::Fast);
    let create = "CREATE EXTENSION snowflake_id;
                  SELECT snowflake_registry_create('node', epoch => '2020-01-01Z')";
    run(&mut registry.connect(), "CREATE DATABASE other");
    run(&mut registry.config().dbname("other").connect(postgres::NoTls).expect("a session"), create);
    server.set("snowflake_id.epoch", "2020-01-01T00:00:00Z");
    server.start();
    let mut session = server.connect();
    let refused = wait_until("registry_error in snowflake_status", secs(30), || {
        // A refusal is an answer.
        let state = "SELECT registry_error FROM snowflake_status WHERE num_nulls(registry_error, last_contact_at) = 0";
        session.query_opt(state, &[]).expect("the view").map(|row| row.get::<_, String>(0))
    });
    assert!(refused.contains("layout"), "{refused}");

    server.stop(Stop::Fast);
    fs::remove_dir_all(server.data().join("snowflake_id")).expect("the state");
    server.set("snowflake_id.registry", &registry.registry_string().replace("postgres", "other"));
    server.start();
    assert!(error(&mut server.connect()).message.contains("differs"), "the database has the old epoch");
    run(&mut server.connect(), "SELECT snowflake_change_layout()");
    home(&server);
    let after = ids(&server, 100);
    assert!(before.iter().max() < after.iter().min(), "{before:?} {after:?}");
}

#[test]
fn a_rebooted_host_is_a_new_node_and_needs_the_registry() {
    let mut registry = registry("1 hour");
    let mut server = member(&registry, "a").start_with_extension();
    let first = home(&server);
    let mut generated = ids(&server, 100);
    // A container has a new `/dev/shm` at each start.
    server.stop(Stop::Fast);
    fs::remove_file(server.lock_file()).expect("the lock file");
    server.start();
    assert_ne!(home(&server), first);
    generated.extend(ids(&server, 100));

    // The host loses its power.
    server.crash();
    fs::remove_file(server.lock_file()).expect("the lock file");
    registry.stop(Stop::Immediate);
    server.start();
    let mut session = server.connect();
    let refused = wait_until("a contact", secs(60), || {
        let refused = error(&mut session);
        refused.detail.contains("last contact").then_some(refused)
    });
    assert_eq!(refused.code, "55000");
    let message = "the registry has assigned no worker to this server";
    assert!(refused.message.contains(message), "{}", refused.text());
    registry.start();
    wait_for_id(&mut session);
    generated.extend(ids(&server, 100));
    let mut all = Ids::new();
    all.add("the server", generated);
    all.assert_unique();
}

/// A registry in doubt renews leases, and claims wait for an hour.
#[test]
fn clean_restarts_in_doubt_wait_for_nothing() {
    let registry = registry("1 hour");
    let mut servers: Vec<Server> =
        (0..5).map(|i| member(&registry, &format!("node-{i}")).start_with_extension()).collect();
    let homes: Vec<i32> = servers.iter().map(home).collect();
    let mut session = registry.connect();
    run(&mut session, "UPDATE snowflake_internal.snowflake_registry SET written_in = 'timeline 0'");
    let is_in_doubt = "SELECT free_from BETWEEN now() + interval '59 min' AND now() + interval '2 h'
                       FROM snowflake_fleet_capacity";
    wait_until("the doubt", secs(60), || one::<bool>(&mut session, is_in_doubt).then_some(()));
    let mut generated = Vec::new();
    for (server, home) in servers.iter_mut().zip(homes) {
        let mut of_server = ids(server, 100);
        server.restart();
        let began = Instant::now();
        of_server.extend(ids(server, 100));
        println!("{:?} after a restart", began.elapsed());
        assert!(of_server.iter().all(|id| worker(*id) % 256 == i64::from(home)));
        generated.push(of_server);
    }
    check(&generated);
}

/// The registry's clock is an hour ahead. The server outside waits until its own has passed what is returned.
#[test]
fn reservation_by_a_clock_ahead_repeats_nothing() {
    let registry = Server::builder().without_library().faketime(true).start();
    run(
        &mut registry.connect(),
        "CREATE ROLE node LOGIN; CREATE EXTENSION snowflake_id;
         SELECT snowflake_registry_create('node', '20 s', clock_tolerance => '2 s')",
    );
    let member = member(&registry, "a").start_with_extension();
    let number = home(&member);
    let traffic = Traffic::start(&member, &[Kind::Batch(50); 2], ms(1));
    traffic.go_on(20);
    // By this clock the lease has passed; the server still has it, and a node so far behind renews nothing.
    registry.clock().forward(secs(3_600));
    let reserve = format!("SELECT snowflake_registry_reserve({number}, 'by hand')");
    let passed: SystemTime = one(&mut registry.connect(), &reserve);
    let end: SystemTime = one(&mut member.connect(), "SELECT granted_until FROM snowflake_status");
    let mut outside = Server::builder()
        .setting("snowflake_id.worker_id", &number.to_string())
        .setting("snowflake_id.backup_workers", "3")
        .create();
    traffic.go_on(20);
    wait_until("the time that was returned", secs(60), || (SystemTime::now() > passed).then_some(()));
    outside.start();
    run(&mut outside.connect(), "CREATE EXTENSION snowflake_id");
    let mut of_outside = ids(&outside, 5_000);
    // The node generates IDs as long as it can.
    while SystemTime::now() < end {
        of_outside.extend(ids(&outside, 1_000));
    }
    let mut all = Ids::new();
    let of_node: Vec<i64> = traffic.finish().iter().flat_map(|call| call.ids().to_vec()).collect();
    assert!(of_node.len() > 1_000, "{} IDs", of_node.len());
    println!("{} IDs", of_node.len() + of_outside.len());
    all.add("outside", of_outside);
    all.add("the node", of_node);
    all.assert_unique();
}

/// A host that slept: its clock jumps past the lease's end, and the next regular contact is 10 s away.
#[test]
fn call_after_a_sleep_past_the_lease_hastens_a_contact() {
    let registry = Server::builder().start_registry();
    let until = "UPDATE said SET until = floor(extract(epoch FROM now() - '2024-01-01Z') * 1000) + 3600000";
    run(&mut registry.connect(), until);
    let server =
        Server::builder().member_of(&registry.registry_string()).faketime(true).start_with_extension();
    let pause = "SELECT extract(epoch FROM max(at) - min(at))::float8 FROM
                 (SELECT at FROM asked ORDER BY at DESC LIMIT 2) AS contacts";
    let mut session = server.connect();
    wait_until("the gate", secs(60), || session.query_one("SELECT snowflake_nextval()", &[]).ok());
    // Regular contacts are 8 s apart at least. A busy machine may be late with the call.
    let hastened = (0..10).find(|_| {
        let before = registry.contacts();
        wait_until("a regular contact", secs(60), || (registry.contacts() > before).then_some(()));
        let before = registry.contacts();
        server.clock().forward(secs(7_200));
        let refusal = error(&mut session);
        assert!(refusal.detail.ends_with("This server asks the registry to renew it."), "{refusal}");
        wait_until("a contact", secs(60), || (registry.contacts() > before).then_some(()));
        let pause: f64 = one(&mut registry.connect(), pause);
        server.clock().back(secs(7_200));
        pause < 7.5
    });
    assert!(hastened.is_some(), "no call has hastened a contact");
    // And one contact alone.
    let before = registry.contacts();
    wait_until("two more contacts", secs(60), || (registry.contacts() > before + 1).then_some(()));
    let pause: f64 = one(&mut registry.connect(), pause);
    assert!(pause > 7.5, "{pause} s");
}

#[test]
fn a_member_has_its_datacenter_and_the_workers_of_its_lease() {
    let registry = super::nodes::registry(", layout => '41/5+5/12', datacenter_id => 31");
    run(&mut registry.connect(), "SELECT snowflake_registry_reserve(0, 'by hand')");
    let builder = Server::builder().member_of(&registry.registry_string());
    let builder = builder.setting("snowflake_id.layout", "41/5+5/12");
    let server = builder.setting("snowflake_id.datacenter_id", "31").start_with_extension();
    assert_eq!(home(&server), 1);
    let workers = "SELECT worker_id FROM snowflake_workers ORDER BY lane";
    assert_eq!(column::<i32>(&mut server.connect(), workers), [1, 9, 17, 25]);
}

#[test]
fn a_refusal_during_a_lease_neither_ends_it_nor_passes_for_a_grant() {
    let registry = Server::builder().start_registry();
    run(&mut registry.connect(), "UPDATE said SET until = 2000000000000");
    let server = Server::builder().member_of(&registry.registry_string()).start_with_extension();
    home(&server);
    run(&mut registry.connect(), "UPDATE said SET answer = 'refused', detail = 'Not now.'");
    let shown = "SELECT format('%s %s', state, registry_state) FROM snowflake_status WHERE registry_error = 'Not now.'";
    let mut session = server.connect();
    let shown = wait_until("the refusal in snowflake_status", secs(60), || {
        session.query_opt(shown, &[]).expect("the view").map(|row| row.get::<_, String>(0))
    });
    assert_eq!(shown, "open away");
}

/// The number that it had may be another server's.
#[test]
fn a_server_whose_lease_is_over_shows_no_worker() {
    let registry = registry("1 hour");
    let server = member(&registry, "a").start_with_extension();
    home(&server);
    let mut operator = registry.connect();
    run(&mut operator, "SELECT snowflake_registry_reserve(n, 'no server') FROM generate_series(1, 255) AS n");
    run(&mut operator, "SELECT snowflake_registry_retire('a')");
    let shown =
        "SELECT registry_error LIKE 'Every worker is leased%' AND num_nulls(home_worker_id, worker_id) = 2
                 AND registry_state = 'lost' FROM snowflake_status";
    let mut session = server.connect();
    wait_until("no worker", secs(60), || one::<Option<bool>>(&mut session, shown)?.then_some(()));
}

/// The volume of a stopped server is set back to a snapshot of an earlier run: boot, device, inode and time of birth are
/// the same.
#[test]
fn a_volume_that_was_rolled_back_is_a_new_node() {
    let registry = registry("1 hour");
    let mut server = member(&registry, "a").start_with_extension();
    let first = home(&server);
    let file = server.data().join("snowflake_id/state");
    let snapshot = fs::read(&file).expect("the state file");
    let mut generated = ids(&server, 1_000);
    server.restart();
    assert_eq!(home(&server), first);
    generated.extend(ids(&server, 1_000));
    server.stop(Stop::Fast);
    let state = OpenOptions::new().write(true).open(&file).expect("the state file");
    state.write_all_at(&snapshot, 0).expect("the snapshot");
    server.start();
    assert_ne!(home(&server), first);
    generated.extend(ids(&server, 1_000));
    let mut all = Ids::new();
    all.add("the server", generated);
    all.assert_unique();
}

#[test]
fn a_server_whose_lease_is_over_goes_on_with_another_worker_without_a_restart() {
    let registry = registry("1 hour");
    let server = member(&registry, "a").start_with_extension();
    let first = home(&server);
    let before = ids(&server, 100);
    run(&mut registry.connect(), "SELECT snowflake_registry_retire('a')");
    let second = wait_until("another worker", secs(40), || {
        let home: Option<i32> = one(&mut server.connect(), "SELECT home_worker_id FROM snowflake_status");
        home.filter(|home| *home != first)
    });
    let after = ids(&server, 100);
    assert!(after.iter().all(|id| worker(*id) % 256 == i64::from(second)));
    let mut all = Ids::new();
    all.add("before", before);
    all.add("after", after);
    all.assert_unique();
    server.wait_for_line("the registry ended this server's lease", secs(30));
}

/// They may name what only some roles see in `snowflake_id.registry`.
#[test]
fn causes_of_a_missing_lease_are_told_only_to_roles_that_see_all_settings() {
    let server = Server::builder().member_of("host=/nowhere user=node").start_with_extension();
    let mut operator = server.connect();
    run(&mut operator, "CREATE ROLE stranger LOGIN IN ROLE pg_read_all_stats, pg_stat_scan_tables");
    run(&mut operator, "CREATE ROLE watcher LOGIN IN ROLE pg_read_all_settings");
    wait_until("a contact", secs(60), || {
        let error = "SELECT registry_error IS NOT NULL AND last_contact_at IS NULL FROM snowflake_status";
        one::<bool>(&mut operator, error).then_some(())
    });
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("this host's name");
    let shown: String = one(&mut operator, "SELECT registry_state || ' ' || node_name FROM snowflake_status");
    assert_eq!(shown, format!("away {}:5432", host.trim()));
    for (role, is_told) in [("stranger", false), ("watcher", true)] {
        let refusal = error(&mut server.connect_as(role));
        assert!(refusal.message.contains("the registry has assigned no worker"), "{refusal}");
        let without_cause = "The last contact with the registry brought no lease.";
        let has_cause = refusal.detail.contains("connection to server on socket \"/nowhere");
        assert_eq!([refusal.detail != without_cause, has_cause], [is_told; 2], "{refusal}");
        assert!(refusal.hint.contains("Check the hosts"), "{refusal}");
    }
    // It counts its contacts in a file.
    let folder = server.data().join("snowflake_id");
    for (name, mode) in [("state", 0o400), ("", 0o500)] {
        fs::set_permissions(folder.join(name), Permissions::from_mode(mode)).expect("a mode");
    }
    let unwritable = "Check the permissions and the free space of the data directory.";
    wait_until("the hint", secs(60), || error(&mut operator).hint.starts_with(unwritable).then_some(()));
}
