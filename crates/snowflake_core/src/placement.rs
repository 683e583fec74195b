//! IDs for rows that have times of their own. Reads no clock, and has no state beyond the last row.
//!
//! A *position* is a tick with a sequence, counted through: tick * sequences + sequence. Rows come in the order of
//! their ticks. Each gets the first position of its tick, or the one after the previous row's if that is higher: where
//! a tick is full, its rows continue in the next ones.

use crate::layout::Layout;

/// The position of the last row, and what the next one may be.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    layout: Layout,
    /// The tick that the last row asked for; -1 before the first row.
    asked: i64,
    /// The first free position; `None` if the last row has the highest one of an `i64`.
    free: Option<i64>,
}

/// Why a row gets no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misplaced {
    /// Its tick is before the previous row's, which is this one.
    Descending(i64),
    /// All ticks from its own to the layout's last one are full.
    Full,
}

impl Placement {
    /// No row has a position yet.
    pub fn new(layout: Layout) -> Self {
        Self { layout, asked: -1, free: Some(0) }
    }

    /// Tick and sequence of the next row, which asks for a tick of the layout.
    pub fn place(&mut self, tick: i64) -> Result<(i64, i64), Misplaced> {
        if tick < self.asked {
            return Err(Misplaced::Descending(self.asked));
        }
        let bits = self.layout.bits().sequence;
        let position = self.free.ok_or(Misplaced::Full)?.max(tick << bits);
        let (tick_of_position, sequence) = (position >> bits, position & (self.layout.sequences() - 1));
        if tick_of_position > self.layout.max_tick() {
            return Err(Misplaced::Full);
        }
        self.asked = tick;
        self.free = position.checked_add(1);
        Ok((tick_of_position, sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Bits, Tick};

    fn layout(time: u32, worker: u32, sequence: u32) -> Layout {
        Layout::new(Bits { time, datacenter: 0, worker, sequence }, Tick::Millisecond, 0).expect("a layout")
    }

    fn placed(layout: Layout, ticks: &[i64]) -> Vec<Result<(i64, i64), Misplaced>> {
        let mut placement = Placement::new(layout);
        ticks.iter().map(|tick| placement.place(*tick)).collect()
    }

    #[test]
    fn full_ticks_continue_in_later_ones() {
        let expected = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (9, 0)].map(Ok);
        assert_eq!(placed(layout(8, 2, 1), &[0, 0, 0, 1, 1, 2, 9]), expected);
    }

    /// Position i is i + max over j <= i of (first position of j - j): the form that plain SQL has for it.
    #[test]
    fn positions_are_those_of_the_closed_form() {
        for sequence in [0, 1, 3] {
            let layout = layout(20, 2, sequence);
            for seed in 0..200_u64 {
                // Steps of 0 to 3 ticks, most of them 0.
                let step = |i: u64| (seed.wrapping_mul(0x9E37_79B9) ^ i.wrapping_mul(0x85EB_CA6B)) >> 7 & 7;
                let ticks: Vec<i64> = (0..100_u64)
                    .scan(0, |tick, i| {
                        *tick += (step(i) as i64 - 4).max(0);
                        Some(*tick)
                    })
                    .collect();
                let mut highest = i64::MIN;
                let closed: Vec<_> = (0..)
                    .zip(&ticks)
                    .map(|(i, tick)| {
                        highest = highest.max((tick << sequence) - i);
                        let position = i + highest;
                        Ok((position >> sequence, position & ((1 << sequence) - 1)))
                    })
                    .collect();
                assert_eq!(placed(layout, &ticks), closed, "seed {seed}");
            }
        }
    }

    #[test]
    fn descending_ticks_are_refused() {
        let refused = Err(Misplaced::Descending(5));
        // Compared with the tick that was asked for, not with the one that the row got.
        assert_eq!(
            placed(layout(8, 2, 0), &[5, 5, 5, 4, 5]),
            [Ok((5, 0)), Ok((6, 0)), Ok((7, 0)), refused, Ok((8, 0))]
        );
    }

    #[test]
    fn positions_end_with_the_layout() {
        let full = Err(Misplaced::Full);
        assert_eq!(placed(layout(2, 2, 1), &[3, 3, 3, 3]), [Ok((3, 0)), Ok((3, 1)), full, full]);
        assert_eq!(placed(layout(1, 2, 0), &[0, 0, 1, 0])[2..], [full; 2], "1 got no row");
        let all = layout(52, 0, 11);
        let last = all.max_tick();
        let mut placement = Placement::new(all);
        for sequence in 0..2_048 {
            assert_eq!(placement.place(last), Ok((last, sequence)));
        }
        assert_eq!(placement.place(last), full);
    }
}
