//! A contact in a process of its own, which can be killed at any moment.
//!
//! libpq's non-blocking calls block on name servers, Kerberos and LDAP. Meanwhile the worker could not react to signals,
//! nor the server stop. (PostgreSQL's WAL receiver accepts that.) They also leave `connect_timeout` to the caller, who
//! cannot make libpq try the next host. A process that is forked for each contact solves both. Besides, libpq is loaded
//! only there, so a crash in it or in a library that it loads does not restart the server, and an update is used at once.
//!
//! The child runs no code of PostgreSQL except to detach shared memory. The worker waits for it on its latch and by the
//! monotonic clock.
//!
//! The child must not outlive the worker, so the kernel signals the child when the worker is gone. And no signal may kill it
//! as an orphan: in a container the postmaster is PID 1, reaps orphans, and treats one that a signal killed as a crashed
//! backend. On this and all termination signals the child exits with a status, which the postmaster ignores.

use crate::platform::waiting;
use crate::postgres::display::io_error;
use crate::postgres::time::clock_us;
use pgrx::prelude::*;
use snowflake_contact::{Failure, Kind, Reply, Request, contact as blocking_contact};
use std::ffi::{CStr, OsStr, c_int};
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit to connect, which covers slow name servers and unresponsive hosts.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// Time limit from there to the reply: the registry's function waits up to 5 s for a lock.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);
/// Byte that the child writes once it is connected. No result begins with white space, and JSON ignores it.
const CONNECTED: u8 = b' ';
/// `connect_timeout` per host, in seconds, unless the connection string, service file or environment sets it. The minimum.
const HOST_LIMIT: &CStr = c"2";

unsafe extern "C" {
    /// PostgreSQL's function for a child that needs no shared memory.
    fn PGSharedMemoryDetach();
}

/// How a contact ended.
pub enum Ended {
    /// With a reply, or a failure.
    Answered(Result<Reply, Failure>),
    /// `is_obsolete` became true before the reply came.
    Abandoned,
}

/// Makes a contact, and waits for its end. Calls `is_obsolete` at each wake-up.
pub fn contact(connection_string: &CStr, request: &Request, is_obsolete: impl FnMut() -> bool) -> Ended {
    run_contact(connection_string, request, is_obsolete).unwrap_or_else(|error| {
        let why = io_error(&error);
        let text = format!("could not run the process that contacts the registry: {why}");
        Ended::Answered(Err(Failure::new(Kind::Server, text)))
    })
}

fn run_contact(
    connection_string: &CStr,
    request: &Request,
    mut is_obsolete: impl FnMut() -> bool,
) -> io::Result<Ended> {
    let (mut limit, mut is_connected) = (CONNECT_LIMIT, false);
    let mut deadline = Instant::now() + limit;
    let (mut reader, writer) = io::pipe()?;
    // The child inherits the request, and both ends of the pipe.
    let mut child = Child::fork(|| run_in_child(connection_string, request, &writer))?;
    drop(writer);
    // SAFETY: changes a flag of an open file of this process.
    if unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut bytes = Vec::new();
    loop {
        let is_end = read_some(&mut reader, &mut bytes)?;
        // Checked first: a stop of the server terminates the child, too, which is no failure of the contact.
        if is_obsolete() {
            return Ok(Ended::Abandoned);
        }
        if is_end {
            break;
        }
        if !is_connected && bytes.first() == Some(&CONNECTED) {
            (is_connected, limit) = (true, ANSWER_LIMIT);
            deadline = Instant::now() + limit;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let text = format!("the registry did not answer within {} s", limit.as_secs());
            return Ok(Ended::Answered(Err(Failure::new(Kind::Connection, text))));
        }
        waiting::until_readable(reader.as_raw_fd(), left, waiting::Awaited::Registry);
    }
    let ended = child.wait();
    let result = serde_json::from_slice(&bytes).unwrap_or_else(|_| Err(Failure::new(Kind::Server, ended)));
    Ok(Ended::Answered(result))
}

