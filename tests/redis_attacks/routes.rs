//! A connection as a cluster's client gives it: each command goes to the node of its key, and a
//! node may be dead.

use crate::support::redis::RedisServer;
use redis::{
    Client, Cmd, Pipeline, RedisFuture, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::sleep;

/// Two nodes: keys that have `nodeb` in their names live on the second.
#[derive(Clone)]
pub(crate) struct Nodes {
    first: MultiplexedConnection,
    other: MultiplexedConnection,
    /// The second node answers nothing.
    pub(crate) dead: Arc<AtomicBool>,
    /// The key `PREFIXclock` lives on the second node.
    pub(crate) has_clock_on_other: bool,
}

impl Nodes {
    pub(crate) async fn connect(first: &RedisServer, other: &RedisServer) -> Self {
        Self {
            first: connect(first).await,
            other: connect(other).await,
            dead: Arc::default(),
            has_clock_on_other: false,
        }
    }
}

async fn connect(server: &RedisServer) -> MultiplexedConnection {
    let client = Client::open(server.url()).expect("a local URL");
    let connection = client.get_multiplexed_async_connection().await;
    connection.expect("the server answers")
}

impl ConnectionLike for Nodes {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let bytes = command.get_packed_command();
        let names = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        let is_other = names(b"nodeb") || self.has_clock_on_other && names(b"semaphore:clock");
        Box::pin(async move {
            if is_other && self.dead.load(Ordering::Relaxed) {
                return pending().await;
            }
            // So that several are in flight.
            sleep(Duration::from_millis(5)).await;
            match is_other {
                true => self.other.req_packed_command(command).await,
                false => self.first.req_packed_command(command).await,
            }
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(pending())
    }

    fn get_db(&self) -> i64 {
        0
    }
}
