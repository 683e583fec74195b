//! Contacts with a registry: everything that a connection string may say is libpq's, and nothing that the registry or
//! the network does holds this server.

use nix::sys::signal::kill;
use nix::unistd::Pid;
use snowflake_contact::{Failure, Kind, Reply};
use snowflake_core::{Answer, Lease};
use snowflake_server_tests::faults::new_folder;
use snowflake_server_tests::process::{children, has_ended, processor_ticks, title};
use snowflake_server_tests::registry::{loopback_address, make_certificates};
use snowflake_server_tests::sql::{column, fails as fails_in, one, run};
use snowflake_server_tests::{Preload, Server, Signal, Stop, ms, secs, skip, wait_until};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use uuid::Uuid;

// ---- one contact, without a server around it ----

/// A contact from a process whose environment has only these variables of libpq.
#[track_caller]
fn contact(connection_string: &str, environment: &[(&str, &str)]) -> Result<Reply, Failure> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_contact"));
    command.arg(connection_string).env_clear().envs(environment.iter().copied());
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    serde_json::from_slice(&output.stdout).expect("a result")
}

#[track_caller]
fn fails(connection_string: &str, environment: &[(&str, &str)], kind: Kind, text: &str) -> String {
    let failure = contact(connection_string, environment).expect_err("no answer");
    assert_eq!(failure.kind, kind, "{failure:?}");
    assert!(failure.text.contains(text), "{failure:?}");
    assert!(!failure.text.contains('\n'), "{failure:?}");
    failure.text
}

/// What the stand-in says unless told otherwise.
fn granted() -> Result<Reply, Failure> {
    let lease = Lease { home: 12, floor: 100, until: 200 };
    Ok(Reply {
        answer: Answer::Granted { registry: Uuid::from_u128(7), lease },
        reason: String::new(),
        hint: String::new(),
    })
}

#[test]
fn a_contact_sends_all_its_arguments_and_reads_every_answer_without_search_path() {
    let registry = Server::builder().start_registry();
    assert_eq!(contact(&registry.registry_string(), &[]), granted());
    let mut session = registry.connect();
    let asked: String = one(&mut session, "SELECT arguments FROM asked");
    assert_eq!(
        asked,
        "(,-9223372036854775808,01020304-0506-0708-090a-0b0c0d0e0f10,\"one of 64 bytesone of 64 bytesone of 64 bytesone of 64 bytesone \",1,\
         ffffffff-ffff-ffff-ffff-ffffffffffff,3,-1,9223372036854775807,\"2027-01-15 08:00:00.123456+00\",41/10/12,1,\"2024-01-01 00:00:00+00\",3,\
         0,t,1.0.0)"
    );
    assert_eq!(one::<String>(&mut session, "SELECT as_role::text FROM asked"), "node");

    let refusal = "UPDATE said SET answer = 'refused', detail = E'no group\\nis free', hint = 'Wait.'";
    run(&mut session, refusal);
    let refused = Reply { answer: Answer::Refused, reason: "no group; is free".into(), hint: "Wait.".into() };
    assert_eq!(contact(&registry.registry_string(), &[]), Ok(refused));
    run(&mut session, "UPDATE said SET answer = 'over', detail = 'a clone', hint = NULL");
    let over = Reply { answer: Answer::Over, reason: "a clone".into(), hint: String::new() };
    assert_eq!(contact(&registry.registry_string(), &[]), Ok(over));
    // A grant needs no words.
    run(&mut session, "UPDATE said SET answer = 'granted', detail = NULL");
    assert_eq!(contact(&registry.registry_string(), &[]), granted());
}

#[test]
fn what_cannot_be_read_is_a_failure_that_says_why() {
    let registry = Server::builder().start_registry();
    let string = registry.registry_string();
    let mut session = registry.connect();
    run(&mut session, "DELETE FROM said");
    // The function then returns a row of nulls.
    fails(&string, &[], Kind::Answer, "its answer is null");
    let function = "FUNCTION snowflake_internal.snowflake_registry_contact";
    run(&mut session, &format!("REVOKE EXECUTE ON {function} FROM node"));
    fails(&string, &[], Kind::Connection, "permission denied for function");
    run(&mut session, &format!("ALTER {function} RENAME TO of_another_version"));
    fails(&string, &[], Kind::Answer, "does not exist");
    run(
        &mut session,
        &format!(
            "CREATE {function}(uuid, bigint, uuid, text, bigint, uuid, integer, bigint, bigint, timestamptz, text, integer,
                 timestamptz, integer, integer, boolean, text, OUT answer text) LANGUAGE sql AS 'SELECT $4'"
        ),
    );
    fails(&string, &[], Kind::Answer, "column \"registry\" does not exist");
}

