//! Interventions from outside the server: cloning, rewinding, unexpected signals.

use crate::install::install;
use crate::preload::Preload;
use crate::server::{Builder, Server};
use crate::{ms, process, sandbox, secs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::NoTls;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A new empty folder of the servers' owner, which is removed when this process ends.
pub fn new_folder() -> PathBuf {
    sandbox::new_folder()
}

/// Gives a file or folder to the servers' owner.
pub fn own(path: &Path) {
    install().own(path);
}

impl Builder {
    /// A server that has a data directory and was never started.
    pub fn create(self) -> Server {
        self.build()
    }
}

impl Server {
    /// The folder around the data directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// From the next start on, the server loads this library before all others.
    pub fn preload(&mut self, preload: Preload) {
        self.preload = Some(preload);
    }

    /// From the next start on, the server has shared memory and `/dev/shm` of its own, as in a container. Returns whether
    /// that can be.
    pub fn contain(&mut self) -> bool {
        let tried = std::process::Command::new("unshare")
            .args(["--ipc", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"])
            .status();
        self.is_contained =
            nix::unistd::Uid::effective().is_root() && tried.is_ok_and(|status| status.success());
        if !self.is_contained {
            crate::skip("containers");
        }
        self.is_contained
    }

    /// From the next start on, the server runs beside this process again.
    pub fn leave_container(&mut self) {
        self.is_contained = false;
    }

    /// Whether the server was started and has not been stopped since.
    pub fn is_started(&self) -> bool {
        self.postmaster.is_some()
    }

    /// Starts the server, and waits until it accepts connections. Tries again if the shared memory of its predecessor
    /// is still in use, because that was killed.
    ///
    /// # Errors
    /// The server's log, if it accepts no connection within the limit.
    pub fn try_start(&mut self, limit: Duration) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < limit {
            let ended =
                |child: &mut std::process::Child| child.try_wait().expect("it is our child").is_some();
            if self.postmaster.is_none() {
                self.spawn();
            } else if self.postmaster.as_mut().is_some_and(ended) {
                self.postmaster = None;
                let log = self.log();
                let end = log.trim_end().rsplit('\n').take(4).collect::<Vec<_>>().join("\n");
                if !end.contains("shared memory block") && !end.contains("lock file") {
                    return Err(log);
                }
            } else if self.config().connect(NoTls).is_ok() {
                return Ok(());
            }
            std::thread::sleep(ms(10));
        }
        Err(self.log())
    }

    /// Kills the postmaster; its children may live on.
    #[track_caller]
    pub fn kill_postmaster(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait_for_exit(secs(10));
    }

    /// Sends a signal to one of this server's processes; returns whether the process still existed.
    pub fn try_signal(&self, pid: i32, signal: Signal) -> bool {
        process::parent(pid) == Some(self.pid()) && kill(Pid::from_raw(pid), signal).is_ok()
    }

    /// Has the server read its settings again, without waiting for it.
    pub fn reread_settings(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// A base backup of this server, not started: neither a standby nor a server of its own yet.
    #[track_caller]
    pub fn backup(&self) -> Server {
        let copy = self.sibling();
        self.back_up_to(&copy, &[]);
        copy
    }

    /// A server with the same settings and the same clock, without a data directory so far.
    pub fn sibling(&self) -> Server {
        self.sibling_with(self.like())
    }

    /// Makes a stopped server a standby of `primary` from its next start on.
    pub fn follow(&mut self, primary: &Server) {
        let info = format!("user=postgres port=5432 host={}", primary.folder.display());
        let text = format!("primary_conninfo = '{info}'\nrecovery_target_timeline = 'latest'\n");
        for (name, text) in [("postgresql.auto.conf", text.as_str()), ("standby.signal", "")] {
            let file = self.data().join(name);
            std::fs::write(&file, text).expect("the settings can be written");
            install().own(&file);
        }
        self.write_settings();
    }

    /// Rewinds this stopped server to the point at which it left the history of `source`, which runs.
    ///
    /// # Errors
    /// The output of `pg_rewind`.
    pub fn rewind(&mut self, source: &Server) -> Result<(), String> {
        let mut rewind = self.install.command("pg_rewind", &self.folder);
        let from = format!("host={} port=5432 user=postgres dbname=postgres", source.folder.display());
        rewind.arg("--no-sync").arg("--source-server").arg(from).arg("-D").arg(self.data());
        let output = rewind.output().map_err(|e| e.to_string())?;
        // pg_rewind copies the source's settings too.
        self.write_settings();
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}
