//! A contact in a process of its own, which can be killed at any moment.
//!
//! libpq has calls that do not block, and they block nonetheless: for name servers, Kerberos and LDAP. Meanwhile the
//! worker would answer no signal, and the server could not stop. (PostgreSQL's WAL receiver bears with that.) They also
//! leave `connect_timeout` to the caller, who cannot make libpq go on to the next host. A process that is forked for
//! each contact solves both, and more: libpq is loaded there and nowhere else, a fault of it or of a library that it
//! brings along takes no server down, and an update of it counts at once.
//!
//! The child runs no code of PostgreSQL besides leaving shared memory. The worker waits for it on its latch and by the
//! monotonic clock.
//!
//! The child ends with the worker. In a container the postmaster is process 1, inherits orphans, and takes one that a
//! signal ended for a crash of the server. So however the worker ends, it ends the child first and reaps it, in a
//! callback of `proc_exit`. Where no callback runs, or the child takes too long, it is an orphan that leaves with an exit
//! status, which the postmaster does not mind: signals that ask it to end, the kernel's about the worker's end among
//! them, make it exit.

use crate::display::io_error;
use crate::messages::Awaited;
use crate::time::clock_us;
use crate::waiting;
use pgrx::bgworkers::BackgroundWorker;
use pgrx::prelude::*;
use snowflake_contact::{Contacted, Failure, Hosts, Kind, Reply, Request, contact as blocking_contact};
use std::ffi::{CStr, CString, OsStr, c_int};
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a contact may take to connect at first, and then to be answered: three hosts that are silent, and one that
/// answers. Shorter than the time between two contacts.
const LIMIT: Duration = Duration::from_secs(8);
/// The most that a contact may take to connect, where the connection string or the name servers need longer.
const LONGEST: Duration = Duration::from_secs(128);
/// How long libpq tries a host, in seconds, where neither the connection string, nor the service file, nor the server's
/// environment says so. libpq has no shorter time.
const HOST_LIMIT: &CStr = c"2";
/// The most bytes of a result.
const LONGEST_RESULT: usize = 1 << 16;

unsafe extern "C" {
    /// PostgreSQL's: what a child does that needs no shared memory.
    fn PGSharedMemoryDetach();
}

/// The way to the registry of a connection string, and what earlier contacts have shown of it.
#[derive(Debug)]
pub struct Way {
    pub connection_string: CString,
    /// How long a contact may take to connect. Twice as long after each that was too short, up to the longest: libpq
    /// itself knows what the string, a service file and the environment allow to each host, and name servers that do not
    /// answer cost more.
    limit: Duration,
    /// After an answer of one of several hosts: all, beginning with that one. The others are asked again when it fails.
    hosts: Option<Hosts>,
}

impl Way {
    pub fn of(connection_string: CString) -> Self {
        Self { connection_string, limit: LIMIT, hosts: None }
    }

    /// Makes a contact, and waits for its end; `None` if `is_obsolete` becomes true meanwhile, which is asked whenever
    /// something wakes this process. Ends the process if it is told to stop.
    pub fn contact(
        &mut self,
        request: &Request,
        is_obsolete: impl FnMut() -> bool,
    ) -> Option<Result<Reply, Failure>> {
        let contacted = contacted(self, request, is_obsolete)?;
        let Contacted { result, hosts } =
            contacted.unwrap_or_else(|failure| Contacted { result: Err(failure), hosts: None });
        self.hosts = hosts;
        Some(result)
    }
}

fn contacted(
    way: &mut Way,
    request: &Request,
    mut is_obsolete: impl FnMut() -> bool,
) -> Option<Result<Contacted, Failure>> {
    let mut deadline = Instant::now() + way.limit;
    let failed = |error: io::Error| {
        let why = io_error(&error);
        Failure::new(Kind::Process, format!("could not run the process that contacts the registry: {why}"))
    };
    let forked = || {
        let (reader, writer) = io::pipe()?;
        let child = Child::fork(|| make(way, request, writer))?;
        set_nonblocking(&reader)?;
        Ok((reader, child))
    };
    let (mut reader, mut child) = match forked() {
        Ok(forked) => forked,
        Err(error) => return Some(Err(failed(error))),
    };
    let mut bytes = Vec::new();
    loop {
        let was_connected = !bytes.is_empty();
        let is_end = read_some(&mut reader, &mut bytes);
        // A stop of the server asks the child to end, too, and the worker hears of the stop first.
        if BackgroundWorker::sigterm_received() {
            // SAFETY: ends the process as PostgreSQL's own workers do. Status 0 would tell the postmaster never to
            // start the registrar again.
            unsafe { pg_sys::proc_exit(1) };
        }
        match is_end {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => return Some(Err(failed(error))),
        }
        if is_obsolete() {
            return None;
        }
        if bytes.len() > LONGEST_RESULT {
            return Some(Err(Failure::new(Kind::Process, "the result is too long")));
        }
        if !was_connected && !bytes.is_empty() {
            deadline = Instant::now() + LIMIT;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let limit = if bytes.is_empty() { way.limit } else { LIMIT };
            if bytes.is_empty() {
                way.limit = (way.limit * 2).min(LONGEST);
            }
            let text = format!("the registry did not answer within {} s", limit.as_secs());
            return Some(Err(Failure::new(Kind::Deadline, text)));
        }
        waiting::until_readable(reader.as_raw_fd(), left, Awaited::Registry);
    }
    let ended = child.wait();
    Some(serde_json::from_slice(&bytes).map_err(|_| Failure::new(Kind::Process, ended)))
}

