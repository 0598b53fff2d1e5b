//! The share of a process: how many permits of a key it admits, and how the processes are counted.
//!
//! Promises: P19.

use crate::server::{BOUND, LEASE, acquire_until_refused, builder, claim, store, wait_until_known};
use std::time::Duration;
use testing::{
    clock::SteppedClock,
    proxy::{End, Proxy},
    redis::{PROCESSES, RedisServer},
    resp::Raw,
    stores::connected,
    wait::eventually,
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore, redis::WhenUnavailable};

use WhenUnavailable::{Admit, Refuse, Share};

/// The number of permits of a limit that each store admits once the server is gone.
async fn shares(stores: &[RedisSemaphore], mut server: RedisServer, limit: u32) -> Vec<usize> {
    wait_until_known(&server, stores.len()).await;
    server.kill();
    let mut shares = Vec::new();
    for store in stores {
        let own = acquire_until_refused(store, limit).await;
        // Each key has a separate share.
        let other = store.acquire(Claim::new("b").with_limit(1)).await;
        assert!(other.is_ok_and(|permit| permit.is_degraded()));
        shares.push(own.len());
    }
    shares
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_counts_at_once_whatever_its_lease() {
    let server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..2 {
        let long = builder(Share).lease(Duration::from_secs(3_600));
        stores.push(connected(async || long.clone().connect(server.url()).await).await);
    }
    assert_eq!(shares(&stores, server, 10).await, [5; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_process_counts_whatever_its_own_policy() {
    let mut server = RedisServer::start();
    let own = store(&server, Share).await;
    let _others = [store(&server, Admit).await, store(&server, Refuse).await];
    wait_until_known(&server, 3).await;
    server.kill();
    assert_eq!(acquire_until_refused(&own, 9).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_process_counts_no_longer_than_its_lease_although_the_clock_is_set_back() {
    let clock = SteppedClock::compile();
    clock.set(0);
    let server = clock.server();
    let _store = store(&server, Share).await;
    let proxy = Proxy::start(&server).await;
    let longer = builder(Share).lease(2 * LEASE);
    let other = longer.connect(proxy.url()).await.expect("it connects");
    let mut raw = Raw::connect(server.port()).await;
    let mut wait_until_counted = async |count| {
        eventually("this number counts", BOUND, async || {
            raw.zcard(PROCESSES).await == count
        })
        .await;
    };
    wait_until_counted(2).await;
    proxy.refuse().await;
    proxy.kill(End::Close);
    drop(other);
    clock.set(-3_600);
    wait_until_counted(1).await;
}

/// The keeper is the thread of the store. A new connection may fail because the server or a gateway accepts no more, or
/// because this process has no free descriptors.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_cannot_connect_uses_the_connection_of_the_keeper() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    // Long enough for calls to be answered in time, even on a busy machine.
    let patient = builder(Share).lease(4 * LEASE).timeout(LEASE);
    let store = patient.connect(proxy.url()).await.expect("a server");
    let _other = self::store(&server, Share).await;
    wait_until_known(&server, 2).await;
    // More than the share, so a claim is granted only by the server. The limit is 13, so each of the two runtimes that
    // claim below finds a unit.
    let _held = crate::server::acquire_until_error(&store, 11).await;
    proxy.refuse().await;
    let own = store.clone();
    let apart = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(count_granted(&own, 150))
    });
    // On a busy machine, one call in twenty may be too slow.
    let granted = count_granted(&store, 300).await;
    assert!(
        granted > 285,
        "{granted} of 300 in the runtime that is connected"
    );
    let granted = tokio::task::block_in_place(|| apart.join().expect("no panic"));
    assert!(
        granted > 142,
        "{granted} of 150 in the runtime that cannot connect"
    );
}

/// The number of grants of `count` claims, made one after another. Checks run between them; they are not evidence for
/// the store that the server works.
async fn count_granted(store: &RedisSemaphore, count: usize) -> usize {
    let mut granted = 0;
    for _ in 0..count {
        granted += usize::from(store.acquire(claim(13)).await.is_ok());
        drop(store.check().await);
        tokio::time::sleep(Duration::from_millis(8)).await;
    }
    granted
}
