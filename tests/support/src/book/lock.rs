//! B1: a lock that polls, without an end of its own.

use super::Client;
use redis::{Cmd, RedisError, cmd, pipe};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// B1. The lock's value, by which its owner is known, or nothing when `acquire_timeout` is over.
pub async fn acquire_lock(
    client: &Client,
    name: &str,
    acquire_timeout: Duration,
) -> Result<Option<String>, RedisError> {
    let identifier = Uuid::new_v4().to_string();
    let end = Instant::now() + acquire_timeout;
    while Instant::now() < end {
        let mut connection = client.shared.clone();
        let set = Cmd::set_nx(key(name), &identifier);
        if set.query_async(&mut connection).await? {
            return Ok(Some(identifier));
        }
        client.pause().await;
    }
    Ok(None)
}

/// Releases a lock if it is still this owner's.
pub async fn release_lock(
    client: &Client,
    name: &str,
    identifier: &str,
) -> Result<bool, RedisError> {
    let key = key(name);
    let mut connection = client.alone().await;
    loop {
        cmd("WATCH").arg(&key).exec_async(&mut *connection).await?;
        let owner: Option<String> = Cmd::get(&key).query_async(&mut *connection).await?;
        if owner.as_deref() != Some(identifier) {
            cmd("UNWATCH").exec_async(&mut *connection).await?;
            return Ok(false);
        }
        let mut transaction = pipe();
        transaction.atomic().del(&key).ignore();
        // Nothing comes back when the lock was changed since it was watched.
        let done: Option<()> = transaction.query_async(&mut *connection).await?;
        if done.is_some() {
            return Ok(true);
        }
    }
}

fn key(name: &str) -> String {
    format!("lock:{name}")
}
