//! Backup and failover tools that are used, on servers that generate IDs: `docs/high-availability.md` says what each leads
//! to. A tool that this machine's apt does not have is skipped aloud. PostgreSQL's own tools are in `tools.rs`, snapshots
//! and containers in `data_directories.rs`, Patroni in `patroni.rs`.

use nix::sys::signal::kill;
use nix::unistd::Pid;
use postgres::{Client, Config, NoTls};
use snowflake_server_tests::faults::{new_folder, own};
use snowflake_server_tests::ids::worker;
use snowflake_server_tests::refusals::assert_closed;
use snowflake_server_tests::sql::{fails, one, run, take, wait_for_id};
use snowflake_server_tests::{Ids, Server, Signal, Stop, companions, secs, skip, wait_until};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BESIDE: &str = "another server on this host generates IDs with this worker";
/// Lanes 0 to 3 of worker 1.
const LANES: [i64; 4] = [1, 257, 513, 769];

/// Runs a command, which must succeed, and returns all that it said.
#[track_caller]
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    said
}

/// Waits until the server generates IDs; returns those of some ticks.
#[track_caller]
fn opens(session: &mut Client) -> Vec<i64> {
    let first = wait_for_id(session);
    [vec![first], take(session, 20_000)].concat()
}

/// Asserts that the server is past recovery, on this timeline, and generates IDs of this worker.
#[track_caller]
fn recovers(session: &mut Client, timeline: i32, of: i64) -> Vec<i64> {
    let ids = opens(session);
    let now = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer";
    assert_eq!(one::<i32>(session, now), timeline);
    assert!(ids.iter().all(|id| worker(*id) == of), "worker {}, not {of}", worker(ids[0]));
    ids
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).expect("a file");
    own(file);
}

// ---- pgBackRest ----

struct PgBackRest {
    program: PathBuf,
    folder: PathBuf,
    server: Server,
}

impl PgBackRest {
    /// A primary with an archive, and its standby, which has a worker of its own.
    fn start() -> Option<(Self, Server)> {
        let (program, folder) = (companions("backup").join("usr/bin/pgbackrest"), new_folder());
        if !Command::new(&program).arg("version").output().is_ok_and(|output| output.status.success()) {
            skip("pgbackrest");
            return None;
        }
        let conf = folder.join("pgbackrest.conf");
        let push = format!("{} --config={} --stanza=main archive-push %p", program.display(), conf.display());
        let builder = Server::builder().setting("archive_mode", "on").setting("archive_command", &push);
        let server = builder.start_with_extension();
        let standby = server.standby(|builder| builder.setting("snowflake_id.worker_id", "2"));
        let at = folder.display();
        let mut text = format!(
            "[global]\nrepo1-path={at}/repo\nlog-path={at}\nlock-path={at}/lock\nspool-path={at}/spool\n\
             start-fast=y\nrepo1-retention-full=9\n[main]\n"
        );
        for (n, server) in [&server, &standby].into_iter().enumerate() {
            let (n, data, socket) = (n + 1, server.data(), server.folder());
            text += &format!("pg{n}-path={}\npg{n}-socket-path={}\n", data.display(), socket.display());
        }
        write(&conf, &text);
        let this = Self { program, folder, server };
        let output = this.command(&["stanza-create"]).output().expect("it can be run");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if said.contains("is this version of PostgreSQL supported?") {
            skip("pgbackrest");
            return None;
        }
        assert!(output.status.success(), "{said}");
        Some((this, standby))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.server.client_program(&self.program.display().to_string(), "postgres");
        command.arg(format!("--config={}/pgbackrest.conf", self.folder.display()));
        command.args(["--stanza=main", "--log-level-console=warn"]).args(args);
        command
    }

    #[track_caller]
    fn run(&self, args: &[&str]) {
        said(&mut self.command(args));
    }

    /// A server from the last backup, in a new directory, started.
    #[track_caller]
    fn restore(&self, args: &[&str]) -> Server {
        let mut restored = self.server.sibling();
        let path = format!("--pg1-path={}", restored.data().display());
        self.run(&[&["restore", "--archive-mode=off", &path], args].concat());
        // The harness' own file has the sockets.
        restored.set("log_line_prefix", "%m [%p] %e ");
        restored.start();
        restored
    }
}

