//! The horizon: below which ID no transaction will add a row any more. `horizon.rs` of the crate has the protocol.

use super::Generator;
use crate::horizon::{Bound, Slot, Slots};
use crate::memory::{ColdState, Gate};
use crate::platform::Platform;
use crate::refusal::Refusal;
use parking_lot::lock_api::RawMutex;

/// A break less than this many microseconds after the one before keeps the lower `since` of both.
const JOINED_US: i64 = 86_400_000_000;

/// The answer to a reader that polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// The transaction of each ID of this server below it has ended, while `breaks` stays the same.
    pub id: i64,
    /// Changes at each break; compare for equality only.
    pub breaks: i64,
    /// No ID generated since the last break is lower, nor since those of this run that came within a day before it.
    pub since: i64,
}

impl<P: Platform, R: RawMutex> Generator<'_, P, R> {
    /// Announces from where on this transaction generates IDs. To be called before the first of them, and harmless
    /// afterwards. `slot` is that of the calling process; `transaction`, its name, is not 0, and never used again.
    #[inline]
    pub fn announce(&self, slot: &Slot, transaction: u64) {
        if !slot.is_of(transaction) {
            // The breaks first: after a later break, the position that was read before it could be too high.
            let breaks = self.control.order.breaks();
            let position = self.lanes[self.active()].next_position();
            slot.announce(transaction, Bound { breaks, position });
        }
    }

    /// The horizon. It generates an ID, so that it advances where no other call does.
    ///
    /// `is_running`: whether the transaction of this name still runs in the process of this number; `is_prepared`:
    /// whether one that was prepared under this name is in progress.
    pub fn horizon(
        &self,
        slots: Slots<'_>,
        is_running: impl Fn(usize, u64) -> bool,
        is_prepared: impl Fn(u64) -> bool,
    ) -> Result<Horizon, Refusal> {
        // Before the ID, so that a break after this is news for the next call.
        let (breaks, since) = self.locked(|cold| match cold.gate {
            Gate::Open => Ok((self.breaks(cold), cold.since)),
            _ => Err(Refusal::GateClosed),
        })?;
        let own = self.next_id()?;
        let (sequence_bits, origin_bits) = (self.sequence_bits, self.origin_bits);
        let origin = own >> sequence_bits & self.origin_mask;
        let sequence_mask = (1 << sequence_bits) - 1;
        let position = own >> (sequence_bits + origin_bits) << sequence_bits | own & sequence_mask;
        let lowest = slots.lowest(position, &self.control.order, is_running, is_prepared);
        let id = self.layout.join(lowest >> sequence_bits, origin, lowest & sequence_mask);
        Ok(Horizon { id, breaks, since })
    }

    /// A number that no earlier run has had, unless a clock stood at the same microsecond again.
    fn breaks(&self, cold: &ColdState) -> i64 {
        cold.run.start_us + self.control.order.breaks() as i64
    }

    /// Breaks the order: IDs generated once `begin` has run are in tick `first` or later.
    pub(super) fn break_order(&self, cold: &mut ColdState, first: i64, begin: impl FnOnce()) {
        let since = self.layout.join(first, 0, 0);
        let now_us = self.platform.boot_us();
        let is_joined = now_us - cold.broke_at_us < JOINED_US;
        cold.since = if is_joined { since.min(cold.since) } else { since };
        cold.broke_at_us = now_us;
        self.control.order.change((first << self.sequence_bits) - 1, begin);
    }
}
