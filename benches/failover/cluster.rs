//! A cluster. One of its primaries has nearly all slots and a replica. Two other primaries have one slot each, because
//! only primaries with slots can vote for the replica.

use crate::{
    node::{BOUND, Node, PAUSE},
    setup::Setup,
};
use std::time::Instant;
use testing::{
    resp::{Raw, Reply},
    wait::eventually,
};
use tokio::time::sleep;
use tower_semaphore::RedisSemaphore;

/// A failover begins after a second (the timeout is in ms), and the replica never moves to another primary.
const ARGS: [&str; 8] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "1000",
    "--cluster-require-full-coverage",
    "no",
    "--cluster-allow-replica-migration",
    "no",
];

/// The first and the last slot of each primary.
const SLOTS: [(&str, &str); 3] = [("0", "16381"), ("16382", "16382"), ("16383", "16383")];

/// See the module docs.
pub(crate) struct Cluster {
    /// The primaries, followed by the replica of the first primary.
    nodes: Vec<Node>,
    /// The position in [`PAIR`] of the node that is the primary now.
    primary: usize,
    setup: Setup,
}

/// The indices in `nodes` of the first primary and its replica, which replace each other in turn.
const PAIR: [usize; 2] = [0, 3];

impl Cluster {
    pub(crate) async fn start(setup: Setup) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..=SLOTS.len() {
            nodes.push(Node::start(setup, &ARGS).await);
        }
        let mut this = Self {
            nodes,
            primary: 0,
            setup,
        };
        this.meet().await;
        let id = this.nodes[0].raw().await.cmd(&["CLUSTER", "MYID"]).await;
        ok(
            &mut this.nodes[3].raw().await,
            &["CLUSTER", "REPLICATE", id.text()],
        )
        .await;
        this.until_all_is_well().await;
        this
    }

    async fn meet(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            let mut raw = node.raw().await;
            let epoch = (number + 1).to_string();
            ok(&mut raw, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
            if let Some((first, last)) = SLOTS.get(number) {
                ok(&mut raw, &["CLUSTER", "ADDSLOTSRANGE", first, last]).await;
            }
            for earlier in &self.nodes[..number] {
                let port = earlier.port().to_string();
                ok(&mut raw, &["CLUSTER", "MEET", "127.0.0.1", &port]).await;
            }
        }
        self.until_info(&[
            "cluster_state:ok\r",
            "cluster_known_nodes:4\r",
            "cluster_size:3\r",
        ])
        .await;
    }

    pub(crate) async fn connect(&self) -> RedisSemaphore {
        let urls = self.nodes.iter().map(Node::url);
        let store = self.setup.builder().connect_cluster(urls).await;
        store.expect("the cluster is there")
    }

    /// Stops delivering the primary's writes to its replica.
    pub(crate) fn stall(&self) {
        self.nodes[PAIR[self.primary]].stall();
    }

    /// Kills the primary's machine. Returns the time at which the replica was promoted.
    pub(crate) async fn fail_over(&mut self) -> Instant {
        self.nodes[PAIR[self.primary]].kill_machine();
        self.primary = 1 - self.primary;
        self.nodes[PAIR[self.primary]].until_promoted().await
    }

    /// Restarts the killed server. The cluster makes it the new primary's replica.
    pub(crate) async fn mend(&mut self) {
        let killed = &mut self.nodes[PAIR[1 - self.primary]];
        killed.restart_without_data();
        let mut raw = killed.raw().await;
        eventually("it is a replica", BOUND, async || {
            raw.cmd(&["ROLE"]).await.array()[0].text() == "slave"
        })
        .await;
        killed.open();
        self.nodes[PAIR[self.primary]].until_replicated().await;
    }

    /// Waits until all nodes know a replica that can replace the primary.
    pub(crate) async fn until_all_is_well(&mut self) {
        let end = Instant::now() + BOUND;
        while !self.is_well().await {
            assert!(Instant::now() < end, "the nodes do not agree");
            sleep(PAUSE).await;
            // On a busy machine the replica may have taken over without a fault. Then the two have changed places.
            if !self.nodes[PAIR[self.primary]].is_replicated().await {
                self.primary = 1 - self.primary;
            }
        }
    }

    async fn is_well(&self) -> bool {
        let replica = self.nodes[PAIR[1 - self.primary]].front.port();
        let replica = format!(":{replica}@");
        for node in &self.nodes {
            let nodes = node.raw().await.cmd(&["CLUSTER", "NODES"]).await;
            let mut lines = nodes.text().lines();
            let replica_line = lines.find(|line| line.contains(&replica));
            let replica_line = replica_line.unwrap_or_default();
            if !replica_line.contains("slave") || nodes.text().contains("fail") {
                return false;
            }
        }
        self.nodes[PAIR[self.primary]].is_replicated().await
    }

    async fn until_info(&self, expected: &[&str]) {
        for node in &self.nodes {
            let mut raw = node.raw().await;
            eventually("the nodes agree", BOUND, async || {
                let info = raw.cmd(&["CLUSTER", "INFO"]).await;
                expected.iter().all(|line| info.text().contains(line))
            })
            .await;
        }
    }
}

async fn ok(raw: &mut Raw, command: &[&str]) {
    assert_eq!(raw.cmd(command).await, Reply::Simple("OK".to_owned()));
}
