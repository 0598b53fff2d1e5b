//! A lease of an hour: operations with a bound of their own do not wait for a fraction of it.

use super::common::{BOUND, HELD, SOON, builder, calls_for, ended, live, permit};
use std::time::{Duration, Instant};
use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};

const LEASE: Duration = Duration::from_secs(60 * 60);

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_at_its_bound_when_the_server_does_not_answer() {
    let server = RedisServer::start();
    // The release has failed once when the bound comes.
    let store = builder(LEASE).timeout(Duration::from_millis(250));
    let store = store.connect(server.url()).await.expect("it connects");
    let permit = permit(&store, 1).await;
    server.stop();
    let start = Instant::now();
    let unreleased = ended("the shutdown", store.shutdown(Duration::from_secs(1))).await;
    let took = start.elapsed();
    server.cont();
    assert!(took < SOON, "a bound of one second took {took:?}");
    assert_eq!(unreleased.len(), 1);
    assert_eq!(unreleased[0].token, permit.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_connection_was_cut_is_sent_again_within_seconds() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    // No timeout of the store reveals that the release is lost.
    let store = builder(LEASE).timeout(Duration::from_secs(30));
    let store = store.connect(proxy.url()).await.expect("it connects");
    let permit = permit(&store, 1).await;
    let mut raw = Raw::connect(server.port()).await;
    proxy.clear_log();
    proxy.delay(BOUND, Duration::ZERO);
    drop(permit);
    eventually("the release is on its way", BOUND, async || {
        calls_for(&proxy, HELD) > 0
    })
    .await;
    proxy.forward();
    proxy.kill(End::Reset);
    assert_eq!(live(&mut raw).await, 1, "the cut was too late");
    eventually("it is free", BOUND, async || live(&mut raw).await == 0).await;
}
