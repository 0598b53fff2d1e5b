//! What is listed of other processes, and of what has ended.

use super::{HELD, LEASE, claim, first, granted, started, store, usage};
use crate::holders::{BOUND, shown};
use futures_util::StreamExt;
use std::{sync::Arc, time::Duration};
use testing::{redis::RedisServer, resp::Raw, stores::connection, wait::eventually};
use tower_semaphore::{Key, Operate, Policy, RedisSemaphore, Semaphore, semaphore::StoredKey};

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_are_two_processes_of_which_each_knows_the_other() {
    let (server, _) = started().await;
    let [one, two] = [
        store(&server.url(), LEASE).await,
        store(&server.url(), LEASE).await,
    ];
    let _permits = [granted(&one, 1).await, granted(&two, 2).await];
    for asked in [one, two] {
        let both: crate::holders::Store = Arc::new(asked);
        let usage = shown(&both, "a", "both are known", |usage| {
            usage
                .held
                .iter()
                .all(|info| info.process.pid == Some(std::process::id()))
        })
        .await;
        let processes = usage.held.iter().map(|info| &*info.process.id);
        assert_eq!(crate::holders::distinct(&processes.collect::<Vec<_>>()), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_says_of_itself_ends_some_leases_after_it() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LEASE).await;
    let _permit = granted(&store, 1).await;
    let said = format!("semaphore:process:{}", first(&store).await.process.id);
    eventually("it has said so", BOUND, async || {
        raw.keys(&said).await.len() == 1
    })
    .await;
    let ttl = raw.cmd(&["PTTL", &said]).await.int();
    let leases = LEASE.as_millis() as i64;
    assert!((5 * leases..=8 * leases).contains(&ttl), "{ttl}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_and_what_is_no_id_is_not_shown_and_stays_where_it_is() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LEASE).await;
    let _permit = granted(&store, 1).await;
    let now = raw.server_time_ms().await;
    let (ended, later) = ((now - 1).to_string(), (now + 60_000).to_string());
    let dead = "0123456789abcdef.1.5.1.3000";
    raw.cmd(&[
        "ZADD", HELD, &ended, dead, &later, "no id", &later, "\u{fc}:2",
    ])
    .await;
    raw.cmd(&["ZADD", "semaphore:{concurrency:a}:queue", "1", dead])
        .await;
    raw.cmd(&["ZADD", "semaphore:{concurrency:a}:alive", &ended, dead])
        .await;
    let shown = usage(&store).await;
    assert_eq!((shown.held.len(), shown.waiting.len()), (1, 0));
    assert_eq!(raw.zcard(HELD).await, 4, "it was only read");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permit_of_an_older_version_is_shown_and_revoked() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LEASE).await;
    let later = (raw.server_time_ms().await + 60_000).to_string();
    let id = "0123456789abcdef.1a.5.2.60000";
    raw.cmd(&["ZADD", HELD, &later, id, &later, &format!("{id}:2")])
        .await;
    let info = first(&store).await;
    assert_eq!((&*info.id, info.weight, info.limit), (id, 2, 5));
    assert!(super::revoke(&store, id).await);
    assert_eq!(raw.zcard(HELD).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_keys_are_listed_by_their_hash_and_shown_to_those_who_know_them() {
    let (server, _) = started().await;
    let store = store(&server.url(), LEASE).await;
    let long = Key::from("k".repeat(1_000));
    let _permit = store.acquire(claim(1).with_key(long.clone())).await;
    let listed: Vec<_> = store.keys(&Policy::DEFAULT).collect().await;
    let [Ok(StoredKey::Hashed { hash, .. })] = &listed[..] else {
        panic!("{listed:?}");
    };
    assert_eq!(hash.len(), 64);
    let usage = store
        .usage(&Policy::DEFAULT, &long)
        .await
        .expect("it answers");
    assert_eq!(usage.held.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_list_keys_says_so_and_does_all_else() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let user = "ACL SETUSER app on >secret ~* &* +@all -scan";
    raw.cmd(&user.split(' ').collect::<Vec<_>>()).await;
    let url = server.url_of("app:secret");
    let restricted = RedisSemaphore::connect(url).await.expect("it connects");
    let builder = RedisSemaphore::builder();
    let supplied = builder.with_connection(connection(&server.url()).await);
    for store in [restricted, supplied.expect("the settings are right")] {
        let permit = granted(&store, 1).await;
        assert_eq!(usage(&store).await.held.len(), 1);
        let listed: Vec<_> = store.keys(&Policy::DEFAULT).collect().await;
        assert!(matches!(&listed[..], [Err(_)]), "{listed:?}");
        assert!(permit.release().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_among_many_foreign_keys_takes_its_time_and_no_more() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LEASE).await;
    let script = "for key = 1, 100000 do redis.call('SET', 'semaphore:' .. key, '') end";
    raw.cmd(&["EVAL", script, "0"]).await;
    let _permit = granted(&store, 1).await;
    raw.reset_stats().await;
    let (mut found, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = store.keys_page(&Policy::DEFAULT, cursor.as_deref(), Duration::ZERO);
        let page = page.await.expect("it answers").expect("its own cursor");
        (cursor, pages) = (page.next, pages + 1);
        found.extend(page.keys);
        let scans = raw.commandstats().await.get("scan").copied();
        assert_eq!(scans, Some(pages), "a page without time is one call");
        if cursor.is_none() {
            break;
        }
    }
    assert!(pages > 50, "{pages}");
    assert_eq!(found, [StoredKey::whole("a")]);
    let page = store.keys_page(&Policy::DEFAULT, None, BOUND).await;
    let page = page.expect("it answers").expect("no cursor is right");
    assert_eq!(
        (page.keys.len(), page.next),
        (1, None),
        "with enough time it is one page"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_no_page_has_ended_with_is_told_from_a_failure() {
    let (mut server, _) = started().await;
    let store = store(&server.url(), LEASE).await;
    let page = async |cursor| store.keys_page(&Policy::DEFAULT, Some(cursor), BOUND).await;
    for cursor in ["", "a", "1", "-1@", "@", "18446744073709551616@"] {
        assert!(matches!(page(cursor).await, Ok(None)), "{cursor}");
    }
    // A server that is gone is followed by none, as after its last page.
    let gone = page("17@other:1")
        .await
        .expect("it answers")
        .expect("it might be one");
    assert_eq!((gone.keys, gone.next), (Vec::new(), None));
    server.kill();
    assert!(page("0@").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_an_error_of_the_store() {
    let (mut server, _) = started().await;
    let store = store(&server.url(), LEASE).await;
    let permit = granted(&store, 1).await;
    let id = first(&store).await.id;
    server.kill();
    let (policy, key) = (Policy::DEFAULT, "a".into());
    assert!(store.usage(&policy, &key).await.is_err());
    assert!(store.revoke(&policy, &key, &id).await.is_err());
    let listed: Vec<_> = store.keys(&policy).collect().await;
    assert!(matches!(&listed[..], [Err(_)]), "{listed:?}");
    drop(permit);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_that_were_claimed_together_are_shown_in_one_order() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LEASE).await;
    let later = (raw.server_time_ms().await + 60_000).to_string();
    // Of two processes, in one millisecond, under different limits.
    for serial in 1..=8 {
        for process in ["aaaa", "bbbb"] {
            let id = format!("{process}.{serial:x}.{}.1.60000.mbsxmwyz", 20 + serial);
            raw.cmd(&["ZADD", HELD, &later, &id]).await;
        }
    }
    let before = usage(&store).await;
    for _ in 0..20 {
        let now = usage(&store).await;
        assert_eq!(
            (crate::holders::ids(&now.held), now.limit),
            (crate::holders::ids(&before.held), before.limit)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_is_remembered_for_eight_leases_of_any_length() {
    let (server, mut raw) = started().await;
    let lease = Duration::from_secs(20 * 60 * 60);
    let store = store(&server.url(), lease).await;
    let _permit = granted(&store, 1).await;
    assert!(super::revoke(&store, &first(&store).await.id).await);
    let ttl = raw.cmd(&["PTTL", super::ALIVE]).await.int();
    let leases = 8 * lease.as_millis() as i64;
    assert!((leases - 60_000..=leases).contains(&ttl), "{ttl}");
}
