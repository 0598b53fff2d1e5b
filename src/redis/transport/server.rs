//! One server, with a connection for each runtime that uses the store.
//!
//! A connection is driven by the runtime that made it: if that ends, or its workers are blocked,
//! nothing is sent. So a claim travels over its own runtime's connection, which is driven as long
//! as the claim itself is, and refreshes and releases over that of the keeper's thread. No
//! runtime's fate touches the others.

use super::{
    contract::{Replies, Transport},
    link::Link,
};
use crate::{redis::error::Error, semaphore::BoxFuture};
use parking_lot::RwLock;
use redis::{Client, Cmd};
use std::{
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Handle, Id},
    task::AbortHandle,
};

/// See the module docs.
pub(in crate::redis) struct Server {
    client: Client,
    timeout: Duration,
    links: RwLock<Vec<LinkOfRuntime>>,
}

struct LinkOfRuntime {
    runtime: Id,
    link: Arc<Link>,
    /// A task that ends with the runtime only.
    witness: AbortHandle,
}

impl Drop for LinkOfRuntime {
    fn drop(&mut self) {
        self.witness.abort();
    }
}

impl Server {
    /// Connects once, so that a wrong address is found at the start.
    pub(in crate::redis) async fn connect(
        client: Client,
        timeout: Duration,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let server = Self {
            client,
            timeout,
            links: RwLock::default(),
        };
        server.link().connected(deadline).await?;
        Ok(server)
    }

    /// The link of this runtime.
    fn link(&self) -> Arc<Link> {
        let runtime = Handle::current().id();
        let links = self.links.read();
        let own = links.iter().find(|link| link.runtime == runtime);
        if let Some(own) = own {
            return Arc::clone(&own.link);
        }
        drop(links);
        self.add_link(runtime)
    }

    /// Makes a link for a runtime, and forgets those of runtimes that have ended.
    #[cold]
    fn add_link(&self, runtime: Id) -> Arc<Link> {
        let mut links = self.links.write();
        links.retain(|link| !link.witness.is_finished());
        let own = links.iter().find(|link| link.runtime == runtime);
        if let Some(own) = own {
            return Arc::clone(&own.link);
        }
        let link = Arc::new(Link::new(self.client.clone(), self.timeout));
        links.push(LinkOfRuntime {
            runtime,
            link: Arc::clone(&link),
            witness: tokio::spawn(pending::<()>()).abort_handle(),
        });
        link
    }
}

impl Transport for Server {
    fn ready(&self, deadline: Instant) -> Option<BoxFuture<Result<(), Error>>> {
        let link = self.link();
        if link.is_connected() {
            return None;
        }
        Some(Box::pin(
            async move { link.connected(deadline).await.map(drop) },
        ))
    }

    fn send(&self, commands: Vec<Cmd>, deadline: Instant) -> BoxFuture<Result<Replies, Error>> {
        let link = self.link();
        Box::pin(async move { link.send(commands, deadline).await })
    }

    fn is_one_server(&self) -> bool {
        true
    }
}
