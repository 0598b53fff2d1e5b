//! The queue: how soon the next waiter is granted, in which order, with how many commands, and how long a grant takes
//! when many claims wait.
//!
//! `cargo bench -p tower-semaphore-benches --bench queue` takes about a minute, with `-- --quick` twenty seconds.

mod drain;
mod order;
mod wake;

use testing::redis::RedisServer;

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    order::compare(&server).await;
    wake::compare(&server.url()).await;
    drain::compare(&server.url()).await;
}
