//! What the registrar tells this server's other processes: how its last contact with the fleet's registry went.

use crate::cold_lock::ColdLock;
use crate::messages::Unleased;
use snowflake_core::lock_api::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The most bytes of a text that are kept.
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

impl Notes {
    const NONE: Self = Self { last: Last::None, answered_at_us: 0, error: Line::EMPTY, hint: Line::EMPTY };

    /// When the registry last answered, as a Unix time in microseconds.
    pub fn answered_at_us(&self) -> Option<i64> {
        Some(self.answered_at_us).filter(|at| *at != 0)
    }

    /// Why the last contact brought no lease; none if it did, or there was none.
    pub fn unleased(&self) -> Option<Unleased> {
        (self.error.length > 0).then(|| Unleased { error: self.error.get(), hint: self.hint.get() })
    }
}

static BOARD: AtomicPtr<Board> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the board for this process and every process that it forks from now on.
///
/// # Safety
/// The board is in shared memory that these processes map for as long as they live.
pub unsafe fn hang(board: *const Board) {
    BOARD.store(board.cast_mut(), Ordering::Relaxed);
}

fn board() -> Option<&'static Board> {
    // SAFETY: null, or a board in the segment, which this process maps for as long as it lives.
    unsafe { BOARD.load(Ordering::Relaxed).as_ref() }
}

/// Notes that the registry granted a lease.
pub fn note_granted(answered_at_us: i64) {
    note(Last::Granted, Some(answered_at_us), &Unleased { error: String::new(), hint: String::new() });
}

/// Notes that the registry answered, and granted nothing.
pub fn note_refused(answered_at_us: i64, why: &Unleased) {
    note(Last::Refused, Some(answered_at_us), why);
}

/// Notes that there was no answer, or none that counts.
pub fn note_failed(why: &Unleased) {
    note(Last::Failed, None, why);
}

fn note(last: Last, answered_at_us: Option<i64>, why: &Unleased) {
    let Some(board) = board() else { return };
    let mut notes = board.0.lock();
    notes.last = last;
    notes.answered_at_us = answered_at_us.unwrap_or(notes.answered_at_us);
    notes.error.set(&why.error);
    notes.hint.set(&why.hint);
}

/// What is known of the contacts.
pub fn notes() -> Notes {
    board().map_or(Notes::NONE, |board| *board.0.lock())
}