/// Reads what is there; whether it was the end.
fn read_some(reader: &mut PipeReader, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut chunk = [0; 4_096];
    match reader.read(&mut chunk) {
        Ok(0) => Ok(true),
        Ok(length) => {
            bytes.extend_from_slice(&chunk[..length]);
            Ok(false)
        }
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => Ok(false),
        Err(error) => Err(error),
    }
}

fn set_nonblocking(reader: &PipeReader) -> io::Result<()> {
    // SAFETY: changes a flag of an open file of this process.
    match unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// In the child: makes the contact, and writes its result; before that a space, once it is connected, which JSON ignores.
fn make(way: &Way, request: &Request, mut writer: PipeWriter) {
    // SAFETY: the child has one thread; the names are static. 0: what the environment says counts.
    unsafe { libc::setenv(c"PGCONNECT_TIMEOUT".as_ptr(), HOST_LIMIT.as_ptr(), 0) };
    // PostgreSQL's own module is linked with the libpq that the server was built with, wherever that is.
    // SAFETY: PostgreSQL set the path when it started, and it ends in a zero byte.
    let folder = unsafe { CStr::from_ptr((&raw const pg_sys::pkglib_path).cast()) };
    let module = Path::new(OsStr::from_bytes(folder.to_bytes())).join("libpqwalreceiver.so");
    let libraries = [Path::new("libpq.so.5"), &module];
    let connected = || drop((&writer).write_all(b" "));
    let now = || clock_us(libc::CLOCK_REALTIME);
    let contacted =
        blocking_contact(&libraries, &way.connection_string, way.hosts.as_ref(), request, connected, now);
    let _ = writer.write_all(&serde_json::to_vec(&contacted).unwrap_or_default());
}

/// The signals that ask a process to end.
const ASKING: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];
/// How long the end of this process waits for that of its child, which only the kernel can hold for longer.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The child of this process that was not reaped; 0: none.
static RUNNING: AtomicI32 = AtomicI32::new(0);

/// Ends and reaps the child before this process ends.
#[pg_guard]
extern "C-unwind" fn end_child(_status: c_int, _argument: pg_sys::Datum) {
    let pid = RUNNING.swap(0, Ordering::Relaxed);
    if pid == 0 {
        return;
    }
    // SAFETY: a child of this process that was not waited for, so its number is still its own.
    unsafe { libc::kill(pid, libc::SIGTERM) };
    let deadline = Instant::now() + LAST_WAIT;
    // SAFETY: as above.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) } == 0 && Instant::now() < deadline
    {
        thread::sleep(Duration::from_millis(1));
    }
}

/// In the child: ends it with a status. No code of PostgreSQL's runs at the end of this process.
extern "C" fn leave(_signal: c_int) {
    // SAFETY: allowed in a signal handler.
    unsafe { libc::_exit(1) }
}

/// A forked process. Dropping it kills it.
struct Child {
    pid: libc::pid_t,
    is_reaped: bool,
}

impl Child {
    /// Forks a process that runs `work` and ends. No signal comes between, for its handler would be PostgreSQL's.
    fn fork(work: impl FnOnce()) -> io::Result<Self> {
        static END_CHILD: Once = Once::new();
        // SAFETY: a function for the end of this process, which has one thread.
        END_CHILD.call_once(|| unsafe { pg_sys::on_proc_exit(Some(end_child), pg_sys::Datum::null()) });
        // SAFETY: a valid set of signals; this process has one thread, so its child may do whatever it may.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before);
            let parent = libc::getpid();
            let pid = libc::fork();
            if pid == 0 {
                leave_server(parent);
                // Whatever happens, no code of PostgreSQL's runs at the end of this process.
                let status = catch_unwind(AssertUnwindSafe(work)).map_or(1, |()| 0);
                libc::_exit(status);
            }
            let error = io::Error::last_os_error();
            // Before any signal can end this process.
            RUNNING.store(pid.max(0), Ordering::Relaxed);
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
        RUNNING.store(0, Ordering::Relaxed);
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

/// In the child: no signal handler of PostgreSQL's, no shared memory, no life without the worker.
///
/// # Safety
/// Called by a child that was just forked, with all signals blocked.
unsafe fn leave_server(parent: libc::pid_t) {
    // SAFETY: by this function's contract. The child uses nothing in shared memory after this.
    unsafe {
        for signal in (1..=31).filter(|signal| *signal != libc::SIGPIPE) {
            libc::signal(signal, libc::SIG_DFL);
        }
        for signal in ASKING {
            libc::signal(signal, leave as *const () as libc::sighandler_t);
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
