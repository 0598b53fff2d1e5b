//! The server forgets the scripts, again and again.

use crate::in_flight::InFlight;
use http::{Request, Response};
use std::{
    convert::Infallible,
    time::{Duration, Instant},
};
use testing::{
    http_requests::{limit, request},
    resp::Raw,
    rig::Rig,
    wait::eventually,
};
use tokio::{task::JoinSet, time::sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::RedisSemaphore;

const LIMIT: u32 = 3;
const CLIENTS: usize = 12;
const TIME: Duration = Duration::from_secs(2);
/// A busy machine is no failure of the store.
const PATIENCE: Duration = Duration::from_secs(3);

/// Sends requests, of which some wait. Returns the answers: of 200, of 429.
async fn client(store: RedisSemaphore, number: usize, in_flight: InFlight) -> [usize; 2] {
    let wait = Duration::from_millis([0, 300][number % 2]);
    let handler = service_fn(|_: Request<String>| {
        let in_flight = in_flight.clone();
        async move {
            let _one = in_flight.begin();
            sleep(Duration::from_millis(3)).await;
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let mut service = limit(LIMIT, store).with_wait(wait).layer(handler);
    let (mut answers, start) = ([0, 0], Instant::now());
    while start.elapsed() < TIME {
        let ready = service.ready().await.expect("it is always ready");
        let answer = ready.call(request("a")).await.expect("infallible");
        match answer.status().as_u16() {
            200 => answers[0] += 1,
            429 => answers[1] += 1,
            status => panic!("{status}: {:?}", answer.extensions()),
        }
    }
    answers
}

/// Flushes the scripts as fast as the server can. Returns how often.
async fn flush(port: u16) -> usize {
    let (mut raw, start) = (Raw::connect(port).await, Instant::now());
    for flushes in 0.. {
        if start.elapsed() > TIME {
            return flushes;
        }
        assert_eq!(raw.cmd(&["SCRIPT", "FLUSH"]).await.text(), "OK");
    }
    unreachable!()
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_are_flushed_all_the_time_are_seen_by_no_client_and_grant_nothing_twice() {
    let mut rig = Rig::new(RedisSemaphore::builder().timeout(PATIENCE)).await;
    let other = RedisSemaphore::builder().timeout(PATIENCE);
    let other = other.connect(rig.server.url()).await.expect("it connects");
    let (mut clients, in_flight) = (JoinSet::new(), InFlight::default());
    for number in 0..CLIENTS {
        let store = [&rig.store, &other][number / 2 % 2].clone();
        clients.spawn(client(store, number, in_flight.clone()));
    }
    let flushes = flush(rig.server.port()).await;
    let answers = clients.join_all().await;
    let [served, refused] = answers.iter().fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
    println!("{flushes} flushes, {served} served, {refused} refused");
    assert!(flushes > 200 && served > 100 && refused > 10, "too few");
    assert_eq!(in_flight.most(), LIMIT as usize);
    eventually("nothing is held", PATIENCE, async || {
        rig.raw.keys("*:a}:held").await.is_empty()
    })
    .await;
    rig.nothing_is_left(PATIENCE).await;
}
