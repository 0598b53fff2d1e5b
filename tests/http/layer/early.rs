//! Permits that are released before the response's head because their key is full and the release needs a round trip.
//!
//! Promises: P9, P22.

use super::rig::{Held, MARGIN, ok, stalled, take};
use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use std::{convert::Infallible, error::Error, pin::pin, time::Duration};
use testing::{
    http_requests::{limit, request},
    script::{
        Script,
        Step::{Data, Fail, Panic, Trailers},
    },
    stubs::Remote,
};
use tokio::{
    sync::oneshot,
    task::{spawn, yield_now},
    time::{Instant, advance},
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{ConcurrencyLimitLayer, OnLost, Permit, ReleaseAt, ResponseBody, key};

/// How long a head waits at most for the answer to the release of its permit.
const LONGEST_WAIT: Duration = Duration::from_millis(2);

type Limit = ConcurrencyLimitLayer<key::Header>;

/// Answers with a body that follows this script.
fn scripted(
    body: Script,
) -> impl Service<Request<String>, Response = Response<Script>, Error = Infallible, Future: Send> + Clone
{
    service_fn(move |_| {
        let body = body.clone();
        async { Ok(Response::new(body)) }
    })
}

/// Returns the response if it is available without waiting.
fn at_once<S, B>(limit: &Limit, service: S) -> Option<Response<ResponseBody<B>>>
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let response = limit.layer(service).oneshot(request("ann"));
    let Ok(response) = response.now_or_never()?;
    Some(response)
}

/// Every script whose body is over with its first frame, or has none.
fn one_frame_scripts() -> impl Iterator<Item = Script> {
    let exact = [
        vec![],
        vec![Data("")],
        vec![Data("one")],
        vec![Trailers],
        vec![Fail],
    ];
    let streams = [vec![], vec![Trailers], vec![Fail]];
    let exact = exact.into_iter().map(Script::exact);
    exact.chain(streams.into_iter().map(Script::stream))
}

#[tokio::test(start_paused = true)]
async fn a_head_waits_for_the_answer_to_the_release_if_the_body_ends_in_its_first_frame() {
    for script in one_frame_scripts() {
        let store = Remote::full();
        let service = limit(1, store.clone()).layer(scripted(script.clone()));
        let mut response = pin!(service.oneshot(request("ann")));
        assert!((&mut response).now_or_never().is_none(), "{script:?}");
        assert_eq!(store.released(), 1, "{script:?}");
        store.answer();
        let before = Instant::now();
        response.await.expect("it is infallible");
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert_eq!(store.released(), 1, "{script:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_waits_two_milliseconds_for_a_release_that_is_not_answered() {
    let service = limit(1, Remote::full()).layer(ok());
    let before = Instant::now();
    let response = service.oneshot(request("ann")).await;
    assert_eq!(before.elapsed(), LONGEST_WAIT);
    let Ok(response) = response;
    let body = response.into_body().collect().await;
    assert_eq!(body.expect("a body").to_bytes(), "ok");
}

#[test]
fn a_body_of_several_frames_is_neither_delayed_nor_released_early() {
    let long = [
        [Data("one"), Data("two")],
        [Data("one"), Trailers],
        [Data("one"), Fail],
    ];
    for steps in long {
        let store = Remote::full();
        let limit = limit(1, store.clone());
        let response = at_once(&limit, scripted(Script::stream(steps)));
        let mut body = response.expect("it waits for nothing").into_body();
        assert_eq!(store.released(), 0);
        let first = body.frame().now_or_never().flatten();
        let first = first.expect("it is there").expect("a frame");
        assert_eq!(first.into_data().ok(), Some("one".into()));
        assert_eq!(store.released(), 0);
        let second = body.frame().now_or_never().flatten();
        match steps[1] {
            Fail => assert!(second.expect("an error").is_err()),
            Trailers => assert!(second.expect("trailers").expect("no error").is_trailers()),
            _ => {
                let second = second.expect("a frame").expect("no error");
                assert_eq!(second.into_data().ok(), Some("two".into()));
                assert_eq!(store.released(), 0, "nothing has reported the end");
                assert!(body.frame().now_or_never().expect("it ends").is_none());
            }
        }
        assert_eq!(store.released(), 1);
    }
}

#[test]
fn a_body_without_a_frame_yet_is_not_waited_for() {
    let store = Remote::full();
    let response = at_once(&limit(1, store.clone()), stalled());
    assert_eq!(store.released(), 0);
    drop(response.expect("it waits for nothing"));
    assert_eq!(store.released(), 1);
}

#[tokio::test]
async fn a_body_that_was_pending_wakes_the_task_that_reads_it() {
    let (sender, frame) = oneshot::channel::<&'static str>();
    let frame =
        frame.map(|text| Ok::<_, Infallible>(Frame::data(text.expect("it is sent").into())));
    let body = StreamBody::new(stream::once(frame)).boxed_unsync();
    let body = std::sync::Mutex::new(Some(body));
    let service = limit(1, Remote::full()).layer(service_fn(|_: Request<String>| {
        let body: UnsyncBoxBody<Bytes, Infallible> =
            body.lock().expect("no panic").take().expect("one request");
        async { Ok::<_, Infallible>(Response::new(body)) }
    }));
    let Ok(response) = service.oneshot(request("ann")).await;
    let read = spawn(response.into_body().collect());
    yield_now().await;
    sender.send("late").expect("it is awaited");
    let read = read.await.expect("no panic").expect("a body");
    assert_eq!(read.to_bytes(), "late");
}

#[test]
fn the_body_of_a_key_with_room_is_not_polled_before_the_head() {
    let store = Remote::with_room();
    let script = Script::exact([Panic]);
    let response = at_once(&limit(1, store.clone()), scripted(script));
    assert!(response.is_some(), "it waits for nothing");
    assert_eq!(store.released(), 0);
}

#[test]
fn a_handler_that_keeps_its_permit_keeps_it_beyond_the_head() {
    let (store, held) = (Remote::full(), Held::default());
    let keep = held.clone();
    let service = service_fn(move |mut request: Request<String>| {
        *keep.lock().expect("no panic") = request.extensions_mut().remove::<Permit>();
        async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("ok"))) }
    });
    let response = at_once(&limit(1, store.clone()), service);
    let body = response.expect("it waits for nothing").into_body();
    body.collect()
        .now_or_never()
        .expect("it waits for nothing")
        .expect("a body");
    assert_eq!(store.released(), 0);
    drop(take(&held));
    assert_eq!(store.released(), 1);
}

