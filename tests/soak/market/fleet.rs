//! The processes of the market, each with its own way to Redis.

use super::{process::Market, report::Report, troubles::Whom};
use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tempfile::TempDir;
use testing::{proxy::Proxy, redis::RedisServer};

pub(crate) const PROCESSES: usize = 3;
const TRIES: usize = 10;
/// How a store's channel begins, on which each of its processes is told of grants.
const CHANNEL: &[u8] = b"semaphore:wake:";

#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) proxies: Vec<Proxy>,
    /// Nothing while a process is gone.
    markets: Vec<Mutex<Option<Market>>>,
    /// By the id that a process has in the books, its position.
    owners: Mutex<HashMap<String, usize>>,
    logs: TempDir,
    started: AtomicUsize,
}

impl Fleet {
    pub(crate) async fn start(server: &RedisServer) -> Self {
        let mut fleet = Self {
            proxies: Vec::new(),
            markets: Vec::new(),
            owners: Mutex::default(),
            logs: TempDir::new().expect("a temporary folder can be made"),
            started: AtomicUsize::default(),
        };
        for at in 0..PROCESSES {
            fleet.proxies.push(Proxy::start(server).await);
            fleet.markets.push(Mutex::default());
            fleet.launch(at).await;
        }
        fleet
    }

    /// Starts a process that is gone. On a busy machine Redis may be too slow for a start.
    pub(crate) async fn launch(&self, at: usize) {
        for _ in 0..TRIES {
            let number = self.started.fetch_add(1, Ordering::Relaxed);
            let log = self.logs.path().join(number.to_string());
            match Market::start(&self.proxies[at].url(), log).await {
                Ok(market) => return drop(lock(&self.markets[at]).replace(market)),
                Err(why) => println!("process {at} has not started: {why}"),
            }
        }
        panic!("process {at} does not start");
    }

    /// Takes a process out of the fleet.
    pub(crate) fn take(&self, at: usize) -> Option<Market> {
        lock(&self.markets[at]).take()
    }

    pub(crate) fn with<T>(&self, at: usize, look: impl FnOnce(&mut Market) -> T) -> Option<T> {
        lock(&self.markets[at]).as_mut().map(look)
    }

    /// Where a process listens, unless it is gone.
    pub(crate) fn url(&self, at: usize) -> Option<String> {
        self.with(at, |market| market.url.clone())
    }

    /// The process with an id like this in the books, or all if it is not known.
    pub(crate) fn owner(&self, id: &str) -> Whom {
        let process = id.split('.').next().unwrap_or_default();
        let owner = lock(&self.owners).get(process).copied();
        owner.map_or(Whom::All, Whom::Process)
    }

    /// Learns the ids of processes from what they send, and forgets that.
    pub(crate) fn learn(&self) {
        for (at, proxy) in self.proxies.iter().enumerate() {
            let sent = proxy.log();
            proxy.clear_log();
            let channels = sent.iter().filter_map(|seen| seen.args.get(1));
            let ids = channels.filter_map(|channel| channel.strip_prefix(CHANNEL));
            let ids = ids.map(|id| String::from_utf8_lossy(id).into_owned());
            lock(&self.owners).extend(ids.map(|id| (id, at)));
        }
    }

    /// Notes processes that have ended by themselves, or have panicked.
    pub(crate) fn look(&self, report: &Report) {
        for at in 0..PROCESSES {
            if let Some(Some(status)) = self.with(at, Market::has_ended) {
                let panic = self.take(at).and_then(|market| market.panic());
                report.wrong(
                    "a process has ended by itself",
                    format!("{status}, {panic:?}"),
                );
            }
            if let Some(Some(panic)) = self.with(at, |market| market.panic()) {
                report.wrong("a process has panicked", panic);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
