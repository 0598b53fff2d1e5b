//! Limits that change: read by an extractor, in memory and over Redis, or set by an operator.

mod global;
mod load;
mod waiting;

use http::{Request, Response, request::Parts};
use std::{convert::Infallible, time::Duration};
use testing::stores::{Store, until_queued};
use tokio::{sync::watch::Receiver, task::JoinHandle};
use tower::{Service, ServiceExt};
use tower_semaphore::{Claim, ConcurrencyLimitLayer};

const BOUND: Duration = Duration::from_secs(20);

/// The layer from the docs: every request counts for ann, under the limit in force.
pub(crate) fn layer(
    limit: Receiver<u32>,
    store: Store,
) -> ConcurrencyLimitLayer<impl Fn(&Parts) -> Claim + Clone + use<>> {
    let live = move |_: &Parts| Claim::new("ann").with_limit(*limit.borrow());
    ConcurrencyLimitLayer::new(1, live, store)
}

pub(crate) fn request() -> Request<String> {
    Request::new(String::new())
}

/// Waits until one claim of ann waits in the queue.
pub(crate) async fn wait_until_queued(store: &Store) {
    until_queued(store, &Claim::new("ann").with_limit(1), 1, BOUND).await;
}

/// A request in a task. Its response holds the permit until it is dropped.
pub(crate) type Held<B> = JoinHandle<Response<B>>;

/// Spawns a request.
pub(crate) fn arrive<S, B>(service: &S) -> Held<B>
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
    S: Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    let service = service.clone();
    tokio::spawn(async move {
        let Ok(answer) = service.oneshot(request()).await;
        answer
    })
}