#[test]
fn a_restore_by_pgbackrest_is_on_a_timeline_of_its_own() {
    let Some((mut tool, standby)) = PgBackRest::start() else { return };
    let mut all = Ids::new();
    all.add("before the backup", opens(&mut tool.server.connect()));
    tool.run(&["backup", "--type=full"]);
    all.add("after the backup", opens(&mut tool.server.connect()));

    // Drills beside the server, with a worker of their own from their first start on.
    let own = "--recovery-option=snowflake_id.worker_id=9";
    let drill = tool.restore(&[own]);
    all.add("a drill", recovers(&mut drill.connect(), 2, 9 + 256));
    drop(drill);

    // To the end of the backup only: it pauses there.
    let paused = tool.restore(&["--type=immediate", own]);
    let mut session = paused.connect();
    fails(&mut session, "25006", "SELECT snowflake_nextval()");
    wait_until("the replay to pause at its target", secs(60), || {
        one::<bool>(&mut session, "SELECT pg_is_wal_replay_paused()").then_some(())
    });
    run(&mut session, "SELECT pg_wal_replay_resume()");
    all.add("another drill", recovers(&mut paused.connect(), 2, 9 + 256));
    drop(paused);

    // From the standby, with the primary's settings and state.
    tool.run(&["backup", "--type=full", "--backup-standby"]);
    let from_standby = tool.restore(&["--type=immediate", "--target-action=promote", own]);
    all.add("a drill from the standby", recovers(&mut from_standby.connect(), 2, 9 + 256));
    drop((from_standby, standby));

    // In the place of the server, which went on since.
    all.add("the newest before", opens(&mut tool.server.connect()));
    tool.server.stop(Stop::Fast);
    tool.run(&["restore", "--delta"]);
    tool.server.start();
    all.add("restored in place", recovers(&mut tool.server.connect(), 2, LANES[1]));
    all.assert_unique();
}

// ---- Barman ----

struct Barman {
    folder: PathBuf,
    server: Server,
}

impl Barman {
    fn start() -> Self {
        let folder = new_folder();
        // Copied, because the servers' owner may not get to the build's folder.
        said(
            Command::new("cp")
                .arg("-rL")
                .arg(companions("backup").join("modules"))
                .arg(folder.join("modules")),
        );
        let incoming = folder.join("main/incoming");
        let archive = format!("cp %p {}/%f", incoming.display());
        let server = Server::builder()
            .setting("archive_mode", "on")
            .setting("archive_command", &archive)
            .start_with_extension();
        for made in [folder.join("main"), incoming] {
            fs::create_dir(&made).expect("a folder");
            own(&made);
        }
        let user = said(server.client_program("/usr/bin/id", "postgres").arg("-un"));
        let (at, socket) = (folder.display(), server.folder().display());
        let programs = said(server.client_program("pg_config", "postgres").arg("--bindir"));
        let to = format!("host={socket} port=5432 user=postgres");
        write(
            &folder.join("barman.conf"),
            &format!(
                "[barman]\nbarman_user = {user}\nbarman_home = {at}\nbarman_lock_directory = {at}\n\
                 log_file = {at}/barman.log\npath_prefix = {programs}\n\
                 [main]\ndescription = main\nconninfo = {to} dbname=postgres\nstreaming_conninfo = {to}\n\
                 backup_method = postgres\narchiver = on\n"
            ),
        );
        Self { folder, server }
    }

    #[track_caller]
    fn run(&self, args: &[&str]) {
        let mut command = self.server.client_program("/usr/bin/env", "postgres");
        command.arg("python3").arg(self.folder.join("modules/bin/barman"));
        command.env("PYTHONPATH", self.folder.join("modules")).env("PATH", "/usr/bin:/bin");
        said(command.arg("-c").arg(self.folder.join("barman.conf")).args(args));
    }

