//! Leases: how they last, how they end, and how holders learn of their end.
//!
//! Promises: P1, P4, P8, P11.

use std::{collections::BTreeSet, time::Duration};
use testing::{
    fleet,
    proxy::End,
    redis::RedisServer,
    resp::Raw,
    rig::Rig,
    wait::{eventually, granted_at},
};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};
use tower_semaphore::{AcquireError, Claim, Operate, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_millis(1_500);
const BOUND: Duration = Duration::from_secs(10);
const HELD: &str = "semaphore:2:{concurrency:a}:held";

/// A store with the longest possible timeout, which tolerates a busy machine.
async fn store(server: &RedisServer) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
    builder.connect(server.url()).await.expect("it connects")
}

fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

async fn permit(store: &RedisSemaphore, limit: u32) -> Permit {
    store.acquire(claim(limit)).await.expect("there is room")
}

async fn until_lost(permit: &Permit) {
    timeout(BOUND, permit.lost())
        .await
        .expect("the holder learns of the loss");
}

/// Refreshes do not wait for the subscription, because leases could end in that time.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_refreshed_while_no_subscription_is_confirmed() {
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
    let rig = Rig::new(builder).await;
    let permit = permit(&rig.store, 1).await;
    rig.proxy.drop_pushes(true);
    rig.proxy.kill(End::Close);
    assert!(timeout(LEASE * 2, permit.lost()).await.is_err());
}

/// Messages before the subscription were missed, so the store then checks all its permits.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_subscription_finds_the_revocations_that_it_missed() {
    let rig = Rig::new(RedisSemaphore::builder().lease(LEASE * 40)).await;
    let permit = permit(&rig.store, 1).await;
    rig.proxy.drop_pushes(true);
    rig.proxy.clear_log();
    rig.proxy.kill(End::Close);
    eventually("the first subscription is given up", BOUND, async || {
        rig.proxy.count(b"SUBSCRIBE") > 1
    })
    .await;
    let operator = store(&rig.server).await;
    let (policy, key) = (permit.policy(), "a".into());
    let usage = operator.usage(policy, &key).await.expect("it answers");
    let revoked = operator.revoke(policy, &key, &usage.held[0].id).await;
    assert!(revoked.expect("it answers"));
    rig.proxy.drop_pushes(false);
    // A refresh would notice the loss too, but later.
    until_lost(&permit).await;
}

/// A permit of a semaphore, and one of a budget, which would go on if its reservation had only ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_whose_message_is_lost_is_found_by_a_refresh() {
    let budget = claim(1).with_window(BOUND).with_estimate(1);
    for claim in [claim(1), budget] {
        let rig = Rig::new(RedisSemaphore::builder().lease(LEASE)).await;
        let permit = rig.store.acquire(claim).await.expect("there is room");
        rig.proxy.drop_pushes(true);
        let operator = store(&rig.server).await;
        let (policy, key) = (permit.policy(), "a".into());
        let usage = operator.usage(policy, &key).await.expect("it answers");
        let revoked = operator.revoke(policy, &key, &usage.held[0].id).await;
        assert!(revoked.expect("it answers"));
        until_lost(&permit).await;
    }
}

/// The ids of the leases that hold units. The member of a lease's first unit is the id. Each further unit's member is
/// the id, a colon and a number.
async fn ids_of_held(raw: &mut Raw) -> BTreeSet<String> {
    let members = raw.zmembers(HELD).await.into_iter();
    let texts = members.map(|(member, _)| String::from_utf8(member).expect("it is text"));
    texts
        .filter_map(|text| text.split(':').next().map(str::to_owned))
        .collect()
}

/// After many growths the store merges their leases: it acquires the units once more, and then releases the old ones.
/// So a growth near the limit may have to wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_grows_up_to_the_limit_one_unit_at_a_time() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let permit = permit(&store, 100).await;
    for weight in 2..=100 {
        eventually("there is room", BOUND, async || {
            permit.resize(weight).await.is_ok()
        })
        .await;
    }
    let full = permit.resize(101).await;
    assert!(
        matches!(full, Err(AcquireError::Invalid { .. })),
        "{full:?}"
    );
    let mut raw = Raw::connect(server.port()).await;
    eventually("merged units are released", BOUND, async || {
        raw.zmembers(HELD).await.len() == 100
    })
    .await;
    // The ids of the permit's first lease and of at most 32 growths, because more are merged.
    let ids = ids_of_held(&mut raw).await.len();
    assert!(ids <= 33, "{ids} ids");
}

