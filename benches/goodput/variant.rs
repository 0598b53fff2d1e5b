//! The compared semaphores. Each gets a separate server and link at each rate.

use crate::{far::Far, peer};
use std::{sync::Arc, time::Duration};
use testing::{
    bench::open_loop::{self, Offered, Rate},
    book::{Client, Clock, Fair, Locked, Pause},
    redis::RedisServer,
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// The delay from a client to the server, and of the way back.
const WAY: Duration = Duration::from_millis(50);

/// Enough keys that claims rarely wait for the lock of the same key.
const KEYS: u64 = 1_000;

/// Higher than the number of held permits, so that no claim is refused as full.
pub(crate) const LIMIT: u32 = 1_000_000;

/// One of the compared semaphores. B4 and B7 are those of *Redis in Action*, chapter 6.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Variant {
    Ours,
    /// B4.
    Fair,
    /// B7: B4 behind a lock.
    Locked,
    /// The crate distributed-lock.
    Peer,
}

impl Variant {
    /// All variants that can run here.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::Ours, Self::Fair, Self::Locked];
        match peer::is_there() {
            true => all.push(Self::Peer),
            false => eprintln!("no distributed-lock: benches/peers/run.sh has not built it"),
        }
        all
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "RedisSemaphore",
            Self::Fair => "B4 fair",
            Self::Locked => "B7 fair, locked",
            Self::Peer => "distributed-lock",
        }
    }

    /// Offers claims at this rate.
    pub(crate) async fn measure(self, rate: Rate) -> Offered {
        let server = RedisServer::start();
        let far = Far::to(server.port(), WAY);
        match self {
            Self::Ours => ours(&far.url(), rate).await,
            Self::Fair => fair(&far.url(), rate).await,
            Self::Locked => locked(&far.url(), rate).await,
            Self::Peer => peer::offer(&far.url(), rate).await,
        }
    }
}

fn key(number: u64) -> String {
    format!("account-{}", number % KEYS)
}

async fn ours(url: &str, rate: Rate) -> Offered {
    let store = RedisSemaphore::connect(url).await;
    let store = store.expect("the server is there");
    let claim = |number| {
        let acquire = store.acquire(Claim::new(key(number)).with_limit(LIMIT));
        async move { acquire.await.is_ok() }
    };
    open_loop::offer(rate, claim).await
}

/// A client of the chapter's semaphores.
async fn book(url: &str) -> Client {
    Client::connect(url, Clock::default(), Pause::Task).await
}

async fn fair(url: &str, rate: Rate) -> Offered {
    let book = Arc::new(Fair(book(url).await));
    let claim = |number| {
        let (book, key) = (Arc::clone(&book), key(number));
        async move {
            let Ok(Some(id)) = book.acquire(&key, LIMIT).await else {
                return false;
            };
            // The release runs in the background, like ours.
            tokio::spawn(async move { book.release(&key, &id).await });
            true
        }
    };
    open_loop::offer(rate, claim).await
}

async fn locked(url: &str, rate: Rate) -> Offered {
    let book = Arc::new(Locked(Fair(book(url).await)));
    let claim = |number| {
        let (book, key) = (Arc::clone(&book), key(number));
        async move {
            let Ok(Some(id)) = book.acquire(&key, LIMIT).await else {
                return false;
            };
            tokio::spawn(async move { book.release(&key, &id).await });
            true
        }
    };
    open_loop::offer(rate, claim).await
}
