//! A permit keeps the units that it has.

use crate::{BOUND, HELD, LEASE, occupy, store_at, vacate};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::time::{Instant, sleep, timeout};
use tower_semaphore::{Claim, Permit, Semaphore};

/// A permit that was heavier and lighter, and has three units of ten.
async fn resized(server: &RedisServer) -> Permit {
    let store = store_at(server.url()).await;
    let claim = Claim::new("a").with_limit(10).with_weight(4);
    let permit = store.acquire(claim).await.expect("there is room");
    for weight in [9, 2, 6, 3] {
        permit.resize(weight).await.expect("there is room");
    }
    permit
}

async fn three_are_held(raw: &mut Raw) {
    let three = async || raw.zcard(HELD).await == 3;
    eventually("three units are held", BOUND, three).await;
}

#[tokio::test]
async fn a_permit_keeps_its_units_for_three_leases_after_it_has_changed_its_weight() {
    let server = RedisServer::start();
    let (permit, mut raw) = (resized(&server).await, Raw::connect(server.port()).await);
    three_are_held(&mut raw).await;
    let end = Instant::now() + LEASE * 3;
    while Instant::now() < end {
        assert_eq!(raw.zcard(HELD).await, 3);
        assert!(!permit.is_lost());
        sleep(LEASE / 20).await;
    }
    assert!(permit.release().await);
    let none = async || raw.zcard(HELD).await == 0;
    eventually("nothing is held", BOUND, none).await;
}

#[tokio::test]
async fn a_lost_permit_comes_back_with_the_weight_that_it_had() {
    let server = RedisServer::start();
    let (permit, mut raw) = (resized(&server).await, Raw::connect(server.port()).await);
    three_are_held(&mut raw).await;
    let token = permit.token();
    // There is room for two.
    occupy(&mut raw, HELD, 8).await;
    let units = raw.zmembers(HELD).await.into_iter();
    for (unit, _) in units.filter(|(unit, _)| !unit.starts_with(b"other.")) {
        raw.cmd(&[b"ZREM", HELD.as_bytes(), &unit]).await;
    }
    let lost = timeout(BOUND, permit.lost()).await;
    lost.expect("it is lost");
    vacate(&mut raw, HELD, 8).await;
    eventually("it is back", BOUND, async || !permit.is_lost()).await;
    three_are_held(&mut raw).await;
    assert!(permit.token() > token);
    drop(permit);
    let none = async || raw.zcard(HELD).await == 0;
    eventually("nothing is held", BOUND, none).await;
}
