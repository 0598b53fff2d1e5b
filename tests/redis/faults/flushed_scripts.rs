//! The server forgets the scripts, again and again.

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
    resp::Raw,
    rig::{BOUND, Rig},
    wait::eventually,
};
use tokio::{task::JoinSet, time::sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::RedisSemaphore;

const LIMIT: u32 = 3;
const CLIENTS: usize = 12;
/// How often the scripts are flushed, and how many requests are served meanwhile, at least.
const FLUSHES: usize = 300;
const SERVED: usize = 200;
/// A busy machine is no failure of the store.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Default, Clone)]
struct Load {
    in_flight: InFlight,
    is_over: Arc<AtomicBool>,
}

/// Sends requests, of which some wait, until the scripts are not flushed any more. Returns how many
/// were refused.
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

/// Flushes the scripts as fast as the server can, until enough has happened.
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
async fn scripts_that_are_flushed_all_the_time_are_seen_by_no_client_and_grant_nothing_twice() {
    let mut rig = Rig::new(RedisSemaphore::builder().timeout(PATIENCE)).await;
    let other = RedisSemaphore::builder().timeout(PATIENCE);
    let other = other.connect(rig.server.url()).await.expect("it connects");
    let (mut clients, load) = (JoinSet::new(), Load::default());
    for number in 0..CLIENTS {
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
