//! Scripts that are flushed from the server all the time, and a script that is aborted midway.
//!
//! Promises: P1, P5.

use http::{Request, Response};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use testing::{
    http_requests::{limit, request},
    in_flight::InFlight,
    redis::RedisServer,
    resp::Raw,
    rig::{BOUND, Rig},
    wait::eventually,
};
use tokio::{task::JoinSet, time::sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const LIMIT: u32 = 3;

const CLIENTS: usize = 12;

/// The test ends after at least this number of flushes.
const FLUSHES: usize = 300;

/// The test ends after at least this number of served requests.
const SERVED: usize = 200;

/// A timeout that tolerates a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Default, Clone)]
struct Load {
    in_flight: InFlight,
    is_over: Arc<AtomicBool>,
}

/// Sends requests until the flushes stop. Clients with an odd number wait for their permits. Returns the number of
/// refusals.
async fn client(store: RedisSemaphore, number: usize, load: Load) -> usize {
    let wait = Duration::from_millis([0, 300][number % 2]);
    let handler = service_fn(|_: Request<String>| {
        let in_flight = load.in_flight.clone();
        async move {
            let _one = in_flight.begin();
            sleep(Duration::from_millis(3)).await;
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let mut service = limit(LIMIT, store).with_wait(wait).layer(handler);
    let mut refused = 0;
    while !load.is_over.load(SeqCst) {
        let ready = service.ready().await.expect("it is always ready");
        let answer = ready.call(request("a")).await.expect("infallible");
        match answer.status().as_u16() {
            200 => {}
            429 => refused += 1,
            status => panic!("{status}: {:?}", answer.extensions()),
        }
    }
    refused
}

/// Flushes the scripts as fast as the server can, until both counts are reached.
async fn flush(port: u16, load: &Load) {
    let (mut raw, start) = (Raw::connect(port).await, Instant::now());
    let mut flushes = 0;
    while flushes < FLUSHES || load.in_flight.begun() < SERVED {
        assert_eq!(raw.cmd(&["SCRIPT", "FLUSH"]).await.text(), "OK");
        flushes += 1;
        assert!(start.elapsed() < BOUND, "{:?} are served", load.in_flight);
    }
    load.is_over.store(true, SeqCst);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_notices_that_scripts_are_flushed_and_nothing_is_granted_twice() {
    let mut rig = Rig::new(RedisSemaphore::builder().timeout(PATIENCE)).await;
    let other = RedisSemaphore::builder().timeout(PATIENCE);
    let other = other.connect(rig.server.url()).await.expect("it connects");
    let (mut clients, load) = (JoinSet::new(), Load::default());
    for number in 0..CLIENTS {
        // Each store gets clients that wait and clients that do not.
        let store = [&rig.store, &other][number / 2 % 2].clone();
        clients.spawn(client(store, number, load.clone()));
    }
    flush(rig.server.port(), &load).await;
    let refused: usize = clients.join_all().await.into_iter().sum();
    assert!(refused > 0, "there was room for all");
    assert_eq!(load.in_flight.most(), LIMIT as usize);
    eventually("nothing is held", PATIENCE, async || {
        rig.raw.keys("*:a}:held").await.is_empty()
    })
    .await;
    rig.nothing_is_left(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_although_a_script_was_aborted_right_after_it_had_used_one() {
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url()).await;
    let store = store.expect("it connects");
    let claim = Claim::new("a").with_limit(1);
    let first = store.acquire(claim.clone()).await.expect("there is room");
    assert!(first.release().await);
    let mut raw = Raw::connect(server.port()).await;
    // Delete the token, as eight leases without use would.
    raw.cmd(&["DEL", "semaphore:2:{concurrency:a}:token"]).await;
    // Without the right to ZADD, the script increments the new token and is aborted.
    for (right, works) in [("-zadd", false), ("+zadd", true)] {
        assert_eq!(
            raw.cmd(&["ACL", "SETUSER", "default", right]).await.text(),
            "OK"
        );
        let answer = store.acquire(claim.clone()).await;
        assert_eq!(answer.is_ok(), works, "{answer:?}");
        assert!(answer.is_err() || answer.is_ok_and(|permit| permit.token() > first.token()));
    }
}
