//! Many claims that are made at once share calls (batches), and each gets the answer that it would get alone.
//!
//! Promises: P1, P6.

use futures_util::{FutureExt, future::join_all};
use std::{collections::BTreeSet, time::Duration};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::{task::coop, time::timeout};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const BOUND: Duration = Duration::from_secs(10);

const CLAIMS: u64 = 1_000;

/// A store whose timeout tolerates a busy machine.
async fn patient(server: &RedisServer) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(BOUND * 3).timeout(BOUND);
    warm(builder.connect(server.url()).await.expect("it connects")).await
}

/// Lets the server load the scripts.
async fn warm(store: RedisSemaphore) -> RedisSemaphore {
    let permit = store.acquire(Claim::new("warm").with_limit(1)).await;
    assert!(permit.expect("there is room").release().await);
    store
}

/// Makes one claim for each key, all at once.
async fn claim_all(
    store: &RedisSemaphore,
    keys: impl Iterator<Item = u64>,
    limit: u32,
) -> Vec<Result<Permit, AcquireError>> {
    join_all(keys.map(|key| store.acquire(Claim::new(key).with_limit(limit)))).await
}

/// The number of script calls that clients have sent.
async fn calls(raw: &mut Raw) -> u64 {
    let stats = raw.commandstats().await;
    let count = |name: &str| stats.get(name).copied().unwrap_or_default();
    count("evalsha") + count("eval")
}

async fn held(raw: &mut Raw, key: u64) -> usize {
    let held = format!("semaphore:2:{{concurrency:{key}}}:held");
    raw.zmembers(&held).await.len()
}

async fn nothing_is_held(raw: &mut Raw) {
    eventually("nothing is held", BOUND, async || {
        raw.keys("*:held").await.is_empty()
    })
    .await;
}

/// The length of the longest increasing subsequence, found by patience sorting.
fn longest_sorted(numbers: &[Option<u64>]) -> usize {
    let mut tops: Vec<Option<u64>> = Vec::new();
    for &number in numbers {
        match tops.partition_point(|&top| top < number) {
            pile if pile == tops.len() => tops.push(number),
            pile => tops[pile] = number,
        }
    }
    tops.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_claims_on_one_key_need_few_calls_and_exactly_the_limit_is_granted() {
    let server = RedisServer::start();
    let (store, mut raw) = (patient(&server).await, Raw::connect(server.port()).await);
    let limit = CLAIMS as u32 - 100;
    let answers = claim_all(&store, (0..CLAIMS).map(|_| 0), limit).await;
    let calls = calls(&mut raw).await;
    // A call carries up to 64 claims, and the first calls carry one each.
    assert!(calls <= CLAIMS / 5, "{calls} calls");
    let full = |answer: &&Result<_, _>| matches!(answer, Err(AcquireError::Full { .. }));
    assert_eq!(answers.iter().filter(full).count(), 100);
    let tokens: Vec<_> = answers.iter().flatten().map(Permit::token).collect();
    assert_eq!(tokens.len(), limit as usize);
    assert_eq!(held(&mut raw, 0).await, limit as usize);
    let distinct: BTreeSet<_> = tokens.iter().collect();
    assert_eq!(distinct.len(), tokens.len(), "two have the same token");
    // The first claims are sent alone, over another connection than the batches. So later claims pass some of them:
    // eight at a time, and more if those are answered soon.
    let passed = tokens.len() - longest_sorted(&tokens);
    assert!(
        passed < tokens.len() / 4,
        "{passed} were passed by later claims"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_claims_on_as_many_keys_need_few_calls_and_all_are_granted() {
    let server = RedisServer::start();
    let (store, mut raw) = (patient(&server).await, Raw::connect(server.port()).await);
    let permits = claim_all(&store, 0..CLAIMS, 1).await;
    let acquire_calls = calls(&mut raw).await;
    assert!(acquire_calls <= CLAIMS / 5, "{acquire_calls} calls");
    assert!(permits.iter().all(Result::is_ok));
    assert_eq!(raw.keys("*:held").await.len(), CLAIMS as usize);

    drop(permits);
    nothing_is_held(&mut raw).await;
    let release_calls = calls(&mut raw).await - acquire_calls;
    assert!(release_calls <= CLAIMS / 5, "{release_calls} calls");
}

/// Calls carry heavy claims that may wait together with light claims that do not.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_fit_are_granted_however_many_units_their_call_grants() {
    let server = RedisServer::start();
    let store = patient(&server).await;
    let claims = (0..CLAIMS).map(|number| {
        let claim = Claim::new("a").with_limit(1_000_000);
        match number % 2 {
            0 => claim.with_weight(50).with_wait(BOUND),
            _ => claim,
        }
    });
    let outcomes = join_all(claims.map(|claim| store.acquire(claim))).await;
    let failed: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| outcome.as_ref().err())
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {CLAIMS}: {:?}",
        failed.len(),
        failed[0]
    );
}

