//! Forged ids, judged by what the server has.

use super::{LEASE, claim, granted, listens, revoke, started, store, usage};
use crate::holders::{BOUND, forged::forged};
use std::{collections::BTreeMap, mem, time::Duration};
use testing::{
    resp::{Raw, Reply},
    wait::eventually,
};
use tokio::time::sleep;
use tower_semaphore::Semaphore;

/// All that the server has, byte for byte; ends of leases aside, which refreshes move.
async fn dump(raw: &mut Raw) -> BTreeMap<Vec<u8>, String> {
    let mut all = BTreeMap::new();
    for key in raw.keys("semaphore:{*").await {
        let dump = raw.cmd(&[b"DUMP", &key[..]]).await;
        all.insert(key, format!("{dump:?}"));
    }
    all
}

/// Nothing is refreshed, and no waiter polls, for longer than the test takes.
const LONG: Duration = Duration::from_secs(1_000);

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_id_changes_no_byte_and_sends_no_message() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LONG).await;
    let labelled = claim(3).with_label("a:2.b+~%");
    let permits = [
        store.acquire(labelled).await.expect("there is room"),
        granted(&store, 4).await,
    ];
    permits[1].resize(6).await.expect("there is room");
    let waiter = tokio::spawn(store.acquire(claim(1).with_wait(LONG)));
    eventually("it waits", BOUND, async || {
        usage(&store).await.waiting.len() == 1
    })
    .await;
    let shown = usage(&store).await;
    listens(&mut raw, &shown.held[0].process.id).await;
    let mut messages = Raw::connect(server.port()).await;
    messages.cmd(&["PSUBSCRIBE", "*"]).await;

    // The waiter polls once more because its process listens now.
    let mut before = dump(&mut raw).await;
    eventually("nothing moves any more", BOUND, async || {
        sleep(Duration::from_millis(200)).await;
        let now = dump(&mut raw).await;
        mem::replace(&mut before, now) == before
    })
    .await;
    assert!(before.len() >= 3, "{before:?}");
    for info in shown.held.iter().chain(&shown.waiting) {
        for forged in forged(&info.id).into_iter().step_by(3) {
            assert!(!revoke(&store, &forged).await, "{forged:?}");
        }
        // The id of a unit is none of a permit.
        for unit in 1..=info.weight {
            assert!(!revoke(&store, &format!("{}:{unit}", info.id)).await);
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
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LEASE).await;
    let later = (raw.server_time_ms().await + 600_000).to_string();
    let members = [
        "a",
        "x:2",
        "*",
        "p.1.5.99999999.1000",
        "p.1.5.1.1000.a.%41",
        "revoked:p.1",
    ];
    for member in members {
        raw.cmd(&["ZADD", super::HELD, &later, member]).await;
    }
    for member in members {
        assert!(!revoke(&store, member).await, "{member}");
    }
    assert_eq!(raw.zcard(super::HELD).await, members.len());
}