#[test]
fn what_the_registry_could_not_commit_was_not_granted() {
    let registry = Server::builder().start_registry();
    run(
        &mut registry.connect(),
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'lost at the commit'; END $$;
         CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON asked DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION fail()",
    );
    fails(&registry.registry_string(), &[], Kind::Call, "lost at the commit");
    assert_eq!(registry.contacts(), 0);
}

/// Whatever the role, its database or its server has as the default.
#[test]
fn a_contact_says_which_isolation_it_needs() {
    let registry = Server::builder().start_registry();
    run(
        &mut registry.connect(),
        "ALTER ROLE node SET default_transaction_isolation = 'serializable';
         ALTER ROLE node SET client_encoding = 'latin1';
         CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'none prints this';
             RAISE '% % %', current_setting('transaction_isolation'), current_setting('client_encoding'),
                 current_setting('application_name'); END $$;
         CREATE TRIGGER look BEFORE INSERT ON asked FOR EACH ROW EXECUTE FUNCTION look()",
    );
    let string = format!("{} client_encoding=latin1", registry.registry_string());
    fails(&string, &[], Kind::Call, "read committed UTF8 snowflake_id");
}

#[test]
fn a_database_without_a_registry_and_a_string_that_is_none_say_so() {
    let server = Server::builder().start();
    let string = format!("host={} user=postgres", server.folder().display());
    let missing = "the extension snowflake_id is not installed in the registry's database";
    fails(&string, &[], Kind::Connection, missing);
    fails("postgres", &[], Kind::Connection, "missing \"=\" after \"postgres\" in connection info string");
    fails("hots=a", &[], Kind::Connection, "invalid connection option \"hots\"");
    let said = fails("password=my secret", &[], Kind::Connection, "missing \"=\" after");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn a_service_file_names_the_registry() {
    let registry = Server::builder().start_registry();
    let file = new_folder().join("services");
    std::fs::write(
        &file,
        format!("[fleet]\nhost={}\ndbname=postgres\nuser=node\n", registry.folder().display()),
    )
    .unwrap();
    let environment = [("PGSERVICEFILE", file.to_str().unwrap())];
    assert_eq!(contact("service=fleet", &environment), granted());
    fails("service=other", &environment, Kind::Connection, "definition of service \"other\" not found");
}

#[test]
fn a_password_file_lets_the_node_in_and_no_password_is_told() {
    let registry = Server::builder().start_registry();
    registry.require_password();
    let file = new_folder().join("passwords");
    let with_password = |password: &str| {
        std::fs::write(&file, format!("*:*:postgres:node:{password}\n")).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        format!("{} passfile={}", registry.registry_string(), file.display())
    };
    assert_eq!(contact(&with_password("swordfish"), &[]), granted());
    let said =
        fails(&with_password("herring"), &[], Kind::Connection, "password authentication failed for user");
    assert!(!said.contains("herring"), "{said}");
    fails(&registry.registry_string(), &[], Kind::Connection, "no password supplied");
    let log = registry.log();
    assert!(!log.contains("herring") && !log.contains("swordfish"), "{log}");
}

/// Whether the servers can speak TLS.
fn has_openssl() -> bool {
    let asked = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
    let built = Command::new(asked).arg("--configure").output().expect("pg_config").stdout;
    let built = String::from_utf8_lossy(&built).into_owned();
    built.contains("--with-openssl") || built.contains("--with-ssl")
}

#[test]
fn tls_verifies_the_registrys_name_and_its_authority() {
    if !has_openssl() {
        return skip("openssl");
    }
    let address = loopback_address();
    let certificates = new_folder();
    make_certificates(&certificates);
    let path = |name: &str| certificates.join(name).display().to_string();
    let registry = Server::builder()
        .listening(&address)
        .setting("ssl", "on")
        .setting("ssl_cert_file", &path("server.crt"))
        .setting("ssl_key_file", &path("server.key"))
        .start_registry();
    registry.require_password();
    let string = |host: &str, authority: &str| {
        format!(
            "host={host} hostaddr={address} dbname=postgres user=node password=swordfish sslmode=verify-full \
             sslrootcert={}",
            path(authority)
        )
    };
    assert_eq!(contact(&string("registry.test", "ca.crt"), &[]), granted());
    let name = "server certificate for \"registry.test\" does not match host name \"other.test\"";
    fails(&string("other.test", "ca.crt"), &[], Kind::Connection, name);
    fails(&string("registry.test", "other-ca.crt"), &[], Kind::Connection, "certificate verify failed");
    assert_eq!(registry.contacts(), 1);
}

#[test]
fn the_second_host_is_asked_where_the_first_is_dead() {
    let registry = Server::builder().start_registry();
    let both = |first: &str| {
        format!("host={first},{} port=5432 dbname=postgres user=node", registry.folder().display())
    };
    // Nobody listens there.
    assert_eq!(contact(&both(&loopback_address()), &[]), granted());
    assert_eq!(contact(&both("/nonexistent"), &[]), granted());
    assert_eq!(registry.contacts(), 2);
}

#[test]
fn the_primary_is_found_behind_its_standby() {
    let registry = Server::builder().start_registry();
    let standby = registry.standby(|builder| builder);
    let [of_standby, of_registry] = [&standby, &registry].map(|server| server.folder().display().to_string());
    let string = format!("host={of_standby},{of_registry} port=5432 dbname=postgres user=node");
    fails(&string, &[], Kind::Call, "cannot execute INSERT in a read-only transaction");
    let string = format!("{string} target_session_attrs=read-write");
    assert_eq!(contact(&string, &[]), granted());
    assert_eq!(registry.contacts(), 1);
    // A role that only reads by default finds none, which the hint names.
    run(&mut registry.connect(), "ALTER ROLE node SET default_transaction_read_only = on");
    fails(&string, &[], Kind::Connection, "session is read-only");
}

#[test]
fn a_call_that_fails_in_the_registry_is_looked_up_there() {
    let registry = Server::builder().start_registry();
    run(
        &mut registry.connect(),
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room'; END $$;
         CREATE TRIGGER fail BEFORE INSERT ON asked FOR EACH ROW EXECUTE FUNCTION fail()",
    );
    let server = Server::builder().member_of(&registry.registry_string()).start();
    let mut session = server.connect();
    run(&mut session, "CREATE EXTENSION snowflake_id");
    let failure = wait_until("the contact's failure", secs(60), || {
        let failure = fails_in(&mut session, "55000", "SELECT snowflake_nextval()");
        failure.detail.contains("no room").then_some(failure)
    });
    assert!(failure.hint.contains("the registry's server and its log"), "{failure}");
    let body = "BEGIN RAISE 'no room' USING HINT = E'Make\\nroom.'; END";
    let replace =
        format!("CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$");
    run(&mut registry.connect(), &replace);
    wait_until("the registry's hint", secs(60), || {
        (fails_in(&mut session, "55000", "SELECT snowflake_nextval()").hint == "Make; room.").then_some(())
    });
}

#[test]
fn a_registry_that_stops_within_the_call_is_a_failure() {
    let ends = [
        (Stop::Fast, "terminating connection due to administrator command"),
        (Stop::Immediate, "server closed the connection unexpectedly"),
    ];
    for (how, text) in ends {
        let mut registry = Server::builder().start_registry();
        let lock = "CREATE RULE slow AS ON INSERT TO asked DO ALSO SELECT pg_sleep(60)";
        run(&mut registry.connect(), lock);
        let string = registry.registry_string();
        let call = std::thread::spawn(move || contact(&string, &[]));
        let calling = "SELECT count(*) = 1 FROM pg_stat_activity
                       WHERE usename = 'node' AND wait_event = 'PgSleep' AND query LIKE 'SELECT answer, %($1, %'";
        let mut session = registry.connect();
        wait_until("the call in the registry", secs(30), || one::<bool>(&mut session, calling).then_some(()));
        registry.stop(how);
        let failure = call.join().unwrap().expect_err("no answer");
        assert_eq!(failure.kind, Kind::Call, "{failure:?}");
        assert!(failure.text.contains(text), "{failure:?}");
    }
}

// ---- the registrar: a background worker ----

const AWAY: &str = "snowflake_id: could not contact the registry";
const BACK: &str = "snowflake_id: the registry answers again";
/// Of a contact that reached no registry.
const HINT: &str = "\nHINT:  Check the hosts, database, role and password in snowflake_id.registry";

/// The registrar's process; waits until there is one. No view shows it, because it is connected to no database.
#[track_caller]
fn registrar(server: &Server) -> i32 {
    server.wait_for_worker("a registrar", secs(10), |_| registrars(server).first().copied())
}

fn registrars(server: &Server) -> Vec<i32> {
    let mut found = children(server.pid() as i32);
    found.retain(|pid| title(*pid).contains("snowflake_id registrar"));
    found
}

#[track_caller]
fn wait_for_ends(processes: [i32; 2]) {
    wait_until("the end of registrar and contact", secs(5), || {
        processes.into_iter().all(has_ended).then_some(())
    });
}

/// The process that makes a contact at this moment; waits until there is one.
#[track_caller]
fn contact_of(registrar: i32) -> i32 {
    wait_until("a contact", secs(30), || children(registrar).first().copied())
}

#[track_caller]
fn wait_for_contacts(registry: &Server, least: i64) {
    wait_until("more contacts with the registry", secs(30), || (registry.contacts() >= least).then_some(()));
}

fn has_libpq(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process").contains("libpq")
}

/// A registry that accepts connections and never says a word.
struct Silent {
    address: String,
    _listener: TcpListener,
}

fn silent() -> Silent {
    let address = loopback_address();
    let listener = TcpListener::bind((address.as_str(), 5432)).unwrap();
    Silent { address, _listener: listener }
}

/// A registry that accepts one session, and then never says a word: its server froze after the handshake.
fn frozen() -> String {
    let address = loopback_address();
    let listener = TcpListener::bind((address.as_str(), 5432)).unwrap();
    std::thread::spawn(move || {
        let mut sessions = Vec::new();
        for session in listener.incoming() {
            let mut session = session.expect("a connection");
            let mut length = [0; 4];
            let mut packet = |session: &mut std::net::TcpStream| {
                session.read_exact(&mut length).ok()?;
                let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
                session.read_exact(&mut rest).ok().map(|()| rest)
            };
            // Requests for encryption are 8 bytes long, and are declined.
            while packet(&mut session).is_some_and(|rest| rest.len() == 4) {
                session.write_all(b"N").expect("an answer");
            }
            // Authenticated, and ready for a query.
            session.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").expect("an answer");
            sessions.push(session);
        }
    });
    address
}

/// A server with a contact under way that takes as long as it may.
fn with_stalled_contact() -> (Server, Silent, i32, i32) {
    let silent = silent();
    // The environment sets a limit per host, so the whole time of a contact goes to this host.
    let string = format!("host={} dbname=postgres user=node", silent.address);
    let mut server = Server::builder().member_of(&string).create();
    server.preload(Preload::compile(SLOW_NAMES, "PGCONNECT_TIMEOUT", "60".into()));
    server.start();
    let registrar = registrar(&server);
    let contact = contact_of(registrar);
    (server, silent, registrar, contact)
}

#[test]
fn without_a_registry_nothing_of_it_is_there() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let keeper = server.keeper();
    assert!(one::<i64>(&mut session, "SELECT snowflake_nextval()") > 0);
    assert!(registrars(&server).is_empty());
    let size = std::fs::metadata(server.data().join("snowflake_id/state")).expect("the state file").len();
    assert_eq!(size, 2 * 4096);
    let backend: i32 = one(&mut session, "SELECT pg_backend_pid()");
    for pid in [server.pid() as i32, keeper, backend] {
        assert!(!has_libpq(pid), "{pid}");
    }
    let of_registry =
        "SELECT num_nulls(node_name, registry_state, granted_until, last_contact_at, registry_error)
                       FROM snowflake_status";
    assert_eq!(one::<i32>(&mut session, of_registry), 5);
}

