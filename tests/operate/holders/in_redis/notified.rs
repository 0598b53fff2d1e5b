//! Holders and waiters in other processes are notified of a revocation by a message, or later if the message is lost.
//!
//! Promises: P4, P24.

use super::{
    ALIVE, HELD, LEASE, LONG, assert_stays_revoked, granted, processes, revoke, units,
    until_subscribed, waits,
};
use crate::holders::{BOUND, Store, answer, assert_revoked, first, until_notified, usage};
use futures_util::{StreamExt, stream};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testing::{
    ids::id, proxy::Proxy, redis::Cluster, resp::Raw, stores::connected, wait::eventually,
};
use tower_semaphore::{Operate, Permit, Policy, RedisSemaphore, Semaphore};

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_in_another_process_is_notified_by_a_message() {
    let (_server, mut raw, [holder, operator]) = processes(LONG).await;
    for weight in [1, 3] {
        let permit = granted(&holder, weight).await;
        let info = first(&operator).await;
        until_subscribed(&mut raw, &info).await;
        let start = Instant::now();
        assert!(revoke(&operator, &info.id).await);
        until_notified(&permit).await;
        let took = start.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert_stays_revoked(&permit, &mut raw).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_by_a_user_without_channels_fails_and_changes_nothing() {
    let (server, mut raw, [holder]) = processes(LONG).await;
    let user = "ACL SETUSER op on >secret ~* resetchannels +@all";
    raw.cmd(&user.split(' ').collect::<Vec<_>>()).await;
    let builder = RedisSemaphore::builder().lease(LONG).operator(true);
    let operator = builder.connect(server.url_of("op:secret")).await;
    let operator = operator.expect("it connects");
    let permit = granted(&holder, 1).await;
    let info = first(&holder).await;
    let revoked = operator
        .revoke(&Policy::DEFAULT, &"a".into(), &info.id)
        .await;
    let error = revoked.expect_err("it may not publish");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert!(
        cause.is_some_and(|cause| cause.contains("channels")),
        "{error:?}"
    );
    assert_eq!(usage(&holder, "a").await.held, [info]);
    assert!(!permit.is_lost());
    assert_eq!(raw.keys(ALIVE).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_in_another_process_is_notified_by_a_message() {
    let (_server, mut raw, [holder, operator]) = processes(LONG).await;
    let permit = granted(&holder, 9).await;
    until_subscribed(&mut raw, &first(&operator).await).await;
    let mut fastest = BOUND;
    for _ in 0..3 {
        let start = Instant::now();
        let (waiter, waiting) = waits(&holder, 1, 0).await;
        assert!(revoke(&operator, &waiting.id).await);
        assert_revoked(&answer(waiter).await);
        fastest = fastest.min(start.elapsed());
        assert!(usage(&operator, "a").await.waiting.is_empty());
    }
    // The waiter would poll five seconds after the answer to its claim.
    assert!(fastest < Duration::from_secs(5), "{fastest:?}");
    assert!(!permit.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_subscription_is_cut_is_notified_when_it_has_subscribed_again() {
    let (server, mut raw, [operator]) = processes(LONG).await;
    let proxy = Proxy::start(&server).await;
    proxy.drop_messages(true);
    let holder = super::store(&proxy.url(), LONG).await;
    let permit = granted(&holder, 1).await;
    let info = first(&operator).await;
    until_subscribed(&mut raw, &info).await;
    assert!(revoke(&operator, &info.id).await);
    assert!(!permit.is_lost());
    raw.cmd(&["CLIENT", "KILL", "TYPE", "PUBSUB"]).await;
    assert_stays_revoked(&permit, &mut raw).await;
}

/// The number of held units of `a`, and the id of a unit that was added to a permit.
async fn held(raw: &mut Raw) -> (usize, Option<String>) {
    let ids = raw.zmembers(HELD).await.into_iter();
    let ids: Vec<_> = ids
        .filter_map(|(id, _)| String::from_utf8(id).ok())
        .collect();
    // Added units have another LEASE, the third part of an id. A colon precedes the number of a further unit.
    let is_added = |id: &&String| id.split('.').nth(2) != Some("0") && !id.contains(':');
    (ids.len(), ids.iter().find(is_added).cloned())
}

#[tokio::test(flavor = "multi_thread")]
async fn units_added_to_a_revoked_permit_are_free_as_soon_as_its_owner_is_notified() {
    let (_server, mut raw, [holder, operator]) = processes(LONG).await;
    let permit = granted(&holder, 2).await;
    permit.resize(5).await.expect("there is room");
    let info = first(&operator).await;
    assert_eq!(info.weight, 5);
    until_subscribed(&mut raw, &info).await;
    let start = Instant::now();
    assert!(revoke(&operator, &info.id).await);
    until_notified(&permit).await;
    let is_free = async || held(&mut raw).await.0 == 0;
    eventually("all is free", BOUND, is_free).await;
    let took = start.elapsed();
    // Before a refresh could find the loss.
    assert!(took < LONG / 3, "{took:?}");
    assert_stays_revoked(&permit, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn units_added_to_a_revoked_permit_are_free_after_a_refresh_if_the_message_is_lost() {
    let (server, mut raw, []) = processes(LEASE).await;
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
    let holder = builder.connect(server.url()).await;
    let holder: Store = Arc::new(holder.expect("it connects"));
    // The store cannot subscribe again, but scripts may still publish.
    let deaf = ["ACL", "SETUSER", "default", "-subscribe"];
    assert_eq!(raw.cmd(&deaf).await.text(), "OK");
    raw.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    for names_added_units in [false, true] {
        let permit = granted(&holder, 2).await;
        permit.resize(5).await.expect("there is room");
        let (units, added) = held(&mut raw).await;
        let added = added.expect("three were added");
        assert_eq!(units, 5);
        let id = if names_added_units {
            added
        } else {
            first(&holder).await.id
        };
        assert!(revoke(&holder, &id).await);
        until_notified(&permit).await;
        eventually("all is free", BOUND, async || held(&mut raw).await.0 == 0).await;
        assert_stays_revoked(&permit, &mut raw).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn units_added_to_a_permit_of_a_dead_process_are_free_when_their_lease_ends() {
    let (_server, mut raw, [operator]) = processes(LEASE).await;
    let end = (raw.server_time_ms().await + 1_500).to_string();
    let first = id("aaaa", 1, [9, 1, 2_000]);
    let added = first.replacen(".0.0.", ".1.0.", 1);
    raw.cmd(&["ZADD", HELD, &end, &first, &end, &added]).await;
    assert!(revoke(&operator, &first).await);
    assert_eq!(held(&mut raw).await, (1, Some(added)));
    eventually("it is free", BOUND, async || {
        usage(&operator, "a").await.units == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_revocation_is_remembered_by_one_member_for_an_hour() {
    let (_server, mut raw, [store]) = processes(LEASE).await;
    for _ in 0..20 {
        let permit = granted(&store, 3).await;
        assert!(revoke(&store, &first(&store).await.id).await);
        drop(permit);
    }
    let remembered = raw.zmembers(ALIVE).await;
    assert_eq!(remembered.len(), 20, "{remembered:?}");
    let ttl = raw.cmd(&["PTTL", ALIVE]).await.int();
    assert!((3_500_000..=3_600_000).contains(&ttl), "{ttl}");
    // Make all of them except one an hour older. The scores are negative times, so an earlier time is a higher score.
    for (member, score) in &remembered[1..] {
        let earlier = (score + 3_600_001.0).to_string();
        let args: [&[u8]; 4] = [b"ZADD", ALIVE.as_bytes(), earlier.as_bytes(), member];
        raw.cmd(&args).await;
    }
    let _permit = granted(&store, 1).await;
    assert!(revoke(&store, &first(&store).await.id).await);
    assert_eq!(raw.zcard(ALIVE).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_many_permits_soon_reads_thousands_of_revocations() {
    const PERMITS: u32 = 2_000;
    const MESSAGES: u32 = 3_000;
    let (_server, mut raw, [holder]) = processes(LONG).await;
    let claims = (0..PERMITS).map(|_| holder.acquire(units(1).with_limit(PERMITS)));
    let granted = stream::iter(claims).buffer_unordered(500);
    let permits: Vec<Permit> = granted
        .map(|permit| permit.expect("there is room"))
        .collect()
        .await;
    let info = first(&holder).await;
    until_subscribed(&mut raw, &info).await;
    let channel = format!("semaphore:2:wake:{}", info.process.id);
    let permit = info.id.split('.').nth(1).expect("it has one");
    // The holder has no such permits.
    let unknown = (0..MESSAGES).map(|unknown| format!("{}", 1_000_000_000 + unknown));
    for permit in unknown.chain([permit.to_owned()]) {
        let message = format!("{permit} revoked");
        let sent = raw.send(&["PUBLISH", &channel, &message]).await;
        sent.expect("it is sent");
    }
    // On an idle machine this takes a second or two.
    eventually("it is notified", Duration::from_secs(60), async || {
        permits.iter().any(Permit::is_lost)
    })
    .await;
    assert_eq!(permits.iter().filter(|permit| permit.is_lost()).count(), 1);
}

async fn store_of(cluster: &Cluster) -> Store {
    let builder = RedisSemaphore::builder().lease(LONG);
    let builder = builder.timeout(Duration::from_secs(3));
    let connect = async || builder.clone().connect_cluster(cluster.urls()).await;
    Arc::new(connected(connect).await)
}

/// While a slot moves, its old node refuses commands for a key that it lacks. So a script that empties a key fails at
/// its next command for that key.
#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_while_the_slot_moves_is_complete_or_an_error() {
    let cluster = Cluster::of_primaries(3).await;
    let [holder, operator] = [store_of(&cluster).await, store_of(&cluster).await];
    let slot = cluster.slot("semaphore:2:{concurrency:a}").await;
    let from = cluster.first_owner(slot);
    let to = (from + 1) % 3;

    let permit = granted(&holder, 9).await;
    let (waiter, _) = waits(&holder, 9, 0).await;
    let info = first(&operator).await;
    let channel = format!("semaphore:2:wake:{}", info.process.id);
    eventually("it listens", BOUND, async || {
        let mut channels = Vec::new();
        for node in 0..3 {
            let mut raw = cluster.raw(node).await;
            let listed = raw.cmd(&["PUBSUB", "CHANNELS", &channel]).await;
            channels.extend(listed.first().cloned());
        }
        !channels.is_empty()
    })
    .await;

    cluster.begin_move(slot, from, to).await;
    let revoked = operator
        .revoke(&Policy::DEFAULT, &"a".into(), &info.id)
        .await;
    until_notified(&permit).await;
    cluster.move_keys(slot, from, to).await;
    cluster.end_move(slot, from, to).await;
    assert!(!matches!(revoked, Ok(false)), "{revoked:?}");
    let next = answer(waiter).await.expect("a permit");
    assert!(permit.is_lost() && !next.is_lost());
    assert!(!permit.release().await);
    assert!(next.release().await);
}
