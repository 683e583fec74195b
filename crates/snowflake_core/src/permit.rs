//! A lane's permit: its worker and the last tick that may be issued with it, in one 64-bit word.
//!
//! A call reads the permit before the clock and the frontier, and takes both halves from the one word that it read: the
//! tick bounds its claim, and its ID carries the worker. So a call that slept while the worker of its lane changed
//! still generates an ID that the earlier permit allows.

/// A permit as it lies in memory: `tick | node`, the node in the layout's lowest bits. Time and node together have at
/// most 63 bits, so every tick of a layout fits, and so does -1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permit(i64);

impl Permit {
    /// Permits nothing: the gate is closed. Its tick lies below every mark.
    pub(crate) const CLOSED: Self = Self(i64::MIN);

    /// Permits IDs of `node` up to and including `tick` (-1: none yet), where nodes have `node_bits` bits. A tick past
    /// the end of every layout counts as the last that fits.
    pub(crate) fn new(tick: i64, node: i64, node_bits: u32) -> Self {
        let last = i64::MAX >> node_bits;
        Self(tick.min(last) << node_bits | node)
    }

    /// The word.
    pub(crate) const fn word(self) -> i64 {
        self.0
    }

    /// The permit in a word.
    pub(crate) const fn of_word(word: i64) -> Self {
        Self(word)
    }

    /// The last tick that may be issued.
    #[inline]
    pub(crate) const fn tick(self, node_bits: u32) -> i64 {
        self.0 >> node_bits
    }

    /// A tick of the layout beside the permit's node: an ID without its sequence.
    #[inline]
    pub(crate) const fn stamp(self, tick: i64, node_bits: u32, node_mask: i64) -> i64 {
        tick << node_bits | self.0 & node_mask
    }

    /// Whether this permits the tick of one of its own stamps.
    #[inline]
    pub(crate) const fn allows(self, stamp: i64) -> bool {
        stamp <= self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_permit_keeps_both_halves_for_every_split_of_63_bits() {
        for node_bits in 0..=62_u32 {
            let (last_tick, last_node) = (i64::MAX >> node_bits, (1 << node_bits) - 1);
            for (tick, node) in
                [(-1, 0), (-1, last_node), (0, 0), (0, last_node), (last_tick, 0), (last_tick, last_node)]
            {
                let permit = Permit::new(tick, node, node_bits);
                let stamp = |tick| permit.stamp(tick, node_bits, last_node);
                assert_eq!(permit.tick(node_bits), tick, "{node_bits} bits");
                assert_eq!(stamp(0), node, "{node_bits} bits");
                assert!(tick < 0 || permit.allows(stamp(tick)), "{node_bits} bits");
                assert!(tick == last_tick || !permit.allows(stamp(tick + 1)), "{node_bits} bits");
                assert_ne!(permit, Permit::CLOSED);
            }
            assert!(Permit::CLOSED.tick(node_bits) < -1, "{node_bits} bits");
        }
    }
}
