//! Real clusters, each private to the test that starts it.

use super::{ANY_PORT, RedisServer, chosen};
use crate::{
    resp::{Raw, Reply},
    wait::eventually,
};
use std::time::Duration;

/// The bound for the nodes to agree.
const BOUND: Duration = Duration::from_secs(60);

const SLOTS: usize = 16_384;

/// Connected nodes: first the primaries, then a replica of each if replicas were requested. They end when the handle is
/// dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<RedisServer>,
    primaries: usize,
    has_tls: bool,
}

/// The hash slot of a key: the CRC-16 of its part in braces, or of the whole key, computed bit by bit.
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.split(|byte| b"{}".contains(byte)).nth(1).unwrap_or(key);
    let crc = tag.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    });
    crc % 16_384
}

impl Cluster {
    /// Starts primaries without replicas.
    pub async fn of_primaries(primaries: usize) -> Self {
        Self::with(primaries, false, &[]).await
    }

    /// Starts primaries with one replica each.
    pub async fn of_pairs(primaries: usize) -> Self {
        Self::with(primaries, true, &[]).await
    }

    /// Starts primaries, optionally with replicas, and with more arguments for each node.
    ///
    /// # Panics
    ///
    /// If the nodes do not agree within a minute.
    pub async fn with(primaries: usize, has_replicas: bool, args: &[&str]) -> Self {
        let mut all = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", "1500"];
        all.extend(["--cluster-require-full-coverage", "no"]);
        all.extend(["--repl-diskless-sync-delay", "0"]);
        all.extend(args);
        let count = if has_replicas {
            primaries * 2
        } else {
            primaries
        };
        let nodes = (0..count).map(|_| RedisServer::with(&all)).collect();
        let cluster = Self {
            nodes,
            primaries,
            has_tls: args.contains(&ANY_PORT) || chosen::has_tls(),
        };
        cluster.form().await;
        cluster
    }

    /// Connects nodes that are not in a cluster yet.
    ///
    /// # Panics
    ///
    /// If the nodes do not agree within a minute.
    pub async fn form(&self) {
        self.meet().await;
        self.add_replicas().await;
    }

    /// Resets each node, so that it has no other nodes, no slots and no keys.
    pub async fn dissolve(&self) {
        for number in 0..self.nodes.len() {
            let mut raw = self.raw(number).await;
            // A reset fails if a store has written between the two commands.
            eventually("the node is reset", BOUND, async || {
                raw.cmd(&["FLUSHALL"]).await;
                let reset = raw.cmd(&["CLUSTER", "RESET", "HARD"]).await;
                reset == Reply::Simple("OK".to_owned())
            })
            .await;
        }
    }

    /// The URLs of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// The URLs of all nodes over TLS. The arguments must have a TLS port and `--tls-cluster`.
    pub fn tls_urls(&self) -> Vec<String> {
        let url = |node: &RedisServer| format!("rediss://127.0.0.1:{}/", node.tls_port());
        self.nodes.iter().map(url).collect()
    }

    pub fn node(&self, number: usize) -> &RedisServer {
        &self.nodes[number]
    }

