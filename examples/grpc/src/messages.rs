//! The messages of `prices.proto`.

use prost::Message;

/// The name of something that has a price.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Item {
    /// Never empty.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The price of an item.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Price {
    /// In coins.
    #[prost(uint64, tag = "1")]
    pub coins: u64,
}
