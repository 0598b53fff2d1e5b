//! The store: finds the shard of a claim's key, and answers with a permit, a waiter or a refusal.

use super::{
    grant::permit,
    holders::{Clock, Details, first_serial},
    key_semaphore::Refusal,
    settings::Builder,
    several::try_all,
    shard::{Entry, Shard},
    waiter::{Waiter, WaiterSlots},
};
use crate::{
    observe::Store::Memory as MEMORY,
    semaphore::{
        Acquire, AcquireError, Claim, Claims, Key, Policy, Semaphore, SemaphoreId, Units, check,
        level_by_level, narrowest,
    },
    sync::{AtomicU64, RandomState},
};
use foldhash::{SharedSeed, fast::SeedableRandomState};
use std::{
    fmt,
    hash::{BuildHasher, Hasher},
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// A store of semaphores in this process: one for each policy and key.
///
/// The store counts only the permits of this process, and answers like the store in Redis. A permit
/// needs no lease, because it ends with its process at the latest. A key takes memory while one of
/// its permits is held. The store also keeps a few thousand idle keys at most, because the next
/// claim is likely to be for one of them.
///
/// A claim that can be answered at once is answered in the call of [`acquire`](Semaphore::acquire)
/// and needs no Tokio runtime. A clone is a handle to the same store. Permits count until they end,
/// even after the last handle is dropped.
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
pub struct MemorySemaphore(pub(super) Arc<Store>);

/// Shards of a store. Each has a lock of its own, which is held for every lookup of a key. On 2
/// cores 16 shards are as fast, and 256 slow a pair of acquire and release down by a fifth
/// (`benches/memory`); 64 leave room for machines with more cores.
pub(super) const SHARDS: usize = 64;

pub(super) struct Store {
    /// Hashes keys fast, with a random seed. A client that found out the seed could send keys that collide;
    /// such keys would slow each other down only while their permits are held at the same time.
    hasher: SeedableRandomState,
    pub(super) waiter_slots: WaiterSlots,
    /// Whether permits are listed.
    pub(super) has_holders: bool,
    serial: AtomicU64,
    pub(super) clock: Clock,
    pub(super) shards: [Arc<Shard>; SHARDS],
}

impl Builder {
    /// An empty store. See [`Builder`] for an example.
    pub fn build(self) -> MemorySemaphore {
        let seed = RandomState::new().hash_one(0);
        MemorySemaphore(Arc::new(Store {
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_random()),
            waiter_slots: WaiterSlots::new(self.max_waiting_total),
            has_holders: self.holders,
            serial: AtomicU64::new(first_serial()),
            clock: Clock::new(),
            shards: std::array::from_fn(|_| Arc::default()),
        }))
    }
}

impl MemorySemaphore {
    /// An empty store with the default settings. See [`MemorySemaphore`] for an example.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// The settings of a store, for [`Builder::build`]. See there for an example.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The number of semaphores, one for each policy and key, that have permits or waiters now.
    /// Takes time proportional to the number of keys in memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let permit = semaphore.acquire(Claim::new("account-42").with_limit(5)).await;
    /// assert_eq!(semaphore.busy_keys(), 1);
    /// drop(permit);
    /// assert_eq!(semaphore.busy_keys(), 0);
    /// # }
    /// ```
    pub fn busy_keys(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.keys()).sum()
    }

    fn decide_all(&self, claims: Vec<Claim>) -> Acquire {
        if let Err(error) = check(&claims) {
            return Acquire::ready(Err(error));
        }
        let entry = |claim: &Claim| self.0.entry(claim);
        let answer = try_all(&claims, entry, |claim| self.0.details(claim));
        let may_wait = claims.iter().any(|claim| claim.wait().is_some());
        if !may_wait || !matches!(answer, Err(AcquireError::Full { .. })) {
            return Acquire::ready(answer);
        }
        let store = Arc::clone(&self.0);
        Acquire::pending(level_by_level(claims, move |claim| store.decide(&claim)))
    }
}

