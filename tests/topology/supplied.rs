//! A connection of the caller's to several nodes, as a cluster's client or a gateway gives it: each command goes to the
//! node of its key.

use futures_util::future::join_all;
use redis::{
    Arg, Cmd, Pipeline, RedisFuture, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use testing::{
    clock::SteppedClock,
    machine::{alone, beside_others},
    redis::{RedisServer, slot},
    resp::Raw,
    stores::connection,
    wait::eventually,
};
use tokio::time::{sleep, timeout};
use tower_semaphore::{
    AcquireError, Claim, Permit, RedisSemaphore, Semaphore,
    redis::{
        Builder,
        WhenUnavailable::{self, Admit, Refuse, Share},
    },
};

/// Nothing that waits for this is about time.
const BOUND: Duration = Duration::from_secs(20);
/// The first of the slots of the second node. A key of the store itself, `semaphore:2:clock`, is there.
const MIDDLE: u16 = 8_192;

/// Two nodes, with half of the slots each.
#[derive(Clone)]
struct Nodes {
    nodes: [MultiplexedConnection; 2],
    /// The second node answers nothing.
    is_dead: Arc<AtomicBool>,
}

/// The node of a key: behind the script and the count of keys.
fn node_of(command: &Cmd) -> usize {
    match command.args_iter().nth(3) {
        Some(Arg::Simple(key)) => usize::from(slot(key) >= MIDDLE),
        _ => 0,
    }
}

impl ConnectionLike for Nodes {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let node = node_of(command);
        Box::pin(async move {
            if node == 1 && self.is_dead.load(Relaxed) {
                return pending().await;
            }
            // So that several are in flight.
            sleep(Duration::from_millis(5)).await;
            self.nodes[node].req_packed_command(command).await
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(pending())
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// A store over two servers.
struct Fixture {
    _servers: [RedisServer; 2],
    nodes: Nodes,
    store: RedisSemaphore,
}

impl Fixture {
    async fn new(builder: Builder) -> Self {
        Self::on([RedisServer::start(), RedisServer::start()], builder).await
    }

    async fn on(servers: [RedisServer; 2], builder: Builder) -> Self {
        let nodes = Nodes {
            nodes: [
                connection(&servers[0].url()).await,
                connection(&servers[1].url()).await,
            ],
            is_dead: Arc::default(),
        };
        let store = builder.with_connection(nodes.clone());
        Self {
            _servers: servers,
            nodes,
            store: store.expect("right settings"),
        }
    }

    fn kill_other(&self) {
        self.nodes.is_dead.store(true, Relaxed);
    }

    /// Permits of keys of their own, on one of the nodes.
    async fn hold(&self, is_on_other: bool, count: usize) -> Vec<Permit> {
        let (mut permits, mut keys) = (Vec::new(), keys(is_on_other, "held"));
        while permits.len() < count {
            let keys = keys.by_ref().take((count - permits.len()).min(50));
            let claims = keys.map(|key| self.store.acquire(Claim::new(key).with_limit(1)));
            // On a busy machine some fail.
            permits.extend(join_all(claims).await.into_iter().flatten());
        }
        permits
    }

    /// Claims on a node all the time: of a hundred keys, one after the other in each of some tasks.
    fn load(&self, is_on_other: bool, tasks: usize, weight: u32) {
        for task in 0..tasks {
            let keys = keys(is_on_other, "busy").skip(task * 5).take(5);
            let (store, keys) = (self.store.clone(), keys.collect::<Vec<_>>());
            tokio::spawn(async move {
                for key in keys.iter().cycle() {
                    let claim = Claim::new(key).with_limit(9_000).with_weight(weight);
                    drop(store.acquire(claim).await);
                    sleep(Duration::from_millis(2)).await;
                }
            });
        }
    }
}

/// Names for keys on the first node, or on the other, that begin alike.
fn keys(is_on_other: bool, prefix: &str) -> impl Iterator<Item = String> + use<> {
    let prefix = prefix.to_owned();
    let names = (0..).map(move |number| format!("{prefix}-{number}"));
    names.filter(move |name| {
        (slot(format!("{{concurrency:{name}}}").as_bytes()) >= MIDDLE) == is_on_other
    })
}

/// Hardly anything is refreshed, and a busy machine is no failure of the store.
fn patient(policy: WhenUnavailable) -> Builder {
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(30));
    builder
        .timeout(Duration::from_secs(1))
        .when_unavailable(policy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_fails_no_claim_of_another_node_however_heavy() {
    let _alone = alone().await;
    for weight in [1, 1_000] {
        let fixture = Fixture::new(patient(Refuse)).await;
        drop(fixture.hold(false, 1).await);
        fixture.kill_other();
        fixture.load(true, 20, weight);
        let mut failed = Vec::new();
        for key in keys(false, "alive").take(200) {
            let claim = Claim::new(key).with_limit(weight).with_weight(weight);
            failed.extend(fixture.store.acquire(claim).await.err());
            sleep(Duration::from_millis(10)).await;
        }
        // Half failed when batches waited for the dead node. A busy machine fails fewer.
        assert!(failed.len() <= 20, "{}: {:?}", failed.len(), failed[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_a_dead_node_are_decided_at_once_beside_those_of_another_one() {
    let _share = beside_others().await;
    let fixture = Fixture::new(patient(Admit).timeout(Duration::from_millis(250))).await;
    drop(fixture.hold(false, 1).await);
    fixture.kill_other();
    fixture.load(true, 20, 1);
    fixture.load(false, 4, 1);
    sleep(Duration::from_secs(3)).await;
    let mut slow = 0;
    for key in keys(true, "busy").take(100) {
        let start = Instant::now();
        let permit = fixture.store.acquire(Claim::new(key).with_limit(9)).await;
        assert!(permit.expect("it is admitted").is_degraded());
        slow += usize::from(start.elapsed().as_millis() >= 100);
    }
    // One now and then tries the node.
    assert!(slow < 10, "{slow} of 100");
}

/// So many that each slot of the refresh schedule needs several sends.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_loses_no_permit_of_another_node_although_this_process_holds_thousands() {
    const KEYS: usize = 2_800;
    const LEASE: Duration = Duration::from_secs(16);
    let _alone = alone().await;
    let fixture = Fixture::new(RedisSemaphore::builder().lease(LEASE)).await;
    let living = fixture.hold(false, KEYS).await;
    let dying = fixture.hold(true, KEYS).await;
    fixture.kill_other();
    // Also those that come back later: their holders have been told.
    let told = living
        .iter()
        .map(|permit| timeout(LEASE * 5 / 4, permit.lost()));
    let told = join_all(told).await.into_iter().filter(Result::is_ok);
    assert_eq!(told.count(), 0, "of {KEYS} are lost");
    assert!(dying.iter().all(Permit::is_lost));
}

/// So many that not all of them are in flight together.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_releases_of_a_dead_node_delay_no_release_and_no_claim_of_another_one() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let _alone = alone().await;
    let fixture = Fixture::new(patient(Refuse).timeout(TIMEOUT)).await;
    let dying = fixture.hold(true, 14_000).await;
    let living = fixture.hold(false, 2).await;
    let key = keys(false, "alive").next().expect("there are many");
    let claim = || {
        fixture
            .store
            .acquire(Claim::new(key.as_str()).with_limit(1))
    };
    let permit = claim().await.expect("there is room");
    fixture.kill_other();
    drop(dying);
    drop(permit);
    let start = Instant::now();
    let answer = claim().await;
    assert!(answer.is_ok(), "{answer:?}");
    let released = join_all(living.iter().map(Permit::release)).await;
    assert_eq!(released, [true; 2]);
    let took = start.elapsed();
    assert!(took < TIMEOUT / 2, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_starts_while_one_node_is_dead_grants_on_the_others() {
    let _alone = alone().await;
    // The first claim waits for the clock for one timeout, and has one left: on a busy machine its
    // tries need a good part of that. The clock's key is on the dead node.
    let fixture = Fixture::new(patient(Refuse).timeout(Duration::from_secs(3))).await;
    fixture.kill_other();
    for key in keys(false, "alive").take(10) {
        let claim = Claim::new(key.as_str()).with_limit(1);
        let answer = fixture.store.acquire(claim).await;
        assert!(answer.is_ok(), "claim for {key}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_whose_clocks_differ_by_seconds_grant() {
    let _alone = alone().await;
    let clock = SteppedClock::compile();
    clock.set(5);
    let servers = [RedisServer::start(), clock.server()];
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(3));
    // A busy machine answers late.
    let builder = builder.timeout(Duration::from_secs(1));
    let fixture = Fixture::on(servers, builder).await;
    let tasks = (0..40).map(async |number| {
        for key in keys(number % 2 == 0, &format!("task-{number}")).take(50) {
            let answer = fixture.store.acquire(Claim::new(key).with_limit(1)).await;
            assert!(answer.is_ok(), "{answer:?}");
        }
    });
    join_all(tasks).await;
}

/// A store over a plain connection to one server, which is as most are.
async fn alone_on(server: &RedisServer, builder: Builder) -> RedisSemaphore {
    let store = builder.with_connection(connection(&server.url()).await);
    let store = store.expect("right settings");
    drop(store.acquire(Claim::new("warm").with_limit(1)).await);
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_only_server_is_silent_claims_of_all_keys_are_decided_at_once_until_it_is_back() {
    let server = RedisServer::start();
    let store = alone_on(&server, RedisSemaphore::builder()).await;
    server.stop();
    for _ in 0..3 {
        // Of one sixteenth of the slots.
        drop(store.acquire(Claim::new("warm").with_limit(1)).await);
    }
    sleep(Duration::from_secs(3)).await;
    let mut slow = 0;
    for key in keys(false, "any").take(100) {
        let start = Instant::now();
        let answer = store.acquire(Claim::new(key).with_limit(9)).await;
        assert!(matches!(answer, Err(AcquireError::Store { .. })));
        slow += usize::from(start.elapsed().as_millis() >= 100);
    }
    // One now and then tries the server.
    assert!(slow < 10, "{slow} of 100 claims waited");
    server.cont();
    eventually("it grants again", BOUND, async || {
        store
            .acquire(Claim::new("warm").with_limit(1))
            .await
            .is_ok()
    })
    .await;
}

/// As many as are granted or admitted.
async fn all(store: &RedisSemaphore, limit: u32) -> Vec<Permit> {
    let mut permits = Vec::new();
    while let Ok(permit) = store.acquire(Claim::new("a").with_limit(limit)).await {
        permits.push(permit);
    }
    permits
}

/// Its announcements have shown that: to each part of the slots there is one every 500 ms, which fails after 250 ms.
#[tokio::test(flavor = "multi_thread")]
async fn claims_need_a_place_for_all_keys_after_the_only_server_was_silent() {
    const LIMIT: u32 = 8;
    let server = RedisServer::start();
    let short = || RedisSemaphore::builder().lease(Duration::from_millis(1_500));
    let share = || short().when_unavailable(Share);
    let quiet = alone_on(&server, share()).await;
    let busy = alone_on(&server, share()).await;
    let mut raw = Raw::connect(server.port()).await;
    eventually("both count", BOUND, async || {
        raw.zcard("semaphore:2:processes").await == 2
    })
    .await;
    // Each has been told by now.
    sleep(Duration::from_secs(2)).await;
    for pause in [900, 1_200] {
        server.stop();
        let claims = (0..LIMIT).map(|_| busy.acquire(Claim::new("a").with_limit(LIMIT)));
        let others = async {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(pause) {
                drop(quiet.acquire(Claim::new("b").with_limit(LIMIT)).await);
                sleep(Duration::from_millis(20)).await;
            }
            server.cont();
            all(&quiet, LIMIT).await
        };
        let (others, admitted) = tokio::join!(others, join_all(claims));
        let admitted: Vec<_> = admitted.into_iter().flatten().collect();
        let sum = others.len() + admitted.len();
        assert!(
            sum <= LIMIT as usize,
            "{sum} in flight after {pause} ms: {} of a process with claims for other keys only",
            others.len()
        );
        drop((others, admitted));
        sleep(Duration::from_secs(4)).await;
    }
}
