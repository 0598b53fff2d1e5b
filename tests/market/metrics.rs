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

/// The longest time that a request may wait for a permit.
const WAIT: Duration = Duration::from_millis(300);

/// The labels and values of each series, by the metric's name.
type Exposed = BTreeMap<String, Vec<BTreeMap<String, String>>>;

/// The parts of a query that must match the exposed metrics.
#[derive(Default)]
struct Query {
    /// Each metric's name, with the names and values of the labels that filter it.
    metrics: Vec<(String, Vec<(String, String)>)>,
    /// The labels that the query groups by.
    groups: BTreeSet<String>,
}

impl Query {
    /// Parses the subset of PromQL that the dashboard uses.
    fn parse(query: &str) -> Self {
        let mut parsed = Self::default();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut rest = query;
        while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || "[(".contains(c)) {
            rest = &rest[start..];
            // A range, such as `[5m]`.
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
                parsed
                    .groups
                    .extend(labels.split(',').map(|label| label.trim().to_owned()));
                rest = &after[labels.len()..];
            } else if let Some(filters) = after.strip_prefix('{') {
                let (filters, after) = filters.split_once('}').expect("filters end");
                parsed.metrics.push((word.to_owned(), labels(filters)));
                rest = after;
            } else if word.starts_with("tower_semaphore") {
                parsed.metrics.push((word.to_owned(), Vec::new()));
            }
        }
        parsed
    }
}

/// The labels of `name="value", …`. The comparison operator may also be `!=`, `=~` or `!~`.
fn labels(text: &str) -> Vec<(String, String)> {
    let labels = text.split("\",").filter(|label| !label.trim().is_empty());
    let label = |label: &str| {
        let (name, value) = label.split_once('"').expect("a value");
        let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        (name.to_owned(), value.trim_end_matches('"').to_owned())
    };
    labels.map(label).collect()
}

/// Parses the response of `GET /metrics`.
fn parse_exposed(text: &str) -> Exposed {
    let mut exposed = Exposed::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels_text) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels(labels_text.trim_end_matches('}'))
            .into_iter()
            .collect();
        exposed.entry(name.to_owned()).or_default().push(labels);
    }
    exposed
}

/// Each query of the dashboard's panels with its legend, and the query of the variable `policy`.
fn queries() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/market/grafana.json");
    let text = read_to_string(path).expect("it is there");
    let dashboard: Value = serde_json::from_str(&text).expect("it is JSON");
    let list = |value: &Value| value.as_array().cloned().expect("a list");
    let targets = list(&dashboard["panels"])
        .into_iter()
        .flat_map(|panel| list(&panel["targets"]));
    let string = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut queries: Vec<_> = targets
        .map(|target| (string(&target["expr"]), string(&target["legendFormat"])))
        .collect();
    // The first variable is the data source, and the second is `policy`.
    let variable = &dashboard["templating"]["list"][1]["query"]["query"];
    let variable = string(variable);
    let inside = variable
        .trim_start_matches("label_values(")
        .trim_end_matches(')');
    let (metric, label) = inside.split_once(", ").expect("a metric and a label");
    // In the form of a panel's query and its legend, `{{policy}}`, so that it is checked in the same way.
    queries.push((
        format!("sum by ({label}) ({metric})"),
        format!("{{{{{label}}}}}"),
    ));
    queries
}

/// Asserts that the metrics and labels of a query exist, and that its legend shows only labels by which it groups.
fn assert_finds(query: &str, legend: &str, exposed: &Exposed) {
    let parsed = Query::parse(query);
    assert!(!parsed.metrics.is_empty(), "{query}");
    for (metric, filters) in &parsed.metrics {
        let found = exposed
            .get(metric)
            .unwrap_or_else(|| panic!("{metric} of {query}"));
        for label in filters.iter().map(|(label, _)| label).chain(&parsed.groups) {
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
            parsed.groups.contains(label),
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

/// The metrics of a market with these settings after some load.
async fn exposed(settings: &[(&str, &str)]) -> Exposed {
    let wait = WAIT.as_millis().to_string();
    let settings = [&[("LIMIT", "2"), ("WAIT_MS", &*wait)], settings].concat();
    let market = Market::start(&settings).await;
    load(&market).await;
    let answer = soon("the metrics", market.anonymous_client().get("/metrics")).await;
    assert_eq!(answer.status(), 200);
    assert!(
        answer
            .header("content-type")
            .starts_with("text/plain; version=0.0.4")
    );
    parse_exposed(&answer.text().await)
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn each_query_of_the_dashboard_finds_its_metrics_and_labels() {
    let server = testing::redis::RedisServer::start();
    let exposed = exposed(&[("REDIS_URL", &*server.url())]).await;
    let queries = queries();
    assert!(queries.len() > 12, "too few were found: {queries:?}");
    for (query, legend) in &queries {
        assert_finds(query, legend, &exposed);
    }
    // The dashboard shows every exposed metric, but not every series of a histogram.
    let queried: BTreeSet<_> = queries
        .iter()
        .flat_map(|(query, _)| Query::parse(query).metrics)
        .map(|(metric, _)| metric)
        .collect();
    let is_shown = |name: &String| {
        queried.iter().any(|metric| {
            metric.starts_with(name.trim_end_matches("_sum").trim_end_matches("_count"))
        })
    };
    let missing: Vec<_> = exposed.keys().filter(|name| !is_shown(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn a_market_in_memory_counts_under_the_policies_of_its_limits() {
    let exposed = exposed(&[]).await;
    let policies: BTreeSet<_> = exposed["tower_semaphore_active_permits"]
        .iter()
        .map(|series| (series["store"].as_str(), series["policy"].as_str()))
        .collect();
    let expected = [("memory", "concurrency"), ("memory", "fleet")];
    assert_eq!(policies, expected.into());
}

#[test]
fn the_metrics_filters_and_groups_of_a_query_are_parsed() {
    let parsed = Query::parse(
        "histogram_quantile(0.5, sum by (le, verb) (rate(tower_semaphore_a_bucket{x=\"y\", z!=\"1\"}[$__rate_interval]))) / tower_semaphore_b",
    );
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let first = (
        "tower_semaphore_a_bucket".to_owned(),
        vec![label("x", "y"), label("z", "1")],
    );
    let second = ("tower_semaphore_b".to_owned(), Vec::new());
    assert_eq!(parsed.metrics, [first, second]);
    assert_eq!(parsed.groups, ["le".to_owned(), "verb".to_owned()].into());
}

/// Claims count under each of their policies. A request under several limits counts only under its narrowest policy.
#[test]
fn the_queries_of_shares_by_policy_count_claims_and_not_requests() {
    let guide = include_str!("../../src/guide/operate.rs");
    let guide = guide.replace("\n//!   / ", " / ");
    let lines = guide.lines().map(str::to_owned);
    let all = queries().into_iter().map(|(query, _)| query).chain(lines);
    let is_share = |query: &String| query.contains(") / sum by (policy) (");
    let shares: Vec<_> = all.filter(is_share).collect();
    // One in the dashboard, and one in the guide.
    assert!(shares.len() >= 2, "{shares:?}");
    for query in shares {
        assert!(query.contains("_claims_total"), "{query}");
        assert!(!query.contains("_requests_total"), "{query}");
    }
}
