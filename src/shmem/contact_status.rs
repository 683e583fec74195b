//! The status of this server's last contact with the fleet's registry, which the registrar writes and all processes read.

use super::shared;
use crate::messages::LeaseFailure;
use crate::platform::lightweight_lock::LightweightLock;
use snowflake_core::lock_api::Mutex;

/// Maximum length of a stored text, in bytes; a longer one is cut.
const LONGEST: usize = 1_000;

/// The status in shared memory, behind its lock.
pub struct SharedStatus(Mutex<LightweightLock, ContactStatus>);

impl SharedStatus {
    /// The status before the first contact.
    pub fn new(lock: LightweightLock) -> Self {
        Self(Mutex::from_raw(lock, ContactStatus::NONE))
    }
}

/// The outcome of the last contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was none yet.
    None,
    /// The registry granted or renewed a lease.
    Granted,
    /// The registry refused.
    Refused,
    /// There was no answer.
    Failed,
}

/// The status, as plain data.
#[derive(Clone, Copy)]
pub struct ContactStatus {
    pub last: Outcome,
    /// When the registry last answered, as a Unix time in microseconds; 0 if it never did.
    answered_at_us: i64,
    error: Line,
    hint: Line,
}

/// A text as plain data.
#[derive(Clone, Copy)]
struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Line {
    const EMPTY: Self = Self { bytes: [0; LONGEST], length: 0 };

    fn set(&mut self, text: &str) {
        self.length = text.floor_char_boundary(LONGEST);
        self.bytes[..self.length].copy_from_slice(&text.as_bytes()[..self.length]);
    }

    fn get(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.length]).into_owned()
    }
}

impl ContactStatus {
    const NONE: Self = Self { last: Outcome::None, answered_at_us: 0, error: Line::EMPTY, hint: Line::EMPTY };

    /// When the registry last answered, as a Unix time in microseconds.
    pub fn answered_at_us(&self) -> Option<i64> {
        Some(self.answered_at_us).filter(|at| *at != 0)
    }

    /// Why the last contact brought no lease; `None` after a success, and before the first contact.
    pub fn failure(&self) -> Option<LeaseFailure> {
        (self.error.length > 0).then(|| LeaseFailure { error: self.error.get(), hint: self.hint.get() })
    }
}

/// Records that the registry granted a lease.
pub fn set_granted(answered_at_us: i64) {
    let none = LeaseFailure { error: String::new(), hint: String::new() };
    set(Outcome::Granted, Some(answered_at_us), &none);
}

/// Records that the registry answered, and granted nothing.
pub fn set_refused(answered_at_us: i64, failure: &LeaseFailure) {
    set(Outcome::Refused, Some(answered_at_us), failure);
}

/// Records that there was no answer, or none that fits the request.
pub fn set_failed(failure: &LeaseFailure) {
    set(Outcome::Failed, None, failure);
}

fn set(last: Outcome, answered_at_us: Option<i64>, failure: &LeaseFailure) {
    let Some(shared) = shared() else { return };
    let mut status = shared.contact_status.0.lock();
    status.last = last;
    status.answered_at_us = answered_at_us.unwrap_or(status.answered_at_us);
    status.error.set(&failure.error);
    status.hint.set(&failure.hint);
}

/// The status of the last contact.
pub fn get() -> ContactStatus {
    shared().map_or(ContactStatus::NONE, |shared| *shared.contact_status.0.lock())
}
