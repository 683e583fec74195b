//! A server's wall clock, which a test can move while the server runs.
//!
//! libfaketime stands between the server and the C library. It reads the offset from a file at every call, so all
//! processes of the server see a step at the same moment. The monotonic clocks stay true, as they do when a machine's
//! clock is set.
//!
//! In one point libfaketime is not faithful: while it forwards `epoll_wait`, it shows the true time, also to a signal
//! handler that runs meanwhile. PostgreSQL waits there, and the handlers of its timeouts look at the clock, so a step
//! back would not stretch the timeouts as it does on a real machine. A few lines of C let `epoll_wait` bypass
//! libfaketime.
//!
//! They also deny libfaketime its named semaphores. It gives each process one with shared memory beside it, and a
//! process that is killed leaves both. A later process with the same ID can then neither make them nor find its
//! parent's, which the first of that one's children to end has removed, and exits: commands of an archive failed so.
//! Nothing that tests use needs them.

use crate::install::{install, run};
use crate::sandbox;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

const STRAIGHT: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int nanosleep(const struct timespec *time, struct timespec *left)
{
    return syscall(SYS_nanosleep, time, left);
}

int select(int n, fd_set *in, fd_set *out, fd_set *other, struct timeval *left)
{
    struct timespec time;
    if (left)
        time = (struct timespec){left->tv_sec, left->tv_usec * 1000};
    return syscall(SYS_pselect6, n, in, out, other, left ? &time : NULL, NULL);
}

int epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
    return syscall(SYS_epoll_pwait, epfd, events, maxevents, timeout, NULL, 0);
}

sem_t *sem_open(const char *name, int flags, ...)
{
    errno = ENOSYS;
    return SEM_FAILED;
}
"#;

/// A server's wall clock: the machine's clock plus an offset.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
    /// Microseconds.
    offset: Mutex<i64>,
}

impl Clock {
    /// A true clock, whose file is kept in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        let clock = Self { file: folder.join("clock"), offset: Mutex::new(0) };
        clock.shift(0);
        clock
    }

    /// Moves the clock backwards. It goes on from there at its usual pace.
    pub fn back(&self, by: Duration) {
        self.shift(-micros(by));
    }

    /// Moves the clock forward.
    pub fn forward(&self, by: Duration) {
        self.shift(micros(by));
    }

    /// How far the clock is ahead of the machine's clock, in microseconds.
    pub fn offset(&self) -> i64 {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shift(&self, by: i64) {
        let mut offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        *offset += by;
        let sign = if *offset < 0 { '-' } else { '+' };
        let size = offset.unsigned_abs();
        let text = format!("{sign}{}.{:06}\n", size / 1_000_000, size % 1_000_000);
        // A reader sees the old file or the new one, never part of one.
        let next = self.file.with_extension("next");
        std::fs::write(&next, text).expect("the clock's file can be written");
        install().own(&next);
        std::fs::rename(&next, &self.file).expect("the clock's file can be replaced");
    }

    /// Makes a command's process use this clock.
    pub(crate) fn apply_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", format!("{}:{}", straight().display(), library().display()))
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("FAKETIME_DONT_RESET", "1")
            .env("NO_FAKE_STAT", "1");
    }
}

fn micros(by: Duration) -> i64 {
    i64::try_from(by.as_micros()).expect("a step of less than 292,000 years")
}

/// Lets waiting calls bypass libfaketime. While it waits, it shows the true time to signal handlers, and to the
/// processes that these start for as long as they live; up to PostgreSQL 15, a postmaster starts its background workers
/// from a handler. A C compiler is there wherever Rust is, because Rust needs it to link.
fn straight() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = sandbox::new_folder();
        let (source, library) = (folder.join("straight.c"), folder.join("straight.so"));
        std::fs::write(&source, STRAIGHT).expect("the source can be written");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        run(compiler);
        library
    })
}

/// Debian's libfaketime. Tests that need it fail without it; they are not skipped.
#[track_caller]
pub fn library() -> PathBuf {
    let mut folders = vec![PathBuf::from("/usr/lib"), PathBuf::from("/usr/lib64")];
    folders.extend(std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|e| e.path()));
    folders
        .into_iter()
        .map(|folder| folder.join("faketime/libfaketime.so.1"))
        .find(|path| path.exists())
        .expect("libfaketime.so.1 (Debian package libfaketime) is installed")
}
