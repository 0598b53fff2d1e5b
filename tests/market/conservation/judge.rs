//! Reads the market's data from Redis, and compares it with the answers that traders got. An account begins with
//! [`COINS`], and with the items `ACCOUNT-1` to `ACCOUNT-10`.

use super::traders::{Answers, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use testing::{redis::RedisServer, resp::Raw};

/// The coins with which an account begins.
const COINS: i64 = 1_000;

/// All data that the market has in Redis.
pub(super) struct Books {
    funds: BTreeMap<String, i64>,
    /// The items of all accounts and listings, sorted.
    items: Vec<String>,
    /// The open listings, by id.
    listings: BTreeMap<String, Value>,
    /// The sales, by the id of their listing.
    sold: BTreeMap<String, Value>,
}

impl Books {
    pub(super) async fn read(server: &RedisServer) -> Self {
        let mut raw = Raw::connect(server.port()).await;
        let funds = hash(&mut raw, "funds").await;
        let funds: BTreeMap<_, i64> = funds
            .into_iter()
            .map(|(account, coins)| (account, coins.parse().expect("coins")))
            .collect();
        let listings = hash(&mut raw, "listings").await;
        let listings: BTreeMap<_, _> = listings
            .into_iter()
            .map(|(id, listing)| (id, json(&listing)))
            .collect();
        let on_sale = listings
            .values()
            .map(|listing| text(&listing["listing"]["item"]));
        let mut items: Vec<_> = on_sale.collect();
        for account in funds.keys() {
            let set = format!("market:{{market}}:items:{account}");
            let set = raw.cmd(&["SMEMBERS", &set]).await;
            items.extend(set.array().iter().map(|item| item.text().to_owned()));
        }
        items.sort();
        let sold = sold(&mut raw).await;
        assert_prices_match(&mut raw, &listings).await;
        Self {
            funds,
            items,
            listings,
            sold,
        }
    }

    /// Asserts that no coin and no item was lost, created or duplicated.
    pub(super) fn assert_conserved(&self) {
        let count = self.funds.len() as i64;
        assert_eq!(self.funds.values().sum::<i64>(), COINS * count);
        let accounts = self.funds.keys();
        let items = accounts.flat_map(|name| (1..=10).map(move |n| format!("{name}-{n}")));
        let mut items: Vec<_> = items.collect();
        items.sort();
        assert!(
            self.items == items,
            "items were lost, created or duplicated"
        );
    }

    /// Asserts that each account's funds match its trades, and that nothing was sold twice.
    pub(super) fn assert_funds_match_trades(&self) {
        let mut earned: HashMap<String, i64> = HashMap::new();
        let mut items = BTreeSet::new();
        for trade in self.sold.values() {
            let listing = &trade["listing"];
            let price = listing["price"].as_i64().expect("a price");
            *earned.entry(text(&listing["seller"])).or_default() += price;
            *earned.entry(text(&trade["buyer"])).or_default() -= price;
            // Buyers do not resell, so each item is sold once.
            assert!(items.insert(text(&listing["item"])), "sold twice: {trade}");
        }
        for (account, funds) in &self.funds {
            let earned = earned.get(account).copied().unwrap_or_default();
            assert_eq!(*funds, COINS + earned, "{account}");
            assert!(*funds >= 0, "{account} has a debt");
        }
    }

    /// Asserts that the data has what every answer reported, and that the buyer of each sale got an answer or does not
    /// know the outcome.
    pub(super) fn assert_matches_answers(&self, answers: &[Answers]) {
        let mut bought = BTreeMap::new();
        for trade in answers.iter().flat_map(|answers| &answers.bought) {
            let (id, buyer) = (text(&trade["id"]), text(&trade["buyer"]));
            let record = &self.sold[&id];
            assert_eq!(
                (&record["buyer"], &record["listing"]["price"]),
                (&trade["buyer"], &trade["price"])
            );
            assert_eq!(bought.insert(id, buyer), None, "sold twice: {trade}");
        }
        for (id, trade) in &self.sold {
            let purchase = (id.clone(), text(&trade["buyer"]));
            let is_unknown = answers
                .iter()
                .any(|answers| answers.unknown.contains(&purchase));
            assert!(
                bought.contains_key(id) || is_unknown,
                "no trader got an answer for {trade}"
            );
        }
        for id in answers.iter().flat_map(|answers| &answers.listed) {
            let is_kept = self.listings.contains_key(id) || self.sold.contains_key(id);
            assert!(is_kept, "the listing {id} is gone");
        }
    }

    pub(super) fn trades(&self) -> usize {
        self.sold.len()
    }

    pub(super) fn accounts(&self) -> usize {
        self.funds.len()
    }
}

/// The fields of one of the market's hashes.
async fn hash(raw: &mut Raw, name: &str) -> BTreeMap<String, String> {
    let all = raw
        .cmd(&["HGETALL", &format!("market:{{market}}:{name}")])
        .await;
    let pairs = all.array().chunks(2);
    pairs
        .map(|pair| (pair[0].text().to_owned(), pair[1].text().to_owned()))
        .collect()
}

/// The sales, by the id of their listing.
async fn sold(raw: &mut Raw) -> BTreeMap<String, Value> {
    let prefix = "market:{market}:sold:";
    let mut sold = BTreeMap::new();
    for key in raw.keys(format!("{prefix}*")).await {
        let trade = raw.cmd(&[b"GET".to_vec(), key.clone()]).await;
        let id = String::from_utf8(key)
            .expect("a name")
            .split_off(prefix.len());
        sold.insert(id, json(trade.text()));
    }
    sold
}

/// Asserts that the sorted set of prices has exactly the open listings, with their prices.
async fn assert_prices_match(raw: &mut Raw, listings: &BTreeMap<String, Value>) {
    let prices = raw.zmembers("market:{market}:prices").await;
    assert_eq!(prices.len(), listings.len());
    for (id, price) in prices {
        let id = String::from_utf8(id).expect("an id");
        assert_eq!(
            listings[&id]["listing"]["price"].as_f64(),
            Some(price),
            "{id}"
        );
    }
}

fn json(text: &str) -> Value {
    text.parse().expect("it is JSON")
}
