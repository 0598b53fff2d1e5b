//! The market's state in Redis, and the only two scripts that change it.

use super::{keys, link::Link, message::Message, server::Server};
use crate::{
    account::Account,
    market::{Holdings, Listing, Refusal, StoreError},
};
use redis::{RedisResult, Script, ScriptInvocation};
use std::sync::Arc;

/// The time in seconds for which a sold listing is reported as sold and not as unknown: a day.
const KNOWN: u32 = 24 * 60 * 60;

/// The accounts, the listings, and the sold listings. Each listing is stored as the [`Message`] that announced it.
pub(super) struct Books {
    link: Link,
    list: Script,
    purchase: Script,
}

/// The outcome of a script: an error of the store, or else success or a refusal.
type Outcome = Result<Result<(), Refusal>, StoreError>;

macro_rules! script {
    ($file:literal) => {
        Script::new(concat!(include_str!("common.lua"), include_str!($file)))
    };
}

impl Books {
    pub(super) async fn open(server: Arc<Server>) -> RedisResult<Self> {
        Ok(Self {
            link: Link::open(server).await?,
            list: script!("list.lua"),
            purchase: script!("purchase.lua"),
        })
    }

    /// Moves an item from its owner's inventory to the market, for the holder of its lock.
    pub(super) async fn list(&self, message: &Message, token: u64) -> Outcome {
        self.change(&self.list, message, token).await
    }

    /// Moves an item and its price, for the holder of the item's lock.
    pub(super) async fn purchase(&self, message: &Message, token: u64) -> Outcome {
        self.change(&self.purchase, message, token).await
    }

    /// Runs a script once. If no answer arrives, its outcome is unknown.
    async fn change(&self, script: &Script, message: &Message, token: u64) -> Outcome {
        let call = invocation(script, message, token)?;
        let outcome: String = self.link.invoke(&call).await?;
        match &*outcome {
            "done" => Ok(Ok(())),
            "missing" => Ok(Err(Refusal::NotOwned)),
            "poor" => Ok(Err(Refusal::TooPoor)),
            "sold" => Ok(Err(Refusal::Sold)),
            _ => Err("the item's lock was lost".into()),
        }
    }

    /// The listing, or the reason why it does not exist.
    pub(super) async fn listing(&self, id: &str) -> Result<Result<Listing, Refusal>, StoreError> {
        let mut read = redis::pipe();
        read.atomic()
            .hget(keys::LISTINGS, id)
            .exists(keys::sold(id));
        let (listing, sold): (Option<String>, bool) = self.link.query(&read).await?;
        match listing {
            Some(message) => Ok(Ok(listing_of(&message)?)),
            None if sold => Ok(Err(Refusal::Sold)),
            None => Ok(Err(Refusal::Unknown)),
        }
    }

    /// All listings, cheapest first.
    pub(super) async fn listings(&self) -> Result<Vec<Listing>, StoreError> {
        let (ids,): (Vec<String>,) = self
            .link
            .query(redis::pipe().zrange(keys::PRICES, 0, -1))
            .await?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let read = &mut redis::pipe();
        let (found,): (Vec<Option<String>>,) =
            self.link.query(read.hmget(keys::LISTINGS, ids)).await?;
        // A missing listing was sold between the two reads.
        let listings = found.iter().flatten().map(|message| listing_of(message));
        Ok(listings.collect::<Result<_, _>>()?)
    }

    /// The coins and items of an account, or those that it will start with.
    pub(super) async fn account(&self, account: &Account) -> Result<Holdings, StoreError> {
        let mut read = redis::pipe();
        read.atomic().hget(keys::FUNDS, account.as_str());
        read.smembers(keys::items(account));
        let (funds, mut items): (Option<u64>, Vec<String>) = self.link.query(&read).await?;
        // `ann-2` sorts before `ann-10`.
        items.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        let new_account = || Holdings::of_new_account(account);
        Ok(funds.map_or_else(new_account, |funds| Holdings { funds, items }))
    }
}

/// The keys and arguments of both scripts, in the order of `common.lua`.
fn invocation<'a>(
    script: &'a Script,
    message: &Message,
    token: u64,
) -> serde_json::Result<ScriptInvocation<'a>> {
    let (listing, account) = (&message.listing, message.account());
    let new_account = Holdings::of_new_account(account);
    let mut call = script.prepare_invoke();
    call.key(keys::FUNDS).key(keys::items(account));
    call.key(keys::PRICES).key(keys::LISTINGS).key(keys::FENCE);
    call.key(keys::sold(&listing.id));
    call.arg(account.as_str()).arg(&listing.item).arg(token);
    call.arg(&listing.id).arg(listing.price.coins());
    call.arg(listing.seller.as_str());
    call.arg(serde_json::to_string(message)?).arg(keys::EVENTS);
    call.arg(KNOWN)
        .arg(new_account.funds)
        .arg(new_account.items);
    Ok(call)
}

fn listing_of(message: &str) -> serde_json::Result<Listing> {
    serde_json::from_str::<Message>(message).map(|message| message.listing)
}
