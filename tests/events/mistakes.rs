//! Logs about a service with a wrong setup.
//!
//! Promises: P20.

use crate::log::{listen, text};
use http::{Request, Response};
use std::{convert::Infallible, time::Duration};
use testing::pausing::PauseRecorder;
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyExtractor, MemorySemaphore, key};

/// The lines of a policy at a level.
fn lines(level: &str, policy: &str) -> Vec<String> {
    let policy = format!("policy=\"{policy}\"");
    let is_it = |line: &&str| line.trim_start().starts_with(level) && line.contains(&policy);
    text().lines().filter(is_it).map(str::to_owned).collect()
}

/// Sends this many requests without a key through a layer.
async fn send<K: KeyExtractor>(layer: &ConcurrencyLimitLayer<K>, requests: usize) -> u16 {
    let service = layer.layer(service_fn(async |_: Request<String>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let mut status = 0;
    for _ in 0..requests {
        let Ok(answer) = service.clone().oneshot(Request::new(String::new())).await;
        status = answer.status().as_u16();
    }
    status
}

#[derive(Clone)]
struct Account;

impl From<Account> for Claim {
    fn from(_: Account) -> Self {
        Self::new("ann")
    }
}

#[tokio::test]
async fn an_extension_that_the_service_forgot_is_an_error_once() {
    listen();
    let by_account = key::from_extension::<Account>();
    let layer = ConcurrencyLimitLayer::new(1, by_account, MemorySemaphore::new());
    assert_eq!(send(&layer.with_policy("forgotten"), 9).await, 500);
    let told = lines("ERROR", "forgotten");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("Account") && told[0].contains("outside of the limit"),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_peer_s_address_that_the_server_does_not_provide_is_an_error_once() {
    listen();
    let layer = ConcurrencyLimitLayer::new(1, key::peer_ip(), MemorySemaphore::new());
    assert_eq!(send(&layer.with_policy("addressless"), 9).await, 500);
    let told = lines("ERROR", "addressless");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("into_make_service_with_connect_info"),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_key_that_the_client_left_out_is_told_at_the_debug_level() {
    listen();
    let layer = ConcurrencyLimitLayer::new(1, key::header("x-account"), MemorySemaphore::new());
    assert_eq!(send(&layer.with_policy("left-out"), 2).await, 400);
    assert_eq!(lines("DEBUG", "left-out").len(), 2);
    assert!(lines("ERROR", "left-out").is_empty() && lines("WARN", "left-out").is_empty());
}

#[tokio::test]
async fn a_trial_tells_that_its_key_was_forgotten_too() {
    listen();
    let by_account = key::from_extension::<Account>();
    let layer = ConcurrencyLimitLayer::new(1, by_account, MemorySemaphore::new());
    assert_eq!(
        send(&layer.with_policy("on-trial").with_shadow(true), 2).await,
        200
    );
    assert_eq!(lines("ERROR", "on-trial").len(), 1);
}

#[tokio::test]
async fn nested_limits_of_one_semaphore_are_an_error_once_that_names_both() {
    listen();
    let memory = MemorySemaphore::new();
    let layer = |limit| {
        let layer = ConcurrencyLimitLayer::new(limit, key::fixed("ann"), memory.clone());
        layer.with_policy("twice")
    };
    let service = layer(20).layer(layer(5).layer(service_fn(async |_: Request<String>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    })));
    for _ in 0..3 {
        let Ok(answer) = service.clone().oneshot(Request::new(String::new())).await;
        assert_eq!(answer.status(), 500);
    }
    let told = lines("ERROR", "twice");
    assert_eq!(told.len(), 1, "{told:?}");
    let names = [
        r#" policy="twice""#,
        " limit=5",
        r#"outer_policy="twice""#,
        "outer_limit=20",
        "with_policy",
    ];
    let names_all = names.map(|part| told[0].contains(part));
    assert_eq!(names_all, [true; 5], "{told:?}");
}

#[tokio::test]
async fn a_cooldown_of_a_policy_that_is_not_held_is_an_error_once() {
    listen();
    let layer = ConcurrencyLimitLayer::new(1, key::fixed("ann"), PauseRecorder::prompt());
    let layer = layer.with_cooldown("unheld", Duration::from_secs(60));
    let service = layer.layer(service_fn(async |_: Request<String>| {
        let response = Response::builder().status(429).header("retry-after", "30");
        Ok::<_, Infallible>(response.body(String::new()).expect("a response"))
    }));
    for _ in 0..3 {
        let Ok(_) = service.clone().oneshot(Request::new(String::new())).await;
    }
    let told = lines("ERROR", "unheld");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("with_cooldown"), "{told:?}");
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_route_is_missing_outside_of_the_router_and_that_is_told_once() {
    listen();
    let layer = ConcurrencyLimitLayer::new(1, key::matched_path(), MemorySemaphore::new());
    assert_eq!(send(&layer, 9).await, 200);
    let text = text();
    let told = text
        .lines()
        .filter(|line| line.contains("key::matched_path"));
    // Two other tests write the lines of the docs, once each.
    assert!((1..=3).contains(&told.count()));
}
