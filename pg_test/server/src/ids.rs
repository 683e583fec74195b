//! Facts about IDs, found without the extension: their fields, whether any repeats, and which client got it.

use std::collections::HashMap;

/// The layout of an ID. Written independently, because the tests must not trust the code that they test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bits of the worker field, datacenter included.
    pub worker_bits: u32,
    /// Bits of the sequence field.
    pub sequence_bits: u32,
    /// The length of a tick in milliseconds.
    pub tick_ms: i64,
    /// The epoch in milliseconds since 1970.
    pub epoch_ms: i64,
}

/// The fields of an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The start of the tick, in milliseconds since 1970.
    pub at_ms: i64,
    /// The worker field, datacenter included.
    pub worker: i64,
    /// The sequence field.
    pub sequence: i64,
}

impl Layout {
    /// 41/10/12 with ticks of 1 ms since 2024.
    pub const DEFAULT: Layout =
        Layout { worker_bits: 10, sequence_bits: 12, tick_ms: 1, epoch_ms: 1_704_067_200_000 };

    /// Splits an ID into its fields.
    pub fn parts(&self, id: i64) -> Parts {
        let field = |bits: u32| (1i64 << bits) - 1;
        Parts {
            at_ms: (id >> (self.worker_bits + self.sequence_bits)) * self.tick_ms + self.epoch_ms,
            worker: (id >> self.sequence_bits) & field(self.worker_bits),
            sequence: id & field(self.sequence_bits),
        }
    }
}

/// The worker of an ID of the default layout.
pub fn worker(id: i64) -> i64 {
    Layout::DEFAULT.parts(id).worker
}

/// The time of an ID of the default layout, in milliseconds since 1970.
pub fn at_ms(id: i64) -> i64 {
    Layout::DEFAULT.parts(id).at_ms
}

/// IDs from many origins, to be compared with each other.
#[derive(Debug, Default)]
pub struct Ids {
    origins: Vec<(String, Vec<i64>)>,
}

impl Ids {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the IDs of one origin, in the order in which they were generated.
    pub fn add(&mut self, origin: impl Into<String>, ids: Vec<i64>) {
        self.origins.push((origin.into(), ids));
    }

