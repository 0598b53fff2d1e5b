//! The usage of permits, waiting claims and keys.

use super::{
    Store, Usage, answer, claim, distinct, facts_of_operators, granted, ids, keys, queued, usage,
    wait_for_usage, waiting,
};
use futures_util::{StreamExt, future::join_all, stream};
use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};
use tokio::task::JoinHandle;
use tower_semaphore::{
    Key, Policy, Semaphore,
    semaphore::{MAX_LABEL, StoredKey},
};

facts_of_operators! {
    nothing_is_shown_of_an_unused_key
    a_permit_is_shown_with_its_weight_label_process_and_times
    usage_shows_the_limit_of_the_last_claim
    permits_of_one_moment_are_always_shown_in_the_same_order
    waiters_are_shown_in_the_order_of_the_queue
    waiters_are_shown_with_their_flows_in_the_order_in_which_they_are_served
    a_waiter_keeps_its_id_when_it_is_granted
    a_permit_that_changes_its_weight_is_one_holder
    a_released_permit_is_not_shown
    labels_of_any_text_are_shown_as_they_are
    a_permit_of_several_limits_is_shown_at_each
    keys_of_any_bytes_are_listed_once
    reading_usage_changes_nothing
}

async fn nothing_is_shown_of_an_unused_key(store: Store) {
    let usage = usage(&store, "a").await;
    assert_eq!((usage.limit, usage.units), (None, 0));
    assert!(usage.held.is_empty() && usage.waiting.is_empty());
    assert_eq!(keys(&store, &Policy::DEFAULT).await, []);
}

async fn a_permit_is_shown_with_its_weight_label_process_and_times(store: Store) {
    let heavy = claim("a", 5).with_weight(3).with_label("GET /export");
    let begun = SystemTime::now();
    let _permits = [
        granted(&store, &heavy).await,
        granted(&store, &claim("a", 5)).await,
    ];
    let usage = wait_for_usage(&store, "a", "the process is known", |usage| {
        usage.held.iter().all(|info| info.process.pid.is_some())
    })
    .await;
    assert_eq!((usage.limit, usage.units), (Some(5), 4));
    let [export, other] = &usage.held[..] else {
        panic!("two permits: {usage:?}");
    };
    assert_eq!((export.weight, export.limit, other.weight), (3, 5, 1));
    assert_eq!(
        (export.label.as_deref(), &other.label),
        (Some("GET /export"), &None)
    );
    assert_eq!(export.process.pid, Some(std::process::id()));
    assert_eq!(export.process, other.process);
    let name = export.process.name.as_deref().expect("a name");
    assert!(name.starts_with("operate"), "{name}");
    assert_eq!(distinct(&ids(&usage.held)), 2);
    // Both clocks belong to this machine, and the store's clock may be an estimate.
    let around = begun - Duration::from_secs(2)..SystemTime::now() + Duration::from_secs(2);
    assert!(around.contains(&export.since), "{usage:?}");
    assert!(export.since <= other.since && other.since <= usage.now);
    assert!(export.ends.is_none_or(|ends| ends > usage.now));
}

