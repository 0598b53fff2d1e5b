//! Finds out which node has which slots.
//!
//! The map is updated when a node has sent a command elsewhere, and when a node cannot be reached.
//! However many commands meet that, there is one update at a time, and a few in a second.

use super::{
    slot_map::{Node, SlotMap},
    survey::{Seen, Survey, view_of_seed},
    view::{self, View},
};
use crate::{
    redis::{
        error::Error,
        transport::{address::Address, contract::Terms},
    },
    semaphore::timer::timeout_at,
};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use redis::Client;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// The pause after an update.
const PAUSE: Duration = Duration::from_millis(200);

/// How long an update may take. One that has not ended a moment later was on a runtime that has ended.
const LONGEST: Duration = Duration::from_secs(1);

/// Nodes that are queried first. The first good view counts.
const FIRST: usize = 3;

/// How long the first nodes have before all others are queried too: they may all be silent.
const ALONE: Duration = Duration::from_millis(250);

/// How old a map may be to whose changes no node draws attention: those of the nodes that messages
/// come from.
const FRESH: Duration = Duration::from_secs(10);

/// Which node has which slots, as far as is known, and how more is found out.
pub(super) struct Topology {
    map: RwLock<SlotMap>,
    /// Queried if no node of the map answers, and at the start.
    seeds: Vec<Client>,
    timeout: Duration,
    state: Mutex<State>,
    /// Notified at the end of an update.
    updated: Notify,
}

enum State {
    Idle,
    Updating(Instant),
    Updated(Instant),
}

impl Topology {
    /// An empty topology. The nodes are connected to as the first seed is.
    pub(super) fn new(seeds: Vec<Client>, timeout: Duration) -> Self {
        Self {
            map: RwLock::new(SlotMap::new(&seeds, timeout)),
            seeds,
            timeout,
            state: Mutex::new(State::Idle),
            updated: Notify::new(),
        }
    }

    pub(super) fn map(&self) -> RwLockReadGuard<'_, SlotMap> {
        self.map.read()
    }

    /// The node of a slot, as far as is known.
    pub(super) fn node(&self, slot: usize) -> Option<Arc<Node>> {
        self.map.read().node(slot).cloned()
    }

    /// A node has said that another one has the slot. Returns that one.
    pub(super) fn moved(&self, slot: usize, address: &Address) -> Option<Arc<Node>> {
        self.map.write().moved(slot, address)
    }

    /// A node has said that the slot is moving to this one. Returns it.
    pub(super) fn moving(&self, slot: usize, address: &Address) -> Option<Arc<Node>> {
        self.map.write().moving(slot, address)
    }

    /// Fills the empty map by the best view that a seed tells until then.
    pub(super) async fn fill(&self, deadline: Instant) -> Result<(), Error> {
        self.update(deadline).await?;
        // Without the pause: what was told while a primary fails is soon wrong.
        let updated = Instant::now().checked_sub(PAUSE);
        *self.state.lock() = updated.map_or(State::Idle, State::Updated);
        Ok(())
    }

    /// Starts an update in the background, unless one runs or has just ended. Returns whether one runs.
    pub(super) fn start_update(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        match *state {
            State::Updating(since) if since.elapsed() < LONGEST + PAUSE => return true,
            State::Updated(at) if at.elapsed() < PAUSE => return false,
            _ => *state = State::Updating(Instant::now()),
        }
        let topology = Arc::clone(self);
        tokio::spawn(async move {
            // A failure is ignored: the next claim that needs it starts another update.
            let _ = topology.update(Instant::now() + LONGEST).await;
            *topology.state.lock() = State::Updated(Instant::now());
            topology.updated.notify_waiters();
        });
        true
    }

    /// Starts an update if the last one was long ago.
    pub(super) fn refresh(self: &Arc<Self>) {
        let is_fresh = match *self.state.lock() {
            State::Idle => false,
            State::Updating(since) | State::Updated(since) => since.elapsed() < FRESH,
        };
        if !is_fresh {
            self.start_update();
        }
    }

    /// Waits for the end of an update, unless one has just ended, and for the deadline at most. Returns
    /// the slot's node if it is not this one any more.
    pub(super) async fn successor(
        self: &Arc<Self>,
        slot: usize,
        node: &Arc<Node>,
        deadline: Instant,
    ) -> Option<Arc<Node>> {
        // Registered before the update starts, so that its end is not missed.
        let updated = self.updated.notified();
        if self.start_update() {
            let _ = timeout_at(deadline, updated).await;
        }
        self.node(slot).filter(|next| next.address != node.address)
    }

    /// Replaces the map by the best view that a node tells until then. If no node has any slots, the map
    /// stays: a cluster that is being set up anew is to be found where it was. It also stays if another
    /// update was faster: a runtime that stood still has an old view.
    async fn update(&self, deadline: Instant) -> Result<(), Error> {
        let before = self.map.read().generation();
        let view = self.best_view(deadline).await?;
        let mut map = self.map.write();
        if !view.ranges.is_empty() && map.generation() == before {
            map.replace(&view);
        }
        Ok(())
    }

    /// The best view of all nodes. First some are queried, mostly those with a connection; if they are
    /// silent, all others and the seeds with them.
    async fn best_view(&self, deadline: Instant) -> Result<View, Error> {
        let (epoch, mut nodes) = {
            let map = self.map.read();
            (map.epoch(), map.nodes().cloned().collect::<Vec<_>>())
        };
        nodes.sort_by_key(|node| !node.server.is_connected());
        let (first, others) = nodes.split_at(nodes.len().min(FIRST));
        let terms = Terms::by(deadline.min(Instant::now() + self.timeout));
        let mut survey = Survey::new(epoch);
        survey.query(first.iter().map(|node| view_of(node, terms)));
        let alone = deadline.min(Instant::now() + ALONE);
        if survey.is_good_by(alone).await {
            return survey.into_best();
        }
        let terms = Terms::by(deadline);
        survey.query(others.iter().map(|node| view_of(node, terms)));
        survey.query(self.seeds.iter().map(view_of_seed));
        survey.is_good_by(deadline).await;
        survey.into_best()
    }
}

fn view_of(node: &Arc<Node>, terms: Terms) -> Seen {
    let node = Arc::clone(node);
    Box::pin(async move {
        let replies = node.server.call(view::commands(), terms).await?;
        View::read(replies, &node.address.host)
    })
}
