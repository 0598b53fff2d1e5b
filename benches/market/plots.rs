//! The chapter's three plots, with the chapter's figures for comparison.

use crate::{SIZES, VariantFigures};
use testing::bench::{
    plot::{self, Title},
    run::pick,
};

/// The chapter's figures for the same numbers of sellers and buyers: listed, bought, retries, and mean wait in ms.
/// Where the chapter gives a bound, this is the bound.
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

/// Plots purchases and retries per 60 s, because the chapter's runs took that time.
pub(crate) fn draw(all: &[VariantFigures]) {
    // With `--quick` a run takes 5 s.
    let minute = pick(60.0 / 5.0, 1.0);
    let title = |file, text, y| Title {
        file,
        text,
        x: "sellers × buyers",
        y,
    };
    // The columns of `VariantFigures` and `BOOK` are 0 listed, 1 bought, 2 retries, 3 mean wait.
    let bought = title("market-bought", "Items bought in 60 s", "items");
    bars(bought, all, 1, minute);
    let retries = title("market-retries", "Purchase retries in 60 s", "retries");
    bars(retries, all, 2, minute);
    let wait = title("market-wait", "Mean wait of a purchase", "ms");
    bars(wait, all, 3, 1.0);
}

fn bars(title: Title<'_>, all: &[VariantFigures], column: usize, scale: f64) {
    let pick = |rows: &[[f64; 4]], scale| rows.iter().map(|row| row[column] * scale).collect();
    let ours = all
        .iter()
        .map(|(name, rows)| (name.clone(), pick(rows, scale)));
    let book = BOOK.iter();
    let book = book.map(|(name, rows)| ((*name).to_owned(), pick(rows, 1.0)));
    let series: Vec<_> = ours.chain(book).collect();
    let groups = SIZES.map(|(sellers, buyers)| format!("{sellers} × {buyers}"));
    plot::bars(title, &groups, &series);
}
