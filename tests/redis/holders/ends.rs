//! A permit that has ended is lost for good, whatever an answer on its way says.

use super::common::{BOUND, HELD, calls_for, ended, permit, store};
use std::time::{Duration, Instant};
use testing::{proxy::Proxy, redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(3);
/// Within the store's timeout.
const DELAY: Duration = Duration::from_millis(400);

struct Fixture {
    _server: RedisServer,
    proxy: Proxy,
    _store: RedisSemaphore,
    permit: Permit,
}

/// A permit whose refresh is on its way: it will succeed, and its answer comes after a while.
async fn in_refresh() -> Fixture {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let store = store(proxy.url(), LEASE).await;
    let permit = permit(&store, 1).await;
    let mut raw = Raw::connect(server.port()).await;
    let other = store.acquire(Claim::new("b").with_limit(1)).await;
    assert!(other.expect("there is room").release().await);
    let end = raw.zmembers(HELD).await[0].1;
    eventually("it is refreshed once", BOUND, async || {
        raw.zmembers(HELD).await[0].1 > end
    })
    .await;
    proxy.delay(Duration::ZERO, DELAY);
    proxy.clear_log();
    eventually("a refresh is on its way", BOUND, async || {
        calls_for(&proxy, HELD) > 0
    })
    .await;
    Fixture {
        _server: server,
        proxy,
        _store: store,
        permit,
    }
}

async fn stays_lost(permit: &Permit) {
    let start = Instant::now();
    while start.elapsed() < DELAY * 4 {
        assert!(permit.is_lost(), "alive again after {:?}", start.elapsed());
        tokio::time::sleep(DELAY / 100).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_max_hold_ended_stays_lost_when_a_refresh_is_answered() {
    let Fixture { permit, proxy, .. } = &in_refresh().await;
    permit.end_after(Duration::ZERO);
    ended("its end", permit.lost()).await;
    stays_lost(permit).await;
    proxy.forward();
}
