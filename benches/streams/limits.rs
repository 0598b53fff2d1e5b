//! One key that is nearly full: does a large limit cost more than a small one?

use std::time::{Duration, Instant};
use testing::{
    bench::{
        figures::{Latencies, median, ratio},
        run::{bar, pick},
        table::{Table, figure},
    },
    redis::RedisServer,
    resp::Raw,
};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const LIMITS: [u32; 4] = [5, 100, 1_000, 10_000];

/// The cost of a round of pairs of acquire and release, in microseconds.
struct Round {
    /// The median latencies.
    acquire: f64,
    pair: f64,
    /// The server's time in the two scripts.
    server: f64,
}

pub(crate) async fn compare() {
    let server = RedisServer::start();
    // With this lease no refresh of a held permit is counted as part of a pair.
    let lease = Duration::from_secs(3_600);
    let store = RedisSemaphore::builder()
        .lease(lease)
        .connect(server.url())
        .await;
    let store = store.expect("the server is there");
    let mut raw = Raw::connect(server.port()).await;
    let mut held = Vec::new();
    for limit in LIMITS {
        // All but one of the permits.
        for _ in 1..limit {
            held.push(take(&store, limit).await);
        }
    }
    let rounds = pick(5, 15);
    let progress = bar("limits", rounds);
    let mut all: [Vec<Round>; 4] = Default::default();
    for _ in 0..rounds {
        for (limit, own) in LIMITS.into_iter().zip(&mut all) {
            own.push(round(&store, &mut raw, limit).await);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    report(&all);
}

async fn round(store: &RedisSemaphore, raw: &mut Raw, limit: u32) -> Round {
    let pairs = pick(300, 1_500);
    let (mut acquire, mut pair) = (Latencies::default(), Latencies::default());
    raw.reset_stats().await;
    for _ in 0..pairs {
        let start = Instant::now();
        let permit = take(store, limit).await;
        acquire.add(start.elapsed());
        assert!(permit.release().await, "it was held");
        pair.add(start.elapsed());
    }
    Round {
        acquire: acquire.p50(),
        pair: pair.p50(),
        server: raw.script_micros().await / f64::from(pairs),
    }
}

async fn take(store: &RedisSemaphore, limit: u32) -> Permit {
    let claim = Claim::new(format!("limit-{limit}")).with_limit(limit);
    store.acquire(claim).await.expect("there is room for one")
}

fn report(all: &[Vec<Round>]) {
    let title = "One key with one permit left, µs";
    let head = [
        "limit",
        "acquire p50",
        "× limit 5",
        "pair p50",
        "× limit 5",
        "server, both scripts",
        "× limit 5",
    ];
    let mut table = Table::new(title, &head);
    let costs: [fn(&Round) -> f64; 3] = [
        |round| round.acquire,
        |round| round.pair,
        |round| round.server,
    ];
    for (limit, own) in LIMITS.iter().zip(all) {
        let mut cells = vec![figure(f64::from(*limit))];
        for cost in costs {
            let column = |rounds: &[Round]| rounds.iter().map(cost).collect::<Vec<_>>();
            let (own, least) = (column(own), column(&all[0]));
            cells.extend([figure(median(&own)), figure(ratio(&own, &least))]);
        }
        table.row(cells);
    }
    println!("{table}");
}
