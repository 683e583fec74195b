//! A lane's permit: its worker and the last tick that may be issued with it, in one 64-bit word.
//!
//! A call reads the permit before the clock and the current tick, and takes both halves from the one word that it read:
//! the tick bounds its claim, and its ID carries the worker. So a call that slept while the worker of its lane changed
//! still generates an ID that the earlier permit allows.

/// A permit as it lies in memory: `tick | origin`, the origin in the layout's lowest bits. Time and origin together
/// have at most 63 bits, so every tick of a layout fits, and so does -1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permit(pub(crate) i64);

impl Permit {
    /// Permits nothing: the gate is closed. Its tick is below every mark.
    pub(crate) const CLOSED: Self = Self(i64::MIN);

    /// Permits IDs of `origin` up to and including `tick` (-1: none yet), where origins have `origin_bits` bits. A tick
    /// past the end of every layout counts as the last that fits.
    pub(crate) fn new(tick: i64, origin: i64, origin_bits: u32) -> Self {
        let last = i64::MAX >> origin_bits;
        Self(tick.min(last) << origin_bits | origin)
    }

    /// The last tick that may be issued.
    #[inline]
    pub(crate) const fn tick(self, origin_bits: u32) -> i64 {
        self.0 >> origin_bits
    }

    /// A tick of the layout beside the permit's origin: an ID without its sequence.
    #[inline]
    pub(crate) const fn stamp(self, tick: i64, origin_bits: u32, origin_mask: i64) -> i64 {
        tick << origin_bits | self.0 & origin_mask
    }

    /// Whether this permits the tick of one of its own stamps.
    #[inline]
    pub(crate) const fn allows(self, stamp: i64) -> bool {
        stamp <= self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_keeps_both_halves_for_every_split_of_63_bits() {
        for origin_bits in 0..=62_u32 {
            let (last_tick, last_origin) = (i64::MAX >> origin_bits, (1 << origin_bits) - 1);
            for (tick, origin) in [
                (-1, 0),
                (-1, last_origin),
                (0, 0),
                (0, last_origin),
                (last_tick, 0),
                (last_tick, last_origin),
            ] {
                let permit = Permit::new(tick, origin, origin_bits);
                let stamp = |tick| permit.stamp(tick, origin_bits, last_origin);
                assert_eq!(permit.tick(origin_bits), tick, "{origin_bits} bits");
                assert_eq!(stamp(0), origin, "{origin_bits} bits");
                assert!(tick < 0 || permit.allows(stamp(tick)), "{origin_bits} bits");
                assert!(tick == last_tick || !permit.allows(stamp(tick + 1)), "{origin_bits} bits");
                assert_ne!(permit, Permit::CLOSED);
            }
            assert!(Permit::CLOSED.tick(origin_bits) < -1, "{origin_bits} bits");
            assert_eq!(Permit::new(i64::MAX, last_origin, origin_bits).tick(origin_bits), last_tick);
        }
    }
}
