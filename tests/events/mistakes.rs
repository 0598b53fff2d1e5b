//! A service with a mistake in its setup is logged.
//!
//! Promises: P20.

use crate::log::{listen, text};
use http::{Request, Response};
use std::{convert::Infallible, time::Duration};
use testing::pausing::PauseRecorder;
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyExtractor, MemorySemaphore, key};

/// The logged lines of a policy at a level.
fn lines(level: &str, policy: &str) -> Vec<String> {
    let policy = format!("policy=\"{policy}\"");
    let is_it = |line: &&str| line.trim_start().starts_with(level) && line.contains(&policy);
    text().lines().filter(is_it).map(str::to_owned).collect()
}

/// Sends this number of requests without a key through a layer. Returns the status of the last answer.
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
async fn a_missing_extension_is_logged_as_an_error_once() {
    listen();
    let by_account = key::from_extension::<Account>();
    let layer = ConcurrencyLimitLayer::new(1, by_account, MemorySemaphore::new());
    assert_eq!(send(&layer.with_policy("forgotten"), 9).await, 500);
    let logged = lines("ERROR", "forgotten");
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(
        logged[0].contains("Account") && logged[0].contains("outside of the limit"),
        "{logged:?}"
    );
}

#[tokio::test]
async fn a_missing_peer_address_is_logged_as_an_error_once() {
    listen();
    let layer = ConcurrencyLimitLayer::new(1, key::peer_ip(), MemorySemaphore::new());
    assert_eq!(send(&layer.with_policy("addressless"), 9).await, 500);
    let logged = lines("ERROR", "addressless");
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(
        logged[0].contains("into_make_service_with_connect_info"),
        "{logged:?}"
    );
}

#[tokio::test]
async fn a_key_that_the_client_left_out_is_logged_at_the_debug_level() {
    listen();
    let layer = ConcurrencyLimitLayer::new(1, key::header("x-account"), MemorySemaphore::new());
    assert_eq!(send(&layer.with_policy("left-out"), 2).await, 400);
    assert_eq!(lines("DEBUG", "left-out").len(), 2);
    assert!(lines("ERROR", "left-out").is_empty() && lines("WARN", "left-out").is_empty());
}

#[tokio::test]
async fn a_missing_extension_is_logged_in_shadow_too() {
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
async fn nested_limits_of_one_semaphore_are_one_error_that_names_both() {
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
    let logged = lines("ERROR", "twice");
    assert_eq!(logged.len(), 1, "{logged:?}");
    let names = [
        r#" policy="twice""#,
        " limit=5",
        r#"outer_policy="twice""#,
        "outer_limit=20",
        "with_policy",
    ];
    let names_all = names.map(|part| logged[0].contains(part));
    assert_eq!(names_all, [true; 5], "{logged:?}");
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
    let logged = lines("ERROR", "unheld");
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("with_cooldown"), "{logged:?}");
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_missing_route_outside_of_the_router_is_logged_once() {
    listen();
    let layer = ConcurrencyLimitLayer::new(1, key::matched_path(), MemorySemaphore::new());
    assert_eq!(send(&layer, 9).await, 200);
    let text = text();
    let logged = text
        .lines()
        .filter(|line| line.contains("key::matched_path"));
    // Two other tests may log this line too, once each.
    assert!((1..=3).contains(&logged.count()));
}
