//! While Tokio's time is paused, timeouts end at once. The errors explain that.
//!
//! Promises: P18.

use std::{error::Error, net::TcpListener, time::Duration};
use testing::redis::{Cluster, RedisServer, Sentinels};
use tokio::time::{pause, resume};
use tower_semaphore::{
    AcquireError, Claim, RedisSemaphore, Semaphore,
    redis::{self, ConnectError, Kind, WhenUnavailable},
};

fn claim() -> Claim {
    Claim::new("a").with_limit(1_000)
}

fn assert_explains(error: &dyn Error) {
    let text = error.to_string();
    for word in ["paused", "tokio::time::pause", "start_paused", "real time"] {
        assert!(text.contains(word), "{text}");
    }
}

fn assert_paused(outcome: Result<RedisSemaphore, ConnectError>) {
    let error = outcome.expect_err("the time is paused");
    assert_eq!(error.kind(), Kind::Misconfigured, "{error:?}");
    assert_explains(&error);
}

/// The server never answers, because an answer could arrive before paused time has jumped to the timeout.
#[tokio::test(start_paused = true)]
async fn connecting_in_paused_time_fails_with_the_reason() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = silent.local_addr().expect("it has one");
    let url = format!("redis://{address}/");
    assert_paused(RedisSemaphore::connect(&*url).await);
    assert_paused(RedisSemaphore::connect_cluster([&*url]).await);
    let sentinels = RedisSemaphore::connect_sentinel([&*url], Sentinels::NAME);
    assert_paused(sentinels.await);
}

/// Asserts that failed claims name the cause, and that at least one of 50 or more fails. Some may be granted, because
/// their answer arrives before time jumps. Every second claim may wait. Once time goes on, claims are granted again.
async fn assert_claims_explain(store: &RedisSemaphore) {
    pause();
    let mut has_failed = false;
    for at in 0..5_000 {
        if at >= 50 && has_failed {
            break;
        }
        let wait = Duration::from_secs(at % 2);
        let Err(error) = store.acquire(claim().with_wait(wait)).await else {
            continue;
        };
        assert!(matches!(error, AcquireError::Store { .. }), "{error:?}");
        let cause = error.source().and_then(|cause| cause.downcast_ref());
        let cause: &redis::Error = cause.expect("it is an error of the store");
        assert_eq!(cause.kind(), Kind::Misconfigured, "{cause:?}");
        assert_explains(cause);
        has_failed = true;
    }
    assert!(has_failed);
    let checked = store.check().await;
    if let Err(error) = checked {
        assert_explains(&error);
    }
    resume();
    let permit = store.acquire(claim()).await;
    assert!(!permit.expect("time goes on").is_degraded());
}

#[tokio::test]
async fn claims_in_paused_time_fail_with_the_reason_under_each_policy() {
    let server = RedisServer::start();
    for policy in [WhenUnavailable::Refuse, WhenUnavailable::Admit] {
        let builder = RedisSemaphore::builder().when_unavailable(policy);
        let store = builder.connect(server.url()).await;
        assert_claims_explain(&store.expect("it connects")).await;
    }
}

#[tokio::test]
async fn claims_to_a_cluster_in_paused_time_fail_with_the_reason() {
    let cluster = Cluster::of_primaries(3).await;
    let store = RedisSemaphore::builder()
        .connect_cluster(cluster.urls())
        .await;
    assert_claims_explain(&store.expect("it connects")).await;
}
