//! The ways in which a body ends. Each releases the permit exactly once, and none changes a frame.
//!
//! Promises: P9.

use bytes::Bytes;
use futures_util::FutureExt;
use http::Response;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use std::{
    convert::Infallible,
    error::Error,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};
use testing::{
    http_requests::{limit, request},
    ledger::{Ledger, Page},
    script::{
        Script,
        Step::{self, Data, Fail, Trailers},
    },
    stubs::Remote,
};
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{MemorySemaphore, ResponseBody, Semaphore, hold};

/// One permit was granted and is held.
const HELD: Page = page(0);
/// One permit was granted and has been released.
const FREED: Page = page(1);

const fn page(returned: u32) -> Page {
    Page {
        granted: 1,
        returned,
        most: 1,
    }
}

/// Wraps `body` in a limited response of alice.
fn wrap<B>(body: B, semaphore: impl Semaphore) -> ResponseBody<B>
where
    B: Body<Data = Bytes> + Clone,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let answer = service_fn(move |_| ready(Ok::<_, Infallible>(Response::new(body.clone()))));
    let service = limit(1, semaphore).layer(answer);
    let response = service.oneshot(request::<String>("alice")).now_or_never();
    let Ok(response) = response.expect("it does not wait");
    response.into_body()
}

fn next<B: Body + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    body.frame().now_or_never().expect("a script never waits")
}

fn next_data<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Bytes {
    let frame = next(body).and_then(Result::ok);
    let data = frame.and_then(|frame| frame.into_data().ok());
    data.expect("a frame of data")
}

#[test]
fn the_body_of_a_refusal_is_one_frame_of_known_length() {
    let memory = MemorySemaphore::new();
    let mut body = wrap_refused(&memory);
    let length = body.size_hint().exact().unwrap();
    assert!(!body.is_end_stream());
    assert_eq!(next_data(&mut body).len() as u64, length);
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    assert!(next(&mut body).is_none());
}

fn wrap_refused(memory: &MemorySemaphore) -> ResponseBody<Script> {
    let _first = wrap(Script::stream([Data("one")]), memory.clone());
    wrap(Script::stream([Data("two")]), memory.clone())
}

/// A line of a transcript: what happened, the bounds of the size hint, and true if the body is known to be over.
type Line = (String, (u64, Option<u64>), bool);

/// Everything that a server can observe of a body, poll by poll.
fn transcript<B>(mut body: B) -> Vec<Line>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: ToString,
{
    let mut seen = vec![view("new".into(), &body)];
    while let Some(frame) = next(&mut body) {
        let frame = frame.map_err(|error| error.to_string());
        seen.push(view(format!("{frame:?}"), &body));
    }
    seen.push(view("end".into(), &body));
    seen
}

fn view<B: Body>(event: String, body: &B) -> Line {
    let size = body.size_hint();
    let size = (size.lower(), size.upper());
    (event, size, body.is_end_stream())
}

/// Every script of up to four data frames, with each ending, with and without a known length.
fn scripts() -> impl Iterator<Item = Script> {
    let endings = [None, Some(Trailers), Some(Fail)];
    let scripts = frames(4).into_iter().flat_map(move |frames| {
        endings.map(|ending| [frames.as_slice(), ending.as_slice()].concat())
    });
    scripts.flat_map(|steps| [Script::exact(steps.clone()), Script::stream(steps)])
}

/// Every sequence of at most `most` data frames.
fn frames(most: usize) -> Vec<Vec<Step>> {
    let mut found = vec![vec![]];
    let mut index = 0;
    while found[index].len() < most {
        let next = [Data(""), Data("one"), Data("three")];
        let longer = next.map(|frame| [&found[index][..], &[frame]].concat());
        found.extend(longer);
        index += 1;
    }
    found
}

#[test]
fn a_server_sees_the_same_body_with_and_without_the_limit() {
    for script in scripts() {
        let limited = wrap(script.clone(), MemorySemaphore::new());
        assert_eq!(transcript(limited), transcript(script));
    }
}

#[test]
fn a_server_sees_the_same_body_if_the_limit_has_polled_it_before() {
    // While this store's keys are full, the layer polls a body once before it returns the head.
    let store = Remote::full();
    store.answer();
    for script in scripts() {
        let limited = wrap(script.clone(), store.clone());
        assert_eq!(transcript(limited), transcript(script));
    }
}

/// An unlimited copy of the body runs alongside and shows when the limited one should be over.
#[test]
fn a_body_frees_its_permit_with_its_last_frame_and_not_before() {
    for script in scripts() {
        let (ledger, mut unlimited) = (Ledger::default(), script.clone());
        let mut limited = wrap(script.clone(), ledger.clone());
        let mut is_over = unlimited.is_end_stream();
        // Four frames, the ending and the end make six polls at most.
        for _ in 0..7 {
            let expected = if is_over { FREED } else { HELD };
            let left = &unlimited;
            assert_eq!(ledger.page("alice"), expected, "{script:?} before {left:?}");
            let _ = next(&mut limited);
            is_over |= match next(&mut unlimited) {
                Some(Ok(frame)) => frame.is_trailers() || unlimited.is_end_stream(),
                Some(Err(_)) | None => true,
            };
        }
        assert_eq!(ledger.page("alice"), FREED);
    }
}

#[test]
fn a_body_frees_its_permit_once_wherever_it_is_dropped() {
    for script in scripts() {
        for polls in 0..8 {
            let ledger = Ledger::default();
            let mut body = wrap(script.clone(), ledger.clone());
            for _ in 0..polls {
                let _ = next(&mut body);
            }
            drop(body);
            assert_eq!(ledger.page("alice"), FREED);
        }
    }
}

/// A guard that counts its drops.
struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A response's body that holds a guard, and a function that counts the guard's drops.
fn hold_guard(body: Script) -> (ResponseBody<Script>, impl Fn() -> usize) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let guard = Guard(Arc::clone(&dropped));
    let response = hold(Response::new(body), guard);
    (response.into_body(), move || dropped.load(SeqCst))
}

#[test]
fn any_guard_is_held_until_the_body_ends_fails_or_is_dropped() {
    for steps in [
        vec![Data("one"), Data("two")],
        vec![Data("one"), Trailers],
        vec![Data("one"), Fail],
    ] {
        let (mut body, dropped) = hold_guard(Script::stream(steps));
        assert_eq!(next_data(&mut body), "one");
        assert_eq!(dropped(), 0);
        while next(&mut body).is_some_and(|frame| frame.is_ok()) {}
        assert_eq!(dropped(), 1, "although the body still exists");
        drop(body);
        assert_eq!(dropped(), 1);
    }
    let (body, dropped) = hold_guard(Script::stream([Data("one")]));
    drop(body);
    assert_eq!(dropped(), 1);
    // `Debug` shows whether a guard is held.
    let ended = ResponseBody::holding(String::new(), Guard(Arc::default()));
    assert!(ended.is_end_stream() && !format!("{ended:?}").contains("true"));
}
