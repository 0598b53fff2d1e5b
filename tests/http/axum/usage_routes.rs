//! The routes that show operators who holds which permits.
//!
//! Promises: P24.

use axum::{Router, body::Body};
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::{collections::BTreeSet, future::ready, time::Duration};
use tokio::time::Instant;
use tower::ServiceExt;
use tower_semaphore::{
    Claim, Key, MemorySemaphore, Operate, Permit, Policy, Semaphore,
    semaphore::{BoxFuture, KeyStream, StoreError, StoredKey, Usage},
    usage_routes,
};
use url::{Position, Url};

/// The address under which the routes are nested.
const BASE: &str = "http://host/debug/permits/";

/// Requests an address, with its path and query as the `url` crate encodes them. Returns the status and the text.
async fn text(semaphore: impl Operate, address: &Url) -> (StatusCode, String) {
    let app: Router = Router::new().nest("/debug/permits", usage_routes(semaphore));
    let request = Request::get(&address[Position::BeforePath..]);
    let request = request.body(Body::empty()).expect("a request");
    let response = app.oneshot(request).await.expect("an answer");
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body");
    let text = String::from_utf8(body.to_bytes().into());
    (status, text.expect("an answer is UTF-8"))
}

async fn get(semaphore: impl Operate, address: &Url) -> Value {
    let (status, text) = text(semaphore, address).await;
    assert_eq!(status, StatusCode::OK, "{address}: {text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Resolves a link relative to the routes, as a browser does.
fn resolve(link: &str) -> Url {
    let base = Url::parse(BASE).expect("an address");
    base.join(link).expect("a link")
}

/// The address of a route, with its query encoded as an HTML form encodes it.
fn form(route: &str, parameters: &[(&str, &str)]) -> Url {
    let mut address = resolve(route);
    address.query_pairs_mut().extend_pairs(parameters);
    address
}

/// The usage links of all keys of a policy, collected from every page.
async fn links(semaphore: impl Operate + Clone, policy: &str) -> Vec<String> {
    let (mut links, mut next) = (Vec::new(), Some(form("keys", &[("policy", policy)])));
    while let Some(address) = next {
        let list = get(semaphore.clone(), &address).await;
        let keys = list["keys"].as_array().expect("a list");
        assert!(keys.len() <= 1_000, "the bound of a page");
        links.extend(
            keys.iter()
                .map(|key| key["usage"].as_str().expect("a link").to_owned()),
        );
        next = list["next"]
            .as_str()
            .map(|link| address.join(link).expect("a link"));
    }
    links
}

async fn permit(semaphore: &MemorySemaphore, key: impl Into<Key>, label: &'static str) -> Permit {
    let claim = Claim::new(key).with_limit(3).with_label(label);
    semaphore.acquire(claim).await.expect("there is room")
}

/// Names of keys and policies. A link has to encode most of them.
const NAMES: [&str; 14] = [
    "concurrency",
    ".",
    "..",
    "%2e",
    "%2E%2e",
    "a/b?c#d&e=f",
    "/",
    "+",
    "a b",
    "\0\r\n",
    "\u{fc}",
    "%41",
    "\"<\\",
    "a;b",
];

#[tokio::test]
async fn every_link_of_a_list_works_for_keys_and_policies_of_any_bytes() {
    let semaphore = MemorySemaphore::builder().holders(true).build();
    for policy in NAMES.into_iter().chain([""]) {
        let keys = NAMES.map(str::as_bytes).into_iter();
        let keys: Vec<_> = keys.chain([&b"\xff\xfe."[..]]).collect();
        let mut permits = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            let claim = Claim::new(*key).with_limit(3).with_policy(policy);
            let claim = claim.with_label(number.to_string());
            permits.push(semaphore.acquire(claim).await.expect("there is room"));
        }
        let mut labels = BTreeSet::new();
        for link in links(semaphore.clone(), policy).await {
            let usage = get(semaphore.clone(), &resolve(&link)).await;
            labels.insert(usage["held"][0]["label"].as_str().expect(&link).to_owned());
        }
        assert_eq!(labels.len(), keys.len(), "{policy:?}: {labels:?}");
    }
}

#[tokio::test]
async fn a_form_finds_a_usage_by_its_policy_and_its_key() {
    let semaphore = MemorySemaphore::builder().holders(true).build();
    for name in NAMES {
        let claim = Claim::new(name).with_limit(3).with_policy(name);
        let _permit = semaphore.acquire(claim).await.expect("there is room");
        let address = form("usage", &[("key", name), ("policy", name)]);
        assert_eq!(
            get(semaphore.clone(), &address).await["units"],
            json!(1),
            "{name:?}"
        );
    }
}

#[tokio::test]
async fn a_policy_that_is_not_named_is_the_default() {
    let semaphore = MemorySemaphore::builder().holders(true).build();
    let _permit = permit(&semaphore, "a", "job").await;
    let list = get(semaphore.clone(), &resolve("keys")).await;
    let keys = json!([{"key": "a", "usage": "usage?policy=concurrency&key=a"}]);
    let all = json!({"policy": "concurrency", "keys": keys, "hashed": [], "next": null});
    assert_eq!(list, all);
    assert_eq!(
        get(semaphore, &resolve("usage?key=a")).await["units"],
        json!(1)
    );
}

#[tokio::test]
async fn a_label_of_any_text_is_one_json_string() {
    let semaphore = MemorySemaphore::builder().holders(true).build();
    for label in [
        "\"}],\\",
        "</script>\u{2028}",
        "\0\n\u{1b}",
        "\u{1f600} \u{fc}",
    ] {
        let _permit = permit(&semaphore, "a", label).await;
        let usage = get(semaphore.clone(), &resolve("usage?key=a")).await;
        assert_eq!(usage["held"][0]["label"], json!(label));
    }
}

#[tokio::test]
async fn nothing_is_changed_and_no_other_route_answers() {
    let semaphore = MemorySemaphore::builder().holders(true).build();
    let permit = permit(&semaphore, "a", "job").await;
    for path in ["", "keys/", "keys/concurrency", "usage/a", "concurrency/a"] {
        let (status, _) = text(semaphore.clone(), &resolve(path)).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
    assert!(!permit.is_lost());
}

#[tokio::test]
async fn a_query_that_is_not_understood_names_the_parameter() {
    for (link, parameter) in [
        ("usage", "key"),
        ("usage?key=", "key"),
        ("usage?key", "key"),
        ("usage?key=%zz", "key"),
        ("usage?key=100%", "key"),
        ("usage?key=a&key=b", "key"),
        ("usage?key=a&policy=%FF", "policy"),
        ("usage?key=a&cursor=1", "cursor"),
        ("keys?polcy=a", "polcy"),
        ("keys?policy=a&policy=a", "policy"),
        ("keys?cursor=%FF", "cursor"),
        ("keys?cursor=", "cursor"),
        // A cursor of the store in memory is the number of a shard, below 64, and a hash in base 16.
        ("keys?cursor=1", "cursor"),
        ("keys?cursor=64.0", "cursor"),
        ("keys?cursor=-1.0", "cursor"),
        ("keys?cursor=0.10000000000000000", "cursor"),
    ] {
        let (status, text) = text(MemorySemaphore::new(), &resolve(link)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{link}");
        assert!(
            text.starts_with(&format!("{parameter}: ")),
            "{link}: {text}"
        );
    }
}

#[tokio::test]
async fn all_pages_together_have_each_key_once() {
    let semaphore = MemorySemaphore::new();
    let mut permits = Vec::new();
    for key in 0..2_500 {
        permits.push(permit(&semaphore, key, "").await);
    }
    let links = links(semaphore, "concurrency").await;
    assert_eq!(
        (links.len(), BTreeSet::from_iter(&links).len()),
        (2_500, 2_500)
    );
}

/// A store that lists its keys as the variant describes, with the default `Operate` methods for pages.
#[derive(Clone)]
enum Listing {
    /// This number of keys.
    Keys(usize),
    /// This number of keys, and then no end.
    KeysAndStall(usize),
    /// One key, and then an error.
    Fails,
}

impl Operate for Listing {
    fn usage(&self, _: &Policy, _: &Key) -> BoxFuture<Result<Usage, StoreError>> {
        Box::pin(ready(Err(StoreError::new("the disk is gone"))))
    }

    fn keys(&self, _: &Policy) -> KeyStream {
        let keys = |count| stream::iter((0..count).map(|key| Ok(StoredKey::whole(key))));
        match self {
            Self::Keys(count) => Box::pin(keys(*count)),
            Self::KeysAndStall(count) => Box::pin(keys(*count).chain(stream::pending())),
            Self::Fails => {
                let error = Err(StoreError::new("the disk is gone"));
                Box::pin(keys(1).chain(stream::iter([error])))
            }
        }
    }

    fn revoke(&self, _: &Policy, _: &Key, _: &str) -> BoxFuture<Result<bool, StoreError>> {
        unreachable!("the routes only read")
    }
}

#[tokio::test]
async fn a_store_that_only_streams_its_keys_has_pages_too() {
    for count in [0, 1_000, 1_001, 2_500] {
        assert_eq!(links(Listing::Keys(count), "a").await.len(), count);
    }
    let (status, text) = text(Listing::Keys(1), &resolve("keys?cursor=a")).await;
    assert_eq!((status, &text[..7]), (StatusCode::BAD_REQUEST, "cursor:"));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_a_slow_store_has_what_was_found_in_time() {
    let start = Instant::now();
    let slow = Listing::KeysAndStall(7);
    let list = get(slow.clone(), &resolve("keys")).await;
    assert_eq!(list["keys"].as_array().map(Vec::len), Some(7));
    let next = resolve(list["next"].as_str().expect("there may be more"));
    let (status, text) = text(slow, &next).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_store_that_fails_is_unavailable_and_says_why() {
    for link in ["keys", "usage?key=a"] {
        let (status, text) = text(Listing::Fails, &resolve(link)).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.ends_with(": the disk is gone"), "{text}");
    }
}
