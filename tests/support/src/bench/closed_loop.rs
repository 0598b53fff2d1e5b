//! A load generator: each connection sends its next request when the last one is answered.

use super::{
    connection::{Connection, read},
    figures::Latencies,
};
use http::StatusCode;
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// The results of one run of load.
#[derive(Default)]
pub struct Outcome {
    /// Answers per second.
    pub rate: f64,
    pub latencies: Latencies,
    /// Answers that were not 200.
    pub refused: u64,
}

/// Keeps this many connections busy for `span`, each with a separate account.
pub async fn run(address: SocketAddr, connections: usize, span: Duration) -> Outcome {
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for number in 0..connections {
        tasks.spawn(keep_busy(
            address,
            format!("account-{number}"),
            start + span,
        ));
    }
    let mut outcome = Outcome::default();
    for (latencies, refused) in tasks.join_all().await {
        outcome.latencies.append(latencies);
        outcome.refused += refused;
    }
    outcome.rate = outcome.latencies.count() as f64 / start.elapsed().as_secs_f64();
    outcome
}

/// Returns the latencies, and how many answers were not 200.
async fn keep_busy(address: SocketAddr, account: String, end: Instant) -> (Latencies, u64) {
    let mut connection = Connection::open(address).await;
    let (mut latencies, mut refused) = (Latencies::default(), 0);
    let mut start = Instant::now();
    while start < end {
        let (status, _) = read(connection.get("/", &account).await).await;
        latencies.add(start.elapsed());
        refused += u64::from(status != StatusCode::OK);
        start = Instant::now();
    }
    (latencies, refused)
}
