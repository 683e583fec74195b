//! Detects steps of the wall clock, by its offset from the boot clock.
//!
//! Both clocks are slewed alike, so the offset changes only when the wall clock is stepped. One cell holds the offset,
//! and the process that replaces it counts the step, so each step is counted once.

use crate::platform::Platform;
use crate::sync::{AtomicI64, AtomicU64, Ordering};

/// A longer forward step of the wall clock is reported: if it was wrong, correcting it will be a step back.
const FORWARD_JUMP_US: i64 = 60_000_000;
/// The two clocks cannot be read at once, so a smaller difference does not count as a step.
const CLOCK_NOISE_US: i64 = 500;
/// The offset before the clocks were first compared.
const OFFSET_UNKNOWN: i64 = i64::MIN;

/// The last offset that was seen, and the counts of steps.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    /// Wall clock minus boot clock, in microseconds.
    offset_us: AtomicI64,
    rollbacks: AtomicU64,
    largest_rollback_us: AtomicI64,
    forward_jumps: AtomicU64,
}

/// The steps since the last reset.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Steps {
    pub rollbacks: u64,
    pub largest_rollback_us: i64,
    pub forward_jumps: u64,
}

impl ClockWatch {
    pub(crate) fn new() -> Self {
        Self {
            offset_us: AtomicI64::new(OFFSET_UNKNOWN),
            rollbacks: AtomicU64::new(0),
            largest_rollback_us: AtomicI64::new(0),
            forward_jumps: AtomicU64::new(0),
        }
    }

    /// Compares the clocks and counts a step. Returns the length of a forward step of more than a minute, in
    /// microseconds.
    #[must_use]
    pub(crate) fn observe(&self, platform: &impl Platform) -> Option<i64> {
        // Read before the clocks: if another process replaces the offset in between, the swap below must fail, because
        // the clocks may have been read before the step.
        let known_us = self.offset_us.load(Ordering::Acquire);
        let mut looks = std::iter::repeat_with(|| {
            let before_us = platform.boot_us();
            (platform.wall_us().saturating_sub(before_us), platform.boot_us() - before_us)
        });
        // If the process slept between two reads, the difference means nothing: look again, or leave it to the next
        // call.
        let (offset_us, _) = looks.by_ref().take(3).find(|(_, took_us)| *took_us <= CLOCK_NOISE_US)?;
        let step_us = offset_us.saturating_sub(known_us);
        if step_us.unsigned_abs() <= CLOCK_NOISE_US as u64 {
            return None;
        }
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let won = self.offset_us.compare_exchange(known_us, offset_us, order.0, order.1).is_ok();
        if !won || known_us == OFFSET_UNKNOWN {
            return None;
        }
        if step_us < 0 {
            self.rollbacks.fetch_add(1, Ordering::Relaxed);
            self.largest_rollback_us.fetch_max(step_us.saturating_neg(), Ordering::Relaxed);
            return None;
        }
        let is_jump = step_us > FORWARD_JUMP_US;
        if is_jump {
            self.forward_jumps.fetch_add(1, Ordering::Relaxed);
        }
        is_jump.then_some(step_us)
    }

    /// The counts.
    pub(crate) fn steps(&self) -> Steps {
        Steps {
            rollbacks: self.rollbacks.load(Ordering::Relaxed),
            largest_rollback_us: self.largest_rollback_us.load(Ordering::Relaxed),
            forward_jumps: self.forward_jumps.load(Ordering::Relaxed),
        }
    }

    /// Resets the counts to zero.
    pub(crate) fn reset(&self) {
        self.rollbacks.store(0, Ordering::Relaxed);
        self.largest_rollback_us.store(0, Ordering::Relaxed);
        self.forward_jumps.store(0, Ordering::Relaxed);
    }
}