    /// A server from the last backup, in a new directory, started.
    #[track_caller]
    fn restore(&self, args: &[&str]) -> Server {
        let mut restored = self.server.sibling();
        let to = restored.data().display().to_string();
        self.run(&[&["restore"], args, &["main", "latest", &to]].concat());
        restored.set("archive_mode", "off");
        restored.start();
        restored
    }
}

#[test]
fn a_restore_by_barman_without_a_target_is_a_copy() {
    let mut tool = Barman::start();
    let mut all = Ids::new();
    all.add("before the backup", opens(&mut tool.server.connect()));
    tool.run(&["backup", "main", "--immediate-checkpoint", "--wait"]);
    all.add("after the backup", opens(&mut tool.server.connect()));

    // Without a target there is no recovery.signal, and the timeline stays.
    let mut copy = tool.restore(&[]);
    assert_closed(&copy, BESIDE);
    // A worker of its own is enough.
    copy.set("snowflake_id.worker_id", "9");
    copy.restart();
    all.add("a drill", recovers(&mut copy.connect(), 1, 9));
    drop(copy);

    all.add("the newest before", opens(&mut tool.server.connect()));
    tool.server.stop(Stop::Fast);
    let recovered = tool.restore(&["--target-tli", "current", "--target-action", "promote"]);
    all.add("recovered", recovers(&mut recovered.connect(), 2, LANES[1]));
    drop(recovered);

    // In the place of the server.
    let data = tool.server.data().display().to_string();
    tool.run(&["restore", "--delta-restore", "main", "latest", &data]);
    tool.server.start();
    // Barman writes over the files that are there, so the state is the server's own, of the past.
    all.add("restored in place", recovers(&mut tool.server.connect(), 1, LANES[0]));
    all.assert_unique();
}

// ---- repmgr ----

struct Repmgr {
    servers: [Server; 2],
    confs: [PathBuf; 2],
}

impl Repmgr {
    #[track_caller]
    fn run(&self, n: usize, args: &[&str]) -> String {
        let mut command = self.servers[n].client_program("repmgr", "postgres");
        said(command.arg("-f").arg(&self.confs[n]).args(args))
    }

    /// Server `n` crashes, and the other one is promoted.
    #[track_caller]
    fn fail_over_from(&mut self, n: usize) {
        // More than the other one gets to see, so that the histories part.
        self.servers[1 - n].catch_up_with(&self.servers[n]);
        self.servers[n].crash();
        self.run(1 - n, &["standby", "promote"]);
        run(&mut self.servers[1 - n].connect(), "CREATE TABLE IF NOT EXISTS later (); CHECKPOINT");
    }

    /// Server `n` comes back as a standby of the other one, by pg_rewind.
    #[track_caller]
    fn rejoin(&mut self, n: usize, options: &[&str]) {
        let to = format!(
            "host={} port=5432 user=postgres dbname=postgres",
            self.servers[1 - n].folder().display()
        );
        let outside = fs::read_to_string(self.servers[n].data().join("harness.conf")).expect("settings");
        self.run(n, &[&["node", "rejoin", "--force-rewind", "--no-wait", "-d", &to], options].concat());
        // The sockets, as the machine's own configuration would have them; not the worker.
        let rewound = fs::read_to_string(self.servers[n].data().join("harness.conf")).expect("settings");
        let worker = rewound.lines().find(|line| line.starts_with("snowflake_id.worker_id"));
        let kept = outside.lines().filter(|line| !line.starts_with("snowflake_id.worker_id"));
        let text: Vec<&str> = kept.chain(worker).collect();
        write(&self.servers[n].data().join("harness.conf"), &(text.join("\n") + "\n"));
        self.servers[n].start();
        self.servers[n].catch_up_with(&self.servers[1 - n]);
    }

    #[track_caller]
    fn worker_id(&self, n: usize) -> String {
        one(&mut self.servers[n].connect(), "SELECT current_setting('snowflake_id.worker_id')")
    }
}

