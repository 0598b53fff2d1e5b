//! The line: how soon the next is let in, in which order, with how many commands, and how long a
//! grant takes when many wait.
//!
//! `cargo bench --bench line`, about a minute; `-- --quick` in twenty seconds.

mod crowd;
mod order;
#[path = "../../tests/support/mod.rs"]
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod wake;

use servers::redis::RedisServer;

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    order::compare(&server).await;
    wake::compare(&server.url()).await;
    crowd::compare(&server.url()).await;
}
