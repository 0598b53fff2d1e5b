//! A connection that was handed in: of any kind, a cluster's too.

use super::Link;
use crate::{redis::error::Error, semaphore::BoxFuture};
use futures_util::future::join_all;
use redis::{Cmd, Value, aio::ConnectionLike};

/// A connection of the user's, cloned for each call.
pub(in crate::redis) struct Handed<C>(pub(in crate::redis) C);

impl<C> Link for Handed<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    /// One by one, side by side: a cluster sends a pipeline to one node only.
    fn send(&self, commands: Vec<Cmd>) -> BoxFuture<Vec<Result<Value, Error>>> {
        let connection = self.0.clone();
        let calls = commands
            .into_iter()
            .map(move |command| call(connection.clone(), command));
        Box::pin(join_all(calls))
    }

    fn is_one_server(&self) -> bool {
        false
    }
}

async fn call<C: ConnectionLike>(mut connection: C, command: Cmd) -> Result<Value, Error> {
    connection
        .req_packed_command(&command)
        .await
        .map_err(Error::Redis)
}
