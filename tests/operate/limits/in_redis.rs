//! Faults that only a store in Redis meets: other processes, servers that are away or lose data, and processes that
//! start later.
//!
//! Promises: P2, P24.

use super::{BOUND, assert_full, until_in_force};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use testing::stores::Store;
use testing::{
    fleet::Process,
    in_flight::InFlight,
    redis::{Cluster, RedisServer},
    resp::Raw,
    rig::Rig,
    wait::eventually,
};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{
    AcquireError, Claim, Key, Operate, Permit, Policy, RedisSemaphore, Semaphore,
    redis::{Builder, WhenUnavailable},
};

const LEASE: Duration = Duration::from_secs(3);
const LIMITS: &str = "semaphore:2:limits{semaphore:2:processes}";

fn builder() -> Builder {
    RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3)
}

/// Stores that the server sees as separate processes.
async fn processes(url: &str, count: usize) -> Vec<Store> {
    let mut stores = Vec::new();
    for _ in 0..count {
        let store = builder().connect(url).await.expect("it connects");
        stores.push(Arc::new(store) as Store);
    }
    stores
}

/// Sets or removes the operators' limit of the key `a`.
async fn set(operator: &impl Operate, limit: Option<u32>) {
    let (policy, key) = (Policy::DEFAULT, "a".into());
    let set = operator.set_limit(&policy, Some(&key), limit, "").await;
    set.expect("the store answers");
}

fn claim() -> Claim {
    Claim::new("a").with_limit(10)
}

/// Five processes under load, and their callers' records.
struct Load {
    stores: Vec<Store>,
    in_flight: InFlight,
    /// The highest limit of a granted permit since the last reset.
    highest: Arc<AtomicU32>,
    /// True until the load must end.
    goes_on: Arc<AtomicBool>,
    callers: JoinSet<()>,
}

impl Load {
    async fn begin(url: &str) -> Self {
        let mut load = Self {
            stores: processes(url, 5).await,
            in_flight: InFlight::default(),
            highest: Arc::default(),
            goes_on: Arc::new(AtomicBool::new(true)),
            callers: JoinSet::new(),
        };
        for store in &load.stores {
            for _ in 0..8 {
                load.callers.spawn(Self::call(
                    Arc::clone(store),
                    load.in_flight.clone(),
                    Arc::clone(&load.highest),
                    Arc::clone(&load.goes_on),
                ));
            }
        }
        load
    }

    async fn call(
        store: Store,
        in_flight: InFlight,
        highest: Arc<AtomicU32>,
        goes_on: Arc<AtomicBool>,
    ) {
        while goes_on.load(SeqCst) {
            let permit = store.acquire(claim().with_wait(BOUND)).await;
            let permit = permit.expect("it is served");
            let one = in_flight.begin();
            highest.fetch_max(permit.limit(), SeqCst);
            sleep(Duration::from_millis(2)).await;
            drop((one, permit));
        }
    }

    /// Changes the limit from the first to the second. Checks that all processes know it in time and then grant no more
    /// than it allows. Before, they grant no more than the higher of both limits.
    async fn change(&mut self, operator: &Store, (from, to): (u32, Option<u32>)) {
        let begun = Instant::now();
        set(operator, to).await;
        for store in &self.stores {
            until_in_force(store, "a", to).await;
        }
        // A process reads the limits three times per lease. The rest is slack for a busy machine.
        let took = begun.elapsed();
        assert!(took < LEASE / 3 + Duration::from_secs(5), "{took:?}");
        // Without an operators' limit, that of the claims counts.
        let limit = to.unwrap_or(10);
        let higher = from.max(limit) as usize;
        assert!(self.in_flight.most() <= higher, "{}", self.in_flight.most());
        self.until_all_have(limit).await;
        self.in_flight.restart();
        self.highest.store(0, SeqCst);
        self.until_some_are_served().await;
        assert_eq!(self.highest.load(SeqCst), limit);
        assert!(self.in_flight.most() <= limit as usize);
        // The callers can use up each limit, because they can hold forty.
        eventually("the limit is used up", BOUND, async || {
            self.in_flight.most() == limit as usize
        })
        .await;
    }

    /// Waits until no permit of an earlier limit is granted any more. One may have been under way when the limit
    /// changed.
    async fn until_all_have(&self, limit: u32) {
        eventually("no more are held", BOUND, async || {
            self.until_some_are_served().await;
            self.highest.store(0, SeqCst);
            self.until_some_are_served().await;
            self.highest.load(SeqCst) == limit
        })
        .await;
    }

    async fn until_some_are_served(&self) {
        let begun = self.in_flight.begun();
        eventually("some are served", BOUND, async || {
            self.in_flight.begun() > begun + 50
        })
        .await;
    }

