//! A primary, its replica, and the Sentinels that watch them.

use super::RedisServer;
use crate::{
    resp::{Raw, Reply},
    wait::eventually,
};
use std::{array, time::Duration};

/// The bound for the Sentinels to agree.
const BOUND: Duration = Duration::from_secs(60);

/// Two servers and three Sentinels. The first server is the primary at the start. They end when the handle is dropped.
#[derive(Debug)]
pub struct Sentinels {
    servers: [RedisServer; 2],
    sentinels: [RedisServer; 3],
}

impl Sentinels {
    /// The name of the primary.
    pub const NAME: &str = "shop";

    /// Starts the servers and the Sentinels.
    ///
    /// # Panics
    ///
    /// If they do not agree within a minute.
    pub async fn start() -> Self {
        let primary = RedisServer::with(&["--repl-diskless-sync-delay", "0"]);
        let port = primary.client_port().to_string();
        let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &port]);
        let sentinels = Self {
            sentinels: array::from_fn(|_| sentinel(primary.client_port(), 2)),
            servers: [primary, replica],
        };
        sentinels.until_they_agree().await;
        sentinels
    }

    /// The URLs of the Sentinels.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    pub fn server(&self, number: usize) -> &RedisServer {
        &self.servers[number]
    }

    pub fn server_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.servers[number]
    }

    pub fn sentinel(&self, number: usize) -> &RedisServer {
        &self.sentinels[number]
    }

    /// A connection to one of the servers.
    pub async fn raw(&self, number: usize) -> Raw {
        Raw::connect(self.servers[number].port()).await
    }

    /// Returns true if a server reports itself as a primary. Returns false if a Sentinel ends the connection in the
    /// meantime.
    pub async fn is_primary(&self, number: usize) -> bool {
        let role = self.raw(number).await.try_cmd(&["ROLE"]).await;
        role.is_ok_and(|role| role.array()[0].text() == "master")
    }

    /// Waits until all Sentinels name this server as the primary.
    pub async fn until_named(&self, number: usize) {
        let port = self.servers[number].client_port().to_string();
        for sentinel in &self.sentinels {
            let mut raw = Raw::connect(sentinel.port()).await;
            eventually("the Sentinel names the primary", BOUND, async || {
                let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME];
                raw.cmd(&command).await.array()[1].text() == port
            })
            .await;
        }
    }

    async fn until_they_agree(&self) {
        for sentinel in &self.sentinels {
            let mut raw = Raw::connect(sentinel.port()).await;
            eventually("the Sentinels know each other", BOUND, async || {
                let details = raw.cmd(&["SENTINEL", "MASTER", Self::NAME]).await;
                let details: Vec<_> = details.array().iter().map(Reply::text).collect();
                let has = |pair: [&str; 2]| details.chunks_exact(2).any(|other| other == pair);
                has(["num-slaves", "1"]) && has(["num-other-sentinels", "2"])
            })
            .await;
        }
    }
}

/// A Sentinel that watches the server on this port. `quorum` Sentinels must agree that the server is down.
pub fn sentinel(port: u16, quorum: usize) -> RedisServer {
    sentinel_with(&[], port, quorum)
}

/// Like `sentinel`, with more arguments.
pub fn sentinel_with(args: &[&str], port: u16, quorum: usize) -> RedisServer {
    let name = Sentinels::NAME;
    let content = format!(
        "sentinel monitor {name} 127.0.0.1 {port} {quorum}\n\
         sentinel down-after-milliseconds {name} 1500\n\
         sentinel failover-timeout {name} 6000\n"
    );
    let args: Vec<_> = ["--sentinel"].iter().chain(args).copied().collect();
    RedisServer::with_configuration(&args, &content)
}