    /// How many IDs there are.
    pub fn len(&self) -> usize {
        self.origins.iter().map(|(_, ids)| ids.len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all IDs in ascending order. Panics if an ID was generated twice, and names both origins.
    #[track_caller]
    pub fn assert_unique(&self) -> Vec<i64> {
        let mut all: Vec<i64> = Vec::with_capacity(self.len());
        for (_, ids) in &self.origins {
            all.extend_from_slice(ids);
        }
        // The IDs of an origin ascend by long stretches, which a stable sort merges.
        all.sort();
        let (mut twice, mut before) = (Vec::new(), None);
        for id in &all {
            if before == Some(*id) {
                twice.push(*id);
            }
            before = Some(*id);
        }
        if let Some(first) = twice.first() {
            let shown: Vec<String> = twice.iter().take(10).map(|id| self.makers(*id)).collect();
            panic!(
                "{} of {} IDs repeat, the first is {first}:\n{}",
                twice.len(),
                all.len(),
                shown.join("\n")
            );
        }
        if let Some(lowest) = all.first() {
            assert!(*lowest > 0, "{lowest} is not a positive number");
        }
        all
    }

    fn makers(&self, id: i64) -> String {
        let makers: Vec<String> = self
            .origins
            .iter()
            .flat_map(|(origin, ids)| {
                let places = ids.iter().enumerate().filter(move |(_, other)| **other == id);
                places.map(move |(place, _)| format!("{origin} (its {place}th)"))
            })
            .collect();
        format!("{id} {:?}: {}", Layout::DEFAULT.parts(id), makers.join(", "))
    }

    /// Panics if the IDs of one origin are not strictly ascending (guarantee 5).
    #[track_caller]
    pub fn assert_each_ascending(&self) {
        for (origin, ids) in &self.origins {
            assert_ascending(origin, ids);
        }
    }
}

/// Panics if the IDs are not strictly ascending.
#[track_caller]
pub fn assert_ascending(origin: &str, ids: &[i64]) {
    if let Some(place) = ids.windows(2).position(|two| two[0] >= two[1]) {
        panic!("{origin}: {} was made after {} (its {place}th of {})", ids[place + 1], ids[place], ids.len());
    }
}

/// A set of very many IDs that lie close together, one bit each: four thousand per millisecond for many seconds. It
/// does not remember their order.
#[derive(Debug, Default)]
pub struct Dense {
    /// Keyed by the ID without its lowest 12 bits; the bits say which of the 4,096 IDs below that were generated.
    blocks: HashMap<i64, Box<[u64; 64]>>,
    len: u64,
}

impl Dense {
    /// Adds a contiguous range.
    ///
    /// # Errors
    /// The first ID of the range that was there before.
    pub fn add(&mut self, first: i64, last: i64) -> Result<(), i64> {
        assert!(0 < first && first <= last, "{first}..{last} is no range of IDs");
        let mut id = first;
        while id <= last {
            let block = self.blocks.entry(id >> 12).or_insert_with(|| Box::new([0; 64]));
            // The part of the range that lies in one word.
            let word = &mut block[(id as usize >> 6) & 63];
            let low = id & 63;
            let high = (low + (last - id)).min(63);
            let mask = (u64::MAX >> (63 - (high - low))) << low;
            let twice = *word & mask;
            if twice != 0 {
                return Err((id & !63) + i64::from(twice.trailing_zeros()));
            }
            *word |= mask;
            self.len += (high - low + 1) as u64;
            id += high - low + 1;
        }
        Ok(())
    }

    /// Adds IDs that are no range.
    ///
    /// # Errors
    /// The first of them that was there before.
    pub fn add_all(&mut self, ids: &[i64]) -> Result<(), i64> {
        // To find a block takes longer than to mark its IDs, and most have neighbours.
        ids.chunk_by(|id, next| id + 1 == *next).try_for_each(|run| self.add(run[0], run[run.len() - 1]))
    }

    /// How many IDs there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An ID that both sets hold.
    pub fn common(&self, other: &Dense) -> Option<i64> {
        self.blocks.iter().find_map(|(block, ours)| {
            let theirs = other.blocks.get(block)?;
            let place = (0..64).find(|i| ours[*i] & theirs[*i] != 0)?;
            let bit = (ours[place] & theirs[place]).trailing_zeros();
            Some((block << 12) + (place as i64 * 64) + i64::from(bit))
        })
    }
}

/// Panics if two of the origins generated the same ID, and names both.
#[track_caller]
pub fn assert_disjoint(origins: &[(String, Dense)]) {
    for (i, (origin, ids)) in origins.iter().enumerate() {
        for (other_origin, other_ids) in &origins[..i] {
            if let Some(id) = ids.common(other_ids) {
                let parts = Layout::DEFAULT.parts(id);
                panic!("{origin} and {other_origin} both made {id} {parts:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_apart() {
        let id = (1_000 << 22) | (257 << 12) | 4095;
        let parts = Layout::DEFAULT.parts(id);
        assert_eq!(parts, Parts { at_ms: 1_704_067_201_000, worker: 257, sequence: 4095 });
    }

    #[test]
    #[should_panic(expected = "b (its 1th)")]
    fn a_duplicate_is_found_and_both_makers_are_named() {
        let mut ids = Ids::new();
        ids.add("a", vec![7, 9, 8]);
        ids.add("b", vec![3, 9]);
        ids.assert_unique();
    }

    #[test]
    #[should_panic(expected = "5 was made after 5")]
    fn equal_neighbours_are_not_ascending() {
        assert_ascending("a", &[4, 5, 5]);
    }

    #[test]
    fn a_dense_set_finds_what_was_added_twice() {
        let mut set = Dense::default();
        assert_eq!(set.add(100, 8_000), Ok(()));
        assert_eq!(set.add(8_001, 8_001), Ok(()));
        assert_eq!(set.add(1, 99), Ok(()));
        assert_eq!(set.len(), 8_001);
        assert_eq!(set.add(8_002, 8_100), Ok(()));
        assert_eq!(set.add(8_064, 8_064), Err(8_064));
        assert_eq!(set.add(9_000, 9_000), Ok(()));
        assert_eq!(set.add(8_990, 9_100), Err(9_000));
        assert_eq!(set.add_all(&[10_000, 10_001, 10_003, 9_999]), Ok(()));
        assert_eq!(set.add_all(&[10_002, 10_004, 10_005, 10_001]), Err(10_001));
    }

    #[test]
    fn dense_sets_are_compared() {
        let (mut a, mut b) = (Dense::default(), Dense::default());
        a.add(1, 5_000).unwrap();
        b.add(5_001, 9_999).unwrap();
        assert_eq!(a.common(&b), None);
        b.add(4_999, 4_999).unwrap();
        assert_eq!(a.common(&b), Some(4_999));
    }
}
