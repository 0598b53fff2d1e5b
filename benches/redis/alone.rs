//! The latency of one acquire on an idle connection. The rivals alternate call by call. Measured once from the main
//! task and once from a spawned task, in which handlers run.

use crate::rival::{Held, NAMES, Rival};
use std::time::Instant;
use testing::{
    bench::{
        figures::Latencies,
        run::{bar, pick},
        table::{Table, figure},
    },
    book::Clock,
};

pub(crate) async fn compare(url: String) {
    measure(&url, "One acquire on an idle connection, µs").await;
    let spawned = async move { measure(&url, "The same in a spawned task, µs").await };
    tokio::spawn(spawned).await.expect("no panic");
}

/// Measures one acquire of each rival per round. Each release is answered before the next acquire.
async fn measure(url: &str, title: &str) {
    let calls = pick(1_000, 10_000);
    let mut rivals = Vec::new();
    for name in NAMES {
        rivals.push(Rival::connect(name, url, Clock::default()).await);
    }
    let mut all: Vec<Latencies> = NAMES.iter().map(|_| Latencies::default()).collect();
    let progress = bar("alone", calls);
    for _ in 0..calls {
        for (rival, own) in rivals.iter().zip(&mut all) {
            let start = Instant::now();
            let held = rival.acquire("alone", 5).await.expect("it is free");
            own.add(start.elapsed());
            give_back(rival, held).await;
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    report(title, &all);
}

async fn give_back(rival: &Rival, held: Held) {
    match held {
        Held::Permit(permit) => assert!(permit.release().await, "it was held"),
        held => rival.release("alone", held).await,
    }
}

fn report(title: &str, all: &[Latencies]) {
    let mut table = Table::new(title, &["variant", "p50", "× empty script", "p99", "p99.9"]);
    let empty = all[0].p50();
    for (name, own) in NAMES.iter().zip(all) {
        let [p50, p99, p999] = own.quantiles([0.5, 0.99, 0.999]);
        let cells = [p50, p50 / empty, p99, p999].map(figure);
        table.row([(*name).to_owned()].into_iter().chain(cells));
    }
    println!("{table}");
}
