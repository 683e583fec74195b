//! The content of the state file: a *record* has a mark for each worker, the time up to which its IDs may exist.
//!
//! Marks are times, so that a record means the same under every layout.

use crate::host::FileIdentity;
use crate::lease::Membership;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The state of a server. Workers are recorded as they stand in an ID, datacenter included; times are Unix times in
/// microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// One higher than that of the record before.
    pub(crate) generation: u64,
    pub(crate) system_identifier: u64,
    /// The file into which it was written.
    pub(crate) file: FileIdentity,
    pub(crate) timeline: u32,
    /// The active worker; `None` while a registry has leased none.
    pub(crate) active: Option<i64>,
    /// The longest `max_ahead` under which an ID may have been generated that the clock has not reached yet, in
    /// microseconds.
    pub(crate) max_ahead_us: i64,
    /// For each worker that this server has or had: when the last tick ends in which its IDs may exist.
    pub(crate) marks: BTreeMap<i64, i64>,
    /// The greatest mark of the workers for which there was no room, or a floor that an operator set: a floor for every
    /// worker that is not among `marks`.
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
        self.file.is(file) && self.system_identifier == system_identifier
    }

    /// Whether it has one of these workers.
    pub(crate) fn has_any(&self, workers: &[i64]) -> bool {
        workers.iter().any(|worker| self.marks.contains_key(worker))
    }
}
