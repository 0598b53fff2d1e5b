//! Acquire and release, by number of threads and keys.

use crate::{
    measure::{Bench, Estimate},
    rival::{Dash, Rival},
};
use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};
use testing::bench::{
    figures::Dice,
    plot::{self, Title},
    run::bar,
    table::{Table, figure},
};
use tower_semaphore::MemorySemaphore;

const THREADS: [usize; 4] = [1, 2, 4, 8];
const KEYS: [usize; 5] = [1, 100, 10_000, 100_000, 1_000_000];

const TITLE: &str = "Acquire and release in memory, ns of a thread's time";

/// High enough that no claim is refused, even if many threads are paused while they hold a permit.
pub(crate) const LIMIT: u32 = 1_000;

/// The results for a number of threads and keys.
struct Cell {
    threads: usize,
    keys: usize,
    ours: Estimate,
    dash: Estimate,
    ratio: f64,
}

pub(crate) fn compare(bench: &mut Bench) {
    let progress = bar("pairs", KEYS.len() * THREADS.len());
    let mut cells = Vec::new();
    for count in KEYS {
        let keys: Vec<String> = (0..count).map(|key| format!("account-{key}")).collect();
        let (store, map) = (MemorySemaphore::new(), Dash::default());
        // Each key has been used before, as in a process that has run for a while.
        keys.iter().for_each(|key| drop(store.take(key, LIMIT)));
        keys.iter().for_each(|key| drop(map.take(key, LIMIT)));
        let cell = |threads| {
            progress.inc(1);
            cell(bench, &store, &map, &keys, threads)
        };
        cells.extend(THREADS.into_iter().filter_map(cell));
    }
    progress.finish_and_clear();
    if !cells.is_empty() {
        report(&cells);
    }
}

fn cell(
    bench: &mut Bench,
    store: &MemorySemaphore,
    map: &Dash,
    keys: &[String],
    threads: usize,
) -> Option<Cell> {
    let point = format!("{} keys {threads} threads", keys.len());
    let ours = |count| pairs(store, keys, threads, count);
    let dash = |count| pairs(map, keys, threads, count);
    let (ours, ratio) = bench.compare(["pairs", "MemorySemaphore", &point], ours, dash)?;
    Some(Cell {
        threads,
        keys: keys.len(),
        ours,
        dash: bench.measure(["pairs", "DashMap", &point], dash)?,
        ratio,
    })
}

/// The time that a thread takes for `count` pairs, on average over the threads.
pub(crate) fn pairs<R: Rival>(rival: &R, keys: &[String], threads: usize, count: u64) -> Duration {
    let barrier = Barrier::new(threads);
    let work = |seed| {
        let mut dice = Dice::new(seed as u64 + 1);
        barrier.wait();
        let start = Instant::now();
        for _ in 0..count {
            let key = &keys[dice.below(keys.len() as u64) as usize];
            drop(rival.take(key, LIMIT).expect("the limit is high"));
        }
        start.elapsed()
    };
    let total: Duration = thread::scope(|scope| {
        let work = &work;
        let start = |seed| scope.spawn(move || work(seed));
        let all: Vec<_> = (0..threads).map(start).collect();
        all.into_iter()
            .map(|one| one.join().expect("no thread panics"))
            .sum()
    });
    total / threads as u32
}

fn report(cells: &[Cell]) {
    let head = [
        "keys",
        "threads",
        "MemorySemaphore",
        "DashMap + tokio",
        "ratio",
    ];
    let mut table = Table::new(TITLE, &head);
    for cell in cells {
        let named = [figure(cell.keys as f64), cell.threads.to_string()];
        let figures = [cell.ours, cell.dash, cell.ratio];
        table.row(named.into_iter().chain(figures.map(figure)));
    }
    println!("{table}");
    let title = Title {
        file: "memory",
        text: TITLE,
        x: "keys",
        y: "ns",
    };
    plot::lines(title, &[1, 8].map(|threads| lines(cells, threads)).concat());
}

/// The curves of both stores for a number of threads.
fn lines(cells: &[Cell], threads: usize) -> [(String, Vec<(f64, f64)>); 2] {
    let own = || cells.iter().filter(|cell| cell.threads == threads);
    let ours = own().map(|cell| (cell.keys as f64, cell.ours));
    let dash = own().map(|cell| (cell.keys as f64, cell.dash));
    [
        (format!("MemorySemaphore, {threads}"), ours.collect()),
        (format!("DashMap + tokio, {threads}"), dash.collect()),
    ]
}
