//! The store of one process.

mod grant;
mod shard;

use crate::semaphore::{Acquire, AcquireError, Claim, Key, Loss, Permit, Policy, Semaphore};
use grant::MemoryGrant;
use shard::Shard;
use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, atomic::AtomicBool},
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
    shards: [Arc<Shard>; SHARDS],
}

impl MemorySemaphore {
    /// A store that holds nothing yet.
    pub fn new() -> Self {
        Self(Arc::new(Shards {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Arc::default()),
        }))
    }

    /// How many keys have permits now.
    pub fn keys(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.keys()).sum()
    }

    fn try_acquire(&self, claim: &Claim) -> Result<Permit, AcquireError> {
        let units = claim.units()?;
        let name = self.name(claim);
        // The table inside a shard uses the lowest and the highest bits of the hash.
        let shard = &self.0.shards[(name.hash >> 32) as usize % SHARDS];
        let taken = shard.take(&name, units)?;
        let grant = MemoryGrant {
            shard: Arc::clone(shard),
            name,
            weight: units.weight,
            token: taken.token,
            released: AtomicBool::new(false),
            loss: Loss::default(),
        };
        Ok(Permit::new(grant, units, taken.held))
    }

    fn name(&self, claim: &Claim) -> Name {
        Name {
            hash: self.0.hasher.hash_one((claim.policy(), claim.key())),
            policy: claim.policy().clone(),
            key: claim.key().clone(),
        }
    }
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
        Acquire::ready(self.try_acquire(&claim))
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
