//! Calls that a broken connection delivers late: an acquire within its deadline, and a refresh.

use crate::{BOUND, HELD, until_held};
use std::time::Duration;
use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

/// So long that nothing here ends by itself.
const LEASE: Duration = Duration::from_secs(60);

fn five() -> Claim {
    Claim::new("a").with_limit(5).with_weight(5)
}

async fn fixture() -> (RedisServer, Proxy, RedisSemaphore, Raw) {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let builder = RedisSemaphore::builder().lease(LEASE);
    let builder = builder.timeout(Duration::from_secs(2));
    let store = builder.connect(proxy.url()).await.expect("it connects");
    let raw = Raw::connect(server.port()).await;
    (server, proxy, store, raw)
}

/// An acquire of five units that is on its way.
fn acquire(proxy: &Proxy) -> Option<Vec<Vec<u8>>> {
    let seen = proxy.log().into_iter().map(|seen| seen.args);
    // An id has a time behind that.
    let is_id = |arg: &Vec<u8>| String::from_utf8_lossy(arg).contains(".5.5.60000.");
    let mut acquires = seen.filter(|args| args[0] == b"EVALSHA" && args.iter().any(is_id));
    acquires.next()
}

/// A permit of five units that was sent twice, and the first send, which is still on its way.
async fn sent_twice(store: &RedisSemaphore, proxy: &Proxy) -> (Permit, Vec<Vec<u8>>) {
    // The server knows the scripts then.
    let warm = store.acquire(five()).await.expect("there is room");
    assert!(warm.release().await);
    proxy.clear_log();
    proxy.black_hole();
    let acquiring = tokio::spawn(store.acquire(five()));
    eventually("it is sent", BOUND, async || acquire(proxy).is_some()).await;
    let late = acquire(proxy).expect("it is sent");
    proxy.kill(End::Reset);
    proxy.forward();
    let permit = acquiring.await.expect("no panic").expect("there is room");
    (permit, late)
}

#[tokio::test]
async fn a_late_acquire_does_not_bring_back_units_that_were_released_of_its_permit() {
    let (_server, proxy, store, mut raw) = fixture().await;
    let (permit, late) = sent_twice(&store, &proxy).await;
    permit.resize(1).await.expect("it becomes lighter");
    assert_eq!(raw.zcard(HELD).await, 1);
    raw.cmd(&late).await;
    assert_eq!(raw.zcard(HELD).await, 1);
    let others = store.acquire(five().with_weight(4)).await;
    let others = others.expect("there is room");
    raw.cmd(&late).await;
    assert_eq!(raw.zcard(HELD).await, 5);
    drop((permit, others));
    until_held(&mut raw, 0).await;
}

#[tokio::test]
async fn of_a_released_permit_that_was_lighter_a_late_acquire_leaves_nothing() {
    let (_server, proxy, store, mut raw) = fixture().await;
    let (permit, late) = sent_twice(&store, &proxy).await;
    permit.resize(1).await.expect("it becomes lighter");
    until_held(&mut raw, 1).await;
    assert!(permit.release().await);
    raw.cmd(&late).await;
    until_held(&mut raw, 0).await;
}

/// The server has units of a permit that is lost here: its last refresh has run, without an answer.
#[tokio::test]
async fn its_own_units_do_not_stand_in_the_way_of_a_lost_permit_that_was_lighter() {
    const LEASE: Duration = Duration::from_secs(9);
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let builder = RedisSemaphore::builder().lease(LEASE);
    let store = builder.connect(proxy.url()).await.expect("it connects");
    let mut raw = Raw::connect(server.port()).await;
    let permit = store.acquire(five()).await.expect("there is room");
    permit.resize(4).await.expect("it becomes lighter");
    let units = raw.zmembers(HELD).await;
    proxy.black_hole();
    permit.lost().await;
    let end = raw.server_time_ms().await + LEASE.as_millis() as i64;
    for (unit, _) in units {
        let end = end.to_string();
        raw.cmd(&[b"ZADD", HELD.as_bytes(), end.as_bytes(), &unit])
            .await;
    }
    proxy.forward();
    eventually("it is back", BOUND, async || !permit.is_lost()).await;
    assert!(raw.server_time_ms().await < end);
    assert_eq!((raw.zcard(HELD).await, permit.weight()), (4, 4));
}