async fn usage_shows_the_limit_of_the_last_claim(store: Store) {
    let _first = granted(&store, &claim("a", 5)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let second = granted(&store, &claim("a", 9)).await;
    assert_eq!(usage(&store, "a").await.limit, Some(9));
    drop(second);
    wait_for_usage(&store, "a", "the first alone", |usage| {
        usage.limit == Some(5)
    })
    .await;
}

async fn permits_of_one_moment_are_always_shown_in_the_same_order(store: Store) {
    let claims = (0..30).map(|_| store.acquire(claim("a", 30)));
    let permits = join_all(claims).await;
    assert!(permits.iter().all(Result::is_ok));
    let first = usage(&store, "a").await;
    assert_eq!(first.held.len(), 30);
    for _ in 0..20 {
        let again = usage(&store, "a").await;
        assert_eq!(ids(&again.held), ids(&first.held));
    }
}

async fn waiters_are_shown_in_the_order_of_the_queue(store: Store) {
    let permit = granted(&store, &waiting("a", 1)).await;
    let mut waiters = Vec::new();
    for (at, head_start) in [0, 0, 60].into_iter().enumerate() {
        let claim = waiting("a", 1).with_label(format!("waiter {at}"));
        let claim = claim.with_head_start(Duration::from_secs(head_start));
        waiters.push(queued(&store, claim, at).await.0);
    }
    let usage = usage(&store, "a").await;
    let labels = usage
        .waiting
        .iter()
        .filter_map(|info| info.label.as_deref());
    let labels: Vec<_> = labels.collect();
    assert_eq!(labels, ["waiter 2", "waiter 0", "waiter 1"]);
    assert_eq!((usage.units, usage.held.len()), (1, 1));
    drop(permit);
    let next = answer(waiters.remove(2)).await.expect("a permit");
    let usage = wait_for_usage(&store, "a", "it has left", |usage| usage.waiting.len() == 2).await;
    assert_eq!(usage.held[0].label.as_deref(), Some("waiter 2"));
    waiters.iter().for_each(JoinHandle::abort);
    drop(next);
}

async fn waiters_are_shown_with_their_flows_in_the_order_in_which_they_are_served(store: Store) {
    let permit = granted(&store, &waiting("a", 1).with_flow("ann")).await;
    let mut waiters = Vec::new();
    let long = "x".repeat(100);
    for (at, flow) in ["ann", "ann", "b.o:b ~_1_", &long].into_iter().enumerate() {
        let claim = waiting("a", 1).with_flow(flow).with_label("GET /");
        waiters.push(queued(&store, claim, at).await.0);
    }
    let usage = usage(&store, "a").await;
    let flow = |at: usize| usage.waiting[at].flow.clone().expect("it has a flow");
    assert_eq!(usage.held[0].flow, Some(StoredKey::whole("ann")));
    // Flows take turns, so Ann's second claim is the last. The long flow has the third turn.
    let flows = ["ann", "b.o:b ~_1_"].map(StoredKey::whole);
    assert_eq!(
        [flow(0), flow(1), flow(3)],
        [flows[0].clone(), flows[1].clone(), flows[0].clone()]
    );
    let is_long =
        matches!(flow(2), StoredKey::Hashed { .. }) || flow(2) == StoredKey::whole(&*long);
    assert!(is_long, "{:?}", flow(2));
    assert!(
        usage
            .waiting
            .iter()
            .all(|info| info.label.as_deref() == Some("GET /"))
    );
    let json = usage.to_json();
    let shown = json.matches(r#""flow":"ann""#).count();
    assert_eq!(
        (shown, json.matches(r#""flow":"b.o:b ~_1_""#).count()),
        (3, 1),
        "{json}"
    );
    drop(permit);
    for at in [0, 1] {
        let next = answer(waiters.remove(at)).await.expect("a permit");
        assert!(next.release().await);
    }
    waiters.iter().for_each(JoinHandle::abort);
}

async fn a_waiter_keeps_its_id_when_it_is_granted(store: Store) {
    let permit = granted(&store, &claim("a", 1)).await;
    let (waiter, info) = queued(&store, waiting("a", 1), 0).await;
    drop(permit);
    let _granted = answer(waiter).await.expect("a permit");
    let is_it = |usage: &Usage| ids(&usage.held) == [&*info.id];
    wait_for_usage(&store, "a", "it holds", is_it).await;
}

async fn a_permit_that_changes_its_weight_is_one_holder(store: Store) {
    let permit = granted(&store, &claim("a", 9).with_weight(4).with_label("job")).await;
    let id = usage(&store, "a").await.held[0].id.clone();
    for weight in [2, 3, 9, 1, 4, 5, 3] {
        permit.resize(weight).await.expect("there is room");
        let usage = wait_for_usage(&store, "a", "its weight", |usage| usage.units == weight).await;
        let [info] = &usage.held[..] else {
            panic!("one permit: {usage:?}");
        };
        assert_eq!((info.weight, &*info.id), (weight, &*id));
        assert_eq!(info.label.as_deref(), Some("job"));
    }
}

async fn a_released_permit_is_not_shown(store: Store) {
    let permits = [
        granted(&store, &claim("a", 5)).await,
        granted(&store, &claim("a", 5)).await,
    ];
    assert_eq!(usage(&store, "a").await.held.len(), 2);
    let [first, second] = permits;
    assert!(first.release().await);
    assert_eq!(usage(&store, "a").await.held.len(), 1);
    drop((first, second));
    wait_for_usage(&store, "a", "all are free", |usage| {
        usage.units == 0 && usage.held.is_empty()
    })
    .await;
}

async fn labels_of_any_text_are_shown_as_they_are(store: Store) {
    let longest = "é".repeat(MAX_LABEL / 2);
    let texts =
        "a.b:c|%|%%1 %d|+17|x:2|a b|}{|*?[a]|\0\r\n|日本語|0|-|~|…|\"'\\|1.2.3.4.5:6|\u{1f600}";
    for text in texts.split('|').chain([&*longest]) {
        let heavy = claim("a", 3).with_weight(3).with_label(text.to_owned());
        let permit = granted(&store, &heavy).await;
        let usage = usage(&store, "a").await;
        let labels = usage.held.iter().map(|info| info.label.as_deref());
        let labels: Vec<_> = labels.collect();
        assert_eq!((labels, usage.units), (vec![Some(text)], 3));
        assert!(permit.release().await);
    }
    let too_long = claim("a", 3).with_label("é".repeat(MAX_LABEL));
    let _permit = granted(&store, &too_long).await;
    assert_eq!(usage(&store, "a").await.held[0].label, Some(longest));
}

async fn a_permit_of_several_limits_is_shown_at_each(store: Store) {
    let both = [
        claim("a", 5).with_label("narrow"),
        claim("all", 9).with_policy("fleet").with_label("wide"),
    ];
    let permit = store.acquire_all(both.into()).await.expect("there is room");
    let narrow = usage(&store, "a").await;
    let wide = store
        .usage(&"fleet".into(), &"all".into())
        .await
        .expect("it answers");
    assert_eq!((narrow.limit, wide.limit), (Some(5), Some(9)));
    assert_eq!(narrow.held[0].label.as_deref(), Some("narrow"));
    assert_eq!(wide.held[0].label.as_deref(), Some("wide"));
    drop(permit);
    wait_for_usage(&store, "a", "it is free", |usage| usage.units == 0).await;
}

async fn keys_of_any_bytes_are_listed_once(store: Store) {
    let odd = b"a|a:held|}|{a}|*|\xff\0|%41|[a]|#|concurrency:a".split(|byte| *byte == b'|');
    let odd = odd.map(Key::from);
    let keys_in: HashSet<Key> = odd.chain((0..500).map(Key::from)).collect();
    let claims = keys_in.iter().map(|key| claim(key.clone(), 2));
    let acquires = claims.map(|claim| store.acquire(claim));
    let permits: Vec<_> = stream::iter(acquires).buffer_unordered(50).collect().await;
    assert!(permits.iter().all(Result::is_ok));
    let other = store
        .acquire(claim("other", 1).with_policy("concurrency:a"))
        .await;

    let listed = keys(&store, &Policy::DEFAULT).await;
    let whole = listed.into_iter().map(|key| match key {
        StoredKey::Whole { key, .. } => key,
        other => panic!("{other:?} is short"),
    });
    let whole: Vec<Key> = whole.collect();
    assert_eq!(whole.len(), keys_in.len(), "each once");
    assert_eq!(whole.into_iter().collect::<HashSet<_>>(), keys_in);
    let of_other = keys(&store, &"concurrency:a".into()).await;
    assert_eq!(of_other, [StoredKey::whole("other")]);
    drop(other);
}

async fn reading_usage_changes_nothing(store: Store) {
    let _held = granted(&store, &claim("a", 1)).await;
    let (waiter, _) = queued(&store, waiting("a", 1), 0).await;
    let before = usage(&store, "a").await;
    for _ in 0..20 {
        let now = usage(&store, "a").await;
        assert_eq!(ids(&now.held), ids(&before.held));
        assert_eq!(ids(&now.waiting), ids(&before.waiting));
        assert!(store.acquire(claim("a", 1)).await.is_err());
    }
    waiter.abort();
}
