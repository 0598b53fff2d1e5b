//! A whole request: its future, its response, its body to the end.

use crate::{
    rival::{Dash, Rival},
    support::{
        figures::{median, ratio},
        run::{bar, pick},
        table::{Table, figure},
    },
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
    time::Instant,
};
use tokio::runtime::Builder;
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer as TowerLayer};
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};

const LIMIT: u32 = 100;

/// The innermost service: an answer that is there at once.
#[derive(Clone)]
struct Hello;

impl Service<Request<()>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(Ok(Response::new(Full::from("hello"))))
    }
}

/// What one would write by hand: a permit of the map, held until the response's head.
#[derive(Clone)]
struct ByHand(Hello, Dash);

impl Service<Request<()>> for ByHand {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let account = request.headers()["x-account-id"].to_str();
        let permit = self.1.take(account.expect("it is text"), LIMIT);
        let answer = self.0.call(request);
        Box::pin(async move {
            let _permit = permit.expect("the limit is high");
            answer.await
        })
    }
}

pub(crate) fn compare() {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(rounds());
}

async fn rounds() {
    let rounds = pick(5, 15);
    let limit =
        ConcurrencyLimitLayer::new(LIMIT, key::header("x-account-id"), MemorySemaphore::new());
    let ours = limit.layer(Hello);
    let tower = TowerLayer::new(LIMIT as usize).layer(Hello);
    let by_hand = ByHand(Hello, Dash::default());
    let mut figures: [Vec<f64>; 4] = Default::default();
    let progress = bar("requests", rounds);
    for _ in 0..rounds {
        figures[0].push(request(&Hello).await);
        figures[1].push(request(&tower).await);
        figures[2].push(request(&by_hand).await);
        figures[3].push(request(&ours).await);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let names = [
        "no layer",
        "tower::limit",
        "DashMap + tokio, by hand",
        "ConcurrencyLimitLayer",
    ];
    let title = "A request through the layer, one thread, ns";
    let mut table = Table::new(title, &["service", "ns", "more than none", "× by hand"]);
    for (name, own) in names.iter().zip(&figures) {
        let more = median(own) - median(&figures[0]);
        let cells = [median(own), more, ratio(own, &figures[2])].map(figure);
        table.row([(*name).to_owned()].into_iter().chain(cells));
    }
    println!("{table}");
}

/// Nanoseconds from a request to the end of its response.
async fn request<S, B>(service: &S) -> f64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let count = pick(20_000, 200_000);
    let accounts: Vec<String> = (0..1_000)
        .map(|number| format!("account-{number}"))
        .collect();
    let start = Instant::now();
    for account in accounts.iter().cycle().take(count) {
        let request = Request::builder()
            .header("x-account-id", account.as_str())
            .body(());
        let request = request.expect("the header is valid");
        let Ok(response) = service.clone().oneshot(request).await;
        let body = response
            .into_body()
            .collect()
            .await
            .expect("the body ends well");
        assert_eq!(body.to_bytes().len(), 5);
    }
    start.elapsed().as_nanos() as f64 / count as f64
}
