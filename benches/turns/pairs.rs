//! Pairs of acquire and release in one process, with a full key and with a key that has room.

use crate::client::scripts;
use std::{
    process,
    time::{Duration, Instant},
};
use testing::{
    bench::{
        proc::cpu,
        run::pick,
        table::{Table, figure},
    },
    redis::RedisServer,
};
use tokio::{runtime::Builder, task::JoinSet};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// Tasks that each make one claim at a time under this limit. Claims wait if the key is contended.
struct Load {
    name: &'static str,
    tasks: u32,
    limit: u32,
}

/// At the full loads the tasks use the whole limit. A release then may let another claim in, so it is sent at once
/// unless another call of the process will soon include it.
const LOADS: [Load; 5] = [
    Load {
        name: "1 task, limit 1,000",
        tasks: 1,
        limit: 1_000,
    },
    Load {
        name: "16 tasks, limit 1,000",
        tasks: 16,
        limit: 1_000,
    },
    Load {
        name: "1 task, limit 1: full",
        tasks: 1,
        limit: 1,
    },
    Load {
        name: "16 tasks, limit 16: full",
        tasks: 16,
        limit: 16,
    },
    Load {
        name: "16 tasks, limit 4: they wait",
        tasks: 16,
        limit: 4,
    },
];

/// The median of some rounds.
pub(crate) fn table() -> Table {
    let head = ["load", "pairs/s", "CPU µs a pair", "scripts a pair"];
    let mut table = Table::new("Pairs of one process", &head);
    let (rounds, span_ms) = pick((5, 500), (9, 1_000));
    for load in &LOADS {
        let redis = RedisServer::start();
        let mut all: Vec<_> = (0..rounds)
            .map(|_| measure(&redis, load, Duration::from_millis(span_ms)))
            .collect();
        all.sort_by(|one, other| one[0].total_cmp(&other[0]));
        let middle = all[all.len() / 2];
        let [pairs, cpu, scripts] = middle.map(figure);
        table.row([load.name.to_owned(), pairs, cpu, scripts]);
    }
    table
}

/// The pairs per second, the processor time of this process in µs per pair, and the scripts per pair.
fn measure(redis: &RedisServer, load: &Load, span: Duration) -> [f64; 3] {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime starts");
    runtime.block_on(async {
        let store = RedisSemaphore::connect(redis.url()).await;
        let store = store.expect("the server is there");
        let run = async |span: Duration| {
            let end = Instant::now() + span;
            let mut tasks = JoinSet::new();
            for _ in 0..load.tasks {
                let (store, limit) = (store.clone(), load.limit);
                tasks.spawn(async move {
                    let mut pairs = 0;
                    while Instant::now() < end {
                        let claim = Claim::new("ann").with_limit(limit);
                        let claim = claim.with_wait(Duration::from_secs(5));
                        drop(store.acquire(claim).await.expect("it is granted"));
                        pairs += 1;
                    }
                    pairs
                });
            }
            tasks.join_all().await.into_iter().sum::<u32>()
        };
        // A warm-up.
        run(Duration::from_millis(100)).await;
        let (scripts_before, cpu_before) = (scripts(redis), cpu(process::id()));
        let pairs = f64::from(run(span).await);
        let worked = (cpu(process::id()) - cpu_before).as_secs_f64();
        let scripts = (scripts(redis) - scripts_before) as f64;
        [
            pairs / span.as_secs_f64(),
            worked * 1e6 / pairs,
            scripts / pairs,
        ]
    })
}
