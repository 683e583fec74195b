//! The content of the state file: a *record* has a mark for each worker, the time up to which its IDs may exist.
//!
//! Marks are times, so that a record means the same under every layout. The record has the file's inode and time of
//! birth, which differ for a copy of the file.
//!
//! The file has two *slots* of 4 KiB, each a JSON document with a version, a CRC-32C and a record. A record goes to the
//! slot that does not hold the newest durable one, so that a torn write leaves that one whole. If the newest one is
//! damaged later, the other slot has the record before it.

use crate::lease::Membership;
use crate::platform::{FileIdentity, Loaded, SLOT_BYTES};
use crate::refusal::ClosedReason;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The version that this code writes, and the newest that it reads.
const VERSION: u32 = 1;

/// The content of a state file. Workers are recorded as they stand in an ID, datacenter included; times are Unix times in
/// microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) header: Header,
    /// The active worker; `None` while a registry has leased none.
    pub(crate) active: Option<i64>,
    /// For each worker that this server has or had: when the last tick ends in which its IDs may exist.
    pub(crate) marks: BTreeMap<i64, i64>,
}

/// The fields of a record that are the same in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// One higher than that of the record before.
    pub(crate) generation: u64,
    pub(crate) system_identifier: u64,
    /// The file into which it was written.
    pub(crate) file: FileIdentity,
    pub(crate) timeline: u32,
    /// The longest `max_ahead` under which an ID may have been generated that the clock has not reached yet, in
    /// microseconds.
    pub(crate) max_ahead_us: i64,
    /// The greatest mark of the workers for which there was no room, or a floor that an operator set: a floor for every
    /// worker that is not among the marks.
    pub(crate) floor_us: i64,
    /// The same as in the locked file of the host, if the run that wrote this could lock it (rule 5).
    pub(crate) token: Option<Uuid>,
    /// In a fleet with a registry: which node this server is, and its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) membership: Option<Membership>,
}

impl Record {
    /// Whether it was written into this file, by a server of this cluster.
    pub(crate) fn is_in_place(&self, file: FileIdentity, system_identifier: u64) -> bool {
        self.header.file.is(file) && self.header.system_identifier == system_identifier
    }

    /// Whether it has one of these workers.
    pub(crate) fn has_any(&self, workers: &[i64]) -> bool {
        workers.iter().any(|worker| self.marks.contains_key(worker))
    }
}

// ---- its bytes ----

#[derive(Serialize)]
struct Envelope<'a> {
    version: u32,
    crc32c: String,
    record: &'a RawValue,
}

#[derive(Deserialize)]
struct ReadEnvelope<'a> {
    version: u32,
    crc32c: String,
    #[serde(borrow)]
    record: &'a RawValue,
}

fn checksum(version: u32, record: &str) -> String {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&version.to_le_bytes()), record.as_bytes());
    format!("{crc:08x}")
}

/// The bytes of a slot that holds this record.
pub(crate) fn encode(record: &Record) -> Vec<u8> {
    let record = serde_json::value::to_raw_value(record).expect("a record is plain data");
    let crc32c = checksum(VERSION, record.get());
    let envelope = Envelope { version: VERSION, crc32c, record: &record };
    let mut bytes = serde_json::to_vec(&envelope).expect("an envelope is plain data");
    bytes.push(b'\n');
    assert!(bytes.len() <= SLOT_BYTES, "64 workers take about half a slot");
    bytes.resize(SLOT_BYTES, b' ');
    bytes
}

/// The record that a slot holds; `None` if it cannot be read.
fn decode(bytes: &[u8]) -> Option<Result<Record, ClosedReason>> {
    let envelope: ReadEnvelope<'_> = serde_json::from_slice(bytes).ok()?;
    if checksum(envelope.version, envelope.record.get()) != envelope.crc32c {
        return None;
    }
    if envelope.version > VERSION {
        return Some(Err(ClosedReason::NewerVersion(envelope.version)));
    }
    serde_json::from_str(envelope.record.get()).ok().map(Ok)
}

/// The newest record of a file, and its slot; `None` if neither slot can be read.
pub(crate) fn newest(loaded: &Loaded) -> Result<Option<(usize, Record)>, ClosedReason> {
    let mut found: Option<(usize, Record)> = None;
    for (slot, bytes) in loaded.slots.iter().enumerate() {
        if let Some(record) = bytes.as_deref().and_then(decode).transpose()?
            && found.as_ref().is_none_or(|(_, other)| other.header.generation < record.header.generation)
        {
            found = Some((slot, record));
        }
    }
    Ok(found)
}
