//! A server, a proxy in front of it, a store through the proxy, and a reader that bypasses the proxy.

use crate::{proxy::Proxy, redis::RedisServer, resp::Raw};
use std::time::Duration;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore, redis::Builder};

/// A generous bound for waits that do not measure time.
pub const BOUND: Duration = Duration::from_secs(20);

/// Patterns for the keys of held units, waiters and their heartbeats.
const LEFT: [&str; 3] = ["*:held", "*:queue", "*:alive"];

/// A server, a proxy, a store, and a reader.
pub struct Rig {
    pub server: RedisServer,
    pub proxy: Proxy,
    pub store: RedisSemaphore,
    pub raw: Raw,
}

impl Rig {
    /// A rig whose server has the scripts loaded.
    pub async fn new(builder: Builder) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::start(&server).await;
        let store = builder.connect(proxy.url()).await.expect("it connects");
        warm(&store).await;
        let raw = Raw::connect(server.port()).await;
        Self {
            server,
            proxy,
            store,
            raw,
        }
    }

    /// Waits until no unit is held and no claim waits.
    ///
    /// # Panics
    ///
    /// If something is left after the bound. The message lists it.
    pub async fn nothing_is_left(&mut self, within: Duration) {
        let raw = &mut self.raw;
        let mut left = Vec::new();
        let empty = async {
            loop {
                left = all_left(raw).await;
                if left.is_empty() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = tokio::time::timeout(within, empty).await.is_ok();
        assert!(in_time, "left after {within:?}: {left:?}");
    }
}

/// The sets that have members, each with its number of members.
async fn all_left(raw: &mut Raw) -> Vec<(String, usize)> {
    let mut left = Vec::new();
    for pattern in LEFT {
        for key in raw.keys(pattern).await {
            let members = raw.zcard(&key).await;
            left.push((String::from_utf8_lossy(&key).into_owned(), members));
        }
    }
    left.retain(|(_, members)| *members > 0);
    left
}

/// Loads the scripts of a store into the server.
pub async fn warm(store: &RedisSemaphore) {
    for _ in 0..2 {
        let permit = store.acquire(Claim::new("warm").with_limit(1)).await;
        assert!(permit.expect("there is room").release().await);
    }
}