#[test]
fn the_registrar_contacts_the_registry_repeatedly_and_no_process_maps_libpq() {
    let registry = Server::builder().start_registry();
    // A lease that has not ended: otherwise every look at the status asks for a renewal at once.
    run(&mut registry.connect(), "UPDATE said SET until = 2000000000000");
    let server = Server::builder()
        .member_of(&registry.registry_string())
        .setting("snowflake_id.node_name", "here")
        .start_with_extension();
    wait_for_contacts(&registry, 2);
    let mut session = registry.connect();
    let claim = "SELECT count(*) FROM asked WHERE arguments LIKE '%,here,1,%,,,,%'";
    let renewal = "SELECT count(*) FROM asked WHERE arguments LIKE '(00000000-0000-0000-0000-000000000007,%,12,100,2000000000000,%'";
    assert_eq!(one::<i64>(&mut session, claim), 1);
    assert_eq!(one::<i64>(&mut session, renewal), 1);
    let own: i64 = one(&mut server.connect(), "SELECT system_identifier FROM pg_control_system()");
    let sent = format!("SELECT count(*) FROM asked WHERE split_part(arguments, ',', 2) = '{own}'");
    assert_eq!(one::<i64>(&mut session, &sent), registry.contacts());
    let pause = "SELECT extract(epoch FROM max(at) - min(at))::float8 FROM asked";
    let pause: f64 = one(&mut session, pause);
    assert!((7.5..60.0).contains(&pause), "{pause} s");
    let mut session = server.connect();
    let backend: i32 = one(&mut session, "SELECT pg_backend_pid()");
    for pid in [registrar(&server), backend, server.keeper(), server.pid() as i32] {
        assert!(!has_libpq(pid), "{pid}");
    }
    assert!(!server.log().contains(AWAY), "{}", server.log());
}

