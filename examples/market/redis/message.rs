//! The encoding of listings and trades in Redis and on its channel.

use crate::{
    account::Account,
    market::{Event, Listing, Trade},
};
use serde::{Deserialize, Serialize};

/// A listing, or a trade if it has a buyer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) listing: Listing,
    pub(super) buyer: Option<Account>,
}

impl Message {
    /// The account that lists or buys.
    pub(super) fn account(&self) -> &Account {
        self.buyer.as_ref().unwrap_or(&self.listing.seller)
    }
}

impl From<Message> for Event {
    fn from(Message { listing, buyer }: Message) -> Self {
        match buyer {
            Some(buyer) => Self::Trade(Trade { listing, buyer }),
            None => Self::Listing(listing),
        }
    }
}
