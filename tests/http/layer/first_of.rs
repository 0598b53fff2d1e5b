//! `key::first_of`: the first extractor that finds a key decides.
//!
//! Promises: P7.

use super::rig::{ok, send, statuses};
use http::{HeaderName, HeaderValue, Request};
use std::{collections::HashSet, net::IpAddr};
use testing::http_requests::ACCOUNT;
use tower::Layer;
use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, KeyExtractor, MemorySemaphore, key};

/// A request from an address, with an account if given.
fn from(account: Option<&'static str>, address: &str) -> Request<String> {
    let mut request = Request::new(String::new());
    let address: IpAddr = address.parse().expect("an address");
    request.extensions_mut().insert(address);
    if let Some(account) = account {
        let account = HeaderValue::from_static(account);
        request.headers_mut().insert(ACCOUNT, account);
    }
    request
}

fn account_else_address() -> impl KeyExtractor {
    key::first_of((key::header(ACCOUNT), key::peer_ip()))
}

fn claim(
    extractor: &impl KeyExtractor,
    request: Request<String>,
) -> Result<Option<Claim>, KeyError> {
    let claims = extractor.extract(&request.into_parts().0)?;
    Ok(claims.map(|claims| claims.as_slice()[0].clone()))
}

#[tokio::test]
async fn a_request_without_an_account_counts_by_address_apart_from_an_account_of_that_name() {
    let memory = MemorySemaphore::new();
    let service = ConcurrencyLimitLayer::new(1, account_else_address(), memory).layer(ok());
    let requests = [
        from(Some("ann"), "192.0.2.1"),
        from(Some("bob"), "192.0.2.1"),
        from(None, "192.0.2.1"),
        from(None, "192.0.2.1"),
        from(None, "192.0.2.2"),
        from(Some("ann"), "192.0.2.3"),
        from(Some("192.0.2.1"), "192.0.2.9"),
    ];
    assert_eq!(
        statuses(&service, requests).await,
        [200, 200, 200, 429, 200, 429, 200]
    );
}

#[tokio::test]
async fn a_malformed_key_does_not_count_as_absent() {
    let memory = MemorySemaphore::new();
    let service = ConcurrencyLimitLayer::new(1, account_else_address(), memory.clone()).layer(ok());
    let mut twice = from(Some("ann"), "192.0.2.1");
    twice
        .headers_mut()
        .append(ACCOUNT, HeaderValue::from_static("bob"));
    assert_eq!(send(&service, twice).await.status(), 400);
    assert_eq!(
        send(&service, from(Some(""), "192.0.2.1")).await.status(),
        400
    );
    let malformed = key::from_fn(|_| -> Result<Claim, KeyError> { Err("it is no account".into()) });
    let extractor = key::first_of((malformed, key::peer_ip()));
    let service = ConcurrencyLimitLayer::new(1, extractor, memory).layer(ok());
    assert_eq!(send(&service, from(None, "192.0.2.1")).await.status(), 400);
}

#[test]
fn if_no_extractor_finds_a_key_the_result_is_that_of_the_last() {
    let none = key::from_fn(|_| None::<Claim>);
    let missing = key::header(ACCOUNT);
    // No middleware inserts this extension.
    let forgotten = key::from_extension::<u64>();
    let extract = |extractor: &dyn KeyExtractor| {
        extractor.extract(&Request::new(String::new()).into_parts().0)
    };
    assert_eq!(extract(&key::first_of((missing.clone(), none))), Ok(None));
    let found = extract(&key::first_of((none, missing.clone())));
    assert_eq!(
        found,
        Err(KeyError::missing(format!("the header {ACCOUNT}")))
    );
    let found = extract(&key::first_of((missing, forgotten)));
    assert_eq!(found, Err(KeyError::missing_extension::<u64>()));
}

/// The policies under which a layer with the policy `read` counts one request for each character of `headers`: a
/// request that has only the header of that name.
async fn policies<K: KeyExtractor>(extractor: K, headers: &str) -> Vec<String> {
    let layer = ConcurrencyLimitLayer::new(1, extractor, MemorySemaphore::new());
    let service = layer.with_policy("read").layer(ok());
    let mut found = Vec::new();
    for header in headers.chars() {
        let mut request = Request::new(String::new());
        let name = HeaderName::try_from(header.to_string()).expect("a header's name");
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static("1"));
        let answer = send(&service, request).await;
        let policy = answer.headers()["ratelimit"].to_str().expect("it is text");
        found.push(policy.split('"').nth(1).expect("a name").to_owned());
    }
    found
}

#[tokio::test]
async fn each_extractor_s_policy_is_the_layer_s_with_a_number() {
    let [a, b, c, d] = ["a", "b", "c", "d"].map(key::header);
    let four = key::first_of((a, b, c, d));
    let found = policies(four, "abcd").await;
    assert_eq!(found, ["read", "read-2", "read-3", "read-4"]);
    let [a, b] = ["a", "b"].map(key::header);
    let named = b.map_claim(|claim| claim.with_policy("fleet"));
    assert_eq!(
        policies(key::first_of((a, named)), "ab").await,
        ["read", "fleet"]
    );
}

#[tokio::test]
async fn nested_extractors_have_different_policies() {
    let all_differ = |found: Vec<String>| found.iter().collect::<HashSet<_>>().len() == found.len();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(key::header);
    let right = key::first_of((a, key::first_of((b, key::first_of((c, d))))));
    assert!(all_differ(policies(right, "abcd").await));
    let [a, b, c, d] = ["a", "b", "c", "d"].map(key::header);
    let left = key::first_of((key::first_of((a, b)), key::first_of((c, d))));
    assert!(all_differ(policies(left, "abcd").await));
}

#[test]
fn a_claim_that_is_found_can_be_changed() {
    let anonymous = key::peer_ip().map_claim(|claim| claim.with_policy("anonymous").with_limit(2));
    let extractor = key::first_of((key::header(ACCOUNT), anonymous));
    let found = claim(&extractor, from(None, "192.0.2.1"));
    let expected = Claim::new("192.0.2.1")
        .with_policy("anonymous")
        .with_limit(2);
    assert_eq!(found, Ok(Some(expected)));
    assert_eq!(
        claim(&extractor, from(Some("ann"), "192.0.2.1")),
        Ok(Some(Claim::new("ann")))
    );
}
