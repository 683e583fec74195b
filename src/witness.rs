//! The witness of a node under a lease: a small file in the host's shared memory that knows which record of the state
//! was written last. It is gone with the boot, and no copy of a data directory brings it along.

use crate::messages::log;
use serde::{Deserialize, Serialize};
use snowflake_core::host::{FileIdentity, RecordName, Witness};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where PostgreSQL's own shared memory objects lie.
const FOLDER: &str = "/dev/shm";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// One page, so that later writes need no space: the folder may be full.
const BYTES: usize = 1_024;

/// The witness of this data directory.
pub struct ShmWitness;

/// Where the witness is.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// The folder is gone with the boot on most hosts, not on all.
    boot: String,
    /// Of the data directory.
    device: u64,
}

/// What the witness knows.
#[derive(Serialize, Deserialize)]
struct Knowledge {
    #[serde(flatten)]
    place: Place,
    announced: Option<RecordName>,
    confirmed: Option<(RecordName, FileIdentity)>,
}

impl Witness for ShmWitness {
    fn announce(&self, record: RecordName) {
        update(|knowledge| knowledge.announced = Some(record));
    }

    fn confirm(&self, record: RecordName, file: FileIdentity) {
        update(|knowledge| knowledge.confirmed = Some((record, file)));
    }

    fn knows(&self, record: RecordName, file: FileIdentity) -> bool {
        let knowledge = Place::here().and_then(|place| read(&place));
        let Ok(Knowledge { announced, confirmed: Some((confirmed, in_file)), .. }) = knowledge else {
            return false;
        };
        in_file == file && (record == confirmed || Some(record) == announced)
    }
}

impl Place {
    fn here() -> io::Result<Self> {
        let boot = fs::read_to_string(BOOT_ID)?.trim().to_owned();
        Ok(Self { boot, device: fs::metadata(".")?.dev() })
    }
}

/// Changes what the witness knows. If that fails it must not keep what it knew before, for later records are unknown to
/// it.
fn update(change: impl FnOnce(&mut Knowledge)) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let Err(error) = try_to_update(change) else { return };
    let Ok(path) = path() else { return };
    let _ = fs::remove_file(&path);
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        log::witness_failed(&path, &error);
    }
}

fn try_to_update(change: impl FnOnce(&mut Knowledge)) -> io::Result<()> {
    let place = Place::here()?;
    let mut knowledge = read(&place).unwrap_or(Knowledge { place, announced: None, confirmed: None });
    change(&mut knowledge);
    write(&knowledge)
}

/// Named after the data directory, in which every server process works.
fn path() -> io::Result<PathBuf> {
    let data = fs::metadata(".")?;
    Ok(PathBuf::from(format!("{FOLDER}/snowflake_id.{}.{}", data.dev(), data.ino())))
}

/// What the witness knows, if it learned that in this place.
fn read(place: &Place) -> io::Result<Knowledge> {
    let file = open(OpenOptions::new().read(true))?;
    let mut bytes = vec![0; BYTES];
    let length = file.read_at(&mut bytes, 0)?;
    let knowledge: Knowledge = serde_json::from_slice(&bytes[..length])?;
    if knowledge.place == *place { Ok(knowledge) } else { Err(ErrorKind::NotFound.into()) }
}

fn write(knowledge: &Knowledge) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(knowledge)?;
    if bytes.len() > BYTES {
        return Err(ErrorKind::InvalidData.into());
    }
    bytes.resize(BYTES, b' ');
    open(OpenOptions::new().write(true).create(true).mode(0o600))?.write_all_at(&bytes, 0)
}

/// The folder belongs to everybody, so a file there counts only if it is this user's own and nobody else can write it. A
/// pipe must not make the server wait.
fn open(options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path()?)?;
    let metadata = file.metadata()?;
    // SAFETY: a system call without arguments that cannot fail.
    let is_own = metadata.uid() == unsafe { libc::geteuid() };
    if is_own && metadata.is_file() && metadata.nlink() == 1 && metadata.mode() & 0o022 == 0 {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a file of this server's own"))
    }
}
