//! The choices of one run of the model, recorded so that the same tape repeats the run.

use std::cell::{Cell, RefCell};

/// Choices to follow, and then free ones.
pub struct Tape {
    given: Vec<u32>,
    taken: RefCell<Vec<(u32, u32)>>,
    /// The state of the random numbers; `None` if every free choice is 0.
    random: Option<Cell<u64>>,
    /// How many more faults may be drawn.
    faults: Cell<u32>,
    /// A random run draws a fault once in this many choices.
    rarity: u32,
}

impl Tape {
    /// Follows `given`, then takes 0 at each choice.
    pub fn given(given: Vec<u32>, faults: u32) -> Self {
        Self { given, taken: RefCell::default(), random: None, faults: Cell::new(faults), rarity: 1 }
    }

    /// Draws each choice from the seed.
    pub fn random(seed: u64, faults: u32, rarity: u32) -> Self {
        let state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
        Self {
            given: Vec::new(),
            taken: RefCell::default(),
            random: Some(Cell::new(state)),
            faults: Cell::new(faults),
            rarity,
        }
    }

    fn draw(&self, n: u32) -> u32 {
        let Some(state) = &self.random else { return 0 };
        // SplitMix64.
        state.set(state.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let mut word = state.get();
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((((word ^ (word >> 31)) >> 32) * n as u64) >> 32) as u32
    }

    fn take(&self, n: u32, free: impl FnOnce() -> u32) -> u32 {
        let at = self.taken.borrow().len();
        let choice = self.given.get(at).map_or_else(free, |choice| (*choice).min(n - 1));
        self.taken.borrow_mut().push((choice, n));
        choice
    }

    /// Chooses one of 0 .. n.
    pub fn choose(&self, n: u32) -> u32 {
        if n <= 1 {
            return 0;
        }
        self.take(n, || self.draw(n))
    }

    /// Chooses one of 0 .. n. All but 0 are faults, which are rare and limited in number.
    pub fn fault(&self, n: u32) -> u32 {
        if self.faults.get() == 0 || n <= 1 {
            return 0;
        }
        let free = || if self.draw(self.rarity) == 0 { self.draw(n) } else { 0 };
        let choice = self.take(n, free);
        if choice > 0 {
            self.faults.set(self.faults.get() - 1);
        }
        choice
    }

    /// The choices so far.
    pub fn taken(&self) -> Vec<u32> {
        self.taken.borrow().iter().map(|(choice, _)| *choice).collect()
    }

    /// The next tape in the order of the tree of all choices; `None` after the last.
    pub fn next(&self) -> Option<Vec<u32>> {
        let mut taken = self.taken.borrow().clone();
        while let Some((choice, n)) = taken.pop() {
            if choice + 1 < n {
                taken.push((choice + 1, n));
                return Some(taken.into_iter().map(|(choice, _)| choice).collect());
            }
        }
        None
    }
}
