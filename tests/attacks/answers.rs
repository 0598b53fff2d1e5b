//! What a release answers.

use std::time::Duration;
use testing::{proxy::Proxy, redis::RedisServer, resp::Raw, rig::warm};
use tokio::time::{sleep, timeout};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const ROUNDS: usize = 20;
const LEASE: Duration = Duration::from_secs(6);
const BOUND: Duration = Duration::from_secs(20);

async fn store(proxy: &Proxy) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE);
    let store = builder.connect(proxy.url()).await.expect("it connects");
    warm(&store).await;
    store
}

async fn permit(store: &RedisSemaphore, key: &str) -> Permit {
    let permit = store.acquire(Claim::new(key.to_owned()).with_limit(1));
    permit.await.expect("there is room")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_first_reply_was_lost_says_that_the_permit_was_held() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let store = store(&proxy).await;
    let permit = permit(&store, "ann").await;
    drop_reply_to_release(&proxy);
    assert!(permit.release().await, "nobody else ended it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_a_lost_permit_says_so_although_its_first_reply_was_lost() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let proxy = Proxy::start(&server).await;
    let store = store(&proxy).await;
    let permit = permit(&store, "ann").await;
    let name = "semaphore:{concurrency:ann}:held";
    raw.cmd(&["DEL", name]).await;
    // So that the permit does not come back.
    raw.cmd(&["ZADD", name, "9e15", "another"]).await;
    timeout(BOUND, permit.lost()).await.expect("it is told");
    drop_reply_to_release(&proxy);
    assert!(!permit.release().await, "it was lost");
}

/// Only a release has the semaphore's four keys and a `1` after them.
fn drop_reply_to_release(proxy: &Proxy) {
    proxy.drop_replies_to(1, |args| {
        let is_ann = args.iter().any(|arg| arg.ends_with(b":ann}:held"));
        is_ann && args.get(7).is_some_and(|arg| arg == b"1")
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_says_that_the_permit_was_held_although_another_key_is_broken() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let proxy = Proxy::start(&server).await;
    let store = store(&proxy).await;
    let mut wrong = 0;
    for round in 0..ROUNDS {
        let good = permit(&store, &format!("good{round}")).await;
        let bad = permit(&store, &format!("bad{round}")).await;
        let name = format!("semaphore:{{concurrency:bad{round}}}:held");
        raw.cmd(&["DEL", &name]).await;
        raw.cmd(&["SET", &name, "not ours"]).await;
        // Both travel in one batch, the good one first.
        let answers = (good.release(), bad.release());
        wrong += usize::from(!answers.0.await);
        drop(answers.1);
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(wrong, 0, "of {ROUNDS} permits that were held until then");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_does_not_say_held_when_its_answer_came_after_the_lease_had_ended() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let store = store(&proxy).await;
    let builder = RedisSemaphore::builder().lease(LEASE);
    let other = builder.connect(server.url()).await.expect("it connects");
    let permit = permit(&store, "ann").await;
    // From here on nothing of the first process reaches the server.
    proxy.black_hole();
    let answer = tokio::spawn(permit.release());
    let claim = Claim::new("ann").with_limit(1);
    let successor = other.acquire(claim.with_wait(BOUND)).await;
    let successor = successor.expect("the lease ends");
    proxy.forward();
    let answer = timeout(BOUND, answer).await.expect("it answers");
    assert!(!successor.is_lost());
    assert!(
        !answer.expect("no panic"),
        "a successor holds the only unit"
    );
}
