//! The number of claims that are granted within their budget when more are offered than the link can carry.
//!
//! The server is 100 ms away. The offered load is an open loop: claims arrive at a constant rate, whatever the outcome
//! of earlier ones. The capacity of each variant is measured first. Then the variant is offered from half of that to
//! eight times as much.
//!
//! `cargo bench -p tower-semaphore-benches --bench goodput` takes about ten minutes, with `-- --quick` three. The peer
//! is included once `benches/peers/run.sh` has built it.

mod capacity;
mod far;
mod peer;
mod variant;

use testing::bench::{
    open_loop::{Offered, Rate},
    plot::{self, Title},
    run::bar,
    table::{Table, figure},
};
use variant::Variant;

/// The offered loads, as multiples of a variant's capacity.
const TIMES: [f64; 5] = [0.5, 1.0, 2.0, 4.0, 8.0];

const HEAD: [&str; 7] = [
    "variant",
    "× capacity",
    "offered/s",
    "goodput/s",
    "× peak",
    "not granted in time/s",
    "mean ms when granted",
];

/// The measurements of a variant.
struct Series {
    variant: Variant,
    /// The highest goodput seen during the search for the capacity.
    peak: f64,
    /// One result for each of [`TIMES`].
    offered: Vec<Offered>,
}

#[tokio::main]
async fn main() {
    let variants = Variant::all();
    let progress = bar("goodput", variants.len() * TIMES.len());
    let mut all = Vec::new();
    for variant in variants {
        progress.set_message(format!("capacity of {}", variant.name()));
        let Some((capacity, peak)) = capacity::search(variant).await else {
            let name = variant.name();
            println!("{name}: no claim is granted within its budget, however few are offered.");
            progress.inc(TIMES.len() as u64);
            continue;
        };
        let mut offered = Vec::new();
        for times in TIMES {
            progress.set_message(format!("{}, {times} x", variant.name()));
            offered.push(variant.measure(Rate::of(capacity * times)).await);
            progress.inc(1);
        }
        all.push(Series {
            variant,
            peak,
            offered,
        });
    }
    progress.finish_and_clear();
    report(&all);
    draw(&all);
}

fn report(all: &[Series]) {
    let title = "Goodput of a server 100 ms away, budget 500 ms";
    let mut table = Table::new(title, &HEAD);
    for series in all {
        // This measurement may be slightly above the peak of the search.
        let goodputs = series.offered.iter().map(|offered| offered.good);
        let peak = goodputs.fold(series.peak, f64::max);
        for (times, offered) in TIMES.iter().zip(&series.offered) {
            let figures = [
                *times,
                offered.rate,
                offered.good,
                offered.good / peak,
                offered.rate - offered.good,
            ];
            let name = series.variant.name().to_owned();
            let mean = offered.mean_ms.map_or("-".to_owned(), figure);
            let cells = [name].into_iter().chain(figures.map(figure));
            table.row(cells.chain([mean]));
        }
    }
    println!("{table}");
}

fn draw(all: &[Series]) {
    let title = Title {
        file: "goodput",
        text: "Claims granted within their budget, server 100 ms away",
        x: "claims offered, times capacity",
        y: "granted in time per second",
    };
    let series: Vec<_> = all
        .iter()
        .map(|series| {
            let points = TIMES.iter().zip(&series.offered);
            // Zero has no logarithm, so zero is plotted as one per second.
            let points = points.map(|(times, offered)| (*times, offered.good.max(1.0)));
            (series.variant.name().to_owned(), points.collect())
        })
        .collect();
    plot::lines(title, &series);
}
