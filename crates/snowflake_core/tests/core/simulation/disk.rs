//! A simulated disk that keeps written and durable bytes apart, and fails on demand.
//!
//! It guarantees no more than the contract of [`Disk`]: an fsync makes only its own slot durable, and after a failed
//! fsync the slot's content is unknown, although it may look clean.

use super::tape::Tape;
use serde::Deserialize;
use serde_json::value::RawValue;
use snowflake_core::platform::WriteError;
use snowflake_core::platform::{FileIdentity, HostLock, Loaded, Locked, SLOT_BYTES, SLOTS};
use snowflake_core::{Disk, Errno};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::rc::Rc;
use uuid::Uuid;

pub const EIO: Errno = 5;
pub const ENOSPC: Errno = 28;

/// A crash of the server or of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// The server: its memory is lost, but not what it wrote.
    Server,
    /// The machine: bytes that were not fsynced may be lost or torn.
    Machine,
}

/// The panic payload of a call during which the server or the machine goes down.
pub struct Down(pub Power);

/// A point in the disk's protocol, just before the named operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Reading the file.
    Load,
    /// Opening the file to write a slot.
    Open,
    /// Writing a slot.
    Write(usize),
    /// The fsync of the slot.
    Sync(usize),
    /// The return from writing the slot.
    Synced(usize),
    /// Creating a new file.
    Make,
    /// Writing it.
    WriteNew,
    /// The fsync of the new file.
    SyncNew,
    /// Renaming it to its final name.
    Rename,
    /// The fsync of the folder.
    SyncFolder,
    /// The return from the creation.
    Made,
}

/// The effect of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    Fail(Errno),
    Down(Power),
}

type Bytes = Rc<[u8]>;

#[derive(Clone)]
struct File {
    identity: FileIdentity,
    /// The bytes that a reader sees; none of a slot that the device cannot read.
    seen: [Bytes; SLOTS],
    /// The bytes after a loss of power, except for dirty slots.
    durable: [Bytes; SLOTS],
    /// Written but not fsynced: after a loss of power the old bytes, the new ones, or a torn mixture.
    dirty: [bool; SLOTS],
}

impl File {
    fn new(identity: FileIdentity, slots: [Bytes; SLOTS]) -> Self {
        Self { identity, seen: slots.clone(), durable: slots, dirty: [false; SLOTS] }
    }
}

#[derive(Clone)]
struct Folder {
    files: Vec<File>,
    seen: Option<usize>,
    durable: Option<usize>,
}

/// A slot as the tests read it: by the document's field names, independently of the code under test.
#[derive(Deserialize)]
struct Document<'a> {
    version: u32,
    crc32c: &'a str,
    #[serde(borrow)]
    record: &'a RawValue,
}

/// What a slot's record says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Said {
    pub generation: u64,
    pub file: FileIdentity,
    pub timeline: u64,
    pub active: Option<i64>,
    pub max_ahead_us: i64,
    pub marks: BTreeMap<i64, i64>,
    pub floor_us: i64,
    pub token: Option<Uuid>,
}

impl Said {
    /// A worker's mark, in ticks of 1 ms from 1970; the floor if it has none of its own, and -1 if there is none.
    pub fn mark(&self, worker: i64) -> i64 {
        let end_us = self.marks.get(&worker).copied().unwrap_or(self.floor_us);
        (end_us.div_euclid(1_000) - 1).max(-1)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        // The document is one line. The rest of the slot is blank, and reading it would take as long as all else here.
        let document = bytes.split(|byte| *byte == b'\n').next()?;
        let Document { version, crc32c, record } = serde_json::from_slice(document).ok()?;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&version.to_le_bytes()), record.get().as_bytes());
        if crc32c != format!("{crc:08x}") {
            return None;
        }
        serde_json::from_str(record.get()).ok()
    }
}

/// The newer of the slots' records.
fn newest(slots: [Option<&Said>; SLOTS]) -> Option<&Said> {
    slots.into_iter().flatten().max_by_key(|said| said.generation)
}

/// What happens on a host just before a data directory locks workers.
type BeforeLock = Rc<dyn Fn(u64)>;

