//! Which node has which slots.

use super::{slot::SLOTS, view::View};
use crate::redis::transport::{address::Address, server::Server};
use redis::{Client, ConnectionInfo};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a slot counts as moving after its node has sent a command to another one because of that.
const MOVING: Duration = Duration::from_secs(10);

/// A node, and the way to it.
pub(super) struct Node {
    /// A small number. It belongs to another node once this one has left.
    pub(super) number: usize,
    pub(super) address: Address,
    pub(super) server: Arc<Server>,
}

/// The nodes by number, and the number of each slot's node.
pub(super) struct SlotMap {
    /// How to connect to a node, but for its address.
    template: Option<ConnectionInfo>,
    timeout: Duration,
    nodes: Vec<Option<Arc<Node>>>,
    slots: Vec<Option<usize>>,
    /// The slots that two nodes have a part of, and when one has said so.
    moving: HashMap<usize, Instant>,
    /// Primaries and replicas.
    all: Vec<Address>,
    epoch: u64,
    /// How often the map was replaced.
    generation: u64,
}

impl SlotMap {
    /// An empty map. Its nodes are connected to as the first seed is.
    pub(super) fn new(seeds: &[Client], timeout: Duration) -> Self {
        let first = seeds.first().map(Client::get_connection_info);
        Self {
            template: first.cloned(),
            timeout,
            nodes: Vec::new(),
            slots: vec![None; SLOTS],
            moving: HashMap::new(),
            all: Vec::new(),
            epoch: 0,
            generation: 0,
        }
    }

    /// The node of a slot, or any other: it says where the slot is, or why it is nowhere.
    pub(super) fn node(&self, slot: usize) -> Option<&Arc<Node>> {
        let own = self.slots[slot].and_then(|number| self.nodes[number].as_ref());
        own.or_else(|| self.nodes().next())
    }

    /// The number of the node that has a slot; `None` while the slot moves: what fails then is no fault of
    /// either node's other slots.
    pub(super) fn number_of(&self, slot: usize) -> Option<usize> {
        match self.moving.get(&slot) {
            Some(since) if since.elapsed() < MOVING => None,
            _ => self.slots[slot],
        }
    }

    /// The primaries.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.iter().flatten()
    }

    /// Primaries and replicas.
    pub(super) fn all(&self) -> &[Address] {
        &self.all
    }

    pub(super) fn client(&self, address: &Address) -> Option<Client> {
        address.client(self.template.as_ref()?).ok()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Replaces the map by a node's view. Nodes that stay keep their connections and their numbers, and
    /// a promoted replica gets the number of the node that it has replaced: what is known of that
    /// node's semaphores goes on.
    pub(super) fn replace(&mut self, view: &View) {
        self.promote(view);
        (self.epoch, self.generation) = (view.epoch, self.generation + 1);
        self.slots.fill(None);
        self.moving.retain(|_, since| since.elapsed() < MOVING);
        self.all.clear();
        let mut used = HashSet::new();
        for range in &view.ranges {
            let number = range.nodes.first().and_then(|primary| self.number(primary));
            used.extend(number);
            if let Some(slots) = self.slots.get_mut(range.slots.clone()) {
                slots.fill(number);
            }
            self.add_all(&range.nodes);
        }
        for (number, node) in self.nodes.iter_mut().enumerate() {
            if !used.contains(&number) {
                *node = None;
            }
        }
    }

    /// Puts new primaries into the places of those that are none any more.
    fn promote(&mut self, view: &View) {
        let ranges = view.ranges.iter();
        let primaries: Vec<_> = ranges.filter_map(|range| range.nodes.first()).collect();
        let is_primary = |node: &Node| primaries.contains(&&node.address);
        for range in &view.ranges {
            let before = self.slots.get(*range.slots.start()).copied().flatten();
            let (Some(number), Some(new)) = (before, range.nodes.first()) else {
                continue;
            };
            let has_left = (self.nodes[number].as_ref()).is_some_and(|old| !is_primary(old));
            let is_known = self.nodes().any(|node| node.address == *new);
            if has_left && !is_known {
                self.nodes[number] = self.node_at(number, new).map(Arc::new);
            }
        }
    }

    fn node_at(&self, number: usize, address: &Address) -> Option<Node> {
        Some(Node {
            number,
            address: address.clone(),
            server: Arc::new(Server::new(self.client(address)?, self.timeout)),
        })
    }

    /// A node has said that this one has the slot. Returns it.
    pub(super) fn moved(&mut self, slot: usize, address: &Address) -> Option<Arc<Node>> {
        let node = self.find(address)?;
        self.moving.remove(&slot);
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = Some(node.number);
        }
        Some(node)
    }

    /// A node has said that the slot is moving to this one. Returns it.
    pub(super) fn moving(&mut self, slot: usize, address: &Address) -> Option<Arc<Node>> {
        self.moving.insert(slot, Instant::now());
        self.find(address)
    }

    /// The node at an address, which may be new.
    fn find(&mut self, address: &Address) -> Option<Arc<Node>> {
        let number = self.number(address)?;
        self.nodes[number].clone()
    }

    fn number(&mut self, address: &Address) -> Option<usize> {
        let known = self.nodes().find(|node| node.address == *address);
        if let Some(known) = known {
            return Some(known.number);
        }
        let free = self.nodes.iter().position(Option::is_none);
        let number = free.unwrap_or(self.nodes.len());
        let node = self.node_at(number, address)?;
        if number == self.nodes.len() {
            self.nodes.push(None);
        }
        self.nodes[number] = Some(Arc::new(node));
        Some(number)
    }

    fn add_all(&mut self, nodes: &[Address]) {
        for node in nodes {
            if !self.all.contains(node) {
                self.all.push(node.clone());
            }
        }
    }
}
