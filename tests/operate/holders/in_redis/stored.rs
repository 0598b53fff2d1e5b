//! The data in the server: how it is listed, how long it lives, and that forged ids do not change it.
//!
//! Promises: P24.

use super::{
    ALIVE, HELD, LEASE, LONG, QUEUE, granted, processes, revoke, units, until_subscribed, waits,
};
use crate::holders::{
    BOUND, Store, distinct, first, forged::forgeries, ids, usage, wait_for_usage,
};
use futures_util::StreamExt;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};
use testing::{
    ids::id,
    redis::RedisServer,
    resp::{Raw, Reply},
    wait::eventually,
};
use tower_semaphore::{Key, Policy, RedisSemaphore, Semaphore, semaphore::StoredKey};

async fn ttl(raw: &mut Raw, key: &str) -> i64 {
    raw.cmd(&["PTTL", key]).await.int()
}

/// A later time by the server's clock, as a score.
async fn later(raw: &mut Raw, ms: i64) -> String {
    (raw.server_time_ms().await + ms).to_string()
}

async fn listed<T>(keys: impl futures_util::Stream<Item = T>) -> Vec<T> {
    keys.collect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_are_listed_as_two_processes() {
    let (_server, _, [one, two]) = processes(LEASE).await;
    let _permits = [granted(&one, 1).await, granted(&two, 2).await];
    for store in [one, two] {
        let usage = wait_for_usage(&store, "a", "both are known", |usage| {
            let mut pids = usage.held.iter().map(|info| info.process.pid);
            pids.all(|pid| pid == Some(std::process::id()))
        })
        .await;
        let processes = usage.held.iter().map(|info| &*info.process.id);
        assert_eq!(distinct(&processes.collect::<Vec<_>>()), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entry_of_a_process_expires_some_leases_after_it() {
    let (_server, mut raw, [store]) = processes(LEASE).await;
    let _permit = granted(&store, 1).await;
    let entry = format!("semaphore:2:process:{}", first(&store).await.process.id);
    eventually("it has written its entry", BOUND, async || {
        raw.keys(&entry).await.len() == 1
    })
    .await;
    let ttl = ttl(&mut raw, &entry).await;
    let leases = LEASE.as_millis() as i64;
    assert!((5 * leases..=8 * leases).contains(&ttl), "{ttl}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_permits_and_foreign_members_are_not_shown_and_stay_stored() {
    let (_server, mut raw, [store]) = processes(LEASE).await;
    let _permit = granted(&store, 1).await;
    let (ended, later) = (later(&mut raw, -1).await, later(&mut raw, 60_000).await);
    let dead = &*id("aaaa", 1, [5, 1, 3_000]);
    let strange = [&*later, "no id", &later, "\u{fc}:2"];
    raw.cmd(&[&["ZADD", HELD, &ended, dead][..], &strange].concat())
        .await;
    raw.cmd(&["ZADD", QUEUE, "1", dead]).await;
    raw.cmd(&["ZADD", ALIVE, &ended, dead]).await;
    let shown = usage(&store, "a").await;
    assert_eq!((shown.held.len(), shown.waiting.len()), (1, 0));
    // The permit, the ended permit and two foreign members.
    assert_eq!(raw.zcard(HELD).await, 4, "it was only read");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permit_of_a_process_that_is_gone_is_shown_and_revoked() {
    let (_server, mut raw, [store]) = processes(LEASE).await;
    let later = later(&mut raw, 60_000).await;
    let id = &*id("aaaa", 26, [5, 2, 60_000]);
    raw.cmd(&["ZADD", HELD, &later, id, &later, &format!("{id}:2")])
        .await;
    let info = first(&store).await;
    assert_eq!((&*info.id, info.weight, info.limit), (id, 2, 5));
    assert!(revoke(&store, id).await);
    assert_eq!(raw.zcard(HELD).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_key_is_listed_by_its_hash_and_its_usage_is_shown_by_the_whole_key() {
    let (_server, _, [store]) = processes(LEASE).await;
    let long = Key::from("k".repeat(1_000));
    let _permit = store.acquire(units(1).with_key(long.clone())).await;
    let listed = listed(store.keys(&Policy::DEFAULT)).await;
    let [Ok(StoredKey::Hashed { hash, .. })] = &listed[..] else {
        panic!("{listed:?}");
    };
    assert_eq!(hash.len(), 64);
    assert_eq!(usage(&store, long).await.held.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_may_not_list_keys_returns_an_error_and_does_everything_else() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let user = "ACL SETUSER app on >secret ~* &* +@all -scan";
    raw.cmd(&user.split(' ').collect::<Vec<_>>()).await;
    let url = server.url_of("app:secret");
    let store = RedisSemaphore::connect(url).await.expect("it connects");
    let store: Store = Arc::new(store);
    let permit = granted(&store, 1).await;
    assert_eq!(usage(&store, "a").await.held.len(), 1);
    let listed = listed(store.keys(&Policy::DEFAULT)).await;
    assert!(matches!(&listed[..], [Err(_)]), "{listed:?}");
    assert!(permit.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_among_many_foreign_keys_takes_no_longer_than_its_time() {
    // The long lease keeps calls to a slow server from timing out.
    let (_server, mut raw, [store]) = processes(BOUND * 3).await;
    let script = "for key = 1, 1000 do redis.call('SET', KEYS[1] .. key, '') end";
    for part in 0..100 {
        let prefix = format!("semaphore:2:{part}-");
        raw.cmd(&["EVAL", script, "1", &prefix]).await;
    }
    let _permit = granted(&store, 1).await;
    raw.reset_stats().await;
    let page = async |cursor: Option<String>, time| {
        let page = store.keys_page(&Policy::DEFAULT, cursor.as_deref(), time);
        let page = page.await;
        page.expect("it answers").expect("its own cursor")
    };
    let (mut found, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = page(cursor, Duration::ZERO).await;
        (cursor, pages) = (page.next, pages + 1);
        found.extend(page.keys);
        let scans = raw.commandstats().await.get("scan").copied();
        assert_eq!(scans, Some(pages), "a page without time is one call");
        if cursor.is_none() {
            break;
        }
    }
    // A page without time reads about a thousand of the 100,000 keys.
    assert!(pages > 50, "{pages}");
    assert_eq!(found, [StoredKey::whole("a")]);
    let whole = page(None, BOUND * 3).await;
    assert_eq!((whole.keys.len(), whole.next), (1, None), "it is one page");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_ends_soon_after_a_thousand_keys_although_it_has_time() {
    let (_server, mut raw, [store]) = processes(LEASE).await;
    let script = "for key = 1, 5000 do
        redis.call('SET', 'semaphore:2:{concurrency:' .. key .. '}:held', '')
    end";
    raw.cmd(&["EVAL", script, "0"]).await;
    let page = store.keys_page(&Policy::DEFAULT, None, BOUND).await;
    let page = page.expect("it answers").expect("it is the first");
    let keys = page.keys.len();
    assert!(
        (1_000..3_000).contains(&keys) && page.next.is_some(),
        "{keys}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_ends_with_the_first_of_its_units() {
    let (_server, mut raw, [store]) = processes(LEASE).await;
    let (soon, late) = (later(&mut raw, 30_000).await, later(&mut raw, 60_000).await);
    let id = id("aaaa", 1, [2, 2, 60_000]);
    let units = [(&soon, &id), (&late, &format!("{id}:2"))];
    for (end, unit) in units {
        raw.cmd(&["ZADD", HELD, end, unit]).await;
    }
    let permit = first(&store).await;
    let ends = UNIX_EPOCH + Duration::from_millis(soon.parse().expect("a number"));
    assert_eq!((permit.weight, permit.ends), (2, Some(ends)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_was_refreshed_is_shown_with_the_time_of_its_grant() {
    let (_server, _, [store]) = processes(LEASE).await;
    let _permit = granted(&store, 1).await;
    let before = first(&store).await;
    eventually("it is refreshed", BOUND, async || {
        first(&store).await.ends > before.ends
    })
    .await;
    assert_eq!(first(&store).await.since, before.since);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_no_page_is_distinguished_from_a_failure() {
    let (mut server, _, [store]) = processes(LEASE).await;
    let page = async |cursor| store.keys_page(&Policy::DEFAULT, Some(cursor), BOUND).await;
    for cursor in ["", "a", "1", "-1@", "@", "18446744073709551616@"] {
        assert!(matches!(page(cursor).await, Ok(None)), "{cursor}");
    }
    // A cursor of an unknown server ends the listing, as the last page does.
    let gone = page("17@other:1").await.expect("it answers");
    let gone = gone.expect("a cursor of a server that is gone");
    assert_eq!((gone.keys, gone.next), (Vec::new(), None));
    server.kill();
    assert!(page("0@").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_an_error_of_the_store() {
    let (mut server, _, [store]) = processes(LEASE).await;
    let _permit = granted(&store, 1).await;
    let id = first(&store).await.id;
    server.kill();
    let (policy, key) = (Policy::DEFAULT, "a".into());
    assert!(store.usage(&policy, &key).await.is_err());
    assert!(store.revoke(&policy, &key, &id).await.is_err());
    let listed = listed(store.keys(&policy)).await;
    assert!(matches!(&listed[..], [Err(_)]), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_that_were_claimed_together_are_always_shown_in_the_same_order() {
    let (_server, mut raw, [store]) = processes(LEASE).await;
    let later = later(&mut raw, 60_000).await;
    // Ids of two processes, in one millisecond, under different limits.
    for serial in 1..=8 {
        for process in ["aaaa", "bbbb"] {
            let id = id(process, serial, [20 + serial, 1, 60_000]);
            raw.cmd(&["ZADD", HELD, &later, &id]).await;
        }
    }
    let before = usage(&store, "a").await;
    for _ in 0..20 {
        let now = usage(&store, "a").await;
        let as_before = (ids(&before.held), before.limit);
        assert_eq!((ids(&now.held), now.limit), as_before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_is_remembered_for_eight_leases_of_any_length() {
    let lease = Duration::from_secs(20 * 60 * 60);
    let (_server, mut raw, [store]) = processes(lease).await;
    let _permit = granted(&store, 1).await;
    assert!(revoke(&store, &first(&store).await.id).await);
    let ttl = ttl(&mut raw, ALIVE).await;
    let leases = 8 * lease.as_millis() as i64;
    assert!((leases - 60_000..=leases).contains(&ttl), "{ttl}");
}

/// Dumps the server's data byte for byte. Of the key `alive` only the ids: a poll moves the times.
async fn dump(raw: &mut Raw) -> BTreeMap<Vec<u8>, String> {
    let mut all = BTreeMap::new();
    for key in raw.keys("semaphore:2:{*").await {
        let dump = if key == ALIVE.as_bytes() {
            let members = raw.zmembers(&key).await.into_iter();
            format!("{:?}", members.map(|(id, _)| id).collect::<BTreeSet<_>>())
        } else {
            format!("{:?}", raw.cmd(&[b"DUMP", &key[..]]).await)
        };
        all.insert(key, dump);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_id_changes_no_byte_and_sends_no_message() {
    let (server, mut raw, [store]) = processes(LONG).await;
    let labelled = store.acquire(units(3).with_label("a:2.b+~%")).await;
    let permits = [labelled.expect("there is room"), granted(&store, 4).await];
    permits[1].resize(6).await.expect("there is room");
    let (waiter, _) = waits(&store, 1, 0).await;
    let shown = usage(&store, "a").await;
    until_subscribed(&mut raw, &shown.held[0]).await;
    let mut messages = Raw::connect(server.port()).await;
    messages.cmd(&["PSUBSCRIBE", "*"]).await;

    // The waiter polls once more because its process has just subscribed.
    let mut before = dump(&mut raw).await;
    eventually("nothing moves any more", BOUND, async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = dump(&mut raw).await;
        mem::replace(&mut before, now) == before
    })
    .await;
    assert!(before.len() >= 3, "{before:?}");
    for info in shown.held.iter().chain(&shown.waiting) {
        // Every third forgery, to save time. The id of a unit is not the id of a permit.
        let of_units = (1..=info.weight).map(|unit| format!("{}:{unit}", info.id));
        for forged in forgeries(&info.id).into_iter().step_by(3).chain(of_units) {
            assert!(!revoke(&store, &forged).await, "{forged:?}");
        }
    }
    assert_eq!(dump(&mut raw).await, before);
    raw.cmd(&["PUBLISH", "end", ""]).await;
    let message = messages.next().await.expect("a message");
    let expected = ["pmessage", "*", "end", ""].map(|word| Reply::Bulk(word.into()));
    assert_eq!(message, Reply::Array(expected.into()));
    assert!(permits.iter().all(|permit| !permit.is_lost()));
    waiter.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_no_store_has_written_cannot_be_revoked() {
    let (_server, mut raw, [store]) = processes(LEASE).await;
    let later = later(&mut raw, 600_000).await;
    let members = [
        "a",
        "x:2",
        "*",
        "p.1.0.0.5.zzzzz.rs.0...",
        "p.1.0.0.5.1.rs.0...%41",
        "p.1.5.1.1000.a.a",
        "revoked:p.1",
    ];
    for member in members {
        raw.cmd(&["ZADD", HELD, &later, member]).await;
    }
    for member in members {
        assert!(!revoke(&store, member).await, "{member}");
    }
    assert_eq!(raw.zcard(HELD).await, members.len());
}
