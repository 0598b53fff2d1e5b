//! Interactive claims under a backlog of batch claims, in every store.

use super::{BOUND, Store, claim, head_starts::HEAD_START, queue::until_waiting};
use std::{
    collections::VecDeque,
    iter,
    time::{Duration, Instant},
};
use testing::stores::facts;
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::{sleep, timeout},
};
use tower_semaphore::{Permit, Semaphore};

facts! {
    interactive_claims_wait_for_one_hold_under_a_backlog_of_ten_times_the_limit
    no_stream_of_interactive_claims_passes_a_batch_claim_for_longer_than_the_head_start
}

/// Units of the key, and a tenth of the backlog.
const LIMIT: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Batch,
    Interactive,
}
use Kind::{Batch, Interactive};

/// A claim of the backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Job {
    kind: Kind,
    number: usize,
    /// Just before the claim was made.
    claimed: Instant,
}

/// The claims that wait, and those that are granted.
struct Backlog {
    store: Store,
    limit: u32,
    head_start: Duration,
    jobs: usize,
    waiting: u32,
    grants: UnboundedSender<(Job, Permit)>,
    granted: UnboundedReceiver<(Job, Permit)>,
}

impl Backlog {
    fn new(store: &Store, limit: usize, head_start: Duration) -> Self {
        let (grants, granted) = mpsc::unbounded_channel();
        Self {
            store: store.clone(),
            limit: limit as u32,
            head_start,
            jobs: 0,
            waiting: 0,
            grants,
            granted,
        }
    }

    /// A claim joins the queue.
    async fn join(&mut self, kind: Kind) {
        let claim = claim("a", self.limit).with_wait(BOUND * 12);
        let claim = match kind {
            Batch => claim,
            Interactive => claim.with_head_start(self.head_start),
        };
        let job = Job {
            kind,
            number: self.jobs,
            claimed: Instant::now(),
        };
        self.jobs += 1;
        self.waiting += 1;
        let (acquire, grants) = (self.store.acquire(claim), self.grants.clone());
        tokio::spawn(async move {
            let permit = acquire.await.expect("it is granted in time");
            // A test that has failed has dropped the receiver.
            let _ = grants.send((job, permit));
        });
        until_waiting(&self.store, self.waiting).await;
    }

    async fn next(&mut self) -> (Job, Permit) {
        let next = timeout(BOUND * 6, self.granted.recv()).await;
        self.waiting -= 1;
        next.expect("it is granted in time").expect("some wait")
    }

    /// Releases a permit, and returns what is granted then. One at a time, because tokens do not tell the
    /// order: a waiter that polls after its grant gets a later one.
    async fn exchange(&mut self, permit: Permit) -> (Job, Permit) {
        assert!(permit.release().await);
        self.next().await
    }

    /// Exchanges the oldest permit until nothing waits. The jobs in the order of their grants.
    async fn drain(mut self, held: Vec<Permit>) -> Vec<Job> {
        let mut held = VecDeque::from(held);
        let mut jobs = Vec::new();
        while self.waiting > 0 {
            let oldest = held.pop_front().expect("it holds some");
            let (job, permit) = self.exchange(oldest).await;
            jobs.push(job);
            held.push_back(permit);
        }
        jobs
    }
}

/// Whether these are first come, first served.
fn in_order<'a>(jobs: impl Iterator<Item = &'a Job>) -> bool {
    jobs.map(|job| job.number).is_sorted()
}

/// When each holder has ended once, all interactive claims are granted, if they are no more than the
/// holders; and before any of the backlog.
async fn interactive_claims_wait_for_one_hold_under_a_backlog_of_ten_times_the_limit(store: Store) {
    let mut backlog = Backlog::new(&store, LIMIT, HEAD_START);
    let mut holders = super::fill(&store, &claim("a", LIMIT as u32)).await;
    for _ in 0..10 * LIMIT {
        backlog.join(Batch).await;
    }
    let mut served = Vec::new();
    for round in 0..2 * LIMIT {
        let interactive = 1 + round % LIMIT;
        for _ in 0..interactive {
            backlog.join(Interactive).await;
        }
        let (mut jobs, mut permits) = (Vec::new(), Vec::new());
        for holder in holders {
            let (job, permit) = backlog.exchange(holder).await;
            jobs.push(job);
            permits.push(permit);
        }
        let kinds = iter::repeat_n(Interactive, interactive).chain(iter::repeat(Batch));
        let kinds: Vec<_> = kinds.take(LIMIT).collect();
        assert!(jobs.iter().map(|job| &job.kind).eq(&kinds), "{jobs:?}");
        served.extend(jobs);
        holders = permits;
    }
    served.extend(backlog.drain(holders).await);
    for kind in [Batch, Interactive] {
        assert!(
            in_order(served.iter().filter(|job| job.kind == kind)),
            "{served:?}"
        );
    }
}

/// Interactive claims come all the time. Those that come a head start after a batch claim do not
/// pass it.
async fn no_stream_of_interactive_claims_passes_a_batch_claim_for_longer_than_the_head_start(
    store: Store,
) {
    let head_start = Duration::from_secs(2);
    let mut backlog = Backlog::new(&store, 1, head_start);
    let held = store.acquire(claim("a", 1)).await.expect("there is room");
    let mut queued = Vec::new();
    for _ in 0..2 {
        backlog.join(Batch).await;
        let since = Instant::now();
        queued.push(since);
        while since.elapsed() <= head_start {
            backlog.join(Interactive).await;
            sleep(Duration::from_millis(20)).await;
        }
        for _ in 0..10 {
            backlog.join(Interactive).await;
        }
    }
    let jobs = backlog.drain(vec![held]).await;
    let batches = jobs.iter().enumerate().filter(|(_, job)| job.kind == Batch);
    for ((at, _), queued) in batches.zip(queued) {
        let is_late = |job: &&Job| job.kind == Interactive && job.claimed > queued + head_start;
        assert_eq!(jobs[..at].iter().find(is_late), None, "{jobs:?}");
        assert!(jobs[at..].iter().any(|job| is_late(&job)));
        let passes = |job: &Job| job.kind == Interactive && job.claimed > queued;
        assert!(jobs[..at].iter().any(passes), "{jobs:?}");
    }
}
