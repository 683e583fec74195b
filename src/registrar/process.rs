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
use crate::waiting;
use pgrx::prelude::*;
use snowflake_contact::{Failure, Kind, Reply, Value, contact as blocking_contact};
use std::ffi::{CStr, OsStr, c_int};
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a contact may take to connect, with name servers and hosts that are silent.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// How long it may take from there on: the registry's function waits for a lock for 5 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);
/// And both together.
pub const LONGEST: Duration = CONNECT_LIMIT.saturating_add(ANSWER_LIMIT);
/// What the child writes once it is connected: white space, which no result begins with, and JSON ignores.
const CONNECTED: u8 = b' ';
/// How long libpq tries a host, in seconds, where neither the connection string, nor the service file, nor the server's
/// environment says so. libpq has no shorter time.
const HOST_LIMIT: &CStr = c"2";

unsafe extern "C" {
    /// PostgreSQL's: what a child does that needs no shared memory.
    fn PGSharedMemoryDetach();
}

/// How a contact ended.
pub enum Ended {
    /// With an answer, or without one.
    Answered(Result<Reply, Failure>),
    /// The contact was given up before the registry was asked, or before it answered.
    Unasked,
}

/// Makes a contact, and waits for its end, in all no longer than `longest`. `ask` is called once the registry has accepted
/// the connection, and returns the arguments of a request if there is one. `is_obsolete` is asked whenever something wakes
/// this process.
pub fn contact(
    connection_string: &CStr,
    longest: Duration,
    ask: impl FnOnce() -> Option<Vec<Value>>,
    is_obsolete: impl FnMut() -> bool,
) -> Ended {
    contacted(connection_string, longest, ask, is_obsolete).unwrap_or_else(|error| {
        let why = io_error(&error);
        let text = format!("could not run the process that contacts the registry: {why}");
        Ended::Answered(Err(Failure::new(Kind::Server, text)))
    })
}

fn contacted(
    connection_string: &CStr,
    longest: Duration,
    ask: impl FnOnce() -> Option<Vec<Value>>,
    mut is_obsolete: impl FnMut() -> bool,
) -> io::Result<Ended> {
    let end = Instant::now() + longest;
    let mut limit = CONNECT_LIMIT.min(longest);
    let mut deadline = Instant::now() + limit;
    let (mut reader, answers) = io::pipe()?;
    let (questions, writer) = io::pipe()?;
    // The child has both ends of both: its own are those that it uses.
    let mut child = Child::fork(|| make(connection_string, questions, answers, writer.as_raw_fd()))?;
    set_nonblocking(&reader)?;
    let mut asking = Some((ask, writer));
    let mut bytes = Vec::new();
    loop {
        let is_end = read_some(&mut reader, &mut bytes)?;
        // A stop of the server asks the child to end, too, and the worker gets to know of the stop first.
        if is_obsolete() {
            return Ok(Ended::Unasked);
        }
        if is_end {
            break;
        }
        if bytes.first() == Some(&CONNECTED)
            && let Some((ask, mut writer)) = asking.take()
        {
            let Some(arguments) = ask() else { return Ok(Ended::Unasked) };
            // Fewer bytes than a pipe holds. If the child has ended, how it ended says why.
            let _ = writer.write_all(&serde_json::to_vec(&arguments).unwrap_or_default());
            let now = Instant::now();
            limit = ANSWER_LIMIT.min(end.saturating_duration_since(now));
            deadline = now + limit;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let text = format!("the registry did not answer within {:.0} s", limit.as_secs_f64().ceil());
            return Ok(Ended::Answered(Err(Failure::new(Kind::Connection, text))));
        }
        waiting::until_readable(reader.as_raw_fd(), left, Awaited::Registry);
    }
    let ended = child.wait();
    let result = serde_json::from_slice(&bytes).unwrap_or_else(|_| Err(Failure::new(Kind::Server, ended)));
    Ok(Ended::Answered(result))
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

/// In the child: makes the contact, and writes its result. Once it is connected, it says so and reads what to ask.
/// `parents_end` is the end of the questions' pipe that the parent alone may have: without
/// it, a parent that asks nothing ends the questions.
fn make(connection_string: &CStr, mut questions: PipeReader, mut answers: PipeWriter, parents_end: RawFd) {
    // SAFETY: the child has one thread, and its copy of this end is used by nothing else. The names are static. 0: what the
    // environment says counts.
    unsafe {
        libc::close(parents_end);
        libc::setenv(c"PGCONNECT_TIMEOUT".as_ptr(), HOST_LIMIT.as_ptr(), 0);
    }
    // PostgreSQL's own module is linked with the libpq that the server was built with, wherever that is.
    // SAFETY: PostgreSQL set the path when it started, and it ends in a zero byte.
    let folder = unsafe { CStr::from_ptr((&raw const pg_sys::pkglib_path).cast()) };
    let module = Path::new(OsStr::from_bytes(folder.to_bytes())).join("libpqwalreceiver.so");
    let libraries = [Path::new("libpq.so.5"), &module];
    let ask = || {
        let mut text = Vec::new();
        let asked = (&answers).write_all(&[CONNECTED]).and_then(|()| questions.read_to_end(&mut text));
        let arguments = asked.ok().and_then(|_| serde_json::from_slice(&text).ok());
        arguments.ok_or_else(|| Failure::new(Kind::Server, "there is nothing to ask"))
    };
    let result = blocking_contact(&libraries, connection_string, ask);
    let _ = answers.write_all(&serde_json::to_vec(&result).unwrap_or_default());
}

/// The signals that ask a process to end.
const TERMINATION_SIGNALS: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];
/// How long the end of this process waits for that of its child, which only the kernel can hold for longer.
const EXIT_LIMIT: Duration = Duration::from_secs(2);

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
    let deadline = Instant::now() + EXIT_LIMIT;
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
                detach_from_postmaster(parent);
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
unsafe fn detach_from_postmaster(parent: libc::pid_t) {
    // SAFETY: by this function's contract. The child uses nothing in shared memory after this.
    unsafe {
        for signal in (1..=31).filter(|signal| *signal != libc::SIGPIPE) {
            libc::signal(signal, libc::SIG_DFL);
        }
        for signal in TERMINATION_SIGNALS {
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
