//! The table in the docs lists exactly the exposed metrics.
//!
//! Promises: P25.

use super::exposition::{all, install};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::read_to_string,
    path::Path,
    time::Duration,
};
use tower_semaphore::{
    Claim, ConcurrencyLimit, ConcurrencyLimitLayer, MemorySemaphore, Semaphore,
    observe::{SECONDS, SIZES},
};
#[cfg(feature = "redis")]
use {
    testing::{redis::RedisServer, wait::eventually},
    tower_semaphore::{Claims, Operate, Policy, RedisSemaphore},
};

/// Metric names, each with its labels.
type Table = BTreeMap<String, BTreeSet<String>>;

/// The rows of the module's docs, with the names that Prometheus' recommended naming gives them.
fn documented() -> Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/observe/mod.rs");
    let text = read_to_string(path).expect("the docs are text");
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `tower_semaphore."));
    rows.map(|row| {
        let columns: Vec<_> = row.split('|').map(str::trim).collect();
        let suffix = match (columns[1], columns[2]) {
            ("counter", _) => "_total",
            (_, "seconds") => "_seconds",
            _ => "",
        };
        let name = columns[0].trim_end_matches('`').replace('.', "_");
        let labels = columns[3]
            .split(", ")
            .map(|label| label.trim_matches('`').to_owned());
        (format!("tower_semaphore_{name}{suffix}"), labels.collect())
    })
    .collect()
}

fn exposed() -> Table {
    let mut table = Table::new();
    for mut series in all() {
        series.labels.remove("le");
        let parts = ["_bucket", "_sum", "_count"];
        let name = parts.iter().find_map(|part| series.name.strip_suffix(part));
        let name = name.unwrap_or(&series.name).to_owned();
        table
            .entry(name)
            .or_default()
            .extend(series.labels.into_keys());
    }
    table
}

/// Uses the layers and stores so that every metric is counted.
async fn count_every_metric() {
    install();
    let inner = tower::service_fn(async |_: http::Request<String>| {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    });
    let claim = |_: &http::request::Parts| Claim::new("a").with_policy("table");
    let service = ConcurrencyLimit::new(inner, 1, claim, MemorySemaphore::new());
    drop(tower::ServiceExt::oneshot(service, http::Request::new(String::new())).await);
    let budget = Claim::new("a").with_limit(1).with_policy("table");
    let budget = budget.with_window(Duration::from_secs(60));
    drop(MemorySemaphore::new().acquire(budget).await);
    // A limit of 0 in shadow admits too.
    let claim = |_: &http::request::Parts| Claim::new("a").with_policy("table");
    let layer = ConcurrencyLimitLayer::new(0, claim, MemorySemaphore::new()).with_shadow(true);
    let service = tower::Layer::layer(&layer, inner);
    drop(tower::ServiceExt::oneshot(service, http::Request::new(String::new())).await);
    #[cfg(feature = "redis")]
    {
        let server = RedisServer::start();
        let store = RedisSemaphore::connect(server.url()).await;
        let claim = Claim::new("a").with_limit(1).with_policy("table");
        let permit = store.expect("it connects").acquire(claim).await;
        assert!(permit.expect("there is room").release().await);
    }
}

#[tokio::test]
async fn the_docs_list_each_name_with_its_labels() {
    count_every_metric().await;
    let (mut documented, exposed) = (documented(), exposed());
    if cfg!(not(feature = "redis")) {
        documented.retain(|name, _| exposed.contains_key(name));
    }
    assert_eq!(exposed, documented);
    // The table was found.
    assert!(documented.len() >= 8);
}

/// The verbs of calls to Redis that the docs list.
#[cfg(feature = "redis")]
fn documented_verbs() -> BTreeSet<String> {
    let docs = include_str!("../../../src/observe/mod.rs");
    let (_, list) = docs.split_once("- `verb` is").expect("the list");
    let (list, _) = list.split_once("//! - ").expect("its end");
    list.split('`').skip(1).step_by(2).map(Into::into).collect()
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn the_docs_list_each_verb() {
    const BOUND: Duration = Duration::from_secs(20);
    install();
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url()).await;
    let store = store.expect("it connects");
    let claim = |key: &'static str| Claim::new(key).with_limit(1).with_policy("verbs");
    let several: Claims = [claim("a"), claim("b")].into();
    // Held so that the store sends refreshes.
    let _permit = store.acquire_all(several).await.expect("there is room");
    let (policy, key) = (Policy::from("verbs"), "a".into());
    eventually("every verb was called", BOUND, async || {
        drop(store.acquire(claim("c")).await);
        store.usage(&policy, &key).await.expect("an answer");
        let revoked = store.revoke(&policy, &key, "aaaa.1.0.0.1.1.rs.0...");
        assert!(!revoked.await.expect("an answer"));
        let set = store.set_limit(&policy, Some(&key), None, "");
        set.await.expect("an answer");
        assert!(!store.resume(&policy, &key).await.expect("an answer"));
        exposed_verbs().is_superset(&documented_verbs())
    })
    .await;
    assert_eq!(exposed_verbs(), documented_verbs());
}

#[cfg(feature = "redis")]
fn exposed_verbs() -> BTreeSet<String> {
    let verbs = all()
        .into_iter()
        .filter_map(|mut series| series.labels.remove("verb"));
    verbs.collect()
}

#[tokio::test]
async fn buckets_reach_from_a_tenth_of_a_millisecond_to_an_hour() {
    count_every_metric().await;
    let bounds_of = |name: &str| -> BTreeSet<String> {
        let series = all().into_iter().filter(|series| series.name == name);
        series
            .map(|mut series| series.labels.remove("le").expect("a bucket"))
            .collect()
    };
    let seconds = bounds_of("tower_semaphore_permit_duration_seconds_bucket");
    assert!(
        seconds.contains("0.0001") && seconds.contains("3600"),
        "{seconds:?}"
    );
    assert_eq!(seconds.len(), SECONDS.len() + 1);
    if cfg!(feature = "redis") {
        let sizes = bounds_of("tower_semaphore_store_call_size_bucket");
        assert_eq!(sizes.len(), SIZES.len() + 1);
    }
    let all: [&[f64]; 2] = [SECONDS, SIZES];
    assert!(all.iter().all(|buckets| buckets.is_sorted()));
}

#[tokio::test]
async fn a_key_is_no_label() {
    install();
    let claim = Claim::new("secret-account")
        .with_limit(1)
        .with_policy("no key");
    drop(MemorySemaphore::new().acquire(claim).await);
    let has_key = |value: &String| value.contains("secret-account");
    assert!(
        !all()
            .iter()
            .any(|series| series.labels.values().any(has_key))
    );
}
