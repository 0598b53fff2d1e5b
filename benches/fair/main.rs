//! Fair shares within one limit: the wait of a newcomer behind a crowd, with a plot of the grants in each order of the
//! queue; the grants of a tenant with longer holds; and the cost of flows.
//!
//! `cargo bench -p tower-semaphore-benches --bench fair` takes about two minutes, with `-- --quick` half a minute.

mod cost;
mod crowd;
mod holds;
mod server;

use std::time::Duration;
use testing::redis::RedisServer;
use tower_semaphore::RedisSemaphore;

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    crowd::compare(&server.url()).await;
    holds::compare(&server.url()).await;
    cost::compare(&server.url()).await;
    server::compare(&server).await;
}

/// A store with room for thousands of waiters.
async fn store(url: &str) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().max_waiting_total(10_000);
    // The timeout tolerates a thousand claims at the same moment.
    let builder = builder.timeout(Duration::from_secs(3));
    builder.connect(url).await.expect("the server is there")
}
