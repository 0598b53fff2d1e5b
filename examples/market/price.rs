//! The price of an item.

use serde::{
    Deserialize, Serialize,
    de::{Deserializer, Error},
};
use serde_json::value::RawValue;
use std::fmt;

/// A price in coins, from 1 to [`MAX`](Self::MAX).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Price(u64);

impl Price {
    /// More than any account will ever have, and exact in any store's number type.
    pub(crate) const MAX: u64 = 1_000_000_000;

    pub(crate) fn coins(self) -> u64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Price {
    /// Parses the digits themselves. A number that JSON allows, such as `1e999`, may fit into none of our types. It is
    /// then a bad price rather than bad JSON.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = Box::<RawValue>::deserialize(deserializer)?;
        let coins = digits.get().parse().ok();
        coins
            .filter(|coins| (1..=Self::MAX).contains(coins))
            .map(Self)
            .ok_or_else(|| D::Error::custom(BadPrice))
    }
}

/// The error for an invalid price. It names the valid range.
struct BadPrice;

impl fmt::Display for BadPrice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a price is a whole number from 1 to {}", Price::MAX)
    }
}
