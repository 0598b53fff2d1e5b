//! A primary and its replica.

use super::RedisServer;
use crate::{
    front::Front,
    resp::{Raw, Reply},
    wait::eventually,
};
use std::time::Duration;

/// The bound for the replica to catch up.
const BOUND: Duration = Duration::from_secs(60);

/// A primary, and a replica that receives everything with a delay.
#[derive(Debug)]
pub struct Replicated {
    pub primary: RedisServer,
    pub replica: RedisServer,
    _front: Front,
}

impl Replicated {
    /// Starts both. Data reach the replica `lag` later.
    pub async fn start(lag: Duration) -> Self {
        let args = ["--repl-diskless-sync-delay", "0"];
        let (primary, replica) = (RedisServer::with(&args), RedisServer::with(&args));
        let front = Front::open(lag).await;
        front.point_at(primary.port());
        // Without a lag the replica connects to the primary directly.
        let port = match lag.is_zero() {
            true => primary.port(),
            false => front.port(),
        };
        let mut raw = Raw::connect(replica.port()).await;
        raw.cmd(&["REPLICAOF", "127.0.0.1", &port.to_string()])
            .await;
        let servers = Self {
            primary,
            replica,
            _front: front,
        };
        servers.until_replicated().await;
        servers
    }

    /// Waits until the replica has caught up with the primary.
    pub async fn until_replicated(&self) {
        let mut raw = Raw::connect(self.primary.port()).await;
        eventually("the replica has caught up", BOUND, async || {
            // `WAIT` only covers the writes of its connection.
            raw.cmd(&["SET", "mark", "1"]).await;
            raw.cmd(&["WAIT", "1", "1000"]).await == Reply::Int(1)
        })
        .await;
    }
}
