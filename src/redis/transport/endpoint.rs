//! Where the connections to one server go.

use super::{address::Place, attempt, connection::Connection};
use crate::{redis::error::Error, semaphore::BoxFuture};
use redis::Client;
use std::{future::pending, sync::Arc};

/// A connection, and the [generation](Endpoint::generation) of the server at its other end.
pub(super) type Connected = (Connection, u64);

/// A server with a fixed address, or the primary that Sentinels name.
pub(super) trait Endpoint: Send + Sync + 'static {
    /// Finds the server.
    fn client(self: Arc<Self>) -> BoxFuture<Result<Client, Error>>;

    /// Makes a connection that is known to be of use.
    fn connect(self: Arc<Self>) -> BoxFuture<Result<Connected, Error>>;

    /// What the server is.
    fn place(&self) -> Place {
        Place::Url
    }

    /// Whether connections of this client go to the right server, as far as is known.
    fn is_current(&self, client: &Client) -> bool;

    /// Grows when another server takes the place of this one. A connection of an earlier generation
    /// must not be used, whoever has found that out.
    fn generation(&self) -> u64 {
        0
    }

    /// Watches whether another server takes the place of this one. Runs on the keeper's thread.
    fn watch(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(pending())
    }
}

impl Endpoint for Client {
    fn client(self: Arc<Self>) -> BoxFuture<Result<Client, Error>> {
        Box::pin(async move { Ok(Client::clone(&self)) })
    }

    fn connect(self: Arc<Self>) -> BoxFuture<Result<Connected, Error>> {
        Box::pin(async move { Ok((attempt::connect(&self).await?, 0)) })
    }

    fn is_current(&self, _: &Client) -> bool {
        true
    }
}
