//! The answers to a release and to a change of weight, and the state that each answer implies.
//!
//! Promises: P6, P9.

use futures_util::FutureExt;
use std::{thread, time::Duration};
use testing::{
    ids::id,
    proxy::Proxy,
    redis::RedisServer,
    resp::Raw,
    rig::{BOUND, Rig},
    wait::eventually,
};
use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore, redis::Builder, semaphore::Level};

const HELD: &str = "semaphore:2:{concurrency:ann}:held";

fn builder() -> Builder {
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(6));
    builder.timeout(Duration::from_secs(1))
}

async fn permit(store: &RedisSemaphore, key: &str) -> Permit {
    let permit = store.acquire(Claim::new(key.to_owned()).with_limit(2));
    permit.await.expect("there is room")
}

/// Drops the reply to the next release. Only in a release does a `1` follow the semaphore's four keys, as argument 7.
fn drop_reply_to_release(proxy: &Proxy) {
    proxy.drop_replies_to(1, |args| {
        let is_ann = args.iter().any(|arg| arg.ends_with(b":ann}:held"));
        is_ann && args.get(7).is_some_and(|arg| arg == b"1")
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_first_reply_was_lost_returns_true_for_a_held_permit() {
    let Rig { proxy, store, .. } = &Rig::new(builder()).await;
    let permit = permit(store, "ann").await;
    drop_reply_to_release(proxy);
    assert!(permit.release().await, "it was held until its release");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_a_lost_permit_returns_false_although_its_first_reply_was_lost() {
    let mut rig = Rig::new(builder()).await;
    let permit = permit(&rig.store, "ann").await;
    rig.raw.cmd(&["DEL", HELD]).await;
    // Other holders fill the key so that the permit cannot return.
    for other in ["another", "a third"] {
        rig.raw.cmd(&["ZADD", HELD, "9e15", other]).await;
    }
    timeout(BOUND, permit.lost()).await.expect("it is notified");
    drop_reply_to_release(&rig.proxy);
    assert!(!permit.release().await, "it was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_returns_false_if_an_added_unit_was_lost() {
    let Rig { store, raw, .. } = &mut Rig::new(builder()).await;
    let permit = permit(store, "ann").await;
    permit.resize(2).await.expect("there is room");
    let (added, _) = raw.zmembers(HELD).await.pop().expect("two units");
    raw.cmd(&[b"ZREM", HELD.as_bytes(), &added]).await;
    assert!(!permit.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_returns_true_although_another_key_in_its_call_is_broken() {
    let Rig { store, raw, .. } = &mut Rig::new(builder()).await;
    for round in 0..20 {
        let good = permit(store, &format!("good{round}")).await;
        let bad = permit(store, &format!("bad{round}")).await;
        let name = format!("semaphore:2:{{concurrency:bad{round}}}:held");
        raw.cmd(&["DEL", &name]).await;
        raw.cmd(&["SET", &name, "not ours"]).await;
        // One call carries both releases, the good one first.
        let (good, bad) = (good.release(), bad.release());
        assert!(good.await, "round {round}");
        drop(bad);
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_answered_after_the_end_of_its_lease_returns_false() {
    let rig = Rig::new(builder()).await;
    let other = builder().connect(rig.server.url()).await;
    let other = other.expect("it connects");
    let permit = permit(&rig.store, "ann").await;
    // From here on no call of the first process reaches the server.
    rig.proxy.black_hole();
    let answer = tokio::spawn(permit.release());
    let claim = Claim::new("ann").with_limit(1);
    let successor = other.acquire(claim.with_wait(BOUND)).await;
    let successor = successor.expect("the lease ends");
    rig.proxy.forward();
    let answer = timeout(BOUND, answer).await.expect("it answers");
    assert!(!successor.is_lost());
    assert!(!answer.expect("no panic"), "a successor holds the unit");
}

/// As documented, only a growth needs a runtime, because it acquires.
#[test]
fn a_smaller_weight_needs_no_runtime() {
    let runtime = Runtime::new().expect("a runtime");
    let mut rig = runtime.block_on(Rig::new(builder()));
    let claim = Claim::new("ann").with_limit(9).with_weight(3);
    let permit = runtime.block_on(rig.store.acquire(claim));
    let permit = permit.expect("there is room");
    let clone = permit.clone();
    let shrinking = thread::spawn(move || clone.resize(1).now_or_never());
    shrinking.join().expect("it does not panic");
    assert_eq!(permit.weight(), 1);
    runtime.block_on(async {
        let freed = async || rig.raw.zcard(HELD).await == 1;
        eventually("two units are free", BOUND, freed).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_max_hold_ended_stays_lost_when_a_refresh_is_answered() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let store = builder().connect(proxy.url()).await.expect("it connects");
    let permit = permit(&store, "ann").await;
    let mut raw = Raw::connect(server.port()).await;
    let end = raw.zmembers(HELD).await[0].1;
    let refreshed = async || raw.zmembers(HELD).await[0].1 > end;
    eventually("it is refreshed once", BOUND, refreshed).await;
    // From here on answers are delayed, so the permit ends while a refresh that succeeds is under way.
    let delay = Duration::from_millis(400);
    proxy.delay(Duration::ZERO, delay);
    proxy.clear_log();
    let is_refresh = |args: &[Vec<u8>]| args.iter().any(|arg| arg == HELD.as_bytes());
    eventually("a refresh is on its way", BOUND, async || {
        proxy.log().iter().any(|seen| is_refresh(&seen.args))
    })
    .await;
    permit.end_after(Duration::ZERO);
    timeout(BOUND, permit.lost()).await.expect("its end");
    // Four times the delay, so the refresh is answered within this loop.
    for _ in 0..100 {
        assert!(permit.is_lost(), "alive again");
        sleep(delay / 25).await;
    }
}

/// Three units of another program. Their ids state leases of an hour, so the server moves a later end to an hour from
/// now.
fn units_of_another() -> [String; 3] {
    [0, 1, 2].map(|unit| id("other", unit, [9, 1, 3_600_000]))
}

/// Covers a case that the simulation leaves out: it changes no weight of a lost permit.
#[tokio::test]
async fn a_permit_that_is_lost_at_one_limit_becomes_lighter_at_all_and_heavier_at_none() {
    const WIDE: &str = "semaphore:2:{fleet:wide}:held";
    let Rig { store, raw, .. } = &mut Rig::new(builder()).await;
    let claim = |key, limit| Claim::new(key).with_limit(limit).with_weight(3);
    let claims = [claim("ann", 10), claim("wide", 3).with_policy("fleet")];
    let permit = store.acquire_all(claims.into()).await;
    let permit = permit.expect("there is room");
    let disaster = async {
        raw.cmd(&["DEL", WIDE]).await;
        for unit in units_of_another() {
            raw.cmd(&["ZADD", WIDE, "99999999999999", &unit]).await;
        }
    };
    // The loss may be brief, so the holder starts waiting for it before it happens.
    let (lost, ()) = tokio::join!(timeout(BOUND, permit.lost()), disaster);
    lost.expect("it is lost");
    permit
        .resize_at(&"fleet".into(), 1)
        .await
        .expect("it is lighter");
    let heavier = permit.resize(2).await;
    heavier.expect_err("it would be heavier at the wide limit");
    let weights = || permit.levels().map(Level::weight);
    assert!(weights().eq([3, 1]));
    permit.resize(1).await.expect("it is lighter");
    assert!(weights().eq([1, 1]));
    for unit in units_of_another() {
        raw.cmd(&["ZREM", WIDE, &unit]).await;
    }
    eventually("it is back", BOUND, async || !permit.is_lost()).await;
    for name in [HELD, WIDE] {
        eventually("one unit is held", BOUND, async || {
            raw.zcard(name).await == 1
        })
        .await;
    }
}
