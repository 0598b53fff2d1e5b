//! What a market does, wherever its state lives.
//!
//! The rest of the example knows this trait only, so a fleet whose market lives in a shared store
//! serves the same routes as one process that keeps it in memory.

use crate::{account::Account, price::Price};
use futures_util::{future::BoxFuture, stream::BoxStream};
use serde::{Deserialize, Serialize};
use std::error::Error;

/// How many events a reader may be behind.
pub(crate) const BACKLOG: usize = 1_024;

/// A failure of the store of the market's state.
pub(crate) type StoreError = Box<dyn Error + Send + Sync>;

/// An answer on its way, unless the store fails.
pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Accounts that trade items for coins.
///
/// An account is created when it is first seen, see [`Holdings::of_newborn`]. Item and coins move
/// together or not at all, and every change is published.
pub(crate) trait Market: Send + Sync {
    /// Puts an item that `seller` owns up for sale.
    fn list(
        &self,
        seller: Account,
        item: String,
        price: Price,
    ) -> Answer<'_, Result<Listing, Refusal>>;

    /// Sells the listing `id` to `buyer`.
    fn purchase(&self, buyer: Account, id: String) -> Answer<'_, Result<Trade, Refusal>>;

    /// All that is for sale, the cheapest first.
    fn listings(&self) -> Answer<'_, Vec<Listing>>;

    /// What an account has.
    fn account(&self, account: Account) -> Answer<'_, Holdings>;

    /// Events from now on. Ends early for a reader that falls too far behind.
    fn events(&self) -> BoxStream<'static, Event>;
}

/// Why the market refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The seller has no such item.
    NotOwned,
    /// The id was never that of a listing.
    Unknown,
    /// Somebody else was faster.
    Sold,
    /// Buyer and seller are one.
    OwnListing,
    /// The buyer has not enough coins.
    TooPoor,
}

/// An item for sale.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Listing {
    pub(crate) id: String,
    pub(crate) item: String,
    pub(crate) price: Price,
    pub(crate) seller: Account,
}

/// A listing, and its buyer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Trade {
    #[serde(flatten)]
    pub(crate) listing: Listing,
    pub(crate) buyer: Account,
}

/// What happens in the market, for its subscribers.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Event {
    Listing(Listing),
    Trade(Trade),
}

impl Event {
    /// The type of a server-sent event.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Listing(_) => "listing",
            Self::Trade(_) => "trade",
        }
    }
}

/// What an account has.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Holdings {
    pub(crate) funds: u64,
    pub(crate) items: Vec<String>,
}

impl Holdings {
    /// A thousand coins, and ten items that no other account has.
    pub(crate) fn of_newborn(account: &Account) -> Self {
        Self {
            funds: 1_000,
            items: (1..=10).map(|n| format!("{account}-{n}")).collect(),
        }
    }
}
