//! A primary behind Sentinels: failovers, old primaries that return, and problems at the start.

mod failover;
mod followed;
mod minority;
mod start;

use std::time::Duration;
use testing::{
    redis::{RedisServer, Sentinels},
    resp::Raw,
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore, redis::Builder};

/// Generous, because no test that uses it measures time.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// A builder whose timeout tolerates a busy machine.
pub(crate) fn patient() -> Builder {
    RedisSemaphore::builder().timeout(Duration::from_secs(2))
}

pub(crate) fn claim() -> Claim {
    Claim::new("ann").with_limit(1)
}

/// Acquires and releases a permit. Returns true if both succeed.
pub(crate) async fn works(store: &RedisSemaphore) -> bool {
    match store.acquire(claim()).await {
        Ok(permit) => permit.release().await,
        Err(_) => false,
    }
}

/// Makes a Sentinel watch another server.
pub(crate) async fn watch(sentinel: &RedisServer, server: &RedisServer, quorum: u32) {
    let mut raw = Raw::connect(sentinel.port()).await;
    let (name, port) = (Sentinels::NAME, server.client_port().to_string());
    let quorum = quorum.to_string();
    raw.cmd(&["SENTINEL", "REMOVE", name]).await;
    let monitor = ["SENTINEL", "MONITOR", name, "127.0.0.1", &port, &quorum];
    assert_eq!(raw.cmd(&monitor).await.text(), "OK");
}

/// The number of scripts that a server has run since its statistics were reset.
pub(crate) async fn scripts(server: &RedisServer) -> u64 {
    let stats = Raw::connect(server.port()).await.commandstats().await;
    let count = |name| stats.get(name).copied().unwrap_or_default();
    count("evalsha") + count("eval")
}

/// A Sentinel that names this primary since the failover of this epoch. Each failover has a higher epoch than the last.
pub(crate) fn naming_since_epoch(server: &RedisServer, epoch: u32) -> RedisServer {
    let (name, port) = (Sentinels::NAME, server.client_port());
    let content = format!(
        "sentinel monitor {name} 127.0.0.1 {port} 2\nsentinel config-epoch {name} {epoch}\n"
    );
    RedisServer::with_configuration(&["--sentinel"], &content)
}
