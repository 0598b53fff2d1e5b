//! What every transport does.

use super::{address::Place, connection::Replies};
use crate::{redis::error::Error, semaphore::BoxFuture};
use redis::{Client, Cmd};
use std::{collections::BTreeMap, future::ready, sync::Arc, time::Instant};

/// What a call needs.
#[derive(Debug, Clone, Copy)]
pub(in crate::redis) struct Terms {
    /// By when it is answered.
    pub(in crate::redis) deadline: Instant,
    /// How many replicas must have what it has written, for its answers to count.
    pub(in crate::redis) replicas: u32,
}

impl Terms {
    /// A call that is answered by then.
    pub(in crate::redis) fn by(deadline: Instant) -> Self {
        let replicas = 0;
        Self { deadline, replicas }
    }
}

/// So many numbers, as keys, are of all parts.
pub(in crate::redis) const SAMPLES: usize = 128;

/// A part of all keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::redis) struct Part {
    pub(in crate::redis) number: usize,
    /// Whether all its keys live on one server, to which the store makes connections by itself.
    pub(in crate::redis) is_of_one_server: bool,
}

impl Part {
    /// The keys of one server.
    fn of_server(number: usize) -> Self {
        Self {
            number,
            is_of_one_server: true,
        }
    }

    /// Keys that may live on several servers.
    pub(super) fn of_several(number: usize) -> Self {
        Self {
            number,
            is_of_one_server: false,
        }
    }
}

/// Servers by their names.
pub(in crate::redis) type Servers = BTreeMap<String, Arc<dyn Transport>>;

/// A way to a server, or to several: connections of our own, or one that was supplied.
pub(in crate::redis) trait Transport: Send + Sync + 'static {
    /// Waits for a connection to the server of the key; `None` if there is one. So that the time of a
    /// call begins when it can be sent.
    fn ready(&self, key: &str, deadline: Instant) -> Option<BoxFuture<Result<(), Error>>>;

    /// Whether this runtime has a connection to the server of the key. If not, it is being made from now
    /// on.
    fn is_connected(&self, _key: &str) -> bool {
        true
    }

    /// Sends commands together. As many replies, in their order. Each comes within a timeout of
    /// the sending, and by the deadline, or is an error.
    fn send(&self, commands: Vec<Cmd>, terms: Terms) -> BoxFuture<Result<Replies, Error>>;

    /// Whether all keys live on one server for sure.
    fn is_one_server(&self) -> bool;

    /// What its servers are.
    fn place(&self) -> Place {
        Place::Url
    }

    /// The number of the server on which the key lives, as far as is known: numbers are small, and
    /// those of servers that are gone are given to others. `None` if nothing is known.
    fn server_of(&self, _key: &str) -> Option<usize> {
        None
    }

    /// The part of all keys that is available or not together with this one, as far as is known.
    fn part_of(&self, key: &str) -> Part {
        match self.server_of(key) {
            _ if self.is_one_server() => Part::of_server(0),
            Some(server) => Part::of_server(server + 1),
            None => Part::of_several(0),
        }
    }

    /// The servers that keys live on now, each as a transport of its own, by names that all processes
    /// give them. `None`: that is not known.
    fn servers(self: Arc<Self>) -> Option<Servers> {
        None
    }

    /// A server where this process can receive the messages of all others. Another one after a
    /// failure, if there are several. `None` if messages cannot be received.
    fn publisher(&self) -> Option<BoxFuture<Result<Client, Error>>> {
        None
    }

    /// Whether the messages of all others still arrive at such a server, as far as is known.
    fn is_publisher(&self, _client: &Client) -> bool {
        false
    }

    /// What has to run beside calls, on the keeper's thread.
    fn watch(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(ready(()))
    }
}
