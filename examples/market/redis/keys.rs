//! The keys of the market's state in Redis.
//!
//! All names begin with the same hash tag, so that a cluster keeps the market on one node and a script may use all of
//! it.

use crate::account::Account;

/// Hash: the coins of each account.
pub(super) const FUNDS: &str = "market:{market}:funds";
/// Sorted set: the price of each listing, by its id.
pub(super) const PRICES: &str = "market:{market}:prices";
/// Hash: each listing in JSON, by its id.
pub(super) const LISTINGS: &str = "market:{market}:listings";
/// Hash: the token of the last holder of each item's lock.
pub(super) const FENCE: &str = "market:{market}:fence";
/// Channel: the market's events.
pub(super) const EVENTS: &str = "market:{market}:events";

/// Set: the items of an account.
pub(super) fn items(account: &Account) -> String {
    format!("market:{{market}}:items:{account}")
}

/// String: the trade that sold a listing.
pub(super) fn sold(id: &str) -> String {
    format!("market:{{market}}:sold:{id}")
}