#[test]
fn a_standby_contacts_the_registry_and_says_that_it_is_one() {
    let registry = Server::builder().start_registry();
    let primary = Server::builder().start();
    let string = registry.registry_string();
    let _standby = primary.standby(|builder| builder.member_of(&string).setting("port", "5433"));
    wait_for_contacts(&registry, 1);
    let arguments: String = one(&mut registry.connect(), "SELECT arguments FROM asked ORDER BY at LIMIT 1");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("this host's name");
    let name = format!(",{}:5433,", host.trim());
    let rest = ",41/10/12,1,\"2024-01-01 00:00:00+00\",3,0,t,1.0.0)";
    assert!(arguments.contains(&name) && arguments.ends_with(rest), "{arguments}");
}

#[test]
fn a_registry_that_is_away_is_told_once_and_so_is_its_return() {
    let mut registry = Server::builder().start_registry();
    let string = registry.registry_string();
    registry.stop(Stop::Fast);
    let server = Server::builder().member_of(&string).start();
    server.wait_for_line(AWAY, secs(20));
    // At growing pauses: 0.5 s, 1 s, 2 s, ...
    std::thread::sleep(secs(4));
    assert_eq!(server.log().matches(AWAY).count(), 1, "{}", server.log());
    let socket = registry.folder().join(".s.PGSQL.5432");
    let line = format!("{AWAY}\nDETAIL:  connection to server on socket \"{}\" failed: ", socket.display());
    assert!(server.log().contains(&line) && server.log().contains(HINT), "{}", server.log());
    registry.start();
    server.wait_for_line(BACK, secs(20));
    assert_eq!(registry.contacts(), 1);
    // The second time is told as the first was. Then another registry answers.
    run(&mut registry.connect(), "UPDATE said SET registry = gen_random_uuid()");
    registry.stop(Stop::Fast);
    let told = |line: &str| server.log().matches(line).count();
    wait_until("the second outage of the registry in the log", secs(60), || (told(AWAY) == 2).then_some(()));
    std::thread::sleep(secs(2));
    assert_eq!([told(AWAY), told(BACK)], [2, 1], "{}", server.log());
    registry.start();
    wait_until("the second return of the registry in the log", secs(60), || (told(BACK) == 2).then_some(()));
    assert_eq!([told(AWAY), told(BACK)], [2, 2], "{}", server.log());
    let mut session = server.connect();
    run(&mut session, "CREATE EXTENSION snowflake_id");
    let error = "SELECT coalesce(registry_error, '') LIKE '%does not fit%' FROM snowflake_status";
    wait_until("an answer that does not fit", secs(30), || one::<bool>(&mut session, error).then_some(()));
    run(&mut registry.connect(), "DELETE FROM said");
    let unread =
        "DETAIL:  the registry's answer cannot be read: its answer is null\nHINT:  Install the same version";
    server.wait_for_line(unread, secs(60));
}

