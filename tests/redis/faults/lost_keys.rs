//! Keys vanish under load: all of them, or one of a semaphore's, as by an eviction.

use super::crowd::{Crowd, LIMIT};
use futures_util::future::join_all;
use testing::{redis::RedisServer, resp::Raw};

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_under_load_lets_in_a_limit_more_at_most_and_holders_know_or_come_back() {
    let server = RedisServer::start();
    let crowd = Crowd::start(&server.url()).await;
    let mut raw = Raw::connect(server.port()).await;
    assert_eq!(raw.cmd(&["FLUSHALL"]).await.text(), "OK");
    crowd.is_told_or_back().await;
    crowd.goes_on().await;
    let most = crowd.most();
    println!("{most} in flight under a limit of {LIMIT}");
    assert!(most <= 2 * LIMIT, "{most} in flight");
    crowd.settles(&mut raw).await;
}

/// Deletes one key of the semaphore under load.
async fn evict(key: &str) {
    let server = RedisServer::start();
    let crowd = Crowd::start(&server.url()).await;
    let mut raw = Raw::connect(server.port()).await;
    let name = format!("semaphore:{{concurrency:a}}:{key}");
    for _ in 0..3 {
        raw.cmd(&["DEL", &name]).await;
        if key == "held" {
            crowd.is_told_or_back().await;
            break;
        }
        crowd.goes_on().await;
    }
    crowd.goes_on().await;
    // The other keys say nothing of what is held.
    let (most, allowed) = (crowd.most(), if key == "held" { 2 * LIMIT } else { LIMIT });
    println!("{key}: {most} in flight under a limit of {LIMIT}");
    assert!(most <= allowed, "{key}: {most} in flight");
    crowd.settles(&mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_of_a_semaphore_that_is_evicted_under_load_lets_in_no_more_than_a_flush_does() {
    join_all(["held", "queue", "alive", "token"].map(evict)).await;
}
