//! The transport.

use super::{route, slot::slot_of, slot_map::Node, topology::Topology};
use crate::{
    redis::{
        error::Error,
        transport::{
            address::{Address, Place},
            connection::Replies,
            contract::{Servers, Terms, Transport},
        },
    },
    semaphore::BoxFuture,
};
use futures_util::future::select_ok;
use redis::{Client, Cmd};
use std::{
    future::ready,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// See the [module docs](super).
pub(in crate::redis) struct Cluster {
    topology: Arc<Topology>,
    /// Counts attempts to subscribe, so that the next one is on another node.
    attempts: AtomicUsize,
}

impl Cluster {
    /// Finds out from the seeds which node has which slots, and connects to one node at least.
    pub(in crate::redis) async fn connect(
        seeds: Vec<Client>,
        timeout: Duration,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let topology = Topology::new(seeds, timeout);
        // If no view is good, some time is left to connect to the nodes of the best one.
        let left = deadline.saturating_duration_since(Instant::now());
        topology.fill(deadline - left / 4).await?;
        let nodes: Vec<_> = topology.map().nodes().cloned().collect();
        let attempts = nodes
            .iter()
            .map(|node| Box::pin(node.server.connected(deadline)));
        // The attempts at the others go on.
        if attempts.len() > 0 {
            select_ok(attempts).await?;
        }
        Ok(Self {
            topology: Arc::new(topology),
            attempts: AtomicUsize::new(RandomState::new().hash_one(()) as usize),
        })
    }

    /// Whether any node serves.
    pub(in crate::redis) fn has_slots(&self) -> bool {
        self.topology.map().nodes().next().is_some()
    }
}

impl Transport for Cluster {
    fn ready(&self, key: &str, deadline: Instant) -> Option<BoxFuture<Result<(), Error>>> {
        let slot = slot_of(key.as_bytes());
        let mut node = self.topology.node(slot)?;
        if node.server.is_connected() {
            return None;
        }
        let topology = Arc::clone(&self.topology);
        Some(Box::pin(async move {
            while let Err(error) = node.server.connected(deadline).await {
                let next = topology.successor(slot, &node, deadline).await;
                node = next.ok_or(error)?;
            }
            Ok(())
        }))
    }

    fn is_connected(&self, key: &str) -> bool {
        let node = self.topology.node(slot_of(key.as_bytes()));
        node.is_none_or(|node| node.server.connects())
    }

    fn send(&self, commands: Vec<Cmd>, terms: Terms) -> BoxFuture<Result<Replies, Error>> {
        let topology = Arc::clone(&self.topology);
        Box::pin(async move { route::send(&topology, commands, terms).await })
    }

    fn is_one_server(&self) -> bool {
        false
    }

    fn place(&self) -> Place {
        Place::Node
    }

    fn server_of(&self, key: &str) -> Option<usize> {
        self.topology.map().number_of(slot_of(key.as_bytes()))
    }

    fn servers(self: Arc<Self>) -> Option<Servers> {
        let map = self.topology.map();
        let server = |node: &Arc<Node>| {
            let Address { host, port } = &node.address;
            (format!("{host}:{port}"), Arc::clone(&node.server) as _)
        };
        Some(map.nodes().map(server).collect())
    }

    /// Each node in turn: a message reaches them all.
    fn publisher(&self) -> Option<BoxFuture<Result<Client, Error>>> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let client = {
            let map = self.topology.map();
            let address = map.all().get(attempt % map.all().len().max(1));
            address.and_then(|address| map.client(address))
        };
        let client = client.ok_or_else(route::nowhere);
        Some(Box::pin(ready(client)))
    }

    /// A node that leaves the cluster stays connected, and is silent. If it has no slots, no command
    /// shows that.
    fn is_publisher(&self, client: &Client) -> bool {
        self.topology.refresh();
        let address = Address::of(client.get_connection_info());
        address.is_some_and(|address| self.topology.map().all().contains(&address))
    }
}
