//! `GET /metrics`, and the dashboard that reads it.
//!
//! Promises: P25.

use crate::{
    client::{ENDLESS, streams},
    process::Market,
    soon,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::read_to_string,
    path::Path,
    time::{Duration, Instant},
};

const WAIT: Duration = Duration::from_millis(300);

/// The labels and values of each series, by the metric's name.
type Exposed = BTreeMap<String, Vec<BTreeMap<String, String>>>;

/// The metrics in a query, each with the labels that filter it, and all labels that the query groups by.
#[derive(Default)]
struct Query {
    metrics: Vec<(String, Vec<(String, String)>)>,
    groups: BTreeSet<String>,
}

impl Query {
    /// Parses the subset of PromQL that these queries use.
    fn read(query: &str) -> Self {
        let mut read = Self::default();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut rest = query;
        while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || "[(".contains(c)) {
            rest = &rest[start..];
            if rest.starts_with('[') {
                rest = &rest[rest.find(']').expect("a range ends")..];
                continue;
            }
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end.max(1));
            rest = after;
            let after = after.trim_start();
            if word == "by" {
                let (labels, _) = after[1..].split_once(')').expect("a group ends");
                read.groups
                    .extend(labels.split(',').map(|label| label.trim().to_owned()));
                rest = &after[labels.len()..];
            } else if let Some(filters) = after.strip_prefix('{') {
                let (filters, after) = filters.split_once('}').expect("filters end");
                read.metrics.push((word.to_owned(), labels(filters)));
                rest = after;
            } else if word.starts_with("tower_semaphore") {
                read.metrics.push((word.to_owned(), Vec::new()));
            }
        }
        read
    }
}

/// The labels of `name="value", …`, whatever comparison operator is used.
fn labels(text: &str) -> Vec<(String, String)> {
    let labels = text.split("\",").filter(|label| !label.trim().is_empty());
    let label = |label: &str| {
        let (name, value) = label.split_once('"').expect("a value");
        let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        (name.to_owned(), value.trim_end_matches('"').to_owned())
    };
    labels.map(label).collect()
}

fn exposed(text: &str) -> Exposed {
    let mut exposed = Exposed::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, own) = series.split_once('{').unwrap_or((series, ""));
        let own = labels(own.trim_end_matches('}')).into_iter().collect();
        exposed.entry(name.to_owned()).or_default().push(own);
    }
    exposed
}

/// All queries of the dashboard: those of its panels, with the labels in their legends, and that of its variable.
fn queries() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/market/grafana.json");
    let text = read_to_string(path).expect("it is there");
    let dashboard: Value = serde_json::from_str(&text).expect("it is JSON");
    let list = |value: &Value| value.as_array().cloned().expect("a list");
    let targets = list(&dashboard["panels"])
        .into_iter()
        .flat_map(|panel| list(&panel["targets"]));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut queries: Vec<_> = targets
        .map(|target| (text(&target["expr"]), text(&target["legendFormat"])))
        .collect();
    let variable = &dashboard["templating"]["list"][1]["query"]["query"];
    let variable = text(variable);
    let inside = variable
        .trim_start_matches("label_values(")
        .trim_end_matches(')');
    let (metric, label) = inside.split_once(", ").expect("a metric and a label");
    queries.push((
        format!("sum by ({label}) ({metric})"),
        format!("{{{{{label}}}}}"),
    ));
    queries
}

/// Asserts that a query's metrics and labels exist.
fn assert_finds(query: &str, legend: &str, exposed: &Exposed) {
    let read = Query::read(query);
    assert!(!read.metrics.is_empty(), "{query}");
    for (metric, filters) in &read.metrics {
        let found = exposed
            .get(metric)
            .unwrap_or_else(|| panic!("{metric} of {query}"));
        for label in filters.iter().map(|(label, _)| label).chain(&read.groups) {
            let all = found.iter().all(|series| series.contains_key(label));
            assert!(all, "{metric} has no label {label}: {query}");
        }
        for (label, value) in filters.iter().filter(|(_, value)| !value.contains('$')) {
            for value in value.split('|') {
                let any = found.iter().any(|series| series[label] == value);
                assert!(any, "no {metric} has the {label} {value}: {query}");
            }
        }
    }
    let legend = legend
        .split("{{")
        .skip(1)
        .filter_map(|label| label.split_once("}}"));
    for (label, _) in legend {
        assert!(
            read.groups.contains(label),
            "{label} is in no group: {query}"
        );
    }
}

