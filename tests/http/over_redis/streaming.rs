//! A response whose body streams.

use bytes::Bytes;
use futures_util::{StreamExt, stream::BoxStream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use std::{convert::Infallible, error::Error, time::Duration};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{ConcurrencyLimitLayer, OnLost, Permit, RedisSemaphore, ResponseBody, key};

pub(crate) const BOUND: Duration = Duration::from_secs(10);

pub(crate) type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// A response that streams the rows its handler sends.
pub(crate) struct Streaming {
    rows: mpsc::UnboundedSender<Bytes>,
    pub(crate) permit: Permit,
    body: ResponseBody<Body>,
}

impl Streaming {
    /// Starts a response for the key `a`, whose limit is 1.
    pub(crate) async fn start(store: &RedisSemaphore, on_lost: OnLost) -> Self {
        let (sender, mut handled) = mpsc::unbounded_channel();
        let handler = service_fn(move |request: Request<String>| {
            let permit = request.extensions().get::<Permit>();
            let permit = permit.expect("the layer puts it there").clone();
            let (rows, body) = body();
            sender.send((rows, permit)).expect("the test listens");
            async { Ok::<_, Infallible>(Response::new(body)) }
        });
        let limit = ConcurrencyLimitLayer::new(1, key::fixed("a"), store.clone());
        let service = limit.with_on_lost(on_lost).layer(handler);
        let response = service
            .oneshot(Request::new(String::new()))
            .await
            .expect("infallible");
        assert_eq!(response.status(), StatusCode::OK);
        let (rows, permit) = handled.recv().await.expect("it was handled");
        Self {
            rows,
            permit,
            body: response.into_body(),
        }
    }

    /// The next row or error, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, Box<dyn Error + Send + Sync>>> {
        let frame = timeout(BOUND, self.body.frame()).await;
        let frame = frame.expect("the body moves")?;
        Some(frame.map(|frame| frame.into_data().expect("a row is data")))
    }

    /// Sends a row and asserts that it arrives.
    pub(crate) async fn assert_flows(&mut self) {
        self.rows.send("row".into()).expect("the body is there");
        let row = self.next().await.expect("it goes on");
        assert_eq!(row.expect("it is whole"), "row");
    }

    /// True once the inner body has been dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.rows.is_closed()
    }
}

/// A body, and the sender of its rows.
fn body() -> (mpsc::UnboundedSender<Bytes>, Body) {
    let (sender, rows) = mpsc::unbounded_channel();
    let frames = UnboundedReceiverStream::new(rows).map(|row| Ok(Frame::data(row)));
    (sender, StreamBody::new(frames.boxed()))
}
