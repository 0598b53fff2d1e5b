//! Clients that acquire, hold and release permits, as if in several processes.

use crate::witness::{BURST, Witness};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testing::rng::Rng;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

/// The limit of each key.
pub(crate) const LIMIT: u32 = 5;

/// The number of keys that are in use the whole time.
const KEYS: usize = 16;

/// The number of clients per key and store. The claims of one of them do not wait, and those of the other two wait.
const CLIENTS: usize = 3;

/// Stores that share only the server, like the stores of different processes.
pub(crate) struct Load {
    stores: Vec<RedisSemaphore>,
    witness: Arc<Witness>,
    rng: Rng,
    /// How long a long permit is held.
    long: Duration,
    /// Dropping this ends the clients.
    _clients: JoinSet<()>,
    bursts: u64,
}

impl Load {
    /// Starts clients on all keys.
    pub(crate) fn start(
        stores: Vec<RedisSemaphore>,
        witness: &Arc<Witness>,
        long: Duration,
        mut rng: Rng,
    ) -> Self {
        let mut clients = JoinSet::new();
        for store in &stores {
            for number in 0..KEYS * CLIENTS {
                let client = Client {
                    store: store.clone(),
                    witness: Arc::clone(witness),
                    claim: claim(&format!("key-{}", number / CLIENTS), number % CLIENTS > 0),
                    rng: rng.another(),
                    long,
                };
                clients.spawn(client.work());
            }
        }
        Self {
            stores,
            witness: Arc::clone(witness),
            rng,
            long,
            _clients: clients,
            bursts: 0,
        }
    }

    /// Makes more claims for a new key than its limit, all at once, and holds the granted permits for `long`.
    pub(crate) fn burst(&mut self) {
        self.bursts += 1;
        let key = format!("{BURST}-{}", self.bursts);
        for store in &self.stores {
            for _ in 0..CLIENTS {
                let client = Client {
                    store: store.clone(),
                    witness: Arc::clone(&self.witness),
                    claim: claim(&key, true),
                    rng: self.rng.another(),
                    long: self.long,
                };
                tokio::spawn(client.take_part_in_burst());
            }
        }
    }
}

fn claim(key: &str, waits: bool) -> Claim {
    let claim = Claim::new(key.to_owned()).with_limit(LIMIT);
    match waits {
        true => claim.with_wait(Duration::from_secs(2)),
        false => claim,
    }
}

struct Client {
    store: RedisSemaphore,
    witness: Arc<Witness>,
    claim: Claim,
    rng: Rng,
    long: Duration,
}

impl Client {
    async fn work(mut self) {
        loop {
            let time = match self.rng.once_in(4) {
                // 0.3 to 1 times `long`.
                true => self.long.mul_f32(self.rng.millis(300..1_000).as_secs_f32()),
                false => self.rng.millis(2..20),
            };
            match self.store.acquire(self.claim.clone()).await {
                Ok(permit) => self.hold(permit, time).await,
                Err(_) => sleep(self.rng.millis(25..75)).await,
            }
        }
    }

    async fn take_part_in_burst(mut self) {
        let end = Instant::now() + self.long;
        while Instant::now() < end {
            match self.store.acquire(self.claim.clone()).await {
                Ok(permit) => return self.hold(permit, self.long).await,
                Err(_) => sleep(self.rng.millis(5..25)).await,
            }
        }
    }

    /// Holds a permit for some time, or until it is lost.
    async fn hold(&self, permit: Permit, time: Duration) {
        let holding = self.witness.holds(self.claim.key(), &permit);
        let _ = timeout(time, permit.lost()).await;
        drop(holding);
    }
}
