//! Stores in one Redis, as several processes have them, and its state as the server lists it.

use super::{
    case::BOUND,
    driver::{Counts, Driver, whole},
    model::{Each, everywhere},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testing::{
    redis::RedisServer,
    resp::{Raw, Reply},
    stores,
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// For each semaphore how many units are held and how many claims wait, at one instant.
const COUNTS: &str = "
local time, counts = redis.call('TIME'), {}
for i = 1, #KEYS, 3 do
  counts[#counts + 1] = redis.call('ZCOUNT', KEYS[i], time[1] * 1000, '+inf')
  counts[#counts + 1] = redis.call('ZCARD', KEYS[i + 1])
end
return counts";

/// Removes the members of a process.
const EXPIRE: &str = "
for _, key in ipairs(KEYS) do
  for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    if string.sub(id, 1, #ARGV[1]) == ARGV[1] then
      redis.call('ZREM', key, id)
    end
  end
end";

/// For each semaphore how many units of a process have a whole lease, of hours.
const LEASED: &str = "
local now, counts = redis.call('TIME')[1] * 1000 + 3600000, {}
for i = 1, #KEYS, 3 do
  local count = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[i], now, '+inf')) do
    if string.sub(id, 1, #ARGV[1]) == ARGV[1] then
      count = count + 1
    end
  end
  counts[#counts + 1] = count
end
return counts";

/// So long that no refresh comes within a schedule: a refresh would bring back what was lost.
const LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// A store, and the id of its process.
struct Process(RedisSemaphore, String);

/// Processes that share a server.
pub(crate) struct Fleet {
    server: RedisServer,
    processes: Vec<Process>,
}

impl Fleet {
    /// `supplied`: the processes use supplied connections, so that they go level by
    /// level.
    pub(crate) async fn start(processes: usize, supplied: bool) -> Arc<Self> {
        let server = RedisServer::start();
        let mut fleet = Vec::new();
        for number in 0..processes {
            let store = store(&server, supplied).await;
            let claim = Claim::new(number as u64).with_policy("start").with_limit(1);
            let _permit = store.acquire(claim).await.expect("there is room");
            let held = format!("semaphore:{{start:{number}}}:held");
            let mut raw = Raw::connect(server.port()).await;
            let (id, _) = raw.zmembers(&held).await.remove(0);
            let id = String::from_utf8(id).expect("ids are plain");
            let process = id.split('.').next().expect("it begins with its process");
            fleet.push(Process(store, format!("{process}.")));
        }
        Arc::new(Self {
            server,
            processes: fleet,
        })
    }

    /// A driver with keys that no other has.
    pub(crate) async fn driver(self: Arc<Self>, schedule: u64) -> Redis {
        Redis {
            raw: Raw::connect(self.server.port()).await,
            fleet: self,
            schedule,
        }
    }
}

async fn store(server: &RedisServer, supplied: bool) -> RedisSemaphore {
    // A busy machine is no failure of the store.
    let builder = RedisSemaphore::builder().lease(LEASE);
    let builder = builder
        .timeout(Duration::from_secs(5))
        .max_waiting_total(u32::MAX);
    if !supplied {
        return builder.connect(server.url()).await.expect("it connects");
    }
    let store = builder.with_connection(stores::connection(&server.url()).await);
    store.expect("the settings are right")
}

pub(crate) struct Redis {
    fleet: Arc<Fleet>,
    raw: Raw,
    schedule: u64,
}

impl Redis {
    /// Runs a script of ours with the keys of all semaphores, or of one.
    async fn eval(&mut self, script: &str, only: Option<(usize, usize)>, arg: &str) -> Reply {
        let semaphores = everywhere().filter(|at| only.is_none_or(|only| only == *at));
        let keys: Vec<_> = semaphores.flat_map(|at| self.keys(at)).collect();
        let command = ["EVAL".to_owned(), script.to_owned(), keys.len().to_string()];
        let command = command.into_iter().chain(keys).chain([arg.to_owned()]);
        let reply = self.raw.cmd(&command.collect::<Vec<_>>()).await;
        assert_eq!(reply.error(), None);
        reply
    }

    fn id(&self, process: usize) -> String {
        self.fleet.processes[process].1.clone()
    }

    async fn leased(&mut self, process: usize) -> Each<u32> {
        let id = self.id(process);
        let reply = self.eval(LEASED, None, &id).await;
        let mut leased = Each::default();
        for ((level, key), count) in everywhere().zip(reply.array()) {
            leased[level][key] = count.int() as u32;
        }
        leased
    }

    fn policy(&self, level: usize) -> String {
        format!("s{}-level-{level}", self.schedule)
    }

    /// The keys of a semaphore that have members.
    fn keys(&self, (level, key): (usize, usize)) -> impl Iterator<Item = String> + use<> {
        let policy = self.policy(level);
        let sets = ["held", "queue", "alive"].into_iter();
        sets.map(move |set| format!("semaphore:{{{policy}:{key}}}:{set}"))
    }
}

impl Driver for Redis {
    fn store(&self, process: usize) -> &dyn Semaphore {
        &self.fleet.processes[process].0
    }

    fn claim(&self, level: usize, key: usize) -> Claim {
        Claim::new(key as u64).with_policy(self.policy(level))
    }

    async fn counts(&mut self) -> Counts {
        let reply = self.eval(COUNTS, None, "").await;
        let mut counts = Counts::default();
        for ((level, key), pair) in everywhere().zip(reply.array().chunks(2)) {
            counts.0[level][key] = pair[0].int() as u32;
            counts.1[level][key] = pair[1].int() as usize;
        }
        counts
    }

    async fn pause(&mut self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn expire(&mut self, process: usize, only: Option<(usize, usize)>) {
        let id = self.id(process);
        self.eval(EXPIRE, only, &id).await;
    }

    fn has_leases(&self) -> bool {
        true
    }

    /// Until its first refresh the keeper may bring a permit back that was granted from a queue.
    async fn refreshed(&mut self, process: usize, expected: &Each<u32>) {
        let start = Instant::now();
        loop {
            let leased = self.leased(process).await;
            if everywhere().all(|(level, key)| leased[level][key] >= expected[level][key]) {
                return;
            }
            assert!(start.elapsed() < BOUND, "{leased:?}, not {expected:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn notice(&mut self, level: usize, key: usize) {
        let refused = self.store(0).acquire(whole(self.claim(level, key))).await;
        assert!(refused.is_err(), "something waits");
    }
}
