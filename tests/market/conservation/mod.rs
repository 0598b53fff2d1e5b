//! Money and items are conserved, even when a process is killed in the middle of trades.
//!
//! Promises: P5, P8.

mod judge;
mod processes;
mod traders;

use self::{
    judge::Books,
    processes::Processes,
    traders::{Answers, Shared},
};
use futures_util::future::join_all;
use std::{env, sync::Arc, time::Duration};
use testing::redis::RedisServer;
use tokio::time::sleep;

const SELLERS: usize = 5;
const BUYERS: usize = 10;

/// The length of the trading: `MARKET_SECONDS`, 6 by default.
fn duration() -> Duration {
    let seconds = env::var("MARKET_SECONDS").ok();
    let seconds = seconds.map_or(6.0, |seconds| seconds.parse().expect("a number of seconds"));
    Duration::from_secs_f64(seconds)
}

/// Trades without a pause. One process is killed after a third of the time and restarted after another third.
async fn trade(processes: &Arc<Processes>) -> Vec<Answers> {
    let shared = Shared::new(Arc::clone(processes));
    let sellers = (0..SELLERS).map(|n| tokio::spawn(traders::sell(shared.clone(), n)));
    let buyers = (0..BUYERS).map(|n| tokio::spawn(traders::buy(shared.clone(), n)));
    let traders: Vec<_> = sellers.chain(buyers).collect();
    sleep(duration() / 3).await;
    processes.kill(0).await;
    sleep(duration() / 3).await;
    processes.restart(0).await;
    sleep(duration() / 3).await;
    shared.stop.cancel();
    let answers = join_all(traders).await;
    answers
        .into_iter()
        .map(|answers| answers.expect("no trader panics"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn money_and_items_are_conserved() {
    let server = RedisServer::start();
    let processes = Arc::new(Processes::start(server.url()).await);
    let answers = trade(&processes).await;
    // After this the market's data no longer changes.
    processes.terminate().await;

    let books = Books::read(&server).await;
    books.assert_conserved();
    books.assert_funds_match_trades();
    books.assert_matches_answers(&answers);
    let late: usize = answers.iter().map(|answers| answers.late).sum();
    let unknown: usize = answers.iter().map(|answers| answers.unknown.len()).sum();
    println!(
        "{} trades by {} accounts in {:?}; {late} purchases were too late, {unknown} were cut off",
        books.trades(),
        books.accounts(),
        duration()
    );
    assert!(books.trades() > 20 && late > 0, "too little happened");
}
