//! The results as a table.

use crate::{setup::Setup, witness::Seen};
use std::fmt;
use testing::bench::{
    figures::median,
    table::{Table, figure},
};

/// See the module docs.
pub(crate) struct Report(Table);

impl Report {
    pub(crate) fn new() -> Self {
        let head = [
            "way, and the delay to the replica",
            "failovers",
            "over in",
            "most over",
            "mean over",
            "over in, steady keys",
            "most over, steady keys",
            "over for, ms, at most",
            "first grant, ms, p50",
            "at most",
        ];
        Self(Table::new("Failovers under load, limit 5", &head))
    }

    /// Adds the row of a setup, from the results of each of its failovers.
    pub(crate) fn add(&mut self, setup: Setup, all: &[Seen]) {
        // The most permits beyond the limit of any key, per failover.
        let over: Vec<usize> = all.iter().map(|seen| seen.steady.max(seen.burst)).collect();
        let steady: Vec<usize> = all.iter().map(|seen| seen.steady).collect();
        let firsts = all.iter().filter_map(|seen| seen.first_grant);
        let firsts: Vec<f64> = firsts.map(|time| time.as_secs_f64() * 1e3).collect();
        let longest = all.iter().map(|seen| seen.over_for).max();
        let figures = [
            all.len() as f64,
            positive(&over) as f64,
            most(&over) as f64,
            over.iter().sum::<usize>() as f64 / all.len() as f64,
            positive(&steady) as f64,
            most(&steady) as f64,
            longest.unwrap_or_default().as_millis() as f64,
            median(&firsts).round(),
            firsts.iter().copied().fold(0.0, f64::max).round(),
        ];
        let name = [setup.name()];
        self.0.row(name.into_iter().chain(figures.map(figure)));
    }
}

/// The number of failovers with at least one permit beyond the limit.
fn positive(counts: &[usize]) -> usize {
    counts.iter().filter(|count| **count > 0).count()
}

fn most(counts: &[usize]) -> usize {
    counts.iter().copied().max().unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
