//! One run of a service under a limit. The feature `metrics` and a recorder are on or off: `benches/metrics/run.sh`
//! builds both programs and runs them alternately.
//!
//! Prints for each store the requests per second and the microseconds of processor time per request, including the time
//! of the clients.

use axum::{Router, routing::get};
use std::{
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    process,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use testing::{
    bench::{closed_loop, proc::cpu},
    redis::RedisServer,
};
use tokio::net::TcpListener;
use tower_semaphore::{
    Claim, ConcurrencyLimitLayer, MemorySemaphore, RedisSemaphore, Semaphore, key,
};

const CONNECTIONS: usize = 64;
const WARM_UP: Duration = Duration::from_millis(300);
const SPAN: Duration = Duration::from_millis(2_000);
const PAIRS: u32 = 1_000_000;

#[tokio::main]
async fn main() {
    install_recorder();
    let server = RedisServer::start();
    let redis = RedisSemaphore::connect(server.url()).await;
    let redis = redis.expect("the server is there");
    requests("memory", MemorySemaphore::new()).await;
    requests("redis", redis).await;
    pairs();
}

/// With the feature, everything is counted as in a real service.
#[cfg(feature = "metrics")]
fn install_recorder() {
    use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
    use tower_semaphore::observe::SECONDS;

    let buckets = Matcher::Prefix("tower_semaphore".into());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(buckets, SECONDS);
    let recorder = builder.and_then(PrometheusBuilder::install_recorder);
    let handle = recorder.expect("there is no other");
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            handle.run_upkeep();
        }
    });
}

#[cfg(not(feature = "metrics"))]
fn install_recorder() {}

async fn requests(store: &str, semaphore: impl Semaphore) {
    let address = serve(semaphore).await;
    closed_loop::run(address, CONNECTIONS, WARM_UP).await;
    let before = cpu(process::id());
    let outcome = closed_loop::run(address, CONNECTIONS, SPAN).await;
    let used = cpu(process::id()) - before;
    let requests = outcome.latencies.count() as f64;
    assert_eq!(outcome.refused, 0);
    let each = used.as_secs_f64() * 1e6 / requests;
    println!("{store} {:.0} {each:.3}", outcome.rate);
}

async fn serve(semaphore: impl Semaphore) -> SocketAddr {
    let limit = ConcurrencyLimitLayer::new(1_000, key::header("x-account-id"), semaphore);
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Measures only acquire and release, one after another. Prints pairs per second and nanoseconds per pair.
fn pairs() {
    let store = MemorySemaphore::new();
    let claim = Claim::new("account-42").with_limit(5);
    let start = Instant::now();
    for _ in 0..PAIRS {
        let acquire = pin!(store.acquire(claim.clone()));
        let answer = acquire.poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(answer, Poll::Ready(Ok(_))));
    }
    let each = start.elapsed() / PAIRS;
    println!(
        "pair {:.0} {}",
        1e9 / each.as_nanos() as f64,
        each.as_nanos()
    );
}