/// The pauses between contacts that bring nothing grow, whatever the clients do: 0.4, 0.8, 1.6 and 3.2 s at least.
#[test]
fn neither_a_refusal_nor_a_client_hurries_the_registrar() {
    let registry = Server::builder().start_registry();
    let refuse = "UPDATE said SET answer = 'refused', detail = 'Für alle vergeben.', hint = 'Warten.'";
    run(&mut registry.connect(), refuse);
    let server = Server::builder().member_of(&registry.registry_string()).start_with_extension();
    let mut session = server.connect();
    wait_until("five contacts with the registry", secs(60), || {
        session.query_one("SELECT snowflake_nextval()", &[]).expect_err("no worker");
        std::thread::sleep(ms(50));
        (registry.contacts() >= 5).then_some(())
    });
    let pauses = "SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY at))::float8 FROM asked
                  ORDER BY at OFFSET 1 LIMIT 4";
    let pauses: Vec<f64> = column(&mut registry.connect(), pauses);
    assert!(pauses.iter().zip([0.4, 0.8, 1.6, 3.2]).all(|(pause, least)| *pause >= least), "{pauses:?}");
    let refused = "snowflake_id: the registry refused this server's request";
    let told = || server.log().matches(refused).count();
    assert_eq!(told(), 1, "{}", server.log());
    // The server's log has no encoding, so what is not ASCII is escaped.
    let line = format!("{refused}\nDETAIL:  F\\xc3\\xbcr alle vergeben.\nHINT:  Warten.\n");
    server.wait_for_line(&line, secs(30));
    // After a grant, the same refusal is logged again.
    run(&mut registry.connect(), "UPDATE said SET answer = 'granted', until = 2000000000000");
    let leased =
        "home worker 12 to this server\nDETAIL:  The lease ends at 2087-05-18 03:33:20.001+00 unless";
    server.wait_for_line(leased, secs(60));
    run(&mut registry.connect(), refuse);
    wait_until("the second refusal in the log", secs(60), || (told() == 2).then_some(()));
}

