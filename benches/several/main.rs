//! Several limits at once: the cost of four limits compared with one, and with four that are acquired one after
//! another, over Redis and in memory. Also the wait of an interactive claim behind a backlog.
//!
//! `cargo bench -p tower-semaphore-benches --bench several` takes about three minutes, with `-- --quick` half a minute.

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
