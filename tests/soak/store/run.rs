//! One run: a load, its faults, and what is left in the end.

use super::{
    link::Link,
    load::{self, KEYS, Load},
    oracle::Oracle,
    plan::{Fault, Plan},
    residue::residue,
    victim,
};
use futures_util::future::join_all;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testing::{machine, resp::Raw, rng::Rng};
use tokio::{
    runtime::{Handle, Runtime},
    time::{sleep, timeout},
};
use tower_semaphore::{RedisSemaphore, Semaphore};

/// Within this, nothing is left. Much shorter than the lease of a process that lives.
const BOUND: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Runs a load over a link of this round trip, and fails with all that was wrong.
pub(crate) fn soak(fault: Fault, trip_ms: u64) {
    let plan = Plan::new(fault, trip_ms);
    let link = Link::start(plan);
    let oracle = Arc::new(Oracle::new(fault.is_healthy()));
    let runtime = Runtime::new().expect("a runtime starts");
    runtime.block_on(async {
        let _alone = machine::alone().await;
        run(plan, &link, &oracle).await;
    });
    if let Some(wrong) = oracle.problems() {
        panic!("SOAK_SEED={:#x}, {plan:?}:\n{wrong}", plan.seed);
    }
}

async fn run(plan: Plan, link: &Link, oracle: &Arc<Oracle>) {
    let watched = Arc::clone(oracle);
    let watchdog = tokio::spawn(async move { watched.machine.watch().await });
    link.probe(Arc::clone(oracle));
    let stores = [connect(plan, link).await, connect(plan, link).await];
    let load = Arc::new(Load {
        oracle: Arc::clone(oracle),
        plan,
        end: Instant::now() + plan.length,
    });
    let faults = link.inject_faults(load.end);
    let kills = victim::kills(plan, link.url(), load.end);
    load.run(&stores, Rng::new(plan.seed)).await;
    kills.await.expect("the kills end");
    faults.await.expect("the faults end");
    everything_happened(oracle);
    nothing_is_left(plan, link, oracle, &stores).await;
    nothing_is_pending(oracle, &stores).await;
    watchdog.abort();
    drop(stores);
    nothing_runs(oracle).await;
}

/// A store at the other end of the link, which may be slow on a busy machine.
pub(crate) async fn connect_to(plan: Plan, url: &str) -> RedisSemaphore {
    loop {
        let builder = RedisSemaphore::builder().lease(plan.fault.lease());
        if let Ok(store) = builder.connect(url).await {
            return store;
        }
    }
}

async fn connect(plan: Plan, link: &Link) -> RedisSemaphore {
    connect_to(plan, &link.url()).await
}

/// Otherwise nothing was shown.
fn everything_happened(oracle: &Oracle) {
    for (key, times) in KEYS {
        let refused = times == 1 || oracle.counted(key, "refused") > 0;
        if oracle.counted(key, "granted") == 0 || !refused {
            oracle.is_wrong(key, "its callers", "saw too little", String::new());
        }
    }
}

/// Checks again and again until nothing is wrong any more, or the bound has passed.
async fn within(
    bound: Duration,
    mut complaint: impl AsyncFnMut() -> Option<String>,
) -> Option<String> {
    let end = Instant::now() + bound;
    loop {
        let last = Instant::now() >= end;
        let complaint = complaint().await;
        if complaint.is_none() || last {
            return complaint;
        }
        sleep(PAUSE).await;
    }
}

/// Nothing is held, no claim waits, and the whole limit of each key can be acquired at once.
async fn nothing_is_left(plan: Plan, link: &Link, oracle: &Oracle, stores: &[RedisSemaphore]) {
    let mut raw = Raw::connect(link.port()).await;
    // A killed process's permits are purged by the next claim after their leases.
    if plan.fault == Fault::Kill {
        whole_limit_is_free(oracle, stores, plan.fault.lease() + BOUND).await;
    }
    let left = within(BOUND, async || {
        let residue = residue(&mut raw).await;
        (!residue.is_empty()).then(|| residue.join(", "))
    });
    if let Some(left) = left.await {
        oracle.is_wrong("in the end", "something", "is left in Redis", left);
    }
    whole_limit_is_free(oracle, stores, BOUND).await;
}

/// All that a key has is granted to one claim that does not wait.
async fn whole_limit_is_free(oracle: &Oracle, stores: &[RedisSemaphore], bound: Duration) {
    for (key, _) in KEYS {
        let refused = within(bound, async || refused_whole(&stores[0], key).await);
        if let Some(refused) = refused.await {
            oracle.is_wrong(key, "the whole of it", "cannot be had", refused);
        }
    }
}

/// Why the whole limit of a key could not be granted and released.
async fn refused_whole(store: &RedisSemaphore, key: &'static str) -> Option<String> {
    match timeout(BOUND, store.acquire(load::whole(key))).await {
        Ok(Ok(permit)) => (!permit.release().await).then(|| "it was lost".to_owned()),
        Ok(Err(error)) => Some(format!("{error:?}")),
        Err(_) => Some("no answer".to_owned()),
    }
}

/// Each store says so itself, in time.
async fn nothing_is_pending(oracle: &Oracle, stores: &[RedisSemaphore]) {
    let start = Instant::now();
    let shutdowns = stores
        .iter()
        .map(|store| timeout(BOUND * 2, store.shutdown(BOUND)));
    for unreleased in join_all(shutdowns).await {
        let list = match unreleased {
            Ok(list) if list.is_empty() => continue,
            Ok(list) => format!("{} of which the first is {:?}", list.len(), list[0]),
            Err(_) => "no answer".to_owned(),
        };
        let example = format!("{list}, after {:?}", start.elapsed());
        oracle.is_wrong("in the end", "shutdown", "returns no empty list", example);
    }
}

/// Of the tasks that the stores have started on this runtime.
async fn nothing_runs(oracle: &Oracle) {
    let tasks = within(BOUND, async || {
        let tasks = Handle::current().metrics().num_alive_tasks();
        (tasks > 0).then(|| format!("{tasks} tasks"))
    });
    if let Some(tasks) = tasks.await {
        oracle.is_wrong("in the end", "something", "still runs", tasks);
    }
}
