//! What operators ask of the store in memory.

use super::{
    holders::serial_of,
    shard::Shard,
    store::{MemorySemaphore, SHARDS},
};
use crate::semaphore::{BoxFuture, Key, KeyStream, Operate, Policy, StoreError, StoredKey, Usage};
use futures_core::Stream;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
    vec,
};

/// Answers when it is polled first. Permits are listed only by a store [with holders](MemorySemaphore::with_holders);
/// without, [`units`](Usage::units) counts them, and nothing but a claim that waits can be revoked.
impl Operate for MemorySemaphore {
    fn usage(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<Usage, StoreError>> {
        let (store, policy, key) = (self.clone(), policy.clone(), key.clone());
        Box::pin(async move { Ok(store.usage_now(&policy, &key)) })
    }

    fn keys(&self, policy: &Policy) -> KeyStream {
        Box::pin(Keys {
            shards: self.shards().clone().into_iter(),
            policy: policy.clone(),
            found: Vec::new().into_iter(),
        })
    }

    fn revoke(&self, policy: &Policy, key: &Key, id: &str) -> BoxFuture<Result<bool, StoreError>> {
        let (store, policy, key) = (self.clone(), policy.clone(), key.clone());
        let serial = serial_of(id);
        // Not before it is polled: as little as over Redis may a future that is only made end a permit.
        Box::pin(async move { Ok(store.revoke_now(&policy, &key, serial)) })
    }
}

impl MemorySemaphore {
    fn usage_now(&self, policy: &Policy, key: &Key) -> Usage {
        match self.0.find(policy, key) {
            Some(entry) => entry.usage(),
            None => Usage::new(SystemTime::now(), 0, Vec::new(), Vec::new()),
        }
    }

    fn revoke_now(&self, policy: &Policy, key: &Key, serial: Option<u64>) -> bool {
        let entry = serial.and_then(|serial| Some((serial, self.0.find(policy, key)?)));
        entry.is_some_and(|(serial, entry)| entry.revoke(serial))
    }
}

/// The keys of a policy, shard by shard: no lock is held for longer than one takes.
struct Keys {
    shards: std::array::IntoIter<Arc<Shard>, SHARDS>,
    policy: Policy,
    found: vec::IntoIter<Key>,
}

impl Stream for Keys {
    type Item = Result<StoredKey, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(key) = self.found.next() {
                return Poll::Ready(Some(Ok(StoredKey::Whole(key))));
            }
            let Some(shard) = self.shards.next() else {
                return Poll::Ready(None);
            };
            self.found = shard.keys_of(&self.policy).into_iter();
        }
    }
}
