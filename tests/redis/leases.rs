//! Leases: how they last, how they end, and how holders learn of their end.

use std::time::{Duration, Instant};
use testing::{
    fleet,
    redis::RedisServer,
    resp::Raw,
    wait::{eventually, granted_at},
};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_millis(1_500);
const BOUND: Duration = Duration::from_secs(10);
const HELD: &str = "semaphore:{concurrency:a}:held";

async fn store(server: &RedisServer) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE);
    builder.connect(server.url()).await.expect("it connects")
}

fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

async fn permit(store: &RedisSemaphore, limit: u32) -> Permit {
    store.acquire(claim(limit)).await.expect("there is room")
}

async fn until_lost(permit: &Permit) {
    tokio::time::timeout(BOUND, permit.lost())
        .await
        .expect("the holder learns of the loss");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_lasts_for_three_leases_and_more_while_it_is_held() {
    let server = RedisServer::start();
    let (ours, other) = (store(&server).await, store(&server).await);
    let permit = permit(&ours, 1).await;
    let start = Instant::now();
    while start.elapsed() < LEASE * 4 {
        assert!(
            other.acquire(claim(1)).await.is_err(),
            "after {:?}",
            start.elapsed()
        );
        tokio::time::sleep(LEASE / 20).await;
    }
    assert!(!permit.is_lost());
    assert!(permit.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heavy_permit_is_refreshed_with_all_its_units() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let heavy = claim(700).with_weight(700);
    let permit = store.acquire(heavy).await.expect("there is room");
    let mut raw = Raw::connect(server.port()).await;
    let start = Instant::now();
    while start.elapsed() < LEASE * 3 {
        assert_eq!(raw.zmembers(HELD).await.len(), 700);
        tokio::time::sleep(LEASE / 10).await;
    }
    assert!(permit.release().await);
    assert_eq!(raw.zmembers(HELD).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_holds_its_permits_to_the_end_of_their_lease_and_not_much_longer() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut process = fleet::Process::start(&server.url(), LEASE);
    process.acquire("p", "a", 1).expect("there is room");
    let mut raw = Raw::connect(server.port()).await;
    process.kill();
    let end = raw.zmembers(HELD).await[0].1 as i64;
    granted_at(end, &mut raw, async || {
        store.acquire(claim(1)).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_whose_entry_is_deleted_comes_back_and_nobody_is_told_if_there_is_room() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let permit = permit(&store, 1).await;
    let token = permit.token();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["DEL", HELD]).await;
    let told = tokio::time::timeout(LEASE * 2, permit.lost()).await;
    assert!(told.is_err() && permit.token() == token);
    assert_eq!(raw.zmembers(HELD).await.len(), 1);
    assert!(store.acquire(claim(1)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_was_told_to_be_lost_comes_back_under_a_new_token() {
    let server = RedisServer::start();
    let (ours, other) = (store(&server).await, store(&server).await);
    let permit = permit(&ours, 1).await;
    let token = permit.token();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["DEL", HELD]).await;
    let successor = self::permit(&other, 1).await;
    until_lost(&permit).await;
    assert!(successor.release().await);
    eventually("it is back", BOUND, async || !permit.is_lost()).await;
    assert!(permit.token() > token, "it has its old token");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_of_an_ended_lease_does_not_bring_it_back() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let permit = permit(&store, 1).await;
    let mut raw = Raw::connect(server.port()).await;
    let id = raw.zmembers(HELD).await.remove(0).0;
    raw.cmd(&["ZADD", HELD, "1", std::str::from_utf8(&id).expect("plain")])
        .await;
    let other = self::store(&server).await;
    let successor = self::permit(&other, 1).await;
    until_lost(&permit).await;
    assert_eq!(raw.zmembers(HELD).await.len(), 1);
    assert!(successor.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_learns_of_its_loss_from_its_own_clock_when_the_server_is_out_of_reach() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let permit = permit(&store, 1).await;
    let mut raw = Raw::connect(server.port()).await;
    let end = raw.zmembers(HELD).await[0].1 as i64;
    let left = end - raw.server_time_ms().await;
    let start = Instant::now();
    server.stop();
    until_lost(&permit).await;
    // The permit may have been refreshed once more before the server stopped.
    let longest = Duration::from_millis(left as u64) + LEASE / 3;
    assert!(
        start.elapsed() < longest,
        "lost after {:?}",
        start.elapsed()
    );
    server.cont();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_learns_of_its_loss_when_it_continues() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let mut process = fleet::Process::start(&server.url(), LEASE);
    let old = process.acquire("p", "a", 1).expect("there is room");
    process.stop();
    let mut successor = None;
    eventually("the permit is free", BOUND, async || {
        successor = store.acquire(claim(1)).await.ok();
        successor.is_some()
    })
    .await;
    process.cont();
    assert!(process.is_lost("p"));
    let successor = successor.expect("it was granted");
    assert!(successor.token() > Some(old));
    // While the successor holds the unit, the lost permit cannot be granted again.
    assert!(!process.release("p"));
    drop(successor);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_key_leaves_nothing_in_redis() {
    let server = RedisServer::start();
    let store = store(&server).await;
    drop(permit(&store, 1).await);
    let mut raw = Raw::connect(server.port()).await;
    eventually("no key of a semaphore is left", LEASE * 10, async || {
        raw.keys("semaphore:{*").await.is_empty()
    })
    .await;
    // What is left says which processes live, and when that was.
    let left = raw.keys("*").await;
    let is_of_processes = |key: &Vec<u8>| key.starts_with(b"semaphore:process");
    assert!(
        left.iter()
            .all(|key| is_of_processes(key) || key == b"semaphore:clock"),
        "{left:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_releases_everything_and_admits_nobody() {
    let server = RedisServer::start();
    let (ours, other) = (store(&server).await, store(&server).await);
    let permits = [
        permit(&ours, 3).await,
        permit(&ours, 3).await,
        permit(&ours, 3).await,
    ];
    assert_eq!(ours.shutdown(BOUND).await, []);
    let mut raw = Raw::connect(server.port()).await;
    assert_eq!(raw.zmembers(HELD).await, []);
    assert!(permits.iter().all(Permit::is_lost));
    let refused = ours.acquire(claim(3)).await.expect_err("it is closed");
    assert!(matches!(refused, tower_semaphore::AcquireError::Closed));
    assert!(other.acquire(claim(3)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_returns_what_it_could_not_release() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let permit = permit(&store, 1).await;
    server.stop();
    let unreleased = store.shutdown(LEASE / 3).await;
    server.cont();
    assert_eq!(unreleased.len(), 1);
    assert_eq!(unreleased[0].token, permit.token());
    assert_eq!(unreleased[0].semaphore, "semaphore:{concurrency:a}");
}
