//! The RateLimit fields.
//!
//! Promises: P21.

use super::rig::{ok, send, values};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use std::{convert::Infallible, future::ready};
use testing::{
    http_requests::{limit, request},
    stubs::{Broken, Refusing},
};
use tower::{Layer, service_fn};
use tower_semaphore::{AcquireError, Claim, MemorySemaphore};

const POLICY: &str = r#""concurrency";q=2;qu="concurrent-requests""#;

#[tokio::test(start_paused = true)]
async fn every_response_has_the_limit_and_the_remaining_units() {
    let service = limit(2, MemorySemaphore::new()).layer(ok());
    let mut in_flight = Vec::new();
    for left in ["r=1", "r=0", "r=0;t=1"] {
        let answer = send(&service, request("alice")).await;
        assert_eq!(values(&answer, "ratelimit-policy"), [POLICY]);
        let remaining = format!(r#""concurrency";{left}"#);
        assert_eq!(values(&answer, "ratelimit"), [remaining]);
        in_flight.push(answer);
    }
}

#[tokio::test]
async fn a_custom_quota_unit_is_on_admitted_and_refused_responses() {
    let limit = limit(1, MemorySemaphore::new()).with_policy("b");
    let limit = limit.with_quota_unit("\"16\" tokens").with_policy("a");
    let service = limit.layer(ok());
    let admitted = send(&service, request("alice")).await;
    let refused = send(&service, request("alice")).await;
    for answer in [&admitted, &refused] {
        let policy = values(answer, "ratelimit-policy");
        assert_eq!(policy, [r#""a";q=1;qu="%2216%22 tokens""#]);
    }
}

/// The RateLimit fields and `Retry-After` of the response to a request that the store refuses with this error.
async fn fields_of(error: AcquireError, request: Request<String>) -> [Vec<String>; 3] {
    let answer = send(&limit(2, Refusing(error)).layer(ok()), request).await;
    ["ratelimit-policy", "ratelimit", "retry-after"].map(|field| values(&answer, field))
}

fn refusals() -> [AcquireError; 3] {
    let claim = Claim::new("alice").with_limit(2);
    let (timed_out, queue_full) = (
        AcquireError::timed_out(&claim),
        AcquireError::queue_full(&claim),
    );
    [AcquireError::full(&claim, 2), timed_out, queue_full]
}

#[tokio::test]
async fn every_refusal_has_the_time_of_a_retry_and_no_remaining_units() {
    for error in refusals() {
        let fields = fields_of(error.clone(), request("alice")).await;
        let reset = r#""concurrency";r=0;t=1"#;
        assert_eq!(fields, [[POLICY], [reset], ["1"]], "{error:?}");
    }
}

#[tokio::test]
async fn a_refused_grpc_request_has_the_same_fields() {
    let mut grpc = request("alice");
    *grpc.method_mut() = Method::POST;
    let kind = HeaderValue::from_static("application/grpc");
    grpc.headers_mut().insert("content-type", kind);
    for error in refusals() {
        let plain = fields_of(error.clone(), request("alice")).await;
        assert_eq!(fields_of(error, grpc.clone()).await, plain);
    }
}

#[tokio::test]
async fn a_response_omits_unknown_fields() {
    let memory = || limit(2, MemorySemaphore::new());
    let fields = ["ratelimit-policy", "ratelimit", "retry-after"];
    // Each response, and the number of values of each field.
    for (answer, known) in [
        (
            send(&limit(2, Broken).layer(ok()), request("alice")).await,
            [1, 0, 1],
        ),
        (
            send(&memory().layer(ok()), Request::new(String::new())).await,
            [0, 0, 0],
        ),
        (
            send(&memory().layer(ok()), request("alice")).await,
            [1, 1, 0],
        ),
    ] {
        let found = fields.map(|field| values(&answer, field).len());
        assert_eq!(found, known, "{}", answer.status());
    }
}

#[tokio::test]
async fn the_handler_s_own_fields_stay() {
    let inner = service_fn(|_| {
        let response = Response::builder().header("ratelimit", r#""hourly";r=7"#);
        ready(Ok::<_, Infallible>(
            response.body(Full::from("ok")).expect("a response"),
        ))
    });
    let service = limit(2, MemorySemaphore::new()).layer(inner);
    let answer = send(&service, request("alice")).await;
    let remaining = [r#""hourly";r=7"#, r#""concurrency";r=1"#];
    assert_eq!(values(&answer, "ratelimit"), remaining);
}

/// Parses the string at the start of a structured field (RFC 9651, 3.3.3). Returns it and the rest of the field.
fn string(field: &str) -> Option<(String, &str)> {
    let mut rest = field.strip_prefix('"')?.chars();
    let mut string = String::new();
    loop {
        match rest.next()? {
            '"' => return Some((string, rest.as_str())),
            '\\' => string.push(rest.next().filter(|c| matches!(c, '"' | '\\'))?),
            c @ ' '..='~' => string.push(c),
            _ => return None,
        }
    }
}

#[tokio::test]
async fn any_name_makes_a_valid_field() {
    let mut seen = std::collections::HashSet::new();
    for name in [
        "a \"b\"",
        "a \\b",
        "a\r\nset-cookie: b",
        "caf\u{e9}",
        "50%",
        "50%25",
        "",
    ] {
        let service = limit(2, MemorySemaphore::new())
            .with_policy(name)
            .layer(ok());
        let answer = send(&service, request("alice")).await;
        let policies = values(&answer, "ratelimit-policy");
        let (policy, rest) = string(&policies[0]).expect("a string");
        assert_eq!(rest, r#";q=2;qu="concurrent-requests""#);
        let remaining = values(&answer, "ratelimit");
        assert_eq!(
            string(&remaining[0]).expect("a string"),
            (policy.clone(), ";r=1")
        );
        assert!(seen.insert(policy), "{name:?} reads as another name");
    }
}
