//! The server's own time for a join and a grant in a queue of 1,000, whose waiters belong to one or more flows.

use std::time::Duration;
use testing::{
    bench::{
        figures::{median, ratio},
        run::{bar, pick},
        table::{Table, figure},
    },
    redis::RedisServer,
    resp::Raw,
};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{Claim, Semaphore};

const WAITERS: usize = 1_000;

/// Maps a waiter's number to its flow.
type Flows = fn(usize) -> Option<usize>;

const QUEUES: [(&str, Flows); 4] = [
    ("no flows", |_| None),
    ("one flow", |_| Some(0)),
    ("five flows", |number| Some(number % 5)),
    ("1,000 flows", Some),
];

pub(crate) async fn compare(server: &RedisServer) {
    let rounds = pick(3, 9);
    let progress = bar("server", rounds * QUEUES.len());
    let mut all = QUEUES.map(|_| (Vec::new(), Vec::new()));
    for _ in 0..rounds {
        for ((name, flows), (joins, grants)) in QUEUES.into_iter().zip(&mut all) {
            let (join, grant) = round(server, name, flows).await;
            joins.push(join);
            grants.push(grant);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let head = ["queue", "join µs", "× no flows", "grant µs", "× no flows"];
    let mut table = Table::new("A queue of 1,000, µs of the server", &head);
    for ((name, _), (joins, grants)) in QUEUES.into_iter().zip(&all) {
        let (join, grant) = (ratio(joins, &all[0].0), ratio(grants, &all[0].1));
        let figures = [median(joins), join, median(grants), grant].map(figure);
        table.row([name.to_owned()].into_iter().chain(figures));
    }
    println!("{table}");
}

/// The server's time per waiter: for the calls in which all join, and for those in which all are granted and released.
async fn round(server: &RedisServer, name: &str, flows: Flows) -> (f64, f64) {
    let store = super::store(&server.url()).await;
    let claim = Claim::new(name)
        .with_limit(1)
        .with_wait(Duration::from_secs(60))
        .with_max_waiting(WAITERS as u32);
    let held = store.acquire(claim.clone()).await.expect("it is free");
    let mut raw = Raw::connect(server.port()).await;
    raw.reset_stats().await;
    let mut queue = JoinSet::new();
    for number in 0..WAITERS {
        let claim = flows(number)
            .into_iter()
            .fold(claim.clone(), Claim::with_flow);
        let acquire = store.acquire(claim);
        queue.spawn(async move { drop(acquire.await.expect("it is granted")) });
        // Waiters join in waves of 50, as in the benchmark `queue`.
        if number % 50 == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    }
    // Wait until the last waiters have joined.
    sleep(Duration::from_millis(200)).await;
    let joins = raw.script_micros().await;
    raw.reset_stats().await;
    drop(held);
    queue.join_all().await;
    // The last releases are still in flight.
    sleep(Duration::from_millis(50)).await;
    let grants = raw.script_micros().await;
    (joins / WAITERS as f64, grants / WAITERS as f64)
}
