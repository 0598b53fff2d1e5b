//! A revocation of which no message arrives.

use super::{ALIVE, LEASE, first, granted, listens, revoke, started, stays_revoked, store};
use crate::holders::BOUND;
use std::time::Duration;
use testing::{proxy::Proxy, stores::connection};
use tokio::time::timeout;
use tower_semaphore::RedisSemaphore;

/// Longer than the test.
const LONG: Duration = Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_subscription_is_cut_is_told_when_it_has_subscribed_anew_whatever_the_lease()
{
    let (server, mut raw) = started().await;
    let proxy = Proxy::start(&server).await;
    proxy.drop_messages(true);
    let [holder, operator] = [
        store(&proxy.url(), LONG).await,
        store(&server.url(), LONG).await,
    ];
    let permit = granted(&holder, 1).await;
    let info = first(&operator).await;
    listens(&mut raw, &info.process.id).await;
    assert!(revoke(&operator, &info.id).await);
    assert!(!permit.is_lost());
    proxy.drop_messages(false);
    raw.cmd(&["CLIENT", "KILL", "TYPE", "PUBSUB"]).await;
    timeout(BOUND, permit.lost()).await.expect("it is told");
    stays_revoked(&permit, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_is_revoked_before_its_process_listens_is_told_of_whatever_the_lease() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LONG).await;
    let permit = granted(&store, 1).await;
    assert!(revoke(&store, &first(&store).await.id).await);
    timeout(BOUND, permit.lost()).await.expect("it is told");
    stays_revoked(&permit, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_over_a_supplied_connection_is_told_by_its_next_refresh() {
    let (server, mut raw) = started().await;
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
    let holder = builder.with_connection(connection(&server.url()).await);
    let holder = holder.expect("the settings are right");
    let permit = granted(&holder, 1).await;
    assert!(revoke(&holder, &first(&holder).await.id).await);
    timeout(BOUND, permit.lost()).await.expect("it is told");
    stays_revoked(&permit, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_remembered_of_revocations_is_little_and_ends() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LEASE).await;
    for _ in 0..20 {
        let permit = granted(&store, 3).await;
        assert!(revoke(&store, &first(&store).await.id).await);
        drop(permit);
    }
    let remembered = raw.zmembers(ALIVE).await;
    assert_eq!(remembered.len(), 20, "{remembered:?}");
    let ttl = raw.cmd(&["PTTL", ALIVE]).await.int();
    assert!((3_500_000..=3_600_000).contains(&ttl), "{ttl}");
    // As if an hour had passed for all but one of them.
    for (member, score) in &remembered[1..] {
        let earlier = (score + 3_600_001.0).to_string();
        let args: [&[u8]; 4] = [b"ZADD", ALIVE.as_bytes(), earlier.as_bytes(), member];
        raw.cmd(&args).await;
    }
    let _permit = granted(&store, 1).await;
    assert!(revoke(&store, &first(&store).await.id).await);
    assert_eq!(raw.zcard(ALIVE).await, 2);
}
