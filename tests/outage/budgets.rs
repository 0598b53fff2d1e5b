//! Budgets while Redis is unavailable, after it has lost its data, and after a process has died.
//!
//! Promises: P8, P19, P26.

use crate::server::{BOUND, assert_refused, builder, store, wait_until_back, wait_until_known};
use std::time::Duration;
use testing::{proxy::Proxy, redis::RedisServer, resp::Raw, stores::connected, wait::eventually};
use tower_semaphore::{
    AcquireError, Claim, Operate, Permit, RedisSemaphore, Semaphore, redis::WhenUnavailable,
};

use WhenUnavailable::{Admit, Refuse, Share};

/// In this window almost no units come back while a test runs.
const WINDOW: Duration = Duration::from_secs(30 * 24 * 60 * 60);

fn tokens(limit: u32, estimate: u32) -> Claim {
    let claim = Claim::new("a").with_policy("tokens").with_limit(limit);
    claim.with_window(WINDOW).with_estimate(estimate)
}

async fn granted(store: &RedisSemaphore, claim: Claim) -> Permit {
    let permit = store.acquire(claim).await.expect("there is room");
    assert!(!permit.is_degraded());
    permit
}

fn assert_full(answer: &Result<Permit, AcquireError>) {
    assert!(
        matches!(answer, Err(AcquireError::Full { .. })),
        "{answer:?}"
    );
}

/// The spent and the reserved units of the key's only budget.
async fn in_use(store: &RedisSemaphore) -> (u32, u32) {
    let claim = tokens(1, 1);
    let usage = store.usage(claim.policy(), claim.key()).await;
    match usage.expect("the server answers").budgets[..] {
        [] => (0, 0),
        [budget] => (budget.spent, budget.reserved),
        ref several => panic!("{several:?}"),
    }
}

async fn wait_until_in_use(store: &RedisSemaphore, expected: (u32, u32)) {
    let is_so = async || in_use(store).await == expected;
    eventually("these units are in use", BOUND, is_so).await;
}

