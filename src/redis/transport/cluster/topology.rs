//! Finds out which node has which slots.
//!
//! The map is updated when a node has sent a command elsewhere, and when a node cannot be reached.
//! However many commands meet that, there is one update at a time, and a few in a second.

use super::{
    slot_map::{Node, SlotMap},
    view::{self, View},
};
use crate::redis::{
    error::Error,
    transport::{
        address::Address,
        connection::{Connection, timed_out},
        contract::Terms,
    },
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use redis::Client;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::Notify,
    time::{timeout, timeout_at},
};

/// The pause after an update.
const PAUSE: Duration = Duration::from_millis(200);

/// How long an update may take. One that has not ended then was on a runtime that has ended.
const LONGEST: Duration = Duration::from_secs(1);

/// Nodes that are queried at a time. The first good view counts.
const TOGETHER: usize = 3;

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

    /// The node at an address, which may be new.
    pub(super) fn find(&self, address: &Address) -> Option<Arc<Node>> {
        self.map.write().find(address)
    }

    /// Starts an update in the background, unless one runs or has just ended. Returns whether one runs.
    pub(super) fn start_update(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        match *state {
            State::Updating(since) if since.elapsed() < LONGEST => return true,
            State::Updated(at) if at.elapsed() < PAUSE => return false,
            _ => *state = State::Updating(Instant::now()),
        }
        let topology = Arc::clone(self);
        tokio::spawn(async move {
            // A failure is ignored: the next claim that needs it starts another update.
            let _ = timeout(LONGEST, topology.update()).await;
            *topology.state.lock() = State::Updated(Instant::now());
            topology.updated.notify_waiters();
        });
        true
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
            let _ = timeout_at(deadline.into(), updated).await;
        }
        self.node(slot).filter(|next| next.address != node.address)
    }

    /// Replaces the map by the best view that a node has.
    pub(super) async fn update(&self) -> Result<(), Error> {
        let view = self.best_view().await?;
        self.map.write().replace(&view);
        Ok(())
    }

    /// Queries nodes for their views, a few at a time, until one is good: a node that is cut off knows no
    /// new epoch. The best of them all, if none is.
    async fn best_view(&self) -> Result<View, Error> {
        let (epoch, mut nodes) = {
            let map = self.map.read();
            (map.epoch(), map.nodes().cloned().collect::<Vec<_>>())
        };
        nodes.sort_by_key(|node| !node.server.is_connected());
        let mut best = Err(Error::Unavailable(timed_out()));
        for some in nodes.chunks(TOGETHER) {
            let views = some.iter().map(|node| self.view_of(node));
            best = first_good(views, epoch, best).await;
            if is_good(&best, epoch) {
                return best;
            }
        }
        let views = self.seeds.iter().map(view_of_seed);
        first_good(views, epoch, best).await
    }

    async fn view_of(&self, node: &Node) -> Result<View, Error> {
        let terms = Terms::by(Instant::now() + self.timeout);
        let replies = node.server.call(view::commands(), terms).await?;
        View::read(replies, &node.address.host)
    }
}

/// Over a connection that ends with the call: a seed may be the name of all nodes together.
async fn view_of_seed(seed: &Client) -> Result<View, Error> {
    let connection = Connection::connect(seed)
        .await
        .map_err(Error::Unavailable)?;
    let replies = connection.call(view::commands()).await;
    let address = Address::of(seed.get_connection_info()).ok_or(Error::Reply)?;
    View::read(replies, &address.host)
}

/// The first of these that is good, or else the best of them and `best`.
async fn first_good<F>(
    views: impl Iterator<Item = F>,
    epoch: u64,
    mut best: Result<View, Error>,
) -> Result<View, Error>
where
    F: Future<Output = Result<View, Error>>,
{
    let mut views: FuturesUnordered<_> = views.collect();
    while let Some(view) = views.next().await {
        best = better(best, view);
        if is_good(&best, epoch) {
            return best;
        }
    }
    best
}

fn is_good(view: &Result<View, Error>, epoch: u64) -> bool {
    matches!(view, Ok(view) if view.is_ok && view.epoch >= epoch)
}

/// The newer view of a node that is not cut off; of two errors the one that says more.
fn better(first: Result<View, Error>, second: Result<View, Error>) -> Result<View, Error> {
    match (&first, &second) {
        (Ok(one), Ok(other)) if (one.is_ok, one.epoch) >= (other.is_ok, other.epoch) => first,
        (Ok(_) | Err(Error::Redis(_)), Err(_)) => first,
        _ => second,
    }
}
