//! The witness: a small file in the host's shared memory that knows which record of the state was written last. It is
//! gone with the boot, and no copy of a data directory brings it along. The server that lives holds a lock on it, and
//! claims its workers in it, so that one which starts from the same state in another place, as from a snapshot, finds
//! that it is not alone.

use crate::messages::log;
use serde::{Deserialize, Serialize};
use snowflake_core::host::{Claim, LastRecords, RecordName, Sight, Witness, WorkerMarks};
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// Where PostgreSQL's own shared memory objects lie.
const FOLDER: &str = "/dev/shm";
const PREFIX: &str = "snowflake_id.";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// One page, so that later writes need no space: the folder may be full.
const BYTES: usize = 4_096;
/// Longer paths of data directories are not told apart from others.
const MAX_PATH: usize = 512;

/// The witness of this data directory.
pub struct ShmWitness;

/// Where the witness is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// The folder is gone with the boot on most hosts, not on all.
    boot: String,
    /// When the data directory was made: another volume may have come in its place.
    born_ns: i64,
}

/// What the witness knows.
#[derive(Serialize, Deserialize)]
struct Knowledge {
    #[serde(flatten)]
    place: Place,
    last: LastRecords,
    /// The home worker that the server last used.
    home: Option<i64>,
    /// The path of the data directory, under which a rebuild may have made another one; empty if it is too long.
    directory: String,
    /// Of all workers that it has used.
    marks: WorkerMarks,
    /// Of the server that holds the file.
    claim: Option<Claim>,
}

/// The file that this server's processes hold locked; the postmaster opens it, and they inherit it.
static HELD: OnceLock<File> = OnceLock::new();
/// The file that this process holds, if the first is gone: somebody has cleared the folder.
static HELD_ANEW: Mutex<Option<File>> = Mutex::new(None);
/// The configured home worker.
static HOME: OnceLock<Option<i64>> = OnceLock::new();

impl Witness for ShmWitness {
    fn announce(&self, record: RecordName, claim: &Claim) {
        update(|knowledge| {
            knowledge.last.announce(record);
            knowledge.claim = Some(claim.clone());
            knowledge.home = HOME.get().copied().flatten();
            knowledge.directory = directory();
        });
    }

    fn confirm(&self, record: RecordName, marks: &WorkerMarks) {
        update(|knowledge| {
            knowledge.last.confirm(record);
            knowledge.marks.confirm(marks);
        });
    }

    fn claim(&self, claim: Option<&Claim>) {
        update(|knowledge| knowledge.claim = claim.cloned());
    }

    fn is_met(&self, claim: &Claim) -> bool {
        let Ok((own, place)) = here() else { return false };
        let meets = |knowledge: &Knowledge| knowledge.claim.as_ref().is_some_and(|other| other.meets(claim));
        let mut others = witnesses(&place).filter(|(path, knowledge)| *path != own && meets(knowledge));
        others.any(|(path, _)| is_held(&path))
    }

    fn sight(&self, record: RecordName, workers: &[i64]) -> Sight {
        let Ok((own, place)) = here() else { return Sight::Unknown };
        let others = others(&own, &place, record, workers);
        let own = read(&own, &place).map(|knowledge| knowledge.last).unwrap_or_default();
        // One that was refused, or is a standby, has claimed nothing.
        if others.iter().any(|(path, other)| other.claim.is_some() && is_held(path)) {
            Sight::Beside
        } else if others.iter().any(|(_, other)| other.last.outran(record)) {
            Sight::PutBack
        } else if own.have(record) {
            Sight::Last
        } else if own.know() && !own.are_behind(record) {
            Sight::PutBack
        } else if others.iter().any(|(_, other)| other.last.have(record)) {
            // The volume was mounted again in another place, and nobody has gone on from it.
            Sight::Last
        } else {
            Sight::Unknown
        }
    }

