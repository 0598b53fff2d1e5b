//! Pairs of acquire and release per second, with a separate key for each task.

use crate::Servers;
use std::{
    process,
    time::{Duration, Instant},
};
use testing::bench::{
    figures::{Latencies, median, ratio},
    proc::cpu,
    run::pick,
    table::{Table, figure},
};
use tokio::task::JoinSet;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const TASKS: [usize; 3] = [1, 16, 256];

/// Higher than the number of permits that are held, or dropped but not yet released on the server, so that no claim is
/// refused.
const LIMIT: u32 = 10_000;

/// The results of all rounds on the same servers.
#[derive(Default)]
struct Series {
    pairs: Vec<f64>,
    /// Processor time per pair in µs, of this process and of the servers.
    own_cpu: Vec<f64>,
    servers_cpu: Vec<f64>,
    acquire: Latencies,
}

/// Measures one server and the cluster in turns, so that noise affects both alike.
pub(crate) async fn compare(servers: &[Servers; 2]) {
    let (rounds, span_ms) = pick((3, 300), (9, 400));
    let head = [
        "tasks",
        "servers",
        "pairs/s",
        "× one server",
        "acquire p50 µs",
        "p99 µs",
        "CPU µs/pair",
        "servers' CPU µs/pair",
    ];
    let mut table = Table::new("Uncontended pairs, a key per task", &head);
    for tasks in TASKS {
        let mut all: [Series; 2] = Default::default();
        // The first round is a warm-up.
        for round in 0..=rounds {
            for (servers, series) in servers.iter().zip(&mut all) {
                // A new store, because `run` shuts it down.
                let store = servers.store().await;
                let (own_before, servers_before) = (cpu(process::id()), servers.cpu());
                let span = Duration::from_millis(span_ms);
                let (pairs, acquire) = run(&store, tasks, span).await;
                if round > 0 {
                    let per_pair = |cpu: Duration| cpu.as_secs_f64() * 1e6 / acquire.count() as f64;
                    let own_used = cpu(process::id()) - own_before;
                    series.own_cpu.push(per_pair(own_used));
                    series
                        .servers_cpu
                        .push(per_pair(servers.cpu() - servers_before));
                    series.pairs.push(pairs);
                    series.acquire.append(acquire);
                }
            }
        }
        for (servers, series) in servers.iter().zip(&all) {
            let [p50, p99] = series.acquire.quantiles([0.5, 0.99]);
            let pairs = median(&series.pairs);
            let (own_cpu, servers_cpu) = (median(&series.own_cpu), median(&series.servers_cpu));
            let ratio = ratio(&series.pairs, &all[0].pairs);
            let figures = [pairs, ratio, p50, p99, own_cpu, servers_cpu];
            let named = [tasks.to_string(), servers.name().to_owned()];
            table.row(named.into_iter().chain(figures.map(figure)));
        }
    }
    println!("{table}");
}

/// Pairs per second, including all releases, and the latencies of the acquires.
async fn run(store: &RedisSemaphore, tasks: usize, span: Duration) -> (f64, Latencies) {
    let start = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        running.spawn(work(store.clone(), format!("account-{task}"), start + span));
    }
    let mut acquire = Latencies::default();
    while let Some(seen) = running.join_next().await {
        acquire.append(seen.expect("no task panics"));
    }
    // The shutdown waits for the last releases.
    assert!(store.shutdown(Duration::from_secs(10)).await.is_empty());
    (
        acquire.count() as f64 / start.elapsed().as_secs_f64(),
        acquire,
    )
}

async fn work(store: RedisSemaphore, key: String, end: Instant) -> Latencies {
    let mut seen = Latencies::default();
    let mut start = Instant::now();
    while start < end {
        let claim = Claim::new(key.as_str()).with_limit(LIMIT);
        drop(store.acquire(claim).await.expect("there is room"));
        seen.add(start.elapsed());
        start = Instant::now();
    }
    seen
}
