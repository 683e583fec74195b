//! PgBouncer between clients and server: IDs come in every mode, and `snowflake_lastval()` is the session's.

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use postgres::{Client, Config, NoTls, SimpleQueryMessage};
use snowflake_server_tests::sql::Failure;
use snowflake_server_tests::{Ids, Server, companions, secs, wait_until};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;

/// A running pooler.
struct Pool {
    process: Child,
    config: Config,
}

impl Pool {
    fn start(server: &Server, mode: &str, sessions: u32) -> Self {
        // Newer versions track 200 by default.
        Self::start_tracking(server, mode, sessions, 0)
    }

    /// One that tracks so many prepared statements of a client.
    fn start_tracking(server: &Server, mode: &str, sessions: u32, statements: u32) -> Self {
        let folder = server.folder().display();
        let settings = format!(
            "[databases]\npostgres = host={folder} port=5432 user=postgres\n[pgbouncer]\npool_mode = {mode}\n\
             default_pool_size = {sessions}\n\
             max_prepared_statements = {statements}\nmax_client_conn = 100\nlisten_port = 6432\nunix_socket_dir = {folder}\n\
             auth_type = any\nlogfile = {folder}/pgbouncer.log\n"
        );
        let file = server.folder().join("pgbouncer.ini");
        fs::write(&file, settings).expect("the settings");
        let mut command = Command::new(companions("pgbouncer").join("server/usr/sbin/pgbouncer"));
        if Uid::effective().is_root() {
            command.args(["-u", "postgres"]);
        }
        command.arg(&file).stderr(Stdio::null());
        let process = command.spawn().expect("pgbouncer");
        let mut config = Config::new();
        config.host_path(server.folder()).port(6432).user("postgres").dbname("postgres");
        let pool = Self { process, config };
        wait_until("the pooler", secs(30), || pool.config.connect(NoTls).ok());
        pool
    }

    fn client(&self) -> Client {
        self.config.connect(NoTls).expect("a connection")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.process.id() as i32), Signal::SIGINT);
        let _ = self.process.wait();
    }
}

/// The last value of a simple query: a pooler of transactions may not know a prepared statement.
fn value(client: &mut Client, query: &str) -> Result<i64, Failure> {
    let messages = client.simple_query(query).map_err(|e| Failure::from(&e))?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(rows.last().expect("a row").parse().expect("an ID"))
}

const LAST: &str = "SELECT snowflake_lastval()";

/// `DISCARD ALL` between clients makes the server's session forget the last ID.
#[test]
fn in_session_mode_a_client_never_sees_the_last_id_of_another() {
    let server = Server::builder().start_with_extension();
    let pool = Pool::start(&server, "session", 1);
    let mut first = pool.client();
    let id = value(&mut first, "SELECT snowflake_nextval()").expect("an ID");
    assert_eq!(value(&mut first, LAST).expect("its ID"), id);
    let session = value(&mut first, "SELECT pg_backend_pid()").expect("a pid");
    drop(first);
    let mut second = pool.client();
    assert_eq!(value(&mut second, "SELECT pg_backend_pid()").expect("a pid"), session);
    let refused = value(&mut second, LAST).expect_err("no ID yet");
    assert_eq!(refused.code, "55000", "{}", refused.text());
    let id =
        second.query_one("SELECT snowflake_nextval()", &[]).expect("a prepared statement").get::<_, i64>(0);
    assert_eq!(value(&mut second, LAST).expect("its ID"), id);
}

#[test]
fn in_transaction_mode_lastval_is_right_within_the_transaction_only() {
    let server = Server::builder().start_with_extension();
    let pool = Pool::start(&server, "transaction", 1);
    let (mut first, mut second) = (pool.client(), pool.client());
    let id = value(&mut first, "SELECT snowflake_nextval()").expect("an ID");
    // Nothing resets it: it is that of any client of the session.
    assert_eq!(value(&mut second, LAST).expect("an ID"), id);
    first.simple_query("BEGIN").expect("a transaction");
    let of_first = value(&mut first, "SELECT snowflake_nextval()").expect("an ID");
    let other = thread::spawn(move || value(&mut second, "SELECT snowflake_nextval()").expect("an ID"));
    assert_eq!(value(&mut first, LAST).expect("its ID"), of_first);
    first.simple_query("COMMIT").expect("the end");
    let of_second = other.join().expect("the other client");
    assert!(of_second > of_first);
}

#[test]
fn in_transaction_mode_a_named_statement_works_where_the_pooler_tracks_it() {
    let server = Server::builder().start_with_extension();
    let generates = |statements| {
        let pool = Pool::start_tracking(&server, "transaction", 2, statements);
        let (mut first, mut second) = (pool.client(), pool.client());
        let statement = first.prepare("SELECT snowflake_nextval()").map_err(|e| Failure::from(&e))?;
        // The second client's transaction has the session in which the first one's statement would be.
        second.simple_query("BEGIN; SELECT 1").expect("a transaction");
        let mut ids = Ids::new();
        for _ in 0..3 {
            let row = first.query_one(&statement, &[]).map_err(|e| Failure::from(&e))?;
            ids.add("the first client", vec![row.get::<_, i64>(0)]);
        }
        ids.assert_unique();
        Ok::<(), Failure>(())
    };
    generates(10).expect("a tracked statement");
    assert_eq!(generates(0).expect_err("a session without the statement").code, "26000");
}

#[test]
fn many_clients_of_few_sessions_get_ids_of_their_own() {
    let server = Server::builder().start_with_extension();
    for mode in ["session", "transaction", "statement"] {
        let pool = Pool::start(&server, mode, 4);
        let mut all = Ids::new();
        let generated: Vec<Vec<i64>> = thread::scope(|scope| {
            let ask = || {
                let mut client = pool.client();
                (0..50).map(|_| value(&mut client, "SELECT snowflake_nextval()").expect("an ID")).collect()
            };
            let clients: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
            clients.into_iter().map(|client| client.join().expect("a client")).collect()
        });
        for (n, ids) in generated.into_iter().enumerate() {
            all.add(format!("client {n} in {mode} mode"), ids);
        }
        all.assert_unique();
    }
}
