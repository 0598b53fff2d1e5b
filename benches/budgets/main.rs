//! Budgets over Redis: the latency of an acquire, the lateness of waiters, and how much of a budget streams can use.
//!
//! `cargo bench -p tower-semaphore-benches --bench budgets` takes about five minutes, with `-- --quick` one minute.

mod alone;
mod late;
mod saturated;

use testing::redis::RedisServer;
use tower_semaphore::RedisSemaphore;

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url());
    let store = store.await.expect("the server is there");
    alone::compare(&store).await;
    late::measure(&store).await;
    saturated::measure(&server.url()).await;
}