impl Store {
    /// The entry of a claim's key.
    #[inline]
    fn entry(&self, claim: &Claim) -> Arc<Entry> {
        let (hash, shard) = self.shard(claim.key());
        shard.entry(hash, claim)
    }

    pub(super) fn find(&self, policy: &Policy, key: &Key) -> Option<Arc<Entry>> {
        let (hash, shard) = self.shard(key);
        shard.find(hash, policy, key)
    }

    /// The shard of a key, and the key's hash.
    #[inline]
    fn shard(&self, key: &Key) -> (u64, &Arc<Shard>) {
        // Only the key is hashed: a store has few policies, so hashing them would spread the entries
        // hardly more.
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.as_bytes());
        let hash = hasher.finish();
        // The hash table inside a shard uses the lowest and the highest bits of the hash.
        (hash, &self.shards[(hash >> 32) as usize % SHARDS])
    }

    /// The details for operators of a claim that is granted at once, if permits are listed.
    #[inline]
    fn details(&self, claim: &Claim) -> Option<Arc<Details>> {
        self.has_holders.then(|| self.new_details(claim))
    }

    #[cold]
    fn new_details(&self, claim: &Claim) -> Arc<Details> {
        let serial = self.serial.fetch_add(1, Relaxed);
        Details::new(claim, serial, self.has_holders)
    }

    #[inline]
    fn decide(&self, claim: &Claim) -> Acquire {
        let units = match claim.units() {
            Ok(units) => units,
            Err(error) => return Acquire::ready(Err(error)),
        };
        loop {
            let entry = self.entry(claim);
            match entry.semaphore.try_acquire(units) {
                Ok(acquired) => {
                    let permit = permit(&entry, units, &acquired, self.details(claim));
                    return Acquire::ready(Ok(permit));
                }
                Err(Refusal::Retired) => {}
                Err(Refusal::Full(held)) => match self.refuse(&entry, claim, units, held) {
                    Ok(None) => {}
                    Ok(Some(waits)) => return waits,
                    Err(error) => {
                        entry.evict_if_idle();
                        return Acquire::ready(Err(error));
                    }
                },
            }
        }
    }

    /// Refuses the claim, or enqueues it if it may wait. `None`: the entry was removed, so look the
    /// key up again.
    #[cold]
    fn refuse(
        &self,
        entry: &Arc<Entry>,
        claim: &Claim,
        units: Units,
        held: u32,
    ) -> Result<Option<Acquire>, AcquireError> {
        let full = || AcquireError::full(claim, held);
        let wait = claim.wait().ok_or_else(full)?;
        let slot = self.waiter_slots.take(wait.is_trial);
        let slot = slot.ok_or(AcquireError::Overloaded)?;
        let details = self.new_details(claim);
        let waiter = Waiter::join(entry, claim, (units, wait), details, slot)?;
        Ok(waiter.map(|waiter| Acquire::pending(waiter.wait(wait.time))))
    }
}

impl Semaphore for MemorySemaphore {
    fn acquire(&self, claim: Claim) -> Acquire {
        let answer = self.0.decide(&claim);
        answer.counted(MEMORY, claim.policy(), claim.key())
    }

    fn acquire_all(&self, claims: Claims) -> Acquire {
        let claims = match claims.only() {
            Ok(claim) => return self.acquire(claim),
            Err(claims) => claims,
        };
        let (policy, key) = narrowest(&claims);
        self.decide_all(claims).counted(MEMORY, &policy, &key)
    }

    fn semaphore_id(&self, policy: &Policy, key: &Key) -> Option<SemaphoreId> {
        Some(self.0.find(policy, key)?.semaphore_id())
    }
}

impl Default for MemorySemaphore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemorySemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("MemorySemaphore");
        shown.field("keys", &self.busy_keys()).finish()
    }
}
