//! The app: alone, so that nginx can limit it, or under the layer.

use crate::BoxError;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    response::{IntoResponse, Response},
    routing::get,
};
use futures_util::stream::{self, StreamExt};
use std::{
    convert::Infallible,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use testing::in_flight::InFlight;
use tokio::{
    net::TcpListener,
    time::{Instant, sleep_until},
};
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, RedisSemaphore, Semaphore, key};

const LIMIT: u32 = 5;
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves on a free port: without a limit (`none`), in `memory`, or over the Redis at a URL.
pub(crate) async fn serve(store: &str) -> Result<(), BoxError> {
    let seen = Seen::default();
    let routes = routes().with_state(seen.clone());
    let app = match store {
        "none" => routes,
        "memory" => limited(routes, MemorySemaphore::new()),
        url => limited(routes, RedisSemaphore::connect(url).await?),
    };
    // Added after the layer, so that it needs no permit.
    let app = app.route("/most", get(async move || seen.witness.most().to_string()));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("listening {}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

fn routes() -> Router<Seen> {
    Router::new()
        .route("/", get(async || "hello"))
        .route("/stream", get(stream))
        .route("/open", get(open))
}

/// Serves all routes twice: under a limit that refuses the sixth request, and under a limit that lets it wait.
fn limited(routes: Router, semaphore: impl Semaphore) -> Router {
    let limit = ConcurrencyLimitLayer::new(LIMIT, key::header("x-account-id"), semaphore);
    let queued = routes.clone().layer(limit.clone().with_wait(PATIENCE));
    routes.layer(limit).nest("/queue", queued)
}

/// A body of ten chunks in 100 ms, and a header with its position in the order of starts.
async fn stream(State(seen): State<Seen>) -> impl IntoResponse {
    let order = seen.next();
    let first = (seen.witness.begin(), Instant::now(), 1..=10_u32);
    let chunks = stream::unfold(first, async |(inside, start, mut left)| {
        let number = left.next()?;
        sleep_until(start + Duration::from_millis(10) * number).await;
        let chunk = Bytes::from_static(b"a chunk\n");
        Some((Ok::<_, Infallible>(chunk), (inside, start, left)))
    });
    ([("x-order", order)], Body::from_stream(chunks))
}

/// A body that begins and never ends.
async fn open() -> Response {
    let first = stream::iter([Ok::<_, Infallible>("begun\n")]);
    Response::new(Body::from_stream(first.chain(stream::pending())))
}

/// The app's own observations of its streams.
#[derive(Clone, Default)]
struct Seen {
    /// The number of streams that have begun.
    begun: Arc<AtomicUsize>,
    /// Counts the streams in flight.
    witness: InFlight,
}

impl Seen {
    fn next(&self) -> String {
        self.begun.fetch_add(1, SeqCst).to_string()
    }
}
