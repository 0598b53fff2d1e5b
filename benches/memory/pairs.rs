//! Acquire and release, by threads and keys.

use crate::{
    rival::{Dash, Rival},
    support::{
        figures::{Dice, median, ratio},
        plot::{self, Title},
        run::{bar, pick},
        table::{Table, figure},
    },
};
use std::{sync::Barrier, thread, time::Instant};
use tower_semaphore::MemorySemaphore;

const THREADS: [usize; 4] = [1, 2, 4, 8];
const KEYS: [usize; 5] = [1, 100, 10_000, 100_000, 1_000_000];

/// So high that nobody is refused, however many threads are paused with a permit.
const LIMIT: u32 = 1_000;

/// Nanoseconds of a thread's time for a pair, by round.
struct Cell {
    threads: usize,
    keys: usize,
    ours: Vec<f64>,
    dash: Vec<f64>,
}

pub(crate) fn compare() {
    let rounds = pick(3, 9);
    let progress = bar("pairs", THREADS.len() * KEYS.len() * rounds);
    let mut cells = Vec::new();
    for count in KEYS {
        let keys: Vec<String> = (0..count).map(|key| format!("account-{key}")).collect();
        for threads in THREADS {
            let (mut ours, mut dash) = (Vec::new(), Vec::new());
            let (store, map) = (MemorySemaphore::new(), Dash::default());
            for _ in 0..rounds {
                ours.push(pair(&store, &keys, threads));
                dash.push(pair(&map, &keys, threads));
                progress.inc(1);
            }
            cells.push(Cell {
                threads,
                keys: count,
                ours,
                dash,
            });
        }
    }
    progress.finish_and_clear();
    report(&cells);
}

/// How long one pair takes a thread, in nanoseconds.
fn pair<R: Rival>(rival: &R, keys: &[String], threads: usize) -> f64 {
    let count = pick(50_000, 400_000) / threads;
    let barrier = Barrier::new(threads);
    let work = |seed| {
        let mut dice = Dice::new(seed as u64 + 1);
        barrier.wait();
        let start = Instant::now();
        for _ in 0..count {
            let key = &keys[dice.below(keys.len() as u64) as usize];
            drop(rival.take(key, LIMIT).expect("the limit is high"));
        }
        start.elapsed().as_nanos() as f64 / count as f64
    };
    let times: Vec<f64> = thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..threads)
            .map(|seed| scope.spawn(move || work(seed)))
            .collect();
        all.into_iter()
            .map(|one| one.join().expect("no thread panics"))
            .collect()
    });
    times.iter().sum::<f64>() / threads as f64
}

fn report(cells: &[Cell]) {
    let title = "Acquire and release in memory, ns of a thread's time";
    let head = [
        "keys",
        "threads",
        "MemorySemaphore",
        "DashMap + tokio",
        "ratio",
    ];
    let mut table = Table::new(title, &head);
    for Cell {
        threads,
        keys,
        ours,
        dash,
    } in cells
    {
        let figures = [median(ours), median(dash), ratio(ours, dash)];
        let named = [figure(*keys as f64), threads.to_string()];
        table.row(named.into_iter().chain(figures.map(figure)));
    }
    println!("{table}");
    let series = |threads: usize, ours: bool| {
        let name = if ours {
            "MemorySemaphore"
        } else {
            "DashMap + tokio"
        };
        let own = cells.iter().filter(|cell| cell.threads == threads);
        let point = own.map(|cell| {
            let rounds = if ours { &cell.ours } else { &cell.dash };
            (cell.keys as f64, median(rounds))
        });
        (format!("{name}, {threads}"), point.collect())
    };
    let title = Title {
        file: "memory",
        text: title,
        x: "keys",
        y: "ns",
    };
    let all = [
        series(1, true),
        series(1, false),
        series(8, true),
        series(8, false),
    ];
    plot::lines(title, &all);
}
