//! A layer around a client pauses a key when a response's `Retry-After` asks for it.
//!
//! Promises: P17.

use super::rig::send;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use std::{
    convert::Infallible,
    future::ready,
    pin::pin,
    time::{Duration, SystemTime},
};
use testing::{
    http_requests::{ACCOUNT, limit, request},
    pausing::{PauseRecorder, RecordedPause},
    stubs::{Broken, Refusing},
    wait::eventually,
};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{
    AcquireError, Claim, Claims, ConcurrencyLimitLayer, Rejection, ReleaseAt, Semaphore, key,
};

const MAX: Duration = Duration::from_secs(300);
const BOUND: Duration = Duration::from_secs(20);

/// The longest time that a response waits for its pause to be stored.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

type Limit = ConcurrencyLimitLayer<key::Header>;

fn limited(store: impl Semaphore) -> Limit {
    limit(1, store).with_cooldown("concurrency", MAX)
}

/// An upstream that answers every request with this status and these headers.
fn upstream(
    status: u16,
    fields: &[(&'static str, &str)],
) -> impl Service<Request<String>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ use<> {
    let mut head = HeaderMap::new();
    for (name, value) in fields {
        head.append(*name, value.parse().expect("a value"));
    }
    service_fn(move |_| {
        let mut response = Response::new(Full::from("busy"));
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        *response.headers_mut() = head.clone();
        ready(Ok(response))
    })
}

/// The pauses that a response with this status and these headers causes.
async fn pauses(status: u16, fields: &[(&'static str, &str)]) -> Vec<RecordedPause> {
    let store = PauseRecorder::prompt();
    let service = limited(store.clone()).layer(upstream(status, fields));
    let answer = send(&service, request("ann")).await;
    assert_eq!(answer.status(), status);
    store.pauses()
}

/// The time for which a 429 with these headers pauses the key, or `None` if it does not.
async fn paused(fields: &[(&'static str, &str)]) -> Option<Duration> {
    let pauses = pauses(429, fields).await;
    assert!(pauses.len() < 2, "{pauses:?}");
    Some(pauses.first()?.time)
}

#[tokio::test]
async fn a_429_or_503_pauses_the_key_of_its_request_for_the_seconds_that_it_names() {
    for status in [429, 503] {
        let expected = RecordedPause {
            policy: "concurrency".to_owned(),
            key: "ann".to_owned(),
            time: Duration::from_secs(30),
            note: format!("{status} with Retry-After: 30"),
            held: 1,
        };
        assert_eq!(pauses(status, &[("retry-after", "30")]).await, [expected]);
    }
}

#[tokio::test]
async fn a_date_counts_from_the_date_of_the_response() {
    let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    for until in [
        "Sun, 06 Nov 1994 08:50:07 GMT",
        "Sunday, 06-Nov-94 08:50:07 GMT",
        "Sun Nov  6 08:50:07 1994",
    ] {
        let time = paused(&[("retry-after", until), date]).await;
        assert_eq!(time, Some(Duration::from_secs(30)), "{until}");
    }
}

#[tokio::test]
async fn a_date_counts_from_now_if_the_response_has_no_date() {
    let until = SystemTime::now() + Duration::from_secs(120);
    let until = httpdate::fmt_http_date(until);
    for date in [None, Some(("date", "yesterday"))] {
        let mut fields = vec![("retry-after", until.as_str())];
        fields.extend(date);
        let time = paused(&fields).await.expect("it is paused");
        let range = Duration::from_secs(60)..=Duration::from_secs(120);
        assert!(range.contains(&time), "{time:?}");
    }
}

#[tokio::test]
async fn zero_a_past_date_and_nonsense_pause_nothing() {
    for value in [
        "0",
        "000",
        "",
        "soon",
        "-5",
        "+5",
        "1.5",
        "30s",
        "3 0",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994",
    ] {
        assert_eq!(paused(&[("retry-after", value)]).await, None, "{value:?}");
    }
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let same = [("retry-after", date), ("date", date)];
    assert_eq!(paused(&same).await, None);
    assert_eq!(paused(&[]).await, None);
}

#[tokio::test]
async fn other_statuses_pause_nothing() {
    for status in [200, 202, 301, 404, 413, 500, 502, 504] {
        assert_eq!(pauses(status, &[("retry-after", "30")]).await, []);
    }
}

#[tokio::test]
async fn a_pause_is_no_longer_than_the_longest() {
    for value in [
        "300",
        "301",
        "31536000000",
        "99999999999999999999999999",
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ] {
        assert_eq!(
            paused(&[("retry-after", value)]).await,
            Some(MAX),
            "{value}"
        );
    }
    assert_eq!(
        paused(&[("retry-after", "299")]).await,
        Some(MAX - Duration::from_secs(1))
    );
}

#[tokio::test]
async fn without_a_cooldown_nothing_is_paused() {
    let store = PauseRecorder::prompt();
    let service = limit(1, store.clone()).layer(upstream(429, &[("retry-after", "30")]));
    send(&service, request("ann")).await;
    assert_eq!(store.pauses(), []);
}

#[tokio::test]
async fn a_request_without_a_key_pauses_nothing() {
    let store = PauseRecorder::prompt();
    let optional = key::from_fn(|parts| parts.headers.get(ACCOUNT).map(Claim::new));
    let layer = ConcurrencyLimitLayer::new(1, optional, store.clone());
    let layer = layer.with_cooldown("concurrency", MAX);
    let service = layer.layer(upstream(429, &[("retry-after", "30")]));
    let answer = send(&service, Request::new(String::new())).await;
    assert_eq!(answer.status(), 429);
    assert_eq!(store.pauses(), []);
}

#[tokio::test]
async fn a_rejection_by_a_layer_inside_pauses_nothing() {
    let claim = Claim::new("ann").with_limit(1);
    for error in [
        AcquireError::full(&claim, 1),
        AcquireError::paused(&claim, Duration::from_secs(30)),
        AcquireError::Overloaded,
    ] {
        let store = PauseRecorder::prompt();
        let inner = limit(1, Refusing(error)).with_policy("inner");
        let service = limited(store.clone()).layer(inner.layer(upstream(200, &[])));
        let answer = send(&service, request("ann")).await;
        assert!(answer.headers().contains_key("retry-after"));
        assert_eq!(store.pauses(), []);
    }
}

#[tokio::test]
async fn a_rejection_with_a_custom_response_pauses_nothing() {
    let store = PauseRecorder::prompt();
    let inner = limit(1, Broken).with_rejection(|_| {
        let response = Response::builder().status(429).header("retry-after", "30");
        response.body(String::new()).expect("a response")
    });
    let service = limited(store.clone()).layer(inner.layer(upstream(200, &[])));
    let answer = send(&service, request("ann")).await;
    assert_eq!((answer.status().as_u16(), store.pauses()), (429, vec![]));
}

#[tokio::test]
async fn a_rejection_by_a_handler_pauses_nothing() {
    let store = PauseRecorder::prompt();
    let service = limited(store.clone()).layer(service_fn(|request: Request<String>| {
        let (parts, _) = request.into_parts();
        let error = AcquireError::full(&Claim::new("upstream").with_limit(1), 1);
        ready(Ok::<_, Infallible>(
            Rejection::of(&error, &parts).into_response(),
        ))
    }));
    let answer = send(&service, request("ann")).await;
    assert_eq!((answer.status().as_u16(), store.pauses()), (429, vec![]));
}

#[tokio::test]
async fn the_layer_s_rejection_contains_the_rest_of_the_pause() {
    let error = AcquireError::paused(&Claim::new("ann").with_limit(1), Duration::from_secs(30));
    let service = limited(Refusing(error)).layer(upstream(200, &[]));
    let answer = send(&service, request("ann")).await;
    assert_eq!(answer.headers()["retry-after"], "30");
}

#[tokio::test]
async fn a_cooldown_for_a_policy_that_the_request_lacks_pauses_nothing() {
    let store = PauseRecorder::prompt();
    let layer = limit(1, store.clone()).with_cooldown("upstream", MAX);
    let service = layer.layer(upstream(429, &[("retry-after", "30")]));
    let answer = send(&service, request("ann")).await;
    assert_eq!((answer.status().as_u16(), store.pauses()), (429, vec![]));
}

#[tokio::test]
async fn of_several_limits_the_key_of_the_named_policy_is_paused() {
    let store = PauseRecorder::prompt();
    let claims = key::from_fn(|_| {
        let upstream = Claim::new("upstream-7").with_policy("upstream");
        Some(Claims::from([Claim::new("ann"), upstream]))
    });
    let layer = ConcurrencyLimitLayer::new(1, claims, store.clone());
    let layer = layer.with_cooldown("upstream", MAX);
    let service = layer.layer(upstream(503, &[("retry-after", "5")]));
    send(&service, Request::new(String::new())).await;
    let pauses = store.pauses();
    let keys: Vec<_> = pauses.iter().map(|pause| pause.key.as_str()).collect();
    assert_eq!(keys, ["upstream-7"]);
}

#[tokio::test(start_paused = true)]
async fn a_response_waits_until_the_store_has_answered_the_pause() {
    let store = PauseRecorder::slow();
    let service = limited(store.clone()).layer(upstream(429, &[("retry-after", "30")]));
    let mut response = pin!(service.oneshot(request("ann")));
    let sent = eventually("the pause is sent", BOUND, async || {
        store.pauses().len() == 1
    });
    tokio::select! {
        biased;
        _ = &mut response => panic!("it did not wait"),
        () = sent => {}
    }
    assert!((&mut response).now_or_never().is_none(), "it did not wait");
    store.answer();
    let before = Instant::now();
    let Ok(_) = response.await;
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_response_waits_for_its_pause_for_a_tenth_of_a_second() {
    let store = PauseRecorder::slow();
    let limit = limited(store.clone()).with_release(ReleaseAt::Head);
    let service = limit.layer(upstream(429, &[("retry-after", "30")]));
    let before = Instant::now();
    let Ok(response) = service.oneshot(request("ann")).await;
    assert_eq!(before.elapsed(), LONGEST_WAIT);
    assert_eq!(response.status(), 429);
    drop(response);
    assert_eq!(store.held(), 1, "the permit is held until the answer");
    store.answer();
    eventually("it is released", BOUND, async || store.held() == 0).await;
    assert_eq!(store.pauses()[0].held, 1);
}

#[tokio::test]
async fn a_permit_that_ends_at_the_head_is_held_until_the_pause_is_answered() {
    let store = PauseRecorder::prompt();
    let limit = limited(store.clone()).with_release(ReleaseAt::Head);
    let service = limit.layer(upstream(429, &[("retry-after", "30")]));
    send(&service, request("ann")).await;
    assert_eq!(store.pauses()[0].held, 1);
    assert_eq!(store.held(), 0);
}

#[tokio::test]
async fn a_pause_that_has_begun_goes_on_when_its_request_is_dropped() {
    let store = PauseRecorder::slow();
    let service = limited(store.clone()).layer(upstream(429, &[("retry-after", "30")]));
    let response = service.oneshot(request("ann")).now_or_never();
    assert!(response.is_none(), "it waits");
    eventually("the pause is sent", BOUND, async || {
        store.pauses().len() == 1
    })
    .await;
    assert_eq!(store.held(), 1, "it goes on");
    store.answer();
    eventually("it is released", BOUND, async || store.held() == 0).await;
}

#[tokio::test]
async fn a_store_that_fails_changes_nothing_of_the_response() {
    let store = PauseRecorder::failing();
    let service = limited(store.clone()).layer(upstream(429, &[("retry-after", "30")]));
    let answer = send(&service, request("ann")).await;
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "30");
    assert_eq!(store.pauses().len(), 1);
    drop(answer);
    assert_eq!(store.held(), 0);
}

#[tokio::test]
async fn in_shadow_the_key_is_paused_too() {
    let store = PauseRecorder::prompt();
    let limit = limited(store.clone()).with_shadow(true);
    let service = limit.layer(upstream(429, &[("retry-after", "30")]));
    send(&service, request("ann")).await;
    assert_eq!(store.pauses().len(), 1);
}

#[tokio::test]
async fn in_shadow_a_request_that_would_be_refused_gets_its_response() {
    let error = AcquireError::full(&Claim::new("ann").with_limit(1), 1);
    let limit = limited(Refusing(error)).with_shadow(true);
    let service = limit.layer(upstream(429, &[("retry-after", "30")]));
    assert_eq!(send(&service, request("ann")).await.status(), 429);
}
