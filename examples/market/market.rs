//! The operations of a market, independent of where its state lives.
//!
//! The rest of the example uses only this trait. So a fleet whose market lives in a shared store serves the same routes
//! as a single process with a market in memory.

use crate::{account::Account, price::Price};
use futures_util::{future::BoxFuture, stream::BoxStream};
use serde::{Deserialize, Serialize};
use std::error::Error;

/// The number of events that a reader may lag behind.
pub(crate) const BACKLOG: usize = 1_024;

/// A failure of the store that has the market's state.
pub(crate) type StoreError = Box<dyn Error + Send + Sync>;

/// A future answer, unless the store fails.
pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Accounts that trade items for coins.
///
/// An account is created when it is first seen: see [`Holdings::of_new_account`]. Items and coins move together or not
/// at all, and every change is published.
pub(crate) trait Market: Send + Sync {
    /// Offers an item of `seller` for sale.
    fn list(
        &self,
        seller: Account,
        item: String,
        price: Price,
    ) -> Answer<'_, Result<Listing, Refusal>>;

    /// Sells the listing `id` to `buyer`.
    fn purchase(&self, buyer: Account, id: String) -> Answer<'_, Result<Trade, Refusal>>;

    /// All listings, cheapest first.
    fn listings(&self) -> Answer<'_, Vec<Listing>>;

    /// The coins and items of an account.
    fn account(&self, account: Account) -> Answer<'_, Holdings>;

    /// Events from now on. The stream ends early if its reader lags too far behind.
    fn events(&self) -> BoxStream<'static, Event>;
}

/// The reason why the market refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The seller has no such item.
    NotOwned,
    /// No listing has ever had this id.
    Unknown,
    /// Another account was faster.
    Sold,
    /// The buyer is the seller.
    OwnListing,
    /// The buyer has too few coins.
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

/// A listing and its buyer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Trade {
    #[serde(flatten)]
    pub(crate) listing: Listing,
    pub(crate) buyer: Account,
}

/// A change in the market, for subscribers.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Event {
    Listing(Listing),
    Trade(Trade),
}

impl Event {
    /// The type of the server-sent event.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Listing(_) => "listing",
            Self::Trade(_) => "trade",
        }
    }
}

/// The coins and items of an account.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Holdings {
    pub(crate) funds: u64,
    pub(crate) items: Vec<String>,
}

impl Holdings {
    /// A thousand coins, and ten items that no other account has.
    pub(crate) fn of_new_account(account: &Account) -> Self {
        Self {
            funds: 1_000,
            items: (1..=10).map(|n| format!("{account}-{n}")).collect(),
        }
    }
}
