//! Hashes of keys.

use crate::{semaphore::Key, sync::RandomState};
use foldhash::{SharedSeed, fast::SeedableRandomState};
use std::hash::{BuildHasher, Hasher};

/// A fast hash with a random seed. A client that guessed the seed could send colliding keys; they
/// slow each other down only while their permits are held at the same time.
pub(super) struct KeyHasher(SeedableRandomState);

impl KeyHasher {
    pub(super) fn new() -> Self {
        let seed = RandomState::new().hash_one(0);
        let state = SeedableRandomState::with_seed(seed, SharedSeed::global_random());
        Self(state)
    }

    #[inline]
    pub(super) fn hash(&self, key: &Key) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key.as_bytes());
        hasher.finish()
    }
}
