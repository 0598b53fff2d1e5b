//! Operators see the pause of a key.

use super::{
    BOUND, Store, claim, facts_of_operators, granted, keys, queued, usage, wait_for_usage, waiting,
};
use std::time::{Duration, SystemTime};
use testing::wait::eventually;
use tower_semaphore::{
    Policy,
    semaphore::{KeyCounts, StoredKey},
};

facts_of_operators! {
    an_unused_key_is_listed_while_it_is_paused
    a_pause_is_neither_a_waiter_nor_a_permit
    the_pause_of_a_long_key_is_counted_by_its_hash
    a_pause_that_has_ended_is_not_shown
    only_a_longer_pause_replaces_the_shown_one
}

const HOUR: Duration = Duration::from_secs(3_600);

async fn pause(store: &Store, key: &str, time: Duration, note: &str) {
    let paused = store.pause(&Policy::DEFAULT, &key.into(), time, note);
    paused.await.expect("the store answers");
}

async fn resume(store: &Store, key: &str) -> bool {
    let resumed = store.resume(&Policy::DEFAULT, &key.into()).await;
    resumed.expect("the store answers")
}

async fn counts(store: &Store, key: StoredKey) -> KeyCounts {
    let counts = store.counts(&Policy::DEFAULT, &[key]).await;
    counts.expect("the store answers").remove(0)
}

async fn an_unused_key_is_listed_while_it_is_paused(store: Store) {
    let begun = SystemTime::now();
    let note = "ann: 429.5 <&!\u{1f600}";
    pause(&store, "a", HOUR, note).await;
    let usage = usage(&store, "a").await;
    assert!(usage.held.is_empty() && usage.waiting.is_empty());
    assert_eq!((usage.units, usage.limit), (0, None));
    let info = usage.pause.clone().expect("it is paused");
    assert_eq!(info.note.as_deref(), Some(note));
    assert_eq!(info.until, info.since + HOUR);
    // Both clocks belong to this machine.
    let around = begun - Duration::from_secs(2)..SystemTime::now() + Duration::from_secs(2);
    assert!(
        around.contains(&info.since) && info.since <= usage.now,
        "{usage:?}"
    );
    let json = usage.to_json();
    assert!(
        json.contains(r#""note":"ann: 429.5 \u003c\u0026!"#),
        "{json}"
    );

    let key = StoredKey::whole("a");
    let listed = keys(&store, &Policy::DEFAULT).await;
    assert_eq!(listed, std::slice::from_ref(&key));
    let mut expected = KeyCounts::new(key.clone(), 0, 0);
    expected.pause = Some(info);
    assert_eq!(counts(&store, key.clone()).await, expected);

    assert!(resume(&store, "a").await);
    assert_eq!(counts(&store, key.clone()).await, KeyCounts::new(key, 0, 0));
    assert_eq!(keys(&store, &Policy::DEFAULT).await, []);
    assert!(!resume(&store, "a").await);
}

async fn a_pause_is_neither_a_waiter_nor_a_permit(store: Store) {
    let _permit = granted(&store, &claim("a", 5)).await;
    pause(&store, "a", HOUR, "").await;
    let mut waiters = Vec::new();
    for before in 0..3 {
        let claim = waiting("a", 5)
            .with_wait(2 * HOUR)
            .with_flow(format!("flow {}", before % 2));
        waiters.push(queued(&store, claim, before).await.0);
    }
    let shown = usage(&store, "a").await;
    assert_eq!(
        (shown.units, shown.held.len(), shown.waiting.len()),
        (1, 1, 3)
    );
    let pause = shown.pause.expect("it is paused");
    assert_eq!(pause.note, None);
    let counted = counts(&store, StoredKey::whole("a")).await;
    assert_eq!((counted.units, counted.waiting), (1, 3));
    assert_eq!(counted.pause, Some(pause));
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn the_pause_of_a_long_key_is_counted_by_its_hash(store: Store) {
    let long = "k".repeat(100);
    pause(&store, &long, HOUR, "long").await;
    let listed = keys(&store, &Policy::DEFAULT).await;
    let [hashed @ StoredKey::Hashed { .. }] = &listed[..] else {
        panic!("one hash: {listed:?}");
    };
    let counted = counts(&store, hashed.clone()).await;
    assert_eq!(counted.pause, usage(&store, &*long).await.pause);
    assert!(counted.pause.is_some());
}

async fn a_pause_that_has_ended_is_not_shown(store: Store) {
    pause(&store, "a", Duration::from_millis(300), "short").await;
    let _permit = granted(&store, &claim("b", 1)).await;
    wait_for_usage(&store, "a", "it is over", |usage| usage.pause.is_none()).await;
    let counted = counts(&store, StoredKey::whole("a")).await;
    assert_eq!((counted.waiting, counted.pause), (0, None));
    eventually("it is not listed", BOUND, async || {
        keys(&store, &Policy::DEFAULT).await == [StoredKey::whole("b")]
    })
    .await;
    // Pauses are counted in whole milliseconds.
    pause(&store, "a", Duration::from_micros(999), "none").await;
    assert_eq!(usage(&store, "a").await.pause, None);
}

async fn only_a_longer_pause_replaces_the_shown_one(store: Store) {
    pause(&store, "a", HOUR, "first").await;
    let first = usage(&store, "a").await.pause;
    pause(&store, "a", HOUR / 2, "shorter").await;
    assert_eq!(usage(&store, "a").await.pause, first);
    pause(&store, "a", 2 * HOUR, "longer").await;
    let longer = usage(&store, "a").await.pause.expect("it is paused");
    assert_eq!(longer.note.as_deref(), Some("longer"));
    assert_eq!(longer.until, longer.since + 2 * HOUR);
    let counted = counts(&store, StoredKey::whole("a")).await;
    assert_eq!((counted.waiting, counted.pause), (0, Some(longer)));
}
