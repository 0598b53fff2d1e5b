//! B1: a lock that polls, and that never expires.

use super::Client;
use redis::{Cmd, RedisError, cmd, pipe};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// B1. Returns the lock's value, which identifies its owner, or `None` after `acquire_timeout`.
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

/// Releases a lock if it still belongs to this owner.
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
        // The transaction returns nothing if the lock has changed since the `WATCH`.
        let done: Option<()> = transaction.query_async(&mut *connection).await?;
        if done.is_some() {
            return Ok(true);
        }
    }
}

fn key(name: &str) -> String {
    format!("lock:{name}")
}
