//! The compared semaphores, behind one interface.

use redis::{Cmd, Script};
use testing::{
    bench::link::{self, MultiplexedConnection},
    book::{Basic, Client, Clock, Fair, Locked, Pause},
};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};
use uuid::Uuid;

/// The names, in the order of the tables. B3, B4 and B7 are semaphores of *Redis in Action*, chapter 6.
pub(crate) const NAMES: [&str; 6] = [
    "empty script",
    "floor",
    "RedisSemaphore",
    "B3 basic",
    "B4 fair",
    "B7 fair, locked",
];

// Indices in `NAMES`.
pub(crate) const EMPTY: usize = 0;
pub(crate) const FLOOR: usize = 1;
pub(crate) const OURS: usize = 2;

/// The minimum that a semaphore with leases must do: read the clock, count, add with a lease of 10 s, set a TTL.
const FLOOR_SCRIPT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + 10000, ARGV[1])
redis.call('PEXPIRE', KEYS[1], 40000)
return 1";

/// One of the compared semaphores.
pub(crate) enum Rival {
    /// An empty script for the acquire and for the release: the cost of the client and of the round trips.
    Empty(MultiplexedConnection, Script),
    /// [`FLOOR_SCRIPT`] and `ZREM`.
    Floor(MultiplexedConnection, Script),
    Ours(RedisSemaphore),
    Basic(Basic),
    Fair(Fair),
    Locked(Locked),
}

/// A rival's permit.
pub(crate) enum Held {
    Nothing,
    Id(String),
    Permit(Permit),
}

impl Rival {
    /// A client of the kind `name`, with separate connections and this clock.
    pub(crate) async fn connect(name: &str, url: &str, clock: Clock) -> Self {
        let connection = link::connect(&link::client(url)).await;
        let client = Client::connect(url, clock, Pause::Task);
        match name {
            "empty script" => Self::Empty(connection, Script::new("return 1")),
            "floor" => Self::Floor(connection, Script::new(FLOOR_SCRIPT)),
            "B3 basic" => Self::Basic(Basic(client.await)),
            "B4 fair" => Self::Fair(Fair(client.await)),
            "B7 fair, locked" => Self::Locked(Locked(Fair(client.await))),
            _ => {
                let store = RedisSemaphore::connect(url).await;
                Self::Ours(store.expect("the server is there"))
            }
        }
    }

    /// A permit, or `None` if the key is full or no permit was obtained in time.
    pub(crate) async fn acquire(&self, key: &str, limit: u32) -> Option<Held> {
        match self {
            Self::Empty(connection, script) => {
                empty(connection, script).await;
                Some(Held::Nothing)
            }
            Self::Floor(connection, script) => {
                let id = Uuid::new_v4().to_string();
                let mut call = script.key(key);
                call.arg(&id).arg(limit);
                let granted = call.invoke_async(&mut connection.clone()).await;
                let granted: bool = granted.expect(ANSWERS);
                granted.then_some(Held::Id(id))
            }
            Self::Ours(store) => {
                let claim = Claim::new(key.as_bytes()).with_limit(limit);
                match store.acquire(claim).await {
                    Ok(permit) => Some(Held::Permit(permit)),
                    Err(AcquireError::Full { .. }) => None,
                    Err(error) => panic!("{error:?}"),
                }
            }
            Self::Basic(book) => book.acquire(key, limit).await.expect(ANSWERS).map(Held::Id),
            Self::Fair(book) => book.acquire(key, limit).await.expect(ANSWERS).map(Held::Id),
            Self::Locked(book) => book.acquire(key, limit).await.expect(ANSWERS).map(Held::Id),
        }
    }

    /// Releases a permit as users would: ours by dropping it, the others by their call.
    pub(crate) async fn release(&self, key: &str, held: Held) {
        let Held::Id(id) = held else {
            if let Self::Empty(connection, script) = self {
                empty(connection, script).await;
            }
            return;
        };
        match self {
            Self::Floor(connection, _) => {
                let remove = Cmd::zrem(key, id);
                let removed = remove.exec_async(&mut connection.clone()).await;
                removed.expect(ANSWERS);
            }
            Self::Basic(book) => drop(book.release(key, &id).await.expect(ANSWERS)),
            Self::Fair(book) => drop(book.release(key, &id).await.expect(ANSWERS)),
            Self::Locked(book) => drop(book.release(key, &id).await.expect(ANSWERS)),
            Self::Empty(..) | Self::Ours(_) => {}
        }
    }

    /// Returns once all previous releases have reached the server. Those of the other rivals were awaited.
    pub(crate) async fn settle(&self) {
        if let Self::Ours(store) = self {
            let permit = store.acquire(Claim::new("flush").with_limit(1)).await;
            permit.expect("it is free").release().await;
        }
    }
}

const ANSWERS: &str = "the server answers";

async fn empty(connection: &MultiplexedConnection, script: &Script) {
    let answer = script.invoke_async(&mut connection.clone()).await;
    let _: u8 = answer.expect(ANSWERS);
}