#[test]
fn a_rewind_by_repmgr_takes_the_successors_worker_unless_settings_are_outside() {
    let Some(builder) = Server::builder().with_failover_tools() else { return skip("failover-tools") };
    let builder = builder.setting("shared_preload_libraries", "snowflake_id, repmgr");
    let first = builder.setting("wal_log_hints", "on").start_with_extension();
    let mut all = Ids::new();
    all.add("the first", opens(&mut first.connect()));
    let second = first.standby(|builder| builder.setting("snowflake_id.worker_id", "2"));
    let servers = [first, second];
    let confs = [0, 1].map(|n| {
        let (server, id) = (&servers[n], n + 1);
        let conf = server.folder().join("repmgr.conf");
        let programs = said(server.client_program("pg_config", "postgres").arg("--bindir"));
        write(
            &conf,
            &format!(
                "node_id={id}\nnode_name='node{id}'\nconninfo='host={} port=5432 user=postgres dbname=postgres'\n\
                 data_directory='{}'\npg_bindir='{}'\nservice_start_command='/bin/true'\n",
                server.folder().display(),
                server.data().display(),
                programs.trim()
            ),
        );
        conf
    });
    let mut pair = Repmgr { servers, confs };
    pair.run(0, &["primary", "register"]);
    pair.run(1, &["standby", "register", "--force"]);

    pair.fail_over_from(0);
    all.add("the second", recovers(&mut pair.servers[1].connect(), 2, 2 + 256));
    // pg_rewind copies the source's settings, its worker among them.
    pair.rejoin(0, &[]);
    assert_eq!(pair.worker_id(0), "2");
    pair.servers[0].set("snowflake_id.worker_id", "1");
    pair.servers[0].restart();
    pair.servers[0].catch_up_with(&pair.servers[1]);

    pair.fail_over_from(1);
    all.add("the first again", recovers(&mut pair.servers[0].connect(), 3, LANES[2]));
    pair.rejoin(1, &["--config-files=harness.conf"]);
    assert_eq!(pair.worker_id(1), "2");

    // In a file beside the data directory, which the copied postgresql.conf includes.
    for (n, server) in pair.servers.iter_mut().enumerate() {
        write(&server.folder().join("own.conf"), &format!("snowflake_id.worker_id = {}\n", n + 1));
    }
    let main = pair.servers[0].data().join("postgresql.conf");
    let text = fs::read_to_string(&main).expect("settings");
    write(&main, &(text + "include '../own.conf'\n"));
    pair.fail_over_from(0);
    all.add("the second again", recovers(&mut pair.servers[1].connect(), 4, 2 + 3 * 256));
    let text = fs::read_to_string(&main).expect("settings");
    write(&pair.servers[1].data().join("postgresql.conf"), &text);
    pair.rejoin(0, &[]);
    assert_eq!(pair.worker_id(0), "1");
    all.assert_unique();
}

// ---- pg_auto_failover ----

/// A node that pg_autoctl manages, or its monitor.
struct Autoctl {
    /// Its folder. The server in it is pg_autoctl's, and never this one's.
    place: Server,
    program: PathBuf,
    port: u16,
    user: String,
    process: Option<Child>,
}

impl Autoctl {
    fn new(like: &Server) -> Self {
        let place = like.sibling();
        let user = said(place.client_program("/usr/bin/id", "postgres").arg("-un")).trim().to_owned();
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
        let program = companions("failover").join("usr/bin/pg_autoctl");
        Self { place, program, port: free.port(), user, process: None }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.client_program("/usr/bin/setpriv", "postgres");
        command.args(["--pdeathsig", "TERM"]).arg(&self.program).args(args);
        let (folder, data) = (self.place.folder(), self.place.data());
        let config = said(self.place.client_program("pg_config", "postgres").arg("--bindir"));
        command
            .env("PG_CONFIG", Path::new(config.trim()).join("pg_config"))
            .env("PG_REGRESS_SOCK_DIR", folder);
        for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, folder);
        }
        for name in ["PGUSER", "PGDATABASE", "PGPORT"] {
            command.env_remove(name);
        }
        command.arg("--pgdata").arg(data);
        command
    }

    fn create(&self, args: &[&str]) -> Command {
        let port = self.port.to_string();
        let common = ["--pgport", &port, "--hostname", "127.0.0.1", "--auth", "trust", "--no-ssl"];
        self.command(&[&["create"], args, &common].concat())
    }

    fn spawn(&mut self, mut command: Command) {
        let log = fs::File::create(self.place.folder().join("autoctl.log")).expect("a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        self.process = Some(command.spawn().expect("pg_autoctl can be started"));
    }

    fn try_connect(&self, user: &str, database: &str) -> Option<Client> {
        let mut config = Config::new();
        config.host_path(self.place.folder()).port(self.port).user(user).dbname(database);
        config.connect(NoTls).ok()
    }

    #[track_caller]
    fn session(&self) -> Client {
        wait_until("a connection", secs(60), || self.try_connect(&self.user, "postgres"))
    }
}

