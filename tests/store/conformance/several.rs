//! Several limits at once, without waiting, in every store. `several_limits.rs` lists these facts.

use super::{BOUND, Store, claim, fill, queue::waiter};
use std::{slice, time::Duration};
use testing::{
    levels::{POLICIES, claims},
    wait::eventually,
};
use tower_semaphore::{
    AcquireError, Claim, Claims, Semaphore,
    semaphore::{Level, MAX_CLAIMS, MAX_UNITS, MAX_WEIGHT},
};

/// The units held at each limit, as the refusal of a much larger claim reports them.
pub(crate) async fn held(store: &Store, claims: &[Claim]) -> Vec<u32> {
    let mut held = Vec::new();
    for claim in claims {
        let all = claim.clone().with_limit(MAX_WEIGHT).with_weight(MAX_WEIGHT);
        held.push(match store.acquire(all).await {
            Ok(permit) => {
                permit.release().await;
                0
            }
            Err(AcquireError::Full { held, .. }) => held,
            Err(error) => panic!("{error:?}"),
        });
    }
    held
}

/// Waits until exactly these units are held. A drop only queues the release, so that can take a moment.
pub(crate) async fn until_held(store: &Store, claims: &[Claim], expected: &[u32]) {
    eventually(&format!("{expected:?} are held"), BOUND, async || {
        held(store, claims).await == expected
    })
    .await;
}

/// True if a claim was refused by this limit while `units` units were held.
pub(crate) fn is_full(error: &AcquireError, claim: &Claim, units: u32) -> bool {
    matches!(error, AcquireError::Full { policy, limit, held, .. }
        if policy == claim.policy() && Some(*limit) == claim.limit() && *held == units)
}

pub(crate) async fn several_claims_get_a_permit_of_each_limit(store: Store) {
    let claims = claims("ann", [1, 2, 3]);
    let permit = store.acquire_all(claims.clone().into()).await;
    let permit = permit.expect("there is room");
    assert_eq!(held(&store, &claims).await, [1, 1, 1]);
    assert_eq!((permit.limit(), permit.remaining()), (1, 0));
    let levels: Vec<_> = permit
        .levels()
        .map(|level| (level.policy().as_str(), level.limit(), level.remaining()))
        .collect();
    let expected = [("account", 1, 0), ("route", 2, 1), ("fleet", 3, 2)];
    assert_eq!(levels, expected);
}

pub(crate) async fn a_claim_refused_by_any_limit_names_it_and_takes_nothing_of_the_others(
    store: Store,
) {
    let claims = claims("ann", [3, 3, 3]);
    for full in 0..3 {
        let permits = fill(&store, &claims[full]).await;
        let refused = store.acquire_all(claims.clone().into()).await;
        let error = refused.expect_err("one limit is full");
        assert!(is_full(&error, &claims[full], 3), "{full}: {error:?}");
        let mut expected = [0; 3];
        expected[full] = 3;
        until_held(&store, &claims, &expected).await;
        for permit in permits {
            assert!(permit.release().await);
        }
    }
    assert!(store.acquire_all(claims.into()).await.is_ok());
}

/// The waiter's weight is less than its limit, so a unit that is released by mistake could be granted to it.
pub(crate) async fn a_refused_claim_leaves_the_queue_of_a_wider_limit_alone(store: Store) {
    let limit = claim("a", 3);
    let _held = store.acquire(limit.clone().with_weight(2)).await;
    let waits = waiter(&store, limit.clone().with_weight(2), 1).await;
    let [account, ..] = claims("ann", [1, 1, 1]);
    for _ in 0..20 {
        let both = [account.clone(), limit.clone()];
        let error = store
            .acquire_all(both.into())
            .await
            .expect_err("it is full");
        assert!(is_full(&error, &limit, 2), "{error:?}");
    }
    until_held(&store, &[account, limit], &[0, 2]).await;
    assert!(!waits.is_finished());
}

pub(crate) async fn a_permit_of_several_limits_is_released_as_one(store: Store) {
    let claims = claims("ann", [1, 1, 1]);
    let permit = store.acquire_all(claims.clone().into()).await;
    let permit = permit.expect("there is room");
    let clone = permit.clone();
    drop(permit);
    assert_eq!(held(&store, &claims).await, [1, 1, 1]);
    assert!(clone.clone().release().await);
    assert_eq!(held(&store, &claims).await, [0, 0, 0]);
    assert!(!clone.release().await, "it was released before");
    let permit = store.acquire_all(claims.clone().into()).await;
    drop(permit.expect("there is room again"));
    until_held(&store, &claims, &[0, 0, 0]).await;
}

pub(crate) async fn tokens_name_each_limit_and_grow_with_each(store: Store) {
    let mut last = [None; 3];
    for _ in 0..5 {
        let claims = claims("ann", [1, 1, 1]);
        let permit = store.acquire_all(claims.into()).await;
        let permit = permit.expect("there is room");
        let policies: Vec<_> = permit
            .levels()
            .map(|level| level.policy().as_str())
            .collect();
        assert_eq!(policies, POLICIES);
        assert_eq!(
            permit.token(),
            permit.levels().next().and_then(Level::token)
        );
        for (last, level) in last.iter_mut().zip(permit.levels()) {
            let token = level.token();
            assert!(token > *last, "{level:?} after {last:?}");
            *last = token;
        }
        permit.release().await;
    }
}

