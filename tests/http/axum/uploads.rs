//! Clients that send their request's body slowly.
//!
//! Promises: P21, P23.

use super::{
    client::{BOTH, Http},
    server::{BOUND, Server},
};
use axum::{Extension, Router, routing::post};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper_util::{client::legacy, rt::TokioExecutor};
use std::{convert::Infallible, sync::Arc, time::Duration};
use testing::{
    http_requests::{ACCOUNT, limit},
    in_flight::InFlight,
    ledger::Ledger,
    wait::eventually,
};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tower_semaphore::OnLost;

/// A client must send 1,024 bytes within this time to keep its permit.
const MAX_STALL: Duration = Duration::from_secs(2);

type Upload = StreamBody<ReceiverStream<Result<Frame<Bytes>, Infallible>>>;

/// A server whose handlers read request bodies, with a view of the permits in use.
struct Fixture {
    server: Server,
    ledger: Ledger,
    witness: InFlight,
    /// Lets the `late` handler start reading.
    late: Arc<Notify>,
}

/// Reads the whole body, counted by the witness, and answers with its length.
async fn whole(Extension(witness): Extension<InFlight>, body: axum::body::Body) -> String {
    let _inside = witness.begin();
    let body = body.collect().await.expect("it is whole");
    body.to_bytes().len().to_string()
}

/// Does the same as `whole`, but starts only when the test lets it.
async fn late(
    Extension(late): Extension<Arc<Notify>>,
    witness: Extension<InFlight>,
    body: axum::body::Body,
) -> String {
    late.notified().await;
    whole(witness, body).await
}

impl Fixture {
    async fn start(on_lost: OnLost) -> Self {
        let (ledger, witness, notify) = (Ledger::default(), InFlight::default(), Arc::default());
        let layer = limit(5, ledger.clone()).with_max_stall(MAX_STALL);
        let layer = layer.with_on_lost(on_lost);
        let reading = Router::new()
            .route("/whole", post(whole))
            .route("/late", post(late));
        let reading = reading.layer(Extension(witness.clone()));
        let reading = reading.layer(Extension(Arc::clone(&notify)));
        let server = Server::with_layers(|routes| routes.merge(reading).layer(layer));
        Self {
            server: server.await,
            ledger,
            witness,
            late: notify,
        }
    }

    /// Starts an upload as alice. The test sends the frames.
    fn upload(&self, http: Http, path: &str) -> (Sending, JoinHandle<Response<Incoming>>) {
        let (frames, body) = mpsc::channel(1);
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        let client = builder.http2_only(matches!(http, Http::Two));
        let client = client.build_http::<Upload>();
        let request = Request::post(format!("http://{}{path}", self.server.address));
        let body = StreamBody::new(ReceiverStream::new(body));
        let request = request
            .header(ACCOUNT, "alice")
            .body(body)
            .expect("a request");
        let answer = tokio::spawn(async move { client.request(request).await.expect("an answer") });
        (Sending(frames), answer)
    }

    fn returned(&self) -> u32 {
        self.ledger.page("alice").returned
    }

    /// The number of handlers that read now.
    fn inside(&self) -> usize {
        self.witness.restart();
        self.witness.most()
    }
}

struct Sending(mpsc::Sender<Result<Frame<Bytes>, Infallible>>);

impl Sending {
    /// Sends `length` bytes. Returns true while the client still accepts frames.
    async fn send(&self, length: usize) -> bool {
        let frame = Frame::data(vec![b'.'; length].into());
        self.0.send(Ok(frame)).await.is_ok()
    }
}

async fn answered(answer: JoinHandle<Response<Incoming>>) -> (StatusCode, Bytes) {
    let answer = timeout(BOUND, answer).await.expect("it is answered");
    let answer = answer.expect("no panic");
    let status = answer.status();
    (
        status,
        answer
            .into_body()
            .collect()
            .await
            .expect("it is whole")
            .to_bytes(),
    )
}

#[tokio::test]
async fn a_client_that_stalls_gets_503_and_its_handler_is_dropped() {
    for http in BOTH {
        let fixture = Fixture::start(OnLost::Abort).await;
        let (sending, answer) = fixture.upload(http, "/whole");
        assert!(sending.send(5_000).await);
        let (status, _) = answered(answer).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{http:?}");
        assert_eq!((fixture.returned(), fixture.inside()), (1, 0));
    }
}

#[tokio::test]
async fn a_client_that_sends_single_bytes_gets_503_and_its_handler_is_dropped() {
    for http in BOTH {
        let fixture = Fixture::start(OnLost::Abort).await;
        let (sending, answer) = fixture.upload(http, "/whole");
        let trickle = tokio::spawn(async move {
            while sending.send(1).await {
                sleep(MAX_STALL / 40).await;
            }
        });
        let (status, _) = answered(answer).await;
        trickle.abort();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{http:?}");
        assert_eq!((fixture.returned(), fixture.inside()), (1, 0));
    }
}

#[tokio::test]
async fn by_default_the_handler_of_a_stalled_client_goes_on_without_a_permit() {
    for http in BOTH {
        let fixture = Fixture::start(OnLost::Finish).await;
        let (sending, answer) = fixture.upload(http, "/whole");
        assert!(sending.send(1).await);
        let is_back = async || fixture.returned() == 1;
        eventually("the permit is returned", BOUND, is_back).await;
        assert_eq!(fixture.inside(), 1);
        assert!(sending.send(1).await);
        drop(sending);
        assert_eq!(answered(answer).await, (StatusCode::OK, "2".into()));
    }
}

#[tokio::test]
async fn a_client_that_is_slow_and_honest_keeps_its_permit() {
    for http in BOTH {
        let fixture = Fixture::start(OnLost::Abort).await;
        let (sending, answer) = fixture.upload(http, "/whole");
        let (end, mut sent) = (Instant::now() + 2 * MAX_STALL, 0);
        while Instant::now() < end {
            assert!(sending.send(1_500).await);
            sent += 1_500;
            sleep(MAX_STALL / 20).await;
        }
        assert_eq!(fixture.returned(), 0);
        drop(sending);
        assert_eq!(
            answered(answer).await,
            (StatusCode::OK, sent.to_string().into())
        );
    }
}

#[tokio::test]
async fn a_handler_that_does_not_read_keeps_its_permit() {
    for http in BOTH {
        let fixture = Fixture::start(OnLost::Abort).await;
        let (sending, answer) = fixture.upload(http, "/late");
        assert!(sending.send(1).await);
        sleep(2 * MAX_STALL).await;
        assert_eq!(fixture.returned(), 0);
        fixture.late.notify_one();
        drop(sending);
        assert_eq!(answered(answer).await, (StatusCode::OK, "1".into()));
    }
}
