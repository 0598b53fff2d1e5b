//! A runtime stalls while it discovers servers, and resumes after they were replaced.
//!
//! Promises: P18.

use crate::{
    cluster::{self, BOUND},
    sentinel::{self, naming_since_epoch},
};
use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};
use testing::{
    front::Front,
    machine::beside_others,
    redis::{Cluster, RedisServer, Sentinels},
    resp::{Raw, Reply},
    wait::eventually,
};
use tokio::{task::yield_now, time::sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

fn claim(key: &str) -> Claim {
    Claim::new(key).with_limit(10_000)
}

/// A runtime that runs step by step while a claim for the first key is pending: each step polls its connections once.
/// With `is_connected` it first claims every key, so that it connects to their servers. [`run`](Self::run) ends the
/// steps.
struct Stepwise {
    steps: SyncSender<()>,
    stepped: Receiver<()>,
    runtime: thread::JoinHandle<()>,
}

impl Stepwise {
    fn start(store: RedisSemaphore, keys: Vec<String>, is_connected: bool) -> Self {
        let (go, steps) = sync_channel(0);
        let (done, stepped) = sync_channel(0);
        let run = async move {
            for key in keys.iter().chain(&keys).filter(|_| is_connected) {
                drop(store.acquire(claim(key)).await);
                sleep(Duration::from_millis(100)).await;
            }
            done.send(()).expect("the test waits");
            let again = tokio::spawn(store.acquire(claim(&keys[0])));
            while steps.recv().is_ok() {
                yield_now().await;
                done.send(()).expect("the test waits");
            }
            for _ in 0..600 {
                drop(store.acquire(claim(&keys[0])).await);
                sleep(Duration::from_millis(5)).await;
            }
            again.abort();
        };
        let runtime = thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("it starts");
            runtime.block_on(run);
        });
        stepped.recv().expect("it runs");
        Self {
            steps: go,
            stepped,
            runtime,
        }
    }

    /// Makes at most `most` steps, until the condition holds. Returns false if it never holds.
    async fn steps_until(&self, most: usize, mut is_so: impl AsyncFnMut() -> bool) -> bool {
        for _ in 0..most {
            self.steps.send(()).expect("it runs");
            self.stepped.recv().expect("it runs");
            // The answers of all servers arrive before the next step.
            sleep(Duration::from_millis(5)).await;
            if is_so().await {
                return true;
            }
        }
        false
    }

    /// Lets the runtime run freely for three seconds, and waits for its end.
    fn run(self) {
        drop(self.steps);
        self.runtime.join().expect("no panic");
    }
}

/// The number of queries for the slots that the three nodes have answered.
async fn queries_for_slots(cluster: &Cluster) -> u64 {
    let mut count = 0;
    for node in 0..3 {
        let stats = cluster.raw(node).await.commandstats().await;
        // Redis 6.2 has one counter for all `CLUSTER` subcommands.
        let counters = ["cluster|slots", "cluster"].map(|name| stats.get(name).copied());
        count += counters.into_iter().flatten().next().unwrap_or_default();
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_runtime_does_not_bring_replaced_nodes_back() {
    let _share = beside_others().await;
    let (old, new) = (
        Cluster::of_primaries(3).await,
        Cluster::of_primaries(3).await,
    );
    let seed = Front::open(Duration::ZERO).await;
    seed.point_at(old.node(0).port());
    let url = format!("redis://127.0.0.1:{}/", seed.port());
    let patient = cluster::patient().timeout(Duration::from_secs(1));
    let store = patient.connect_cluster([url]);
    let store = store.await.expect("it connects");
    let mut keys = Vec::new();
    for node in 0..3 {
        keys.extend(old.keys_of(node, 1, cluster::name).await);
    }
    let stepwise = Stepwise::start(store.clone(), keys.clone(), true);
    // A `MOVED` makes the runtime query the nodes for the slots.
    let slot = old.slot(&cluster::name(&keys[0])).await;
    old.move_slot(slot, 0, 1).await;
    let before = queries_for_slots(&old).await;
    let has_queried = async || queries_for_slots(&old).await > before;
    assert!(stepwise.steps_until(3_000, has_queried).await);
    (0..3).for_each(|node| old.node(node).stop());
    seed.point_at(new.node(0).port());
    let works = async || store.acquire(claim(&keys[2])).await.is_ok();
    eventually("the new nodes serve", BOUND, works).await;
    // Without the seed, a store that has returned to the old nodes cannot find the new ones again.
    seed.cut();
    stepwise.run();
    eventually("the new nodes still serve", BOUND, works).await;
}

/// The number of open connections whose last command was a query of the Sentinel.
async fn connections_that_queried(sentinel: &RedisServer) -> usize {
    let mut raw = Raw::connect(sentinel.port()).await;
    let clients = raw.cmd(&["CLIENT", "LIST"]).await;
    clients.text().matches("cmd=sentinel").count()
}

async fn all_queries(sentinels: &[RedisServer]) -> usize {
    let mut count = 0;
    for sentinel in sentinels {
        count += connections_that_queried(sentinel).await;
    }
    count
}

/// The key of the Sentinel test. A server of this test may have the port of another test's server and receive its
/// claims, so only claims for this key count.
const KEY: &str = "standstill";

/// The last token that a server has granted for [`KEY`]. Each grant increments it.
async fn last_token(server: &RedisServer) -> Reply {
    let key = format!("{}:token", cluster::name(KEY));
    Raw::connect(server.port()).await.cmd(&["GET", &key]).await
}

/// Stalls a runtime whose sockets hold unread answers of all Sentinels.
async fn stall_with_answers(store: &RedisSemaphore, sentinels: &[RedisServer]) -> Stepwise {
    eventually(
        "only the keeper is connected, to one Sentinel",
        BOUND,
        async || all_queries(sentinels).await == 1,
    )
    .await;
    for _ in 0..20 {
        let stepwise = Stepwise::start(store.clone(), vec![KEY.to_owned()], false);
        let have_answered = async || all_queries(sentinels).await > sentinels.len();
        if stepwise.steps_until(100, have_answered).await {
            return stepwise;
        }
        stepwise.run();
    }
    panic!("it never queries them all at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_runtime_does_not_bring_the_old_primary_back() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let before = [0; 3].map(|_| naming_since_epoch(&old, 3));
    let after = [0; 3].map(|_| naming_since_epoch(&new, 7));
    let (mut fronts, mut urls) = (Vec::new(), Vec::new());
    for sentinel in &before {
        let front = Front::open(Duration::ZERO).await;
        front.point_at(sentinel.client_port());
        let port = sentinel.client_port().to_string();
        urls.push(sentinel.url().replace(&port, &front.port().to_string()));
        fronts.push(front);
    }
    let store = sentinel::patient().lease(Duration::from_secs(60));
    let store = store.connect_sentinel(urls, Sentinels::NAME).await;
    let store = store.expect("it connects");
    let stalled = stall_with_answers(&store, &before).await;
    // The old primary is replaced while the stalled runtime still has unread answers that name it.
    for (front, sentinel) in fronts.iter().zip(&after) {
        front.point_at(sentinel.client_port());
    }
    eventually("the old primary is left", BOUND, async || {
        drop(store.acquire(claim(KEY)).await);
        last_token(&new).await != Reply::Nil
    })
    .await;
    let old_token = last_token(&old).await;
    stalled.run();
    let new_token = last_token(&new).await;
    eventually("claims still go to the new primary", BOUND, async || {
        drop(store.acquire(claim(KEY)).await);
        last_token(&new).await != new_token
    })
    .await;
    assert_eq!(last_token(&old).await, old_token);
}
