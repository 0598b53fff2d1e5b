//! Metrics over Redis: losses, degraded permits, waits and calls.
//!
//! `gauges` returns a policy's active permits and waiting claims, in this order.
//!
//! Promises: P25.

use super::exposition::{BOUND, all, by_outcome, gauges, install, sum, until_gauges, value};
use futures_util::{FutureExt, future::join_all};
use std::time::Duration;
use testing::{
    redis::RedisServer,
    resp::Raw,
    rig::Rig,
    wait::{eventually, within},
};
use tower_semaphore::{
    AcquireError, Claim, Claims, Operate, Permit, RedisSemaphore, Semaphore,
    redis::{Builder, WhenUnavailable},
};

const CLAIMS: &str = "tower_semaphore_claims_total";
const LOST: &str = "tower_semaphore_lost_permits_total";
const PAUSES: &str = "tower_semaphore_pauses_total";
const DEGRADED: &str = "tower_semaphore_degraded_permits_total";
const TIMES_IN_QUEUE: &str = "tower_semaphore_claim_time_in_queue_seconds_count";
const CALLS: &str = "tower_semaphore_store_call_duration_seconds_count";
const SIZES: &str = "tower_semaphore_store_call_size";

fn claim(policy: &str) -> Claim {
    Claim::new("a").with_limit(1).with_policy(policy)
}

async fn held(rig: &Rig, policy: &str) -> Permit {
    let permit = rig.store.acquire(claim(policy)).await;
    permit.expect("there is room")
}

/// A permit whose lease has ended because the server is out of reach.
async fn lost(rig: &Rig, policy: &str) -> Permit {
    let permit = held(rig, policy).await;
    rig.proxy.black_hole();
    within("it is lost", BOUND, permit.lost()).await;
    permit
}

fn short() -> Builder {
    let builder = RedisSemaphore::builder().lease(Duration::from_millis(750));
    builder.timeout(Duration::from_millis(200))
}

