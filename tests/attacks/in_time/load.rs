//! Claims that arrive at a constant rate, whatever the outcome of earlier claims.

use std::{
    future::Future,
    time::{Duration, Instant},
};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

/// After this, a claim counts as unanswered.
const NEVER: Duration = Duration::from_secs(20);

/// The outcome of a claim.
#[derive(Debug)]
pub(crate) enum Outcome {
    Granted,
    Full,
    Failed,
    Unanswered,
    Other,
}

/// The outcome of a claim and its duration.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

/// Acquires once.
pub(crate) async fn answer(store: RedisSemaphore, claim: Claim) -> (Answer, Option<Permit>) {
    let start = Instant::now();
    let answer = tokio::time::timeout(NEVER, store.acquire(claim)).await;
    let took = start.elapsed();
    let (outcome, permit) = match answer {
        Ok(Ok(permit)) => (Outcome::Granted, Some(permit)),
        Ok(Err(AcquireError::Full { .. })) => (Outcome::Full, None),
        Ok(Err(AcquireError::Store { .. })) => (Outcome::Failed, None),
        Ok(Err(_)) => (Outcome::Other, None),
        Err(_) => (Outcome::Unanswered, None),
    };
    (Answer { outcome, took }, permit)
}

/// A request on one hot key: holds what it is granted for 15 to 45 ms.
pub(crate) async fn hot_request(store: RedisSemaphore, number: u64) -> Answer {
    let claim = Claim::new("hot").with_limit(80);
    let (answer, permit) = answer(store, claim).await;
    if permit.is_some() {
        tokio::time::sleep(Duration::from_millis(15 + number % 31)).await;
    }
    answer
}

/// Starts one task after the other at a rate per second. Returns the outcomes of all.
pub(crate) async fn offer<F>(
    rate: u64,
    time: Duration,
    mut one: impl FnMut(u64) -> F,
) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (start, mut tasks) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let due = start.elapsed().as_micros() as u64 * rate / 1_000_000;
        while (tasks.len() as u64) < due {
            tasks.push(tokio::spawn(one(tasks.len() as u64)));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut outputs = Vec::with_capacity(tasks.len());
    for task in tasks {
        outputs.push(task.await.expect("it did not panic"));
    }
    outputs
}

/// Counts of outcomes, and the slowest answer.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) granted: usize,
    pub(crate) full: usize,
    pub(crate) failed: usize,
    pub(crate) unanswered: usize,
    pub(crate) other: usize,
    pub(crate) slowest: Duration,
}

impl FromIterator<Answer> for Tally {
    fn from_iter<I: IntoIterator<Item = Answer>>(answers: I) -> Self {
        let mut tally = Self::default();
        for answer in answers {
            let count = match answer.outcome {
                Outcome::Granted => &mut tally.granted,
                Outcome::Full => &mut tally.full,
                Outcome::Failed => &mut tally.failed,
                Outcome::Unanswered => &mut tally.unanswered,
                Outcome::Other => &mut tally.other,
            };
            *count += 1;
            tally.slowest = tally.slowest.max(answer.took);
        }
        tally
    }
}
