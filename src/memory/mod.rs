//! The store of one process.

mod grant;
mod line;
mod shard;
mod slot;
mod turn;

use crate::semaphore::{Acquire, AcquireError, Claim, Key, Permit, Policy, Semaphore, Units, Wait};
use foldhash::{SharedSeed, fast::SeedableRandomState};
use grant::MemoryGrant;
use line::Taken;
use shard::Shard;
use slot::{Refusal, Slot};
use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use turn::{Seat, Turn};

/// As many locks as keep a few dozen threads apart.
const SHARDS: usize = 64;

/// A semaphore for each key, in this process.
///
/// Counts what one process admits, with the same answers as the store in Redis. A permit lives in
/// the process that holds it, so it needs no lease: it ends when it is dropped. A key takes memory
/// while somebody holds a permit of it; of the keys that are idle, a few thousand are kept at most,
/// because the next claim is likely to be for one of them.
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
pub struct MemorySemaphore(Arc<Shards>);

struct Shards {
    hasher: SeedableRandomState,
    max_waiting_total: AtomicUsize,
    waiting: AtomicUsize,
    shards: [Arc<Shard>; SHARDS],
}

impl MemorySemaphore {
    /// A store that holds nothing yet.
    pub fn new() -> Self {
        Self(Arc::new(Shards {
            hasher: hasher(),
            max_waiting_total: AtomicUsize::new(10_000),
            waiting: AtomicUsize::new(0),
            shards: std::array::from_fn(|_| Arc::default()),
        }))
    }

    /// How many claims may wait at a time, for all keys of the store together: 10,000 unless set.
    /// Beyond it they are refused with [`AcquireError::Overloaded`].
    pub fn with_max_waiting_total(self, max_waiting_total: usize) -> Self {
        let bound = &self.0.max_waiting_total;
        bound.store(max_waiting_total, Ordering::Relaxed);
        self
    }

    /// How many keys have permits, or claims that wait, now. Looks at each.
    pub fn keys(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.keys()).sum()
    }

    fn ask(&self, claim: &Claim, units: Units) -> Acquire {
        // A store has few policies, so that hashing them too would tell little more apart.
        let hash = self.0.hash(claim.key());
        // The table inside a shard uses the lowest and the highest bits of the hash.
        let shard = &self.0.shards[(hash >> 32) as usize % SHARDS];
        loop {
            let slot = shard.slot(hash, claim);
            let answer = match slot.take(units) {
                Ok(taken) => return Acquire::ready(Ok(permit(slot, units, &taken))),
                Err(Refusal::Retired) => None,
                Err(Refusal::Full(held)) => self.refuse(slot, claim, units, held),
            };
            if let Some(answer) = answer {
                return answer;
            }
        }
    }

    /// Has a claim that waits join the line. `None`: it is to ask once more.
    #[cold]
    fn refuse(&self, slot: Arc<Slot>, claim: &Claim, units: Units, held: u32) -> Option<Acquire> {
        let joined = match claim.wait() {
            Some(wait) => self.join(slot, units, wait),
            None => Err(AcquireError::full(claim, held)),
        };
        joined.unwrap_or_else(|error| Some(Acquire::ready(Err(error))))
    }

    fn join(
        &self,
        slot: Arc<Slot>,
        units: Units,
        wait: Wait,
    ) -> Result<Option<Acquire>, AcquireError> {
        let seat = Seat::take(&self.0).ok_or(AcquireError::Overloaded)?;
        let place = slot.join(units, wait.max_waiting)?;
        Ok(place.map(|place| {
            let turn = Turn::new(slot, units, place, seat);
            Acquire::pending(turn.wait(wait.time))
        }))
    }
}

impl Shards {
    fn hash(&self, key: &Key) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.as_bytes());
        hasher.finish()
    }
}

/// A quick hash, seeded by the system. Who found out the seed could send keys that collide, but
/// they would slow each other down only as far as they hold permits at the same time.
fn hasher() -> SeedableRandomState {
    let seed = RandomState::new().hash_one(0);
    SeedableRandomState::with_seed(seed, SharedSeed::global_random())
}

/// A permit for what a slot gave.
fn permit(slot: Arc<Slot>, units: Units, taken: &Taken) -> Permit {
    let grant = MemoryGrant::new(slot, units.weight, taken.token);
    Permit::new(grant, units, taken.held)
}

/// A key under a policy.
struct Name {
    hash: u64,
    policy: Policy,
    key: Key,
}

impl Name {
    fn new(hash: u64, claim: &Claim) -> Self {
        Self {
            hash,
            policy: claim.policy().clone(),
            key: claim.key().clone(),
        }
    }

    fn is_of(&self, hash: u64, claim: &Claim) -> bool {
        self.hash == hash && self.key == *claim.key() && self.policy == *claim.policy()
    }
}

impl Semaphore for MemorySemaphore {
    fn acquire(&self, claim: Claim) -> Acquire {
        match claim.units() {
            Ok(units) => self.ask(&claim, units),
            Err(error) => Acquire::ready(Err(error)),
        }
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

#[cfg(test)]
mod tests;
