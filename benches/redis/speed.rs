//! Pairs of acquire and release per second, and latency, uncontended.

use crate::{
    load::{self, Outcome},
    rival::{EMPTY, FLOOR, NAMES, OURS, Rival},
};
use std::{sync::Arc, time::Duration};
use testing::{
    bench::{
        figures::{Latencies, median, ratio},
        plot::{self, Title},
        run::{bar, pick},
        table::{Table, figure},
    },
    book::Clock,
};

const TASKS: [usize; 3] = [1, 16, 256];

/// Higher than the number of permits that are held or not yet released, so that no claim is refused.
const LIMIT: u32 = 10_000;

/// The keys that the tasks use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// The same key for all tasks.
    One,
    /// A separate key for each task.
    Each,
}

impl Keys {
    fn names_for(self, tasks: usize) -> Vec<String> {
        let number = |task| match self {
            Self::One => 0,
            Self::Each => task,
        };
        (0..tasks)
            .map(|task| format!("account-{}", number(task)))
            .collect()
    }

    fn title(self) -> &'static str {
        match self {
            Self::One => "Uncontended pairs, one key",
            Self::Each => "Uncontended pairs, a key per task",
        }
    }
}

/// The results of all rounds of one rival with one number of tasks.
#[derive(Default)]
struct Series {
    pairs: Vec<f64>,
    p50: Vec<f64>,
    acquire: Latencies,
    cpu: Vec<f64>,
    refused: u64,
}

impl Series {
    fn add(&mut self, outcome: Outcome) {
        self.pairs.push(outcome.pairs);
        self.p50.push(outcome.acquire.p50());
        self.acquire.append(outcome.acquire);
        self.cpu.push(outcome.cpu);
        self.refused += outcome.refused;
    }
}

/// Measures all rivals in alternating rounds, so that noise affects all of them.
pub(crate) async fn compare(url: &str, keys: Keys) {
    let (rounds, span_ms) = pick((3, 200), (9, 400));
    let mut rivals = Vec::new();
    for name in NAMES {
        rivals.push(Arc::new(Rival::connect(name, url, Clock::default()).await));
    }
    let mut all = Vec::new();
    for tasks in TASKS {
        let progress = bar(&format!("{tasks} tasks"), (rounds + 1) * rivals.len());
        let mut series: Vec<Series> = NAMES.iter().map(|_| Series::default()).collect();
        for round in 0..=rounds {
            for (rival, series) in rivals.iter().zip(&mut series) {
                let span = Duration::from_millis(span_ms);
                let outcome = load::run(rival, keys.names_for(tasks), LIMIT, span).await;
                // The first round is a warm-up for scripts, connections and caches.
                if round > 0 {
                    series.add(outcome);
                }
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        all.push(series);
    }
    report(keys, &all);
}

fn report(keys: Keys, all: &[Vec<Series>]) {
    let head = [
        "tasks",
        "variant",
        "pairs/s",
        "× floor",
        "acquire p50 µs",
        "× empty",
        "p99 µs",
        "p99.9 µs",
        "CPU µs per pair",
        "not granted",
    ];
    let mut table = Table::new(keys.title(), &head);
    for (tasks, series) in TASKS.iter().zip(all) {
        for (name, own) in NAMES.iter().zip(series) {
            let [p50, p99, p999] = own.acquire.quantiles([0.5, 0.99, 0.999]);
            let figures = [
                median(&own.pairs),
                ratio(&own.pairs, &series[FLOOR].pairs),
                p50,
                ratio(&own.p50, &series[EMPTY].p50),
                p99,
                p999,
                median(&own.cpu),
                own.refused as f64,
            ];
            let named = [tasks.to_string(), (*name).to_owned()];
            table.row(named.into_iter().chain(figures.map(figure)));
        }
    }
    println!("{table}");
    ratios(all);
    draw(keys, all);
}

/// Prints the library's ratios to the floor and to the other semaphores.
fn ratios(all: &[Vec<Series>]) {
    for (tasks, series) in TASKS.iter().zip(all) {
        let ratio_to = |other: usize| figure(ratio(&series[OURS].pairs, &series[other].pairs));
        let others = [FLOOR].into_iter().chain(OURS + 1..NAMES.len());
        let ratios: Vec<_> = others
            .map(|other| format!("/ {} {}", NAMES[other], ratio_to(other)))
            .collect();
        println!("{tasks} tasks: {} {}", NAMES[OURS], ratios.join("; "));
    }
}

fn draw(keys: Keys, all: &[Vec<Series>]) {
    let file = match keys {
        Keys::One => "redis-one-key",
        Keys::Each => "redis-key-per-task",
    };
    let groups: Vec<String> = TASKS.iter().map(|tasks| format!("{tasks} tasks")).collect();
    let series: Vec<_> = NAMES
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let values = all.iter().map(|series| median(&series[at].pairs));
            ((*name).to_owned(), values.collect())
        })
        .collect();
    let title = Title {
        file,
        text: keys.title(),
        x: "",
        y: "pairs per second",
    };
    plot::bars(title, &groups, &series);
}
