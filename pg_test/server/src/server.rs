//! A PostgreSQL server that belongs to one test.

use crate::clock::Clock;
use crate::cluster::new_cluster;
use crate::install::{Install, install, older, run, with_failover, with_pglogical};
use crate::messages::assert_log_approved;
use crate::preload::Preload;
use crate::sandbox::new_folder;
use crate::sql::Failure;
use crate::{ms, process, secs, sql};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::{Client, Config, NoTls};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How to stop a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Waits for the clients to leave.
    Smart,
    /// Disconnects the clients, and writes a checkpoint.
    Fast,
    /// As in a crash: the next start recovers from the WAL.
    Immediate,
}

/// The configuration of a new server; see [`Server::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) install: &'static Install,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) faketime: bool,
    pub(crate) behind: Duration,
}

impl Builder {
    /// Sets a line of `postgresql.conf`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Removes a line from `postgresql.conf`, for instance one that the harness sets.
    pub fn without(mut self, name: &str) -> Self {
        self.settings.remove(name);
        self
    }

    /// Preloads nothing, as the server of a registry need not.
    pub fn without_library(self) -> Self {
        self.without("shared_preload_libraries").without("snowflake_id.worker_id")
    }

    /// A server of the older PostgreSQL that the environment variable `PG_CONFIG_OLD` names.
    pub fn of_older_version(mut self) -> Self {
        self.install = older();
        self
    }

    /// A server that also preloads pglogical.
    pub fn with_pglogical(mut self) -> Self {
        self.install = with_pglogical();
        self.setting("shared_preload_libraries", "snowflake_id, pglogical")
    }

    /// A server of a PostgreSQL that has repmgr and pg_auto_failover; `None` where there is none.
    pub fn with_failover_tools(mut self) -> Option<Self> {
        self.install = with_failover()?;
        Some(self)
    }

    /// Whether the server's wall clock can be moved, see [`Server::clock`].
    pub fn faketime(mut self, yes: bool) -> Self {
        self.faketime = yes;
        self
    }

    /// Creates and starts the cluster with its clock this far back; implies `faketime`.
    pub fn born(mut self, ago: Duration) -> Self {
        self.behind = ago;
        self.faketime(true)
    }

    /// Starts the server, and waits until it accepts connections.
    #[track_caller]
    pub fn start(self) -> Server {
        let mut server = self.build();
        server.start();
        server
    }

    /// As [`Builder::start`], with the extension created in the database `postgres`. Waits until new IDs carry the clock's
    /// time, unless that is to be moved forward anyway.
    #[track_caller]
    pub fn start_with_extension(self) -> Server {
        let is_behind = !self.behind.is_zero();
        let server = self.start();
        sql::run(&mut server.connect(), "CREATE EXTENSION snowflake_id");
        if !is_behind {
            server.wait_for_clock();
        }
        server
    }

    pub(crate) fn build(self) -> Server {
        let server = self.lay_out();
        new_cluster(self.install, &server.data(), self.behind);
        let main = server.data().join("postgresql.conf");
        let mut text = std::fs::read_to_string(&main).expect("initdb wrote postgresql.conf");
        text.push_str("\ninclude 'harness.conf'\n");
        std::fs::write(&main, text).expect("postgresql.conf can be written");
        server.write_settings();
        server
    }

    /// The server's folder, without a data directory so far.
    pub(crate) fn lay_out(&self) -> Server {
        let folder = new_folder();
        let clock = self.faketime.then(|| {
            let clock = Clock::new(&folder);
            clock.back(self.behind);
            clock
        });
        Server {
            install: self.install,
            folder,
            settings: self.settings.clone(),
            clock,
            postmaster: None,
            preload: None,
            is_contained: false,
        }
    }
}

/// A PostgreSQL server. Dropping it stops the server at once and removes its folder.
#[derive(Debug)]
pub struct Server {
    pub(crate) install: &'static Install,
    pub(crate) folder: PathBuf,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) clock: Option<Clock>,
    pub(crate) postmaster: Option<Child>,
    pub(crate) preload: Option<Preload>,
    pub(crate) is_contained: bool,
}

