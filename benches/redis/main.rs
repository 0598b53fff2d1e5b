//! The store in Redis beside its floor and the chapter's semaphores: speed, latency, and whether
//! the limit holds when clocks differ.
//!
//! `cargo bench --bench redis`, a few minutes; `-- --quick` in half a minute.

mod alone;
#[path = "../book/mod.rs"]
mod book;
mod load;
mod rival;
#[path = "../../tests/support/mod.rs"]
mod servers;
mod skew;
mod speed;
#[path = "../support/mod.rs"]
mod support;

use servers::redis::RedisServer;

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    alone::compare(&server.url()).await;
    speed::compare(&server.url(), speed::Keys::One).await;
    speed::compare(&server.url(), speed::Keys::Each).await;
    skew::compare(&server.url()).await;
}
