//! What operators ask of the store in Redis.

use super::{
    holders,
    protocol::name,
    scan::{Position, Scan},
    shared::Store,
    store::RedisSemaphore,
};
use crate::semaphore::{
    BoxFuture, Key, KeyPage, KeyStream, Operate, Policy, Process, StoreError, Usage,
};
use futures_util::stream;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

/// Permits of all processes are listed, and each process that holds one for a while, or has claims that
/// wait, says who it is. What is held while Redis is unavailable is not listed.
///
/// A holder is told of its revocation at once by a message, if it has held permits for longer than a
/// second; else soon after that. If the message is lost with its connection, the holder is told when it has
/// subscribed anew, else when the permit is refreshed next, a third of a lease later at most. Its id is remembered for an hour, or eight leases if that is longer, so it does not get the permit
/// back even if it cannot reach the server until then.
/// A failover may forget a revocation of which the holder was not told yet, unless replicas
/// [must have it](super::Builder::min_replicas).
///
/// `keys` and `keys_page` need `SCAN`, on every primary. Over a connection that was
/// [supplied](RedisSemaphore::with_connection) they fail, because such a connection may be one to several servers.
impl Operate for RedisSemaphore {
    fn usage(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<Usage, StoreError>> {
        let store = Arc::clone(self.store());
        let name = name(&store.prefix, policy, key);
        Box::pin(async move { store.usage(&name).await })
    }

    fn keys(&self, policy: &Policy) -> KeyStream {
        match self.store().scan(policy) {
            Ok(scan) => scan.stream(),
            Err(error) => Box::pin(stream::iter([Err(error)])),
        }
    }

    fn keys_page(
        &self,
        policy: &Policy,
        cursor: Option<&str>,
        time: Duration,
    ) -> BoxFuture<Result<Option<KeyPage>, StoreError>> {
        let from = cursor.map_or_else(|| Some(Position::default()), Position::parse);
        let scan = self.store().scan(policy);
        Box::pin(async move {
            let Some(from) = from else { return Ok(None) };
            scan?.page(from, time).await.map(Some)
        })
    }

    fn revoke(&self, policy: &Policy, key: &Key, id: &str) -> BoxFuture<Result<bool, StoreError>> {
        let store = Arc::clone(self.store());
        let (name, id) = (name(&store.prefix, policy, key), id.to_owned());
        Box::pin(async move {
            let deadline = Instant::now() + store.times.budget();
            let revoked = store.protocol().revoke(&name, &id, deadline).await;
            revoked.map_err(StoreError::new)
        })
    }
}

impl Store {
    fn scan(&self, policy: &Policy) -> Result<Scan, StoreError> {
        let servers = self.protocol().servers();
        Scan::new(servers, &self.prefix, policy, self.times)
    }

    async fn usage(&self, name: &str) -> Result<Usage, StoreError> {
        let deadline = Instant::now() + self.times.budget();
        let protocol = self.protocol();
        let listed = protocol.usage(name, deadline).await;
        let mut usage = holders::usage(&listed.map_err(StoreError::new)?);
        let all = usage.held.iter().chain(&usage.waiting);
        let others = all.map(|info| info.process.id.clone());
        let others = others.filter(|id| id != protocol.own_id());
        let others: Vec<String> = others.collect::<BTreeSet<_>>().into_iter().collect();
        let mut known = protocol.who(&others, deadline).await;
        let mut own = Process::current();
        protocol.own_id().clone_into(&mut own.id);
        known.push(own);
        let known: HashMap<_, _> = known.iter().map(|who| (who.id.clone(), who)).collect();
        for info in usage.held.iter_mut().chain(&mut usage.waiting) {
            if let Some(process) = known.get(&info.process.id) {
                info.process = Process::clone(process);
            }
        }
        Ok(usage)
    }
}
