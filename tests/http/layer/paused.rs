//! The refusal of a paused key.
//!
//! Promises: P17, P21.

use super::rig::{ok, problem, send, values};
use http::{HeaderValue, Method, Request, request::Parts};
use std::time::Duration;
use testing::{
    http_requests::{limit, request},
    stubs::Refusing,
};
use tower::Layer;
use tower_semaphore::{
    Acquire, AcquireError, Claim, Claims, GlobalConcurrencyLimitLayer, Rejection, Semaphore,
};

/// The time until the pause ends: 29.2 s.
const REST: Duration = Duration::from_millis(29_200);

fn paused(rest: Duration) -> AcquireError {
    AcquireError::paused(&Claim::new("ann").with_limit(2), rest)
}

fn grpc() -> Request<String> {
    let mut grpc = request("ann");
    *grpc.method_mut() = Method::POST;
    let kind = HeaderValue::from_static("application/grpc");
    grpc.headers_mut().insert("content-type", kind);
    grpc
}

#[tokio::test]
async fn a_client_is_asked_to_come_back_when_the_pause_is_over() {
    for (rest, seconds) in [
        (REST, 30),
        (Duration::from_secs(29), 29),
        (Duration::from_nanos(1), 1),
        (Duration::from_secs(31 * 24 * 60 * 60), 2_678_400),
    ] {
        let service = limit(2, Refusing(paused(rest))).layer(ok());
        // Other refusals spread clients over later and later times. Those by a pause all have the end of the pause.
        for _ in 0..3 {
            let answer = send(&service, request("ann")).await;
            assert_eq!(answer.status(), 429);
            assert_eq!(values(&answer, "retry-after"), [seconds.to_string()]);
            let reset = format!(r#""concurrency";r=0;t={seconds}"#);
            assert_eq!(values(&answer, "ratelimit"), [reset]);
            let quota = r#""concurrency";q=2;qu="concurrent-requests""#;
            assert_eq!(values(&answer, "ratelimit-policy"), [quota]);
        }
    }
}

#[tokio::test]
async fn the_problem_names_the_pause() {
    let service = limit(2, Refusing(paused(REST))).layer(ok());
    let problem = problem(send(&service, request("ann")).await).await;
    let kind = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    assert_eq!(problem["type"], kind);
    assert_eq!(problem["detail"], "the key is paused for 30 s more");
    assert_eq!(problem["violated-policies"][0], "concurrency");
}

#[tokio::test]
async fn a_grpc_client_gets_the_same_time() {
    let service = limit(2, Refusing(paused(REST))).layer(ok());
    let answer = send(&service, grpc()).await;
    assert_eq!(answer.status(), 200);
    for (field, value) in [
        ("grpc-status", "8"),
        ("grpc-message", "the key is paused for 30 s more"),
        ("retry-after", "30"),
        ("grpc-retry-pushback-ms", "30000"),
        ("ratelimit", r#""concurrency";r=0;t=30"#),
    ] {
        assert_eq!(values(&answer, field), [value]);
    }
}

#[tokio::test]
async fn a_refusal_in_a_handler_has_the_same_fields() {
    let (parts, _): (Parts, _) = request::<String>("ann").into_parts();
    let response = Rejection::of(&paused(REST), &parts).into_response();
    assert_eq!(response.status(), 429);
    assert_eq!(values(&response, "retry-after"), ["30"]);
    assert_eq!(
        values(&response, "ratelimit"),
        [r#""concurrency";r=0;t=30"#]
    );
}

#[tokio::test]
async fn a_global_limit_refuses_with_the_rest_of_the_pause() {
    use tower::ServiceExt;
    let layer = GlobalConcurrencyLimitLayer::new(2, "ann", Refusing(paused(REST)));
    let Ok(answer) = layer.layer(ok()).oneshot(request("ann")).await;
    assert_eq!(answer.status(), 429);
    assert_eq!(values(&answer, "retry-after"), ["30"]);
}

/// How often `ann` is refused by a pause. If these refusals took places in a schedule of returns, the next client would
/// have to wait for longer than a second.
const REFUSALS: usize = 50;

/// A store in which `ann` is paused and all other keys are full.
struct PausedAnn;

impl Semaphore for PausedAnn {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let claim = claims.only().expect("one claim");
        Acquire::ready(Err(match claim.key().as_bytes() {
            b"ann" => AcquireError::paused(&claim, REST),
            _ => AcquireError::full(&claim, 1),
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_by_a_pause_do_not_delay_clients_of_other_keys() {
    let service = limit(1, PausedAnn).layer(ok());
    for _ in 0..REFUSALS {
        send(&service, request("ann")).await;
    }
    let bob = send(&service, request("bob")).await;
    assert_eq!(values(&bob, "retry-after"), ["1"]);
}

/// A store whose key is paused for the first claims and full afterwards. Counts the claims.
struct OncePaused(std::sync::atomic::AtomicUsize);

impl Semaphore for OncePaused {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let claim = claims.only().expect("one claim");
        let earlier = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Acquire::ready(Err(match earlier {
            0..REFUSALS => AcquireError::paused(&claim, REST),
            _ => AcquireError::full(&claim, 1),
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_by_a_pause_do_not_delay_later_clients_of_its_key() {
    let service = limit(1, OncePaused(0.into())).layer(ok());
    for _ in 0..REFUSALS {
        send(&service, request("ann")).await;
    }
    let full = send(&service, request("ann")).await;
    assert_eq!(values(&full, "retry-after"), ["1"]);
}