    async fn end(mut self) {
        self.goes_on.store(false, SeqCst);
        while let Some(ended) = self.callers.join_next().await {
            ended.expect("no panic");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_processes_under_load_follow_a_limit_down_and_up_and_back() {
    let server = RedisServer::start();
    let operator = processes(&server.url(), 1).await.remove(0);
    let mut load = Load::begin(&server.url()).await;
    load.until_some_are_served().await;
    load.change(&operator, (10, Some(3))).await;
    load.change(&operator, (3, Some(20))).await;
    load.change(&operator, (20, None)).await;
    load.end().await;
}

/// A limit may be set while the store reads the limits because of another one. It is read at once too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_limits_that_a_process_sets_at_once_are_in_force_at_once() {
    let server = RedisServer::start();
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(120));
    let builder = builder.timeout(BOUND);
    let store = builder.connect(server.url()).await.expect("it connects");
    let store: Store = Arc::new(store);
    let mut took = Vec::new();
    for limit in 1..=10 {
        let start = Instant::now();
        let sets = (0..50).map(|key| {
            let (store, key) = (Arc::clone(&store), Key::from(key.to_string()));
            async move {
                let set = store.set_limit(&Policy::DEFAULT, Some(&key), Some(limit), "");
                set.await.expect("the store answers");
            }
        });
        sets.collect::<JoinSet<_>>().join_all().await;
        for key in 0..50 {
            until_in_force(&store, &key.to_string(), Some(limit)).await;
        }
        took.push(start.elapsed());
    }
    took.sort_unstable();
    // Limits are also read every five seconds. A round begins right after a read, so without a prompt one each takes
    // 5 s. If only limits set during a read have to wait, a third of the rounds take as long. A busy machine may slow
    // one round down.
    assert!(took[8] < Duration::from_secs(2), "{took:?}");
}

/// An application may start after the process that set the limit was killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_starts_later_follows_a_limit_from_its_first_grant() {
    let server = RedisServer::start();
    let operator = processes(&server.url(), 1).await.remove(0);
    set(&operator, Some(1)).await;
    let store = processes(&server.url(), 1).await.remove(0);
    let held = store.acquire(claim()).await.expect("there is room");
    assert_eq!(held.limit(), 1);
    let mut other = Process::start(&server.url(), LEASE);
    assert_eq!(other.acquire("first", "a", 10), None);
    drop(other);
    let mut again = Process::start(&server.url(), LEASE);
    assert_eq!(again.acquire("first", "a", 10), None);
    assert!(held.release().await);
    assert!(again.acquire("first", "a", 10).is_some());
    assert_eq!(again.acquire("second", "a", 10), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_outlive_a_server_that_keeps_its_data_and_every_process() {
    let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = processes(&server.url(), 1).await.remove(0);
    set(&store, Some(2)).await;
    drop(store);
    server.restart();
    let store = processes(&server.url(), 1).await.remove(0);
    assert_eq!(
        store.acquire(claim()).await.expect("there is room").limit(),
        2
    );
    let mut raw = Raw::connect(server.port()).await;
    assert_eq!(raw.cmd(&["TTL", LIMITS]).await.int(), -1);
    set(&store, None).await;
    assert_eq!(
        raw.cmd(&["HLEN", LIMITS]).await.int(),
        1,
        "the version stays"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_a_server_has_lost_are_no_longer_in_force() {
    let server = RedisServer::start();
    let stores = processes(&server.url(), 2).await;
    set(&stores[0], Some(1)).await;
    for store in &stores {
        until_in_force(store, "a", Some(1)).await;
    }
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["FLUSHALL"]).await;
    for store in &stores {
        until_in_force(store, "a", None).await;
    }
    set(&stores[0], Some(7)).await;
    until_in_force(&stores[1], "a", Some(7)).await;
}

/// An operator may have edited the server's data by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_no_number_is_replaced_by_the_next_limit() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["HSET", LIMITS, "*version", "none"]).await;
    let store = processes(&server.url(), 1).await.remove(0);
    set(&store, Some(2)).await;
    until_in_force(&store, "a", Some(2)).await;
}

/// The process is the only one, so its share is the whole limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_cannot_reach_its_server_keeps_the_limits_that_it_knew() {
    let rig = Rig::new(builder().when_unavailable(WhenUnavailable::Share)).await;
    set(&rig.store, Some(2)).await;
    let store: Store = Arc::new(rig.store.clone());
    until_in_force(&store, "a", Some(2)).await;
    rig.proxy.black_hole();
    let mut held = Vec::new();
    eventually("it is admitted without its server", BOUND, async || {
        held.extend(store.acquire(claim()).await);
        held.iter().any(Permit::is_degraded)
    })
    .await;
    held.retain(Permit::is_degraded);
    held.extend(store.acquire(claim()).await);
    assert_eq!(held.len(), 2, "not the ten of the claim");
    assert!(held.iter().all(|permit| permit.limit() == 2));
    let refused = store.acquire(claim()).await;
    assert!(
        matches!(refused, Err(AcquireError::Store { .. })),
        "{refused:?}"
    );
    drop(held);
    rig.proxy.forward();
    eventually("it is back", BOUND, async || {
        let permit = store.acquire(claim()).await;
        permit.is_ok_and(|permit| !permit.is_degraded() && permit.limit() == 2)
    })
    .await;
}

/// The limits are one key on one node, and the semaphores are on all nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_in_force_at_every_node_of_a_cluster_even_while_their_own_node_is_down() {
    let mut cluster = Cluster::of_primaries(3).await;
    let connect = async || builder().connect_cluster(cluster.urls()).await;
    let store: Store = Arc::new(connect().await.expect("it connects"));
    let set = store.set_limit(&Policy::DEFAULT, None, Some(1), "").await;
    set.expect("the store answers");
    let other: Store = Arc::new(connect().await.expect("it connects"));
    for key in 0..20 {
        let permit = other.acquire(Claim::new(key).with_limit(5)).await;
        assert_eq!(permit.expect("there is room").limit(), 1);
    }
    let slot = cluster.slot(LIMITS).await;
    let away = cluster.first_owner(slot);
    // A key of a node that stays.
    let mut keys = (0..).map(|key| format!("k{key}"));
    let key = loop {
        let key = keys.next().expect("there are many");
        let slot = cluster
            .slot(&format!("semaphore:2:{{concurrency:{key}}}:held"))
            .await;
        if cluster.first_owner(slot) != away {
            break key;
        }
    };
    let operator = builder().operator(true).connect_cluster(cluster.urls());
    let operator = operator.await.expect("it connects");
    cluster.node_mut(away).kill();
    let claim = Claim::new(key.as_str()).with_limit(5);
    let held = other.acquire(claim.clone()).await.expect("there is room");
    assert_eq!(held.limit(), 1);
    assert_full(&other, claim, 1).await;
    eventually("its own node answers", BOUND, async || {
        let usage = operator.usage(&Policy::DEFAULT, &key.as_str().into());
        usage.await.is_ok_and(|usage| usage.units == 1)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_do_not_change_cost_an_idle_process_no_call() {
    let server = RedisServer::start();
    let store = processes(&server.url(), 1).await.remove(0);
    set(&store, Some(3)).await;
    until_in_force(&store, "a", Some(3)).await;
    let mut raw = Raw::connect(server.port()).await;
    raw.reset_stats().await;
    eventually("it has announced itself four times", BOUND, async || {
        let stats = raw.commandstats().await;
        stats.get("zcard").is_some_and(|count| *count >= 4)
    })
    .await;
    let stats = raw.commandstats().await;
    let sent = ["eval", "evalsha"].map(|name| stats.get(name).copied().unwrap_or_default());
    // An announcement has a command for each of four keys: the clock, the processes, this process, and the limits. The
    // last only checks the version. No other command was sent.
    assert_eq!(sent[0] + sent[1], 4 * stats["zcard"], "{stats:?}");
    assert!(!stats.contains_key("hgetall"), "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_has_at_most_five_thousand_limits_and_a_process_reads_them_at_once() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    // A stored limit is `LIMIT SINCE NOTE`.
    let mut fields = vec!["HSET".to_owned(), LIMITS.to_owned()];
    fields.extend(["*version".to_owned(), "1".to_owned()]);
    for key in 0..5_000 {
        fields.extend([format!("concurrency:k{key}"), "3 1 ".to_owned()]);
    }
    raw.cmd(&fields).await;
    // A busy machine may take long to read 5,000 limits.
    let patient = RedisSemaphore::builder().lease(6 * BOUND).timeout(BOUND);
    let store = patient.connect(server.url()).await.expect("it connects");
    let permit = store.acquire(Claim::new("k4999").with_limit(9)).await;
    assert_eq!(permit.expect("there is room").limit(), 3);
    let policy = Policy::DEFAULT;
    let more = store
        .set_limit(&policy, Some(&"more".into()), Some(1), "")
        .await;
    assert!(more.is_err());
    let known = store
        .set_limit(&policy, Some(&"k1".into()), Some(1), "")
        .await;
    known.expect("it is there already");
    let removed = store.set_limit(&policy, Some(&"k2".into()), None, "").await;
    removed.expect("it is removed");
    let more = store
        .set_limit(&policy, Some(&"more".into()), Some(1), "")
        .await;
    more.expect("there is room for it");
}

/// An operator cannot raise the limit of a lock, because two processes could then hold it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_has_a_limit_of_one_whatever_limits_the_server_stores() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    // A stored limit is `LIMIT SINCE NOTE`.
    let fields = [
        "*version",
        "1",
        "lock",
        "2 1 ",
        "lock:a",
        "2 1 ",
        "concurrency",
        "1 1 ",
    ];
    raw.cmd(&[&["HSET", LIMITS][..], &fields].concat()).await;
    let store = processes(&server.url(), 1).await.remove(0);
    until_in_force(&store, "a", Some(1)).await;
    let lock = tower_semaphore::Lock::new(store, "a");
    let _guard = lock.try_acquire().await.expect("it is free");
    assert!(lock.try_acquire().await.is_err());
}
