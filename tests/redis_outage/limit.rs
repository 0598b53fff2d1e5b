//! More in flight than the limit and what is rounded up: what one process does not know of the others.

use crate::{
    server::{
        BOUND, LEASE, PROCESSES, all, builder, claim, is_back, know_each_other, opens, store,
    },
    wire::Link,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    rng::Rng,
    wait::eventually,
};
use tokio::time::sleep;
use tower_semaphore::{Permit, RedisSemaphore, Semaphore, redis::WhenUnavailable::Share};

const LIMIT: u32 = 9;
const FLEET: u32 = 20;

fn degraded(permits: &[Permit]) -> usize {
    permits.iter().filter(|permit| permit.is_degraded()).count()
}

/// A server without persistence that crashes again just after its start.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_twice_does_not_shorten_the_count_of_processes() {
    let mut server = RedisServer::start();
    let first = store(&server, Share).await;
    let proxy = Proxy::start(&server).await;
    let mut late = Vec::new();
    for _ in 0..2 {
        late.push(builder(Share).connect(proxy.url()).await.expect("a server"));
    }
    know_each_other(&server, 3).await;
    proxy.refuse().await;
    server.kill();
    let mut of_others = Vec::new();
    for store in &late {
        of_others.extend(all(store, LIMIT).await);
    }
    assert_eq!(of_others.len(), 6);
    opens(&first).await;
    server.restart();
    // The first process is the first to call, and the others follow.
    let mut raw = Raw::connect(server.port()).await;
    eventually("it calls", BOUND, async || raw.zcard(PROCESSES).await == 1).await;
    proxy.accept().await;
    eventually("all call", BOUND, async || raw.zcard(PROCESSES).await == 3).await;
    proxy.refuse().await;
    server.kill();
    opens(&first).await;
    sleep(LEASE * 2).await;
    assert_eq!(all(&first, LIMIT).await.len(), 3, "its share");
    server.restart();
    // The others are late again, by less than the time to settle.
    let start = Instant::now();
    let mut own = Vec::new();
    while start.elapsed() < Duration::from_millis(400) {
        own.extend(first.acquire(claim(LIMIT)).await);
        sleep(Duration::from_millis(5)).await;
    }
    proxy.accept().await;
    sleep(LEASE).await;
    let sum = own.len() + of_others.len();
    assert!(
        sum <= LIMIT as usize,
        "{sum} in flight under a limit of {LIMIT}: {} of the first process, and {} of the others, \
         of which {} have no place in the store",
        own.len(),
        of_others.len(),
        degraded(&of_others)
    );
}

/// All lose the server, and have it back at the same time. One has just begun to connect, and its packets
/// were lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_connecting_when_the_network_healed_finds_its_place_in_time() {
    let server = RedisServer::start();
    let (proxy, link) = (Proxy::start(&server).await, Link::to(&server).await);
    let stores = [
        builder(Share).connect(proxy.url()).await.expect("a server"),
        builder(Share).connect(proxy.url()).await.expect("a server"),
        builder(Share).connect(link.url()).await.expect("a server"),
    ];
    know_each_other(&server, 3).await;
    let mut sums = Vec::new();
    for _ in 0..2 {
        link.cut();
        proxy.refuse().await;
        proxy.kill(End::Reset);
        let mut permits = Vec::new();
        for store in &stores {
            opens(store).await;
            permits.extend(all(store, 3).await);
        }
        sleep(LEASE).await;
        let swallowed = link.swallowed();
        eventually("it connects", BOUND, async || link.swallowed() > swallowed).await;
        link.heal();
        proxy.accept().await;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) {
            for store in &stores {
                permits.extend(store.acquire(claim(3)).await);
            }
            sleep(Duration::from_millis(5)).await;
        }
        sums.push((permits.len(), degraded(&permits)));
        drop(permits);
        for store in &stores {
            is_back(store).await;
        }
        sleep(LEASE).await;
    }
    assert!(
        sums.iter().all(|(sum, _)| *sum <= 3),
        "in flight under a limit of 3, and how many without a place: {sums:?}"
    );
}

/// A restart that is over before the next refresh.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_idle_while_the_server_was_restarted_settles_too() {
    let mut server = RedisServer::start();
    let slow = builder(Share).lease(Duration::from_secs(10));
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(slow.clone().connect(server.url()).await.expect("a server"));
    }
    know_each_other(&server, 3).await;
    let [idle, busy @ ..] = &stores[..] else {
        unreachable!()
    };
    drop(all(idle, LIMIT).await);
    let mut permits = Vec::new();
    server.kill();
    for store in busy {
        permits.extend(all(store, LIMIT).await);
    }
    assert_eq!(permits.len(), 6, "their shares");
    server.restart();
    let burst = all(idle, LIMIT).await;
    sleep(Duration::from_secs(2)).await;
    let sum = burst.len() + permits.len();
    assert!(
        sum <= LIMIT as usize,
        "{sum} in flight under a limit of {LIMIT}: the idle process got {}, and {} of 6 permits have no \
         place in the store",
        burst.len(),
        degraded(&permits)
    );
}

/// In flight now, and at most.
#[derive(Default)]
struct Witness(AtomicUsize, AtomicUsize);

async fn load(store: RedisSemaphore, witness: Arc<Witness>, mut rng: Rng) {
    loop {
        match store.acquire(claim(FLEET)).await {
            Ok(permit) => {
                let now = witness.0.fetch_add(1, SeqCst) + 1;
                witness.1.fetch_max(now, SeqCst);
                sleep(rng.millis(5..100)).await;
                witness.0.fetch_sub(1, SeqCst);
                drop(permit);
            }
            Err(_) => sleep(rng.millis(2..15)).await,
        }
    }
}

/// A server that stops answering for less than a second or so, again and again. The fleet, the limit and the
/// bound are those of the figure to reach; nothing has to be rounded.
#[tokio::test(flavor = "multi_thread")]
async fn short_pauses_of_the_server_under_load_break_no_limit() {
    let server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(store(&server, Share).await);
    }
    know_each_other(&server, 5).await;
    let witness = Arc::<Witness>::default();
    let mut tasks = Vec::new();
    for task in 0..60 {
        let store = stores[task % 5].clone();
        let rng = Rng::new(task as u64);
        tasks.push(tokio::spawn(load(store, witness.clone(), rng)));
    }
    sleep(Duration::from_secs(1)).await;
    assert!(witness.1.load(SeqCst) <= FLEET as usize);
    let mut rng = Rng::new(99);
    let mut most = Vec::new();
    for _ in 0..10 {
        let pause = rng.millis(400..1_200);
        server.stop();
        sleep(pause).await;
        server.cont();
        sleep(rng.millis(300..1_800)).await;
        most.push((pause, witness.1.swap(0, SeqCst)));
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(
        most.iter().all(|(_, most)| *most <= FLEET as usize + 4),
        "pauses, and how many were in flight at most under a limit of {FLEET}: {most:?}"
    );
}
