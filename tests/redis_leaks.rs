//! Alone in its process, so that the process's own counts are of this test only.

#![cfg(feature = "redis")]

use std::{fs, time::Duration};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::runtime::Handle;
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
    let server = RedisServer::start();
    let lease = Duration::from_secs(3);
    let store = RedisSemaphore::builder()
        .lease(lease)
        .connect(server.url())
        .await;
    let store = store.expect("it connects");
    let claim = Claim::new("a").with_limit(2_000);
    let permit = store.acquire(claim.clone()).await.expect("there is room");
    // Released, so the keeper is connected too.
    assert!(permit.release().await);
    drop(permit);
    let mut raw = Raw::connect(server.port()).await;
    let (descriptors_before, tasks_before) = (descriptors(), tasks());

    for stopped in [false, true] {
        if stopped {
            server.stop();
        }
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
