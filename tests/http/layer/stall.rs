//! A permit whose response body is not read.
//!
//! Promises: P23.

use super::rig::{MARGIN, MAX_STALL, is_refused, send};
use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use std::{convert::Infallible, time::Duration};
use testing::http_requests::{limit, request};
use tokio::{
    runtime::Builder,
    time::{advance, sleep},
};
use tower::{Layer, Service, service_fn};
use tower_semaphore::{
    Claim, ConcurrencyLimitLayer, MemorySemaphore, OnLost, Permit, PermitLost, ReleaseAt, key,
};

/// The handler's time per frame, which is longer than a client may stall.
const PAUSE: Duration = Duration::from_secs(100);

/// A layer under which a client that does not read for `MAX_STALL` loses its permit.
fn impatient() -> ConcurrencyLimitLayer<key::Header> {
    limit(1, MemorySemaphore::new()).with_max_stall(MAX_STALL)
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Answers with one frame at once and another after each pause.
fn slow()
-> impl Service<Request<String>, Response = Answer, Error = Infallible, Future: Send> + Clone {
    service_fn(async |_| {
        let frames = stream::unfold(Duration::ZERO, |pause| async move {
            sleep(pause).await;
            Some((Ok(Frame::data("frame".into())), PAUSE))
        });
        Ok(Response::new(StreamBody::new(frames).boxed_unsync()))
    })
}

/// Sends another request of the account. Returns true if it is admitted.
async fn is_free<S, B>(service: &S) -> bool
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    !is_refused(&send(service, request("alice")).await)
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_polled_after_a_frame_loses_its_permit_after_the_longest_stall() {
    let service = impatient().layer(slow());
    let mut first = send(&service, request("alice")).await;
    for _ in 0..3 {
        first.body_mut().frame().await.unwrap().unwrap();
        advance(MAX_STALL - MARGIN).await;
        assert!(!is_free(&service).await);
    }
    first.body_mut().frame().await.unwrap().unwrap();
    sleep(MAX_STALL + MARGIN).await;
    assert!(is_free(&service).await);
    assert!(first.body_mut().frame().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_never_polled_loses_its_permit_after_the_longest_stall() {
    let service = impatient().layer(slow());
    let _first = send::<_, Response<_>>(&service, request("alice")).await;
    sleep(MAX_STALL - MARGIN).await;
    assert!(!is_free(&service).await);
    sleep(2 * MARGIN).await;
    assert!(is_free(&service).await);
}

#[test]
fn a_clock_that_was_advanced_in_another_test_hides_no_stall() {
    // The first runtime is the other test: its clock is an hour ahead.
    for ahead in [3_600, 0] {
        let test = async move {
            advance(Duration::from_secs(ahead)).await;
            let service = impatient().layer(slow());
            let _first = send::<_, Response<_>>(&service, request("alice")).await;
            sleep(MAX_STALL + MARGIN).await;
            assert!(is_free(&service).await, "{ahead}");
        };
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(test);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_slow_loses_no_permit() {
    let service = impatient().layer(slow());
    let mut first = send(&service, request("alice")).await;
    for _ in 0..5 {
        first.body_mut().frame().await.unwrap().unwrap();
        assert!(!is_free(&service).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_may_be_aborted() {
    let service = impatient().with_on_lost(OnLost::Abort).layer(slow());
    let mut first = send(&service, request("alice")).await;
    first.body_mut().frame().await.unwrap().unwrap();
    sleep(2 * MAX_STALL).await;
    let error = first.body_mut().frame().await.unwrap().unwrap_err();
    assert!(error.is::<PermitLost>());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_dropped_in_a_stall_ends_no_other_permit() {
    let service = impatient().layer(slow());
    let mut first = send(&service, request("alice")).await;
    first.body_mut().frame().await.unwrap().unwrap();
    advance(MAX_STALL / 2).await;
    drop(first);
    let mut second = send(&service, request("alice")).await;
    second.body_mut().frame().await.unwrap().unwrap();
    assert!(second.body_mut().frame().now_or_never().is_none());
    sleep(2 * MAX_STALL).await;
    assert!(!is_free(&service).await);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_released_at_the_head_has_no_stall() {
    let service = impatient().with_release(ReleaseAt::Head).layer(slow());
    let mut first = send(&service, request("alice")).await;
    assert!(is_free(&service).await);
    sleep(2 * MAX_STALL).await;
    assert!(first.body_mut().frame().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_permit_of_several_limits_is_lost_after_the_longest_stall() {
    let (sender, mut permits) = tokio::sync::mpsc::unbounded_channel();
    let claims = |_: &http::request::Parts| {
        let policies = ["account", "fleet"].into_iter();
        let claims = policies.map(|policy| Claim::new("alice").with_policy(policy));
        Some(claims.collect::<Vec<_>>())
    };
    let layer = ConcurrencyLimitLayer::new(1, key::from_fn(claims), MemorySemaphore::new());
    let mut inner = slow();
    let service =
        layer
            .with_max_stall(MAX_STALL)
            .layer(service_fn(move |request: Request<String>| {
                let permit: &Permit = request.extensions().get().expect("the layer put it there");
                drop(sender.send(permit.clone()));
                inner.call(request)
            }));
    let mut first = send(&service, request("alice")).await;
    first.body_mut().frame().await.unwrap().unwrap();
    let permit = permits.recv().await.unwrap();
    assert!(!permit.is_lost() && permit.levels().len() == 2);
    sleep(MAX_STALL + MARGIN).await;
    assert!(permit.is_lost() && permit.levels().all(|level| level.weight() == 0));
}
