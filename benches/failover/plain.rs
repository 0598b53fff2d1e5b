//! A primary and its replica. An operator promotes the replica and points the clients' address at it.

use crate::{node::Node, setup::Setup};
use std::time::{Duration, Instant};
use testing::front::Front;
use tower_semaphore::RedisSemaphore;

/// See the module docs.
pub(crate) struct Plain {
    /// The address that clients use. It leads to the primary.
    address: Front,
    nodes: [Node; 2],
    /// The position of the primary in `nodes`.
    primary: usize,
    setup: Setup,
}

impl Plain {
    pub(crate) async fn start(setup: Setup) -> Self {
        let nodes = [Node::start(setup, &[]).await, Node::start(setup, &[]).await];
        nodes[1].replicaof("127.0.0.1", nodes[0].front.port()).await;
        nodes[0].until_replicated().await;
        let address = Front::open(Duration::ZERO).await;
        address.point_at(nodes[0].port());
        Self {
            address,
            nodes,
            primary: 0,
            setup,
        }
    }

    pub(crate) async fn connect(&self) -> RedisSemaphore {
        let url = format!("redis://127.0.0.1:{}/", self.address.port());
        let store = self.setup.builder().connect(url).await;
        store.expect("the server is there")
    }

    /// Stops delivering the primary's writes to its replica.
    pub(crate) fn stall(&self) {
        self.nodes[self.primary].stall();
    }

    /// Kills the primary's machine and promotes the replica. Returns the time of the promotion.
    pub(crate) async fn fail_over(&mut self) -> Instant {
        self.address.cut();
        self.nodes[self.primary].kill_machine();
        self.primary = 1 - self.primary;
        let next = &self.nodes[self.primary];
        next.replicaof("NO", 0).await;
        let promoted = Instant::now();
        self.address.point_at(next.port());
        promoted
    }

    /// Restarts the killed server, as the new primary's replica.
    pub(crate) async fn mend(&mut self) {
        let port = self.nodes[self.primary].front.port();
        let killed = &mut self.nodes[1 - self.primary];
        killed.restart_without_data();
        killed.open();
        killed.replicaof("127.0.0.1", port).await;
        self.nodes[self.primary].until_replicated().await;
    }
}
