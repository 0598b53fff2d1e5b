//! The store of one process.

mod grant;
mod line;
mod shard;

use crate::semaphore::{Acquire, AcquireError, Claim, Key, Permit, Policy, Semaphore, Units, Wait};
use grant::MemoryGrant;
use line::{Seat, Turn};
use shard::{Shard, Taken};
use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, atomic::AtomicUsize},
};

/// As many locks as keep a few dozen threads apart.
const SHARDS: usize = 64;

/// A semaphore for each key, in this process.
///
/// Counts what one process admits, with the same answers as the store in Redis. A permit lives in
/// the process that holds it, so it needs no lease: it ends when it is dropped. A key takes memory
/// only while somebody holds a permit of it.
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
pub struct MemorySemaphore(Arc<Shards>);

struct Shards {
    hasher: RandomState,
    max_waiting: usize,
    waiting: AtomicUsize,
    shards: [Arc<Shard>; SHARDS],
}

impl MemorySemaphore {
    /// A store that holds nothing yet, in which 10,000 claims may wait at a time.
    pub fn new() -> Self {
        Self::with_max_waiting(10_000)
    }

    /// A store in which at most `max_waiting` claims may wait at a time, for all keys together.
    /// Beyond it they are refused with [`AcquireError::Overloaded`].
    pub fn with_max_waiting(max_waiting: usize) -> Self {
        Self(Arc::new(Shards {
            hasher: RandomState::new(),
            max_waiting,
            waiting: AtomicUsize::new(0),
            shards: std::array::from_fn(|_| Arc::default()),
        }))
    }

    /// How many keys have permits, or claims that wait, now.
    pub fn keys(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.keys()).sum()
    }

    fn try_acquire(&self, claim: &Claim) -> Result<Acquire, AcquireError> {
        let units = claim.units()?;
        let name = self.name(claim);
        // The table inside a shard uses the lowest and the highest bits of the hash.
        let shard = &self.0.shards[(name.hash >> 32) as usize % SHARDS];
        match (shard.take(&name, units), claim.wait()) {
            (Ok(taken), _) => Ok(Acquire::ready(Ok(permit(shard, name, units, &taken)))),
            (Err(_), Some(wait)) => self.join(shard, name, units, wait),
            (Err(full), None) => Err(full),
        }
    }

    fn join(
        &self,
        shard: &Arc<Shard>,
        name: Name,
        units: Units,
        wait: Wait,
    ) -> Result<Acquire, AcquireError> {
        let seat = Seat::take(&self.0).ok_or(AcquireError::Overloaded)?;
        let place = shard.join(&name, units, wait.line)?;
        let turn = Turn::new(Arc::clone(shard), name, units, place, seat);
        Ok(Acquire::pending(turn.wait(wait.time)))
    }

    fn name(&self, claim: &Claim) -> Name {
        Name {
            // A store has few policies, so that hashing them too would tell little more apart.
            hash: self.0.hasher.hash_one(claim.key()),
            policy: claim.policy().clone(),
            key: claim.key().clone(),
        }
    }
}

/// A permit for what a shard gave.
fn permit(shard: &Arc<Shard>, name: Name, units: Units, taken: &Taken) -> Permit {
    let grant = MemoryGrant::new(Arc::clone(shard), name, units.weight, taken.token);
    Permit::new(grant, units, taken.held)
}

/// A key under a policy, hashed once for the whole life of a permit.
#[derive(Clone, PartialEq, Eq)]
struct Name {
    hash: u64,
    policy: Policy,
    key: Key,
}

impl Semaphore for MemorySemaphore {
    fn acquire(&self, claim: Claim) -> Acquire {
        let acquire = self.try_acquire(&claim);
        acquire.unwrap_or_else(|error| Acquire::ready(Err(error)))
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