#[test]
fn a_reload_takes_the_next_contact_to_another_registry_or_ends_them() {
    let one_registry = Server::builder().start_registry();
    let other = Server::builder().start_registry();
    let mut server = Server::builder().member_of(&one_registry.registry_string()).start();
    wait_for_contacts(&one_registry, 1);
    let began = Instant::now();
    server.reload("snowflake_id.registry", &other.registry_string());
    wait_for_contacts(&other, 1);
    assert!(began.elapsed() < secs(5), "{:?}", began.elapsed());
    server.reload("snowflake_id.registry", "no connection string");
    server.wait_for_line("missing \"=\" after \"no\" in connection info string", secs(20));
    server.reload("snowflake_id.registry", "");
    std::thread::sleep(secs(1));
    let registrar = registrar(&server);
    let used = processor_ticks(registrar);
    std::thread::sleep(secs(1));
    assert!(processor_ticks(registrar) - used < 20, "a registrar without a registry is not idle");
    assert!(children(registrar).is_empty());
    assert!(!server.log().contains("takes effect after a restart"), "{}", server.log());
    assert_eq!([one_registry.contacts(), other.contacts()], [1, 1]);
}

#[test]
fn a_contact_that_nobody_answers_ends_at_its_deadline() {
    let (server, _silent, registrar, contact) = with_stalled_contact();
    server.wait_for_line(&format!("DETAIL:  the registry did not answer within 20 s{HINT}"), secs(40));
    wait_until("the contact's end", secs(5), || has_ended(contact).then_some(()));
    assert_eq!(self::registrar(&server), registrar);
    assert!(processor_ticks(registrar) < 200, "the registrar has not slept meanwhile");
    // And there is another one after it.
    let next = contact_of(registrar);
    assert_ne!(next, contact);
}

