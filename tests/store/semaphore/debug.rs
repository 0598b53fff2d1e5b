//! Debug output shows the type and its contents.
//!
//! Promises: none.

use http::Response;
use std::{convert::Infallible, future::ready};
use testing::http_requests::{limit, request};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{Claim, Key, MemorySemaphore, Permit, Semaphore};

async fn granted(store: &MemorySemaphore) -> Permit {
    let permit = store.acquire(Claim::new("a").with_limit(2)).await;
    permit.expect("there is room")
}

#[tokio::test]
async fn a_store_shows_how_many_keys_are_in_use() {
    let store = MemorySemaphore::new();
    let _held = (granted(&store).await, granted(&store).await);
    assert_eq!(format!("{store:?}"), "MemorySemaphore { keys: 1 }");
    let answer = store.acquire(Claim::new("a").with_limit(2));
    assert_eq!(format!("{answer:?}"), "Acquire { .. }");
}

#[tokio::test]
async fn a_permit_shows_its_token_and_if_it_is_lost() {
    let permit = granted(&MemorySemaphore::new()).await;
    let shown = format!("Permit {{ token: {:?}, lost: false, .. }}", permit.token());
    assert_eq!(format!("{permit:?}"), shown);
}

#[test]
fn a_key_shows_its_bytes() {
    assert_eq!(format!("{:?}", Key::from("a\n")), r#"Key(b"a\n")"#);
}

#[tokio::test]
async fn a_body_shows_if_it_holds_a_permit() {
    let answer = |_| ready(Ok::<_, Infallible>(Response::new("ok".to_owned())));
    let mut service = limit(1, MemorySemaphore::new()).layer(service_fn(answer));
    let service = service.ready().await.expect("it is always ready");
    let response = service.call(request::<String>("alice"));
    assert_eq!(format!("{response:?}"), "ResponseFuture { .. }");
    let Ok(response) = response.await;
    let body = format!("{:?}", response.into_body());
    assert_eq!(body, "ResponseBody { holds_guard: true, .. }");
}
