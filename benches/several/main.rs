//! Several limits at once: what four cost beside one, and beside four that are acquired one after
//! the other, over Redis and in memory. And how long an interactive claim waits behind a backlog.
//!
//! `cargo bench -p tower-semaphore-benches --bench several`, about three minutes; `-- --quick` in
//! half a minute.

mod alone;
mod limits;
mod load;
mod memory;
mod priority;
mod rival;

use testing::redis::RedisServer;

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    alone::compare(&server.url()).await;
    load::compare(&server.url(), load::Accounts::One).await;
    load::compare(&server.url(), load::Accounts::Each).await;
    memory::compare();
    priority::compare(&server.url()).await;
}
