//! A shutdown knows every permit and every waiter, and reports what it could not release.

use super::common::{
    BOUND, HELD, Outcome, SOON, builder, calls_for, claim, ended, live, permit, store,
};
use std::time::{Duration, Instant};
use testing::{proxy::Proxy, redis::RedisServer, resp::Raw, wait::eventually};
use tokio::task::JoinHandle;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(10);

/// A store whose scripts the server knows, behind a proxy.
async fn behind(server: &RedisServer) -> (Proxy, RedisSemaphore) {
    let proxy = Proxy::start(server).await;
    let store = builder(LEASE).timeout(LEASE / 4).connect(proxy.url()).await;
    let store = store.expect("it connects");
    let known = store.acquire(Claim::new("b").with_limit(1)).await;
    assert!(known.expect("there is room").release().await);
    proxy.clear_log();
    (proxy, store)
}

/// The acquire gets no permit, or one that is lost already.
async fn admits_nobody(acquire: JoinHandle<Outcome>) {
    let outcome = ended("the acquire", acquire).await;
    if let Ok(permit) = outcome.expect("it did not panic") {
        assert!(permit.is_lost());
    }
}

/// Nothing comes to be held any more.
async fn stays_free(raw: &mut Raw) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        assert_eq!(live(raw).await, 0, "after {:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_on_its_way_to_the_server_is_listed_by_a_shutdown_or_released() {
    let server = RedisServer::start();
    let (proxy, store) = behind(&server).await;
    let mut raw = Raw::connect(server.port()).await;
    proxy.delay(Duration::from_millis(200), Duration::from_millis(100));
    let acquire = tokio::spawn(store.acquire(claim(1)));
    eventually("it is on its way", BOUND, async || {
        calls_for(&proxy, HELD) > 0
    })
    .await;
    let unreleased = ended("the shutdown", store.shutdown(SOON)).await;
    if unreleased.is_empty() {
        stays_free(&mut raw).await;
    }
    admits_nobody(acquire).await;
    eventually("it is free", BOUND, async || live(&mut raw).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_without_an_answer_is_listed_by_a_shutdown_or_released() {
    let server = RedisServer::start();
    let (proxy, store) = behind(&server).await;
    let mut raw = Raw::connect(server.port()).await;
    proxy.mute();
    let acquire = tokio::spawn(store.acquire(claim(1)));
    eventually("it is granted", BOUND, async || live(&mut raw).await == 1).await;
    let unreleased = ended("the shutdown", store.shutdown(Duration::from_secs(1))).await;
    if unreleased.is_empty() {
        stays_free(&mut raw).await;
    }
    proxy.forward();
    admits_nobody(acquire).await;
    eventually("it is free", BOUND, async || live(&mut raw).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_shutdown_does_not_end_the_first() {
    let server = RedisServer::start();
    let store = store(server.url(), LEASE).await;
    let permit = permit(&store, 1).await;
    server.stop();
    let bounds = [Duration::from_secs(1), Duration::from_secs(2)];
    let shutdowns = bounds.map(|bound| {
        let store = store.clone();
        tokio::spawn(async move { store.shutdown(bound).await })
    });
    for shutdown in shutdowns {
        let unreleased = ended("the shutdown", shutdown).await;
        let unreleased = unreleased.expect("it did not panic");
        let tokens: Vec<_> = unreleased.iter().map(|one| one.token).collect();
        assert_eq!(tokens, [permit.token()]);
    }
    server.cont();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_may_have_all_the_time_there_is() {
    let server = RedisServer::start();
    let store = store(server.url(), LEASE).await;
    let _permit = permit(&store, 1).await;
    let shutdown = ended("the shutdown", store.shutdown(Duration::MAX)).await;
    assert_eq!(shutdown, []);
    let mut raw = Raw::connect(server.port()).await;
    assert_eq!(live(&mut raw).await, 0);
}
