//! The server's clock is set back while an acquire has no answer.

use std::time::{Duration, Instant};
use testing::{clock::SteppedClock, proxy::Proxy, redis::RedisServer, resp::Raw, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(3);
const BOUND: Duration = Duration::from_secs(20);

struct Rig {
    clock: SteppedClock,
    server: RedisServer,
    proxy: Proxy,
    store: RedisSemaphore,
}

impl Rig {
    async fn start(lease: Duration) -> Self {
        let clock = SteppedClock::compile();
        let server = clock.server();
        let proxy = Proxy::start(&server).await;
        let builder = RedisSemaphore::builder().lease(lease);
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
        self.proxy.clear_log();
        self.proxy.delay(delay, Duration::ZERO);
        let claim = self.store.acquire(Claim::new("a").with_limit(5));
        let sent = async || self.proxy.count(b"EVALSHA") > 0;
        tokio::select! {
            answer = claim => panic!("{answer:?}"),
            () = eventually("it is on its way", BOUND, sent) => {}
        }
        self.proxy.delay(Duration::ZERO, Duration::ZERO);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_after_the_clock_was_set_back_ends_when_all_is_released() {
    let rig = Rig::start(LEASE).await;
    rig.hang_up(Duration::from_millis(100)).await;
    rig.clock.set(-3_600);
    // Its command arrives, and a release has its answer.
    sleep(Duration::from_millis(500)).await;
    let start = Instant::now();
    let rest = rig.store.shutdown(LEASE * 4).await;
    let took = start.elapsed();
    assert!(took < LEASE * 3 && rest.is_empty(), "{took:?}: {rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_hung_up_holds_nothing_after_the_clock_was_set_back_by_a_second() {
    let rig = Rig::start(BOUND).await;
    rig.clock.set(-1);
    rig.claim_and_release().await;
    let delay = Duration::from_millis(700);
    rig.hang_up(delay).await;
    // Its command arrives then.
    sleep(delay + Duration::from_millis(300)).await;
    let mut raw = Raw::connect(rig.server.port()).await;
    eventually("nothing is held", BOUND / 2, async || {
        raw.zcard("semaphore:{concurrency:a}:held").await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keeper_of_a_dropped_store_ends_after_the_clock_was_set_back() {
    let rig = Rig::start(LEASE).await;
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
    let rig = Rig::start(LEASE).await;
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
