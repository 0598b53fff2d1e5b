//! In which order faults come: each kind once, in random order, and again.

use testing::rng::Rng;

/// A deck of cards that is shuffled whenever it is used up.
pub(crate) struct Deck<T> {
    all: Vec<T>,
    left: Vec<T>,
}

impl<T: Copy> Deck<T> {
    pub(crate) fn new(all: &[T]) -> Self {
        Self {
            all: all.to_vec(),
            left: Vec::new(),
        }
    }

    /// Whether each card has been drawn as often as each other.
    pub(crate) fn is_used_up(&self) -> bool {
        self.left.is_empty()
    }

    pub(crate) fn draw(&mut self, rng: &mut Rng) -> T {
        if self.left.is_empty() {
            self.left.clone_from(&self.all);
        }
        let at = rng.below(self.left.len());
        self.left.swap_remove(at)
    }
}
