//! What the registrar tells this server's other processes: how its last contact with the fleet's registry went.

use crate::cold_lock::ColdLock;
use snowflake_core::lock_api::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The most bytes of an error that are kept.
const LONGEST: usize = 1_000;

/// In shared memory.
pub struct Board(Mutex<ColdLock, Notes>);

impl Board {
    /// Before the first contact.
    pub fn new(lock: ColdLock) -> Self {
        Self(Mutex::from_raw(lock, Notes::NONE))
    }
}

/// How the last contact went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// There was none yet.
    None,
    /// The registry granted or renewed a lease.
    Granted,
    /// The registry refused.
    Refused,
    /// There was no answer.
    Failed,
}

/// What is known of the contacts, as plain data.
#[derive(Clone, Copy)]
pub struct Notes {
    pub last: Last,
    /// When the registry last answered, as a Unix time in microseconds; 0 if it never did.
    answered_at_us: i64,
    error: [u8; LONGEST],
    error_length: usize,
}

impl Notes {
    const NONE: Self = Self { last: Last::None, answered_at_us: 0, error: [0; LONGEST], error_length: 0 };

    /// When the registry last answered, as a Unix time in microseconds.
    pub fn answered_at_us(&self) -> Option<i64> {
        Some(self.answered_at_us).filter(|at| *at != 0)
    }

    /// Why the last contact brought no lease, in one line.
    pub fn error(&self) -> Option<String> {
        let bytes = &self.error[..self.error_length];
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
    }
}

static BOARD: AtomicPtr<Board> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the board for this process and every process that it forks from now on.
///
/// # Safety
/// The board is in shared memory that these processes map for as long as they live.
pub unsafe fn share(board: *const Board) {
    BOARD.store(board.cast_mut(), Ordering::Relaxed);
}

fn board() -> Option<&'static Board> {
    // SAFETY: null, or a board in the segment, which this process maps for as long as it lives.
    unsafe { BOARD.load(Ordering::Relaxed).as_ref() }
}

/// Notes how a contact went; `answered_at_us` if the registry answered, `error` if that brought no lease.
pub fn note(last: Last, answered_at_us: Option<i64>, error: &str) {
    let Some(board) = board() else { return };
    let end = error.floor_char_boundary(LONGEST);
    let mut notes = board.0.lock();
    notes.last = last;
    notes.answered_at_us = answered_at_us.unwrap_or(notes.answered_at_us);
    notes.error[..end].copy_from_slice(&error.as_bytes()[..end]);
    notes.error_length = end;
}

/// What is known of the contacts.
pub fn notes() -> Notes {
    board().map_or(Notes::NONE, |board| *board.0.lock())
}
