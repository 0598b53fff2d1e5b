//! Pairs of acquire and release per second, and latency, uncontended.

use crate::rival::{NAMES, ONE, Rival, STACKED};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testing::bench::{
    figures::{Latencies, median, ratio},
    run::{bar, pick},
    table::{Table, figure},
};
use tokio::task::JoinSet;

const TASKS: [usize; 3] = [1, 16, 256];

/// The accounts of the tasks' requests. Route, model and fleet are the same for all.
#[derive(Clone, Copy)]
pub(crate) enum Accounts {
    /// The same account for all tasks.
    One,
    /// A separate account for each task.
    Each,
}

impl Accounts {
    fn name_for(self, task: usize) -> String {
        match self {
            Self::One => "account".to_owned(),
            Self::Each => format!("account-{task}"),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::One => "Uncontended pairs, one account",
            Self::Each => "Uncontended pairs, an account per task",
        }
    }
}

/// The results of all rounds of one rival with one number of tasks.
#[derive(Default)]
struct Series {
    pairs: Vec<f64>,
    p50: Vec<f64>,
    acquire: Latencies,
}

/// Measures all rivals in alternating rounds, so that noise affects all of them.
pub(crate) async fn compare(url: &str, accounts: Accounts) {
    let (rounds, span_ms) = pick((3, 200), (7, 300));
    let span = Duration::from_millis(span_ms);
    let mut rivals = Vec::new();
    for name in NAMES {
        rivals.push(Arc::new(Rival::connect(name, url).await));
    }
    let mut all = Vec::new();
    for tasks in TASKS {
        let progress = bar(&format!("{tasks} tasks"), (rounds + 1) * rivals.len());
        let mut series: Vec<Series> = NAMES.iter().map(|_| Series::default()).collect();
        for round in 0..=rounds {
            for (rival, series) in rivals.iter().zip(&mut series) {
                let (pairs, acquire) = run(rival, accounts, tasks, span).await;
                // The first round is a warm-up for scripts, connections and caches.
                if round > 0 {
                    series.pairs.push(pairs);
                    series.p50.push(acquire.p50());
                    series.acquire.append(acquire);
                }
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        all.push(series);
    }
    report(accounts, &all);
}

/// Pairs per second, including the last release, and the latencies of the acquires.
async fn run(
    rival: &Arc<Rival>,
    accounts: Accounts,
    tasks: usize,
    span: Duration,
) -> (f64, Latencies) {
    let start = Instant::now();
    let mut work = JoinSet::new();
    for task in 0..tasks {
        work.spawn(pairs(
            Arc::clone(rival),
            accounts.name_for(task),
            start + span,
        ));
    }
    let mut acquire = Latencies::default();
    for own in work.join_all().await {
        acquire.append(own);
    }
    rival.settle().await;
    let pairs = acquire.count() as f64 / start.elapsed().as_secs_f64();
    (pairs, acquire)
}

async fn pairs(rival: Arc<Rival>, account: String, end: Instant) -> Latencies {
    let mut acquire = Latencies::default();
    let mut start = Instant::now();
    while start < end {
        let held = rival.acquire(&account).await;
        acquire.add(start.elapsed());
        rival.release(&account, held).await;
        start = Instant::now();
    }
    acquire
}

fn report(accounts: Accounts, all: &[Vec<Series>]) {
    let head = [
        "tasks",
        "variant",
        "pairs/s",
        "× one limit",
        "× four stacked",
        "acquire p50 µs",
        "× one limit",
        "× four stacked",
        "p99 µs",
    ];
    let mut table = Table::new(accounts.title(), &head);
    for (tasks, series) in TASKS.iter().zip(all) {
        let (one, stacked) = (&series[ONE], &series[STACKED]);
        for (name, own) in NAMES.iter().zip(series) {
            let [p50, p99] = own.acquire.quantiles([0.5, 0.99]);
            let figures = [
                median(&own.pairs),
                ratio(&own.pairs, &one.pairs),
                ratio(&own.pairs, &stacked.pairs),
                p50,
                ratio(&own.p50, &one.p50),
                ratio(&own.p50, &stacked.p50),
                p99,
            ];
            let named = [tasks.to_string(), (*name).to_owned()];
            table.row(named.into_iter().chain(figures.map(figure)));
        }
    }
    println!("{table}");
}