async fn connected() -> (RedisServer, RedisSemaphore) {
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url()).await;
    (server, store.expect("it connects"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_and_the_claims_that_it_refuses_count_under_its_policy() {
    install();
    let (_server, store) = connected().await;
    let both: Claims = [claim("pauses"), claim("goes on")].into();
    let permit = store.acquire_all(both).await.expect("there is room");
    let hour = Duration::from_secs(3_600);
    permit
        .pause("pauses", hour, "429")
        .await
        .expect("an answer");
    let refused = store.acquire(claim("pauses")).await;
    assert!(
        matches!(refused, Err(AcquireError::Paused { .. })),
        "{refused:?}"
    );
    let by = |outcome: &str, count| (outcome.to_owned(), count);
    let outcomes = [by("admitted", 1.0), by("paused", 1.0)];
    assert_eq!(by_outcome(CLAIMS, "pauses"), outcomes.into());
    for (policy, count) in [("pauses", 1.0), ("goes on", 0.0)] {
        let labels = [("policy", policy), ("store", "redis")];
        assert_eq!(value(PAUSES, &labels), count, "{policy}");
    }
    // Only pauses by a permit count, not those by operators.
    let paused = store.pause(&"goes on".into(), &"a".into(), hour, "ann");
    paused.await.expect("an answer");
    assert_eq!(value(PAUSES, &[("policy", "goes on")]), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_permit_counts_once_and_stays_active_until_its_holder_drops_it() {
    install();
    let policy = "lost";
    let rig = Rig::new(short()).await;
    let permit = lost(&rig, policy).await;
    let labels = [("policy", policy), ("store", "redis"), ("by", "lease")];
    eventually("it is counted", BOUND, async || value(LOST, &labels) == 1.0).await;
    assert_eq!(gauges(policy), (1.0, 0.0));
    drop(permit);
    assert_eq!(gauges(policy), (0.0, 0.0));
    assert_eq!(value(LOST, &labels), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_whose_lease_has_ended_is_not_lost_again_by_end_after() {
    install();
    let policy = "lost then bound";
    let rig = Rig::new(short()).await;
    let permit = lost(&rig, policy).await;
    permit.end_after(Duration::ZERO);
    until_gauges(policy, (0.0, 0.0)).await;
    let lost = |by| value(LOST, &[("policy", policy), ("by", by)]);
    eventually("it is counted", BOUND, async || lost("lease") == 1.0).await;
    // The label of a loss by `end_after`.
    assert_eq!(lost("bound"), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn degraded_permits_count_when_they_are_admitted_and_when_they_are_kept() {
    install();
    let policy = "degraded";
    let rig = Rig::new(short().when_unavailable(WhenUnavailable::Admit)).await;
    let kept = held(&rig, policy).await;
    rig.proxy.black_hole();
    eventually("it is kept", BOUND, async || kept.is_degraded()).await;
    let admitted = held(&rig, policy).await;
    let labels = [("policy", policy), ("store", "redis")];
    let both_count = async || value(DEGRADED, &labels) == 2.0;
    eventually("both count", BOUND, both_count).await;
    let outcomes = by_outcome(CLAIMS, policy);
    assert_eq!((outcomes["admitted"], outcomes["degraded"]), (1.0, 1.0));
    drop((kept, admitted));
    assert_eq!(gauges(policy), (0.0, 0.0));
}

/// Each growth has a separate lease in the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_has_grown_counts_as_degraded_once_in_each_outage() {
    install();
    let policy = "grown";
    let rig = Rig::new(short().when_unavailable(WhenUnavailable::Admit)).await;
    let permit = rig.store.acquire(claim(policy).with_limit(9)).await;
    let permit = permit.expect("there is room");
    for weight in [3, 5] {
        permit.resize(weight).await.expect("there is room");
    }
    for outage in [1.0, 2.0] {
        rig.proxy.black_hole();
        eventually("it is kept", BOUND, async || permit.is_degraded()).await;
        // By the end of this sleep all its leases are degraded.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(value(DEGRADED, &[("policy", policy)]), outage);
        rig.proxy.forward();
        eventually("it is not degraded", BOUND, async || !permit.is_degraded()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_count_while_they_are_in_the_queue() {
    install();
    let (_server, store) = connected().await;
    let (narrow, wide) = ("redis narrow", "redis wide");
    let wait = |policy: &str| claim(policy).with_wait(BOUND);
    let held = store.acquire(claim(wide)).await.expect("there is room");
    let one = tokio::spawn(store.acquire(wait(wide)));
    // This claim takes `narrow`, and then waits for `wide`.
    let both = tokio::spawn(store.acquire_all(Claims::from([wait(narrow), wait(wide)])));
    until_gauges(wide, (1.0, 2.0)).await;
    one.abort();
    until_gauges(wide, (1.0, 1.0)).await;
    drop(held);
    let permit = both.await.expect("no panic").expect("it is granted");
    assert_eq!((gauges(narrow), gauges(wide)), ((1.0, 0.0), (1.0, 0.0)));
    drop(permit);
    assert_eq!((gauges(narrow), gauges(wide)), ((0.0, 0.0), (0.0, 0.0)));
    let waits = |outcome| {
        let labels = [("policy", wide), ("outcome", outcome)];
        value(TIMES_IN_QUEUE, &labels)
    };
    assert_eq!((waits("admitted"), waits("cancelled")), (1.0, 1.0));
    assert_eq!(by_outcome(CLAIMS, wide)["cancelled"], 1.0);
}

/// A claim reports the outcome of its wait for each queue that it leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_in_a_queue_has_the_outcome_of_that_queue() {
    install();
    let (_server, store) = connected().await;
    let (narrow, wide) = ("redis queue left", "redis queue full");
    let wait = |policy: &str| claim(policy).with_wait(BOUND);
    let held = [narrow, wide].map(|policy| store.acquire(claim(policy)));
    let mut held = join_all(held).await.into_iter();
    let both = [wait(narrow), wait(wide).with_max_waiting(0)];
    let both = tokio::spawn(store.acquire_all(Claims::from(both)));
    until_gauges(narrow, (1.0, 1.0)).await;
    drop(held.next());
    assert!(
        both.await.expect("no panic").is_err(),
        "the second queue has no room"
    );

    let revoked = tokio::spawn(store.acquire(wait(wide)));
    until_gauges(wide, (1.0, 1.0)).await;
    let (policy, key) = (wide.into(), "a".into());
    let usage = store.usage(&policy, &key).await.expect("it answers");
    let id = &usage.waiting[0].id;
    assert!(store.revoke(&policy, &key, id).await.expect("it answers"));
    assert!(revoked.await.expect("no panic").is_err());

    let closed = tokio::spawn(store.acquire(wait(wide)));
    until_gauges(wide, (1.0, 1.0)).await;
    let set = store.set_limit(&policy, Some(&key), Some(0), "").await;
    set.expect("it answers");
    let answer = closed.await.expect("no panic");
    assert!(
        matches!(answer, Err(AcquireError::KeyClosed { .. })),
        "{answer:?}"
    );
    let waits = |policy| by_outcome(TIMES_IN_QUEUE, policy);
    assert_eq!(waits(narrow), [("admitted".to_owned(), 1.0)].into());
    let both = ["revoked", "key_closed"].map(|outcome| (outcome.to_owned(), 1.0));
    assert_eq!(waits(wide), both.into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_while_the_server_is_silent_is_unavailable_and_not_timed_out() {
    install();
    let policy = "silent at the end";
    let rig = Rig::new(short()).await;
    let _held = held(&rig, policy).await;
    let waits = rig.store.acquire(claim(policy).with_wait(BOUND / 10));
    let waits = tokio::spawn(waits);
    until_gauges(policy, (1.0, 1.0)).await;
    rig.proxy.black_hole();
    assert!(waits.await.expect("no panic").is_err());
    let waits = by_outcome(TIMES_IN_QUEUE, policy);
    assert_eq!(waits, [("unavailable".to_owned(), 1.0)].into());
}

/// The servers and stores of other tests in this program add to these counts, so this test checks only that they grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_count_by_verb_outcome_and_size() {
    install();
    let rig = Rig::new(RedisSemaphore::builder().timeout(Duration::from_secs(1))).await;
    let calls = |verb, outcome| {
        let labels = [("store", "redis"), ("verb", verb), ("outcome", outcome)];
        value(CALLS, &labels)
    };
    // The number of calls with more than one command.
    let batched = || {
        // Both numbers are read at the same moment, because other tests make calls too.
        let (all, acquire) = (all(), ("verb", "acquire"));
        let calls = sum(&all, &format!("{SIZES}_count"), &[acquire]);
        calls - sum(&all, &format!("{SIZES}_bucket"), &[acquire, ("le", "1")])
    };
    let (acquired, batches) = (calls("acquire", "ok"), batched());
    let claims = (0..200).map(|key: u64| rig.store.acquire(Claim::new(key).with_limit(1)));
    let permits = join_all(claims).await;
    assert!(permits.iter().all(Result::is_ok));
    assert!(calls("acquire", "ok") > acquired && batched() > batches);
    drop(permits);
    eventually("they are released", BOUND, async || {
        calls("release", "ok") > 0.0
    })
    .await;
    let timeouts = calls("acquire", "timeout");
    rig.proxy.black_hole();
    assert!(rig.store.acquire(claim("silent")).await.is_err());
    let counted = async || calls("acquire", "timeout") > timeouts;
    eventually("the timeout is counted", BOUND, counted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_revoked_while_it_waits_does_not_count_as_a_lost_permit() {
    install();
    let policy = "revoked";
    let (server, store) = connected().await;
    let permit = store.acquire(claim(policy)).await.expect("there is room");
    // The waiter is no task, so that nothing polls its future until the keeper, the library's background thread, has
    // handled both revocations.
    let mut waiter = store.acquire(claim(policy).with_wait(BOUND * 3));
    let (policy_of_both, key) = (policy.into(), "a".into());
    let mut shown = None;
    while shown.is_none() {
        assert!((&mut waiter).now_or_never().is_none(), "there is no room");
        let usage = store
            .usage(&policy_of_both, &key)
            .await
            .expect("it answers");
        shown = Some(usage).filter(|usage| usage.waiting.len() == 1);
    }
    let usage = shown.expect("it waits");
    // Waits until messages can arrive.
    let channel = format!("semaphore:2:wake:{}", usage.held[0].process.id);
    let mut raw = Raw::connect(server.port()).await;
    eventually("it listens", BOUND, async || {
        let channels = raw.cmd(&["PUBSUB", "CHANNELS", &channel]).await;
        channels.first().is_some()
    })
    .await;
    for id in [&usage.waiting[0].id, &usage.held[0].id] {
        assert!(
            store
                .revoke(&policy_of_both, &key, id)
                .await
                .expect("it answers")
        );
    }
    within("it is lost", BOUND, permit.lost()).await;
    let lost = |by| value(LOST, &[("policy", policy), ("by", by)]);
    eventually("it is counted", BOUND, async || lost("revoked") > 0.0).await;
    assert_eq!((lost("revoked"), lost("lease")), (1.0, 0.0));
    let answer = waiter.await;
    assert!(matches!(answer, Err(AcquireError::Revoked)), "{answer:?}");
}

/// The units of a policy: reserved, spent, freed and lost.
fn units_of(policy: &str) -> [f64; 4] {
    ["reserved", "spent", "freed", "lost"].map(|used| {
        let labels = [("store", "redis"), ("policy", policy), ("use", used)];
        value("tower_semaphore_budget_units_total", &labels)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_unit_of_a_budget_is_counted_by_its_use() {
    install();
    let (_server, store) = connected().await;
    let claim = |policy: &str| {
        let claim = Claim::new("a").with_policy(policy).with_limit(1_000);
        claim.with_window(Duration::from_secs(3_600))
    };
    let permit = store
        .acquire(claim("units settled").with_estimate(100))
        .await;
    let permit = permit.expect("there is room");
    permit.settle("units settled", 30);
    // A settlement never lowers the total.
    permit.settle("units settled", 20);
    assert_eq!(units_of("units settled"), [100.0, 30.0, 0.0, 0.0]);
    assert!(permit.release().await);
    // After the release nothing is settled any more.
    permit.settle("units settled", 50);
    drop(permit);
    assert_eq!(units_of("units settled"), [100.0, 30.0, 70.0, 0.0]);
    drop(
        store
            .acquire(claim("units unsettled").with_estimate(100))
            .await,
    );
    assert_eq!(units_of("units unsettled"), [100.0, 100.0, 0.0, 0.0]);
    drop(store.acquire(claim("units of a rate").with_weight(7)).await);
    assert_eq!(units_of("units of a rate"), [0.0, 7.0, 0.0, 0.0]);
    let lost = store.acquire(claim("units lost").with_estimate(100)).await;
    let lost = lost.expect("there is room");
    lost.settle("units lost", 10);
    let (policy, key) = (claim("units lost").policy().clone(), "a".into());
    let usage = store.usage(&policy, &key).await.expect("it answers");
    let id = &usage.held[0].id;
    assert!(store.revoke(&policy, &key, id).await.expect("it answers"));
    within("it is lost", BOUND, lost.lost()).await;
    drop(lost);
    assert_eq!(units_of("units lost"), [100.0, 10.0, 0.0, 90.0]);
}