impl Server {
    /// A server that preloads `snowflake_id` as worker 1, listens only on a Unix socket, compiles no query, and does not fsync
    /// its tables.
    /// (The extension fsyncs its own files nonetheless.)
    pub fn builder() -> Builder {
        let settings = [
            ("autovacuum", "off"),
            ("fsync", "off"),
            ("jit", "off"),
            ("listen_addresses", ""),
            ("log_line_prefix", "%m [%p] %e "),
            ("max_connections", "150"),
            ("max_wal_size", "2GB"),
            ("shared_buffers", "64MB"),
            ("shared_preload_libraries", "snowflake_id"),
            ("snowflake_id.worker_id", "1"),
            // A standby that is slow to connect finds the WAL that it needs.
            ("wal_keep_size", "1GB"),
        ];
        Builder {
            install: install(),
            settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            faketime: false,
            behind: Duration::ZERO,
        }
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The file in which the servers of this cluster lock their workers on this host. A reboot takes it away.
    #[track_caller]
    pub fn lock_file(&self) -> PathBuf {
        let control = std::fs::read(self.data().join("global/pg_control")).expect("the control file");
        let identifier = u64::from_ne_bytes(control[..8].try_into().expect("8 bytes"));
        PathBuf::from(format!("/dev/shm/snowflake_id.{identifier}"))
    }

    /// Removes the lock file, unless another server of the cluster has locked a worker there.
    pub fn remove_lock_file(&self) {
        let file = self.lock_file();
        let Ok(opened) = OpenOptions::new().read(true).write(true).open(&file) else { return };
        let whole = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        if fcntl(&opened, FcntlArg::F_OFD_SETLK(&whole)).is_ok() {
            let _ = std::fs::remove_file(file);
        }
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Changes a line of `postgresql.conf`, which takes effect at the next reload or start.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.insert(name.to_owned(), value.to_owned());
        self.write_settings();
    }

    /// Removes a line from `postgresql.conf`.
    pub fn unset(&mut self, name: &str) {
        self.settings.remove(name);
        self.write_settings();
    }

    pub(crate) fn write_settings(&self) {
        let quoted = |value: &str| value.replace('\'', "''");
        let mut text = format!("unix_socket_directories = '{}'\n", self.folder.display());
        for (name, value) in &self.settings {
            text.push_str(&format!("{name} = '{}'\n", quoted(value)));
        }
        let file = self.data().join("harness.conf");
        std::fs::write(&file, text).expect("the settings can be written");
        install().own(&file);
    }

    /// Has the server read its settings again, and waits until a session that existed before shows `name` as `value`.
    #[track_caller]
    pub fn reload(&mut self, name: &str, value: &str) {
        let mut session = self.connect();
        self.set(name, value);
        self.signal(Signal::SIGHUP);
        let show = format!("SHOW {name}");
        crate::wait_until(&format!("{name} = {value}"), secs(30), || {
            let shown: String = session.query_one(&show, &[]).expect("SHOW").get(0);
            (shown == value).then_some(())
        });
    }

    /// Starts a stopped server.
    #[track_caller]
    pub fn start(&mut self) {
        // It may say that a predecessor with the same process ID was up.
        let is_left_behind = self.pid_file().exists();
        self.spawn();
        self.wait_until_up(is_left_behind);
    }

    pub(crate) fn spawn(&mut self) {
        assert!(self.postmaster.is_none(), "the server runs already");
        let log = || -> File {
            OpenOptions::new().create(true).append(true).open(self.log_file()).expect("the log can be opened")
        };
        let mut command = match self.is_contained {
            true => self.install.contained("postgres", &self.folder),
            false => self.install.command("postgres", &self.folder),
        };
        command.arg("-D").arg(self.data());
        command.stdin(Stdio::null()).stdout(log()).stderr(log());
        if let Some(clock) = &self.clock {
            clock.apply_to(&mut command);
        }
        if let Some(preload) = &self.preload {
            preload.apply_to(&mut command);
        }
        adopt_orphans(&mut command);
        self.postmaster = Some(command.spawn().expect("postgres can be started"));
    }

    /// Waits until the server accepts connections, even after a crash of one of its processes.
    #[track_caller]
    pub fn wait_until_ready(&mut self) {
        self.wait_until_up(true);
    }

    #[track_caller]
    fn wait_until_up(&mut self, is_tried: bool) {
        let began = Instant::now();
        // Every attempt to connect costs the server a process, so none is made before the postmaster says that it is up.
        while !self.says_that_it_is_up() || is_tried && self.config().connect(NoTls).is_err() {
            let child = self.postmaster.as_mut().expect("the server was started");
            if let Some(status) = child.try_wait().expect("it is our child") {
                self.postmaster = None;
                panic!("the server ended: {status}\n{}", self.log());
            }
            assert!(began.elapsed() < secs(60), "no connection within 60 s\n{}", self.log());
            std::thread::sleep(ms(20));
        }
    }

    fn pid_file(&self) -> PathBuf {
        self.data().join("postmaster.pid")
    }

    /// Whether `postmaster.pid` says that the server accepts connections, in the line that `pg_ctl` waits for.
    fn says_that_it_is_up(&self) -> bool {
        let file = std::fs::read_to_string(self.pid_file()).unwrap_or_default();
        let mut lines = file.lines();
        // A server that was killed leaves its file behind.
        lines.next().is_some_and(|pid| pid.parse() == Ok(self.pid()))
            && lines.nth(6).is_some_and(|state| matches!(state.trim(), "ready" | "standby"))
    }

    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self, limit: Duration) -> ExitStatus {
        let began = Instant::now();
        let child = self.postmaster.as_mut().expect("the server was started");
        loop {
            if let Some(status) = child.try_wait().expect("it is our child") {
                self.postmaster = None;
                return status;
            }
            assert!(began.elapsed() < limit, "the server still runs after {limit:?}");
            std::thread::sleep(ms(5));
        }
    }

