//! Queries nodes for their views, until one is good: a node that is cut off knows no new epoch.

use super::{
    slot_map::Node,
    view::{self, View},
};
use crate::{
    redis::{
        error::Error,
        transport::{
            address::Address,
            connection::{Connection, timed_out},
            contract::Terms,
        },
    },
    semaphore::BoxFuture,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Client;
use std::{sync::Arc, time::Instant};
use tokio::time::timeout_at;

/// What a node sees, once it has answered.
type Seen = BoxFuture<Result<View, Error>>;

/// Queries that run, and the best view so far.
pub(super) struct Survey {
    views: FuturesUnordered<Seen>,
    pub(super) best: Result<View, Error>,
    /// The latest that is known.
    epoch: u64,
}

impl Survey {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            views: FuturesUnordered::new(),
            best: Err(Error::Unavailable(timed_out())),
            epoch,
        }
    }

    /// Queries more nodes, beside those that have not answered yet.
    pub(super) fn query(&mut self, nodes: impl Iterator<Item = Seen>) {
        self.views.extend(nodes);
    }

    /// Waits until a view is good, or all have answered, or until then. Returns whether one is good.
    pub(super) async fn is_good_by(&mut self, deadline: Instant) -> bool {
        while let Ok(Some(view)) = timeout_at(deadline.into(), self.views.next()).await {
            let best = std::mem::replace(&mut self.best, Err(Error::Reply));
            self.best = better(best, view);
            let is_good = |best: &View| best.is_ok && best.epoch >= self.epoch;
            if self.best.as_ref().is_ok_and(is_good) {
                return true;
            }
        }
        false
    }
}

pub(super) fn view_of(node: &Arc<Node>, terms: Terms) -> Seen {
    let node = Arc::clone(node);
    Box::pin(async move {
        let replies = node.server.call(view::commands(), terms).await?;
        View::read(replies, &node.address.host)
    })
}

/// Over a connection that ends with the call: a seed may be the name of all nodes together.
pub(super) fn view_of_seed(seed: &Client) -> Seen {
    let seed = seed.clone();
    Box::pin(async move {
        let connection = Connection::connect(&seed).await;
        let connection = connection.map_err(Error::Unavailable)?;
        let replies = connection.call(view::commands()).await;
        let address = Address::of(seed.get_connection_info()).ok_or(Error::Reply)?;
        View::read(replies, &address.host)
    })
}

/// The newer view of a node that is not cut off; of two errors the one that says more.
fn better(first: Result<View, Error>, second: Result<View, Error>) -> Result<View, Error> {
    match (&first, &second) {
        (Ok(one), Ok(other)) if (one.is_ok, one.epoch) >= (other.is_ok, other.epoch) => first,
        (Ok(_) | Err(Error::Redis(_)), Err(_)) => first,
        _ => second,
    }
}
