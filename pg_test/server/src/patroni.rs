//! A cluster that Patroni manages with etcd: servers that it creates, promotes, rewinds and clones.

use crate::install::{companions, install, run};
use crate::process::has_ended;
use crate::registry::loopback_address;
use crate::sandbox::new_folder;
use crate::{ms, secs, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::{Client, Config, NoTls};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// etcd, and where Patroni's modules are.
pub struct Etcd {
    process: Child,
    address: String,
    folder: PathBuf,
    modules: PathBuf,
}

impl Etcd {
    /// Starts an etcd of its own.
    #[track_caller]
    pub fn start() -> Self {
        let part = companions("patroni");
        let (folder, address) = (new_folder(), loopback_address());
        // Copied, because the servers' owner may not get to the build's folder.
        let modules = folder.join("modules");
        let mut copy = Command::new("cp");
        copy.arg("-rL").arg(part.join("modules")).arg(&modules);
        run(&mut copy);
        let (clients, peers) = (format!("http://{address}:2379"), format!("http://{address}:2380"));
        let mut etcd = with_parent(&part.join("usr/bin/etcd"));
        etcd.arg("--data-dir").arg(folder.join("etcd")).args([
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
            "--listen-peer-urls",
            &peers,
            "--initial-advertise-peer-urls",
            &peers,
            "--initial-cluster",
            &format!("default={peers}"),
        ]);
        let process = logged(&mut etcd, &folder.join("etcd.log")).spawn().expect("etcd can be started");
        Self { process, address, folder, modules }
    }

    fn python(&self, program: &str, folder: &Path) -> Command {
        let mut command = install().command("/usr/bin/setpriv", folder);
        command.args(["--pdeathsig", "KILL", "python3"]).arg(self.modules.join("bin").join(program));
        command.env("PYTHONPATH", &self.modules).env("PATH", "/usr/bin:/bin");
        command
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A command that ends with the thread that starts it, however that ends.
fn with_parent(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

fn logged<'a>(command: &'a mut Command, file: &Path) -> &'a mut Command {
    let log = fs::OpenOptions::new().create(true).append(true).open(file).expect("a log");
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log)
}

/// One server, and the Patroni that manages it.
pub struct Node {
    /// Its name in the cluster.
    pub name: String,
    folder: PathBuf,
    address: String,
    patroni: Child,
}

impl Node {
    /// How to connect to the server as a superuser.
    pub fn config(&self) -> Config {
        let mut config = Config::new();
        config.host_path(&self.folder).port(5432).user("postgres").dbname("postgres");
        config.connect_timeout(secs(5));
        config
    }

    /// A session on the server.
    #[track_caller]
    pub fn connect(&self) -> Client {
        self.config().connect(NoTls).unwrap_or_else(|e| panic!("{}: {e:?}\n{}", self.name, self.log()))
    }

    fn postmaster(&self) -> Option<i32> {
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok().filter(|pid| !has_ended(*pid))
    }

    /// The end of Patroni's log.
    pub fn log(&self) -> String {
        let log = fs::read_to_string(self.folder.join("patroni.log")).unwrap_or_default();
        log[log.floor_char_boundary(log.len().saturating_sub(4_000))..].to_owned()
    }

    /// Sends a signal to Patroni, not to the server.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.patroni.id() as i32), signal);
    }

    /// The timeline on which the node's server writes; `None` while it does not, or does not answer.
    pub fn timeline(&self) -> Option<i32> {
        let now = "SELECT CASE WHEN NOT pg_is_in_recovery()
                   THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END";
        self.config().connect(NoTls).ok()?.query_one(now, &[]).ok()?.get(0)
    }

    /// Kills Patroni and the server, as a host that loses its power.
    pub fn kill(&mut self) {
        let postmaster = self.postmaster();
        let _ = self.patroni.kill();
        let _ = self.patroni.wait();
        let Some(postmaster) = postmaster else { return };
        let _ = kill(Pid::from_raw(postmaster), Signal::SIGKILL);
        // Its processes notice that it is gone.
        wait_until("the postmaster's end", secs(60), || has_ended(postmaster).then_some(()));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let postmaster = self.postmaster();
        let _ = self.patroni.kill();
        let _ = self.patroni.wait();
        if let Some(postmaster) = postmaster {
            let _ = kill(Pid::from_raw(postmaster), Signal::SIGQUIT);
            wait_until("the postmaster's end", secs(60), || has_ended(postmaster).then_some(()));
        }
        // The file in which the node's servers locked their workers.
        if let Ok(control) = fs::read(self.folder.join("data/global/pg_control")) {
            let identifier = u64::from_ne_bytes(control[..8].try_into().expect("8 bytes"));
            let _ = fs::remove_file(format!("/dev/shm/snowflake_id.{identifier}"));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The nodes of one cluster.
pub struct Cluster<'e> {
    etcd: &'e Etcd,
    scope: String,
    /// In the order in which they were created.
    pub nodes: Vec<Node>,
}

/// Asks a Patroni for its cluster. One that is stopped does not answer.
fn cluster_of(address: &str) -> io::Result<serde_json::Value> {
    let to = SocketAddr::new(address.parse().map_err(io::Error::other)?, 8008);
    let mut stream = TcpStream::connect_timeout(&to, secs(1))?;
    stream.set_read_timeout(Some(secs(2)))?;
    stream.write_all(b"GET /cluster HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    Ok(serde_json::from_str(body)?)
}

/// A member of a cluster.
#[derive(Debug)]
struct Member {
    name: String,
    role: String,
    state: String,
    timeline: Option<u64>,
}

impl Member {
    /// Of its cluster, or of a standby cluster.
    fn leads(&self) -> bool {
        self.role.ends_with("leader")
    }
}

impl<'e> Cluster<'e> {
    /// A cluster of so many nodes with these settings of PostgreSQL in its dynamic configuration, and those of `local` in
    /// a node's own; with `primary`, a standby cluster of that node. Returns when all follow their leader.
    #[track_caller]
    pub fn start(
        etcd: &'e Etcd,
        scope: &str,
        nodes: usize,
        settings: &[(&str, &str)],
        local: impl Fn(usize) -> String,
        primary: Option<&Node>,
    ) -> Self {
        let mut cluster = Self { etcd, scope: scope.to_owned(), nodes: Vec::new() };
        let parameters: String =
            settings.iter().map(|(name, value)| format!("        {name}: \"{value}\"\n")).collect();
        let follows = primary.map_or_else(String::new, |node| {
            format!("    standby_cluster:\n      host: {}\n      port: 5432\n", node.address)
        });
        // The shortest times that Patroni takes.
        let dynamic = format!(
            "    ttl: 20\n    loop_wait: 1\n    retry_timeout: 3\n{follows}    postgresql:\n      use_pg_rewind: true\n      \
             parameters:\n        max_connections: \"50\"\n        shared_buffers: 16MB\n{parameters}"
        );
        for n in 0..nodes {
            let (folder, address) = (new_folder(), loopback_address());
            let name = format!("{scope}{n}");
            let settings = cluster.settings_of(&name, &address, &folder, &dynamic) + &local(n);
            fs::write(folder.join("patroni.yml"), settings).expect("the settings");
            let patroni = cluster.patroni(&folder);
            cluster.nodes.push(Node { name, folder, address, patroni });
        }
        cluster.wait_until_healthy();
        cluster
    }

    fn settings_of(&self, name: &str, address: &str, folder: &Path, dynamic: &str) -> String {
        let (scope, etcd) = (&self.scope, &self.etcd.address);
        let (bin, folder) = (install().bindir.display(), folder.display());
        format!(
            "scope: {scope}
name: {name}
restapi:
  listen: {address}:8008
  connect_address: {address}:8008
etcd3:
  host: {etcd}:2379
bootstrap:
  dcs:
{dynamic}  initdb:
    - encoding: UTF8
    - locale: C
    - no-sync
postgresql:
  listen: {address}:5432
  connect_address: {address}:5432
  data_dir: {folder}/data
  bin_dir: {bin}
  authentication:
    superuser: {{username: postgres, password: x}}
    replication: {{username: replicator, password: x}}
  pg_hba:
    - local all all trust
    - host all all 127.0.0.0/8 trust
    - host replication all 127.0.0.0/8 trust
  basebackup:
    - checkpoint: fast
  parameters:
    unix_socket_directories: {folder}
"
        )
    }

    /// The cluster's name, as patronictl takes it.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    fn patroni(&self, folder: &Path) -> Child {
        let mut command = self.etcd.python("patroni", folder);
        command.arg("patroni.yml");
        logged(&mut command, &folder.join("patroni.log")).spawn().expect("Patroni can be started")
    }

    /// Starts the Patroni of a node that was killed.
    pub fn start_again(&mut self, n: usize) {
        self.nodes[n].patroni = self.patroni(&self.nodes[n].folder);
    }

    /// Runs patronictl, which must succeed.
    ///
    /// # Errors
    /// What it printed.
    pub fn ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.etcd.python("patronictl", &self.nodes[0].folder);
        let output = command.args(["-c", "patroni.yml"]).args(arguments).output().expect("patronictl");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaints = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(printed) } else { Err(printed + &complaints) }
    }

    /// The members, as a node's Patroni tells. patronictl would take a second of a processor for it.
    fn members(&self) -> Vec<Member> {
        let cluster = self.nodes.iter().find_map(|node| cluster_of(&node.address).ok()).unwrap_or_default();
        let text = |member: &serde_json::Value, name: &str| member[name].as_str().unwrap_or("").to_owned();
        let members = cluster["members"].as_array().into_iter().flatten();
        let of = |member| Member {
            name: text(member, "name"),
            role: text(member, "role"),
            state: text(member, "state"),
            timeline: member["timeline"].as_u64(),
        };
        members.map(of).collect()
    }

    /// Whether this member is the leader.
    pub fn is_leader(&self, name: &str) -> bool {
        self.members().iter().any(|member| member.name == name && member.leads())
    }

    /// Waits until there is a leader whose server accepts writes, and returns its position. Patroni's answer may be that
    /// of a second before, and a server that it has just made the leader may still be in recovery, long on a busy
    /// machine.
    #[track_caller]
    pub fn wait_for_leader(&self, is_it: impl Fn(usize) -> bool) -> usize {
        self.wait(|members| {
            let leader = members.iter().find(|member| member.leads())?;
            let n = self.nodes.iter().position(|node| node.name == leader.name)?;
            (leader.state == "running" && is_it(n) && self.nodes[n].timeline().is_some()).then_some(n)
        })
    }

    /// Waits until all nodes run, and follow their leader on its timeline.
    #[track_caller]
    pub fn wait_until_healthy(&self) {
        self.wait(|members| {
            let timeline = members.first()?.timeline?;
            let is_well = |member: &Member| {
                ["running", "streaming"].contains(&member.state.as_str()) && member.timeline == Some(timeline)
            };
            let leaders = members.iter().filter(|member| member.leads()).count();
            (members.len() == self.nodes.len() && leaders == 1 && members.iter().all(is_well)).then_some(())
        });
    }

    #[track_caller]
    fn wait<T>(&self, ready: impl Fn(&[Member]) -> Option<T>) -> T {
        let began = std::time::Instant::now();
        loop {
            let members = self.members();
            if let Some(answer) = ready(&members) {
                return answer;
            }
            if began.elapsed() > secs(240) {
                let logs: Vec<String> =
                    self.nodes.iter().map(|n| format!("{}:\n{}", n.name, n.log())).collect();
                panic!("the cluster stays so: {members:?}\n{}", logs.join("\n"));
            }
            std::thread::sleep(ms(200));
        }
    }
}