    /// Stops the server and waits until it is gone. Not within the recovery from a crash, unless that takes a minute:
    /// PostgreSQL itself, without any extension, may never end if it is asked to meanwhile.
    #[track_caller]
    pub fn stop(&mut self, how: Stop) {
        if how != Stop::Immediate {
            let began = Instant::now();
            while self.recovers_from_a_crash() && began.elapsed() < secs(60) {
                std::thread::sleep(ms(20));
            }
        }
        self.signal(match how {
            Stop::Smart => Signal::SIGTERM,
            Stop::Fast => Signal::SIGINT,
            Stop::Immediate => Signal::SIGQUIT,
        });
        self.wait_for_exit(secs(60));
    }

    /// Whether the server accepts no connection because it recovers. Does not try one if the server has been up and its
    /// log, which then is in the usual place, tells of no crash.
    fn recovers_from_a_crash(&self) -> bool {
        let is_logged = !["log_destination", "log_min_messages", "logging_collector"]
            .iter()
            .any(|name| self.settings.contains_key(*name));
        if is_logged && self.says_that_it_is_up() && !self.log().contains("server process") {
            return false;
        }
        let refusal = self.config().connect_timeout(secs(5)).connect(NoTls).err();
        let refusal = refusal.map(|error| Failure::from(&error)).filter(|failure| failure.code == "57P03");
        let phases = ["is starting up", "in recovery mode", "not yet accepting connections"];
        refusal.is_some_and(|failure| phases.iter().any(|phase| failure.message.contains(phase)))
    }

    /// Kills the postmaster, as a machine's out-of-memory killer would, and waits until its children are gone, because
    /// only then the shared memory lets another server start.
    #[track_caller]
    pub fn crash(&mut self) {
        let children = process::children(self.pid() as i32);
        self.kill_postmaster();
        for child in children {
            crate::wait_until("the children to leave", secs(30), || process::has_ended(child).then_some(()));
        }
    }

