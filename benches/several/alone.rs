//! The latency of one acquire on an idle connection. The rivals alternate call by call.

use crate::rival::{NAMES, ONE, Rival, STACKED};
use std::time::Instant;
use testing::bench::{
    figures::Latencies,
    run::{bar, pick},
    table::{Table, figure},
};

/// Measures one acquire of each rival per round. Each release is answered before the next acquire.
pub(crate) async fn compare(url: &str) {
    let calls = pick(1_000, 5_000);
    let mut rivals = Vec::new();
    for name in NAMES {
        rivals.push(Rival::connect(name, url).await);
    }
    let mut all: Vec<Latencies> = NAMES.iter().map(|_| Latencies::default()).collect();
    let progress = bar("alone", calls);
    for _ in 0..calls {
        for (rival, own) in rivals.iter().zip(&mut all) {
            let start = Instant::now();
            let held = rival.acquire("alone").await;
            own.add(start.elapsed());
            rival.release_answered("alone", held).await;
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    report(&all);
}

fn report(all: &[Latencies]) {
    let title = "One acquire on an idle connection, µs";
    let head = ["variant", "p50", "× one limit", "× four stacked", "p99"];
    let mut table = Table::new(title, &head);
    let (one, stacked) = (all[ONE].p50(), all[STACKED].p50());
    for (name, own) in NAMES.iter().zip(all) {
        let [p50, p99] = own.quantiles([0.5, 0.99]);
        let cells = [p50, p50 / one, p50 / stacked, p99].map(figure);
        table.row([(*name).to_owned()].into_iter().chain(cells));
    }
    println!("{table}");
}
