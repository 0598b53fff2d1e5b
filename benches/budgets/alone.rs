//! The latency of one acquire on an idle connection: a permit and a budget, compared with two limits.

use std::time::{Duration, Instant};
use testing::bench::{
    figures::Latencies,
    run::{bar, pick},
    table::{Table, figure},
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const MINUTE: Duration = Duration::from_secs(60);

/// The compared pairs of limits. A *rate* is a budget without an estimate: each claim spends one unit at once.
const PAIRS: [&str; 4] = [
    "two limits",
    "permit and rate",
    "permit and budget of 1",
    "permit and budget of 1,000,000",
];

/// The claims of the pair with this index in [`PAIRS`].
fn claims(pair: usize) -> [Claim; 2] {
    let permit = Claim::new("alone").with_limit(1_000);
    let second = Claim::new("alone").with_policy(format!("second-{pair}"));
    let budget = || second.clone().with_limit(u32::MAX).with_window(MINUTE);
    let second = match pair {
        0 => second.with_limit(1_000),
        1 => budget(),
        2 => budget().with_estimate(1),
        _ => budget().with_estimate(1_000_000),
    };
    [permit, second]
}

/// Measures one acquire of each pair per round. Each release is answered before the next acquire.
pub(crate) async fn compare(store: &RedisSemaphore) {
    let rounds = pick(1_000, 5_000);
    let mut all = PAIRS.map(|_| Latencies::default());
    let progress = bar("alone", rounds);
    for _ in 0..rounds {
        for (pair, latencies) in all.iter_mut().enumerate() {
            let start = Instant::now();
            let permit = store.acquire_all(claims(pair).into()).await;
            latencies.add(start.elapsed());
            let permit = permit.expect("the limits are high");
            // One unit of the estimate was used. Pairs without an estimate ignore this.
            permit.settle(format!("second-{pair}"), 1);
            assert!(permit.release().await, "nothing is lost");
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let head = ["pair", "p50", "× two limits", "p99"];
    let mut table = Table::new("One acquire on an idle connection, µs", &head);
    for (name, latencies) in PAIRS.iter().zip(&all) {
        let [p50, p99] = latencies.quantiles([0.5, 0.99]);
        let cells = [p50, p50 / all[0].p50(), p99].map(figure);
        table.row([(*name).to_owned()].into_iter().chain(cells));
    }
    println!("{table}");
}
