//! The cost of one limit and of four limits in memory: acquire and release, by one thread or more.

use crate::limits::Way;
use futures_util::FutureExt;
use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};
use testing::bench::{
    figures::{Dice, median, ratio},
    run::{bar, pick},
    table::{Table, figure},
};
use tower_semaphore::MemorySemaphore;

const THREADS: [usize; 3] = [1, 2, 4];
const ACCOUNTS: usize = 100;

const WAYS: [(&str, Way); 3] = [
    ("one limit", Way::One),
    ("four at once", Way::AtOnce),
    ("four stacked", Way::Stacked),
];

pub(crate) fn compare() {
    let rounds = pick(7, 21);
    let head = [
        "threads",
        "variant",
        "ns of a thread's time",
        "× one limit",
        "× four stacked",
    ];
    let mut table = Table::new("Acquire and release in memory, 100 accounts", &head);
    let progress = bar("memory", rounds * THREADS.len());
    let store = MemorySemaphore::new();
    let accounts: Vec<String> = (0..ACCOUNTS).map(|at| format!("account-{at}")).collect();
    for threads in THREADS {
        let mut all = [const { Vec::new() }; WAYS.len()];
        for _ in 0..rounds {
            for ((_, way), own) in WAYS.iter().zip(&mut all) {
                own.push(pairs(&store, *way, &accounts, threads));
            }
            progress.inc(1);
        }
        for ((name, _), own) in WAYS.iter().zip(&all) {
            let figures = [median(own), ratio(own, &all[0]), ratio(own, &all[2])];
            let named = [threads.to_string(), (*name).to_owned()];
            table.row(named.into_iter().chain(figures.map(figure)));
        }
    }
    progress.finish_and_clear();
    println!("{table}");
}

/// The ns that a pair takes in a thread, on average over the threads.
fn pairs(store: &MemorySemaphore, way: Way, accounts: &[String], threads: usize) -> f64 {
    let count = pick(20_000, 100_000);
    let barrier = Barrier::new(threads);
    let work = |seed| {
        let mut dice = Dice::new(seed as u64 + 1);
        barrier.wait();
        let start = Instant::now();
        for _ in 0..count {
            let account = &accounts[dice.below(accounts.len() as u64) as usize];
            let answer = way.acquire(store, account).now_or_never();
            drop(
                answer
                    .expect("it is answered at once")
                    .expect("the limits are high"),
            );
        }
        start.elapsed()
    };
    let total: Duration = thread::scope(|scope| {
        let work = &work;
        let start = |seed| scope.spawn(move || work(seed));
        let all: Vec<_> = (0..threads).map(start).collect();
        let ends = all
            .into_iter()
            .map(|one| one.join().expect("no thread panics"));
        ends.sum()
    });
    total.as_secs_f64() * 1e9 / (count * threads) as f64
}
