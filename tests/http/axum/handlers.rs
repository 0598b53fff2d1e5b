//! The handlers of the test service, one for each path.

use axum::{
    Router,
    body::Body,
    extract::{Extension, State},
    http::StatusCode,
    routing::get,
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use std::{future::pending, io};
use testing::{
    in_flight::{InFlight, One},
    script::{
        Script,
        Step::{Data, Fail, Panic, Trailers},
    },
};
use tokio::{sync::mpsc, task::yield_now};
use tokio_stream::wrappers::ReceiverStream;

/// The sender that feeds a response's body.
pub(crate) type Feed = mpsc::Sender<io::Result<Bytes>>;

/// Handlers send their bodies' feeds here.
pub(crate) type Feeds = mpsc::UnboundedSender<Feed>;

pub(crate) fn routes(feeds: Feeds, witness: InFlight) -> Router {
    let scripted = |script: Script| get(move || async { Body::new(script) });
    Router::new()
        .route("/whole", get("all of it"))
        .route("/empty", get(""))
        .route("/no-content", get(StatusCode::NO_CONTENT))
        .route("/not-modified", get(StatusCode::NOT_MODIFIED))
        .route(
            "/trailers",
            scripted(Script::exact([Data("one"), Trailers])),
        )
        .route("/fail", scripted(Script::stream([Data("one"), Fail])))
        .route("/panic", get(panicking))
        .route(
            "/panic-in-body",
            scripted(Script::stream([Data("one"), Panic])),
        )
        .route("/never", get(pending::<()>))
        .route("/stream", get(streaming))
        .route("/endless", get(endless))
        .route("/witnessed", get(witnessed))
        .layer(Extension(witness))
        .with_state(feeds)
}

async fn panicking() -> StatusCode {
    yield_now().await;
    panic!("on purpose")
}

/// A body whose frames come from the test.
async fn streaming(State(feeds): State<Feeds>) -> Body {
    let (feed, frames) = mpsc::channel(8);
    feeds.send(feed).expect("a test that runs");
    Body::from_stream(ReceiverStream::new(frames))
}

/// A body that never ends. A client that does not read it applies backpressure.
async fn endless() -> Body {
    let chunk = Bytes::from_static(&[b'.'; 16 * 1024]);
    Body::from_stream(stream::repeat_with(move || {
        Ok::<_, io::Error>(chunk.clone())
    }))
}

/// The witness counts this request from the handler's start to the body's last frame.
async fn witnessed(Extension(witness): Extension<InFlight>) -> Body {
    let inside = witness.begin();
    yield_now().await;
    Body::from_stream(frames(inside, 5))
}

fn frames(inside: One, count: usize) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold((inside, count), |(inside, left)| async move {
        yield_now().await;
        let frame = Ok(Bytes::from_static(b"frame"));
        (left > 0).then(|| (frame, (inside, left - 1)))
    })
}
