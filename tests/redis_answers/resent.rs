//! Acquires that are sent again after a cut, when some of their claims were dropped.

use futures_util::future::join_all;
use redis::{
    Cmd, Pipeline, RedisFuture, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use std::{io, time::Duration};
use testing::rig::{BOUND, Rig, until_at_least, until_held, warm};
use testing::{machine::alone, proxy::End, redis::RedisServer, resp::Raw, wait::eventually};
use tokio::{sync::watch, task::JoinHandle};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(3);
/// Much less than a lease.
const SOON: Duration = Duration::from_secs(3);
const CLAIMS: u64 = 100;
/// Each way.
const DELAY: Duration = Duration::from_millis(10);
const ROUNDS: u32 = 50;
/// What a round leaves stays for a lease, so that a look after several is enough.
const ROUNDS_PER_LOOK: u32 = 10;

/// What a [`Cuttable`] connection does with the calls that it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The calls run, and their replies wait for the cut.
    Holds,
    /// Calls from now on are answered; the replies held back still wait.
    Answers,
    /// The replies held back are lost: their calls end in a reset.
    Cut,
}

/// A connection whose calls run and then end in a reset, at a moment that the test chooses.
#[derive(Clone)]
struct Cuttable {
    inner: MultiplexedConnection,
    state: watch::Receiver<State>,
}

impl ConnectionLike for Cuttable {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let held_back = *self.state.borrow() == State::Holds;
            let answer = self.inner.req_packed_command(command).await;
            if held_back {
                let cut = self.state.wait_for(|state| *state == State::Cut).await;
                drop(cut.expect("the test has the sender"));
                return Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
            }
            answer
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.inner.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}

async fn cuttable(server: &RedisServer) -> (RedisSemaphore, watch::Sender<State>) {
    let client = redis::Client::open(server.url()).expect("the address is valid");
    let inner = client.get_multiplexed_async_connection().await;
    let (sender, state) = watch::channel(State::Answers);
    let connection = Cuttable {
        inner: inner.expect("it connects"),
        state,
    };
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(TIMEOUT);
    let store = builder.build_on(connection);
    let store = store.expect("the settings are valid");
    warm(&store).await;
    (store, sender)
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_claims_are_not_sent_again_after_a_cut() {
    let server = RedisServer::start();
    let (store, state) = cuttable(&server).await;
    let mut raw = Raw::connect(server.port()).await;
    state.send_replace(State::Holds);
    let claims = (0..CLAIMS).map(|_| store.acquire(Claim::new("a").with_limit(1_000)));
    let claims = tokio::spawn(join_all(claims));
    // Without answers no more are sent than may be in flight.
    until_at_least(&mut raw, 10).await;

    state.send_replace(State::Answers);
    claims.abort();
    until_held(&mut raw, 0).await;

    state.send_replace(State::Cut);
    // Time for the resent acquires to arrive, then for their releases.
    tokio::time::sleep(Duration::from_secs(1)).await;
    eventually("nothing is held", SOON, async || {
        raw.keys("*:held").await.is_empty()
    })
    .await;
}

/// Claims whose acquires run and whose replies are lost, and which are dropped while the store
/// reconnects. Long names make the acquires take long to write, so that a release may pass them.
async fn hang_up_around_a_reset(rig: &Rig, after: Duration) {
    let claims = (0..100_u64).map(|number| {
        let acquire = rig
            .store
            .acquire(Claim::new(format!("{number:060}")).with_limit(1_000));
        tokio::spawn(acquire)
    });
    let claims: Vec<_> = claims.collect();
    tokio::time::sleep(DELAY * 3 / 2).await;
    rig.proxy.kill(End::Reset);
    tokio::time::sleep(after).await;
    claims.iter().rev().for_each(JoinHandle::abort);
    join_all(claims).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn clients_that_hang_up_around_a_reset_leave_nothing_held() {
    let _alone = alone().await;
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(TIMEOUT);
    let mut rig = Rig::new(builder).await;
    for round in 0..ROUNDS {
        rig.proxy.delay(DELAY, DELAY);
        hang_up_around_a_reset(&rig, Duration::from_micros(100) * (round % 4)).await;
        rig.proxy.delay(Duration::ZERO, Duration::ZERO);
        eventually("it has reconnected", BOUND, async || {
            let probe = rig.store.acquire(Claim::new("probe").with_limit(1_000));
            probe.await.is_ok()
        })
        .await;
        if round % ROUNDS_PER_LOOK == ROUNDS_PER_LOOK - 1 {
            // Time for the resent acquires to arrive.
            tokio::time::sleep(Duration::from_millis(200)).await;
            rig.nothing_is_left(SOON).await;
        }
    }
}
