//! The four variants, which differ in how traders make a deal.

use redis::RedisError;
use std::time::Duration;
use testing::book::{
    Client, acquire_lock,
    market::{self, Deal, MARKET, Offer},
    release_lock,
};
use tower_semaphore::{Lock, RedisSemaphore, lock::LockGuard};

/// How long a trader tries to get a lock.
const PATIENCE: Duration = Duration::from_secs(10);

const ANSWERS: &str = "the server answers";

type Done = Result<bool, RedisError>;

/// The mechanism that prevents conflicts between traders. B8 to B10 are those of the chapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// B8: optimistic transactions.
    Watch,
    /// B9: the chapter's lock, on the whole market.
    OneLock,
    /// B10: the chapter's lock, on each item.
    ItemLock,
    /// This crate's lock, on each item.
    Library,
}

impl Variant {
    pub(crate) const ALL: [Self; 4] = [Self::Watch, Self::OneLock, Self::ItemLock, Self::Library];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Watch => "B8 WATCH",
            Self::OneLock => "B9 one lock",
            Self::ItemLock => "B10 lock per item",
            Self::Library => "Lock per item",
        }
    }
}

/// A trader's connection and locks.
pub(crate) struct Desk {
    variant: Variant,
    pub(crate) client: Client,
    /// Only for [`Variant::Library`].
    store: Option<RedisSemaphore>,
}

/// A held lock.
enum Guard {
    /// The chapter's lock: its name, and the id under which it is held.
    Book(String, String),
    Library(LockGuard),
}

impl Desk {
    pub(crate) async fn open(variant: Variant, client: Client, url: &str) -> Self {
        let store = match variant {
            Variant::Library => Some(RedisSemaphore::connect(url).await.expect(ANSWERS)),
            _ => None,
        };
        Self {
            variant,
            client,
            store,
        }
    }

    pub(crate) async fn list(&self, offer: &Offer) -> Deal {
        let client = &self.client;
        match self.variant {
            Variant::Watch => market::list_item(client, offer).await.expect(ANSWERS),
            _ => {
                self.locked(offer, market::list_item_locked(client, offer))
                    .await
            }
        }
    }

    pub(crate) async fn purchase(&self, offer: &Offer, buyer: &str) -> Deal {
        let client = &self.client;
        match self.variant {
            Variant::Watch => market::purchase_item(client, offer, buyer)
                .await
                .expect(ANSWERS),
            _ => {
                self.locked(offer, market::purchase_item_locked(client, offer, buyer))
                    .await
            }
        }
    }

    /// Makes a deal while other traders are locked out. A lock that is not free in time counts as one retry.
    async fn locked(&self, offer: &Offer, deal: impl Future<Output = Done>) -> Deal {
        let Some(guard) = self.lock(offer).await else {
            return Deal {
                done: false,
                retries: 1,
            };
        };
        let done = deal.await.expect(ANSWERS);
        self.unlock(guard).await;
        Deal { done, retries: 0 }
    }

    async fn lock(&self, offer: &Offer) -> Option<Guard> {
        let name = match self.variant {
            Variant::OneLock => MARKET,
            _ => &offer.member,
        };
        let Some(store) = &self.store else {
            let id = acquire_lock(&self.client, name, PATIENCE)
                .await
                .expect(ANSWERS)?;
            return Some(Guard::Book(name.to_owned(), id));
        };
        let lock = Lock::new(store.clone(), name.to_owned());
        lock.acquire(PATIENCE).await.ok().map(Guard::Library)
    }

    async fn unlock(&self, guard: Guard) {
        match guard {
            Guard::Book(name, id) => {
                release_lock(&self.client, &name, &id).await.expect(ANSWERS);
            }
            Guard::Library(guard) => drop(guard),
        }
    }
}