/// What a host remembers outside every disk, until it boots again: who holds a worker, and who signed for it last.
/// Holders are data directories.
#[derive(Default)]
pub struct SimHost {
    /// What happens just before a data directory locks workers.
    pub before: RefCell<Option<BeforeLock>>,
    held: RefCell<BTreeMap<(u64, i64), u64>>,
    signed: RefCell<BTreeMap<(u64, i64), Uuid>>,
}

/// A host's lock as one data directory has it.
pub struct SimLock {
    /// Other directories on the same host have the same.
    pub host: Rc<SimHost>,
    /// The data directory.
    pub directory: u64,
    /// Somebody has deleted the file, or no other can be made.
    pub is_broken: Cell<bool>,
    /// A process of the run before in this directory still has its workers.
    pub is_own_held: Cell<bool>,
}

impl SimLock {
    fn new(directory: u64) -> Self {
        Self { host: Rc::default(), directory, is_broken: Cell::default(), is_own_held: Cell::default() }
    }

    /// The last process of the server in this directory ends.
    pub fn release(&self) {
        self.host.held.borrow_mut().retain(|_, holder| *holder != self.directory);
    }

    /// The host boots.
    pub fn forget(&self) {
        self.host.held.borrow_mut().clear();
        self.host.signed.borrow_mut().clear();
    }

    /// Lets another data directory hold a worker.
    pub fn hold_as(&self, directory: u64, system_identifier: u64, worker: i64) {
        self.host.held.borrow_mut().insert((system_identifier, worker), directory);
    }

    /// The token with which a server signed last for this worker.
    pub fn signed(&self, system_identifier: u64, worker: i64) -> Option<Uuid> {
        self.host.signed.borrow().get(&(system_identifier, worker)).copied()
    }

    /// The workers that this directory holds.
    pub fn held(&self) -> Vec<i64> {
        let held = self.host.held.borrow();
        held.iter().filter(|(_, holder)| **holder == self.directory).map(|((_, worker), _)| *worker).collect()
    }
}

impl HostLock for SimLock {
    fn lock(&self, system_identifier: u64, workers: &[i64]) -> Locked {
        let before = self.host.before.borrow().clone().filter(|_| !workers.is_empty());
        before.into_iter().for_each(|happens| happens(self.directory));
        if self.is_broken.get() {
            return Locked::Unavailable;
        }
        if self.is_own_held.get() {
            return Locked::Taken { is_own_directory: true };
        }
        let mut held = self.host.held.borrow_mut();
        let holder = |worker: &i64| held.get(&(system_identifier, *worker)).copied();
        if workers.iter().filter_map(holder).any(|holder| holder != self.directory) {
            return Locked::Taken { is_own_directory: false };
        }
        held.retain(|_, holder| *holder != self.directory);
        held.extend(workers.iter().map(|worker| ((system_identifier, *worker), self.directory)));
        let home = workers
            .first()
            .and_then(|home| self.host.signed.borrow().get(&(system_identifier, *home)).copied());
        Locked::Own(home)
    }

    fn sign(&self, workers: &[i64], token: Uuid) -> bool {
        let held = self.host.held.borrow();
        let own: Vec<_> =
            held.iter().filter(|(_, holder)| **holder == self.directory).map(|(key, _)| *key).collect();
        assert!(
            workers.iter().all(|worker| own.iter().any(|(_, it)| it == worker)),
            "only what is held is signed for"
        );
        self.host.signed.borrow_mut().extend(own.into_iter().map(|key| (key, token)));
        !self.is_broken.get()
    }
}

/// A simulated disk with the state file's folder.
pub struct SimDisk {
    tape: Rc<Tape>,
    folder: RefCell<Folder>,
    next_inode: Cell<u64>,
    /// Counts changes of any kind.
    changes: Cell<u64>,
    faults: RefCell<Rc<dyn Fn(Point) -> Fault>>,
    trusts_page_cache: Cell<bool>,
    lowest: Cell<((u64, i64), Option<i64>)>,
    read: RefCell<Vec<(Bytes, Option<Said>)>>,
    /// A new file that has no bytes yet.
    created: Cell<Option<FileIdentity>>,
    pub points: Cell<u64>,
    pub writes: Cell<u64>,
    /// The record that was loaded last, and its file.
    pub loaded: RefCell<Option<(FileIdentity, Said)>>,
    /// Of the host that has the disk.
    pub host_lock: SimLock,
}

