//! Measures how long a runtime did not run its tasks, as happens on a busy machine.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{task::JoinHandle, time::sleep};

const TICK: Duration = Duration::from_millis(2);

/// Watches the runtime on which it was started, until it is dropped.
#[derive(Debug)]
pub struct StallWatch {
    longest_ms: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl StallWatch {
    /// Starts the watch.
    pub fn start() -> Self {
        let longest_ms = Arc::<AtomicU64>::default();
        let task = tokio::spawn(watch(Arc::clone(&longest_ms)));
        Self { longest_ms, task }
    }

    /// The longest stall since the start.
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.longest_ms.load(Ordering::Relaxed))
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(longest_ms: Arc<AtomicU64>) {
    loop {
        let asleep = Instant::now();
        sleep(TICK).await;
        let late = asleep.elapsed().saturating_sub(TICK);
        longest_ms.fetch_max(late.as_millis() as u64, Ordering::Relaxed);
    }
}
