//! Money and items are conserved, even when a process is killed in the middle of trades.
//!
//! Promises: P5, P8.

mod doors;
mod judge;
mod traders;

use self::{
    doors::Doors,
    judge::Books,
    traders::{Answers, Floor},
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
async fn trade(doors: &Arc<Doors>) -> Vec<Answers> {
    let floor = Floor::new(Arc::clone(doors));
    let sellers = (0..SELLERS).map(|n| tokio::spawn(traders::sell(floor.clone(), n)));
    let buyers = (0..BUYERS).map(|n| tokio::spawn(traders::buy(floor.clone(), n)));
    let traders: Vec<_> = sellers.chain(buyers).collect();
    sleep(duration() / 3).await;
    doors.kill(0).await;
    sleep(duration() / 3).await;
    doors.restart(0).await;
    sleep(duration() / 3).await;
    floor.stop.cancel();
    let answers = join_all(traders).await;
    answers
        .into_iter()
        .map(|answers| answers.expect("no trader panics"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn money_and_items_are_conserved() {
    let server = RedisServer::start();
    let doors = Arc::new(Doors::open(server.url()).await);
    let answers = trade(&doors).await;
    // From here on the market's data no longer changes.
    doors.close().await;

    let books = Books::read(&server).await;
    books.are_conserved();
    books.agree_with_their_trades();
    books.agree_with(&answers);
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
