//! A connection as a cluster's client gives it: each command goes to the node of its key, and a
//! node may be dead.

use redis::{
    Arg, Cmd, Pipeline, RedisFuture, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use std::{
    fmt::Display,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use testing::{
    redis::{RedisServer, slot},
    stores::connection,
};
use tokio::time::sleep;

/// The first of the slots of the second node. A key of the store itself, `semaphore:clock`, is there.
const MIDDLE: u16 = 8_192;

/// Two nodes, with half of the slots each.
#[derive(Clone)]
pub(crate) struct Nodes {
    first: MultiplexedConnection,
    other: MultiplexedConnection,
    /// The second node answers nothing.
    pub(crate) dead: Arc<AtomicBool>,
}

impl Nodes {
    pub(crate) async fn connect(first: &RedisServer, other: &RedisServer) -> Self {
        Self {
            first: connection(&first.url()).await,
            other: connection(&other.url()).await,
            dead: Arc::default(),
        }
    }
}

/// Names for keys on the first node, or on the other, that begin alike.
pub(crate) fn keys(is_on_other: bool, prefix: impl Display) -> impl Iterator<Item = String> {
    let names = (0..).map(move |number| format!("{prefix}-{number}"));
    names.filter(move |name| {
        is_of_other(format!("semaphore:{{concurrency:{name}}}:held").as_bytes()) == is_on_other
    })
}

fn is_of_other(key: &[u8]) -> bool {
    slot(key) >= MIDDLE
}

/// Behind the script and the count of keys.
fn first_key(command: &Cmd) -> Option<&[u8]> {
    match command.args_iter().nth(3)? {
        Arg::Simple(key) => Some(key),
        _ => None,
    }
}

impl ConnectionLike for Nodes {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let is_other = first_key(command).is_some_and(is_of_other);
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
