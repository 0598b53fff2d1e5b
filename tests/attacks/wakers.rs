//! What a waker may do: an executor may poll, or drop, a task when its waker is called.

use futures_util::task::{ArcWake, waker};
use parking_lot::Mutex;
use std::{pin::Pin, sync::Arc, task::Context, thread, time::Duration};
use testing::{
    proxy::Proxy,
    redis::RedisServer,
    resp::{Raw, Reply},
    wait::eventually,
};
use tokio::{runtime::Handle, time::sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

const BOUND: Duration = Duration::from_secs(20);

/// A task that is dropped at once when the keeper's thread wakes it, and polled when others do.
struct Task {
    job: Mutex<Option<Job>>,
    runtime: Handle,
}

impl Task {
    fn start(job: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        let task = Arc::new(Self {
            job: Mutex::new(Some(Box::pin(job))),
            runtime: Handle::current(),
        });
        Arc::clone(&task).poll();
        task
    }

    fn poll(self: Arc<Self>) {
        let waker = waker(Arc::clone(&self));
        let mut job = self.job.lock().take();
        let polled = job.as_mut();
        let polled = polled.map(|job| job.as_mut().poll(&mut Context::from_waker(&waker)));
        if polled.is_some_and(|polled| polled.is_pending()) {
            *self.job.lock() = job;
        }
    }

    fn is_gone(&self) -> bool {
        self.job.try_lock().is_some_and(|job| job.is_none())
    }
}

impl ArcWake for Task {
    fn wake_by_ref(this: &Arc<Self>) {
        if thread::current().name() == Some("tower-semaphore") {
            let job = this.job.lock().take();
            drop(job);
        } else {
            let this = Arc::clone(this);
            this.runtime.clone().spawn(async move { this.poll() });
        }
    }
}

fn claim(key: &'static str) -> Claim {
    Claim::new(key).with_limit(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waker_that_drops_a_lost_permit_does_not_stop_the_keeper() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(2));
    let store = builder.connect(proxy.url()).await.expect("it connects");
    let permit = store.acquire(claim("a")).await.expect("there is room");
    let other = store.acquire(claim("b")).await.expect("there is room");
    let task = Task::start(async move { permit.lost().await });
    proxy.black_hole();
    eventually("the other permit is lost", BOUND, async || other.is_lost()).await;
    sleep(Duration::from_secs(1)).await;
    proxy.forward();
    eventually("the waker returns", BOUND, async || task.is_gone()).await;
    eventually("the other permit comes back", BOUND, async || {
        !other.is_lost()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waker_that_drops_a_claim_which_is_granted_does_not_stop_the_keeper() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let builder = RedisSemaphore::builder().lease(BOUND * 10);
    let store = builder.connect(server.url()).await.expect("it connects");
    let near = RedisSemaphore::connect(server.url()).await;
    let near = near.expect("it connects");
    let first = near.acquire(claim("a")).await.expect("there is room");
    let _second = near.acquire(claim("b")).await.expect("there is room");
    let wait = |key| store.acquire(claim(key).with_wait(BOUND * 10));
    // With this the store subscribes.
    let _subscriber = Task::start({
        let claim = wait("b");
        async move { drop(claim.await) }
    });
    eventually("it subscribes", BOUND, async || {
        let channels = raw.cmd(&["PUBSUB", "CHANNELS", "*wake*"]).await;
        channels != Reply::Array(Vec::new())
    })
    .await;
    // The store takes note of that.
    sleep(Duration::from_secs(1)).await;
    let task = Task::start({
        let claim = wait("a");
        async move { drop(claim.await) }
    });
    eventually("it waits", BOUND, async || {
        exists(&mut raw, "a", "queue").await
    })
    .await;
    drop(first);
    eventually("the waker returns", BOUND, async || task.is_gone()).await;
    eventually("its permit is released", BOUND, async || {
        !exists(&mut raw, "a", "held").await
    })
    .await;
}

async fn exists(raw: &mut Raw, key: &str, suffix: &str) -> bool {
    let name = format!("semaphore:{{concurrency:{key}}}:{suffix}");
    raw.cmd(&["EXISTS", &name]).await.int() == 1
}
