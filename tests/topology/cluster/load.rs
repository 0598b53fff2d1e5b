//! Load on many keys, and an independent count of the holders of each key.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use testing::in_flight::InFlight;
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore};

/// The outcome of one claim.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) key: String,
    pub(crate) start: Instant,
    pub(crate) took: Duration,
    /// `None` if the claim was granted or the key was full.
    pub(crate) error: Option<String>,
}

/// Two tasks claim each key, under a limit of one.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    /// The holders of each key.
    held: Vec<InFlight>,
    tasks: JoinSet<Vec<Seen>>,
}

impl Load {
    pub(crate) fn start(store: &RedisSemaphore, keys: &[String]) -> Self {
        let mut load = Self {
            is_over: Arc::default(),
            held: keys.iter().map(|_| InFlight::default()).collect(),
            tasks: JoinSet::new(),
        };
        for (key, held) in keys
            .iter()
            .zip(&load.held)
            .chain(keys.iter().zip(&load.held))
        {
            let over = Arc::clone(&load.is_over);
            let work = work(store.clone(), key.clone(), held.clone(), over);
            load.tasks.spawn(work);
        }
        load
    }

    /// Ends the load. Returns all claims' outcomes, unordered, and the largest number of simultaneous holders of a key.
    pub(crate) async fn stop(self) -> (Vec<Seen>, usize) {
        self.is_over.store(true, Relaxed);
        let seen = self.tasks.join_all().await.concat();
        let most = self.held.iter().map(InFlight::most).max();
        (seen, most.unwrap_or_default())
    }
}

async fn work(
    store: RedisSemaphore,
    key: String,
    held: InFlight,
    is_over: Arc<AtomicBool>,
) -> Vec<Seen> {
    let mut all = Vec::new();
    while !is_over.load(Relaxed) {
        let start = Instant::now();
        let outcome = store.acquire(Claim::new(key.as_str()).with_limit(1)).await;
        let (took, mut error) = (start.elapsed(), None);
        let pause_ms = match outcome {
            Ok(permit) => {
                // The holder of a lost permit does not count, because its successor may run.
                let _one = (!permit.is_lost()).then(|| held.begin());
                sleep(Duration::from_millis(2)).await;
                2
            }
            Err(AcquireError::Full { .. }) => 2,
            Err(failed) => {
                error = Some(format!("{failed:?}"));
                // Failing claims without a pause would only load this machine.
                50
            }
        };
        let key = key.clone();
        all.push(Seen {
            key,
            start,
            took,
            error,
        });
        sleep(Duration::from_millis(pause_ms)).await;
    }
    all
}
