//! B8, B9 and B10: a market whose sales are transactions, optimistic or under locks.
//!
//! `users:ID` is a hash with the funds of a seller or buyer, `inventory:ID` is the set of a trader's items, and
//! `market:` is a sorted set of `ITEM.OWNER` by price.

use super::Client;
use crate::bench::link::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, cmd, pipe};
use std::time::{Duration, Instant};

/// The sorted set of all offers.
pub const MARKET: &str = "market:";

/// How long a seller retries a listing.
const LIST: Duration = Duration::from_secs(5);

/// How long a buyer retries a purchase.
const PURCHASE: Duration = Duration::from_secs(10);

/// One offer of the market.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The member of the sorted set.
    pub member: String,
    pub item: String,
    pub seller: String,
    pub price: i64,
}

/// The outcome of a listing or a purchase.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deal {
    /// True if the change was made.
    pub done: bool,
    pub retries: u64,
}

impl Offer {
    /// An item of a seller's, for a price.
    pub fn new(item: &str, seller: &str, price: i64) -> Self {
        Self {
            member: format!("{item}.{seller}"),
            item: item.to_owned(),
            seller: seller.to_owned(),
            price,
        }
    }

    /// Any offer of the market.
    pub async fn any(client: &Client) -> Result<Option<Self>, RedisError> {
        let mut any = cmd("ZRANDMEMBER");
        any.arg(MARKET).arg(1).arg("WITHSCORES");
        let found: Vec<(String, i64)> = any.query_async(&mut client.shared.clone()).await?;
        Ok(found.first().and_then(|(member, price)| {
            let (item, seller) = member.split_once('.')?;
            Some(Self::new(item, seller, *price))
        }))
    }

    /// Returns true if the seller still owns the item.
    async fn is_owned(&self, connection: &mut MultiplexedConnection) -> Result<bool, RedisError> {
        let owned = Cmd::sismember(inventory(&self.seller), &self.item);
        owned.query_async(connection).await
    }

    /// Returns true if the price is unchanged and the buyer can pay it.
    async fn is_affordable(
        &self,
        buyer: &str,
        connection: &mut MultiplexedConnection,
    ) -> Result<bool, RedisError> {
        let mut read = pipe();
        read.zscore(MARKET, &self.member).hget(user(buyer), "funds");
        let (price, funds): (Option<i64>, Option<i64>) = read.query_async(connection).await?;
        Ok(price == Some(self.price) && funds.is_some_and(|funds| funds >= self.price))
    }

    /// Puts the item up for sale: out of the inventory, into the market.
    fn list(&self, transaction: &mut Pipeline) {
        transaction.zadd(MARKET, &self.member, self.price).ignore();
        transaction
            .srem(inventory(&self.seller), &self.item)
            .ignore();
    }

    /// Moves the item and the money.
    fn sell(&self, transaction: &mut Pipeline, buyer: &str) {
        transaction
            .hincr(user(&self.seller), "funds", self.price)
            .ignore();
        transaction
            .hincr(user(buyer), "funds", -self.price)
            .ignore();
        transaction.sadd(inventory(buyer), &self.item).ignore();
        transaction.zrem(MARKET, &self.member).ignore();
    }
}

/// B8. Lists an item if the seller owns it.
pub async fn list_item(client: &Client, offer: &Offer) -> Result<Deal, RedisError> {
    let allowed = async |connection: &mut _| offer.is_owned(connection).await;
    let watched = [inventory(&offer.seller)];
    optimistic(client, LIST, &watched, allowed, |deal| offer.list(deal)).await
}

/// B8. Buys an item unless its price has changed, or the buyer cannot pay. If the market or the buyer changes in the
/// meantime, it tries again.
pub async fn purchase_item(
    client: &Client,
    offer: &Offer,
    buyer: &str,
) -> Result<Deal, RedisError> {
    let allowed = async |connection: &mut _| offer.is_affordable(buyer, connection).await;
    let watched = [MARKET.to_owned(), user(buyer)];
    let sell = |deal: &mut _| offer.sell(deal, buyer);
    optimistic(client, PURCHASE, &watched, allowed, sell).await
}

/// Makes a change if it is allowed. If a watched key changes in the meantime, tries again until `patience` is over.
async fn optimistic(
    client: &Client,
    patience: Duration,
    watched: &[String],
    allowed: impl AsyncFn(&mut MultiplexedConnection) -> Result<bool, RedisError>,
    change: impl Fn(&mut Pipeline),
) -> Result<Deal, RedisError> {
    let mut deal = Deal::default();
    let mut connection = client.alone().await;
    let end = Instant::now() + patience;
    while !deal.done && Instant::now() < end {
        let mut watch = cmd("WATCH");
        watch.arg(watched).exec_async(&mut *connection).await?;
        if !allowed(&mut connection).await? {
            cmd("UNWATCH").exec_async(&mut *connection).await?;
            break;
        }
        let mut transaction = transaction();
        change(&mut transaction);
        let done: Option<()> = transaction.query_async(&mut *connection).await?;
        deal.done = done.is_some();
        deal.retries += u64::from(!deal.done);
    }
    Ok(deal)
}

/// B9 and B10. Like [`list_item`], for the holder of the lock.
pub async fn list_item_locked(client: &Client, offer: &Offer) -> Result<bool, RedisError> {
    let mut connection = client.shared.clone();
    if !offer.is_owned(&mut connection).await? {
        return Ok(false);
    }
    let mut transaction = transaction();
    offer.list(&mut transaction);
    transaction.exec_async(&mut connection).await?;
    Ok(true)
}

/// B9 and B10. Like [`purchase_item`], for the holder of the lock.
pub async fn purchase_item_locked(
    client: &Client,
    offer: &Offer,
    buyer: &str,
) -> Result<bool, RedisError> {
    let mut connection = client.shared.clone();
    if !offer.is_affordable(buyer, &mut connection).await? {
        return Ok(false);
    }
    let mut transaction = transaction();
    offer.sell(&mut transaction, buyer);
    transaction.exec_async(&mut connection).await?;
    Ok(true)
}

fn transaction() -> Pipeline {
    let mut transaction = pipe();
    transaction.atomic();
    transaction
}

/// The key of a trader's hash.
pub fn user(id: &str) -> String {
    format!("users:{id}")
}

/// The key of a trader's set of items.
pub fn inventory(id: &str) -> String {
    format!("inventory:{id}")
}
