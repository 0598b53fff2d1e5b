//! Waiters whose round trip is long beside their lease.

use crate::{
    common::{BOUND, builder, claim, ended, permit, queued},
    support::{proxy::Proxy, redis::RedisServer, resp::Raw, stall::StallWatch, wait::eventually},
};
use std::time::Duration;
use tokio::time::sleep;
use tower_semaphore::{RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_millis(300);
/// The longest that the lease allows.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Each way.
const DELAY: Duration = Duration::from_millis(40);
const ROUNDS: usize = 20;
/// A machine that stalls for longer lets any waiter of such a lease die.
const CALM: Duration = Duration::from_millis(15);

async fn store(url: String) -> RedisSemaphore {
    let store = builder(LEASE).timeout(TIMEOUT).connect(url).await;
    store.expect("it connects")
}

/// The tokens of two waiters, in the order of their arrival, that waited for more than a lease.
async fn tokens(near: &RedisSemaphore, far: &RedisSemaphore, raw: &mut Raw) -> [u64; 2] {
    let holder = permit(near, 1).await;
    let wait = || async {
        let claim = claim(1).with_wait(BOUND);
        tokio::spawn({
            let acquire = far.acquire(claim);
            async move {
                let permit = acquire.await.expect("it is granted");
                let token = permit.token();
                permit.release().await;
                token
            }
        })
    };
    let head = wait().await;
    eventually("the head waits", BOUND, async || queued(raw).await == 1).await;
    let second = wait().await;
    eventually("both wait", BOUND, async || queued(raw).await == 2).await;
    sleep(LEASE * 3 / 2).await;
    drop(holder);
    let head = ended("the head", head).await.expect("it did not panic");
    let second = ended("the second", second).await.expect("it did not panic");
    [head, second]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_the_queue_is_not_passed_over_while_its_round_trip_fits_the_timeout() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let (near, far) = (store(server.url()).await, store(proxy.url()).await);
    let mut raw = Raw::connect(server.port()).await;
    proxy.delay(DELAY, DELAY);
    let (mut judged, mut passed_over) = (0, 0);
    for _ in 0..ROUNDS * 5 {
        let watch = StallWatch::start();
        let [head, second] = tokens(&near, &far, &mut raw).await;
        if watch.longest() > CALM {
            continue;
        }
        judged += 1;
        passed_over += usize::from(head > second);
        if judged == ROUNDS {
            break;
        }
    }
    assert!(judged > 0, "the machine stalled in every round");
    assert_eq!(passed_over, 0, "of {judged} heads");
}
