//! `LimitLayer`: services of any request type, and refusals as errors.
//!
//! Promises: P1, P9, P21.

use bytes::Bytes;
use futures_util::{FutureExt, future::pending};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::{
    convert::Infallible,
    error::Error,
    future::{Future, Ready, ready},
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use testing::{ledger::Ledger, wait::eventually};
use tokio::{sync::Notify, task::yield_now, time::timeout};
use tower::{
    BoxError, Layer, Service, ServiceBuilder, ServiceExt, retry::Policy, service_fn, util::Either,
};
use tower_semaphore::{
    AcquireError, Claim, KeyError, LimitLayer, MemorySemaphore, OnLost, PermitLost, Semaphore,
    limit::UntilBodyEnd,
};

const BOUND: Duration = Duration::from_secs(10);

/// A layer for requests that are strings: the names of their accounts.
fn by_account(
    limit: u32,
    semaphore: impl Semaphore,
) -> LimitLayer<impl Fn(&String) -> String + Clone> {
    LimitLayer::new(limit, |account: &String| account.clone(), semaphore)
}

async fn echo(request: String) -> Result<String, io::Error> {
    Ok(request)
}

fn is_full(error: &BoxError) -> bool {
    matches!(
        AcquireError::find_in(&**error),
        Some(AcquireError::Full {
            limit: 1,
            held: 1,
            ..
        })
    )
}

/// The sources of `io::Error` and of shared errors skip the wrapped error.
#[test]
fn an_error_is_found_in_errors_of_io_and_in_shared_errors() {
    let refused = || AcquireError::Overloaded;
    let shared: Arc<dyn Error + Send + Sync> = Arc::new(io::Error::other(refused()));
    let wrapped: [BoxError; 3] = [
        io::Error::other(io::Error::other(refused())).into(),
        io::Error::other(Arc::clone(&shared)).into(),
        shared.into(),
    ];
    for error in wrapped {
        let found = AcquireError::find_in(&*error);
        assert!(matches!(found, Some(AcquireError::Overloaded)), "{error:?}");
    }
}

#[tokio::test]
async fn a_service_of_strings_holds_a_permit_until_its_response_is_dropped() {
    let ledger = Ledger::default();
    let mut service = by_account(1, ledger.clone()).layer(service_fn(echo));
    let held = service.call("ann".into()).await.expect("there is room");
    assert_eq!(*held, "ann");
    assert_eq!(held.permit().map(tower_semaphore::Permit::limit), Some(1));
    let error = service.call("ann".into()).await.expect_err("it is full");
    assert!(is_full(&error), "{error:?}");
    assert!(service.call("bob".into()).await.is_ok());
    assert_eq!(ledger.page("ann").returned, 0);
    assert_eq!(held.into_inner(), "ann");
    assert_eq!(ledger.page("ann").returned, 1);
    assert!(service.call("ann".into()).await.is_ok());
}

#[tokio::test]
async fn an_http_response_holds_its_permit_until_its_body_ends() {
    let ledger = Ledger::default();
    let all = |_: &Request<()>| "all";
    let layer = LimitLayer::new(1, all, ledger.clone()).with_http_bodies();
    let answer = |_| ready(Ok::<_, Infallible>(Response::new(Full::from("items"))));
    let mut service = layer.layer(service_fn(answer));
    let response: Response<_> = service.call(Request::new(())).await.expect("there is room");
    let error = service
        .call(Request::new(()))
        .await
        .expect_err("it is full");
    assert!(is_full(&error));
    let read: Bytes = response
        .into_body()
        .collect()
        .await
        .expect("no error")
        .to_bytes();
    assert_eq!(read, "items");
    assert_eq!(ledger.page("all").returned, 1);
    assert!(service.call(Request::new(())).await.is_ok());
}

#[tokio::test]
async fn an_error_of_the_inner_service_passes_and_frees_the_permit() {
    let ledger = Ledger::default();
    let fails = service_fn(async |_: String| Err::<String, _>(io::Error::other("broken")));
    let mut service = by_account(1, ledger.clone()).layer(fails);
    let error = service.call("ann".into()).await.expect_err("it is broken");
    assert!(error.is::<io::Error>());
    assert_eq!(ledger.page("ann").returned, 1);
}

#[tokio::test]
async fn an_exempt_request_holds_nothing_and_a_wrong_key_is_an_error() {
    let ledger = Ledger::default();
    let extractor = |request: &String| match request.as_str() {
        "exempt" => Ok(None),
        "wrong" => Err(KeyError::missing("the account")),
        key => Ok(Some(key.to_owned())),
    };
    let mut service = LimitLayer::new(1, extractor, ledger.clone()).layer(service_fn(echo));
    let exempt = service.call("exempt".into()).await.expect("it is exempt");
    assert!(exempt.permit().is_none());
    let wrong = service.call("wrong".into()).await.expect_err("no account");
    assert!(matches!(
        wrong.downcast_ref(),
        Some(KeyError::Missing { .. })
    ));
    let empty = service.call(String::new()).await.expect_err("no key");
    assert!(matches!(empty.downcast_ref(), Some(KeyError::Empty)));
    assert_eq!(ledger.page("exempt").granted, 0);
}

#[tokio::test]
async fn a_request_waits_and_a_dropped_one_leaves_nothing_behind() {
    let store = MemorySemaphore::new();
    let layer = by_account(1, store.clone()).with_wait(BOUND);
    let mut service = layer.layer(service_fn(echo));
    let held = service.call("ann".into()).await.expect("there is room");
    let mut cancelled = Box::pin(service.call("ann".into()));
    assert!(cancelled.as_mut().now_or_never().is_none());
    let mut waiting = Box::pin(service.call("ann".into()));
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(cancelled);
    drop(held);
    let granted = timeout(BOUND, waiting).await.expect("it is granted");
    assert!(granted.is_ok());
}

/// A service whose calls never end. Each call holds a clone of `guard`.
fn hanging(
    guard: &Arc<()>,
) -> impl Service<String, Response = String, Error = io::Error, Future: Send> + Clone {
    let guard = Arc::clone(guard);
    service_fn(move |_: String| {
        let guard = Arc::clone(&guard);
        async move {
            pending::<()>().await;
            drop(guard);
            Ok(String::new())
        }
    })
}

#[tokio::test]
async fn under_abort_a_lost_permit_ends_the_call_with_its_error() {
    let guard = Arc::new(());
    let layer = by_account(1, MemorySemaphore::new()).with_max_hold(Duration::from_millis(20));
    let layer = layer.with_on_lost(OnLost::Abort);
    let call = layer.layer(hanging(&guard)).oneshot("ann".into());
    let answer = timeout(BOUND, call).await.expect("it ends");
    assert!(answer.expect_err("it is lost").is::<PermitLost>());
    assert_eq!(Arc::strong_count(&guard), 1, "the call is dropped");
}

#[tokio::test]
async fn under_finish_a_call_outlives_its_permit() {
    let (guard, store) = (Arc::new(()), MemorySemaphore::new());
    let layer = by_account(1, store.clone()).with_max_hold(Duration::from_millis(20));
    let mut call = Box::pin(layer.layer(hanging(&guard)).oneshot("ann".into()));
    assert!(call.as_mut().now_or_never().is_none());
    let free = async || store.acquire(Claim::new("ann").with_limit(1)).await.is_ok();
    eventually("its permit has ended", BOUND, free).await;
    assert!(call.as_mut().now_or_never().is_none());
}

/// A limit in shadow counts the requests that fit, and refuses none.
#[tokio::test]
async fn in_shadow_every_request_is_admitted() {
    let layer = by_account(1, MemorySemaphore::new()).with_shadow(true);
    let mut service = layer.layer(service_fn(echo));
    let first = service.call("ann".into()).await.expect("admitted");
    let second = service.call("ann".into()).await.expect("admitted");
    let is_shadow = |held: &tower_semaphore::limit::Held<String>| {
        held.permit()
            .is_some_and(tower_semaphore::Permit::is_shadow)
    };
    let wrong = service.call(String::new()).await.expect("admitted");
    assert!(is_shadow(&first) && is_shadow(&second) && is_shadow(&wrong));
}

#[tokio::test]
async fn behind_a_buffer_and_load_shed_a_refusal_is_in_the_chain() {
    let mut stack = ServiceBuilder::new()
        .load_shed()
        .buffer(8)
        .layer(by_account(1, MemorySemaphore::new()))
        .service(service_fn(echo));
    let held = stack.ready().await.expect("ready").call("ann".into()).await;
    let held = held.expect("there is room");
    let refused = stack.ready().await.expect("ready").call("ann".into()).await;
    let error = refused.expect_err("it is full");
    assert!(is_full(&error), "{error:?}");
    drop(held);
}

/// Retries a refused request once the test has notified `free`.
#[derive(Clone)]
struct WhenFree {
    free: Arc<Notify>,
    retries: Arc<AtomicUsize>,
}

impl<T> Policy<String, T, BoxError> for WhenFree {
    type Future = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

    fn retry(&mut self, _: &mut String, answer: &mut Result<T, BoxError>) -> Option<Self::Future> {
        let is_refused = answer.as_ref().is_err_and(is_full);
        is_refused.then(|| {
            self.retries.fetch_add(1, SeqCst);
            let free = Arc::clone(&self.free);
            Box::pin(async move { free.notified().await }) as _
        })
    }

    fn clone_request(&mut self, request: &String) -> Option<String> {
        Some(request.clone())
    }
}

#[tokio::test]
async fn a_retry_layer_tries_a_refused_request_again() {
    let policy = WhenFree {
        free: Arc::new(Notify::new()),
        retries: Arc::default(),
    };
    let limit = by_account(1, MemorySemaphore::new());
    let mut service = ServiceBuilder::new()
        .retry(policy.clone())
        .layer(limit)
        .service(service_fn(echo));
    let held = service.call("ann".into()).await.expect("there is room");
    let waiting = tokio::spawn(service.call("ann".into()));
    while policy.retries.load(SeqCst) == 0 {
        yield_now().await;
    }
    drop(held);
    policy.free.notify_one();
    let answer = timeout(BOUND, waiting).await.expect("it is tried again");
    assert_eq!(*answer.expect("no panic").expect("there is room"), "ann");
    assert_eq!(policy.retries.load(SeqCst), 1);
}

#[tokio::test]
async fn two_limits_are_alternatives_of_an_either() {
    let store = MemorySemaphore::new();
    let service = |is_narrow: bool| {
        let inner = service_fn(echo);
        match is_narrow {
            true => Either::Left(by_account(1, store.clone()).layer(inner)),
            false => Either::Right(by_account(2, store.clone()).layer(inner)),
        }
    };
    let held = service(true)
        .oneshot("ann".into())
        .await
        .expect("there is room");
    assert!(service(true).oneshot("ann".into()).await.is_err());
    assert!(service(false).oneshot("ann".into()).await.is_ok());
    drop(held);
}

#[tokio::test]
async fn a_limited_service_can_be_cloned_boxed_and_sent() {
    fn assert_send_and_sync<T: Send + Sync>(_: &T) {}
    let layer: LimitLayer<_, UntilBodyEnd> = LimitLayer::new(
        1,
        |request: &Request<String>| request.uri().path().to_owned(),
        MemorySemaphore::new(),
    )
    .with_http_bodies();
    let inner = service_fn(
        |_: Request<String>| -> Ready<Result<Response<String>, Infallible>> {
            ready(Ok(Response::new(String::new())))
        },
    );
    let service = layer.clone().layer(inner);
    assert_send_and_sync(&(&layer, &service));
    let boxed = service.boxed_clone();
    assert!(boxed.oneshot(Request::new(String::new())).await.is_ok());
}
