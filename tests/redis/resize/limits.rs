//! Permits of several limits, or of several leases.

use super::{BOUND, HELD, LEASE, fixture, grown, loses, occupy, until_held, vacate};
use futures_util::poll;
use std::pin::pin;
use testing::{redis::RedisServer, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore, semaphore::Level};

const WIDE: &str = "semaphore:{wide:b}:held";

/// Three units of ten, and of so many.
fn claims(wide: u32) -> [Claim; 2] {
    let claim = |key, limit| Claim::new(key).with_limit(limit).with_weight(3);
    [claim("a", 10), claim("b", wide).with_policy("wide")]
}

fn weights(permit: &Permit) -> Vec<u32> {
    permit.levels().map(Level::weight).collect()
}

#[tokio::test]
async fn a_permit_that_is_lost_at_one_limit_becomes_lighter_at_all_and_heavier_at_none() {
    let (_server, store, mut raw) = fixture().await;
    let permit = store.acquire_all(claims(3).into()).await;
    let permit = permit.expect("there is room");
    let disaster = async {
        raw.cmd(&["DEL", WIDE]).await;
        occupy(&mut raw, WIDE, 3).await;
    };
    loses(&permit, disaster).await;
    permit
        .resize_at(&"wide".into(), 1)
        .await
        .expect("it is lighter");
    permit
        .resize(2)
        .await
        .expect_err("it would be heavier at the wide limit");
    assert_eq!(weights(&permit), [3, 1]);
    permit.resize(1).await.expect("it is lighter");
    assert_eq!(weights(&permit), [1, 1]);
    vacate(&mut raw, WIDE, 3).await;
    eventually("it is back", BOUND, async || !permit.is_lost()).await;
    until_held(&mut raw, 1).await;
    assert_eq!(raw.zcard(WIDE).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_growth_that_meets_a_release_adds_nothing() {
    let server = RedisServer::start();
    let builder = RedisSemaphore::builder().lease(10 * LEASE);
    let store = builder.timeout(3 * LEASE).connect(server.url()).await;
    let store = store.expect("it connects");
    let permit = store.acquire_all(claims(9).into()).await;
    let permit = permit.expect("there is room");
    permit
        .resize_at(&"wide".into(), 7)
        .await
        .expect("there is room");
    // The narrow limit grows, and meanwhile the permit is released.
    server.stop();
    let mut changed = pin!(permit.resize(5));
    assert!(poll!(&mut changed).is_pending());
    let released = tokio::spawn(permit.release());
    eventually("it is released", BOUND, async || permit.weight() == 0).await;
    server.cont();
    assert!(changed.await.is_err());
    assert!(released.await.expect("no panic"));
    assert_eq!(weights(&permit), [0, 0]);
    let mut raw = testing::resp::Raw::connect(server.port()).await;
    until_held(&mut raw, 0).await;
}

#[tokio::test]
async fn a_permit_is_lost_as_long_as_a_part_of_it_is() {
    let (_server, store, mut raw) = fixture().await;
    let permit = grown(&store, 2, 2).await;
    let disaster = async {
        raw.cmd(&["DEL", HELD]).await;
        occupy(&mut raw, HELD, 1).await;
    };
    loses(&permit, disaster).await;
    // One unit is granted again. For the other there is no room.
    until_held(&mut raw, 2).await;
    sleep(LEASE).await;
    assert!(permit.is_lost() && permit.weight() == 2);
    vacate(&mut raw, HELD, 1).await;
    eventually("it is back", BOUND, async || !permit.is_lost()).await;
    assert_eq!(raw.zcard(HELD).await, 2);
}
