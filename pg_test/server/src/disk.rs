//! The disk under the state file: a small file system of its own that can be filled and made read-only, and a library that
//! fails, delays or cuts short the server's writes.

use crate::{Preload, Server, faults, secs, wait_until};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::{File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Bytes of a slot of the state file.
pub const SLOT: usize = 4096;

/// The folder of the extension's state.
pub fn state_folder(server: &Server) -> PathBuf {
    server.data().join("snowflake_id")
}

/// The state file.
pub fn state_file(server: &Server) -> PathBuf {
    state_folder(server).join("state")
}

/// A tmpfs of a few pages over a server's state folder.
#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Covers the folder; what is in it stays visible, as a copy.
    pub fn cover(server: &Server) -> Self {
        let folder = state_folder(server);
        let _ = std::fs::create_dir(&folder);
        let kept = std::fs::read(folder.join("state")).ok();
        let owner = std::fs::metadata(server.data()).expect("the data directory is there");
        let options = format!("size=32k,mode=0700,uid={},gid={}", owner.uid(), owner.gid());
        mount(Some("tmpfs"), &folder, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
            .unwrap_or_else(|e| panic!("cannot mount a tmpfs at {}: {e}", folder.display()));
        if let Some(bytes) = kept {
            write_anew(&folder.join("state"), &bytes);
        }
        Self { folder }
    }

    /// Leaves no byte free. What is there can be written over, as on a real disk.
    pub fn fill(&self) {
        let mut file = File::create(self.folder.join("filler")).expect("a file can be made");
        let mut size = SLOT;
        while size > 0 {
            if file.write_all(&[0x55; SLOT][..size]).is_err() {
                size /= 2;
            }
        }
    }

    /// Frees what was filled.
    pub fn free(&self) {
        std::fs::remove_file(self.folder.join("filler")).expect("a file can be removed");
    }

    /// Makes the file system read-only, or writable again.
    pub fn read_only(&self, yes: bool) {
        let flag = if yes { MsFlags::MS_RDONLY } else { MsFlags::empty() };
        let flags = MsFlags::MS_REMOUNT | flag;
        // Busy while a process has a file open for writing, which lasts for moments only.
        wait_until("the small disk to be remounted", secs(30), || {
            mount(None::<&str>, &self.folder, None::<&str>, flags, None::<&str>).ok()
        });
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(&self.folder, MntFlags::MNT_DETACH);
    }
}

/// Writes a new file, as the server would have it.
pub fn write_anew(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("the state file can be written");
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("its owner may");
    faults::own(path);
}

/// Replaces the first slot of a state file by what version 9 would have written.
pub fn write_later_version(bytes: &mut [u8]) {
    let slot = std::str::from_utf8(&bytes[..SLOT]).expect("text").trim_end();
    let record = slot.split_once("\"record\":").expect("a record").1.strip_suffix('}').expect("an object");
    let sum = crc32c::crc32c_append(crc32c::crc32c(&9u32.to_le_bytes()), record.as_bytes());
    let later = format!("{{\"version\":9,\"crc32c\":\"{sum:08x}\",\"record\":{record}}}\n");
    bytes[..SLOT].fill(b' ');
    bytes[..later.len()].copy_from_slice(later.as_bytes());
}

/// What a preloaded library does to the next writes of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// Every write fails with this error number.
    Write(i32),
    /// Every fsync fails with this error number; what was written may or may not be on disk.
    Fsync(i32),
    /// The next write ends after so many bytes, and the writer with it.
    Torn(i32),
    /// Every fsync takes so many milliseconds longer.
    Slow(i32),
}

const TROUBLE_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NONE, WRITE, FSYNC, TORN, SLOW };

static int *control(void)
{
    static int none[2];
    static int *page;
    if (!page) {
        const char *path = getenv("SNOWFLAKE_TROUBLE");
        int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
        void *map = file < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        page = map == MAP_FAILED ? none : map;
        if (file >= 0)
            close(file);
    }
    return page;
}

static int is_state(int file)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0)
        return 0;
    path[size] = 0;
    return strstr(path, "/snowflake_id/state") != NULL;
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off_t at)
{
    volatile int *told = control();
    if (told[0] != NONE && is_state(file)) {
        if (told[0] == WRITE) {
            errno = told[1];
            return -1;
        }
        if (__sync_bool_compare_and_swap(&told[0], TORN, NONE)) {
            syscall(SYS_pwrite64, file, bytes, (size_t)told[1] < size ? (size_t)told[1] : size, at);
            kill(getpid(), SIGKILL);
        }
    }
    return syscall(SYS_pwrite64, file, bytes, size, at);
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t at)
{
    return pwrite64(file, bytes, size, at);
}

int fsync(int file)
{
    volatile int *told = control();
    if ((told[0] == FSYNC || told[0] == SLOW) && is_state(file)) {
        if (told[0] == FSYNC) {
            errno = told[1];
            return -1;
        }
        /* Until it is told otherwise. */
        for (int slept = 0; told[0] == SLOW && slept < told[1]; slept += 10) {
            struct timespec time = {0, 10000000L};
            syscall(SYS_nanosleep, &time, NULL);
        }
    }
    return syscall(SYS_fsync, file);
}
"#;

/// The library, told by a file.
#[derive(Debug)]
pub struct Troublemaker {
    file: PathBuf,
}

impl Troublemaker {
    /// For one server, from its next start on.
    pub fn new(server: &mut Server) -> Self {
        static LIBRARY: LazyLock<Preload> =
            LazyLock::new(|| Preload::compile(TROUBLE_SOURCE, "SNOWFLAKE_TROUBLE", PathBuf::new()));
        let file = server.folder().join("trouble");
        std::fs::write(&file, [0; 8]).expect("a file can be written");
        faults::own(&file);
        server.preload(LIBRARY.with_file(file.clone()));
        Self { file }
    }

    /// What the library does from now on.
    pub fn make(&self, trouble: Trouble) {
        let (what, argument) = match trouble {
            Trouble::None => (0, 0),
            Trouble::Write(errno) => (1, errno),
            Trouble::Fsync(errno) => (2, errno),
            Trouble::Torn(bytes) => (3, bytes),
            Trouble::Slow(millis) => (4, millis),
        };
        let file = OpenOptions::new().write(true).open(&self.file).expect("the file is there");
        // The argument first: the library looks at what to do before it looks at that.
        file.write_all_at(&i32::to_ne_bytes(argument), 4).expect("the file can be written");
        file.write_all_at(&i32::to_ne_bytes(what), 0).expect("the file can be written");
    }
}
