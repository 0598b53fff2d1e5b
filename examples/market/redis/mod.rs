//! A market in Redis, for all processes that share it.
//!
//! Listing or buying an item takes that item's lock, so claims for the same item queue and other items are not
//! affected. Each change is one script, so it is atomic even if a process is killed in the middle. A process that is
//! stopped for longer than its lease may continue under a lock that it has lost. So the scripts check the state and the
//! lock's token.

mod books;
mod keys;
mod link;
mod message;
mod news;
mod server;

use self::{books::Books, message::Message, server::Server};
use crate::{
    account::Account,
    market::{Answer, BACKLOG, Event, Holdings, Listing, Market, Refusal, StoreError, Trade},
    place::Redis,
    price::Price,
};
use futures_util::stream::BoxStream;
use redis::RedisResult;
use std::{sync::Arc, time::Duration};
use tokio::{sync::broadcast, task::AbortHandle};
use tokio_stream::{StreamExt, wrappers::BroadcastStream};
use tower_semaphore::{AcquireError, Lock, LockGuard, RedisSemaphore};
use uuid::Uuid;

/// How long a request may wait for an item's lock.
const PATIENCE: Duration = Duration::from_secs(2);

/// A market in Redis.
pub(crate) struct RedisMarket {
    books: Books,
    locks: RedisSemaphore,
    events: broadcast::Sender<Event>,
    news: AbortHandle,
}

impl RedisMarket {
    /// Opens the market in this Redis. `locks` has the locks of its items.
    ///
    /// # Errors
    ///
    /// Returns an error if Redis cannot be used.
    pub(crate) async fn open(redis: &Redis, locks: RedisSemaphore) -> RedisResult<Self> {
        let server = Arc::new(Server::new(redis)?);
        let books = Books::open(Arc::clone(&server)).await?;
        let events = broadcast::Sender::new(BACKLOG);
        let news = news::subscribe(&server).await?;
        let news = tokio::spawn(news::pass_on(server, news, events.clone()));
        Ok(Self {
            books,
            locks,
            events,
            news: news.abort_handle(),
        })
    }

    async fn lock(&self, item: &str) -> Result<LockGuard, AcquireError> {
        let lock = Lock::new(self.locks.clone(), format!("item:{item}"));
        lock.acquire(PATIENCE).await
    }

    async fn list_locked(&self, listing: Listing) -> Result<Result<Listing, Refusal>, StoreError> {
        let lock = self.lock(&listing.item).await?;
        let message = Message {
            listing,
            buyer: None,
        };
        let listed = self.books.list(&message, lock.token()).await?;
        Ok(listed.map(|()| message.listing))
    }

    async fn purchase_locked(
        &self,
        buyer: Account,
        id: String,
    ) -> Result<Result<Trade, Refusal>, StoreError> {
        let listing = match self.books.listing(&id).await? {
            Ok(listing) if listing.seller == buyer => return Ok(Err(Refusal::OwnListing)),
            Ok(listing) => listing,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let lock = self.lock(&listing.item).await?;
        let message = Message {
            listing: listing.clone(),
            buyer: Some(buyer.clone()),
        };
        let bought = self.books.purchase(&message, lock.token()).await?;
        Ok(bought.map(|()| Trade { listing, buyer }))
    }
}

impl Market for RedisMarket {
    fn list(
        &self,
        seller: Account,
        item: String,
        price: Price,
    ) -> Answer<'_, Result<Listing, Refusal>> {
        let id = Uuid::new_v4().to_string();
        Box::pin(self.list_locked(Listing {
            id,
            item,
            price,
            seller,
        }))
    }

    fn purchase(&self, buyer: Account, id: String) -> Answer<'_, Result<Trade, Refusal>> {
        Box::pin(self.purchase_locked(buyer, id))
    }

    fn listings(&self) -> Answer<'_, Vec<Listing>> {
        Box::pin(self.books.listings())
    }

    fn account(&self, account: Account) -> Answer<'_, Holdings> {
        Box::pin(async move { self.books.account(&account).await })
    }

    fn events(&self) -> BoxStream<'static, Event> {
        let events = BroadcastStream::new(self.events.subscribe());
        Box::pin(events.map_while(Result::ok))
    }
}

impl Drop for RedisMarket {
    fn drop(&mut self) {
        self.news.abort();
    }
}
