//! The recorder of the crate `metrics`. No other file names that crate, so no call bypasses the
//! boundary.

use super::boundary::{Foreign, contain};
use metrics::{KeyName, Label, Recorder, Unit, counter, gauge, histogram, with_recorder};
use std::{ptr, time::Duration};

/// The names of an instrument's labels, and their values.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

pub(super) struct Counter(Foreign<metrics::Counter>);
pub(super) struct Gauge(Foreign<metrics::Gauge>);
pub(super) struct Histogram(Foreign<metrics::Histogram>);

impl Counter {
    pub(super) fn of(name: &'static str, labels: Labels<'_>) -> Self {
        Self(Foreign::new(|| counter!(name, owned(labels))))
    }

    pub(super) fn noop() -> Self {
        Self(Foreign::new(metrics::Counter::noop))
    }

    #[inline]
    pub(super) fn increment(&self) {
        self.0.with(|counter| counter.increment(1));
    }
}

impl Gauge {
    pub(super) fn of(name: &'static str, labels: Labels<'_>) -> Self {
        Self(Foreign::new(|| gauge!(name, owned(labels))))
    }

    /// Returns whether the recorder counted it, so that it has to be decremented.
    #[inline]
    pub(super) fn increment(&self) -> bool {
        self.0.with(|gauge| gauge.increment(1.0))
    }

    #[inline]
    pub(super) fn decrement(&self) {
        self.0.with(|gauge| gauge.decrement(1.0));
    }
}

impl Histogram {
    pub(super) fn of(name: &'static str, labels: Labels<'_>) -> Self {
        Self(Foreign::new(|| histogram!(name, owned(labels))))
    }

    pub(super) fn noop() -> Self {
        Self(Foreign::new(metrics::Histogram::noop))
    }

    #[inline]
    pub(super) fn seconds(&self, time: Duration) {
        self.0.with(|histogram| histogram.record(time));
    }

    #[cfg(feature = "redis")]
    pub(super) fn number(&self, number: usize) {
        self.0.with(|histogram| histogram.record(number as f64));
    }
}

fn owned(labels: Labels<'_>) -> Vec<Label> {
    let labels = labels.iter();
    labels
        .map(|(name, value)| Label::new(*name, (*value).to_owned()))
        .collect()
}

/// The address of the current recorder.
#[inline]
pub(super) fn address() -> usize {
    let address = |recorder: &dyn Recorder| ptr::from_ref(recorder).addr();
    contain(|| with_recorder(address)).unwrap_or_default()
}

/// What is counted.
pub(super) enum Kind {
    Counter,
    Gauge,
    Seconds,
    Sizes,
}

/// Describes an instrument to the recorder.
pub(super) fn describe((kind, name, text): &(Kind, &'static str, &'static str)) {
    let (name, text) = (KeyName::from(*name), (*text).into());
    contain(|| {
        with_recorder(|recorder| match kind {
            Kind::Counter => recorder.describe_counter(name, None, text),
            Kind::Gauge => recorder.describe_gauge(name, None, text),
            Kind::Seconds => recorder.describe_histogram(name, Some(Unit::Seconds), text),
            Kind::Sizes => recorder.describe_histogram(name, None, text),
        });
    });
}