impl SimDisk {
    pub fn new(tape: &Rc<Tape>) -> Self {
        Self {
            tape: tape.clone(),
            folder: RefCell::new(Folder { files: Vec::new(), seen: None, durable: None }),
            next_inode: Cell::new(11),
            changes: Cell::new(1),
            faults: RefCell::new(Rc::new(|_| Fault::None)),
            trusts_page_cache: Cell::default(),
            lowest: Cell::new(((0, 0), None)),
            read: RefCell::default(),
            created: Cell::default(),
            points: Cell::new(0),
            writes: Cell::new(0),
            loaded: RefCell::default(),
            host_lock: SimLock::new(1),
        }
    }

    /// The empty disk of another data directory, whose files have inodes of its own.
    pub fn numbered(tape: &Rc<Tape>, first_inode: u64) -> Self {
        let mut disk = Self::new(tape);
        disk.host_lock.directory = first_inode;
        disk.next_inode.set(first_inode);
        disk
    }

    /// From now on it breaks the contract: a slot or a name that looks written is not written again.
    pub fn trust_page_cache(&self) {
        self.trusts_page_cache.set(true);
    }

    /// Sets the function that decides what happens at each point.
    pub fn set_faults(&self, faults: impl Fn(Point) -> Fault + 'static) {
        *self.faults.borrow_mut() = Rc::new(faults);
    }

    pub fn heal(&self) {
        self.set_faults(|_| Fault::None);
    }

    fn pass(&self, point: Point) -> Result<(), Errno> {
        self.points.set(self.points.get() + 1);
        let faults = self.faults.borrow().clone();
        match faults(point) {
            Fault::None => Ok(()),
            Fault::Fail(errno) => Err(errno),
            Fault::Down(power) => resume_unwind(Box::new(Down(power))),
        }
    }