/// The number of claims that a store admits while the server is away, until the first refusal or up to 100.
async fn count_admitted(store: &RedisSemaphore, limit: u32, estimate: u32) -> usize {
    let mut permits = Vec::new();
    while let Ok(permit) = store.acquire(tokens(limit, estimate)).await {
        assert!(permit.is_degraded());
        permits.push(permit);
        if permits.len() == 100 {
            break;
        }
    }
    permits.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_decides_claims_of_budgets_while_the_server_is_away() {
    for (policy, expected) in [(Refuse, 0), (Admit, 100), (Share, 3)] {
        let mut server = RedisServer::start();
        let own = store(&server, policy).await;
        let _other = store(&server, policy).await;
        wait_until_known(&server, 2).await;
        server.kill();
        // Two processes share 100 units, and each claim takes 15.
        assert_eq!(count_admitted(&own, 100, 15).await, expected, "{policy:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_share_of_a_budget_outlives_an_outage_and_is_not_charged_to_the_server() {
    let mut server = RedisServer::start();
    let store = store(&server, Share).await;
    wait_until_known(&server, 1).await;
    drop(granted(&store, tokens(100, 40)).await);
    server.kill();
    // A full bucket admits a claim that is larger than a share.
    let large = store.acquire(tokens(100, 100)).await;
    assert!(large.expect("the bucket is full").is_degraded());
    assert_refused(store.acquire(tokens(100, 1)).await);
    server.restart();
    wait_until_back(&store).await;
    // The server has lost its data, and is not charged for claims that were admitted without it.
    assert_eq!(in_use(&store).await, (0, 0));
    server.kill();
    assert_refused(store.acquire(tokens(100, 1)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reservation_is_not_acquired_again_and_the_permit_goes_on() {
    let server = RedisServer::start();
    let store = store(&server, Refuse).await;
    let claims = [Claim::new("a").with_limit(5), tokens(100, 60)];
    let permit = store.acquire_all(claims.into()).await;
    let permit = permit.expect("there is room");
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["FLUSHALL"]).await;
    let is_held = async || raw.zcard("semaphore:2:{concurrency:a}:held").await == 1;
    eventually("the permit is back", BOUND, is_held).await;
    assert_eq!(in_use(&store).await, (0, 0));
    assert!(!permit.is_lost());
    permit.settle("tokens", 30);
    drop(permit);
    let mut raw = Raw::connect(server.port()).await;
    let is_free = async || raw.zcard("semaphore:2:{concurrency:a}:held").await == 0;
    eventually("the permit is released", BOUND, is_free).await;
    assert_eq!(in_use(&store).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reservation_of_a_dead_process_is_spent_when_its_lease_ends() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let dead = connected(async || builder(Refuse).connect(proxy.url()).await).await;
    let other = store(&server, Refuse).await;
    let permit = granted(&dead, tokens(100, 60)).await;
    permit.settle("tokens", 20);
    let is_settled = async || in_use(&other).await == (20, 40);
    eventually("a refresh has settled it", BOUND, is_settled).await;
    proxy.black_hole();
    wait_until_in_use(&other, (60, 0)).await;
    // The next call removes the expired reservation.
    assert_full(&other.acquire(tokens(100, 41)).await);
    drop(granted(&other, tokens(100, 40)).await);
    drop(permit);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_before_an_outage_counts_once_after_it() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let long = builder(Admit).lease(Duration::from_secs(60));
    let store = connected(async || long.clone().connect(proxy.url()).await).await;
    let permit = granted(&store, tokens(100, 60)).await;
    proxy.black_hole();
    permit.settle("tokens", 10);
    permit.settle("tokens", 25);
    drop(permit);
    proxy.forward();
    let other = self::store(&server, Refuse).await;
    wait_until_in_use(&other, (25, 0)).await;
}

/// Redis loses the permit's units of the other limit, so the store acquires the permit again, under a new id.
#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_beside_lost_units_counts_as_used() {
    let server = RedisServer::start();
    let store = store(&server, Refuse).await;
    let flight = Claim::new("a").with_limit(5).with_weight(2);
    let permit = store.acquire_all([flight, tokens(1_000, 600)].into()).await;
    let permit = permit.expect("there is room");
    permit.settle("tokens", 10);
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["DEL", "semaphore:2:{concurrency:a}:held"]).await;
    wait_until_in_use(&store, (600, 0)).await;
    assert!(!permit.is_lost());
    drop(permit);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_a_budget_whose_state_is_lost_can_be_ended() {
    let server = RedisServer::start();
    let store = store(&server, Refuse).await;
    let claim = tokens(100, 60);
    let permit = granted(&store, claim.clone()).await;
    permit.settle("tokens", 0);
    assert!(permit.release().await);
    let hour = Duration::from_secs(60 * 60);
    let paused = store.pause(claim.policy(), claim.key(), hour, "");
    paused.await.expect("the server answers");
    let refused = store.acquire(claim.clone()).await;
    assert!(
        matches!(refused, Err(AcquireError::Paused { .. })),
        "{refused:?}"
    );
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["DEL", "semaphore:2:{tokens:a}:budget"]).await;
    let resumed = store.resume(claim.policy(), claim.key());
    resumed.await.expect("the server answers");
    drop(granted(&store, claim).await);
}

/// A refused claim finds that the state is lost. It extends no TTL, so that of the reservation must be long already.
#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_outlives_the_state_of_its_budget() {
    const LEASE: Duration = Duration::from_secs(60);
    let server = RedisServer::start();
    let patient = builder(Refuse).lease(LEASE).connect(server.url());
    let store = patient.await.expect("the server is there");
    let claim = Claim::new("a").with_policy("tokens").with_limit(100);
    let claim = claim.with_window(Duration::from_secs(1)).with_estimate(60);
    let _permit = granted(&store, claim.clone()).await;
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["DEL", "semaphore:2:{tokens:a}:budget"]).await;
    assert_full(&store.acquire(claim).await);
    let ttl = raw.cmd(&["PTTL", "semaphore:2:{tokens:a}1000:held"]).await;
    assert!(ttl.int() > LEASE.as_millis() as i64, "{ttl:?}");
}