/// Reads the available bytes; returns whether the pipe is at its end.
fn read_some(reader: &mut PipeReader, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut chunk = [0; 4_096];
    match reader.read(&mut chunk) {
        Ok(0) => Ok(true),
        Ok(length) => {
            bytes.extend_from_slice(&chunk[..length]);
            Ok(false)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Runs in the child: makes the contact, writes `CONNECTED` once it is connected, and then the result.
fn run_in_child(connection_string: &CStr, request: &Request, mut answers: &PipeWriter) {
    // SAFETY: the child has one thread, and the names are static. 0: keeps a value of the environment.
    unsafe { libc::setenv(c"PGCONNECT_TIMEOUT".as_ptr(), HOST_LIMIT.as_ptr(), 0) };
    // PostgreSQL's own module is linked with the libpq that the server was built with.
    // SAFETY: PostgreSQL set the path when it started, and it ends in a zero byte.
    let folder = unsafe { CStr::from_ptr((&raw const pg_sys::pkglib_path).cast()) };
    let module = Path::new(OsStr::from_bytes(folder.to_bytes())).join("libpqwalreceiver.so");
    let libraries = [Path::new("libpq.so.5"), &module];
    // If the worker is gone, the kernel ends this process.
    let connected = || drop((&*answers).write_all(&[CONNECTED]));
    let clock = || clock_us(libc::CLOCK_REALTIME);
    let result = blocking_contact(&libraries, connection_string, request, connected, clock);
    let _ = answers.write_all(&serde_json::to_vec(&result).unwrap_or_default());
}

/// The signals that ask a process to end.
const TERMINATION_SIGNALS: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];

/// Runs in the child: exits with a status, without PostgreSQL's exit callbacks.
extern "C" fn exit_child(_signal: c_int) {
    // SAFETY: allowed in a signal handler.
    unsafe { libc::_exit(1) }
}

/// A forked process. Dropping it kills it.
struct Child {
    pid: libc::pid_t,
    is_reaped: bool,
}

impl Child {
    /// Forks a process that runs `work` and exits. Signals are blocked until it has handlers of its own.
    fn fork(work: impl FnOnce()) -> io::Result<Self> {
        // SAFETY: a valid set of signals; this process has one thread, so its child may call any function.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before);
            let parent = libc::getpid();
            let pid = libc::fork();
            if pid == 0 {
                detach_from_postmaster(parent);
                // Exits also after a panic, so that none of PostgreSQL's exit callbacks runs.
                let status = catch_unwind(AssertUnwindSafe(work)).map_or(1, |()| 0);
                libc::_exit(status);
            }
            let error = io::Error::last_os_error();
            libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            if pid < 0 { Err(error) } else { Ok(Self { pid, is_reaped: false }) }
        }
    }

    fn kill(&self) {
        // SAFETY: a child of this process that was not waited for, so its number is still its own.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    /// Waits for the end of a process that is about to end; returns how it ended.
    fn wait(&mut self) -> String {
        self.is_reaped = true;
        let mut status: c_int = 0;
        // SAFETY: a child of this process that was not waited for.
        while unsafe { libc::waitpid(self.pid, &mut status, 0) } < 0 {
            if io::Error::last_os_error().kind() != ErrorKind::Interrupted {
                break;
            }
        }
        match libc::WIFSIGNALED(status) {
            true => format!("the process was terminated by signal {}", libc::WTERMSIG(status)),
            false => format!("the process ended with status {} and no result", libc::WEXITSTATUS(status)),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
            self.wait();
        }
    }
}

/// Runs in the child: replaces PostgreSQL's signal handlers, asks the kernel for SIGTERM at the worker's end, and detaches
/// shared memory.
///
/// # Safety
/// Called by a child that was just forked, with all signals blocked.
unsafe fn detach_from_postmaster(parent: libc::pid_t) {
    // SAFETY: by this function's contract. The child uses nothing in shared memory after this.
    unsafe {
        for signal in (1..=31).filter(|signal| *signal != libc::SIGPIPE) {
            libc::signal(signal, libc::SIG_DFL);
        }
        for signal in TERMINATION_SIGNALS {
            libc::signal(signal, exit_child as *const () as libc::sighandler_t);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        if libc::getppid() != parent {
            libc::_exit(1);
        }
        PGSharedMemoryDetach();
    }
}
