//! The ring: which IDs of a lane have been generated. The proof of uniqueness is here and nowhere else.
//!
//! The tick t has the slot t modulo the number of slots. The slot's 64-bit *entry* is the last *position* issued in a
//! tick (tick and sequence side by side), or empty. Only [`Ring::claim`] changes an entry, by one compare-and-swap that
//! moves it to a **higher** value. The caller whose swap succeeded owns the positions that the entry moved over, and no
//! other caller ever can (guarantee 1). This depends neither on clocks, nor on policies, nor on the memory order,
//! because all changes of one atomic have one order.
//!
//! An entry also counts its own IDs, because the first sequence of a tick is a function of the tick. The call that
//! evicts an entry adds its count to the lane's total, so the count is exact and costs other calls nothing.

use crate::config::SequenceStart;
use crate::layout::Layout;
use crate::sync::{AtomicU64, Ordering};

/// How positions lie in an entry, and where each tick's sequence starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    sequence_bits: u32,
    /// All bits of the sequence set: the last sequence of a tick.
    highest: u64,
    spread_mask: u64,
}

impl Shape {
    pub(crate) fn new(layout: &Layout, start: SequenceStart) -> Self {
        let sequences = layout.sequences() as u64;
        let spread_mask = match start {
            SequenceStart::Zero => 0,
            SequenceStart::Spread => (sequences >> 6).saturating_sub(1),
        };
        Self { sequence_bits: layout.bits().sequence, highest: sequences - 1, spread_mask }
    }

    /// The number of positions that every tick has at least.
    pub(crate) const fn capacity(self) -> i64 {
        (self.highest + 1 - self.spread_mask) as i64
    }

    /// The first sequence of a tick: Fibonacci hashing, the middle bits of a product with 2^64 / phi.
    #[inline]
    const fn first_sequence(self, tick: i64) -> u64 {
        ((tick as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) & self.spread_mask
    }

    /// The entry of position zero of `tick`.
    #[inline]
    const fn base(self, tick: i64) -> u64 {
        Entry::USED | (tick as u64) << self.sequence_bits
    }
}

/// One entry of the ring, as it was read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u64);

impl Entry {
    /// Time and sequence together have at most 63 bits, so the top bit marks a used entry. Entries compare as their
    /// positions do, and the empty entry is below them all.
    const USED: u64 = 1 << 63;
    const EMPTY: Self = Self(0);

    const fn tick(self, shape: Shape) -> i64 {
        ((self.0 & !Self::USED) >> shape.sequence_bits) as i64
    }

    /// How many IDs this entry stands for.
    const fn count(self, shape: Shape) -> u64 {
        if self.0 == Self::EMPTY.0 {
            return 0;
        }
        let tick = self.tick(shape);
        self.0 - shape.base(tick) - shape.first_sequence(tick) + 1
    }
}

/// The outcome of an attempt to claim positions of a tick.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The positions are the caller's, from this sequence on.
    Won { first: i64 },
    /// The tick has fewer positions left.
    Full,
    /// The ring's slot holds this later tick: the caller's tick is at least a whole ring behind.
    Overtaken(i64),
}

/// The ring of one lane.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'m> {
    slots: &'m [AtomicU64],
    evicted: &'m AtomicU64,
    shape: Shape,
}

impl<'m> Ring<'m> {
    /// `slots`: a power of two of entries, all 0 at first. `evicted`: the lane's count of IDs that left the ring.
    pub(crate) fn new(slots: &'m [AtomicU64], evicted: &'m AtomicU64, shape: Shape) -> Self {
        assert!(slots.len().is_power_of_two(), "a ring has a power of two of slots");
        Self { slots, evicted, shape }
    }

    /// The ring's length, in ticks.
    pub(crate) fn ticks(&self) -> i64 {
        self.slots.len() as i64
    }

    #[inline]
    fn slot(&self, tick: i64) -> &'m AtomicU64 {
        &self.slots[tick as usize & (self.slots.len() - 1)]
    }

    /// Claims `n` consecutive positions of `tick`; 0 <= tick, 1 <= n <= capacity. Guarantee 1 rests on this loop.
    #[inline(always)]
    pub(crate) fn claim(&self, tick: i64, n: i64) -> Claim {
        let slot = self.slot(tick);
        let base = self.shape.base(tick);
        let mut seen = slot.load(Ordering::Relaxed);
        loop {
            // The entries of one tick differ in their sequence alone.
            let is_of_tick = seen ^ base <= self.shape.highest;
            let first = if is_of_tick {
                (seen ^ base) + 1
            } else if seen < base {
                self.shape.first_sequence(tick)
            } else {
                return Claim::Overtaken(Entry(seen).tick(self.shape));
            };
            let last = first + (n as u64 - 1);
            if last > self.shape.highest {
                return Claim::Full;
            }
            match slot.compare_exchange_weak(seen, base | last, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    if !is_of_tick {
                        self.evicted.fetch_add(Entry(seen).count(self.shape), Ordering::Relaxed);
                    }
                    return Claim::Won { first: first as i64 };
                }
                Err(newer) => seen = newer,
            }
        }
    }

    /// The first tick from `tick` on that has room for `n` positions for a call that starts there; `end + 1` if none up
    /// to `end` has.
    pub(crate) fn room_from(&self, tick: i64, n: i64, end: i64) -> i64 {
        let has_room = |tick: &i64| {
            let top = self.shape.base(*tick) | self.shape.highest;
            top.saturating_sub(self.entry(*tick)) >= n as u64
        };
        (tick..=end).find(has_room).unwrap_or(end + 1)
    }

    /// The lowest position that a call can claim from now on if it begins in this tick. Past the last one of a tick
    /// comes the first of the next.
    #[inline]
    pub(crate) fn next_position(&self, tick: i64) -> i64 {
        let (entry, base) = (self.entry(tick), self.shape.base(tick));
        let next = if entry ^ base <= self.shape.highest { entry.wrapping_add(1) } else { base };
        (next & !Entry::USED) as i64
    }

    /// The entry in the slot of this tick: it changes with every ID that is generated there.
    pub(crate) fn entry(&self, tick: i64) -> u64 {
        self.slot(tick).load(Ordering::Acquire)
    }

    /// Whether an ID of this tick is in the ring.
    pub(crate) fn holds(&self, tick: i64) -> bool {
        self.entry(tick) ^ self.shape.base(tick) <= self.shape.highest
    }

    /// The last tick in which an ID was generated. It is still in the ring, because only a later tick evicts an entry.
    pub(crate) fn last_tick(&self) -> Option<i64> {
        let highest = self.entries().max().unwrap_or(Entry::EMPTY);
        (highest != Entry::EMPTY).then(|| highest.tick(self.shape))
    }

    /// How many IDs the lane has generated. Exact while no claim is under way.
    pub(crate) fn issued(&self) -> u64 {
        let held: u64 = self.entries().map(|entry| entry.count(self.shape)).sum();
        held + self.evicted.load(Ordering::Relaxed)
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + use<'m> {
        self.slots.iter().map(|slot| Entry(slot.load(Ordering::Acquire)))
    }
}
