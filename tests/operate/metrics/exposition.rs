//! The metrics as a Prometheus server reads them: from the text of an independent exporter.
//!
//! Promises: P25.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::{collections::BTreeMap, sync::LazyLock, time::Duration};
use testing::wait::eventually;
use tower_semaphore::observe::{CALL_SIZE, SECONDS, SIZES};

pub(crate) const BOUND: Duration = Duration::from_secs(20);

static EXPORTER: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    let recorder = builder().build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).expect("there is no other");
    handle
});

pub(crate) fn builder() -> PrometheusBuilder {
    PrometheusBuilder::new()
        .with_recommended_naming(true)
        .set_buckets_for_metric(Matcher::Prefix("tower_semaphore".into()), SECONDS)
        .and_then(|it| it.set_buckets_for_metric(Matcher::Full(CALL_SIZE.into()), SIZES))
        .expect("there are buckets")
}

/// Starts to count for the whole process. Tests distinguish their series by their policies.
pub(crate) fn install() {
    LazyLock::force(&EXPORTER);
}

/// One line: a series, and its value.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Series {
    fn parse(line: &str) -> Self {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.trim_end_matches('}').split("\",");
        let labels = labels.filter(|label| !label.is_empty()).map(|label| {
            let (label, value) = label.split_once("=\"").expect("a label");
            (label.to_owned(), value.trim_end_matches('"').to_owned())
        });
        Self {
            name: name.to_owned(),
            labels: labels.collect(),
            value: value.parse().expect("a number"),
        }
    }

    fn has(&self, labels: &[(&str, &str)]) -> bool {
        let has =
            |(label, value): &(&str, &str)| self.labels.get(*label).is_some_and(|it| it == value);
        labels.iter().all(has)
    }
}

/// Parses the text of an exporter.
pub(crate) fn series(text: &str) -> Vec<Series> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(Series::parse).collect()
}

/// All current series.
pub(crate) fn all() -> Vec<Series> {
    install();
    series(&EXPORTER.render())
}

/// The sum of the series with this name and these labels.
pub(crate) fn sum(all: &[Series], name: &str, labels: &[(&str, &str)]) -> f64 {
    let found = all
        .iter()
        .filter(|series| series.name == name && series.has(labels));
    found.map(|series| series.value).sum()
}

/// The sum of the current series with this name and these labels.
pub(crate) fn value(name: &str, labels: &[(&str, &str)]) -> f64 {
    sum(&all(), name, labels)
}

/// The numbers of requests or claims of a policy by outcome, without zeros.
pub(crate) fn by_outcome(name: &str, policy: &str) -> BTreeMap<String, f64> {
    let all = all().into_iter();
    let found = all.filter(|series| series.name == name && series.has(&[("policy", policy)]));
    let found = found.filter(|series| series.value > 0.0);
    found
        .map(|mut series| {
            (
                series.labels.remove("outcome").expect("an outcome"),
                series.value,
            )
        })
        .collect()
}

/// The numbers of active permits and of waiting claims of a policy.
pub(crate) fn gauges(policy: &str) -> (f64, f64) {
    let all = all();
    let sum_of = |name| sum(&all, name, &[("policy", policy)]);
    (
        sum_of("tower_semaphore_active_permits"),
        sum_of("tower_semaphore_queued_claims"),
    )
}

pub(crate) async fn until_gauges(policy: &str, expected: (f64, f64)) {
    eventually("the gauges have these values", BOUND, async || {
        gauges(policy) == expected
    })
    .await;
}

#[test]
fn series_are_parsed() {
    let read = series("# HELP a b\n\na_total{policy=\"x, y\",outcome=\"full\"} 3\nb 0.5\n");
    assert_eq!((read[0].name.as_str(), read[0].value), ("a_total", 3.0));
    assert!(read[0].has(&[("policy", "x, y"), ("outcome", "full")]));
    assert!(!read[0].has(&[("policy", "x")]) && read[1].labels.is_empty());
    assert_eq!(read[1].value, 0.5);
}
