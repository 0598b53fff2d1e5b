//! A connection that breaks right after a waiter was granted.

use crate::common::{BOUND, builder, calls_for, ended, settled};
use std::time::Duration;
use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tokio::time::timeout;
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(6);
/// How near a cut comes to a refresh depends on the key.
const ROUNDS: usize = 8;

/// When the connection breaks.
#[derive(Debug, Clone, Copy)]
enum Cut {
    AtOnce,
    /// When the next call for the key is on its way to the server.
    InACall,
}

async fn store(url: String) -> RedisSemaphore {
    // A machine may be so busy that a second is not enough for a round trip.
    let store = builder(LEASE).timeout(LEASE / 3).connect(url).await;
    store.expect("it connects")
}

struct Round {
    key: String,
    proxy: Proxy,
    store: RedisSemaphore,
}

impl Round {
    async fn start(server: &RedisServer, number: usize) -> Self {
        let proxy = Proxy::start(server).await;
        let store = store(proxy.url()).await;
        let key = format!("a{number}");
        Self { key, proxy, store }
    }

    fn claim(&self) -> Claim {
        Claim::new(self.key.clone()).with_limit(1)
    }

    fn name(&self, suffix: &str) -> String {
        format!("semaphore:{{concurrency:{}}}:{suffix}", self.key)
    }

    /// A permit that a release has just granted to a waiter.
    async fn granted(&self, near: &RedisSemaphore, raw: &mut Raw) -> Permit {
        let holder = near.acquire(self.claim()).await.expect("there is room");
        let waiter = tokio::spawn(self.store.acquire(self.claim().with_wait(BOUND)));
        eventually("it waits", BOUND, async || {
            raw.cmd(&["EXISTS", &self.name("queue")]).await.int() == 1
        })
        .await;
        settled(&self.proxy).await;
        // Only calls are slow: the message that it is granted is not.
        self.proxy.delay(LEASE / 60, Duration::ZERO);
        assert!(holder.release().await);
        let granted = ended("the wait", waiter).await.expect("it did not panic");
        granted.expect("it is granted")
    }

    async fn cut(&self, cut: Cut) {
        if let Cut::InACall = cut {
            let calls = || calls_for(&self.proxy, &self.name("held"));
            let before = calls();
            eventually("a call is on its way", BOUND, async || calls() > before).await;
        }
        self.proxy.forward();
        self.proxy.kill(End::Reset);
    }

    /// Whether its holder learned of a loss within the lease, or the server has no entry.
    async fn ends_early(self, near: &RedisSemaphore, port: u16, cut: Cut) -> bool {
        let mut raw = Raw::connect(port).await;
        let permit = self.granted(near, &mut raw).await;
        self.cut(cut).await;
        let lost = timeout(LEASE, permit.lost()).await.is_ok();
        lost || raw.zmembers(self.name("held")).await.len() != 1
    }
}

async fn lost(cut: Cut) -> usize {
    let server = RedisServer::start();
    let near = store(server.url()).await;
    let mut rounds = Vec::new();
    for number in 0..ROUNDS {
        rounds.push(Round::start(&server, number).await);
    }
    let rounds = rounds
        .into_iter()
        .map(|round| round.ends_early(&near, server.port(), cut));
    let lost = futures_util::future::join_all(rounds).await;
    lost.into_iter().filter(|lost| *lost).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_from_the_queue_outlives_a_cut_right_after_its_grant() {
    assert_eq!(lost(Cut::AtOnce).await, 0, "of {ROUNDS}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_from_the_queue_outlives_a_cut_while_its_first_refresh_is_on_its_way() {
    assert_eq!(lost(Cut::InACall).await, 0, "of {ROUNDS}");
}