    /// Stops the server and copies its data directory; starts neither.
    #[track_caller]
    pub fn copy(&mut self) -> Server {
        self.stop(Stop::Fast);
        let copy = self.like().lay_out();
        let mut command = std::process::Command::new("cp");
        command.arg("-a").arg(self.data()).arg(copy.data());
        run(&mut command);
        copy.write_settings();
        copy
    }

    /// Stops the server (fast) and starts it again with the present settings.
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop(Stop::Fast);
        self.start();
    }

    /// The postmaster's process id.
    pub fn pid(&self) -> u32 {
        self.postmaster.as_ref().expect("the server was started").id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(as_pid(self.pid()), signal).expect("the postmaster can be signalled");
    }

    /// Sends a signal to one of this server's processes.
    #[track_caller]
    pub fn signal_backend(&self, pid: i32, signal: Signal) {
        assert_eq!(process::parent(pid), Some(self.pid()), "process {pid} is not one of this server's");
        kill(Pid::from_raw(pid), signal).expect("the backend can be signalled");
    }

    /// The process of the extension's keeper; waits until there is one.
    #[track_caller]
    pub fn keeper(&self) -> i32 {
        self.wait_for_worker("a keeper", secs(10), |session| {
            sql::one::<Option<i32>>(session, "SELECT keeper_pid FROM snowflake_status")
        })
    }

    /// Waits for something that a background worker does. Each look opens a new session, which wakes the postmaster.
    /// PostgreSQL 15's postmaster computes how long it may sleep, and a child that ends just before it sleeps does not
    /// shorten that, so otherwise it may start a worker a minute late.
    #[track_caller]
    pub fn wait_for_worker<T>(
        &self,
        what: &str,
        limit: Duration,
        mut ready: impl FnMut(&mut Client) -> Option<T>,
    ) -> T {
        crate::wait_until(what, limit, || {
            let answer = ready(&mut self.connect());
            if answer.is_none() {
                std::thread::sleep(ms(100));
            }
            answer
        })
    }

    /// Kills one of this server's processes and waits until the server has recovered from the crash. A client sees the
    /// end first; until the postmaster has noticed, it accepts connections only to end them.
    #[track_caller]
    pub fn kill_backend(&mut self, pid: i32) {
        let crashes = |server: &Server| server.log().matches("was terminated by signal 9").count();
        let before = crashes(self);
        self.signal_backend(pid, Signal::SIGKILL);
        crate::wait_until("the crash to be noticed", secs(20), || (crashes(self) > before).then_some(()));
        self.wait_until_ready();
    }

    /// Stops processes of this server, as a debugger or a hypervisor does, at a moment that `is_meant` accepts and at
    /// which none of them writes the state file: a writer holds the cold lock, and all others would wait for it.
    #[track_caller]
    pub fn stop_between_writes(&self, pids: &[i32], mut is_meant: impl FnMut(&mut Client) -> bool) {
        let signal = |signal| pids.iter().for_each(|pid| self.signal_backend(*pid, signal));
        let mut watcher = self.connect();
        sql::run(&mut watcher, "SET statement_timeout = '2s'");
        crate::wait_until("processes to be stopped, but not within a write", secs(60), || {
            signal(Signal::SIGSTOP);
            // The view waits for the lock, and so for a process that writes.
            let are_stopped = is_meant(&mut watcher)
                && watcher.batch_execute("SELECT FROM snowflake_status").is_ok()
                && pids.iter().all(|pid| process::is_stopped(*pid));
            if !are_stopped {
                signal(Signal::SIGCONT);
                // Wait for a better moment.
                std::thread::sleep(ms(200));
            }
            are_stopped.then_some(())
        });
    }

    /// Everything that the server has logged since it was created. A message's DETAIL and HINT begin their lines.
    pub fn log(&self) -> String {
        let start = |line: &str| [" DETAIL:  ", " HINT:  "].iter().find_map(|part| line.find(part));
        let lines = self.log_as_written();
        lines.split_inclusive('\n').map(|line| start(line).map_or(line, |at| &line[at + 1..])).collect()
    }

    fn log_as_written(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_file()).unwrap_or_default()).into_owned()
    }

    /// For who reads the output of a test that failed.
    pub(crate) fn show_end_of_log(&self) {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(40)..];
        eprintln!("--- the end of the server's log:\n{}", tail.join("\n"));
    }

    /// Waits until new IDs carry the clock's time. After a start they begin `max_ahead` ahead of it, after the first one
    /// another second. Does not wait if the generator is closed for a reason that does not pass by itself.
    #[track_caller]
    pub fn wait_for_clock(&self) {
        // Looks seldom: each look takes the processors for milliseconds.
        let first = "SELECT usable_at + current_setting('snowflake_id.max_ahead')::interval FROM snowflake_workers WHERE active";
        let left = format!(
            "SELECT extract(epoch FROM ({first}) - clock_timestamp())::float8 FROM snowflake_status
             WHERE state = 'open' OR reason LIKE '%is too far behind the first ID%'"
        );
        let mut session = self.connect();
        crate::wait_until("the clock to pass the first IDs", secs(90), || {
            let Some(row) = session.query_opt(&left, &[]).expect("the views") else { return Some(()) };
            // Unknown while the gate waits.
            let left = row.get::<_, Option<f64>>(0).unwrap_or(0.1);
            if left <= 0.0 {
                return Some(());
            }
            std::thread::sleep(Duration::from_secs_f64(left.clamp(0.05, 4.0)));
            None
        });
    }

    /// Waits until the server has logged this; returns what follows it.
    #[track_caller]
    pub fn wait_for_line(&self, line: &str, limit: Duration) -> String {
        let what = format!("{line:?} in the log");
        crate::wait_until(&what, limit, || self.log().split_once(line).map(|(_, rest)| rest.to_owned()))
    }

    /// How to connect as the superuser `postgres`.
    pub fn config(&self) -> Config {
        let mut config = Config::new();
        config.host_path(&self.folder).port(5432).user("postgres").dbname("postgres");
        config
    }

    /// A new session of the superuser `postgres`.
    #[track_caller]
    pub fn connect(&self) -> Client {
        self.connect_as("postgres")
    }

    /// A new session of a role.
    #[track_caller]
    pub fn connect_as(&self, role: &str) -> Client {
        match self.config().user(role).connect(NoTls) {
            Ok(client) => client,
            Err(e) => panic!("cannot connect: {e:?}\n{}", self.log()),
        }
    }

    /// A client program of this PostgreSQL (`psql`, `pgbench`, ...) that connects to the server as the superuser
    /// `postgres`.
    pub fn client_program(&self, program: &str, database: &str) -> Command {
        let mut command = self.install.command(program, &self.folder);
        // By environment, because -d means something else in pgbench up to PostgreSQL 16.
        command.env("PGHOST", &self.folder).env("PGPORT", "5432");
        command.env("PGUSER", "postgres").env("PGDATABASE", database);
        command
    }

    /// The wall clock of a server that was built with `faketime`.
    #[track_caller]
    pub fn clock(&self) -> &Clock {
        self.clock.as_ref().expect("the server was built with faketime(true)")
    }

    /// Bounds, in microseconds, of how far the server's wall clock is ahead of the machine's, according to the server;
    /// at most `width` apart.
    #[track_caller]
    pub fn measured_offset(&self, width: Duration) -> (i64, i64) {
        let mut session = self.connect();
        let ask = session.prepare("SELECT clock_timestamp()").expect("prepare");
        let now = || micros_since_1970(SystemTime::now());
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        crate::wait_until("an answer about the clock within the width", secs(20), || {
            let before = now();
            let told: SystemTime = session.query_one(&ask, &[]).expect("clock_timestamp").get(0);
            let after = now();
            let told = micros_since_1970(told);
            // The server read its clock between `before` and `after`, within the microsecond that each side rounds off.
            low = low.max(told - after - 1);
            high = high.min(told - before + 1);
            (i128::from(high) - i128::from(low) <= width.as_micros() as i128).then_some(())
        });
        (low, high)
    }

    /// Moves the server's wall clock backwards, and checks that the server sees it.
    #[track_caller]
    pub fn step_back(&self, by: Duration) {
        self.clock().back(by);
        self.assert_clock_moved(by);
    }

    /// Moves the server's wall clock forward, and checks that the server sees it.
    #[track_caller]
    pub fn step_forward(&self, by: Duration) {
        self.clock().forward(by);
        self.assert_clock_moved(by);
    }

    #[track_caller]
    fn assert_clock_moved(&self, by: Duration) {
        // Narrow enough to distinguish the new offset from the old one.
        let (low, high) = self.measured_offset((by / 2).clamp(ms(1) / 2, secs(1)));
        let expected = self.clock().offset();
        assert!(
            (low - 20..=high + 20).contains(&expected),
            "the server's clock is ahead by {low}..{high} us, not by {expected}"
        );
    }

    /// The configuration of this server.
    pub(crate) fn like(&self) -> Builder {
        Builder {
            install: self.install,
            settings: self.settings.clone(),
            faketime: self.clock.is_some(),
            behind: Duration::ZERO,
        }
    }

    /// A server with the same clock, without a data directory so far.
    pub(crate) fn sibling_with(&self, builder: Builder) -> Server {
        let sibling = builder.lay_out();
        if let (Some(theirs), Some(ours)) = (&sibling.clock, &self.clock) {
            theirs.set_as(ours);
        }
        sibling
    }

    /// Makes the data directory of a sibling by `pg_basebackup`.
    #[track_caller]
    pub(crate) fn back_up_to(&self, sibling: &Server, options: &[&str]) {
        let mut backup = self.install.command("pg_basebackup", &sibling.folder);
        backup
            .args(["-X", "stream", "-c", "fast", "--no-sync", "-U", "postgres", "-p", "5432"])
            .args(options);
        run(backup.arg("-h").arg(&self.folder).arg("-D").arg(sibling.data()));
        sibling.write_settings();
    }

    /// A running standby of this server, cloned with `pg_basebackup`. It has this server's settings, except for those
    /// that `change` changes.
    #[track_caller]
    pub fn standby(&self, change: impl FnOnce(Builder) -> Builder) -> Server {
        let mut standby = self.sibling_with(change(self.like()));
        self.back_up_to(&standby, &["-R"]);
        standby.start();
        standby
    }

    /// Promotes a standby and waits until it accepts writes.
    #[track_caller]
    pub fn promote(&self) {
        let done: bool = sql::one(&mut self.connect(), "SELECT pg_promote(true, 60)");
        assert!(done, "the standby was not promoted within 60 s\n{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.postmaster {
            // Not reaped yet, so the pid is still this server's. After 5 seconds the postmaster kills a backend that
            // does not respond, for example because a test has stopped it.
            let _ = kill(as_pid(child.id()), Signal::SIGQUIT);
            let _ = child.wait();
        }
        let log = self.log_as_written();
        if std::thread::panicking() {
            self.show_end_of_log();
        }
        if self.data().join("global/pg_control").exists() {
            self.remove_lock_file();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
        if !std::thread::panicking() {
            assert_log_approved(&log);
        }
    }
}

/// Has the kernel give orphans among the program's descendants to it, as it gives them to process 1 of a container, which
/// is often a postmaster. One that ends by a signal is a crash to it.
#[allow(unsafe_code, reason = "nothing else runs code between fork and exec")]
fn adopt_orphans(command: &mut Command) {
    // SAFETY: a system call, and neither memory nor locks.
    unsafe { command.pre_exec(|| Ok(prctl::set_child_subreaper(true)?)) };
}

fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a pid fits an i32"))
}

fn micros_since_1970(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_micros() as i64,
        Err(before) => -(before.duration().as_micros() as i64),
    }
}
