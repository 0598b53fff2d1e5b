//! The claims of one request, as an extractor and a store see them.
//!
//! Promises: P3, P20.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};
use tower_semaphore::{
    AcquireError, Claim, Claims, MemorySemaphore, Policy,
    semaphore::{ClaimError, DEFAULT_MAX_WAITING, MAX_SHARE},
};

fn levels() -> [Claim; 2] {
    [Claim::new("alice"), Claim::new("all").with_policy("fleet")]
}

#[test]
fn claims_come_in_their_order() {
    let claims = Claims::from(levels());
    assert_eq!(claims.clone().into_iter().collect::<Vec<_>>(), levels());
    assert!((&claims).into_iter().eq(&levels()));
    assert_eq!(claims.as_slice(), levels());
    let one = Claims::from("alice").into_iter();
    assert_eq!(one.collect::<Vec<_>>(), [Claim::new("alice")]);
}

#[test]
fn one_claim_in_a_list_is_one_claim() {
    let one = Claims::from("alice");
    assert_eq!(Claims::from(vec![Claim::new("alice")]), one);
    assert_eq!(Claims::from([Claim::new("alice")]), one);
    assert_ne!(Claims::from(levels()), one);
}

/// A strict claim is refused while the store is unavailable, even if the store admits others.
#[test]
fn a_claim_is_strict_only_if_that_is_set() {
    let claim = Claim::new("alice");
    assert!(!claim.is_strict());
    assert!(claim.clone().with_strict(true).is_strict());
    assert!(!claim.with_strict(true).with_strict(false).is_strict());
}

#[test]
fn a_claim_waits_if_it_has_time() {
    let claim = Claim::new("alice").with_max_waiting(7);
    assert_eq!(claim.wait(), None);
    assert_eq!(claim.clone().with_wait(Duration::ZERO).wait(), None);
    let wait = claim.with_wait(Duration::from_secs(3)).wait();
    let wait = wait.expect("it waits");
    assert_eq!((wait.time, wait.max_waiting), (Duration::from_secs(3), 7));
}

#[test]
fn a_number_of_waiters_has_one_type_wherever_it_is_set_or_read() {
    let claim = Claim::new("alice").with_wait(Duration::from_secs(1));
    let max_waiting = |claim: Claim| claim.wait().expect("it waits").max_waiting;
    let set = claim.clone().with_max_waiting(max_waiting(claim.clone()));
    assert_eq!(max_waiting(set), DEFAULT_MAX_WAITING);
    let store = MemorySemaphore::builder().max_waiting_total(DEFAULT_MAX_WAITING);
    drop(store.holders(true).build());
}

#[test]
fn a_policy_is_its_name() {
    const EXPORT: Policy = Policy::from_static("export");
    let shared = Policy::from(Arc::<str>::from("export"));
    assert_eq!((&EXPORT, EXPORT.as_ref()), (&shared, "export"));
    assert_eq!(format!("{shared:?} {shared}"), r#""export" export"#);
    let hasher = RandomState::new();
    let [export, same, other] = [EXPORT, shared, Policy::DEFAULT].map(|it| hasher.hash_one(it));
    assert!(export == same && export != other);
}

#[test]
fn a_head_start_is_a_year_at_most() {
    let day = Duration::from_secs(86_400);
    for (head_start, counts) in [(364 * day, 364 * day), (400 * day, 365 * day)] {
        let claim = Claim::new("alice")
            .with_wait(day)
            .with_head_start(head_start);
        assert_eq!(claim.wait().map(|wait| wait.head_start), Some(counts));
    }
}

#[test]
fn a_flow_is_any_bytes_and_has_a_share_of_one() {
    let claim = Claim::new("model").with_flow([0xff, 0].as_slice());
    assert_eq!(claim.flow(), Some(&[0xff, 0].as_slice().into()));
    assert_eq!((claim.share(), Claim::new("model").flow()), (1, None));
    assert_eq!(claim.clone().with_share(4).with_flow("ann").share(), 4);
    assert_ne!(
        claim.clone().with_flow("bob"),
        claim.clone().with_flow("ann")
    );
    let most = claim.with_limit(1).with_share(MAX_SHARE);
    assert!(most.units().is_ok());
}

#[test]
fn a_flow_that_no_queue_can_serve_is_a_separate_error() {
    let claim = Claim::new("model").with_limit(1);
    let with_head_start = claim.clone().with_head_start(Duration::from_secs(1));
    let wrong = [
        (claim.clone().with_flow(""), "flow: it is empty"),
        (
            claim.clone().with_share(0),
            "share: 0 is not within 1 to 100",
        ),
        (
            claim.clone().with_flow("ann").with_share(101),
            "share: 101 is not within 1 to 100",
        ),
        (
            with_head_start.clone().with_flow("ann"),
            "flow: a claim of a flow has no head start",
        ),
        (
            claim
                .with_flow("ann")
                .with_head_start(Duration::from_secs(1)),
            "flow: a claim of a flow has no head start",
        ),
    ];
    for (claim, text) in wrong {
        let Err(AcquireError::Invalid { source, .. }) = claim.units() else {
            panic!("{claim:?} is wrong");
        };
        assert_eq!(source.to_string(), text);
        assert_eq!(source == ClaimError::EmptyFlow, text.contains("empty"));
    }
    let without_flow = with_head_start.with_share(7);
    assert!(
        without_flow.units().is_ok(),
        "a share without a flow counts for nothing"
    );
}
