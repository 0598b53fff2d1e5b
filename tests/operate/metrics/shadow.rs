//! What a limit in shadow would have refused.

use super::exposition::{by_outcome, install};
use http::{Request, Response};
use std::{collections::BTreeMap, convert::Infallible};
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, MemorySemaphore};

#[tokio::test]
async fn what_a_limit_in_shadow_would_refuse_counts_and_its_request_is_admitted() {
    install();
    let claims = |parts: &http::request::Parts| match parts.uri.path() {
        "/wrong" => Err(KeyError::Empty),
        "/heavy" => Ok(Claim::new("ann").with_weight(3)),
        _ => Ok(Claim::new("ann")),
    };
    let service = ConcurrencyLimitLayer::new(2, claims, MemorySemaphore::new())
        .with_policy("in shadow")
        .with_shadow(true)
        .layer(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new("done".to_owned()))
        }));
    let mut in_flight = Vec::new();
    for path in ["/", "/", "/", "/wrong", "/heavy"] {
        let request = Request::get(path).body(()).expect("a path");
        in_flight.push(service.clone().oneshot(request).await);
    }
    let counts = |name: &str| by_outcome(name, "in shadow");
    let refused = [("full", 1.0), ("invalid", 2.0)];
    let own = |(outcome, count): (&str, f64)| (outcome.to_owned(), count);
    assert_eq!(
        counts("tower_semaphore_shadow_refusals_total"),
        BTreeMap::from(refused.map(own))
    );
    assert_eq!(
        counts("tower_semaphore_requests_total"),
        BTreeMap::from([own(("admitted", 5.0))])
    );
}
