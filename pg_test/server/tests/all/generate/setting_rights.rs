//! Who may change a setting, and who sees the registry's connection string.

use postgres::NoTls;
use snowflake_server_tests::Server;
use snowflake_server_tests::ids::worker;
use snowflake_server_tests::sql::{Failure, fails, next, one, run};

#[test]
fn no_session_can_change_a_setting() {
    let server = Server::builder().start_with_extension();
    let mut superuser = server.connect();
    run(&mut superuser, "CREATE ROLE app LOGIN");
    let show = "SELECT string_agg(name || '=' || setting, ',' ORDER BY name) FROM pg_settings
                WHERE name LIKE 'snowflake_id.%' AND name <> 'snowflake_id.registry'";
    let before: String = one(&mut superuser, show);
    // Not even to what they have.
    let settings: Vec<(&str, &str)> =
        before.split(',').filter_map(|setting| setting.split_once('=')).collect();
    assert!(settings.len() >= 11, "{before}");
    for role in ["postgres", "app"] {
        let mut session = server.connect_as(role);
        let id = next(&mut session);
        for (setting, value) in &settings {
            for statement in [
                format!("SET {setting} = '{value}'"),
                format!("SET LOCAL {setting} = '{value}'"),
                format!("SET {setting} TO DEFAULT"),
                format!("SELECT set_config('{setting}', '{value}', false)"),
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
    for (setting, value) in &settings {
        for target in ["ROLE app", "DATABASE postgres", "ROLE ALL"] {
            fails(&mut superuser, "55P02", &format!("ALTER {target} SET {setting} = '{value}'"));
        }
    }
    fails(&mut server.connect_as("app"), "42501", "ALTER SYSTEM SET snowflake_id.max_wait = '1s'");
    // Only a superuser may change the server's files.
    run(&mut superuser, "ALTER SYSTEM SET snowflake_id.max_wait = '1s'");
}

#[test]
fn the_registrys_connection_string_is_hidden_and_set_only_in_the_servers_files() {
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
