//! A whole request: its future, its response, and its body to the end.

use crate::{
    measure::{Bench, Estimate},
    rival::{Dash, Rival},
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use testing::bench::table::{Table, figure};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer as TowerLayer};
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};

const LIMIT: u32 = 100;

/// The innermost service, which answers at once.
#[derive(Clone)]
struct Hello;

impl Service<Request<String>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        std::future::ready(Ok(Response::new(Full::from("hello"))))
    }
}

/// The hand-written limit: a permit of [`Dash`], held until the response's head.
#[derive(Clone)]
struct ByHand(Hello, Dash);

impl Service<Request<String>> for ByHand {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let account = request.headers()["x-account-id"].to_str();
        let permit = self.1.take(account.expect("it is text"), LIMIT);
        let answer = self.0.call(request);
        Box::pin(async move {
            let _permit = permit.expect("the limit is high");
            answer.await
        })
    }
}

pub(crate) fn compare(bench: &mut Bench) {
    let runtime = runtime();
    let limit =
        ConcurrencyLimitLayer::new(LIMIT, key::header("x-account-id"), MemorySemaphore::new());
    let ours = limit.layer(Hello);
    let tower = TowerLayer::new(LIMIT as usize).layer(Hello);
    let by_hand = ByHand(Hello, Dash::default());

    let none = |count| runtime.block_on(requests(&Hello, count));
    let tower = |count| runtime.block_on(requests(&tower, count));
    let by_hand = |count| runtime.block_on(requests(&by_hand, count));
    let ours = |count| runtime.block_on(requests(&ours, count));
    let rows = [
        ("no layer", bench.compare(id("none"), none, by_hand)),
        ("tower::limit", bench.compare(id("tower"), tower, by_hand)),
        (
            "DashMap + tokio, by hand",
            bench.compare(id("by hand"), by_hand, by_hand),
        ),
        (
            "ConcurrencyLimitLayer",
            bench.compare(id("layer"), ours, by_hand),
        ),
    ];
    report(&rows);
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime starts")
}

fn id(name: &str) -> [&str; 3] {
    ["request", name, "one thread"]
}

/// Compares every row with the hand-written limit. The comparison of that limit with itself shows the noise.
fn report(rows: &[(&str, Option<(Estimate, f64)>)]) {
    // Criterion's filter may leave the first row out. Then nothing can be compared.
    let Some((_, Some((none, _)))) = rows.first() else {
        return;
    };
    let title = "A request through the layer, one thread, ns";
    let mut table = Table::new(title, &["service", "ns", "more than none", "× by hand"]);
    for (name, figures) in rows {
        if let Some((own, ratio)) = figures {
            let cells = [*own, own - none, *ratio].map(figure);
            table.row([(*name).to_owned()].into_iter().chain(cells));
        }
    }
    println!("{table}");
}

/// The time for `count` requests, each to the end of its response.
async fn requests<S, B>(service: &S, count: u64) -> Duration
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let accounts: Vec<String> = (0..1_000)
        .map(|number| format!("account-{number}"))
        .collect();
    let start = Instant::now();
    for account in accounts.iter().cycle().take(count as usize) {
        let request = Request::builder()
            .header("x-account-id", account.as_str())
            .body(String::new());
        let request = request.expect("the header is valid");
        let Ok(response) = service.clone().oneshot(request).await;
        let body = response
            .into_body()
            .collect()
            .await
            .expect("the body ends well");
        assert_eq!(body.to_bytes().len(), 5);
    }
    start.elapsed()
}
