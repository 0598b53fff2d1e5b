//! A market in this process, behind a mutex.

use crate::{
    account::Account,
    market::{Answer, BACKLOG, Event, Holdings, Listing, Market, Refusal, Trade},
    price::Price,
};
use futures_util::{FutureExt, future::ready, stream::BoxStream};
use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::broadcast;
use tokio_stream::{StreamExt, wrappers::BroadcastStream};
use uuid::Uuid;

/// A market in this process.
pub(crate) struct MemoryMarket {
    books: Mutex<Books>,
    events: broadcast::Sender<Event>,
}

impl MemoryMarket {
    /// A market without accounts or listings.
    pub(crate) fn new() -> Self {
        Self {
            books: Mutex::default(),
            events: broadcast::Sender::new(BACKLOG),
        }
    }

    /// Locks the books. They change in single steps that cannot panic halfway, so they are consistent even under a
    /// poisoned lock.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes an event. Called under the lock, so that events are in order.
    fn publish(&self, event: Event) {
        // Sending fails only if no subscriber exists.
        let _ = self.events.send(event);
    }

    fn list_now(&self, seller: Account, item: &str, price: Price) -> Result<Listing, Refusal> {
        let mut books = self.books();
        let listing = books.list(seller, item, price)?;
        self.publish(Event::Listing(listing.clone()));
        Ok(listing)
    }

    fn purchase_now(&self, buyer: Account, id: &str) -> Result<Trade, Refusal> {
        let mut books = self.books();
        let trade = books.purchase(buyer, id)?;
        self.publish(Event::Trade(trade.clone()));
        Ok(trade)
    }
}

impl Market for MemoryMarket {
    fn list(
        &self,
        seller: Account,
        item: String,
        price: Price,
    ) -> Answer<'_, Result<Listing, Refusal>> {
        answer(self.list_now(seller, &item, price))
    }

    fn purchase(&self, buyer: Account, id: String) -> Answer<'_, Result<Trade, Refusal>> {
        answer(self.purchase_now(buyer, &id))
    }

    fn listings(&self) -> Answer<'_, Vec<Listing>> {
        let mut listings: Vec<_> = self.books().listed.values().cloned().collect();
        listings.sort_by(|a, b| (a.price, &a.id).cmp(&(b.price, &b.id)));
        answer(listings)
    }

    fn account(&self, account: Account) -> Answer<'_, Holdings> {
        let known = self.books().holdings.get(&account).cloned();
        answer(known.unwrap_or_else(|| Holdings::of_new_account(&account)))
    }

    fn events(&self) -> BoxStream<'static, Event> {
        let events = BroadcastStream::new(self.events.subscribe());
        Box::pin(events.map_while(Result::ok))
    }
}

/// Answers at once. Memory never fails.
fn answer<T: Send + 'static>(value: T) -> Answer<'static, T> {
    ready(Ok(value)).boxed()
}

/// The accounts, the listings, and the sold listings.
#[derive(Default)]
struct Books {
    holdings: HashMap<Account, Holdings>,
    listed: HashMap<String, Listing>,
    sold: HashSet<String>,
}

impl Books {
    fn list(&mut self, seller: Account, item: &str, price: Price) -> Result<Listing, Refusal> {
        let items = &mut self.holdings(&seller).items;
        let position = items.iter().position(|owned| owned == item);
        let listing = Listing {
            id: Uuid::new_v4().to_string(),
            item: items.remove(position.ok_or(Refusal::NotOwned)?),
            price,
            seller,
        };
        self.listed.insert(listing.id.clone(), listing.clone());
        Ok(listing)
    }

    /// Checks everything before it moves anything.
    fn purchase(&mut self, buyer: Account, id: &str) -> Result<Trade, Refusal> {
        let listing = self.listing(id)?.clone();
        let coins = listing.price.coins();
        if listing.seller == buyer {
            return Err(Refusal::OwnListing);
        }
        let purse = self.holdings(&buyer);
        purse.funds = purse.funds.checked_sub(coins).ok_or(Refusal::TooPoor)?;
        purse.items.push(listing.item.clone());
        self.holdings(&listing.seller).funds += coins;
        self.listed.remove(id);
        self.sold.insert(id.to_owned());
        Ok(Trade { listing, buyer })
    }

    fn listing(&self, id: &str) -> Result<&Listing, Refusal> {
        self.listed
            .get(id)
            .ok_or_else(|| match self.sold.contains(id) {
                true => Refusal::Sold,
                false => Refusal::Unknown,
            })
    }

    fn holdings(&mut self, account: &Account) -> &mut Holdings {
        let new_account = || Holdings::of_new_account(account);
        self.holdings
            .entry(account.clone())
            .or_insert_with(new_account)
    }
}