/// Messages only save time: no permit depends on them.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_refreshed_while_the_server_permits_no_subscription() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let permit = permit(&store, 1).await;
    let mut raw = Raw::connect(server.port()).await;
    // The server ends the existing subscription.
    let rights = ["ACL", "SETUSER", "default", "resetchannels"];
    assert_eq!(raw.cmd(&rights).await.text(), "OK");
    assert!(timeout(LEASE * 3, permit.lost()).await.is_err());
    let waiter = tokio::spawn(store.acquire(claim(1).with_wait(BOUND)));
    drop(permit);
    let waited = waiter.await.expect("no panic");
    assert!(waited.is_ok(), "{waited:?}");
    let rights = ["ACL", "SETUSER", "default", "allchannels"];
    assert_eq!(raw.cmd(&rights).await.text(), "OK");
    eventually("it is subscribed again", BOUND, async || {
        let channels = raw.cmd(&["PUBSUB", "CHANNELS", "semaphore:*"]).await;
        channels.array().len() == 1
    })
    .await;
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
    // The successor still holds the unit, so the process has regained nothing that it could release.
    assert!(!process.release("p"));
    drop(successor);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_releases_everything_and_refuses_claims() {
    let server = RedisServer::start();
    let (ours, other) = (store(&server).await, store(&server).await);
    let permits = [
        permit(&ours, 3).await,
        permit(&ours, 3).await,
        permit(&ours, 3).await,
    ];
    // The longest possible deadline.
    assert_eq!(ours.shutdown(Duration::MAX).await, []);
    let mut raw = Raw::connect(server.port()).await;
    assert_eq!(raw.zmembers(HELD).await, []);
    assert!(permits.iter().all(Permit::is_lost));
    let refused = ours.acquire(claim(3)).await.expect_err("it is closed");
    assert!(matches!(refused, AcquireError::Closed));
    assert!(other.acquire(claim(3)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_shutdown_does_not_end_the_first_and_both_return_what_they_could_not_release() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let permit = permit(&store, 1).await;
    server.stop();
    let bounds = [LEASE / 3, LEASE / 2];
    let shutdowns = bounds.map(|bound| {
        let store = store.clone();
        tokio::spawn(async move { store.shutdown(bound).await })
    });
    for shutdown in shutdowns {
        let unreleased = shutdown.await.expect("it did not panic");
        assert_eq!(unreleased.len(), 1);
        assert_eq!(unreleased[0].token, permit.token());
        assert_eq!(unreleased[0].semaphore, "semaphore:2:{concurrency:a}");
    }
    server.cont();
}

/// Asserts that refusals, a hundred grants at once, and a claim that may wait are answered in time.
async fn assert_serves(store: &RedisSemaphore, raw: &mut Raw) {
    let soon = BOUND / 4;
    let full = timeout(soon, store.acquire(claim(1))).await;
    let full = full.expect("a full key is answered in time");
    assert!(matches!(full, Err(AcquireError::Full { .. })), "{full:?}");
    let other = || Claim::new("b").with_limit(100);
    let claims: Vec<_> = (0..100)
        .map(|_| tokio::spawn(store.acquire(other())))
        .collect();
    let mut permits = Vec::new();
    for claim in claims {
        let answer = timeout(soon, claim).await.expect("answered in time");
        permits.push(answer.expect("it did not panic").expect("there is room"));
    }
    let waiter = timeout(soon, store.acquire(claim(2).with_wait(BOUND))).await;
    drop(waiter.expect("in time").expect("there is room"));
    drop(permits);
    eventually("all but one are released", soon, async || {
        raw.zcard(HELD).await == 1 && raw.keys("*{concurrency:b}:held").await.is_empty()
    })
    .await;
}

#[test]
fn claims_of_a_runtime_are_soon_answered_while_the_runtime_that_connected_is_idle() {
    let server = RedisServer::start();
    let idle = Builder::new_current_thread().enable_all().build();
    let (idle, busy) = (idle.expect("it starts"), Runtime::new().expect("it starts"));
    let (store, _held) = idle.block_on(async {
        let builder = RedisSemaphore::builder()
            .lease(LEASE * 5)
            .timeout(LEASE / 3);
        let store = builder.connect(server.url()).await.expect("it connects");
        let permit = permit(&store, 1).await;
        (store, permit)
    });
    busy.block_on(async {
        let mut raw = Raw::connect(server.port()).await;
        eventually("claims are answered by the server", BOUND, async || {
            let answer = timeout(BOUND / 4, store.acquire(claim(1))).await;
            let answer = answer.expect("answered in time, whatever the answer");
            matches!(answer, Err(AcquireError::Full { .. }))
        })
        .await;
        assert_serves(&store, &mut raw).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_future_is_not_polled_is_sent_and_so_are_earlier_drops() {
    let server = RedisServer::start();
    let patient = || {
        RedisSemaphore::builder()
            .lease(BOUND * 6)
            .timeout(BOUND * 2)
    };
    let ours = patient().connect(server.url()).await.expect("it connects");
    let other = patient().connect(server.url()).await.expect("it connects");
    let (dropped, released) = (permit(&ours, 2).await, permit(&ours, 2).await);
    drop(dropped);
    let release = released.release();
    let both = || async { (other.acquire(claim(2)).await, other.acquire(claim(2)).await) };
    // A release that was built but not sent would be repeated after the timeout of its call at the earliest, which is
    // twice `BOUND`.
    eventually("both are free", BOUND, async || {
        matches!(both().await, (Ok(_), Ok(_)))
    })
    .await;
    assert!(release.await, "it was held");
}
