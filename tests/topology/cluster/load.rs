//! Load on many keys, and a witness of who holds what.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

/// What became of one claim.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) key: String,
    pub(crate) start: Instant,
    pub(crate) took: Duration,
    /// `None`: it was granted, or the key was full.
    pub(crate) error: Option<String>,
}

/// Two tasks for each key, of which one may hold it at a time.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    /// The most that ever held one key.
    most: Arc<AtomicU32>,
    tasks: JoinSet<Vec<Seen>>,
}

impl Load {
    pub(crate) fn start(store: &RedisSemaphore, keys: &[String]) -> Self {
        let (is_over, most) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let mut tasks = JoinSet::new();
        for key in keys {
            let held = Arc::<AtomicU32>::default();
            for _ in 0..2 {
                let task = Task {
                    store: store.clone(),
                    key: key.clone(),
                    held: Arc::clone(&held),
                    most: Arc::clone(&most),
                    is_over: Arc::clone(&is_over),
                };
                tasks.spawn(task.run());
            }
        }
        Self {
            is_over,
            most,
            tasks,
        }
    }

    /// Ends the load. What became of the claims, in no order, and the most that ever held one key.
    pub(crate) async fn stop(mut self) -> (Vec<Seen>, u32) {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        while let Some(seen) = self.tasks.join_next().await {
            all.extend(seen.expect("no task panics"));
        }
        (all, self.most.load(Ordering::Relaxed))
    }
}

struct Task {
    store: RedisSemaphore,
    key: String,
    held: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
    is_over: Arc<AtomicBool>,
}

impl Task {
    async fn run(self) -> Vec<Seen> {
        let mut all = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let start = Instant::now();
            let outcome = self
                .store
                .acquire(Claim::new(self.key.as_str()).with_limit(1))
                .await;
            all.push(Seen {
                key: self.key.clone(),
                start,
                took: start.elapsed(),
                error: error(&outcome),
            });
            let pause = match outcome {
                Ok(permit) => {
                    self.hold(permit).await;
                    2
                }
                Err(AcquireError::Full { .. }) => 2,
                // Refused at once: more of these would only be load on this machine.
                Err(_) => 50,
            };
            sleep(Duration::from_millis(pause)).await;
        }
        all
    }

    async fn hold(&self, permit: Permit) {
        let held = self.held.fetch_add(1, Ordering::SeqCst) + 1;
        // A permit that is lost is told so, and its successor may run.
        if !permit.is_lost() {
            self.most.fetch_max(held, Ordering::SeqCst);
        }
        sleep(Duration::from_millis(2)).await;
        self.held.fetch_sub(1, Ordering::SeqCst);
        drop(permit);
    }
}

fn error(outcome: &Result<Permit, AcquireError>) -> Option<String> {
    match outcome {
        Ok(_) | Err(AcquireError::Full { .. }) => None,
        Err(error) => Some(format!("{error:?}")),
    }
}
