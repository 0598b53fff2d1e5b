//! The servers of a store: one server, the primary that Sentinels name, or the nodes of a cluster. They differ only in
//! how they implement the trait [`Topology`].

use super::{
    attempt::{self, Inquiry},
    connection::Connection,
    endpoint::Endpoint,
};
use crate::{redis::error::CallError, semaphore::BoxFuture};
use proto::core::SlotRanges;
use redis::{cmd, from_redis_value};
use std::{
    future::pending,
    sync::{Arc, OnceLock},
};

/// The role of a server for this store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum ServerRole {
    /// The server of a URL.
    Url,
    /// A Sentinel, which holds no semaphores.
    Sentinel,
    /// The primary that Sentinels name.
    Primary,
    /// A node of a cluster.
    Node,
}

/// The servers by number, their addresses, and connections to them.
pub(in crate::redis) trait Topology: Send + Sync + 'static {
    /// The role of its servers.
    fn role(&self) -> ServerRole;

    /// The servers that are known to have slots.
    fn servers(&self) -> Vec<usize> {
        vec![0]
    }

    /// The hash slot of a key. It is 0 for all keys, except at a node of a cluster, where all keys of a command must
    /// have the same slot.
    fn slot(&self, _key: &str) -> u16 {
        0
    }

    /// The address of a server, for people.
    fn address(&self, server: usize) -> String;

    /// Connects the current runtime to a server.
    fn connect(
        self: Arc<Self>,
        server: usize,
        inquiry: Inquiry,
    ) -> BoxFuture<Result<Arc<Connection>, CallError>>;

    /// The map of slots, as far as it is known, and its version.
    fn slots(&self) -> (u64, SlotRanges) {
        (0, Vec::new())
    }

    /// Watches the servers for changes of the map. Returns when the map may have changed, and the keeper's thread then
    /// calls it again.
    fn watch(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(pending())
    }

    /// The server at an address that another server has named in a redirect. `None` if the redirect is not followed.
    fn server_at(&self, _address: &str, _by: usize) -> Option<usize> {
        None
    }

    /// Notes a failure, which may mean that slots have moved.
    fn note_failure(&self, _error: &CallError) {}
}

/// The server of a URL.
pub(in crate::redis) struct Single {
    endpoint: Endpoint,
    /// True if the server reports in `INFO` that it is a node of a cluster. Set by the first connection.
    is_node: OnceLock<bool>,
}

impl Single {
    pub(in crate::redis) fn new(endpoint: Endpoint) -> Self {
        let is_node = OnceLock::new();
        Self { endpoint, is_node }
    }
}

impl Topology for Single {
    fn role(&self) -> ServerRole {
        ServerRole::Url
    }

    fn slot(&self, key: &str) -> u16 {
        match self.is_node.get() {
            Some(true) => slot_of(key),
            _ => 0,
        }
    }

    fn address(&self, _: usize) -> String {
        self.endpoint.address()
    }

    fn connect(
        self: Arc<Self>,
        _: usize,
        inquiry: Inquiry,
    ) -> BoxFuture<Result<Arc<Connection>, CallError>> {
        Box::pin(async move {
            let connection = attempt::connect(&self.endpoint, inquiry).await?;
            if self.is_node.get().is_none() {
                let is_node = is_node(&connection).await;
                self.is_node.get_or_init(|| is_node);
            }
            Ok(Arc::new(connection))
        })
    }
}

async fn is_node(connection: &Connection) -> bool {
    // Such a server ends connections at `INFO`.
    if connection.endpoint().is_basic() {
        return false;
    }
    let info = connection.call(vec![cmd("INFO").arg("cluster").take()]);
    let info = info.await.into_iter().flatten().next();
    let info = info.and_then(|info| from_redis_value::<String>(info).ok());
    info.is_some_and(|info| info.contains("cluster_enabled:1"))
}

/// The number of slots in a cluster.
pub(super) const SLOTS: usize = 16_384;

/// The slot of a key. All keys of a semaphore begin with its name, so this also finds their slot by the name. As the
/// specification of Redis Cluster requires, only the text within the first braces is hashed, unless it is missing or
/// empty.
pub(super) fn slot_of(key: &str) -> u16 {
    let within = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let tag = within.map_or("", |(tag, _)| tag);
    let hashed = if tag.is_empty() { key } else { tag };
    crc16(hashed.as_bytes()) % SLOTS as u16
}

/// CRC-16/XMODEM: polynomial 0x1021, starting at zero; four bits at a time.
fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16, bits: u8| crc << 4 ^ TABLE[usize::from((crc >> 12) as u8 ^ bits)];
    let byte = |crc, byte: &u8| step(step(crc, byte >> 4), byte & 15);
    bytes.iter().fold(0, byte)
}

const TABLE: [u16; 16] = [
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
    0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_the_server() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("p:{foo}:held"), 12_182);
        assert_ne!(slot_of("{}foo"), slot_of(""));
        assert_eq!(slot_of("{{foo}}"), slot_of("{foo"));
    }
}
