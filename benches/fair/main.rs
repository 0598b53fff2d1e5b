//! Fair shares within one limit: how long a newcomer waits beside a crowd, what a tenant with longer holds gets, and what
//! flows cost. And a picture of each order.
//!
//! `cargo bench -p tower-semaphore-benches --bench fair`, about two minutes; `-- --quick` in half a minute.

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
    // A thousand claims at a moment are no failure of the store.
    let builder = builder.timeout(Duration::from_secs(3));
    builder.connect(url).await.expect("the server is there")
}