    fn folder(&self) -> std::cell::RefMut<'_, Folder> {
        self.changes.set(self.changes.get() + 1);
        self.folder.borrow_mut()
    }

    /// A write of `new` over `old` that was cut short.
    fn torn(&self, old: &Bytes, new: &Bytes) -> Bytes {
        // Cut just before the marks; if those are equal, further up.
        let text = String::from_utf8_lossy(new);
        let cut = |before: &str| -> Bytes {
            let at = text.find(before).unwrap_or(100);
            [&new[..at], old.get(at..).unwrap_or_default()].concat().into()
        };
        let cuts = [cut("\"marks\""), cut("\"record\"")];
        let torn = cuts.into_iter().find(|torn| torn != old && torn != new);
        torn.unwrap_or_else(|| vec![0; SLOT_BYTES].into())
    }

    /// The content of a slot after an uncertain write: new, old or torn.
    fn fate(&self, old: &Bytes, new: &Bytes) -> Bytes {
        match self.tape.choose(3) {
            0 => new.clone(),
            1 => old.clone(),
            _ => self.torn(old, new),
        }
    }

    /// The power fails and comes back.
    pub fn lose_power(&self) {
        self.host_lock.forget();
        let tape = self.tape.clone();
        let mut folder = self.folder();
        if folder.seen != folder.durable && tape.choose(2) == 1 {
            folder.durable = folder.seen;
        }
        folder.seen = folder.durable;
        let Some(entry) = folder.seen else { return };
        let file = &mut folder.files[entry];
        for slot in 0..SLOTS {
            if std::mem::take(&mut file.dirty[slot]) {
                file.durable[slot] = self.fate(&file.durable[slot], &file.seen[slot]);
            }
        }
        file.seen = file.durable.clone();
    }

    /// Deletes the file.
    pub fn delete(&self) {
        let mut folder = self.folder();
        folder.seen = None;
        folder.durable = None;
    }

    /// Copies the directory as a reader sees it, into a file with another identity, on another host.
    pub fn copy(&self, tape: &Rc<Tape>, first_inode: u64) -> Self {
        let copy = Self::numbered(tape, first_inode);
        if let Some(slots) = self.slots() {
            copy.put(slots);
        }
        copy
    }

    /// Replaces the file by another one.
    pub fn put(&self, slots: [Vec<u8>; SLOTS]) -> FileIdentity {
        let identity = self.new_identity();
        self.put_as(slots, identity);
        identity
    }

    /// Replaces the file by another one that has this identity.
    pub fn put_as(&self, slots: [Vec<u8>; SLOTS], identity: FileIdentity) {
        let slots = slots.map(Bytes::from);
        let mut folder = self.folder();
        folder.files.push(File::new(identity, slots));
        folder.seen = Some(folder.files.len() - 1);
        folder.durable = folder.seen;
    }

    fn new_identity(&self) -> FileIdentity {
        let inode = self.next_inode.get();
        self.next_inode.set(inode + 1);
        FileIdentity { inode, born_ns: inode as i64 * 1_000 }
    }

    /// Changes the bytes of a slot, durably.
    pub fn scribble(&self, slot: usize, scribble: impl FnOnce(&mut Vec<u8>)) {
        let mut folder = self.folder();
        let entry = folder.seen.expect("there is a file");
        let file = &mut folder.files[entry];
        let mut bytes = file.seen[slot].to_vec();
        scribble(&mut bytes);
        file.seen[slot] = bytes.into();
        file.durable[slot] = file.seen[slot].clone();
        file.dirty[slot] = false;
    }

    /// The file as a reader sees it.
    pub fn slots(&self) -> Option<[Vec<u8>; SLOTS]> {
        let folder = self.folder.borrow();
        folder.seen.map(|entry| folder.files[entry].seen.clone().map(|bytes| bytes.to_vec()))
    }

    pub fn identity(&self) -> Option<FileIdentity> {
        let folder = self.folder.borrow();
        folder.seen.map(|entry| folder.files[entry].identity)
    }

    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    fn parse(&self, bytes: &Bytes) -> Option<Said> {
        let mut read = self.read.borrow_mut();
        if let Some((_, said)) = read.iter().find(|(known, _)| Rc::ptr_eq(known, bytes)) {
            return said.clone();
        }
        let said = Said::read(bytes);
        read.truncate(7);
        read.insert(0, (bytes.clone(), said.clone()));
        said
    }

    /// The slot of the record that a reader of the file sees.
    pub fn newest_slot(&self) -> Option<usize> {
        let said = self.said()?;
        let folder = self.folder.borrow();
        let file = &folder.files[folder.seen?];
        (0..SLOTS).find(|slot| self.parse(&file.seen[*slot]).as_ref() == Some(&said))
    }

    /// The record that a reader of the file sees.
    pub fn said(&self) -> Option<Said> {
        let folder = self.folder.borrow();
        let file = &folder.files[folder.seen?];
        let slots = [self.parse(&file.seen[0]), self.parse(&file.seen[1])];
        newest([slots[0].as_ref(), slots[1].as_ref()]).cloned()
    }

    /// The lowest mark of `worker` that a start could find if the power failed now; `None` if it would find nothing
    /// that opens a gate.
    pub fn lowest_mark(&self, worker: i64) -> Option<i64> {
        let key = (self.changes.get(), worker);
        if self.lowest.get().0 != key {
            self.lowest.set((key, self.lowest(worker).map(|said| said.mark(worker))));
        }
        self.lowest.get().1
    }

    /// The record with that mark.
    pub fn lowest(&self, worker: i64) -> Option<Said> {
        let folder = self.folder.borrow();
        let mut found: Vec<Said> = Vec::new();
        let mut entries = vec![folder.durable, folder.seen];
        entries.dedup();
        for file in entries.into_iter().flatten().map(|entry| &folder.files[entry]) {
            let fates = |slot: usize| {
                let durable = self.parse(&file.durable[slot]);
                if file.dirty[slot] {
                    vec![durable, self.parse(&file.seen[slot]), None]
                } else {
                    vec![durable]
                }
            };
            for first in fates(0) {
                for second in fates(1) {
                    found.extend(newest([first.as_ref(), second.as_ref()]).cloned());
                }
            }
        }
        found.into_iter().min_by_key(|said| said.mark(worker))
    }

    /// A number that two disks share only if their contents are equal.
    pub fn digest(&self) -> u64 {
        let folder = self.folder.borrow();
        let slots = folder.files.iter().rev().take(2).flat_map(|file| file.seen.iter().chain(&file.durable));
        let crc = |crc, bytes: &Bytes| crc32c::crc32c_append(crc, &bytes[..bytes.len().min(512)]);
        let dirty = folder.files.last().map_or(0, |file| file.dirty[0] as u64 + 2 * file.dirty[1] as u64);
        (slots.fold(0, crc) as u64) << 2 | dirty
    }
}

