//! Claims that set their limit, weight or policy themselves.
//!
//! Promises: P1, P3.

use super::rig::{ok, problem, send, statuses, values};
use http::{Request, request::Parts};
use testing::{http_requests::request, stubs::Uncalled};
use tower::Layer;
use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore};

/// A request that weighs `weight`.
fn heavy(weight: u32) -> Request<String> {
    let mut request = request("alice");
    request.extensions_mut().insert(weight);
    request
}

fn by_weight(parts: &Parts) -> Claim {
    let weight = parts.extensions.get().copied();
    Claim::new("alice").with_weight(weight.unwrap_or(1))
}

#[tokio::test]
async fn a_claim_brings_its_own_limit() {
    let tier = |parts: &Parts| match parts.headers["x-account-id"].to_str() {
        Ok("paying") => Claim::new("paying").with_limit(3),
        _ => Claim::new("free"),
    };
    let service = ConcurrencyLimitLayer::new(1, tier, MemorySemaphore::new()).layer(ok());
    let free = ["free"; 2].map(request);
    assert_eq!(statuses(&service, free).await, [200, 429]);
    let paying = ["paying"; 4].map(request);
    assert_eq!(statuses(&service, paying).await, [200, 200, 200, 429]);
    let answer = send(&service, request("paying")).await;
    let policy = values(&answer, "ratelimit-policy");
    assert_eq!(policy, [r#""concurrency";q=3;qu="concurrent-requests""#]);
}

#[tokio::test]
async fn a_heavy_claim_takes_its_weight() {
    let service = ConcurrencyLimitLayer::new(5, by_weight, MemorySemaphore::new()).layer(ok());
    let requests = [3, 3, 2, 1].map(heavy);
    assert_eq!(statuses(&service, requests).await, [200, 429, 200, 429]);
    let answer = send(&service, heavy(3)).await;
    assert_eq!(answer.headers()["ratelimit"], r#""concurrency";r=2"#);
}

#[tokio::test]
async fn a_weight_of_0_or_above_the_limit_is_a_bad_request() {
    let service = ConcurrencyLimitLayer::new(5, by_weight, Uncalled).layer(ok());
    for (weight, detail) in [
        (0, "weight: 0 is not within 1 to 1000"),
        (6, "weight: 6 is more than the limit of 5"),
    ] {
        let answer = send(&service, heavy(weight)).await;
        assert_eq!(answer.status(), 400);
        assert_eq!(problem(answer).await["detail"], detail);
    }
}

#[tokio::test]
async fn a_limit_of_0_refuses_a_claim_of_any_weight_with_429() {
    let service = ConcurrencyLimitLayer::new(0, by_weight, Uncalled).layer(ok());
    assert_eq!(statuses(&service, [1, 6].map(heavy)).await, [429, 429]);
}

#[tokio::test]
async fn a_claim_brings_its_own_policy() {
    let memory = MemorySemaphore::new();
    let export = |_: &Parts| Claim::new("alice").with_policy("export");
    let service = ConcurrencyLimitLayer::new(1, export, memory).layer(ok());
    let first = send(&service, request("alice")).await;
    assert_eq!(first.headers()["ratelimit"], r#""export";r=0"#);
    let refused = send(&service, request("alice")).await;
    let problem = problem(refused).await;
    assert_eq!(problem["violated-policies"], serde_json::json!(["export"]));
}