/// Uses up Tokio's cooperative budget, so that the task has to yield.
async fn use_up_the_budget() {
    while coop::has_budget_remaining() {
        coop::consume_budget().await;
    }
}

/// Polls once and asserts that no answer is ready.
fn poll<T>(mut future: impl Future<Output = T> + Unpin) {
    assert!((&mut future).now_or_never().is_none(), "it is not answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_must_yield_sends_a_waiting_claim_before_later_claims() {
    let server = RedisServer::start();
    let store = patient(&server).await;
    let claim = || Claim::new("a").with_limit(3);
    let _one = store.acquire(claim()).await.expect("there is room");
    // While no call is answered, claims share calls.
    server.stop();
    let mut before: Vec<_> = (0..100)
        .map(|key| store.acquire(Claim::new(key).with_limit(1)))
        .collect();
    before.iter_mut().for_each(poll);
    use_up_the_budget().await;
    let mut heavy = store.acquire(claim().with_weight(3).with_wait(BOUND));
    let mut behind: Vec<_> = (0..50).map(|_| store.acquire(claim())).collect();
    poll(&mut heavy);
    behind.iter_mut().for_each(poll);
    server.cont();
    let full = |answer: &Result<_, _>| matches!(answer, Err(AcquireError::Full { held: 1, .. }));
    let behind = join_all(behind).await;
    assert!(behind.iter().all(full), "{behind:?}");
}

/// Runs a future that must end well before the timeout of a call.
async fn in_time<R>(future: impl Future<Output = R>) -> R {
    let over = timeout(BOUND / 2, future).await;
    over.expect("it is not held up")
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_are_polled_only_once_hold_up_no_other_claim() {
    let server = RedisServer::start();
    let store = patient(&server).await;
    let mut abandoned: Vec<_> = (0..100)
        .map(|key| store.acquire(Claim::new(key).with_limit(1)))
        .collect();
    server.stop();
    abandoned.iter_mut().for_each(poll);
    server.cont();
    in_time(async {
        for key in 100..103 {
            let permit = store.acquire(Claim::new(key).with_limit(1)).await;
            assert!(permit.is_ok(), "{permit:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_growth_that_is_polled_only_once_holds_up_no_claim() {
    let server = RedisServer::start();
    let store = patient(&server).await;
    let claim = |key: u64| store.acquire(Claim::new(key).with_limit(2));
    let permit = claim(0).await.expect("there is room");
    // Claims wait until their number equals the number of calls in flight. So the first two are sent alone, and the
    // third waits.
    let mut in_flight = [claim(1), claim(2)];
    in_flight.iter_mut().for_each(poll);
    let mut claim = claim(3);
    poll(&mut claim);
    let mut growth = Box::pin(permit.resize(2));
    poll(&mut growth);
    assert!(in_time(claim).await.is_ok());
}

#[tokio::test]
async fn a_claim_that_is_polled_only_once_holds_up_no_release() {
    let server = RedisServer::start();
    let store = patient(&server).await;
    let claim = |key: u64| store.acquire(Claim::new(key).with_limit(1));
    for key in (0..10).map(|key| 2 * key) {
        let permit = claim(key).await.expect("there is room");
        let mut release = Box::pin(permit.release());
        let mut abandoned = claim(key + 1);
        // A release that is answered at once could not be held up.
        if (&mut release).now_or_never().is_some() {
            continue;
        }
        let _ = (&mut abandoned).now_or_never();
        assert!(in_time(release).await, "it was held");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_node_of_a_cluster_soon_gets_only_calls_for_one_key() {
    let server = RedisServer::with(&["--cluster-enabled", "yes"]);
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    eventually("the cluster is up", BOUND, async || {
        raw.cmd(&["CLUSTER", "INFO"])
            .await
            .text()
            .contains("state:ok")
    })
    .await;
    let store = patient(&server).await;
    for _ in 0..2 {
        let answers = claim_all(&store, 0..CLAIMS, 1).await;
        assert!(
            answers.iter().all(Result::is_ok),
            "{:?}",
            answers.iter().find(|a| a.is_err())
        );
        drop(answers);
        nothing_is_held(&mut raw).await;
    }
    // The store has learned that calls for two keys are refused, so it now sends a call for each key.
    raw.reset_stats().await;
    assert!(
        claim_all(&store, 0..CLAIMS, 1)
            .await
            .iter()
            .all(Result::is_ok)
    );
    // At least one call for each key. A busy machine may add some.
    let calls = calls(&mut raw).await;
    assert!(calls >= CLAIMS, "{calls} calls");
    let errors = raw.cmd(&["INFO", "errorstats"]).await;
    assert!(!errors.text().contains("CROSSSLOT"), "{}", errors.text());
}
