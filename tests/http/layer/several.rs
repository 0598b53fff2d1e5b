//! Several limits on one request: the responses, and their equivalence to stacked layers.
//!
//! Promises: P3, P21.

use super::rig::{Answer, ok, problem, send, statuses, values};
use http::{Request, request::Parts};
use http_body_util::BodyExt;
use serde_json::json;
use std::time::Duration;
use testing::{http_requests::request, ledger::Ledger, wait::eventually};
use tower::{Layer, ServiceExt};
use tower_semaphore::{
    AcquireError, Claim, ConcurrencyLimitLayer, MemorySemaphore, Operate, Permit, Semaphore, key,
    semaphore::StoredKey,
};

/// The limits of the account, of the route and of the fleet.
const LIMITS: [u32; 3] = [2, 3, 4];

fn account(parts: &Parts) -> Claim {
    Claim::new(&parts.headers["x-account-id"]).with_policy("account")
}

fn route() -> Claim {
    Claim::new("export")
        .with_policy("route")
        .with_limit(LIMITS[1])
}

fn fleet() -> Claim {
    Claim::new("all").with_policy("fleet").with_limit(LIMITS[2])
}

fn claims(parts: &Parts) -> [Claim; 3] {
    [account(parts), route(), fleet()]
}

/// A layer with all three limits.
fn limited(
    semaphore: impl Semaphore,
) -> ConcurrencyLimitLayer<impl Fn(&Parts) -> [Claim; 3] + Clone> {
    ConcurrencyLimitLayer::new(LIMITS[0], claims, semaphore)
}

#[tokio::test]
async fn with_fair_queues_the_queue_of_a_wider_limit_serves_accounts_in_turn() {
    let fleet = || Claim::new("all").with_policy("fleet").with_limit(1);
    for is_fair in [false, true] {
        let store = MemorySemaphore::builder().holders(true).build();
        let held = store.acquire(fleet()).await.expect("there is room");
        let extractor = move |parts: &Parts| [account(parts), fleet()];
        let layer = ConcurrencyLimitLayer::new(10, extractor, store.clone());
        let layer = layer.with_wait(Duration::from_secs(60));
        let layer = if is_fair {
            layer.with_fair_queues()
        } else {
            layer
        };
        let service = layer.layer(ok());
        let waiting = async || {
            let usage = store.usage(&"fleet".into(), &"all".into()).await;
            usage.expect("memory has no failures").waiting
        };
        let mut requests = Vec::new();
        for account in ["ann", "ann", "ann", "bob"] {
            let request = service.clone().oneshot(request(account));
            requests.push(tokio::spawn(request));
            eventually("it waits", Duration::from_secs(10), async || {
                waiting().await.len() == requests.len()
            })
            .await;
        }
        let flows = waiting().await.into_iter().map(|info| info.flow);
        let flows: Vec<_> = flows.collect();
        let flow = |account: &'static str| is_fair.then(|| StoredKey::whole(account));
        let expected = match is_fair {
            true => ["ann", "bob", "ann", "ann"].map(flow),
            false => ["ann", "ann", "ann", "bob"].map(flow),
        };
        assert_eq!(flows, expected);
        drop(held);
        requests.into_iter().for_each(|request| request.abort());
    }
}

/// Requests in order, each with the policy that refuses it, or `None` if it is admitted.
const REQUESTS: [(&str, Option<&str>); 9] = [
    ("ann", None),
    ("ann", None),
    ("ann", Some("account")),
    ("bob", None),
    ("bob", Some("route")),
    ("ann", Some("account")),
    ("elsewhere cid", None),
    ("elsewhere cid", Some("fleet")),
    ("elsewhere dee", Some("fleet")),
];

/// Accounts whose names begin with `elsewhere` use a route without a limit.
fn claims_by_route(parts: &Parts) -> Vec<Claim> {
    let account = account(parts);
    match account.key().as_bytes().starts_with(b"elsewhere") {
        true => vec![account, fleet()],
        false => vec![account, route(), fleet()],
    }
}

fn policies(answer: &Answer) -> Vec<String> {
    let mut policies = values(answer, "ratelimit-policy");
    policies.sort();
    policies
}

