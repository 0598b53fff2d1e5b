//! A connection that the user supplied: of any kind, a cluster's too.

use super::contract::{Replies, Transport, checked};
use crate::{redis::error::Error, semaphore::BoxFuture};
use futures_util::future::join_all;
use redis::{Cmd, Value, aio::ConnectionLike};
use std::time::Instant;
use tokio::time::timeout_at;

/// A connection of the user's, cloned for each call. It is driven by the runtime that made it.
pub(in crate::redis) struct Supplied<C>(pub(in crate::redis) C);

impl<C> Transport for Supplied<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    /// One by one, side by side: a cluster sends a pipeline to one node only.
    fn send(&self, commands: Vec<Cmd>, deadline: Instant) -> BoxFuture<Result<Replies, Error>> {
        let connection = self.0.clone();
        Box::pin(async move {
            let start = Instant::now();
            let calls = commands
                .into_iter()
                .map(|command| call(connection.clone(), command));
            let replies = timeout_at(deadline.into(), join_all(calls)).await;
            replies.map_err(|_| Error::Timeout(start.elapsed()))
        })
    }

    fn is_one_server(&self) -> bool {
        false
    }
}

async fn call<C: ConnectionLike>(mut connection: C, command: Cmd) -> Result<Value, Error> {
    let reply = connection.req_packed_command(&command).await;
    reply.map_err(Error::Redis).and_then(checked)
}
