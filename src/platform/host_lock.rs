//! The host's lock on workers: a file per cluster in the host's shared memory, which a reboot empties and no copy of a data
//! directory contains.
//!
//! Worker n, as in an ID, has a *place* of `PLACE` bytes at n * `PLACE`. A server that may generate IDs with the worker
//! locks its first byte. Its content is the data directory that signed for the worker last, with a token. The postmaster
//! opens the file, and all processes inherit it with its locks, which belong to the open file description, not to a
//! process. So they end with the server's last process, and survive a restart after a crashed backend.

use crate::messages::log;
use crate::postgres::control_file::system_identifier;
use serde::{Deserialize, Serialize};
use snowflake_core::platform::{HostLock, Locked};
use std::ffi::c_int;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use uuid::Uuid;

/// The folder of PostgreSQL's own shared memory objects.
const FOLDER: &str = "/dev/shm";
/// Size of a place, in bytes.
const PLACE: usize = 1_024;
/// Maximum length of a path in a place, in characters of at most 4 bytes; a longer one is cut.
const MAX_PATH: usize = 192;

/// The host's lock, for the server of this data directory.
pub struct ShmLock;

/// The content of a place.
#[derive(Serialize, Deserialize)]
struct Signature {
    device: u64,
    inode: u64,
    /// Path of the data directory, for messages.
    directory: String,
    token: Uuid,
}

/// The file that the postmaster opened. If that failed, or the file was deleted, the one that this process opened.
static FILE: Mutex<Option<File>> = Mutex::new(None);

/// Opens the file, so that all processes of this server inherit it. Called by the postmaster, and again after a crash of a
/// process, because the file may have been deleted. A failure is logged where the file is used.
pub fn open() {
    let _ = with_file(system_identifier(), &[], |_| Ok(()));
}

/// Whether the file was deleted.
pub fn is_lost() -> bool {
    !FILE.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(is_in_place)
}

/// The data directory that signed last for one of these workers that another process has locked.
pub fn directory_of_other_server(workers: &[i64]) -> Option<String> {
    with_file(system_identifier(), workers, |file| {
        let taken = workers.iter().find(|worker| is_taken(file, **worker));
        Ok(taken.and_then(|worker| signature(file, *worker)).map(|signature| signature.directory))
    })
    .ok()?
}

impl HostLock for ShmLock {
    fn lock(&self, system_identifier: u64, workers: &[i64]) -> Locked {
        let locked = with_file(system_identifier, workers, |file| {
            for worker in workers {
                match set_lock(file, libc::F_WRLCK, place(*worker), 1) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        let signature = signature(file, *worker);
                        set_lock(file, libc::F_UNLCK, 0, 0)?;
                        let is_own_directory = signature.is_some_and(|it| it.is_of_this_directory());
                        return Ok(Locked::Taken { is_own_directory });
                    }
                    Err(error) => return Err(error),
                }
            }
            unlock_others(file, workers)?;
            let home = workers.first().and_then(|home| signature(file, *home));
            Ok(Locked::Own(home.map(|signature| signature.token)))
        });
        locked.unwrap_or_else(|error| {
            // Logged once per process: the server opens its gate without the lock.
            static IS_LOGGED: AtomicBool = AtomicBool::new(false);
            if !IS_LOGGED.swap(true, Ordering::Relaxed) {
                log::host_lock_failed(&path(system_identifier), &error);
            }
            Locked::Unavailable
        })
    }

    fn sign(&self, workers: &[i64], token: Uuid) -> bool {
        let signed = with_file(system_identifier(), workers, |file| {
            let bytes = Signature::of_this_directory(token)?.encode()?;
            workers.iter().try_for_each(|worker| file.write_all_at(&bytes, place(*worker) as u64))
        });
        signed.is_ok()
    }
}

impl Signature {
    fn of_this_directory(token: Uuid) -> io::Result<Self> {
        let data = fs::metadata(".")?;
        let path = std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned();
        let directory = path.chars().take(MAX_PATH).collect();
        Ok(Self { device: data.dev(), inode: data.ino(), directory, token })
    }

    fn is_of_this_directory(&self) -> bool {
        fs::metadata(".").is_ok_and(|data| (data.dev(), data.ino()) == (self.device, self.inode))
    }

    fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.resize(PLACE.max(bytes.len()), b' ');
        Ok(bytes)
    }
}

fn signature(file: &File, worker: i64) -> Option<Signature> {
    let mut bytes = [0; PLACE];
    let length = file.read_at(&mut bytes, place(worker) as u64).ok()?;
    serde_json::from_slice(&bytes[..length]).ok()
}

fn place(worker: i64) -> i64 {
    worker * PLACE as i64
}

/// Unlocks all places but those of these workers, which ascend.
fn unlock_others(file: &File, workers: &[i64]) -> io::Result<()> {
    let mut from = 0;
    for worker in workers {
        if place(*worker) > from {
            set_lock(file, libc::F_UNLCK, from, place(*worker) - from)?;
        }
        from = place(*worker) + 1;
    }
    set_lock(file, libc::F_UNLCK, from, 0)
}

/// Sets or removes the lock on a range of bytes; a length of 0 reaches to the end. `WouldBlock` if another server has it.
fn set_lock(file: &File, kind: c_int, start: i64, length: i64) -> io::Result<()> {
    let range = range(kind, start, length);
    // SAFETY: a file that is open, and a range that outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether another server has locked the worker.
fn is_taken(file: &File, worker: i64) -> bool {
    let mut range = range(libc::F_WRLCK, place(worker), 1);
    // SAFETY: a file that is open, and a range that outlives the call, which writes its result there.
    let found = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut range) };
    found == 0 && c_int::from(range.l_type) != libc::F_UNLCK
}

fn range(kind: c_int, start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: length,
        // The kernel requires zero for this kind of lock.
        l_pid: 0,
    }
}

// ---- the file ----

/// Calls with the file of this cluster: the inherited one, or if that was deleted, one that this process opens. A deleted
/// file is used while another server has one of these workers there, which may not have made the file again yet.
fn with_file<T>(
    system_identifier: u64,
    workers: &[i64],
    call: impl FnOnce(&File) -> io::Result<T>,
) -> io::Result<T> {
    let mut file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let is_in_use = |file: &File| is_in_place(file) || workers.iter().any(|worker| is_taken(file, *worker));
    if !file.as_ref().is_some_and(is_in_use) {
        *file = Some(open_file(system_identifier)?);
    }
    call(file.as_ref().expect("just opened"))
}

fn path(system_identifier: u64) -> PathBuf {
    PathBuf::from(format!("{FOLDER}/snowflake_id.{system_identifier}"))
}

fn is_in_place(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
}

/// Every user can create files in the folder, so the file must belong to this user, and no other user may write it. Linux
/// does not block on a pipe that is opened for reading and writing.
fn open_file(system_identifier: u64) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path(system_identifier))?;
    let metadata = file.metadata()?;
    // SAFETY: a system call without arguments that cannot fail.
    let is_own = metadata.uid() == unsafe { libc::geteuid() };
    if is_own && metadata.is_file() && metadata.nlink() == 1 && metadata.mode() & 0o022 == 0 {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a file of this server's own"))
    }
}
