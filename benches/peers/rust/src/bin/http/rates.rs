//! Requests per second over keep-alive connections, with a separate account for each.

use std::{net::SocketAddr, time::Duration};
use testing::bench::{
    closed_loop,
    figures::{median, ratio},
};

const ROUND: Duration = Duration::from_millis(250);

/// Prints a row for each app, spending `seconds` on each figure: the rate and its ratio to the first app's rate, over 1
/// connection and over 16. The apps alternate.
pub(crate) async fn run(seconds: u64, apps: &[SocketAddr]) {
    let rounds = 4 * seconds;
    let one = rates(rounds, apps, 1).await;
    let many = rates(rounds, apps, 16).await;
    for (one_rate, many_rate) in one.iter().zip(&many) {
        println!(
            "{:.0} {:.2} {:.0} {:.2}",
            median(one_rate),
            ratio(one_rate, &one[0]),
            median(many_rate),
            ratio(many_rate, &many[0]),
        );
    }
}

async fn rates(rounds: u64, apps: &[SocketAddr], connections: usize) -> Vec<Vec<f64>> {
    let mut rates = vec![Vec::new(); apps.len()];
    for round in 0..=rounds {
        for (app, rates) in apps.iter().zip(&mut rates) {
            let outcome = closed_loop::run(*app, connections, ROUND).await;
            assert_eq!(outcome.refused, 0, "each account has five permits");
            // The first round is a warm-up.
            if round > 0 {
                rates.push(outcome.rate);
            }
        }
    }
    rates
}
