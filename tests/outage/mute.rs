//! Connections that fall silent, although a new connection works at once.
//!
//! Promises: P18.

use crate::server::{BOUND, claim};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};
use testing::{
    proxy::Proxy,
    redis::RedisServer,
    resp::Raw,
    wait::{eventually, one_round_passes},
};
use tokio::{
    runtime,
    time::{sleep, timeout},
};
use tower_semaphore::{RedisSemaphore, Semaphore};

/// Two more runtimes. Each makes one claim after another until `stop`.
struct Claims {
    goes_on: Arc<AtomicBool>,
    granted: Arc<AtomicUsize>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Claims {
    fn start(store: &RedisSemaphore) -> Self {
        let (goes_on, granted) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let start = |_| {
            let (store, goes_on) = (store.clone(), Arc::clone(&goes_on));
            let granted: Arc<AtomicUsize> = Arc::clone(&granted);
            thread::spawn(move || {
                let runtime = runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    while goes_on.load(SeqCst) {
                        if store.acquire(claim(1_000)).await.is_ok() {
                            granted.fetch_add(1, SeqCst);
                        }
                        sleep(Duration::from_millis(1)).await;
                    }
                });
            })
        };
        let threads = (0..2).map(start).collect();
        Self {
            goes_on,
            granted,
            threads,
        }
    }

    /// Waits until `more` further claims are granted.
    async fn grant_more(&self, more: usize) {
        let before = self.granted.load(SeqCst);
        eventually("claims are granted", BOUND, async || {
            self.granted.load(SeqCst) > before + more
        })
        .await;
    }

    fn stop(self) {
        self.goes_on.store(false, SeqCst);
        for thread in self.threads {
            thread.join().expect("no panic");
        }
    }
}

async fn connected(proxy: &Proxy) -> RedisSemaphore {
    let patient = RedisSemaphore::builder().timeout(Duration::from_secs(1));
    patient.connect(proxy.url()).await.expect("a server")
}

/// The connections of a server.
struct Connections {
    accepted: u64,
    open: u64,
}

async fn connections(server: &RedisServer) -> Connections {
    let mut raw = Raw::connect(server.port()).await;
    let info = raw.cmd(&["INFO"]).await;
    let field = |name: &str| {
        let mut lines = info.text().lines().map(str::to_owned).collect::<Vec<_>>();
        lines.retain(|line| line.starts_with(name));
        let value = lines
            .first()
            .and_then(|line| line.split(':').nth(1)?.trim().parse().ok());
        value.expect("a field of INFO")
    };
    Connections {
        accepted: field("total_connections_received:"),
        open: field("connected_clients:"),
    }
}

/// Some rounds may fail: on a busy machine the server may be stopped for too long, or a stall of this process may make
/// the store replace a connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_for_a_moment_gets_at_most_one_more_connection_and_keeps_none() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let store = connected(&proxy).await;
    let claims = Claims::start(&store);
    let round = async || {
        claims.grant_more(200).await;
        let before = connections(&server).await;
        server.stop();
        // Longer than the timeout.
        sleep(Duration::from_millis(1_400)).await;
        server.cont();
        claims.grant_more(200).await;
        // The server closes connections that have been replaced.
        sleep(Duration::from_millis(200)).await;
        let after = connections(&server).await;
        // The query that counts the connections uses one itself.
        let (made, kept) = (
            after.accepted - before.accepted - 1,
            after.open.abs_diff(before.open),
        );
        (made <= 1 && kept == 0).then_some(()).ok_or((made, kept))
    };
    one_round_passes("at most one connection is made, and none kept", 8, round).await;
    let held = timeout(BOUND, store.acquire(claim(1_000))).await;
    assert!(held.expect("in time").is_ok());
    claims.stop();
}