    pub fn node_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.nodes[number]
    }

    /// The number of the replica that a primary got at the start.
    pub fn replica_of(&self, primary: usize) -> usize {
        self.primaries + primary
    }

    /// A connection to a node.
    pub async fn raw(&self, number: usize) -> Raw {
        Raw::connect(self.nodes[number].port()).await
    }

    /// The slot of a key, as reported by a node.
    pub async fn slot(&self, key: &str) -> usize {
        let reply = self.raw(0).await.cmd(&["CLUSTER", "KEYSLOT", key]).await;
        reply.int() as usize
    }

    /// The primary that got this slot at the start.
    pub fn first_owner(&self, slot: usize) -> usize {
        slot * self.primaries / SLOTS
    }

    /// Returns `count` keys. `name` turns each of them into a Redis key that the primary got at the start.
    pub async fn keys_of(
        &self,
        primary: usize,
        count: usize,
        name: impl Fn(&str) -> String,
    ) -> Vec<String> {
        let mut raw = self.raw(primary).await;
        let mut keys = Vec::new();
        for number in 0.. {
            let key = format!("key-{number}");
            let reply = raw.cmd(&["CLUSTER", "KEYSLOT", &name(&key)]).await;
            if self.first_owner(reply.int() as usize) == primary {
                keys.push(key);
            }
            if keys.len() == count {
                break;
            }
        }
        keys
    }

    /// The port of a key's primary, as a node sees it; 0 if no primary has the key.
    pub async fn port_of(&self, node: usize, key: &str) -> u16 {
        let mut raw = self.raw(node).await;
        let slot = raw.cmd(&["CLUSTER", "KEYSLOT", key]).await.int();
        // A range is an array: its first slot, its last slot, and its nodes, the primary first.
        let slots = raw.cmd(&["CLUSTER", "SLOTS"]).await;
        let has =
            |range: &&Reply| (range.array()[0].int()..=range.array()[1].int()).contains(&slot);
        let port = |range: &Reply| range.array()[2].array()[1].int() as u16;
        slots.array().iter().find(has).map_or(0, port)
    }

    /// Begins to move a slot. Until [`end_move`](Self::end_move), both nodes have a part of it.
    pub async fn begin_move(&self, slot: usize, from: usize, to: usize) {
        let (source, target) = (self.id(from).await, self.id(to).await);
        let slot = slot.to_string();
        let (mut from, mut to) = (self.raw(from).await, self.raw(to).await);
        ok(&to
            .cmd(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source])
            .await);
        ok(&from
            .cmd(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target])
            .await);
    }

    /// Moves the keys of a slot whose move has begun.
    pub async fn move_keys(&self, slot: usize, from: usize, to: usize) {
        let port = self.port(&self.nodes[to]);
        let slot = slot.to_string();
        let mut from = self.raw(from).await;
        loop {
            let keys = from.cmd(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
            if keys.array().is_empty() {
                return;
            }
            let mut command: Vec<&[u8]> = vec![b"MIGRATE", b"127.0.0.1", port.as_bytes()];
            // No single key, database 0, a timeout of 5 s, and then the keys.
            command.extend([&b""[..], b"0", b"5000", b"KEYS"]);
            command.extend(keys.array().iter().map(Reply::bytes));
            let reply = from.cmd(&command).await;
            assert_eq!(reply.error(), None);
        }
    }

    /// The port at which other nodes reach a node.
    pub fn node_port(&self, number: usize) -> String {
        self.port(self.node(number))
    }

    fn port(&self, node: &RedisServer) -> String {
        match self.has_tls {
            true => node.tls_port().to_string(),
            false => node.port().to_string(),
        }
    }

    /// Ends the move of a slot whose keys have moved.
    pub async fn end_move(&self, slot: usize, from: usize, to: usize) {
        let (slot, id) = (slot.to_string(), self.id(to).await);
        for node in [to, from] {
            let mut node = self.raw(node).await;
            ok(&node.cmd(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]).await);
        }
    }

    /// Moves a slot with its keys.
    pub async fn move_slot(&self, slot: usize, from: usize, to: usize) {
        self.begin_move(slot, from, to).await;
        self.move_keys(slot, from, to).await;
        self.end_move(slot, from, to).await;
    }

    /// Returns true if a node reports itself as a primary.
    pub async fn is_primary(&self, number: usize) -> bool {
        let role = self.raw(number).await.cmd(&["ROLE"]).await;
        role.array()[0].text() == "master"
    }

    async fn id(&self, number: usize) -> String {
        let id = self.raw(number).await.cmd(&["CLUSTER", "MYID"]).await;
        id.text().to_owned()
    }

    async fn meet(&self) {
        for number in 0..self.nodes.len() {
            let mut raw = self.raw(number).await;
            let epoch = (number + 1).to_string();
            ok(&raw.cmd(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await);
            if number < self.primaries {
                let slots = |number: usize| (number * SLOTS).div_ceil(self.primaries);
                // Redis 6.2 has no ADDSLOTSRANGE.
                let own = (slots(number)..slots(number + 1)).map(|slot| slot.to_string());
                let words = ["CLUSTER", "ADDSLOTS"].map(ToOwned::to_owned);
                let command: Vec<_> = words.into_iter().chain(own).collect();
                ok(&raw.cmd(&command).await);
            }
            for other in &self.nodes[..number] {
                let port = self.port(other);
                ok(&raw.cmd(&["CLUSTER", "MEET", "127.0.0.1", &port]).await);
            }
        }
        for number in 0..self.nodes.len() {
            let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
            self.until_info(
                number,
                &["cluster_state:ok\r", "cluster_slots_ok:16384\r", &known],
            )
            .await;
        }
    }

    async fn add_replicas(&self) {
        for number in self.primaries..self.nodes.len() {
            let primary = self.id(number - self.primaries).await;
            let mut raw = self.raw(number).await;
            ok(&raw.cmd(&["CLUSTER", "REPLICATE", &primary]).await);
        }
        for number in 0..self.nodes.len() {
            eventually("all replicas are known and in sync", BOUND, async || {
                let mut raw = self.raw(number).await;
                let slots = raw.cmd(&["CLUSTER", "SLOTS"]).await;
                // A range lists its two bounds and then its nodes.
                let nodes = slots.array().iter().map(|range| range.array().len() - 2);
                let is_known = nodes.sum::<usize>() == self.nodes.len();
                let info = raw.cmd(&["INFO", "replication"]).await;
                is_known && !info.text().contains("master_link_status:down")
            })
            .await;
        }
    }

    async fn until_info(&self, number: usize, lines: &[&str]) {
        let mut raw = self.raw(number).await;
        eventually("the nodes agree", BOUND, async || {
            let info = raw.cmd(&["CLUSTER", "INFO"]).await;
            lines.iter().all(|line| info.text().contains(line))
        })
        .await;
    }
}

fn ok(reply: &Reply) {
    assert_eq!(*reply, Reply::Simple("OK".to_owned()));
}
