//! Tools to break the disk under the state file: a file system of its own that can be filled and made
//! read-only, a library that fails or cuts short the server's writes there, and damage to the file.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use snowflake_server_tests::{Preload, Server, faults, secs, wait_until};
use std::fs::{File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a slot of the state file.
pub const SLOT: usize = 4096;

pub fn state_folder(server: &Server) -> PathBuf {
    server.data().join("snowflake_id")
}

pub fn state_file(server: &Server) -> PathBuf {
    state_folder(server).join("state")
}

/// Makes room for mounts that nobody else sees and that go away with this process. Has to come before
/// any thread is started. Whether it worked: it takes root.
pub fn prepare_mounts() -> bool {
    let private = || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
    };
    nix::unistd::Uid::effective().is_root() && private().is_ok()
}

/// A tmpfs of a few pages over a server's state folder.
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

    pub fn free(&self) {
        std::fs::remove_file(self.folder.join("filler")).expect("a file can be removed");
    }

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

/// Takes or gives back the server's right to write to its state, where there is no disk to remount.
pub fn protect(server: &Server, yes: bool) {
    let (folder, file) = if yes { (0o500, 0o400) } else { (0o700, 0o600) };
    let _ = std::fs::set_permissions(state_file(server), Permissions::from_mode(file));
    let _ = std::fs::set_permissions(state_folder(server), Permissions::from_mode(folder));
}

fn write_anew(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("the state file can be written");
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("its owner may");
    faults::own(path);
}

/// Writes over a part of the state file, which stays the same file.
pub fn overwrite(server: &Server, at: usize, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(state_file(server)).expect("the state file is there");
    file.write_all_at(bytes, at as u64).expect("the state file can be written");
}

/// Puts a new file with this content in the place of the state file.
pub fn replace(server: &Server, bytes: &[u8]) {
    let (file, new) = (state_file(server), state_folder(server).join("restored"));
    write_anew(&new, bytes);
    std::fs::rename(new, file).expect("a file can be renamed");
}

pub fn truncate(server: &Server, size: u64) {
    let file = OpenOptions::new().write(true).open(state_file(server)).expect("the state file is there");
    file.set_len(size).expect("the state file can be truncated");
}

/// A record in a slot, as far as damage needs to know it. Read anew here, from the description of the
/// format: a JSON document with a version, a CRC-32C over version and record, and the record.
pub struct Slot {
    version: u32,
    record: String,
}

impl Slot {
    /// The slots of a state file; `None` for one that holds no whole record.
    pub fn all(bytes: &[u8]) -> Vec<Option<Slot>> {
        bytes.chunks(SLOT).map(Slot::read).collect()
    }

    fn read(bytes: &[u8]) -> Option<Slot> {
        let text = std::str::from_utf8(bytes).ok()?.trim_end();
        let after = |name: &str| text.find(name).map(|at| &text[at + name.len()..]);
        let version = after("\"version\":")?.split([',', '}']).next()?.parse().ok()?;
        let crc = after("\"crc32c\":\"")?.split('"').next()?;
        let record = after("\"record\":")?.strip_suffix('}')?.to_owned();
        let slot = Slot { version, record };
        (slot.crc() == crc).then_some(slot)
    }

    fn crc(&self) -> String {
        let crc = crc32c::crc32c(&self.version.to_le_bytes());
        format!("{:08x}", crc32c::crc32c_append(crc, self.record.as_bytes()))
    }

    pub fn generation(&self) -> u64 {
        let digits = self.record.split("\"generation\":").nth(1).expect("a record has a generation");
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().expect("a number")
    }

    /// The same record as a later version of the extension would have written it.
    pub fn newer(&self) -> Vec<u8> {
        Slot { version: self.version + 1, record: self.record.clone() }.bytes()
    }

    /// The same record as another cluster would have written it.
    pub fn foreign(&self) -> Vec<u8> {
        let key = "\"system_identifier\":";
        let at = self.record.find(key).expect("a record names its cluster") + key.len();
        let end = at + self.record[at..].find([',', '}']).expect("a number ends");
        let other: u64 = self.record[at..end].parse::<u64>().expect("a number") ^ 0xabcdef;
        let record = format!("{}{other}{}", &self.record[..at], &self.record[end..]);
        Slot { version: self.version, record }.bytes()
    }

    fn bytes(&self) -> Vec<u8> {
        let text = format!(
            "{{\"version\":{},\"crc32c\":\"{}\",\"record\":{}}}\n",
            self.version,
            self.crc(),
            self.record
        );
        let mut bytes = text.into_bytes();
        bytes.resize(SLOT, b' ');
        bytes
    }
}

/// The slot that the next write goes to first, which is the one that a torn write damages: the one that
/// holds the older record, or none. Where both hold the same, either will do.
pub fn older_slot(bytes: &[u8], either: usize) -> usize {
    let slots = Slot::all(bytes);
    let generation = |at: usize| slots.get(at).and_then(Option::as_ref).map(Slot::generation);
    match generation(0).cmp(&generation(1)) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => either % 2,
        std::cmp::Ordering::Greater => 1,
    }
}

/// The preloaded library's effect on the next writes of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
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
        const char *path = getenv("SNOWFLAKE_CHAOS_TROUBLE");
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
        struct timespec time = {told[1] / 1000, told[1] % 1000 * 1000000L};
        syscall(SYS_nanosleep, &time, NULL);
    }
    return syscall(SYS_fsync, file);
}
"#;

/// The library, told by a file.
pub struct Troublemaker {
    file: PathBuf,
    preload: Preload,
}

impl Troublemaker {
    /// One for the first server of a run; the others are made from it.
    pub fn compile() -> Preload {
        Preload::compile(TROUBLE_SOURCE, "SNOWFLAKE_CHAOS_TROUBLE", PathBuf::new())
    }

    /// For one server, from its next start on.
    pub fn new(library: &Preload, server: &mut Server) -> Self {
        let file = server.folder().join("trouble");
        let preload = library.with_file(file.clone());
        let maker = Self { file, preload };
        std::fs::write(&maker.file, [0; 8]).expect("a file can be written");
        faults::own(&maker.file);
        server.preload(maker.preload.clone());
        maker
    }

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
