//! A network that heals while a process connects.
//!
//! Promises: P18.

use crate::server::{
    BOUND, LEASE, acquire_until_error, builder, claim, wait_until_back, wait_until_known,
    wait_until_open,
};
use std::time::{Duration, Instant};
use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    wait::eventually,
};
use tokio::time::sleep;
use tower_semaphore::{Permit, Semaphore, redis::WhenUnavailable::Share};

fn degraded(permits: &[Permit]) -> usize {
    permits.iter().filter(|permit| permit.is_degraded()).count()
}

/// Three processes lose the server, and can reach it again at the same time. Just before that, one of them has begun to
/// connect, and its packets were lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_connecting_when_the_network_healed_keeps_to_the_limit() {
    let server = RedisServer::start();
    let (proxy, link) = (Proxy::start(&server).await, Proxy::start(&server).await);
    let stores = [
        builder(Share).connect(proxy.url()).await.expect("a server"),
        builder(Share).connect(proxy.url()).await.expect("a server"),
        builder(Share).connect(link.url()).await.expect("a server"),
    ];
    wait_until_known(&server, 3).await;
    // The number of permits in flight, and the number of degraded ones.
    let mut sums = Vec::new();
    for _ in 0..2 {
        // Like a firewall, the link drops packets forever and reports nothing to either side.
        link.black_hole();
        proxy.refuse().await;
        proxy.kill(End::Reset);
        let mut permits = Vec::new();
        for store in &stores {
            wait_until_open(store).await;
            permits.extend(acquire_until_error(store, 3).await);
        }
        sleep(LEASE).await;
        let before = link.log().len();
        eventually("it connects", BOUND, async || link.log().len() > before).await;
        // The connection that the third process has just begun stays silent, and new ones work.
        link.kill(End::Silence);
        link.forward();
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
            wait_until_back(store).await;
        }
        sleep(LEASE).await;
    }
    assert!(
        sums.iter().all(|(sum, _)| *sum <= 3),
        "(in flight, degraded) under a limit of 3: {sums:?}"
    );
}
