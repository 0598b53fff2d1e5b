//! The server's clock is set back while an acquire has no answer.

use crate::alone;
use crate::support::{
    clock::SteppedClock, proxy::Proxy, redis::RedisServer, resp::Raw, wait::eventually,
};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(6);
const BOUND: Duration = Duration::from_secs(20);

struct Rig {
    clock: SteppedClock,
    server: RedisServer,
    proxy: Proxy,
    store: RedisSemaphore,
}

impl Rig {
    async fn start() -> Self {
        let clock = SteppedClock::compile();
        let server = RedisServer::with_environment(&[], &clock.environment());
        let proxy = Proxy::start(&server).await;
        let builder = RedisSemaphore::builder().lease(LEASE);
        let store = builder.connect(proxy.url()).await.expect("it connects");
        let rig = Self {
            clock,
            server,
            proxy,
            store,
        };
        rig.claim_and_release().await;
        rig
    }

    async fn claim_and_release(&self) {
        let permit = self.store.acquire(Claim::new("a").with_limit(5)).await;
        assert!(permit.expect("there is room").release().await);
    }

    /// A claim whose caller goes while its command is on its way, which takes so long.
    async fn hang_up(&self, delay: Duration) {
        self.proxy.delay(delay, Duration::ZERO);
        let claim = self.store.acquire(Claim::new("a").with_limit(5));
        let answer = timeout(Duration::from_millis(40), claim).await;
        assert!(answer.is_err(), "{answer:?}");
        self.proxy.delay(Duration::ZERO, Duration::ZERO);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_after_the_clock_was_set_back_ends_when_all_is_released() {
    let _alone = alone().await;
    let rig = Rig::start().await;
    rig.hang_up(Duration::from_millis(100)).await;
    rig.clock.set(-3_600);
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    let rest = rig.store.shutdown(LEASE * 3).await;
    let took = start.elapsed();
    assert!(took < LEASE * 2 && rest.is_empty(), "{took:?}: {rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_hung_up_holds_nothing_after_the_clock_was_set_back_by_a_second() {
    let _alone = alone().await;
    let rig = Rig::start().await;
    rig.clock.set(-1);
    rig.claim_and_release().await;
    rig.hang_up(Duration::from_millis(700)).await;
    sleep(Duration::from_secs(2)).await;
    let mut raw = Raw::connect(rig.server.port()).await;
    let held = raw.zmembers("semaphore:{concurrency:a}:held").await;
    assert!(held.is_empty(), "{held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keeper_of_a_dropped_store_ends_after_the_clock_was_set_back() {
    let _alone = alone().await;
    let rig = Rig::start().await;
    rig.hang_up(Duration::from_millis(100)).await;
    rig.clock.set(-3_600);
    drop(rig.store);
    eventually("its connection is closed", BOUND, async || {
        rig.proxy.connections() == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_recover_at_once_when_the_clock_was_set_forward() {
    let _alone = alone().await;
    let rig = Rig::start().await;
    for (step, hours) in [1, 0, 2, -1].into_iter().enumerate() {
        rig.clock.set(hours * 3_600);
        let claims = (0..64).map(|key| {
            let claim = Claim::new(format!("{step}-{key}")).with_limit(1);
            rig.store.acquire(claim)
        });
        let answers = futures_util::future::join_all(claims).await;
        let failed: Vec<_> = answers
            .iter()
            .filter_map(|answer| answer.as_ref().err())
            .collect();
        assert!(
            failed.is_empty(),
            "{hours} h: {} of 64: {:?}",
            failed.len(),
            failed[0]
        );
    }
}
