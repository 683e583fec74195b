//! A server's wall clock, which a test can move while the server runs.
//!
//! A few lines of C stand between the server and the C library's real-time clock. They add an offset that all processes
//! of the server share in a file, which they map, so all see a step at the same moment, and a call costs what it costs
//! without them. The monotonic clocks and all waits stay true, as they do when a machine's clock is set.
//!
//! Not libfaketime: it opens and reads its file at every call, which takes most of the time of a server that generates
//! IDs; it shows the true time to signal handlers while it waits; and a process that is killed leaves its semaphores.

use crate::install::install;
use crate::sandbox;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// The file has the offset in microseconds and its complement: a reader that meets a writer sees that they do not match.
const MOVED: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*true_time)(clockid_t, struct timespec *);
static volatile int64_t *shared;

/* Before any thread; but a library whose turn is earlier may ask for the time. */
static void __attribute__((constructor)) prepare(void)
{
    const char *name = getenv("SNOWFLAKE_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (shared)
        return;
    true_time = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    void *map = mmap(NULL, 2 * sizeof(*shared), PROT_READ, MAP_SHARED, file, 0);
    if (!true_time || map == MAP_FAILED)
        abort();
    close(file);
    shared = map;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!shared)
        prepare();
    int failed = true_time(clock, time);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t offset;
    do
        offset = shared[0];
    while (offset != ~shared[1]);
    time->tv_sec += offset / 1000000;
    time->tv_nsec += offset % 1000000 * 1000;
    if (time->tv_nsec < 0)
        time->tv_sec--, time->tv_nsec += 1000000000;
    if (time->tv_nsec >= 1000000000)
        time->tv_sec++, time->tv_nsec -= 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    *to = (struct timeval){time.tv_sec, time.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *to)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    if (to)
        *to = time.tv_sec;
    return time.tv_sec;
}
"#;

/// A server's wall clock: the machine's clock plus an offset.
#[derive(Debug)]
pub struct Clock {
    path: PathBuf,
    file: File,
    /// Microseconds.
    offset: Mutex<i64>,
}

impl Clock {
    /// A true clock, whose file is kept in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        let path = folder.join("clock");
        let file = File::create(&path).expect("the clock's file can be made");
        install().own(&path);
        let clock = Self { path, file, offset: Mutex::new(0) };
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

    /// As far from the machine's clock as another server's.
    pub(crate) fn set_as(&self, other: &Self) {
        self.shift(other.offset() - self.offset());
    }

    /// How far the clock is ahead of the machine's clock, in microseconds.
    pub fn offset(&self) -> i64 {
        *self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shift(&self, by: i64) {
        let mut offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        *offset += by;
        let both = [offset.to_ne_bytes(), (!*offset).to_ne_bytes()];
        self.file.write_all_at(both.as_flattened(), 0).expect("the clock's file can be written");
    }

    /// Makes a command's process use this clock.
    pub(crate) fn apply_to(&self, command: &mut Command) {
        static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| sandbox::compile(MOVED));
        sandbox::preload(command, &LIBRARY);
        command.env("SNOWFLAKE_CLOCK", &self.path);
    }
}

fn micros(by: Duration) -> i64 {
    i64::try_from(by.as_micros()).expect("a step of less than 292,000 years")
}
