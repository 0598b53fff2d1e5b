//! The compared ways to take four limits over Redis, behind one interface.

use crate::limits::{self, LIMIT, Way, in_order, names};
use redis::{Script, pipe};
use std::time::Duration;
use testing::{
    bench::link::{self, MultiplexedConnection},
    book::{Basic, Client, Clock, Pause},
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};
use uuid::Uuid;

/// The names, in the order of the tables. B3 is the basic semaphore of *Redis in Action*, chapter 6.
pub(crate) const NAMES: [&str; 6] = [
    "empty script",
    "floor of four",
    "one limit",
    "four at once",
    "four stacked",
    "B3, four times",
];

/// The indices of the two names that the others are compared with.
pub(crate) const ONE: usize = 2;
pub(crate) const STACKED: usize = 4;

/// The minimum that four limits with leases need: read the clock, count at each limit, then add to each, with a lease
/// of 10 s, and set a TTL.
const FLOOR_SCRIPT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for level = 1, 4 do
  if redis.call('ZCARD', KEYS[level]) >= tonumber(ARGV[2]) then return level end
end
for level = 1, 4 do
  redis.call('ZADD', KEYS[level], now + 10000, ARGV[1])
  redis.call('PEXPIRE', KEYS[level], 40000)
end
return 0";

/// One of the compared ways.
pub(crate) enum Rival {
    /// A script that does nothing, for the acquire and for the release.
    Empty(MultiplexedConnection, Script),
    /// [`FLOOR_SCRIPT`], and `ZREM` at each of the four limits.
    Floor(MultiplexedConnection, Script),
    Ours(RedisSemaphore, Way),
    Basic(Basic),
}

/// The permit of a rival.
pub(crate) enum Held {
    Nothing,
    Id(String),
    Ids([String; 4]),
    Ours(limits::Held),
}

/// A store that may be slow on a busy machine but does not fail there.
pub(crate) async fn store(url: &str) -> RedisSemaphore {
    let patient = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    patient.connect(url).await.expect(ANSWERS)
}

const ANSWERS: &str = "the server answers";
const GRANTED: &str = "the limits are high";

impl Rival {
    /// A client of the kind `name`, with separate connections.
    pub(crate) async fn connect(name: &str, url: &str) -> Self {
        let connection = link::connect(&link::client(url)).await;
        let ours = async |way| Self::Ours(store(url).await, way);
        match name {
            "empty script" => Self::Empty(connection, Script::new("return 0")),
            "floor of four" => Self::Floor(connection, Script::new(FLOOR_SCRIPT)),
            "one limit" => ours(Way::One).await,
            "four at once" => ours(Way::AtOnce).await,
            "four stacked" => ours(Way::Stacked).await,
            _ => Self::Basic(Basic(
                Client::connect(url, Clock::default(), Pause::Task).await,
            )),
        }
    }

    pub(crate) async fn acquire(&self, account: &str) -> Held {
        match self {
            Self::Empty(connection, script) => {
                empty(connection, script).await;
                Held::Nothing
            }
            Self::Floor(connection, script) => {
                let id = Uuid::new_v4().to_string();
                let mut call = script.prepare_invoke();
                for name in names(account) {
                    call.key(name);
                }
                call.arg(&id).arg(LIMIT);
                let full = call.invoke_async(&mut connection.clone()).await;
                assert_eq!(full, Ok(0), "{GRANTED}");
                Held::Id(id)
            }
            Self::Ours(store, way) => Held::Ours(way.acquire(store, account).await.expect(GRANTED)),
            Self::Basic(book) => {
                let take = async |_, name| book.acquire(name, LIMIT).await;
                let ids = in_order(names(account), take).await;
                Held::Ids(ids.map(|id| id.expect(ANSWERS).expect(GRANTED)))
            }
        }
    }

    /// Releases as users would: our permits are dropped, and the others' calls are awaited.
    pub(crate) async fn release(&self, account: &str, held: Held) {
        match (self, held) {
            (Self::Empty(connection, script), _) => empty(connection, script).await,
            (Self::Floor(connection, _), Held::Id(id)) => {
                let mut removals = pipe();
                for name in names(account) {
                    removals.zrem(name, &id).ignore();
                }
                let removed = removals.exec_async(&mut connection.clone()).await;
                removed.expect(ANSWERS);
            }
            (Self::Basic(book), Held::Ids(ids)) => {
                let release = async |at: usize, name| book.release(name, &ids[at]).await;
                for was_held in in_order(names(account), release).await {
                    was_held.expect(ANSWERS);
                }
            }
            _ => {}
        }
    }

    /// Releases, and waits until the server has answered.
    pub(crate) async fn release_answered(&self, account: &str, held: Held) {
        match held {
            Held::Ours(held) => held.release().await,
            held => self.release(account, held).await,
        }
    }

    /// Returns once all previous releases have reached the server. Those of the other rivals were awaited.
    pub(crate) async fn settle(&self) {
        if let Self::Ours(store, _) = self {
            let permit = store.acquire(Claim::new("flush").with_limit(1)).await;
            permit.expect("it is free").release().await;
        }
    }
}

async fn empty(connection: &MultiplexedConnection, script: &Script) {
    let answer = script.invoke_async(&mut connection.clone()).await;
    let _: u8 = answer.expect(ANSWERS);
}
