//! Each error displays only its own level. Its cause is its source.
//!
//! Promises: none.

use std::error::Error;
use testing::stubs::{Broken, Refusing};
use tower_semaphore::{
    AcquireError, Claim, Semaphore,
    semaphore::{ClaimError, StoreError},
};

/// The texts of an error and of its sources, from the outermost on.
fn causes(error: &dyn Error) -> Vec<String> {
    let mut cause = Some(error);
    let mut causes = Vec::new();
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    causes
}

#[tokio::test]
async fn a_failure_of_the_store_has_the_store_s_error_as_its_source() {
    let failed = Broken.acquire(Claim::new("a").with_limit(1)).await;
    let expected = ["the semaphore's store failed", "connection refused"];
    assert_eq!(causes(&failed.unwrap_err()), expected);
    assert_eq!(causes(&StoreError::new("connection refused")), expected);
}

#[tokio::test]
async fn an_invalid_claim_has_the_reason_as_its_source_and_a_timeout_has_none() {
    let heavy = Claim::new("a").with_limit(1).with_weight(2);
    let error = heavy.units().unwrap_err();
    let expected = "weight: 2 is more than the limit of 1";
    assert_eq!(causes(&error), ["the claim is not valid", expected]);
    let timed_out = AcquireError::timed_out(&heavy);
    let refused = Refusing(timed_out).acquire(heavy).await;
    assert_eq!(
        causes(&refused.unwrap_err()),
        ["the wait for a permit is over"]
    );
}

#[test]
fn the_error_of_a_claim_names_its_fault() {
    let errors = [
        ClaimError::EmptyKey,
        ClaimError::None,
        ClaimError::Duplicate,
        ClaimError::NoLimit,
        ClaimError::FixedWeight,
    ];
    assert_eq!(
        errors.map(|error| error.to_string()),
        [
            "key: it is empty",
            "claims: there is none",
            "claims: two have the same key and policy",
            "limit: the claim has none",
            "weight: the store cannot change it",
        ]
    );
}
