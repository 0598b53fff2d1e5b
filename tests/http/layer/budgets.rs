//! Budgets of a layer's requests.
//!
//! Promises: P21, P26.

use super::rig::{problem, send, values};
use bytes::Bytes;
use http::{Request, Response, StatusCode, request::Parts};
use http_body_util::Full;
use std::{convert::Infallible, time::Duration};
use testing::{
    http_requests::request,
    stores::{Store, facts_of_two},
    wait::eventually,
};
use tokio::time::advance;
use tower::{Layer, service_fn};
use tower_semaphore::{
    Claim, ConcurrencyLimitLayer, LimitLayer, MemorySemaphore, Operate, Permit, ResponseBody,
};

const BOUND: Duration = Duration::from_secs(20);

const MINUTE: Duration = Duration::from_secs(60);

/// 5 requests at a time, and 100 tokens per minute. Each request reserves 60 tokens.
fn limits(parts: &Parts) -> [Claim; 2] {
    let account = &parts.headers["x-account-id"];
    let tokens = Claim::new(account).with_policy("tokens").with_limit(100);
    [
        Claim::new(account),
        tokens.with_window(MINUTE).with_estimate(60),
    ]
}

/// A handler that uses this number of tokens.
async fn handle<const TOKENS: u32>(
    request: Request<String>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let permit = request.extensions().get::<Permit>();
    assert!(permit.is_some_and(|permit| permit.settle("tokens", TOKENS)));
    Ok(Response::new("rows".into()))
}

fn layer(store: MemorySemaphore) -> ConcurrencyLimitLayer<fn(&Parts) -> [Claim; 2]> {
    ConcurrencyLimitLayer::new(5, limits, store)
}

fn fields(answer: &Response<ResponseBody<Full<Bytes>>>) -> [Vec<String>; 3] {
    ["ratelimit-policy", "ratelimit", "retry-after"].map(|field| values(answer, field))
}

#[tokio::test(start_paused = true)]
async fn a_response_names_the_window_of_a_budget_and_a_refusal_the_time_until_it_has_room() {
    let service = layer(MemorySemaphore::new()).layer(service_fn(handle::<20>));
    let requests = r#""concurrency";q=5;qu="concurrent-requests""#;
    let tokens = r#""tokens";q=100;w=60"#;
    let first = send(&service, request("ann")).await;
    let [policies, remaining, _] = fields(&first);
    assert_eq!(policies, [requests, tokens]);
    assert_eq!(remaining, [r#""concurrency";r=4"#, r#""tokens";r=40"#]);
    drop(first);
    // The first request has spent 20 of the 60 tokens that it reserved, and two more spend 20 each.
    for _ in 0..2 {
        let answer = send(&service, request("ann")).await;
        assert_eq!(answer.status(), StatusCode::OK);
    }
    let refused = send(&service, request("ann")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let [policies, remaining, retry_after] = fields(&refused);
    assert_eq!(policies, [tokens, requests]);
    // A request that reserves 60 fits when 20 have come back, a fifth of a minute later.
    assert_eq!(remaining, [r#""tokens";r=40;t=12"#]);
    assert_eq!(retry_after, ["12"]);
    assert_eq!(problem(refused).await["title"], "Too much used for now");
    advance(Duration::from_secs(12)).await;
    let answer = send(&service, request("ann")).await;
    assert_eq!(answer.status(), StatusCode::OK);
}

/// The window is a month, so that hardly any tokens come back while the test runs.
pub(crate) async fn a_budget_in_shadow_refuses_nothing_and_is_settled(store: Store) {
    let month = |parts: &Parts| {
        limits(parts).map(|claim| match claim.window() {
            Some(_) => claim.with_window(30 * 24 * 60 * MINUTE),
            None => claim,
        })
    };
    let limit = ConcurrencyLimitLayer::new(5, month, store.clone()).with_shadow(true);
    let service = limit.layer(service_fn(handle::<25>));
    let send_one = async || {
        let answer = send(&service, request("ann")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        drop(answer);
        let usage = store.usage(&"tokens".into(), &"ann".into()).await;
        let budgets = usage.expect("the store answers").budgets;
        let in_use = budgets
            .first()
            .map(|budget| (budget.spent, budget.reserved));
        in_use.expect("the budget is in use")
    };
    // Each request reserves 60 and uses 25, so a third does not fit beside the 50 that two have used. The usage may be read
    // while a request is granted, and then counts its 60 as spent.
    eventually("two requests were counted", BOUND, async || {
        send_one().await == (50, 0)
    })
    .await;
    for _ in 0..3 {
        assert_eq!(send_one().await, (50, 0));
    }
}

facts_of_two! { a_budget_in_shadow_refuses_nothing_and_is_settled }

#[tokio::test(start_paused = true)]
async fn a_response_rounds_a_window_up_to_a_second() {
    let limits = |_: &Parts| Claim::new("all").with_window(Duration::from_millis(20));
    let limit = ConcurrencyLimitLayer::new(5, limits, MemorySemaphore::new());
    let service = limit.layer(super::rig::ok());
    let answer = send(&service, request("ann")).await;
    assert_eq!(fields(&answer)[0], [r#""concurrency";q=5;w=1"#]);
}

#[tokio::test(start_paused = true)]
async fn a_service_of_any_kind_can_be_under_a_budget() {
    let limits = |account: &&'static str| Claim::new(*account).with_window(MINUTE);
    let limit = LimitLayer::new(2, limits, MemorySemaphore::new());
    let service = limit.layer(service_fn(async |account: &'static str| {
        Ok::<_, Infallible>(account.len())
    }));
    for expected in [true, true, false] {
        let answer = tower::ServiceExt::oneshot(service.clone(), "ann").await;
        assert_eq!(answer.is_ok(), expected);
    }
}
