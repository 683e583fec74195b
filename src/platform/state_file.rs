//! The state file: bytes to disk and back. The core interprets them.
//!
//! The file has its own folder in the data directory, so that base backups and file copies carry it. It is synced with
//! a real `fsync(2)`: PostgreSQL's own function does nothing with `fsync = off`, and panics if it fails. Paths are
//! relative, because every server process works in the data directory.

use super::host_lock::ShmLock;
use super::waiting::{Awaited, WaitEvent};
use crate::messages::STATE_FILE;
use snowflake_core::Errno;
use snowflake_core::platform::{Disk, FileIdentity, HostLock, Loaded, SLOT_BYTES, SLOTS, WriteError};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::time::UNIX_EPOCH;

const FOLDER: &str = "snowflake_id";
const NEW_PATH: &str = "snowflake_id/state.new";

/// The state file of this server.
pub struct StateFile;

impl Disk for StateFile {
    fn load(&self) -> Result<Option<Loaded>, Errno> {
        read().map_err(|error| errno(&error))
    }

    fn write(&self, expected: FileIdentity, slot: usize, bytes: &[u8]) -> Result<(), WriteError> {
        let _event = WaitEvent::begin(Awaited::State);
        let os = |error: io::Error| WriteError::Os(errno(&error));
        // Looked up by its path each time, to detect a deleted or replaced file, even one that cannot be opened.
        let is_expected = |found: io::Result<Metadata>| match found {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(WriteError::Replaced),
            Ok(metadata) if identity(&metadata) != expected => Err(WriteError::Replaced),
            found => found.map(drop).map_err(os),
        };
        is_expected(fs::symlink_metadata(STATE_FILE))?;
        let file = OpenOptions::new().write(true).open(STATE_FILE).map_err(os)?;
        is_expected(file.metadata())?;
        file.write_all_at(bytes, (slot * SLOT_BYTES) as u64).map_err(os)?;
        file.sync_all().map_err(os)
    }

    fn host_lock(&self) -> &dyn HostLock {
        &ShmLock
    }

    fn sync_name(&self) -> Result<(), Errno> {
        let _event = WaitEvent::begin(Awaited::State);
        [FOLDER, "."].iter().try_for_each(|folder| sync_folder(folder)).map_err(|error| errno(&error))
    }

    fn create(&self) -> Result<FileIdentity, Errno> {
        let _event = WaitEvent::begin(Awaited::State);
        create().map_err(|error| errno(&error))
    }

    fn install(&self, bytes: &[u8]) -> Result<(), Errno> {
        let _event = WaitEvent::begin(Awaited::State);
        install(bytes).map_err(|error| {
            // A half-written file under another name is useless, and takes space on a disk that may be full.
            let _ = fs::remove_file(NEW_PATH);
            errno(&error)
        })
    }
}

fn read() -> io::Result<Option<Loaded>> {
    no_link()?;
    let file = match File::open(STATE_FILE) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let identity = identity(&file.metadata()?);
    Ok(Some(Loaded { identity, slots: [read_slot(&file, 0)?, read_slot(&file, 1)?] }))
}

/// The bytes of a slot, fewer at the end of the file; `None` if the device cannot read them.
fn read_slot(file: &File, slot: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; SLOT_BYTES];
    let mut length = 0;
    while length < SLOT_BYTES {
        match file.read_at(&mut bytes[length..], (slot * SLOT_BYTES + length) as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.raw_os_error() == Some(libc::EIO) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(Some(bytes))
}

fn create() -> io::Result<FileIdentity> {
    // With the data directory's permissions: with group access, a member of the group may run backups.
    let folder_mode = fs::metadata(".")?.mode() & 0o777;
    let file_mode = folder_mode & 0o666;
    match DirBuilder::new().mode(folder_mode).create(FOLDER) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        // Even if the folder existed: a crash may have come between its creation and this.
        _ => sync_folder(".")?,
    }
    no_link()?;
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(file_mode).open(NEW_PATH)?;
    Ok(identity(&file.metadata()?))
}

fn install(slot: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(NEW_PATH)?;
    for i in 0..SLOTS {
        file.write_all_at(slot, (i * SLOT_BYTES) as u64)?;
    }
    file.sync_all()?;
    fs::rename(NEW_PATH, STATE_FILE)?;
    sync_folder(FOLDER)
}

fn sync_folder(folder: &str) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Base backups skip a folder behind a symbolic link, and two data directories could share it.
fn no_link() -> io::Result<()> {
    match fs::symlink_metadata(FOLDER) {
        Ok(folder) if folder.is_symlink() => Err(io::Error::from_raw_os_error(libc::ELOOP)),
        _ => Ok(()),
    }
}

/// Inode, and time of birth in nanoseconds since 1970, 0 if the file system does not record it. A rename keeps both; a copy
/// has others.
fn identity(file: &Metadata) -> FileIdentity {
    let born = file.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    FileIdentity { inode: file.ino(), born_ns: born.map_or(0, |since| since.as_nanos() as i64) }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}