fn quota(policy: &str, limit: u32) -> String {
    format!(r#""{policy}";q={limit};qu="concurrent-requests""#)
}

#[tokio::test(start_paused = true)]
async fn every_response_lists_every_policy_as_an_item_of_its_own() {
    let service = limited(MemorySemaphore::new()).layer(ok());
    let mut in_flight = Vec::new();
    for used in 1..=2 {
        let answer = send(&service, request("ann")).await;
        let quotas = [quota("account", 2), quota("route", 3), quota("fleet", 4)];
        assert_eq!(values(&answer, "ratelimit-policy"), quotas);
        let left = ["account", "route", "fleet"].into_iter().zip(LIMITS);
        let left: Vec<_> = left
            .map(|(policy, limit)| format!(r#""{policy}";r={}"#, limit - used))
            .collect();
        assert_eq!(values(&answer, "ratelimit"), left);
        in_flight.push(answer);
    }
    let answer = send(&service, request("ann")).await;
    let quotas = [quota("account", 2), quota("fleet", 4), quota("route", 3)];
    assert_eq!(policies(&answer), quotas);
    // The response omits what is left under the other limits: they were not counted, so it is unknown.
    assert_eq!(values(&answer, "ratelimit"), [r#""account";r=0;t=1"#]);
    assert_eq!(values(&answer, "retry-after"), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_policy_that_refused() {
    let layer = ConcurrencyLimitLayer::new(LIMITS[0], claims_by_route, MemorySemaphore::new());
    let service = layer.layer(ok());
    let mut in_flight = Vec::new();
    for (account, refusing) in REQUESTS {
        let answer = send(&service, request(account)).await;
        let Some(refusing) = refusing else {
            assert_eq!(answer.status(), 200);
            in_flight.push(answer);
            continue;
        };
        assert_eq!(answer.status(), 429, "{account}");
        let left = format!(r#""{refusing}";r=0;t=1"#);
        assert_eq!(values(&answer, "ratelimit"), [left]);
        let error = answer.extensions().get::<AcquireError>();
        assert!(
            matches!(error, Some(AcquireError::Full { policy, .. }) if policy.as_str() == refusing)
        );
        assert_eq!(
            problem(answer).await["violated-policies"],
            json!([refusing])
        );
    }
}

#[tokio::test]
async fn a_refusal_lists_two_limits_of_one_policy_too() {
    let claims =
        |_: &Parts| [("a", 1), ("all", 9)].map(|(key, limit)| Claim::new(key).with_limit(limit));
    let service = ConcurrencyLimitLayer::new(1, claims, MemorySemaphore::new()).layer(ok());
    let admitted = send(&service, request("ann")).await;
    let refused = send(&service, request("ann")).await;
    assert_eq!(
        (admitted.status().as_u16(), refused.status().as_u16()),
        (200, 429)
    );
    let quotas = [quota("concurrency", 1), quota("concurrency", 9)];
    assert_eq!(
        (policies(&admitted), policies(&refused)),
        (quotas.to_vec(), quotas.to_vec())
    );
}

#[tokio::test]
async fn a_claim_too_heavy_for_a_wider_limit_names_that_limit() {
    let heavy = |parts: &Parts| claims(parts).map(|claim| claim.with_limit(9).with_weight(5));
    let claims = move |parts: &Parts| {
        let [account, route, fleet] = heavy(parts);
        [account, route, fleet.with_limit(4)]
    };
    let layer = ConcurrencyLimitLayer::new(9, claims, MemorySemaphore::new());
    let layer = layer.with_rejection(|rejection| {
        http::Response::new(format!("{} {}", rejection.policy(), rejection.limit()))
    });
    let answer = send::<_, Answer>(&layer.layer(ok()), request("ann")).await;
    let said = answer
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    assert_eq!(said, "fleet 4");
}

#[tokio::test]
async fn a_store_that_takes_one_claim_at_a_time_refuses_several_as_invalid() {
    let answer = send(&limited(Ledger::default()).layer(ok()), request("ann")).await;
    assert_eq!(answer.status(), 400);
    let detail = "claims: 3, and the store takes one at a time";
    assert_eq!(problem(answer).await["detail"], detail);
}

/// Compares one layer that makes three claims with three stacked layers that make one each.
#[tokio::test]
async fn stacked_layers_admit_and_refuse_the_same() {
    let service = limited(MemorySemaphore::new()).layer(ok());
    let memory = MemorySemaphore::new();
    let one = |claim: fn(&Parts) -> Claim| ConcurrencyLimitLayer::new(2, claim, memory.clone());
    let stacked = one(account).layer(one(|_| route()).layer(one(|_| fleet()).layer(ok())));
    let mut in_flight = Vec::new();
    for account in ["ann", "ann", "ann", "bob", "bob", "cid"] {
        let answer = send(&service, request(account)).await;
        let layered = send(&stacked, request(account)).await;
        assert_eq!(answer.status(), layered.status(), "{account}");
        let refused = answer.status() == 429;
        // A layer knows only its own limit and those outside it, so limits inside the refusing one are not listed.
        let listed = values(&layered, "ratelimit-policy");
        assert!(
            listed
                .iter()
                .all(|policy| policies(&answer).contains(policy))
        );
        assert!(refused || listed.len() == 3);
        let with_reset = |lines: Vec<String>| lines.into_iter().find(|line| line.contains(";t="));
        let reset = with_reset(values(&answer, "ratelimit"));
        assert_eq!(reset, with_reset(values(&layered, "ratelimit")));
        in_flight.push((answer, layered));
    }
}

#[tokio::test]
async fn the_permit_of_a_request_names_every_limit_and_the_body_keeps_it() {
    let handler = tower::service_fn(|request: Request<String>| {
        let permit = request.extensions().get::<Permit>().expect("a permit");
        let policies: Vec<_> = permit
            .levels()
            .map(|level| level.policy().as_str())
            .collect();
        let body = http_body_util::Full::<bytes::Bytes>::from(policies.join(" "));
        std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(body)))
    });
    let memory = MemorySemaphore::new();
    let service = limited(memory.clone()).layer(handler);
    let answer = send(&service, request("ann")).await;
    assert_eq!(memory.busy_keys(), 3, "the body keeps every limit");
    let body = BodyExt::collect(answer.into_body()).await;
    assert_eq!(body.expect("a body").to_bytes(), "account route fleet");
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn an_extractor_returns_several_claims_as_an_array_or_a_vec_or_none_of_them() {
    let refused = [200, 200, 429];
    let requests = || ["ann"; 3].map(request);
    let memory = || MemorySemaphore::new();
    let maybe = key::from_fn(|parts| Some(claims(parts)));
    let service = ConcurrencyLimitLayer::new(2, maybe, memory()).layer(ok());
    assert_eq!(statuses(&service, requests()).await, refused);
    let result = key::from_fn(|parts| Ok::<_, &str>(claims_by_route(parts)));
    let service = ConcurrencyLimitLayer::new(2, result, memory()).layer(ok());
    assert_eq!(statuses(&service, requests()).await, refused);
    let none = key::from_fn(|_| Vec::<Claim>::new());
    let service = ConcurrencyLimitLayer::new(2, none, memory()).layer(ok());
    assert_eq!(statuses(&service, requests()).await, [200; 3]);
}