#[tokio::test]
async fn a_future_that_is_dropped_while_its_release_is_not_answered_has_released() {
    let store = Remote::full();
    let response = at_once(&limit(1, store.clone()), ok());
    assert!(response.is_none(), "it waits");
    assert_eq!(store.released(), 1);
}

#[tokio::test(start_paused = true)]
async fn settings_that_watch_a_permit_do_not_prevent_its_early_release() {
    let settings: [fn(Limit) -> Limit; 3] = [
        |limit| limit.with_on_lost(OnLost::Abort),
        |limit| limit.with_max_stall(Duration::from_secs(30)),
        |limit| {
            limit
                .with_max_hold(Duration::from_secs(30))
                .with_on_lost(OnLost::Abort)
                .with_max_stall(Duration::from_secs(30))
        },
    ];
    for set in settings {
        let store = Remote::full();
        store.answer();
        let response = at_once(&set(limit(1, store.clone())), ok());
        let response = response.expect("it is answered");
        assert_eq!(store.released(), 1);
        let body = response.into_body().collect().await.expect("it is not cut");
        assert_eq!(body.to_bytes(), "ok");
    }
}

/// The stall begins when the layer itself polls the first frame, and ends when the server polls the body.
#[tokio::test(start_paused = true)]
async fn a_first_frame_that_the_server_does_not_take_is_a_stall() {
    let max_stall = Duration::from_secs(30);
    let store = Remote::full();
    let limit = limit(1, store.clone()).with_max_stall(max_stall);
    let script = Script::stream([Data("one"), Data("two")]);
    let response = at_once(&limit, scripted(script)).expect("it waits for nothing");
    for (time, released) in [(max_stall - MARGIN, 0), (MARGIN * 2, 1)] {
        advance(time).await;
        yield_now().await;
        assert_eq!(store.released(), released, "{time:?}");
    }
    drop(response);
}

#[test]
fn a_permit_that_ends_at_the_head_delays_nothing() {
    let store = Remote::full();
    let limit = limit(1, store.clone()).with_release(ReleaseAt::Head);
    assert!(at_once(&limit, ok()).is_some());
    assert_eq!(store.released(), 1);
}

#[test]
fn the_permit_of_a_tunnel_is_released_at_the_head_also_if_the_key_is_full() {
    let store = Remote::full();
    let switch = service_fn(|_: Request<String>| async {
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        Ok::<_, Infallible>(response)
    });
    assert!(at_once(&limit(1, store.clone()), switch).is_some());
    assert_eq!(store.released(), 1);
}