/// Creates load: streams that hold permits, a wait that times out, a wait that is granted, and trades under a lock.
async fn load(market: &Market) {
    let ann = market.client("ann");
    let mut held = streams(&ann, 2).await;
    let start = Instant::now();
    assert_eq!(ann.get(ENDLESS).await.status(), 429);
    assert!(start.elapsed() >= WAIT, "refused before its wait was over");
    let waiting = tokio::spawn(async move { ann.get("/market").await.status() });
    held.pop();
    assert_eq!(waiting.await.expect("it was answered"), 200);
    let bob = market.client("bob");
    let listed = bob.list("bob-1", 10).await.json().await;
    let id = listed["id"].as_str().expect("an id").to_owned();
    assert_eq!(market.client("cid").purchase(&id).await.status(), 200);
}

async fn shown(settings: &[(&str, &str)]) -> Exposed {
    let wait = WAIT.as_millis().to_string();
    let settings = [&[("LIMIT", "2"), ("WAIT_MS", &*wait)], settings].concat();
    let market = Market::start(&settings).await;
    load(&market).await;
    let answer = soon("the metrics", market.nobody().get("/metrics")).await;
    assert_eq!(answer.status(), 200);
    assert!(
        answer
            .header("content-type")
            .starts_with("text/plain; version=0.0.4")
    );
    exposed(&answer.text().await)
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn each_query_of_the_dashboard_finds_what_it_asks_for() {
    let server = testing::redis::RedisServer::start();
    let exposed = shown(&[("REDIS_URL", &*server.url())]).await;
    let queries = queries();
    assert!(queries.len() > 12);
    for (query, legend) in &queries {
        assert_finds(query, legend, &exposed);
    }
    // The dashboard shows every exposed metric, except the sums of times.
    let read: BTreeSet<_> = queries
        .iter()
        .flat_map(|(query, _)| Query::read(query).metrics)
        .map(|(metric, _)| metric)
        .collect();
    let is_shown = |name: &String| {
        read.iter()
            .any(|read| read.starts_with(name.trim_end_matches("_sum").trim_end_matches("_count")))
    };
    let missing: Vec<_> = exposed.keys().filter(|name| !is_shown(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn a_market_in_memory_counts_under_the_policies_of_its_limits() {
    let exposed = shown(&[]).await;
    let policies: BTreeSet<_> = exposed["tower_semaphore_active_permits"]
        .iter()
        .map(|series| (series["store"].as_str(), series["policy"].as_str()))
        .collect();
    let expected = [("memory", "concurrency"), ("memory", "fleet")];
    assert_eq!(policies, expected.into());
}

#[test]
fn a_query_is_read() {
    let read = Query::read(
        "histogram_quantile(0.5, sum by (le, verb) (rate(tower_semaphore_a_bucket{x=\"y\", z!=\"1\"}[$__rate_interval]))) / tower_semaphore_b",
    );
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let first = (
        "tower_semaphore_a_bucket".to_owned(),
        vec![label("x", "y"), label("z", "1")],
    );
    let second = ("tower_semaphore_b".to_owned(), Vec::new());
    assert_eq!(read.metrics, [first, second]);
    assert_eq!(read.groups, ["le".to_owned(), "verb".to_owned()].into());
}

/// A request that is admitted under several limits counts only under its narrowest policy.
#[test]
fn a_share_of_each_policy_is_of_its_claims() {
    let guide = include_str!("../../src/guide/operate.rs");
    let guide = guide.replace("\n//!   / ", " / ");
    let lines = guide.lines().map(str::to_owned);
    let all = queries().into_iter().map(|(query, _)| query).chain(lines);
    let is_share = |query: &String| query.contains(") / sum by (policy) (");
    let shares: Vec<_> = all.filter(is_share).collect();
    assert!(shares.len() >= 2, "{shares:?}");
    for query in shares {
        assert!(query.contains("_claims_total"), "{query}");
        assert!(!query.contains("_requests_total"), "{query}");
    }
}
