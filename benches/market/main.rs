//! The market of *Redis in Action*, chapter 6, again: sellers list and buyers buy as fast as they can.
//!
//! `cargo bench -p tower-semaphore-benches --bench market` takes thirteen minutes, because the chapter's runs took 60 s
//! each. With `-- --quick` it takes one.

mod far;
mod plots;
mod trader;
mod variant;

use std::{
    thread,
    time::{Duration, Instant},
};
use testing::{
    bench::{
        run::{bar, pick},
        table::{Table, figure},
    },
    redis::RedisServer,
};
use trader::Tally;
use variant::Variant;

/// A variant's name, and for each size of the market the listed and bought items, the retries, and the mean wait in ms.
type VariantFigures = (String, Vec<[f64; 4]>);

const HEAD: [&str; 6] = [
    "sellers × buyers",
    "variant",
    "listed",
    "bought",
    "retries",
    "mean wait ms",
];

/// The numbers of sellers and buyers.
const SIZES: [(usize, usize); 3] = [(1, 1), (5, 1), (5, 5)];

fn main() {
    let span = Duration::from_secs(pick(5, 60));
    let named = |variant: Variant| (variant.name().to_owned(), Vec::new());
    let mut all: Vec<VariantFigures> = Variant::ALL.map(named).into();
    let progress = bar("market", SIZES.len() * Variant::ALL.len());
    for (sellers, buyers) in SIZES {
        for (variant, (name, figures)) in Variant::ALL.into_iter().zip(&mut all) {
            progress.set_message(format!("{name}, {sellers} x {buyers}"));
            figures.push(figures_of(&trade(variant, sellers, buyers, span)));
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    report(span, &all);
    plots::draw(&all);
    // With a server that is half a millisecond away.
    far::compare();
}

/// Lets sellers and buyers trade on a new server, each in a separate thread.
fn trade(variant: Variant, sellers: usize, buyers: usize, span: Duration) -> Tally {
    let server = RedisServer::start();
    trade_at(&server.url(), variant, sellers, buyers, span)
}

fn trade_at(url: &str, variant: Variant, sellers: usize, buyers: usize, span: Duration) -> Tally {
    let end = Instant::now() + span;
    thread::scope(|scope| {
        let sellers =
            (0..sellers).map(|number| scope.spawn(move || trader::sell(variant, url, number, end)));
        let mut threads: Vec<_> = sellers.collect();
        threads.extend(
            (0..buyers).map(|number| scope.spawn(move || trader::buy(variant, url, number, end))),
        );
        let tallies = threads
            .into_iter()
            .map(|thread| thread.join().expect("no trader panics"));
        tallies.fold(Tally::default(), Tally::plus)
    })
}

fn figures_of(tally: &Tally) -> [f64; 4] {
    let mean = tally.waited.as_secs_f64() * 1e3 / tally.bought.max(1) as f64;
    [
        tally.listed as f64,
        tally.bought as f64,
        tally.retries as f64,
        mean,
    ]
}

fn report(span: Duration, all: &[VariantFigures]) {
    let title = format!("A market for {} s", span.as_secs());
    let mut table = Table::new(title, &HEAD);
    for (at, (sellers, buyers)) in SIZES.iter().enumerate() {
        for (name, figures) in all {
            let size = format!("{sellers} × {buyers}");
            table.row(
                [size, name.clone()]
                    .into_iter()
                    .chain(figures[at].map(figure)),
            );
        }
    }
    println!("{table}");
}
