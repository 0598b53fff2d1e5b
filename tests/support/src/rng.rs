//! Reproducible random numbers.

use std::{ops::Range, time::Duration};

/// A source of random numbers (splitmix64).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator, for concurrent work.
    pub fn another(&mut self) -> Self {
        Self(self.next())
    }

    /// Returns true with a probability of one in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times)
    }

    /// A random duration within a range of milliseconds.
    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        let micros = (range.end - range.start) * 1_000;
        Duration::from_micros(range.start * 1_000 + self.next() % micros)
    }

    /// A random item of a slice.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A random number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
