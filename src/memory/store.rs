//! The store: finds the shard of a claim's key, and answers with a permit, a waiter or a refusal.

use super::{
    grant::permit,
    key_semaphore::Refusal,
    several::try_all,
    shard::{Entry, Shard},
    waiter::{Waiter, WaiterSlots},
};
use crate::{
    semaphore::{
        Acquire, AcquireError, Claim, Claims, Key, Semaphore, Units, Wait, level_by_level,
    },
    sync::RandomState,
};
use foldhash::{SharedSeed, fast::SeedableRandomState};
use std::{
    fmt,
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

/// A store of semaphores in this process: one for each policy and key.
///
/// The store counts only what this process admits, with the same answers as the store in Redis. A
/// permit needs no lease, because it ends with its process at the latest. A key takes memory while
/// a permit of it is held. Of the idle keys the store keeps a few thousand at most, because the
/// next claim is likely to be for one of them.
///
/// A claim that can be answered at once is answered in the call of
/// [`acquire`](Semaphore::acquire), and needs no Tokio runtime. A clone is a handle to the same
/// store. A permit keeps counting after the last handle is dropped.
///
/// # Panics
///
/// A claim that waits panics if its future is polled outside of a Tokio runtime with time enabled.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Semaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let semaphore = MemorySemaphore::new();
/// let heavy = Claim::new("account-42").with_limit(5).with_weight(4);
///
/// let permit = semaphore.acquire(heavy.clone()).await.unwrap();
/// let refused = semaphore.acquire(heavy).await;
/// assert!(matches!(refused, Err(AcquireError::Full { limit: 5, held: 4, .. })));
/// # drop(permit);
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct MemorySemaphore(Arc<Store>);

/// Shards of a store. Each has a lock of its own, which is held for every lookup of a key. On 2
/// cores 16 shards are as fast, and 256 slow a pair of acquire and release down by a fifth
/// (`cargo bench --bench memory`); 64 leave room for machines with more cores.
pub(super) const SHARDS: usize = 64;

/// Claims that may wait at a time, for all keys of a store together, unless set.
const MAX_WAITING_TOTAL: usize = 10_000;

struct Store {
    hasher: SeedableRandomState,
    waiter_slots: Arc<WaiterSlots>,
    shards: [Arc<Shard>; SHARDS],
}

impl MemorySemaphore {
    /// An empty store. See [`MemorySemaphore`] for an example.
    pub fn new() -> Self {
        Self(Arc::new(Store {
            hasher: hasher(),
            waiter_slots: Arc::new(WaiterSlots::new(MAX_WAITING_TOTAL)),
            shards: std::array::from_fn(|_| Arc::default()),
        }))
    }

    /// Sets how many claims may wait at a time, for all keys of the store together: 10,000 unless
    /// set. Further claims that would wait are refused with [`AcquireError::Overloaded`].
    ///
    /// The setting applies to the store, so to all its handles.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::MemorySemaphore;
    ///
    /// let semaphore = MemorySemaphore::new().with_max_waiting_total(1_000);
    /// ```
    pub fn with_max_waiting_total(self, max_waiting_total: usize) -> Self {
        self.0.waiter_slots.set_max(max_waiting_total);
        self
    }

    /// How many semaphores, one for each policy and key, have permits or waiters now. Takes time
    /// proportional to the number of keys in memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let permit = semaphore.acquire(Claim::new("account-42").with_limit(5)).await;
    /// assert_eq!(semaphore.keys(), 1);
    /// drop(permit);
    /// assert_eq!(semaphore.keys(), 0);
    /// # }
    /// ```
    pub fn keys(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.keys()).sum()
    }

    #[cfg(test)]
    pub(super) fn shards(&self) -> &[Arc<Shard>; SHARDS] {
        &self.0.shards
    }
}

impl Store {
    /// The entry of a claim's key.
    #[inline]
    fn entry(&self, claim: &Claim) -> Arc<Entry> {
        // Only the key is hashed: a store has few policies, so hashing them would spread the entries
        // hardly more.
        let hash = self.hash(claim.key());
        // The hash table inside a shard uses the lowest and the highest bits of the hash.
        let shard = &self.shards[(hash >> 32) as usize % SHARDS];
        shard.entry(hash, claim)
    }

    fn acquire(&self, claim: &Claim, units: Units) -> Acquire {
        loop {
            let entry = self.entry(claim);
            match entry.try_acquire(units) {
                Ok(acquired) => {
                    let permit = permit(entry, units, &acquired, claim.policy().clone());
                    return Acquire::ready(Ok(permit));
                }
                Err(Refusal::Retired) => {}
                Err(Refusal::Full(held)) => {
                    if let Some(answer) = self.refuse(entry, claim, units, held) {
                        return answer;
                    }
                }
            }
        }
    }

    /// Refuses the claim, or enqueues it if it may wait. `None`: the entry was removed meanwhile, and
    /// the key has to be looked up again.
    #[cold]
    fn refuse(&self, entry: Arc<Entry>, claim: &Claim, units: Units, held: u32) -> Option<Acquire> {
        let enqueued = match claim.wait() {
            Some(wait) => self.enqueue(entry, claim, units, wait),
            None => Err(AcquireError::full(claim, held)),
        };
        enqueued.unwrap_or_else(|error| Some(Acquire::ready(Err(error))))
    }

    fn enqueue(
        &self,
        entry: Arc<Entry>,
        claim: &Claim,
        units: Units,
        wait: Wait,
    ) -> Result<Option<Acquire>, AcquireError> {
        let slot = WaiterSlots::take(&self.waiter_slots).ok_or(AcquireError::Overloaded)?;
        let position = entry.enqueue(units, wait)?;
        let policy = claim.policy().clone();
        Ok(position.map(|position| {
            let waiter = Waiter::new(entry, units, position, slot);
            Acquire::pending(waiter.wait(wait.time, policy))
        }))
    }

    fn hash(&self, key: &Key) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.as_bytes());
        hasher.finish()
    }
}

/// A fast hash with a random seed. A client that found out the seed could send keys that collide;
/// such keys would slow each other down only while their permits are held at the same time.
fn hasher() -> SeedableRandomState {
    let seed = RandomState::new().hash_one(0);
    SeedableRandomState::with_seed(seed, SharedSeed::global_random())
}

impl Semaphore for MemorySemaphore {
    fn acquire(&self, claim: Claim) -> Acquire {
        match claim.units() {
            Ok(units) => self.0.acquire(&claim, units),
            Err(error) => Acquire::ready(Err(error)),
        }
    }

    fn acquire_all(&self, claims: Claims) -> Acquire {
        if let Err(error) = claims.check() {
            return Acquire::ready(Err(error));
        }
        let claims = match claims.only() {
            Ok(claim) => return self.acquire(claim),
            Err(claims) => claims,
        };
        let answer = try_all(&claims, |claim| self.0.entry(claim));
        let may_wait = claims.iter().any(|claim| claim.wait().is_some());
        if !may_wait || !matches!(answer, Err(AcquireError::Full { .. })) {
            return Acquire::ready(answer);
        }
        let handle = self.clone();
        Acquire::pending(level_by_level(claims, move |claim| handle.acquire(claim)))
    }
}

impl Default for MemorySemaphore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemorySemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySemaphore")
            .field("keys", &self.keys())
            .finish()
    }
}