/// As long as it has not ended. Most end sooner; this one cannot, because its registrar stands still.
#[test]
fn a_call_waits_15_s_for_the_first_contact() {
    let (server, _silent, registrar, _) = with_stalled_contact();
    server.signal_backend(registrar, Signal::SIGSTOP);
    let mut session = server.connect();
    run(&mut session, "CREATE EXTENSION snowflake_id");
    let began = Instant::now();
    let failure = fails_in(&mut session, "55000", "SELECT snowflake_nextval()");
    assert!((secs(15)..secs(55)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!(failure.detail, "The first contact with the registry has not ended yet.");
    server.signal_backend(registrar, Signal::SIGCONT);
}

#[test]
fn a_registry_that_freezes_after_the_handshake_has_8_s() {
    let string = format!("host={} dbname=postgres user=node", frozen());
    let server = Server::builder().member_of(&string).start();
    server.wait_for_line(&format!("DETAIL:  the registry did not answer within 8 s{HINT}"), secs(40));
}

#[test]
fn a_server_with_a_stalled_contact_stops_at_once() {
    for how in [Stop::Fast, Stop::Smart, Stop::Immediate] {
        let (mut server, _silent, registrar, contact) = with_stalled_contact();
        let began = Instant::now();
        server.stop(how);
        assert!(began.elapsed() < secs(5), "{how:?}: {:?}", began.elapsed());
        wait_for_ends([registrar, contact]);
        // No crash of a process, and so no recovery. The postmaster gets the contact where that outlives the registrar.
        let is_clean = |log: &str| match how {
            Stop::Immediate => !log.contains("terminated by signal"),
            _ => !log.contains("untracked child") && !log.contains("abnormal") && !log.contains("by signal"),
        };
        assert!(is_clean(&server.log()), "{how:?}: {}", server.log());
        assert!(!server.log().contains(AWAY), "a stop is no failure: {}", server.log());
    }
}

#[test]
fn a_registrar_that_is_terminated_leaves_at_once_and_comes_back() {
    let (server, _silent, mut registrar, mut contact) = with_stalled_contact();
    for ends_first in [false, true] {
        if ends_first {
            // At a stop of the server, both get the signal, and the registrar may be late.
            server.signal_backend(registrar, Signal::SIGSTOP);
            kill(Pid::from_raw(contact), Signal::SIGTERM).unwrap();
            wait_until("the contact's end", secs(30), || has_ended(contact).then_some(()));
        }
        server.signal_backend(registrar, Signal::SIGTERM);
        server.try_signal(registrar, Signal::SIGCONT);
        wait_for_ends([registrar, contact]);
        let before = std::mem::replace(&mut registrar, self::registrar(&server));
        assert_ne!(before, registrar);
        contact = contact_of(registrar);
    }
    assert!(!server.log().contains(AWAY), "{}", server.log());
    assert!(!server.log().contains("terminating any other active server processes"), "{}", server.log());
    assert!(!server.log().contains("untracked child"), "{}", server.log());
}

/// Also after a contact that failed: nothing asks again. The postmaster starts another registrar within a second.
#[test]
fn without_a_registrar_an_error_says_that_none_runs() {
    let server = Server::builder().member_of("host=/nowhere user=node").start_with_extension();
    server.wait_for_line(AWAY, secs(30));
    let mut session = server.connect();
    wait_until("an error without a registrar", secs(60), || {
        registrars(&server).into_iter().for_each(|pid| server.signal_backend(pid, Signal::SIGTERM));
        let failure = fails_in(&mut session, "55000", "SELECT snowflake_nextval()");
        failure.detail.contains("so nothing contacts the registry").then_some(())
    });
}

#[test]
fn without_the_postmaster_neither_the_registrar_nor_its_contact_lives() {
    let (mut server, _silent, registrar, contact) = with_stalled_contact();
    server.crash();
    wait_for_ends([registrar, contact]);
    server.start();
}

#[test]
fn a_contact_that_crashes_is_a_failure_and_takes_nothing_down() {
    let (server, _silent, registrar, contact) = with_stalled_contact();
    kill(Pid::from_raw(contact), Signal::SIGSEGV).unwrap();
    server.wait_for_line("the process was terminated by signal 11", secs(20));
    assert_eq!(self::registrar(&server), registrar);
    // It holds no shared memory while it works.
    let maps = std::fs::read_to_string(format!("/proc/{registrar}/maps")).unwrap();
    assert!(maps.contains("/dev/zero") && maps.contains("/SYSV"), "{maps}");
    // A contact that has just been forked still has it.
    wait_until("a contact without shared memory", secs(5), || {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", contact_of(registrar))).ok()?;
        (!maps.is_empty() && !maps.contains("/dev/zero") && !maps.contains("/SYSV")).then_some(())
    });
    // An orphan that a signal kills would be a crashed process to a postmaster that is PID 1.
    let mut session = server.connect();
    run(&mut session, "CREATE EXTENSION snowflake_id");
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
        let contact = contact_of(registrar);
        kill(Pid::from_raw(contact), signal).unwrap();
        wait_until("the next contact", secs(60), || (contact_of(registrar) != contact).then_some(()));
        let error: String = one(&mut session, "SELECT registry_error FROM snowflake_status");
        assert_eq!(error, "the process ended with status 1 and no result", "{signal}");
    }
}

/// No library with libpq in its name can be loaded.
const WITHOUT_LIBPQ: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

void *dlopen(const char *name, int flags)
{
    static void *(*real)(const char *, int);

    if (!real)
        real = (void *(*)(const char *, int)) dlsym(RTLD_NEXT, "dlopen");
    return real(name && strstr(name, "libpq") ? "libpq.so.5.is-not-installed" : name, flags);
}
"#;

#[test]
fn a_server_without_libpq_starts_and_says_so_once() {
    let mut server = Server::builder().member_of("host=nowhere").create();
    server.preload(Preload::compile(WITHOUT_LIBPQ, "UNUSED", PathBuf::new()));
    server.start();
    server.wait_for_line(AWAY, secs(20));
    std::thread::sleep(secs(2));
    let log = server.log();
    assert_eq!(log.matches(AWAY).count(), 1, "{log}");
    let rest =
        ": cannot open shared object file: No such file or directory\nHINT:  Check that PostgreSQL's client";
    assert!(log.contains(rest), "{log}");
    run(&mut server.connect(), "CREATE EXTENSION snowflake_id");
}

/// PostgreSQL's module for the WAL receiver is linked with the libpq that the server was built with.
#[test]
fn libpq_is_found_where_only_the_servers_own_modules_find_it() {
    let registry = Server::builder().start_registry();
    let mut server = Server::builder().member_of(&registry.registry_string()).create();
    let source = WITHOUT_LIBPQ.replace("strstr(name, \"libpq\")", "strcmp(name, \"libpq.so.5\") == 0");
    server.preload(Preload::compile(&source, "UNUSED", PathBuf::new()));
    server.start();
    wait_for_contacts(&registry, 1);
    assert!(!server.log().contains(AWAY), "{}", server.log());
}

#[test]
fn a_password_that_is_refused_is_in_no_log() {
    let registry = Server::builder().start_registry();
    registry.require_password();
    let string = format!("{} password=herring", registry.registry_string());
    let server = Server::builder().member_of(&string).start();
    server.wait_for_line("password authentication failed for user \"node\"", secs(20));
    assert!(!server.log().contains("herring") && !registry.log().contains("herring"));
}

/// Name servers that do not answer when they are asked for `registry.test`, and of which one is dead, which costs time,
/// when they are asked for `slow.test`.
const SLOW_NAMES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    if (name && strcmp(name, "registry.test") == 0)
        sleep(600);
    if (name && strcmp(name, "slow.test") == 0)
    {
        sleep(10);
        name = getenv("SLOW_TEST_ADDRESS");
    }
    if (!real)
        real = (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))
            dlsym(RTLD_NEXT, "getaddrinfo");
    return real(name, service, hints, found);
}
"#;

