//! A runtime that stands still while it queries the nodes, and goes on when they have been replaced.

use super::{BOUND, name, patient};
use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};
use testing::{front::Front, machine::beside_others, redis::Cluster, wait::eventually};
use tokio::{task::yield_now, time::sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

fn claim(key: &str) -> Claim {
    Claim::new(key).with_limit(10_000)
}

/// How often a node was queried for the slots.
async fn queries(cluster: &Cluster) -> u64 {
    let mut count = 0;
    for node in 0..3 {
        let stats = cluster.raw(node).await.commandstats().await;
        // Redis 6.2 does not tell one from the other.
        let of_slots = ["cluster|slots", "cluster"].map(|name| stats.get(name).copied());
        count += of_slots.into_iter().flatten().next().unwrap_or_default();
    }
    count
}

/// A runtime that claims each key, and is connected to its nodes then. Once it is told to go on it claims
/// the first one again, and looks at its connections once in each step only, until the steps end.
struct Stepwise {
    ready: Receiver<()>,
    steps: SyncSender<()>,
    runtime: thread::JoinHandle<()>,
}

impl Stepwise {
    fn start(store: RedisSemaphore, keys: Vec<String>) -> Self {
        let (go, steps) = sync_channel(0);
        let (stepped, ready) = sync_channel(0);
        let run = async move {
            for key in keys.iter().chain(&keys) {
                drop(store.acquire(claim(key)).await);
                sleep(Duration::from_millis(100)).await;
            }
            stepped.send(()).expect("somebody waits");
            let _ = steps.recv();
            let again = tokio::spawn(store.acquire(claim(&keys[0])));
            while steps.recv().is_ok() {
                yield_now().await;
                stepped.send(()).expect("somebody waits");
            }
            drop(again.await);
            sleep(Duration::from_millis(500)).await;
        };
        let runtime = thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("it starts");
            runtime.block_on(run);
        });
        Self {
            ready,
            steps: go,
            runtime,
        }
    }

    fn step(&self) {
        self.steps.send(()).expect("it runs");
        self.ready.recv().expect("it runs");
    }

    fn run(self) {
        drop(self.steps);
        self.runtime.join().expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_stood_still_does_not_bring_nodes_back_that_were_replaced() {
    let _share = beside_others().await;
    let (old, new) = (
        Cluster::of_primaries(3).await,
        Cluster::of_primaries(3).await,
    );
    let seed = Front::open(Duration::ZERO).await;
    seed.point_at(old.node(0).port());
    let url = format!("redis://127.0.0.1:{}/", seed.port());
    let store = patient()
        .timeout(Duration::from_secs(1))
        .connect_cluster([url]);
    let store = store.await.expect("it connects");
    let mut keys = Vec::new();
    for node in 0..3 {
        keys.extend(old.keys_of(node, 1, name).await);
    }
    let stepwise = Stepwise::start(store.clone(), keys.clone());
    stepwise.ready.recv().expect("it runs");
    // It hears of that, and queries the nodes for more.
    let slot = old.slot(&name(&keys[0])).await;
    old.move_slot(slot, 0, 1).await;
    let before = queries(&old).await;
    stepwise.steps.send(()).expect("it runs");
    eventually("it has queried them", BOUND, async || {
        stepwise.step();
        sleep(Duration::from_millis(5)).await;
        queries(&old).await > before
    })
    .await;
    (0..3).for_each(|node| old.node(node).stop());
    seed.point_at(new.node(0).port());
    let works = async || store.acquire(claim(&keys[2])).await.is_ok();
    eventually("the new nodes serve", BOUND, works).await;
    // Nobody is there any more who would know the new nodes.
    seed.cut();
    stepwise.run();
    eventually("they still serve", BOUND, works).await;
}
