//! No release reaches the server.

use redis::Script;
use std::time::{Duration, Instant};
use testing::{
    proxy::{Proxy, Seen},
    resp::Raw,
    rig::Rig,
    wait::granted_at,
};
use tokio::time::sleep;
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(2);
/// The time in which a claim may run, with the default timeout.
const BUDGET: Duration = Duration::from_millis(500);
const KEYS: u64 = 30;
const RELEASE: &str = concat!(
    include_str!("../../../src/redis/protocol/common.lua"),
    include_str!("../../../src/redis/protocol/grant.lua"),
    include_str!("../../../src/redis/protocol/release.lua")
);

fn claim(key: u64) -> Claim {
    Claim::new(key).with_limit(1)
}

fn name(key: u64) -> String {
    format!("semaphore:{{concurrency:{key}}}:held")
}

/// By its hash, or by its source.
fn is_release(args: &[Vec<u8>]) -> bool {
    let hash = Script::new(RELEASE).get_hash().as_bytes().to_vec();
    args.get(1)
        .is_some_and(|arg| *arg == hash || arg == RELEASE.as_bytes())
}

fn releases(proxy: &Proxy) -> Vec<Seen> {
    let log = proxy.log().into_iter();
    log.filter(|seen| is_release(&seen.args)).collect()
}

/// When the last of the leases ends.
async fn last_end(raw: &mut Raw) -> i64 {
    let mut last = 0;
    for key in 0..KEYS {
        let members = raw.zmembers(&name(key)).await;
        assert_eq!(members.len(), 1, "key {key} is free, or held twice");
        last = last.max(members[0].1 as i64);
    }
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_whose_releases_are_lost_are_free_when_their_leases_end_and_tries_are_few() {
    let mut rig = Rig::new(RedisSemaphore::builder().lease(LEASE)).await;
    let other = RedisSemaphore::connect(rig.server.url()).await;
    let other = other.expect("it connects");
    let mut permits: Vec<Permit> = Vec::new();
    for key in 0..KEYS {
        permits.push(rig.store.acquire(claim(key)).await.expect("there is room"));
    }
    rig.proxy.cut_before(is_release);
    rig.proxy.clear_log();
    let dropped = Instant::now();
    drop(permits);
    sleep(LEASE / 2).await;
    let end = last_end(&mut rig.raw).await;
    granted_at(end, &mut rig.raw, async || {
        let mut free = true;
        for key in (0..KEYS).rev() {
            free &= other.acquire(claim(key)).await.is_ok();
        }
        free
    })
    .await;
    // No release is needed any more.
    sleep((LEASE + BUDGET * 2).saturating_sub(dropped.elapsed())).await;
    let (tries, connections) = (releases(&rig.proxy).len(), rig.proxy.connections());
    println!("{tries} tries, {connections} connections");
    // Pauses are doubled, and releases of many keys travel together.
    assert!((3..=40).contains(&tries), "{tries} tries");
    assert!(connections <= 4, "{connections} connections");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(releases(&rig.proxy).len(), tries, "they go on for ever");
    rig.proxy.forward();
    let permit = rig.store.acquire(claim(0)).await.expect("it is free");
    assert!(permit.release().await);
}
