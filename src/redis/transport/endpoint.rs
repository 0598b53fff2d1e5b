//! Where the connections to one server go.

use super::connection::Connection;
use crate::semaphore::BoxFuture;
use redis::{Client, RedisError};
use std::{future::pending, sync::Arc};

/// A server with a fixed address, or the primary that Sentinels name.
pub(super) trait Endpoint: Send + Sync + 'static {
    /// Finds the server.
    fn client(self: Arc<Self>) -> BoxFuture<Result<Client, RedisError>>;

    /// Makes a connection that is known to be of use.
    fn connect(self: Arc<Self>) -> BoxFuture<Result<Connection, RedisError>>;

    /// Whether connections of this client go to the right server, as far as is known.
    fn is_current(&self, client: &Client) -> bool;

    /// Waits until connections belong to another server than before.
    fn moved(self: Arc<Self>) -> BoxFuture<()>;
}

impl Endpoint for Client {
    fn client(self: Arc<Self>) -> BoxFuture<Result<Client, RedisError>> {
        Box::pin(async move { Ok(Client::clone(&self)) })
    }

    fn connect(self: Arc<Self>) -> BoxFuture<Result<Connection, RedisError>> {
        Box::pin(async move { Connection::connect(&self).await })
    }

    fn is_current(&self, _: &Client) -> bool {
        true
    }

    fn moved(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(pending())
    }
}