    fn marks(&self, system_identifier: u64) -> WorkerMarks {
        let mut marks = WorkerMarks::new(system_identifier, []);
        let Ok((own, place)) = here() else { return marks };
        let directory = directory();
        let is_same = |knowledge: &Knowledge| !directory.is_empty() && knowledge.directory == directory;
        let before = witnesses(&place).filter(|(path, knowledge)| *path == own || is_same(knowledge));
        before.for_each(|(_, knowledge)| marks.join(&knowledge.marks));
        marks
    }
}

impl Place {
    fn here() -> io::Result<Self> {
        let boot = fs::read_to_string(BOOT_ID)?.trim().to_owned();
        Ok(Self { boot, born_ns: birth(&fs::metadata(".")?) })
    }
}

impl Knowledge {
    /// Whether the server has used one of these workers since the host was booted; any, if there are none.
    fn concerns(&self, workers: &[i64]) -> bool {
        let has_claimed = || self.claim.as_ref().is_some_and(|claim| claim.has_any(workers));
        workers.is_empty() || self.marks.has_any(workers) || has_claimed()
    }
}

/// Holds the witness for as long as a process of this server lives. Called by the postmaster; the others inherit the
/// lock. `home` is the configured home worker. If it fails, the first record's writer says why.
pub fn hold(home: Option<i64>) {
    HOME.get_or_init(|| home);
    if HELD.get().is_some() {
        return;
    }
    let opened = path().and_then(|path| open(&path, OpenOptions::new().write(true).create(true).mode(0o600)));
    let Ok(file) = opened else { return };
    // Another start may be looking whether anybody holds it.
    for _ in 0..10 {
        if file.try_lock().is_ok() {
            HELD.get_or_init(|| file);
            let _ = begin_run();
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What the run before claimed is free: this one may be that of a standby.
fn begin_run() -> io::Result<()> {
    let path = path()?;
    if fs::metadata(&path)?.len() == 0 {
        // Later writes need no space.
        return open(&path, OpenOptions::new().write(true))?.write_all_at(&[b' '; BYTES], 0);
    }
    write(&path, &Knowledge { claim: None, ..read_any(&path)? })
}

/// Holds the witness that another process of this server has made anew, and that is free after that one's end. Called
/// by the keeper, which lives as long as the server. `false` if it knows nothing any more, or somebody has deleted it.
pub fn keep_hold() -> bool {
    let Ok(path) = path() else { return true };
    match open(&path, OpenOptions::new().write(true)) {
        Ok(file) => {
            hold_anew(file);
            read_any(&path).is_ok()
        }
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// The home worker that this data directory's server last used, if the record is not the last that it wrote: tools that
/// rebuild a server bring the settings of another one along.
pub fn home_before(record: RecordName) -> Option<i64> {
    let knowledge = here().and_then(|(own, place)| read(&own, &place)).ok()?;
    knowledge.home.filter(|_| knowledge.last.know() && !knowledge.last.have(record))
}

/// The witnesses of other data directories that know this record's life, and one of these workers if there are any.
fn others(own: &Path, place: &Place, record: RecordName, workers: &[i64]) -> Vec<(PathBuf, Knowledge)> {
    let counts = |(path, knowledge): &(PathBuf, Knowledge)| {
        path != own && knowledge.last.are_of(record.life) && knowledge.concerns(workers)
    };
    witnesses(place).filter(counts).collect()
}

/// The witnesses of all data directories, from this boot.
fn witnesses(place: &Place) -> impl Iterator<Item = (PathBuf, Knowledge)> {
    let is_witness =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes()));
    let known = |path: PathBuf| read_any(&path).ok().map(|knowledge| (path, knowledge));
    let files = fs::read_dir(FOLDER).into_iter().flatten().flatten().map(|file| file.path());
    files.filter(is_witness).filter_map(known).filter(|(_, knowledge)| knowledge.place.boot == place.boot)
}

/// The path of the data directory.
fn directory() -> String {
    let path = std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned();
    if path.len() <= MAX_PATH { path } else { String::new() }
}

/// Whether a server that lives holds this witness.
fn is_held(path: &Path) -> bool {
    let opened = open(path, OpenOptions::new().read(true));
    opened.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Holds a witness that was made anew under this server.
fn hold_anew(file: File) {
    let inode = |file: &File| file.metadata().map(|metadata| metadata.ino()).ok();
    let mut held = HELD_ANEW.lock().unwrap_or_else(PoisonError::into_inner);
    let is_held = [HELD.get(), held.as_ref()].into_iter().flatten().any(|held| inode(held) == inode(&file));
    if !is_held && file.try_lock().is_ok() {
        *held = Some(file);
    }
}

/// Changes what the witness knows. If that fails it must not keep what it knew before, for later records are unknown to
/// it. The file stays, because it is what is held.
fn update(change: impl FnOnce(&mut Knowledge)) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let Err(error) = try_to_update(change) else { return };
    let Ok(path) = path() else { return };
    let emptied =
        open(&path, OpenOptions::new().write(true)).and_then(|file| file.write_all_at(&[b' '; BYTES], 0));
    if emptied.is_err() {
        let _ = fs::remove_file(&path);
    }
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        log::witness_failed(&path, &error);
    }
}

fn try_to_update(change: impl FnOnce(&mut Knowledge)) -> io::Result<()> {
    let (path, place) = here()?;
    // The marks of a data directory that was here before are those of this place.
    let before = read_any(&path).ok().filter(|before| before.place.boot == place.boot);
    let mut knowledge = match before {
        Some(before) if before.place == place => before,
        before => Knowledge {
            place,
            last: LastRecords::default(),
            home: None,
            directory: String::new(),
            marks: before.map(|before| before.marks).unwrap_or_default(),
            claim: None,
        },
    };
    change(&mut knowledge);
    write(&path, &knowledge)
}

/// The path of this data directory's witness, and where it is.
fn here() -> io::Result<(PathBuf, Place)> {
    Ok((path()?, Place::here()?))
}

/// Named after the data directory, in which every server process works.
fn path() -> io::Result<PathBuf> {
    let data = fs::metadata(".")?;
    Ok(PathBuf::from(format!("{FOLDER}/{PREFIX}{}.{}", data.dev(), data.ino())))
}

/// What the witness knows, if it learned that in this place.
fn read(path: &Path, place: &Place) -> io::Result<Knowledge> {
    let knowledge = read_any(path)?;
    if knowledge.place == *place { Ok(knowledge) } else { Err(ErrorKind::NotFound.into()) }
}

fn read_any(path: &Path) -> io::Result<Knowledge> {
    let file = open(path, OpenOptions::new().read(true))?;
    let mut bytes = vec![0; BYTES];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(serde_json::from_slice(&bytes[..length])?)
}

fn write(path: &Path, knowledge: &Knowledge) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(knowledge)?;
    if bytes.len() > BYTES {
        return Err(ErrorKind::InvalidData.into());
    }
    bytes.resize(BYTES, b' ');
    let file = open(path, OpenOptions::new().write(true).create(true).mode(0o600))?;
    file.write_all_at(&bytes, 0)?;
    hold_anew(file);
    Ok(())
}

/// The folder belongs to everybody, so a file there counts only if it is this user's own and nobody else can write it. A
/// pipe must not make the server wait.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    // SAFETY: a system call without arguments that cannot fail.
    let is_own = metadata.uid() == unsafe { libc::geteuid() };
    if is_own && metadata.is_file() && metadata.nlink() == 1 && metadata.mode() & 0o022 == 0 {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a file of this server's own"))
    }
}

/// Time of birth, in nanoseconds since 1970; 0 if the file system does not tell.
pub fn birth(metadata: &Metadata) -> i64 {
    let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    born.map_or(0, |since| since.as_nanos() as i64)
}
