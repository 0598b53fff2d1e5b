//! The span of a wait.
//!
//! Promises: P25.

use crate::log::{contains, listen, text};
use std::time::Duration;
use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
use tracing::Instrument;

fn claim(policy: &str) -> Claim {
    Claim::new("secret-key").with_limit(1).with_policy(policy)
}

#[tokio::test]
async fn the_span_of_a_wait_is_inside_the_span_of_its_request() {
    listen();
    let store = MemorySemaphore::new();
    let held = store.acquire(claim("spans")).await;
    let wait = claim("spans").with_wait(Duration::from_millis(5));
    let request = tracing::info_span!("request");
    let waiting = async { store.acquire(wait).await };
    assert!(waiting.instrument(request).await.is_err());
    let text = text();
    let span = r#"request:wait{store="memory" policy="spans""#;
    let closed = format!(r#"INFO {span} outcome="timed_out"}}: tower_semaphore: close"#);
    assert!(text.contains(&closed), "{text}");
    drop(held);
}

#[tokio::test]
async fn the_span_of_a_wait_has_its_outcome() {
    listen();
    let store = MemorySemaphore::new();
    let held = store.acquire(claim("ends")).await;
    let wait = claim("ends").with_wait(Duration::from_secs(60));
    let granted = store.acquire(wait.clone());
    drop(store.acquire(wait));
    drop(held);
    assert!(granted.await.is_ok());
    for outcome in ["cancelled", "admitted"] {
        let closed = format!(r#"INFO wait{{store="memory" policy="ends" outcome="{outcome}"}}"#);
        assert!(contains(&closed), "{outcome}");
    }
}

#[tokio::test]
async fn a_key_is_logged_at_the_debug_level_only() {
    listen();
    let store = MemorySemaphore::new();
    let held = store.acquire(claim("keys")).await.expect("there is room");
    assert!(store.acquire(claim("keys")).await.is_err());
    let wait = claim("keys").with_wait(Duration::from_millis(1));
    assert!(store.acquire(wait).await.is_err());
    held.end_after(Duration::from_millis(1));
    held.lost().await;
    let text = text();
    let lines: Vec<_> = text
        .lines()
        .filter(|line| line.contains("secret-key"))
        .collect();
    assert!(lines.len() >= 2, "{text}");
    assert!(
        lines.iter().all(|line| line.starts_with("DEBUG")),
        "{lines:?}"
    );
}
