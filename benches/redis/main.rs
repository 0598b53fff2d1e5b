//! The store in Redis compared with its lower bound and with the semaphores of *Redis in Action*, chapter 6: speed,
//! latency, and whether the limit holds when clocks differ.
//!
//! `cargo bench -p tower-semaphore-benches --bench redis` takes a few minutes, with `-- --quick` half a minute. With
//! `-- limits` it measures only the cost of limits that operators have set.

mod alone;
mod limits;
mod load;
mod rival;
mod skew;
mod speed;

use std::env::args;
use testing::redis::RedisServer;

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    if args().any(|arg| arg == "limits") {
        return limits::compare(&server.url()).await;
    }
    alone::compare(server.url()).await;
    speed::compare(&server.url(), speed::Keys::One).await;
    speed::compare(&server.url(), speed::Keys::Each).await;
    skew::compare(&server.url()).await;
}
