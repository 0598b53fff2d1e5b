//! Cancelled claims and killed connections leave no tasks and no descriptors. The tests run in a separate process, one
//! after another, because the counts are those of the whole process.
//!
//! Promises: P10, P11.

use std::{fs, time::Duration};
use testing::{
    in_flight::InFlight, machine::alone, redis::RedisServer, resp::Raw, rng::Rng, wait::eventually,
};
use tokio::{runtime::Handle, task::JoinSet, time::sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const BOUND: Duration = Duration::from_secs(20);

fn descriptors() -> usize {
    fs::read_dir("/dev/fd")
        .expect("a process can see its descriptors")
        .count()
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_cancelled_claims_leave_no_task_no_descriptor_and_no_permit() {
    let _alone = alone().await;
    let server = RedisServer::start();
    let lease = Duration::from_secs(3);
    let store = RedisSemaphore::builder()
        .lease(lease)
        .connect(server.url())
        .await;
    let store = store.expect("it connects");
    let claim = Claim::new("a").with_limit(2_000);
    let permit = store.acquire(claim.clone()).await.expect("there is room");
    // The keeper sends the release, so it is connected now.
    assert!(permit.release().await);
    drop(permit);
    let mut raw = Raw::connect(server.port()).await;
    let (descriptors_before, tasks_before) = (descriptors(), tasks());

    // The server answers, and then it is frozen while the claims are made.
    for is_stopped in [false, true] {
        if is_stopped {
            server.stop();
        }
        // Each claim is polled twice at most, and dropped.
        for polls in 0..1_000 {
            let mut acquire = store.acquire(claim.clone());
            for _ in 0..polls % 3 {
                if futures_util::poll!(&mut acquire).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        server.cont();
        eventually("no permit is left", BOUND, async || {
            raw.keys("*:held").await.is_empty()
        })
        .await;
        eventually("no task is left", BOUND, async || tasks() <= tasks_before).await;
        eventually("no descriptor is left", BOUND, async || {
            descriptors() <= descriptors_before
        })
        .await;
    }

    drop(store);
    eventually("the keeper is gone with its store", BOUND, async || {
        tasks() == 0
    })
    .await;
    assert!(
        descriptors() < descriptors_before,
        "the connection is still there"
    );
}

/// Takes short permits, some from the queue, until it is aborted.
async fn work(store: RedisSemaphore, in_flight: InFlight, mut rng: Rng) {
    loop {
        let wait = rng.millis(0..1_000) * u32::from(rng.once_in(2));
        let claim = Claim::new("a").with_limit(4).with_wait(wait);
        if let Ok(permit) = store.acquire(claim).await {
            let one = in_flight.begin();
            sleep(rng.millis(1..10)).await;
            drop((one, permit));
        }
        sleep(rng.millis(1..5)).await;
    }
}

async fn kill_all(raw: &mut Raw) {
    for kind in ["normal", "pubsub"] {
        let killed = raw
            .cmd(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])
            .await;
        assert!(killed.error().is_none(), "{killed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_all_connections_every_100_ms_stops_no_progress_and_leaves_no_descriptor() {
    let _alone = alone().await;
    let server = RedisServer::start();
    // Long enough that no lease ends during the test.
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(60));
    let store = builder.connect(server.url()).await.expect("it connects");
    let mut raw = Raw::connect(server.port()).await;
    let (mut load, in_flight) = (JoinSet::new(), InFlight::default());
    for seed in 0..16 {
        load.spawn(work(store.clone(), in_flight.clone(), Rng::new(seed)));
    }
    let grants = async |more: usize| {
        let before = in_flight.begun();
        let go_on = async || in_flight.begun() >= before + more;
        eventually("permits are granted", BOUND, go_on).await;
    };
    grants(50).await;
    let (before, mut most) = (descriptors(), 0);
    for _ in 0..30 {
        kill_all(&mut raw).await;
        grants(1).await;
        most = most.max(descriptors());
        sleep(Duration::from_millis(100)).await;
    }
    // A replacement may be open before the old connection is closed.
    assert!(most <= before + 4, "{before} descriptors, then {most}");
    assert!(in_flight.most() <= 4, "{} in flight", in_flight.most());
    load.shutdown().await;
    eventually("no permit is left", BOUND, async || {
        raw.keys("*:held").await.is_empty()
    })
    .await;
    assert!(descriptors() <= before + 1, "{before}, {}", descriptors());
}
