//! A connection that was supplied panics.

use futures_util::future::join_all;
use redis::{
    Cmd, Pipeline, RedisFuture, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use testing::{redis::RedisServer, resp::Raw, stores::connection, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore, redis::WhenUnavailable};

/// Well before a lease could end by itself.
const BOUND: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Panics {
    connection: MultiplexedConnection,
    /// Whether it panics at some commands, and at how many it has been.
    state: Arc<(AtomicBool, AtomicUsize)>,
    /// At one of so many.
    one_of: usize,
}

impl ConnectionLike for Panics {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let (panics, count) = &*self.state;
        let is_hit = panics.load(Relaxed) && count.fetch_add(1, Relaxed) % self.one_of == 0;
        assert!(!is_hit, "a panic of the connection, as the test wants it");
        self.connection.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        0
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supplied_connection_that_panics_leaves_no_permit_behind() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let (connection, state) = (connection(&server.url()).await, Arc::default());
    let panics = Panics {
        connection,
        state: Arc::clone(&state),
        one_of: 7,
    };
    let builder = RedisSemaphore::builder().lease(BOUND * 6);
    let store = builder
        .with_connection(panics)
        .expect("the settings are right");
    let claim = || Claim::new("a").with_limit(100);
    drop(store.acquire(claim()).await.expect("there is room"));
    state.0.store(true, Relaxed);
    for _ in 0..10 {
        let claims: Vec<_> = (0..40).map(|_| store.acquire(claim())).collect();
        drop(join_all(claims).await);
    }
    state.0.store(false, Relaxed);
    eventually("nothing is held", BOUND, async || {
        raw.zcard("semaphore:2:{concurrency:a}:held").await == 0
    })
    .await;
}

/// Claims that it carries itself, and the refreshes of the keeper, which nobody waits for.
#[tokio::test(flavor = "multi_thread")]
async fn a_supplied_connection_that_always_panics_is_an_outage_and_is_called_seldom() {
    let server = RedisServer::start();
    let (connection, state) = (connection(&server.url()).await, Arc::default());
    let panics = Panics {
        connection,
        state: Arc::clone(&state),
        one_of: 1,
    };
    let builder = RedisSemaphore::builder().when_unavailable(WhenUnavailable::Admit);
    let store = builder
        .with_connection(panics)
        .expect("the settings are right");
    let claim = || store.acquire(Claim::new("a").with_limit(100));
    let _held = claim().await.expect("there is room");
    state.0.store(true, Relaxed);
    eventually("claims are admitted", BOUND, async || {
        claim().await.is_ok_and(|permit| permit.is_degraded())
    })
    .await;
    let before = state.1.load(Relaxed);
    sleep(Duration::from_secs(2)).await;
    let calls = state.1.load(Relaxed) - before;
    // Thousands, when each panic made the next call.
    assert!(calls < 500, "{calls} calls");
}
