//! B3, B4 and B7: a semaphore that trusts the clients' clocks, a fair semaphore with a race, and a fair semaphore
//! without the race.

use super::{Client, lock};
use redis::{Cmd, Pipeline, RedisError, pipe};
use std::time::Duration;
use uuid::Uuid;

/// The seconds after which a permit without a refresh is free.
const TIMEOUT: f64 = 10.0;

/// How long B7 tries to get its lock.
const LOCK_WAIT: Duration = Duration::from_millis(10);

/// B3: the set orders holders by their clocks, so a client with a slow clock goes before others.
pub struct Basic(pub Client);

impl Basic {
    /// Returns the permit's identifier if a permit is free.
    pub async fn acquire(&self, name: &str, limit: u32) -> Result<Option<String>, RedisError> {
        let identifier = Uuid::new_v4().to_string();
        let now = self.0.clock.now();
        let mut connection = self.0.shared.clone();
        let mut transaction = transaction();
        purge(&mut transaction, name, now);
        transaction.zadd(name, &identifier, now).ignore();
        transaction.zrank(name, &identifier);
        let (rank,): (u32,) = transaction.query_async(&mut connection).await?;
        if rank < limit {
            return Ok(Some(identifier));
        }
        self.release(name, &identifier).await?;
        Ok(None)
    }

    /// Returns true if the permit was still held.
    pub async fn release(&self, name: &str, identifier: &str) -> Result<bool, RedisError> {
        let mut connection = self.0.shared.clone();
        Cmd::zrem(name, identifier)
            .query_async(&mut connection)
            .await
    }
}

/// B4: a counter orders holders. It takes two transactions, so a client that counts first may rank last.
pub struct Fair(pub Client);

impl Fair {
    /// Returns the permit's identifier if a permit is free.
    pub async fn acquire(&self, name: &str, limit: u32) -> Result<Option<String>, RedisError> {
        let identifier = Uuid::new_v4().to_string();
        let now = self.0.clock.now();
        let number = self.count(name, now).await?;
        let mut transaction = transaction();
        transaction.zadd(name, &identifier, now).ignore();
        transaction.zadd(owners(name), &identifier, number).ignore();
        transaction.zrank(owners(name), &identifier);
        let (rank,): (u32,) = transaction.query_async(&mut self.0.shared.clone()).await?;
        if rank < limit {
            return Ok(Some(identifier));
        }
        self.release(name, &identifier).await?;
        Ok(None)
    }

    /// Removes permits that have timed out, and increments the counter.
    async fn count(&self, name: &str, now: f64) -> Result<u64, RedisError> {
        let owners = owners(name);
        let mut transaction = transaction();
        purge(&mut transaction, name, now);
        // Keeps the owners that are still in the set of times, each with its number.
        let weighted = [(owners.as_str(), 1), (name, 0)];
        transaction.zinterstore_weights(&owners, &weighted).ignore();
        transaction.incr(format!("{name}:counter"), 1);
        let (number,) = transaction.query_async(&mut self.0.shared.clone()).await?;
        Ok(number)
    }

    /// B5. Returns true if the permit was still held.
    pub async fn release(&self, name: &str, identifier: &str) -> Result<bool, RedisError> {
        let mut transaction = transaction();
        transaction.zrem(name, identifier);
        transaction.zrem(owners(name), identifier).ignore();
        let (held,) = transaction.query_async(&mut self.0.shared.clone()).await?;
        Ok(held)
    }
}

/// B7: B4 under a lock.
pub struct Locked(pub Fair);

impl Locked {
    /// Returns the permit's identifier if a permit is free and the lock was free in time.
    pub async fn acquire(&self, name: &str, limit: u32) -> Result<Option<String>, RedisError> {
        let client = &self.0.0;
        let Some(lock) = lock::acquire_lock(client, name, LOCK_WAIT).await? else {
            return Ok(None);
        };
        let answer = self.0.acquire(name, limit).await;
        lock::release_lock(client, name, &lock).await?;
        answer
    }

    /// B5. Returns true if the permit was still held.
    pub async fn release(&self, name: &str, identifier: &str) -> Result<bool, RedisError> {
        self.0.release(name, identifier).await
    }
}

fn transaction() -> Pipeline {
    let mut transaction = pipe();
    transaction.atomic();
    transaction
}

/// Removes the permits that have timed out by this client's clock.
fn purge(transaction: &mut Pipeline, name: &str, now: f64) {
    transaction
        .zrembyscore(name, "-inf", now - TIMEOUT)
        .ignore();
}

/// The key of the set that orders the holders.
fn owners(name: &str) -> String {
    format!("{name}:owner")
}
