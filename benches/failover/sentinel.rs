//! A primary and its replica, which Sentinels promote.

use crate::{
    node::{BOUND, Node, PAUSE},
    setup::Setup,
};
use std::{array, time::Instant};
use testing::{
    redis::RedisServer,
    resp::{Raw, Reply},
};
use tokio::time::sleep;
use tower_semaphore::RedisSemaphore;

/// The name under which the Sentinels know the primary.
const NAME: &str = "shop";

/// See the module docs.
pub(crate) struct Sentinel {
    nodes: [Node; 2],
    /// The position of the primary in `nodes`.
    primary: usize,
    sentinels: [RedisServer; 3],
    setup: Setup,
}

impl Sentinel {
    pub(crate) async fn start(setup: Setup) -> Self {
        let nodes = [Node::start(setup, &[]).await, Node::start(setup, &[]).await];
        let port = nodes[0].front.port();
        nodes[1].replicaof("127.0.0.1", port).await;
        let content = format!(
            "sentinel monitor {NAME} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {NAME} 1000\n\
             sentinel failover-timeout {NAME} 1000\n"
        );
        let sentinels =
            array::from_fn(|_| RedisServer::with_configuration(&["--sentinel"], &content));
        let mut this = Self {
            nodes,
            primary: 0,
            sentinels,
            setup,
        };
        for sentinel in &this.sentinels {
            // The Sentinels poll every 200 ms, more often than usual, so that they soon know a new replica.
            let periods = [
                "INFO-PERIOD",
                "200",
                "PING-PERIOD",
                "200",
                "PUBLISH-PERIOD",
                "200",
            ];
            let command = [&["SENTINEL", "DEBUG"], &periods[..]].concat();
            let reply = Raw::connect(sentinel.port()).await.cmd(&command).await;
            assert_eq!(reply, Reply::Simple("OK".to_owned()));
        }
        this.until_all_is_well().await;
        this
    }

    pub(crate) async fn connect(&self) -> RedisSemaphore {
        let urls = self.sentinels.iter().map(RedisServer::url);
        let store = self.setup.builder().connect_sentinel(urls, NAME).await;
        store.expect("the primary is there")
    }

    /// Stops delivering the primary's writes to its replica.
    pub(crate) fn stall(&self) {
        self.nodes[self.primary].stall();
    }

    /// Kills the primary's machine. Returns the time at which the replica was promoted.
    pub(crate) async fn fail_over(&mut self) -> Instant {
        self.nodes[self.primary].kill_machine();
        self.primary = 1 - self.primary;
        self.nodes[self.primary].until_promoted().await
    }

    /// Restarts the killed server, as the new primary's replica.
    pub(crate) async fn mend(&mut self) {
        let port = self.nodes[self.primary].front.port();
        let killed = &mut self.nodes[1 - self.primary];
        killed.restart_without_data();
        killed.replicaof("127.0.0.1", port).await;
        killed.open();
    }

    /// Waits until all Sentinels know each other, the primary, and a replica that can replace it.
    pub(crate) async fn until_all_is_well(&mut self) {
        let end = Instant::now() + BOUND;
        while !self.is_well().await {
            assert!(Instant::now() < end, "the Sentinels do not agree");
            sleep(PAUSE).await;
            // On a busy machine the replica may have taken over without a fault. Then the two have changed places.
            if !self.nodes[self.primary].is_replicated().await {
                self.primary = 1 - self.primary;
            }
        }
    }

    async fn is_well(&self) -> bool {
        let port = self.nodes[self.primary].front.port().to_string();
        for sentinel in &self.sentinels {
            let mut raw = Raw::connect(sentinel.port()).await;
            let primary = raw.cmd(&["SENTINEL", "MASTER", NAME]).await;
            let replicas = raw.cmd(&["SENTINEL", "REPLICAS", NAME]).await;
            let knows_primary = has(&primary, &["port", &port, "flags", "master"])
                && has(&primary, &["num-slaves", "1", "num-other-sentinels", "2"]);
            let expected = ["flags", "slave", "master-link-status", "ok"];
            let mut replicas = replicas.array().iter();
            if !knows_primary || !replicas.any(|replica| has(replica, &expected)) {
                return false;
            }
        }
        self.nodes[self.primary].is_replicated().await
    }
}

/// True if a reply of names and values contains all of these pairs.
fn has(reply: &Reply, expected: &[&str]) -> bool {
    let all: Vec<_> = reply.array().iter().map(Reply::text).collect();
    expected
        .chunks_exact(2)
        .all(|pair| all.chunks_exact(2).any(|own| own == pair))
}