#[test]
fn name_servers_that_do_not_answer_hold_neither_a_stop_nor_a_contact_for_longer() {
    let mut server = Server::builder().member_of("host=registry.test").create();
    server.preload(Preload::compile(SLOW_NAMES, "UNUSED", PathBuf::new()));
    server.start();
    server.wait_for_line("the registry did not answer within 20 s", secs(40));
    contact_of(registrar(&server));
    let began = Instant::now();
    server.stop(Stop::Fast);
    assert!(began.elapsed() < secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_dead_name_server_of_two_costs_a_contact_time_and_no_more() {
    let address = loopback_address();
    let registry = Server::builder().listening(&address).start_registry();
    let string = "host=slow.test dbname=postgres user=node";
    let mut server = Server::builder().member_of(string).create();
    server.preload(Preload::compile(SLOW_NAMES, "SLOW_TEST_ADDRESS", address.into()));
    server.start();
    wait_until("a contact that succeeds", secs(60), || (registry.contacts() > 0).then_some(()));
    assert!(!server.log().contains(AWAY), "{}", server.log());
}

#[test]
fn the_registrar_goes_on_to_the_next_host_where_the_first_is_silent() {
    let registry = Server::builder().start_registry();
    let silent = silent();
    let string = format!(
        "host={},{} port=5432 dbname=postgres user=node",
        silent.address,
        registry.folder().display()
    );
    let server = Server::builder().member_of(&string).start();
    wait_for_contacts(&registry, 1);
    assert!(!server.log().contains(AWAY), "{}", server.log());
}

#[test]
fn a_reload_ends_a_contact_with_the_registry_of_before() {
    let registry = Server::builder().start_registry();
    let (mut server, _silent, _, contact) = with_stalled_contact();
    server.reload("work_mem", "5MB");
    std::thread::sleep(secs(1));
    assert!(!has_ended(contact), "the registry is the same");
    server.reload("snowflake_id.registry", &registry.registry_string());
    wait_for_contacts(&registry, 1);
    assert!(has_ended(contact) && !server.log().contains("did not answer"), "{}", server.log());
}
