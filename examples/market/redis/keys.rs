//! Where the market's state lies in Redis.
//!
//! All names begin with one hash tag, so that a cluster keeps the market on one node and a script
//! may touch all of it.

use crate::account::Account;

/// Hash: account to coins.
pub(super) const FUNDS: &str = "market:{market}:funds";
/// Sorted set: a listing's id to its price.
pub(super) const PRICES: &str = "market:{market}:prices";
/// Hash: a listing's id to the listing, in JSON.
pub(super) const LISTINGS: &str = "market:{market}:listings";
/// Hash: item to the token of the last holder of its lock.
pub(super) const FENCE: &str = "market:{market}:fence";
/// Channel: what happens.
pub(super) const EVENTS: &str = "market:{market}:events";

/// Set: what an account has.
pub(super) fn items(account: &Account) -> String {
    format!("market:{{market}}:items:{account}")
}

/// String: the trade of a sold listing.
pub(super) fn sold(id: &str) -> String {
    format!("market:{{market}}:sold:{id}")
}
