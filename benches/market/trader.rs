//! Sellers and buyers. Each is a thread with separate connections, as the chapter's are processes.

use crate::variant::{Desk, Variant};
use redis::Cmd;
use std::{
    ops::Add,
    time::{Duration, Instant},
};
use testing::{
    bench::figures::Dice,
    book::{
        Client, Clock, Pause,
        market::{Offer, inventory, user},
    },
};
use tokio::runtime::Builder;

const ANSWERS: &str = "the server answers";

/// The results of a trader.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) listed: u64,
    pub(crate) bought: u64,
    /// The number of retried purchases.
    pub(crate) retries: u64,
    /// The time spent in purchases.
    pub(crate) waited: Duration,
}

impl Tally {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            listed: self.listed + other.listed,
            bought: self.bought + other.bought,
            retries: self.retries + other.retries,
            waited: self.waited.add(other.waited),
        }
    }
}

/// Creates items and lists them until `end`.
pub(crate) fn sell(variant: Variant, url: &str, number: usize, end: Instant) -> Tally {
    block_on(async {
        let desk = open(variant, url).await;
        let seller = format!("seller-{number}");
        let mut dice = Dice::new(number as u64 + 1);
        let mut tally = Tally::default();
        for item in 0.. {
            if Instant::now() >= end {
                break;
            }
            let item = format!("item-{number}-{item}");
            let offer = Offer::new(&item, &seller, 1 + dice.below(100) as i64);
            let create = Cmd::sadd(inventory(&seller), &item);
            create
                .exec_async(&mut desk.client.shared.clone())
                .await
                .expect(ANSWERS);
            tally.listed += u64::from(desk.list(&offer).await.done);
        }
        tally
    })
}

/// Keeps buying any item that is for sale, until `end`.
pub(crate) fn buy(variant: Variant, url: &str, number: usize, end: Instant) -> Tally {
    block_on(async {
        let desk = open(variant, url).await;
        let buyer = format!("buyer-{number}");
        // More than the buyer can spend.
        let fund = Cmd::hset(user(&buyer), "funds", i64::from(u32::MAX));
        fund.exec_async(&mut desk.client.shared.clone())
            .await
            .expect(ANSWERS);
        let mut tally = Tally::default();
        while Instant::now() < end {
            let Some(offer) = Offer::any(&desk.client).await.expect(ANSWERS) else {
                desk.client.pause().await;
                continue;
            };
            let start = Instant::now();
            let deal = desk.purchase(&offer, &buyer).await;
            tally.waited += start.elapsed();
            tally.bought += u64::from(deal.done);
            tally.retries += deal.retries;
        }
        tally
    })
}

async fn open(variant: Variant, url: &str) -> Desk {
    let client = Client::connect(url, Clock::default(), Pause::Thread).await;
    Desk::open(variant, client, url).await
}

/// Runs a trader in this thread.
fn block_on<T>(trader: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(trader)
}