impl Drop for Autoctl {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It stops its server.
            let _ = kill(Pid::from_raw(process.id() as i32), Signal::SIGTERM);
            let _ = process.wait();
        }
        if std::thread::panicking() {
            let log = fs::read_to_string(self.place.folder().join("autoctl.log")).unwrap_or_default();
            eprintln!("--- {}:\n{log}", self.place.folder().display());
        }
    }
}

#[test]
fn servers_of_pg_auto_failover_may_share_one_worker() {
    let Some(builder) = Server::builder().with_failover_tools() else { return skip("failover-tools") };
    let like = builder.create();
    let mut monitor = Autoctl::new(&like);
    let create = monitor.create(&["monitor", "--run"]);
    monitor.spawn(create);
    wait_until("the monitor", secs(60), || monitor.try_connect("autoctl_node", "pg_auto_failover"));
    let uri = format!("postgres://autoctl_node@127.0.0.1:{}/pg_auto_failover", monitor.port);
    let mut nodes = [Autoctl::new(&like), Autoctl::new(&like)];
    let args = |name| ["postgres", "--name", name, "--monitor", &uri, "--dbname", "postgres"];

    // The file that its tool includes at the top of postgresql.conf preloads pg_stat_statements.
    said(&mut nodes[0].create(&args("a")));
    let main = nodes[0].place.data().join("postgresql.conf");
    let text = fs::read_to_string(&main).expect("settings");
    assert!(text.trim_start().starts_with("include 'postgresql-auto-failover.conf'"), "{text}");
    let own = "shared_preload_libraries = 'snowflake_id, pg_stat_statements'\nsnowflake_id.worker_id = 1\n\
               shared_buffers = 64MB\nmax_connections = 50\nfsync = off\n";
    write(&main, &(text + own));
    let run_it = nodes[0].command(&["run"]);
    nodes[0].spawn(run_it);
    run(&mut nodes[0].session(), "CREATE EXTENSION snowflake_id");
    let mut all = Ids::new();
    all.add("timeline 1", recovers(&mut nodes[0].session(), 1, LANES[0]));
    let create = nodes[1].create(&[&args("b")[..], &["--run"]].concat());
    nodes[1].spawn(create);
    for (timeline, primary) in [(2, 1), (3, 0)] {
        let settled = "SELECT count(*) FROM pgautofailover.node
                       WHERE reportedstate = goalstate AND reportedstate IN ('primary', 'secondary') AND health = 1";
        wait_until("a primary and a secondary", secs(300), || {
            let mut session = monitor.try_connect("autoctl_node", "pg_auto_failover")?;
            (one::<i64>(&mut session, settled) == 2).then_some(())
        });
        all.add("the newest before", take(&mut nodes[1 - primary].session(), 20_000));
        // The monitor itself can deadlock with a node that reports its state meanwhile.
        wait_until("a failover", secs(60), || {
            let output =
                monitor.command(&["perform", "failover"]).output().expect("pg_autoctl can be started");
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() || told.contains("deadlock detected"), "{told}");
            output.status.success().then_some(())
        });
        let ids = recovers(&mut nodes[primary].session(), timeline, LANES[timeline as usize - 1]);
        all.add(format!("timeline {timeline}"), ids);
    }
    all.assert_unique();
}
