//! The market's processes, each with a separate proxy to Redis.

use super::{
    plan::{FLEET_LIMIT, LEASE, LIMIT, MAX_STALL, WAIT},
    report::{Report, Whom},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::HashMap,
    fs::{self, File},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tempfile::TempDir;
use testing::{example, proxy::Proxy, redis::RedisServer};
use tokio::process::Child;

pub(crate) const PROCESSES: usize = 3;
const TRIES: usize = 10;
/// The prefix of the channel on which a process is notified of grants.
const CHANNEL: &[u8] = b"semaphore:2:wake:";

#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) proxies: Vec<Proxy>,
    /// `None` while a process is gone.
    markets: Vec<Mutex<Option<Market>>>,
    /// The position of each process, by its id in Redis.
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

    /// Starts a process at a free position. Retries, because on a busy machine Redis may be too slow for a start.
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

    /// Removes a process from the fleet.
    pub(crate) fn take(&self, at: usize) -> Option<Market> {
        lock(&self.markets[at]).take()
    }

    /// Calls a function with a process, unless the process is gone.
    pub(crate) fn with<T>(&self, at: usize, look: impl FnOnce(&mut Market) -> T) -> Option<T> {
        lock(&self.markets[at]).as_mut().map(look)
    }

    /// The URL of a process, unless it is gone.
    pub(crate) fn url(&self, at: usize) -> Option<String> {
        self.with(at, |market| market.url.clone())
    }

    /// The process to which an id in Redis belongs, or all processes if it is unknown.
    pub(crate) fn owner(&self, id: &str) -> Whom {
        let process = id.split('.').next().unwrap_or_default();
        let owner = lock(&self.owners).get(process).copied();
        owner.map_or(Whom::All, Whom::Process)
    }

    /// Learns the ids of processes from the commands that they send, and clears the proxies' logs.
    pub(crate) fn learn(&self) {
        for (at, proxy) in self.proxies.iter().enumerate() {
            let sent = proxy.log();
            proxy.clear_log();
            // Each process subscribes to the channel with its id.
            let channels = sent.iter().filter_map(|seen| seen.args.get(1));
            let ids = channels.filter_map(|channel| channel.strip_prefix(CHANNEL));
            let ids = ids.map(|id| String::from_utf8_lossy(id).into_owned());
            lock(&self.owners).extend(ids.map(|id| (id, at)));
        }
    }

    /// Reports processes that have ended by themselves or have panicked.
    pub(crate) fn report_failures(&self, report: &Report) {
        for at in 0..PROCESSES {
            if let Some(Some(status)) = self.with(at, Market::exit_status) {
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

/// A running market. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Market {
    child: Child,
    pub(crate) url: String,
    /// The file with its standard error output.
    log: PathBuf,
}

impl Market {
    /// Starts a market. Returns its error output if it ends before it listens.
    pub(crate) async fn start(redis_url: &str, log: PathBuf) -> Result<Self, String> {
        let ms = |duration: std::time::Duration| duration.as_millis().to_string();
        let (limit, fleet) = (LIMIT.to_string(), FLEET_LIMIT.to_string());
        let (lease, wait, stall) = (ms(LEASE), ms(WAIT), ms(MAX_STALL));
        let settings = [
            ("PORT", "0"),
            ("REDIS_URL", redis_url),
            ("LIMIT", &*limit),
            ("FLEET_LIMIT", &*fleet),
            ("LEASE_MS", &*lease),
            ("WAIT_MS", &*wait),
            ("MAX_STALL_MS", &*stall),
        ];
        let mut command = example::command("market", &settings);
        let stderr = File::create(&log).expect("a log can be made");
        command.stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("the market starts");
        match example::try_address(&mut child).await {
            Some(url) => Ok(Self { child, url, log }),
            None => Err(fs::read_to_string(&log).expect("the log is text")),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.pid().try_into().ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("it is our child");
    }

    /// The exit status, if the process has ended.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let ended = self.child.wait().await;
        ended.expect("it is our child")
    }

    /// The beginning of the first panic in its log, if any.
    pub(crate) fn panic(&self) -> Option<String> {
        let log = fs::read_to_string(&self.log).expect("the log is text");
        let at = log.find("panicked at")?;
        Some(log[at..].chars().take(300).collect())
    }
}