pub(crate) async fn every_limit_counts_the_weight_of_its_own_claim(store: Store) {
    let mut claims = claims("ann", [4, 5, 6]);
    for (claim, weight) in claims.iter_mut().zip([3, 1, 2]) {
        *claim = claim.clone().with_weight(weight);
    }
    let permit = store.acquire_all(claims.clone().into()).await;
    let permit = permit.expect("there is room");
    assert_eq!(held(&store, &claims).await, [3, 1, 2]);
    let refused = store.acquire_all(claims.clone().into()).await;
    let error = refused.expect_err("3 of 4 units are held");
    assert!(is_full(&error, &claims[0], 3), "{error:?}");
    assert!(permit.release().await);
    assert_eq!(held(&store, &claims).await, [0, 0, 0]);
}

fn is_invalid(error: &AcquireError, why: &str) -> bool {
    matches!(error, AcquireError::Invalid { source, .. } if source.to_string() == why)
}

pub(crate) async fn no_claims_at_all_are_invalid(store: Store) {
    let none = store.acquire_all(Claims::from(Vec::<Claim>::new())).await;
    let error = none.expect_err("there is none");
    assert!(is_invalid(&error, "claims: there is none"), "{error:?}");
}

pub(crate) async fn a_clone_ends_at_the_time_that_a_dropped_permit_has_set(store: Store) {
    let claims = claims("ann", [2, 2, 2]);
    let permit = store.acquire_all(claims.clone().into()).await;
    let permit = permit.expect("there is room");
    permit.end_after(Duration::from_millis(100));
    let clone = permit.clone();
    drop(permit);
    let lost = tokio::time::timeout(BOUND, clone.lost()).await;
    lost.expect("it ends");
    until_held(&store, &claims, &[0, 0, 0]).await;
    assert!(!clone.release().await);
}

pub(crate) async fn more_claims_than_one_call_serves_are_invalid(store: Store) {
    let claims = |count: usize| -> Claims { (0..count).map(|at| claim(at as u64, 1)).collect() };
    let most = store.acquire_all(claims(MAX_CLAIMS)).await;
    assert!(most.expect("there is room").release().await);
    let many = claims(100 * MAX_CLAIMS);
    let error = store.acquire_all(many).await.expect_err("invalid");
    let expected = "claims: 6400 are more than 64";
    assert!(is_invalid(&error, expected), "{error:?}");
}

pub(crate) async fn more_units_than_one_call_may_grant_are_invalid(store: Store) {
    let heavy = |at| claim(at, MAX_WEIGHT).with_weight(MAX_UNITS / 4);
    let most: Claims = (0..4).map(heavy).collect();
    assert!(
        store
            .acquire_all(most)
            .await
            .expect("there is room")
            .release()
            .await
    );
    let many: Claims = (0..4).map(heavy).chain([claim(4, 1)]).collect();
    let error = store.acquire_all(many).await.expect_err("invalid");
    let expected = "claims: 3601 units are more than 3600";
    assert!(is_invalid(&error, expected), "{error:?}");
}

pub(crate) async fn two_claims_for_one_semaphore_are_invalid(store: Store) {
    let [account, route, _] = claims("ann", [2, 2, 2]);
    let twice = [account.clone(), route, account.clone().with_limit(9)];
    let error = store.acquire_all(twice.into()).await.expect_err("invalid");
    assert!(
        is_invalid(&error, "claims: two have the same key and policy"),
        "{error:?}"
    );
    assert_eq!(held(&store, slice::from_ref(&account)).await, [0]);
    let two_policies = [account.clone(), account.with_policy("other")];
    assert!(store.acquire_all(two_policies.into()).await.is_ok());
}

pub(crate) async fn one_wrong_claim_makes_all_invalid(store: Store) {
    let claims = claims("ann", [2, 2, 2]);
    let heavy = |claim: &Claim| claim.clone().with_weight(3);
    for wrong in 0..3 {
        let mut wrong_one = claims.clone();
        wrong_one[wrong] = heavy(&claims[wrong]);
        let answer = store.acquire_all(wrong_one.into()).await;
        let too_heavy = "weight: 3 is more than the limit of 2";
        let error = answer.expect_err("it is too heavy");
        assert!(is_invalid(&error, too_heavy), "{error:?}");
        assert_eq!(held(&store, &claims).await, [0, 0, 0]);
    }
}

pub(crate) async fn a_list_of_one_claim_is_like_a_single_claim(store: Store) {
    let permit = store.acquire_all(claim("a", 1).into()).await;
    let permit = permit.expect("there is room");
    let levels: Vec<_> = permit
        .levels()
        .map(|level| (level.policy(), level.token()))
        .collect();
    assert_eq!(levels, [(permit.policy(), permit.token())]);
    let short = claim("a", 1).with_wait(Duration::from_millis(30));
    let over = store.acquire_all(short.into()).await;
    let error = over.expect_err("no permit was released");
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
}
