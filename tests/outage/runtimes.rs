//! Several runtimes of one process, of which one is in trouble: the others are not held to the share.

use crate::{
    server::{all, builder, claim, know_each_other, opens},
    share::stores,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use testing::{proxy::Proxy, redis::RedisServer};
use tokio::{runtime, time::sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore, redis::WhenUnavailable::Share};

const LIMIT: u32 = 12;

/// A runtime of its own that claims all the time until it is dropped.
struct Faulty {
    stop: Arc<AtomicBool>,
    claims: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Faulty {
    /// After each claim was begun its only thread is blocked for so long.
    fn start(store: &RedisSemaphore, blocked: Duration) -> Self {
        let (stop, claims) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let refused = Arc::<AtomicUsize>::default();
        let (store, stopped) = (store.clone(), stop.clone());
        let (begun, failed) = (claims.clone(), refused.clone());
        let thread = std::thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                while !stopped.load(SeqCst) {
                    let claim = Claim::new("other").with_limit(1_000);
                    let claim = tokio::spawn(store.acquire(claim));
                    tokio::task::yield_now().await;
                    std::thread::sleep(blocked);
                    let answer = claim.await.expect("no panic");
                    // As for its health: what it finds is no evidence.
                    drop(store.check().await);
                    failed.fetch_add(usize::from(answer.is_err()), SeqCst);
                    begun.fetch_add(1, SeqCst);
                    sleep(Duration::from_millis(20)).await;
                }
            });
        });
        Self {
            stop,
            claims,
            refused,
            thread: Some(thread),
        }
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Claims of this runtime, one after the other, which hold more than half of the limit already.
async fn refused_meanwhile(store: &RedisSemaphore, time: Duration) -> (usize, usize) {
    let held = all(store, LIMIT - 1).await;
    assert_eq!(held.len() as u32, LIMIT - 1);
    let (start, mut claims, mut refused) = (Instant::now(), 0, 0);
    while start.elapsed() < time {
        let answer = store.acquire(claim(LIMIT)).await;
        (claims, refused) = (claims + 1, refused + usize::from(answer.is_err()));
        drop(answer);
        sleep(Duration::from_millis(5)).await;
    }
    (claims, refused)
}

/// As when the server or a gateway accepts no more connections, or this process has no more descriptors.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_cannot_connect_uses_the_connection_of_the_keeper() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let store = builder(Share).connect(proxy.url()).await.expect("a server");
    let _other = builder(Share)
        .connect(server.url())
        .await
        .expect("a server");
    know_each_other(&server, 2).await;
    proxy.refuse().await;
    let faulty = Faulty::start(&store, Duration::ZERO);
    let (claims, refused) = refused_meanwhile(&store, Duration::from_secs(3)).await;
    let ours = ("that works", claims, refused);
    let (claims, refused) = (&faulty.claims, &faulty.refused);
    let (claims, refused) = (claims.load(SeqCst), refused.load(SeqCst));
    assert!(claims > 10, "it is stuck");
    for (which, claims, refused) in [ours, ("that cannot connect", claims, refused)] {
        // On a busy machine a call may have no answer in time.
        assert!(
            refused * 20 < claims,
            "{refused} of {claims} claims of a runtime {which} were refused"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_whose_thread_is_blocked_does_not_hold_others_to_the_share() {
    let server = RedisServer::start();
    let stores = stores(&server, 2).await;
    let store = &stores[0];
    let faulty = Faulty::start(store, Duration::from_millis(700));
    let (claims, refused) = refused_meanwhile(store, Duration::from_secs(5)).await;
    assert!(faulty.claims.load(SeqCst) > 2, "it is stuck");
    // While it is not clear what a failure is: for a round trip.
    assert!(
        refused * 20 < claims,
        "{refused} of {claims} claims of a runtime that works were refused"
    );
}

/// The evidence that the server works is that of one moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_falls_silent_is_an_outage_for_all_runtimes() {
    let server = RedisServer::start();
    let stores = stores(&server, 2).await;
    let store = &stores[0];
    let _faulty = Faulty::start(store, Duration::from_millis(700));
    let (done, finished) = mpsc::channel();
    let other = store.clone();
    let claims = tokio::spawn(async move {
        while finished.try_recv().is_err() {
            drop(other.acquire(Claim::new("b").with_limit(9)).await);
            sleep(Duration::from_millis(1)).await;
        }
    });
    sleep(Duration::from_secs(1)).await;
    server.stop();
    opens(store).await;
    let share = all(store, LIMIT).await;
    server.cont();
    done.send(()).expect("it runs");
    claims.await.expect("no panic");
    assert_eq!(share.len() as u32, LIMIT / 2);
}
