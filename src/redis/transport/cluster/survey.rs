//! Queries nodes for their views, until one is good: a node that is cut off knows no new epoch.

use super::view::{self, View};
use crate::{
    redis::{
        error::Error,
        transport::{
            address::Address,
            attempt::{self, Unfit},
            connection::timed_out,
        },
    },
    semaphore::{BoxFuture, timer::timeout_at},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Client;
use std::time::Instant;

/// What a node sees, once it has answered.
pub(super) type Seen = BoxFuture<Result<View, Error>>;

/// Queries that run, and the best view so far.
pub(super) struct Survey {
    views: FuturesUnordered<Seen>,
    /// `None` before any node has answered.
    best: Option<Result<View, Error>>,
    /// The latest that is known.
    epoch: u64,
}

impl Survey {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            views: FuturesUnordered::new(),
            best: None,
            epoch,
        }
    }

    /// Queries more nodes, beside those that have not answered yet.
    pub(super) fn query(&mut self, nodes: impl Iterator<Item = Seen>) {
        self.views.extend(nodes);
    }

    /// Waits until a view is good, or all have answered, or until then. Returns whether one is good.
    pub(super) async fn is_good_by(&mut self, deadline: Instant) -> bool {
        loop {
            let (view, is_last) = match timeout_at(deadline, self.views.next()).await {
                Ok(Some(view)) => (view, false),
                Err(late) if late.is_early => (Err(Error::PausedClock), true),
                Ok(None) | Err(_) => return false,
            };
            let best = match self.best.take() {
                Some(best) => better(best, view),
                None => view,
            };
            let is_good = |best: &View| best.is_ok && best.epoch >= self.epoch;
            let is_enough = best.as_ref().is_ok_and(is_good);
            self.best = Some(best);
            if is_last || is_enough {
                return !is_last;
            }
        }
    }

    /// The best view, or why there is none: while others might have one, because they have not answered.
    pub(super) fn into_best(self) -> Result<View, Error> {
        match self.best {
            Some(Err(error)) if self.views.is_empty() || matches!(error, Error::PausedClock) => {
                Err(error)
            }
            Some(Ok(view)) => Ok(view),
            _ => Err(timed_out()),
        }
    }
}

/// Over a connection that ends with the call: a seed may be the name of all nodes together.
pub(super) fn view_of_seed(seed: &Client) -> Seen {
    let seed = seed.clone();
    Box::pin(async move {
        let connection = attempt::connect(&seed).await?;
        let replies = connection.call(view::commands()).await;
        let address = Address::of(seed.get_connection_info()).ok_or(Error::Reply)?;
        View::read(replies, &address.host)
    })
}

/// The newer view of a node that is not cut off; of two errors the one that may pass.
fn better(first: Result<View, Error>, second: Result<View, Error>) -> Result<View, Error> {
    match (&first, &second) {
        (Ok(one), Ok(other)) if (one.is_ok, one.epoch) >= (other.is_ok, other.epoch) => first,
        (Ok(_), Err(_)) => first,
        (Err(error), Err(_)) if may_pass(error) => first,
        _ => second,
    }
}

fn may_pass(error: &Error) -> bool {
    let is_unfit = |error| Unfit::of(error).is_some();
    match error {
        Error::PausedClock => true,
        Error::Unavailable(error) if is_unfit(error) => false,
        error => error.is_unavailable() || error.is_moving(),
    }
}
