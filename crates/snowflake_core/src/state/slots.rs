//! The bytes of the state file.
//!
//! The file has two *slots* of 4 KiB, each a JSON document with a version, a CRC-32C and a record. A record goes first
//! to the slot that does not hold the newest durable one, so that a torn write leaves that one whole, and then to the
//! other. The record has the file's inode and time of birth, which differ for a copy of the file.

use super::record::Record;
use crate::host::{Loaded, SLOT_BYTES};
use crate::refusal::ClosedReason;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version that this code writes, and the newest that it reads.
const VERSION: u32 = 1;

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
        if let Some(record) = decode(bytes).transpose()?
            && found.as_ref().is_none_or(|(_, other)| other.generation < record.generation)
        {
            found = Some((slot, record));
        }
    }
    Ok(found)
}
