//! One server: a connection for each runtime that uses the store, which reconnects by itself.
//!
//! A connection is driven by the runtime that made it: if that ends, or its workers are blocked,
//! nothing is sent. So a claim travels over its own runtime's connection, which is driven as long
//! as the claim itself is, and refreshes and releases over that of the keeper's thread. No
//! runtime's fate touches the others.

use super::{
    address::Place,
    connection::Replies,
    contract::{Servers, Terms, Transport},
    endpoint::Endpoint,
    link::Link,
    per_runtime::PerRuntime,
    sentinel::Sentinels,
};
use crate::{redis::error::Error, semaphore::BoxFuture};
use redis::{Client, Cmd};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// See the module docs.
pub(in crate::redis) struct Server {
    endpoint: Arc<dyn Endpoint>,
    timeout: Duration,
    links: PerRuntime<Link>,
}

impl Server {
    /// A server that is connected to once it is needed.
    pub(in crate::redis) fn new(client: Client, timeout: Duration) -> Self {
        Self::at(Arc::new(client), timeout)
    }

    /// The primary that Sentinels name.
    pub(in crate::redis) fn of_sentinels(sentinels: Arc<Sentinels>, timeout: Duration) -> Self {
        Self::at(sentinels, timeout)
    }

    fn at(endpoint: Arc<dyn Endpoint>, timeout: Duration) -> Self {
        Self {
            endpoint,
            timeout,
            links: PerRuntime::new(),
        }
    }

    /// Whether this runtime has a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.link().is_connected()
    }

    /// The same, and makes one if there is none.
    pub(super) fn connects(&self) -> bool {
        self.link().connects()
    }

    /// Waits for a connection of this runtime, so that a wrong address is found at the start.
    pub(in crate::redis) async fn connected(&self, deadline: Instant) -> Result<(), Error> {
        self.link().connection(deadline).await.map(drop)
    }

    /// Sends commands. As many replies, in their order.
    pub(super) async fn call(&self, commands: Vec<Cmd>, terms: Terms) -> Result<Replies, Error> {
        self.link().send(commands, terms).await
    }

    /// The link of this runtime.
    fn link(&self) -> Arc<Link> {
        self.links
            .get_or_make(|runtime| Link::new(Arc::clone(&self.endpoint), self.timeout, runtime))
    }
}

impl Transport for Server {
    fn ready(&self, _: &str, deadline: Instant) -> Option<BoxFuture<Result<(), Error>>> {
        let link = self.link();
        if link.is_connected() {
            return None;
        }
        Some(Box::pin(async move {
            link.connection(deadline).await.map(drop)
        }))
    }

    fn is_connected(&self, _: &str) -> bool {
        self.connects()
    }

    fn send(&self, commands: Vec<Cmd>, terms: Terms) -> BoxFuture<Result<Replies, Error>> {
        let link = self.link();
        Box::pin(async move { link.send(commands, terms).await })
    }

    fn is_one_server(&self) -> bool {
        true
    }

    fn place(&self) -> Place {
        self.endpoint.place()
    }

    fn server_of(&self, _: &str) -> Option<usize> {
        Some(0)
    }

    fn servers(self: Arc<Self>) -> Option<Servers> {
        Some(Servers::from([(String::new(), self as _)]))
    }

    fn publisher(&self) -> Option<BoxFuture<Result<Client, Error>>> {
        Some(Arc::clone(&self.endpoint).client())
    }

    fn is_publisher(&self, client: &Client) -> bool {
        self.endpoint.is_current(client)
    }

    fn watch(self: Arc<Self>) -> BoxFuture<()> {
        Arc::clone(&self.endpoint).watch()
    }
}
