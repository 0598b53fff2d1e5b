//! A user's connector or credentials function that panics, fails or never returns.
//!
//! Promises: P18, P20.

use futures_util::future::join_all;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisResult,
    aio::MultiplexedConnection,
};
use std::{
    convert::Infallible,
    future::pending,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use testing::{causes::causes, redis::RedisServer, resp::Raw, stores::connected, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{
    Claim, RedisSemaphore, Semaphore,
    redis::{Builder, Credentials, Kind, WhenUnavailable},
};

/// Shorter than the lease of the first test, so no lease frees its units in time.
const BOUND: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Panics,
    /// Panics in the call itself, before it returns a future.
    PanicsAtOnce,
    Fails,
    NeverReturns,
}

const FAULTS: [Fault; 4] = [
    Fault::Panics,
    Fault::PanicsAtOnce,
    Fault::Fails,
    Fault::NeverReturns,
];

/// A user's function that is at fault for a while.
#[derive(Clone)]
struct Function {
    fault: Fault,
    /// Every call with a multiple of this number has the fault.
    every: usize,
    is_at_fault: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
}

impl Function {
    fn new(fault: Fault, every: usize) -> Self {
        Self {
            fault,
            every,
            is_at_fault: Arc::default(),
            calls: Arc::default(),
        }
    }

    /// Returns the fault of this call, if it has one.
    fn call(&self) -> Option<Fault> {
        let call = self.calls.fetch_add(1, Relaxed);
        let has_fault = self.is_at_fault.load(Relaxed) && call.is_multiple_of(self.every);
        let fault = has_fault.then_some(self.fault);
        assert!(fault != Some(Fault::PanicsAtOnce), "as the test wants it");
        fault
    }

    fn connector(&self, builder: Builder) -> Builder {
        let own = self.clone();
        builder.connector(move |info, config| {
            let fault = own.call();
            async move { connect(fault, info, config).await }
        })
    }

    fn credentials(&self, builder: Builder) -> Builder {
        let own = self.clone();
        builder.credentials(move || {
            let fault = own.call();
            async move {
                match fault {
                    Some(Fault::Fails) => Err("no token"),
                    Some(Fault::NeverReturns) => pending().await,
                    Some(_) => panic!("as the test wants it"),
                    None => Ok(Credentials::new("default", "secret")),
                }
            }
        })
    }
}

async fn connect(
    fault: Option<Fault>,
    info: ConnectionInfo,
    config: AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    match fault {
        Some(Fault::Fails) => return Err((ErrorKind::Io, "no tunnel").into()),
        Some(Fault::NeverReturns) => return pending().await,
        Some(_) => panic!("as the test wants it"),
        None => {}
    }
    let client = Client::open(info)?;
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Ends all connections except this one.
async fn end_connections(raw: &mut Raw) {
    raw.cmd(&["CLIENT", "KILL", "SKIPME", "yes"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connector_that_panics_leaves_no_permit_behind() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let function = Function::new(Fault::Panics, 3);
    let builder = function.connector(RedisSemaphore::builder().lease(BOUND * 6));
    let store = connected(async || builder.clone().connect(server.url()).await).await;
    let claim = || Claim::new("a").with_limit(100);
    drop(store.acquire(claim()).await.expect("there is room"));
    let before = function.calls.load(Relaxed);
    function.is_at_fault.store(true, Relaxed);
    for _ in 0..10 {
        let claims: Vec<_> = (0..40).map(|_| store.acquire(claim())).collect();
        let (_, answers) = tokio::join!(end_connections(&mut raw), join_all(claims));
        drop(answers);
    }
    // One in three calls panics, so at least two have.
    let calls = function.calls.load(Relaxed) - before;
    assert!(calls >= 6, "{calls} calls");
    function.is_at_fault.store(false, Relaxed);
    eventually("nothing is held", BOUND, async || {
        raw.zcard("semaphore:2:{concurrency:a}:held").await == 0
    })
    .await;
    eventually("claims are granted", BOUND, async || {
        store.acquire(claim()).await.is_ok()
    })
    .await;
}

/// Asserts that the fault causes an outage, and that the store recovers: claims, which use the connection of the
/// caller's runtime, and the keeper's refreshes, which no task awaits.
async fn assert_only_an_outage(function: Function, builder: Builder, server: &RedisServer) {
    let fault = function.fault;
    let mut raw = Raw::connect(server.port()).await;
    let builder = builder.when_unavailable(WhenUnavailable::Admit);
    let store = connected(async || builder.clone().connect(server.url()).await).await;
    let claim = || store.acquire(Claim::new("a").with_limit(100));
    let held = claim().await.expect("there is room");
    function.is_at_fault.store(true, Relaxed);
    end_connections(&mut raw).await;
    eventually("claims are admitted", BOUND, async || {
        claim().await.is_ok_and(|permit| permit.is_degraded())
    })
    .await;
    let before = function.calls.load(Relaxed);
    sleep(Duration::from_secs(2)).await;
    let calls = function.calls.load(Relaxed) - before;
    // If each failure caused the next call at once, it would be thousands.
    assert!(calls < 100, "{fault:?}: {calls} calls");
    function.is_at_fault.store(false, Relaxed);
    eventually("the server decides again", BOUND, async || {
        let permit = claim().await;
        permit.is_ok_and(|permit| !permit.is_degraded()) && !held.is_degraded()
    })
    .await;
    assert!(held.release().await, "{fault:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_connector_is_an_outage_and_is_called_rarely() {
    let one = async |fault| {
        let server = RedisServer::start();
        let function = Function::new(fault, 1);
        let builder = function.connector(RedisSemaphore::builder());
        assert_only_an_outage(function, builder, &server).await;
    };
    join_all(FAULTS.map(one)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_credentials_function_is_an_outage_and_is_called_rarely() {
    let one = async |fault| {
        let server = RedisServer::start();
        // The server accepts any password.
        let mut raw = Raw::connect(server.port()).await;
        raw.cmd(&["ACL", "SETUSER", "default", "on", "nopass"])
            .await;
        let function = Function::new(fault, 1);
        let builder = function.credentials(RedisSemaphore::builder());
        assert_only_an_outage(function, builder, &server).await;
    };
    join_all(FAULTS.map(one)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_with_a_faulty_function_fails_in_time_with_its_cause() {
    let server = RedisServer::start();
    for fault in FAULTS {
        for name in ["connector", "credentials"] {
            let function = Function::new(fault, 1);
            function.is_at_fault.store(true, Relaxed);
            let builder = match name {
                "connector" => function.connector(RedisSemaphore::builder()),
                _ => function.credentials(RedisSemaphore::builder()),
            };
            let connect = tokio::time::timeout(BOUND, builder.connect(server.url()));
            let outcome = connect.await.expect("it ends");
            let error = outcome.expect_err("it fails");
            assert_eq!(
                error.kind(),
                Kind::Unavailable,
                "{name} {fault:?}: {error:?}"
            );
            let text = causes(&error);
            let is_cause = match (name, fault) {
                // The error of a connector is passed on as it is.
                ("connector", Fault::Fails) => text.contains("no tunnel"),
                // The error is that of a timeout, and need not name the function.
                (_, Fault::NeverReturns) => {
                    text.contains("timed out") || text.contains("no answer from Redis within")
                }
                (_, Fault::Fails) => text.contains(name) && text.contains("no token"),
                _ => text.contains(name) && text.contains("panicked"),
            };
            assert!(is_cause, "{name} {fault:?}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connector_that_times_out_at_once_is_called_rarely_while_connecting() {
    let server = RedisServer::start();
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let builder = RedisSemaphore::builder().connector(move |_, _| {
        seen.fetch_add(1, Relaxed);
        async { Err(io::Error::from(io::ErrorKind::TimedOut).into()) }
    });
    let connect = tokio::time::timeout(BOUND, builder.connect(server.url()));
    let error = connect.await.expect("it ends").expect_err("it fails");
    assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
    let calls = calls.load(Relaxed);
    // It is called again, but not in a busy loop.
    assert!((2..=100).contains(&calls), "{calls} calls");
}

/// Credentials functions may have any error type, including one without values.
#[tokio::test]
async fn credentials_may_come_from_a_function_that_cannot_fail() {
    let server = RedisServer::start();
    let builder = RedisSemaphore::builder()
        .credentials(async || Ok::<_, Infallible>(Credentials::new("default", "any")));
    connected(async || builder.clone().connect(server.url()).await).await;
}
