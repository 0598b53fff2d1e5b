//! The chapter's market again: sellers list, buyers buy, as fast as they can.
//!
//! `cargo bench --bench market`, twelve minutes, since the chapter's runs took 60 s each;
//! `-- --quick` in one.

#[path = "../book/mod.rs"]
mod book;
#[path = "../../tests/support/mod.rs"]
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod trader;
mod way;

use servers::redis::RedisServer;
use std::{
    thread,
    time::{Duration, Instant},
};
use support::{
    plot::{self, Title},
    run::{bar, pick},
    table::{Table, figure},
};
use trader::Tally;
use way::Way;

/// Sellers and buyers.
const CROWDS: [(usize, usize); 3] = [(1, 1), (5, 1), (5, 5)];

/// The chapter's figures for the same crowds: listed, bought, retries, mean wait in ms. Where it
/// gives a bound, this is the bound.
const BOOK: [(&str, [[f64; 4]; 3]); 3] = [
    (
        "book: WATCH",
        [
            [145_000.0, 27_000.0, 80_000.0, 14.0],
            [331_000.0, 200.0, 50_000.0, 150.0],
            [206_000.0, 600.0, 161_000.0, 498.0],
        ],
    ),
    (
        "book: one lock",
        [
            [51_000.0, 50_000.0, 0.0, 1.0],
            [68_000.0, 13_000.0, 10.0, 5.0],
            [21_000.0, 20_500.0, 0.0, 14.0],
        ],
    ),
    (
        "book: lock per item",
        [
            [113_000.0, 110_000.0, 0.0, 1.0],
            [192_000.0, 36_000.0, 0.0, 2.0],
            [116_000.0, 111_000.0, 0.0, 3.0],
        ],
    ),
];

fn main() {
    let span = Duration::from_secs(pick(5, 60));
    let named = |way: Way| (way.name().to_owned(), Vec::new());
    let mut all: Vec<(String, Vec<[f64; 4]>)> = Way::ALL.map(named).into();
    let progress = bar("market", CROWDS.len() * Way::ALL.len());
    for (sellers, buyers) in CROWDS {
        for (way, (name, figures)) in Way::ALL.into_iter().zip(&mut all) {
            progress.set_message(format!("{name}, {sellers} x {buyers}"));
            figures.push(figures_of(&trade(way, sellers, buyers, span)));
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    report(span, &all);
    draw(&all);
}

/// Lets a crowd trade on a server of its own, each trader in a thread of its own.
fn trade(way: Way, sellers: usize, buyers: usize, span: Duration) -> Tally {
    let server = RedisServer::start();
    let url = server.url();
    let end = Instant::now() + span;
    thread::scope(|scope| {
        let url = &url;
        let sellers =
            (0..sellers).map(|number| scope.spawn(move || trader::sell(way, url, number, end)));
        let mut threads: Vec<_> = sellers.collect();
        threads.extend(
            (0..buyers).map(|number| scope.spawn(move || trader::buy(way, url, number, end))),
        );
        let tallies = threads
            .into_iter()
            .map(|thread| thread.join().expect("no trader panics"));
        tallies.fold(Tally::default(), Tally::and)
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

fn report(span: Duration, all: &[(String, Vec<[f64; 4]>)]) {
    let title = format!("A market for {} s", span.as_secs());
    let head = [
        "sellers × buyers",
        "variant",
        "listed",
        "bought",
        "retries",
        "mean wait ms",
    ];
    let mut table = Table::new(title, &head);
    for (at, (sellers, buyers)) in CROWDS.iter().enumerate() {
        for (name, figures) in all {
            let crowd = format!("{sellers} × {buyers}");
            table.row(
                [crowd, name.clone()]
                    .into_iter()
                    .chain(figures[at].map(figure)),
            );
        }
    }
    println!("{table}");
}

/// The chapter's three plots, beside the chapter's figures as a rate, since its runs took 60 s.
fn draw(all: &[(String, Vec<[f64; 4]>)]) {
    let scale = pick(60.0 / 5.0, 1.0);
    let groups = CROWDS.map(|(sellers, buyers)| format!("{sellers} × {buyers}"));
    let plots = [
        ("market-bought", "Items bought in 60 s", "items", 1, scale),
        (
            "market-retries",
            "Purchase retries in 60 s",
            "retries",
            2,
            scale,
        ),
        ("market-wait", "Mean wait of a purchase", "ms", 3, 1.0),
    ];
    for (file, text, y, column, scale) in plots {
        let ours = all.iter().map(|(name, rows)| {
            (
                name.clone(),
                rows.iter().map(|row| row[column] * scale).collect(),
            )
        });
        let book = BOOK.iter().map(|(name, rows)| {
            (
                (*name).to_owned(),
                rows.iter().map(|row| row[column]).collect(),
            )
        });
        let series: Vec<_> = ours.chain(book).collect();
        plot::bars(
            Title {
                file,
                text,
                x: "sellers × buyers",
                y,
            },
            &groups,
            &series,
        );
    }
}
