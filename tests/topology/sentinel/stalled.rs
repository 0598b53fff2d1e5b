//! A runtime that stands still while it queries the Sentinels, and goes on after a failover.

use super::{BOUND, minority::watching, patient, scripts};
use std::{
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};
use testing::{
    front::Front,
    redis::{RedisServer, Sentinels},
    resp::Raw,
    wait::eventually,
};
use tokio::{task::yield_now, time::sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

fn many() -> Claim {
    Claim::new("many").with_limit(10_000)
}

/// How many connections to a Sentinel have queried it, and are still there.
async fn queries(sentinel: &RedisServer) -> usize {
    let mut raw = Raw::connect(sentinel.port()).await;
    let clients = raw.cmd(&["CLIENT", "LIST"]).await;
    clients.text().matches("cmd=sentinel").count()
}

async fn all_queries(sentinels: &[RedisServer]) -> usize {
    let mut count = 0;
    for sentinel in sentinels {
        count += queries(sentinel).await;
    }
    count
}

/// How often a server was given claims, or was connected to for them.
async fn uses(server: &RedisServer) -> (u64, u64) {
    let stats = Raw::connect(server.port()).await.commandstats().await;
    let roles = stats.get("role").copied().unwrap_or_default();
    (scripts(server).await, roles)
}

/// A runtime that claims. Until it is told to run it looks at its connections once in each step only.
struct Stepwise {
    go: SyncSender<Go>,
    done: Receiver<()>,
    runtime: thread::JoinHandle<()>,
}

enum Go {
    Step,
    Run,
}

impl Stepwise {
    fn start(store: RedisSemaphore) -> Self {
        let (go, steps) = sync_channel(0);
        let (stepped, done) = sync_channel(0);
        let run = async move {
            let first = tokio::spawn(store.acquire(many()));
            while let Ok(Go::Step) = steps.recv() {
                yield_now().await;
                stepped.send(()).expect("somebody waits");
            }
            for _ in 0..30 {
                drop(store.acquire(many()).await);
                sleep(Duration::from_millis(100)).await;
            }
            first.abort();
        };
        let runtime = thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("it starts");
            runtime.block_on(run);
        });
        Self { go, done, runtime }
    }

    /// Goes on until it has queried all Sentinels and has read none of the answers. Returns whether that
    /// has been so at once.
    async fn has_queried(&self, sentinels: &[RedisServer]) -> bool {
        for _ in 0..100 {
            self.go.send(Go::Step).expect("it runs");
            self.done.recv().expect("it runs");
            // All of them are to be equally far.
            sleep(Duration::from_millis(5)).await;
            if all_queries(sentinels).await > sentinels.len() {
                return true;
            }
        }
        false
    }

    fn run(self) {
        self.go.send(Go::Run).expect("it runs");
        self.runtime.join().expect("no panic");
    }
}

/// A runtime with the answers of all Sentinels in its sockets.
async fn stalled(store: &RedisSemaphore, sentinels: &[RedisServer]) -> Stepwise {
    eventually("the keeper watches one", BOUND, async || {
        all_queries(sentinels).await == 1
    })
    .await;
    for _ in 0..20 {
        let stepwise = Stepwise::start(store.clone());
        if stepwise.has_queried(sentinels).await {
            return stepwise;
        }
        stepwise.run();
    }
    panic!("it never queries them all at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_stood_still_does_not_bring_the_old_primary_back() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let before = [0; 3].map(|_| watching(&old, 3));
    let after = [0; 3].map(|_| watching(&new, 7));
    let (mut fronts, mut urls) = (Vec::new(), Vec::new());
    for sentinel in &before {
        let front = Front::open(Duration::ZERO).await;
        front.point_at(sentinel.client_port());
        let port = sentinel.client_port().to_string();
        urls.push(sentinel.url().replace(&port, &front.port().to_string()));
        fronts.push(front);
    }
    let store = patient().lease(Duration::from_secs(60));
    let store = store.connect_sentinel(urls, Sentinels::NAME).await;
    let store = store.expect("it connects");
    let stalled = stalled(&store, &before).await;
    // The answers wait in its sockets while the old primary is replaced, and does not know that.
    for (front, sentinel) in fronts.iter().zip(&after) {
        front.point_at(sentinel.client_port());
    }
    eventually("the old primary is left", BOUND, async || {
        drop(store.acquire(many()).await);
        scripts(&new).await > 0
    })
    .await;
    sleep(Duration::from_millis(500)).await;
    let earlier = uses(&old).await;
    stalled.run();
    assert_eq!(uses(&old).await, earlier);
}
