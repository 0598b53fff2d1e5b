//! What a store is on: one server, the primary that Sentinels name, the nodes of a cluster, or whatever a supplied
//! connection leads to. This trait is all in which they differ.

use super::{address::Place, cluster::slot_of, connection::Replies, direct::Direct};
use crate::{redis::error::Error, semaphore::BoxFuture};
use redis::{Client, Cmd, cmd, from_redis_value};
use std::{
    future::pending,
    ops::Range,
    sync::{Arc, OnceLock},
};
use tokio::{
    runtime::{Handle, Id},
    select,
    sync::watch,
};

/// Which slots are on which servers.
pub(in crate::redis) type Slots = Vec<(Range<usize>, usize)>;

/// Where servers are, by their numbers, and connections to them.
pub(in crate::redis) trait Topology: Send + Sync + 'static {
    /// What its servers are.
    fn place(&self) -> Place;

    /// Those that have any slots, as far as is known.
    fn servers(&self) -> Vec<usize> {
        vec![0]
    }

    /// Whether a command may name keys of one slot only.
    fn has_slots(&self) -> bool {
        false
    }

    /// The hash slot of a key, where that matters.
    fn slot(&self, key: &str) -> u16 {
        match self.has_slots() {
            true => slot_of(key.as_bytes()) as u16,
            false => 0,
        }
    }

    /// A key in each part of all slots, where each part counts as a server.
    fn parts(&self, _prefix: &str) -> Vec<String> {
        Vec::new()
    }

    /// Where a server listens, for people.
    fn address(&self, server: usize) -> String;

    /// Connects the current runtime to a server.
    fn connect(self: Arc<Self>, server: usize) -> BoxFuture<Result<Line, Error>>;

    /// The map of slots, as far as it is known.
    fn known_slots(&self) -> Slots {
        Vec::new()
    }

    /// The map of slots, once it is another than the one of this version. Somebody on the keeper's thread always waits
    /// for it, so it also does what has to run beside calls.
    fn slots(self: Arc<Self>, _version: u64) -> BoxFuture<(u64, Slots)> {
        Box::pin(pending())
    }

    /// The server at an address that another one has named. `None`: its word does not count.
    fn server_at(&self, _address: &str, _by: usize) -> Option<usize> {
        None
    }

    /// Something has failed, perhaps because slots are elsewhere by now.
    fn failed(&self, _error: &Error) {}
}

/// A connection of a runtime to a server.
pub(in crate::redis) enum Line {
    Own(Arc<Own>),
    Supplied(Supplied),
}

/// One that this store has made.
pub(in crate::redis) struct Own {
    pub(super) direct: Direct,
    pub(super) client: Client,
    /// Which drives it.
    pub(super) runtime: Id,
    /// Changes when the connection must not be used any more, because another server has taken the place of this one.
    pub(super) replaced: Option<watch::Receiver<u64>>,
}

/// One that was supplied: it sends commands side by side.
pub(in crate::redis) type Supplied = Box<dyn Fn(Vec<Cmd>) -> BoxFuture<Replies> + Send + Sync>;

impl Own {
    pub(super) async fn open(client: Client) -> Result<Self, Error> {
        Ok(Self {
            direct: Direct::open(&client).await?,
            client,
            runtime: Handle::current().id(),
            replaced: None,
        })
    }

    fn is_replaced(&self) -> bool {
        let has_changed = |replaced: &watch::Receiver<_>| replaced.has_changed();
        self.replaced
            .as_ref()
            .is_some_and(|replaced| has_changed(replaced).unwrap_or(true))
    }

    async fn replaced(&self) {
        match self.replaced.clone() {
            // An error is the end of all that it belongs to.
            Some(mut replaced) => drop(replaced.changed().await),
            None => pending().await,
        }
    }
}

impl From<Own> for Line {
    fn from(own: Own) -> Self {
        Self::Own(Arc::new(own))
    }
}

impl Line {
    /// Whether nothing is to be sent over it any more.
    pub(in crate::redis) fn is_replaced(&self) -> bool {
        matches!(self, Self::Own(own) if own.is_replaced())
    }

    /// Sends commands when it is polled first. As many replies, in their order.
    pub(in crate::redis) async fn call(&self, commands: Vec<Cmd>) -> Replies {
        match self {
            Self::Own(own) => own.direct.call(commands).await,
            Self::Supplied(call) => call(commands).await,
        }
    }

    /// Ready when it is of no use any more. For one caller.
    pub(in crate::redis) async fn closed(&self) {
        match self {
            Self::Own(own) => select! {
                () = own.direct.closed() => {}
                () = own.replaced() => {}
            },
            Self::Supplied(_) => pending().await,
        }
    }

    /// Connects once more to the same server. `None`: messages cannot be received.
    pub(in crate::redis) fn client(&self) -> Option<&Client> {
        match self {
            Self::Own(own) => Some(&own.client),
            Self::Supplied(_) => None,
        }
    }
}

/// The server of a URL.
pub(in crate::redis) struct Single {
    client: Client,
    /// Whether it is a node of a cluster, as it says if it permits `INFO`. Known since the first connection.
    is_node: OnceLock<bool>,
}

impl Single {
    pub(in crate::redis) fn new(client: Client) -> Self {
        let is_node = OnceLock::new();
        Self { client, is_node }
    }
}

impl Topology for Single {
    fn place(&self) -> Place {
        Place::Url
    }

    fn has_slots(&self) -> bool {
        self.is_node.get() == Some(&true)
    }

    fn address(&self, _: usize) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    fn connect(self: Arc<Self>, _: usize) -> BoxFuture<Result<Line, Error>> {
        Box::pin(async move {
            let line = Own::open(self.client.clone()).await?.into();
            if self.is_node.get().is_none() {
                let is_node = is_node(&line).await;
                self.is_node.get_or_init(|| is_node);
            }
            Ok(line)
        })
    }
}

async fn is_node(line: &Line) -> bool {
    let info = line.call(vec![cmd("INFO").arg("cluster").take()]).await;
    let info = info.into_iter().flatten().next();
    let info = info.and_then(|info| from_redis_value::<String>(info).ok());
    info.is_some_and(|info| info.contains("cluster_enabled:1"))
}