impl Disk for SimDisk {
    fn host_lock(&self) -> &dyn HostLock {
        &self.host_lock
    }

    fn load(&self) -> Result<Option<Loaded>, Errno> {
        self.pass(Point::Load)?;
        *self.loaded.borrow_mut() = self.identity().zip(self.said());
        let folder = self.folder.borrow();
        let Some(file) = folder.seen.map(|entry| &folder.files[entry]) else { return Ok(None) };
        let slots = file.seen.clone().map(|bytes| (!bytes.is_empty()).then(|| bytes.to_vec()));
        Ok(Some(Loaded { identity: file.identity, slots }))
    }

    fn write(&self, expected: FileIdentity, slot: usize, bytes: &[u8]) -> Result<(), WriteError> {
        assert_eq!(bytes.len(), SLOT_BYTES, "a slot is written as a whole");
        self.writes.set(self.writes.get() + 1);
        self.pass(Point::Open).map_err(WriteError::Os)?;
        if self.identity() != Some(expected) {
            return Err(WriteError::Replaced);
        }
        let entry = self.folder.borrow().seen.expect("it was just found");
        let bytes: Bytes = bytes.into();
        if self.trusts_page_cache.get() && self.folder.borrow().files[entry].seen[slot] == bytes {
            return Ok(());
        }
        if let Err(errno) = self.pass(Point::Write(slot)) {
            let mut folder = self.folder();
            let file = &mut folder.files[entry];
            let seen = file.seen[slot].clone();
            if seen != bytes && self.tape.choose(2) == 1 {
                file.seen[slot] = self.torn(&seen, &bytes);
                file.dirty[slot] = true;
            }
            return Err(WriteError::Os(errno));
        }
        {
            let mut folder = self.folder();
            let file = &mut folder.files[entry];
            file.seen[slot] = bytes.clone();
            // A durable slot that is written onto itself stays as it is, whatever happens meanwhile.
            file.dirty[slot] = file.durable[slot] != bytes;
        }
        let synced = self.pass(Point::Sync(slot));
        {
            let mut folder = self.folder();
            let file = &mut folder.files[entry];
            if synced.is_err() {
                if file.durable[slot] != bytes {
                    // The kernel may forget that the page was never written; then it looks clean.
                    file.durable[slot] = self.fate(&file.durable[slot], &bytes);
                    file.dirty[slot] = self.tape.choose(2) == 1;
                }
            } else {
                file.durable[slot] = bytes;
                file.dirty[slot] = false;
            }
        }
        synced.map_err(WriteError::Os)?;
        let _ = self.pass(Point::Synced(slot));
        Ok(())
    }

    fn sync_name(&self) -> Result<(), Errno> {
        if !self.trusts_page_cache.get() {
            self.pass(Point::SyncFolder)?;
            let mut folder = self.folder();
            folder.durable = folder.seen;
        }
        Ok(())
    }

    fn create(&self) -> Result<FileIdentity, Errno> {
        self.writes.set(self.writes.get() + 1);
        self.pass(Point::Make)?;
        let identity = self.new_identity();
        self.created.set(Some(identity));
        Ok(identity)
    }

    fn install(&self, bytes: &[u8]) -> Result<(), Errno> {
        let identity = self.created.take().expect("a file was created");
        let bytes: Bytes = bytes.into();
        assert_eq!(bytes.len(), SLOT_BYTES, "a slot is written as a whole");
        self.pass(Point::WriteNew)?;
        self.pass(Point::SyncNew)?;
        self.pass(Point::Rename)?;
        {
            let mut folder = self.folder();
            folder.files.push(File::new(identity, [bytes.clone(), bytes]));
            folder.seen = Some(folder.files.len() - 1);
        }
        self.pass(Point::SyncFolder)?;
        let mut folder = self.folder();
        folder.durable = folder.seen;
        drop(folder);
        let _ = self.pass(Point::Made);
        Ok(())
    }
}
